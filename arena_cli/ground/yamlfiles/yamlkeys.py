"""Keys of a YAML file that are none: a colon, a dash or a space that only looks like YAML's own.

The nodes are walked only where `yamlsuspects` finds something in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from arena_cli.ground.yamlfiles import yamllines, yamlnodes
from arena_cli.ground.yamlfiles.yamllines import Slip
from arena_cli.ground.yamlfiles.yamlnodes import Finding, Loc, Node

_DASH = re.compile(r"^([ ]*)(?:-|－[ \u3000]*)(?=[^\W\d_][\w.-]*:)", re.MULTILINE)


def of_keys(root: Node, text: str) -> Finding | None:
    """The first key that is none: `expect:{...}`, `-send: x`, a full-width space before it.

    Its finding carries the mended text; the text is to be read again.
    """
    if isinstance(root, yaml.ScalarNode) and not root.style:
        return _no_mapping(root, text)
    lines = [*text.split("\n"), ""]
    for _, key, value in walk(root):
        if key is None and isinstance(value, yaml.ScalarNode) and not value.style:
            finding = _odd_item(value, lines)
            if finding is not None:
                return finding
        if key is None or key.style:
            continue
        line, column = key.start_mark.line, key.start_mark.column
        finding = _bad_key(key, lines, line, column)
        if finding is not None:
            return finding
    return None


def _no_mapping(root: yaml.ScalarNode, text: str) -> Finding | None:
    """A whole file that is one text: `scenario：x`, `scenario:x`, `scenario x`."""
    line = root.start_mark.line
    whole = yamllines.at(text, line)
    slip = yamllines.bad_key(whole) or yamllines.no_colon(whole)
    if slip is None or not slip.fixed or slip.fixed.endswith(":"):
        return None
    return _of_slip(slip, text.split("\n"), line)


def _odd_item(value: yaml.ScalarNode, lines: list[str]) -> Finding | None:
    """`- send:x` with a space behind the colon that is none to YAML."""
    line = value.start_mark.line
    if not any(char in value.value for char in "\u3000\xa0"):
        return None
    slip = yamllines.odd_space(lines[line])
    if slip is None or not value.start_mark.column <= slip.column < value.end_mark.column:
        return None
    return _of_slip(slip, lines, line)


def _bad_key(key: yaml.ScalarNode, lines: list[str], line: int, column: int) -> Finding | None:
    text, whole = lines[line], "\n".join(lines)
    is_odd = any(char in key.value for char in "\u3000\xa0")
    odd = yamllines.odd_space(text) if is_odd else None
    if odd is not None:
        return _of_slip(odd, lines, line)
    if key.value[:1] in ("\u3000", "\xa0"):
        mended = yamllines.wide_indent(whole)
        what = f"{yamllines.odd_name(key.value[0])} cannot indent in YAML"
        return Finding(line + 1, what, "indent with common spaces", column, mended=mended)
    dash = _DASH.match(text)
    if dash and dash.end(1) == column:
        mended = _DASH.sub(r"\1- ", whole)
        fixed = _DASH.sub(r"\1- ", text)
        what = f"`{text[column]}` needs a space after it to begin a list item"
        if text[column] != "-":
            what = "the dash of a list item is full-width (－); YAML's is `- `"
        return Finding(line + 1, what, "", column, fixed, mended=mended)
    slip = None
    if ":" in key.value or "：" in key.value:
        slip = yamllines.bad_key(text) if not text[:column].strip(" -") else yamllines.wide(text)
    if slip is None or slip.fixed == text:
        return None
    return _of_slip(slip, lines, line)


def _of_slip(slip: Slip, lines: list[str], line: int) -> Finding:
    mended = "\n".join([*lines[:line], slip.fixed, *lines[line + 1 :]])
    return Finding(line + 1, slip.what, "", slip.column, slip.fixed, mended=mended)


def walk(root: Node) -> Iterator[tuple[Loc, yaml.ScalarNode | None, Node]]:
    """Every value with its place and its key's node, each node once."""
    seen: set[int] = set()
    waiting: list[tuple[Loc, yaml.ScalarNode | None, Node]] = [((), None, root)]
    while waiting:
        loc, key, node = waiting.pop()
        yield loc, key, node
        if id(node) in seen or len(loc) > yamlnodes.MAX_DEPTH:
            continue
        seen.add(id(node))
        below: list[tuple[Loc, yaml.ScalarNode | None, Node]] = []
        if isinstance(node, yaml.SequenceNode):
            below = [((*loc, index), None, item) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            below = [
                ((*loc, name.value), name, value)
                for name, value in node.value
                if isinstance(name, yaml.ScalarNode)
            ]
        waiting += reversed(below)
