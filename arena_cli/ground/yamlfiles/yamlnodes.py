"""YAML nodes to plain data, as the core schema of YAML 1.2 reads them.

https://yaml.org/spec/1.2.2/#103-core-schema, with merge keys (`<<`) beside it. PyYAML itself reads
YAML 1.1, where `no`, `1:30` and `2026-11-28` are not texts; so it gives the nodes only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

Loc = tuple[str | int, ...]
Node = yaml.Node

MAX_DEPTH = 100
MISSING: Any = object()
MAX_EXPANDED = 100_000  # nodes that aliases may stand for, all together

_CORE = "tag:yaml.org,2002:"
_STR = _CORE + "str"
_SCALAR = yaml.ScalarNode
_MAY_BE_NO_TEXT = frozenset("~nNtTfF-+.0123456789")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _CoreLoader(_Base):  # type: ignore[misc]  # to mypy its base, in C where it can be, is Any
    """Composes nodes; a plain scalar gets the tag that the core schema gives it."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # PyYAML fills it per class

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> Any:
        """The tag of a node; most are texts, which a look at the first character tells."""
        if kind is _SCALAR and value and value[0] not in _MAY_BE_NO_TEXT:
            return _STR
        return super().resolve(kind, value, implicit)


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_CORE + _name, re.compile(rf"(?:{_pattern})\Z"), _first)

CORE_RESOLVERS = _CoreLoader.yaml_implicit_resolvers
"""By first character: (tag, pattern) of the plain scalars that are no texts."""


def compose(text: str) -> Node | None:
    """The one document of `text` as nodes, None where it is empty; raises `yaml.YAMLError`."""
    loader = _CoreLoader(text)
    try:
        node: Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def tokens(text: str) -> Iterator[yaml.Token]:
    """The tokens of `text`, up to what is no YAML."""
    loader = _CoreLoader(text)
    try:
        while loader.check_token():
            yield loader.get_token()
    except yaml.YAMLError:
        return
    finally:
        loader.dispose()


def open_bracket(text: str) -> tuple[int, int] | None:
    """Line and column, from 0, of the last { or [ that nothing closes."""
    waiting: list[tuple[int, int]] = []
    for token in tokens(text):
        if isinstance(token, (yaml.FlowMappingStartToken, yaml.FlowSequenceStartToken)):
            waiting.append((token.start_mark.line, token.start_mark.column))
        elif isinstance(token, (yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)) and waiting:
            waiting.pop()
    return waiting[-1] if waiting else None


def quoted_until(text: str, line: int, column: int) -> tuple[int, int] | None:
    """Line and column, from 0, where the quoted text begins that ends at a line and column."""
    for token in tokens(text):
        end = token.end_mark
        if isinstance(token, yaml.ScalarToken) and (end.line, end.column) == (line, column):
            return token.start_mark.line, token.start_mark.column
    return None


def children(
    node: Node, inside: frozenset[int] = frozenset()
) -> Iterator[tuple[str | int, Node, Node]]:
    """(key or index, the node whose line shows it, value) of a mapping or a list.

    What is merged in comes after the mapping's own keys; `inside` are those being merged already.
    """
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield index, item, item
    elif isinstance(node, yaml.MappingNode):
        merged: list[Node] = []
        for key, value in node.value:
            if _is_merge(key):
                merged.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
            elif isinstance(key, yaml.ScalarNode):
                yield key.value, key, value
        for base in merged:
            if id(base) not in inside:
                yield from children(base, inside | {id(node)})


