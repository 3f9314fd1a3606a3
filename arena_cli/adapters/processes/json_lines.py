"""Read the output of programs that write one JSON object a line."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from arena_cli.ground import ansi
from arena_cli.ground import text as texts

_LINE_DECODER = json.JSONDecoder(strict=False)


class Lines:
    """Split a stream that comes in pieces into lines."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, without line ends."""
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._open, lines[0]])
            self._open.clear()
        if tail:
            self._open.append(tail)
        return lines

    def rest(self) -> list[bytes]:
        """Return the last line, which had no end."""
        line = b"".join(self._open)
        self._open.clear()
        return [line] if line else []


class Line(NamedTuple):
    """A line without control sequences: its JSON object, if it is one, and its text.

    `replaced`: bytes that are not UTF-8 were replaced.
    """

    value: dict[str, Any] | None
    text: str
    replaced: bool


def read(line: bytes) -> Line:
    """Parse a line."""
    text, replaced = texts.decode(line)
    text = ansi.strip(text).strip()
    try:
        value = _LINE_DECODER.decode(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    return Line(value, text, replaced)
