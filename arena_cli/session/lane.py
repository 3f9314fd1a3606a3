"""Lock a session for one process at a time, first come first served.

A process that waits for the lock draws a ticket: a file next to it with the next number, which the
process keeps locked. The lock belongs to the lowest ticket. The operating system frees the tickets
of a process that ended; the next process that finds such a ticket removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fasteners import InterProcessLock

from arena_cli.util import files

_NUMBER = re.compile(r"[0-9]{6,}")

_held: set[Path] = set()


class Lock:
    """A lock file in a session's folder, until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = InterProcessLock(path)

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free. Raises OSError or ThreadError if that check fails."""
        if self.path in _held:
            return False
        # Whoever locks opens the path itself, through links and for everybody to read.
        files.make_file(self.path, below=self.path.parents[2])
        if self._lock.acquire(blocking=False):
            _held.add(self.path)
            return True
        if self._lock.lockfile is not None:
            self._lock.lockfile.close()
        return False

    def is_current(self) -> bool:
        """Return True if the file that it holds is the one at its path."""
        assert self._lock.lockfile is not None
        try:
            state = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(state, os.fstat(self._lock.lockfile.fileno()))

    def release(self) -> None:
        """Release the lock."""
        _held.discard(self.path)
        self._lock.release()

    def remove(self) -> None:
        """Remove the file and release it."""
        if sys.platform != "win32":  # so that nobody locks the file and then loses it
            self.path.unlink(missing_ok=True)
            self.release()
            return
        self.release()
        with contextlib.suppress(OSError):  # another process looks at it, and removes it
            self.path.unlink()


class Ticket:
    """A place in the queue for a lock."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._number = number

    def is_next(self) -> bool:
        """Return True if no process that came earlier waits."""
        earlier = (number for number in _read_numbers(self._path) if number < self._number)
        return not any(_is_live(_ticket(self._path, number)) for number in earlier)


@contextlib.contextmanager
def draw_ticket(path: Path) -> Iterator[Ticket]:
    """Hold the last place in the queue for the lock at a path. Raises OSError or ThreadError."""
    while True:
        number = max(_read_numbers(path), default=0) + 1
        file = _ticket(path, number)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            os.close(files.open_file(file, flags, below=path.parents[2]))
        except FileExistsError:
            continue
        lock = Lock(file)
        if lock.try_acquire():
            if lock.is_current():
                break
            lock.release()
    try:
        yield Ticket(path, number)
    finally:
        lock.remove()


def has_queue(path: Path) -> bool:
    """Return True if a process waits for the lock at a path."""
    return any(_is_live(_ticket(path, number)) for number in _read_numbers(path))


def _ticket(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number:06}")


def _read_numbers(path: Path) -> list[int]:
    """Return the numbers of the tickets for the lock at a path, the lowest first."""
    start = f"{path.name}."
    endings = [
        name.removeprefix(start)
        for name in os.listdir(path.parent)  # noqa: PTH208 - many names, of which few need a Path
        if name.startswith(start)
    ]
    return sorted(int(ending) for ending in endings if _NUMBER.fullmatch(ending))


def _is_live(ticket: Path) -> bool:
    """Return True if the process of a ticket waits; remove the ticket of one that ended."""
    lock = Lock(ticket)
    if not ticket.exists():
        return False
    if not lock.try_acquire():
        return True
    lock.remove()
    return False
