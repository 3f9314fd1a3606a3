"""The keys and words by which agents write lists of tasks."""

TASK_LIST_KEYS = ("tasks", "items", "task_list", "todos", "list", "subtasks")
TASK_TITLE_KEYS = ("title", "text", "task", "name", "content", "description", "summary")
TASK_STATE_KEYS = ("done", "completed", "checked", "status", "state")
TASK_DONE_WORDS = frozenset(
    {"done", "complete", "completed", "finished", "closed", "完成", "已完成"}
)

TASK_MAX_DEPTH = 16
"""Levels of tasks below tasks that are looked at."""
