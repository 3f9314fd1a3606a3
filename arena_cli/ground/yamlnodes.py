"""YAML nodes to plain data, as the core schema of YAML 1.2 reads them.

https://yaml.org/spec/1.2.2/#103-core-schema, with merge keys (`<<`) beside it. PyYAML itself reads
YAML 1.1, where `no`, `1:30` and `2026-11-28` are not texts; so it gives the nodes only.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import yaml

from arena_cli.ground.errors import Fault

Loc = tuple[str | int, ...]
Node = yaml.Node

MAX_DEPTH = 100
MISSING: Any = object()
MAX_EXPANDED = 100_000  # nodes that aliases may stand for, all together

_CORE = "tag:yaml.org,2002:"
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _CoreLoader(_Base):  # type: ignore[misc]  # the C loader, where there is one
    """Composes nodes; a plain scalar gets the tag that the core schema gives it."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # PyYAML fills it per class


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


def compose(text: str) -> Node | None:
    """The one document of `text` as nodes, None where it is empty; raises `yaml.YAMLError`."""
    loader = _CoreLoader(text)
    try:
        node: Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def unused_anchors(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each anchor before a plain text that no alias uses: most likely text."""
    loader = _CoreLoader(text)
    try:
        tokens = []
        while loader.check_token():
            tokens.append(loader.get_token())
    finally:
        loader.dispose()
    used = {token.value for token in tokens if isinstance(token, yaml.AliasToken)}
    for token, following in itertools.pairwise(tokens):
        opens = isinstance(following, (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken))
        flows = isinstance(following, (yaml.FlowMappingStartToken, yaml.FlowSequenceStartToken))
        if isinstance(token, yaml.AnchorToken) and token.value not in used and not opens | flows:
            yield token.start_mark.line + 1, token.value


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


class Builder:
    """Builds plain data from one file's nodes and collects what is wrong with them.

    Aliases share one value; what they would be if written out is counted against `MAX_EXPANDED`.
    """

    def __init__(self, shown: str, text: str) -> None:
        self.faults: list[Fault] = []
        self.has_free_keys = False
        self._shown = shown
        self._text = text
        self._built: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()
        self._size = 0
        self._expanded = 0

    def build(self, node: Node, loc: Loc = ()) -> Any:
        """The node as dict, list, str, int, float, bool or None; keys are texts as written."""
        if isinstance(node, yaml.ScalarNode):
            self._size += 1
            return self._scalar(node, loc)
        known = self._built.get(id(node))
        if known is not None:
            self._expand(node, loc, known[1])
            return known[0]
        if id(node) in self._open:
            return self._fault(node, loc, "an alias (`*...`) stands inside what it names")
        if len(loc) > MAX_DEPTH:
            return self._fault(node, loc[:3], f"nested deeper than {MAX_DEPTH} levels")
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
            self._fault(node, loc, f"its aliases stand for more than {MAX_EXPANDED} values")
            raise TooLarge

    def _list(self, node: Node, loc: Loc) -> list[Any]:
        return [self.build(item, (*loc, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: Node, loc: Loc) -> Any:
        if node.tag != _CORE + "map" or not isinstance(node, yaml.MappingNode):
            return self._unknown_tag(node, loc)
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, loc, "a key must be a text, not a list or a mapping")
                continue
            key = key_node.value
            line = key_node.start_mark.line + 1
            here = (*loc, key)
            if key in lines:
                self._fault(key_node, here, f"stands twice; first on line {lines[key]}")
                continue
            lines[key] = line
            if _is_merge(key_node):
                merged = value_node.value if value_node.id == "sequence" else [value_node]
                continue
            self.has_free_keys |= key.startswith("x-")
            if node.flow_style:
                self._check_flow_key(key_node, value_node, loc)
            data[key] = self.build(value_node, here)
        for base_node in merged:
            base = self.build(base_node, (*loc, "<<"))
            if isinstance(base, dict):
                data = {**base, **data}
            else:
                self._fault(base_node, (*loc, "<<"), "merges a mapping, or a list of mappings")
        return data

    def _check_flow_key(self, key: yaml.ScalarNode, value: Node, loc: Loc) -> None:
        """`{say: hi, there}` is read as two keys, `{say:hi}` as one without a value."""
        start, end = value.start_mark.index, value.end_mark.index
        if not isinstance(value, yaml.ScalarNode) or start != end or key.style in ('"', "'"):
            return
        if ":" in self._text[key.end_mark.index : start + 1]:
            return
        if ":" in key.value:
            what = f"`{key.value}` has no space after its colon, so it is a key without a value"
            self._fault(key, loc, what, "write `key: value`")
        else:
            what = f"`{key.value}` is read as a key without a value"
            self._fault(key, loc, what, "a comma inside {} must be quoted: quote the whole text")

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        try:
            return _core_value(node.tag, node.value)
        except KeyError:
            return self._unknown_tag(node, loc)
        except ValueError:
            kind = node.tag.removeprefix(_CORE)
            return self._fault(node, loc, f"`{node.value[:40]}` cannot be read as !!{kind}")

    def _unknown_tag(self, node: Node, loc: Loc) -> None:
        tag = node.tag.replace(_CORE, "!!")
        mend = "a value that starts with ! must be quoted"
        self._fault(node, loc, f"`{tag}` is a YAML tag that is not read here", mend)

    def _fault(self, node: Node, loc: Loc, what: str, mend: str = "") -> None:
        line = node.start_mark.line + 1
        self.faults.append(Fault(self._shown, line, dotted(loc), what, mend))


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
