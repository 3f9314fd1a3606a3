"""Print what agents used, in tokens and money: `arena usage`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arena_cli.cli import common, complete, streams
from arena_cli.cli.streams import Screen
from arena_cli.reports import lines
from arena_cli.reports.usage import Ledger, draw_usage
from arena_cli.session import doctor, store

if TYPE_CHECKING:
    from arena_cli.session.store import Stored


_WIDTH = 100

OneSession = Annotated[
    str | None,
    typer.Argument(
        help="Count only this session; by default all of them.",
        autocompletion=complete.complete_sessions,
    ),
]
ByWhat = Annotated[
    Literal["agent", "model", "day", "scenario"],
    typer.Option(
        "--by",
        metavar="agent|model|day|scenario",
        case_sensitive=False,
        help="Print one row for each of these.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def usage(
    context: typer.Context,
    session: OneSession = None,
    by: ByWhat = "agent",
    as_json: AsJson = False,
) -> None:
    """Add up what agents used: calls, tokens, cached tokens and cost.

    Days are in UTC. Failed calls and calls for the team's memory count too.
    """
    root = common.find_root(context)
    ledger = Ledger(by)
    if session is not None:
        _read(store.find(root, session), ledger)
    else:
        for stored in store.stored(root):
            try:
                _read(stored, ledger)
            except FileNotFoundError:
                continue  # removed a moment ago, as sessions of scenarios are
            except OSError as error:
                common.warn(f"{stored.transcript}: not counted: {error.strerror or error}")
    if as_json:
        common.print_json(ledger.document())
    elif not ledger.total.calls:
        common.warn("no agent was called yet")
    else:
        _print(ledger)


def _read(stored: Stored, ledger: Ledger) -> None:
    """Add a session to the ledger; report unreadable lines. Raises OSError."""
    ledger.session()
    spent = doctor.spending(
        stored.transcript, lambda problem: common.warn_of_problems(stored.transcript, [problem])
    )
    for event in spent:
        ledger.apply(event)


def _print(ledger: Ledger) -> None:

    out = streams.Stdout()
    say = lines.user_words()
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    Screen(out, say).show(draw_usage(ledger, say, width))
    out.check()
