"""Read and write YAML files: plain data that remembers its lines, checked against shapes.

Reading never raises for the contents of a file: every error is in the `Document` with its file and
line, and `validate` adds those of values that do not fit the shape. What is written reads back
unchanged.
"""

from __future__ import annotations

import codecs
import contextlib
import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel

from arena_cli.errors import Fault
from arena_cli.util import files
from arena_cli.util.redaction import (
    HIDDEN,
    find_secret_lines,
    hide_all_quotes,
    hide_quotes,
    mask_line,
)
from arena_cli.util.text import lazy_pattern
from arena_cli.yamlio import hints, nodes, schema_errors
from arena_cli.yamlio.nodes import Loc, Node, YamlProblem

LONGEST_FIX = 120  # characters; a longer line is not written out again


@dataclass(eq=False)
class Document:
    """The contents of one file. `data` is None if it is empty or could not be read.

    `name` is the path as the user sees it. `has_free_keys`: some key of it begins with `x-`. Lines
    are looked up in `text`, which is parsed when the first line is requested. Without `is_shown`,
    no error quotes any of it.
    """

    name: str
    data: Any
    faults: tuple[Fault, ...] = ()
    _: KW_ONLY
    text: str | None = None
    has_free_keys: bool = False
    is_shown: bool = True
    _origin: Document | None = field(default=None, init=False)

    def with_data(self, data: Any) -> Document:
        """Return the same file with other data, as if its text held that."""
        copied = copy.copy(self)
        copied.data = data
        copied._origin = self._origin or self
        return copied

    @cached_property
    def has_placeholders(self) -> bool:
        """True if its text contains `${`, or if it has no text."""
        return self.text is None or "${" in self.text

    @cached_property
    def _root(self) -> Node | None:
        if self._origin is not None:
            return self._origin._root
        try:
            return nodes.compose(self.text) if self.text else None
        except (yaml.YAMLError, RecursionError):
            return None

    @cached_property
    def fields(self) -> frozenset[str]:
        """The fields that reading found an error in."""
        return frozenset(fault.field for fault in self.faults if fault.field)

    @property
    def is_empty(self) -> bool:
        """True if it is a file without contents."""
        return self.text is not None and self.data is None and not self.faults

    def line(self, loc: Loc = ()) -> int:
        """Return the line of the key or item at `loc`, of its nearest parent if there is none."""
        if self._root is None:
            return 1 if self.data is None else 0
        spot = self._spot(loc)
        return (spot.key or spot.value).start_mark.line + 1

    def holds(self, loc: Loc) -> bool:
        """Return True if there is a value at `loc`."""
        return nodes.find_value(self.data, loc) is not nodes.MISSING

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
        if not self.is_shown:
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
        if finding.fixed.strip():
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
        return (self.text or "").split("\n")

    @cached_property
    def _hidden(self) -> frozenset[int]:
        return find_secret_lines(self._lines)

    def _hint(self, number: int, fixed: str) -> str:
        if len(fixed.strip()) > LONGEST_FIX:
            return ""
        if not self.is_shown or number in self._hidden or mask_line(fixed) != fixed:
            return ""
        return f"write: {fixed.strip()}"

    def _quote(self, fault: Fault, column: int | None) -> Fault:
        """Return the error with its line, without the secrets of that line."""
        lines = self._lines
        line = lines[fault.line - 1] if fault.line <= len(lines) else ""
        if not self.is_shown:
            return _without_quotes(fault)
        is_hidden = fault.line - 1 in self._hidden
        source = HIDDEN if is_hidden else mask_line(line)
        problem, hint = (hide_quotes(text, line, source) for text in (fault.what, fault.mend))
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
        data = self.document.data
        value = nodes.find_value(data, self.loc) if self.loc else data
        return None if value is nodes.MISSING else value

    def below(self, *loc: str | int) -> Fragment:
        """Return the part at `loc` below this one."""
        return Fragment(self.document, (*self.loc, *loc))

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
    return replace(fault, field="", what=hide_all_quotes(fault.what), mend="")


def _child(node: Node, step: str | int) -> tuple[Node, Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        item = node.value[step] if step < len(node.value) else None
        return (item, item) if item is not None else None
    for key, key_node, value in nodes.iter_children(node):
        if key == step:
            return key_node, value
    return None


T = TypeVar("T", bound=BaseModel)

# The parser would take the invisible line ends of YAML 1.1 for line ends.
_LINE_ENDS_OF_1_1 = lazy_pattern("[\x85\u2028\u2029]")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF32_BE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16"),
)


