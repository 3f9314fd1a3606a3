"""Archive, restore, rename and delete sessions; archive old ones.

Each change takes one step that counts: a rename of a file or folder. A kill before it changes
nothing; after it, the next command that writes completes the rest. The folder of a session wins
over an archive of the same name. One process at a time makes such changes.

An archive is a zip file of a session's folder, and may come from elsewhere. Its entries are checked
before any of them is written: none may lead out of the session, and none is a link.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters.base import SessionConfig
from arena_cli.errors import ArenaError, DiskRefused, SessionBusy, UsageError
from arena_cli.notes import markdown
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import Note
from arena_cli.notes.store import Folder, NoSuchNote
from arena_cli.session import shelves, store
from arena_cli.session.session import own_notes, shared_notes
from arena_cli.session.store import Stored
from arena_cli.transcript import queries, reader
from arena_cli.transcript.events import SessionEvent
from arena_cli.util import files
from arena_cli.util.text import FILESYSTEM_NAME_BYTES, cut_text, escape_line, measure_name
from arena_cli.util.tickets import Lock

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


_CHECKED = ".checked"  # the day on which old sessions were looked for
_RENAMING = ".renaming.json"  # the names of a session that is being renamed
PART = ".part-"
_REMOVED = ".removed-"
_LEFT = (PART, _REMOVED, f".{_CHECKED}.", f".{_RENAMING}.")
_LEAST_WAIT_S = 10.0


class SessionOpen(UsageError):
    """The last chain of a session is open: it was cut short, or waits for a person."""


def archive_session(config: SessionConfig, name: str, on_wait: Callable[[], None]) -> Path:
    """Replace a session by a zip file, and return its path.

    Raises UsageError, SessionBusy or DiskRefused; then the session is unchanged.
    """
    with hold_archives(config) as home:
        return _archive(config, home, store.find(config.workspace, name), on_wait)


def restore_session(config: SessionConfig, name: str) -> str:
    """Replace an archive by its session, and return the session's name. Raises as above."""
    with hold_archives(config) as home:
        path = store.find_archive(config.workspace, store.checked(name))
        if path is None:
            stored = store.find(config.workspace, name)
            raise UsageError(
                f"session {escape_line(stored.name)} is not archived",
                "`arena sessions --archived` lists the archived sessions.",
            )
        name = store.checked(path.name.removesuffix(store.ARCHIVE_SUFFIX))
        check_unused(config.workspace, name, is_archived=True)
        part = home / f"{PART}{os.getpid()}"
        part.mkdir(files.FOLDER_MODE)
        unpack(path, part)
        folder = store.sessions_folder(config.workspace) / name
        part.rename(folder)
        files.sync_folders([folder, folder.parent])
        path.unlink()
        return name


def rename_session(
    config: SessionConfig, name: str, new_name: str, on_wait: Callable[[], None]
) -> str:
    """Give a session another name, and return it. Raises as `archive_session`.

    The transcript records it by a `session` event, and notes that name the session are changed.
    """
    new_name = store.checked(new_name)
    with hold_archives(config) as home:
        stored = store.find(config.workspace, name)
        folder = store.sessions_folder(config.workspace) / new_name
        if new_name == stored.name:
            raise UsageError(
                f"session {escape_line(name)} has that name already", "Give another name."
            )
        check_unused(config.workspace, new_name, but=stored.folder)
        with _hold(config, stored, on_wait) as lock:
            names = json.dumps([stored.name, new_name], ensure_ascii=False)
            files.replace_file(home / _RENAMING, names.encode("utf-8"), sync=True)
            shelves.forget_notes(own_notes(stored.folder, config.workspace))
            _move(stored.folder, folder, lock)
        _finish_rename(config, home)
        return new_name


def delete_session(config: SessionConfig, name: str, on_wait: Callable[[], None]) -> None:
    """Remove a session, or an archive if there is no session of that name.

    Links in its folder are removed, and never followed. Raises as `archive_session`.
    """
    with hold_archives(config) as home:
        path = store.find_archive(config.workspace, store.checked(name))
        if path is not None and not is_session(config.workspace, name):
            path.unlink()
            files.sync_folders([home])
            return
        stored = store.find(config.workspace, name)
        with _hold(config, stored, on_wait) as lock:
            _check_closed(stored)
            if path is not None and is_copy(path, stored.transcript):
                path.unlink()
            _discard(config, stored.folder, home, lock)


def discard_new(config: SessionConfig, name: str) -> None:
    """Remove a session in which nothing has happened yet; leave any other one as it is."""
    with hold_archives(config) as home:
        stored = store.find(config.workspace, name)
        with _hold(config, stored, lambda: None) as lock:
            if reader.last_seq(stored.transcript) <= 1:
                _discard(config, stored.folder, home, lock)


