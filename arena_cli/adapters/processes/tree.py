"""A process with all that it started: asked to end, then ended, also what left its group.

Importing this module imports psutil: do so where a tree is ended, not before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import psutil


class Tree:
    """The processes under `root`, which leads a group of its own where there are groups.

    What was found once stays known, so that an orphan is not lost when its parent ends.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._found: dict[int, psutil.Process] = {}

    def look(self) -> None:
        """Find the root, and all that descends from it or from what was found before."""
        if self._root not in self._found:
            with contextlib.suppress(psutil.Error):
                self._found[self._root] = psutil.Process(self._root)
        for process in list(self._found.values()):
            with contextlib.suppress(psutil.Error):
                for child in process.children(recursive=True):
                    self._found.setdefault(child.pid, child)

    def terminate(self) -> None:
        """Ask all to end. Where there are no signals it ends them."""
        if sys.platform != "win32":
            _signal_group(self._root, signal.SIGTERM)
        for process in self._outside_the_group():
            with contextlib.suppress(psutil.Error):
                process.terminate()

    def kill(self) -> None:
        """End all at once."""
        if sys.platform != "win32":
            _signal_group(self._root, signal.SIGKILL)
        for process in self._outside_the_group():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def is_alive(self) -> bool:
        """Whether any is left. What has ended but was not reaped is not."""
        if any(_is_alive(process) for process in self._found.values()):
            return True
        return has_group(self._root) and any(
            _is_in_group(pid, self._root) and _is_alive_pid(pid) for pid in psutil.pids()
        )

    def _outside_the_group(self) -> list[psutil.Process]:
        return [
            process
            for process in self._found.values()
            if _is_alive(process) and not _is_in_group(process.pid, self._root)
        ]


def has_group(root: int) -> bool:
    """Whether any process is left of the group that `root` leads or led; False without groups."""
    return sys.platform != "win32" and _signal_group(root, 0)


def _signal_group(group: int, number: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
        return False
    return True


def _is_in_group(pid: int, group: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


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
