"""Texts of tasks: the messages to the group, and the brief of an agent that works on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from arena_cli.transcript.task_events import ENDED, LONGEST_TITLE, Task, TaskAction, TaskBoard
from arena_cli.util.language import Language, Texts
from arena_cli.util.text import cut_text

TASK_NOTICE = "task"
"""The `notice` in the metadata of system messages about a task."""

LONGEST_RESULT = 2_000
"""Characters of a result of another task, and of an error, that an agent is shown."""

LONGEST_RESULTS = 12_000
"""Characters of all results that an agent is shown."""

_MOST_LISTED = 20
_MOST_ENDED = 5

_CHANGES: Mapping[TaskAction, str] = {
    "start": "Starting task {id}: {title} (@{agent})",
    "complete": "Completed task {id}: {title}",
    "fail": "Task failed: {title}",
    "block": "Task blocked: {title}",
    "unblock": "Task unblocked: {title}",
    "help": "Task needs help: {title}",
    "cancel": "Task cancelled: {title}",
    "progress": "Task progress: {title}",
}


TOLD = frozenset(_CHANGES)
"""The changes that are reported to the group."""

_LEFT = {
    "until": "The time for the work is over. Left:",
    "max_tasks": "As many tasks as allowed were started. Left:",
    "": "No task can go on. Left:",
}


def describe_change(
    action: TaskAction,
    task: Task,
    text: str,
    language: Language,
    *,
    agent: str = "",
    percent: int | None = None,
) -> str:
    """Return the message about a change of a task; `text` is a reason, not a result."""
    content = Texts(language).translate(_CHANGES[action])
    content = content.format(id=task.id, title=task.title, agent=agent)
    shares = [f"{percent}%"] if percent is not None else []
    return " - ".join([content, *shares, *([text] if text and action != "complete" else [])])


def describe_left(
    left: Sequence[Task],
    board: TaskBoard,
    unavailable: Mapping[str, str],
    language: Language,
    *,
    limit: str = "",
) -> str:
    """Return the message about the tasks that are left when a chain ends, with the reasons.

    `limit` is the one that ended it: `until` or `max_tasks`; "": no task can continue.
    """
    say = Texts(language)
    lines = [say(_LEFT[limit])]
    for task in left[:_MOST_LISTED]:
        reason = explain_waiting(task, board, unavailable, say)
        if not reason and not limit:
            reason = say("no agent takes it: assign it to one")
        lines.append(f"- {task.id} {task.title}{f': {reason}' if reason else ''}")
    return "\n".join([*lines, *_count_more(left, say)])


def describe_refused(agent: str, refused: Sequence[tuple[str, str]], language: Language) -> str:
    """Return the message about changes of tasks that an agent may not make, with the reasons."""
    say = Texts(language)
    lines = [say("Refused, of @{agent}:", agent=agent)]
    for name, reason in refused[:_MOST_LISTED]:
        shown = f"{' '.join(cut_text(name, LONGEST_TITLE).split())}: " if name else ""
        lines.append(f"- {shown}{say.message(reason)}")
    return "\n".join([*lines, *_count_more(refused, say)])


def _count_more(items: Sequence[object], say: Texts) -> list[str]:
    """Return the line about those of a long list that are not shown."""
    more = len(items) - _MOST_LISTED
    return [f"- {say('and {count} more', count=more)}"] if more > 0 else []


def explain_waiting(
    task: Task, board: TaskBoard, unavailable: Mapping[str, str], say: Texts
) -> str:
    """Return on whom or what an open task waits; "" if it waits for nothing."""
    if task.status == "blocked":
        return say("blocked: {reason}", reason=task.error)
    if unmet := board.unmet(task):
        names = ", ".join(f"{name} ({_name_status(board, name, say)})" for name in unmet)
        return say("needs {names}", names=names)
    if task.assigned_to in unavailable:
        return f"{task.assigned_to}: {unavailable[task.assigned_to]}"
    return ""


def _name_status(board: TaskBoard, name: str, say: Texts) -> str:
    status = board.tasks[name].status if name in board.tasks else "pending"
    return say.translate(status, "word")


# The brief of an agent.


def write_brief(agent: str, board: TaskBoard, language: Language) -> str:
    """Return the brief of an agent about its tasks at a call; "" if it has none."""
    own, say = board.list_of(agent), Texts(language)
    running = next((task for task in own if task.status == "running"), None)
    others = [task for task in own if task.status not in ENDED and task is not running]
    ended = [task for task in own if task.status in ENDED]
    heading = say("Your other open tasks:") if running else say("Your open tasks:")
    paragraphs = [
        *(_describe_work(running, board, say) if running else ()),
        *_list_tasks(heading, others, board, say),
        *_list_tasks(say("Your last ended tasks:"), ended[-_MOST_ENDED:], board, say),
        *([_HOW[language]] if running else ()),
    ]
    return "\n\n".join(paragraphs)


def _list_tasks(heading: str, tasks: Sequence[Task], board: TaskBoard, say: Texts) -> Iterator[str]:
    """Yield the paragraph that lists tasks, if there are any."""
    lines = [
        f"- {task.id} ({_name_status(board, task.id, say)}): {task.title}"
        for task in tasks[:_MOST_LISTED]
    ]
    if lines:
        yield "\n".join([heading, *lines])


def _describe_work(task: Task, board: TaskBoard, say: Texts) -> Iterator[str]:
    """Yield the paragraphs about the task on which an agent works."""
    heading = say("Task {id}: {title}", id=task.id, title=task.title)
    yield f"{heading} [{task.type}]" if task.type else heading
    if task.description:
        yield task.description
    results, size = [], 0
    for name in task.needs:
        needed = board.tasks.get(name)
        if needed is None or not needed.result or size >= LONGEST_RESULTS:
            continue
        text = cut_text(needed.result, min(LONGEST_RESULT, LONGEST_RESULTS - size))
        size += len(text)
        results.append(f"- {needed.id} {needed.title}:\n{text}")
    if results:
        yield "\n".join([say("Results of the tasks it needs:"), *results])
    if task.error:
        yield say(
            "The last attempt ended so: {reason}", reason=cut_text(task.error, LONGEST_RESULT)
        )


_HOW: Mapping[Language, str] = {
    "en": "Please complete this task. Your answer is its result. If it is not for you, answer "
    "`<pass/>` alone: another agent takes it. If you cannot go on, say so by the tool "
    "`task_update`, or end your answer with a block, whose `action` is block, help (`to` an "
    "agent), fail or pass:\n"
    "```task_list\n"
    '{"actions": [{"action": "block", "text": "what or whom it waits for"}]}\n'
    "```\n"
    'In the same block, `"tasks": [{"title": "...", "needs": ["t1"]}]` adds tasks.',
    "zh": "请完成这项任务，你的回答就是它的结果。"
    "如果它不适合你，只回答 `<pass/>`，会由其他智能体接手。"
    "如果无法继续，请用工具 `task_update` 说明，或在回答末尾写一个代码块，"
    "其中 `action` 为 block、help（`to` 填智能体）、fail 或 pass：\n"
    "```task_list\n"
    '{"actions": [{"action": "block", "text": "在等什么或等谁"}]}\n'
    "```\n"
    '在同一个代码块里，`"tasks": [{"title": "...", "needs": ["t1"]}]` 可以添加任务。',
}
