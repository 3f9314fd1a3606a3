"""Keep the end of a text or of a stream of bytes that may be long."""

from __future__ import annotations

from arena_cli.ground import ansi
from arena_cli.ground import text as texts

LIMIT = 8192


class Tail:
    """The last `LIMIT` characters of what was added."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, piece: str) -> None:
        """Append to the text."""
        self._text = (self._text + piece[-LIMIT - 1 :])[-LIMIT - 1 :]

    @property
    def text(self) -> str:
        """The end of the text, without white space around it."""
        return texts.end_of(self._text, LIMIT).strip()


class ByteTail:
    """The last `LIMIT` bytes of a stream, as text without control sequences."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, data: bytes) -> None:
        """Append to the stream."""
        self._bytes = (self._bytes + data[-LIMIT - 1 :])[-LIMIT - 1 :]

    @property
    def text(self) -> str:
        """The end of the stream; if its beginning was cut off, from the next whole word on."""
        data = self._bytes
        is_cut = len(data) > LIMIT
        if is_cut:
            data = data[1:].lstrip(bytes(range(0x80, 0xC0)))
        text = ansi.strip(texts.decode(data)[0])
        if is_cut and not self._bytes[:1].isspace():
            text = texts.end_of(f"x{text}", len(text))
        return text.strip()
