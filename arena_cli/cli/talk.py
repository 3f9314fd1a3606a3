"""`arena send` and `arena resume`: a message in, a chain run to its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common, complete, interrupt
from arena_cli.cli.common import Output, Printer
from arena_cli.ground.errors import UsageError

if TYPE_CHECKING:
    from arena_cli.session.outgoing import Outgoing
    from arena_cli.session.session import Place
    from arena_cli.session.store import Stored
    from arena_cli.team.model import Team
    from arena_cli.team.workspace import Workspace
    from arena_cli.transcript.events import ChainFinished

EXIT_FAILED = 3

Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait if it is busy.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the events as they come, one a line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but problems.")]


def send(
    context: typer.Context,
    message: Annotated[
        str | None, typer.Argument(help="The message; `-`, or nothing, reads a pipe.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            "-s",
            help="The session to go on with, or to make.",
            autocompletion=complete.complete_sessions,
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the last session.")
    ] = False,
    team: Annotated[
        str | None,
        typer.Option(
            "--team", "-t", help="The team to talk to.", autocompletion=complete.complete_teams
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            help="An agent that must answer; repeat for more.",
            autocompletion=complete.complete_agents,
        ),
    ] = None,
    author: Annotated[
        str | None, typer.Option("--from", help="Which of the team's humans says it.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the message here.")
    ] = None,
    attach: Annotated[
        list[Path] | None, typer.Option("--attach", "-a", help="A file to attach; repeat for more.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            "-n",
            help="Say who would be asked, with what context; call nobody, write nothing.",
        ),
    ] = False,
    wait: Wait = 600,
) -> None:
    """Send a message to the team and run the conversation until nobody is left to speak."""
    from arena_cli.session import outgoing, store
    from arena_cli.session.session import Session

    loaded = common.workspace_of(context)
    stored = _stored(loaded, session, go_on)
    members = _team(loaded, team, stored)
    content = common.message_from(message, file)
    sent = outgoing.outgoing(members, content, author=author, to=to or (), files=attach or ())
    name = stored.name if stored else session
    if dry_run:
        if not quiet:
            _preview(common.place_of(loaded, wait_s=0), name, members, sent, as_json=as_json)
        return
    output = Output()
    printer = _printer(output, members, as_json=as_json, quiet=quiet)
    with (
        printer,
        Session(
            common.place_of(loaded, wait_s=wait),
            name,
            members,
            on_event=printer.event,
            on_text=printer.on_text,
            on_wait=lambda name: common.warn(f"session {name} is busy; waiting up to {wait:g} s"),
        ) as opened,
    ):
        common.warn_of(opened.folder / store.TRANSCRIPT, opened.problems)
        printer.goes_on(opened.journal.fold)
        if opened.open_chain:
            common.warn(
                f"session {opened.name}: the chain that was cut short is closed as interrupted "
                "(`arena resume` would have gone on with it)"
            )
        finished = interrupt.run(opened.send(sent), hint=_resume_hint(opened.name))
    _exit(output, finished)


def resume(
    context: typer.Context,
    session: Annotated[
        str | None,
        typer.Argument(
            help="The session; without one, the last.", autocompletion=complete.complete_sessions
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    wait: Wait = 600,
) -> None:
    """Go on with a conversation that was cut short; finished replies are never called again."""
    from arena_cli.session import store
    from arena_cli.session.session import Session

    loaded = common.workspace_of(context)
    stored = _stored(loaded, session, go_on=session is None, must_exist=True)
    assert stored is not None
    members = _team(loaded, None, stored)
    output = Output()
    printer = _printer(output, members, as_json=as_json, quiet=quiet)
    with (
        printer,
        Session(
            common.place_of(loaded, wait_s=wait),
            stored.name,
            members,
            on_event=printer.event,
            on_text=printer.on_text,
            on_wait=lambda name: common.warn(f"session {name} is busy; waiting up to {wait:g} s"),
        ) as opened,
    ):
        common.warn_of(opened.folder / store.TRANSCRIPT, opened.problems)
        if opened.open_chain:
            printer.goes_on(opened.journal.fold)
        finished = interrupt.run(opened.resume(), hint=_resume_hint(stored.name))
    if finished is None:
        common.warn(f"session {stored.name}: nothing was cut short")
        return
    _exit(output, finished)


def _stored(
    loaded: Workspace, session: str | None, go_on: bool, *, must_exist: bool = False
) -> Stored | None:
    """The session that is to go on; None for a new one."""
    from arena_cli.session import names, store

    if session is not None and go_on:
        raise UsageError("--session and --continue were given", "Give one of them.")
    if go_on:
        return store.last(loaded.root)
    if session is None:
        return None
    there = names.existing(store.sessions_of(loaded.root), names.checked(session))
    if must_exist or (there and (there / store.TRANSCRIPT).is_file()):
        return store.find(loaded.root, session)
    return None


def _team(loaded: Workspace, name: str | None, stored: Stored | None) -> Team:
    """`--team`, else the session's, else the workspace's, else every agent."""
    from arena_cli.transcript import opening

    if name is None and stored is not None:
        known = opening.session_of(stored.transcript)
        if known is not None:
            return loaded.team(known.team)
    return loaded.team(name or loaded.file.team)


def _preview(
    place: Place, name: str | None, members: Team, sent: Outgoing, *, as_json: bool
) -> None:
    from arena_cli.cli import dry_run
    from arena_cli.session import preview

    found = preview.of(place, name, members, sent)
    if as_json:
        common.say_json(dry_run.document(found))
        return
    for line in dry_run.lines(found):
        common.say(line)


def _printer(output: Output, team: Team, *, as_json: bool, quiet: bool) -> Printer:
    avatars = {member.id: member.profile.avatar for member in team.members}
    return Printer(output, as_json=as_json, quiet=quiet, avatars=avatars, live=True)


def _resume_hint(name: str) -> str:
    return f"What was finished is kept; `arena resume {name}` goes on."


def _exit(output: Output, finished: ChainFinished) -> None:
    output.check()
    if finished.end == "failed":
        raise typer.Exit(EXIT_FAILED)
