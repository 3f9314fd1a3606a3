"""Who takes part: names, faces and colours of agents, and which of them have a lane."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from arena_cli.ground.protocol import Usage
from arena_cli.ground.text import shown_line
from arena_cli.report import facts
from arena_cli.report.timeline import AGENT_STYLES
from arena_cli.transcript.events import (
    Candidates,
    Event,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    TurnStarted,
)


class Who(NamedTuple):
    """An agent as a page shows it; `colour` is a number below `AGENT_STYLES`."""

    id: str
    name: str
    face: str = ""
    role: str = ""
    colour: int = 0


class Lane(NamedTuple):
    """A column of a timeline: an agent, how often it replied, and what that used."""

    who: Who
    replies: int = 0
    usage: Usage | None = None


class Cast:
    """Everybody in a session, as its `session` events tell. `avatars` by agent id."""

    def __init__(self, sessions: Iterable[SessionEvent], avatars: Mapping[str, str]) -> None:
        self._avatars = avatars
        self._everybody: dict[str, Who] = {}
        self.config: dict[str, object] = {}
        for session in sessions:
            self.config = session.config
            for place, member in enumerate(session.members):
                self._everybody[member.id] = self._who(
                    member.id, member.name, member.role, place % AGENT_STYLES
                )

    @property
    def members(self) -> list[Who]:
        """In team order."""
        return list(self._everybody.values())

    def who(self, agent: str) -> Who:
        """A member, or somebody who is none any more."""
        known = self._everybody.get(agent)
        return known or self._who(agent, agent, "", zlib.crc32(agent.encode()) % AGENT_STYLES)

    def is_member(self, agent: str) -> bool:
        """Whether an id is that of an agent, and not of a human."""
        return agent in self._everybody

    def _who(self, agent: str, name: str, role: str, colour: int) -> Who:
        face = facts.avatar(self._avatars.get(agent, ""))
        return Who(shown_line(agent), shown_line(name), face, shown_line(role), colour)

    def lanes(self, events: Iterable[Event]) -> dict[str, Lane]:
        """Those who were called, or might have been, in team order."""
        seen: dict[str, None] = {}
        replies: Counter[str] = Counter()
        usage: dict[str, list[Usage]] = {}
        for event in events:
            seen.update(dict.fromkeys(_concerned(event)))
            if isinstance(event, ReplyFinished):
                replies[event.agent] += event.status == "success"
                if event.usage:
                    usage.setdefault(event.agent, []).append(event.usage)
        ordered = [one for one in self._everybody if one in seen]
        ordered += [one for one in seen if one not in self._everybody]
        return {
            one: Lane(
                self.who(one), replies[one], Usage.total(usage[one]) if one in usage else None
            )
            for one in ordered
        }


def _concerned(event: Event) -> Iterable[str]:
    match event:
        case TurnStarted():
            return (*event.must, *event.deferred)
        case Candidates():
            return (*event.asked, *event.passed_over)
        case ReplyStarted() | ReplyFinished():
            return (event.agent,)
        case _:
            return ()
