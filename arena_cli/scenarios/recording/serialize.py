"""Turn the recorded calls into the lines of a recording.

The lines of a case are its `case` line, one `agent` line for each member and judge (`settings`),
and for each step a `step` line, then the step's events in canonical form. Every `reply_started`
also has `input` (the agent's input) and `output` or `failure` (`recorder`); an attempt that another
one followed has its number. Data that can be derived from these is left out: estimates of tokens,
sums, errors as text, and the fields of a reply's message that its output holds. A judge's call is a
`judge` line. A call of an agent that works for the team's memory is a `memory` line, before the
event that reports its result.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from arena_cli.protocol import AgentInput, Derived, ShownMessage
from arena_cli.scenarios.recording import model, recorder, settings
from arena_cli.scenarios.recording.recorder import MEMORY, Stretch, Tape, TapedCall
from arena_cli.transcript import compare, events
from arena_cli.transcript.events import Event, MessageEvent, ReplyStarted, list_fields
from arena_cli.workspace.models import Member

JUDGE = "judge"
STEP = "step"
IN_OUTPUT = ("content", "structured", "attachments")

_INLINE = ("author_id", "author_name", "author_type", "content", "role")


def lines(tape: Tape, case: str | None, members: Sequence[Member]) -> list[dict[str, Any]]:
    """Return the lines of one case, as it was played by these members and its judges."""
    everyone = {member.id: member for member in members} | tape.members
    records = [case_line(case, tape.workspace)]
    for member in everyone.values():
        line = {**settings.record(member, tape.redactor), **_called_with(member, tape)}
        line[settings.ROLE_PROMPT] = tape.ignoring.text(line[settings.ROLE_PROMPT])
        records.append(line)
    ids: dict[str | None, dict[str, str]] = {}
    by_reply: dict[tuple[str | None, int | None], list[TapedCall]] = {}
    for call in tape.calls:
        by_reply.setdefault((call.session, call.reply), []).append(call)
    shown_ids = {message.id for call in tape.calls for message in call.input.messages}
    for stretch in tape.stretches:
        if stretch.step != 0 and (stretch.step or stretch.judged):
            records.append({"type": STEP, STEP: stretch.step, "session": stretch.session})
        records += _events(stretch, by_reply, ids.setdefault(stretch.session, {}), shown_ids, tape)
        records += [_aside(JUDGE, call, tape) for call in stretch.judged]
    return records


def case_line(case: str | None, workspace: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the line that begins a case."""
    line: dict[str, Any] = {"type": "case", "case": case}
    return line if workspace is None else {**line, "workspace": workspace}


def _called_with(member: Member, tape: Tape) -> dict[str, Any]:
    first = tape.called_with.get(member.id)
    if first is None or tape.surroundings is None:
        return {}
    last = settings.record_called(member, tape.redactor, tape.surroundings)
    recorded = tape.recorded.agents.get(member.id, {}) if tape.recorded else {}
    return settings.mark_varying(first, last, recorded)


def _events(
    stretch: Stretch,
    by_reply: Mapping[tuple[str | None, int | None], list[TapedCall]],
    ids: dict[str, str],
    shown_ids: Container[str],
    tape: Tape,
) -> Iterator[dict[str, Any]]:
    """Yield the events of a step; of the planted past, only the messages that agents were shown."""
    for event in compare.ordered(stretch.events):
        yield from _memory_calls(stretch, event, tape)
        line = record(event, ids)
        if stretch.step == 0 and _is_unseen(event, shown_ids):
            continue
        if isinstance(event, ReplyStarted):
            calls = by_reply.get((stretch.session, event.reply), [])
            yield from _attempts(line, calls, ids, tape)
        else:
            yield line
    yield from _memory_calls(stretch, None, tape)


def _memory_calls(stretch: Stretch, event: Event | None, tape: Tape) -> Iterator[dict[str, Any]]:
    """Yield the calls for the team's memory that an event reports; for None, those of no event."""
    for call, memory_event in stretch.remembering:
        if memory_event is event:
            yield _aside(MEMORY, call, tape)


def _is_unseen(event: Event, shown_ids: Container[str]) -> bool:
    return isinstance(event, MessageEvent) and event.message.id not in shown_ids


def _attempts(
    line: dict[str, Any], calls: Sequence[TapedCall], ids: dict[str, str], tape: Tape
) -> Iterator[dict[str, Any]]:
    """Yield the line of a reply for each call of the agent, with its input and answer."""
    for attempt, call in enumerate(calls, start=1):
        again = {"attempt": attempt} if attempt < len(calls) else {}
        shown = {"input": _input(tape.ignoring.input(call.input), ids)}
        yield {**line, "input_hash": call.input_hash, **again, **shown} | call.came
    if not calls:  # it was no longer in the team
        yield line


def record(event: Event, ids: dict[str, str]) -> dict[str, Any]:
    """Return an event as a line of a recording; `ids` as in `canonical.canonicalize_event`."""
    line = compare.canonicalize_event(event, ids)
    for name in list_fields(type(event), Derived):
        line.pop(name, None)
    if event.type == "reply_finished" and line.get("message"):
        line["message"] = {
            key: value for key, value in line["message"].items() if key not in IN_OUTPUT
        }
    return line


def restore(line: Mapping[str, Any]) -> Event | None:
    """Return the event of a line of a recording, with its texts; None if the line is no event.

    Raises ValueError if a field is wrong or missing.
    """
    message = line.get("message")
    if isinstance(message, dict) and message.get("attachments"):
        attachments = [recorder.encode_data(item) for item in message["attachments"]]
        line = {**line, "message": {**message, "attachments": attachments}}
    return events.restore(line)


def _aside(kind: str, call: TapedCall, tape: Tape) -> dict[str, Any]:
    """Return the line of a call that is no reply."""
    return {
        "type": kind,
        "agent": call.key.agent,
        "invocation": call.key.invocation,
        "input_hash": call.input_hash,
        "input": {
            **_input(tape.ignoring.input(call.input), {}),
            "members": [member.model_dump(mode="json") for member in call.input.members],
        },
    } | call.came


def _input(input: AgentInput, ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields particular to an input; its prompt and its members are in other lines."""
    fields: dict[str, Any] = {"turn": input.turn}
    if input.mentioned_by:
        fields["mentioned_by"] = list(input.mentioned_by)
    if input.memory_context is not None:
        fields["memory_context"] = input.memory_context
    if input.prefer_concise:
        fields["prefer_concise"] = True
    fields["max_output_tokens"] = input.max_output_tokens
    fields["messages"] = _messages(input.messages, ids)
    return fields


def _messages(messages: Sequence[ShownMessage], ids: Mapping[str, str]) -> list[Any]:
    """Return the session's messages as ids, the others written out."""
    items: list[Any] = []
    run_ids: list[str] = []
    for message in messages:
        if message.id in ids:
            run_ids.append(ids[message.id])
            continue
        items += model.ranges(run_ids)
        run_ids = []
        items.append({name: getattr(message, name) for name in _INLINE})
    return [*items, *model.ranges(run_ids)]
