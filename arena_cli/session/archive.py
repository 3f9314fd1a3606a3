"""Pack a session's folder into a zip file, unpack it, and read its transcript.

An archive may come from elsewhere. Its entries are checked before any of them is written: none may
lead out of the session, and none is a link.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arena_cli.errors import DiskRefused, UsageError
from arena_cli.session import store
from arena_cli.transcript import queries, reader
from arena_cli.util import files
from arena_cli.util.text import cut_text, escape_line

_FIRST = 200  # characters of the first message in the comment of an archive
_BLOCK = 1 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


class ArchiveDamaged(UsageError):
    """An archive that cannot be read, or that has an entry which arena does not write."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: the archive is damaged: {problem}", "Replace it by a copy from a backup."
        )


def pack(folder: Path, target: Path) -> None:
    """Write the files of a session to a new archive, flush it to the disk, and check it.

    Locks and what can be derived from the transcript are left out. Raises OSError, and UsageError
    for a link or another entry that an archive cannot hold.
    """
    transcript = folder / store.TRANSCRIPT
    summary: dict[str, Any] = queries.summarize_session(transcript)
    summary["first"] = cut_text(summary["first"] or "", _FIRST) or None
    descriptor = files.open_file(
        target, os.O_RDWR | os.O_CREAT | os.O_EXCL, below=target.parent.parent
    )
    with (
        os.fdopen(descriptor, "wb") as written,
        zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
    ):
        for path in _list_files(folder, without=_DERIVED):
            name = path.relative_to(folder).as_posix()
            if _find_fault(name):
                raise _cannot_hold(path, _find_fault(name))
            archive.write(path, name)
        archive.comment = json.dumps(summary, ensure_ascii=False).encode("utf-8", "replace")
    with target.open("rb+") as packed:
        os.fsync(packed.fileno())
    check(target)


def check(path: Path) -> None:
    """Read the whole archive. Raises ArchiveDamaged."""
    with _opened(path) as archive:
        broken = archive.testzip()
        if broken is not None:
            raise ArchiveDamaged(path, f"{escape_line(broken)} has changed")


def unpack(path: Path, folder: Path, only: str | None = None) -> None:
    """Write the files of an archive, or `only` one of them, to a folder of arena's own.

    Raises ArchiveDamaged, and DiskRefused.
    """
    with _opened(path) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        chosen = [entry for entry in entries if only in (None, entry.filename)]
        try:
            needed = sum(entry.file_size for entry in chosen)
            if needed > shutil.disk_usage(folder).free:
                raise DiskRefused(f"{folder}: the {needed:,} bytes of {path.name} do not fit here")
            for entry in chosen:
                target = folder / entry.filename
                files.make_own_folder(target.parent, below=folder)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                descriptor = files.open_file(target, flags, below=folder)
                with os.fdopen(descriptor, "wb") as written, archive.open(entry) as source:
                    shutil.copyfileobj(source, written, _BLOCK)
                    written.flush()
                    os.fsync(written.fileno())
        except OSError as error:
            if error.errno == errno.EINVAL:  # the archive names a place before its beginning
                raise
            raise DiskRefused(f"{folder}: could not write: {error.strerror or error}") from error


def read_summary(path: Path) -> dict[str, str | None]:
    """Return the row of an archived session in the list of sessions. Raises ArchiveDamaged."""
    with _opened(path) as archive:
        try:
            row = json.loads(archive.comment)
        except ValueError:  # packed by another program
            row = {}
    fields = ("team", "end", "changed", "first")
    row = row if isinstance(row, dict) else {}
    return {name: row[name] if isinstance(row.get(name), str) else None for name in fields}


def is_copy(path: Path, transcript: Path) -> bool:
    """Return True if the transcript in an archive is the beginning of that one."""
    with (
        _opened(path) as archive,
        archive.open(store.TRANSCRIPT) as packed,
        files.open_binary(transcript) as current,
    ):
        while block := packed.read(_BLOCK):
            if current.read(len(block)) != block:
                return False
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive whose entries are all plain files. Raises ArchiveDamaged."""
    try:
        with files.open_binary(path) as file, zipfile.ZipFile(file) as archive:
            names: set[str] = set()
            for entry in archive.infolist():
                fault = _find_fault(entry.orig_filename)
                if stat.S_ISLNK(entry.external_attr >> 16):
                    fault = "is a link"
                if entry.filename in names:
                    fault = "is there twice"
                if fault:
                    raise ArchiveDamaged(path, f"its entry {escape_line(entry.filename)} {fault}")
                names.add(entry.filename)
            if store.TRANSCRIPT not in names:
                raise ArchiveDamaged(path, f"it has no {store.TRANSCRIPT}")
            yield archive
    except _BROKEN as error:
        raise ArchiveDamaged(path, escape_line(str(error) or "it ends too early")) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ArchiveDamaged(path, error.strerror or str(error)) from error


def _find_fault(name: str) -> str:
    """Return why no file of a session has that name in an archive, "" if one may have it."""
    parts = name.removesuffix("/").split("/")
    if "" in parts or "." in parts or ".." in parts:
        return "leads out of the session"
    if any(char in name for char in "\\:\0"):
        return "has a character that some systems do not allow"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return ""


_DERIVED = (store.NAME, reader.cache_path(Path(store.TRANSCRIPT)).name)


def _list_files(folder: Path, without: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the files in a folder, sorted, except those whose names begin with one of `without`."""
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        path = folder / entry.name
        if without and entry.name.startswith(without):
            continue
        if files.is_link(path):
            raise _cannot_hold(path, "is a link")
        if entry.is_dir(follow_symlinks=False):
            yield from _list_files(path)
        elif entry.is_file(follow_symlinks=False):
            yield path
        else:
            raise _cannot_hold(path, "is neither a file nor a folder")


def _cannot_hold(path: Path, fault: str) -> UsageError:
    return UsageError(
        f"{escape_line(str(path))} {fault}, so it cannot be archived",
        "Remove it, or move it out of the session.",
    )
