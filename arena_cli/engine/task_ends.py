"""Read what the replies of a turn do to tasks, and write it before the turn is finished.

An agent adds tasks and changes them in its reply; the task on which it worked ends with the reply,
unless the agent says otherwise. What is written already stays, so that after a crash nothing is
lost or done twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena_cli.engine import task_changes, task_texts
from arena_cli.engine.plan import Room
from arena_cli.engine.task_changes import (
    ARENA,
    LONGEST_TEXT,
    TaskDraft,
    fold_title,
    get_board,
    read_draft,
)
from arena_cli.engine.tasks import list_started_by
from arena_cli.errors import UsageError
from arena_cli.notes.agent_extraction import read_values
from arena_cli.protocol import TASK_BLOCK, TASK_UPDATE, Message
from arena_cli.transcript.acting_events import ToolFinished, ToolRequested
from arena_cli.transcript.control_events import find_control
from arena_cli.transcript.conversation import FAILED, Chain, Turn
from arena_cli.transcript.events import MessageEvent, ReplyFinished, SideEvent
from arena_cli.transcript.task_events import ENDED, Task, TaskAction, TaskChanged
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_text, cut_text, escape_line
from arena_cli.workspace import mentions

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

REFUSED = "refused"
"""The action in the metadata of the message about changes that are refused."""

_LONGEST_REASON = 500


_BLOCK = re.compile(
    r"^(?P<fence>`{3,})task_list[ \t]*\n(?P<text>.*?)^(?P=fence)[ \t]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


async def settle(turn: Turn, chain: Chain, room: Room) -> None:
    """Write what the replies of the open turn do to tasks, in order of call. Raises DiskRefused."""
    works = list_started_by(chain, turn.called)
    for done in turn.results():
        await _Settlement(done, works.get(done.agent, ""), turn, chain, room).run()


class _Settlement:
    """What one reply does to tasks; `work` is the id of the task on which its agent worked."""

    def __init__(
        self, done: ReplyFinished, work: str, turn: Turn, chain: Chain, room: Room
    ) -> None:
        self._done = done
        self._work = work
        self._turn = turn
        self._chain = chain
        self._room = room
        self._added: dict[str, str] = {}
        self._changed: set[tuple[str, TaskAction]] = set()
        for event in turn.side_events:
            if isinstance(event, TaskChanged) and event.reply == done.reply:
                self._changed.add((event.task, event.action))
                if event.action == "add" and event.facts is not None:
                    self._added[fold_title(event.facts.title)] = event.task

    async def run(self) -> None:
        """Write it, but for what is written already."""
        done = self._done
        if done.status in ("success", "declined"):
            events, redactor = self._turn.side_events, self._room.runtime.redactor
            entries = read_entries(done.message, done.reply, events, redactor)
            if entries != NOTHING:
                await self._take(entries)
        task = self._find_work()
        if task is not None:
            self._end(task)

    def _find_work(self) -> Task | None:
        """Return the task on which the agent worked, if it has not ended."""
        task = get_board(self._room).tasks.get(self._work)
        is_running = task is not None and task.status == "running"
        return task if task and is_running and task.assigned_to == self._done.agent else None

    # What the agent says itself.

    async def _take(self, entries: Entries) -> None:
        """Add the tasks of the reply and carry out its actions; report those that are refused."""
        refused = [*entries.problems]
        drafts, actions = await self._check_rules(entries, refused)
        depth = find_depth(self._done.agent, self._work, self._room)
        if drafts and (problem := find_depth_fault(depth, self._room)):
            refused += [(draft.title, problem) for draft in drafts]
            drafts = []
        titles: set[str] = set()
        missing = []
        for draft in drafts:
            title = fold_title(draft.title)
            if title in titles:
                refused.append((draft.title, "another task of the list has this title"))
            elif title not in self._added:
                missing.append(draft)
            titles.add(title)
        new, wrong = task_changes.resolve_drafts(missing, self._room, known=self._added)
        refused += [(draft.title, problem) for draft, problem in wrong]
        task_changes.add_tasks(
            new, self._done.agent, self._room, depth=depth, reply=self._done.reply
        )
        self._added |= {fold_title(task.facts.title): task.id for task in new}
        for action in actions:
            if problem := self._act(action):
                refused.append((action.task or action.action, problem))
        if refused:
            self._tell_refused(refused)

    async def _check_rules(
        self, entries: Entries, refused: list[tuple[str, str]]
    ) -> tuple[list[TaskDraft], list[Action]]:
        """Return the tasks and actions that the team's rules allow; add the others to `refused`."""
        control, board = self._room.control.get(self._room), get_board(self._room)
        decisions = [
            *(describe_draft(draft, self._done.agent) for draft in entries.drafts),
            *(
                describe_action(action, board.tasks.get(self._find_id(action)), self._done.agent)
                for action in entries.actions
            ),
        ]
        reasons = await control.check_tasks(decisions, self._done.agent, self._done.reply)
        names = [draft.title for draft in entries.drafts]
        names += [action.task or action.action for action in entries.actions]
        refused += [pair for pair in zip(names, reasons, strict=True) if pair[1]]
        of_drafts = zip(entries.drafts, reasons, strict=False)
        of_actions = zip(entries.actions, reasons[len(entries.drafts) :], strict=True)
        drafts = [draft for draft, reason in of_drafts if not reason]
        return drafts, [action for action, reason in of_actions if not reason]

    def _find_id(self, action: Action) -> str:
        """Return the id of the task of an action, which may be named by its title."""
        if not action.task:
            return self._work
        return self._added.get(fold_title(action.task), action.task)

    def _act(self, action: Action) -> str:
        """Carry out an action; return why it is refused, "" if it is not."""
        room, agent = self._room, self._done.agent
        name = self._find_id(action)
        if self._is_written(name, action):
            return ""
        task = get_board(room).tasks.get(name)
        if problem := find_action_fault(action, task, agent, room):
            return problem
        assert task is not None
        text, to, kind = self._write_text(action, task), "", action.action
        if action.to:
            to = task_changes.find_agent(action.to, room) if kind == "assign" else action.to
        if kind == "help":
            kind, to = self._find_helper(action, task)
            person = self._find_person(action) if kind == "block" else ""
            if person and not text.startswith(f"{person}:"):
                text = f"{person}: {text}"
        self._write(task, kind, text, to=to, percent=action.percent)
        return ""

    def _is_written(self, task: str, action: Action) -> bool:
        """Return True if an action of the reply is written already."""
        if action.action == "progress":
            return any(
                isinstance(event, TaskChanged)
                and (event.task, event.action, event.reply) == (task, "progress", self._done.reply)
                and event.percent == action.percent
                for event in self._turn.side_events
            )
        kinds: tuple[TaskAction, ...] = (action.action,)
        if action.action == "help":  # one too many blocks the task
            kinds = ("help", "block")
        return any((task, kind) in self._changed for kind in kinds)

    def _write_text(self, action: Action, task: Task) -> str:
        """Return the text of an action; that of the reply in its place if it has none."""
        if action.text or action.action in ("assign", "progress", "pass", "unblock"):
            return action.text
        content = cut_blocks(self._done.message.content if self._done.message else "")
        if task.id != self._work:
            return ""
        is_result = action.action == "complete"
        return cut_text(content, LONGEST_TEXT if is_result else _LONGEST_REASON)

    def _find_helper(self, action: Action, task: Task) -> tuple[TaskAction, str]:
        """Return the action of a question, and the agent that it is put to.

        A question to a person blocks the task, as one too many does.
        """
        team = self._room.scene.team
        most = team.config.task_retries
        try:
            to = task_changes.find_agent(action.to, self._room) if action.to else ""
        except UsageError:
            to = ""
        if to == self._done.agent:
            to = ""
        to = to or next(iter(self._done.next_mentions), "")
        return ("help", to) if to and task.attempts <= most else ("block", "")

    def _find_person(self, action: Action) -> str:
        """Return the person whom an action asks, or whom the message mentions; "" if none."""
        message = self._done.message
        names = [action.to.strip().removeprefix("@")] if action.to else []
        asked = mentions.resolve_mentions(names, self._room.roster, author="", opener="user").ids
        names = [*asked, *(message.mentions if message else ())]
        team = self._room.scene.team
        return next((name for name in names if team.agent(name) is None), "")

    def _write(
        self, task: Task, action: TaskAction, text: str, *, to: str = "", percent: int | None = None
    ) -> None:
        fields: dict[str, Any] = {"reply": self._done.reply}
        if to:
            fields["to"] = to
        if percent is not None and action == "progress":
            fields["percent"] = percent
        is_cancelled = action == "block" and self._done.status == "cancelled"
        by = ARENA if action == "retry" or is_cancelled else self._done.agent
        task_changes.write_change(self._room, task.id, action, by, text, **fields)
        self._changed.add((task.id, action))

    def _tell_refused(self, refused: Sequence[tuple[str, str]]) -> None:
        """Report to the agent what is refused, once."""
        for event in reversed(self._chain.events):
            if event.type == "turn_started":
                break
            if isinstance(event, MessageEvent):
                metadata = event.message.metadata
                if (metadata.get("action"), metadata.get("reply")) == (REFUSED, self._done.reply):
                    return
        text = task_texts.describe_refused(self._done.agent, refused, self._room.language)
        task_changes.tell_group(self._room, text, task="", action=REFUSED, reply=self._done.reply)

    # What follows from the reply.

    def _end(self, task: Task) -> None:
        """Write how the work on a task ended by its reply."""
        done, config = self._done, self._room.scene.team.config
        content = done.message.content if done.message else ""
        if done.status == "declined" or content.strip() == PASS:
            self._write(task, "pass", "")
        elif done.status == "success":
            if self._asks_person():
                self._write(task, "help", "it asked a person for approval")
                return
            result = cut_text(cut_blocks(content), LONGEST_TEXT)
            self._write(task, "complete", result)
        elif done.status in FAILED:
            error = cut_text(done.error or done.status, LONGEST_TEXT)
            is_gone = self._room.scene.team.member(done.agent) is None
            is_tried_again = done.retryable and task.attempts <= config.task_retries
            self._write(task, "retry" if is_gone or is_tried_again else "fail", error)
        elif done.error:  # it was not called: paused, or over its limits
            self._write(task, "retry", done.error)
        else:
            self._write(task, "block", f"cancelled by {done.cancelled_by}")

    def _asks_person(self) -> bool:
        """Return True if the reply asks for an approval that no person has decided about."""
        structured = self._done.message.structured if self._done.message else ()
        if any(part.type == "approval_request" for part in structured):
            return True
        pending = find_control(self._chain).pending
        return any(request.asked.reply == self._done.reply for request in pending)


