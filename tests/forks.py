"""arena in processes of its own that are forked from a warmed one: a tenth of the time of new ones.

A fork has its own pid, streams, signals, terminal and locks. Of a new process it lacks the start of
Python, and what the system shows of it: its command line and the environment that it began with.
"""

from __future__ import annotations

import functools
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "programs" / "fork_server.py"
OPTIONS = {"stdin", "stdout", "stderr", "cwd", "env", "start_new_session"}


def can_fork(env: Mapping[str, str], options: Mapping[str, Any]) -> bool:
    """Say whether a fork is what a new process would be, with `env` over the usual environment."""
    at_start = ("PYTHON", "LC_", "LANG")
    return (
        hasattr(os, "fork")
        and options.keys() <= OPTIONS
        and not any(name.startswith(at_start) for name in env)
    )


@functools.cache
def _server() -> tuple[socket.socket, object]:
    """Start the warmed process, which ends when this one does; return the way to it, and it."""
    ours, theirs = socket.socketpair()
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(SERVER.parents[2])}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=env,
            stdin=subprocess.DEVNULL,
        )
    return ours, process


class Fork(subprocess.Popen[bytes]):
    """A running arena; `request` adds keys to what the server is asked for."""

    def __init__(self, args: Any, *, request: Mapping[str, Any] | None = None, **options: Any):
        self._request = dict(request or {})
        self._told = b""
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *given: Any) -> None:
        """Do what `Popen` does here, but by the server."""
        cwd, env, new_session = given[4], given[5], given[-2]
        pipes = given[9:15]  # stdin: theirs, ours; stdout and stderr: ours, theirs
        theirs = [pipes[0], pipes[3], pipes[5]]
        self._status, status = os.pipe()
        request = {"args": args, "cwd": str(cwd), "env": env, "new_session": new_session}
        text = json.dumps({**request, **self._request}).encode()
        handles = [number if handle == -1 else handle for number, handle in enumerate(theirs)]
        server, _ = _server()
        socket.send_fds(server, [b"%8d" % len(text)], [*handles, status])
        server.sendall(text)
        os.close(status)
        self.pid = int(server.recv(8, socket.MSG_WAITALL))
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Return the pid and the status that the server tells of it, or (0, 0) while it runs."""
        while wait_flags == 0 or select.select([self._status], [], [], 0)[0]:
            part = os.read(self._status, 100)
            self._told += part
            if not part:
                os.close(self._status)
                return self.pid, int(self._told.split()[-1])
        return 0, 0

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode

    @property
    def changes(self) -> int:
        """How often it changed the disk, if the request asked to count that."""
        return int(self._told.split()[0])
