"""Parts of a transcript, found from its end: a turn, the last chain, what follows an event.

How long the transcript is does not matter for the newest parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from arena_cli import errors
from arena_cli.errors import UsageError
from arena_cli.protocol import Message, parse_seq
from arena_cli.transcript import cache, reader
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    EventTypes,
    MessageEvent,
    Recovered,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    StatusReported,
    TurnFinished,
    TurnStarted,
    parse_own,
)
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.text import escape_line
from arena_cli.workspace import mentions

BLOCK = 1_048_576

# Where parts begin and end.
_BORDERS = frozenset({"message", "turn_started", "chain_finished"})
_SEQ = re.compile(rb'\{"seq":(\d+),')
_SESSION = b'"type":"session",'
# What stands before that in its line.
_LONGEST_BEGINNING = 128


class Passage(NamedTuple):
    """Events in their order; `end` is the byte behind the transcript's last whole line when it was
    read, `skipped` the number of lines in it that could not be read."""

    events: list[Event]
    end: int
    skipped: int


def last_chain(path: Path) -> Passage:
    """From the message that opened the last chain to the end; all there is where none did."""
    return _back_to(path, reader.tail(path)[1], _opens_a_chain)


def from_chain_of(path: Path, seq: int) -> Passage:
    """From the message that opened the chain of an event to the end; empty where none did."""

    def opens(event: Event) -> bool:
        return _opens_a_chain(event) and event.seq < seq

    found = _back_to(path, reader.tail(path)[1], opens)
    return found if any(map(opens, found.events)) else Passage([], found.end, 0)


def _back_to(path: Path, end: int, begins: Callable[[Event], bool]) -> Passage:
    """From the last border before byte `end` with which it begins; all there is where none is."""
    held: list[Event | bytes] = []
    for one in reader.newest_first(path, end, _BORDERS):
        held.append(one)
        if isinstance(one, Event) and begins(one):
            break
    return _passage(held, end)


def turn_number(path: Path, wanted: int) -> int:
    """The number of a turn that there is; negative ones count back from the newest, which is -1.

    Raises UsageError with the range that there is.
    """
    found = reader.newest_first(path, reader.tail(path)[1], _BORDERS)
    newest = next((one.turn for one in found if isinstance(one, TurnStarted)), 0)
    number = wanted if wanted > 0 else newest + 1 + wanted
    if 1 <= number <= newest:
        return number
    if not newest:
        raise UsageError("this session has no turn yet")
    known = "its only turn is 1" if newest == 1 else f"its turns are 1 to {newest}"
    raise UsageError(f"this session has no turn {wanted}", f"{known}; `--turn last` is the newest")


def turn(path: Path, number: int) -> Passage:
    """Return one turn of the session.

    It begins with its heading, or with the message that opened the chain if it is the chain's
    first, and holds all up to the next turn, the chain's end with it if it is the chain's last.
    Empty where the line with its heading cannot be read.
    """
    end = reader.tail(path)[1]
    held: list[Event | bytes] = []
    whole = reader.newest_first(path, end, _BORDERS)
    for one in whole:
        if _opens_a_chain(one) or isinstance(one, ChainFinished):
            held = []
        if not _opens_a_chain(one):
            held.append(one)
        if isinstance(one, TurnStarted):
            if one.turn == number:
                return _passage(held + _back_to_opening(whole, one), end)
            if one.turn < number:
                break
            held = []
    return Passage([], end, 1)


def _back_to_opening(whole: Iterator[Event | bytes], turn: TurnStarted) -> list[Event | bytes]:
    """Return the events before a chain's first turn, back to the message that opened it."""
    held: list[Event | bytes] = []
    for one in whole if turn.depth == 0 else ():
        held.append(one)
        if isinstance(one, MessageEvent) and one.chain == turn.chain:
            return held
        if isinstance(one, (TurnStarted, ChainFinished)):
            break
    return []


def _opens_a_chain(one: Event | bytes) -> bool:
    return isinstance(one, MessageEvent) and one.chain is not None


def _passage(newest_first: list[Event | bytes], end: int) -> Passage:
    found: list[Event] = []
    skipped = 0
    for one in reversed(newest_first):
        if isinstance(one, Event):
            found.append(one)
            continue
        parsed, what = reader.parsed(one)
        found += parsed
        skipped += bool(what)
    return Passage(found, end, skipped)


def offset_after(path: Path, seq: int) -> int:
    """The byte where a line begins before which every event has at most that `seq`.

    It is found by halving, so that few lines are read. A line without a number may lie behind it.
    """
    low, high = 0, reader.tail(path)[1]
    with files.open_binary(path) as file:
        while low < high:
            middle = (low + high) // 2
            if middle > low:
                file.seek(middle - 1)
                file.readline()
            else:
                file.seek(low)
            number = None
            while number is None and file.tell() < high:
                number = _seq_of(file.readline())
            if number is None or number > seq:
                high = middle
            else:
                low = file.tell()
    return low


def message(path: Path, message_id: str) -> Message | None:
    """The message with that id that agents may be shown; None where there is none."""
    seq = parse_seq(message_id)
    if not seq:
        return None
    with files.open_binary(path) as file:
        file.seek(offset_after(path, seq - 1))
        found = reader.events_of(file.readline())
    for event in found:
        said = event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
        if said is not None and said.id == message_id:
            return said
    return None