def describe_draft(draft: TaskDraft, agent: str) -> dict[str, Any]:
    """Return a task that an agent adds as rules see it."""
    return {
        "agent": agent,
        "action": "add",
        "title": draft.title,
        "type": draft.type,
        "assigned_to": draft.assigned_to,
        "text": f"{draft.title}\n{draft.description}".strip(),
    }


def describe_action(action: Action, task: Task | None, agent: str) -> dict[str, Any]:
    """Return what an agent does to a task as rules see it."""
    return {
        "agent": agent,
        "action": action.action,
        "title": task.title if task else action.task,
        "type": task.type if task else "",
        "assigned_to": action.to or (task.assigned_to if task else ""),
        "text": action.text,
    }


def find_depth(agent: str, work: str, room: Room) -> int:
    """Return the depth of a task that an agent adds: one more than those that led to it.

    It is added in the `work` on another task, or in an answer to an agent of the work.
    """
    tasks, chain = get_board(room).tasks, room.scene.fold.open
    if work in tasks:
        return tasks[work].depth + 1
    callers = chain.turns[-1].started.mentioned_by.get(agent, ()) if chain and chain.turns else ()
    if chain is None or not any(room.scene.team.member(name) for name in callers):
        return 0
    started = (
        event.task
        for event in chain.events
        if isinstance(event, TaskChanged) and event.action == "start"
    )
    return max((tasks[name].depth + 1 for name in started), default=0)


