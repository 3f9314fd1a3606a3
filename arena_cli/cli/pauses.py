"""What `arena send` and `arena resume` do where a person is needed: ask at a terminal, or pause."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from arena_cli import errors
from arena_cli.cli.streams import Printer

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import ChainPaused
    from arena_cli.transcript.events import ChainFinished
    from arena_cli.transcript.state import Fold


def find_asker(printer: Printer) -> Callable[[Any], Awaitable[Any]] | None:
    """Return the function that asks a person at the terminal; None if there is none to ask."""
    is_ci = os.environ.get("CI", "").casefold() not in {"", "0", "false"}
    if is_ci or not (printer.is_shown and sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask_person(question: Any) -> Any:
        with printer.hold():
            return await import_module("arena_cli.cli.approval_prompt").ask(question)

    return ask_person


def exit_by(last: ChainFinished | ChainPaused, name: str, fold: Fold) -> None:
    """Exit with the code of a chain's end, or of its pause, with a hint how to continue."""
    if last.type == "chain_paused":
        import_module("arena_cli.cli.approvals").report_pause(name, fold)
        raise typer.Exit(errors.EXIT_PAUSED)
    codes = {"failed": errors.EXIT_FAILED, "cancelled": errors.EXIT_INTERRUPTED}
    if last.end in codes:
        raise typer.Exit(codes[last.end])
