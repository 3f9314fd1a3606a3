"""Find, reap and end processes that programs leave behind: orphans, and those of a killed arena.

Every program gets a variable, the mark, which all its descendants inherit in any group or session.
On Linux arena becomes the parent of the orphans below it, so that only its own few children need to
be examined; elsewhere all processes of the user that began after the program are examined.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.errors import UsageError
from arena_cli.util import files
from arena_cli.util.text import lazy_pattern

if TYPE_CHECKING:
    import psutil


MARK_VARIABLE = "ARENA_PROCESS"
RECORDS = ".processes"

# The programs of arena: the marks of those that are being started, whose pid is not known yet, and
# the pids of the others until they are reaped.
starting_marks: set[str] = set()
running_pids: set[int] = set()

_PR_SET_CHILD_SUBREAPER = 36
_MARK = lazy_pattern(rb"(?:^|\0)" + MARK_VARIABLE.encode() + rb"=([^\0]*)")
# The parent of a process reaps it well within this time (seconds).
_REAPED_BY_OWNER_S = 2.0
_MOST_LOOKS = 20
_EXEC_LIMIT_S = 0.1
_CLOCK_SLACK_S = 2.0


def mark_environment(environ: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return the environment with the mark, after those of the programs that arena runs under."""
    return {**environ, MARK_VARIABLE: f"{os.environ.get(MARK_VARIABLE, '')} {mark}".strip()}


@cache
def load_prctl() -> Callable[..., int]:
    """Return Linux's system call of that name."""
    import ctypes  # noqa: PLC0415 - only where a program is started

    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function


