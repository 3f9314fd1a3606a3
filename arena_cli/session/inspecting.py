"""The notes of a session looked through for what is wrong with them, and put right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from arena_cli.ground.errors import Fault
from arena_cli.ground.protocol import Message, seq_of
from arena_cli.memory import inspecting
from arena_cli.memory.inspecting import Finding
from arena_cli.memory.note import Draft
from arena_cli.session import shelves
from arena_cli.session.shelves import Shelf
from arena_cli.transcript import read
from arena_cli.transcript.events import MessageEvent, ReplyFinished

if TYPE_CHECKING:
    from arena_cli.session.knowledge import Keeper


class Inspected(NamedTuple):
    """What was found among how many notes, and what could not be read."""

    findings: list[Finding]
    notes: int
    problems: list[Fault]


def inspect(shelf: Shelf, now: datetime, *, language: str = "en") -> Inspected:
    """Look through the notes of a session and what was said in it, or the shared notes."""
    notes, problems = shelves.notes(shelf)
    seen = {
        event.note: seq_of(event.message)
        for event in shelves.history(shelf)
        if event.message and event.act in ("added", "seen", "edited")
    }
    found = inspecting.inspect(notes, _messages(shelf), now, seen=seen, language=language)
    return Inspected(found, len(notes), problems)


def apply(findings: Sequence[Finding], keeper: Keeper) -> list[Finding]:
    """Do what is proposed, each act an event with its reason; those findings that this ends.

    What contradicts is left to people. Raises as the keeper does; what was done until then stays.
    """
    applied = [one for one in findings if one.can_be_applied]
    for one in applied:
        if one.what == "solved":
            draft = Draft("conclusion", one.conclusion, source=one.message)
            # A message may solve two; and one that was cut short is done again.
            keeper.add(draft, is_new=False)
        if one.other is not None:
            keeper.merge(one.note.id, one.other.id, one.reason)
        else:
            keeper.step(one.note.id, "archive", one.reason)
    return applied


def _messages(shelf: Shelf) -> Iterator[Message]:
    """What people and agents said in the session, in order of the transcript."""
    if shelf.stored is None:
        return
    for line in read.lines(shelf.stored.transcript):
        for event in line.events:
            said = event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
            if said is not None and said.author_type != "system":
                yield said
