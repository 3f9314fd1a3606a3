"""The tasks of a session: `arena task`, `arena tasks` and `arena work`.

What a person does to a task is a request to the session (`cli.control`): the process that runs it
carries it out, or this one if no process does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli import errors
from arena_cli.cli import command_line, common, control, options, send
from arena_cli.errors import UsageError
from arena_cli.protocol import Message
from arena_cli.reports import work_lines
from arena_cli.reports.event_lines import render_details, render_event
from arena_cli.reports.lines import INDENT, Words, clock, draw_message, local_time, user_words
from arena_cli.session import outgoing, store
from arena_cli.session.end_of_life import discard_new
from arena_cli.session.session import Session
from arena_cli.transcript import queries, reader
from arena_cli.transcript.events import Event, MessageEvent, ReplyFinished
from arena_cli.transcript.revisions import list_visible
from arena_cli.transcript.task_events import (
    LONGEST_TITLE,
    Task,
    TaskBoard,
    TaskChanged,
    TaskFacts,
    TaskStatus,
    get_board,
)
from arena_cli.util.language import translate_message
from arena_cli.util.text import cut_text, escape_line, escape_text

if TYPE_CHECKING:
    from arena_cli.session.store import Stored
    from arena_cli.transcript.control_events import ChainPaused
    from arena_cli.transcript.events import ChainFinished
    from arena_cli.workspace.workspace import Workspace


class TaskGroup(command_line.Group):
    """The commands on one task; `complete` is another name of `done`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the arguments."""
        name, *rest = args
        return super().resolve_command(ctx, ["done" if name == "complete" else name, *rest])


task_app = command_line.App(
    cls=TaskGroup,
    help="Add tasks to a session, give them to agents, and decide about them.",
)

_WIDTH = 80

OneTask = Annotated[str, typer.Argument(metavar="TASK", help="Use the task of this id, like t3.")]
Because = Annotated[str, typer.Option("--because", metavar="TEXT", help="Say why.")]
Description = Annotated[
    str,
    typer.Option(
        "--description", "-d", metavar="TEXT", help="Say more about it; `-` reads standard input."
    ),
]
Kind = Annotated[
    str, typer.Option("--type", metavar="TYPE", help="Name the kind of work, such as review.")
]
Assign = Annotated[
    str | None,
    typer.Option(
        "--assign",
        "-a",
        metavar="AGENT",
        help="Give it to this agent.",
        autocompletion=command_line.complete_agents,
    ),
]


@task_app.command()
def add(
    context: typer.Context,
    session: Annotated[str, options.session_argument(help="Use this session, or create it.")],
    title: Annotated[str, typer.Argument(help="Say in one line what to do.")] = "",
    description: Description = "",
    kind: Kind = "",
    priority: Annotated[
        int, typer.Option("--priority", "-p", metavar="N", help="Put it before those of a lower N.")
    ] = 0,
    needs: Annotated[
        str,
        typer.Option(
            "--needs", metavar="TASKS", help="Wait until these are completed, such as t1,t2."
        ),
    ] = "",
    assign: Assign = None,
    from_note: Annotated[
        str,
        typer.Option(
            "--from-note",
            metavar="NOTE",
            help="Take title and description from this note of the session, of the kind task.",
        ),
    ] = "",
    team: options.OneTeam = None,
    author: options.ActFrom = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Add a task that an agent takes when the session works: `arena work`."""
    if bool(title) == bool(from_note):
        raise UsageError("a task needs a title, or --from-note", "Give one of them.")
    text = common.read_message(description, None) if description else ""
    facts = {
        "title": title,
        "description": text,
        "type": kind,
        "priority": priority,
        "needs": [name.strip() for name in needs.split(",") if name.strip()],
    }
    loaded = common.load_workspace(context)
    stored = common.find_existing(loaded.root, session)
    if from_note:
        note = _read_note(context, session, from_note)
        facts |= {**note, "description": text or note["description"]}
    if stored is None or not reader.last_seq(stored.transcript):
        _add_to_new(loaded, session, team, author, facts, assign)
        return
    if team is not None:
        _refuse_other_team(loaded, session, team)
    _change(context, session, wait, author, "add", agent=assign, arguments=facts)


