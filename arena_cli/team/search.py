"""Agents by what they can do: their skills, keywords and names, and last their role prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from arena_cli.team import letters
from arena_cli.team.model import AgentProfile
from arena_cli.team.profiles import Loaded

Place = Literal["skill", "keyword", "name", "role_prompt"]

# The surer a place tells what an agent is for, the more a hit in it counts.
_WEIGHTS: dict[Place, int] = {"skill": 4, "keyword": 4, "name": 3, "role_prompt": 1}


class Match(NamedTuple):
    """Where a keyword was found: in which text of which place (empty for the role prompt)."""

    keyword: str
    place: Place
    text: str


class Found(NamedTuple):
    """An agent, and for each keyword that was found its best match."""

    profile: AgentProfile
    matches: list[Match]


def find(loaded: Iterable[Loaded], keywords: Sequence[str]) -> list[Found]:
    """The agents in which any keyword is found, anywhere in a text, width and case alike.

    First come those in which most of the keywords are found, then those where they are found in
    surer places, a whole text before a part of one; else they stay in their order.
    """
    ranked: list[tuple[tuple[int, int], Found]] = []
    wanted = {folded: word for word in keywords if (folded := _folded(word))}
    for one in loaded:
        best = [max(places, key=lambda pair: pair[0]) for places in _matches(one, wanted)]
        if best:
            rank = -len(best), -sum(score for score, _ in best)
            ranked.append((rank, Found(one.profile, [match for _, match in best])))
    ranked.sort(key=lambda pair: pair[0])
    return [found for _, found in ranked]


def _matches(one: Loaded, wanted: dict[str, str]) -> Iterator[list[tuple[int, Match]]]:
    """Of each keyword that is found, its matches and how much they count, a whole text double."""
    texts = [(place, text, _folded(text)) for place, text in _texts(one)]
    for folded, word in wanted.items():
        found = [
            (
                _WEIGHTS[place] * (2 if folded == text else 1),
                Match(word, place, "" if place == "role_prompt" else written),
            )
            for place, written, text in texts
            if folded in text
        ]
        if found:
            yield found


def _texts(one: Loaded) -> Iterator[tuple[Place, str]]:
    profile = one.profile
    yield from (("skill", text) for text in profile.skills)
    yield from (("keyword", text) for text in profile.response.keywords)
    yield from (("name", text) for text in (profile.agent_id, profile.name, *profile.aliases))
    yield "role_prompt", one.role_prompt


def _folded(text: str) -> str:
    return " ".join(letters.fold(text).split())
