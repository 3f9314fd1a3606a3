"""A YAML file that was read: its data, and for each value its line, its errors and their fixes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import yaml

from arena_cli.errors import Fault
from arena_cli.util import excerpt
from arena_cli.yamlio import nodes
from arena_cli.yamlio.nodes import Loc, Node, YamlProblem

LONGEST_FIX = 120  # characters; a longer line is not written out again


class Document:
    """The contents of one file. `data` is None if it is empty or could not be read.

    `name` is the path as the user sees it. `has_free_keys`: some key of it begins with `x-`. Lines
    are looked up in `text`, which is parsed when the first line is requested. Without `is_shown`,
    no error quotes any of it.
    """

    def __init__(
        self,
        name: str,
        data: Any,
        faults: Sequence[Fault] = (),
        *,
        text: str | None = None,
        has_free_keys: bool = False,
        is_shown: bool = True,
    ) -> None:
        self.name = name
        self.data = data
        self.faults = tuple(faults)
        self.has_free_keys = has_free_keys
        self._is_shown = is_shown
        self._text = text
        self._origin: Document | None = None

    def with_data(self, data: Any) -> Document:
        """Return the same file with other data, as if its text held that."""
        copied = copy.copy(self)
        copied.data = data
        copied._origin = self._origin or self
        return copied

    @cached_property
    def has_placeholders(self) -> bool:
        """True if its text contains `${`, or if it has no text."""
        return self._text is None or "${" in self._text

    @cached_property
    def _root(self) -> Node | None:
        if self._origin is not None:
            return self._origin._root
        try:
            return nodes.compose(self._text) if self._text else None
        except (yaml.YAMLError, RecursionError):
            return None

    @cached_property
    def fields(self) -> frozenset[str]:
        """The fields that reading found an error in."""
        return frozenset(fault.field for fault in self.faults if fault.field)

    @property
    def is_empty(self) -> bool:
        """True if it is a file without contents."""
        return self._text is not None and self.data is None and not self.faults

    def line(self, loc: Loc = ()) -> int:
        """Return the line of the key or item at `loc`, of its nearest parent if there is none."""
        if self._root is None:
            return 1 if self.data is None else 0
        spot = self._spot(loc)
        return (spot.key or spot.value).start_mark.line + 1

    def holds(self, loc: Loc) -> bool:
        """Return True if there is a value at `loc`."""
        value = self.data
        for step in loc:
            value = nodes.get_child(value, step)
        return value is not nodes.MISSING

    def raw(self, loc: Loc) -> str | None:
        """Return the value at `loc` as it is written (`1.10`), None if it takes several lines."""
        span = self._span(loc)
        return None if span is None else span.line[span.start : span.end]

    def scalar(self, loc: Loc) -> str | None:
        """Return the text of the scalar at `loc`, before it became a number; None if none is."""
        if self._root is None:
            return None
        spot = self._spot(loc)
        is_scalar = spot.is_exact and isinstance(spot.value, yaml.ScalarNode)
        return spot.value.value if is_scalar else None

    def hint_with(self, loc: Loc, value: str) -> str:
        """Return the hint to write the line with `value` at `loc`, "" if that is no short line."""
        span = self._span(loc)
        if span is None:
            return ""
        return self._hint(span.number, f"{span.line[: span.start]}{value}{span.line[span.end :]}")

    def fault(self, loc: Loc, problem: str, hint: str = "", *, at_key: bool = False) -> Fault:
        """Return an error of the value at `loc` or, with `at_key`, of its key."""
        field = nodes.format_loc(loc)
        if not self._is_shown:
            return _without_quotes(Fault(self.name, self.line(loc), field, problem, hint))
        if self._root is None:
            return Fault(self.name, self.line(loc), field, problem, hint)
        spot = self._spot(loc)
        line = (spot.key or spot.value).start_mark.line
        node = spot.value
        if spot.key is not None and (at_key or spot.value.start_mark.line != line):
            node = spot.key
        column = node.start_mark.column if spot.is_exact else None
        fault = Fault(self.name, line + 1, field, problem, hint)
        is_line = loc or isinstance(spot.value, yaml.ScalarNode)
        if not is_line or not (spot.is_exact or spot.key):
            return fault
        return self._quote(fault, column)

    def explain(self, finding: YamlProblem) -> Fault:
        """Return the error for a problem that was found in the text."""
        hint = finding.hint
        if finding.fixed is not None and finding.fixed.strip():
            hint = self._hint(finding.line - 1, finding.fixed) or hint
        field = nodes.format_loc(finding.loc)
        fault = Fault(self.name, finding.line, field, finding.problem, hint)
        return self._quote(fault, finding.column)

    def _spot(self, loc: Loc) -> _NodePlace:
        key: Node | None = None
        node: Any = self._root
        for step in loc:
            child = _child(node, step)
            if child is None:
                return _NodePlace(key, node, is_exact=False)
            key, node = child
        return _NodePlace(key, node, is_exact=True)

    def _span(self, loc: Loc) -> _ValueSpan | None:
        """Return the place of the value at `loc` in its line, None if it takes several."""
        if self._root is None:
            return None
        spot = self._spot(loc)
        start, end = spot.value.start_mark, spot.value.end_mark
        key_line = (spot.key or spot.value).start_mark.line
        if not spot.is_exact or not key_line == start.line == end.line < len(self._lines):
            return None
        return _ValueSpan(self._lines[start.line], start.line, start.column, end.column)

    @cached_property
    def _lines(self) -> list[str]:
        return (self._text or "").split("\n")

    @cached_property
    def _hidden(self) -> frozenset[int]:
        return excerpt.find_secret_lines(self._lines)

    def _hint(self, number: int, fixed: str) -> str:
        if len(fixed.strip()) > LONGEST_FIX:
            return ""
        if not self._is_shown or number in self._hidden or excerpt.mask_line(fixed) != fixed:
            return ""
        return f"write: {fixed.strip()}"

    def _quote(self, fault: Fault, column: int | None) -> Fault:
        """Return the error with its line, without the secrets of that line."""
        lines = self._lines
        line = lines[fault.line - 1] if fault.line <= len(lines) else ""
        if not self._is_shown:
            return _without_quotes(fault)
        is_hidden = fault.line - 1 in self._hidden
        source = excerpt.HIDDEN if is_hidden else excerpt.mask_line(line)
        problem, hint = (
            excerpt.hide_quotes(text, line, source) for text in (fault.what, fault.mend)
        )
        if line[:column] != source[:column]:
            column = None
        field = fault.field if problem == fault.what else fault.field.rpartition(".")[0]
        return replace(fault, field=field, what=problem, mend=hint, source=source, column=column)


class _NodePlace(NamedTuple):
    """The nodes at a place, of its nearest parent if it is not `is_exact`."""

    key: Node | None
    value: Node
    is_exact: bool


class _ValueSpan(NamedTuple):
    """A value in its line, which is counted from 0."""

    line: str
    number: int
    start: int
    end: int


class Fragment(NamedTuple):
    """The value at `loc` of a document; its errors have that document's lines."""

    document: Document
    loc: Loc = ()

    @property
    def data(self) -> Any:
        """The value, or None if there is none."""
        value = self.document.data
        for step in self.loc:
            value = nodes.get_child(value, step)
        return None if value is nodes.MISSING else value

    def holds(self, loc: Loc) -> bool:
        """Return True if there is a value at `loc` below this part."""
        return self.document.holds((*self.loc, *loc))

    def fault(self, loc: Loc, problem: str, hint: str = "", *, at_key: bool = False) -> Fault:
        """Return an error of the value at `loc` below this part or, with `at_key`, of its key."""
        return self.document.fault((*self.loc, *loc), problem, hint, at_key=at_key)


def find_holder(fragments: Sequence[Fragment], loc: Loc) -> Fragment:
    """Return the nearest part that holds `loc`, or as much of it as any does."""
    for end in range(len(loc), 0, -1):
        for fragment in fragments:
            if fragment.holds(loc[:end]):
                return fragment
    return fragments[0]


def _without_quotes(fault: Fault) -> Fault:
    """Return the error without quotations of the file: its keys and values."""
    return replace(fault, field="", what=excerpt.hide_all_quotes(fault.what), mend="")


def _child(node: Node, step: str | int) -> tuple[Node, Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        item = node.value[step] if step < len(node.value) else None
        return (item, item) if item is not None else None
    for key, key_node, value in nodes.iter_children(node):
        if key == step:
            return key_node, value
    return None
