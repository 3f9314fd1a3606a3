"""One program from its start to its end: fed and drained at the same time, ended with its tree."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from arena_cli.adapters.processes import orphans, strays, winjob

if TYPE_CHECKING:
    from arena_cli.adapters.processes.tree import Tree

TERM_GRACE_S = 0.5
_POLL_S = 0.01
_KILL_WAIT_S = 5.0
_MOST_WAITING = 4 * 1024 * 1024
_PR_SET_PDEATHSIG = 1

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """What to start: `argv[0]` is a path; `records` is the folder of `strays`; `agent` its id."""

    argv: Sequence[str]
    cwd: Path
    environ: Mapping[str, str]
    records: Path
    agent: str = ""


class Event(NamedTuple):
    """Bytes as they came. Without any, `source` is over; `exit` is the program itself."""

    source: Literal["stdout", "stderr", "exit"]
    data: bytes = b""


async def start(program: Program) -> Process:
    """The running program, recorded, the leader of its own group. Raises OSError."""
    process = Process()
    try:
        await _through(process.spawn(program))
    except BaseException:
        await process.end()
        raise
    return process


class Process(asyncio.SubprocessProtocol):
    """A running program, made by `start`."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._record: Path | None = None
        self._mark = orphans.new_mark()
        self._began = 0.0
        self._has_group = sys.platform != "win32"
        self._close_job: Callable[[], None] | None = None
        self._events: deque[Event] = deque()
        self._waiting = 0
        self._paused: set[int] = set()
        self._news = asyncio.Event()
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()

    async def spawn(self, program: Program) -> None:
        """Start it; see `start`."""
        orphans.adopt()
        orphans.starting.add(self._mark)
        self._began = time.time()
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *program.argv,
                cwd=program.cwd,
                env=orphans.marked(program.environ, self._mark),
                **_own_group(),
            )
        finally:
            orphans.starting.discard(self._mark)
        self._transport = transport
        self._close_job = winjob.contain(transport.get_pid())
        self._record = strays.record(
            program.records, transport.get_pid(), self._mark, program.agent
        )

    def write(self, data: bytes, *, last: bool = True) -> None:
        """Give it input, as fast as it takes it; after the `last` its stdin is closed.

        A program that does not want it is no error.
        """
        orphans.reap()
        pipe: Any = self._transport and self._transport.get_pipe_transport(0)
        if pipe is None or pipe.is_closing():
            return
        if data:
            pipe.write(data)
        if last:
            pipe.close()

    async def event(self, timeout: float | None = None) -> Event | None:
        """What came next; None when nothing did for `timeout` seconds (None: however long)."""
        if not self._events:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._news.wait()
        return self.waiting_event()

    def waiting_event(self) -> Event | None:
        """What came already and was not taken yet."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._waiting -= len(event.data)
        if self._paused and self._waiting < _MOST_WAITING:
            self._resume()
        return event

    async def end(self) -> None:
        """End the whole tree, however often the caller is cancelled meanwhile; it is all reaped."""
        if self._transport is not None:
            await _through(self._end(self._transport))

    async def _end(self, transport: asyncio.SubprocessTransport) -> None:
        pid = transport.get_pid()
        others = self._others()
        if self.returncode is not None:
            self._has_group = self._has_group and orphans.has_group(pid)
        if self.returncode is None or self._has_group or others:
            await self._end_tree(pid)
        if self._close_job is not None:
            self._close_job()
        stdin: Any = transport.get_pipe_transport(0)
        if stdin is not None and stdin.get_write_buffer_size():
            stdin.abort()
        if self.returncode is not None:
            # Not before: closing reaps the program, behind the back of who watches for its end.
            transport.close()
            await _within(_KILL_WAIT_S, self._closed)
            if self._record is not None:
                strays.forget(self._record)

    async def _end_tree(self, pid: int) -> None:
        from arena_cli.adapters.processes.tree import Tree  # noqa: PLC0415 - most programs end by themselves

        runs = self.returncode is None or self._has_group
        tree = Tree(pid if runs else None, self._others)
        tree.look()
        try:
            tree.terminate()
            await _gone(tree, TERM_GRACE_S)
        finally:
            await _killed(tree, _KILL_WAIT_S)
        await _within(_KILL_WAIT_S, self._exited)

    def _others(self) -> list[int]:
        """What of its tree has no parent any more."""
        return orphans.left(self._mark, self._began)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._tell(Event("stdout" if fd == 1 else "stderr", data))
        self._waiting += len(data)
        if self._waiting >= _MOST_WAITING:
            self._pause(fd)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._paused.discard(fd)
        if fd != 0:
            self._tell(Event("stdout" if fd == 1 else "stderr"))

    def process_exited(self) -> None:
        if self._transport is not None:
            pid = self._transport.get_pid()
            self.returncode = self._transport.get_returncode()
            orphans.programs.discard(pid)
            # When the last of the group is gone, its number may be given to another.
            orphans.reap()
            self._has_group = orphans.has_group(pid)
        self._exited.set()
        self._tell(Event("exit"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        orphans.programs.add(self._transport.get_pid())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._closed.set()

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._news.set()

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
    """What makes the kernel kill a new process when this one is killed; None where none can."""
    if sys.platform != "linux":
        return None
    prctl = orphans.prctl()  # loaded before the fork
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


async def _through(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which runs to its end though the caller is cancelled meanwhile."""
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


async def _gone(tree: Tree, limit_s: float) -> None:
    """Wait until none of a tree is left; nothing tells of the end of what is not one's child."""
    clock = asyncio.get_running_loop().time
    limit = clock() + limit_s
    while tree.is_alive() and clock() < limit:  # noqa: ASYNC110 - nothing tells of their end
        await asyncio.sleep(_POLL_S)


async def _killed(tree: Tree, limit_s: float) -> None:
    """End all of a tree that is left, and what it starts meanwhile."""
    clock = asyncio.get_running_loop().time
    limit = clock() + limit_s
    while tree.look() and clock() < limit:
        tree.kill()
        await asyncio.sleep(_POLL_S)


async def _within(limit_s: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
