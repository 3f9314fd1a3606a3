"""arena in processes of its own that are forked from a warmed one: a tenth of the time of new ones.

A fork has its own pid, streams, signals, terminal and locks. Of a new process it lacks the start of
Python, and what the system shows of it: its command line and the environment that it began with.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fork_request

SERVER = Path(__file__).parent / "programs" / "fork_server.py"
OPTIONS = {"stdin", "stdout", "stderr", "cwd", "env", "start_new_session"}


def can_fork(env: Mapping[str, str], options: Mapping[str, Any]) -> bool:
    """Return True if a fork equals a new process, with `env` over the usual environment."""
    at_start = ("PYTHON", "LC_", "LANG")
    return (
        hasattr(os, "fork")
        and options.keys() <= OPTIONS
        and not any(name.startswith(at_start) for name in env)
    )


@functools.cache
def _server() -> str:
    """Start the warmed process, which ends when this one does; return its socket."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/forks"
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(SERVER.parents[2])}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(listener.fileno())],
            pass_fds=[listener.fileno()],
            env=env,
            stdin=subprocess.PIPE,
        )
    atexit.register(process.communicate)  # it ends when its stdin does
    return path


def list_command(*args: str) -> list[str]:
    """Return a command that is this one of arena, for programs that start it."""
    if not hasattr(os, "fork"):
        return [sys.executable, "-m", "arena_cli", *args]
    return [sys.executable, "-S", "-E", fork_request.__file__, _server(), *args]


class Fork(subprocess.Popen[bytes]):
    """A running arena; `request` adds keys to what the server is asked for.

    `reported` is how often it changed the disk, if the request had a `cut`, once it has ended.
    """

    def __init__(self, args: Any, *, request: Mapping[str, Any] | None = None, **options: Any):
        self._request = request or {}
        self.reported: list[int] = []
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *params: Any) -> None:
        """Do what `Popen` does here, but by the server."""
        request = {"args": args, "cwd": str(params[4]), "env": params[5], "new_session": params[-2]}
        pipes = params[9:15]  # stdin: theirs, ours; stdout and stderr: ours, theirs
        theirs = (pipes[0], pipes[3], pipes[5])
        streams = [number if handle == -1 else handle for number, handle in enumerate(theirs)]
        self.pid, self._status = fork_request.request_fork(
            _server(), {**request, **self._request}, streams
        )
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Return the pid and the status from the server, or (0, 0) while it runs."""
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        self.reported, status = fork_request.read_status(self._status)
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode
