"""One small real call of one agent, made as a session makes it and kept nowhere."""

from __future__ import annotations

from typing import NamedTuple

from arena_cli.context import render
from arena_cli.session.aside import Aside
from arena_cli.session.session import Place
from arena_cli.team.model import Member
from arena_cli.transcript.events import ReplyFinished

QUESTION = "This is a test of the connection. Answer with one short word, such as: ok"


class Tried(NamedTuple):
    """What the agent was sent, as text, and how its reply ended."""

    system: str
    prompt: str
    finished: ReplyFinished

    @property
    def works(self) -> bool:
        """Whether it could be called; one that declines could."""
        return self.finished.status in ("success", "declined")


async def call(place: Place, member: Member, limit_s: float) -> Tried:
    """Call an agent, alone in a team, once, within `limit_s` seconds.

    Cancelled, its work is ended first. Raises DiskRefused.
    """
    once = member.profile.model_copy(update={"on_failure": "skip", "timeout_s": limit_s})
    async with Aside(place) as aside:
        asked = await aside.ask(member._replace(profile=once), QUESTION)
    return Tried(*render.render(asked.input), asked.finished)
