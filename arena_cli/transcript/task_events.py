"""The events of tasks: work that people, agents and plans write down, and agents take.

They are read when a transcript holds one: a session without tasks never imports this module.
`TaskBoard` is what they add up to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from arena_cli.protocol import MessageRef, Position, Shape, Volatile, omitted
from arena_cli.transcript.control_events import ControlEvent, control_of, session_control_of
from arena_cli.util.graphs import find_circle

if TYPE_CHECKING:
    from arena_cli.transcript.conversation import Chain
    from arena_cli.transcript.events import Event
    from arena_cli.transcript.state import Fold

TaskStatus = Literal["pending", "running", "blocked", "completed", "failed", "cancelled"]
TaskAction = Literal[
    "add",
    "assign",
    "reassign",
    "start",
    "progress",
    "help",
    "pass",
    "complete",
    "block",
    "unblock",
    "fail",
    "retry",
    "cancel",
]

ENDED: frozenset[TaskStatus] = frozenset({"completed", "failed", "cancelled"})
"""The statuses of tasks on which nobody works any more."""

MOST_TASKS = 2_000
LONGEST_TITLE = 200
LONGEST_TYPE = 50

_STATUSES: Mapping[TaskAction, TaskStatus] = {
    "add": "pending",
    "start": "running",
    "complete": "completed",
    "block": "blocked",
    "unblock": "pending",
    "help": "pending",
    "pass": "pending",
    "fail": "failed",
    "retry": "pending",
    "cancel": "cancelled",
}


class TaskFacts(Shape):
    """What a task is, as it is added; `needs` are the ids of tasks that are completed before it.

    `step` and `phase` are those of the plan that it carries out, if it does. `note` is the id of
    the note that it was made from.
    """

    title: str = Field(min_length=1, max_length=LONGEST_TITLE)
    description: str = omitted("")
    type: str = Field(default="", max_length=LONGEST_TYPE, exclude_if=lambda name: not name)
    priority: int = omitted(0)
    needs: list[str] = omitted([])
    step: str = omitted("")
    phase: str = omitted("")
    note: str = omitted("")


class Task(TaskFacts):
    """A task of a session. Of those that are ready, that of the highest `priority` comes first.

    `by` added it, `depth` is 0 unless it was added in the work on another task. `passed` are the
    agents that handed it back, `attempts` the times that it was started. `error` is why it failed,
    or its last attempt did, or what it is blocked on. `created`, `started` and `ended` are times in
    ISO 8601.
    """

    id: str
    status: TaskStatus = "pending"
    assigned_to: str = ""
    result: str = ""
    error: str = ""
    by: str = ""
    depth: int = 0
    passed: list[str] = []
    attempts: int = 0
    percent: int | None = None
    created: str = ""
    started: str = ""
    ended: str = ""

    @property
    def number(self) -> int:
        """The number in its id."""
        return int(self.id.removeprefix("t"))


class TaskChanged(ControlEvent):
    """Something happened to a task. `by` is a person, an agent or `arena`.

    `facts` and `depth` belong to the action `add`. `to` is the agent that it is assigned to; with
    the action `start`, the one that works on it. `text` is the result, the error, or what it is
    blocked on; `reply` the reply in which it happened, `message` the one to the group about it.
    """

    type: Literal["task"] = "task"
    task: str
    action: TaskAction
    by: str
    to: str = omitted("")
    text: str = omitted("")
    percent: int | None = omitted(None)
    facts: TaskFacts | None = omitted(None)
    depth: int = omitted(0)
    reply: Annotated[int | None, Position] = omitted(None)
    message: Annotated[str | None, MessageRef] = omitted(None)

    def change_fold(self, fold: Fold) -> None:
        """Change the task on the board of the session."""
        control = session_control_of(fold)
        if control.tasks is None:
            control.tasks = TaskBoard()
        control.tasks.apply(self)


class WorkStarted(ControlEvent):
    """The open chain works on tasks: on those of `tasks`, or on all if the list is empty.

    It starts at most `max_tasks`, and none after `until`, a time in ISO 8601.
    """

    type: Literal["work_started"] = "work_started"
    chain: Annotated[int, Position]
    by: str
    tasks: list[str] = omitted([])
    max_tasks: int | None = omitted(None)
    until: Annotated[str | None, Volatile] = omitted(None)

    def change_chain(self, chain: Chain) -> None:
        """Let the chain work on tasks; a later event replaces an earlier one."""
        control_of(chain).work = self


class TaskBoard:
    """The tasks of a session by id, in the order in which they were added."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.tasks: dict[str, Task] = {}
        self._open: dict[str, None] = {}
        self._by_agent: dict[str, dict[str, None]] = {}
        for task in tasks:
            self._put(task)

    @classmethod
    def read(cls, events: Iterable[Event]) -> TaskBoard:
        """Return the board that these events of a session add up to."""
        board = cls()
        for event in events:
            if isinstance(event, TaskChanged):
                board.apply(event)
            elif event.type == "chain_finished":
                board.release()
        return board

    def apply(self, event: TaskChanged) -> None:
        """Apply a change; one of a task that is not there changes nothing."""
        if event.action == "add" and event.facts is not None:
            facts = event.facts.model_dump()
            task = Task(
                **facts,
                id=event.task,
                by=event.by,
                depth=event.depth,
                assigned_to=event.to,
                created=event.ts,
            )
            self._put(task)
            return
        known = self.tasks.get(event.task)
        if known is not None:
            self._put(known.model_copy(update=_list_changes(known, event)))

    def release(self) -> None:
        """Let the tasks on which agents work wait again: their chain has ended without them."""
        for task in self.list_running():
            self._put(task.model_copy(update={"status": "pending"}))

    def _put(self, task: Task) -> None:
        """Set a task, and keep the lists of those that are open, and of each agent's."""
        known = self.tasks.get(task.id)
        self.tasks[task.id] = task
        if known is not None and known.assigned_to != task.assigned_to:
            self._by_agent[known.assigned_to].pop(task.id, None)
        self._by_agent.setdefault(task.assigned_to, {})[task.id] = None
        if task.status in ENDED:
            self._open.pop(task.id, None)
        else:
            self._open[task.id] = None

    def list_of(self, agent: str) -> list[Task]:
        """Return the tasks that are assigned to an agent, in the order in which they were added."""
        tasks = [self.tasks[name] for name in self._by_agent.get(agent, ())]
        return sorted(tasks, key=lambda task: task.number)

    def list_running(self) -> list[Task]:
        """Return the tasks on which agents work."""
        return [task for task in self.list_open() if task.status == "running"]

    def unmet(self, task: Task) -> list[str]:
        """Return the ids of the tasks that it needs and that are not completed."""
        return [name for name in task.needs if not self._is_completed(name)]

    def _is_completed(self, name: str) -> bool:
        task = self.tasks.get(name)
        return task is not None and task.status == "completed"

    def list_ready(self, among: Sequence[str] = ()) -> list[Task]:
        """Return the pending tasks whose needs are completed: in order of priority, then of age.

        `among` are the ids to choose from; empty: all.
        """
        names = among or self._open
        ready = [
            task
            for name in names
            if (task := self.tasks.get(name)) and task.status == "pending" and not self.unmet(task)
        ]
        return sorted(ready, key=lambda task: (-task.priority, task.number))

    def list_open(self, among: Sequence[str] = ()) -> list[Task]:
        """Return the tasks that have not ended, in the order in which they were added."""
        names = [name for name in among if name in self._open] if among else self._open
        return sorted((self.tasks[name] for name in names), key=lambda task: task.number)

    def find_circle(self, needs: Mapping[str, Sequence[str]]) -> list[str]:
        """Return ids of tasks that need each other, the first one again at the end; or none.

        `needs` are those of tasks to come, in addition to those on the board.
        """
        return find_circle({task.id: task.needs for task in self.tasks.values()} | {**needs})

    def record(self) -> list[dict[str, Any]]:
        """Return the tasks as JSON."""
        return [task.model_dump() for task in self.tasks.values()]

    @classmethod
    def restore(cls, record: Iterable[Mapping[str, Any]]) -> TaskBoard:
        """Return the recorded board. Raises ValueError if it has another shape."""
        return cls(Task.model_validate(task) for task in record)


