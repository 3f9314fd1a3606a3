"""What programs write that speak a JSON object a line."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from arena_cli.ground import ansi
from arena_cli.ground import text as texts

_DECODER = json.JSONDecoder(strict=False)


class Lines:
    """The lines of a stream that comes in pieces, each in one piece."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes end, without their ends."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._open, lines[0]])
            self._open.clear()
        if rest:
            self._open.append(rest)
        return lines

    def rest(self) -> list[bytes]:
        """The last line, which had no end."""
        line = b"".join(self._open)
        self._open.clear()
        return [line] if line else []


class Line(NamedTuple):
    """A line without control sequences: the object that it is, or None; its text.

    `replaced`: bytes that are not UTF-8 were.
    """

    value: dict[str, Any] | None
    text: str
    replaced: bool


def read(line: bytes) -> Line:
    """What a line holds."""
    text, replaced = texts.decode(line)
    text = ansi.strip(text).strip()
    try:
        value = _DECODER.decode(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    return Line(value, text, replaced)
