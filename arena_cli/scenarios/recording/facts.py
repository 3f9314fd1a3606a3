"""List decisions of the rules, messages and notes: of a recording, and of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from arena_cli.scenarios.recording.model import CaseRecord
from arena_cli.scenarios.recording.recorder import Stretch, Tape
from arena_cli.transcript import canonical
from arena_cli.transcript.events import TurnStarted

MESSAGE = "message"

MEMORY = ("note", "compacted", "deviation", "extracted")
"""What the team remembered: fields of facts, which are the types of their events."""


_TEXTS = (MESSAGE, "system", "note")


class Fact(NamedTuple):
    """Something that was decided, said or remembered: where, about whom, what."""

    step: int | None
    turn: int | None
    field: str
    agent: str | None
    value: str


def recorded(case: CaseRecord, tape: Tape, session: str | None) -> Iterator[Fact]:
    """The facts of a session when it was recorded, in order."""
    step: int | None = 0
    current: str | None = None
    turn: int | None = None
    for line in case.lines:
        if line["type"] == "step":
            step, current, turn = line["step"], line["session"], None
        elif current == session and tape.was_played(step):
            if line["type"] == "turn_started":
                turn = line["depth"] + 1
            for field, agent, value in _facts(line["type"], line.__getitem__):
                yield Fact(step, turn, field, agent, _compared(field, value, tape))


def played(tape: Tape, session: str | None) -> Iterator[Fact]:
    """The facts of it now."""
    for stretch in tape.stretches:
        if stretch.session == session:
            yield from _of_stretch(stretch, tape)


def _of_stretch(stretch: Stretch, tape: Tape) -> Iterator[Fact]:
    turn: int | None = None
    for event in canonical.ordered(stretch.events):
        if isinstance(event, TurnStarted):
            turn = event.depth + 1
        for field, agent, value in _facts(event.type, vars(event).__getitem__):
            yield Fact(stretch.step, turn, field, agent, _compared(field, value, tape))


def _compared(field: str, value: str, tape: Tape) -> str:
    """Return the value as it is compared: texts without what `ignore` matches."""
    return tape.ignoring.text(value) if field in _TEXTS else value


def _facts(kind: str, get: Callable[[str], Any]) -> Iterator[tuple[str, str | None, str]]:
    """Yield the facts of one event, each with the agent it is about.

    `get` gives a field of the event, or of its record.
    """
    if kind in MEMORY:
        yield _remembered(kind, get)
    else:
        yield from _decided(kind, get)


def _decided(kind: str, get: Callable[[str], Any]) -> Iterator[tuple[str, str | None, str]]:
    """Yield the decisions of the rules in an event."""
    if kind == "turn_started":
        yield "must", None, ", ".join(get("must"))
        if deferred := get("deferred"):
            yield "deferred", None, ", ".join(deferred)
    elif kind == "candidates":
        yield "asked", None, ", ".join(get("asked"))
        for name, reason in sorted(get("passed_over").items()):
            yield (
                "passed_over",
                name,
                _passing(reason if isinstance(reason, dict) else vars(reason)),
            )
    elif kind == "reply_finished":
        yield "status", get("agent"), get("status")
        if calls := "; ".join(_calls(get)):
            yield "calls", get("agent"), calls
    elif kind == "turn_finished":
        yield "next", None, ", ".join(get("next"))
    elif kind == "chain_finished":
        yield "end", None, get("end")
        if awaits := get("awaits"):
            yield "awaits", None, ", ".join(awaits)
    elif kind == "message":
        message = get("message")
        fields = message if isinstance(message, dict) else vars(message)
        if fields["author_type"] == "system" and not get("planted"):
            yield "system", None, fields["content"]
        else:
            yield MESSAGE, fields["author_id"], fields["content"]


def _remembered(kind: str, get: Callable[[str], Any]) -> tuple[str, str | None, str]:
    match kind:
        case "note":
            problem = get("title") or get("reason")
            return kind, None, f"{get('note')} {get('act')} by {get('by')}: {problem}".strip()
        case "compacted":
            outcome = f"rolled back: {get('rolled_back')}" if get("rolled_back") else "kept"
            # How a summary without an agent is made may be called otherwise in a later version.
            author = str(get("by")).partition(" (")[0]
            return kind, None, f"{get('messages')} messages by {author}, {outcome}"
        case "deviation":
            return kind, get("agent"), f"{get('note')}, {get('level')}"
        case _:
            return kind, get("by"), f"{get('notes')} notes"


def _passing(reason: Mapping[str, Any]) -> str:
    if reason.get("threshold") is not None:
        return f"relevance {reason['relevance']:g} < {reason['threshold']:g}"
    return f"relevance {reason['relevance']:g}, {reason.get('reason')}"


def _calls(get: Callable[[str], Any]) -> Iterator[str]:
    if called := get("next_mentions"):
        yield ", ".join(called)
    for agent, reason in get("refused").items():
        yield f"not {agent} ({reason})"
    for name in get("unresolved"):
        yield f"nobody is @{name}"
