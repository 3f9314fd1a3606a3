"""What YAML reads without complaint, though it is most likely not what was meant.

Its nodes are walked only where `yamlsuspects` finds something in the text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import yaml

from arena_cli.ground.yamlfiles import yamlkeys, yamllines, yamlnodes, yamlsuspects
from arena_cli.ground.yamlfiles.yamlnodes import Finding, Loc, Node

# Keys of prose: in their values a `#3` is a number of an issue, not a comment.
_PROSE = frozenset(
    {"contains", "description", "equals", "judge", "keywords", "name", "not_contains", "regex"}
    | {"replies", "role", "role_prompt", "say", "scenario", "send", "skills", "skip"}
    | {"starts_with", "step", "system", "text", "user", "xfail"}
)
_PATTERNS = frozenset({"regex", "redact"})
_CONTROLS = re.compile("[\x00\x07\x08\x0b\x0c\x1b\x85\u2028\u2029]")

_ESCAPED_CONTROL = re.compile(r"\\[bfvae0NLPxuU]")
# A drive and folders. `A:` and `Q:` are an answer and a question; `C:`, a line end and words are an
# option of several: with a line end or with a space, more must say that it is a path.
_WHOLE_PATH = (
    r"\"[C-PR-Zc-pr-z]:\\"
    r"(?=[nr][^\"\\ ]*\\[^\" ]*\"|[^nr][^\"\\]*\\|[\w-]+\.\w{1,4}\"|[^nr][\w-]*\")"
    r"([nrtbfvae0NLP_xuU])[\w.+-]*(?:[\\ ][\w.+()-]+)*\""
)
_PATH_INSIDE = r"(?<![\w\\])[C-Zc-z]:\\([tbfvae0NLP_])[\w.+-]+\\[\w.+-]+(?![\w.+:-])"


def of_values(root: Node, text: str) -> Iterator[Finding]:
    """Values that lost a part, or say something else than they seem to."""
    lines = [*text.split("\n"), ""]  # a value may be empty behind the last line
    for loc, _, value in yamlkeys.walk(root):
        if isinstance(value, yaml.MappingNode) and value.flow_style:
            yield from _keys_without_value(value, lines, loc)
        elif isinstance(value, yaml.ScalarNode):
            finding = _bad_value(loc, value, lines)
            if finding is not None:
                yield finding
    if "&" in text:
        yield from _unused_anchors(text)


def _bad_value(loc: Loc, value: yaml.ScalarNode, lines: list[str]) -> Finding | None:
    name = next((part for part in reversed(loc) if isinstance(part, str)), "")
    if value.style == '"':
        control = _control(loc, value, lines) if name in _PATTERNS else None
        return control or _path(loc, value, lines)
    if value.style:
        return None
    if value.start_mark.line != value.end_mark.line:
        return _swallowed_item(loc, value, lines)
    line = lines[value.start_mark.line]
    return (
        (_comment(loc, value, line) if name in _PROSE else None)
        or _curly(loc, value, line)
        or (_wide_comma(loc, value, line) if name in yamlsuspects.WORDS else None)
    )


def _curly(loc: Loc, value: yaml.ScalarNode, line: str) -> Finding | None:
    """`send: “hello”`."""
    text, start = value.value, value.start_mark
    if not yamllines.is_curly(text):
        return None
    fixed = yamllines.with_value(line, start.column, value.end_mark.column)
    what = f'{text[0]} {text[-1]} are no quotes of YAML; to keep them, put " around them'
    mend = f"take them away, or quote it: {yamllines.quoted(text)}"
    return Finding(start.line + 1, what, mend, start.column, fixed, loc)


def _wide_comma(loc: Loc, value: yaml.ScalarNode, line: str) -> Finding | None:
    """`keywords: [架构，拆解]`, which is one word to YAML."""
    text, start = value.value, value.start_mark
    mark = next((char for char in text if char in "，、"), "")
    if not mark or not yamllines.in_flow(line, start.column):
        return None
    parts = ", ".join(part.strip() for part in re.split("[，、]", text) if part.strip())
    fixed = line[: start.column] + parts + line[value.end_mark.column :]
    what = f"`{mark}` parts no words in YAML: `{text}` is one word here"
    return Finding(start.line + 1, what, "", start.column + text.index(mark), fixed, loc)


def _swallowed_item(loc: Loc, value: yaml.ScalarNode, lines: list[str]) -> Finding | None:
    """A `- ` below an item, indented more: it is read as a part of that item's text."""
    start = value.start_mark
    first = lines[start.line]
    column = len(first) - len(first.lstrip())
    if not first[column:].startswith("- "):
        return None
    for number in range(start.line + 1, value.end_mark.line + 1):
        text = lines[number].lstrip()
        if text.startswith("- "):
            what = f"this item is indented more than the one on line {start.line + 1}, and is read"
            what += " as a part of its text"
            mend = f"indent it with {column} space{'' if column == 1 else 's'}"
            if not column:
                mend = "take the spaces before it away"
            return Finding(number + 1, what, mend, len(lines[number]) - len(text), loc=loc)
    return None


