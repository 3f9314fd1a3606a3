"""YAML nodes to plain data, as the core schema of YAML 1.2 reads them; single lines as text.

https://yaml.org/spec/1.2.2/#103-core-schema, and merge keys (`<<`) as well. PyYAML itself reads
YAML 1.1, where `no`, `1:30` and `2026-11-28` are no strings; so only its nodes are used.

The functions on lines (`find_value_start` and others) read no YAML. Their columns count from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import yaml

_CLOSES = {"{": "}", "[": "]"}
_LEAD = r"^(?P<lead>\s*(?:-\s+)*)"
_WORD = r"[\"']?[A-Za-z_][\w.-]*[\"']?"
_NAME = rf"(?P<name>{_WORD})"
_VALUE = rf"{_LEAD}(?:(?:\"[^\"]*\"|'[^']*'|[^\s'\"{{\[#&*!|>@`%][^:]*):[ \t]+)?(?=\S)"
# Each begins where white space does: a long run of it is looked at once.
_STOPS = {True: r"(?<!\s)(?:\s*[,\]}]|\s+#|\s*$)", False: r"(?<!\s)(?:\s+#|\s*$)"}
_WIDE_MARKS = str.maketrans("：，｛｝［］“”\u3000\xa0", ':,{}[]""  ')

_ODD = "\u3000\xa0"  # they look like a space and are none to YAML
ODD_SPACES = {"\u3000": "a full-width space (U+3000)", "\xa0": "a no-break space (U+00A0)"}

# A key that is none to YAML, with what is wrong with it; `at` is the place.
WIDE_KEYS = (
    (
        rf"{_LEAD}{_NAME}\s*(?P<at>：)\s*(?P<rest>.*)$",
        "the colon after `{name}` is full-width (：); YAML's is `:` and a space",
    ),
    (
        rf"(?:^ *(?:- +)*-? ?|(?:^ *(?:- +)*|[{{,] *){_WORD}:|[{{,](?=[ {_ODD}]+{_WORD}:))"
        rf"(?P<at>[{_ODD}])",
        "{at} is not a space in YAML; write an ordinary one",
    ),
)
BAD_KEYS = (
    (rf"{_LEAD}{_NAME}(?P<at>:)(?P<rest>[^\s:/].*)$", "`{name}:` needs a space after its colon"),
    (rf"{_LEAD}{_NAME}\s*(?P<at>=)\s+(?P<rest>.*)$", "`{name}` needs a colon, not `=`"),
    (
        rf"{_LEAD}{_NAME}(?P<at>)(?:[ \t]+(?P<rest>[\[{{\"'@].*|[^\s:]+(?: [^\s:]+)?))?$",
        "this line has no colon, so it is not a `key: value`",
    ),
)


Loc = tuple[str | int, ...]


class YamlProblem(NamedTuple):
    """An error at a line (from 1) and, where it is known, a column (from 0) of a text.

    `fixed` is the line as it should be, "" if that is unknown. `dropped` are the places of values
    that leave the data: no further error is reported about them.
    """

    line: int
    problem: str
    hint: str = ""
    column: int | None = None
    fixed: str = ""
    loc: Loc = ()
    dropped: tuple[Loc, ...] = ()


def measure_indent(line: str) -> int:
    """Return the number of spaces at the beginning of a line."""
    return len(line) - len(line.lstrip(" "))


def quote(text: str) -> str:
    """Return the text as a YAML value between the quotes that need no escape."""
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"


def quote_span(line: str, start: int, end: int) -> str:
    """Return the line with the text from `start` to `end` quoted, without “ ” around it."""
    value = line[start:end]
    if is_curly(value):
        value = value[1:-1]
    return line[:start] + quote(value) + line[end:]


def is_curly(text: str) -> bool:
    """Return True if a text is between “ ” or ‘ ’, and has no others in it."""
    if len(text) < 2 or text[0] + text[-1] not in ("“”", "‘’"):
        return False
    return not any(mark in text[1:-1] for mark in "“”‘’")


def find_value_start(line: str) -> int:
    """Return the column of the value after the line's `- ` and `key: `."""
    match = re.match(_VALUE, line)
    return match.end() if match else len(line) - len(line.lstrip())