def get_board(fold: Fold) -> TaskBoard:
    """Return the tasks of a session, which may be none."""
    return (fold.control.tasks if fold.control else None) or TaskBoard()


def _list_changes(task: Task, event: TaskChanged) -> dict[str, Any]:
    """Return the fields of a task that an event changes."""
    changes: dict[str, Any] = {}
    if event.action in _STATUSES:
        changes["status"] = _STATUSES[event.action]
    if event.action in ("assign", "reassign"):
        changes |= {"assigned_to": event.to, "passed": []}
        if task.status == "running":
            changes["status"] = "pending"
    match event.action:
        case "start":
            started = {"started": event.ts, "percent": None}
            changes |= {**started, "assigned_to": event.to, "attempts": task.attempts + 1}
        case "progress":
            changes["percent"] = event.percent
        case "pass":
            changes |= {"assigned_to": "", "passed": [*task.passed, event.by]}
        case "complete":
            changes |= {"result": event.text, "error": "", "ended": event.ts}
        case "block" | "help" | "retry":
            changes["error"] = event.text
        case "unblock":
            changes |= {"error": "", "attempts": 0, "passed": [], "ended": ""}
        case "fail" | "cancel":
            changes |= {"error": event.text, "ended": event.ts}
        case _:
            pass
    return changes
