"""Step into the past of a session: `arena checkpoint|checkpoints|fork|rewind|edit|reassign`.

Checkpoints, edits and reassignments go through the inbox, as the commands of `cli.control` do. A
fork only reads its session. A rewind takes the session's lock, so no chain may be running.
"""

from __future__ import annotations

from typing import Annotated

import typer

from arena_cli.cli import command_line, common
from arena_cli.cli.control import By, TheSession, Wait, send_request
from arena_cli.errors import UsageError
from arena_cli.reports.lines import Words, user_words
from arena_cli.session import outgoing, past
from arena_cli.session.past import MarkedPoint, Point
from arena_cli.session.session import make_redactor
from arena_cli.transcript import reader
from arena_cli.util.text import escape_line

At = Annotated[
    str,
    typer.Option(
        "--at", metavar="LABEL|SEQ", help="Go to this checkpoint, or to the event of this number."
    ),
]


def checkpoint(
    context: typer.Context,
    session: common.LastSession = None,
    label: Annotated[
        str, typer.Option("--label", metavar="LABEL", help="Give the present state this label.")
    ] = "",
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Give the present state of a session a label, for `arena fork` and `arena rewind`."""
    if not label:
        raise UsageError("the label is missing", "Give one: `--label LABEL`.")
    _send(context, session, wait, by, act="checkpoint", text=label)


def checkpoints(
    context: typer.Context,
    session: common.LastSession = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checkpoints as JSON.")] = False,
) -> None:
    """List the checkpoints of a session: label, event, time, size, and who made it."""
    stored = common.find_session(context, session, or_archived=True)
    points = past.list_checkpoints(stored.transcript)
    if as_json:
        common.print_json([_record(stored.name, point) for point in points])
        return
    say = user_words()
    if not points:
        common.print_line(say("no checkpoints"))
        return
    for point in points:
        common.print_line(" · ".join(_list_facts(point, say)))


def _record(session: str, point: MarkedPoint) -> dict[str, object]:
    event = point.event
    return {
        "session": session,
        "label": event.label,
        "at": event.at,
        "ts": event.ts,
        "bytes": event.bytes,
        "by": event.by,
        "skipped": point.is_skipped,
    }


def _list_facts(point: MarkedPoint, say: Words) -> list[str]:
    event = point.event
    facts = [
        escape_line(event.label),
        say("event {seq}", seq=event.at),
        event.ts,
        say("{count} bytes", count=f"{event.bytes:,}"),
        escape_line(event.by),
    ]
    return [*facts, say("skipped by a rewind")] if point.is_skipped else facts


def fork(
    context: typer.Context,
    session: TheSession,
    at: At,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NEW", help="Call the new session NEW.")
    ] = None,
) -> None:
    """Start a new session that shares the past of another one up to a point."""
    loaded = common.load_workspace(context)
    config = common.make_config(loaded, wait_s=10)
    made = past.fork(config, session, at, name)
    say = user_words()
    common.print_line(
        say(
            "session {name} continues {source} after event {seq}",
            name=escape_line(made.name),
            source=escape_line(made.source),
            seq=made.point.at,
        )
    )
    _print_turn(made.point, say)
    if made.closed is not None:
        common.print_line(say("chain {chain} is closed there as interrupted", chain=made.closed))
    if made.newer:
        common.print_line(say("notes made later, left out: {count}", count=made.newer))
    if made.changed:
        text = "notes with a later text than then: {names}"
        common.print_line(say(text, names=_join(made.changed)))


def rewind(context: typer.Context, session: TheSession, at: At, by: By = None) -> None:
    """Go back to a point of a session; agents no longer see what followed.

    The skipped events stay in the transcript. What was spent stays spent. No chain may be running.
    """
    loaded = common.load_workspace(context)
    stored = common.find_session(context, session)
    human = outgoing.find_human(common.find_team(loaded, stored), by).id
    config = common.make_config(loaded, wait_s=10)
    done = past.rewind(
        config, stored, at, human, redactor=make_redactor(config), on_problem=common.warn
    )
    say = user_words()
    common.print_line(
        say(
            "session {name} continues after event {seq}: events {first} to {last} are skipped",
            name=escape_line(stored.name),
            seq=done.point.at,
            first=done.first,
            last=done.last,
        )
    )
    _print_turn(done.point, say)
    for chain in done.closed:
        common.print_line(say("chain {chain} is closed as interrupted", chain=chain))
    if done.archived:
        text = "notes of the skipped part, archived: {names}"
        common.print_line(say(text, names=_join(done.archived)))
    if done.approved:
        text = "approved notes of the skipped part, kept: {names}"
        common.print_line(say(text, names=_join(done.approved)))
    if done.changed:
        text = "older notes that were changed in the skipped part, kept as they are: {names}"
        common.print_line(say(text, names=_join(done.changed)))


def edit(
    context: typer.Context,
    session: TheSession,
    message: Annotated[str, typer.Argument(help="Correct the message of this id, such as m2.")],
    text: Annotated[str, typer.Argument(help="Show agents this text; `-` reads standard input.")],
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Correct a person's message: agents are shown the new text in the place of the original.

    Both stay in the transcript. Names in the new text call no agent.
    """
    content = common.read_message(text, None)
    _send(context, session, wait, by, act="edit", target=message, text=content)


def reassign(
    context: typer.Context,
    session: TheSession,
    task: Annotated[str, typer.Argument(help="Reassign this task: its id, or its title's start.")],
    agent: Annotated[
        str,
        typer.Argument(help="Give it to this agent.", autocompletion=command_line.complete_agents),
    ],
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Give a task of a session to another agent; a task is a note of kind `task`."""
    _send(context, session, wait, by, act="reassign", target=task, agent=agent)


def _send(
    context: typer.Context,
    session: str | None,
    wait: float,
    by: str | None,
    *,
    agent: str | None = None,
    **fields: object,
) -> None:
    stored = common.find_session(context, session)
    if not reader.last_seq(stored.transcript):
        raise UsageError(
            f"session {escape_line(stored.name)} has no event yet", "Send a message first."
        )
    send_request(context, stored.name, wait, by, agent=agent, **fields)


def _print_turn(point: Point, say: Words) -> None:
    if point.turn is not None:
        text = "event {seq} is within turn {turn}: this turn is left out"
        common.print_line(say(text, seq=point.requested, turn=point.turn))


def _join(names: list[str]) -> str:
    return ", ".join(map(escape_line, names))
