"""Read what an agent adds and changes about tasks in a reply: in parts, blocks and tool calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena_cli.engine.task_changes import LONGEST_TEXT, TaskDraft, read_draft
from arena_cli.notes.agent_extraction import read_values
from arena_cli.protocol import TASK_BLOCK, TASK_UPDATE, Message
from arena_cli.transcript.acting_events import ToolFinished, ToolRequested
from arena_cli.transcript.events import SideEvent
from arena_cli.transcript.task_events import TaskAction
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_text, cut_text

PASS = "<pass/>"
"""The answer by which an agent hands a task back."""

AGENT_ACTIONS: tuple[TaskAction, ...] = (
    "progress",
    "complete",
    "block",
    "help",
    "fail",
    "pass",
    "assign",
    "unblock",
    "cancel",
)
"""What agents do to tasks, apart from adding them."""

MOST_ENTRIES = 200
"""The tasks and actions of one reply."""

_BLOCK = re.compile(
    r"^(?P<fence>`{3,})task_list[ \t]*\n(?P<text>.*?)^(?P=fence)[ \t]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


class Action(NamedTuple):
    """What an agent does to a task; without the name of one, to that on which it works."""

    task: str
    action: TaskAction
    text: str = ""
    percent: int | None = None
    to: str = ""


class Entries(NamedTuple):
    """The tasks and actions of a reply, and what of it could not be read, with the reasons."""

    drafts: Sequence[TaskDraft]
    actions: Sequence[Action]
    problems: Sequence[tuple[str, str]]


NOTHING = Entries((), (), ())


def read_action(fields: Any) -> tuple[Action | None, str]:
    """Return the action that a JSON object describes, or None and the reason why it is none."""
    if not isinstance(fields, Mapping):
        return None, "an action is an object with an `action`"
    name = fields.get("id") or fields.get("task") or ""
    texts = {key: fields.get(key) or "" for key in ("action", "text", "to")}
    if not all(isinstance(value, str) for value in (name, *texts.values())):
        return None, "`id`, `action`, `text` and `to` must be texts"
    actions = {str(action): action for action in AGENT_ACTIONS}
    action = actions.get(texts["action"].strip().casefold())
    if action is None:
        return None, f"`action` must be one of {', '.join(AGENT_ACTIONS)}"
    percent: Any = fields.get("percent")
    if action == "progress" or percent is not None:
        if not _is_percent(percent):
            return None, "`percent` must be a number from 0 to 100"
        percent = int(percent)
    text = cut_text(clean_text(texts["text"])[0].strip(), LONGEST_TEXT)
    return Action(name.strip(), action, text, percent, texts["to"].strip()), ""


def _is_percent(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= 100


def read_task(fields: Any) -> tuple[TaskDraft | None, str]:
    """Return the task that an agent adds, or None and the reason why it is none."""
    if isinstance(fields, Mapping) and not fields.get("assigned_to") and fields.get("to"):
        fields = {**fields, "assigned_to": fields["to"]}
    return read_draft(fields)


def cut_blocks(content: str) -> str:
    """Return a text without its blocks of tasks."""
    return _BLOCK.sub("", content).strip() if TASK_BLOCK in content else content.strip()


def read_entries(
    message: Message | None, reply: int, events: Sequence[SideEvent], redactor: Redactor
) -> Entries:
    """Return what an agent adds and changes in a reply; `events` are those of its turn."""
    drafts: list[TaskDraft] = []
    actions: list[Action] = []
    problems: list[tuple[str, str]] = []
    count = 0
    for is_task, fields in (*_list_calls(reply, events), *_list_parts(message, redactor)):
        if is_task and isinstance(fields, Mapping) and fields.get("done") is True:
            continue  # a list may show what is done
        count += 1
        if count > MOST_ENTRIES:
            problems.append(("", f"more than {MOST_ENTRIES} tasks and actions in one reply"))
            break
        if is_task:
            draft, problem = read_task(fields)
            if draft is not None:
                drafts.append(draft)
        else:
            action, problem = read_action(fields)
            if action is not None:
                actions.append(action)
        if problem:
            name = fields.get("title") or fields.get("id") if isinstance(fields, Mapping) else ""
            problems.append((str(name or ""), problem))
    if not count:
        return NOTHING
    # An attempt that failed may have had the same entries.
    return Entries(list(dict.fromkeys(drafts)), list(dict.fromkeys(actions)), problems)


def _list_calls(
    reply: int, events: Sequence[SideEvent]
) -> Iterator[tuple[bool, Mapping[str, Any]]]:
    """Yield the arguments of the calls of `task_update` that were accepted, tasks with True."""
    accepted = {
        event.call
        for event in events
        if isinstance(event, ToolFinished) and event.reply == reply and event.status == "ok"
    }
    for event in events:
        if not isinstance(event, ToolRequested) or event.tool != TASK_UPDATE:
            continue
        if event.reply == reply and event.call in accepted and "." not in event.call:
            yield event.arguments.get("action") == "add", event.arguments


def _list_parts(message: Message | None, redactor: Redactor) -> Iterator[tuple[bool, Any]]:
    """Yield the entries of the parts and blocks of a message, tasks with True.

    An escape in the JSON of a block may have hidden a secret from the redaction of the text.
    """
    if message is None:
        return
    lists = [part.data for part in message.structured if part.type == "task_list"]
    if TASK_BLOCK in message.content:
        for match in _BLOCK.finditer(message.content):
            data = next(iter(read_values(match["text"])), None)
            lists.append(redactor.value_or_nothing(data))
    for data in lists:
        if isinstance(data, Mapping) and data.keys() & {"tasks", "actions"}:
            yield from ((True, fields) for fields in _as_list(data.get("tasks")))
            yield from ((False, fields) for fields in _as_list(data.get("actions")))
        elif isinstance(data, Mapping):
            yield "action" not in data, data
        elif isinstance(data, list):
            yield from ((True, fields) for fields in data)
        else:
            yield True, None


def _as_list(value: Any) -> list[Any]:
    """Return the entries of a key, which may be one entry by itself, or nothing."""
    value = value or []
    return value if isinstance(value, list) else [value]
