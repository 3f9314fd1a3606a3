"""Asks the server of `forks.py` for a fork of arena: `fork_request.py SOCKET ARGS`, in its streams.

It is started with `python -S -E` in place of arena, so it imports little.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def request_fork(path: str, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
    """Return the pid of a fork with these streams, and where its wait status can be read."""
    status, told = os.pipe()
    text = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"%8d" % len(text)], [*streams, told])
        server.sendall(text)
        os.close(told)
        return int(server.recv(8, socket.MSG_WAITALL)), status


def read_status(handle: int) -> tuple[list[int], int]:
    """Wait for the end of a fork; return what it reported, and its wait status."""
    with open(handle, "rb") as file:
        *reported, status = map(int, file.read().split())
    return reported, status


if __name__ == "__main__":
    folder = os.getcwd()  # noqa: PTH109 - importing pathlib takes longer than all the rest
    asked = {"args": sys.argv[2:], "cwd": folder, "env": dict(os.environ)}
    _, ended = request_fork(sys.argv[1], asked, (0, 1, 2))
    os.closerange(0, 3)
    code = os.waitstatus_to_exitcode(read_status(ended)[1])
    os._exit(code if code >= 0 else 128 - code)
