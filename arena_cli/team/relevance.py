"""How much a message concerns a member that it does not call (docs/turn-rules.md, "May reply")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from arena_cli.team import letters, mentions
from arena_cli.team.letters import Kind
from arena_cli.team.mentions import Roster
from arena_cli.team.model import Member


class Haystack:
    """The new messages of a turn, made ready once to be searched for many members.

    Searched is the visible text, mentions taken out, folded, every run of white space one space.
    Nothing is found across two texts or across what was taken out.
    """

    def __init__(self, texts: Sequence[str], roster: Roster) -> None:
        shown = "\0".join(mentions.prose(text, roster) for text in texts)
        self._text = _folded(shown)
        self._known: dict[tuple[str, bool], bool] = {}

    def holds(self, word: str, *, also_after_at: bool = True) -> bool:
        """Whether it stands there: as words where its script has spaces, else anywhere.

        `also_after_at` False: not where an `@` stands straight before it.
        """
        key = _folded_word(word), also_after_at
        if key not in self._known:
            self._known[key] = self._finds(*key)
        return self._known[key]

    def _finds(self, needle: str, also_after_at: bool) -> bool:
        text = self._text
        place = text.find(needle) if needle else -1
        while place >= 0:
            end = place + len(needle)
            is_whole = not _goes_on(text, place) and not _goes_on(text, end)
            if is_whole and (also_after_at or text[place - 1 : place] != "@"):
                return True
            place = text.find(needle, place + 1)
        return False


class Hit(NamedTuple):
    """A word of a member that is found, as written in its profile."""

    word: str
    kind: Literal["keyword", "skill", "name"]

    def is_in(self, haystack: Haystack) -> bool:
        """Whether it is found there; a name only where no `@` stands before it."""
        return haystack.holds(self.word, also_after_at=self.kind != "name")


def score(haystack: Haystack, member: Member) -> float:
    """The relevance: 1 - 0.6^n for n hits, from 0 to below 1, rounded to 4 places."""
    return of_hits(len(found(haystack, member)))


def of_hits(count: int) -> float:
    """The relevance that so many hits make."""
    return round(1 - 0.6**count, 4)


def hits(haystack: Haystack, member: Member) -> list[str]:
    """The words of `found`."""
    return [hit.word for hit in found(haystack, member)]


def found(haystack: Haystack, member: Member) -> list[Hit]:
    """The distinct keywords and skills that are found, then one of its names, if any.

    A name that is written as one of these hits is no further hit.
    """
    hits: dict[str, Hit] = {}
    profile = member.profile
    told = [Hit(word, "keyword") for word in profile.response.keywords]
    told += [Hit(word, "skill") for word in profile.skills]
    for hit in told:
        if hit.is_in(haystack):
            hits.setdefault(_folded_word(hit.word), hit)
    for name in (member.id, member.name, *profile.aliases):
        folded = _folded_word(name)
        hit = Hit(name, "name")
        if folded not in hits and hit.is_in(haystack):
            hits[folded] = hit
            break
    return list(hits.values())


def _folded(text: str) -> str:
    return " ".join(letters.fold(text).split())


_folded_word = lru_cache(maxsize=4096)(_folded)


def _goes_on(text: str, place: int) -> bool:
    """Whether a word of a script with spaces, or an emoji, goes on over `place`."""
    if not 0 < place < len(text):
        return False
    before = letters.kind_before(text, 0, place)
    after = letters.kind(text[place])
    if before is Kind.EMOJI:
        return after is Kind.EXTEND
    is_word = before is Kind.SPACED or text[place - 1] == "_"
    return is_word and (after in (Kind.SPACED, Kind.EXTEND) or text[place] == "_")
