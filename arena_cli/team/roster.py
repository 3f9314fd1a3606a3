"""Know the names of one team, and find the end of a name in a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from arena_cli.team import letters
from arena_cli.team.letters import Kind
from arena_cli.team.model import Human, Member, Team


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
class _Node:
    """A node in the tree of folded names; `target` is the owner of the name that ends here."""

    then: dict[str, _Node] = field(default_factory=dict)
    target: Target | None = None


class Roster:
    """The names of a team: of its members (id, name, aliases), its humans, and the reserved ones.

    Teams with the same names share them. A name of two (`roster_conflicts`) belongs to the reserved
    one, else to the first.
    """

    def __init__(self, members: Sequence[Member], humans: Sequence[Human] = ()) -> None:
        self.member_ids = tuple(member.id for member in members)
        # Ids stand in files and in `next_mentions`; no other member's name may hide one.
        ids = (*self.member_ids, *(human.id for human in humans))
        self._root = _tree(ids, tuple(_names(members, humans)))

    def whole(self, name: str) -> Target | None:
        """Return the owner of a whole name."""
        node: _Node | None = self._root
        for char in folded_name(name):
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
            while end < len(text) and letters.joins(text[end]):
                end += 1
            for char in letters.fold(text[index:end]):
                if char not in node.then:
                    return best
                node = node.then[char]
            index = end
            if node.target and _ends(text, start, index, node.target):
                best = index, node.target
        return best


@lru_cache(maxsize=64)
def _tree(ids: Sequence[str], names: Sequence[tuple[str, str]]) -> _Node:
    """Return the tree of reserved names, ids, and (id, name)s: the first of equal names wins."""
    root = _Node()
    whose = ((name, Somebody(owner)) for owner, name in names)
    for name, target in (
        *_RESERVED.items(),
        *((agent_id, Somebody(agent_id)) for agent_id in ids),
        *whose,
    ):
        node = root
        for char in folded_name(name):
            node = node.then.setdefault(char, _Node())
        if node is not root and node.target is None:
            node.target = target
    return root


@lru_cache(maxsize=64)
def roster_of(team: Team) -> Roster:
    """Return the names of a team, built once."""
    return Roster(team.members, team.humans)


class Clash(NamedTuple):
    """A name of two, or a reserved one, with the reason in `reserved`.

    `owner` is the id of its owner; of two, the later one, and `first_owner` and `first_name` are
    the first one's.
    """

    owner: str
    name: str
    first_owner: str = ""
    first_name: str = ""
    reserved: str = ""

    def __str__(self) -> str:
        if self.reserved:
            return f'"{self.name}", a name of {self.owner}, is reserved'
        return f'"{self.name}" is a name of both {self.first_owner} and {self.owner}'


def roster_conflicts(
    members: Sequence[Member], humans: Sequence[Human] = ()
) -> tuple[list[Clash], list[str]]:
    """Return the errors in the names of a team, and warnings, each a sentence.

    Errors: a name of two, a reserved name. Warnings: a name that another's begins with, a name of
    one character. A human whose id is `user` may be called what the opener is called.
    """
    names = tuple(_names(members, humans))
    errors, warnings = _conflicts(names, any(human.id == "user" for human in humans))
    return list(errors), list(warnings)


@lru_cache(maxsize=64)
def _conflicts(
    names: Sequence[tuple[str, str]], is_default_human: bool
) -> tuple[Sequence[Clash], Sequence[str]]:
    errors: dict[Clash, None] = {}
    warnings: dict[str, None] = {}
    owners: dict[str, tuple[str, str]] = {}
    for owner, name in names:
        folded = folded_name(name)
        reserved = _RESERVED.get(folded)
        if reserved:
            if not (owner == "user" and is_default_human and isinstance(reserved, Opener)):
                is_all = isinstance(reserved, Everybody)
                whom = "every agent" if is_all else "the human who began"
                errors[Clash(owner, name, reserved=f"`@{name}` calls {whom}")] = None
            continue
        first_owner, first_name = owners.setdefault(folded, (owner, name))
        if first_owner != owner:
            errors[Clash(owner, name, first_owner, first_name)] = None
        elif len(folded) == 1:
            warnings[f'"{name}", a name of {owner}, is one character long'] = None
    warnings.update(dict.fromkeys(_beginnings(owners)))
    return tuple(errors), tuple(warnings)


def _beginnings(owners: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for folded, (owner, name) in owners.items():
        for length in range(1, len(folded)):
            first_owner, beginning = owners.get(folded[:length], (owner, ""))
            if first_owner != owner:
                yield (
                    f'"{beginning}", a name of {first_owner}, is the beginning of "{name}",'
                    f" a name of {owner}"
                )


def _names(members: Sequence[Member], humans: Sequence[Human]) -> Iterator[tuple[str, str]]:
    """Yield (id, one of its names), empty names left out."""
    for member in members:
        for name in (member.id, member.name, *member.profile.aliases):
            if name.strip():
                yield member.id, name
    for human in humans:
        for name in (human.id, human.name):
            if name.strip():
                yield human.id, name


def folded_name(name: str) -> str:
    """Return the form in which two names are the same; white space in it is one space."""
    return " ".join(letters.fold(name).split())


def _ends(text: str, start: int, end: int, target: Target) -> bool:
    """Return True if the name in `text[start:end]` ends there, and is no beginning of another."""
    next_char = text[end : end + 1]
    if not next_char:
        return True
    following = letters.kind(next_char)
    if following is Kind.EXTEND or _parts_a_flag(text, start, end):
        return False
    if isinstance(target, Opener) and target.ends_before_han and following is Kind.HAN:
        return False
    if letters.kind_before(text, start, end) in (Kind.HAN, Kind.UNSPACED, Kind.EMOJI):
        return True
    if next_char in "-_":
        return not (end + 1 < len(text) and letters.is_letter_or_digit(text[end + 1]))
    return following is not Kind.SPACED


def _parts_a_flag(text: str, start: int, end: int) -> bool:
    """Return True if `end` is within a flag, which is two regional indicators."""
    if not _is_regional_indicator(text[end]):
        return False
    index = end
    while index > start and _is_regional_indicator(text[index - 1]):
        index -= 1
    return (end - index) % 2 == 1


def _is_regional_indicator(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
