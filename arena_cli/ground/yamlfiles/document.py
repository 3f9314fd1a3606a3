"""What a YAML file holds, and where in it: lines, faults with their line, mends of a line."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from yaml import SequenceNode

from arena_cli.ground.errors import Fault
from arena_cli.ground.yamlfiles import excerpt, yamlnodes
from arena_cli.ground.yamlfiles.yamlnodes import Finding, Loc, Node

LONGEST_MEND = 120  # characters; a longer line is not written out again


class Document:
    """What one file holds. `data` is None where it is empty or could not be read.

    `shown` is the path as the user is shown it. `has_free_keys` tells whether any key of it starts
    with `x-`. Lines are looked up in `text`, which is parsed for that when the first is asked for;
    where it is not `is_shown`, no fault quotes any of it.
    """

    def __init__(
        self,
        shown: str,
        data: Any,
        faults: Sequence[Fault] = (),
        *,
        text: str | None = None,
        read: str | None = None,
        has_free_keys: bool = False,
        is_shown: bool = True,
    ) -> None:
        self.shown = shown
        self.data = data
        self.faults = tuple(faults)
        self.has_free_keys = has_free_keys
        self._is_shown = is_shown
        self._text = text
        self._read = text if read is None else read
        self._same_text: Document | None = None

    def with_data(self, data: Any) -> Document:
        """The same file with other data, as if its text said that."""
        other = copy.copy(self)
        other.data = data
        other._same_text = self._same_text or self
        return other

    @cached_property
    def has_placeholders(self) -> bool:
        """Whether `${` stands in it."""
        return self._read is None or "${" in self._read

    @cached_property
    def _root(self) -> Node | None:
        """The nodes of the text as it was mended to be read; None where there are none."""
        if self._same_text is not None:
            return self._same_text._root
        return yamlnodes.compose(self._read) if self._read else None

    @cached_property
    def fields(self) -> frozenset[str]:
        """The fields of which reading found something wrong."""
        return frozenset(fault.field for fault in self.faults if fault.field)

    @cached_property
    def mended_lines(self) -> frozenset[int]:
        """The lines that were mended to be read."""
        if self._read == self._text:
            return frozenset()
        pairs = enumerate(zip(self._lines, self._read_lines, strict=False), 1)
        return frozenset(number for number, (line, read) in pairs if line != read)

    @property
    def is_empty(self) -> bool:
        """Whether it is a file in which nothing stands."""
        return self._text is not None and self.data is None and not self.faults

    def line(self, loc: Loc = ()) -> int:
        """The line of the key or item at `loc`, of its nearest parent where there is none."""
        if self._root is None:
            return 1 if self.data is None else 0
        spot = self._spot(loc)
        return (spot.key or spot.value).start_mark.line + 1

    def holds(self, loc: Loc) -> bool:
        """Whether something stands at `loc`."""
        value = self.data
        for part in loc:
            value = yamlnodes.below(value, part)
        return value is not yamlnodes.MISSING

    def raw(self, loc: Loc) -> str | None:
        """The value at `loc` as it stands in the file (`1.10`), None where it takes more lines."""
        found = self._in_line(loc)
        return None if found is None else found[0][found[1] : found[2]]

    def rewritten(self, loc: Loc, value: str) -> str:
        """The mend of a line whose value at `loc` is to be `value`; "" where it is no short one."""
        found = self._in_line(loc)
        if found is None:
            return ""
        line, start, end, number = found
        return self._write(number, f"{line[:start]}{value}{line[end:]}")

    def fault(self, loc: Loc, what: str, mend: str = "", *, at_key: bool = False) -> Fault:
        """A fault of what stands at `loc`: of the value or, with `at_key`, of its key."""
        field = yamlnodes.dotted(loc)
        if not self._is_shown:
            return _without_quotes(Fault(self.shown, self.line(loc), field, what, mend))
        if self._root is None:
            return Fault(self.shown, self.line(loc), field, what, mend)
        spot = self._spot(loc)
        line = (spot.key or spot.value).start_mark.line
        node = spot.value
        if spot.key is not None and (at_key or spot.value.start_mark.line != line):
            node = spot.key
        column = node.start_mark.column if spot.is_whole else None
        if not loc or not (spot.is_whole or spot.key):
            return Fault(self.shown, line + 1, field, what, mend)
        return self._quoted(Fault(self.shown, line + 1, field, what, mend), column)

    def of_finding(self, found: Finding) -> Fault:
        """A fault of what was found wrong in the text."""
        field = yamlnodes.dotted(found.loc)
        mend = found.mend
        if found.fixed is not None and found.fixed.strip():
            mend = self._write(found.line - 1, found.fixed) or mend
        column = found.column
        return self._quoted(Fault(self.shown, found.line, field, found.what, mend), column)

    def _spot(self, loc: Loc) -> _Spot:
        key: Node | None = None
        node: Any = self._root
        for part in loc:
            found = _child(node, part)
            if found is None:
                return _Spot(key, node, is_whole=False)
            key, node = found
        return _Spot(key, node, is_whole=True)

    def _in_line(self, loc: Loc) -> tuple[str, int, int, int] | None:
        """Its line, where the value at `loc` starts and ends in it, the line's index."""
        if self._root is None:
            return None
        spot = self._spot(loc)
        start, end = spot.value.start_mark, spot.value.end_mark
        key_line = (spot.key or spot.value).start_mark.line
        if not spot.is_whole or not key_line == start.line == end.line < len(self._lines):
            return None
        line = self._lines[start.line]
        if line != self._read_lines[start.line]:
            return None
        return line, start.column, end.column, start.line

    @cached_property
    def _lines(self) -> list[str]:
        return (self._text or "").split("\n")

    @cached_property
    def _hidden(self) -> frozenset[int]:
        return excerpt.below_secrets(self._lines)

    @cached_property
    def _read_lines(self) -> list[str]:
        return (self._read or "").split("\n")

    def _write(self, index: int, fixed: str) -> str:
        if len(fixed.strip()) > LONGEST_MEND:
            return ""
        if not self._is_shown or index in self._hidden or excerpt.masked(fixed) != fixed:
            return ""
        return f"write: {fixed.strip()}"

    def _quoted(self, fault: Fault, column: int | None) -> Fault:
        """The fault with its line, without the secrets of that line."""
        lines = self._lines
        line = lines[fault.line - 1] if fault.line <= len(lines) else ""
        if not self._is_shown:
            return _without_quotes(fault)
        hidden = fault.line - 1 in self._hidden
        kept = excerpt.HIDDEN if hidden else excerpt.masked(line)
        what, mend = (excerpt.without(words, line, kept) for words in (fault.what, fault.mend))
        if line[:column] != kept[:column]:
            column = None
        field = fault.field if what == fault.what else fault.field.rpartition(".")[0]
        return replace(fault, field=field, what=what, mend=mend, source=kept, column=column)


