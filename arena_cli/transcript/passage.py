"""Parts of a transcript, found from its end: a turn, the last chain, what follows an event.

How long the transcript is does not matter for the newest parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import nearest
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.team import roster
from arena_cli.transcript import events, index, read
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    StatusReported,
    TurnFinished,
    TurnStarted,
)
from arena_cli.transcript.fold import Fold

BLOCK = 1_048_576

# Where parts begin and end; None is a line that arena did not write.
_BORDERS = frozenset({"message", "turn_started", "chain_finished", None})
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
    end = read.tail(path)[1]
    held: list[bytes | Event] = []
    for one in _newest_first(path, end):
        held.append(one)
        if _opens_a_chain(one):
            break
    return _passage(held, end)


def from_chain_of(path: Path, seq: int) -> Passage:
    """From the message that opened the chain of an event to the end; empty where none did."""
    end = read.tail(path)[1]
    held: list[bytes | Event] = []
    for one in _newest_first(path, end):
        held.append(one)
        if isinstance(one, MessageEvent) and one.chain is not None and one.seq < seq:
            return _passage(held, end)
    return Passage([], end, 0)


def turn_number(path: Path, wanted: int) -> int:
    """The number of a turn that there is; negative ones count back from the newest, which is -1.

    Raises UsageError with the range that there is.
    """
    found = _newest_first(path, read.tail(path)[1])
    newest = next((one.turn for one in found if isinstance(one, TurnStarted)), 0)
    number = wanted if wanted > 0 else newest + 1 + wanted
    if 1 <= number <= newest:
        return number
    if not newest:
        raise UsageError("this session has no turn yet")
    known = "its only turn is 1" if newest == 1 else f"its turns are 1 to {newest}"
    raise UsageError(f"this session has no turn {wanted}", f"{known}; `--turn last` is the newest")


def turn(path: Path, number: int) -> Passage:
    """One turn of the session.

    It begins with its heading, or with the message that opened the chain if it is the chain's
    first, and holds all up to the next turn, the chain's end with it if it is the chain's last.
    Empty where the line with its heading cannot be read.
    """
    end = read.tail(path)[1]
    held: list[bytes | Event] = []
    whole = _newest_first(path, end)
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


def _back_to_opening(whole: Iterator[bytes | Event], turn: TurnStarted) -> list[bytes | Event]:
    """What stands before a chain's first turn, back to the message that opened it."""
    held: list[bytes | Event] = []
    for one in whole if turn.depth == 0 else ():
        held.append(one)
        if isinstance(one, MessageEvent) and one.chain == turn.chain:
            return held
        if isinstance(one, (TurnStarted, ChainFinished)):
            break
    return []


def _opens_a_chain(one: bytes | Event) -> bool:
    return isinstance(one, MessageEvent) and one.chain is not None


def _newest_first(path: Path, end: int) -> Iterator[bytes | Event]:
    """Events from the end backwards; lines that are no border of a part as they stand."""
    for raw in read.backwards(path, end):
        if events.type_of(raw) in _BORDERS:
            found, what = read.parsed(raw)
            yield from reversed(found) if found and not what else [raw]
        else:
            yield raw


def _passage(newest_first: list[bytes | Event], end: int) -> Passage:
    found: list[Event] = []
    skipped = 0
    for one in reversed(newest_first):
        if isinstance(one, Event):
            found.append(one)
            continue
        parsed, what = read.parsed(one)
        found += parsed
        skipped += bool(what)
    return Passage(found, end, skipped)


def offset_after(path: Path, seq: int) -> int:
    """The byte where a line begins before which every event has at most that `seq`.

    It is found by halving, so that few lines are read. A line without a number may lie behind it.
    """
    low, high = 0, read.tail(path)[1]
    with path.open("rb") as file:
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


def _seq_of(raw: bytes) -> int | None:
    own = _SEQ.match(raw)
    if own:
        return int(own[1])
    found = read.events_of(raw)
    return found[0].seq if found else None


def fold_before(path: Path, offset: int) -> Fold:
    """Who talks, and the chain that is open, at the byte `offset` where a line begins."""
    held: list[bytes | Event] = []
    for one in _newest_first(path, offset):
        held.append(one)
        if _opens_a_chain(one) or isinstance(one, ChainFinished):
            break
    fold = Fold()
    for event in _passage(held, offset).events:
        fold.apply(event)
    fold.session = fold.session or session_before(path, fold.seq + 1)
    return fold


def session_before(path: Path, seq: int) -> SessionEvent | None:
    """Who talks in a session, as its transcript said last before that event."""
    fold = Fold()
    covered = index.load(path, fold)
    for event in _sessions(path, covered, path.stat().st_size):
        if event.seq < seq:
            return event
    if fold.session and fold.session.seq < seq:
        return fold.session
    older = (event for event in _sessions(path, 0, covered) if event.seq < seq)
    return next(older, None) or _first_of(path)


def _sessions(path: Path, start: int, end: int) -> Iterator[SessionEvent]:
    """The `session` events that begin in a range of bytes, the newest first."""
    with path.open("rb") as file:
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
    with path.open("rb") as file:
        file.seek(before)
        beginning = file.read(place - before)
        line = beginning.rfind(b"\n") + 1
        if line == 0 and before > 0:
            return None
        file.seek(before + line)
        raw = file.readline()
    event = events.parse_own(raw) if raw.endswith(b"\n") else None
    return event if isinstance(event, SessionEvent) else None


def _first_of(path: Path) -> SessionEvent | None:
    """The first line's event, whoever wrote it."""
    first = next(read.lines(path), None)
    found = first.events if first else ()
    return next((event for event in found if isinstance(event, SessionEvent)), None)


def agent_named(path: Path, name: str) -> str:
    """The id of a member, now or earlier, with that id or name. Raises UsageError."""
    wanted = roster.folded_name(name.removeprefix("@").removeprefix("＠"))
    known: dict[str, None] = {}
    seq = read.last_seq(path) + 1
    while (session := session_before(path, seq)) and session.seq < seq:
        seq = session.seq
        for member in session.members:
            known.update({member.id: None, member.name: None})
            if wanted in (roster.folded_name(member.id), roster.folded_name(member.name)):
                return member.id
    raise UsageError(
        f"no agent of this session is called {shown_line(name)!r}", nearest.hint(name, known)
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
        """What is to be told now."""
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
