"""Notes in one place: those of a session, or the workspace's shared ones, and their trail."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import clock
from arena_cli.ground.errors import Fault
from arena_cli.memory import approval, staging
from arena_cli.memory.approval import Approvals
from arena_cli.memory.folder import Folder, NoSuchNote
from arena_cli.memory.note import Note
from arena_cli.memory.reading import NoteFault
from arena_cli.session import approvals, remembering
from arena_cli.session.store import Stored
from arena_cli.transcript import read
from arena_cli.transcript.events import NoteEvent


class Shelf(NamedTuple):
    """Notes in one place: those of a session, or the shared ones, of no session."""

    folder: Folder
    stored: Stored | None

    @property
    def trail(self) -> Path:
        """Where it is written what was done to them; it may not be there yet."""
        return self.stored.transcript if self.stored else approvals.trail_of(self.folder)

    @property
    def is_unfinished(self) -> bool:
        """Whether something was begun with its notes that is not done yet."""
        return staging.path_of(self.trail).is_file()

    @property
    def name(self) -> str:
        """What its notes are called together."""
        return f"session {self.stored.name}" if self.stored else "the shared notes"


def of(workspace: Path, stored: Stored | None) -> Shelf:
    """The notes of a session, or the shared ones."""
    if stored is None:
        return Shelf(remembering.shared_notes(workspace), None)
    return Shelf(remembering.own_notes(stored.folder, workspace), stored)


def notes(shelf: Shelf) -> tuple[list[Note], list[Fault]]:
    """Its notes in the order of their ids, as they stand, and what of it could not be read."""
    found: list[Note] = []
    entries = shelf.folder.entries()
    problems = list(shelf.folder.problems)
    for entry in entries:
        with contextlib.suppress(NoSuchNote):
            try:
                found.append(shelf.folder.read(entry.id))
            except NoteFault as error:
                problems += error.faults
    if any(note.status == "approved" for note in found):
        approved = approvals_of(shelf)
        found = [approval.judge(note, approved) for note in found]
    return found, problems


def note(shelf: Shelf, id: str) -> Note:
    """Return a note as it stands. Raises NoteFault or NoSuchNote."""
    found = shelf.folder.read(id)
    return approval.judge(found, approvals_of(shelf)) if found.status == "approved" else found


def approvals_of(shelf: Shelf) -> Approvals:
    """Return the texts of its notes that were approved."""
    return approvals.follow(shelf.trail).approved


def history(shelf: Shelf) -> list[NoteEvent]:
    """What was done to its notes, oldest first; lines that cannot be read are passed over."""
    try:
        size = shelf.trail.stat().st_size
    except FileNotFoundError:
        return []
    told = read.newest_first(shelf.trail, size, {"note"})
    return [event for event in told if isinstance(event, NoteEvent)][::-1]


def history_with_changes(shelf: Shelf) -> list[NoteEvent]:
    """Return the history, then the approved notes that were changed since and not approved again.

    The trail has no event of those: theirs have the number 0, and the time of the file.
    """
    changed = [note for note in notes(shelf)[0] if note.approval == approval.CHANGED]
    return [*history(shelf), *(_changed(note, shelf.folder.workspace) for note in changed)]


def _changed(note: Note, workspace: Path) -> NoteEvent:
    at = ""
    with contextlib.suppress(OSError):
        at = clock.timestamp(datetime.fromtimestamp((workspace / note.file).stat().st_mtime, UTC))
    return NoteEvent(
        seq=0,
        ts=at,
        note=note.id,
        act="changed",
        by="",
        kind=note.kind,
        title=note.title,
        status=note.status,
        reason=note.approval,
    )
