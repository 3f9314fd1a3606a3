"""A program with all that it started: asked to end, then ended, also what left its group.

Importing this module imports psutil: do so where a tree is ended, not before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable

import psutil

from arena_cli.adapters.processes import orphans


class Tree:
    """The processes under `root`, which leads a group of its own where there are groups.

    None as `root`: neither it nor its group is there any more. `others` are the processes that
    belong to it, as far as they carry its mark. What was found once stays known, so that an orphan
    is not lost when its parent ends.
    """

    def __init__(self, root: int | None, others: Callable[[], Iterable[int]]) -> None:
        self._root = root
        self._others = others
        self._found: dict[int, psutil.Process] = {}

    def look(self) -> bool:
        """Find all that there is now, with all that descends from it; whether any is left."""
        others = list(self._others())
        for pid in (*others, *(() if self._root is None else (self._root,))):
            known = self._found.get(pid)
            if known is None or not _is_alive(known):
                with contextlib.suppress(psutil.Error):
                    self._found[pid] = psutil.Process(pid)
        for process in list(self._found.values()):
            with contextlib.suppress(psutil.Error):
                for child in process.children(recursive=True):
                    self._found.setdefault(child.pid, child)
        is_left = bool(others) or self.is_alive()
        orphans.reap(self._found)
        return is_left

    def pids(self) -> list[int]:
        """Return those of what `look` found, and of the group, that are alive."""
        found = {process.pid for process in self._found.values() if _is_alive(process)}
        if self._root is not None and orphans.has_group(self._root):
            found |= {pid for pid in psutil.pids() if self._is_in_group(pid) and _is_alive_pid(pid)}
        return sorted(found)

    def terminate(self) -> None:
        """Ask all to end. Where there are no signals it ends them."""
        if sys.platform != "win32":
            self._signal_group(signal.SIGTERM)
        for process in self._outside_the_group():
            with contextlib.suppress(psutil.Error):
                process.terminate()

    def kill(self) -> None:
        """End all at once."""
        if sys.platform != "win32":
            self._signal_group(signal.SIGKILL)
            for pid in self._others():  # as they are now: they may be starting more
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._outside_the_group():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def is_alive(self) -> bool:
        """Whether any is left of what was found. What has ended but was not reaped is not."""
        if any(_is_alive(process) for process in self._found.values()):
            return True
        return (
            self._root is not None
            and orphans.has_group(self._root)
            and any(self._is_in_group(pid) and _is_alive_pid(pid) for pid in psutil.pids())
        )

    def _outside_the_group(self) -> list[psutil.Process]:
        return [
            process
            for process in self._found.values()
            if _is_alive(process) and not self._is_in_group(process.pid)
        ]

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
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_alive_pid(pid: int) -> bool:
    try:
        return _is_alive(psutil.Process(pid))
    except psutil.Error:
        return False
