"""The keys under which agents write tasks: none, one or all of them may be present."""

LISTS = ("tasks", "items", "task_list", "todos", "list", "subtasks")
TITLES = ("title", "text", "task", "name", "content", "description", "summary")
STATES = ("done", "completed", "checked", "status", "state")
DONE = frozenset({"done", "complete", "completed", "finished", "closed", "完成", "已完成"})

DEEPEST = 16
"""Levels of tasks below tasks that are looked at."""