class Retired(NamedTuple):
    """The sessions that were archived because of their age, and what prevented others."""

    names: list[str]
    problems: list[str]


def archive_old(config: SessionConfig, days: int | None, kept: Collection[str]) -> Retired:
    """Archive the sessions that have not changed for `days`, except those of the names `kept`.

    It looks for them once a day, or if a killed process has left something, and does not wait for
    another process that does. Sessions that are in use are left as they are, as are those whose
    last chain was cut short.
    """
    retired = Retired([], [])
    config = dataclasses.replace(config, wait_s=0)
    home = store.archive_folder(config.workspace)
    today = f"{config.clock.now():%Y-%m-%d}"
    with contextlib.suppress(OSError):
        is_left = any(name.startswith((*_LEFT, _RENAMING)) for name in os.listdir(home))  # noqa: PTH208
        if not is_left and (home / _CHECKED).read_text("utf-8") == today:
            return retired
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_archives(config, waits=False))
            files.replace_file(home / _CHECKED, today.encode("utf-8"), is_own=True)
            if days is None:
                return retired
            before = (config.clock.now() - timedelta(days=days)).timestamp()
        except SessionBusy:
            return retired
        except (ArenaError, OSError) as error:
            retired.problems.append(str(error))
            return retired
        except OverflowError:  # so many days ago there was no calendar
            return retired
        for stored in store.stored(config.workspace):
            if stored.changed >= before or stored.name in kept:
                continue
            try:
                _archive(config, home, stored, lambda: None)
                retired.names.append(stored.name)
            except (SessionBusy, SessionOpen):
                continue
            except (ArenaError, OSError) as error:
                retired.problems.append(str(error))
    return retired


class ArchivedSession(NamedTuple):
    """An archived session: its name, and its archive."""

    name: str
    path: Path


def list_archived(workspace: Path) -> list[ArchivedSession]:
    """Return the archives that have no session, the last archived first."""
    home = store.archive_folder(workspace)
    paths = home.glob(f"*{store.ARCHIVE_SUFFIX}") if home.is_dir() else ()
    rows = [
        (path.stat().st_mtime, ArchivedSession(path.name.removesuffix(store.ARCHIVE_SUFFIX), path))
        for path in paths
        if path.name[0] != "." and path.is_file() and not files.is_link(path)
    ]
    rows.sort(key=lambda row: (-row[0], row[1].name))
    return [row for _, row in rows if not is_session(workspace, row.name)]


def read_archived(
    archived: ArchivedSession, folder: Path, only: str | None = store.TRANSCRIPT
) -> Stored:
    """Return an archived session to read; `only` that file of it, or all, is below `folder`."""
    home = folder / archived.name
    home.mkdir(files.FOLDER_MODE)
    unpack(archived.path, home, only)
    return Stored(archived.name, home, archived.path.stat().st_mtime)


@contextlib.contextmanager
def hold_archives(config: SessionConfig, *, waits: bool = True) -> Iterator[Path]:
    """Yield the folder of archives, locked; first finish what a killed process has begun.

    Raises SessionBusy if another process holds it, unless it waits. Errors of the disk are
    DiskRefused; what was written halfway is removed.
    """
    home = store.archive_folder(config.workspace)
    wait_s = max(config.wait_s, _LEAST_WAIT_S) if waits else 0
    label = home.relative_to(config.workspace).as_posix()
    try:
        files.make_own_folder(home, below=config.workspace)
        with store.hold(home, label, wait_s=wait_s):
            try:
                _clear(home)
                _finish_rename(config, home)
                yield home
            finally:
                _clear(home)
    except OSError as error:
        problem = f"{error.filename or home}: {error.strerror or error}"
        raise DiskRefused(
            f"{problem}; no session was changed", files.suggest_fix(error, "")
        ) from error


