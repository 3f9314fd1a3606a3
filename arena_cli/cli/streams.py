"""stdin, stdout and stderr that are closed, full, or no longer read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Literal, TextIO

# Windows has no TERM; elsewhere a terminal that does not say what it is can do nothing for sure.
_TERM = "windows" if sys.platform == "win32" else ""


def prepare() -> None:
    """Make all three usable: a closed one reads nothing and takes everything.

    What cannot be encoded is written as an escape.
    """
    # In this order, so that each gets its own descriptor and no transcript is opened as stdout.
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def speak_utf8() -> None:
    """JSON is UTF-8 with `\\n`, whatever the locale and the platform write."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it in a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", _TERM) not in {"dumb", "unknown", ""}


def encodable(texts: Mapping[str, str], stream: TextIO) -> dict[str, str]:
    """Those of the texts that a stream can write as they are."""
    kept = {}
    for name, text in texts.items():
        with contextlib.suppress(UnicodeEncodeError):
            text.encode(stream.encoding)
            kept[name] = text
    return kept


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def drop(stream: TextIO) -> None:
    """From now on it goes nowhere, also what is still to be flushed, without a word."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)
