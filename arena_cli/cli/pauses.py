"""Ask a person at the terminal, or report how a paused chain continues, in `arena send|resume`."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from arena_cli import errors
from arena_cli.cli import common
from arena_cli.cli.streams import Printer
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import ChainPaused
    from arena_cli.transcript.events import ChainFinished
    from arena_cli.transcript.state import Fold

_MOST_NOTES = 5


def find_asker(printer: Printer) -> Callable[[Any], Awaitable[Any]] | None:
    """Return the function that asks a person at the terminal; None if there is none to ask."""
    is_ci = os.environ.get("CI", "").casefold() not in {"", "0", "false"}
    if is_ci or not (printer.is_shown and sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask_person(question: Any) -> Any:
        with printer.hold():
            return await import_module("arena_cli.cli.approvals").ask(question)

    return ask_person


def report_notes(notes: Sequence[str], session: str) -> None:
    """Report on stderr the notes of a session that wait for a person's approval, if any do."""
    if notes:
        shown = ", ".join(map(escape_line, notes[:_MOST_NOTES]))
        more = f", and {len(notes) - _MOST_NOTES} more" if len(notes) > _MOST_NOTES else ""
        common.warn(f"session {escape_line(session)}: notes that wait for approval: {shown}{more}")


def exit_by(
    last: ChainFinished | ChainPaused, name: str, fold: Fold, *, after_seq: int = 0
) -> None:
    """Exit with the code of a chain's end, or of its pause, with a hint how to continue.

    A pause up to `after_seq` is an earlier one: it was not printed now.
    """
    if last.type == "chain_paused":
        import_module("arena_cli.cli.approvals").report_pause(
            name, fold, is_new=last.seq > after_seq
        )
        raise typer.Exit(errors.EXIT_PAUSED)
    codes = {
        "failed": errors.EXIT_FAILED,
        "cancelled": errors.EXIT_INTERRUPTED,
        "interrupted": errors.EXIT_INTERRUPTED,  # of an earlier run
    }
    if last.end in codes:
        raise typer.Exit(codes[last.end])
