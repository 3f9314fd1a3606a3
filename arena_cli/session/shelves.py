"""Notes in one place: those of a session, or the workspace's shared ones, and their trail."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground.errors import Fault
from arena_cli.memory.folder import Folder, NoSuchNote
from arena_cli.memory.note import Note
from arena_cli.memory.reading import NoteFault
from arena_cli.session import remembering
from arena_cli.session.store import Stored
from arena_cli.transcript import read
from arena_cli.transcript.events import NoteEvent

HISTORY = "history.jsonl"


class Shelf(NamedTuple):
    """Notes in one place: those of a session, or the shared ones, of no session."""

    folder: Folder
    stored: Stored | None

    @property
    def trail(self) -> Path:
        """Where it is written what was done to them; it may not be there yet."""
        return self.stored.transcript if self.stored else self.folder.path / HISTORY

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
    """Its notes in the order of their ids, and what of it could not be read."""
    found: list[Note] = []
    entries = shelf.folder.entries()
    problems = list(shelf.folder.problems)
    for entry in entries:
        with contextlib.suppress(NoSuchNote):
            try:
                found.append(shelf.folder.read(entry.id))
            except NoteFault as error:
                problems += error.faults
    return found, problems


def history(shelf: Shelf) -> list[NoteEvent]:
    """What was done to its notes, oldest first; lines that cannot be read are passed over."""
    try:
        size = shelf.trail.stat().st_size
    except FileNotFoundError:
        return []
    told = read.newest_first(shelf.trail, size, {"note"})
    return [event for event in told if isinstance(event, NoteEvent)][::-1]
