"""Open, write and bound files: regular files, arena's own files, whole writes, outside paths.

Opening a FIFO blocks until another process writes to it, and a device may never end: both are
refused before they are opened. A path on the command line may be a pipe (`read_input`). The commit
of a folder is read without running git: its settings may name programs.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from arena_cli.errors import Fault, FileFaults, UsageError
from arena_cli.util.text import lazy_pattern

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


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raise OSError, NotRegular among others."""
    with open_binary(path) as file:
        return file.read()


def open_binary(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raise OSError, NotRegular among others."""
    return cast("BinaryIO", open(path, "rb", opener=_open_regular))


def is_file_or_refused(path: Path) -> bool:
    """Return True if there is a file, or one that `read_regular` refuses; False for a folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISDIR(mode)


def check_regular(path: str | Path, state: os.stat_result) -> None:
    """Raise NotRegular if the path is neither a file nor a folder."""
    for holds, kind in _KINDS:
        if holds(state.st_mode):
            raise NotRegular(path, kind)


def read_input(path: Path) -> bytes:
    """Return the content of a file, pipe or terminal that a user named on the command line.

    A FIFO is read to its end; one without a writer for `WRITER_WAIT_S` seconds is refused, as are
    sockets and devices without an end. Raises OSError.
    """
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        return _read_pipe(path)
    if stat.S_ISCHR(state.st_mode):
        with path.open("rb") as device:
            is_null = os.path.samestat(state, Path(os.devnull).stat())
            if not device.isatty() and not is_null:
                raise NotRegular(path, "a device")
            return device.read()
    return read_regular(path)


def _open_regular(path: str, flags: int) -> int:
    check_regular(path, Path(path).stat())  # opening a device may already act on it
    descriptor = os.open(path, flags | _NONBLOCK)
    try:
        check_regular(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _read_pipe(path: Path) -> bytes:
    """Return the content written to a FIFO, whose writer may open it a little later."""
    descriptor = os.open(path, os.O_RDONLY | _NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        first = _first_block(descriptor, path)
        os.set_blocking(descriptor, True)
        return first + (pipe.read() or b"" if first else b"")


def _first_block(descriptor: int, path: Path) -> bytes:
    """Return the first bytes of a pipe, or none if its writer has left an inherited one."""
    is_inherited = path.resolve().name.startswith("pipe:")  # `<(...)`, `/dev/stdin`
    end = time.monotonic() + WRITER_WAIT_S
    while is_inherited or time.monotonic() < end:
        ready, _, _ = select.select([descriptor], [], [], None if is_inherited else _POLL_S)
        block = os.read(descriptor, _BLOCK) if ready else b""
        if block or (is_inherited and ready):
            return block
        time.sleep(_POLL_S if ready else 0)
    raise OSError(
        errno.ETIMEDOUT, f"no process wrote to this FIFO for {WRITER_WAIT_S:g} s", str(path)
    )


FILE_MODE = 0o600
FOLDER_MODE = 0o700

LINK_HINT = "Remove the link; arena writes only to real files below `sessions`."

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

# Windows: links and junctions. Other reparse points, such as files of OneDrive, are files.
_LINK_TAGS = frozenset({0xA000000C, 0xA0000003})


class LinkRefused(OSError):
    """A path that arena would write to is a link, or leads through one."""

    def __init__(self, path: Path) -> None:
        problem = f"{path} is a link, and arena does not write through links"
        super().__init__(errno.ELOOP, problem, os.fspath(path))


def suggest_fix(error: BaseException, otherwise: str) -> str:
    """Return the hint for an error of a write."""
    return LINK_HINT if isinstance(error, LinkRefused) else otherwise


def is_link(path: Path) -> bool:
    """Return True if the path itself is a symbolic link or a junction."""
    try:
        state = os.lstat(path)
    except (OSError, ValueError):
        return False
    return _is_link(state)


def check_no_link(path: Path, *, below: Path) -> None:
    """Raise LinkRefused if the path, or a folder between it and `below`, is a link."""
    folder = below
    for name in path.relative_to(below).parts:
        folder = folder / name
        if is_link(folder):
            raise LinkRefused(folder)


def make_own_folder(path: Path, *, below: Path) -> list[Path]:
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
    check_no_link(path.parent, below=below)
    try:
        old_state = os.lstat(path)
    except FileNotFoundError:
        old_state = None
    if old_state is not None:
        _check_state(path, old_state)
    try:
        descriptor = os.open(path, (flags & ~os.O_TRUNC) | _FLAGS, FILE_MODE)
    except OSError as error:
        raise LinkRefused(path) if is_link(path) else error from None
    try:
        state = os.fstat(descriptor)
        # Where the system opens through links, a file that was put there meanwhile is another.
        if old_state is not None and not os.path.samestat(old_state, state):
            _check_state(path, os.lstat(path))
        _check_state(path, state)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def write_file(
    path: Path, content: bytes, *, below: Path, is_new: bool = False, sync: bool = False
) -> None:
    """Write the content to a file, which must not exist if `is_new`. Raise OSError.

    With `sync` the content is flushed to the disk.
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
    the mode is the user's default. An existing file at `path` is removed: the name belongs to this
    process. With `sync` the content is flushed to the disk.
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


def _check_state(path: Path, state: os.stat_result) -> None:
    if _is_link(state):
        raise LinkRefused(path)
    check_regular(path, state)


# A file system that cannot sync a folder says so by one of these.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM})

_PART = lazy_pattern(r"\.(?P<name>.+)\.(?P<pid>[0-9]+)")
_LONGEST_PID = 19


def replace_file(path: Path, content: bytes, *, is_own: bool = False, sync: bool = False) -> None:
    """Write the content; a concurrent reader sees the old or the new. Raise OSError.

    A file of arena's own (`is_own`) keeps its mode, or is made for its owner only. With `sync` the
    content is on the disk before it gets the name. The name itself is on the disk after
    `sync_folders`, which one call does for all files of a folder.
    """
    temporary = temporary_path(path)
    try:
        write_part(temporary, content, instead_of=path if is_own else None, sync=sync)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def create_file(path: Path, content: bytes) -> None:
    """Make a file, completely or not at all. Raise OSError, FileExistsError if it exists."""
    temporary = temporary_path(path)
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
    remove_leftovers(path.parent, path.name)


def replace_file_synced(path: Path, content: bytes, *, sync: bool) -> None:
    """Replace one file in a folder that may be new; with `sync` flush all of it to the disk."""
    new_folders = make_folders(path.parent)
    replace_file(path, content, sync=sync)
    if sync:
        sync_folders([path.parent, *new_folders])


def temporary_path(path: Path) -> Path:
    """Return a path in the same folder, of this process alone."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def make_folders(path: Path) -> list[Path]:
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


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove the temporary files of a file in a folder (`temporary_path`) if their process is gone.

    `name` is that of the file, or an ending such as `.md` of many. The caller holds the folder's
    lock, if it has one.
    """
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):  # noqa: PTH208 - many names, of which most need no Path
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
def lock_file(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock at this path, and hold it. Raise OSError.

    The operating system releases the lock of a process that has ended; the empty file remains.
    """
    from fasteners import InterProcessLock  # noqa: PLC0415 - needed by few who write files

    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with InterProcessLock(path):
        yield


OUTSIDE_OPTION = "--allow-outside"
OUTSIDE_HINT = (
    f"Copy it into the workspace, or allow it: `arena {OUTSIDE_OPTION} ...`, "
    f"`arena run {OUTSIDE_OPTION}`."
)


class OutsideError(UsageError):
    """A file outside the workspace was named in it."""


def is_inside(path: Path, root: Path) -> bool:
    """Return True if a path leads to a place in that folder, or to itself."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):  # a NUL in it, or links in a circle
        return False


def find_name_problem(name: str, root: Path, *, anywhere: bool) -> tuple[str, str] | None:
    """Return why a setting may not name a file so, and a hint; None if it is in the workspace.

    With `anywhere` it may be elsewhere.
    """
    is_path = not {"\\", "\0"} & {*name}
    if is_path and (anywhere or is_inside(root / name, root)):
        return None
    hint = OUTSIDE_HINT if is_path else "write `/` between folders"
    return f"`{name}` is not in the workspace", hint


def locate_file(
    name: str, folders: Iterable[Path], *, root: Path, scenario: Path | None, anywhere: bool
) -> Path | None:
    """Return the first file of that name in `folders`, resolved; None if there is none.

    Raise OutsideError if every such file is outside `root` and, for a scenario outside it, outside
    the scenario's folder.
    """
    allowed = [root.resolve()]
    if scenario is not None and not is_inside(scenario, root):
        allowed.append(scenario.resolve().parent)
    refused: Path | None = None
    for folder in folders:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long, or as above
            path = (folder / name).resolve()
            if not is_file_or_refused(path):
                continue
            if anywhere or any(path.is_relative_to(allowed_folder) for allowed_folder in allowed):
                return path
            refused = refused or path
    if refused is not None:
        raise OutsideError(f"`{name}` lies outside the workspace: {refused}", OUTSIDE_HINT)
    return None


def find_link_fault(path: Path, name: str, root: Path) -> Fault | None:
    """Return the error for a file of the workspace that a link leads out of it."""
    above = [folder for folder in path.parents if folder != root and folder.is_relative_to(root)]
    if not any(map(is_link, [path, *above])) or is_inside(path, root):
        return None
    problem = f"is a link that leads out of the workspace: {path.resolve()}"
    return Fault(name, 0, "", problem, OUTSIDE_HINT)


_COMMIT = lazy_pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOST_GIT_BYTES = 1 << 22
_SHORT_COMMIT = 10


def read_commit(folder: Path) -> str:
    """Return the short id of the commit that is checked out; empty outside of a repository."""
    try:
        return _read_commit(folder.resolve())[:_SHORT_COMMIT]
    except (OSError, ValueError):
        return ""


def _read_commit(folder: Path) -> str:
    marks = (parent / ".git" for parent in (folder, *folder.parents))
    mark = next((path for path in marks if path.exists()), None)
    if mark is None:
        return ""
    git = mark
    if mark.is_file():  # of a worktree or a submodule
        git = mark.parent / _read_git_file(mark).removeprefix("gitdir:").strip()
    head = _read_git_file(git / "HEAD").strip()
    commit = _read_ref(git, head.removeprefix("ref:").strip()) if head[:4] == "ref:" else head
    return commit if _COMMIT.fullmatch(commit) else ""


def _read_ref(git: Path, name: str) -> str:
    """Return the text of a branch, from its own file or from the packed ones; "" if it has none."""
    shared = git / "commondir"
    common = git / _read_git_file(shared).strip() if shared.is_file() else git
    is_plain = name.startswith("refs/") and ".." not in name.split("/")
    for path in (git / name, common / name) if is_plain else ():
        if path.is_file():
            return _read_git_file(path).strip()
    packed = common / "packed-refs"
    rows = _read_git_file(packed).split("\n") if packed.is_file() else []
    pairs = (row.partition(" ") for row in rows)
    return next((commit for commit, _, ref in pairs if ref.strip() == name), "")


def _read_git_file(path: Path) -> str:
    if not path.is_file():  # a pipe would block
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return file.read(_MOST_GIT_BYTES).decode("utf-8", "replace")


_DOTENV_FORM = "write NAME=value; put the value in quotes if it holds spaces, quotes or #"


def read_dotenv_file(path: Path, name: str) -> dict[str, str]:
    """Return the variables of a file, none if it does not exist; raise FileFaults with lines.

    No error quotes the file. `$NAME` in a value is kept unchanged.
    """
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise FileFaults([Fault(name, 0, "", problem)]) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = Fault(name, line, "", "is not UTF-8", "save the file as UTF-8")
        raise FileFaults([fault]) from error
    return parse_dotenv(text, name)


def parse_dotenv(text: str, name: str) -> dict[str, str]:
    """Return the variables of a text, the last of a name; raise FileFaults with line numbers."""
    from dotenv.parser import parse_stream  # noqa: PLC0415  # only where there is a `.env`

    values: dict[str, str] = {}
    faults = []
    for binding in parse_stream(io.StringIO(text)):
        if binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
        elif binding.error or binding.key is not None:
            source = binding.original.string
            blank = len(source) - len(source.lstrip())
            line = binding.original.line + source.count("\n", 0, blank)
            faults.append(Fault(name, line, "", "is no `NAME=value`", _DOTENV_FORM))
    if faults:
        raise FileFaults(faults)
    return values
