"""Checks on one text: small pure functions that say whether it holds, and why.

Text, wanted texts and patterns are compared in NFKC, so that full-width and decomposed forms of
one character are one.
"""

from __future__ import annotations

import json
import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from arena_cli.ground import text as texts

EXCERPT = 160  # characters of a text that a verdict shows

# An escape, or a character outside ASCII: what NFKC makes of it must not become an operator.
_PIECE = re.compile(r"\\.|[^\x00-\x7f]", re.DOTALL)


class Verdict(NamedTuple):
    """Whether an expectation holds, what it asks, and what was there, in words."""

    holds: bool
    expected: str
    actual: str


def contains(text: str, wanted: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """Every wanted text is in it."""
    seen = _form(text, ignore_case)
    missing = [part for part in wanted if _form(part, ignore_case) not in seen]
    expected = f"contains {_listed(wanted)}{_case(ignore_case)}"
    if missing:
        return Verdict(False, expected, f"no {_listed(missing, 'or')} in {excerpt(text)}")
    return Verdict(True, expected, _around(text, seen, _form(wanted[0], ignore_case)))


def not_contains(text: str, unwanted: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """None of the unwanted texts is in it."""
    seen = _form(text, ignore_case)
    expected = f"does not contain {_listed(unwanted, 'or')}{_case(ignore_case)}"
    for part in unwanted:
        if _form(part, ignore_case) in seen:
            found = _around(text, seen, _form(part, ignore_case))
            return Verdict(False, expected, f"{quoted(part)} in {found}")
    return Verdict(True, expected, excerpt(text))


def regex(text: str, pattern: str, *, ignore_case: bool = False) -> Verdict:
    """The pattern is found somewhere in it (Python's `re.search`)."""
    expected = f"matches /{pattern}/{_case(ignore_case)}"
    found = compiled(pattern, ignore_case=ignore_case).search(_form(text))
    if found is None:
        return Verdict(False, expected, f"no match in {excerpt(text)}")
    return Verdict(True, expected, f"matched {excerpt(found.group())}")


def compiled(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """The pattern in NFKC, where a full-width `（` stays a character. Raises `re.error`."""

    def literal(piece: re.Match[str]) -> str:
        written = piece[0]
        if written.isascii():
            return written
        character = written.removeprefix("\\")
        form = _form(character)
        return "".join(re.escape(c) if c.isascii() else c for c in form)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[[` may mean something in a later Python
        flags = re.IGNORECASE if ignore_case else 0
        return re.compile(_form(_PIECE.sub(literal, pattern)), flags)


def excerpt(text: str) -> str:
    """The beginning of a text, in quotes."""
    beginning = texts.cut(text, EXCERPT)
    return quoted(beginning if len(beginning) == len(text) else beginning + "…")


def quoted(text: str) -> str:
    """A text in double quotes, line ends written as `\\n`."""
    return json.dumps(text, ensure_ascii=False)


def _form(text: str, ignore_case: bool = False) -> str:
    form = unicodedata.normalize("NFKC", text)
    return unicodedata.normalize("NFKC", form.casefold()) if ignore_case else form


def _around(text: str, seen: str, part: str) -> str:
    """The text in quotes; of a long one what is `seen` around its first `part`."""
    start = max(seen.index(part) - EXCERPT // 4, 0)
    if len(text) <= EXCERPT or start == 0:
        return excerpt(text)
    return f'"…{excerpt(seen[start:])[1:]}'


def _listed(wanted: Sequence[str], joined: str = "and") -> str:
    return f" {joined} ".join(quoted(part) for part in wanted)


def _case(ignore_case: bool) -> str:
    return " (upper and lower case alike)" if ignore_case else ""
