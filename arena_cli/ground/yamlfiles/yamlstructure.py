"""Why the keys, lists and brackets of a text are not YAML: colons, indents, what is not closed."""

from __future__ import annotations

import re

from arena_cli.ground.yamlfiles import yamllines, yamlnodes, yamlplace
from arena_cli.ground.yamlfiles.yamlnodes import Finding
from arena_cli.ground.yamlfiles.yamlplace import Place

_TEXT_HEADER = re.compile(
    r"(?P<lead> *(?:- +)*)(?P<key>[^\s#'\"{\[|>-][^#'\"]*:[ ]+)?[|>][-+0-9]*[ ]*(?:#.*)?$"
)
_KEY_OR_ITEM = re.compile(r"- |[^:]*:(?:\s|$)")
_NO_BEGINNING = "@`%*&!"  # no text begins with one of these
_COLUMN_OF_KEYS = re.compile(r"\s*(?:-\s+)*")


def key_line(at: Place) -> Finding | None:
    """`model:gpt`, `team dev`, which shows only on the next line."""
    unexpected = ("mapping values are not allowed", "could not find expected ':'")
    if not any(words in at.problem for words in unexpected):
        return None
    for line in dict.fromkeys((at.start_line, at.line, at.above(at.line))):
        slip = yamllines.bad_key(at.at(line)) or yamllines.flow_without_colon(at.at(line))
        if slip is not None:
            mended = at.mended(line, slip.fixed)
            return Finding(line + 1, slip.what, "", slip.column, slip.fixed, mended=mended)
    opened = yamllines.last_open(at.start_text)
    if opened is not None and "could not find" in at.problem:
        return _not_closed(at._replace(start_column=opened))
    line = at.start_line if "could not find" in at.problem else at.above(at.line)
    slip = None if line == at.line and at.char == ":" else yamllines.no_colon(at.at(line))
    if slip is None:
        return None
    mend = "complete it, or indent it if it goes on a text above"
    if not slip.fixed:
        return Finding(line + 1, slip.what, mend, slip.column)
    mended = at.mended(line, slip.fixed)
    return Finding(line + 1, slip.what, mend, slip.column, slip.fixed, mended=mended)


def left_of_text(at: Place) -> Finding | None:
    """A line of a text below a `|` that is indented less than the text's first line."""
    for line in dict.fromkeys((at.start_line, at.line)):
        column = yamlplace.indent_of(at.at(line))
        if not at.at(line)[column:] or at.at(line)[column] == "#":
            continue
        found = _text_above(at, line)
        if found is None or not found[1] <= column < found[2]:
            continue
        header, least, indent = found
        starts_key = _KEY_OR_ITEM.match(at.at(line), column)
        if column == least and (starts_key or at.at(line)[column] not in _NO_BEGINNING):
            continue
        what = f"this line is indented less than the text from line {header + 2}, and ends it"
        spaces = " " * indent
        mended = at.mended(line, spaces + at.at(line).lstrip())
        return Finding(line + 1, what, _spaces(spaces), column, mended=mended)
    return None


def _text_above(at: Place, line: int) -> tuple[int, int, int] | None:
    """Of the `|` or `>` whose text ends before a line: its line, the column of what holds it, and
    the indent of its text.
    """
    lowest = None
    for number in range(line - 1, -1, -1):
        text = at.lines[number]
        if not text.strip():
            continue
        header = _TEXT_HEADER.match(text)
        if header and lowest is not None and lowest > len(header["lead"]):
            first = next(below for below in at.lines[number + 1 :] if below.strip())
            is_key = header["key"] is not None
            least = len(header["lead"]) if is_key else len(header["lead"].rstrip(" ")) - 1
            return number, least, yamlplace.indent_of(first)
        indent = yamlplace.indent_of(text)
        lowest = indent if lowest is None else min(indent, lowest)
    return None


def one_document(at: Place) -> Finding | None:
    if "found another document" not in at.problem:
        return None
    what = "a second document starts here (`---`)"
    return Finding(at.line + 1, what, "a file holds one", at.column)


def colon_without_value(at: Place) -> Finding | None:
    """`{keywords:}`."""
    if "unexpected ':'" not in at.problem:
        return None
    what = "a colon inside {} or [] is followed by a space and a value"
    mend = "complete it, or quote the text if it is one"
    return Finding(at.line + 1, what, mend, at.column)


def brackets(at: Place) -> Finding | None:
    """`{send: fix [a] now}`, `{turns: 1` and all else that goes wrong inside {} and []."""
    if "flow" not in at.context:
        return None
    opener = at.start_text[at.start_column :][:1]
    closer = {"{": "}", "[": "]"}.get(opener)
    if closer is None:
        return _open_to_the_end(at)
    if at.line != at.start_line or at.char in ("}", "]"):
        return _not_closed(at)
    start, end = yamllines.flow_value(at.text, at.column)
    what = f"a text with `{at.char}` in it must be quoted inside {opener}{closer}"
    mend = "quote the text if it is one"
    if at.char not in ("{", "["):
        return Finding(at.line + 1, what, mend, at.column)
    fixed = yamllines.with_value(at.text, start, end)
    mended = at.mended(at.line, fixed)
    return Finding(at.line + 1, what, mend, at.column, fixed, mended=mended)


