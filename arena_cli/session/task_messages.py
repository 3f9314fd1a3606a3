"""Prepare messages about tasks: the one that lets agents work, and those in a task's thread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from arena_cli.adapters.base import SessionConfig
from arena_cli.errors import UsageError
from arena_cli.session import outgoing
from arena_cli.session.outgoing import Outgoing
from arena_cli.transcript import reader
from arena_cli.transcript.events import MessageEvent, ReplyFinished
from arena_cli.transcript.log import Journal
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.transcript.state import Fold
from arena_cli.transcript.task_events import Task, TaskBoard, get_board
from arena_cli.util.clock import format_timestamp
from arena_cli.util.text import escape_line
from arena_cli.workspace.mentions import build_roster, parse_mentions
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
    board = get_board(journal.fold)
    for name in tasks:
        _find_task(board, name, session)
    if not board.list_open(tasks):
        raise UsageError(
            f"session {session} has no open task",
            f"`arena task add {session} TITLE` adds one.",
        )
    fields: dict[str, object] = {"by": human.id}
    if tasks:
        fields["tasks"] = list(dict.fromkeys(tasks))
    if max_tasks is not None:
        fields["max_tasks"] = max_tasks
    if minutes is not None:
        fields["until"] = format_timestamp(config.clock.now() + timedelta(minutes=minutes))
    content = "请处理任务。" if config.language == "zh" else "Please work on the tasks."
    return Outgoing(content=content, author=human, kind="task", work=fields)


def _find_task(board: TaskBoard, name: str, session: str) -> Task:
    """Return the task of that id. Raises UsageError if there is none."""
    if name not in board.tasks:
        raise UsageError(
            f"session {session} has no task {escape_line(name)}",
            f"`arena tasks {session}` lists them." if board.tasks else "",
        )
    return board.tasks[name]


_TYPES = frozenset({"message", "reply_finished"})


def resolve_thread(sent: Outgoing, fold: Fold, transcript: Path, team: Team) -> Outgoing:
    """Return a message with the agents in the thread of its task; the first one works on it.

    Raises UsageError if no agent works on it, or if the message names an agent outside.
    """
    session, name = escape_line(transcript.parent.name), escape_line(sent.thread)
    if sent.plan:
        raise UsageError("a message in the thread of a task is not planned", "Omit --plan.")
    task = _find_task(get_board(fold), sent.thread, session)
    if team.member(task.assigned_to) is None:
        raise UsageError(
            f"no agent of the team works on task {name}",
            f"`arena task assign {session} {name} AGENT` gives it to one.",
        )
    writers = _list_writers(sent.thread, fold, transcript)
    agents = [
        agent
        for agent in dict.fromkeys((task.assigned_to, task.by, *writers))
        if team.member(agent) is not None
    ]
    _refuse_outsiders(sent, agents, team)
    return sent._replace(shown_to=tuple(agents))


def _list_writers(task: str, fold: Fold, transcript: Path) -> list[str]:
    """Return the agents that wrote in the thread of a task, in order of their first message."""
    revisions = fold.revisions or NO_REVISIONS
    writers = [
        author for author, seq in _read_authors(task, transcript) if not revisions.is_skipped(seq)
    ]
    return list(dict.fromkeys(reversed(writers)))


def _read_authors(task: str, transcript: Path) -> Iterator[tuple[str, int]]:
    """Yield the agents of the messages in a thread, the newest first, and the seq of each."""
    for event in reader.newest_first(transcript, reader.tail(transcript)[1], _TYPES):
        if not isinstance(event, (MessageEvent, ReplyFinished)):
            continue
        message = event.message
        if message and message.thread == task and message.author_type == "agent":
            yield message.author_id, event.seq


def _refuse_outsiders(sent: Outgoing, agents: list[str], team: Team) -> None:
    """Raise UsageError if a message names an agent that is not in the thread."""
    author = sent.author.id
    mentioned = parse_mentions(sent.content, build_roster(team), author=author, opener=author)
    named = [name for name in mentioned.ids if name not in mentioned.by_all_only]
    for name in (*sent.to, *named):
        if name not in agents and team.member(name) is not None:
            inside = ", ".join(agents)
            raise UsageError(
                f"{name} is not in the thread of task {escape_line(sent.thread)}",
                f"Its agents: {inside}. Write to others without --thread.",
            )
