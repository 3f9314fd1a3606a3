"""What a session's events say of one agent: who it is, and what concerns it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from arena_cli.ground import nearest
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.team import roster
from arena_cli.transcript import passage, read
from arena_cli.transcript.events import (
    Candidates,
    Event,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    StatusReported,
    TurnFinished,
    TurnStarted,
)


def agent_named(path: Path, name: str) -> str:
    """The id of a member, now or earlier, with that id or name. Raises UsageError."""
    wanted = roster.folded_name(name.removeprefix("@").removeprefix("＠"))
    known: dict[str, None] = {}
    seq = read.last_seq(path) + 1
    while (session := passage.session_before(path, seq)) and session.seq < seq:
        seq = session.seq
        for member in session.members:
            known.update({member.id: None, member.name: None})
            if wanted in (roster.folded_name(member.id), roster.folded_name(member.name)):
                return member.id
    raise UsageError(
        f"no agent of this session is called {shown_line(name)!r}", nearest.hint(name, known)
    )


class OfAgent:
    """Takes events in order and gives those that concern one agent.

    That is its calls and replies, and before each the message and the turn in which it was called;
    `found` says whether there was any. `session` events are always given: they hold the names.
    """

    def __init__(self, agent: str) -> None:
        self.found = False
        self._agent = agent
        self._held: list[Event] = []
        self._is_called = False

    def take(self, event: Event) -> Iterable[Event]:
        """What is to be told now."""
        match event:
            case SessionEvent():
                return [event]
            case MessageEvent() if event.chain is not None:
                self._held, self._is_called = [event], False
            case TurnStarted():
                self._held = [one for one in self._held if isinstance(one, MessageEvent)]
                self._held.append(event)
                self._is_called = self._agent in (*event.must, *event.deferred)
                return self._released() if self._is_called else ()
            case Candidates() if self._agent in event.asked:
                self._is_called = True
                return [*self._released(), event]
            case ReplyStarted() | StatusReported() | ReplyFinished() if event.agent == self._agent:
                return [*self._released(), event]
            case TurnFinished() if self._is_called:
                return [event]
            case _:
                pass
        return ()

    def _released(self) -> list[Event]:
        self.found = True
        released, self._held = self._held, []
        return released