def _open_to_the_end(at: Place) -> Finding:
    opened = yamlnodes.open_bracket("\n".join(at.lines))
    if opened is None or "".join(at.lines[at.line :]).strip():
        what = f"a value cannot start with `{at.char}`"
        return Finding(at.line + 1, what, "quote it, or complete it", at.column)
    char = at.at(opened[0])[opened[1]]
    what = f"the {char} that opens here is never closed"
    return Finding(opened[0] + 1, what, "close it, or quote the text if it is one", opened[1])


def _not_closed(at: Place) -> Finding:
    line = at.start_line + 1
    opener = at.start_text[at.start_column]
    closer = "}" if opener == "{" else "]"
    if at.line == at.start_line:
        what = f"the {opener} that opens here is not closed before the {at.char}"
        fixed = at.text[: at.column] + closer + at.text[at.column :]
        mended = at.mended(at.line, fixed)
        return Finding(line, what, "", at.start_column, fixed, mended=mended)
    at_end = not "".join(at.lines[at.line :]).strip()
    when = "never closed" if at_end else f"not closed before line {at.line + 1}"
    what = f"the {opener} that opens here is {when}"
    mend = f"close it with {closer}, or quote the text if it is one"
    return Finding(line, what, mend, at.start_column)


def indent(at: Place) -> Finding | None:
    column = yamlplace.indent_of(at.text)
    line = at.line + 1
    if "mapping values are not allowed" in at.problem:
        above = at.above(at.line)
        what = f"this key is indented more than the keys beside it, from line {above + 1}"
        return Finding(line, what, _spaces(at.at(above)), column)
    if at.text.lstrip().startswith("- ") and "block" in at.context:
        return _item(at)
    if "expected '-' indicator" in at.problem or "block collection" in at.context:
        above = at.above(at.line)
        what = f"this line stands among the list items from line {at.start_line + 1}"
        mend = f"start it with `- `, or {_spaces(at.at(above))}, to belong to line {above + 1}"
        return Finding(line, what, mend, column)
    if "could not find expected ':'" in at.problem:
        what = "this line is no `key: value`"
        mend = "look at its first character, and at its quotes and brackets"
        return Finding(at.start_line + 1, what, mend, at.start_column)
    if "block mapping" in at.context or "document start" in at.problem:
        first = at.start_line if "block mapping" in at.context else at.above(at.line)
        what = f"this line does not fit the keys from line {first + 1}"
        return Finding(line, what, _spaces(at.at(first)), column)
    return None


def _item(at: Place) -> Finding:
    """A `- ` that is indented less or more than those above it."""
    above = range(at.line - 1, -1, -1)
    first = next((line for line in above if at.at(line).lstrip().startswith("- ")), None)
    column = yamlplace.indent_of(at.text)
    if first is None:
        what = f"a list item cannot stand beside the keys from line {at.start_line + 1}"
        return Finding(at.line + 1, what, "indent it, or take its `- ` away", column)
    what = f"this item is not indented like the one on line {first + 1}"
    return Finding(at.line + 1, what, _spaces(" " * yamlplace.indent_of(at.at(first))), column)


def _spaces(like: str) -> str:
    """What to do so that a line stands like the keys on another."""
    found = _COLUMN_OF_KEYS.match(like)
    count = found.end() if found else 0
    if not count:
        return "take the spaces before it away"
    return f"indent it with {count} space{'s' if count > 1 else ''}"


def template(at: Place) -> Finding | None:
    """`say: {name} hello`, `send: [urgent] check`."""
    before = at.text[: at.column].rstrip()
    if "did not find expected" not in at.problem or before[-1:] not in ("}", "]"):
        return None
    if at.char in ("", "#", "\n"):
        return None
    if at.char in "}]":
        what = f"this {at.char} closes nothing"
        fixed = at.text[: at.column] + at.text[at.column + 1 :]
        mended = at.mended(at.line, fixed)
        return Finding(at.line + 1, what, "", at.column, fixed, mended=mended)
    flow = "flow" in at.context
    needless = needless_mark(at, flow=flow)
    if needless is not None:
        return needless
    start = yamllines.value_start(at.text)
    if flow:
        start = yamllines.flow_value(at.text, _opener(before))[0]
    if at.text[start : start + 1] not in ("{", "["):
        return None
    end = yamllines.flow_value(at.text, start)[1] if flow else None
    end = end or yamllines.value_end(at.text, start, flow=False)
    fixed = yamllines.with_value(at.text, start, end)
    what = f"a text that starts with {at.text[start]} must be quoted"
    mended = at.mended(at.line, fixed)
    return Finding(at.line + 1, what, "quote it", start, fixed, mended=mended)


def needless_mark(at: Place, *, flow: bool) -> Finding | None:
    """`replied: [a],` and `{replied: [a];}`, as other languages write it."""
    rest = at.text[at.column + 1 :].lstrip()
    is_last = rest[:1] in ("}", "]") if flow else rest[:1] in ("", "#")
    if at.char not in (",;" if not flow else ";"):
        return None
    if not is_last and not (flow and yamllines.is_key(rest)):
        return None
    name = "comma" if at.char == "," else "semicolon"
    what = f"a {name} ends nothing in YAML; take the {name} away"
    if not is_last:
        what = "a semicolon parts nothing in YAML; a comma does"
    fixed = at.text[: at.column] + ("" if is_last else ",") + at.text[at.column + 1 :]
    mended = at.mended(at.line, fixed)
    return Finding(at.line + 1, what, "", at.column, fixed, mended=mended)


def _opener(text: str) -> int:
    """Where the bracket opens that the text ends with."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        depth += (text[index] in "}]") - (text[index] in "{[")
        if not depth:
            return index
    return 0
