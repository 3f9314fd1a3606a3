"""The lines of the events of flows, for timelines and pages; see `reports.event_lines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arena_cli.reports.lines import INDENT, Line, Span, Who, Words, line
from arena_cli.transcript.events import Event
from arena_cli.transcript.flow_events import (
    FlowFinished,
    FlowStarted,
    Reflected,
    StepFinished,
    StepStarted,
)
from arena_cli.util.text import escape_line, shorten_text

_LONGEST = 400
_STYLES = {"success": "added", "failed": "failed", "skipped": "dim", "cancelled": "warned"}


def _render_start(event: FlowStarted, say: Words, _: Who) -> Line:
    text = "flow {flow} continues" if event.resumed else "flow {flow} begins"
    return line(Span("══ ", "rule"), say.spans(text, flow=escape_line(event.flow)), hang=3)


def _render_attempt(event: StepStarted, say: Words, _: Who) -> Line | None:
    """Return the line of a later attempt; the end of a step says what its start would."""
    if event.attempt == 1:
        return None
    text = "step {step}: attempt {attempt}"
    step = escape_line(event.step)
    return line(INDENT, say.spans(text, "dim", step=step, attempt=event.attempt), hang=4)


def _render_step(event: StepFinished, say: Words, _: Who) -> Line:
    seconds = f"{event.ms / 1000:.1f}"
    spans = say.spans(
        "step {step} ({kind}) {status} · {seconds} s",
        step=escape_line(event.step),
        kind=escape_line(event.kind),
        status=[Span(say.enum(event.status), _STYLES[event.status])],
        seconds=seconds,
    )
    error = shorten_text(event.error or "", _LONGEST)
    detail = Span(f"{say(': ')}{escape_line(error)}" if error else "")
    return line(INDENT, spans, detail, hang=4)


def _render_reflection(event: Reflected, say: Words, who: Who) -> Line:
    by = who(event.by)
    if event.error is not None:
        text = "{who} gave no assessment: {error}"
        return line(INDENT, say.spans(text, who=by, error=escape_line(event.error)), hang=4)
    text = "{who}: {assessment}"
    if event.should_retry:
        text = "{who} asks to run the failed steps again: {assessment}"
    return line(INDENT, say.spans(text, who=by, assessment=escape_line(event.assessment)), hang=4)


def _render_end(event: FlowFinished, say: Words, _: Who) -> Line:
    texts = {
        "success": say("the flow has ended"),
        "failed": say("the flow failed"),
        "paused": say("the flow waits for a person"),
    }
    style = {"success": "added", "failed": "failed", "paused": "warned"}[event.status]
    where = ", ".join((*event.failed, *event.waits))
    detail = Span(f"{say(': ')}{escape_line(where)}" if where else "")
    return line(Span("══ ", "rule"), Span(texts[event.status], style), detail, hang=3)


RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line | None]] = {
    FlowStarted: _render_start,
    StepStarted: _render_attempt,
    StepFinished: _render_step,
    Reflected: _render_reflection,
    FlowFinished: _render_end,
}
