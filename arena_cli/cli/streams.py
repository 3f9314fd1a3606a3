"""stdin, stdout and stderr that are closed, full, or no longer read."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Literal, TextIO

from arena_cli.ground.errors import DiskRefused

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
            # Flushed by this, it may refuse what it was given before; whoever prints next is told.
            with contextlib.suppress(OSError):
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


class Stdout:
    """stdout that may go away: whoever reads it may stop, the chain goes on.

    `failed` keeps the error of a stdout that refused to take what was printed.
    """

    def __init__(self) -> None:
        self._open = True
        self.failed: OSError | None = None

    def write(self, text: str) -> None:
        """Print lines, `\\n` included, at once."""
        if not self._open:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._open = False
            self.failed = None if _nobody_reads(error) else error
            drop(sys.stdout)

    @property
    def is_read(self) -> bool:
        """Whether what is printed still reaches anybody."""
        return self._open

    def check(self) -> None:
        """Raise DiskRefused if stdout could not be written (a full disk behind `>`)."""
        if self.failed:
            raise DiskRefused(f"stdout: could not write: {self.failed.strerror or self.failed}")


def _nobody_reads(error: OSError) -> bool:
    """Whether a pipe was closed at its other end, for which Windows has an error of its own."""
    windows = sys.platform == "win32" and error.errno == errno.EINVAL
    return windows or isinstance(error, BrokenPipeError)


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def drop(stream: TextIO) -> None:
    """From now on it goes nowhere, also what is still to be flushed, without a word."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)
