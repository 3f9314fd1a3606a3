"""Step into a session, or into its past, and mark its messages.

`arena pause|cancel|steer|terminate|react|read` may be said to a session that another process runs.
A request goes into the session's inbox (`engine.inbox`). The process that runs the chain carries it
out within a second; if no process does, this one takes the lock and does it.

`arena checkpoint|checkpoints|fork|rewind|edit|reassign` concern its past. Checkpoints, edits and
reassignments go through the inbox, too. A fork only reads its session. A rewind takes the session's
lock, so no chain may be running.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from arena_cli.cli import common, options
from arena_cli.engine.inbox import ControlRequest, Inbox, Outcome
from arena_cli.errors import SessionBusy, UsageError
from arena_cli.reports.lines import Words, user_words
from arena_cli.session import outgoing, past
from arena_cli.session.past import MarkedPoint, Point
from arena_cli.session.session import Session, make_redactor
from arena_cli.session.store import Stored
from arena_cli.transcript import queries, reader
from arena_cli.transcript.revisions import list_visible
from arena_cli.util.language import translate_message
from arena_cli.util.text import cut_text, escape_line
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Team
from arena_cli.workspace.workspace import Workspace

_POLL_S = 0.1
_QUOTED = 60  # characters of a message in the list of `arena unread`
_ON_EVENTS = ("checkpoint", "edit", "reassign")  # they need something that was there before

OneAgent = Annotated[str | None, options.agent_option(help="Do it to this agent only.")]
TheAgent = Annotated[str, options.agent_option(help="Terminate this agent.")]


def pause(
    context: typer.Context,
    session: options.LastSession = None,
    agent: OneAgent = None,
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Pause a chain once its running replies have ended, or one agent for the session."""
    if agent is None:
        send_request(context, session, wait, by, act="pause")
    else:
        send_request(context, session, wait, by, act="agent_state", agent=agent, state="paused")


