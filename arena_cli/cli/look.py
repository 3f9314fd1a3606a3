"""`show`, `sessions`, `doctor`, `path`: they read what there is, write nothing, take no lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common, complete
from arena_cli.cli.common import Output, Printer
from arena_cli.cli.interrupt import Interrupted
from arena_cli.ground.errors import UsageError

if TYPE_CHECKING:
    from arena_cli.session.store import Stored

OneSession = Annotated[
    str | None,
    typer.Argument(
        help="The session; without one, the last.", autocompletion=complete.complete_sessions
    ),
]


def show(
    context: typer.Context,
    session: OneSession = None,
    turn: Annotated[
        str | None,
        typer.Option(
            "--turn",
            metavar="N",
            help="Only this turn of the session: 7, t7, or `last` (-1).",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="Only what this agent, by id or name, said, and how it was called.",
            autocompletion=complete.complete_agents,
        ),
    ] = None,
    after_seq: Annotated[
        int | None,
        typer.Option("--after-seq", metavar="N", min=0, help="Only what comes after event N."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Print what others append, as it comes, until Ctrl-C. Begins with the last "
            "message's chain, or after --after-seq.",
        ),
    ] = False,
    shown_context: Annotated[
        bool,
        typer.Option(
            "--context",
            help="What --agent was shown at its last call, or in --turn: its system text and "
            "prompt, made again from the transcript.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the events as in the transcript, one a line; of --context the input.",
        ),
    ] = False,
) -> None:
    """Print a session's timeline from its transcript."""
    from arena_cli.cli import reading
    from arena_cli.transcript import passage

    wanted = reading.turn_of(turn) if turn is not None else None
    _check_together(
        turn=wanted, agent=agent, after_seq=after_seq, follow=follow, shown_context=shown_context
    )
    stored = _one(context, session)
    agent_id = passage.agent_named(stored.transcript, agent) if agent is not None else None
    if shown_context and agent_id:
        _show_context(context, stored, agent_id, wanted, as_json=as_json)
        return
    output = Output()
    avatars = {} if as_json else common.avatars_of(context)
    printer = Printer(output, as_json=as_json, avatars=avatars)
    reader = reading.Reader(stored, printer.goes_on)
    if wanted is not None:
        events = reader.turn(wanted)
    elif follow:
        events = reader.following(after_seq)
    elif after_seq is not None:
        events = reader.after(after_seq)
    else:
        events = reader.everything()
    try:
        for event in reading.told(events, agent_id):
            printer.event(event)
            if follow and not output.is_read:
                break
    except Interrupted:
        if not follow:
            raise
        raise typer.Exit(Interrupted.exit_code) from None  # the way to end it; nothing to explain
    output.check()


def _check_together(
    *,
    turn: int | None,
    agent: str | None,
    after_seq: int | None,
    follow: bool,
    shown_context: bool,
) -> None:
    """Raises UsageError for options that contradict each other."""
    given = {
        "--context": shown_context,
        "--follow": follow,
        "--turn": turn is not None,
        "--after-seq": after_seq is not None,
    }
    apart = [
        ("--context", "--follow"),
        ("--context", "--after-seq"),
        ("--follow", "--turn"),
        ("--turn", "--after-seq"),
    ]
    for one, other in apart:
        if given[one] and given[other]:
            raise UsageError(f"{one} and {other} were given", "Give one of them.")
    if shown_context and agent is None:
        raise UsageError(
            "--context shows what one agent was shown", "Say which: --context --agent ID."
        )


def _show_context(
    context: typer.Context, stored: Stored, agent: str, turn: int | None, *, as_json: bool
) -> None:
    from arena_cli.cli import reading
    from arena_cli.session import recall
    from arena_cli.transcript import passage

    number = None if turn is None else passage.turn_number(stored.transcript, turn)
    loaded = common.workspace_of(context)
    reading.print_context(
        recall.recall(stored, agent, number, team_of=loaded.team), as_json=as_json
    )


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


def path(
    context: typer.Context,
    session: Annotated[
        str | None,
        typer.Argument(
            help="A session, whose transcript it is; without one, the workspace.",
            autocompletion=complete.complete_sessions,
        ),
    ] = None,
) -> None:
    """Print the workspace's folder, or where a session's transcript lies."""
    from arena_cli.session import store

    root = common.root_of(context)
    common.say(str(root if session is None else store.find(root, session).transcript))


def doctor(
    context: typer.Context,
    session: Annotated[
        str | None,
        typer.Argument(
            help="Read the whole of this session's transcript.",
            autocompletion=complete.complete_sessions,
        ),
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
