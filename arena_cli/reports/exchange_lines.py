"""The lines of exchanges, for timelines and pages; see `reports.event_lines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arena_cli.reports.lines import BETWEEN, INDENT, Line, Span, Who, Words, line
from arena_cli.transcript.events import Event
from arena_cli.transcript.exchange_events import ExchangeFinished, ExchangeStarted, ExchangeTimedOut
from arena_cli.util.text import escape_line


def _render_start(event: ExchangeStarted, say: Words, who: Who) -> Line:
    texts = {
        "wait": "exchange {number}: {who} asks {other} and waits",
        "notify": "exchange {number}: {who} asks {other}",
    }
    spans = say.spans(
        texts[event.mode],
        number=escape_line(event.exchange),
        who=who(event.requester),
        other=who(event.target),
    )
    urgent = [BETWEEN, Span(say("priority high"), "warned")] if event.priority == "high" else []
    return line(INDENT, Span("┌ ", "rule"), spans, urgent, hang=4)


def _render_time_out(event: ExchangeTimedOut, say: Words, who: Who) -> Line:
    spans = say.spans(
        "{who} waited {seconds} s in vain; exchange {number} goes on",
        who=who(event.requester),
        seconds=f"{event.wait_s:g}",
        number=escape_line(event.exchange),
    )
    return line(INDENT, Span("│ ", "rule"), spans, hang=4)


def _render_end(event: ExchangeFinished, say: Words, _: Who) -> Line:
    text = "exchange {number} has ended: {end}, {answers}"
    if event.announced:
        text = "exchange {number} has ended: {end}, {answers}, announced"
    answers = say("1 answer") if event.turns == 1 else say("{count} answers", count=event.turns)
    end = Span(say.enum(event.end), "failed" if event.end in _FAILED else "")
    spans = list(say.spans(text, number=escape_line(event.exchange), end=[end], answers=answers))
    if event.reason:
        reason = " ".join(say.message(event.reason).split())
        spans.append(Span(f"{say(': ')}{escape_line(reason)}"))
    return line(INDENT, Span("└ ", "rule"), spans, hang=4)


_FAILED = ("timeout", "error", "refused")

RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line]] = {
    ExchangeStarted: _render_start,
    ExchangeTimedOut: _render_time_out,
    ExchangeFinished: _render_end,
}
