"""Whom a text names with `@` (docs/turn-rules.md, "Mentions").

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
    """Whom a text names.

    `ids` are agents and humans in order of first mention; `unresolved` names that nobody has, as
    written, without the `@`; `by_all_only` those of `ids` that are named by an `@all` alone.
    """

    ids: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    by_all_only: frozenset[str] = frozenset()


class Spot(NamedTuple):
    """An `@` of a text and the name after it, as written; `target` None: nobody has it.

    `hidden` says why it does not count: what it stands in, or `word`, straight after a letter or
    digit. `target` is then whom it would have named.
    """

    written: str
    target: Target | None
    hidden: Hidden | Literal["word"] | None = None


class _Found(NamedTuple):
    """An `@` with a name after it, from `start` to `end`; `target` None: nobody has it."""

    start: int
    end: int
    target: Target | None


def parse(text: str, roster: Roster, *, author: str, opener: str) -> Mentions:
    """Whom the visible text names.

    `author` is the id of who wrote it, whom it never names; `opener` the id of the human who
    opened the chain, whom `@user` stands for.
    """
    if not any(at in text for at in _ATS):
        return Mentions()
    composed = letters.compose(text)
    shown = blanked(composed, hidden_spans(composed), _TAKEN_OUT)
    found = _found(shown, composed, roster)
    names = ((one.target, shown[one.start + 1 : one.end]) for one in found)
    return _collected(names, roster, author=author, opener=opener)


def resolve(names: Iterable[str], roster: Roster, *, author: str, opener: str) -> Mentions:
    """Whom a list of names names: each an id, name, alias or reserved name, with or without `@`.

    A name must be known as a whole; one that is not is kept in `unresolved`, cut at 32 characters.
    """
    plain = [name.strip() for name in names]
    if not plain:
        return Mentions()
    plain = [name[1:].strip() if _AT.match(name) else name for name in plain]
    targets = ((roster.whole(name), name[:_LONGEST_UNRESOLVED]) for name in plain if name)
    return _collected(targets, roster, author=author, opener=opener)


def prose(text: str, roster: Roster) -> str:
    """The visible text in NFC with a NUL for each character of a mention or of hidden text.

    Names that nobody has are no mentions, and stay.
    """
    composed = letters.compose(text)
    shown = blanked(composed, hidden_spans(composed), _TAKEN_OUT)
    spans = [(one.start, one.end) for one in _found(shown, composed, roster) if one.target]
    return blanked(shown, spans, _TAKEN_OUT)


def spots(text: str, roster: Roster) -> list[Spot]:
    """Every `@` with a name after it, in order; those that count are what `parse` reads."""
    composed = letters.compose(text)
    hidden = hidden_spans(composed)
    shown = blanked(composed, hidden, _TAKEN_OUT)
    counted = {one.start: one for one in _found(shown, composed, roster)}
    told: list[Spot] = []
    done = 0
    for start in _places_of_ats(composed):
        one, why = counted.get(start), None
        if one is None and start >= done:
            one, why = _uncounted(composed, start, hidden, roster)
        if one is not None:
            told.append(Spot(composed[start + 1 : one.end], one.target, why))
            done = one.end
    return told


def _uncounted(
    composed: str, start: int, hidden: Sequence[Span], roster: Roster
) -> tuple[_Found | None, Hidden | Literal["word"] | None]:
    """The name after an `@` that does not count, and why it does not."""
    end, target = roster.longest(composed, start + 1)
    if target is None:
        end = _end_of_unknown_name(composed, start + 1)
    if end == start + 1:
        return None, None
    at = bisect.bisect_right(hidden, start + 1, key=lambda span: span[0]) - 1
    if at >= 0 and hidden[at][1] > start:
        return _Found(start, end, target), kind_of(composed, hidden[at])
    return _Found(start, end, target), "word"


def _found(shown: str, composed: str, roster: Roster) -> Iterator[_Found]:
    """Every `@` that counts and has a name after it; `shown` is `composed` without hidden text."""
    done = 0
    for start in _places_of_ats(shown):
        before = composed[start - 1 : start]
        if start < done or (before.isascii() and before.isalnum()):
            continue
        end, target = roster.longest(shown, start + 1)
        if target is None:
            end = _end_of_unknown_name(shown, start + 1)
        if end > start + 1:
            yield _Found(start, end, target)
        done = end


def _places_of_ats(text: str) -> Iterator[int]:
    ascii_at, wide_at = _ATS
    if wide_at in text:
        yield from (match.start() for match in _AT.finditer(text))
        return
    at = text.find(ascii_at)  # far faster than a pattern, and nearly every text has only these
    while at >= 0:
        yield at
        at = text.find(ascii_at, at + 1)


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
