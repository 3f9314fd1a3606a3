"""Why a text is not YAML, in the words of who wrote it, and what to do about it.

The parser says where it gave up; what stands there says what was meant. Where the mend is certain
the text is mended too, line by line, so that the rest of the file is read in the same run.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

_PLAIN_TABS = re.compile(r"[ \t]*")
_AFTER_COLON = re.compile(r"^\s*(?:- +)*[^\s'\"{\[#&*!|>][^:]*:[ \t]+(?=\S)")
_NO_SPACE = re.compile(r"^\s*(?:- +)*[\w.-]+:[^\s:/]")


class Cause(NamedTuple):
    """What is wrong on which line (from 1); `mended` is the whole text with that line mended."""

    line: int
    what: str
    mend: str = ""
    mended: str | None = None


class _Place(NamedTuple):
    """Where the parser gave up, and where what it was reading began; lines and columns from 0."""

    lines: list[str]
    line: int
    column: int
    start_line: int
    start_column: int
    problem: str
    context: str

    @property
    def text(self) -> str:
        return self.lines[self.line] if self.line < len(self.lines) else ""

    @property
    def start_text(self) -> str:
        return self.lines[self.start_line] if self.start_line < len(self.lines) else ""

    @property
    def char(self) -> str:
        return self.text[self.column : self.column + 1]


def explain(error: yaml.YAMLError, text: str) -> Cause:
    """The cause of a syntax error in `text`, whose lines end in `\\n`."""
    place = _place(error, text.split("\n"))
    for rule in _RULES:
        cause = rule(place)
        if cause is not None:
            return cause
    return Cause(place.line + 1, f"this is not YAML: {place.problem}", place.context)


def _place(error: Any, lines: list[str]) -> _Place:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    start: Any = getattr(error, "context_mark", None) or mark
    if mark is None:
        return _Place(lines, 0, 0, 0, 0, str(error), "")
    return _Place(
        lines=lines,
        line=mark.line,
        column=mark.column,
        start_line=start.line,
        start_column=start.column,
        problem=str(getattr(error, "problem", "") or ""),
        context=str(getattr(error, "context", "") or ""),
    )


def _tab(at: _Place) -> Cause | None:
    indent = _PLAIN_TABS.match(at.text)
    if indent is None or "\t" not in indent.group() or at.column > indent.end():
        return None
    return Cause(at.line + 1, "a tab cannot indent in YAML", "indent with spaces")


def _nesting(at: _Place) -> Cause | None:
    if "nesting depth" not in at.problem:
        return None
    return Cause(at.line + 1, "nested too deep to be read")


def _escape(at: _Place) -> Cause | None:
    """A regex between double quotes: `"\\d+"`."""
    quoted = "quoted scalar" in at.context and at.start_text[at.start_column :][:1] == '"'
    if not quoted or not any(word in at.problem for word in ("escape", "hexdecimal")):
        return None
    at_slash = at.column if at.char == "\\" else at.text.rfind("\\", 0, at.column + 1)
    sequence = at.text[at_slash : at_slash + 2]
    mend = "use single quotes for a regex: '\\d+'"
    if sequence in ("\\u", "\\x", "\\U"):
        mend = "write the character itself, or use single quotes for a regex"
    lines = list(at.lines)
    lines[at.line] = f"{at.text[:at_slash]}\\{at.text[at_slash:]}"
    return Cause(
        at.line + 1,
        f"`{sequence}` means nothing between double quotes",
        mend,
        "\n".join(lines),
    )


def _open_quote(at: _Place) -> Cause | None:
    if "quoted scalar" not in at.context:
        return None
    quote = at.start_text[at.start_column :][:1]
    mend = "close it"
    if quote == "'":
        mend = "close it; an apostrophe inside single quotes is written twice: 'it''s'"
    return Cause(at.start_line + 1, f"the {quote} that opens here is never closed", mend)


def _text_after_quote(at: _Place) -> Cause | None:
    """`say: "no" he said`, `say: 'it's'`."""
    before = at.text[: at.column].rstrip()
    expected = "did not find expected" in at.problem or "expected" in at.problem
    if not expected or before[-1:] not in ("'", '"') or at.char in ("", "#"):
        return None
    quote = before[-1]
    mend = "quote the whole value" + (
        "; an apostrophe inside single quotes is written twice: 'it''s'"
        if quote == "'"
        else '; a " inside double quotes is written \\"'
    )
    return Cause(at.line + 1, f"text goes on after the {quote} that closes it", mend)


def _first_character(at: _Place) -> Cause | None:
    """`message: @alice hi`, `say: **bold**`, `say: %x`: the first character is YAML's own."""
    alias = "undefined alias" in at.problem or "alias" in at.context or "anchor" in at.context
    tag = "tag" in at.context or "tag" in at.problem
    if "cannot start any token" in at.problem:
        line, column = at.line, at.column
    elif alias or tag:
        line, column = at.start_line, at.start_column
    elif at.context == "while scanning a directive":
        return Cause(at.start_line + 1, "a line that starts with % must be quoted", "quote it")
    else:
        return None
    text = at.lines[line] if line < len(at.lines) else ""
    char = text[column : column + 1]
    end = _end_of_value(text, column)
    quoted = _single_quoted(text[column:end])
    mended = None
    if not _goes_on(at.lines, line):
        lines = list(at.lines)
        lines[line] = text[:column] + quoted + text[end:]
        mended = "\n".join(lines)
    what = f"a value that starts with {char} must be quoted"
    return Cause(line + 1, what, f"quote it: {quoted}", mended)


