"""One line for each event that is no step of a conversation: a note, a summary, a repair.

`RENDERERS` is the registry that timelines and pages share. A new kind of `SideEvent` gets its line
by an entry there; without one its fields are shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from arena_cli.notes.lifecycle import RULES
from arena_cli.protocol import Position, Volatile
from arena_cli.reports.lines import INDENT, Line, Span, Words, line
from arena_cli.transcript.events import (
    Compacted,
    ContextUsage,
    Deviation,
    Event,
    Extracted,
    NoteEvent,
    Recovered,
    Resumed,
    SideEvent,
    list_fields,
)
from arena_cli.util.text import escape_line

Who = Callable[[str], "list[Span] | str"]
"""The name of an agent, or of somebody else, by id, as a report shows it."""


def render_event(event: Event, say: Words, who: Who) -> Line | None:
    """Return the line of an event; None for a step of the conversation, or if there is no text."""
    renderer = RENDERERS.get(type(event))
    if renderer is not None:
        return renderer(event, say, who)
    return _render_fields(event) if isinstance(event, SideEvent) else None


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
    spans = say.spans(
        "note {note} {act} by {who}: {title}",
        "dim",
        note=escape_line(event.note),
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
    return line(INDENT, say.spans(text, "dim", who=who(event.agent), share=share))


def _render_summary(event: Compacted, say: Words, who: Who) -> Line:
    values: dict[str, int | str | list[Span]] = {"count": event.messages, "who": who(event.by)}
    if event.rolled_back:
        text = "summary of {count} messages by {who} rolled back: {why}"
        values["why"] = escape_line(event.rolled_back)
    else:
        text = "summary of {count} messages by {who}: {before} → {after} tokens"
        values.update(before=event.tokens_before, after=event.tokens_after)
    return line(INDENT, say.spans(text, "dim", **values))


def _render_deviation(event: Deviation, say: Words, who: Who) -> Line:
    style = "failed" if event.level == "replan_required" else "warned"
    spans = say.spans(
        "{level}, {severity}: {who} ignored {note}: {reason}",
        severity=say.enum(event.severity),
        level=[Span(say.enum(event.level), style)],
        who=who(event.agent),
        note=escape_line(event.note),
        reason=escape_line(event.reason),
    )
    return line(INDENT, spans, hang=4)


def _render_extraction(event: Extracted, say: Words, who: Who) -> Line | None:
    if event.error is None:
        return None  # the notes that it found have lines of their own
    text = "{who} looked for notes: {why}"
    return line(
        INDENT, say.spans(text, "dim", who=who(event.by), why=escape_line(event.error)), hang=4
    )


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
    Extracted: _render_extraction,
    Recovered: _render_repair,
    Resumed: _render_resumption,
}
