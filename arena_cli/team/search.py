"""Find agents by what they can do: their skills, keywords and names, last their role prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from arena_cli.team import letters
from arena_cli.team.model import AgentProfile
from arena_cli.team.profiles import Loaded

MatchField = Literal["skill", "keyword", "name", "role_prompt"]

# The surer a place tells what an agent is for, the more a hit in it counts.
_WEIGHTS: dict[MatchField, int] = {"skill": 4, "keyword": 4, "name": 3, "role_prompt": 1}


class Match(NamedTuple):
    """A keyword that was found, the kind of field, and its text ("" for the role prompt)."""

    keyword: str
    field: MatchField
    text: str


class Found(NamedTuple):
    """An agent, and for each keyword that was found its best match."""

    profile: AgentProfile
    matches: list[Match]


def find(loaded: Iterable[Loaded], keywords: Sequence[str]) -> list[Found]:
    """Return the agents in which any keyword is found, anywhere in a text, ignoring width and case.

    First come those in which most of the keywords are found, then those where they are found in
    surer fields, a whole text before a part of one; else they stay in their order.
    """
    ranked: list[tuple[tuple[int, int], Found]] = []
    by_folded = {folded: word for word in keywords if (folded := _fold_spaces(word))}
    for agent in loaded:
        best = [max(places, key=lambda pair: pair[0]) for places in _matches(agent, by_folded)]
        if best:
            rank = -len(best), -sum(score for score, _ in best)
            ranked.append((rank, Found(agent.profile, [match for _, match in best])))
    ranked.sort(key=lambda pair: pair[0])
    return [result for _, result in ranked]


def _matches(agent: Loaded, by_folded: dict[str, str]) -> Iterator[list[tuple[int, Match]]]:
    """Yield for each keyword that is found its matches and scores, a whole text double."""
    texts = [(kind, text, _fold_spaces(text)) for kind, text in _texts(agent)]
    for folded, word in by_folded.items():
        matches = [
            (
                _WEIGHTS[kind] * (2 if folded == text else 1),
                Match(word, kind, "" if kind == "role_prompt" else written),
            )
            for kind, written, text in texts
            if folded in text
        ]
        if matches:
            yield matches


def _texts(agent: Loaded) -> Iterator[tuple[MatchField, str]]:
    profile = agent.profile
    yield from (("skill", text) for text in profile.skills)
    yield from (("keyword", text) for text in profile.response.keywords)
    yield from (("name", text) for text in (profile.agent_id, profile.name, *profile.aliases))
    yield "role_prompt", agent.role_prompt


def _fold_spaces(text: str) -> str:
    return " ".join(letters.fold(text).split())
