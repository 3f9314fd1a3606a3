"""Add tasks and change them: what people ask for, checked before it is written.

`resolve_drafts` checks tasks that people, agents and plans add; `carry_out` a person's request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from arena_cli import errors
from arena_cli.engine import task_texts
from arena_cli.engine.inbox import ControlRequest
from arena_cli.engine.notices import write_notice
from arena_cli.engine.plan import Room
from arena_cli.errors import UsageError
from arena_cli.protocol import Message
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import MessageEvent
from arena_cli.transcript.task_events import (
    ENDED,
    LONGEST_TITLE,
    LONGEST_TYPE,
    MOST_TASKS,
    Task,
    TaskAction,
    TaskBoard,
    TaskChanged,
    TaskFacts,
)
from arena_cli.util.language import translate_message
from arena_cli.util.text import clean_text, cut_text, escape_line
from arena_cli.workspace.mentions import resolve_mentions

LONGEST_DESCRIPTION = 8_000
LONGEST_TEXT = 8_000
"""Characters of a result, of an error, and of what a task is blocked on."""

MOST_PRIORITY = 1_000_000
_LONGEST_NAME = 80

ARENA = "arena"
"""The author of changes that no person and no agent made."""


class TaskDraft(NamedTuple):
    """A task before it has an id; `needs` are ids, or titles of tasks that are added with it.

    `note` is the id of the note that it is made from.
    """

    title: str
    description: str = ""
    type: str = ""
    priority: int = 0
    needs: tuple[str, ...] = ()
    assigned_to: str = ""
    note: str = ""


class NewTask(NamedTuple):
    """A task that may be added, with the id that it gets."""

    id: str
    facts: TaskFacts
    assigned_to: str


def get_board(room: Room) -> TaskBoard:
    """Return the tasks of the session, which may be none."""
    control = room.scene.fold.control
    return (control.tasks if control else None) or TaskBoard()


def list_begotten(chain: Chain) -> list[str]:
    """Return the tasks that agents added in their replies of a chain, in order."""
    return [
        event.task
        for event in chain.events
        if isinstance(event, TaskChanged) and event.action == "add" and event.reply is not None
    ]


def fold_title(title: str) -> str:
    """Return a title as it is compared."""
    return " ".join(title.split()).casefold()


# Tasks to come.


def read_draft(fields: Any) -> tuple[TaskDraft | None, str]:
    """Return the task that a JSON object describes, or None and the reason why it is none."""
    if isinstance(fields, str):
        fields = {"title": fields}
    if not isinstance(fields, Mapping):
        return None, "a task is an object with a `title`"
    texts: dict[str, str] = {}
    for key in ("title", "description", "type", "assigned_to"):
        value = fields.get(key)
        if not isinstance(value, str | None):
            return None, f"`{key}` must be a text"
        texts[key] = clean_text(value or "")[0].strip()
    texts["title"] = " ".join(texts["title"].split())
    priority = _read_priority(fields.get("priority") or 0)
    if priority is None:
        return None, "`priority` is no whole number"
    needs = fields.get("needs") or []
    if isinstance(needs, str):
        needs = [needs]
    if not isinstance(needs, list | tuple) or not all(isinstance(name, str) for name in needs):
        return None, "`needs` must be a list of ids of tasks"
    names = tuple(dict.fromkeys(clean_text(name)[0].strip() for name in needs))
    return TaskDraft(**texts, priority=priority, needs=names), ""


def _read_priority(value: Any) -> int | None:
    """Return a priority, which JSON may write as 2.0; None if it is no integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def resolve_drafts(
    drafts: Sequence[TaskDraft], room: Room, *, known: Mapping[str, str] | None = None
) -> tuple[list[NewTask], list[tuple[TaskDraft, str]]]:
    """Return the tasks that may be added, and the others with the reasons.

    `known` are the ids of tasks that were added with them before, by title (`fold_title`).
    """
    board = get_board(room)
    titles = dict(known or {})
    refused: list[tuple[TaskDraft, str]] = []
    checked: dict[str, TaskDraft] = {}
    for draft in drafts:
        problem = _find_fault(draft, room)
        if not problem and fold_title(draft.title) in {*titles, *map(fold_title, checked)}:
            problem = "another task of the list has this title"
        if problem:
            refused.append((draft, problem))
        else:
            checked[draft.title] = draft
    while True:
        free = MOST_TASKS - len(board.tasks)
        first = len(board.tasks) + 1
        ids = {fold_title(title): f"t{first + at}" for at, title in enumerate(checked)}
        problems = _find_problems(checked, ids, titles, board, free)
        if not problems:
            break
        refused += [(checked.pop(title), problem) for title, problem in problems.items()]
    ids = {**titles, **ids}
    new = [
        NewTask(
            ids[fold_title(draft.title)],
            TaskFacts(
                **draft._replace(
                    needs=tuple(dict.fromkeys(_find_id(name, ids, board) for name in draft.needs))
                )._asdict()
            ),
            find_agent(draft.assigned_to, room) if draft.assigned_to else "",
        )
        for draft in checked.values()
    ]
    return new, refused


