"""Tasks in reports: the lines of their events, and the rows of their table.

A system message reports what agents do to a task; the event has no line then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from arena_cli.reports.columns import fit, width_of
from arena_cli.reports.lines import INDENT, Line, Span, Who, Words, line, local_time
from arena_cli.transcript.events import Event
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
    text = (
        "work on tasks {tasks} begins, by {who}"
        if event.tasks
        else "work on tasks begins, by {who}"
    )
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
    for row in (
        escape_text(shorten_text(text.strip(), _LONGEST)).split("\n") if text.strip() else ()
    ):
        yield line(INDENT * 2, Span("| ", "dim"), row, hang=6)


def _join(tasks: Sequence[str], say: Words) -> str:
    return say(", ").join(map(escape_line, tasks))


RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line | None]] = {
    TaskChanged: _render_change,
    WorkStarted: _render_work,
}

DETAILS: Mapping[type[Event], Callable[[Any, Words, Who], Iterator[Line]]] = {
    TaskChanged: _draw_texts,
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
            _as_text(who(task.assigned_to)) if task.assigned_to else "",
            escape_line(task.title),
            describe_state(task, board, say),
        )
        for task in tasks
    ]


def _as_text(name: list[Span] | str) -> str:
    return name if isinstance(name, str) else "".join(span.text for span in name)


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
        title = fit(row.title, titles)
        title += " " * (titles - width_of(title))
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
    padded = [
        cell + " " * (width - width_of(cell)) for cell, width in zip(cells, widths, strict=False)
    ]
    return INDENT.join([*padded, *cells[len(widths) :]])
