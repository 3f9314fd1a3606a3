"""The lines of the events of tasks, plans, flows and exchanges, and the table of tasks.

Timelines and pages show them; see `reports.event_lines`. A system message reports what agents do
to a task; the event has no line then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from arena_cli.reports.columns import fit, pad, width_of
from arena_cli.reports.lines import (
    BETWEEN,
    INDENT,
    Line,
    Span,
    Who,
    Words,
    as_spans,
    count_of,
    line,
    local_time,
)
from arena_cli.transcript.events import Event
from arena_cli.transcript.exchange_events import ExchangeFinished, ExchangeStarted, ExchangeTimedOut
from arena_cli.transcript.flow_events import (
    FlowFinished,
    FlowStarted,
    Reflected,
    StepFinished,
    StepStarted,
)
from arena_cli.transcript.plan_events import Delivered, PlanMade
from arena_cli.transcript.task_events import (
    Task,
    TaskAction,
    TaskBoard,
    TaskChanged,
    TaskStatus,
    WorkStarted,
)
from arena_cli.util.text import escape_line, escape_text, shorten_text

STATUSES: tuple[TaskStatus, ...] = (
    "running",
    "pending",
    "blocked",
    "completed",
    "failed",
    "cancelled",
)
"""The statuses in the order in which counts name them."""

_LONGEST = 400
_NARROWEST_TITLE = 16

_TEXTS: Mapping[TaskAction, str] = {
    "add": "task {task} by {who}: {title}",
    "assign": "task {task} is for {agent}, by {who}",
    "reassign": "task {task} is for {agent} now, by {who}",
    "start": "task {task} begins: {agent}",
    "progress": "{who} works on task {task}, done: {percent} %",
    "help": "task {task}: {who} asks for help",
    "pass": "task {task}: {who} hands it back",
    "complete": "task {task} is completed by {who}",
    "block": "task {task} is blocked by {who}",
    "unblock": "task {task} is unblocked by {who}",
    "fail": "task {task} failed, by {who}",
    "retry": "task {task} will be tried again",
    "cancel": "task {task} is cancelled by {who}",
}
_MARKS: Mapping[TaskAction, Span] = {
    "complete": Span("✓ ", "added"),
    "block": Span("! ", "warned"),
    "help": Span("? ", "warned"),
    "fail": Span("✗ ", "failed"),
    "cancel": Span("✗ ", "dim"),
}


def _render_change(event: TaskChanged, say: Words, who: Who) -> Line | None:
    if event.message is not None:
        return None  # the message says it
    facts = event.facts
    by = say("arena") if event.by == "arena" else who(event.by)
    title = [Span(escape_line(facts.title), "strong")] if facts else ""
    values: dict[str, int | str | list[Span]] = {
        "task": escape_line(event.task),
        "who": by,
        "agent": who(event.to) if event.to else say("any agent"),
        "title": title,
        "percent": event.percent or 0,
    }
    spans = list(say.spans(_TEXTS[event.action], **values))
    if event.text and event.action != "complete":
        spans.append(Span(f"{say(': ')}{escape_line(shorten_text(event.text, _LONGEST))}"))
    for fact in _list_facts(event, say, who) if facts else ():
        spans += [Span(" · ", "dim"), *fact]
    return line(INDENT, _MARKS.get(event.action, Span("▫ ", "dim")), spans, hang=4)


def _list_facts(event: TaskChanged, say: Words, who: Who) -> Iterator[list[Span]]:
    """Yield what is known of a task that is added, except its title."""
    facts = event.facts
    assert facts is not None
    if facts.type:
        yield [Span(escape_line(facts.type), "dim")]
    if facts.priority:
        yield [Span(say("priority {priority}", priority=facts.priority), "dim")]
    if facts.needs:
        yield [Span(say("needs {tasks}", tasks=_join(facts.needs, say)), "dim")]
    if event.to:
        yield [*say.spans("for {agent}", "dim", agent=who(event.to))]
    if facts.phase:
        yield [Span(escape_line(facts.phase), "dim")]


def _render_work(event: WorkStarted, say: Words, who: Who) -> Line | None:
    if not event.tasks and event.max_tasks is None and event.until is None:
        return None  # the message that opens the chain says it
    text = "work on tasks begins, by {who}"
    if event.tasks:
        text = "work on tasks {tasks} begins, by {who}"
    spans = list(say.spans(text, tasks=_join(event.tasks, say), who=who(event.by)))
    if event.max_tasks is not None:
        spans += [Span(" · ", "dim"), Span(say("at most {count} tasks", count=event.max_tasks))]
    if event.until is not None:
        spans += [Span(" · ", "dim"), Span(say("until {time}", time=local_time(event.until)))]
    return line(Span("── ", "rule"), spans, hang=3)


def _draw_texts(event: TaskChanged, _: Words, __: Who) -> Iterator[Line]:
    """Yield the description of a task that is added, or the result that a person gives."""
    if event.message is not None:
        return
    text = event.facts.description if event.facts else ""
    if event.action == "complete":
        text = event.text
    shown = escape_text(shorten_text(text.strip(), _LONGEST))
    for row in shown.split("\n") if shown else ():
        yield line(INDENT * 2, Span("| ", "dim"), row, hang=6)


def _join(tasks: Sequence[str], say: Words) -> str:
    return say(", ").join(map(escape_line, tasks))


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


def list_plan(event: PlanMade, say: Words, who: Who) -> Iterator[Line]:
    """Yield the lines below a plan: its phases with their steps, checkpoints and risks."""
    for problem in event.failed:
        yield _draw_fact("planned again, since {why}", say, "warned", why=escape_line(problem))
    if event.fallback or event.refused:
        return
    for phase in event.phases:
        yield _draw_fact("phase {name}", say, name=[Span(escape_line(phase.name), "strong")])
        for step in phase.steps:
            spans = [Span(escape_line(step.id)), Span(" · "), *as_spans(who(step.agent))]
            task = escape_line(shorten_text(" ".join(step.task.split()), _LONGEST_TASK))
            spans.append(Span(f" · {task}"))
            if step.needs:
                needs = say(", ").join(map(escape_line, step.needs))
                spans.append(Span(f" · {say('needs {steps}', steps=needs)}", "dim"))
            yield line(INDENT * 3, spans, hang=8)
    if event.checkpoints:
        labels = say(", ").join(map(escape_line, event.checkpoints))
        yield _draw_fact("checkpoints: {labels}", say, labels=labels)
    facts = [say("{count} steps", count=event.estimated_steps)] if event.estimated_steps else []
    facts += [escape_line(event.estimated_duration)] if event.estimated_duration else []
    if facts:
        yield _draw_fact("estimated: {facts}", say, facts=say(", ").join(facts))
    for risk in event.risks:
        yield _draw_fact("risk: {risk}", say, risk=escape_line(risk))
    if event.ignored:
        parts = say("; ").join(say.message(escape_line(part)) for part in event.ignored)
        yield _draw_fact("ignored: {parts}", say, parts=parts)


def _draw_fact(
    text: str, say: Words, style: str = "dim", /, **values: str | int | list[Span]
) -> Line:
    return line(INDENT * 2, say.spans(text, style, **values), hang=6)


def _render_delivery(event: Delivered, say: Words, _: Who) -> Line:
    names = say(", ").join(map(escape_line, event.files))
    text = "delivered in {folder}: {files}"
    folder = [Span(escape_line(event.folder), "strong")]
    return line(INDENT, say.spans(text, folder=folder, files=names), hang=4)


_STEP_STYLES = {"success": "added", "failed": "failed", "skipped": "dim", "cancelled": "warned"}


def _render_flow(event: FlowStarted, say: Words, _: Who) -> Line:
    text = "flow {flow} continues" if event.resumed else "flow {flow} begins"
    return line(Span("══ ", "rule"), say.spans(text, flow=escape_line(event.flow)), hang=3)


def _render_attempt(event: StepStarted, say: Words, _: Who) -> Line | None:
    """Return the line of a later attempt; the end of a step says what its start would."""
    if event.attempt == 1:
        return None
    text = "step {step}: attempt {attempt}"
    step = escape_line(event.step)
    return line(INDENT, say.spans(text, "dim", step=step, attempt=event.attempt), hang=4)


def _render_step_end(event: StepFinished, say: Words, _: Who) -> Line:
    seconds = f"{event.ms / 1000:.1f}"
    spans = say.spans(
        "step {step} ({kind}) {status} · {seconds} s",
        step=escape_line(event.step),
        kind=escape_line(event.kind),
        status=[Span(say.enum(event.status), _STEP_STYLES[event.status])],
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


def _render_flow_end(event: FlowFinished, say: Words, _: Who) -> Line:
    texts = {
        "success": say("the flow has ended"),
        "failed": say("the flow failed"),
        "paused": say("the flow waits for a person"),
    }
    style = {"success": "added", "failed": "failed", "paused": "warned"}[event.status]
    where = ", ".join((*event.failed, *event.waits))
    detail = Span(f"{say(': ')}{escape_line(where)}" if where else "")
    return line(Span("══ ", "rule"), Span(texts[event.status], style), detail, hang=3)


def _render_exchange(event: ExchangeStarted, say: Words, who: Who) -> Line:
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


def _render_exchange_end(event: ExchangeFinished, say: Words, _: Who) -> Line:
    text = "exchange {number} has ended: {end}, {answers}"
    if event.announced:
        text = "exchange {number} has ended: {end}, {answers}, announced"
    answers = count_of(say, event.turns, "1 answer", "{count} answers")
    end = Span(
        say.enum(event.end), "failed" if event.end in ("timeout", "error", "refused") else ""
    )
    spans = list(say.spans(text, number=escape_line(event.exchange), end=[end], answers=answers))
    if event.reason:
        reason = " ".join(say.message(event.reason).split())
        spans.append(Span(f"{say(': ')}{escape_line(reason)}"))
    return line(INDENT, Span("└ ", "rule"), spans, hang=4)


RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line | None]] = {
    TaskChanged: _render_change,
    WorkStarted: _render_work,
    PlanMade: render_plan,
    Delivered: _render_delivery,
    FlowStarted: _render_flow,
    StepStarted: _render_attempt,
    StepFinished: _render_step_end,
    Reflected: _render_reflection,
    FlowFinished: _render_flow_end,
    ExchangeStarted: _render_exchange,
    ExchangeTimedOut: _render_time_out,
    ExchangeFinished: _render_exchange_end,
}

DETAILS: Mapping[type[Event], Callable[[Any, Words, Who], Iterator[Line]]] = {
    TaskChanged: _draw_texts,
    PlanMade: list_plan,
}
"""The lines that are indented below that of an event."""


def count_tasks(board: TaskBoard) -> dict[TaskStatus, int]:
    """Return the number of tasks of each status that a task has."""
    counts: dict[TaskStatus, int] = dict.fromkeys(STATUSES, 0)
    for task in board.tasks.values():
        counts[task.status] += 1
    return {status: count for status, count in counts.items() if count}


def describe_counts(counts: Mapping[TaskStatus, int], say: Words) -> str:
    """Return `1 running, 2 pending`."""
    return say(", ").join(f"{count} {say.enum(status)}" for status, count in counts.items())


def describe_state(task: Task, board: TaskBoard, say: Words) -> str:
    """Return what a task waits for, or why it ended so; empty if there is nothing to tell."""
    if task.status == "blocked":
        return say("waits: {why}", why=escape_line(task.error)) if task.error else say("waits")
    if task.status in ("failed", "cancelled"):
        return say.message(escape_line(task.error))
    if task.status == "running":
        return say("done: {percent} %", percent=task.percent) if task.percent is not None else ""
    if task.status == "completed":
        return ""
    unmet = board.unmet(task)
    if unmet:
        return say("waits for {tasks}", tasks=say(", ").join(_name_unmet(unmet, board, say)))
    return escape_line(task.error)


def _name_unmet(tasks: Sequence[str], board: TaskBoard, say: Words) -> Iterator[str]:
    for name in tasks:
        needed = board.tasks.get(name)
        # A person has to do something about these; the others will come.
        is_stuck = needed is not None and needed.status in ("blocked", "failed", "cancelled")
        shown = escape_line(name)
        yield f"{shown} ({say.enum(needed.status)})" if needed and is_stuck else shown


class ListedTask(NamedTuple):
    """A task as a row of a table, all of it escaped text."""

    task: str
    status: TaskStatus
    priority: str
    agent: str
    title: str
    state: str


def list_rows(tasks: Sequence[Task], board: TaskBoard, say: Words, who: Who) -> list[ListedTask]:
    """Return the rows of tasks; `who` names agents."""
    return [
        ListedTask(
            escape_line(task.id),
            task.status,
            str(task.priority),
            "".join(span.text for span in as_spans(who(task.assigned_to)))
            if task.assigned_to
            else "",
            escape_line(task.title),
            describe_state(task, board, say),
        )
        for task in tasks
    ]


def draw_table(rows: Sequence[ListedTask], say: Words, width: int) -> Iterator[str]:
    """Yield the lines of a table of tasks in `width` columns; long titles are cut."""
    heads, *cells = _list_cells(rows, say)
    columns = [max(map(width_of, column)) for column in zip(heads, *cells, strict=True)]
    room = max(width - sum(columns) - len(INDENT) * len(columns), 2 * _NARROWEST_TITLE)
    titles = max([width_of(say("title")), *(width_of(row.title) for row in rows)])
    states = max([0, *(width_of(row.state) + len(INDENT) for row in rows if row.state)])
    if titles + states > room:  # the shorter of the two is whole, or each has half of the room
        titles = min(titles, max(room // 2, room - states))
    yield _pad([*heads, say("title")], columns).rstrip()
    for row, facts in zip(rows, cells, strict=True):
        title = pad(fit(row.title, titles), titles)
        state = fit(row.state, room - titles - len(INDENT)) if row.state else ""
        yield f"{_pad([*facts, title], columns)}{INDENT}{state}".rstrip()


def _list_cells(rows: Sequence[ListedTask], say: Words) -> Iterator[list[str]]:
    """Yield the cells before the titles, heads first; a column that says nothing is left out."""
    has_priorities = any(row.priority != "0" for row in rows)
    has_agents = any(row.agent for row in rows)
    heads = (say("task"), say("status"), say("priority"), say("agent"))
    lines = ((row.task, say.enum(row.status), row.priority, row.agent or "-") for row in rows)
    for cells in (heads, *lines):
        yield list(compress(cells, (True, True, has_priorities, has_agents)))


def _pad(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells side by side, all but the last as wide as their columns."""
    return INDENT.join([*map(pad, cells, widths), *cells[len(widths) :]])
