"""The tools by which an agent reads tasks, adds them and changes them.

What it adds and changes is written when its turn ends (`engine.task_ends`), from the calls that
were accepted: so it takes effect once, however often the work is interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arena_cli.engine import task_changes, task_ends
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.task_changes import TaskDraft, fold_title, get_board
from arena_cli.engine.tasks import list_started_by
from arena_cli.engine.toolbox import EngineTool, make_schema
from arena_cli.protocol import TASK_LIST, TASK_UPDATE, ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript.task_events import ENDED, Task
from arena_cli.util.text import cut_text
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member

LONGEST_SHOWN = 500
"""Characters of a description or result in the list of tasks."""

MOST_SHOWN = 50

_TEXT = {"type": "string"}

_SPECS = {
    TASK_LIST: ToolSpec(
        name=TASK_LIST,
        description="List the tasks of this session: first those that have not ended. With "
        "`mine`, only yours.",
        input_schema=make_schema(mine={"type": "boolean"}),
    ),
    TASK_UPDATE: ToolSpec(
        name=TASK_UPDATE,
        description="Add a task (`action` add, with a `title`), or change one: progress (with "
        "`percent`), complete, block, help, fail, pass (hand it back), assign (`to` an agent), "
        "unblock, cancel. Without `id` it is the task you work on. It takes effect when your "
        "turn ends. `needs` are ids of tasks, or titles of tasks that you have added just now.",
        input_schema=make_schema(
            ["action"],
            action={"type": "string", "enum": ["add", *task_ends.AGENT_ACTIONS]},
            id={"type": "string", "description": "the id of the task, such as t3"},
            text={
                "type": "string",
                "description": "the result, the error, the question, or what it waits for",
            },
            percent={"type": "integer", "minimum": 0, "maximum": 100},
            to={"type": "string", "description": "the id of an agent"},
            title=_TEXT,
            description=_TEXT,
            type=_TEXT,
            priority={"type": "integer", "description": "the highest comes first"},
            needs={"type": "array", "items": _TEXT},
            assigned_to={"type": "string", "description": "the id of an agent"},
        ),
    ),
}


class TaskSource:
    """The tools for tasks of a session's agents."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tool of that name for an agent."""
        desk = _TaskAnswers(self._room, member)
        runs = {TASK_LIST: desk.list_tasks, TASK_UPDATE: desk.update}
        return [EngineTool(_SPECS[entry], runs[entry])] if isinstance(entry, str) else []


class _TaskAnswers:
    """Answers the calls of one agent; a call that is repeated says the same again."""

    def __init__(self, room: Room, member: Member) -> None:
        self._room = room
        self._member = member

    async def update(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Check a change of the tasks."""
        planned: Planned | None = scope.planned
        if planned is None or "." in scope.call or planned.agent != self._member.id:
            raise ToolFailed("tasks can be changed only within a reply of your own")
        if arguments["action"] == "add":
            return await self._add(arguments, planned)
        return await self._change(arguments, planned)

    async def list_tasks(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        """Return the tasks of the session, or those of the agent."""
        tasks = [
            task
            for task in get_board(self._room).tasks.values()
            if not arguments.get("mine") or task.assigned_to == self._member.id
        ]
        if not tasks:
            return ToolOutput("there is no task")
        tasks.sort(key=lambda task: (task.status in ENDED, -task.priority, task.number))
        shown = [_describe(task) for task in tasks[:MOST_SHOWN]]
        more = len(tasks) - len(shown)
        text = json.dumps(shown, ensure_ascii=False)
        return ToolOutput(f"{text}\n(and {more} more)" if more else text)

    async def _add(self, arguments: Mapping[str, Any], planned: Planned) -> ToolOutput:
        draft, problem = task_ends.read_task(arguments)
        if draft is None:
            raise ToolFailed(problem)
        earlier = self._list_added(planned)
        titles = {fold_title(added.title) for added in earlier}
        if fold_title(draft.title) in titles and draft not in earlier:
            raise ToolFailed("another task of the list has this title")
        depth = task_ends.find_depth(planned.agent, self._find_work(planned), self._room)
        if problem := task_ends.find_depth_fault(depth, self._room):
            raise ToolFailed(problem)
        drafts = [added for added in earlier if added != draft]
        _, refused = task_changes.resolve_drafts([*drafts, draft], self._room)
        for other, reason in refused:
            if other == draft:
                raise ToolFailed(reason)
        await self._check_rules(task_ends.describe_draft(draft, self._member.id))
        return ToolOutput(f"noted: the task {draft.title!r} is added when your turn ends")

    async def _change(self, arguments: Mapping[str, Any], planned: Planned) -> ToolOutput:
        action, problem = task_ends.read_action(arguments)
        if action is None:
            raise ToolFailed(problem)
        board, work = get_board(self._room), self._find_work(planned)
        if any(
            fold_title(draft.title) == fold_title(action.task)
            for draft in self._list_added(planned)
        ):
            raise ToolFailed("this task is added when your turn ends: give `assigned_to` with it")
        task = board.tasks.get(action.task or work)
        if problem := task_ends.find_action_fault(action, task, self._member.id, self._room):
            raise ToolFailed(problem)
        assert task is not None
        decision = task_ends.describe_action(action, task, self._member.id)
        await self._check_rules(decision)
        return ToolOutput(
            f"noted: {action.action} of task {task.id} takes effect when your turn ends"
        )

    async def _check_rules(self, decision: dict[str, Any]) -> None:
        """Check that the team's rules allow a change; it is written down at the turn's end."""
        control = self._room.control.current
        if control is not None and (reason := await control.find_task_fault(decision)):
            raise ToolFailed(f"not allowed: {reason}", "denied")

    def _list_added(self, planned: Planned) -> Sequence[TaskDraft]:
        """Return the tasks that the reply has added so far."""
        chain = self._room.scene.fold.open
        events = chain.turns[-1].side_events if chain and chain.turns else ()
        return task_ends.read_entries(
            None, planned.reply, events, self._room.runtime.redactor
        ).drafts

    def _find_work(self, planned: Planned) -> str:
        """Return the id of the task on which the agent works; "" if it works on none."""
        chain = self._room.scene.fold.open
        return list_started_by(chain, [planned.agent]).get(planned.agent, "") if chain else ""


def _describe(task: Task) -> dict[str, Any]:
    """Return a task as its agents are shown it, without what is empty."""
    fields = {
        "id": task.id,
        "title": task.title,
        "status": task.status,
        "type": task.type,
        "priority": task.priority,
        "assigned_to": task.assigned_to,
        "needs": task.needs,
        "description": cut_text(task.description, LONGEST_SHOWN),
        "result": cut_text(task.result, LONGEST_SHOWN),
        "error": cut_text(task.error, LONGEST_SHOWN),
    }
    return {name: value for name, value in fields.items() if value}
