"""YAML files as plain data that remembers its lines, and as shapes that were checked.

Reading never raises for what stands in a file: what is wrong is in `Document.faults`, each fault
with its file and line, and `validate` adds what does not fit the shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel

from arena_cli.ground import shapefaults, yamlnodes
from arena_cli.ground.errors import Fault
from arena_cli.ground.yamlnodes import Loc, Node

T = TypeVar("T", bound=BaseModel)

_MAX_MENDS = 20  # syntax faults told of one file in one run

# The parser would take the invisible line ends of YAML 1.1 for line ends.
_LINE_ENDS_OF_1_1 = re.compile("[\x85\u2028\u2029]")


class Document(NamedTuple):
    """What one file holds. `data` is None where it is empty or could not be read.

    `shown` is the path as the user is shown it. `has_free_keys` tells whether any key of it starts
    with `x-`.
    """

    shown: str
    data: Any
    faults: tuple[Fault, ...] = ()
    root: Node | None = None
    has_free_keys: bool = False

    def line(self, loc: Loc = ()) -> int:
        """The line of the key or item at `loc`, of its nearest parent where there is none."""
        node = self.root
        if node is None:
            return 1 if self.data is None else 0
        line: int = node.start_mark.line + 1
        for part in loc:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line

    def holds(self, loc: Loc) -> bool:
        """Whether something stands at `loc`."""
        value = self.data
        for part in loc:
            value = yamlnodes.below(value, part)
        return value is not yamlnodes.MISSING

    def written(self, loc: Loc) -> str | None:
        """The scalar at `loc` as it stands in the file (`1.10`), None where there is none."""
        node = self.root
        for part in loc:
            found = _child(node, part) if node is not None else None
            if found is None:
                return None
            node = found[1]
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def fault(self, loc: Loc, what: str, mend: str = "") -> Fault:
        """A fault of what stands at `loc`."""
        return Fault(self.shown, self.line(loc), yamlnodes.dotted(loc), what, mend)


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

    def fault(self, loc: Loc, what: str, mend: str = "") -> Fault:
        """A fault of what stands at `loc` below this part."""
        return self.document.fault((*self.loc, *loc), what, mend)


def _child(node: Node, part: str | int) -> tuple[int, Node] | None:
    for key, shown, value in yamlnodes.children(node):
        if key == part:
            return shown.start_mark.line + 1, value
    return None


def load(path: Path, shown: str) -> Document:
    """Reads a file; one that cannot be opened or is not UTF-8 is a fault like any other."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        return Document(shown, None, (Fault(shown, 0, "", what),))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = Fault(shown, line, "", "is not UTF-8", "save the file as UTF-8")
        return Document(shown, None, (fault,))
    return parse(text, shown)


def parse(text: str, shown: str) -> Document:
    """Reads a text. A BOM and the kind of line ending make no difference."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    bad = yaml.reader.Reader.NON_PRINTABLE.search(text) or _LINE_ENDS_OF_1_1.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        what = f"the character U+{ord(bad.group()):04X} cannot stand in a YAML file"
        return Document(
            shown,
            None,
            (Fault(shown, line, "", what, "take it out, or escape it between double quotes"),),
        )
    root, faults, text = _compose(text, shown)
    if root is None:
        return Document(shown, None, tuple(faults))
    builder = yamlnodes.Builder(shown, text)
    try:
        data = builder.build(root)
    except yamlnodes.TooLarge:
        data = None
    faults += builder.faults
    if "&" in text:
        for line, name in yamlnodes.unused_anchors(text):
            what = f"`&{name}` names a value, and nothing uses the name"
            mend = "a value that starts with & must be quoted"
            faults.append(Fault(shown, line, "", what, mend))
    return Document(shown, data, tuple(faults), root, builder.has_free_keys)


def _compose(text: str, shown: str) -> tuple[Node | None, list[Fault], str]:
    """The nodes, what is wrong with the syntax, and the text as it was mended to go on reading."""
    faults: list[Fault] = []
    for _ in range(_MAX_MENDS):
        try:
            return yamlnodes.compose(text), faults, text
        except RecursionError:
            return None, [*faults, Fault(shown, 0, "", "nested too deep to be read")], text
        except yaml.YAMLError as error:
            from arena_cli.ground import yamlcauses  # noqa: PLC0415  # only on the way to a fault

            cause = yamlcauses.explain(error, text)
        if any(fault.line == cause.line for fault in faults):
            break
        faults.append(Fault(shown, cause.line, "", cause.what, cause.mend))
        if cause.mended is None:
            break
        text = cause.mended
    return None, faults, text


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

    def tell(loc: Loc, what: str, mend: str = "") -> Fault:
        return holder(parts, loc).fault(loc, what, mend)

    def written(loc: Loc) -> str | None:
        part = holder(parts, loc)
        return part.document.written((*part.loc, *loc))

    return shapefaults.check(data, shape, tell, written, later)


def holder(parts: Sequence[Part], loc: Loc) -> Part:
    """The nearest part that holds `loc`, or as much of it as any does."""
    for end in range(len(loc), 0, -1):
        for part in parts:
            if part.holds(loc[:end]):
                return part
    return parts[0]
