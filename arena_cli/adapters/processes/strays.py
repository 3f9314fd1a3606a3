"""Record running programs, so that the next arena ends those that a killed one left behind."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters.processes import orphans
from arena_cli.adapters.processes.tree import Tree
from arena_cli.ground import ownfiles, regularfiles
from arena_cli.ground.errors import UsageError

# When the clock is set while programs run, the start times that the system reports change.
_RECORD_SLACK_S = 2.0
_KILL_WAIT_S = 5.0


class Stray(NamedTuple):
    """A process that a killed arena left behind: its pid, its program and its agent."""

    pid: int
    program: str
    agent: str


def record(folder: Path, pid: int, mark: str, agent: str = "") -> Path:
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
    ownfiles.make_folder(folder, below=folder.parents[1])
    path = folder / f"{owner}-{pid}.json"
    partial_path = path.with_suffix(".part")
    ownfiles.write_part(partial_path, json.dumps(facts).encode("utf-8"), instead_of=path)
    return partial_path.replace(path)  # complete, or missing


def forget(path: Path) -> None:
    """Remove a record whose process and all under it are gone."""
    with contextlib.suppress(OSError):
        path.unlink()


def end_recorded(folder: Path) -> int:
    """End the recorded trees whose arena is gone, remove their records; return how many ended.

    Records of an arena that is alive stay. A missing folder costs next to nothing.
    Raises UsageError if the folder is a link: the files it leads to are not arena's to remove.
    """
    try:
        ownfiles.check(folder, below=folder.parents[1])
    except ownfiles.LinkRefused as error:
        raise UsageError(str(error.strerror), ownfiles.HINT) from error
    return sum([_end_one(path) for path in _records(folder)])


def left(folder: Path) -> list[Stray]:
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
    forget(path)
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
    facts = json.loads(regularfiles.read(path))
    if not isinstance(facts, dict):
        raise TypeError("expected a JSON object")
    return facts


def _owner_runs(facts: dict[str, Any]) -> bool:
    """Return True if the arena runs; a killed one may stay as a zombie for ever."""
    import psutil  # noqa: PLC0415 - see `record`

    if not _is_the_same(facts["owner"], facts["owner_began"]):
        return False
    try:
        return psutil.Process(facts["owner"]).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _tree(facts: dict[str, Any]) -> Tree:
    """Return the tree of a record's program, as far as it is left."""
    import psutil  # noqa: PLC0415 - see `record`

    pid, mark = int(facts["pid"]), str(facts["mark"])
    # While a group has members, no other process is given its leader's pid.
    is_left = abs(psutil.boot_time() - facts["machine_began"]) <= _RECORD_SLACK_S and (
        _is_the_same(pid, facts["began"]) or (not psutil.pid_exists(pid) and orphans.has_group(pid))
    )
    return Tree(pid if is_left else None, lambda: orphans.anywhere(mark))


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
