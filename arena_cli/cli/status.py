"""Show what agents do now, and what waits for a person: `arena status`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import command_line, common
from arena_cli.reports.lines import Words, user_words
from arena_cli.session import status as session_status
from arena_cli.session import store
from arena_cli.session.status import SessionStatus
from arena_cli.util.text import cut_text, escape_line

if TYPE_CHECKING:
    from arena_cli.session.store import Stored

_LONGEST_DETAIL = 60

OneSession = Annotated[
    str | None,
    typer.Argument(
        help="Show this session; by default all with an open chain, and the last one.",
        autocompletion=command_line.complete_sessions,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def status(context: typer.Context, session: OneSession = None, as_json: AsJson = False) -> None:
    """Show the state of agents and sessions, and what waits for a person."""
    loaded = common.load_workspace(context)
    statuses = []
    for stored in _choose(context, session, loaded.root):
        team = common.find_team(loaded, stored)
        statuses.append(session_status.read_status(loaded.root, stored, team))
    if as_json:
        common.print_json({"sessions": [found.document() for found in statuses]})
        return
    say = user_words()
    for found in statuses:
        for line in _list_lines(found, say):
            common.print_line(line)


def _choose(context: typer.Context, session: str | None, root: Path) -> list[Stored]:
    if session is not None:
        return [common.find_session(context, session)]
    sessions = store.stored(root)
    open_ones = [stored for stored in sessions if session_status.is_open(stored)]
    return open_ones or [store.last(root)]


def _list_lines(found: SessionStatus, say: Words) -> Iterator[str]:
    heading = say(
        "session {session} · chain {chain} · {state}",
        session=escape_line(found.session),
        chain=found.chain,
        state=say.enum(found.state),
    )
    detail = f"{say(': ')}{escape_line(found.detail)}" if found.detail else ""
    yield f"{heading}{detail}"
    width = max((len(agent.agent) for agent in found.agents), default=0)
    states = [say.enum(agent.state) for agent in found.agents]
    longest = max(map(len, states), default=0)
    for agent, state in zip(found.agents, states, strict=True):
        since = f"  {say('since {time}', time=agent.since[11:19])}" if agent.since else ""
        detail = escape_line(cut_text(agent.detail, _LONGEST_DETAIL))
        row = f"  {escape_line(agent.agent):{width}}  {state:{longest}}{since}  {detail}"
        yield row.rstrip()
    for request in found.requests:
        asked = request.asked
        yield "  " + say(
            "request {request} of {agent} waits: {action}: {detail}",
            request=asked.request,
            agent=escape_line(asked.agent),
            action=escape_line(asked.action),
            detail=escape_line(cut_text(asked.detail, _LONGEST_DETAIL)),
        )
    if found.notes:
        notes = say(", ").join(map(escape_line, found.notes))
        yield "  " + say("notes that wait for approval: {notes}", notes=notes)
    for counts in found.decisions:
        yield "  " + say(
            "decisions of {agent}: {count}, {rejected} rejected ({rate} %)",
            agent=escape_line(counts.agent),
            count=counts.decisions,
            rejected=counts.rejected,
            rate=f"{counts.rate * 100:.0f}",
        )