def _is_merge(key: Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.style


class Finding(NamedTuple):
    """Something wrong at a line (from 1) and, where it is known, a column (from 0) of a text.

    `fixed` is the line as it should be, `mended` the whole text to go on reading with, if certain.
    `pieces` are the places of what leaves the data: keys that are pieces of a text, and the like.
    """

    line: int
    what: str
    mend: str = ""
    column: int | None = None
    fixed: str | None = None
    loc: Loc = ()
    mended: str | None = None
    pieces: tuple[Loc, ...] = ()


class Builder:
    """Builds plain data from one file's nodes and collects what is wrong with them.

    Aliases share one value; what they would be if written out is counted against `MAX_EXPANDED`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.findings: list[Finding] = []
        self.has_free_keys = False
        self.has_empty = False
        self._built: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()
        self._size = 0
        self._expanded = 0

    def build(self, node: Node, loc: Loc = ()) -> Any:
        """The node as dict, list, str, int, float, bool or None; keys are texts as written."""
        if isinstance(node, _SCALAR):
            self._size += 1
            return node.value if node.tag == _STR else self._scalar(node, loc)
        known = self._built.get(id(node))
        if known is not None:
            self._expand(node, loc, known[1])
            return known[0]
        if id(node) in self._open:
            return self._find(node, loc, "an alias (`*...`) stands inside what it names")
        if len(loc) > MAX_DEPTH:
            return self._find(node, loc[:3], f"nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(node))
        before = self._size
        self._size += 1
        value = self._list(node, loc) if node.tag == _CORE + "seq" else self._mapping(node, loc)
        self._open.discard(id(node))
        self._built[id(node)] = (value, self._size - before)
        return value

    def _expand(self, node: Node, loc: Loc, size: int) -> None:
        self._size += size
        self._expanded += size
        if self._expanded > MAX_EXPANDED:
            self._find(node, loc, f"its aliases stand for more than {MAX_EXPANDED} values")
            raise TooLarge

    def _list(self, node: Node, loc: Loc) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._unknown_tag(node, loc)
        return [self.build(item, (*loc, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: Node, loc: Loc) -> Any:
        if node.tag != _CORE + "map" or not isinstance(node, yaml.MappingNode):
            return self._unknown_tag(node, loc)
        data: dict[str, Any] = {}
        keys: dict[str, Node] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, _SCALAR):
                self._find(key_node, loc, "a key must be a text, not a list or a mapping")
                continue
            key = key_node.value
            if key in keys:
                what = f"stands twice; first on line {keys[key].start_mark.line + 1}"
                self._find(key_node, (*loc, key), what, "take one of them out")
                continue
            keys[key] = key_node
            if key == "<<" and _is_merge(key_node):
                merged = value_node.value if value_node.id == "sequence" else [value_node]
                continue
            if key.startswith("x-"):
                self.has_free_keys = True
            if value_node.tag == _STR and isinstance(value_node, _SCALAR):
                self._size += 1
                data[key] = value_node.value
            else:
                data[key] = self.build(value_node, (*loc, key))
        for base_node in merged:
            base = self.build(base_node, (*loc, "<<"))
            if isinstance(base, dict):
                data = {**base, **data}
            else:
                self._find(base_node, (*loc, "<<"), "merges a mapping, or a list of mappings")
        return data

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        if not node.value:
            self.has_empty = True
        try:
            return _core_value(node.tag, node.value)
        except KeyError:
            return self._unknown_tag(node, loc)
        except ValueError:
            kind = node.tag.removeprefix(_CORE)
            return self._find(node, loc, f"`{node.value[:40]}` cannot be read as !!{kind}")

    def _unknown_tag(self, node: Node, loc: Loc) -> None:
        from arena_cli.ground.yamlfiles import yamllines  # noqa: PLC0415  # only on the way to a fault

        start, end = node.start_mark, node.end_mark
        fixed = None
        if start.line == end.line:
            line = yamllines.at(self._text, start.line)
            fixed = yamllines.with_value(line, start.column, end.column)
        tag = node.tag.replace(_CORE, "!!")
        what = f"`{tag}` is a YAML tag that is not read here"
        mend = "a value that starts with ! must be quoted"
        self.findings.append(Finding(start.line + 1, what, mend, start.column, fixed, loc))

    def _find(self, node: Node, loc: Loc, what: str, mend: str = "") -> None:
        mark = node.start_mark
        self.findings.append(Finding(mark.line + 1, what, mend, mark.column, loc=loc))


class TooLarge(Exception):
    """The aliases of a file stand for more than can be read; its fault is in `Builder.faults`."""


def _core_value(tag: str, text: str) -> Any:
    """Raises KeyError for a tag outside the core schema, ValueError for a text it cannot be."""
    kind = tag.removeprefix(_CORE)
    if kind in ("str", "!"):
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return _flag(text)
    if kind == "int":
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text if base == 10 else text[2:], base)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise KeyError(tag)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def below(value: Any, part: str | int) -> Any:
    """What plain data holds at a key or an index, or `MISSING`."""
    if isinstance(value, dict):
        return value.get(part, MISSING)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return MISSING


def dotted(loc: Loc) -> str:
    """`("steps", 0, "expect")` as `steps[0].expect`."""
    shown = ""
    for part in loc:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            shown += f".{part}" if shown else part
    return shown
