"""Make the message that lets the agents of a session work on tasks (`Session.work`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

from arena_cli.adapters.base import SessionConfig
from arena_cli.errors import UsageError
from arena_cli.session import outgoing
from arena_cli.session.outgoing import Outgoing
from arena_cli.transcript.log import Journal
from arena_cli.transcript.task_events import TaskBoard, get_board
from arena_cli.util.clock import format_timestamp
from arena_cli.util.text import escape_line
from arena_cli.workspace.models import Team

MOST_MINUTES = 60 * 24 * 365


def write_opening(
    journal: Journal,
    team: Team,
    config: SessionConfig,
    *,
    by: str,
    tasks: Sequence[str],
    max_tasks: int | None,
    minutes: float | None,
) -> Outgoing:
    """Return the message of a person that opens the chain; nothing is written.

    Raises UsageError if it cannot be opened, or if there is nothing to do.
    """
    session = escape_line(journal.log.path.parent.name)
    human = outgoing.find_human(team, by)
    chain = journal.fold.open
    if chain is not None:
        raise UsageError(
            f"session {session} has an open chain ({chain.number}): no other work can begin",
            f"`arena resume {session}` continues it, `arena cancel {session}` ends it.",
        )
    if max_tasks is not None and max_tasks < 1:
        raise UsageError(f"{max_tasks} is no number of tasks", "Allow at least one.")
    if minutes is not None and not (0 < minutes <= MOST_MINUTES and math.isfinite(minutes)):
        raise UsageError(
            f"{minutes} is no number of minutes",
            f"Give more than 0 minutes, and at most {MOST_MINUTES}.",
        )
    _check_open(get_board(journal.fold), tasks, session)
    fields: dict[str, object] = {"by": human.id}
    if tasks:
        fields["tasks"] = list(dict.fromkeys(tasks))
    if max_tasks is not None:
        fields["max_tasks"] = max_tasks
    if minutes is not None:
        fields["until"] = format_timestamp(config.clock.now() + timedelta(minutes=minutes))
    content = "请处理任务。" if config.language == "zh" else "Please work on the tasks."
    return Outgoing(content=content, author=human, kind="task", work=fields)


def _check_open(board: TaskBoard, tasks: Sequence[str], session: str) -> None:
    """Check that tasks exist and some of them are open; without names, all are meant."""
    unknown = [name for name in tasks if name not in board.tasks]
    if unknown:
        raise UsageError(
            f"session {session} has no task {escape_line(unknown[0])}",
            f"`arena tasks {session}` lists them." if board.tasks else "",
        )
    if not board.list_open(tasks):
        raise UsageError(
            f"session {session} has no open task",
            f"`arena task add {session} TITLE` adds one.",
        )