def find_depth_fault(depth: int, room: Room) -> str:
    """Return why no task of that depth may be added, "" if it may."""
    limit = room.scene.team.config.task_depth_limit
    if depth <= limit:
        return ""
    return f"tasks that come of tasks may be {limit} deep (task_depth_limit)"


def find_action_fault(action: Action, task: Task | None, agent: str, room: Room) -> str:
    """Return why an agent may not do this to a task now, "" if it may."""
    if task is None:
        name = escape_line(cut_text(action.task, 80))
        return f"there is no task {name}" if action.task else "you work on no task: name one"
    kind = action.action
    allowed = {task.assigned_to}
    if kind in ("assign", "cancel", "unblock", "block"):
        allowed.add(task.by)
    is_free = kind == "assign" and not task.assigned_to
    if agent not in allowed and not is_free:
        return f"task {task.id} is one of {task.assigned_to or 'no agent'}"
    if task.status in ENDED:
        return f"task {task.id} has ended: it is {task.status}"
    if kind == "unblock" and task.status != "blocked":
        return f"task {task.id} is not blocked: it is {task.status}"
    if kind in ("help", "progress") and task.status != "running":
        return f"you do not work on task {task.id}"
    return _find_assignee_fault(action, task, agent, room) if kind == "assign" else ""


def _find_assignee_fault(action: Action, task: Task, agent: str, room: Room) -> str:
    if not action.to:
        return "`to` names no agent"
    if task.status == "running" and task.assigned_to != agent:
        return f"{task.assigned_to} works on task {task.id} now"
    try:
        task_changes.find_agent(action.to, room)
    except UsageError as error:
        return error.what
    return ""


# What the agent says: in parts and blocks of its message, and calls of tools.


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
