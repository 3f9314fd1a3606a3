"""What an expectation covers: the turns, replies and ends of one chain or of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    TurnStarted,
)

FAILED = frozenset({"timeout", "error"})


@dataclass
class Turn:
    """One turn. `number` counts from 1 through all that is covered; `results` go by agent."""

    number: int
    must: list[str]
    asked: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    results: dict[str, ReplyFinished] = field(default_factory=dict)

    def in_order(self) -> list[ReplyFinished]:
        """How its calls ended, in order of call."""
        results = (self.results.get(agent) for agent in (*self.must, *self.asked))
        return [done for done in results if done is not None]


class Reply(NamedTuple):
    """What an agent said in a turn."""

    agent: str
    turn: int
    text: str


@dataclass
class Conversation:
    """`end` and `awaits` are the last chain's; `unresolved` are names of nobody, each once."""

    turns: list[Turn] = field(default_factory=list)
    end: str = ""
    awaits: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)

    def replies(self, agent: str | None = None) -> list[Reply]:
        """What agents said, in order of call; of one agent, or of all."""
        return [
            Reply(done.agent, turn.number, done.message.content if done.message else "")
            for turn in self.turns
            for done in turn.in_order()
            if done.status == "success" and agent in (None, done.agent)
        ]

    def failures(self) -> list[tuple[int, ReplyFinished]]:
        """(turn, reply) of each call that failed, in order of call."""
        return [
            (turn.number, done)
            for turn in self.turns
            for done in turn.in_order()
            if done.status in FAILED
        ]

    def outcome(self, agent: str) -> str:
        """The status of the agent's last call, else `passed_over`, else `not_called`."""
        calls = [turn.results[agent].status for turn in self.turns if agent in turn.results]
        if calls:
            return calls[-1]
        passed_over = any(agent in turn.passed_over for turn in self.turns)
        return "passed_over" if passed_over else "not_called"


def of(events: Iterable[Event]) -> Conversation:
    """The conversation that these events tell, in order."""
    told = Conversation()
    by_number: dict[int, Turn] = {}
    unresolved: dict[str, None] = {}
    for event in events:
        match event:
            case MessageEvent():
                unresolved.update(dict.fromkeys(event.unresolved))
            case TurnStarted():
                turn = Turn(len(told.turns) + 1, event.must)
                told.turns.append(turn)
                by_number[event.turn] = turn
            case Candidates():
                by_number[event.turn].asked = event.asked
                by_number[event.turn].passed_over = list(event.passed_over)
            case ReplyFinished():
                by_number[event.turn].results[event.agent] = event
                unresolved.update(dict.fromkeys(event.unresolved))
            case ChainFinished():
                told.end = event.end
                told.awaits = event.awaits
            case _:
                pass
    told.unresolved = list(unresolved)
    return told
