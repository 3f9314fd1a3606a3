"""The steps of scenarios that change a task, or let the team work on tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field, model_validator

from arena_cli.scenarios.expect.values import AgentId, TaskId
from arena_cli.session.outgoing import USER
from arena_cli.yamlio.shapes import FileShape

if TYPE_CHECKING:
    from arena_cli.scenarios.model import Step
    from arena_cli.session.session import Session
    from arena_cli.transcript.task_events import TaskBoard

Text = Annotated[str, Field(pattern=r"\S")]


class AddedTask(FileShape):
    """A task that a person adds; `needs` are the ids of tasks that are completed before it."""

    title: Text
    description: str = ""
    type: str = ""
    priority: int = 0
    needs: list[TaskId] = []
    assign: AgentId | None = None


class AssignedTask(FileShape):
    """A task that a person gives to an agent."""

    task: TaskId
    agent: AgentId


class NamedTask(FileShape):
    """A task that a person blocks, unblocks or cancels, and why."""

    task: TaskId
    because: str = ""


class DoneTask(FileShape):
    """A task that a person completes, with its result."""

    task: TaskId
    result: str = ""


class TaskChange(NamedTuple):
    """A change of a task: the arguments of `Session.change_task`."""

    action: str
    task: str
    agent: str = ""
    text: str = ""
    facts: Mapping[str, Any] = MappingProxyType({})


_ACTIONS = ("add", "assign", "block", "unblock", "done", "cancel")


class TaskStep(FileShape):
    """What a person does to a task of the session: one of these."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [action]} for action in _ACTIONS]}
    )

    add: AddedTask | None = None
    assign: AssignedTask | None = None
    block: NamedTask | None = None
    unblock: TaskId | NamedTask | None = None
    done: TaskId | DoneTask | None = None
    cancel: TaskId | NamedTask | None = None

    @model_validator(mode="after")
    def _is_one(self) -> TaskStep:
        actions = [action for action in _ACTIONS if getattr(self, action) is not None]
        if len(actions) != 1:
            raise ValueError(f"`task` needs one of {', '.join(_ACTIONS)}; write each as a step")
        return self

    @property
    def agent(self) -> str:
        """The agent that it names; empty if it names none."""
        named = self.assign.agent if self.assign else self.add.assign if self.add else None
        return named or ""

    @property
    def agent_loc(self) -> tuple[str, str]:
        """The place of that agent below the key."""
        return ("assign", "agent") if self.assign else ("add", "assign")

    @property
    def change(self) -> TaskChange:
        """What it asks of the session."""
        if self.add is not None:
            facts = self.add.model_dump(exclude={"assign"})
            return TaskChange("add", "", self.add.assign or "", "", facts)
        if self.assign is not None:
            return TaskChange("reassign", self.assign.task, self.assign.agent)
        if isinstance(self.done, DoneTask):
            return TaskChange("complete", self.done.task, text=self.done.result)
        if self.done is not None:
            return TaskChange("complete", self.done)
        action = next(name for name in ("block", "unblock", "cancel") if getattr(self, name))
        named = getattr(self, action)
        if isinstance(named, NamedTask):
            return TaskChange(action, named.task, text=named.because)
        return TaskChange(action, named)

    @property
    def described(self) -> str:
        """The change as a text, by which a recorded step is found."""
        change = self.change
        return describe_change(change.action, change.facts.get("title", "") or change.task)


def describe_change(action: str, subject: str) -> str:
    """Return a change of a task as a text; `subject` is its id, or the title of a new one."""
    return f"task {action} {subject}"


class WorkStep(FileShape):
    """Limits of the work: tasks that are started at most, minutes, the ids of tasks."""

    max_tasks: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(default=None, gt=0)
    tasks: list[TaskId] = []


WORK = "work"
"""The text by which a recorded step that works on tasks is found."""


async def play_tasks(step: Step, session: Session) -> None:
    """Change a task as a person does, or let the team work. Raises UsageError or DiskRefused."""
    by = step.author or USER.id
    if step.task is not None:
        change = step.task.change
        session.change_task(
            change.action,
            change.task,
            by=by,
            agent=change.agent,
            text=change.text,
            facts=change.facts,
        )
    elif step.work is not None:
        limits = WorkStep() if step.work is True else step.work
        await session.work(
            by=by, tasks=limits.tasks, max_tasks=limits.max_tasks, minutes=limits.minutes
        )


def find_board(sessions: Iterable[Session | None]) -> TaskBoard | None:
    """Return the tasks of the first of these sessions that has any."""
    for session in sessions:
        control = session.journal.fold.control if session else None
        if control is not None and control.tasks is not None:
            return control.tasks
    return None
