"""Find valid YAML that is most likely not what its writer meant.

Most files have no sign of such mistakes; then their nodes are not walked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from arena_cli.util.text import lazy_pattern
from arena_cli.yamlio import nodes
from arena_cli.yamlio.nodes import Loc, Node, YamlProblem

# The signs that the writer of a text meant something else than YAML reads.
SUSPECTS = lazy_pattern(
    "[－\u3000\xa0“‘]|:[{\\[\"']"
    r"|(?:\A|\n) *-\w|[ \t]#[^\s#!]|\\[bfvae0NLPxuU]"
    r"|(?:\A|\n|[{,]|- ) *[A-Za-z_][A-Za-z0-9_.-]*\s?："
)
# Keys of prose: a `#3` in their values is the number of an issue, not a comment.
_PROSE = frozenset(
    {"contains", "description", "equals", "judge", "keywords", "name", "not_contains", "regex"}
    | {"replies", "role", "role_prompt", "say", "scenario", "send", "skills", "skip"}
    | {"starts_with", "step", "system", "text", "user", "xfail"}
)
_PATTERNS = frozenset({"regex", "redact"})
_CONTROLS = lazy_pattern("[\x00\x07\x08\x0b\x0c\x1b\x85\u2028\u2029]")
_DASH = r"^(?P<lead> *)-(?=[^\W\d_][\w.-]*:)"


def find_bad_keys(root: Node, text: str) -> list[YamlProblem]:
    """Return the invalid keys: `expect:{...}`, `-send: x`, a full-width space before one."""
    source = text.split("\n")
    findings: dict[int, YamlProblem] = {}
    for _, key, _ in nodes.walk_nodes(root):
        if key is not None and not key.style:
            number = key.start_mark.line
            error = _explain_key(key, source[number])
            if error is not None:
                findings.setdefault(number, error)
    return list(findings.values())


def _explain_key(key: yaml.ScalarNode, line: str) -> YamlProblem | None:
    column, number = key.start_mark.column, key.start_mark.line + 1
    dash = re.match(_DASH, line)
    if dash and dash.end("lead") == column:
        problem = "`-` needs a space after it to begin a list item"
        return YamlProblem(number, problem, "", column, f"{dash['lead']}- {line[dash.end() :]}")
    is_odd = any(char in nodes.ODD_SPACES for char in key.value)
    is_first = not line[:column].strip(" -")
    if not is_odd and not (is_first and re.search(r":[\[{\"']|：", key.value)):
        return None
    return nodes.find_bad_key(line, number)


def find_slips(root: Node, text: str) -> Iterator[YamlProblem]:
    """Yield values that lost a part, or that are something else than they seem to be."""
    source = [*text.split("\n"), ""]
    for loc, _, value in nodes.walk_nodes(root):
        if isinstance(value, yaml.MappingNode) and value.flow_style:
            yield from _find_bare_keys(value, source, loc)
        elif isinstance(value, yaml.ScalarNode):
            finding = _explain_value(loc, value, source[value.start_mark.line])
            if finding is not None:
                yield finding


def _explain_value(loc: Loc, value: yaml.ScalarNode, line: str) -> YamlProblem | None:
    key = next((step for step in reversed(loc) if isinstance(step, str)), "")
    start, end = value.start_mark, value.end_mark
    if value.style == '"':
        return _find_control(loc, value, line) if key in _PATTERNS else None
    if value.style or start.line != end.line:
        return None
    if nodes.is_curly(value.value):
        fixed = nodes.quote_span(line, start.column, end.column)
        opening, closing = value.value[0], value.value[-1]
        problem = f'{opening} {closing} are not YAML quotes; to keep them, put " around them'
        hint = f"remove them, or quote it: {nodes.quote(value.value)}"
        return YamlProblem(start.line + 1, problem, hint, start.column, fixed, loc)
    comment = re.compile(r"\s*(?<=\s)(?P<at>#)(?=[^\s#!])").match(line, end.column)
    if comment and key in _PROSE and value.tag.endswith((":str", ":null")):
        first = start.column if value.value else comment.start("at")
        fixed = nodes.quote_span(line, first, len(line.rstrip()))
        problem = "a `#` after a space begins a comment: the rest of this line is lost"
        problem += " (a comment has a space after its #)"
        return YamlProblem(end.line + 1, problem, "quote the text", comment.start("at"), fixed, loc)
    return None


def _find_control(loc: Loc, value: yaml.ScalarNode, line: str) -> YamlProblem | None:
    r"""Find `regex: "\bfoo\b"`, where each `\b` is a backspace."""
    if _CONTROLS.search(value.value) is None:
        return None
    start, end = value.start_mark, value.end_mark
    escape = re.compile(r"\\[bfvae0NLPxuU]").search(line, start.column)
    column = escape.start() if escape else start.column
    problem = f"`{escape[0]}`" if escape else "a backslash"
    problem += " between double quotes is a control character, not part of a regex"
    fixed = ""
    if start.line == end.line:
        body = line[start.column + 1 : end.column - 1].replace('\\"', '"').replace("'", "''")
        fixed = f"{line[: start.column]}'{body}'{line[end.column :]}"
    return YamlProblem(start.line + 1, problem, "use single quotes", column, fixed, loc)


def _find_bare_keys(node: yaml.MappingNode, source: list[str], loc: Loc) -> Iterator[YamlProblem]:
    """Find `{say: hi, there}`, which is read as two keys, and `{name}`, a key without a value."""
    bare = [index for index, pair in enumerate(node.value) if _is_bare(pair, source)]
    start, end = node.start_mark, node.end_mark
    if bare and loc and len(bare) == len(node.value) and ":" not in node.value[0][0].value:
        problem = (
            f"{{}} makes a mapping here, and `{node.value[0][0].value}` is a key without a value"
        )
        hint = "write `key: value` in it, or quote it if it is a text"
        fixed = ""
        if " " not in node.value[0][0].value and start.line == end.line:
            fixed = nodes.quote_span(source[start.line], start.column, end.column)
        yield YamlProblem(start.line + 1, problem, hint, start.column, fixed, loc)
        return
    for index in bare:
        key = node.value[index][0]
        line = source[key.start_mark.line]
        if ":" in key.value:
            yield _explain_missing_space(key, line, (*loc, key.value))
        elif index == 0 or index - 1 not in bare:
            yield _explain_comma(node, index, bare, line, loc)


def _is_bare(pair: tuple[Node, Node], source: list[str]) -> bool:
    key, value = pair
    if not isinstance(value, yaml.ScalarNode) or not isinstance(key, yaml.ScalarNode):
        return False
    start, end = value.start_mark, value.end_mark
    if key.style or value.style or (start.line, start.column) != (end.line, end.column):
        return False
    if key.end_mark.line != start.line:
        return False
    return ":" not in source[start.line][key.end_mark.column : start.column + 1]


def _explain_missing_space(key: yaml.ScalarNode, line: str, loc: Loc) -> YamlProblem:
    name, _, value = key.value.partition(":")
    problem = f"`{key.value}` has no space after its colon, so it is a key without a value"
    fixed = f"{line[: key.start_mark.column]}{name}: {value}{line[key.end_mark.column :]}"
    column = key.start_mark.column + len(name)
    return YamlProblem(key.start_mark.line + 1, problem, "", column, fixed, loc, dropped=(loc,))


def _explain_comma(
    node: yaml.MappingNode, index: int, bare: list[int], line: str, loc: Loc
) -> YamlProblem:
    """Explain the keys between commas from `index` on, up to the next one with a value."""
    last = index
    while last + 1 in bare:
        last += 1
    keys = [pair[0] for pair in node.value[index : last + 1]]
    dropped = tuple((*loc, key.value) for key in keys)
    problem = f"a comma inside {{}} ends a text: `{keys[0].value}` is read as a key without a value"
    hint = "a comma inside {} must be quoted: quote the whole text"
    number, column = keys[0].start_mark.line, keys[0].start_mark.column
    if not index:
        return YamlProblem(number + 1, problem, hint, column, "", dropped[0], dropped)
    key, value = node.value[index - 1]
    start, end = value.start_mark, keys[-1].end_mark
    fixed = ""
    is_plain = isinstance(value, yaml.ScalarNode) and not value.style
    if is_plain and start.line == number == end.line and " " not in key.value:
        fixed = nodes.quote_span(line, start.column, end.column)
    return YamlProblem(number + 1, problem, hint, column, fixed, (*loc, key.value), dropped)
