"""The line of a file that a fault is about, as it stands below the fault: no secret, no control."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

from arena_cli.ground import text as texts
from arena_cli.ground.redact import Redactor

HIDDEN = "[hidden]"
LIMIT = 76  # columns of a line that is shown; the terminal's 80 without the indent

_BEFORE = 40  # columns before the place, in a line that is cut
_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])(?:api|access|auth|client|private|secret)?"
    r"(?:key|token|secret|pass|password|passwd|pwd|pat|dsn|authorization|auth|cookie|credentials?|headers)$",
    re.IGNORECASE,
)
_KEY = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)[\"']?\s*[:：]\s*[\"']?(?P<value>\S)?")
# What names a secret and is none: `${env:NAME}`, and `inherit` for a variable of a program.
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|, not [^,;:]+")
_KEPT = re.compile(r"\$\{env:|inherit[\"']?\s*(?:[,}#]|$)")


def is_secret(name: str) -> bool:
    """Whether what stands under a key of that name may be a secret."""
    return _SECRET_NAME.search(name) is not None


def below_secrets(lines: Iterable[str]) -> frozenset[int]:
    """The indexes of the lines that belong to the value of a secret key above them."""
    found = set()
    column: int | None = None  # of the secret key
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        if column is not None and _indent(line) > column:
            found.add(index)
        else:
            column = _column_of_key(line) if _secret_from(line) is not None else None
    return frozenset(found)


@lru_cache(maxsize=8)
def masked(line: str) -> str:
    """A line of a file without the values of its secret keys."""
    start = _secret_from(line)
    if start is not None:
        line = line[:start] + HIDDEN
    return _redactor().text(line)


def masked_text(text: str) -> str:
    """The text of a file without the values of its secret keys, line by line."""
    lines = text.split("\n")
    hidden = below_secrets(lines)
    return "\n".join(
        HIDDEN if index in hidden else masked(line) for index, line in enumerate(lines)
    )


def without(words: str, line: str, kept: str) -> str:
    """`words` without what they quote of `line` that its masked form does not show."""
    if line == kept:
        return words

    def hide(found: re.Match[str]) -> str:
        return f"`{HIDDEN}`" if found[1] in line and found[1] not in kept else found[0]

    return re.sub(r"`([^`]+)`", hide, words)


def without_quotes(words: str) -> str:
    """`words` without anything that may be quoted in them, by quotes or behind a colon."""
    return _QUOTED.sub(f"`{HIDDEN}`", words).partition(": ")[0]


def rendered(line: str, column: int | None) -> list[str]:
    """The line without its indent, cut to `LIMIT` columns, and a `^` below the place, if known."""
    start = _indent(line)
    line = line.rstrip()
    if column is not None and column < start:
        start = column  # the indent itself is wrong
    if column is None or column > len(line):
        shown, cut = _fitting(texts.shown_line(line[start:]), LIMIT)
        return [shown + ("…" if cut else "")]
    near = slice(max(start, column - 4 * LIMIT), column), slice(column, column + 4 * LIMIT)
    before, after = (texts.shown_line(line[part]) for part in near)
    if width(before + after) > LIMIT and width(before) > _BEFORE:
        before = "…" + _fitting(before[::-1], _BEFORE)[0][::-1]
    after, cut = _fitting(after, LIMIT - width(before))
    return [before + after + ("…" if cut else ""), " " * width(before) + "^"]


def width(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return sum(_columns(text))


def _columns(text: str) -> Iterator[int]:
    """The columns of each character; one that joins another, or is joined by it, takes none."""
    before = ""
    for char in text:
        joined = before == "\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff"
        if joined or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            yield 0
        else:
            yield 2 if unicodedata.east_asian_width(char) in "WF" else 1
        before = char


def _fitting(text: str, limit: int) -> tuple[str, bool]:
    """As much of a text as fits, and whether that is not all of it."""
    used = 0
    for index, columns in enumerate(_columns(text)):
        used += columns
        if used > limit:
            return text[:index], True
    return text, False


@cache
def _redactor() -> Redactor:
    return Redactor()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _column_of_key(line: str) -> int:
    return len(line) - len(line.lstrip(" \t-"))


def _secret_from(line: str) -> int | None:
    """Where the first value of a secret key begins, None where there is none."""
    for found in _KEY.finditer(line):
        if not is_secret(found["name"]):
            continue
        if not found["value"]:
            return len(line)
        if not _KEPT.match(line, found.start("value")):
            return found.end("value") - 1
    return None
