"""Files that a user, a workspace or a scenario names, opened without waiting for anybody.

A FIFO blocks whoever opens it until somebody writes, a device may never end: both are refused
before they are opened. What a user names on the command line may be a pipe (`open_input`).
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path
from typing import BinaryIO, cast

WRITER_WAIT_S = 10.0
"""How long a FIFO on the command line may stay without a byte."""

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_POLL_S = 0.02
_BLOCK = 1 << 16

_KINDS = (
    (stat.S_ISFIFO, "a FIFO (a named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegular(OSError):
    """A path names a FIFO, a socket or a device where a file is expected."""

    def __init__(self, path: str | Path, kind: str) -> None:
        super().__init__(errno.EINVAL, f"expected a file, got {kind}", os.fspath(path))


def read(path: Path) -> bytes:
    """Return the content of a regular file. Raise OSError, NotRegular among others."""
    with open_binary(path) as file:
        return file.read()


def open_binary(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raise OSError, NotRegular among others."""
    return cast("BinaryIO", open(path, "rb", opener=_open_regular))


def is_named(path: Path) -> bool:
    """Return True if there is a file, or one that `read` refuses with its reason; no folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISDIR(mode)


def check(path: str | Path, state: os.stat_result) -> None:
    """Raise NotRegular if the path is neither a file nor a folder."""
    for holds, kind in _KINDS:
        if holds(state.st_mode):
            raise NotRegular(path, kind)


def read_input(path: Path) -> bytes:
    """Return what a user named on the command line: a file, a pipe, or what a terminal is given.

    A FIFO is read to its end; one that nobody writes to for `WRITER_WAIT_S` is refused, as are
    sockets and devices without an end. Raises OSError.
    """
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        return _read_pipe(path)
    if stat.S_ISCHR(state.st_mode):
        with path.open("rb") as device:
            if not device.isatty() and not _is_null(state):
                raise NotRegular(path, "a device")
            return device.read()
    return read(path)


def _open_regular(path: str, flags: int) -> int:
    check(path, Path(path).stat())  # opening a device may already act on it
    descriptor = os.open(path, flags | _NONBLOCK)
    try:
        check(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_null(state: os.stat_result) -> bool:
    return os.path.samestat(state, Path(os.devnull).stat())


def _read_pipe(path: Path) -> bytes:
    """Return all that is written to a FIFO, whose writer may open it a little later."""
    descriptor = os.open(path, os.O_RDONLY | _NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        first = _first_block(descriptor, path)
        os.set_blocking(descriptor, True)
        return first + (pipe.read() or b"" if first else b"")


def _first_block(descriptor: int, path: Path) -> bytes:
    """Return the first bytes of a pipe, or none where its writer has left an inherited one."""
    is_inherited = path.resolve().name.startswith("pipe:")  # `<(...)`, `/dev/stdin`
    end = time.monotonic() + WRITER_WAIT_S
    while is_inherited or time.monotonic() < end:
        ready, _, _ = select.select([descriptor], [], [], None if is_inherited else _POLL_S)
        block = os.read(descriptor, _BLOCK) if ready else b""
        if block or (is_inherited and ready):
            return block
        time.sleep(_POLL_S if ready else 0)
    raise OSError(errno.ETIMEDOUT, f"nobody wrote to this FIFO for {WRITER_WAIT_S:g} s", str(path))
