"""The lines of the events of planned chains, for timelines and pages; see `reports.event_lines`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from arena_cli.reports.lines import INDENT, Line, Span, Who, Words, line
from arena_cli.transcript.events import Event
from arena_cli.transcript.plan_events import Delivered, PlanMade
from arena_cli.util.text import escape_line, shorten_text

_LONGEST_TASK = 160


def render_plan(event: PlanMade, say: Words, who: Who) -> Line:
    """Return the line of a plan: the mode, or why there is none."""
    values: dict[str, int | str | list[Span]] = {
        "who": who(event.agent),
        "mode": [Span(say.enum(event.mode), "strong")],
        "confidence": f"{event.confidence:g}",
        "count": len(list(event.steps)),
    }
    text = "{who} plans: {mode}, {count} steps, confidence {confidence}"
    if len(list(event.steps)) == 1:
        text = "{who} plans: {mode}, 1 step, confidence {confidence}"
    style = "dim"
    if event.refused:
        text, style = "the plan of {who} is refused: {why}", "failed"
        values["why"] = say.message(escape_line(event.refused))
    elif event.fallback:
        text, style = "no plan of {who}, {agent} does it alone: {why}", "warned"
        values["why"] = say.message(escape_line(event.fallback))
        agents = event.agents
        values["agent"] = who(agents[0]) if agents else say("no agent")
    spans = list(say.spans(text, style, **values))
    if event.reasoning and not event.fallback:
        spans.append(Span(f"{say(': ')}{escape_line(event.reasoning)}", "dim"))
    return line(INDENT, spans, hang=4)


def list_steps(event: PlanMade, say: Words, who: Who) -> Iterator[Line]:
    """Yield the lines below a plan: its phases with their steps, checkpoints and risks."""
    for problem in event.failed:
        yield _draw("planned again, since {why}", say, "warned", why=escape_line(problem))
    if event.fallback or event.refused:
        return
    for phase in event.phases:
        yield _draw("phase {name}", say, name=[Span(escape_line(phase.name), "strong")])
        for step in phase.steps:
            spans = [Span(escape_line(step.id)), Span(" · "), *_name(who(step.agent))]
            task = escape_line(shorten_text(" ".join(step.task.split()), _LONGEST_TASK))
            spans.append(Span(f" · {task}"))
            if step.needs:
                needs = say(", ").join(map(escape_line, step.needs))
                spans.append(Span(f" · {say('needs {steps}', steps=needs)}", "dim"))
            yield line(INDENT * 3, spans, hang=8)
    if event.checkpoints:
        labels = say(", ").join(map(escape_line, event.checkpoints))
        yield _draw("checkpoints: {labels}", say, labels=labels)
    facts = [say("{count} steps", count=event.estimated_steps)] if event.estimated_steps else []
    facts += [escape_line(event.estimated_duration)] if event.estimated_duration else []
    if facts:
        yield _draw("estimated: {facts}", say, facts=say(", ").join(facts))
    for risk in event.risks:
        yield _draw("risk: {risk}", say, risk=escape_line(risk))
    if event.ignored:
        parts = say("; ").join(say.message(escape_line(part)) for part in event.ignored)
        yield _draw("ignored: {parts}", say, parts=parts)


def _draw(text: str, say: Words, style: str = "dim", /, **values: str | int | list[Span]) -> Line:
    return line(INDENT * 2, say.spans(text, style, **values), hang=6)


def _name(name: list[Span] | str) -> list[Span]:
    return [Span(name)] if isinstance(name, str) else name


def _render_delivery(event: Delivered, say: Words, _: Who) -> Line:
    names = say(", ").join(map(escape_line, event.files))
    text = "delivered in {folder}: {files}"
    folder = [Span(escape_line(event.folder), "strong")]
    return line(INDENT, say.spans(text, folder=folder, files=names), hang=4)


DETAILS: Mapping[type[Event], Callable[[Any, Words, Who], Iterator[Line]]] = {PlanMade: list_steps}
"""The lines that are indented below that of an event."""

RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line | None]] = {
    PlanMade: render_plan,
    Delivered: _render_delivery,
}