def cancel(
    context: typer.Context,
    session: options.LastSession = None,
    agent: OneAgent = None,
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """End a chain and its running replies at once, or only the running reply of one agent."""
    send_request(context, session, wait, by, act="cancel", agent=agent)


def steer(
    context: typer.Context,
    session: options.TheSession,
    message: Annotated[str, typer.Argument(help="Send this message; `-` reads standard input.")],
    now: Annotated[
        bool, typer.Option("--now", help="End the running replies first; keep them as partial.")
    ] = False,
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Send a message that joins a running or paused chain at its next turn."""
    text = common.read_message(message, None)
    send_request(context, session, wait, by, act="steer", text=text, now=now)


def terminate(
    context: typer.Context,
    session: options.TheSession,
    agent: TheAgent,
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Take an agent out of a session for good; its running reply ends."""
    send_request(context, session, wait, by, act="agent_state", agent=agent, state="terminated")


def resume_agent(context: typer.Context, session: str | None, agent: str, wait: float) -> None:
    """Let a paused agent take part again."""
    send_request(context, session, wait, None, act="agent_state", agent=agent, state="running")


def send_request(
    context: typer.Context,
    session: str | None,
    wait: float,
    by: str | None,
    *,
    agent: str | None = None,
    **fields: object,
) -> None:
    """Have a person's request carried out, and print what was done. Raises ArenaError."""
    loaded = common.load_workspace(context)
    stored = common.find_session(context, session)
    if fields["act"] in _ON_EVENTS and not reader.last_seq(stored.transcript):
        raise UsageError(
            f"session {escape_line(stored.name)} has no event yet", "Send a message first."
        )
    team = common.find_team(loaded, stored)
    human = outgoing.find_human(team, by).id
    agent_id = "" if agent is None else _find_agent(team, agent)
    request = ControlRequest.model_validate({**fields, "by": human, "agent": agent_id})
    outcome = _carry_out(loaded, stored, team, request, wait)
    common.print_line(translate_message(escape_line(outcome.check())))


def _find_agent(team: Team, name: str) -> str:
    """Return the id of the member with that name; an unknown name as it is."""
    ids = mentions.resolve_mentions([name], mentions.build_roster(team), author="", opener="").ids
    return ids[0] if len(ids) == 1 and team.member(ids[0]) else name


def _carry_out(
    loaded: Workspace, stored: Stored, team: Team, request: ControlRequest, wait_s: float
) -> Outcome:
    """Have a request carried out, by the process that runs the session or by this one.

    Raises SessionBusy, DiskRefused, or UsageError for a session that cannot be opened.
    """
    inbox = Inbox(stored.folder)
    path = inbox.put(request)
    ends_at = time.monotonic() + wait_s
    try:
        while (outcome := inbox.read_answer(path)) is None:
            if not _take_requests(loaded, stored, team) and time.monotonic() >= ends_at:
                if inbox.withdraw(path):
                    raise SessionBusy(
                        f"session {escape_line(stored.name)} did not answer within {wait_s:g} s",
                        "Another process holds it and runs no chain. Try again, or raise --wait.",
                    )
                ends_at += wait_s + 1  # it is being carried out
            time.sleep(_POLL_S)
    except BaseException:
        inbox.withdraw(path)
        raise
    return outcome


def _take_requests(loaded: Workspace, stored: Stored, team: Team) -> bool:
    """Carry out the waiting requests in this process; return False if another one has the session.

    Raises ArenaError.
    """
    config = common.make_config(loaded, wait_s=0)
    try:
        with Session(config, stored.name, team) as opened:
            opened.take_requests()
    except SessionBusy:
        return False
    return True


At = Annotated[
    str,
    typer.Option(
        "--at", metavar="LABEL|SEQ", help="Go to this checkpoint, or to the event of this number."
    ),
]


def checkpoint(
    context: typer.Context,
    session: options.LastSession = None,
    label: Annotated[
        str, typer.Option("--label", metavar="LABEL", help="Give the present state this label.")
    ] = "",
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Give the present state of a session a label, for `arena fork` and `arena rewind`."""
    if not label:
        raise UsageError("the label is missing", "Give one: `--label LABEL`.")
    send_request(context, session, wait, by, act="checkpoint", text=label)


def checkpoints(
    context: typer.Context,
    session: options.LastSession = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checkpoints as JSON.")] = False,
) -> None:
    """List the checkpoints of a session: label, event, time, size, and who made it."""
    stored = common.find_session(context, session, or_archived=True)
    points = past.list_checkpoints(stored.transcript)
    if as_json:
        common.print_json([_record(stored.name, point) for point in points])
        return
    say = user_words()
    rows = [" · ".join(_list_facts(point, say)) for point in points]
    common.print_lines(rows or [say("no checkpoints")])


def _record(session: str, point: MarkedPoint) -> dict[str, object]:
    names = ("label", "at", "ts", "bytes", "by")
    fields = {name: getattr(point.event, name) for name in names}
    return {"session": session, **fields, "skipped": point.is_skipped}


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
    session: options.TheSession,
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
    text = "session {name} continues {source} after event {seq}"
    name, source = escape_line(made.name), escape_line(made.source)
    common.print_line(say(text, name=name, source=source, seq=made.point.at))
    _print_turn(made.point, say)
    if made.closed is not None:
        common.print_line(say("chain {chain} is closed there as interrupted", chain=made.closed))
    if made.newer:
        common.print_line(say("notes made later, left out: {count}", count=made.newer))
    _print_names("notes with a later text than then: {names}", made.changed, say)


def rewind(
    context: typer.Context, session: options.TheSession, at: At, by: options.ActBy = None
) -> None:
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
    text = "session {name} continues after event {seq}: events {first} to {last} are skipped"
    events = {"first": done.first, "last": done.last}
    common.print_line(say(text, name=escape_line(stored.name), seq=done.point.at, **events))
    _print_turn(done.point, say)
    for chain in done.closed:
        common.print_line(say("chain {chain} is closed as interrupted", chain=chain))
    _print_names("notes of the skipped part, archived: {names}", done.archived, say)
    _print_names("approved notes of the skipped part, kept: {names}", done.approved, say)
    text = "older notes that were changed in the skipped part, kept as they are: {names}"
    _print_names(text, done.changed, say)


def edit(
    context: typer.Context,
    session: options.TheSession,
    message: Annotated[str, typer.Argument(help="Correct the message of this id, such as m2.")],
    text: Annotated[str, typer.Argument(help="Show agents this text; `-` reads standard input.")],
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Correct a person's message: agents are shown the new text in the place of the original.

    Both stay in the transcript. Names in the new text call no agent.
    """
    content = common.read_message(text, None)
    send_request(context, session, wait, by, act="edit", target=message, text=content)


def reassign(
    context: typer.Context,
    session: options.TheSession,
    task: Annotated[str, typer.Argument(help="Reassign this task: its id, or its title's start.")],
    agent: options.ToAgent,
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Give a task of a session to another agent; a task is a note of kind `task`."""
    send_request(context, session, wait, by, act="reassign", target=task, agent=agent)


def _print_turn(point: Point, say: Words) -> None:
    if point.turn is not None:
        text = "event {seq} is within turn {turn}: this turn is left out"
        common.print_line(say(text, seq=point.requested, turn=point.turn))


def _print_names(text: str, names: list[str], say: Words) -> None:
    if names:
        common.print_line(say(text, names=", ".join(map(escape_line, names))))


def react(
    context: typer.Context,
    session: options.TheSession,
    message: Annotated[str, typer.Argument(help="React to the message of this id, such as m2.")],
    reaction: Annotated[str, typer.Argument(help="One of 👍 👎 ✅ ❓ 🎉.")],
    by: Annotated[
        str | None, typer.Option("--from", metavar="HUMAN", help="React as this human of the team.")
    ] = None,
    wait: options.ProcessWait = 60,
) -> None:
    """React to a message; agents are shown it, and no agent is called."""
    send_request(context, session, wait, by, act="react", target=message, text=reaction)


def read(
    context: typer.Context,
    session: options.LastSession = None,
    agent: Annotated[
        str | None, options.agent_option(help="Mark them for this agent only.")
    ] = None,
    upto: Annotated[
        str | None,
        typer.Option("--upto", metavar="MESSAGE", help="Mark none after this one, such as m12."),
    ] = None,
    by: options.ActFrom = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Mark messages as read by agents: `arena unread` no longer lists them.

    The agents are shown the messages all the same when they are called.
    """
    send_request(context, session, wait, by, act="read", agent=agent, target=upto or "")


def unread(
    context: typer.Context,
    session: options.LastSession = None,
    agent: Annotated[
        str | None, options.agent_option(help="List only what this agent has not read.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the messages that came since each agent was last called.

    An agent has read all that it was shown, or that `arena read` marked; its own messages and
    reactions do not count.
    """
    stored = common.find_session(context, session, or_archived=True)
    path = stored.transcript
    events = list_visible(event for line in reader.read_lines(path) for event in line.events)
    agents = [] if agent is None else [queries.agent_named(path, agent)]
    unread_of = queries.list_unread(events, agents)
    if as_json:
        common.print_json(
            {name: [message.id for message in messages] for name, messages in unread_of.items()}
        )
        return
    say = user_words()
    for name, messages in unread_of.items():
        common.print_line(say("{who} · {count} unread", who=escape_line(name), count=len(messages)))
        for message in messages:
            text = cut_text(" ".join(message.content.split()), _QUOTED)
            facts = (message.id, message.author_id, text)
            common.print_line(f"  {' · '.join(map(escape_line, facts))}")
