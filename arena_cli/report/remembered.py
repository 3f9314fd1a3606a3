"""What was done for a team's memory, as one line of a timeline each."""

from __future__ import annotations

from collections.abc import Callable

from arena_cli.ground.text import shown_line
from arena_cli.memory.taking import RULES
from arena_cli.report.spans import INDENT, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.transcript.events import (
    Compacted,
    ContextUsage,
    Deviation,
    Event,
    Extracted,
    NoteEvent,
)

Who = Callable[[str], "list[Span] | str"]
"""An agent, or somebody else, by id, as a timeline names them."""


def line_of(event: Event, say: Words, who: Who) -> Line | None:
    """The line for one event; None if it is no such event, or tells nothing beside the notes."""
    match event:
        case NoteEvent(act="refused"):
            told = _refused(event, say, who)
        case NoteEvent():
            told = _note(event, say, who)
        case ContextUsage():
            said = "the window of {who} is {share} % full"
            share = f"{event.usage_ratio * 100:.0f}"
            told = line(INDENT, say.spans(said, "dim", who=who(event.agent), share=share))
        case Compacted():
            told = _compacted(event, say, who)
        case Deviation():
            told = _deviation(event, say, who)
        case Extracted(error=str(why)):
            said = "{who} looked for notes: {why}"
            spans = say.spans(said, "dim", who=who(event.by), why=shown_line(why))
            told = line(INDENT, spans, hang=4)
        case _:
            return None
    return told


def _note(event: NoteEvent, say: Words, who: Who) -> Line:
    title = shown_line(f"{event.title} ({event.reason})" if event.reason else event.title)
    told = say.spans(
        "note {note} {act} by {who}: {title}",
        "dim",
        note=shown_line(event.note),
        act=say.enum(event.act),
        who=say("rules") if event.by == RULES else who(event.by),
        title=title,
    )
    return line(INDENT, told)


def _refused(event: NoteEvent, say: Words, who: Who) -> Line:
    facts = {"message": shown_line(event.message or ""), "why": shown_line(event.reason)}
    said = "notes in {message} by {who}: {why}"
    return line(INDENT, say.spans(said, "dim", who=who(event.by), **facts), hang=4)


def _compacted(event: Compacted, say: Words, who: Who) -> Line:
    told: dict[str, int | str | list[Span]] = {"count": event.messages, "who": who(event.by)}
    if event.rolled_back:
        said = "summary of {count} messages by {who} rolled back: {why}"
        told["why"] = shown_line(event.rolled_back)
    else:
        said = "summary of {count} messages by {who}: {before} → {after} tokens"
        told.update(before=event.tokens_before, after=event.tokens_after)
    return line(INDENT, say.spans(said, "dim", **told))


def _deviation(event: Deviation, say: Words, who: Who) -> Line:
    style = "failed" if event.level == "replan_required" else "warned"
    spans = say.spans(
        "{level}: {who} did not heed {note}: {reason}",
        level=[Span(say.enum(event.level), style)],
        who=who(event.agent),
        note=shown_line(event.note),
        reason=shown_line(event.reason),
    )
    return line(INDENT, spans, hang=4)
