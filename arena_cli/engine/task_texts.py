"""Texts of tasks: what the group is told, and what an agent is told that works on one."""

from __future__ import annotations

from arena_cli.transcript.task_events import Task, TaskAction
from arena_cli.workspace.models import Language

TASK_NOTICE = "task"
"""The `notice` in the metadata of system messages about a task."""

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


def describe_change(
    action: TaskAction, task: Task, text: str, language: Language, *, agent: str = ""
) -> str:
    """Return the message about a change of a task; `text` is a reason, not a result."""
    is_chinese = language == "zh"
    content = _CHANGES[action][is_chinese].format(id=task.id, title=task.title, agent=agent)
    if not text or action == "complete":
        return content
    return f"{content} - {text}"
