"""One line of a YAML file as its writer meant it: quoted, spaced, with YAML's own marks.

Columns count from 0. Nothing here reads YAML; a line is looked at as text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_CLOSES = {"{": "}", "[": "]", "｛": "｝", "［": "］"}
_LEAD = r"^(?P<lead>\s*(?:-\s+)*)"
_NAME = r"(?P<name>[\"']?[A-Za-z_][\w.-]*[\"']?)"
_NO_SPACE = re.compile(rf"{_LEAD}{_NAME}:(?P<rest>(?:[^\s:/]|[\u3000\xa0]).*)$")
_SPACES = "\u3000\xa0"  # what looks like a space and is none to YAML
_ODD_DASH = re.compile(rf"^(?P<lead> *(?:-[ ]+)*-)[ ]*[{_SPACES}][ {_SPACES}]*(?=\S)")
_ODD_COLON = re.compile(
    rf"(?P<key>(?:^ *(?:-[ ]+)*|[{{,][ ]*){_NAME}:)[{_SPACES}][ {_SPACES}]*(?=\S)"
)
_ODD_COMMA = re.compile(rf"(?P<mark>[{{,])[ ]*[{_SPACES}][ {_SPACES}]*(?={_NAME}:(?:[ ]|$))")
_WIDE_COLON = re.compile(rf"{_LEAD}{_NAME}\s*：[ 　]*(?P<rest>.*)$")
_EQUALS = re.compile(rf"{_LEAD}{_NAME}\s*=\s+(?P<rest>.*)$")
_NO_COLON = re.compile(rf"{_LEAD}{_NAME}(?:[ \t]+(?P<rest>\S.*))?$")
_NO_COLON_IN_FLOW = re.compile(rf"{_LEAD}{_NAME}[ \t]+(?P<rest>[{{\[].*[}}\]])\s*$")
_HAS_COLON = re.compile(r":(?:[ \t]|$)")
_CURLY = re.compile(
    r"(?P<before>(?:[:\[{,]|-)[ ]+|[\[{])[“‘](?P<text>[^“”‘’]*)[”’](?=\s*(?:[,\]}]|#|$))"
)
_VALUE = re.compile(rf"{_LEAD}(?:(?:\"[^\"]*\"|'[^']*'|[^\s'\"{{\[#&*!|>@`%][^:]*):[ \t]+)?(?=\S)")
# Each begins where white space does: a long run of it is looked at once.
_STOPS = {
    True: re.compile(r"(?<!\s)(?:\s*[,\]}]|\s+#|\s*$)"),
    False: re.compile(r"(?<!\s)(?:\s+#|\s*$)"),
}


class Slip(NamedTuple):
    """What is wrong with a line, where in it, and the line as it should be ("" if unknown)."""

    what: str
    column: int
    fixed: str


@lru_cache(maxsize=1)
def _split(text: str) -> list[str]:
    return text.split("\n")


def at(text: str, line: int) -> str:
    """A line of a text, counted from 0; "" where there is none."""
    lines = _split(text)
    return lines[line] if line < len(lines) else ""


def quoted(text: str) -> str:
    """The text as a YAML value between quotes, the ones that need no escape."""
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"


def with_value(line: str, start: int, end: int) -> str:
    """The line with what stands from `start` to `end` between quotes, in place of “ ” if any."""
    value = line[start:end]
    if is_curly(value):
        value = value[1:-1]
    return line[:start] + quoted(value) + line[end:]


def is_curly(text: str) -> bool:
    """Whether a text stands between “ ” or ‘ ’, and has no others in it."""
    if len(text) < 2 or text[0] + text[-1] not in ("“”", "‘’"):
        return False
    return not any(mark in text[1:-1] for mark in "“”‘’")


def value_start(line: str) -> int:
    """Where the value after the line's `- ` and `key: ` begins."""
    found = _VALUE.match(line)
    return found.end() if found else len(line) - len(line.lstrip())


def value_end(line: str, column: int, *, flow: bool | None = None) -> int:
    """Where the value that starts at `column` ends: at the line's end, in {} at its next , or }."""
    found = _STOPS[in_flow(line, column) if flow is None else flow].search(line, column + 1)
    return found.start() if found else len(line)


def in_flow(line: str, column: int) -> bool:
    """Whether a { or [ of this line is open at `column`."""
    before = line[:column]
    return before.count("{") > before.count("}") or before.count("[") > before.count("]")


def flow_value(line: str, column: int) -> tuple[int, int]:
    """Start and end of the text inside {} or [] that holds `column`, with brackets of its own."""
    start = column
    while start > 0 and line[start - 1] not in "{[," and line[start - 2 : start] != ": ":
        start -= 1
    open_brackets: list[str] = []
    end = column
    while end < len(line):
        char = line[end]
        if not open_brackets and char in ",}]":
            break
        if char in "{[":
            open_brackets.append(_CLOSES[char])
        elif open_brackets and char == open_brackets[-1]:
            open_brackets.pop()
        end += 1
    start += len(line[start:end]) - len(line[start:end].lstrip())
    return start, start + len(line[start:end].rstrip())


