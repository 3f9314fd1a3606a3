"""Compare two claims word by word: the second of three steps, see `notes.statements`. Pure.

It compares words alone, in English and Chinese, so it finds only what is plain: two claims that are
equal word by word but for

- a denial, or an opposite such as `enabled` and `disabled`;
- one amount, date or period;
- one value, where a thing has a single one: after `use`, `in`, `by`, `is`, `用`, `是`, ...;
- or of which one rules out what the other says (`X instead of Y`, `不用 Y`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from arena_cli.notes.model import Note
from arena_cli.notes.statements import Claim, Word, read_claim

_SAME_TOPIC = 0.6
_MOST_ALIKE = 200  # notes that share a word; one that more have in common tells nothing
_MOST_EXTRAS = 2

_Segment = tuple[Sequence[Word], Sequence[Word]]


class Contrast(NamedTuple):
    """A contradiction of two claims: its type, and the value that each of them states."""

    type: Literal["negation", "number", "option"]
    first: str = ""
    second: str = ""


class Contradiction(NamedTuple):
    """Two notes that contradict each other."""

    earlier: Note
    later: Note
    difference: Contrast


def find_contradictions(notes: Iterable[Note]) -> Iterator[Contradiction]:
    """Yield the pairs of notes that contradict each other, by the time of the later one."""
    ordered = sorted(notes, key=lambda note: (note.created, note.id))
    claims = [read_claim(note.title) for note in ordered]
    for earlier, later in pair_by_topic(claims):
        difference = find_difference(claims[earlier], claims[later])
        if difference is not None:
            yield Contradiction(ordered[earlier], ordered[later], difference)


def find_difference(first: Claim, second: Claim, *, within: bool = False) -> Contrast | None:
    """Return how two claims contradict each other; None if they do not.

    With `within`, the second may have further words before and after those of the first.
    """
    ruled_out = _rule_out(first, second) or _rule_out(second, first)
    if ruled_out is not None:
        return ruled_out
    segments = _find_segments(first.words, second.words, within)
    if _count_topics(first.words) <= sum(_count_topics(ours) for ours, _ in segments):
        return None
    if first.denies != second.denies:
        return Contrast("negation") if _are_extras(segments, within) else None
    if len(segments) != 1 or not all(segments[0]):
        return None
    contrast = _compare_segment(*segments[0])
    # Two choices that are denied may both be so.
    return None if contrast and contrast.type == "option" and first.denies else contrast


def _find_segments(ours: Sequence[Word], theirs: Sequence[Word], within: bool) -> list[_Segment]:
    """Return the words that differ, in order, as those of the first and of the second."""
    stems, others = ([word.stem for word in side] for side in (ours, theirs))
    opcodes = SequenceMatcher(None, stems, others, autojunk=False).get_opcodes()
    segments = []
    for tag, start, end, start_2, end_2 in opcodes:
        is_outside = within and tag == "insert" and start in (0, len(ours))
        if tag != "equal" and not is_outside:
            segments.append((ours[start:end], theirs[start_2:end_2]))
    return segments


def _are_extras(segments: Sequence[_Segment], within: bool) -> bool:
    """Return True if one side, the second if `within`, has only a few words more."""
    ours, theirs = ([word for segment in segments for word in segment[side]] for side in (0, 1))
    count = sum(1 if word.shown.isascii() else len(word.shown) for word in (*ours, *theirs))
    return count <= _MOST_EXTRAS and not (ours and (within or theirs))


def _compare_segment(ours: Sequence[Word], theirs: Sequence[Word]) -> Contrast | None:
    """Return the contrast of the words in which two claims differ; None if both may hold."""
    shown = (show(ours), show(theirs))
    number, other = (
        next((word for word in side if word.is_number), None) for side in (ours, theirs)
    )
    if number and other:
        is_comparable = can_compare(number, other) and not (_has_term(ours) and _has_term(theirs))
        return Contrast("number", *shown) if is_comparable else None
    is_choice = _are_choices(ours, theirs) or _are_periods([*ours, *theirs])
    return Contrast("option", *shown) if is_choice else None


def _are_choices(ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return True if the words name two things after the same sort of cue."""
    cues = {ours[0].cue, theirs[0].cue}
    follow_same = len(cues) == 1 or cues == {"in", "to"}
    return follow_same and _is_value(ours) and _is_value(theirs)


def _are_periods(words: Sequence[Word]) -> bool:
    return all(word.is_period and word.sort == words[0].sort for word in words)


def _has_term(words: Sequence[Word]) -> bool:
    return any(word.sort in ("", "relation") for word in words)


def _is_value(words: Sequence[Word]) -> bool:
    """Return True if the words name one thing after a cue, and no state such as `hashed`."""
    first, *others = words
    is_state = not others and first.shown.endswith(("ed", "ing"))
    # A cue within the words begins another part: the claims differ in more than one.
    return first.follows_cue and not is_state and not any(word.follows_cue for word in others)


def can_compare(first: Word, second: Word) -> bool:
    """Return True if two values are of one sort: no amounts in two units."""
    return first.sort == second.sort and (
        first.unit == second.unit or "" in (first.unit, second.unit)
    )


def show(words: Sequence[Word]) -> str:
    """Return words as they were written."""
    separator = "" if any(word.shown >= "\u2e80" for word in words) else " "
    return separator.join(word.shown for word in words)


def _rule_out(first: Claim, second: Claim) -> Contrast | None:
    """Return the contrast if the second rules out what the first says of the same subject."""
    stems = set(first.stems)
    if not second.rejected or not second.rejected <= stems or first.denies:
        return None
    topic, other_topic = stems - second.rejected, set(second.stems)
    if topic and len(topic & other_topic) < _SAME_TOPIC * min(len(topic), len(other_topic)):
        return None
    options = [word for word in second.words if word.stem not in stems]
    rejected = [word for word in first.words if word.stem in second.rejected]
    return Contrast("option", show(rejected), show(options))


def pair_by_topic(claims: Sequence[Claim]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the pairs that share half of the words that one of them has.

    A word and its translation count as shared.
    """
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        near: defaultdict[int, int] = defaultdict(int)
        for stem in {*claim.stems, *claim.rejected, *claim.concepts}:
            if len(holding[stem]) < _MOST_ALIKE:
                for other in holding[stem]:
                    near[other] += 1
            holding[stem].append(index)
        for other in sorted(near):
            if near[other] * 2 >= min(
                _count_topics(claim.words), _count_topics(claims[other].words)
            ):
                yield other, index


def _count_topics(words: Sequence[Word]) -> int:
    """Return how many words are not amounts, units, days or months."""
    return sum(not (word.is_number or word.is_period) for word in words)
