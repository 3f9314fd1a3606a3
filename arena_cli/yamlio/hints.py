r"""Explain the syntax errors in a text, and valid YAML that is most likely not what was meant.

The parser reports where it stopped. `_MISTAKES` lists the mistakes that people make: the parser's
message, the look of the line, its cause in plain words, and the line to write. Most files have no
sign of other mistakes (`SUSPECTS`); then their nodes are not walked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

from arena_cli.util.text import lazy_pattern
from arena_cli.yamlio import nodes
from arena_cli.yamlio.nodes import (
    ODD_SPACES,
    Loc,
    Node,
    YamlProblem,
    find_value_end,
    find_value_start,
    is_in_flow,
    measure_indent,
    quote_span,
)

_COMMENT = "a `#` after a space begins a comment: the rest of this line is lost"
_HASH = r"(?:^|[\s\[{,])(?P<at>#)(?=[^\s#!])"
_MUST_BE_QUOTED = "a {kind} that starts with {at} must be quoted"
_OPENS = "the {at} that opens here is {until}"
_CLOSE_OR_QUOTE = "close it, or quote the text if it is one"

Lines = Iterator[tuple[int, int | None]]  # lines to look at, and the columns, if known


class _Stop(NamedTuple):
    """The place where the parser stopped, and where the value began; lines and columns from 0."""

    lines: list[str]
    line: int
    column: int
    start_line: int
    start_column: int
    error: str

    def text(self, number: int) -> str:
        return self.lines[number] if number < len(self.lines) else ""

    def above(self, number: int) -> int:
        """Return the nearest line above with text; the line itself if there is none."""
        for candidate in range(min(number, len(self.lines)) - 1, -1, -1):
            text = self.lines[candidate].strip()
            if text and not text.startswith("#"):
                return candidate
        return number

    def is_continued(self, number: int) -> bool:
        """Return True if the next line with text belongs to the value on this one."""
        below = next((text for text in self.lines[number + 1 :] if text.strip()), "")
        keys = re.match(r"\s*(?:-\s+)*", self.lines[number])
        return keys is not None and measure_indent(below) > keys.end()


class _Mistake(NamedTuple):
    """A mistake: the parser's words, the pattern of its line, its cause in plain words, the fix.

    The pattern is searched in each line of `find_lines`, or matched at the column. Its group `at`
    is the place of the mistake; without one it is the column.
    """

    error: str
    find_lines: Callable[[_Stop], Lines]
    pattern: str
    problem: str
    hint: str = ""
    fix: Callable[[_Stop, int, re.Match[str]], str] = lambda _, __, ___: ""

    def find(self, stop: _Stop) -> YamlProblem | None:
        """Return the problem if this is its cause."""
        if re.search(self.error, stop.error) is None:
            return None
        pattern = re.compile(self.pattern)
        for number, column in self.find_lines(stop):
            text = stop.text(number)
            match = pattern.search(text) if column is None else pattern.match(text, column)
            if match is None:
                continue
            names = _describe_stop(stop) | match.groupdict()
            mistake = match.start("at") if "at" in match.groupdict() else column or 0
            names["at"] = ODD_SPACES.get(names.get("at", ""), names.get("at", ""))
            names["kind"] = "key" if _key_end(text, mistake) else "value"
            fixed = self.fix(stop, number, match)
            problem, hint = self.problem.format(**names), self.hint.format(**names)
            return YamlProblem(number + 1, problem, hint, mistake, fixed)
        return None


def _describe_stop(stop: _Stop) -> dict[str, Any]:
    """Return the words that problems and hints may have: lines, counted from 1, and indents."""
    above = stop.above(stop.line)
    start = above if stop.start_line == stop.line else stop.start_line
    earlier = range(min(stop.line, len(stop.lines)) - 1, -1, -1)
    item = next((n for n in earlier if stop.text(n).lstrip().startswith("- ")), above)
    until = f"not closed before line {stop.line + 1}"
    if not "".join(stop.lines[stop.line :]).strip():
        until = "never closed"
    elif stop.line == stop.start_line:
        until = f"not closed before the {stop.text(stop.line)[stop.column : stop.column + 1]}"
    return {
        "until": until,
        "start": start + 1,
        "above": above + 1,
        "item": item + 1,
        "indent_start": _indent_like(stop.text(start)),
        "indent_above": _indent_like(stop.text(above)),
        "indent_item": _indent_like(" " * measure_indent(stop.text(item))),
    }


def _indent_like(line: str) -> str:
    """Return the hint to begin a line at the column of the keys of another."""
    keys = re.match(r"\s*(?:-\s+)*", line)
    count = keys.end() if keys else 0
    if not count:
        return "remove the spaces before it"
    return f"indent it with {count} space{'s' if count > 1 else ''}"


def _key_end(line: str, column: int) -> int:
    """Return the end of the key that begins at a column, 0 if none does."""
    key = re.compile(r"[^\s:,{}\[\]]+(?=:(?:\s|$))").match(line, column)
    head = line[:column].rstrip()
    return key.end() if key and (not head or head[-1] in "{,-") else 0


def _at_mark(stop: _Stop) -> Lines:
    yield stop.line, stop.column


def _at_start(stop: _Stop) -> Lines:
    yield stop.start_line, stop.start_column


def _before_mark(stop: _Stop) -> Lines:
    yield stop.line, max(len(stop.text(stop.line)[: stop.column].rstrip()) - 1, 0)


def _at_open_quote(stop: _Stop) -> Lines:
    """Yield the quote on a line above that the one before the mark closes, if that opens none."""
    line, number = stop.text(stop.line), stop.line
    column = max(len(line[: stop.column].rstrip()) - 1, 0)
    quote = line[column : column + 1]
    if quote in ("'", '"') and not line[:column].count(quote) % 2:
        for above in range(number - 1, -1, -1):
            if stop.lines[above].count(quote) % 2:
                yield above, stop.lines[above].rindex(quote)
                return


def _in_line(stop: _Stop) -> Lines:
    yield stop.line, None


def _in_line_above(stop: _Stop) -> Lines:
    above = stop.above(stop.line)
    if measure_indent(stop.text(stop.line)) > measure_indent(stop.text(above)):
        yield above, None


def _in_lines_near(stop: _Stop) -> Lines:
    for number in dict.fromkeys((stop.start_line, stop.line, stop.above(stop.line))):
        yield number, None


def _in_lines_up(stop: _Stop) -> Lines:
    for number in range(min(stop.line, len(stop.lines) - 1), -1, -1):
        yield number, None


def _quote(stop: _Stop, number: int, match: re.Match[str]) -> str:
    """Quote the key or value at the place; in {} and [] up to the next comma."""
    line, column = match.string, match.start("at")
    end = _key_end(line, column)
    if not end and stop.is_continued(number):
        return ""
    return quote_span(line, column, end or find_value_end(line, column))


def _quote_value(stop: _Stop, number: int, match: re.Match[str]) -> str:
    """Quote the whole value of the line."""
    line = match.string
    start = find_value_start(line)
    if stop.is_continued(number) or is_in_flow(line, match.start("at")) > is_in_flow(line, start):
        return ""
    end = find_value_end(line, max(start, match.start("at")), flow=False)
    value = line[start:end]
    quote = value[:1]
    if (
        quote in ("'", '"')
        and value[-1:] == quote
        and (quote == "'" or value[1:2] == value[-2:-1] == quote)
    ):
        value = value[1:-1].strip('"')
    return line[:start] + nodes.quote(value) + line[end:]


def _quote_in_brackets(_: _Stop, __: int, match: re.Match[str]) -> str:
    """Quote the text inside {} or [], with brackets of its own."""
    line = match.string
    return quote_span(line, *nodes.find_flow_value(line, match.start("at")))


def _write_key(_: _Stop, __: int, match: re.Match[str]) -> str:
    return nodes.write_key(match)


def _write_ascii(_: _Stop, __: int, match: re.Match[str]) -> str:
    line, column = match.string, match.start("at")
    return line[:column] + nodes.write_ascii_marks(line[column:])


def _write_single_quotes(_: _Stop, __: int, match: re.Match[str]) -> str:
    body = match["body"].replace('\\"', '"').replace("'", "''")
    return f"{match.string[: match.start()]}'{body}'{match.string[match.end() :]}"


def _remove(_: _Stop, __: int, match: re.Match[str]) -> str:
    return match.string[: match.start("at")] + match.string[match.end("at") :]


def _close_quote(stop: _Stop, number: int, match: re.Match[str]) -> str:
    """Close the quote at the end of its line if the next line begins a key or an item."""
    line, quote = match.string, match["at"]
    if quote in line[match.end("at") :] or is_in_flow(line, match.start("at")):
        return ""
    below = next((text for text in stop.lines[number + 1 :] if text.strip()), "- ")
    return line.rstrip() + quote if re.match(r"\s*(?:- |[\w.-]+:(?:\s|$))", below) else ""


# In their order: the first that fits explains the error.
_MISTAKES = (
    _Mistake("nesting depth", _at_mark, "", "nested too deep to be read"),
    _Mistake(
        "", _in_line, r"^[ -]*(?P<at>\t)", "a tab cannot indent in YAML", "indent with spaces"
    ),
    # Full-width marks and spaces in place of YAML's own.
    *(_Mistake("", _in_lines_near, *row, fix=_write_key) for row in nodes.WIDE_KEYS),
    _Mistake(
        "",
        _in_lines_near,
        r"(?:[:,\-\[{] |^)(?P<at>[｛［])",
        "`{at}` is full-width, which YAML reads as text",
        fix=_write_ascii,
    ),
    _Mistake(
        "mapping values|flow",
        _in_lines_near,
        r"(?:[:,\-\[{] |[\[{])(?P<at>[“‘])[^“”‘’]*[”’](?=\s*(?:[,\]}]|#|$))",
        'the quotes of YAML are ", not “ ” or ‘ ’',
        fix=lambda _, __, match: quote_span(match.string, match.start("at"), match.end()),
    ),
    # Quotes.
    _Mistake(
        "quoted scalar.*(?:unknown escape|hexdecimal)",
        _at_start,
        r'"(?P<body>(?:[^"\\]|\\["\\/nrt0])*(?P<at>\\[^"\\nrt0/])(?:[^"\\]|\\.)*)"',
        "`{at}` has no meaning between double quotes",
        "use single quotes",
        _write_single_quotes,
    ),
    _Mistake(
        "quoted scalar.*unexpected",
        _at_start,
        r"(?P<at>['\"])",
        "the {at} that opens here is never closed",
        "close it",
        _close_quote,
    ),
    # A comment that is meant as text.
    _Mistake(
        "flow", _in_lines_up, r"[{\[][^{\[]*?" + _HASH, _COMMENT, "quote it", _quote_in_brackets
    ),
    _Mistake(
        "block", _in_line_above, _HASH, _COMMENT, "quote the whole text, or write it below a `|`"
    ),
    # A first character that YAML uses itself.
    _Mistake(
        "cannot start any token|(?:keys|entries) are not allowed",
        _at_mark,
        r"(?P<at>[^\s-]|(?<=: )-)",
        _MUST_BE_QUOTED,
        "quote it",
        _quote,
    ),
    _Mistake(
        "undefined alias|ing an? .*(?:alias|anchor|tag|directive|block scalar)",
        _at_start,
        r"(?P<at>[&*!%|>])",
        _MUST_BE_QUOTED,
        "quote it",
        _quote,
    ),
    # Text after a bracket or a quote, brackets inside others.
    _Mistake(
        "did not find expected",
        _at_mark,
        r"(?<=[}\]'\"])(?P<at>[,;}\]])(?=\s*(?:[}\]]|#|$))",
        "this {at} does not belong here",
        "remove it",
        _remove,
    ),
    _Mistake(
        "block.*did not find expected",
        _in_line,
        r"^\s*(?:- +)*(?:[^\s:#]+:\s+)?(?P<at>[{\[]).*[}\]]\s*[^\s,;}\]]",
        "a text that starts with {at} must be quoted",
        "quote it",
        _quote_value,
    ),
    _Mistake(
        "mapping values are not allowed",
        _in_line,
        r"^\s*(?:- +)*(?:\"[^\"]*\"|'[^']*'|[^\s'\"{\[#&*!|>@`%:][^:]*):[ \t]+"
        r"[^\s{\[].*?(?P<at>:)(?:\s|$)",
        "a value with a colon and a space in it must be quoted",
        "quote it",
        _quote_value,
    ),
    _Mistake(
        "could not find expected ':'",
        _at_start,
        r"[^{\[]*(?P<at>[{\[])[^}\]]*$",
        "the {at} that opens here is never closed",
        _CLOSE_OR_QUOTE,
    ),
    *(
        _Mistake("mapping values are|find expected ':'", _in_lines_near, *row, fix=_write_key)
        for row in nodes.BAD_KEYS
    ),
    _Mistake(
        "could not find expected ':'",
        _at_start,
        "",
        "this line has no colon, so it is not a `key: value`",
        "complete it, or indent it if it continues the text above",
    ),
    _Mistake(
        "did not find expected", _at_open_quote, r"(?P<at>['\"])", _OPENS, "close it", _close_quote
    ),
    _Mistake(
        "did not find expected",
        _before_mark,
        r"(?P<at>['\"])",
        "text follows the closing {at}; quote the whole value",
        "put the other kind of quotes around it",
        _quote_value,
    ),
    _Mistake(
        "flow",
        _at_mark,
        r"(?P<at>[{\[])",
        "a text with `{at}` in it must be quoted inside {{}} and []",
        "quote the text if it is one",
        _quote_in_brackets,
    ),
    _Mistake("flow", _at_start, r"(?P<at>[{\[])", _OPENS, _CLOSE_OR_QUOTE),
    _Mistake("flow", _in_lines_up, r"(?P<at>[{\[])[^{\[}\]]*$", _OPENS, _CLOSE_OR_QUOTE),
    # Keys and items at the wrong place.
    _Mistake(
        "did not find expected node content",
        _at_mark,
        r"(?P<at>\S)",
        _MUST_BE_QUOTED,
        "quote it",
        _quote,
    ),
    _Mistake(
        "mapping values are not allowed",
        _in_line,
        r"^\s*(?P<at>)",
        "this key is indented more than the other keys, from line {above}",
        "{indent_above}",
    ),
    _Mistake(
        "block",
        _in_line,
        r"^\s*(?P<at>)- ",
        "this item is not indented like the one on line {item}",
        "{indent_item}",
    ),
    _Mistake(
        "expected '-' indicator|block collection",
        _in_line,
        r"^\s*(?P<at>)",
        "this line is among the list items from line {start}",
        "start it with `- `, or {indent_above}, to belong to line {above}",
    ),
    _Mistake(
        "block mapping|document start",
        _in_line,
        r"^\s*(?P<at>)",
        "this line does not fit the keys from line {start}",
        "{indent_start}",
    ),
)


def explain_error(error: yaml.YAMLError, text: str) -> YamlProblem:
    r"""Return the cause of a syntax error in `text`, whose lines end in `\n`."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    start: Any = getattr(error, "context_mark", None) or mark
    if mark is None:
        return YamlProblem(1, f"this is not YAML: {error}")
    problem, context = (getattr(error, name, "") or "" for name in ("problem", "context"))
    source = text.split("\n")
    line, start_line = (min(number, len(source) - 1) for number in (mark.line, start.line))
    stop = _Stop(source, line, mark.column, start_line, start.column, f"{context}; {problem}")
    for mistake in _MISTAKES:
        finding = mistake.find(stop)
        if finding is not None:
            return finding
    reason = f"{context} {problem}".strip()
    return YamlProblem(line + 1, f"this is not YAML: {reason}", "", mark.column)


