"""Whom a message calls: its mentions, then its `next_mentions`, after the team's limits."""

from __future__ import annotations

from typing import NamedTuple

from arena_cli.ground.protocol import AgentOutput
from arena_cli.team import mentions
from arena_cli.team.mentions import Roster
from arena_cli.team.model import Member, Team

ALL_REFUSED = "agents_may_mention_all is false"
MAY_MENTION = "not in may_mention"


class Calls(NamedTuple):
    """`mentions`: whom the message names, humans included; `next_mentions`: agents it calls."""

    mentions: tuple[str, ...]
    next_mentions: tuple[str, ...]
    refused: dict[str, str]
    unresolved: tuple[str, ...]


def calls_of(
    output: AgentOutput, member: Member, team: Team, roster: Roster, *, opener: str
) -> Calls:
    """Whom an agent's answer names and calls; `opener` is the human who opened the chain.

    Humans that only `next_mentions` names are among the mentions too: the chain waits for them.
    """
    named = mentions.parse(output.content, roster, author=member.id, opener=opener)
    added = mentions.resolve(output.next_mentions, roster, author=member.id, opener=opener)
    agents = roster.member_ids
    by_name = ({*named.ids} - named.by_all_only) | ({*added.ids} - added.by_all_only)
    allowed = member.profile.may_mention
    called: list[str] = []
    refused: dict[str, str] = {}
    for name in dict.fromkeys((*named.ids, *added.ids)):
        if name not in agents:
            continue
        if name not in by_name and not team.config.agents_may_mention_all:
            refused[name] = ALL_REFUSED
        elif allowed is not None and name not in allowed:
            refused[name] = MAY_MENTION
        else:
            called.append(name)
    humans = [name for name in added.ids if name not in agents]
    return Calls(
        mentions=tuple(dict.fromkeys((*named.ids, *humans))),
        next_mentions=tuple(called),
        refused=refused,
        unresolved=tuple(dict.fromkeys((*named.unresolved, *added.unresolved))),
    )