def _clear(home: Path) -> None:
    """Remove incomplete files and folders, and the rest of removed sessions."""
    for name in os.listdir(home):  # noqa: PTH208 - many names, of which few need a Path
        if name.startswith(_LEFT):
            path = home / name
            if path.is_dir() and not files.is_link(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _hold(
    config: SessionConfig, stored: Stored, on_wait: Callable[[], None]
) -> contextlib.AbstractContextManager[Lock]:
    label = f"session {stored.name}"
    return store.hold(stored.folder, label, wait_s=config.wait_s, on_wait=on_wait)


def _archive(
    config: SessionConfig, home: Path, stored: Stored, on_wait: Callable[[], None]
) -> Path:
    target = home / f"{stored.name}{store.ARCHIVE_SUFFIX}"
    if measure_name(target.name) > FILESYSTEM_NAME_BYTES:
        raise UsageError(
            f"session {escape_line(stored.name)}: its name is too long for an archive",
            "Rename it first: `arena sessions rename`.",
        )
    with _hold(config, stored, on_wait) as lock:
        _check_closed(stored)
        older = store.find_archive(config.workspace, stored.name)
        if older is not None and not is_copy(older, stored.transcript):
            raise UsageError(
                f"{older} is the archive of another session of that name",
                "Rename this session first: `arena sessions rename`.",
            )
        part = home / f"{PART}{os.getpid()}"
        pack(stored.folder, part)
        part.replace(target)
        if older is not None and older != target and not older.samefile(target):
            older.unlink()
        files.sync_folders([home])
        _discard(config, stored.folder, home, lock)
    return target


def _discard(config: SessionConfig, folder: Path, home: Path, lock: Lock) -> None:
    """Remove the folder of a session: by one rename, then file by file."""
    shelves.forget_notes(own_notes(folder, config.workspace))
    removed = home / f"{_REMOVED}{secrets.token_hex(4)}"
    _move(folder, removed, lock)
    shutil.rmtree(removed, ignore_errors=True)
    if removed.exists():
        raise DiskRefused(f"{removed}: not all of this folder could be removed", "Remove it.")


def _move(folder: Path, target: Path, lock: Lock) -> None:
    if sys.platform == "win32":  # it moves no folder with an open file
        lock.release()
    folder.rename(target)
    files.sync_folders([folder.parent, target.parent])


def _check_closed(stored: Stored) -> None:
    if store.load_state(stored.transcript).open is not None:
        name = escape_line(stored.name)
        raise SessionOpen(
            f"session {name}: its last chain is still open",
            f"Complete it: `arena resume {name}`, or end it: `arena cancel {name}`.",
        )


def is_session(workspace: Path, name: str) -> bool:
    """Return True if there is a session of that name that is not archived."""
    folder = store.existing(store.sessions_folder(workspace), name)
    return folder is not None and (folder / store.TRANSCRIPT).is_file()


def check_unused(
    workspace: Path, name: str, *, but: Path | None = None, is_archived: bool = False
) -> None:
    """Raise UsageError if there is a session of that name, except the folder `but`, or an archive.

    With `is_archived` there may be an archive.
    """
    folder = store.existing(store.sessions_folder(workspace), name)
    if folder is not None and folder != but:
        raise UsageError(
            f"there is a session {escape_line(folder.name)} already",
            "Choose another name, or rename that session: `arena sessions rename`.",
        )
    if not is_archived and store.find_archive(workspace, name) is not None:
        raise UsageError(
            f"there is an archived session {escape_line(name)} already",
            "Choose another name; `arena sessions --archived` lists the archived sessions.",
        )


def _finish_rename(config: SessionConfig, home: Path) -> None:
    """Record a rename whose folder has moved, in the transcript and in the notes."""
    try:
        names = json.loads((home / _RENAMING).read_bytes())
        old, new = (store.checked(name) for name in names)
    except FileNotFoundError:
        return
    except (ValueError, TypeError, UsageError):  # torn: it is written before the folder moves
        old = new = ""
    sessions = store.sessions_folder(config.workspace)
    entries = os.listdir(sessions)  # noqa: PTH208 - only the names are needed
    if new in entries and old not in entries:
        folder = sessions / new
        with contextlib.suppress(SessionBusy):  # who writes there has recorded it
            _record_name(config, folder)
        for notes in (own_notes(folder, config.workspace), shared_notes(config.workspace)):
            _rename_in_notes(notes, old, new)
    (home / _RENAMING).unlink(missing_ok=True)


def _record_name(config: SessionConfig, folder: Path) -> None:
    """Append the `session` event of a session that has another name now."""
    transcript = folder / store.TRANSCRIPT
    with (
        store.hold(folder, f"session {folder.name}", wait_s=_LEAST_WAIT_S),
        store.open_journal(config, transcript) as journal,
    ):
        opening = queries.read_session_event(transcript)
        if opening is not None and opening.session != folder.name:
            journal.write(
                SessionEvent,
                session=folder.name,
                team=opening.team,
                members=opening.members,
                config=opening.config,
                scenario=opening.scenario,
            )


def _rename_in_notes(notes: Folder, old: str, new: str) -> None:
    """Change the name of a session in the notes that were seen in it."""

    def rename(note: Note, text: str) -> str:
        names = [new if name == old else name for name in note.related_sessions]
        return markdown.changed(text, related_sessions=list(dict.fromkeys(names)))

    named: list[str] = []
    for entry in notes.entries():
        with contextlib.suppress(NoteFault, NoSuchNote):
            if old in notes.read(entry.id).related_sessions:
                named.append(entry.id)
    if named:
        notes.edit_all([(note_id, rename) for note_id in named])
