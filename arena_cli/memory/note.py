"""A note of knowledge: its front matter, and its text.

A session's notes are its own; shared ones are every session's. A note's id is its file without
`.md`: `decision-auth` in a session's `knowledge` folder, `decisions/auth` among the shared ones.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from pydantic import Field

from arena_cli.ground.protocol import Shape
from arena_cli.team.model import NoteKind

Kind = NoteKind
Status = Literal["draft", "pending_user", "approved", "archived"]
Category = Literal["pits", "patterns", "decisions", "solutions"]

KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)

CATEGORIES: dict[Kind, Category] = {
    "pit": "pits",
    "pattern": "patterns",
    "decision": "decisions",
    "solution": "solutions",
}
"""The kinds that can be shared, and the folder of each."""

PINNING_KINDS: frozenset[Kind] = frozenset({"decision", "requirement"})
PINNING_IMPORTANCE = 0.8


class Draft(NamedTuple):
    """What is worth a note, before it has a file: found in a message, or given by a person.

    `by` is the id of an agent or a human, or `rules`; `source` the id of the message. `importance`
    runs from 0 to 1.
    """

    kind: Kind
    title: str
    body: str = ""
    by: str = ""
    source: str | None = None
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    owner: str = ""
    supersedes: str = ""


class Note(Shape):
    """A note as its file has it. Times are ISO 8601 in UTC; `importance` runs from 0 to 1.

    `source` is the id of the message that it comes from, in the session that comes first in
    `related_sessions`. `occurrences` counts how often the same was seen. `superseded_by` is the id
    of the note that stands in its place, `supersedes` that of the note in whose place it comes once
    it is approved. `body` is the text after the front matter, as it stands.
    `file` is the path of the file within the workspace, with `/`. `approval` says what is wrong
    with the approval that the file claims (`memory.approval`); `status` is then what counts.
    """

    id: str
    file: str
    title: str
    kind: Kind
    status: Status = "draft"
    importance: float = Field(default=0.5, ge=0, le=1)
    tags: list[str] = []
    owner: str = ""
    created: str = ""
    updated: str = ""
    source: str | None = None
    related_sessions: list[str] = []
    occurrences: int = 1
    approved_by: str = ""
    approved_at: str = ""
    supersedes: str = ""
    superseded_by: str = ""
    approval: str = Field(default="", exclude_if=lambda value: not value)
    body: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether it belongs to the workspace, not to one session."""
        return "/" in self.id

    @property
    def standing(self) -> str:
        """Its status as people are shown it, with what is wrong with an approval that it claims."""
        if self.approval and self.status == "draft":
            return f"draft ({self.approval})"
        return self.approval or self.status

    @property
    def session(self) -> str:
        """The session in whose folder it lies; "" for a shared one."""
        return "" if self.is_shared else "".join(self.file.split("/")[-3:-2])

    @property
    def is_living(self) -> bool:
        """Whether it still counts: it was neither put away nor superseded."""
        return self.status != "archived" and not self.superseded_by

    @property
    def pins(self) -> bool:
        """Whether the message that it comes from is always shown."""
        worth = self.kind in PINNING_KINDS or self.importance >= PINNING_IMPORTANCE
        return worth and self.status != "archived" and self.source is not None
