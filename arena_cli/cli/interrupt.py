"""Ctrl-C, SIGTERM and a closed terminal: end what runs in good order, then exit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from arena_cli.ground import exits, signals

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

T = TypeVar("T")


class Interrupted(BaseException):
    """The user, or the system, asked arena to stop."""

    exit_code = exits.INTERRUPTED


def install() -> None:
    """Make the signals raise Interrupted wherever no loop runs."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
        raise Interrupted("interrupted")

    signals.handle(stop)
    before = sys.unraisablehook

    def exit_if_interrupted(unraisable: UnraisableHookArgs) -> None:
        """Exit where the signal hit code that cannot raise: Python would drop the exception."""
        if not issubclass(unraisable.exc_type, Interrupted):
            before(unraisable)
            return
        with contextlib.suppress(OSError):
            print("arena: interrupted", file=sys.stderr, flush=True)
        os._exit(exits.INTERRUPTED)

    sys.unraisablehook = exit_if_interrupted


def run(work: Coroutine[Any, Any, T], *, hint: str) -> T:
    """Run a coroutine; a signal cancels it, so that it can write down how far it came.

    `hint` says how to go on. A second signal cancels the writing down too, and a third one what
    never comes back to the loop, as an adapter from elsewhere may. Raises Interrupted.
    """
    caught = _Signals()
    before = signals.handle(caught.stop)
    try:
        return asyncio.run(caught.cancel(work))
    except asyncio.CancelledError:
        if caught.count == 0:
            raise
    except RuntimeError:  # that the loop was stopped
        if caught.count < 2:
            raise
        # What was left in the middle complains when it is collected.
        sys.unraisablehook = lambda _: None
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise Interrupted(f"interrupted\n  {hint}" if hint else "interrupted")


class _Signals:
    """The signals while a loop runs; `count` is how many came.

    The first cancels the work, the second stops the loop. The third raises KeyboardInterrupt in
    whatever runs: nothing of arena's own takes that for a fault to go on from. The end of a
    terminal may be told twice, by the system and by the shell, so it never counts as a second one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Future[Any] | None = None

    async def cancel(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that the first signal cancels."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        self._task = task
        if self.count:  # it came before the loop ran
            task.cancel()
        return await task

    def stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - given by signal
        """Handle a signal."""
        if self.count and number in signals.HANGUPS:
            return
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt
        if self.count == 2:
            # The threads that wait for programs complain that the loop is gone.
            logging.getLogger("asyncio").disabled = True
        if self._loop is None or self._task is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed: all is done
            act = self._task.cancel if self.count == 1 else self._loop.stop
            self._loop.call_soon_threadsafe(act)
