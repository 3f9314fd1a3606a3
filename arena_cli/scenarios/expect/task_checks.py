"""Check the tasks of a session: how each ended, or for what it waits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.util.text import cut_text
from arena_cli.yamlio.nodes import Loc

if TYPE_CHECKING:
    from arena_cli.scenarios.expect.model import TaskRow
    from arena_cli.transcript.task_events import Task

_SHOWN = 300


def list_agents(expected: Mapping[str, str | TaskRow]) -> Iterator[tuple[Loc, str]]:
    """Yield every agent id of these rows, with its place in the expectations."""
    for task, row in expected.items():
        if not isinstance(row, str) and row.agent:
            yield ("tasks", task, "agent"), row.agent


def check_tasks(expected: Mapping[str, str | TaskRow]) -> Iterator[Check]:
    """Yield the checks on the tasks, by id."""
    for task, row in expected.items():
        if isinstance(row, str):
            yield Check((task,), functools.partial(_has, task, "status", row))
            continue
        for field in ("status", "agent", "attempts"):
            if field in row.model_fields_set:
                check = functools.partial(_has, task, field, getattr(row, field))
                yield Check((task, field), check)


def _has(task: str, field: str, value: str | int, conversation: CheckContext) -> Verdict:
    board = conversation.tasks
    found = board.tasks.get(task) if board else None
    facts: dict[str, str | int] = {"status": "none", "agent": "", "attempts": 0}
    if found is not None:
        facts = {
            "status": found.status,
            "agent": found.assigned_to,
            "attempts": found.attempts,
        }
    expected = f"{task} {value}" if field == "status" else f"{task} {field} {value}"
    return Verdict(facts[field] == value, expected, _describe(task, conversation))


def _describe(task: str, conversation: CheckContext) -> str:
    """Return the task as it is, and the others."""
    tasks = conversation.tasks.tasks if conversation.tasks else {}
    if not tasks:
        return "no task"
    others = [f"{one.id} {one.status}" for one in tasks.values() if one.id != task]
    found = tasks.get(task)
    lines = [_describe_task(found) if found else f"{task} none"]
    return "\n".join([*lines, f"(others: {', '.join(others)})"] if others else lines)


def _describe_task(task: Task) -> str:
    facts = [f"{task.id} {task.status}"]
    if task.assigned_to:
        facts.append(f"agent {task.assigned_to}")
    if task.attempts != 1:
        facts.append(f"attempts {task.attempts}")
    text = task.error or task.result
    return " · ".join(facts) + (f": {cut_text(text, _SHOWN)}" if text else "")
