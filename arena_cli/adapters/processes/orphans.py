"""The processes that a program started and that went their own way: found by a mark, and reaped.

Every program gets a variable that all under it inherit, whatever group or session they go to. On
Linux arena is made the parent of what loses its parent below it, so that only its own few children
need to be looked at; elsewhere all processes of the user that began after the program are.
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

# What arena starts itself: the marks of those that are being started, whose pid is not known yet,
# and the pids of the others, as far as they were not reaped.
starting: set[str] = set()
programs: set[int] = set()

_PR_SET_CHILD_SUBREAPER = 36
_MARK = re.compile(rb"(?:^|\0)" + VARIABLE.encode() + rb"=([^\0]*)")
# Who started a process reaps it well within this time (seconds).
_REAPED_BY_OWNER_S = 2.0
_MOST_LOOKS = 20
_EXEC_LIMIT_S = 0.1
_CLOCK_SLACK_S = 2.0


def new_mark() -> str:
    """A mark for one program and all that it will start."""
    return secrets.token_hex(8)


def marked(environ: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment with the mark, after those of the programs that arena itself runs under."""
    return {**environ, VARIABLE: f"{os.environ.get(VARIABLE, '')} {mark}".strip()}


@cache
def prctl() -> Callable[..., int]:
    """Linux: the system call of that name."""
    import ctypes  # noqa: PLC0415 - only where a program is started

    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function


@cache
def adopt() -> bool:
    """Make this process the parent of all below it that lose theirs; whether it now is."""
    return sys.platform == "linux" and prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def has_group(leader: int) -> bool:
    """Whether any process is left of the group that it leads or led; False without groups."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
        return False
    return True


def left(mark: str, since: float) -> list[int]:
    """The processes with the mark that live on without a parent, or (not on Linux) all with it.

    `since` is when their program was started, in seconds since 1970. None on Windows, where a job
    holds them.
    """
    if sys.platform == "win32":
        return []
    if not adopt():
        return anywhere(mark, since)
    return [child.pid for child in _living_orphans() if mark in _marks[child.key]]


def reap(known: Iterable[int] = ()) -> None:
    """Let those be gone that ended as orphans; costs next to nothing where there are none.

    `known` are pids that are of a program for certain.
    """
    if sys.platform == "linux" and adopt():
        for pid in set(known) - programs:
            _reap(pid)
        _living_orphans()


def anywhere(mark: str, since: float = 0.0) -> list[int]:
    """All processes with the mark, but this one and those above it."""
    import psutil  # noqa: PLC0415 - only for what is no child

    spared = {os.getpid(), *(above.pid for above in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in spared or process.create_time() < since - _CLOCK_SLACK_S:
                continue
            if not _is_anothers(process) and mark in process.environ().get(VARIABLE, "").split():
                found.append(process.pid)
    return found


def _is_anothers(process: Any) -> bool:
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


# What is known of the children that are no program of arena's: the marks of those that live, and
# since when those have ended that may be reaped by someone else.
_marks: dict[tuple[int, int], list[str]] = {}
_doubtful: dict[int, float] = {}


def _living_orphans() -> list[_Child]:
    """The children that this process did not start as programs; those that ended are reaped."""
    living: dict[int, _Child] = {}
    before, pids = set[int](), _children()
    for _ in range(_MOST_LOOKS):
        living = {pid: child for pid in pids if (child := _living(pid)) is not None}
        before, pids = pids, _children()
        if pids <= before:  # else one may have ended in between, and left a child of its own
            break
    for key in _marks.keys() - {child.key for child in living.values()}:
        del _marks[key]
    for gone in _doubtful.keys() - pids:
        del _doubtful[gone]
    return list(living.values())


def _living(pid: int) -> _Child | None:
    """A child that lives, its marks known; one that has ended is reaped if that may be."""
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
    """See proc_pid_stat(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Child(
        pid, int(fields[19]), int(fields[3]), fields[0] in b"ZX", is_starting=fields[48] == b"0"
    )


def _marks_of(child: _Child) -> list[str]:
    """Its marks but those of this process; in the middle of an exec it has none for a moment."""
    limit = time.monotonic() + _EXEC_LIMIT_S
    try:
        while not (environ := Path(f"/proc/{child.pid}/environ").read_bytes()):
            now = _child(child.pid)
            if now is None or not now.is_starting or time.monotonic() > limit:
                return []
            time.sleep(0.001)
    except OSError:
        return []
    found = _MARK.search(environ)
    marks = found[1].decode("ascii", "replace").split() if found else []
    return marks[len(os.environ.get(VARIABLE, "").split()) :]


def _is_inherited(child: _Child) -> bool:
    """Whether a child that has ended was started by a program, and not by another part of arena.

    What another part starts is in arena's session, or leads one of its own; of the latter, and of
    daemons that were never seen alive, only those are reaped that their owner would have.
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
