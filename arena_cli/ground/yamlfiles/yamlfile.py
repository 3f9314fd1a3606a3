"""YAML files as plain data that remembers its lines, and as shapes that were checked.

Reading never raises for what stands in a file: what is wrong is in `Document.faults`, each fault
with its file and line, and `validate` adds what does not fit the shape.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from arena_cli.ground import regularfiles
from arena_cli.ground.errors import Fault
from arena_cli.ground.yamlfiles import charset, shapefaults, shapetypes, yamlnodes, yamlsuspects
from arena_cli.ground.yamlfiles.document import Document, Part, holder
from arena_cli.ground.yamlfiles.yamlnodes import Finding, Loc, Node

__all__ = [
    "Document",
    "Part",
    "holder",
    "load",
    "parse",
    "plain",
    "validate",
    "validate_merged",
    "validate_part",
]

T = TypeVar("T", bound=BaseModel)

_MAX_MENDS = 20  # syntax faults told of one file in one run

# The parser would take the invisible line ends of YAML 1.1 for line ends.
_LINE_ENDS_OF_1_1 = re.compile("[\x85\u2028\u2029]")


def load(path: Path, shown: str, *, is_shown: bool = True) -> Document:
    """Reads a file; one that cannot be opened or is not UTF-8 is a fault like any other.

    Where it is not `is_shown`, no fault quotes any of it.
    """
    try:
        raw = regularfiles.read(path)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        return Document(shown, None, (Fault(shown, 0, "", what),))
    if b"\0" not in raw[:4]:
        try:
            return parse(raw.decode("utf-8"), shown, is_shown=is_shown)
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
    else:
        line = 1
    name, text = charset.guess(raw)
    like = f"; it looks like {name}" if name else ""
    found = Finding(line, f"is not UTF-8{like}", "save the file as UTF-8")
    text = _without_marks(text)
    source = Document(shown, None, text=text, is_shown=is_shown)
    return Document(shown, None, [source.of_finding(found)], is_shown=is_shown)


def _without_marks(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str, shown: str, *, is_shown: bool = True) -> Document:
    """Reads a text. A BOM and the kind of line ending make no difference."""
    text = _without_marks(text)
    bad = yaml.reader.Reader.NON_PRINTABLE.search(text) or _LINE_ENDS_OF_1_1.search(text)
    if bad is not None:
        start = text.rfind("\n", 0, bad.start()) + 1
        line = text.count("\n", 0, bad.start()) + 1
        what = f"the character U+{ord(bad.group()):04X} cannot stand in a YAML file"
        mend = "take it out, or escape it between double quotes"
        found = Finding(line, what, mend, bad.start() - start)
        source = Document(shown, None, text=text, is_shown=is_shown)
        return Document(shown, None, [source.of_finding(found)], is_shown=is_shown)
    root, findings, read = _compose(text)
    data = None
    has_free_keys = False
    if root is not None:
        builder = yamlnodes.Builder(read)
        with contextlib.suppress(yamlnodes.TooLarge):
            data = builder.build(root)
        has_free_keys = builder.has_free_keys
        findings += builder.findings
        if builder.has_empty or yamlsuspects.odd_values(read):
            findings += _slips(root, read, data)
    if not findings:
        return Document(shown, data, text=text, has_free_keys=has_free_keys, is_shown=is_shown)
    source = Document(shown, None, text=text, is_shown=is_shown)
    faults = [source.of_finding(found) for found in findings]
    kept = read if root is not None else ""
    return Document(
        shown,
        data,
        faults,
        text=text,
        read=kept,
        has_free_keys=has_free_keys,
        is_shown=is_shown,
    )


def _bad_key(root: Node | None, text: str) -> Finding | None:
    is_text = isinstance(root, yaml.ScalarNode)
    if root is None or not (is_text or yamlsuspects.odd_keys(text)):
        return None
    from arena_cli.ground.yamlfiles import yamlkeys  # noqa: PLC0415 - few files need its patterns

    return yamlkeys.of_keys(root, text)


def _slips(root: Node, text: str, data: Any) -> list[Finding]:
    """What the text says without meaning it; keys that are pieces of a text leave the data."""
    from arena_cli.ground.yamlfiles import yamlslips  # noqa: PLC0415 - few files need its patterns

    slips = list(yamlslips.of_values(root, text))
    for found in slips:
        for loc in found.pieces:
            _take_out(data, loc)
    return slips


def _take_out(data: Any, loc: Loc) -> None:
    for part in loc[:-1]:
        data = yamlnodes.below(data, part)
    if isinstance(data, dict):
        data.pop(loc[-1], None)


def _compose(text: str) -> tuple[Node | None, list[Finding], str]:
    """The nodes, what is wrong with the syntax, and the text as it was mended to go on reading."""
    findings: list[Finding] = []
    for _ in range(_MAX_MENDS):
        try:
            root = yamlnodes.compose(text)
            cause = _bad_key(root, text)
        except RecursionError:
            return None, [*findings, Finding(1, "nested too deep to be read")], text
        except yaml.YAMLError as error:
            from arena_cli.ground.yamlfiles import yamlcauses  # noqa: PLC0415 - 2 ms, for faults only

            cause = yamlcauses.explain(error, text)
        if cause is None:
            return root, findings, text
        told = next((found for found in findings if found.line == cause.line), None)
        if told is None:
            findings.append(cause)
        elif told.fixed is not None and cause.fixed is not None:
            findings[findings.index(told)] = told._replace(fixed=cause.fixed)
        if cause.mended is None or cause.mended == text:
            break
        text = cause.mended
    return None, findings, text


def plain(data: Any, shown: str) -> Document:
    """Data that stands in no file (a command line's settings) as a document without lines."""
    return Document(shown, data)


def validate(document: Document, shape: type[T]) -> tuple[T | None, list[Fault]]:
    """The document as `shape`, and all that is wrong with it; the shape is None if anything is."""
    if document.data is None and document.faults:
        return None, list(document.faults)
    instance, faults = validate_merged(document.data, shape, [Part(document)])
    faults = [*document.faults, *faults]
    return (None if faults else instance), faults


def validate_part(part: Part, shape: type[T]) -> tuple[T | None, list[Fault]]:
    """The value at a part as `shape`, and what is wrong with it."""
    return validate_merged(part.data, shape, [part])


def validate_merged(
    data: Any,
    shape: type[T],
    parts: Sequence[Part],
    *,
    later: Callable[[Any], bool] = lambda _: False,
) -> tuple[T | None, list[Fault]]:
    """`data` as `shape`, where `data` was merged from `parts`, the nearest first.

    A fault is told of the nearest part that holds what is wrong. Strictly typed, as JSON would be:
    no text is a number, no number a text; a list may become a tuple, a text a path. What is wrong
    with a value that is `later` is no fault yet; the shape is None then too.
    """
    if any(part.document.has_free_keys for part in parts):
        data = shapefaults.without_free_keys(data, shape)
    instance, faults = shapefaults.check(data, shape, _Parts(parts), later)
    if not faults:
        return instance, []
    first = parts[0]
    if not first.loc and first.document.is_empty:
        needed = ", ".join(f"`{key}`" for key in shapetypes.required(shape))
        return None, [first.fault((), "the file is empty", f"it needs {needed}")]
    return None, faults


class _Parts:
    """Several parts as one place: each fault is told of the nearest that holds what is wrong."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def fault(self, loc: Loc, what: str, mend: str = "", *, at_key: bool = False) -> Fault:
        return holder(self._parts, loc).fault(loc, what, mend, at_key=at_key)

    def is_told(self, loc: Loc, *, with_below: bool) -> bool:
        part = holder(self._parts, loc)
        told = part.document.fields
        if not told:
            return False
        whole = (*part.loc, *loc)
        if any(yamlnodes.dotted(whole[:end]) in told for end in range(1, len(whole) + 1)):
            return True
        field = yamlnodes.dotted(whole)
        below = (f"{field}.", f"{field}[") if field else ("",)
        return with_below and any(other.startswith(below) for other in told)

    def is_mended(self, loc: Loc) -> bool:
        part = holder(self._parts, loc)
        lines = part.document.mended_lines
        return bool(lines) and part.document.line((*part.loc, *loc)) in lines

    def raw(self, loc: Loc) -> str | None:
        part = holder(self._parts, loc)
        return part.document.raw((*part.loc, *loc))

    def rewritten(self, loc: Loc, value: str) -> str:
        part = holder(self._parts, loc)
        return part.document.rewritten((*part.loc, *loc), value)
