"""Regular expressions and texts in the one form in which they are compared."""

from __future__ import annotations

import re
import unicodedata
import warnings
from functools import lru_cache

from arena_cli.ground.userpattern import UserPattern

# An escape, or a character outside ASCII: what NFKC makes of it must not become an operator.
_PIECE = re.compile(r"\\.|[^\x00-\x7f]", re.DOTALL)


# What is no condition: escapes and sets of characters, which may have such marks in them.
_CHARACTERS = re.compile(r"\\[^AbBZz]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_BOUND = re.compile(r"[\^$]|\\[AbBZz]")

_WORDS = (
    "Answer the question briefly.",
    "请帮我拆解这个需求。",
    "On 2026-01-31 at 12:00, 3 of 7 (43 %)!",
)


def matches_empty(pattern: str) -> bool:
    """Return whether a pattern finds something in the empty text."""
    return compiled(pattern).search("") is not None


def holds_of_every_text(pattern: str) -> bool:
    """Return whether a pattern surely finds something in every text: nothing, at its beginning."""
    conditions = _CHARACTERS.sub("", pattern)
    is_bound = _LOOK_AROUND.search(conditions) or _BOUND.search(conditions)
    return not is_bound and matches_empty(pattern)


def looks_around(pattern: str) -> bool:
    """Return whether a pattern has conditions on what stands around it, as `(?!...)`."""
    return _LOOK_AROUND.search(_CHARACTERS.sub("", pattern)) is not None


def count_swallowed(pattern: str) -> tuple[int, int]:
    """Return of how many ordinary sentences a pattern leaves nothing, and how many there are."""
    found = compiled(pattern)
    return sum(not found.sub(lambda _: "", words).strip() for words in _WORDS), len(_WORDS)


def form(text: str, ignore_case: bool = False) -> str:
    """The one form in which texts are compared: NFKC, case-folded where case does not count."""
    folded = unicodedata.normalize("NFKC", text)
    return unicodedata.normalize("NFKC", folded.casefold()) if ignore_case else folded


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, ignore_case: bool = False) -> UserPattern:
    """The pattern in NFKC, where a full-width `（` stays a character. Raises `re.error`."""

    def literal(piece: re.Match[str]) -> str:
        written = piece[0]
        if written.isascii():
            return written
        plain = form(written.removeprefix("\\"))
        return "".join(re.escape(c) if c.isascii() else c for c in plain)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[[` may mean something in a later Python
        flags = re.IGNORECASE if ignore_case else 0
        return UserPattern(form(_PIECE.sub(literal, pattern)), flags)
