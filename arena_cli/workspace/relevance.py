"""Score how much a message concerns a member not called by it (docs/concepts/turn-rules.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from arena_cli.workspace import mentions
from arena_cli.workspace.agents import LoadedProfile
from arena_cli.workspace.mentions import Roster
from arena_cli.workspace.models import AgentProfile, Member
from arena_cli.workspace.visible_text import (
    CharKind,
    classify_before,
    classify_char,
    fold_name,
    fold_text,
    has_only_particles,
    is_hangul,
)


class Haystack:
    """The new messages of a turn, prepared once to be searched for many members.

    It is the visible text without mentions, folded, each run of white space as one space. No match
    spans two texts, or text that was removed.
    """

    def __init__(self, texts: Sequence[str], roster: Roster) -> None:
        visible_text = "\0".join(mentions.blank_mentions(text, roster) for text in texts)
        self._text = _fold_spaces(visible_text)
        self._known: dict[tuple[str, bool], bool] = {}

    def holds(self, word: str, *, also_after_at: bool = True) -> bool:
        """Return True if it has the word: as a word if its script has spaces, else anywhere.

        `also_after_at` False: not directly after an `@`.
        """
        key = fold_name(word), also_after_at
        if key not in self._known:
            self._known[key] = self._finds(*key)
        return self._known[key]

    def _finds(self, needle: str, also_after_at: bool) -> bool:
        text = self._text
        index = text.find(needle) if needle else -1
        while index >= 0:
            end = index + len(needle)
            is_whole = not _continues_word(text, index, is_start=True)
            is_whole = is_whole and not _continues_word(text, end, is_start=False)
            if len(needle) == 1 and is_hangul(needle):  # 값 is in 값이, and not in 값비싼
                is_whole = is_whole and has_only_particles(text, end)
            if is_whole and (also_after_at or text[index - 1 : index] != "@"):
                return True
            index = text.find(needle, index + 1)
        return False


class WordHit(NamedTuple):
    """A word of a member that is found, as written in its profile."""

    word: str
    kind: Literal["keyword", "skill", "name"]

    def is_in(self, haystack: Haystack) -> bool:
        """Return True if it is found there; a name only if no `@` precedes it."""
        return haystack.holds(self.word, also_after_at=self.kind != "name")


def score_relevance(haystack: Haystack, member: Member) -> float:
    """Return the relevance: 1 - 0.6^n for n hits, from 0 to below 1, rounded to 4 places."""
    return score_hits(len(find_hits(haystack, member)))


def score_hits(count: int) -> float:
    """Return the relevance of a number of hits."""
    return round(1 - 0.6**count, 4)


def find_hits(haystack: Haystack, member: Member) -> list[WordHit]:
    """Return the distinct keywords and skills that are found, then one of its names, if any.

    A name that is written as one of these hits is no further hit.
    """
    hits: dict[str, WordHit] = {}
    profile = member.profile
    candidates = [WordHit(word, "keyword") for word in profile.response.keywords]
    candidates += [WordHit(word, "skill") for word in profile.skills]
    for hit in candidates:
        if hit.is_in(haystack):
            hits.setdefault(fold_name(hit.word), hit)
    for name in (member.id, member.name, *profile.aliases):
        folded = fold_name(name)
        hit = WordHit(name, "name")
        if folded not in hits and hit.is_in(haystack):
            hits[folded] = hit
            break
    return list(hits.values())


def _continues_word(text: str, index: int, *, is_start: bool) -> bool:
    """Return True if a word of a script with spaces, or a character, continues over `index`.

    A Korean word ends where its particles or endings begin, so at its end it never continues.
    """
    if not 0 < index < len(text):
        return False
    kind_left = classify_before(text, 0, index)
    kind_right = classify_char(text[index])
    if kind_left in (CharKind.EMOJI, CharKind.UNSPACED):
        return kind_right is CharKind.EXTEND
    if kind_left is kind_right is CharKind.SPACED:
        is_korean = is_hangul(text[index])
        return is_korean is is_hangul(text[index - 1]) and (is_start or not is_korean)
    is_word = kind_left is CharKind.SPACED or text[index - 1] == "_"
    return is_word and (kind_right in (CharKind.SPACED, CharKind.EXTEND) or text[index] == "_")


MatchField = Literal["skill", "keyword", "name", "role_prompt"]

# The surer a place tells what an agent is for, the more a hit in it counts.
_WEIGHTS: dict[MatchField, int] = {"skill": 4, "keyword": 4, "name": 3, "role_prompt": 1}


class KeywordMatch(NamedTuple):
    """A keyword that was found, the kind of field, and its text ("" for the role prompt)."""

    keyword: str
    place: MatchField
    text: str


class AgentMatch(NamedTuple):
    """An agent, and for each keyword that was found its best match."""

    profile: AgentProfile
    matches: list[KeywordMatch]


def find_agents(loaded: Iterable[LoadedProfile], keywords: Sequence[str]) -> list[AgentMatch]:
    """Return the agents in which any keyword is found, anywhere in a text, ignoring width and case.

    First come those with the most keywords found, then those with matches in more reliable fields,
    a whole text before a part of one; otherwise they keep their order.
    """
    ranked: list[tuple[tuple[int, int], AgentMatch]] = []
    by_folded = {folded: word for word in keywords if (folded := _fold_spaces(word))}
    for agent in loaded:
        best = [
            max(places, key=lambda pair: pair[0]) for places in _match_keywords(agent, by_folded)
        ]
        if best:
            rank = -len(best), -sum(score for score, _ in best)
            ranked.append((rank, AgentMatch(agent.profile, [match for _, match in best])))
    ranked.sort(key=lambda pair: pair[0])
    return [result for _, result in ranked]


def _match_keywords(
    agent: LoadedProfile, by_folded: dict[str, str]
) -> Iterator[list[tuple[int, KeywordMatch]]]:
    """Yield for each keyword that is found its matches and scores, a whole text double."""
    texts = [(kind, text, _fold_spaces(text)) for kind, text in _list_fields(agent)]
    for folded, word in by_folded.items():
        matches = [
            (
                _WEIGHTS[kind] * (2 if folded == text else 1),
                KeywordMatch(word, kind, "" if kind == "role_prompt" else written),
            )
            for kind, written, text in texts
            if folded in text
        ]
        if matches:
            yield matches


def _list_fields(agent: LoadedProfile) -> Iterator[tuple[MatchField, str]]:
    profile = agent.profile
    yield from (("skill", text) for text in profile.skills)
    yield from (("keyword", text) for text in profile.response.keywords)
    yield from (("name", text) for text in (profile.agent_id, profile.name, *profile.aliases))
    yield "role_prompt", agent.role_prompt


def _fold_spaces(text: str) -> str:
    return " ".join(fold_text(text).split())
