"""Stage acts on notes: they are on disk before they are carried out.

One act may consist of one or two events and one or two files. They are written in this order: the
stage (a file next to the trail), the events, the files; then the stage is removed. After a crash,
the next process that opens the trail writes the rest if the first event was written; otherwise it
deletes the stage, and the act did not happen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from arena_cli.notes.model import Note
from arena_cli.protocol import Shape
from arena_cli.util.files import read_regular, sync_folders, write_file


class NoteChange(NamedTuple):
    """A change of a note's file; `before` is the hash of its current content, "" for a new file.

    `file` is its path below the folder of the notes, with `/`; `path` has links resolved.
    """

    path: Path
    file: str
    before: str
    text: str
    note: Note


Carry = Callable[[Sequence[NoteChange]], None]
"""Writes changes with their events; called while the folder of the notes is locked."""


class StagedFile(Shape):
    """A file to write: its path below the folder of the notes, with `/`, and its text."""

    shared: bool
    file: str
    before: str
    text: str


class Staged(Shape):
    """Events from number `seq` on, without their stamps, and the files that follow."""

    seq: int
    acts: list[dict[str, Any]]
    files: list[StagedFile]


def path_of(trail: Path) -> Path:
    """Return the path of a trail's stage."""
    return trail.with_name(f"{trail.stem}.staged")


def hash_of(content: bytes) -> str:
    """Return the hash that identifies a file's content."""
    return hashlib.sha256(content).hexdigest()


def write(path: Path, staged: Staged, *, sync: bool) -> None:
    """Write the stage to disk. Raises OSError.

    The write need not be atomic: no event follows an incomplete stage.
    """
    content = staged.model_dump_json().encode("utf-8", "surrogatepass")
    write_file(path, content, below=path.parents[2], sync=sync)
    if sync:
        sync_folders([path.parent])


def read(path: Path) -> Staged | None:
    """Return the stage; None if there is none, or if it is incomplete. Raises OSError."""
    try:
        return Staged.model_validate_json(read_regular(path))
    except (FileNotFoundError, ValidationError):
        return None


CHANGED = "changed since it was approved"
UNTOLD = "says approved, but no approval is recorded"

Approvals = Mapping[str, str]
"""Hashes of the approved texts, by note; empty where an older arena kept none."""


class ReadTrail(NamedTuple):
    """The contents of a trail up to byte `end`; `check` is a hash of the bytes before it."""

    end: int = 0
    check: str = ""
    approved: Approvals = MappingProxyType({})


NOTHING = ReadTrail()


def sha256(note: Note) -> str:
    """Return the hash of the parts of a note that agents are shown, regardless of line ends."""
    body = note.body.replace("\r\n", "\n").strip()
    text = json.dumps([note.kind, note.title, note.owner, body], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def judge(note: Note, approvals: Approvals, sha: str = "") -> Note:
    """Return the note with the status that counts; `sha` is its hash, if that is known."""
    if note.status != "approved":
        return note
    approved = approvals.get(note.id)
    if approved is None:
        return note.model_copy(update={"status": "draft", "approval": UNTOLD})
    if approved and approved != (sha or sha256(note)):
        return note.model_copy(update={"status": "pending_user", "approval": CHANGED})
    return note


def after(approvals: dict[str, str], note: str, act: str, sha: str) -> None:
    """Update the approvals by one event of the trail."""
    if act == "approved":
        approvals[note] = sha
    elif act in ("added", "submitted", "rejected", "archived", "superseded"):
        approvals.pop(note, None)
