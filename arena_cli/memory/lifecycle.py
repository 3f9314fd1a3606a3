"""The life of a note: draft, pending_user, approved, archived, and the steps between them.

Each step is taken under the lock of the note's folder, on what its file says then.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from arena_cli.ground import clock
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.memory import reading
from arena_cli.memory.folder import Folder
from arena_cli.memory.note import Note, Status

Step = Literal["submit", "approve", "reject", "archive"]

LEGAL: Mapping[Status, tuple[Step, ...]] = {
    "draft": ("submit", "approve", "archive"),
    "pending_user": ("approve", "reject", "archive"),
    "approved": ("archive",),
    "archived": (),
}
"""By status: the steps from there. A draft that is approved is submitted by that."""

_AFTER: Mapping[Step, Status] = {
    "submit": "pending_user",
    "approve": "approved",
    "reject": "draft",
    "archive": "archived",
}


def check(note: Note, step: Step) -> None:
    """Raises UsageError where that step is not legal from the status of the note."""
    if step in LEGAL[note.status]:
        return
    legal = LEGAL[note.status]
    done = "Nothing follows on that." if not legal else f"Legal now: {', '.join(legal)}."
    if note.status == "approved":
        done += (
            " Approved notes are not changed but superseded: "
            f"`arena knowledge add --supersedes {shown_line(note.id)} TITLE`."
        )
    raise UsageError(f"{shown_line(note.id)} is {note.status}: it cannot {_PASSIVE[step]}", done)


_PASSIVE: Mapping[Step, str] = {
    "submit": "be submitted",
    "approve": "be approved",
    "reject": "be rejected",
    "archive": "be archived",
}


def take(folder: Folder, id: str, step: Step, *, by: str, now: datetime) -> Note:
    """Take a step with a note. Raises UsageError where it is not legal, else as `Folder.edit`."""
    at = clock.timestamp(now)

    def stepped(note: Note, text: str) -> str:
        check(note, step)
        fields: dict[str, Any] = {"status": _AFTER[step], "updated": at}
        if step == "approve":
            fields |= {"approved_by": by, "approved_at": at}
        return reading.changed(text, **fields)

    return folder.edit(id, stepped)


def supersede(folder: Folder, old: str, new: str, *, now: datetime) -> Note:
    """Archive a note in whose place another stands now. Raises as `take`."""

    def superseded(note: Note, text: str) -> str:
        check(note, "archive")
        at = clock.timestamp(now)
        return reading.changed(text, status="archived", updated=at, superseded_by=new)

    return folder.edit(old, superseded)
