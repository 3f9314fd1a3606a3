"""How two conversations differ: one document, from the settings down to each reply."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import computed_field

from arena_cli.ground.protocol import Shape, Usage
from arena_cli.report.entries import Kind

Side = Literal["a", "b"]


class Changed(Shape):
    """A field that differs, and what stands in it on both sides; None: nothing."""

    field: str
    a: Any
    b: Any


class ReplyDiff(Shape):
    """One agent's reply in a turn. `only`: the other side has none.

    `shown_otherwise`: it was shown something else, though all that was said before is the same.
    """

    agent: str
    only: Side | None = None
    shown_otherwise: bool = False
    fields: list[Changed] = []


class TurnDiff(Shape):
    """One turn, counted from 1 in its chain."""

    turn: int
    only: Side | None = None
    fields: list[Changed] = []
    replies: list[ReplyDiff] = []


class EntryDiff(Shape):
    """A chain, or what stands between chains. `a` and `b` number the chains of each side from 1.

    `opening` is what opened it, as A has it if it has it; `fields` are those of the opening
    message and of the end.
    """

    kind: Kind
    a: int | None = None
    b: int | None = None
    only: Side | None = None
    opening: str = ""
    fields: list[Changed] = []
    turns: list[TurnDiff] = []


class Parted(Shape):
    """The first place where a chain went another way; `turn` None: only its end did."""

    a: int
    b: int
    turn: int | None
    fields: list[Changed]


class Told(Shape):
    """How much there is of a conversation."""

    chains: int
    turns: int
    replies: int
    usage: Usage | None


class ConversationDiff(Shape):
    """One session beside another. `case` and `session` are those of a recording."""

    case: str | None = None
    session: str | None = None
    only: Side | None = None
    a: Told | None = None
    b: Told | None = None
    settings: list[Changed] = []
    parted: Parted | None = None
    entries: list[EntryDiff] = []

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.only or self.settings or self.entries)


class Compared(Shape):
    """What was compared: its name, as it was given, and what it is."""

    name: str
    kind: Literal["session", "recording", "result"]


class Difference(Shape):
    """Two sessions or recordings."""

    version: int = 1
    a: Compared
    b: Compared
    conversations: list[ConversationDiff]

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation has it
    @property
    def same(self) -> bool:
        return all(one.same for one in self.conversations)
