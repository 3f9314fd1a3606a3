"""Handle the signals that ask arena to stop, and describe how to install its extras."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from arena_cli import errors

# SIGHUP: its terminal was closed. SIGBREAK: Ctrl-Break, or a closed console, on Windows.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_NUMBERS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
HANGUPS = frozenset(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name))

Handler = Callable[[int, FrameType | None], None]


def set_handlers(handler: Handler) -> dict[signal.Signals, Any]:
    """Set the handler of all these signals; return the handlers before.

    A SIGHUP that is ignored stays so: `nohup arena` outlives its terminal.
    """
    return {
        number: signal.signal(number, handler)
        for number in _NUMBERS
        if number not in HANGUPS or signal.getsignal(number) != signal.SIG_IGN
    }


def exit_at_once() -> None:
    """Make the signals end the process silently, while there is nothing to clean up."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
        os._exit(errors.EXIT_INTERRUPTED)

    set_handlers(leave)


DISTRIBUTION = "arena-agents"
SOURCE = "git+https://..."  # wherever the reader has arena from


def describe_install(name: str) -> str:
    """Return the commands that install arena with an extra, in a checkout and elsewhere."""
    return (
        f"in arena's checkout `pip install '.[{name}]'`,"
        f" elsewhere `pip install '{DISTRIBUTION}[{name}] @ {SOURCE}'`"
    )
