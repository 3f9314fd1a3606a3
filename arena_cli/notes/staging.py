"""Stage acts on notes: on disk before they are done.

One act may be an event or two and a file or two. They are written in this order: the stage (a file
beside the trail), the events, the files; then the stage is removed. Whoever opens the trail after a
crash does the rest where the first event is there, and else drops the stage: nothing happened.
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
    """A note's file as it is to be; `before` is the hash of what it holds, empty for a new one.

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
    """Events from number `seq` on, without what stamps them, and the files that follow."""

    seq: int
    acts: list[dict[str, Any]]
    files: list[StagedFile]


def path_of(trail: Path) -> Path:
    """Return where the stage of a trail lies."""
    return trail.with_name(f"{trail.stem}.staged")


def hash_of(content: bytes) -> str:
    """Return the hash by which a file's content is known."""
    return hashlib.sha256(content).hexdigest()


def write(path: Path, staged: Staged, *, sync: bool) -> None:
    """Put the stage on disk. Raises OSError.

    It need not be whole: one that was cut short has no event yet.
    """
    content = staged.model_dump_json().encode("utf-8", "surrogatepass")
    write_file(path, content, below=path.parents[2], sync=sync)
    if sync:
        sync_folders([path.parent])


def read(path: Path) -> Staged | None:
    """Return what was staged; None where nothing was, or not all of it. Raises OSError."""
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
    """Return the hash of what an agent is shown of a note, line ends and bookkeeping apart."""
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
    """Follow one event of the trail."""
    if act == "approved":
        approvals[note] = sha
    elif act in ("added", "submitted", "rejected", "archived", "superseded"):
        approvals.pop(note, None)
