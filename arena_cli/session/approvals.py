"""Which texts of notes were approved, as the trail has it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from arena_cli.memory import approval
from arena_cli.memory.approval import NOTHING, Followed
from arena_cli.memory.folder import Folder
from arena_cli.transcript import events, read
from arena_cli.transcript.events import NoteEvent

HISTORY = "history.jsonl"
TRANSCRIPT = "transcript.jsonl"

_CHECKED_BYTES = 256


def trail_of(folder: Folder) -> Path:
    """Return where it is written what was done to the notes of a folder."""
    return folder.path / HISTORY if folder.shared else folder.path.parent / TRANSCRIPT


def follow(trail: Path, known: Followed = NOTHING) -> Followed:
    """Read on in a trail from where `known` ends; from its beginning if it is another one."""
    try:
        with trail.open("rb") as file:
            size = file.seek(0, 2)
            if known.end and (size < known.end or _check(trail, known.end) != known.check):
                known = NOTHING
            if size == known.end:
                return known
            file.seek(known.end)
            approved, end = dict(known.approved), known.end
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                end += len(raw)
                if events.type_of(raw) in (None, "note"):
                    for event in read.events_of(raw):
                        if isinstance(event, NoteEvent):
                            approval.after(approved, event.note, event.act, event.sha256)
    except FileNotFoundError:
        return NOTHING
    return Followed(end, _check(trail, end), approved)


def of_folder(folder: Folder, known: Followed) -> Followed:
    """Read on in the trail of a folder's notes."""
    return follow(trail_of(folder), known)


def _check(trail: Path, end: int) -> str:
    """Return a hash of the last bytes before `end`, by which another file is known."""
    with trail.open("rb") as file:
        start = max(0, end - _CHECKED_BYTES)
        file.seek(start)
        return hashlib.sha256(file.read(end - start)).hexdigest()