def _seq_of(raw: bytes) -> int | None:
    own = _SEQ.match(raw)
    if own:
        return int(own[1])
    found = reader.events_of(raw)
    return found[0].seq if found else None


def fold_before(path: Path, offset: int) -> Fold:
    """Return the fold at the byte `offset`, where a line begins."""
    fold = Fold()
    for event in _back_to(path, offset, _begins_or_ends_a_chain).events:
        fold.apply(event)
    fold.session = fold.session or session_before(path, fold.seq + 1)
    return fold


def _begins_or_ends_a_chain(event: Event) -> bool:
    return _opens_a_chain(event) or isinstance(event, ChainFinished)


def summary_of(path: Path) -> dict[str, str | None]:
    """Return a session's row in a list of sessions: its team, its end, its last change."""
    session = session_of(path)
    end, changed = "no messages", ""
    for one in reader.newest_first(path, path.stat().st_size, EventTypes.by_name):
        if isinstance(one, Event):
            changed = changed or one.ts
            if not isinstance(one, (SessionEvent, Recovered)):
                end = one.end if isinstance(one, ChainFinished) else "open"
                break
    return {"team": session.team if session else None, "end": end, "changed": changed}


def session_of(path: Path) -> SessionEvent | None:
    """Return the last session event of a transcript; takes no lock and writes nothing."""
    return session_before(path, reader.last_seq(path) + 1)


def session_before(path: Path, seq: int) -> SessionEvent | None:
    """Return the last session event before that event."""
    fold = Fold()
    covered = cache.load(path, fold)
    for event in _sessions(path, covered, path.stat().st_size):
        if event.seq < seq:
            return event
    if fold.session and fold.session.seq < seq:
        return fold.session
    older = (event for event in _sessions(path, 0, covered) if event.seq < seq)
    return next(older, None) or _first_of(path)


def _sessions(path: Path, start: int, end: int) -> Iterator[SessionEvent]:
    """The `session` events that begin in a range of bytes, the newest first."""
    with files.open_binary(path) as file:
        while end > start:
            first = max(start, end - BLOCK)
            file.seek(first)
            block = file.read(end - first + len(_SESSION) - 1)
            at = block.rfind(_SESSION)
            while at >= 0:
                event = _session_around(path, first + at)
                if event:
                    yield event
                at = block.rfind(_SESSION, 0, at)
            end = first


def _session_around(path: Path, place: int) -> SessionEvent | None:
    """The event in whose line the mark of its type stands at that byte."""
    before = max(0, place - _LONGEST_BEGINNING)
    with files.open_binary(path) as file:
        file.seek(before)
        beginning = file.read(place - before)
        line = beginning.rfind(b"\n") + 1
        if line == 0 and before > 0:
            return None
        file.seek(before + line)
        raw = file.readline()
    event = parse_own(raw) if raw.endswith(b"\n") else None
    return event if isinstance(event, SessionEvent) else None


def _first_of(path: Path) -> SessionEvent | None:
    """The first line's event, whoever wrote it."""
    first = next(reader.lines(path), None)
    found = first.events if first else ()
    return next((event for event in found if isinstance(event, SessionEvent)), None)


def agent_named(path: Path, name: str) -> str:
    """The id of a member, now or earlier, with that id or name. Raises UsageError."""
    wanted = mentions.fold_name(name.removeprefix("@").removeprefix("＠"))
    known: dict[str, None] = {}
    seq = reader.last_seq(path) + 1
    while (session := session_before(path, seq)) and session.seq < seq:
        seq = session.seq
        for member in session.members:
            known.update({member.id: None, member.name: None})
            if wanted in (mentions.fold_name(member.id), mentions.fold_name(member.name)):
                return member.id
    raise UsageError(
        f"no agent of this session is called {escape_line(name)!r}",
        errors.suggest_nearest(name, known),
    )


class OfAgent:
    """Takes events in order and gives those that concern one agent.

    That is its calls and replies, and before each the message and the turn in which it was called;
    `found` says whether there was any. `session` events are always given: they hold the names.
    """

    def __init__(self, agent: str) -> None:
        self.found = False
        self._agent = agent
        self._held: list[Event] = []
        self._is_called = False

    def take(self, event: Event) -> Iterable[Event]:
        """Return the events to show now."""
        match event:
            case SessionEvent():
                return [event]
            case MessageEvent() if event.chain is not None:
                self._held, self._is_called = [event], False
            case TurnStarted():
                self._held = [one for one in self._held if isinstance(one, MessageEvent)]
                self._held.append(event)
                self._is_called = self._agent in (*event.must, *event.deferred)
                return self._released() if self._is_called else ()
            case Candidates() if self._agent in event.asked:
                self._is_called = True
                return [*self._released(), event]
            case ReplyStarted() | StatusReported() | ReplyFinished() if event.agent == self._agent:
                return [*self._released(), event]
            case TurnFinished() if self._is_called:
                return [event]
            case _:
                pass
        return ()

    def _released(self) -> list[Event]:
        self.found = True
        released, self._held = self._held, []
        return released
