"""Select the part of a session to play again: its last playable chains, and its past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from arena_cli.errors import UsageError
from arena_cli.scenarios import given
from arena_cli.session.store import Stored
from arena_cli.transcript.conversation import Chain, Turn, read_conversation
from arena_cli.transcript.events import (
    Event,
    MessageEvent,
    NoteEvent,
    SessionEvent,
    SideEvent,
)
from arena_cli.util.text import escape_line


class Piece(NamedTuple):
    """The content of one step: a chain from its message to its end, or one planted message."""

    opening: MessageEvent
    chain: Chain | None

    @property
    def events(self) -> list[Event]:
        """Its events, in order."""
        return [self.opening, *(self.chain.events[1:] if self.chain else ())]

    @property
    def end(self) -> str:
        """The end of its chain; empty if it has none."""
        return self.chain.end if self.chain else ""

    @property
    def turns(self) -> list[Turn]:
        """The turns of its chain."""
        return self.chain.turns if self.chain else []

    def called(self) -> Iterator[str]:
        """Yield the agents that were called in it, or had to be."""
        for turn in self.turns:
            yield from (*turn.must, *turn.started.deferred, *turn.asked)


@dataclass
class SessionPart:
    """The part of a session that is promoted, and the events of the past before it.

    `session` lists the participants; `before` are the past events when the `pieces` begin. `notes`
    are remarks on unexpected properties of the session.
    """

    session: SessionEvent
    before: list[Event]
    pieces: list[Piece]
    notes: list[str] = field(default_factory=list)


def select_part(stored: Stored, until: int | None) -> SessionPart:
    """Return the part of a session up to the end of a chain, that of event `until` or the last.

    Chains that cannot be played again (interrupted, or with another team or other rules) and all
    before them belong to the past. Raises UsageError if nothing is left to play.
    """
    notes: list[str] = []
    events = _read_events(stored, until, notes)
    every = _pieces(events)
    session, cut, reason = _cut(events, every)
    pieces = [piece for piece in every if piece.opening.seq > cut]
    while pieces and not pieces[0].chain:
        cut = pieces.pop(0).opening.seq
    if not pieces:
        raise UsageError(
            f"session {escape_line(stored.name)}: no part of it can be replayed: {reason}",
            f"only what comes after event {cut} could be",
        )
    if not all(turn.is_whole for piece in pieces for turn in piece.turns):
        raise UsageError(
            f"session {escape_line(stored.name)}: events are missing in it",
            f"`arena doctor {escape_line(stored.name)}` shows which",
        )
    if reason:
        notes.append(f"what was said up to event {cut} is the scenario's past: {reason}")
    if elsewhere := _notes_from_elsewhere(pieces):
        notes.append(
            f"notes that were there before are left out ({shorten_list(elsewhere)}): "
            "`given: {notes: [FILE]}` gives them to the scenario"
        )
    if session.scenario is not None:
        title = escape_line(session.scenario)
        notes.append(
            f"it was played by the scenario `{title}`, whose profiles and rules are ignored"
        )
    return SessionPart(session, [event for event in events if event.seq <= cut], pieces, notes)


def _read_events(stored: Stored, until: int | None, notes: list[str]) -> list[Event]:
    """Return the events of a session up to the end of a chain. Raises UsageError."""
    try:
        read = given.read_past(stored.transcript)
        end = _end(read.events, until, stored.name, notes)
        given.upto(read, end)
    except UsageError as error:
        raise UsageError(f"session {escape_line(stored.name)}: {error.what}", error.mend) from error
    return [event for event in read.events if event.seq <= end]


def shorten_list(names: Sequence[str]) -> str:
    """Return the first three names, and the number of the others."""
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{suffix}"


def _end(events: Sequence[Event], until: int | None, name: str, notes: list[str]) -> int:
    """Return the number of the last event that counts: the end of a chain."""
    if until is not None and until > (last := max(event.seq for event in events)):
        raise UsageError(f"it has no event {until}: its last is {last}")
    chains = [piece for piece in _pieces(events) if piece.chain]
    ends = [piece.events[-1].seq for piece in chains if piece.end]
    resume = f"`arena resume {escape_line(name)}` continues it"
    if not chains:
        raise UsageError("it has no message that was sent: there is nothing to play")
    if not ends:
        raise UsageError("its only chain is still open", resume)
    if until is None:
        if not chains[-1].end:
            notes.append(f"its last chain is still open, and left out; {resume}")
        return ends[-1]
    return _end_before(chains, ends, until, resume, notes)


def _end_before(
    chains: Sequence[Piece], ends: Sequence[int], until: int, resume: str, notes: list[str]
) -> int:
    """Return the last event of the chain that contains event `until`, or of the one before it."""
    inside = next((c for c in chains if c.opening.seq <= until <= c.events[-1].seq), None)
    if inside is None and until < ends[0]:
        raise UsageError(
            f"there is no answer up to event {until}",
            f"its first chain goes from event {chains[0].opening.seq} to {ends[0]}",
        )
    if inside is None:
        return max(end for end in ends if end < until)
    if not inside.end:
        raise UsageError(f"event {until} is in a chain that is still open", resume)
    end = inside.events[-1].seq
    if end != until:
        notes.append(
            f"event {until} is within a chain: the chain is included to its end, event {end}"
        )
    return end


def _pieces(events: Iterable[Event]) -> list[Piece]:
    """Return the chains and the planted messages, in order."""
    pieces = []
    for item in read_conversation(events).items:
        if isinstance(item, Chain):
            pieces += [Piece(item.opening, item)] if item.first else []
        elif isinstance(item, MessageEvent) and item.planted:
            pieces.append(Piece(item, None))
    return pieces


def _cut(events: Sequence[Event], pieces: Sequence[Piece]) -> tuple[SessionEvent, int, str]:
    """Return the members, the event before the first played, and the reason for no earlier one."""
    sessions = [event for event in events if isinstance(event, SessionEvent)]
    cut, reason = 0, ""
    for piece in pieces:
        last = piece.events[-1].seq
        if piece.chain and piece.end in ("", "interrupted"):
            cut, reason = last, "its last chain was interrupted, which no scenario can play"
        elif not piece.chain and not _is_step(piece.opening):
            cut, reason = last, "a message was planted that no step can plant"
        elif any(map(_is_by_agent, piece.events)):
            cut, reason = (
                last,
                "an agent was called for its memory, and no transcript contains such answers",
            )
        elif piece.opening.seq < sessions[-1].seq:
            cut, reason = last, "then the team, or its rules, became what they were in the rest"
    return sessions[-1], cut, reason


def _is_by_agent(event: Event) -> bool:
    """Return True if an agent did work that is no reply; a library's work is done again."""
    call = event.agent_call if isinstance(event, SideEvent) else None
    return call is not None and call.is_by_agent


def _notes_from_elsewhere(pieces: Sequence[Piece]) -> list[str]:
    """Return the ids of the notes that agents were shown and that none of these chains made."""
    events = [event for piece in pieces for event in piece.events]
    own_notes = {
        event.note for event in events if isinstance(event, NoteEvent) and event.act == "added"
    }
    turns = [turn for piece in pieces for turn in piece.turns]
    shown_notes = [
        note for turn in turns for reply in turn.replies.values() for note in reply.notes
    ]
    return [note for note in dict.fromkeys(shown_notes) if note not in own_notes]


def _is_step(planted: MessageEvent) -> bool:
    """Return True if a `say` or a `system` step can plant it."""
    message = planted.message
    own_kind = "system" if message.author_type == "system" else "chat"
    carries = message.attachments or message.structured or message.kind != own_kind
    return message.author_type != "human" and not carries