def _find_id(name: str, ids: Mapping[str, str], board: TaskBoard) -> str:
    """Return the id of a task by it, or by its title if it is added now; "" if there is none."""
    return name if name in board.tasks else ids.get(fold_title(name), "")


def _find_problems(
    checked: Mapping[str, TaskDraft],
    ids: Mapping[str, str],
    titles: Mapping[str, str],
    board: TaskBoard,
    free: int,
) -> dict[str, str]:
    """Return why tasks cannot be added together, by title."""
    problems: dict[str, str] = {}
    both = {**titles, **ids}
    graph: dict[str, list[str]] = {}
    for at, (title, draft) in enumerate(checked.items()):
        needed = {name: _find_id(name, both, board) for name in draft.needs}
        graph[ids[fold_title(title)]] = list(needed.values())
        if at >= free:
            problems[title] = f"a session has at most {MOST_TASKS} tasks"
        elif problem := _find_unmet(needed, board):
            problems[title] = problem
    if not problems and (circle := board.find_circle(graph)):
        names = {found: title for title, found in ids.items()}
        shown = " needs ".join(repr(_show(names[name])) for name in circle if name in names)
        for title in checked:
            if ids[fold_title(title)] in circle:
                problems[title] = f"a circle: {shown}"
    return problems


def _find_unmet(needed: Mapping[str, str], board: TaskBoard) -> str:
    """Return which need of a task nothing can meet, "" if there is none; `needed` are ids by name.

    A task that does not exist is named first.
    """
    for name, found in needed.items():
        if not found:
            return f"it needs {_show(name)}, which is no task"
    for found in needed.values():
        task = board.tasks.get(found)
        if task and task.status in ("failed", "cancelled"):
            return f"it needs task {task.id}, which is {task.status}"
    return ""


def _show(name: str) -> str:
    return escape_line(cut_text(name, _LONGEST_NAME))


def _find_fault(draft: TaskDraft, room: Room) -> str:
    """Return what is wrong with a task by itself, "" if nothing is."""
    if not draft.title:
        return "the title is empty"
    for name, text, most in (
        ("title", draft.title, LONGEST_TITLE),
        ("type", draft.type, LONGEST_TYPE),
        ("description", draft.description, LONGEST_DESCRIPTION),
    ):
        if len(text) > most:
            return f"the {name} has {len(text)} characters, at most {most} are allowed"
    if abs(draft.priority) > MOST_PRIORITY:
        return f"the priority is at most {MOST_PRIORITY}"
    try:
        find_agent(draft.assigned_to, room)
    except UsageError as error:
        return error.what
    return ""