def _comment(loc: Loc, value: yaml.ScalarNode, line: str) -> Finding | None:
    """`send: fix issue #3`: what follows the `#` is a comment to YAML."""
    end = value.end_mark
    found = re.compile(r"\s*(?<=\s)#(?=[^\s#!])").match(line, end.column)
    is_text = value.tag.endswith((":str", ":null"))
    if found is None or not is_text:
        return None
    start = value.start_mark.column if value.value else found.end() - 1
    fixed = yamllines.with_value(line, start, len(line.rstrip()))
    what = (
        "a `#` after a space begins a comment: the rest of this line is lost"
        " (a comment has a space after its #)"
    )
    return Finding(end.line + 1, what, "quote the text", found.end() - 1, fixed, loc)


def _control(loc: Loc, value: yaml.ScalarNode, lines: list[str]) -> Finding | None:
    """`regex: "\\bfoo\\b"`, where each `\\b` is a backspace."""
    if _CONTROLS.search(value.value) is None:
        return None
    start = value.start_mark
    line = lines[start.line]
    found = _ESCAPED_CONTROL.search(line, start.column)
    escape = f"`{found[0]}`" if found else "a backslash"
    what = f"{escape} between double quotes is a control character, not part of a regex"
    return _in_single_quotes(loc, value, line, what, found.start() if found else start.column)


def _path(loc: Loc, value: yaml.ScalarNode, lines: list[str]) -> Finding | None:
    """`file: "C:\\new\\ask.md"`, which holds a line end and a bell."""
    start, end = value.start_mark, value.end_mark
    line = lines[start.line]
    if start.line != end.line:
        return None
    found = re.compile(_WHOLE_PATH).match(line, start.column)
    found = found or re.compile(_PATH_INSIDE).search(line, start.column, end.column)
    if found is None:
        return None
    name = {"n": "a line end", "t": "a tab", "r": "a line end"}.get(found[1], "another character")
    what = f"`\\{found[1]}` between double quotes is {name}, not part of a path"
    finding = _in_single_quotes(loc, value, line, what, found.start(1) - 1)
    return finding._replace(pieces=(loc,))  # nobody looks for a file of that name


def _in_single_quotes(
    loc: Loc, value: yaml.ScalarNode, line: str, what: str, column: int
) -> Finding:
    start, end = value.start_mark, value.end_mark
    mend = "use single quotes"
    if start.line != end.line:
        return Finding(start.line + 1, what, mend, column, loc=loc)
    inner = line[start.column + 1 : end.column - 1].replace('\\"', '"').replace("'", "''")
    fixed = f"{line[: start.column]}'{inner}'{line[end.column :]}"
    return Finding(start.line + 1, what, mend, column, fixed, loc)


