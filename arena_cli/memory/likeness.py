"""Whether two titles say the same thing, in any script.

Sooner two notes of one thing than one note of two: a number, a negation or another word makes a
difference, and so does their order, however alike the rest is.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from arena_cli.team import letters

NEAR = 92.0  # of 100, by rapidfuzz
_NEAR_WORD = 70.0  # `use` and `uses`, `colour` and `color`; not `login` and `logout`

# Where no spaces stand between words, each character is one; a sign such as `<` or `€` tells things
# apart, as do the `++` and `#` of a language's name. Other punctuation does not.
_WORD = (
    rf"[{letters.UNSPACED}]|(?<!\w)-(?=\d)|"
    rf"[^\W_{letters.UNSPACED}]+(?:\+\+|#(?!\w))?|[<>=≤≥≠±$€£¥%+]"
)
_IDLE = frozenset({"a", "an", "the", "的", "了", "吧", "呢", "啊", "呀"})


def same(one: str, other: str) -> bool:
    """Whether two titles are the same but for case, punctuation and small slips."""
    ours, theirs = words(one), words(other)
    if ours == theirs:
        return True
    if not ours or not theirs:
        return False
    return _near(ours, theirs)


@lru_cache(maxsize=16_384)
def words(title: str) -> tuple[str, ...]:
    """What of a title counts, in its order; of one that has no words the signs themselves."""
    folded = letters.fold(title)
    found = _word().findall(folded)
    return tuple(word for word in found if word not in _IDLE) or tuple(found or folded.split())


@cache
def _word() -> re.Pattern[str]:
    # Such a class takes some milliseconds to compile: not before it is needed.
    return re.compile(_WORD)


def _near(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    left, right = _without(ours, theirs), _without(theirs, ours)
    if len(left) != len(right) or any(char.isdigit() for word in left + right for char in word):
        return False
    if [word for word in ours if word not in left] != [
        word for word in theirs if word not in right
    ]:
        return False  # what they share, in another order, says another thing
    from rapidfuzz import fuzz  # noqa: PLC0415 - few titles come this far

    if fuzz.ratio(" ".join(ours), " ".join(theirs)) < NEAR:
        return False
    return all(fuzz.ratio(a, b) >= _NEAR_WORD for a, b in zip(left, right, strict=True))


def _without(words: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    """The words that the others do not have, each as often as it is missing there."""
    there = list(others)
    missing = []
    for word in words:
        if word in there:
            there.remove(word)
        else:
            missing.append(word)
    return missing
