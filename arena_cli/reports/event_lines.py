"""The lines of events that are no step of a conversation, such as a note, a summary or a repair.

Timelines and pages show them. `RENDERERS` is the registry: a new kind of `SideEvent` gets its line
by an entry there; without one its fields are shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from arena_cli.notes.model import RULES
from arena_cli.protocol import Position, Volatile
from arena_cli.reports.lines import INDENT, Line, Span, Who, Words, line
from arena_cli.transcript.events import (
    Compacted,
    ContextUsage,
    Deviation,
    Event,
    Extracted,
    HeedJudged,
    NoteEvent,
    Recovered,
    Resumed,
    SideEvent,
    list_fields,
)
from arena_cli.util.text import escape_line

_MODULES = {
    "control_events": "control_lines",
    **dict.fromkeys(("task_events", "plan_events", "flow_events", "exchange_events"), "work_lines"),
}
"""The module with the renderers of the events of a module, which few sessions have."""


def _import_lines(event: Event) -> Any:
    """Return the module that renders an event of few sessions; None for others."""
    name = _MODULES.get(type(event).__module__.rpartition(".")[2])
    return import_module(f"arena_cli.reports.{name}") if name else None


def render_event(event: Event, say: Words, who: Who) -> Line | None:
    """Return the line of an event; None for a step of the conversation, or if there is no text."""
    renderer = RENDERERS.get(type(event))
    if renderer is None and (lines := _import_lines(event)) is not None:
        renderer = lines.RENDERERS.get(type(event))
    if getattr(event, "is_in_exchange", False) and getattr(event, "mode", "") == "goal":
        return None  # the message that follows has its text
    if renderer is not None:
        return renderer(event, say, who)
    return _render_fields(event) if isinstance(event, SideEvent) else None


def render_details(event: Event, say: Words, who: Who) -> Iterator[Line]:
    """Yield the lines below that of an event of control: briefs, arguments, a diff, a task."""
    if event.is_control:
        details = _import_lines(event).DETAILS.get(type(event))
        yield from details(event, say, who) if details else ()


def _render_fields(event: SideEvent) -> Line:
    left_out = list_fields(type(event), Volatile, Position) | {"type"}
    fields = event.model_dump(mode="json", exclude=set(left_out))
    facts = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
        if value not in (None, "", [], {})
    ]
    text = ", ".join(facts)
    return line(INDENT, Span(escape_line(f"{event.type}: {text}" if text else event.type), "dim"))


def _render_note(event: NoteEvent, say: Words, who: Who) -> Line:
    if event.act == "refused":
        return _render_refusal(event, say, who)
    title = escape_line(f"{event.title} ({event.reason})" if event.reason else event.title)
    note = escape_line(event.note)
    if event.by == RULES and event.act == "added":
        text = "note {note} added by rules: {title}"
        return line(INDENT, say.spans(text, "dim", event.kind, note=note, title=title))
    spans = say.spans(
        "note {note} {act} by {who}: {title}",
        "dim",
        note=note,
        act=say.enum(event.act),
        who=say("rules") if event.by == RULES else who(event.by),
        title=title,
    )
    return line(INDENT, spans)


def _render_refusal(event: NoteEvent, say: Words, who: Who) -> Line:
    facts = {"message": escape_line(event.message or ""), "why": escape_line(event.reason)}
    text = "notes in {message} by {who}: {why}"
    return line(INDENT, say.spans(text, "dim", who=who(event.by), **facts), hang=4)


def _render_usage(event: ContextUsage, say: Words, who: Who) -> Line:
    share = f"{event.usage_ratio * 100:.0f} %"
    text = "{share} of the window of {who} is used"
    spans = list(say.spans(text, "dim", who=who(event.agent), share=share))
    if event.pinned_left:
        advice = "; {count} pinned messages have no room: archive decisions that are settled"
        spans += say.spans(advice, "dim", count=event.pinned_left)
    return line(INDENT, spans)


def _render_summary(event: Compacted, say: Words, who: Who) -> Line:
    values: dict[str, int | str | list[Span]] = {"count": event.messages, "who": who(event.by)}
    if event.rolled_back:
        text = "summary of {count} messages by {who} rolled back: {why}"
        values["why"] = escape_line(event.rolled_back)
    else:
        text = "summary of {count} messages by {who}: {before} → {after} tokens"
        values.update(before=event.tokens_before, after=event.tokens_after)
    return line(INDENT, say.spans(text, "dim", **values))


_QUOTED = 50  # characters of a sentence by which a reason that quotes it is known


def _render_deviation(event: Deviation, say: Words, who: Who) -> Line:
    style = "failed" if event.level == "replan_required" else "warned"
    text = "{level}, {severity}: {who} ignored {note}: {reason}"
    if event.sentence[:_QUOTED] not in event.reason:
        text = "{level}, {severity}: {who} ignored {note}: {reason} ({sentence})"
    spans = say.spans(
        text,
        sentence=escape_line(event.sentence),
        severity=say.enum(event.severity),
        level=[Span(say.enum(event.level), style)],
        who=who(event.agent),
        note=escape_line(event.note),
        reason=escape_line(event.reason),
    )
    return line(INDENT, spans, hang=4)


def _render_failed_search(event: HeedJudged | Extracted, say: Words, who: Who) -> Line | None:
    if event.error is None:
        return None  # what it found has lines of its own
    text = "{who} looked for notes: {why}"
    if isinstance(event, HeedJudged):
        text = "{who} judged ignored notes: {why}; rules decide"
    why = escape_line(event.error)
    return line(INDENT, say.spans(text, "dim", who=who(event.by), why=why), hang=4)


def _render_repair(event: Recovered, say: Words, _: Who) -> Line:
    values: dict[str, object] = {"what": escape_line(event.what), "bytes": event.bytes}
    text = "{what} ({bytes} bytes set aside)"
    if event.kept_in:
        text = "{what} ({bytes} bytes set aside, kept in {place})"
        values["place"] = escape_line(event.kept_in)
    return line(say("recovered: {what}", what=say(text, **values)))


def _render_resumption(event: Resumed, say: Words, _: Who) -> Line:
    fields = {"chain": event.chain, "seq": event.after_seq}
    return line(say("resumed chain {chain} after event {seq}", **fields))


RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line | None]] = {
    NoteEvent: _render_note,
    ContextUsage: _render_usage,
    Compacted: _render_summary,
    Deviation: _render_deviation,
    Extracted: _render_failed_search,
    HeedJudged: _render_failed_search,
    Recovered: _render_repair,
    Resumed: _render_resumption,
}