class _Spot(NamedTuple):
    """The nodes at a place, of its nearest parent where it is not `is_whole`."""

    key: Node | None
    value: Node
    is_whole: bool


class Part(NamedTuple):
    """The value at `loc` of a document; faults in it are told with that document's lines."""

    document: Document
    loc: Loc = ()

    @property
    def data(self) -> Any:
        """The value, or None where nothing stands there."""
        value = self.document.data
        for part in self.loc:
            value = yamlnodes.below(value, part)
        return None if value is yamlnodes.MISSING else value

    def holds(self, loc: Loc) -> bool:
        """Whether something stands at `loc` below this part."""
        return self.document.holds((*self.loc, *loc))

    def fault(self, loc: Loc, what: str, mend: str = "", *, at_key: bool = False) -> Fault:
        """A fault of what stands at `loc` below this part."""
        return self.document.fault((*self.loc, *loc), what, mend, at_key=at_key)


def _without_quotes(fault: Fault) -> Fault:
    """The fault without what may be quoted of the file: its keys and values."""
    return replace(fault, field="", what=excerpt.without_quotes(fault.what), mend="")


def _child(node: Node, part: str | int) -> tuple[Node, Node] | None:
    if isinstance(node, SequenceNode) and isinstance(part, int):
        item = node.value[part] if part < len(node.value) else None
        return (item, item) if item is not None else None
    for key, shown, value in yamlnodes.children(node):
        if key == part:
            return shown, value
    return None


def holder(parts: Sequence[Part], loc: Loc) -> Part:
    """The nearest part that holds `loc`, or as much of it as any does."""
    for end in range(len(loc), 0, -1):
        for part in parts:
            if part.holds(loc[:end]):
                return part
    return parts[0]
