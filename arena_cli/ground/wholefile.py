"""Write a file completely, or leave it as it was; on request, it is on the disk afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from arena_cli.ground import ownfiles

# A file system that cannot sync a folder says so by one of these.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM})

_PART = re.compile(r"\.(?P<name>.+)\.(?P<pid>[0-9]+)")
_LONGEST_PID = 19


def replace(path: Path, content: bytes, *, is_own: bool = False, sync: bool = False) -> None:
    """Write the content; a reader meanwhile sees the old or the new. Raise OSError.

    A file of arena's own (`is_own`) keeps its mode, or is made for its owner only. With `sync` the
    content is on the disk before it takes the name. The name itself is on the disk after
    `sync_folders`, so that many files of a folder need it once.
    """
    temporary = beside(path)
    try:
        ownfiles.write_part(temporary, content, instead_of=path if is_own else None, sync=sync)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def create(path: Path, content: bytes) -> None:
    """Make a file, completely or not at all. Raise OSError, FileExistsError if it exists."""
    temporary = beside(path)
    try:
        temporary.write_bytes(content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except (OSError, AttributeError) as error:  # this disk has no hard links
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sweep(path.parent, path.name)


def replace_synced(path: Path, content: bytes, *, sync: bool) -> None:
    """Replace one file in a folder that may be new; with `sync` all of it is on the disk."""
    new_folders = make_folder(path.parent)
    replace(path, content, sync=sync)
    if sync:
        sync_folders([path.parent, *new_folders])


def beside(path: Path) -> Path:
    """Return a path in the same folder, of this process alone."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it; return those that hold a new name. Raise OSError."""
    changed: list[Path] = []
    above = path
    while not above.exists() and above != above.parent:
        above = above.parent
        changed.append(above)
    path.mkdir(parents=True, exist_ok=True)
    return changed


def sync_folders(folders: Iterable[Path]) -> None:
    """Write the names in these folders to the disk, if the system can. Raise OSError."""
    if os.name == "nt":  # Windows opens no folder, and writes its names through the journal
        return
    for folder in dict.fromkeys(folders):
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
            continue
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(handle)


def sweep(folder: Path, name: str) -> None:
    """Remove the files of `beside` for a file in a folder, if their process is gone.

    `name` is that of the file, or an ending such as `.md` of many. The caller holds the folder's
    lock, if it has one.
    """
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):  # noqa: PTH208 - names, many
            match = _PART.fullmatch(entry) if entry[0] == "." else None
            if not match or not match["name"].endswith(name):
                continue
            if (name[0] == "." or match["name"] == name) and not _is_alive(match["pid"]):
                (folder / entry).unlink(missing_ok=True)


def _is_alive(pid: str) -> bool:
    if len(pid) > _LONGEST_PID:
        return False
    import psutil  # noqa: PLC0415 - only after a crash

    return bool(psutil.pid_exists(int(pid)))


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock at this path, and hold it. Raise OSError.

    The operating system frees the lock of a process that is gone; the empty file stays.
    """
    from fasteners import InterProcessLock  # noqa: PLC0415 - needed by few who write files

    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with InterProcessLock(path):
        yield
