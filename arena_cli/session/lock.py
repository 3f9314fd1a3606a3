"""One writer a session: a lock beside the transcript, held for a whole chain.

The operating system keeps it (fcntl, or msvcrt on Windows), so that a dead owner's is free. Such
locks are a process's own: whoever else in this process asks for one finds it in `_held`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from threading import ThreadError

from fasteners import InterProcessLock

from arena_cli.ground import ownfiles
from arena_cli.ground.errors import SessionBusy, UsageError
from arena_cli.ground.text import shown_line

NAME = "transcript.lock"

_POLL_S = 0.05

_held: set[Path] = set()


class Lock:
    """The lock of one session's folder, until `release`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = InterProcessLock(self._path)

    def try_acquire(self) -> bool:
        """Hold it if nobody else does. Raises OSError or ThreadError where that cannot be asked."""
        if self._path in _held:
            return False
        # Whoever locks opens the path itself, through links and for everybody to read.
        ownfiles.make_file(self._path, below=self._path.parents[2])
        if self._lock.acquire(blocking=False):
            _held.add(self._path)
            return True
        if self._lock.lockfile is not None:
            self._lock.lockfile.close()
        return False

    def release(self) -> None:
        """Let go of it."""
        _held.discard(self._path)
        self._lock.release()


def acquire(folder: Path, name: str, *, wait_s: float, on_wait: Callable[[], None]) -> Lock:
    """Hold the lock of a folder, called `name` for people; `on_wait` is told once if it is held.

    Raises SessionBusy after `wait_s` seconds, UsageError where the folder refuses the file.
    """
    lock = Lock(folder)
    try:
        if lock.try_acquire() or _waited(lock, wait_s, on_wait):
            return lock
    except (OSError, ThreadError) as error:
        raise UsageError(
            f"{folder}: cannot write here: {getattr(error, 'strerror', None) or error}",
            ownfiles.hint(
                error,
                "arena keeps transcripts there; mend the rights, or choose another --workspace.",
            ),
        ) from error
    raise SessionBusy(
        f"{shown_line(name)} is busy: another arena is writing to it "
        f"(waited {wait_s:g} s)\n"
        "  Nothing was written. Try again later, or wait longer with --wait SECONDS."
    )


def is_held(folder: Path) -> bool:
    """Whether somebody writes to that session now; no lock file is made to find out.

    False where that cannot be asked.
    """
    if not (folder / NAME).is_file() or ownfiles.is_link(folder / NAME):
        return False
    lock = Lock(folder)
    with contextlib.suppress(OSError, ThreadError):
        if not lock.try_acquire():
            return True
        lock.release()
    return False


def _waited(lock: Lock, wait_s: float, on_wait: Callable[[], None]) -> bool:
    """Whether it could be held within that time."""
    if wait_s <= 0:
        return False
    on_wait()
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        time.sleep(_POLL_S)
        if lock.try_acquire():
            return True
    return False
