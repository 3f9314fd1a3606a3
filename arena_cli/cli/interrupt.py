"""Ctrl-C and SIGTERM: end what runs in good order, then exit."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from arena_cli.ground import exits
from arena_cli.ground.errors import ArenaError

T = TypeVar("T")


class Interrupted(ArenaError):
    """The user, or the system, asked arena to stop."""

    exit_code = exits.INTERRUPTED


def install() -> None:
    """Make both signals raise Interrupted wherever no loop runs."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
        raise Interrupted("interrupted")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def run(work: Coroutine[Any, Any, T], *, hint: str) -> T:
    """Run a coroutine; a signal cancels it, so that it can write down how far it came.

    `hint` says how to go on. A second signal cancels the writing down too, and a third one what
    never comes back to the loop, as a pattern may that somebody wrote. Raises Interrupted.
    """
    signals = _Signals()
    try:
        return asyncio.run(signals.cancel(work))
    except asyncio.CancelledError:
        if signals.count == 0:
            raise
    except RuntimeError:  # that the loop was stopped
        if signals.count < 2:
            raise
        # What was left in the middle complains when it is collected.
        sys.unraisablehook = lambda _: None
    except KeyboardInterrupt:
        pass
    raise Interrupted(f"interrupted\n  {hint}" if hint else "interrupted")


class _Signals:
    """Both signals while a loop runs; `count` is how many came."""

    def __init__(self) -> None:
        self.count = 0

    async def cancel(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that the first signal cancels; the second stops the loop.

        The third raises KeyboardInterrupt in whatever runs: nothing of arena's own takes that for a
        fault to go on from.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
            self.count += 1
            if self.count > 2:
                raise KeyboardInterrupt
            if self.count == 2:
                # The threads that wait for programs complain that the loop is gone.
                logging.getLogger("asyncio").disabled = True
            loop.call_soon_threadsafe(task.cancel if self.count == 1 else loop.stop)

        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            return await task
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
