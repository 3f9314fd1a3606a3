"""Find the members that a text names with `@` (docs/turn-rules.md, "Mentions").

`Roster` knows the names of one team; `parse` reads a text, `resolve` a list of names. All of it is
a function of its arguments, in time linear in the length of the text, however many names there are.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from arena_cli.team import letters
from arena_cli.team.letters import Kind
from arena_cli.team.roster import (
    Everybody,
    Opener,
    Roster,
    Somebody,
    Target,
    folded_name,
    roster_conflicts,
    roster_of,
)
from arena_cli.team.visible import Hidden, Span, blanked, hidden_spans, kind_of, visible

__all__ = [
    "Mentions",
    "Roster",
    "Spot",
    "hidden_spans",
    "parse",
    "prose",
    "resolve",
    "roster_conflicts",
    "roster_of",
    "spots",
    "visible",
]

_ATS = ("@", "＠")
_AT = re.compile("[@＠]")
_LONGEST_UNRESOLVED = 32
# Not a space: a name with a space in it must not be found across what was taken out.
_TAKEN_OUT = "\0"


class Mentions(NamedTuple):
    """The agents and humans that a text names.

    `ids` are in order of first mention; `unresolved` are unknown names, as written, without the
    `@`; `by_all_only` those of `ids` that are named by an `@all` alone.
    """

    ids: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    by_all_only: frozenset[str] = frozenset()


class Spot(NamedTuple):
    """An `@` of a text and the name after it, as written; `target` None: the name is unknown.

    `hidden` is the reason why it does not count: the kind of hidden text, or `word`, straight after
    a letter or digit. `target` is then the one it would have named.
    """

    written: str
    target: Target | None
    hidden: Hidden | Literal["word"] | None = None


class _Occurrence(NamedTuple):
    """An `@` with a name after it, from `start` to `end`; `target` None: the name is unknown."""

    start: int
    end: int
    target: Target | None


def parse(text: str, roster: Roster, *, author: str, opener: str) -> Mentions:
    """Return the members that the visible text names.

    `author` is the id of its author, who is never named by it; `opener` the id of the human who
    opened the chain, whom `@user` names.
    """
    if not any(sign in text for sign in _ATS):
        return Mentions()
    composed = letters.compose(text)
    visible_text = blanked(composed, hidden_spans(composed), _TAKEN_OUT)
    occurrences = _find_occurrences(visible_text, composed, roster)
    names = (
        (occurrence.target, visible_text[occurrence.start + 1 : occurrence.end])
        for occurrence in occurrences
    )
    return _collected(names, roster, author=author, opener=opener)


def resolve(names: Iterable[str], roster: Roster, *, author: str, opener: str) -> Mentions:
    """Return the members of a list of ids, names, aliases or reserved names, with or without `@`.

    A name must be known as a whole; an unknown one is kept in `unresolved`, cut at 32 characters.
    """
    plain = [name.strip() for name in names]
    if not plain:
        return Mentions()
    plain = [name[1:].strip() if _AT.match(name) else name for name in plain]
    targets = ((roster.whole(name), name[:_LONGEST_UNRESOLVED]) for name in plain if name)
    return _collected(targets, roster, author=author, opener=opener)


def prose(text: str, roster: Roster) -> str:
    """Return the visible text in NFC with a NUL for each character of a mention or hidden text.

    Unknown names are no mentions, and stay.
    """
    composed = letters.compose(text)
    visible_text = blanked(composed, hidden_spans(composed), _TAKEN_OUT)
    spans = [
        (occurrence.start, occurrence.end)
        for occurrence in _find_occurrences(visible_text, composed, roster)
        if occurrence.target
    ]
    return blanked(visible_text, spans, _TAKEN_OUT)


def spots(text: str, roster: Roster) -> list[Spot]:
    """Return every `@` with a name after it, in order; those that count are what `parse` reads."""
    composed = letters.compose(text)
    hidden = hidden_spans(composed)
    visible_text = blanked(composed, hidden, _TAKEN_OUT)
    counted = {
        occurrence.start: occurrence
        for occurrence in _find_occurrences(visible_text, composed, roster)
    }
    result: list[Spot] = []
    done = 0
    for start in _places_of_ats(composed):
        occurrence, reason = counted.get(start), None
        if occurrence is None and start >= done:
            occurrence, reason = _uncounted(composed, start, hidden, roster)
        if occurrence is not None:
            result.append(Spot(composed[start + 1 : occurrence.end], occurrence.target, reason))
            done = occurrence.end
    return result


def _uncounted(
    composed: str, start: int, hidden: Sequence[Span], roster: Roster
) -> tuple[_Occurrence | None, Hidden | Literal["word"] | None]:
    """Return the name after an `@` that does not count, and the reason."""
    end, target = roster.longest(composed, start + 1)
    if target is None:
        end = _end_of_unknown_name(composed, start + 1)
    if end == start + 1:
        return None, None
    index = bisect.bisect_right(hidden, start + 1, key=lambda span: span[0]) - 1
    if index >= 0 and hidden[index][1] > start:
        return _Occurrence(start, end, target), kind_of(composed, hidden[index])
    return _Occurrence(start, end, target), "word"


def _find_occurrences(visible_text: str, composed: str, roster: Roster) -> Iterator[_Occurrence]:
    """Yield every `@` that counts and has a name after it.

    `visible_text` is `composed` without hidden text.
    """
    done = 0
    for start in _places_of_ats(visible_text):
        preceding = composed[start - 1 : start]
        if start < done or (preceding.isascii() and preceding.isalnum()):
            continue
        end, target = roster.longest(visible_text, start + 1)
        if target is None:
            end = _end_of_unknown_name(visible_text, start + 1)
        if end > start + 1:
            yield _Occurrence(start, end, target)
        done = end


def _places_of_ats(text: str) -> Iterator[int]:
    ascii_at, wide_at = _ATS
    if wide_at in text:
        yield from (match.start() for match in _AT.finditer(text))
        return
    index = text.find(ascii_at)  # far faster than a pattern, and nearly every text has only these
    while index >= 0:
        yield index
        index = text.find(ascii_at, index + 1)


def _end_of_unknown_name(text: str, start: int) -> int:
    end = start
    is_name = False
    while end < min(len(text), start + _LONGEST_UNRESOLVED):
        if letters.is_letter_or_digit(text[end]):
            is_name = True
        elif text[end] not in "-_" and letters.kind(text[end]) is not Kind.EXTEND:
            break
        end += 1
    return end if is_name else start


def _collected(
    names: Iterable[tuple[Target | None, str]], roster: Roster, *, author: str, opener: str
) -> Mentions:
    ids: dict[str, None] = {}
    by_name: set[str] = set()
    unresolved: dict[str, str] = {}
    for target, name in names:
        match target:
            case Everybody():
                ids.update(dict.fromkeys(roster.member_ids))
            case Somebody() | Opener():
                called = target.id if isinstance(target, Somebody) else opener
                ids[called] = None
                by_name.add(called)
            case None:
                unresolved.setdefault(folded_name(name), name)
    ids.pop(author, None)
    return Mentions(
        ids=tuple(ids),
        unresolved=tuple(unresolved.values()),
        by_all_only=frozenset(ids) - by_name,
    )
