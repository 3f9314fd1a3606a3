"""The life of a note: draft, pending_user, approved, archived, and the steps between them.

Each step is taken under the lock of the note's folder, on what its file says then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from arena_cli.ground import clock
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.memory import reading
from arena_cli.memory.folder import Folder, Make
from arena_cli.memory.note import Note, Status

Judge = Callable[[Note], Note]
"""Gives a note as it stands, of a note as its file has it."""

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
    status = f"{note.status} ({note.approval})" if note.approval else note.status
    raise UsageError(f"{shown_line(note.id)} is {status}: it cannot {_PASSIVE[step]}", done)


_PASSIVE: Mapping[Step, str] = {
    "submit": "be submitted",
    "approve": "be approved",
    "reject": "be rejected",
    "archive": "be archived",
}


def stepping(step: Step, *, by: str, now: datetime, judge: Judge = lambda note: note) -> Make:
    """Return what takes a step with a note; `judge` tells how it stands.

    What is returned raises UsageError where the step is not legal.
    """
    at = clock.timestamp(now)

    def stepped(note: Note, text: str) -> str:
        check(judge(note), step)
        fields: dict[str, Any] = {"status": _AFTER[step], "updated": at}
        if step == "approve":
            fields |= {"approved_by": by, "approved_at": at}
        return reading.changed(text, **fields)

    return stepped


def superseding(new: str, *, now: datetime, judge: Judge = lambda note: note) -> Make:
    """Return what archives a note in whose place another stands now. It raises as a step does."""

    def superseded(note: Note, text: str) -> str:
        check(judge(note), "archive")
        at = clock.timestamp(now)
        return reading.changed(text, status="archived", updated=at, superseded_by=new)

    return superseded


def take(folder: Folder, id: str, step: Step, *, by: str, now: datetime) -> Note:
    """Take a step with a note. Raises UsageError where it is not legal, else as `Folder.edit`."""
    return folder.edit(id, stepping(step, by=by, now=now))
