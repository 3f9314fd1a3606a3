"""How much a note has to do with a question: pure rules over words, vectors and kinds."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from arena_cli.memory.note import Kind

KIND_WEIGHTS: dict[Kind, float] = {
    "blocker": 3,
    "next_action": 2,
    "progress": 0.8,
    "reference": 0.5,
}
"""What a note's relevance is multiplied by; those that are not named count 1."""

MOST_SHOWN = 6

MOST_WORDS = 48
"""So many words of a long question are looked for, the rarest of them."""

ENOUGH_WORDS = 8
"""A note with so many of a question's rarest words has all that can be asked of it."""

MANY_NOTES = 100
ENOUGH_NOTES = 500
MOST_CANDIDATES = 120
MOST_NEAR = 500
LEAST_RELEVANCE = 0.05
"""One rare word of a long question is a hit, one that many notes hold is none."""

# Okapi BM25 with its usual constants; a word in a title counts as three in the text.
_K1, _B = 1.2, 0.75
_TITLE = 3


class Term(NamedTuple):
    """A word of the question as it was written, its weight, and the notes that hold it."""

    word: str
    weight: float
    notes: Set[int]


def weight(total: int, holding: int) -> float:
    """What a word that so many of all notes hold tells (BM25's idf as Lucene has it, above 0)."""
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def chosen(terms: Mapping[str, Term], total: int) -> dict[str, Term]:
    """The rarest of the terms that any note holds, by stem; of equals the first ones.

    Of many notes, a word that a third of them hold tells nothing, unless there is no other.
    """
    held = {stem: term for stem, term in terms.items() if term.notes}
    most = total / 3 if total >= MANY_NOTES else total
    telling = {stem: term for stem, term in held.items() if len(term.notes) <= most} or held
    rarest = sorted(telling, key=lambda stem: -telling[stem].weight)[:MOST_WORDS]
    return {stem: telling[stem] for stem in rarest}


def candidates(terms: Mapping[str, Term]) -> list[int]:
    """The notes that hold most of the terms, which come rarest first; at most `MOST_CANDIDATES`.

    Once enough notes hold a rare one, those that hold only commoner ones are passed over.
    """
    sums: dict[int, float] = {}
    for term in terms.values():
        if len(sums) < ENOUGH_NOTES:
            for note in term.notes:
                sums[note] = sums.get(note, 0.0) + term.weight
        else:
            for note in sums.keys() & term.notes:
                sums[note] += term.weight
    return heapq.nsmallest(MOST_CANDIDATES, sums, key=lambda note: (-sums[note], note))


def nearest(near: Mapping[int, float]) -> list[int]:
    """The notes that are near at all, at most `MOST_NEAR`."""
    some = (note for note, how in near.items() if how > 0)
    return heapq.nsmallest(MOST_NEAR, some, key=lambda note: (-near[note], note))


def by_words(
    terms: Mapping[str, Term], title: Sequence[str], body: Sequence[str], average: float
) -> tuple[float, list[str]]:
    """From 0 to 1, how far a note of these stems has the terms, and which of them."""
    counts, titled = Counter(body), Counter(title)
    length = 1 - _B + _B * (len(body) + len(title)) / max(average, 1)
    total, found = 0.0, []
    for stem, term in terms.items():
        often = counts[stem] + _TITLE * titled[stem]
        if often:
            total += term.weight * often / (often + _K1 * length)
            found.append(term.word)
    best = sorted((term.weight for term in terms.values()), reverse=True)[:ENOUGH_WORDS]
    return min(total / sum(best), 1.0), found


def together(by_words: float, by_meaning: float | None) -> float:
    """One relevance of both, from 0 to 1; `by_meaning` None: there is no vector to compare.

    The shares are the best of those tried on tests/data/questions.yaml, where equal ones do nearly
    as well.
    """
    return by_words if by_meaning is None else 0.4 * by_words + 0.6 * by_meaning


class Ranked(NamedTuple):
    """A note that has to do with the question, and what decides between equals."""

    relevance: float
    note: int
    kind: Kind
    importance: float
    updated: str
    id: str
    file: str

    @property
    def score(self) -> float:
        """Its relevance times its kind's weight."""
        return self.relevance * KIND_WEIGHTS.get(self.kind, 1)


def ranked(found: Iterable[Ranked]) -> list[Ranked]:
    """The best first; of equals the more important, then the newest, then by id and file."""
    by_name = sorted(found, key=lambda one: (one.id, one.file))
    newest_first = sorted(by_name, key=lambda one: one.updated, reverse=True)
    return sorted(newest_first, key=lambda one: (-round(one.score, 4), -one.importance))
