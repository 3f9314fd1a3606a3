"""Write arena's own files below `sessions/`: through no link, for their owner only.

A workspace may come from anywhere, and a link in it may lead anywhere: every file that arena
appends to, cuts or replaces must be its own. `below` is the folder from which on no part of a path
may be a link; it may itself be reached through one. On POSIX new files have the mode 0600, new
folders 0700; existing ones keep their mode.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from arena_cli.ground import regularfiles

FILE_MODE = 0o600
FOLDER_MODE = 0o700

HINT = "Remove the link; what arena writes below `sessions` must lie there itself."

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

# Windows: links and junctions. Other reparse points, such as files of OneDrive, are files.
_LINK_TAGS = frozenset({0xA000000C, 0xA0000003})


class LinkRefused(OSError):
    """A path that arena would write to is a link, or leads through one."""

    def __init__(self, path: Path) -> None:
        problem = f"{path} is a link, and arena writes through none"
        super().__init__(errno.ELOOP, problem, os.fspath(path))


def hint(error: BaseException, otherwise: str) -> str:
    """Return what to do about an error of a write."""
    return HINT if isinstance(error, LinkRefused) else otherwise


def is_link(path: Path) -> bool:
    """Return True if the path itself is a symbolic link or a junction."""
    try:
        state = os.lstat(path)
    except (OSError, ValueError):
        return False
    return _is_link(state)


def check(path: Path, *, below: Path) -> None:
    """Raise LinkRefused if the path, or a folder between it and `below`, is a link."""
    folder = below
    for name in path.relative_to(below).parts:
        folder = folder / name
        if is_link(folder):
            raise LinkRefused(folder)


def make_folder(path: Path, *, below: Path) -> list[Path]:
    """Make a folder and those between it and `below`, if they do not exist. Raise OSError.

    Return the folders that hold a new name.
    """
    changed: list[Path] = []
    folder = below
    for name in path.relative_to(below).parts:
        folder = folder / name
        if is_link(folder):
            raise LinkRefused(folder)
        if folder.is_dir():
            continue
        below.mkdir(parents=True, exist_ok=True)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        changed.append(folder.parent)
    return changed


def open_file(path: Path, flags: int, *, below: Path) -> int:
    """Open a regular file that is no link, and return its descriptor; else as `os.open`.

    With `os.O_TRUNC` it is cut only after these checks. Raise OSError.
    """
    check(path.parent, below=below)
    try:
        old_state = os.lstat(path)
    except FileNotFoundError:
        old_state = None
    if old_state is not None:
        _refuse(path, old_state)
    try:
        descriptor = os.open(path, (flags & ~os.O_TRUNC) | _FLAGS, FILE_MODE)
    except OSError as error:
        raise LinkRefused(path) if is_link(path) else error from None
    try:
        state = os.fstat(descriptor)
        # Where the system opens through links, a file that was put there meanwhile is another.
        if old_state is not None and not os.path.samestat(old_state, state):
            _refuse(path, os.lstat(path))
        _refuse(path, state)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def write(
    path: Path, content: bytes, *, below: Path, is_new: bool = False, sync: bool = False
) -> None:
    """Write the content to a file, which must not exist if `is_new`. Raise OSError.

    With `sync` the content is on the disk.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else os.O_TRUNC)
    with os.fdopen(open_file(path, flags, below=below), "wb") as file:
        _write_all(file, content, sync=sync)


def make_file(path: Path, *, below: Path) -> None:
    """Make an empty file if there is none, for code that opens it by its path."""
    os.close(open_file(path, os.O_RDWR | os.O_CREAT, below=below))


def write_part(
    path: Path, content: bytes, *, instead_of: Path | None = None, sync: bool = False
) -> None:
    """Write a file that is renamed over another one once it is complete. Raise OSError.

    `instead_of` is the file of arena's own that it will replace, whose mode it gets; without one
    the mode is the user's usual one. A file at `path` is removed: the name is this process's. With
    `sync` the content is on the disk.
    """
    path.unlink(missing_ok=True)
    mode = 0o666 if instead_of is None else _mode_of(instead_of)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
    with os.fdopen(descriptor, "wb") as file:
        if instead_of is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        _write_all(file, content, sync=sync)


def _write_all(file: BinaryIO, content: bytes, *, sync: bool) -> None:
    file.write(content)
    if sync:
        file.flush()
        os.fsync(file.fileno())


def _mode_of(path: Path) -> int:
    try:
        state = os.lstat(path)
    except OSError:
        return FILE_MODE
    return stat.S_IMODE(state.st_mode) if stat.S_ISREG(state.st_mode) else FILE_MODE


def _is_link(state: os.stat_result) -> bool:
    return stat.S_ISLNK(state.st_mode) or getattr(state, "st_reparse_tag", 0) in _LINK_TAGS


def _refuse(path: Path, state: os.stat_result) -> None:
    if _is_link(state):
        raise LinkRefused(path)
    regularfiles.check(path, state)