def find_agent(name: str, room: Room) -> str:
    """Return the id of an agent that may be given tasks; "" for "". Raises UsageError."""
    name = name.strip().removeprefix("@")
    if not name:
        return ""
    team = room.scene.team
    resolved = resolve_mentions([name], room.roster, author="", opener="user").ids
    ids = [member.id for member in team.members]
    agents = [found for found in resolved if found in ids]
    if len(agents) != 1:
        is_person = bool(resolved) and not agents
        problem = "is a person: tasks are for agents" if is_person else "is no member of this team"
        raise UsageError(f"{_show(name)} {problem}", errors.suggest_nearest(name, ids))
    control = room.scene.fold.control
    if control and control.agents.get(agents[0]) == "terminated":
        raise UsageError(f"{agents[0]} is terminated in this session", "Name another agent.")
    return agents[0]


def add_tasks(
    tasks: Sequence[NewTask], by: str, room: Room, *, depth: int = 0, reply: int | None = None
) -> None:
    """Write that tasks are added. Raises DiskRefused."""
    for task in tasks:
        room.journal.write(
            TaskChanged,
            task=task.id,
            action="add",
            by=by,
            to=task.assigned_to,
            facts=task.facts,
            depth=depth,
            reply=reply,
        )


def tell_group(room: Room, content: str, **metadata: Any) -> Message:
    """Write a message of kind `task` to the group, which calls no agent. Raises DiskRefused."""
    notice = {"notice": task_texts.TASK_NOTICE, **metadata}
    return write_notice(room, content, notice, kind="task")


def find_message(chain: Chain | None, task: str, action: str) -> Message | None:
    """Return the message about a change that is not written yet, as after a crash."""
    for event in reversed(chain.events if chain else ()):
        if event.type in ("task", "turn_started", "turn_finished"):
            break
        if isinstance(event, MessageEvent):
            metadata = event.message.metadata
            named = (metadata.get("notice"), metadata.get("task"), metadata.get("action"))
            if named == (task_texts.TASK_NOTICE, task, action):
                return event.message
    return None


