"""What is about to be done to notes, on disk before it is done.

One act may be an event or two and a file or two. They are written in this order: the stage (a file
beside the trail), the events, the files; then the stage is removed. Whoever opens the trail after a
crash does the rest where the first event is there, and else drops the stage: nothing happened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from arena_cli.ground import ownfiles, regularfiles, wholefile
from arena_cli.ground.protocol import Shape
from arena_cli.memory.note import Note


class Change(NamedTuple):
    """A note's file as it is to be; `before` is the hash of what it holds, empty for a new one.

    `file` is its path below the folder of the notes, with `/`; `path` has links resolved.
    """

    path: Path
    file: str
    before: str
    text: str
    note: Note


Carry = Callable[[Sequence[Change]], None]
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
    ownfiles.write(path, content, below=path.parents[2], sync=sync)
    if sync:
        wholefile.sync_folders([path.parent])


def read(path: Path) -> Staged | None:
    """Return what was staged; None where nothing was, or not all of it. Raises OSError."""
    try:
        return Staged.model_validate_json(regularfiles.read(path))
    except (FileNotFoundError, ValidationError):
        return None
