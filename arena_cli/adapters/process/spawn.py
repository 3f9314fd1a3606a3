"""Start a program, feed and drain it at the same time, and end it with its whole tree."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

from arena_cli.adapters.process import cleanup
from arena_cli.adapters.process.cleanup import Tree


def create_job(pid: int) -> Callable[[], None] | None:
    """Put a process, and all that it will start, into a job; return a function that ends them.

    Return None if there are no jobs, or if Windows refuses one.
    """
    if sys.platform == "win32":
        try:
            return _Job(pid).close
        except OSError:
            return None
    return None


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _KILL_ON_JOB_CLOSE = 0x2000
    _EXTENDED_LIMIT_INFORMATION = 9
    _SET_QUOTA_AND_TERMINATE = 0x0101

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    def _kernel() -> ctypes.WinDLL:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        kernel.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
        kernel.SetInformationJobObject.argtypes = (
            wintypes.HANDLE,
            ctypes.c_int,
            wintypes.LPVOID,
            wintypes.DWORD,
        )
        kernel.OpenProcess.restype = wintypes.HANDLE
        kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
        kernel.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
        kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
        return kernel

    class _Job:
        """A job with the process `pid` in it. Raises OSError if Windows refuses one."""

        def __init__(self, pid: int) -> None:
            self._kernel = _kernel()
            self._job = self._kernel.CreateJobObjectW(None, None)
            if not self._job:
                raise ctypes.WinError(ctypes.get_last_error())
            limits = _ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            is_limited = self._kernel.SetInformationJobObject(
                self._job, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
            )
            process = self._kernel.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, pid)
            is_assigned = process and self._kernel.AssignProcessToJobObject(self._job, process)
            code = ctypes.get_last_error()
            if process:
                self._kernel.CloseHandle(process)
            if not (is_limited and is_assigned):
                self.close()
                raise ctypes.WinError(code)

        def close(self) -> None:
            """End every process that is in the job."""
            if self._job:
                self._kernel.CloseHandle(self._job)
                self._job = None


TERM_GRACE_S = 0.5
_POLL_S = 0.01
_KILL_WAIT_S = 5.0
_MOST_WAITING = 4 * 1024 * 1024
_PR_SET_PDEATHSIG = 1

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """A program to start: `argv[0]` is a path, `agent` an id.

    `records` is the folder for the records of running programs.
    """

    argv: Sequence[str]
    cwd: Path
    environ: Mapping[str, str]
    records: Path
    agent: str = ""


class ProcessEvent(NamedTuple):
    """Bytes as they came; no bytes mean that `source` has ended (`exit`: the program itself)."""

    source: Literal["stdout", "stderr", "exit"]
    data: bytes = b""


async def start_process(program: Program) -> Process:
    """Start and record a program, the leader of its own group. Raises OSError."""
    process = Process()
    try:
        await _finish(process.spawn(program))
    except BaseException:
        await process.end()
        raise
    return process


class Process(asyncio.SubprocessProtocol):
    """A running program."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._record: Path | None = None
        self._mark = secrets.token_hex(8)
        self._began = 0.0
        self._has_group = sys.platform != "win32"
        self._close_job: Callable[[], None] | None = None
        self._events: deque[ProcessEvent] = deque()
        self._waiting = 0
        self._paused: set[int] = set()
        self._has_news = asyncio.Event()
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()

    async def spawn(self, program: Program) -> None:
        """Start and record the program."""
        cleanup.adopt()
        cleanup.starting_marks.add(self._mark)
        self._began = time.time()
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *program.argv,
                cwd=program.cwd,
                env=cleanup.mark_environment(program.environ, self._mark),
                **_own_group(),
            )
        finally:
            cleanup.starting_marks.discard(self._mark)
        self._transport = transport
        self._close_job = create_job(transport.get_pid())
        self._record = cleanup.write_record(
            program.records, transport.get_pid(), self._mark, program.agent
        )

    def write(self, data: bytes, *, last: bool = True) -> None:
        """Write to its stdin, as fast as it reads; close it after the `last` data.

        A program that does not read it is not an error.
        """
        cleanup.reap_orphans()
        pipe: Any = self._transport and self._transport.get_pipe_transport(0)
        if pipe is None or pipe.is_closing():
            return
        if data:
            pipe.write(data)
        if last:
            pipe.close()

    async def event(self, timeout: float | None = None) -> ProcessEvent | None:
        """Return the next event; None if there is none for `timeout` seconds (None: no limit)."""
        if not self._events:
            self._has_news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._has_news.wait()
        return self.waiting_event()

    def waiting_event(self) -> ProcessEvent | None:
        """Return the next event if there is one already."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._waiting -= len(event.data)
        if self._paused and self._waiting < _MOST_WAITING:
            self._resume()
        return event

    async def wait_exit(self, limit_s: float) -> None:
        """Wait until the program has ended, `limit_s` seconds at the most, and drop its output.

        A program whose output is not read could not end.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.returncode is None:
                    await self.event()

    async def end(self) -> None:
        """End and reap the whole tree, even if the caller is cancelled meanwhile."""
        if self._transport is not None:
            await _finish(self._end(self._transport))

    async def _end(self, transport: asyncio.SubprocessTransport) -> None:
        pid = transport.get_pid()
        orphan_pids = self._orphans()
        if self.returncode is not None:
            self._has_group = self._has_group and cleanup.has_group(pid)
        if self.returncode is None or self._has_group or orphan_pids:
            await self._end_tree(pid)
        if self._close_job is not None:
            self._close_job()
        stdin: Any = transport.get_pipe_transport(0)
        if stdin is not None and stdin.get_write_buffer_size():
            stdin.abort()
        if self.returncode is not None:
            # Not before: closing reaps the program, and asyncio's child watcher would miss its end.
            transport.close()
            await _wait(_KILL_WAIT_S, self._closed)
            if self._record is not None:
                cleanup.remove_record(self._record)

    async def _end_tree(self, pid: int) -> None:
        is_running = self.returncode is None or self._has_group
        tree = Tree(pid if is_running else None, self._orphans)
        tree.look()
        try:
            tree.terminate()
            await _wait_gone(tree, TERM_GRACE_S)
        finally:
            await _kill(tree, _KILL_WAIT_S)
        await _wait(_KILL_WAIT_S, self._exited)

    def _orphans(self) -> list[int]:
        """Return the processes of its tree whose parent has ended."""
        return cleanup.find_orphans(self._mark, self._began)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._add_event(ProcessEvent("stdout" if fd == 1 else "stderr", data))
        self._waiting += len(data)
        if self._waiting >= _MOST_WAITING:
            self._pause(fd)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._paused.discard(fd)
        if fd != 0:
            self._add_event(ProcessEvent("stdout" if fd == 1 else "stderr"))

    def process_exited(self) -> None:
        if self._transport is not None:
            pid = self._transport.get_pid()
            self.returncode = self._transport.get_returncode()
            cleanup.running_pids.discard(pid)
            # When the last of the group is gone, its number may be given to another.
            cleanup.reap_orphans()
            self._has_group = cleanup.has_group(pid)
        self._exited.set()
        self._add_event(ProcessEvent("exit"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        cleanup.running_pids.add(self._transport.get_pid())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._closed.set()

    def _add_event(self, event: ProcessEvent) -> None:
        self._events.append(event)
        self._has_news.set()

    def _pause(self, fd: int) -> None:
        pipe: Any = self._transport and self._transport.get_pipe_transport(fd)
        if pipe is not None and fd not in self._paused and not pipe.is_closing():
            pipe.pause_reading()
            self._paused.add(fd)

    def _resume(self) -> None:
        for fd in self._paused:
            pipe: Any = self._transport and self._transport.get_pipe_transport(fd)
            if pipe is not None and not pipe.is_closing():
                pipe.resume_reading()
        self._paused.clear()


def _own_group() -> dict[str, Any]:
    if sys.platform == "win32":
        import subprocess  # noqa: PLC0415 - asyncio has loaded it

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True, "preexec_fn": _dies_with_parent()}


def _dies_with_parent() -> Callable[[], None] | None:
    """Return a hook for the new process, so that the kernel kills it if this one is killed.

    Only Linux has one.
    """
    if sys.platform != "linux":
        return None
    prctl = cleanup.load_prctl()  # loaded before the fork
    parent = os.getpid()

    def request_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return request_signal


async def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with contextlib.suppress(Exception):
            task.result()
        raise cancelled
    return task.result()


async def _wait_gone(tree: Tree, limit_s: float) -> None:
    """Wait until none of a tree is left."""
    clock = asyncio.get_running_loop().time
    limit = clock() + limit_s
    while tree.is_alive() and clock() < limit:  # noqa: ASYNC110 - no event for those that are no children
        await asyncio.sleep(_POLL_S)


async def _kill(tree: Tree, limit_s: float) -> None:
    """Kill the rest of a tree, and all processes that it starts meanwhile."""
    clock = asyncio.get_running_loop().time
    limit = clock() + limit_s
    while tree.look() and clock() < limit:
        tree.kill()
        await asyncio.sleep(_POLL_S)


async def _wait(limit_s: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
