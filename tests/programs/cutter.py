"""Runs arena's commands in forks of one warmed process, and ends each before its n-th write.

It reads requests from stdin, one JSON object a line, and answers each with one. `cut` counts the
calls that change the disk, from 1; 0 is none. `half`: half of that write still happens.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from arena_cli.cli import main

_CUT = 9
_SLOW = {"acp", "mcp_client", "mcp_server"}
_PLAIN = ("replace", "rename", "link", "fsync", "unlink", "remove", "mkdir", "rmdir", "ftruncate")


class Cuts:
    """Counts the calls that change the disk, and ends the process before one of them."""

    def __init__(self, cut: int, *, half: bool, report: int) -> None:
        self.count = 0
        self._cut = cut
        self._half = half
        self._report = report

    def at(self, half: Any = None) -> None:
        """Another call begins; `half` does half of it."""
        self.count += 1
        if self.count == self._cut:
            if self._half and half is not None:
                half()
            self.end(_CUT)

    def end(self, code: int) -> None:
        """Say how many there were, and be gone."""
        os.pwrite(self._report, b"%d" % self.count, 0)
        os._exit(code)

    def install(self) -> None:
        """Put the counting around what Python changes the disk by."""
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


def run(request: dict[str, Any], report: int, out: int, problems: int) -> None:
    """Be arena, in a process of its own."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    null = os.open(os.devnull, os.O_RDONLY)
    for target, handle in ((0, null), (1, out), (2, problems)):
        os.dup2(handle, target)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(handle, "w")), encoding="utf-8")
        for handle in (1, 2)
    )
    sys.argv = ["arena", *request["args"]]
    cuts = Cuts(request["cut"], half=request["half"], report=report)

    code: Any = 0
    if request["counts"]:
        cuts.install()
    try:
        main.run()
    except SystemExit as end:
        code = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    cuts.end(code)


def serve() -> None:
    """Answer requests until there are no more."""
    warm()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        with (
            tempfile.TemporaryFile() as report,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as problems,
        ):
            child = os.fork()
            if not child:
                try:
                    run(request, report.fileno(), out.fileno(), problems.fileno())
                finally:
                    os._exit(70)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            told = []
            for file in (report, out, problems):
                file.seek(0)
                told.append(file.read().decode("utf-8", "replace"))
        answer = {"code": code, "count": int(told[0] or 0), "out": told[1], "problems": told[2]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    serve()
