"""Lock files, and queues of tickets over processes: first come, first served.

A process that waits draws a ticket: a file with the next number, which the process keeps locked. A
turn belongs to the lowest tickets; times play no part, so that a clock may jump. A process that was
stopped keeps its ticket. The operating system frees the tickets of a process that ended; the next
process that finds such a ticket removes it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from fasteners import InterProcessLock

from arena_cli.errors import DiskRefused
from arena_cli.util import files
from arena_cli.util.text import lazy_pattern

_NUMBER = lazy_pattern(r"[0-9]{6,}")

_OWNER_SUFFIX = ".json"

# POSIX frees the locks of a process on a file when it closes the file, however it was opened.
_held: set[Path] = set()


class Lock:
    """A lock file in a folder below `sessions`, until `release`."""

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
            with contextlib.suppress(OSError):
                self.path.unlink()
            self.release()
            return
        self.release()
        with contextlib.suppress(OSError):  # another process looks at it, and removes it
            self.path.unlink()


class Ticket(contextlib.AbstractContextManager["Ticket"]):
    """A place in a queue, until `release`; `bound` is how many tickets have their turn at once."""

    def __init__(self, path: Path, number: int, lock: Lock, bound: int) -> None:
        self.path = path
        self._number = number
        self._lock = lock
        self._bound = bound

    def find_position(self) -> int:
        """Return 0 if it is this ticket's turn, else its place among those that wait, from 1.

        Tickets of processes that ended are passed over; those of processes that ended while they
        waited still count in the place. Raises OSError or ThreadError.
        """
        earlier = [number for number in _read_numbers(self.path) if number < self._number]
        live = 0
        for index, number in enumerate(earlier):
            live += _is_live(_ticket(self.path, number))
            if live == self._bound:
                return len(earlier) - index
        return 0

    def release(self) -> None:
        """Give the place up."""
        _remove(self._lock)

    def __exit__(self, *_: object) -> None:
        self.release()


def draw_ticket(path: Path, *, bound: int = 1, owner: bytes = b"") -> Ticket:
    """Return the last place in the queue at a path. Raises OSError or ThreadError.

    `owner` tells readers of the queue whose ticket it is.
    """
    while True:
        number = max(_read_numbers(path), default=0) + 1
        file = _ticket(path, number)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            os.close(files.open_file(file, flags, below=path.parents[2]))
        except FileExistsError:
            continue
        lock = Lock(file)
        if not lock.try_acquire():
            continue
        # A process that was stopped before it made its file would come before later ones.
        if lock.is_current() and _read_numbers(path)[-1:] == [number]:
            break
        if lock.is_current():
            lock.remove()
        else:
            lock.release()
    try:
        if owner:
            files.write_file(_owner_file(file), owner, below=path.parents[2])
    except BaseException:
        _remove(lock)
        raise
    return Ticket(path, number, lock, bound)


def refused(path: Path, error: BaseException) -> DiskRefused:
    """Return the error of a reply that cannot draw a ticket there, or wait with it."""
    return DiskRefused(
        f"{path}: could not write: {getattr(error, 'strerror', None) or error}",
        files.suggest_fix(error, "Free disk space, or fix the permissions there."),
    )


def has_queue(path: Path) -> bool:
    """Return True if a process waits for the lock at a path."""
    return any(_is_live(_ticket(path, number)) for number in _read_numbers(path))


def list_owners(path: Path) -> list[bytes]:
    """Return the owner of each live ticket, the first come first; empty if it is not known.

    Raises OSError or ThreadError.
    """
    owners: list[bytes] = []
    for number in _read_numbers(path):
        ticket = _ticket(path, number)
        if _is_live(ticket):
            try:
                owners.append(files.read_regular(_owner_file(ticket)))
            except FileNotFoundError:  # the ticket is being drawn, or was given up meanwhile
                owners.append(b"")
    return owners


def _ticket(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number:06}")


def _owner_file(ticket: Path) -> Path:
    """Return the path of a file of its own: Windows lets no other process read a locked one."""
    return ticket.with_name(ticket.name + _OWNER_SUFFIX)


def _read_numbers(path: Path) -> list[int]:
    """Return the numbers of the tickets in the queue at a path, the lowest first."""
    start = f"{path.name}."
    endings = [
        name.removeprefix(start)
        for name in os.listdir(path.parent)  # noqa: PTH208 - many names, of which few need a Path
        if name.startswith(start)
    ]
    return sorted(int(ending) for ending in endings if _NUMBER.fullmatch(ending))


def _is_live(ticket: Path) -> bool:
    """Return True if the process of a ticket lives; remove the ticket of one that ended."""
    while ticket.exists():
        lock = Lock(ticket)
        if not lock.try_acquire():
            return True
        if lock.is_current():
            _remove(lock)
            return False
        lock.release()  # given up meanwhile; another process may have that number now
    return False


def _remove(lock: Lock) -> None:
    """Remove a ticket that this process holds, its owner's file first: its number is free then."""
    with contextlib.suppress(OSError):
        _owner_file(lock.path).unlink()
    lock.remove()