# The signs that the writer of a text meant something else than YAML reads.
SUSPECTS = lazy_pattern(
    "[－\u3000\xa0“‘]|:[{\\[\"']"
    r"|(?:\A|\n) *-\w|[ \t]#[^\s#!]| &\S|\\[bfvae0NLPxuU]"
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
            finding = _explain_value(loc, value, source[value.start_mark.line], text)
            if finding is not None:
                yield finding


def _explain_value(loc: Loc, value: yaml.ScalarNode, line: str, text: str) -> YamlProblem | None:
    key = next((step for step in reversed(loc) if isinstance(step, str)), "")
    start, end = value.start_mark, value.end_mark
    if value.style == '"':
        return _find_control(loc, value, line) if key in _PATTERNS else None
    if value.style or start.line != end.line:
        return None
    anchor = re.compile(r"&(\S+) +\S").match(line, start.column)
    if anchor and f"*{anchor[1]}" not in text:
        fixed = nodes.quote_span(line, start.column, nodes.find_value_end(line, start.column))
        problem = f"`&{anchor[1]}` names a value, but nothing uses the name"
        hint = "a value that starts with & must be quoted"
        return YamlProblem(start.line + 1, problem, hint, start.column, fixed)
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
        problem = f"{_COMMENT} (a comment has a space after its #)"
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
