"""Read YAML files as plain data that remembers its lines, and check it against pydantic shapes.

Reading never raises for the contents of a file: every error is in the `Document` with its file and
line, and `validate` adds those of values that do not fit the shape.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from arena_cli.errors import Fault
from arena_cli.util import files
from arena_cli.yamlio import nodes, schema_errors, shapes, syntax_hints, value_hints
from arena_cli.yamlio.document import Document, Fragment, find_holder
from arena_cli.yamlio.nodes import Loc, YamlProblem

T = TypeVar("T", bound=BaseModel)

# The parser would take the invisible line ends of YAML 1.1 for line ends.
_LINE_ENDS_OF_1_1 = re.compile("[\x85\u2028\u2029]")
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
            finding = syntax_hints.explain(error, text)
    if finding is not None:
        return _document(name, None, text, [finding], is_shown=is_shown)
    if root is None:
        return Document(name, None, text=text, is_shown=is_shown)
    is_suspect = value_hints.is_suspect(text)
    bad_keys = value_hints.find_bad_keys(root, text) if is_suspect else []
    if bad_keys:
        return _document(name, None, text, bad_keys, is_shown=is_shown)
    builder = nodes.DataBuilder(text)
    data = None
    with contextlib.suppress(nodes.TooLarge):
        data = builder.build(root)
    findings = builder.findings
    if is_suspect or builder.has_empty:
        slips = list(value_hints.find_slips(root, text))
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
    for step in loc[:-1]:
        data = nodes.get_child(data, step)
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
        needed = ", ".join(f"`{key}`" for key in shapes.list_required_keys(shape))
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
        fragment = find_holder(self._parts, loc)
        return fragment.document.raw((*fragment.loc, *loc))

    def hint_with(self, loc: Loc, value: str) -> str:
        fragment = find_holder(self._parts, loc)
        return fragment.document.hint_with((*fragment.loc, *loc), value)
