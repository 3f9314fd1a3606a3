"""One small real call of one agent, made as a session makes it and kept nowhere."""

from __future__ import annotations

import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from arena_cli.context import render, window
from arena_cli.engine import milestones, planning, reply, rules
from arena_cli.engine.planning import Planned
from arena_cli.engine.scene import Room, Scene
from arena_cli.session import outgoing, session, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Place
from arena_cli.team import mentions
from arena_cli.team.model import Member, Team
from arena_cli.transcript import attachments
from arena_cli.transcript.events import Event, ReplyFinished
from arena_cli.transcript.fold import Fold
from arena_cli.transcript.journal import Journal
from arena_cli.transcript.log import Log

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
    team = Team(None, (member._replace(profile=once),))
    heard: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="arena-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        log = Log(folder / store.TRANSCRIPT, clock=place.clock, durability="flush", seq=0)
        with closing(log):
            room = _room(place, team, folder, log, heard)
            planned = _planned(room, member.id)
            reply.announce(planned, room)
            try:
                await reply.run(planned, room)
            finally:
                await room.runtime.stop()
    (finished,) = (event for event in heard if isinstance(event, ReplyFinished))
    return Tried(*render.render(planned.input), finished)


def _room(place: Place, team: Team, folder: Path, log: Log, heard: list[Event]) -> Room:
    history = window.History.of(team)
    fold = Fold(history.append)
    redactor = session.redactor_of(place, [one.profile for one in team.members])
    return Room(
        scene=Scene(folder.name, team, fold, history),
        roster=mentions.roster_of(team),
        journal=Journal(log, fold, heard.append),
        runtime=session.runtime_of(place, redactor, scratch=folder / "scratch"),
        clock=place.clock,
        keep=lambda parts, message_id: attachments.store(
            parts, message_id, session=folder, workspace=folder
        ),
    )


def _planned(room: Room, agent: str) -> Planned:
    """The call that the question makes."""
    fold, journal = room.scene.fold, room.journal
    question = partial(
        outgoing.event, Outgoing(QUESTION), chain=1, roster=room.roster, keep=room.keep
    )
    journal.write(question)
    assert fold.open is not None
    step = rules.next_step(fold.open, room.scene.team)
    assert isinstance(step, rules.StartTurn)
    journal.write(partial(milestones.turn_started, step, fold.open, fold))
    return planning.plan(agent, "A", fold.open, room.scene)
