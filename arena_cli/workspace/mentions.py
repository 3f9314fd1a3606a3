"""Find the members that a text names with `@` (docs/concepts/turn-rules.md, "Mentions").

`Roster` knows the names of one team; `parse_mentions` reads a text, `resolve_mentions` a list of
names. All of it is a function of its arguments, in time linear in the length of the text,
regardless of the number of names.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from arena_cli.util.text import lazy_pattern, splits_flag
from arena_cli.workspace.models import Human, Member, Team
from arena_cli.workspace.visible_text import (
    CharKind,
    HiddenKind,
    TextSpan,
    blank_spans,
    classify_before,
    classify_char,
    classify_hidden,
    compose_text,
    find_hidden_spans,
    fold_name,
    fold_text,
    has_only_particles,
    is_hangul,
    is_letter_or_digit,
    joins_previous,
)


@dataclass(frozen=True)
class Somebody:
    """An agent or a human."""

    id: str


@dataclass(frozen=True)
class Everybody:
    """Every agent, in team order."""


@dataclass(frozen=True)
class Opener:
    """The human who opened the chain; `ends_before_han`: a Han letter after it makes it a word."""

    ends_before_han: bool


Target = Somebody | Everybody | Opener
"""Whom a name stands for."""

_RESERVED: dict[str, Target] = {
    "all": Everybody(),
    "everyone": Everybody(),
    "所有人": Everybody(),
    "全体成员": Everybody(),
    "user": Opener(ends_before_han=False),
    "用户": Opener(ends_before_han=True),
    "你": Opener(ends_before_han=True),
}


@dataclass
class _NameNode:
    """A node in the tree of folded names; `target` is the owner of the name that ends here."""

    then: dict[str, _NameNode] = field(default_factory=dict)
    target: Target | None = None


class Roster:
    """The names of a team: of its members (id, name, aliases), its humans, and the reserved ones.

    Teams with the same names share them. A name that two share (`find_name_conflicts`) belongs to
    the reserved one, else to the first.
    """

    def __init__(self, members: Sequence[Member], humans: Sequence[Human] = ()) -> None:
        self.member_ids = tuple(member.id for member in members)
        # Ids stand in files and in `next_mentions`; no other member's name may hide one.
        ids = (*self.member_ids, *(human.id for human in humans))
        self._root = _build_tree(ids, tuple(_list_names(members, humans)))

    def whole(self, name: str) -> Target | None:
        """Return the owner of a whole name."""
        node: _NameNode | None = self._root
        for char in fold_name(name):
            node = node.then.get(char) if node else None
        return node.target if node else None

    def longest(self, text: str, start: int) -> tuple[int, Target | None]:
        """Return the end and owner of the longest known name at `start` of a composed text.

        The text is folded piece by piece, each with what may melt into it, so that ends are found
        in the text as it is and no name ends within a character.
        """
        best: tuple[int, Target | None] = (start, None)
        node = self._root
        index = start
        while index < len(text) and node.then:
            end = index + 1
            while end < len(text) and joins_previous(text[end]):
                end += 1
            for char in fold_text(text[index:end]):
                if char not in node.then:
                    return best
                node = node.then[char]
            index = end
            if node.target and _is_name_end(text, start, index, node.target):
                best = index, node.target
        return best


@lru_cache(maxsize=64)
def _build_tree(ids: Sequence[str], names: Sequence[tuple[str, str]]) -> _NameNode:
    """Return the tree of reserved names, ids, and (id, name)s: the first of equal names wins."""
    root = _NameNode()
    whose = ((name, Somebody(owner)) for owner, name in names)
    for name, target in (
        *_RESERVED.items(),
        *((agent_id, Somebody(agent_id)) for agent_id in ids),
        *whose,
    ):
        node = root
        for char in fold_name(name):
            node = node.then.setdefault(char, _NameNode())
        if node is not root and node.target is None:
            node.target = target
    return root


@lru_cache(maxsize=64)
def build_roster(team: Team) -> Roster:
    """Return the names of a team, built once."""
    return Roster(team.members, team.humans)


class NameClash(NamedTuple):
    """A name of `owner` that is reserved, or that `first_owner` has too."""

    owner: str
    name: str
    first_owner: str = ""
    first_name: str = ""
    reserved: str = ""

    def __str__(self) -> str:
        if self.reserved:
            return f'"{self.name}", a name of {self.owner}, is reserved'
        return f'"{self.name}" is a name of both {self.first_owner} and {self.owner}'


def find_name_conflicts(
    members: Sequence[Member], humans: Sequence[Human] = ()
) -> tuple[list[NameClash], list[str]]:
    """Return the errors in the names of a team, and warnings, each a sentence.

    Errors: a name that two share, a reserved name. Warnings: a name that another one begins with, a
    name of one character. A human whose id is `user` may have the opener's names.
    """
    names = tuple(_list_names(members, humans))
    errors, warnings = _find_conflicts(names, any(human.id == "user" for human in humans))
    return list(errors), list(warnings)


@lru_cache(maxsize=64)
def _find_conflicts(
    names: Sequence[tuple[str, str]], is_default_human: bool
) -> tuple[Sequence[NameClash], Sequence[str]]:
    errors: dict[NameClash, None] = {}
    warnings: dict[str, None] = {}
    owners: dict[str, tuple[str, str]] = {}
    for owner, name in names:
        folded = fold_name(name)
        reserved = _RESERVED.get(folded)
        if reserved:
            if not (owner == "user" and is_default_human and isinstance(reserved, Opener)):
                is_all = isinstance(reserved, Everybody)
                whom = "every agent" if is_all else "the human who began"
                errors[NameClash(owner, name, reserved=f"`@{name}` calls {whom}")] = None
            continue
        first_owner, first_name = owners.setdefault(folded, (owner, name))
        if first_owner != owner:
            errors[NameClash(owner, name, first_owner, first_name)] = None
        elif len(folded) == 1:
            warnings[f'"{name}", a name of {owner}, is one character long'] = None
    warnings.update(dict.fromkeys(_find_beginnings(owners)))
    return tuple(errors), tuple(warnings)


def _find_beginnings(owners: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for folded, (owner, name) in owners.items():
        for length in range(1, len(folded)):
            first_owner, beginning = owners.get(folded[:length], (owner, ""))
            if first_owner != owner:
                yield (
                    f'"{beginning}", a name of {first_owner}, is the beginning of "{name}",'
                    f" a name of {owner}"
                )


def _list_names(members: Sequence[Member], humans: Sequence[Human]) -> Iterator[tuple[str, str]]:
    """Yield (id, one of its names), empty names left out."""
    for member in members:
        for name in (member.id, member.name, *member.profile.aliases):
            if name.strip():
                yield member.id, name
    for human in humans:
        for name in (human.id, human.name):
            if name.strip():
                yield human.id, name


def _is_name_end(text: str, start: int, end: int, target: Target) -> bool:
    """Return True if the name in `text[start:end]` ends there, and is no beginning of another."""
    next_char = text[end : end + 1]
    if not next_char:
        return True
    following = classify_char(next_char)
    if following is CharKind.EXTEND or splits_flag(text, end, start):
        return False
    if isinstance(target, Opener) and target.ends_before_han and following is CharKind.HAN:
        return False
    if classify_before(text, start, end) in (CharKind.HAN, CharKind.UNSPACED, CharKind.EMOJI):
        return True
    if next_char in "-_":
        return not (end + 1 < len(text) and is_letter_or_digit(text[end + 1]))
    is_part = not is_hangul(next_char) or is_hangul(text[end - 1])
    is_particle = is_hangul(next_char) and has_only_particles(text, end)
    return following is not CharKind.SPACED or not is_part or is_particle


_ATS = ("@", "＠")
_AT = lazy_pattern("[@＠]")
_LONGEST_UNRESOLVED = 32
# `@[Full Name]` and `@"Full Name"`: a name between brackets or quotes, for names with spaces.
_INNER = r"((?=[^\W_]|[^\x00-\x7f])[^\[\]［］\"“”\0\r\n@＠]{1,64})(?<!\s)"
_BRACKETED = rf"\[{_INNER}\]|［{_INNER}］|\"{_INNER}\"|“{_INNER}”"
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


class MentionSpot(NamedTuple):
    """An `@` of a text and the name after it, as written; `target` None: the name is unknown.

    `hidden` is the reason why it does not count: the kind of hidden text, or `word`, directly after
    a letter or digit. `target` is then the one it would have named.
    """

    written: str
    target: Target | None
    hidden: HiddenKind | Literal["word"] | None = None


class _Occurrence(NamedTuple):
    """An `@` with a name after it, from `start` to `end`; `target` None: the name is unknown."""

    start: int
    end: int
    name: str
    target: Target | None


def parse_mentions(text: str, roster: Roster, *, author: str, opener: str) -> Mentions:
    """Return the members that the visible text names.

    `author` is the id of its author, who is never named by it; `opener` the id of the human who
    opened the chain, whom `@user` names.
    """
    if not any(sign in text for sign in _ATS):
        return Mentions()
    composed = compose_text(text)
    visible_text = blank_spans(composed, find_hidden_spans(composed), _TAKEN_OUT)
    occurrences = _find_occurrences(visible_text, composed, roster)
    names = ((occurrence.target, occurrence.name) for occurrence in occurrences)
    return _collect_mentions(names, roster, author=author, opener=opener)


def resolve_mentions(names: Iterable[str], roster: Roster, *, author: str, opener: str) -> Mentions:
    """Return the members of a list of ids, names, aliases or reserved names, with or without `@`.

    A name must be known as a whole; an unknown one is kept in `unresolved`, cut at 32 characters.
    """
    plain = [name.strip() for name in names]
    if not plain:
        return Mentions()
    plain = [name[1:].strip() if _AT.match(name) else name for name in plain]
    plain = [
        match[match.lastindex or 0] if (match := re.fullmatch(_BRACKETED, name)) else name
        for name in plain
    ]
    targets = ((roster.whole(name), name) for name in plain if name)
    return _collect_mentions(targets, roster, author=author, opener=opener)


def blank_mentions(text: str, roster: Roster) -> str:
    """Return the visible text in NFC with a NUL for each character of a mention or hidden text.

    Unknown names are no mentions, and are kept.
    """
    composed = compose_text(text)
    visible_text = blank_spans(composed, find_hidden_spans(composed), _TAKEN_OUT)
    spans = [
        (occurrence.start, occurrence.end)
        for occurrence in _find_occurrences(visible_text, composed, roster)
        if occurrence.target
    ]
    return blank_spans(visible_text, spans, _TAKEN_OUT)


def find_mention_spots(text: str, roster: Roster) -> list[MentionSpot]:
    """Return every `@` with a name after it, in order; `parse_mentions` reads those that count."""
    composed = compose_text(text)
    hidden = find_hidden_spans(composed)
    visible_text = blank_spans(composed, hidden, _TAKEN_OUT)
    counted = {
        occurrence.start: occurrence
        for occurrence in _find_occurrences(visible_text, composed, roster)
    }
    result: list[MentionSpot] = []
    done = 0
    for start in _find_ats(composed):
        occurrence, reason = counted.get(start), None
        if occurrence is None and start >= done:
            occurrence, reason = _explain_uncounted(composed, start, hidden, roster)
        if occurrence is not None:
            result.append(
                MentionSpot(composed[start + 1 : occurrence.end], occurrence.target, reason)
            )
            done = occurrence.end
    return result


def _explain_uncounted(
    composed: str, start: int, hidden: Sequence[TextSpan], roster: Roster
) -> tuple[_Occurrence | None, HiddenKind | Literal["word"] | None]:
    """Return the name after an `@` that does not count, and the reason."""
    occurrence = _read_name(composed, start, roster)
    if occurrence is None:
        return None, None
    index = bisect.bisect_right(hidden, start + 1, key=lambda span: span[0]) - 1
    if index >= 0 and hidden[index][1] > start:
        return occurrence, classify_hidden(composed, hidden[index])
    return occurrence, "word"


def _find_occurrences(visible_text: str, composed: str, roster: Roster) -> Iterator[_Occurrence]:
    """Yield every `@` that counts and has a name after it.

    `visible_text` is `composed` without hidden text.
    """
    done = 0
    for start in _find_ats(visible_text):
        preceding = composed[start - 1 : start]
        if start < done or (preceding.isascii() and preceding.isalnum()):
            continue
        occurrence = _read_name(visible_text, start, roster)
        if occurrence is not None:
            yield occurrence
            done = occurrence.end


def _read_name(text: str, start: int, roster: Roster) -> _Occurrence | None:
    """Return the name after the `@` at `start` of a composed text, None if there is none."""
    bracketed = re.compile(_BRACKETED).match(text, start + 1)
    if bracketed:
        name = bracketed[bracketed.lastindex or 0]
        return _Occurrence(start, bracketed.end(), name, roster.whole(name))
    end, target = roster.longest(text, start + 1)
    if target is None:
        end = _find_unknown_name_end(text, start + 1)
    return _Occurrence(start, end, text[start + 1 : end], target) if end > start + 1 else None


def _find_ats(text: str) -> Iterator[int]:
    ascii_at, wide_at = _ATS
    if wide_at in text:
        yield from (match.start() for match in _AT.finditer(text))
        return
    index = text.find(ascii_at)  # far faster than a pattern, and nearly every text has only these
    while index >= 0:
        yield index
        index = text.find(ascii_at, index + 1)


def _find_unknown_name_end(text: str, start: int) -> int:
    end = start
    is_name = False
    while end < min(len(text), start + _LONGEST_UNRESOLVED):
        if is_letter_or_digit(text[end]):
            is_name = True
        elif text[end] not in "-_" and classify_char(text[end]) is not CharKind.EXTEND:
            break
        end += 1
    return end if is_name else start


def _collect_mentions(
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
                unresolved.setdefault(fold_name(name), name[:_LONGEST_UNRESOLVED])
    ids.pop(author, None)
    return Mentions(
        ids=tuple(ids),
        unresolved=tuple(unresolved.values()),
        by_all_only=frozenset(ids) - by_name,
    )