def find_value_end(line: str, column: int, *, flow: bool | None = None) -> int:
    """Return the end of the value that starts at `column`: in {} and [] the next , } or ]."""
    pattern = _STOPS[is_in_flow(line, column) if flow is None else flow]
    match = re.compile(pattern).search(line, column + 1)
    return match.start() if match else len(line)


def is_in_flow(line: str, column: int) -> bool:
    """Return True if a { or [ of this line is open at `column`."""
    head = line[:column]
    return head.count("{") > head.count("}") or head.count("[") > head.count("]")


def find_flow_value(line: str, column: int) -> tuple[int, int]:
    """Return start and end of the text inside {} or [] at `column`, with brackets of its own."""
    start = column
    while start > 0 and line[start - 1] not in "{[," and line[start - 2 : start] != ": ":
        start -= 1
    open_brackets: list[str] = []
    end = column
    while end < len(line):
        char = line[end]
        if not open_brackets and char in ",}]":
            break
        if char in _CLOSES:
            open_brackets.append(_CLOSES[char])
        elif open_brackets and char == open_brackets[-1]:
            open_brackets.pop()
        end += 1
    start += len(line[start:end]) - len(line[start:end].lstrip())
    return start, start + len(line[start:end].rstrip())


def find_bad_key(line: str, number: int = 0) -> YamlProblem | None:
    """Return the error of `key:value`, `key：value`, `key = value` or `key value` in a line."""
    for pattern, template in (*WIDE_KEYS, *BAD_KEYS):
        match = re.search(pattern, line)
        if match is not None:
            names = {**match.groupdict(), "at": ODD_SPACES.get(match["at"], "")}
            problem, column = template.format(**names), match.start("at")
            return YamlProblem(number, problem, "", column, write_key(match))
    return None


def write_key(match: re.Match[str]) -> str:
    """Return the line of a match of `WIDE_KEYS` or `BAD_KEYS` as YAML has it, "" if unknown."""
    line, column = match.string, match.start("at")
    if match["at"] in ODD_SPACES:
        head = line[:column].rstrip(" ")
        return f"{head} {line[column:].lstrip(' ' + _ODD)}" if head else ""
    value = (match["rest"] or "").strip()
    if value[:1] in ("{", "[", "｛", "［"):
        value = write_ascii_marks(value)
    return f"{match['lead']}{match['name']}:{value and ' ' + value}"


def write_ascii_marks(text: str) -> str:
    """Return a list or mapping in brackets with YAML's marks in place of full-width ones."""

    def replace(match: re.Match[str]) -> str:
        if match[0][0] in "'\"":
            return match[0]
        return match[0].translate(_WIDE_MARKS) + (" " if match["tight"] else "")

    return re.sub(
        r"\"[^\"]*\"|'[^']*'|(?P<tight>[：，](?=\S))|[：，｛｝［］“”\u3000\xa0]", replace, text
    )


Node = yaml.Node

MAX_DEPTH = 100
MISSING: Any = object()
MAX_EXPANDED = 100_000  # nodes that all aliases together may stand for

_CORE = "tag:yaml.org,2002:"
_STR = _CORE + "str"
_SCALAR = yaml.ScalarNode
_MAY_BE_NO_STRING = frozenset("~nNtTfF-+.0123456789")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _CoreLoader(_Base):  # type: ignore[misc]  # mypy sees its base, in C if available, as Any
    """Composes nodes; a plain scalar gets the tag that the core schema gives it."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # PyYAML fills it per class

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> Any:
        """Return the tag of a node; the first character shows that most are strings."""
        if kind is _SCALAR and value and value[0] not in _MAY_BE_NO_STRING:
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
"""By first character: (tag, pattern) of the plain scalars that are no strings."""


def compose(text: str) -> Node | None:
    """Return the one document of `text` as nodes, None if it is empty; raise `yaml.YAMLError`."""
    loader = _CoreLoader(text)
    try:
        node: Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def iter_children(
    node: Node, open_ids: frozenset[int] = frozenset()
) -> Iterator[tuple[str | int, Node, Node]]:
    """Yield (key or index, the node whose line shows it, value) of a mapping or a list.

    Merged values follow the mapping's own; `open_ids` are the mappings being merged already.
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
            if id(base) not in open_ids:
                yield from iter_children(base, open_ids | {id(node)})


