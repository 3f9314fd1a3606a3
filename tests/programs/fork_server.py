"""Runs arena's commands in forks of one warmed process; `tests/fork_request.py` makes the requests.

A request is a JSON object and four descriptors: stdin, stdout, stderr, and one for the wait status.
`cut`, if it is there, counts the calls that change the disk, from 1, and the process ends before
that one; with `half`, half of that write still happens.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from arena_cli import __main__ as arena

_CUT = 9
_SLOW = {"acp", "mcp_client", "mcp_server"}
_PLAIN = ("replace", "rename", "link", "fsync", "unlink", "remove", "mkdir", "rmdir", "ftruncate")


class Cuts:
    """Counts the calls that change the disk, and ends the process before one of them."""

    def __init__(self, cut: int, *, half: bool, report: int) -> None:
        self.count = 0
        self._cut = cut
        self._half = half
        self._handle = report

    def at(self, half: Any = None) -> None:
        """Count a call that begins; `half` does half of it."""
        self.count += 1
        if self.count == self._cut:
            if self._half and half is not None:
                half()
            self.report()
            os._exit(_CUT)

    def report(self) -> None:
        """Write the number of calls."""
        os.write(self._handle, b"%d " % self.count)

    def install(self) -> None:
        """Count each call of Python that changes the disk."""
        for name in _PLAIN:
            setattr(os, name, self._counted(getattr(os, name)))
        write, opened = os.write, io.open

        def counted_write(handle: int, data: Any) -> int:
            if handle > 2 and stat.S_ISREG(os.fstat(handle).st_mode):
                self.at(lambda: write(handle, bytes(data)[: len(data) // 2]))
            return write(handle, data)

        def counted_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return opened(file, mode, *args, **options)
            self.at()
            return _File(opened(file, mode, *args, **options), self)

        os.write = counted_write
        io.open = builtins.open = counted_open

    def _counted(self, call: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            self.at()
            return call(*args, **options)

        return counted


class _File:
    """A file open for writing; each of its writes is at the system before the next call."""

    def __init__(self, file: Any, cuts: Cuts) -> None:
        self._file = file
        self._cuts = cuts

    def write(self, data: Any) -> Any:
        self._cuts.at(lambda: self._put(data[: len(data) // 2]))
        return self._put(data)

    def _put(self, data: Any) -> Any:
        count = self._file.write(data)
        self._file.flush()
        return count

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *args: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def warm() -> None:
    """Import all of arena that can be imported; what loads a protocol's SDK, when it is called."""
    import arena_cli

    for module in pkgutil.walk_packages(arena_cli.__path__, "arena_cli."):
        if not module.name.endswith("__main__") and not _SLOW.intersection(module.name.split(".")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def warm_for(request: dict[str, Any]) -> None:
    """Import the SDK of a protocol, once a command needs it."""
    agents = Path(request["cwd"]).glob("agents/*.yaml")
    needs = {
        "arena_cli.adapters.acp.client": any(b'"acp"' in path.read_bytes() for path in agents),
        "arena_cli.cli.mcp_server": "mcp" in request["args"],
    }
    for module in [name for name, is_needed in needs.items() if is_needed]:
        if module not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
            gc.freeze()


def become(request: dict[str, Any], handles: list[int]) -> None:
    """Give this process what a new Python has at its start."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if request.get("new_session"):
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    for target, handle in enumerate(handles[:3]):
        os.dup2(handle, target)
        os.close(handle)
    sys.stdin = sys.__stdin__ = open_stream(0, "r")
    sys.stdout = sys.__stdout__ = open_stream(1, "w")
    sys.stderr = sys.__stderr__ = open_stream(2, "w", errors="backslashreplace")
    sys.path[0] = request["cwd"]
    sys.argv = ["arena", *request["args"]]
    if "cut" in request:
        cuts = Cuts(request["cut"], half=request["half"], report=handles[3])
        cuts.install()
        atexit.register(cuts.report)
    else:
        os.close(handles[3])


def open_stream(handle: int, mode: str, errors: str = "surrogateescape") -> Any:
    """Open a standard stream as Python does where the locale is C.UTF-8."""
    file = io.FileIO(handle, mode, closefd=False)
    buffer = io.BufferedReader(file) if mode == "r" else io.BufferedWriter(file)
    is_by_line = file.isatty() or handle == 2
    return io.TextIOWrapper(buffer, "utf-8", errors, newline="\n", line_buffering=is_by_line)


def serve(listener: socket.socket) -> bool:
    """Fork for each request; return True in the forks, False when stdin is closed."""
    heard, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([0, listener, heard], [], [])
        if 0 in ready:
            return False
        if heard in ready:
            os.read(heard, 1000)
            report_ended(running)
        if listener not in ready:
            continue
        with listener.accept()[0] as client:
            request, handles = receive(client)
            warm_for(request)
            child = os.fork()
            if not child:
                for handle in (heard, wakes, listener.detach(), *running.values()):
                    os.close(handle)
                client.close()
                become(request, handles)
                return True
            for handle in handles[:3]:
                os.close(handle)
            running[child] = handles[3]
            client.sendall(b"%8d" % child)


def receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request, and the descriptors that came with it."""
    size, handles, _, _ = socket.recv_fds(client, 8, 4)
    for handle in handles:
        os.set_inheritable(handle, False)
    return json.loads(client.recv(int(size), socket.MSG_WAITALL)), handles


def report_ended(running: dict[int, int]) -> None:
    """Write the wait statuses of the forks that ended."""
    while running:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if not ended:
            break
        handle = running.pop(ended)
        with contextlib.suppress(BrokenPipeError):
            os.write(handle, b"%d" % status)
        os.close(handle)


def run_to_the_end() -> None:
    """Be arena, and end as Python does, but for the time that it takes to free every object."""
    code: Any = 0
    try:
        arena.main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - Python does the same
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120
    os._exit(code)


if __name__ == "__main__":
    sys.path.insert(1, str(Path(__file__).parent.parent.parent))
    warm()
    os.fsync = lambda handle: None  # type: ignore[assignment] # a killed process loses no writes
    gc.freeze()
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        run_to_the_end()
