"""The nearest known word to one that is not known."""

from __future__ import annotations

from collections.abc import Iterable

_LONG = 4


def of(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None where none is near."""
    import difflib  # noqa: PLC0415  # used only on the way to an error

    by_folded = {candidate.casefold(): candidate for candidate in known}
    cutoff = 0.6 if len(word) < _LONG else 0.7  # two letters that changed places, in each
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def hint(word: str, known: Iterable[str]) -> str:
    """What to do about an unknown word: the nearest known one, or the list of all."""
    words = list(known)
    near = of(word, words)
    if near is not None:
        return f"did you mean `{near}`?"
    return f"known: {', '.join(words)}" if words else ""