@cache
def adopt() -> bool:
    """Make this process the parent of the orphans below it; return True if it now is."""
    return sys.platform == "linux" and load_prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def has_group(leader: int) -> bool:
    """Return True if any process is left of the leader's group; False without groups."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
        return False
    return True


def find_orphans(mark: str, since: float) -> list[int]:
    """Return the orphans with the mark, or (not on Linux) all processes with it.

    `since` is the time when their program was started, in seconds since 1970. There are none on
    Windows, where a job holds them.
    """
    if sys.platform == "win32":
        return []
    if not adopt():
        return find_marked_processes(mark, since)
    return [child.pid for child in _living_orphans() if mark in _marks[child.key]]


def reap_orphans(program_pids: Iterable[int] = ()) -> None:
    """Reap the orphans that have ended; without any it costs next to nothing.

    `program_pids` are certain to be processes of a program.
    """
    if sys.platform == "linux" and adopt():
        for pid in set(program_pids) - running_pids:
            _reap(pid)
        _living_orphans()


def find_marked_processes(mark: str, since: float = 0.0) -> list[int]:
    """Return all processes with the mark, except this one and those above it."""
    import psutil  # noqa: PLC0415 - only for processes that are no children

    spared = {os.getpid(), *(above.pid for above in psutil.Process().parents())}
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in spared or process.create_time() < since - _CLOCK_SLACK_S:
                continue
            if sys.platform != "win32" and process.uids().real != os.getuid():
                continue
            if mark in process.environ().get(MARK_VARIABLE, "").split():
                pids.append(process.pid)
    return pids


class _Child(NamedTuple):
    """A child of this process; `began` (clock ticks) differs if the pid is reused."""

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
            return {child.pid for child in psutil.Process().children()} - running_pids
        return set()
    return {int(pid) for pid in pids} - running_pids


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
    """Return its marks except those of this process; during an exec it has none for a moment."""
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
    return marks[len(os.environ.get(MARK_VARIABLE, "").split()) :]


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
    if starting_marks:
        return False
    if _marks.get(child.key) or child.pid in _doubtful:
        return True
    _doubtful[child.pid] = time.monotonic()
    return False


class Tree:
    """The processes below `root`, which leads a process group where there are groups.

    `root` is None if neither it nor its group is left. `find_marked` returns the processes that
    carry its mark. A process that was found once remains known, so that an orphan is not lost when
    its parent ends.
    """

    def __init__(self, root: int | None, find_marked: Callable[[], Iterable[int]]) -> None:
        self._root = root
        self._find_marked = find_marked
        self._known: dict[int, psutil.Process] = {}

    def look(self) -> bool:
        """Find all processes of the tree; return True if any is left."""
        import psutil  # noqa: PLC0415 - most programs end by themselves

        marked = list(self._find_marked())
        for pid in (*marked, *(() if self._root is None else (self._root,))):
            process = self._known.get(pid)
            if process is None or not _is_alive(process):
                with contextlib.suppress(psutil.Error):
                    self._known[pid] = psutil.Process(pid)
        for process in list(self._known.values()):
            with contextlib.suppress(psutil.Error):
                for child in process.children(recursive=True):
                    self._known.setdefault(child.pid, child)
        is_left = bool(marked) or self.is_alive()
        reap_orphans(self._known)
        return is_left

    def pids(self) -> list[int]:
        """Return the living processes that `look` found, and those of the group."""
        pids = {process.pid for process in self._known.values() if _is_alive(process)}
        return sorted(pids.union(self._group_members()))

    def terminate(self) -> None:
        """Ask all processes to end; on a system without signals, end them."""
        if sys.platform != "win32":
            self._signal_group(signal.SIGTERM)
        self._end_outsiders(kill=False)

    def kill(self) -> None:
        """Kill all at once."""
        if sys.platform != "win32":
            self._signal_group(signal.SIGKILL)
            for pid in self._find_marked():  # as they are now: they may be starting more
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self._end_outsiders(kill=True)

    def is_alive(self) -> bool:
        """Return True if any known process is alive; a zombie does not count."""
        if any(_is_alive(process) for process in self._known.values()):
            return True
        return next(self._group_members(), None) is not None

    def _group_members(self) -> Iterator[int]:
        if self._root is not None and has_group(self._root):
            import psutil  # noqa: PLC0415

            for pid in psutil.pids():
                if self._is_in_group(pid):
                    with contextlib.suppress(psutil.Error):
                        if _is_alive(psutil.Process(pid)):
                            yield pid

    def _end_outsiders(self, *, kill: bool) -> None:
        """End the known processes that are not in the group."""
        import psutil  # noqa: PLC0415

        for process in list(self._known.values()):
            if _is_alive(process) and not self._is_in_group(process.pid):
                with contextlib.suppress(psutil.Error):
                    process.kill() if kill else process.terminate()

    def _is_in_group(self, pid: int) -> bool:
        if sys.platform == "win32":
            return False
        try:
            return os.getpgid(pid) == self._root
        except ProcessLookupError:
            return False

    def _signal_group(self, number: int) -> None:
        if sys.platform != "win32" and self._root is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root, number)


def _is_alive(process: psutil.Process) -> bool:
    import psutil  # noqa: PLC0415

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


# When the clock is set while programs run, the start times that the system reports change.
_RECORD_SLACK_S = 2.0
_KILL_WAIT_S = 5.0


def records_folder(workspace: Path) -> Path:
    """Return the folder with the records of a workspace's running programs."""
    return workspace / "sessions" / RECORDS


class Stray(NamedTuple):
    """A process that a killed arena left behind: its pid, its program and its agent."""

    pid: int
    program: str
    agent: str


def write_record(folder: Path, pid: int, mark: str, agent: str = "") -> Path:
    """Write the record that this process runs `pid`, the leader of its own group; return its path.

    It is a small JSON file: the agent, the program's mark, its pid and start time, the same of the
    arena that started it, and the time when the machine was started, in seconds since 1970. A
    process counts as the recorded one only if its start time is the recorded one, so that a later
    process with the same pid is never touched. All that carry the mark belong to its tree.
    Raises OSError if the folder cannot be written.
    """
    import psutil  # noqa: PLC0415 - not for those who only ask whether there are records

    owner = os.getpid()
    facts = {
        "agent": agent,
        "mark": mark,
        "pid": pid,
        "began": _began(pid),
        "owner": owner,
        "owner_began": _began(owner),
        "machine_began": psutil.boot_time(),
    }
    files.make_own_folder(folder, below=folder.parents[1])
    path = folder / f"{owner}-{pid}.json"
    partial_path = path.with_suffix(".part")
    files.write_part(partial_path, json.dumps(facts).encode("utf-8"), instead_of=path)
    return partial_path.replace(path)  # complete, or missing


