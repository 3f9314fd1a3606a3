"""Edit one line of a YAML file: find a value in it, quote it, write its key as YAML does.

Columns count from 0. Nothing here reads YAML; a line is looked at as text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

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


class LineError(NamedTuple):
    """An error in a line, its column, and the line as it should be ("" if unknown)."""

    problem: str
    column: int
    fixed: str


@lru_cache(maxsize=1)
def _split(text: str) -> list[str]:
    return text.split("\n")


def get_line(text: str, number: int) -> str:
    """Return a line of a text, counted from 0; "" if there is none."""
    lines = _split(text)
    return lines[number] if number < len(lines) else ""


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


def find_bad_key(line: str) -> LineError | None:
    """Return the error of `key:value`, `key：value`, `key = value` or `key value`."""
    for pattern, problem in (*WIDE_KEYS, *BAD_KEYS):
        match = re.search(pattern, line)
        if match is not None:
            names = {**match.groupdict(), "at": ODD_SPACES.get(match["at"], "")}
            return LineError(problem.format(**names), match.start("at"), write_key(match))
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
