"""Ask the server of `forks.py` for a fork of arena: `fork_request.py SOCKET ARGS`.

The fork has its streams. It runs as `python -S -E` in place of arena, so it imports little.
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
    status, report = os.pipe()
    text = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"%8d" % len(text)], [*streams, report])
        server.sendall(text)
        os.close(report)
        return int(server.recv(8, socket.MSG_WAITALL)), status


def read_status(handle: int) -> tuple[list[int], int]:
    """Wait for the end of a fork; return what it reported, and its wait status."""
    with open(handle, "rb") as file:
        *reported, status = map(int, file.read().split())
    return reported, status


if __name__ == "__main__":
    folder = os.getcwd()  # noqa: PTH109 - importing pathlib takes longer than all the rest
    request = {"args": sys.argv[2:], "cwd": folder, "env": dict(os.environ)}
    _, ended = request_fork(sys.argv[1], request, (0, 1, 2))
    os.closerange(0, 3)
    code = os.waitstatus_to_exitcode(read_status(ended)[1])
    os._exit(code if code >= 0 else 128 - code)