def remove_record(path: Path) -> None:
    """Remove a record whose process and all under it are gone."""
    with contextlib.suppress(OSError):
        path.unlink()


def end_recorded(folder: Path) -> int:
    """End the recorded trees whose arena has ended; return their number.

    Their records are removed; records of a running arena are kept. A missing folder costs next to
    nothing. Raises UsageError if the folder is a link: the files that it leads to are not arena's
    to remove.
    """
    try:
        files.check_no_link(folder, below=folder.parents[1])
    except files.LinkRefused as error:
        raise UsageError(str(error.strerror), files.LINK_HINT) from error
    return sum([_end_one(path) for path in _records(folder)])


def find_strays(folder: Path) -> list[Stray]:
    """Return the processes that `end_recorded` would end."""
    return [stray for path in _records(folder) for stray in _strays_of(path)]


def _records(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.json"))
    except OSError:
        return []


def _end_one(path: Path) -> bool:
    try:
        facts = _facts(path)
        if _owner_runs(facts):
            return False
        ended = _end(_tree(facts))
    except (OSError, ValueError, KeyError, TypeError):
        ended = False  # a record that was cut short names no process
    remove_record(path)
    return ended


def _strays_of(path: Path) -> Iterator[Stray]:
    try:
        facts = _facts(path)
        tree = None if _owner_runs(facts) else _tree(facts)
    except (OSError, ValueError, KeyError, TypeError):
        return
    if tree is not None and tree.look():
        for pid in tree.pids():
            yield Stray(pid, _program_of(pid), str(facts.get("agent", "")))


def _facts(path: Path) -> dict[str, Any]:
    facts = json.loads(files.read_regular(path))
    if not isinstance(facts, dict):
        raise TypeError("expected a JSON object")
    return facts


def _owner_runs(facts: dict[str, Any]) -> bool:
    """Return True if the arena runs; a killed one may remain as a zombie."""
    import psutil  # noqa: PLC0415 - see `record`

    if not _is_the_same(facts["owner"], facts["owner_began"]):
        return False
    try:
        return psutil.Process(facts["owner"]).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _tree(facts: dict[str, Any]) -> Tree:
    """Return the tree of a record's program, as far as it still exists."""
    import psutil  # noqa: PLC0415 - see `record`

    pid, mark = int(facts["pid"]), str(facts["mark"])
    # While a group has members, no other process is given its leader's pid.
    is_left = abs(psutil.boot_time() - facts["machine_began"]) <= _RECORD_SLACK_S and (
        _is_the_same(pid, facts["began"]) or (not psutil.pid_exists(pid) and has_group(pid))
    )
    return Tree(pid if is_left else None, lambda: find_marked_processes(mark))


def _end(stray: Tree) -> bool:
    if not stray.look():
        return False
    limit = time.monotonic() + _KILL_WAIT_S
    while stray.look() and time.monotonic() < limit:
        stray.kill()
        time.sleep(0.01)
    return True


def _program_of(pid: int) -> str:
    """Return the name of the program and of its script; other arguments may be secret."""
    import psutil  # noqa: PLC0415 - see `record`

    try:
        process = psutil.Process(pid)
        name, words = process.name(), process.cmdline()[1:2]
        script = [Path(word).name for word in words if Path(process.cwd(), word).is_file()]
    except (psutil.Error, OSError, ValueError):
        return ""
    return " ".join([name, *script])


def _is_the_same(pid: int, began: float | None) -> bool:
    began_now = _began(pid)
    return began_now is not None and began is not None and abs(began_now - began) <= _RECORD_SLACK_S


def _began(pid: int) -> float | None:
    import psutil  # noqa: PLC0415 - see `record`

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
