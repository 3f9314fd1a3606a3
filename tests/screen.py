"""A terminal as far as arena needs one: it wraps, reflows when it becomes narrower, obeys CSI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.cells import split_graphemes

_PIECE = re.compile("\x1b\\[([0-9;?]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+|\x1b")


@dataclass
class Screen:
    """What somebody sees: `rows` of text, trailing spaces cut; `styles` are the SGR codes so far.

    `raw` is what was written. Raises where something is written that such a terminal has not.
    """

    width: int
    cells: list[list[str]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    cursor: bool = True
    raw: str = ""
    styles: set[str] = field(default_factory=set)

    def write(self, text: str) -> None:
        self.raw += text
        for piece in _PIECE.finditer(text):
            if piece[2]:
                self._obey(piece[1], piece[2])
            elif piece[0] == "\r":
                self.column = 0
            elif piece[0] == "\n":
                self._next_row()
                self.column = 0
            else:
                assert piece[0] != "\x1b", "an escape that is no CSI"
                self._put(piece[0])

    def resize(self, width: int) -> None:
        """Become narrower: rows that are too long go on in a further one, as in most terminals."""
        rows: list[list[str]] = []
        for number, row in enumerate(self.cells):
            if number == self.row:
                self.column = min(self.column, width)
            parts = [row[at : at + width] for at in range(0, len(row), width)] or [[]]
            rows += parts
            if number == self.row:
                self.row_after = len(rows) - 1
        self.cells, self.row, self.width = rows, self.row_after, width

    @property
    def rows(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.rows).rstrip("\n")

    def _obey(self, numbers: str, command: str) -> None:
        count = int(numbers or 1) if numbers.isdigit() or not numbers else 0
        match command:
            case "A":
                assert self.row >= count, "the cursor leaves the screen"
                self.row -= count
            case "K":
                assert numbers == "2"
                self.cells[self.row] = []
            case "h" | "l":
                assert numbers == "?25"
                self.cursor = command == "h"
            case "m":
                self.styles.add(numbers)
            case _:
                raise AssertionError(f"CSI {numbers} {command}")

    def _put(self, text: str) -> None:
        for start, end, wide in split_graphemes(text)[0]:
            if self.column + wide > self.width:
                self._next_row()
                self.column = 0
            row = self.cells[self.row]
            row += [" "] * (self.column - len(row))
            if not wide:
                row[self.column - 1 : self.column] = ["".join([*row[-1:], text[start:end]])]
                continue
            row[self.column : self.column + wide] = [text[start:end], *[""] * (wide - 1)]
            self.column += wide

    def _next_row(self) -> None:
        self.row += 1
        if self.row == len(self.cells):
            self.cells.append([])


def chunks(terminal: int) -> Iterator[bytes]:
    """What is written to a pseudo-terminal, by the descriptor of its other side, until it ends."""
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # on Linux that is how a terminal ends
            return
        if not chunk:
            return
        yield chunk