def load(path: Path, name: str, *, is_shown: bool = True) -> Document:
    """Read a file; if it cannot be opened or is not UTF-8, that is an error of the document.

    `name` is the path as the user sees it. Without `is_shown`, no error quotes the file.
    """
    try:
        raw = files.read_regular(path)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        return Document(name, None, (Fault(name, 0, "", problem),))
    line = 1
    if b"\0" not in raw[:4]:
        try:
            return parse(raw.decode("utf-8"), name, is_shown=is_shown)
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
    encoding, text = guess_encoding(raw)
    problem = "is not UTF-8" + (f"; it looks like {encoding}" if encoding else "")
    finding = YamlProblem(line, problem, "save the file as UTF-8")
    return _document(name, None, _normalize(text), [finding], is_shown=is_shown)


def load_named(
    name: str, root: Path, make_fault: Callable[..., Fault], *, anywhere: bool
) -> tuple[Document | None, list[Fault]]:
    """Read a file that a setting names; None with an error if there is none in the workspace.

    `make_fault` makes errors of the setting, `anywhere` as in `files.find_name_problem`.
    """
    problem = files.find_name_problem(name, root, anywhere=anywhere)
    path = root / name
    if problem is None and not path.is_file():
        problem = f"there is no file `{name}`", ""
    if problem is not None:
        return None, [make_fault(*problem)]
    return load(path, name, is_shown=files.is_inside(path, root)), []


def guess_encoding(raw: bytes) -> tuple[str, str]:
    """Return the name of an encoding that is not UTF-8, "" if none fits, and the decoded text."""
    guess = next((row[1:] for row in _BYTE_ORDER_MARKS if raw.startswith(row[0])), None)
    if guess is None and b"\0" in raw[:4]:
        guess = ("UTF-16", "utf-16-be" if raw[:1] == b"\0" else "utf-16-le")
    if guess is None:
        runs = re.findall(rb"[\x80-\xff]+", raw)
        pairs = sum(len(run) > 1 for run in runs)
        # A Chinese text has most of its bytes in pairs, a Latin one a letter here and there.
        guess = ("GBK", "gb18030") if pairs * 2 > len(runs) else ("Windows-1252", "cp1252")
    try:
        return guess[0], raw.decode(guess[1])
    except UnicodeDecodeError:
        return "", raw.decode("utf-8", "replace")


def _normalize(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str, name: str, *, is_shown: bool = True) -> Document:
    """Read a text. A byte order mark and the kind of line ending make no difference."""
    text = _normalize(text)
    finding = _find_control(text)
    root = None
    if finding is None:
        try:
            root = nodes.compose(text)
        except RecursionError:
            finding = YamlProblem(1, "nested too deep to be read")
        except yaml.YAMLError as error:
            finding = hints.explain_error(error, text)
    if finding is not None:
        return _document(name, None, text, [finding], is_shown=is_shown)
    if root is None:
        return Document(name, None, text=text, is_shown=is_shown)
    is_suspect = hints.SUSPECTS.search(text) is not None
    bad_keys = hints.find_bad_keys(root, text) if is_suspect else []
    if bad_keys:
        return _document(name, None, text, bad_keys, is_shown=is_shown)
    builder = nodes.DataBuilder(text)
    data = None
    with contextlib.suppress(nodes.TooLarge):
        data = builder.build(root)
    findings = builder.findings
    if is_suspect or builder.has_empty:
        slips = list(hints.find_slips(root, text))
        findings += slips
        for loc in [loc for slip in slips for loc in slip.dropped]:
            _drop(data, loc)
    return _document(
        name, data, text, findings, is_shown=is_shown, has_free_keys=builder.has_free_keys
    )


def _document(
    name: str,
    data: Any,
    text: str,
    findings: Sequence[YamlProblem],
    *,
    is_shown: bool,
    has_free_keys: bool = False,
) -> Document:
    document = Document(name, data, text=text, is_shown=is_shown, has_free_keys=has_free_keys)
    document.faults = tuple(document.explain(finding) for finding in findings)
    return document


def _find_control(text: str) -> YamlProblem | None:
    match = yaml.reader.Reader.NON_PRINTABLE.search(text) or _LINE_ENDS_OF_1_1.search(text)
    if match is None:
        return None
    column = match.start() - text.rfind("\n", 0, match.start()) - 1
    line = text.count("\n", 0, match.start()) + 1
    problem = f"the character U+{ord(match.group()):04X} is not allowed in a YAML file"
    return YamlProblem(line, problem, "remove it, or escape it between double quotes", column)


