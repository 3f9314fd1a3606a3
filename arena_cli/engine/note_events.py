"""Write acts on notes: the event and the files, both or neither, even after a crash.

`notes.staging` defines the order in which they are written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena_cli.errors import DiskRefused
from arena_cli.notes import staging
from arena_cli.notes.staging import NoteChange, Staged, StagedFile
from arena_cli.notes.store import Folder
from arena_cli.transcript import reader
from arena_cli.transcript.events import NoteEvent
from arena_cli.transcript.log import Log

Append = Callable[[Sequence[Mapping[str, Any]], Callable[[], None]], list[NoteEvent]]
"""Appends events of these fields in order, calls a function, and then reports the events."""


class NoteWriter:
    """A writer of acts on notes, with the trail that `log` writes.

    `is_strict`: each act is on disk before the next begins, if the trail is synced at all.
    Otherwise the caller has the folders settle, and an incomplete act is repeated after a crash.
    """

    def __init__(self, log: Log, append: Append, *, sync: bool, is_strict: bool) -> None:
        self._log = log
        self._append = append
        self._sync = sync and is_strict
        self._path = staging.path_of(log.path)

    def carry_out(
        self, folder: Folder, changes: Sequence[NoteChange], acts: Sequence[Mapping[str, Any]]
    ) -> list[NoteEvent]:
        """Write the events of these acts, then the files. Raises DiskRefused.

        `acts` are the fields of events without their stamps.
        """
        if is_unfinished(self._log.path):  # the disk refused a file, or this is its second try
            finish(self._log, self._append, [folder], is_held=True)
        files = [folder.staged(change) for change in changes]
        seq = self._log.seq
        try:
            staged = Staged(seq=seq + 1, acts=[dict(act) for act in acts], files=files)
            staging.write(self._path, staged, sync=self._sync)
        except OSError as error:
            self._drop()
            raise _refused(self._path, error) from error

        def write_files() -> None:
            if self._sync:
                self._log.sync()
            for change in changes:
                folder.put(change)
            if self._sync:
                folder.settle()
            self._drop()

        try:
            return self._append(acts, write_files)
        except DiskRefused:
            if self._log.seq == seq:  # nothing happened
                self._drop()
            raise

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def is_unfinished(trail: Path) -> bool:
    """Return True if an act has begun and not ended, or is being carried out now."""
    return staging.path_of(trail).is_file()


def finish(log: Log, append: Append, folders: Iterable[Folder], *, is_held: bool = False) -> bool:
    """Complete an act that another process began; return True if there was one.

    The caller must hold the lock of the trail; `is_held`: it holds the lock of the folders too.
    Raises SessionBusy, UsageError or DiskRefused.
    """
    path = staging.path_of(log.path)
    try:
        if not path.is_file():
            return False
        staged = staging.read(path)
        if staged is not None and staged.acts:
            written = _count_written(log.path, staged)
            if written:
                append(staged.acts[written:], lambda: None)
                _finish_files(staged.files, folders, is_held=is_held)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(path, error) from error
    return True


def _count_written(trail: Path, staged: Staged) -> int:
    """Return the number of staged events that are in the trail."""
    count = 0
    for event in _since(trail, staged.seq):
        if count == len(staged.acts):
            break
        act = staged.acts[count]
        if {name: getattr(event, name, None) for name in act} != act:
            break
        count += 1
    return count


def _since(trail: Path, seq: int) -> list[NoteEvent]:
    """Return the events about notes in the trail, from that number on."""
    note_events: list[NoteEvent] = []
    for raw in reader.backwards(trail, trail.stat().st_size):
        events = reader.parse_events(raw)
        note_events += [
            event for event in events if isinstance(event, NoteEvent) and event.seq >= seq
        ]
        if any(event.seq <= seq for event in events):
            break
    return sorted(note_events, key=lambda event: event.seq)


def _finish_files(files: Sequence[StagedFile], folders: Iterable[Folder], *, is_held: bool) -> None:
    for folder in folders:
        folder_files = [file for file in files if file.shared is folder.shared]
        if folder_files:
            folder.finish(folder_files, is_held=is_held)


def _refused(path: Path, error: OSError) -> DiskRefused:
    return DiskRefused(
        f"{path}: could not write: {error.strerror or error}",
        "Free disk space, or fix the permissions there.",
    )
