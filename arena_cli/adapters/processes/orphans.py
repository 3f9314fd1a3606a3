"""Find, reap and end what programs leave behind: orphans, and the programs of a killed arena.

Every program gets a variable, the mark, which all under it inherit in any group or session. On
Linux arena becomes the parent of the orphans below it, so that only its own few children need to
be examined; elsewhere all processes of the user are that began after the program.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "ARENA_PROCESS"

# The programs of arena: the marks of those that are being started, whose pid is not known yet, and
# the pids of the others until they are reaped.
starting: set[str] = set()
programs: set[int] = set()

_PR_SET_CHILD_SUBREAPER = 36
_MARK = re.compile(rb"(?:^|\0)" + VARIABLE.encode() + rb"=([^\0]*)")
# The parent of a process reaps it well within this time (seconds).
_REAPED_BY_OWNER_S = 2.0
_MOST_LOOKS = 20
_EXEC_LIMIT_S = 0.1
_CLOCK_SLACK_S = 2.0


def new_mark() -> str:
    """Return a mark for a program and all that it will start."""
    return secrets.token_hex(8)


def marked(environ: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return the environment with the mark, after those of the programs that arena runs under."""
    return {**environ, VARIABLE: f"{os.environ.get(VARIABLE, '')} {mark}".strip()}


@cache
def prctl() -> Callable[..., int]:
    """Return Linux's system call of that name."""
    import ctypes  # noqa: PLC0415 - only where a program is started

    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function


@cache
def adopt() -> bool:
    """Make this process the parent of the orphans below it; return True if it now is."""
    return sys.platform == "linux" and prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def has_group(leader: int) -> bool:
    """Return True if any process is left of the leader's group; False without groups."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
        return False
    return True


def left(mark: str, since: float) -> list[int]:
    """Return the orphans with the mark, or (not on Linux) all processes with it.

    `since` is the time when their program was started, in seconds since 1970. There are none on
    Windows, where a job holds them.
    """
    if sys.platform == "win32":
        return []
    if not adopt():
        return anywhere(mark, since)
    return [child.pid for child in _living_orphans() if mark in _marks[child.key]]


def reap(program_pids: Iterable[int] = ()) -> None:
    """Reap the orphans that have ended; without any it costs next to nothing.

    `program_pids` are certain to be processes of a program.
    """
    if sys.platform == "linux" and adopt():
        for pid in set(program_pids) - programs:
            _reap(pid)
        _living_orphans()


def anywhere(mark: str, since: float = 0.0) -> list[int]:
    """Return all processes with the mark, except this one and those above it."""
    import psutil  # noqa: PLC0415 - only for processes that are no children

    spared = {os.getpid(), *(above.pid for above in psutil.Process().parents())}
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in spared or process.create_time() < since - _CLOCK_SLACK_S:
                continue
            if not _has_other_user(process) and mark in process.environ().get(VARIABLE, "").split():
                pids.append(process.pid)
    return pids


def _has_other_user(process: Any) -> bool:
    return sys.platform != "win32" and bool(process.uids().real != os.getuid())


class _Child(NamedTuple):
    """A child of this process; `began` (clock ticks) tells it from another that gets its pid."""

    pid: int
    began: int
    session: int
    has_ended: bool
    is_starting: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.began


# The children that are no program of arena's: the marks of the living ones, and the time when those
# were seen to have ended that another part of arena may reap.
_marks: dict[tuple[int, int], list[str]] = {}
_doubtful: dict[int, float] = {}


def _living_orphans() -> list[_Child]:
    """Return the children that this process did not start as programs; reap those that ended."""
    living: dict[int, _Child] = {}
    previous, pids = set[int](), _children()
    for _ in range(_MOST_LOOKS):
        living = {pid: child for pid in pids if (child := _living(pid)) is not None}
        previous, pids = pids, _children()
        if pids <= previous:  # else one may have ended in between, and left a child of its own
            break
    for key in _marks.keys() - {child.key for child in living.values()}:
        del _marks[key]
    for pid in _doubtful.keys() - pids:
        del _doubtful[pid]
    return list(living.values())


def _living(pid: int) -> _Child | None:
    """Return a child that lives and note its marks; reap one that has ended if that is allowed."""
    if time.monotonic() - _doubtful.get(pid, -math.inf) < _REAPED_BY_OWNER_S:
        return None
    child = _child(pid)
    if child is not None and not child.has_ended:
        if child.key not in _marks:
            _marks[child.key] = _marks_of(child)
        return child
    if child is not None and _is_inherited(child):
        _reap(pid)
    return None


def _reap(pid: int) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)


def _children() -> set[int]:
    try:
        pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    except OSError:
        import psutil  # noqa: PLC0415 - a kernel without the file

        with contextlib.suppress(psutil.Error, OSError):
            return {child.pid for child in psutil.Process().children()} - programs
        return set()
    return {int(pid) for pid in pids} - programs


def _child(pid: int) -> _Child | None:
    """Read a child's state; see proc_pid_stat(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Child(
        pid, int(fields[19]), int(fields[3]), fields[0] in b"ZX", is_starting=fields[48] == b"0"
    )


def _marks_of(child: _Child) -> list[str]:
    """Return its marks but those of this process; during an exec it has none for a moment."""
    limit = time.monotonic() + _EXEC_LIMIT_S
    try:
        while not (environ := Path(f"/proc/{child.pid}/environ").read_bytes()):
            current = _child(child.pid)
            if current is None or not current.is_starting or time.monotonic() > limit:
                return []
            time.sleep(0.001)
    except OSError:
        return []
    match = _MARK.search(environ)
    marks = match[1].decode("ascii", "replace").split() if match else []
    return marks[len(os.environ.get(VARIABLE, "").split()) :]


def _is_inherited(child: _Child) -> bool:
    """Return True if a child that has ended was started by a program, not by a part of arena.

    A process that a part of arena starts is in arena's session, or leads one of its own. A leader
    may also be a program's daemon: it is reaped if it had a mark, or if no parent has reaped it
    for a while.
    """
    if sys.platform == "win32" or child.session == os.getsid(0):
        return False
    if child.session != child.pid:
        return True
    if starting:
        return False
    if _marks.get(child.key) or child.pid in _doubtful:
        return True
    _doubtful[child.pid] = time.monotonic()
    return False
