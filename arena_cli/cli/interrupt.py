"""Ctrl-C and SIGTERM: end what runs in good order, then exit 130."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from arena_cli.ground.errors import ArenaError

T = TypeVar("T")


class Interrupted(ArenaError):
    """The user, or the system, asked arena to stop."""

    exit_code = 130


def install() -> None:
    """Make both signals raise Interrupted wherever no loop runs."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
        raise Interrupted("interrupted")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def run(work: Coroutine[Any, Any, T], *, hint: str) -> T:
    """Run a coroutine; a signal cancels it, so that it can write down how far it came.

    `hint` says how to go on. A second signal does not wait. Raises Interrupted.
    """
    return asyncio.run(_cancelled_by_signals(work, hint))


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], hint: str) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
        nonlocal asked
        if asked:
            raise Interrupted("interrupted twice")
        asked = True
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted(f"interrupted\n  {hint}" if hint else "interrupted") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drop_stdout() -> None:
    """Whoever read stdout is gone: what is still to be flushed goes nowhere, without a word."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
