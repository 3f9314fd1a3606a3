"""Find the JSON objects in a program's output as it comes, in one pass."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arena_cli.adapters.processes.tail import Tail

_DECODER = json.JSONDecoder(strict=False)
_BETWEEN = re.compile(r"[\s,\[\]]*+")
# A string matches as one token, so that no bracket in it counts; so does one without an end.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[\[\]{}]')

# That a `{` at the beginning of a line is never closed shows at the end only; then the lines after
# it are read again. The limit keeps the time from growing with the square of the output.
_MOST_REREADINGS = 4
_MOST_STARTS_IN_A_LINE = 8


@dataclass
class _Open:
    """An object over many lines that is not closed yet: `depth` brackets are open."""

    lines: list[str]
    depth: int


class JsonObjects:
    """Find the last object for which `fits` is true; keep the end of all other text in `log`.

    It reads one object a line, an object over many lines, an array of objects, several objects in a
    line, and all of these between lines that are no JSON (a banner, a fence, a log). An object
    after other text in its line counts only if no object begins a line.
    """

    def __init__(self, fits: Callable[[dict[str, Any]], bool]) -> None:
        self.log = Tail()
        self.count = 0
        self._fits = fits
        self._last: dict[str, Any] | None = None
        self._last_within: dict[str, Any] | None = None
        self._ends_with_object = False
        self._line: list[str] = []
        self._open: _Open | None = None
        self._open_arrays = 0
        self._rereadings = 0

    @property
    def last(self) -> dict[str, Any] | None:
        """The last object that fits; None if there is none so far."""
        return self._last if self._last is not None else self._last_within

    def feed(self, text: str) -> None:
        """Read the next piece of the output."""
        *lines, tail = text.replace("\r", "\n").split("\n")
        for line in lines:
            self._line.append(line)
            self._read_lines(["".join(self._line)])
            self._line.clear()
        if tail:
            self._line.append(tail)

    def finish(self) -> None:
        """Read the end of the output: an open object is no JSON."""
        self._read_lines(["".join(self._line)])
        self._line.clear()
        while self._open is not None:
            self._read_lines(self._give_up(self._open))

    def is_complete(self) -> bool:
        """Return True if the output so far is complete and ends with an object.

        A last line without a line end is read if it is complete by itself.
        """
        line = "".join(self._line)
        if line.strip():
            if not self._is_complete_line(line):
                return False
            self._line.clear()
            self._read_lines([line])
        return self._ends_with_object and self._open is None and not self._open_arrays

    def _is_complete_line(self, line: str) -> bool:
        if not line.rstrip().endswith(("}", "]")):
            return False
        trial = JsonObjects(self._fits)
        trial._rereadings = _MOST_REREADINGS
        trial._ends_with_object = self._ends_with_object
        if self._open is not None:
            trial._open = _Open([*self._open.lines], self._open.depth)
        trial._read_lines([line])
        return trial._open is None and trial._ends_with_object

    def _read_lines(self, lines: list[str]) -> None:
        queue = deque(lines)
        while queue:
            line = queue.popleft()
            if self._open is None:
                self._read_from(line, 0)
            else:
                queue.extendleft(reversed(self._read_within(line, self._open)))

    def _read_from(self, line: str, position: int) -> None:
        """Read the objects of a line, from a position where none is open."""
        while True:
            between = _BETWEEN.match(line, position)
            start = between.end() if between else position
            if start < len(line) and line[start] != "{":
                return self._note(line[position:])
            arrays = line.count("[", position, start) - line.count("]", position, start)
            self._open_arrays = max(0, self._open_arrays + arrays)
            if start == len(line):
                return None
            try:
                value, position = _DECODER.raw_decode(line, start)
            except json.JSONDecodeError as error:
                # A line that ends too early is the beginning of an object, another is none.
                if error.pos < len(line.rstrip()) or self._rereadings >= _MOST_REREADINGS:
                    return self._note(line[start:])
                self._open = _Open([line[start:]], _closed_at(line, start, 0)[0])
                return None
            except (ValueError, RecursionError):
                return self._note(line[start:])
            self._take(value)

    def _read_within(self, line: str, open_object: _Open) -> list[str]:
        """Read a line of an object over many lines; return the lines to read again."""
        depth, end = _closed_at(line, 0, open_object.depth)
        if depth > 0:
            open_object.lines.append(line)
            open_object.depth = depth
            return []
        try:
            value = _DECODER.decode("\n".join([*open_object.lines, line[:end]]))
        except (ValueError, RecursionError):
            open_object.lines.append(line)
            return self._give_up(open_object)
        self._open = None
        self._take(value)
        self._read_from(line, end)
        return []

    def _give_up(self, open_object: _Open) -> list[str]:
        self._open = None
        self._rereadings += 1
        self._note(open_object.lines[0])
        return open_object.lines[1:]

    def _take(self, value: dict[str, Any]) -> None:
        self.count += 1
        self._ends_with_object = True
        if self._fits(value):
            self._last = value

    def _note(self, text: str) -> None:
        if not text.strip():
            return
        self._ends_with_object = False
        self.log.add(text + "\n")
        start = -1
        for _ in range(_MOST_STARTS_IN_A_LINE):
            start = text.find("{", start + 1)
            if start < 0:
                return
            try:
                value, end = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):
                continue
            if not text[end:].strip():
                self.count += 1
                if self._fits(value):
                    self._last_within = value
                return


def _closed_at(line: str, start: int, depth: int) -> tuple[int, int]:
    """Return the number of brackets open after the line, or 0 and the offset after the object.

    A string that the line does not end closes all: it is no JSON.
    """
    for token in _TOKEN.finditer(line, start):
        mark = line[token.start()]
        if mark == '"':
            if not token[1]:
                return 0, len(line)
        elif mark in "{[":
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                return 0, token.end()
    return depth, len(line)