def _read_note(context: typer.Context, session: str, name: str) -> dict[str, str]:
    """Return the facts of a task from a note of the session. Raises UsageError."""
    notes = import_module("arena_cli.cli.notes")
    shelves = import_module("arena_cli.session.shelves")
    among = notes.shelves(context, session, last=False, shared=False)
    reference = notes.find(context, name, among)
    note = shelves.find_note(reference.shelf, reference.id)
    shown = escape_line(note.id)
    if note.kind != "task":
        problem = f"note {shown} is of the kind {note.kind}, not task"
        raise UsageError(problem, "Write the title instead.")
    if note.status == "archived":
        raise UsageError(f"note {shown} is archived", "Write the title instead of --from-note.")
    title = cut_text(" ".join(note.title.split()), LONGEST_TITLE)
    return {"title": title, "description": note.body.strip(), "note": note.id}


def _refuse_other_team(loaded: Workspace, session: str, team: str) -> None:
    members = common.find_team(loaded, store.find(loaded.root, session))
    if members.name != team:
        known = escape_line(members.name or "every agent")
        raise UsageError(
            f"--team {escape_line(team)}: session {escape_line(session)} has the team {known}",
            "Leave out --team, or use another session.",
        )


def _add_to_new(
    loaded: Workspace,
    session: str,
    team: str | None,
    author: str | None,
    facts: dict[str, Any],
    assign: str | None,
) -> None:
    """Add the first task of a session that is not there yet."""
    name = escape_line(session)
    if facts["needs"]:
        raise UsageError(f"--needs: session {name} is new and has no task", "Add these first.")
    near = store.find_near(loaded.root, session)
    if near:
        common.warn(f"warning: session {name} is new; did you mean {escape_line(near)}?")
    members = common.find_team(loaded, None, team)
    if not members.agents:
        raise UsageError("no agent can do a task: the workspace has none", "`arena agents add ID`")
    human = outgoing.find_human(members, author).id
    config = common.make_config(loaded, wait_s=10)
    earlier = store.existing(store.sessions_folder(loaded.root), session)
    try:
        with Session(config, session, members) as opened:
            done = opened.change_task("add", by=human, agent=assign or "", facts=facts)
    except UsageError:
        if earlier is None:  # else the folder may have files of the user
            discard_new(config, session)
        raise
    common.print_line(translate_message(escape_line(done)))


@task_app.command()
def show(
    context: typer.Context,
    session: options.TheSession,
    task: OneTask,
    as_json: options.AsJson = False,
) -> None:
    """Show a task: what it is, how it ended, and what happened to it."""
    stored = common.find_session(context, session, or_archived=True)
    events = _read_events(stored)
    board = TaskBoard.read(events)
    found = _find_task(board, task, stored)
    messages = [e.message for e in events if isinstance(e, (MessageEvent, ReplyFinished))]
    thread = [message for message in messages if message and message.thread == found.id]
    if as_json:
        documents = [message.model_dump(mode="json") for message in thread]
        common.print_json({**_make_record(found, board), "thread": documents})
        return
    say = user_words()
    common.print_lines(_draw_task(found, board, say))
    changes = [e for e in events if isinstance(e, TaskChanged) and e.task == found.id]
    for event in changes[1:]:
        common.print_lines(_draw_change(event, say))
    for message in thread:
        common.print_lines(_draw_in_thread(message, say))


