"""Where a YAML parser gave up."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where the parser gave up, and where what it was reading began; lines and columns from 0."""

    lines: list[str]
    line: int
    column: int
    start_line: int
    start_column: int
    problem: str
    context: str

    @property
    def text(self) -> str:
        return self.at(self.line)

    @property
    def start_text(self) -> str:
        return self.at(self.start_line)

    @property
    def char(self) -> str:
        return self.text[self.column : self.column + 1]

    def at(self, line: int) -> str:
        return self.lines[line] if line < len(self.lines) else ""

    def above(self, line: int) -> int:
        """The nearest line above that says something; the line itself where there is none."""
        for number in range(min(line, len(self.lines)) - 1, -1, -1):
            text = self.lines[number].strip()
            if text and not text.startswith("#"):
                return number
        return line

    def mended(self, line: int, fixed: str) -> str:
        lines = list(self.lines)
        lines[line] = fixed
        return "\n".join(lines)


def indent_of(text: str) -> int:
    """How many spaces a line begins with."""
    return len(text) - len(text.lstrip(" "))
