"""Regular expressions and texts in the one form in which they are compared."""

from __future__ import annotations

import re
import unicodedata
import warnings
from functools import lru_cache

from arena_cli.ground.userpattern import UserPattern

# An escape, or a character outside ASCII: what NFKC makes of it must not become an operator.
_PIECE = re.compile(r"\\.|[^\x00-\x7f]", re.DOTALL)


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
