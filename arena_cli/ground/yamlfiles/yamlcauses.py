"""Why a text is not YAML, in the words of who wrote it, and what to do about it.

The parser says where it gave up; what stands there says what was meant. Where the mend is certain
the text is mended too, so that the rest of the file is read in the same run.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from arena_cli.ground.yamlfiles import yamllines, yamlnodes, yamlplace, yamlstructure
from arena_cli.ground.yamlfiles.yamlnodes import Finding
from arena_cli.ground.yamlfiles.yamlplace import Place

_INDENT = re.compile(r"[ \t]*")
# The outer quotes are meant as such where the first inside opens: `"say "hi""`, not `"a" or "b"`.
_QUOTES_IN_QUOTES = re.compile(
    r"""'(.+)'$|""(.*)""$|"([^"]*[\s(\[{]"(?=[^\s"])[^"]*"(?:[^"]*"[^"]*")*[^"]*)"$"""
)
_KEY_AHEAD = re.compile(r"[^\s:,{}\[\]]+(?=:(?:\s|$))")
_HASH = re.compile(r"(?:^|[\s\[{,])#(?=[^\s#!])")
_COLUMN_OF_KEYS = re.compile(r"\s*(?:-\s+)*")
_CODE = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})(?:\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2}))?"
    r"|\\u(?P<half>[dD][c-fC-F][0-9a-fA-F]{2})|\\U[0-9a-fA-F]{8}"
)
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def explain(error: yaml.YAMLError, text: str) -> Finding:
    """The cause of a syntax error in `text`, whose lines end in `\\n`."""
    place = _place(error, text.split("\n"))
    for rule in _RULES:
        cause = rule(place)
        if cause is not None:
            return cause
    what = f"this is not YAML: {place.problem}"
    return Finding(place.line + 1, what, place.context, place.column)


def _place(error: Any, lines: list[str]) -> Place:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    start: Any = getattr(error, "context_mark", None) or mark
    if mark is None:
        return Place(lines, 0, 0, 0, 0, str(error), "")
    return Place(
        lines=lines,
        line=mark.line,
        column=mark.column,
        start_line=start.line,
        start_column=start.column,
        problem=str(getattr(error, "problem", "") or ""),
        context=str(getattr(error, "context", "") or ""),
    )


def _nesting(at: Place) -> Finding | None:
    if "nesting depth" not in at.problem:
        return None
    return Finding(at.line + 1, "nested too deep to be read", "", at.column)


def _tab(at: Place) -> Finding | None:
    indent = _INDENT.match(at.text)
    if indent is None or "\t" not in indent.group() or at.column > indent.end():
        return None
    what, mend = "a tab cannot indent in YAML", "indent with spaces"
    mended = yamllines.tab_indent("\n".join(at.lines))
    return Finding(at.line + 1, what, mend, at.text.index("\t"), mended=mended)


def _wide(at: Place) -> Finding | None:
    """Full-width marks or spaces for YAML's own, on the line or on the one above it."""
    for line in dict.fromkeys((at.start_line, at.line, at.above(at.line))):
        text = at.at(line)
        if text.isascii():
            continue
        slip = yamllines.odd_space(text)
        slip = slip or (yamllines.bad_key(text) if "：" in text else None)
        slip = slip or yamllines.wide(text)
        if slip is not None:
            mended = at.mended(line, slip.fixed)
            return Finding(line + 1, slip.what, "", slip.column, slip.fixed, mended=mended)
    return None


def _escape(at: Place) -> Finding | None:
    """A regex between double quotes: `"\\d+"`."""
    is_double = "quoted scalar" in at.context and at.start_text[at.start_column :][:1] == '"'
    if not is_double or not any(word in at.problem for word in ("escape", "hexdecimal")):
        return None
    at_slash = at.column if at.char == "\\" else at.text.rfind("\\", 0, at.column + 1)
    code = _CODE.match(at.text, at_slash)
    if code is not None:
        return _no_character(at, code)
    what = f"`{at.text[at_slash : at_slash + 2]}` means nothing between double quotes"
    found = _DOUBLE_QUOTED.match(at.text, at.start_column) if at.line == at.start_line else None
    if found is None:
        mended = at.mended(at.line, f"{at.text[:at_slash]}\\{at.text[at_slash:]}")
        return Finding(at.line + 1, what, "use single quotes", at_slash, mended=mended)
    inner = found[1].replace('\\"', '"').replace("'", "''")
    fixed = f"{at.text[: found.start()]}'{inner}'{at.text[found.end() :]}"
    mended = at.mended(at.line, fixed)
    return Finding(at.line + 1, what, "use single quotes", at_slash, fixed, mended=mended)


def _no_character(at: Place, code: re.Match[str]) -> Finding:
    """`\\ud83d`, which is half of a character, and `\\U00110000`, which is none."""
    start, end = code.span()
    if code["low"]:
        whole = 0x10000 + ((int(code["high"], 16) & 0x3FF) << 10 | int(code["low"], 16) & 0x3FF)
        what = f"`{code[0]}` is one character, which YAML writes as one"
        fixed = f"{at.text[:start]}\\U{whole:08X}{at.text[end:]}"
        return Finding(at.line + 1, what, "", start, fixed, mended=at.mended(at.line, fixed))
    what = f"`{code[0]}` is half of a character (a lone surrogate)"
    mend = "write the character itself, or take it out"
    if not code["high"] and not code["half"]:
        what = f"`{code[0]}` is no character; the last is `\\U0010FFFF`"
    mended = at.mended(at.line, f"{at.text[:start]}\\uFFFD{at.text[end:]}")
    return Finding(at.line + 1, what, mend, start, mended=mended)


def _open_quote(at: Place) -> Finding | None:
    if "quoted scalar" not in at.context:
        return None
    return _never_closed(at, at.start_line, at.start_column, "is never closed")


def _never_closed(at: Place, line: int, column: int, when: str) -> Finding:
    text = at.at(line)
    quote = text[column : column + 1]
    mend = "close it"
    if quote == "'":
        mend = "close it; an apostrophe inside single quotes is written twice: 'it''s'"
    what = f"the {quote} that opens here {when}"
    if quote in text[column + 1 :] or yamllines.in_flow(text, column):
        return Finding(line + 1, what, mend, column)
    fixed = text.rstrip() + quote
    below = next((other for other in at.lines[line + 1 :] if other.strip()), "- ")
    is_next = re.match(r"\s*(?:- |[\w.-]+:(?:\s|$))", below)
    if not is_next:
        return Finding(line + 1, what, mend, column)
    return Finding(line + 1, what, mend, column, fixed, mended=at.mended(line, fixed))


def _comment(at: Place) -> Finding | None:
    """`{send: fix #3}`: what closes the { stands in a comment."""
    what = "a `#` after a space begins a comment: the rest of this line is lost"
    if "flow" in at.context or "flow" in at.problem:
        opened = None if at.start_text else yamlnodes.open_bracket("\n".join(at.lines))
        first = opened[0] if opened else at.start_line
        for line in range(first, min(at.line + 1, len(at.lines))):
            text = at.lines[line]
            found = _HASH.search(text)
            if found is None or not yamllines.in_flow(text, found.end()):
                continue
            start, end = yamllines.flow_value(text, found.end() - 1)
            fixed = yamllines.with_value(text, start, end)
            mended = at.mended(line, fixed)
            return Finding(line + 1, what, "quote it", found.end() - 1, fixed, mended=mended)
    above = at.above(at.line)
    found = _HASH.search(at.at(above))
    if (
        found
        and "block" in at.context
        and yamlplace.indent_of(at.text) > yamlplace.indent_of(at.at(above))
    ):
        mend = "quote the whole text, or write it below a `|`"
        return Finding(above + 1, what, mend, found.end() - 1)
    return None


def _same_anchor(at: Place) -> Finding | None:
    if "duplicate anchor" not in at.context + at.problem:
        return None
    what = f"the anchor of line {at.start_line + 1} stands twice"
    return Finding(at.line + 1, what, "", at.column)


def _first_character(at: Place) -> Finding | None:
    """`message: @alice hi`, `say: **bold**`, `say: %x`: the first character is YAML's own."""
    alias = "undefined alias" in at.problem or "alias" in at.context or "anchor" in at.context
    tag = "tag" in at.context or "tag" in at.problem
    if "cannot start any token" in at.problem or "mapping keys are not allowed" in at.problem:
        line, column = at.line, at.column
    elif alias or tag:
        line, column = at.start_line, at.start_column
    elif at.context == "while scanning a directive":
        what = "a line that starts with % must be quoted"
        return Finding(at.start_line + 1, what, "quote it", at.start_column)
    else:
        return None
    return _must_be_quoted(at, line, column)


def _must_be_quoted(at: Place, line: int, column: int, words: str = "") -> Finding:
    text = at.at(line)
    key = _KEY_AHEAD.match(text, column)
    before = text[:column].rstrip()
    if key and (not before or before[-1:] in "{,-"):
        kind, end = "key", key.end()
    else:
        kind, end = "value", yamllines.value_end(text, column)
    fixed = yamllines.with_value(text, column, end)
    mended = None if _goes_on(at.lines, line) and kind == "value" else at.mended(line, fixed)
    what = f"a {kind} that starts with {text[column : column + 1]} must be quoted{words}"
    shown = None if mended is None else fixed
    return Finding(line + 1, what, "quote it", column, shown, mended=mended)


def _block_header(at: Place) -> Finding | None:
    """`say: > hello`, `say: |x`."""
    if "block scalar" not in at.context:
        return None
    words = ", or its text begin on the next line"
    return _must_be_quoted(at, at.start_line, at.start_column, words)


def _list_in_value(at: Place) -> Finding | None:
    """`say: - hi`."""
    if "block sequence entries are not allowed" not in at.problem:
        return None
    start = yamllines.value_start(at.text)
    if at.text[start : start + 1] != "-" or not at.text[:start].strip():
        what = "a list item (`- `) stands here where the value before it has not ended"
        return Finding(at.line + 1, what, "indent it like the items beside it", at.column)
    return _must_be_quoted(at, at.line, start, ", or the list begin on the next line")


def _colon_in_value(at: Place) -> Finding | None:
    """`say: note: this`."""
    start = yamllines.value_start(at.text)
    if "mapping values are not allowed" not in at.problem or start > at.column:
        return None
    if not at.text[:start].strip(" -") or yamllines.flow_without_colon(at.text):
        return None
    end = yamllines.value_end(at.text, start, flow=False)
    fixed = yamllines.with_value(at.text, start, end)
    mended = None if _goes_on(at.lines, at.line) else at.mended(at.line, fixed)
    what = "a value with a colon and a space in it must be quoted"
    return Finding(at.line + 1, what, "quote it", at.column, fixed, mended=mended)


def _text_after_quote(at: Place) -> Finding | None:
    """`say: "no" he said`, `say: 'it's'`, and a quote that an other one closes lines below."""
    before = at.text[: at.column].rstrip()
    if "expected" not in at.problem or before[-1:] not in ("'", '"') or at.char in ("", "#"):
        return None
    quote = before[-1]
    start = yamlnodes.quoted_until("\n".join(at.lines), at.line, len(before))
    if start is None:
        return None
    if start[0] < at.line:
        return _never_closed(at, *start, f"is closed only on line {at.line + 1}")
    column = start[1]
    flow = "flow" in at.context
    needless = yamlstructure.needless_mark(at, flow=flow)
    if needless is not None:
        return needless
    end = yamllines.value_end(at.text, at.column - 1, flow=flow)
    while at.text.count(quote, column, end) % 2 and quote in at.text[end:]:
        end = yamllines.value_end(at.text, at.text.index(quote, end), flow=flow)
    value = at.text[column:end]
    fixed = yamllines.with_value(at.text, column, end)
    found = _QUOTES_IN_QUOTES.match(value)
    if found:
        inner = (found[1] or found[2] or found[3]).replace('\\"', '"')
        fixed = at.text[:column] + yamllines.quoted(inner) + at.text[end:]
    what = f"text goes on after the {quote} that closes it; quote the whole value"
    mended = at.mended(at.line, fixed)
    return Finding(at.line + 1, what, "", len(before) - 1, fixed, mended=mended)


def _stray(at: Place) -> Finding | None:
    if "expected node content" not in at.problem:
        return None
    return _must_be_quoted(at, at.line, at.column)


_RULES = (
    _nesting,
    _tab,
    yamlstructure.left_of_text,
    _wide,
    _escape,
    _open_quote,
    _comment,
    _same_anchor,
    _first_character,
    _block_header,
    _list_in_value,
    yamlstructure.template,
    _colon_in_value,
    yamlstructure.key_line,
    _text_after_quote,
    yamlstructure.one_document,
    yamlstructure.colon_without_value,
    yamlstructure.brackets,
    _stray,
    yamlstructure.indent,
)


def _goes_on(lines: list[str], line: int) -> bool:
    """Whether the next line with text belongs to the value on this one."""
    following = next((text for text in lines[line + 1 :] if text.strip()), "")
    keys = _COLUMN_OF_KEYS.match(lines[line])
    return keys is not None and yamlplace.indent_of(following) > keys.end()