def _keys_without_value(node: yaml.MappingNode, lines: list[str], loc: Loc) -> Iterator[Finding]:
    """`{say: hi, there}` is read as two keys, `{say:hi}` and `{name}` as one without a value."""
    empty = [index for index, pair in enumerate(node.value) if _is_bare(pair, lines)]
    start, end = node.start_mark, node.end_mark
    if empty and len(empty) == len(node.value) and start.line == end.line and loc:
        key = node.value[0][0]
        line = lines[start.line]
        if ":" in key.value:
            yield _spaceless(key, line, (*loc, key.value))
            return
        what = f"{{}} makes a mapping here, and `{key.value}` is a key without a value"
        mend = "write `key: value` in it, or quote it if it is a text"
        is_name = " " not in key.value
        fixed = yamllines.with_value(line, start.column, end.column) if is_name else None
        yield Finding(start.line + 1, what, mend, start.column, fixed, loc)
        return
    for index in empty:
        key = node.value[index][0]
        line = lines[key.start_mark.line]
        here = (*loc, key.value)
        if ":" in key.value:
            yield _spaceless(key, line, here)
        elif index == 0 or index - 1 not in empty:
            yield _comma(node, index, empty, line, loc)


def _is_bare(pair: tuple[Node, Node], lines: list[str]) -> bool:
    key, value = pair
    if not isinstance(value, yaml.ScalarNode) or not isinstance(key, yaml.ScalarNode):
        return False
    start, end = value.start_mark, value.end_mark
    if key.style or value.style or (start.line, start.column) != (end.line, end.column):
        return False
    if key.end_mark.line != start.line:
        return False
    return ":" not in lines[start.line][key.end_mark.column : start.column + 1]


def _spaceless(key: yaml.ScalarNode, line: str, loc: Loc) -> Finding:
    name, _, rest = key.value.partition(":")
    what = f"`{key.value}` has no space after its colon, so it is a key without a value"
    fixed = f"{line[: key.start_mark.column]}{name}: {rest}{line[key.end_mark.column :]}"
    column = key.start_mark.column + len(name)
    return Finding(key.start_mark.line + 1, what, "", column, fixed, loc, pieces=(loc,))


def _comma(node: yaml.MappingNode, index: int, empty: list[int], line: str, loc: Loc) -> Finding:
    """What stands between commas from the key at `index` on, as far as no other has a value."""
    last = index
    while last + 1 in empty:
        last += 1
    keys = [pair[0] for pair in node.value[index : last + 1]]
    pieces = tuple((*loc, key.value) for key in keys)
    what = f"a comma inside {{}} ends a text: `{keys[0].value}` is read as a key without a value"
    mend = "a comma inside {} must be quoted: quote the whole text"
    number, column = keys[0].start_mark.line, keys[0].start_mark.column
    if not index:
        return Finding(number + 1, what, mend, column, None, pieces[0], pieces=pieces)
    first = index - 1
    while first and " " in node.value[first][0].value:  # a key of two words is a part of a text
        first -= 1
    key, before = node.value[first]
    start, end = before.start_mark, keys[-1].end_mark
    fixed = None
    if (
        isinstance(before, yaml.ScalarNode)
        and not before.style
        and start.line == number == end.line
    ):
        fixed = yamllines.with_value(line, start.column, end.column)
    pieces += tuple((*loc, pair[0].value) for pair in node.value[first + 1 : index])
    return Finding(number + 1, what, mend, column, fixed, (*loc, key.value), pieces=pieces)


def _unused_anchors(text: str) -> Iterator[Finding]:
    """Each anchor before a plain text that no alias uses: most likely it is text."""
    tokens = list(yamlnodes.tokens(text))
    used = {token.value for token in tokens if isinstance(token, yaml.AliasToken)}
    for token, following in itertools.pairwise(tokens):
        opens = isinstance(following, (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken))
        flows = isinstance(following, (yaml.FlowMappingStartToken, yaml.FlowSequenceStartToken))
        if isinstance(token, yaml.AnchorToken) and token.value not in used and not opens | flows:
            mark = token.start_mark
            line = yamllines.at(text, mark.line)
            end = yamllines.value_end(line, mark.column)
            fixed = yamllines.with_value(line, mark.column, end)
            what = f"`&{token.value}` names a value, and nothing uses the name"
            mend = "a value that starts with & must be quoted"
            yield Finding(mark.line + 1, what, mend, mark.column, fixed)
