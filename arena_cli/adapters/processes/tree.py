"""End a program with all that it started, even what left its group: first ask, then kill."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from arena_cli.adapters.processes import orphans

if TYPE_CHECKING:
    import psutil


class Tree:
    """The processes under `root`, which leads a group of its own where there are groups.

    `root` None: neither it nor its group is left. `find_marked` returns the processes that carry
    its mark. A process stays known once it was found, so that an orphan is not lost when its
    parent ends.
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
        orphans.reap(self._known)
        return is_left

    def pids(self) -> list[int]:
        """Return the living processes that `look` found, and those of the group."""
        pids = {process.pid for process in self._known.values() if _is_alive(process)}
        return sorted(pids.union(self._group_members()))

    def terminate(self) -> None:
        """Ask all to end; where there are no signals, end them."""
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
        """Return True if any known process is left; a zombie is not."""
        if any(_is_alive(process) for process in self._known.values()):
            return True
        return next(self._group_members(), None) is not None

    def _group_members(self) -> Iterator[int]:
        if self._root is not None and orphans.has_group(self._root):
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