def walk_nodes(root: Node) -> Iterator[tuple[Loc, yaml.ScalarNode | None, Node]]:
    """Yield each node below `root` with its place and its key, if it has one."""
    seen: set[int] = set()
    waiting: list[tuple[Loc, yaml.ScalarNode | None, Node]] = [((), None, root)]
    while waiting:
        loc, key, node = waiting.pop()
        yield loc, key, node
        if id(node) in seen or len(loc) > MAX_DEPTH:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [((*loc, i), None, item) for i, item in enumerate(node.value)][::-1]
        elif isinstance(node, yaml.MappingNode):
            named = [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode)]
            waiting += [((*loc, name.value), name, value) for name, value in named[::-1]]


def _is_merge(key: Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.style


class TooLarge(Exception):
    """The aliases of a file expand to too many values to read; see `DataBuilder.findings`."""


class DataBuilder:
    """Builds plain data from one file's nodes and collects the errors in them.

    Aliases share one value; their size if written out is counted against `MAX_EXPANDED`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.findings: list[YamlProblem] = []
        self.has_free_keys = False
        self.has_empty = False
        self._built: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()
        self._size = 0
        self._expanded = 0

    @cached_property
    def _lines(self) -> list[str]:
        return self._text.split("\n")

    def build(self, node: Node, loc: Loc = ()) -> Any:
        """Return the node as dict, list, str, int, float, bool or None; keys as written."""
        if isinstance(node, _SCALAR):
            self._size += 1
            return node.value if node.tag == _STR else self._scalar(node, loc)
        built = self._built.get(id(node))
        if built is not None:
            self._expand(node, loc, built[1])
            return built[0]
        if id(node) in self._open:
            return self._add(node, loc, "an alias (`*...`) is inside the value that it names")
        if len(loc) > MAX_DEPTH:
            return self._add(node, loc[:3], f"nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(node))
        size_before = self._size
        self._size += 1
        value = self._list(node, loc) if node.tag == _CORE + "seq" else self._mapping(node, loc)
        self._open.discard(id(node))
        self._built[id(node)] = (value, self._size - size_before)
        return value

    def _expand(self, node: Node, loc: Loc, size: int) -> None:
        self._size += size
        self._expanded += size
        if self._expanded > MAX_EXPANDED:
            self._add(node, loc, f"its aliases expand to more than {MAX_EXPANDED} values")
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
                self._add(key_node, loc, "a key must be a text, not a list or a mapping")
                continue
            key = key_node.value
            if key in keys:
                problem = f"appears twice; first on line {keys[key].start_mark.line + 1}"
                self._add(key_node, (*loc, key), problem, "remove one of them")
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
                self._add(
                    base_node, (*loc, "<<"), "can merge only a mapping, or a list of mappings"
                )
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
            return self._add(node, loc, f"`{node.value[:40]}` cannot be read as !!{kind}")

    def _unknown_tag(self, node: Node, loc: Loc) -> None:
        start, end = node.start_mark, node.end_mark
        line = self._lines[start.line]
        fixed = quote_span(line, start.column, end.column) if start.line == end.line else ""
        tag = node.tag.replace(_CORE, "!!")
        problem = f"`{tag}` is a YAML tag that is not read here"
        hint = "a value that starts with ! must be quoted"
        self.findings.append(YamlProblem(start.line + 1, problem, hint, start.column, fixed, loc))

    def _add(self, node: Node, loc: Loc, problem: str, hint: str = "") -> None:
        mark = node.start_mark
        self.findings.append(YamlProblem(mark.line + 1, problem, hint, mark.column, loc=loc))


def _core_value(tag: str, text: str) -> Any:
    """Raise KeyError for a tag outside the core schema, ValueError for a text it cannot be."""
    kind = tag.removeprefix(_CORE)
    if kind in ("str", "!"):
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return bool(("false", "true").index(text.lower()))
    if kind == "int":
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text if base == 10 else text[2:], base)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise KeyError(tag)


def find_value(data: Any, loc: Loc) -> Any:
    """Return the value at a place of plain data, or `MISSING`."""
    for step in loc:
        if isinstance(data, dict):
            data = data.get(step, MISSING)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return MISSING
    return data


def format_loc(loc: Loc) -> str:
    """Return `("steps", 0, "expect")` as `steps[0].expect`."""
    path = ""
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path