def _block_header(at: _Place) -> Cause | None:
    """`say: > hello`, `say: |x`."""
    if "block scalar" not in at.context:
        return None
    char = at.start_text[at.start_column :][:1]
    return Cause(
        at.start_line + 1,
        f"a value that starts with {char} must be quoted",
        f"or let the text begin on the line after `{char}`",
    )


def _colon_in_value(at: _Place) -> Cause | None:
    """`say: note: this`."""
    if "mapping values are not allowed" not in at.problem:
        return None
    head = _AFTER_COLON.match(at.text)
    if head is None or head.end() > at.column:
        return None
    start, end = head.end(), _end_of_value(at.text, head.end(), flow=False)
    quoted = _single_quoted(at.text[start:end])
    mended = None
    if not _goes_on(at.lines, at.line):
        lines = list(at.lines)
        lines[at.line] = at.text[:start] + quoted + at.text[end:]
        mended = "\n".join(lines)
    what = "a value with a colon and a space in it must be quoted"
    return Cause(at.line + 1, what, f"quote it: {quoted}", mended)


def _colon_without_space(at: _Place) -> Cause | None:
    """`model:gpt`, which shows only on the next line."""
    unexpected = ("mapping values are not allowed", "could not find expected ':'")
    if not any(words in at.problem for words in unexpected):
        return None
    for line in dict.fromkeys((at.start_line, at.line, max(at.line - 1, 0))):
        text = at.lines[line] if line < len(at.lines) else ""
        if _NO_SPACE.match(text):
            key, value = text.strip().split(":", 1)
            what = f"`{key}:` needs a space after its colon"
            return Cause(line + 1, what, f"write `{key}: {value}`")
    return None


def _indent(at: _Place) -> Cause | None:
    if "mapping values are not allowed" in at.problem:
        what = "a `key:` stands here where the value before it has not ended"
        return Cause(at.line + 1, what, "indent it like the keys beside it")
    if "could not find expected ':'" in at.problem:
        what = "this line is no `key: value`"
        mend = "indent it if it belongs to the value above, which then starts with | or a quote"
        return Cause(at.start_line + 1, what, mend)
    if "block sequence entries are not allowed" in at.problem:
        what = "a list (`- `) starts on a line of its own"
        return Cause(at.line + 1, what, "quote the value if it is a text that starts with `- `")
    if "expected '-' indicator" in at.problem or "block collection" in at.context:
        what = f"this line stands among the list items from line {at.start_line + 1}"
        return Cause(at.line + 1, what, "start it with `- `, or indent it less or more")
    if "block mapping" in at.context:
        what = f"this line does not fit the keys from line {at.start_line + 1}"
        return Cause(at.line + 1, what, "indent it like the keys beside it")
    return None


def _colon_without_value(at: _Place) -> Cause | None:
    """`{keywords:}`."""
    if "unexpected ':'" not in at.problem:
        return None
    what = "a colon inside {} or [] is followed by a space and a value"
    return Cause(at.line + 1, what, "complete it, or quote the text if it is one")


def _brackets(at: _Place) -> Cause | None:
    if "flow" not in at.context:
        return None
    opener = at.start_text[at.start_column :][:1]
    closer = {"{": "}", "[": "]"}.get(opener)
    at_end = not "".join(at.lines[at.line :]).strip()
    if closer is None and at_end:
        last = max(number for number, text in enumerate(at.lines, 1) if text.strip())
        return Cause(last, "a [ or { is never closed", "close it, or quote the text if it is one")
    if closer is not None and at.line != at.start_line:
        when = "never closed" if at_end else f"not closed before line {at.line + 1}"
        return Cause(
            at.start_line + 1,
            f"the {opener} that opens here is {when}",
            f"close it with {closer}, or quote the text if it is one",
        )
    if closer is not None:
        return Cause(
            at.line + 1,
            f"`{at.char}` inside {opener}{closer} ends a text",
            f"a text with one of , : [ ] {{ }} in it must be quoted inside {opener}{closer}",
        )
    return Cause(at.line + 1, f"a value cannot start with `{at.char}`", "quote it, or complete it")


def _stray(at: _Place) -> Cause | None:
    if "expected node content" not in at.problem:
        return None
    return Cause(at.line + 1, f"a value that starts with {at.char} must be quoted", "quote it")


def _one_document(at: _Place) -> Cause | None:
    if "found another document" not in at.problem:
        return None
    return Cause(at.line + 1, "a second document starts here (`---`)", "a file holds one")


def _same_anchor(at: _Place) -> Cause | None:
    if "duplicate anchor" not in at.context + at.problem:
        return None
    return Cause(at.line + 1, f"the anchor of line {at.start_line + 1} stands twice")


_RULES = (
    _nesting,
    _tab,
    _escape,
    _open_quote,
    _same_anchor,
    _first_character,
    _block_header,
    _colon_in_value,
    _colon_without_space,
    _text_after_quote,
    _one_document,
    _colon_without_value,
    _brackets,
    _stray,
    _indent,
)


def _end_of_value(text: str, column: int, *, flow: bool | None = None) -> int:
    """Where the value that starts at `column` ends: at the line's end, in {} at its next , or }."""
    before = text[:column]
    if flow is None:
        flow = before.count("{") > before.count("}") or before.count("[") > before.count("]")
    pattern = r"\s*[,\]}]|\s+#|\s*$" if flow else r"\s+#|\s*$"
    found = re.compile(pattern).search(text, column + 1)
    return found.start() if found else len(text)


def _goes_on(lines: list[str], line: int) -> bool:
    """Whether the next line with text belongs to the value on this one."""
    indent = len(lines[line]) - len(lines[line].lstrip(" "))
    following = next((text for text in lines[line + 1 :] if text.strip()), "")
    return len(following) - len(following.lstrip(" ")) > indent


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
