"""List decisions of the rules, messages and notes: of a recording, and of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from arena_cli.protocol import Derived, MessageRef, Position, Volatile
from arena_cli.scenarios.recording import serialize
from arena_cli.scenarios.recording.model import CaseRecord
from arena_cli.scenarios.recording.recorder import Tape
from arena_cli.transcript import compare
from arena_cli.transcript.compare import FieldReader
from arena_cli.transcript.conversation import Turn, follow
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    SideEvent,
)

MESSAGE = "message"
SYSTEM = "system"

_TEXTS = (MESSAGE, SYSTEM, "note")
_NOT_COMPARED = frozenset({"context_usage"})
"""Kinds of events that are estimates only."""


class Fact(NamedTuple):
    """A decision, a message or an act of memory: its place, its agent, its content.

    `is_memory`: it is about a `SideEvent`, whose type is the `field`.
    """

    step: int | None
    turn: int | None
    field: str
    agent: str | None
    value: str
    is_memory: bool = False


class _StepEvents(NamedTuple):
    number: int | None
    events: list[Event]


def recorded(case: CaseRecord, tape: Tape, session: str | None) -> Iterator[Fact]:
    """Yield the facts of a session when it was recorded, in order."""
    steps = [_StepEvents(0, [])]
    current: str | None = None
    for line in case.lines:
        if line["type"] == "step":
            current = line["session"]
            steps.append(_StepEvents(line["step"], []))
        elif current == session and tape.was_played(steps[-1].number):
            event = serialize.restore(line)
            steps[-1].events.extend([event] if event else [])
    return _list_facts(steps, tape)


def played(tape: Tape, session: str | None) -> Iterator[Fact]:
    """Yield the facts of a session as played now, in order."""
    stretches = [stretch for stretch in tape.stretches if stretch.session == session]
    steps = [
        _StepEvents(stretch.step, list(compare.ordered(stretch.events))) for stretch in stretches
    ]
    return _list_facts(steps, tape)


def _list_facts(steps: Iterable[_StepEvents], tape: Tape) -> Iterator[Fact]:
    for step in steps:
        turn: int | None = None
        for event, chain in follow(step.events):
            last = chain.turns[-1] if chain and chain.turns else None
            if last and event is last.started:
                turn = last.started.depth + 1
            for field, agent, value in _facts(event, last):
                text = tape.ignoring.text(value) if field in _TEXTS else value
                is_memory = isinstance(event, SideEvent)
                yield Fact(step.number, turn, field, agent, text, is_memory)


def _facts(event: Event, turn: Turn | None) -> Iterator[tuple[str, str | None, str]]:
    """Yield the facts of an event, each with the agent it is about; `turn` is its turn."""
    match event:
        case SideEvent():
            if event.type not in _NOT_COMPARED:
                yield event.type, *_describe(event)
        case MessageEvent(message=message):
            is_notice = message.author_type == "system" and not event.planted
            author = None if is_notice else message.author_id
            yield SYSTEM if is_notice else MESSAGE, author, message.content
        case ReplyFinished():
            yield "status", event.agent, event.status
            if calls := "; ".join(_calls(event)):
                yield "calls", event.agent, calls
        case ChainFinished():
            yield "end", None, event.end
            if event.awaits:
                yield "awaits", None, ", ".join(event.awaits)
        case _ if turn:
            yield from _routing(event, turn)


def _routing(event: Event, turn: Turn) -> Iterator[tuple[str, str | None, str]]:
    if event is turn.started:
        yield "must", None, ", ".join(turn.must)
        if turn.started.deferred:
            yield "deferred", None, ", ".join(turn.started.deferred)
    elif event is turn.candidates:
        yield "asked", None, ", ".join(turn.asked)
        for agent, over in sorted(turn.passed_over.items()):
            reason = f", {over.reason}" if over.threshold is None else f" < {over.threshold:g}"
            yield "passed_over", agent, f"relevance {over.relevance:g}{reason}"
    elif turn.finished and event is turn.finished:
        yield "next", None, ", ".join(turn.finished.next)


def _describe(event: Any) -> tuple[str | None, str]:
    """Return the agent that a side event is about, and its description."""
    match event.type:
        case "note":
            subject = event.title or event.reason
            return None, f"{event.note} {event.act} by {event.by}: {subject}".strip()
        case "compacted":
            outcome = f"rolled back: {event.rolled_back}" if event.rolled_back else "kept"
            # How a summary without an agent is made may be called otherwise in a later version.
            author = event.by.partition(" (")[0]
            return None, f"{event.messages} messages by {author}, {outcome}"
        case "deviation":
            return event.agent, f"{event.note}, {event.level}"
        case "extracted":
            return event.by, f"{event.notes} notes"
        case _:
            fields = FieldReader((Volatile, Derived, Position, MessageRef)).event(event)
            fields.pop("agent", None)
            text = ", ".join(f"{name}: {value}" for name, value in fields.items())
            return getattr(event, "agent", None), text


def _calls(done: ReplyFinished) -> Iterator[str]:
    if done.next_mentions:
        yield ", ".join(done.next_mentions)
    for agent, reason in done.refused.items():
        yield f"not {agent} ({reason})"
    for name in done.unresolved:
        yield f"nobody is @{name}"
