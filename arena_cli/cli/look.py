"""`show`, `sessions`, `doctor`, `path`: they read what there is, write nothing, take no lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common
from arena_cli.cli.common import Output, Printer

if TYPE_CHECKING:
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event

OneSession = Annotated[str | None, typer.Argument(help="The session; without one, the last.")]


def show(
    context: typer.Context,
    session: OneSession = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the transcript's events, one a line.")
    ] = False,
) -> None:
    """Print a session's timeline from its transcript."""
    stored = _one(context, session)
    output = Output()
    printer = Printer(output, as_json=as_json)
    for event in _events(stored):
        printer.event(event)
    output.check()


def _events(stored: Stored) -> Iterator[Event]:
    """Every event that can be read; what cannot be is told on stderr, with its line."""
    from arena_cli.transcript import read

    for line in read.lines(stored.transcript):
        common.warn_of(stored.transcript, [line.problem] if line.problem else [])
        yield from line.events


def sessions(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as one JSON list.")] = False,
) -> None:
    """List the sessions, the last written first."""
    from arena_cli.ground.text import shown_line
    from arena_cli.session import store
    from arena_cli.transcript import opening

    found = [
        {"session": one.name, **opening.summary_of(one.transcript)}
        for one in store.stored(common.root_of(context))
    ]
    if as_json:
        common.say_json(found)
        return
    if not found:
        common.warn('no sessions yet; start one: arena send "hello"')
    for one in found:
        facts = (one["session"], one["team"] or "every agent", one["end"], one["changed"])
        common.say(" · ".join(shown_line(str(fact)) for fact in facts))


def path(context: typer.Context, session: OneSession = None) -> None:
    """Print the workspace's folder, or where a session's transcript lies."""
    from arena_cli.session import store

    root = common.root_of(context)
    common.say(str(root if session is None else store.find(root, session).transcript))


def doctor(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Argument(help="Read the whole of this session's transcript.")
    ] = None,
) -> None:
    """Check the workspace and its agents, or every line of one session. Exits 1 on a problem."""
    sound = _check_session(context, session) if session else _check_workspace(context)
    if not sound:
        raise typer.Exit(1)


def _check_workspace(context: typer.Context) -> bool:
    import platform

    from arena_cli import __version__
    from arena_cli.cli import workspace
    from arena_cli.session import store

    common.say(f"arena {__version__} · Python {platform.python_version()} · {platform.platform()}")
    loaded = common.workspace_of(context)
    common.say(f"workspace {loaded.root}")
    common.say(f"sessions {len(store.stored(loaded.root))}")
    return workspace.print_health(loaded)


def _check_session(context: typer.Context, session: str) -> bool:
    from arena_cli.session import examine

    stored = _one(context, session)
    found = examine.examine(stored.transcript, common.root_of(context))
    common.say(
        f"{stored.transcript}: {found.lines} lines, {found.events} events, "
        f"{found.chains} chains, {found.replies} replies"
    )
    for what in found.notes:
        common.say(f"  {what}")
    for problem in found.problems:
        common.warn(problem)
    return not found.problems


def _one(context: typer.Context, session: str | None) -> Stored:
    from arena_cli.session import store

    root = common.root_of(context)
    return store.find(root, session) if session is not None else store.last(root)