def write_change(
    room: Room,
    task: str,
    action: TaskAction,
    by: str,
    text: str = "",
    *,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> str:
    """Write a change of a task, after the message about it if such changes are reported.

    `fields` are further ones of the event, `metadata` of the message. Return the message's id, ""
    if there is none. Raises DiskRefused.
    """
    message = None
    if action in task_texts.TOLD:
        message = find_message(room.scene.fold.open, task, action)
        if message is None:
            content = task_texts.describe_change(
                action,
                get_board(room).tasks[task],
                translate_message(text, room.language) if by == ARENA else text,
                room.language,
                agent=fields.get("to", ""),
                percent=fields.get("percent"),
            )
            message = tell_group(room, content, task=task, action=action, **metadata)
    message_id = message.id if message else None
    room.journal.write(
        TaskChanged, task=task, action=action, by=by, text=text, message=message_id, **fields
    )
    return message_id or ""


# Requests of people.


def carry_out(request: ControlRequest, room: Room) -> str:
    """Carry out a person's request about a task; return what was done.

    Raises UsageError or DiskRefused.
    """
    if request.action == "add":
        return _add(request, room)
    if request.action not in {*_DONE, "assign", "reassign"}:
        raise UsageError(
            f"{_show(request.action)!r} is nothing that people do to a task",
            errors.suggest_nearest(request.action, ["add", "assign", "reassign", *_DONE]),
        )
    task = _find_task(request.target, room)
    if request.action in ("assign", "reassign"):
        return _assign(request, task, room)
    return _change(request, task, room)


def _add(request: ControlRequest, room: Room) -> str:
    fields = room.runtime.redactor.value(dict(request.arguments))
    fields.setdefault("assigned_to", request.agent)
    draft, problem = read_draft(fields)
    if draft is None:
        raise UsageError(f"the task cannot be added: {problem}")
    if note := str(fields.get("note") or ""):
        _check_note_unused(note, room)
        draft = draft._replace(note=note)
    new, refused = resolve_drafts([draft], room)
    if refused:
        raise UsageError(f"the task cannot be added: {refused[0][1]}", _hint(refused[0][1], room))
    add_tasks(new, request.by, room)
    return f"task {new[0].id} is added: {new[0].facts.title}"


def _check_note_unused(note: str, room: Room) -> None:
    """Raise UsageError if there is a task that was made from the note."""
    for task in get_board(room).tasks.values():
        if task.note == note:
            session = escape_line(room.scene.session_id)
            raise UsageError(
                f"note {_show(note)} is task {task.id} already: {escape_line(task.title)}",
                f"`arena task show {session} {task.id}` shows it.",
            )


def _hint(problem: str, room: Room) -> str:
    """Return what helps with a task that cannot be added."""
    if "needs" in problem:
        return _list_tasks(room)
    if "team" in problem or "person" in problem:
        return f"Its agents: {', '.join(member.id for member in room.scene.team.members)}."
    return ""


def _list_tasks(room: Room) -> str:
    session = escape_line(room.scene.session_id)
    return f"`arena tasks {session}` lists them." if get_board(room).tasks else ""


def _find_task(name: str, room: Room) -> Task:
    """Return the task of that id. Raises UsageError."""
    task = get_board(room).tasks.get(name.strip())
    if task is None:
        session = escape_line(room.scene.session_id)
        raise UsageError(f"session {session} has no task {_show(name)}", _list_tasks(room))
    return task


def _read_text(request: ControlRequest, room: Room) -> str:
    """Return the text of a request, as it may be stored. Raises UsageError if it is too long."""
    text = room.runtime.redactor.text(clean_text(request.text)[0]).strip()
    if len(text) > LONGEST_TEXT:
        raise UsageError(
            f"the text has {len(text)} characters, at most {LONGEST_TEXT} are allowed",
            "Shorten it.",
        )
    return text


def _check_open(task: Task) -> None:
    if task.status in ENDED:
        raise UsageError(f"task {task.id} has ended: it is {task.status}", "Add another task.")


def _assign(request: ControlRequest, task: Task, room: Room) -> str:
    _check_open(task)
    if not request.agent:
        raise UsageError("no agent is named", "Name the agent that does the task.")
    agent = find_agent(request.agent, room)
    if task.assigned_to == agent:
        raise UsageError(f"task {task.id} is one of {agent} already", "Name another agent.")
    if request.action == "assign" and task.status == "running":
        raise UsageError(
            f"{task.assigned_to} works on task {task.id} now",
            "`arena task reassign` gives it to another agent all the same.",
        )
    action: TaskAction = "reassign" if request.action == "reassign" else "assign"
    write_change(room, task.id, action, request.by, _read_text(request, room), to=agent)
    return f"task {task.id} is now for {agent}"


_DONE: Mapping[TaskAction, str] = {
    "block": "is blocked",
    "unblock": "is pending again",
    "complete": "is completed",
    "fail": "has failed",
    "cancel": "is cancelled",
}


def _change(request: ControlRequest, task: Task, room: Room) -> str:
    """Change the status of a task, and report it to the group."""
    action = next(action for action in _DONE if action == request.action)
    if action != "unblock":
        _check_open(task)
    elif task.status not in ("blocked", "failed"):
        raise UsageError(f"task {task.id} is not blocked: it is {task.status}")
    text = _read_text(request, room)
    if action == "block" and not text:
        raise UsageError(
            "it is not said what the task waits for", "Say on whom or what it waits: `--because`."
        )
    if (action, task.status) == ("block", "blocked"):
        raise UsageError(f"task {task.id} is blocked already: {task.error}", "Unblock it first.")
    write_change(room, task.id, action, request.by, text)
    return f"task {task.id} {_DONE[action]}"
