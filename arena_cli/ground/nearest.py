"""Find the known word that is nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

_LONG = 4


def of(word: str, candidates: Iterable[str]) -> str | None:
    """Return the known word that `word` was most likely meant to be, None if none is near."""
    import difflib  # noqa: PLC0415  # used only on the way to an error

    by_folded = {known_word.casefold(): known_word for known_word in candidates}
    cutoff = 0.6 if len(word) < _LONG else 0.7  # two letters that changed places, in each
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def hint(word: str, candidates: Iterable[str]) -> str:
    """Return what to do about an unknown word: the nearest known one, or the list of all."""
    words = list(candidates)
    near = of(word, words)
    if near is not None:
        return f"did you mean `{near}`?"
    return f"known: {', '.join(words)}" if words else ""
