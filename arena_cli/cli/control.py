"""Step into a session that another process may be running: `arena pause|cancel|steer|terminate`.

A request goes into the session's inbox (`engine.inbox`). The process that runs the chain carries it
out within a second; if no process does, this one takes the lock and does it.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from arena_cli.cli import command_line, common
from arena_cli.engine.inbox import ControlRequest, Inbox, Outcome
from arena_cli.errors import SessionBusy
from arena_cli.session import outgoing
from arena_cli.session.session import Session
from arena_cli.session.store import Stored
from arena_cli.util.language import translate_message
from arena_cli.util.text import escape_line
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Team
from arena_cli.workspace.workspace import Workspace

_POLL_S = 0.1

TheSession = Annotated[
    str,
    typer.Argument(help="Use this session.", autocompletion=command_line.complete_sessions),
]
OneAgent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="Do it to this agent only.",
        autocompletion=command_line.complete_agents,
    ),
]
TheAgent = Annotated[
    str,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="Terminate this agent.",
        autocompletion=command_line.complete_agents,
    ),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="HUMAN", help="Act as this human of the team."),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", min=0, metavar="SECONDS", help="Wait up to this long for the running process."
    ),
]


def pause(
    context: typer.Context,
    session: common.LastSession = None,
    agent: OneAgent = None,
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Pause a chain once its running replies have ended, or one agent for the session."""
    if agent is None:
        send_request(context, session, wait, by, act="pause")
    else:
        send_request(context, session, wait, by, act="agent_state", agent=agent, state="paused")


def cancel(
    context: typer.Context,
    session: common.LastSession = None,
    agent: OneAgent = None,
    by: By = None,
    wait: Wait = 60,
) -> None:
    """End a chain and its running replies at once, or only the running reply of one agent."""
    send_request(context, session, wait, by, act="cancel", agent=agent)


def steer(
    context: typer.Context,
    session: TheSession,
    message: Annotated[str, typer.Argument(help="Send this message; `-` reads standard input.")],
    now: Annotated[
        bool, typer.Option("--now", help="End the running replies first; keep them as partial.")
    ] = False,
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Send a message that joins a running or paused chain at its next turn."""
    text = common.read_message(message, None)
    send_request(context, session, wait, by, act="steer", text=text, now=now)


def terminate(
    context: typer.Context, session: TheSession, agent: TheAgent, by: By = None, wait: Wait = 60
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
