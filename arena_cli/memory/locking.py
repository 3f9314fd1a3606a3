"""The lock of a folder of notes: one writer at a time, for as long as a file takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from fasteners import InterProcessLock

from arena_cli.ground import ownfiles
from arena_cli.ground.errors import DiskRefused, SessionBusy

NAME = ".lock"
WAIT_S = 30.0

_POLL_S = 0.01

# The operating system's locks are a process's own; its threads take turns by this.
_turn = threading.RLock()


@contextlib.contextmanager
def held(folder: Path, shown: str, *, below: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made if need be; people know it as `shown`.

    `below` is the workspace, as `ownfiles` wants it.

    Raises SessionBusy or DiskRefused.
    """
    with _turn:
        try:
            ownfiles.make_folder(folder, below=below)
            ownfiles.make_file(folder / NAME, below=below)
            lock = InterProcessLock(folder / NAME)
            got = lock.acquire(blocking=True, delay=_POLL_S, max_delay=_POLL_S, timeout=WAIT_S)
        except (OSError, threading.ThreadError) as error:
            raise refused(shown, error) from error
        if not got:
            raise SessionBusy(
                f"{shown} is busy: another arena writes notes there (waited {WAIT_S:g} s)"
            )
        try:
            yield
        finally:
            lock.release()


def refused(shown: str, error: Exception) -> DiskRefused:
    """What is told where the disk does not take a write."""
    what = getattr(error, "strerror", None) or error
    hint = ownfiles.hint(error, "Free space or rights there.")
    return DiskRefused(f"{shown}: could not write: {what}", hint)
