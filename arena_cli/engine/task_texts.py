"""Texts of tasks: the messages to the group, and the brief of an agent that works on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from arena_cli.transcript.task_events import ENDED, LONGEST_TITLE, Task, TaskAction, TaskBoard
from arena_cli.util.language import translate_message
from arena_cli.util.text import cut_text
from arena_cli.workspace.models import Language

TASK_NOTICE = "task"
"""The `notice` in the metadata of system messages about a task."""

LONGEST_RESULT = 2_000
"""Characters of a result of another task, and of an error, that an agent is shown."""

LONGEST_RESULTS = 12_000
"""Characters of all results that an agent is shown."""

_NO_TAKER = ("no agent takes it: assign it to one", "没有智能体接手，请指派")

_MOST_LISTED = 20
_MOST_ENDED = 5

_CHANGES: dict[TaskAction, tuple[str, str]] = {
    "start": ("Starting task {id}: {title} (@{agent})", "开始任务 {id}：{title}（@{agent}）"),
    "complete": ("Completed task {id}: {title}", "完成任务 {id}：{title}"),
    "fail": ("Task failed: {title}", "任务失败：{title}"),
    "block": ("Task blocked: {title}", "任务受阻：{title}"),
    "unblock": ("Task unblocked: {title}", "任务不再受阻：{title}"),
    "help": ("Task needs help: {title}", "任务需要帮助：{title}"),
    "cancel": ("Task cancelled: {title}", "任务已取消：{title}"),
    "progress": ("Task progress: {title}", "任务进度：{title}"),
}


TOLD = frozenset(_CHANGES)
"""The changes that are reported to the group."""


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
    is_chinese = language == "zh"
    content = _CHANGES[action][is_chinese].format(id=task.id, title=task.title, agent=agent)
    if percent is not None:
        content = f"{content} - {percent}%"
    if not text or action == "complete":
        return content
    return f"{content} - {text}"


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
    is_chinese = language == "zh"
    headings = {
        "until": ("The time for the work is over. Left:", "工作时间已到。未完成："),
        "max_tasks": ("As many tasks as allowed were started. Left:", "已达到任务数上限。未完成："),
        "": ("No task can go on. Left:", "没有可以继续的任务。未完成："),
    }
    lines = [headings[limit][is_chinese]]
    for task in left[:_MOST_LISTED]:
        reason = explain_waiting(task, board, unavailable, language)
        if not reason and not limit:
            reason = _NO_TAKER[is_chinese]
        lines.append(f"- {task.id} {task.title}{f': {reason}' if reason else ''}")
    if len(left) > _MOST_LISTED:
        more = len(left) - _MOST_LISTED
        lines.append(f"- 还有 {more} 项" if is_chinese else f"- and {more} more")
    return "\n".join(lines)


def describe_refused(agent: str, refused: Sequence[tuple[str, str]], language: Language) -> str:
    """Return the message about changes of tasks that an agent may not make, with the reasons."""
    lines = [f"@{agent} 的这些任务变更被拒绝：" if language == "zh" else f"Refused, of @{agent}:"]
    for name, reason in refused[:_MOST_LISTED]:
        shown = f"{' '.join(cut_text(name, LONGEST_TITLE).split())}: " if name else ""
        lines.append(f"- {shown}{translate_message(reason) if language == 'zh' else reason}")
    if len(refused) > _MOST_LISTED:
        lines.append(f"- +{len(refused) - _MOST_LISTED}")
    return "\n".join(lines)


def explain_waiting(
    task: Task, board: TaskBoard, unavailable: Mapping[str, str], language: Language
) -> str:
    """Return on whom or what an open task waits; "" if it waits for nothing."""
    is_chinese = language == "zh"
    if task.status == "blocked":
        return f"受阻：{task.error}" if is_chinese else f"blocked: {task.error}"
    if unmet := board.unmet(task):
        needs = ", ".join(f"{name} ({_name_status(board, name, language)})" for name in unmet)
        return f"需要 {needs}" if is_chinese else f"needs {needs}"
    if task.assigned_to in unavailable:
        return f"{task.assigned_to}: {unavailable[task.assigned_to]}"
    return ""


_STATUSES = {
    "pending": "待处理",
    "running": "进行中",
    "blocked": "受阻",
    "completed": "已完成",
    "failed": "失败",
    "cancelled": "已取消",
}


def _name_status(board: TaskBoard, name: str, language: Language) -> str:
    status = board.tasks[name].status if name in board.tasks else "pending"
    return _STATUSES[status] if language == "zh" else status


# The brief of an agent.


def write_brief(agent: str, board: TaskBoard, language: Language) -> str:
    """Return the brief of an agent about its tasks at a call; "" if it has none."""
    own = board.list_of(agent)
    if not own:
        return ""
    is_chinese = language == "zh"
    running = next((task for task in own if task.status == "running"), None)
    paragraphs = [*_describe_work(running, board, language)] if running else []
    others = [task for task in own if task.status not in ENDED and task is not running]
    heading = "Your other open tasks:" if running else "Your open tasks:"
    heading = "你未完成的任务：" if is_chinese else heading
    paragraphs += _list_tasks(heading, others, board, language)
    ended = [task for task in own if task.status in ENDED]
    heading = "你最近结束的任务：" if is_chinese else "Your last ended tasks:"
    paragraphs += _list_tasks(heading, ended[-_MOST_ENDED:], board, language)
    if running:
        paragraphs.append(_HOW[is_chinese])
    return "\n\n".join(paragraphs)


def _list_tasks(
    heading: str, tasks: Sequence[Task], board: TaskBoard, language: Language
) -> Iterator[str]:
    """Yield the paragraph that lists tasks, if there are any."""
    lines = [
        f"- {task.id} ({_name_status(board, task.id, language)}): {task.title}"
        for task in tasks[:_MOST_LISTED]
    ]
    if lines:
        yield "\n".join([heading, *lines])


def _describe_work(task: Task, board: TaskBoard, language: Language) -> Iterator[str]:
    """Yield the paragraphs about the task on which an agent works."""
    is_chinese = language == "zh"
    heading = f"任务 {task.id}：{task.title}" if is_chinese else f"Task {task.id}: {task.title}"
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
        yield "\n".join(
            ["所需任务的结果：" if is_chinese else "Results of the tasks it needs:", *results]
        )
    if task.error:
        reason = cut_text(task.error, LONGEST_RESULT)
        yield f"上一次尝试：{reason}" if is_chinese else f"The last attempt ended so: {reason}"


_HOW = (
    "Please complete this task. Your answer is its result. If it is not for you, answer `<pass/>` "
    "alone: another agent takes it. If you cannot go on, say so by the tool `task_update`, or end "
    "your answer with a block, whose `action` is block, help (`to` an agent), fail or pass:\n"
    "```task_list\n"
    '{"actions": [{"action": "block", "text": "what or whom it waits for"}]}\n'
    "```\n"
    'In the same block, `"tasks": [{"title": "...", "needs": ["t1"]}]` adds tasks.',
    "请完成这项任务，你的回答就是它的结果。如果它不适合你，只回答 `<pass/>`，会由其他智能体接手。"
    "如果无法继续，请用工具 `task_update` 说明，或在回答末尾写一个代码块，"
    "其中 `action` 为 block、help（`to` 填智能体）、fail 或 pass：\n"
    "```task_list\n"
    '{"actions": [{"action": "block", "text": "在等什么或等谁"}]}\n'
    "```\n"
    '在同一个代码块里，`"tasks": [{"title": "...", "needs": ["t1"]}]` 可以添加任务。',
)