def _drop(data: Any, loc: Loc) -> None:
    data = nodes.find_value(data, loc[:-1])
    if isinstance(data, dict):
        data.pop(loc[-1], None)


def wrap_data(data: Any, name: str) -> Document:
    """Return data that is in no file (a command line's settings) as a document without lines."""
    return Document(name, data)


def validate(document: Document, shape: type[T]) -> tuple[T | None, list[Fault]]:
    """Return the document as `shape`, None if it has any error, and all its errors."""
    if document.data is None and document.faults:
        return None, list(document.faults)
    instance, faults = validate_merged(document.data, shape, [Fragment(document)])
    faults = [*document.faults, *faults]
    return (None if faults else instance), faults


def validate_part(fragment: Fragment, shape: type[T]) -> tuple[T | None, list[Fault]]:
    """Return the value at a part as `shape`, None if it does not fit, and its errors."""
    return validate_merged(fragment.data, shape, [fragment])


def validate_merged(
    data: Any,
    shape: type[T],
    fragments: Sequence[Fragment],
    *,
    is_pending: Callable[[Any], bool] = lambda _: False,
) -> tuple[T | None, list[Fault]]:
    """Return `data`, which was merged from `fragments`, the nearest first, as `shape`.

    An error belongs to the nearest part that holds the value. Types are strict as in JSON: no text
    is a number, no number a text; a list may become a tuple, a text a path. A wrong value that
    `is_pending` is no error yet; the shape is None then too.
    """
    if any(fragment.document.has_free_keys for fragment in fragments):
        data = schema_errors.drop_free_keys(data, shape)
    instance, faults = schema_errors.check(data, shape, _MergedFragments(fragments), is_pending)
    if not faults:
        return instance, []
    first = fragments[0]
    if not first.loc and first.document.is_empty:
        needed = ", ".join(f"`{key}`" for key in schema_errors.list_required_keys(shape))
        return None, [first.fault((), "the file is empty", f"it needs {needed}")]
    return None, faults


class _MergedFragments:
    """Several parts as one place: each error belongs to the nearest that holds the value."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._parts = fragments

    def fault(self, loc: Loc, problem: str, hint: str = "", *, at_key: bool = False) -> Fault:
        return find_holder(self._parts, loc).fault(loc, problem, hint, at_key=at_key)

    def is_reported(self, loc: Loc, *, with_below: bool) -> bool:
        fragment = find_holder(self._parts, loc)
        reported = fragment.document.fields
        if not reported:
            return False
        full = (*fragment.loc, *loc)
        if any(nodes.format_loc(full[:end]) in reported for end in range(1, len(full) + 1)):
            return True
        field = nodes.format_loc(full)
        below = (f"{field}.", f"{field}[") if field else ("",)
        return with_below and any(field_below.startswith(below) for field_below in reported)

    def raw(self, loc: Loc) -> str | None:
        place = find_holder(self._parts, loc).below(*loc)
        return place.document.raw(place.loc)

    def hint_with(self, loc: Loc, value: str) -> str:
        place = find_holder(self._parts, loc).below(*loc)
        return place.document.hint_with(place.loc, value)


_LINES_APART = 1 << 20  # columns: no text is broken into lines where it has none

# Line ends of YAML 1.1, and placeholders, which are quoted everywhere.
_NEEDS_QUOTES = lazy_pattern("[\r\x85\u2028\u2029\ufeff]|\\$\\{")


class _Dumper(yaml.SafeDumper):
    """Writes blocks, but short lists in brackets and texts of several lines after `|`.

    A text is quoted where YAML 1.1 or 1.2 would read it as something else.
    """

    yaml_implicit_resolvers = {
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *nodes.CORE_RESOLVERS.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *nodes.CORE_RESOLVERS}
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's
        """Indent lists deeper than their key."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None
    if _NEEDS_QUOTES.search(text):
        style = '"'
    elif "\n" in text.strip("\n"):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    is_short = all(not isinstance(item, (list, dict)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def dump_yaml(data: Any) -> str:
    """Return dicts, lists, strings, numbers, booleans and null as YAML, keys in their order."""
    return yaml.dump(
        data,
        Dumper=_Dumper,
        allow_unicode=True,
        sort_keys=False,
        default_flow_style=False,
        width=_LINES_APART,
    )