def odd_space(line: str) -> Slip | None:
    """A space that is none to YAML behind the `-` of an item, the `:` of a key, a `{` or `,`."""
    fixed = _ODD_DASH.sub(r"\g<lead> ", line)
    fixed = _ODD_COLON.sub(r"\g<key> ", fixed)
    fixed = _ODD_COMMA.sub(lambda m: "{" if m["mark"] == "{" else ", ", fixed)
    if fixed == line:
        return None
    column = next(
        at for at, pair in enumerate(zip(line, fixed, strict=False)) if pair[0] != pair[1]
    )
    what = f"{odd_name(line[column])} is no space to YAML; write a common one"
    return Slip(what, column, fixed)


def odd_name(char: str) -> str:
    """A space of another kind, by its name."""
    name = "a full-width space" if char == "\u3000" else "a no-break space"
    return f"{name} (U+{ord(char):04X})"


def bad_key(line: str) -> Slip | None:
    """`key:value`, `key：value`, `key = value`: a key whose colon is not YAML's."""
    odd = odd_space(line) if any(char in line for char in _SPACES) else None
    if odd:
        return odd
    found = _WIDE_COLON.match(line)
    if found:
        what = f"the colon after `{found['name']}` is full-width (：); YAML's is `:` and a space"
        return Slip(what, line.index("：", found.end("name")), _with_colon(found))
    found = _NO_SPACE.match(line)
    if found:
        what = f"`{found['name']}:` needs a space after its colon"
        return Slip(what, found.end("name"), _with_colon(found))
    found = _EQUALS.match(line)
    if found:
        what = f"`{found['name']}` needs a colon, not `=`"
        return Slip(what, line.index("=", found.end("name")), _with_colon(found))
    return None


def is_key(text: str) -> bool:
    """Whether a text begins with a key and its colon."""
    return re.match(rf"{_NAME}:(?:\s|$)", text) is not None


def flow_without_colon(line: str) -> Slip | None:
    """`expect {turns: 1}`."""
    found = _NO_COLON_IN_FLOW.match(line)
    if found is None:
        return None
    what = f"`{found['name']}` needs a colon and a space after it"
    return Slip(what, found.end("name"), _with_colon(found))


def last_open(line: str) -> int | None:
    """Where the last { or [ of a line stands that nothing closes in it."""
    waiting: list[int] = []
    for column, char in enumerate(line):
        if char in "{[":
            waiting.append(column)
        elif char in "}]" and waiting:
            waiting.pop()
    return waiting[-1] if waiting else None


def no_colon(line: str) -> Slip | None:
    """`team dev`, `steps`: a key without a colon; long prose is no key."""
    if _HAS_COLON.search(line):
        return None
    found = _NO_COLON.match(line)
    what = "this line has no colon, so it is no `key: value`"
    if found is None or (_is_prose(found["rest"] or "")):
        return Slip(what, len(line) - len(line.lstrip(" ")), "")
    return Slip(what, found.end("name"), _with_colon(found))


def _is_prose(rest: str) -> bool:
    return rest[:1] not in ("{", "[", '"', "'", "@") and len(rest.split()) > 2


def _with_colon(found: re.Match[str]) -> str:
    rest = (found["rest"] or "").strip()
    value = f" {without_wide(rest)}" if rest else ""
    return f"{found['lead']}{found['name']}:{value}"


def without_wide(line: str) -> str:
    """The line with YAML's marks where full-width ones stand in their place."""
    line = re.sub(r"(?<=[:\-\[{,] )([｛［])", lambda m: "{" if m[1] == "｛" else "[", line)
    line = re.sub(r"^([｛［])", lambda m: "{" if m[1] == "｛" else "[", line)
    line = re.sub(r"([}\]｝］])(?=[\s,，}\]｝］]*$)|(?<=\w)([｝］])", _ascii_bracket, line)
    line = re.sub(r"([{,，]\s*[A-Za-z_][\w.-]*)：[ 　]*", r"\1: ", line)
    line = re.sub(r"，[ 　]*(?=[A-Za-z_][\w.-]*:)", ", ", line)
    return _CURLY.sub(lambda m: m["before"] + quoted(m["text"]), line)


def _ascii_bracket(found: re.Match[str]) -> str:
    return {"｝": "}", "］": "]"}.get(found[0], found[0])


def wide(line: str) -> Slip | None:
    """Full-width marks where YAML's own are meant: `｛turns: 1，end: quiet｝`."""
    fixed = without_wide(line)
    if fixed == line:
        return None
    column = next(
        at for at, pair in enumerate(zip(line, fixed + " ", strict=False)) if pair[0] != pair[1]
    )
    if line[column] in "“‘":
        return Slip('the quotes of YAML are ", not “ ” or ‘ ’', column, fixed)
    return Slip(f"`{line[column]}` is full-width, which YAML reads as text", column, fixed)


def wide_indent(text: str) -> str:
    """The whole text with full-width spaces at the beginning of lines as two common ones."""

    def spaces(found: re.Match[str]) -> str:
        return found[0].replace("\u3000", "  ").replace("\xa0", " ")

    return re.sub(r"^[ \u3000\xa0]+", spaces, text, flags=re.MULTILINE)


def tab_indent(text: str) -> str:
    """The whole text with each tab at the beginning of lines as two spaces."""
    return re.sub(r"^[ \t]+", lambda m: m[0].replace("\t", "  "), text, flags=re.MULTILINE)