@task_app.command("assign", help="Give a task to an agent.")
def hand_over(
    context: typer.Context,
    session: options.TheSession,
    task: OneTask,
    agent: options.ToAgent,
    author: options.ActFrom = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Carry out the command on a task and an agent; its name is that of the action."""
    _change(context, session, wait, author, str(context.info_name), task, agent=agent)


task_app.command("reassign", help="Give a task to another agent, also one that an agent works on.")(
    hand_over
)


@task_app.command(
    "block", help="Let no agent take a task until it is unblocked; --because says on what it waits."
)
def decide(
    context: typer.Context,
    session: options.TheSession,
    task: OneTask,
    because: Because = "",
    author: options.ActFrom = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Carry out the command on a task; its name is that of the action."""
    _change(context, session, wait, author, str(context.info_name), task, text=because)


task_app.command("unblock", help="Let agents take a task again that is blocked or failed.")(decide)


@task_app.command()
def done(
    context: typer.Context,
    session: options.TheSession,
    task: OneTask,
    result: Annotated[
        str,
        typer.Option(
            "--result", "-r", metavar="TEXT", help="Keep this as the result; `-` reads stdin."
        ),
    ] = "",
    author: options.ActFrom = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Complete a task by hand; tasks that need it are shown the result."""
    text = common.read_message(result, None) if result else ""
    _change(context, session, wait, author, "complete", task, text=text)


task_app.command("cancel", help="Give up a task.")(decide)


def _change(
    context: typer.Context,
    session: str,
    wait: float,
    author: str | None,
    action: str,
    task: str = "",
    **fields: Any,
) -> None:
    control.send_request(
        context, session, wait, author, act="task", action=action, target=task, **fields
    )


Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="List only tasks of this status, such as blocked; repeatable.",
    ),
]
OneAgent = Annotated[str | None, options.agent_option(help="List only tasks of this agent.")]


def tasks(
    context: typer.Context,
    session: options.LastSession = None,
    agent: OneAgent = None,
    status: Statuses = None,
    as_json: options.AsJson = False,
) -> None:
    """List the tasks of a session: status, priority, agent, and for what each waits."""
    for name in status or ():
        if name not in work_lines.STATUSES:
            raise UsageError(
                f"--status: there is no status {escape_line(name)}",
                errors.suggest_nearest(name, work_lines.STATUSES),
            )
    stored = common.find_session(context, session, or_archived=True)
    board = TaskBoard.read(_read_events(stored))
    agent_id = queries.agent_named(stored.transcript, agent) if agent else ""
    chosen = [
        task
        for task in board.tasks.values()
        if task.assigned_to == (agent_id or task.assigned_to) and task.status in (status or _ANY)
    ]
    if as_json:
        common.print_json([_make_record(task, board) for task in chosen])
        return
    say = user_words()
    if not chosen:
        common.print_line(say("no tasks"))
        return
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    rows = work_lines.list_rows(chosen, board, say, escape_line)
    common.print_lines(work_lines.draw_table(rows, say, width))


_ANY: Sequence[TaskStatus] = work_lines.STATUSES


def _read_events(stored: Stored) -> list[Event]:
    """Return the events of a session that no rewind skips."""
    path = stored.transcript
    return list(list_visible(event for line in reader.read_lines(path) for event in line.events))


def _find_task(board: TaskBoard, name: str, stored: Stored) -> Task:
    task = board.tasks.get(name)
    if task is None:
        session = escape_line(stored.name)
        hint = f"`arena tasks {session}` lists them." if board.tasks else ""
        raise UsageError(f"session {session} has no task {escape_line(name)}", hint)
    return task


def _make_record(task: Task, board: TaskBoard) -> dict[str, Any]:
    """Return a task as JSON; `waits_for` are the tasks that it needs and that are not completed."""
    record = {name: getattr(task, name) for name in ("id", "status", *TaskFacts.model_fields)}
    return {**record, **task.model_dump(mode="json"), "waits_for": board.unmet(task)}


def _draw_task(task: Task, board: TaskBoard, say: Words) -> Iterator[str]:
    """Yield the facts about a task."""
    yield f"{task.id} · {say.enum(task.status)} · {escape_line(task.title)}"
    facts = {
        say("agent"): task.assigned_to,
        say("type"): task.type,
        say("priority"): str(task.priority) if task.priority else "",
        say("needs"): say(", ").join(task.needs),
        say("phase"): task.phase,
        say("from the note"): task.note,
        say("added by"): task.by,
        say("attempts"): str(task.attempts) if task.attempts > 1 else "",
        say("added"): local_time(task.created),
        say("started"): local_time(task.started) if task.started else "",
        say("ended"): local_time(task.ended) if task.ended else "",
        say("handed back by"): say(", ").join(task.passed),
    }
    for label, fact in facts.items():
        if fact:
            yield f"{INDENT}{label}{say(': ')}{escape_line(fact)}"
    state = work_lines.describe_state(task, board, say)
    if state:
        yield f"{INDENT}{state}"
    for label, text in ((say("description"), task.description), (say("result"), task.result)):
        if text:
            yield f"{INDENT}{label}{say(': ')}".rstrip()
            for row in escape_text(text).split("\n"):
                yield f"{INDENT}| {row}"


def _draw_change(event: TaskChanged, say: Words) -> Iterator[str]:
    """Yield the lines of a change, also of one that a message reports in the timeline."""
    alone = event.model_copy(update={"message": None, "text": "" if event.reply else event.text})
    line = render_event(alone, say, escape_line)
    if line is not None:
        yield f"{clock(event.ts)}{line.text}"
    yield from (detail.text for detail in render_details(alone, say, escape_line))


def _draw_in_thread(message: Message, say: Words) -> Iterator[str]:
    """Yield the lines of a message in the thread of a task."""
    yield f"{clock(message.timestamp)}  {escape_line(message.author_name)}"
    for drawn in draw_message(message, say):
        yield f"{INDENT}| {drawn.text.strip()}".rstrip()


MostTasks = Annotated[
    int | None, typer.Option("--max-tasks", min=1, metavar="N", help="Start at most N tasks.")
]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", min=0.01, metavar="M", help="Start no task after M minutes."),
]
SomeTasks = Annotated[
    str, typer.Option("--tasks", metavar="TASKS", help="Work on these only, such as t1,t2.")
]


def work(
    context: typer.Context,
    session: options.LastSession = None,
    max_tasks: MostTasks = None,
    minutes: Minutes = None,
    only: SomeTasks = "",
    author: options.ActFrom = None,
    as_json: options.EventsAsJson = False,
    quiet: options.Quiet = False,
    wait: options.Wait = 600,
) -> None:
    """Let the agents of a session do its tasks, until none is left or all are blocked.

    Each idle agent takes the task of the highest priority that is its own, or that fits.
    """
    loaded = common.load_workspace(context)
    stored = common.find_session(context, session)
    members = common.find_team(loaded, stored)
    human = outgoing.find_human(members, author).id
    names = [name.strip() for name in only.split(",") if name.strip()]

    async def start(opened: Session) -> ChainFinished | ChainPaused | None:
        board = get_board(opened.journal.fold)
        is_idle = opened.open_chain is None and board.tasks.keys() >= set(names)
        is_stuck = all(task.status != "running" for task in board.list_open(names))
        if is_idle and is_stuck and not board.list_ready(names):
            return None
        return await opened.work(by=human, tasks=names, max_tasks=max_tasks, minutes=minutes)

    opened, end = send.run_chain(
        loaded, stored, members, start, as_json=as_json, quiet=quiet, wait_s=wait
    )
    board = get_board(opened.journal.fold)
    _report(end, board, names, opened, is_shown=not (as_json or quiet))


def _report(
    end: ChainFinished | ChainPaused | None,
    board: TaskBoard,
    names: Sequence[str],
    opened: Session,
    *,
    is_shown: bool,
) -> None:
    """Print the tasks that remain; exit by the end of the chain, or with 4 if none continues."""
    if end is not None:
        send.exit_by(end, opened.name, opened.journal.fold)
    say = user_words()
    left = board.list_open(names)
    is_limited = end is not None and end.type == "chain_finished" and end.end == "chain_limit"
    if not left or is_limited:
        if is_shown:
            common.print_line(_describe_rest(end, board, left, say))
        return
    name = escape_line(opened.name)
    common.warn(f"arena: session {name}: no task can continue, {len(left)} left")
    for task in left if end is None or not is_shown else ():  # else the last message says it
        state = work_lines.describe_state(task, board, say)
        row = f"{task.id} {say.enum(task.status)}: {escape_line(task.title)}"
        common.print_error(f"  {row}{say(': ') if state else ''}{state}")
    if any(task.status == "blocked" for task in left):
        common.warn(f"  `arena task unblock {name} TASK` lets an agent take it again.")
    raise typer.Exit(errors.EXIT_PAUSED)


def _describe_rest(
    end: ChainFinished | ChainPaused | None, board: TaskBoard, left: Sequence[Task], say: Words
) -> str:
    if left:
        return say("the limit is reached, {count} tasks are left", count=len(left))
    if end is None:
        return say("nothing to do: no task is left")
    counts = work_lines.describe_counts(work_lines.count_tasks(board), say)
    return say("tasks: {counts}", counts=counts)
