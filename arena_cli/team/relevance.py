"""Score how much a message concerns a member that it does not call (docs/turn-rules.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from arena_cli.team import letters, mentions
from arena_cli.team.letters import Kind
from arena_cli.team.mentions import Roster
from arena_cli.team.model import Member


class Haystack:
    """The new messages of a turn, prepared once to be searched for many members.

    It is the visible text without mentions, folded, each run of white space as one space. Nothing
    is found across two texts or across text that was taken out.
    """

    def __init__(self, texts: Sequence[str], roster: Roster) -> None:
        visible_text = "\0".join(mentions.prose(text, roster) for text in texts)
        self._text = _folded(visible_text)
        self._known: dict[tuple[str, bool], bool] = {}

    def holds(self, word: str, *, also_after_at: bool = True) -> bool:
        """Return True if it has the word: as a word if its script has spaces, else anywhere.

        `also_after_at` False: not straight after an `@`.
        """
        key = _folded_word(word), also_after_at
        if key not in self._known:
            self._known[key] = self._finds(*key)
        return self._known[key]

    def _finds(self, needle: str, also_after_at: bool) -> bool:
        text = self._text
        index = text.find(needle) if needle else -1
        while index >= 0:
            end = index + len(needle)
            is_whole = not _goes_on(text, index) and not _goes_on(text, end)
            if is_whole and (also_after_at or text[index - 1 : index] != "@"):
                return True
            index = text.find(needle, index + 1)
        return False


class Hit(NamedTuple):
    """A word of a member that is found, as written in its profile."""

    word: str
    kind: Literal["keyword", "skill", "name"]

    def is_in(self, haystack: Haystack) -> bool:
        """Return True if it is found there; a name only if no `@` precedes it."""
        return haystack.holds(self.word, also_after_at=self.kind != "name")


def score(haystack: Haystack, member: Member) -> float:
    """Return the relevance: 1 - 0.6^n for n hits, from 0 to below 1, rounded to 4 places."""
    return of_hits(len(found(haystack, member)))


def of_hits(count: int) -> float:
    """Return the relevance of a number of hits."""
    return round(1 - 0.6**count, 4)


def hits(haystack: Haystack, member: Member) -> list[str]:
    """Return the words of `found`."""
    return [hit.word for hit in found(haystack, member)]


def found(haystack: Haystack, member: Member) -> list[Hit]:
    """Return the distinct keywords and skills that are found, then one of its names, if any.

    A name that is written as one of these hits is no further hit.
    """
    hits: dict[str, Hit] = {}
    profile = member.profile
    candidates = [Hit(word, "keyword") for word in profile.response.keywords]
    candidates += [Hit(word, "skill") for word in profile.skills]
    for hit in candidates:
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


def _goes_on(text: str, index: int) -> bool:
    """Return True if a word of a script with spaces, or an emoji, continues over `index`."""
    if not 0 < index < len(text):
        return False
    kind_left = letters.kind_before(text, 0, index)
    kind_right = letters.kind(text[index])
    if kind_left is Kind.EMOJI:
        return kind_right is Kind.EXTEND
    is_word = kind_left is Kind.SPACED or text[index - 1] == "_"
    return is_word and (kind_right in (Kind.SPACED, Kind.EXTEND) or text[index] == "_")
