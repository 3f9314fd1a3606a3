"""`show`, `sessions`, `doctor`, `path`: they read what there is, write nothing, take no lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common, complete, pages
from arena_cli.cli.agents import Connect
from arena_cli.cli.interrupt import Interrupted
from arena_cli.cli.screen import Printer
from arena_cli.ground import exits
from arena_cli.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arena_cli.cli.showing import ShownEvents
    from arena_cli.session.recall import Recalled
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event

_SESSIONS = complete.complete_sessions

OneSession = Annotated[
    str | None,
    typer.Argument(help="The session; without one, the last.", autocompletion=_SESSIONS),
]
OneTurn = Annotated[
    str | None,
    typer.Option(
        "--turn",
        metavar="N",
        help="Only this turn of the session: 7, t7, or `last` (-1).",
    ),
]
OneAgent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="Only what this agent, by id or name, said, and how it was called.",
        autocompletion=complete.complete_agents,
    ),
]
AfterSeq = Annotated[
    int | None,
    typer.Option("--after-seq", metavar="N", min=0, help="Only what comes after event N."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Print what others append, as it comes, until Ctrl-C. Begins with the last "
        "message's chain, or after --after-seq.",
    ),
]
WithContext = Annotated[
    bool,
    typer.Option(
        "--context",
        help="What --agent was shown at its last call, or in --turn: its system text and "
        "prompt, made again from the transcript.",
    ),
]
EventsOrInputAsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the events as in the transcript, one a line; of --context the input.",
    ),
]
AsPage = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="[FILE]",
        help="Write it as one page of HTML into this file; without one, or for `-`, to stdout.",
    ),
]
SessionsAsJson = Annotated[bool, typer.Option("--json", help="Print them as one JSON list.")]
ItsTranscript = Annotated[
    str | None,
    typer.Argument(
        help="A session, whose transcript it is; without one, the workspace.",
        autocompletion=_SESSIONS,
    ),
]
WholeSession = Annotated[
    str | None,
    typer.Argument(help="Read the whole of this session's transcript.", autocompletion=_SESSIONS),
]


def show(
    context: typer.Context,
    session: OneSession = None,
    turn: OneTurn = None,
    agent: OneAgent = None,
    after_seq: AfterSeq = None,
    follow: Follow = False,
    shown_context: WithContext = False,
    as_json: EventsOrInputAsJson = False,
    html: AsPage = None,
) -> None:
    """Print a session's timeline from its transcript."""
    from arena_cli.cli import showing
    from arena_cli.transcript import concerning

    wanted = showing.turn_of(turn) if turn is not None else None
    _check_together(
        turn=wanted,
        agent=agent,
        after_seq=after_seq,
        follow=follow,
        shown_context=shown_context,
        as_json=as_json,
        html=html,
    )
    if html is not None and session is None:
        pages.refuse_session(context, html)
    stored = common.stored_of(context, session)

    def choose(chosen: ShownEvents) -> Iterable[Event]:
        if wanted is not None:
            return chosen.turn(wanted)
        if follow:
            return chosen.following(after_seq)
        return chosen.everything() if after_seq is None else chosen.after(after_seq)

    if html is not None:
        pages.show(context, stored, choose, html)
        return
    agent_id = concerning.agent_named(stored.transcript, agent) if agent is not None else None
    if shown_context and agent_id:
        _show_context(context, stored, agent_id, wanted, as_json=as_json)
        return
    avatars = {} if as_json else common.avatars_of(context)
    printer = Printer(as_json=as_json, avatars=avatars)
    events = choose(showing.ShownEvents(stored, printer.goes_on))
    try:
        for event in showing.told(events, agent_id):
            printer.event(event)
            if follow and not printer.out.is_read:
                break
    except Interrupted:
        if not follow:
            raise
        raise typer.Exit(exits.INTERRUPTED) from None  # the way to end it; nothing to explain
    printer.out.check()


def _check_together(
    *,
    turn: int | None,
    agent: str | None,
    after_seq: int | None,
    follow: bool,
    shown_context: bool,
    as_json: bool,
    html: str | None,
) -> None:
    """Raises UsageError for options that contradict each other."""
    given = {
        "--context": shown_context,
        "--follow": follow,
        "--turn": turn is not None,
        "--after-seq": after_seq is not None,
        "--agent": agent is not None,
        "--json": as_json,
        "--html": html is not None,
    }
    apart = [
        ("--context", "--follow"),
        ("--context", "--after-seq"),
        ("--follow", "--turn"),
        ("--turn", "--after-seq"),
        ("--html", "--json"),
        ("--html", "--follow"),
        ("--html", "--context"),
        ("--html", "--agent"),  # the page has a filter of its own
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
    from arena_cli.session import recall
    from arena_cli.transcript import passage

    number = None if turn is None else passage.turn_number(stored.transcript, turn)
    loaded = common.workspace_of(context)
    place = common.place_of(loaded, wait_s=0)
    recalled = recall.recall(stored, agent, number, place=place, team_of=loaded.team)
    _print_context(recalled, as_json=as_json)


def _print_context(recalled: Recalled, *, as_json: bool) -> None:
    """What an agent was shown: the system text and the prompt, or the input as JSON."""
    from arena_cli.context import render
    from arena_cli.ground.text import shown, shown_line

    planned = recalled.planned
    if not recalled.same:
        common.warn(
            f"{shown_line(planned.agent)}, turn {planned.turn}: its files, the team's or its "
            "notes have changed since; this is what it would be shown now"
        )
    if as_json:
        common.say_json(planned.input.model_dump(mode="json"))
        return
    system, prompt = render.render(planned.input)
    common.say(
        f"{shown_line(planned.agent)} · turn {planned.turn} {planned.phase} · "
        f"~{planned.input_tokens} tokens"
    )
    for name, text in (("system", system), ("prompt", prompt)):
        common.say(f"\n── {name}\n{shown(text.rstrip())}")


def sessions(
    context: typer.Context,
    as_json: SessionsAsJson = False,
) -> None:
    """List the sessions, the last written first."""
    from arena_cli.ground.text import shown_line
    from arena_cli.session import store

    found = store.summaries(common.root_of(context))
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
    session: ItsTranscript = None,
) -> None:
    """Print the workspace's folder, or where a session's transcript lies."""
    from arena_cli.session import store

    root = common.root_of(context)
    common.say(str(root if session is None else store.find(root, session).transcript))


def doctor(
    context: typer.Context,
    session: WholeSession = None,
    connect: Connect = False,
) -> None:
    """Check the workspace and its agents, or every line of one session. Exits 1 on a problem.

    Without --connect it starts and contacts nothing.
    """
    if session is not None and connect:
        raise UsageError("--connect asks agents, not a session", "Leave one of them out.")
    sound = _check_session(context, session) if session else _check_workspace(context, connect)
    if not sound or context.obj.has_left:
        raise typer.Exit(exits.NOT_HELD)


def _check_workspace(context: typer.Context, connect: bool) -> bool:
    import platform

    from arena_cli import __version__
    from arena_cli.cli import agents, trust
    from arena_cli.session import store

    common.say(f"arena {__version__} · Python {platform.python_version()} · {platform.platform()}")
    loaded = common.workspace_of(context)
    if connect:
        trust.require_agents(loaded)
    common.say(f"workspace {loaded.root}")
    common.say(f"sessions {len(store.stored(loaded.root))}")
    return agents.print_health(loaded, connect=connect)


def _check_session(context: typer.Context, session: str) -> bool:
    from arena_cli.session import examine

    stored = common.stored_of(context, session)
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
