"""Find parts of a transcript from its end: a turn, the last chain, the events after another.

The length of the transcript does not matter for the newest parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from arena_cli import errors
from arena_cli.errors import UsageError
from arena_cli.protocol import Message, parse_seq
from arena_cli.transcript import reader
from arena_cli.transcript.conversation import Chain, follow
from arena_cli.transcript.events import (
    EVENT_TYPES,
    ChainFinished,
    Event,
    MessageEvent,
    Recovered,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    SideEvent,
    TurnStarted,
    parse_own,
)
from arena_cli.transcript.revisions import NO_REVISIONS, Revisions
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.text import escape_line, lazy_pattern
from arena_cli.workspace import visible_text

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import MarkedRead

BLOCK = 1_048_576

# Where parts begin and end.
_BORDERS = frozenset({"message", "turn_started", "chain_finished"})
_NUMBERED = (MessageEvent, TurnStarted, ChainFinished)
_SEQ = lazy_pattern(rb'\{"seq":(\d+),')
_SESSION = b'"type":"session",'
# What stands before that in its line.
_LONGEST_BEGINNING = 128


class Passage(NamedTuple):
    """A part of a transcript: its events in order.

    `end` is the byte after the transcript's last whole line when it was read; `skipped` is the
    number of unreadable lines in it.
    """

    events: list[Event]
    end: int
    skipped: int


def last_chain(path: Path) -> Passage:
    """Return the events from the opening of the last chain to the end; all if there is no chain."""
    return _back_to(path, reader.tail(path)[1], _opens_a_chain)


def read_from_chain(path: Path, seq: int) -> Passage:
    """Return the events from the opening of an event's chain to the end; none if it has none."""

    def opens(event: Event) -> bool:
        return _opens_a_chain(event) and event.seq < seq

    passage = _back_to(path, reader.tail(path)[1], opens)
    return passage if any(map(opens, passage.events)) else Passage([], passage.end, 0)


def list_newest(
    path: Path | None, types: Container[str], revisions: Revisions | None
) -> Iterator[Event]:
    """Yield the events of these types, rewinds aside, the newest first; none without a file.

    There may be other types among them, of lines that arena did not write.
    """
    if path is not None and path.exists():
        for event in reader.newest_first(path, reader.tail(path)[1], types):
            if isinstance(event, Event) and not (revisions and revisions.is_skipped(event.seq)):
                yield event


def find_keyed(path: Path, key: str, revisions: Revisions) -> MessageEvent | None:
    """Return the message that opened a chain with this key, rewinds aside; None if none did."""
    for event in list_newest(path, {"message"}, revisions):
        if isinstance(event, MessageEvent) and event.chain is not None and event.key == key:
            return event
    return None


def read_chain(path: Path, number: int) -> list[Event]:
    """Return the events of a chain, from its opening to its end; none if there is no such chain.

    An open chain goes to the end of the transcript.
    """

    def opens(event: Event) -> bool:
        return isinstance(event, MessageEvent) and event.chain == number

    events = _back_to(path, reader.tail(path)[1], opens).events
    if not events or not opens(events[0]):
        return []
    for index, event in enumerate(events):
        if isinstance(event, ChainFinished) and event.chain == number:
            return events[: index + 1]
    return events


def last_chain_number(path: Path) -> int:
    """Return the number of the last chain, 0 if there is none."""
    events = reader.newest_first(path, reader.tail(path)[1], _BORDERS)
    return next(
        (event.chain for event in events if isinstance(event, _NUMBERED) and event.chain), 0
    )


def find_opening(path: Path, chain: int) -> int:
    """Return the seq of the message that opened a chain, 0 if it cannot be read."""
    for event in reader.newest_first(path, reader.tail(path)[1], frozenset({"message"})):
        if isinstance(event, MessageEvent) and event.chain is not None and event.chain <= chain:
            return event.seq if event.chain == chain else 0
    return 0


def _back_to(path: Path, end: int, begins: Callable[[Event], bool]) -> Passage:
    """Return the events from the last border that `begins` accepts to byte `end`, or all."""
    held: list[Event | bytes] = []
    for entry in reader.newest_first(path, end, _BORDERS):
        held.append(entry)
        if isinstance(entry, Event) and begins(entry):
            break
    return _passage(held, end)


def turn_number(path: Path, requested: int) -> int:
    """Return the number of an existing turn; -1 is the newest, -2 the one before.

    Raises UsageError with the valid range.
    """
    borders = reader.newest_first(path, reader.tail(path)[1], _BORDERS)
    newest = next((event.turn for event in borders if isinstance(event, TurnStarted)), 0)
    number = requested if requested > 0 else newest + 1 + requested
    if 1 <= number <= newest:
        return number
    if not newest:
        raise UsageError("this session has no turn yet")
    turns = "its only turn is 1" if newest == 1 else f"its turns are 1 to {newest}"
    raise UsageError(
        f"this session has no turn {requested}", f"{turns}; `--turn last` is the newest"
    )


def turn(path: Path, number: int) -> Passage:
    """Return one turn of the session.

    It begins with its heading, or with the message that opened the chain if it is the chain's
    first. It ends before the next turn, and includes the chain's end if it is the chain's last. It
    is empty if the line with its heading cannot be read.
    """
    end = reader.tail(path)[1]
    held: list[Event | bytes] = []
    entries = reader.newest_first(path, end, _BORDERS)
    for entry in entries:
        if _opens_a_chain(entry) or isinstance(entry, ChainFinished):
            held = []
        if not _opens_a_chain(entry):
            held.append(entry)
        if isinstance(entry, TurnStarted):
            if entry.turn == number:
                return _passage(held + _back_to_opening(entries, entry), end)
            if entry.turn < number:
                break
            held = []
    return Passage([], end, 1)


def _back_to_opening(entries: Iterator[Event | bytes], turn: TurnStarted) -> list[Event | bytes]:
    """Return the events before a chain's first turn, back to the message that opened it."""
    held: list[Event | bytes] = []
    for entry in entries if turn.depth == 0 else ():
        held.append(entry)
        if isinstance(entry, MessageEvent) and entry.chain == turn.chain:
            return held
        if isinstance(entry, (TurnStarted, ChainFinished)):
            break
    return []


def _opens_a_chain(entry: Event | bytes) -> bool:
    return isinstance(entry, MessageEvent) and entry.chain is not None


def _passage(newest_first: list[Event | bytes], end: int) -> Passage:
    events: list[Event] = []
    skipped = 0
    for entry in reversed(newest_first):
        if isinstance(entry, Event):
            events.append(entry)
            continue
        parsed, problem = reader.parsed(entry)
        events += parsed
        skipped += bool(problem)
    return Passage(events, end, skipped)


def offset_after(path: Path, seq: int) -> int:
    """Return the offset of a line before which every event has at most that `seq`.

    It is found by bisection, so few lines are read. A line without a number may follow it.
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


def seq_before_time(path: Path, ts: str) -> int:
    """Return the number of the last event that was written before that time; 0 if none was."""
    for entry in reader.newest_first(path, reader.tail(path)[1], frozenset()):
        events = (entry,) if isinstance(entry, Event) else reader.parse_events(entry)
        if events and events[-1].ts < ts:
            return events[-1].seq
    return 0


def seq_before_last(path: Path, count: int, agent: str | None = None, before: str = "") -> int:
    """Return the number of the event before the last `count` messages; 0 if there are fewer.

    Messages are those of users and the replies of agents; with `agent`, only its replies. With
    `before`, they were written before that time.
    """
    types = frozenset({"message", "reply_finished"})
    for event in reader.newest_first(path, reader.tail(path)[1], types):
        if before and isinstance(event, Event) and event.ts >= before:
            continue
        if isinstance(event, ReplyFinished):
            count -= event.message is not None and agent in (None, event.agent)
        elif isinstance(event, MessageEvent):
            count -= agent is None
        if count == 0 and isinstance(event, Event):
            return event.seq - 1
    return 0


def message(path: Path, message_id: str) -> Message | None:
    """Return the message with that id that agents may be shown; None if there is none."""
    seq = parse_seq(message_id)
    if not seq:
        return None
    with files.open_binary(path) as file:
        file.seek(offset_after(path, seq - 1))
        events = reader.parse_events(file.readline())
    for event in events:
        candidate = event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
        if candidate is not None and candidate.id == message_id:
            return candidate
    return None


def _seq_of(raw: bytes) -> int | None:
    match = _SEQ.match(raw)
    if match:
        return int(match[1])
    events = reader.parse_events(raw)
    return events[0].seq if events else None


def fold_before(path: Path, offset: int) -> Fold:
    """Return the fold at the byte `offset`, where a line begins."""
    fold = Fold()
    for event in _back_to(path, offset, _begins_or_ends_a_chain).events:
        fold.apply(event)
    fold.session = fold.session or session_before(path, fold.seq + 1)
    return fold


def _begins_or_ends_a_chain(event: Event) -> bool:
    return _opens_a_chain(event) or isinstance(event, ChainFinished)


def summarize_session(path: Path) -> dict[str, str | None]:
    """Return a session's row in a list of sessions: team, end, last change, first message."""
    session = read_session_event(path)
    end, changed = "no messages", ""
    types = frozenset({*EVENT_TYPES, "chain_paused", "flow_started", "flow_finished", "rewound"})
    revisions = NO_REVISIONS
    for entry in reader.newest_first(path, path.stat().st_size, types):
        if not isinstance(entry, Event):
            continue
        if entry.type == "rewound" and not revisions:
            revisions = reader.read_revisions(path)
        changed = changed or entry.ts
        if revisions and revisions.is_skipped(entry.seq):
            continue
        if isinstance(entry, SideEvent):
            if entry.session_end is None:
                continue
            end = entry.session_end
            break
        if not isinstance(entry, (SessionEvent, Recovered)):
            end = entry.end if isinstance(entry, ChainFinished) else "open"
            break
    return {
        "team": session.team if session else None,
        "end": end,
        "changed": changed,
        "first": _first_message(path),
    }


_FIRST_LINES = 20  # a transcript begins with its session and its first message


def _first_message(path: Path) -> str | None:
    """Return a session's first message or the name of its flow, if its transcript begins so."""
    for line in itertools.islice(reader.read_lines(path), _FIRST_LINES):
        for event in line.events:
            if isinstance(event, MessageEvent):
                return event.message.content
            if event.type == "flow_started":
                flow: str | None = getattr(event, "flow", None)
                return flow
    return None


def read_session_event(path: Path) -> SessionEvent | None:
    """Return the last session event of a transcript; takes no lock and writes nothing."""
    return session_before(path, reader.last_seq(path) + 1)


def session_before(path: Path, seq: int) -> SessionEvent | None:
    """Return the last session event before that event."""
    fold = Fold()
    covered = reader.load(path, fold)
    for event in _sessions(path, covered, path.stat().st_size):
        if event.seq < seq:
            return event
    if fold.session and fold.session.seq < seq:
        return fold.session
    older = (event for event in _sessions(path, 0, covered) if event.seq < seq)
    return next(older, None) or _first_of(path)


def _sessions(path: Path, start: int, end: int) -> Iterator[SessionEvent]:
    """Yield the `session` events that begin in a range of bytes, the newest first."""
    with files.open_binary(path) as file:
        while end > start:
            first = max(start, end - BLOCK)
            file.seek(first)
            block = file.read(end - first + len(_SESSION) - 1)
            offset = block.rfind(_SESSION)
            while offset >= 0:
                event = _session_around(path, first + offset)
                if event:
                    yield event
                offset = block.rfind(_SESSION, 0, offset)
            end = first


def _session_around(path: Path, offset: int) -> SessionEvent | None:
    """Return the event in whose line the mark of its type is at that byte."""
    begin = max(0, offset - _LONGEST_BEGINNING)
    with files.open_binary(path) as file:
        file.seek(begin)
        beginning = file.read(offset - begin)
        line = beginning.rfind(b"\n") + 1
        if line == 0 and begin > 0:
            return None
        file.seek(begin + line)
        raw = file.readline()
    event = parse_own(raw) if raw.endswith(b"\n") else None
    return event if isinstance(event, SessionEvent) else None


def _first_of(path: Path) -> SessionEvent | None:
    """Return the first line's event, by any writer."""
    first = next(reader.read_lines(path), None)
    events = first.events if first else ()
    return next((event for event in events if isinstance(event, SessionEvent)), None)


def agent_named(path: Path, name: str) -> str:
    """Return the id of a present or former member with that id or name. Raises UsageError."""
    folded = visible_text.fold_name(name.removeprefix("@").removeprefix("＠"))
    agents: dict[str, None] = {}
    seq = reader.last_seq(path) + 1
    while (session := session_before(path, seq)) and session.seq < seq:
        seq = session.seq
        for member in session.members:
            agents.update({member.id: None, member.name: None})
            if folded in (visible_text.fold_name(member.id), visible_text.fold_name(member.name)):
                return member.id
    raise UsageError(
        f"no agent of this session is called {escape_line(name)!r}",
        errors.suggest_nearest(name, agents),
    )


def select_agent(events: Iterable[Event], agent: str) -> Iterator[Event]:
    """Yield the events that concern an agent, in order.

    They are its calls and the events about them, and before each the message and the turn in which
    it was called. `session` events are always included, since they hold the names. A reply that
    calls it as a tool concerns it: of that, its own steps and the end.
    """
    held: list[Event] = []
    calling: set[int] = set()  # the replies that call it as a tool
    for event, chain in follow(events):
        if event.is_acting and getattr(event, "agent", None) == agent:
            calling.add(getattr(event, "reply", 0))
        first = chain.first if chain else None
        begins_turn = chain and chain.turns and event is chain.turns[-1].started
        if begins_turn:
            held = [earlier for earlier in held if earlier is first]
        if isinstance(event, SessionEvent):
            yield event
        elif _concerns(event, chain, agent, calling):
            yield from held
            held.clear()
            yield event
        elif begins_turn:
            held.append(event)
        elif event is first:
            held = [event]


def _concerns(event: Event, chain: Chain | None, agent: str, calling: set[int]) -> bool:
    """Return True if an event is about an agent, or begins or ends a turn in which it is called."""
    if isinstance(event, ReplyFinished) and event.reply in calling:
        return True
    turn = chain.turns[-1] if chain and chain.turns else None
    if turn is None:
        return getattr(event, "agent", None) == agent
    if event is turn.started:
        return agent in (*turn.must, *turn.started.deferred)
    if event is turn.candidates:
        return agent in turn.asked
    if event is turn.finished:
        is_calling = any(reply.number in calling for reply in turn.replies.values())
        return is_calling or agent in (*turn.called, *turn.started.deferred)
    own = turn.replies.get(agent)
    is_step = event.is_acting and own and getattr(event, "reply", 0) == own.number
    return bool(is_step) or getattr(event, "agent", None) == agent


def list_unread(events: Iterable[Event], agents: Sequence[str] = ()) -> dict[str, list[Message]]:
    """Return the unread messages of these agents, or of each member, in the order it sees them.

    An agent has read all that came before its last call began; what no longer fits its window then
    is in the summary. A person may mark messages as read, too.

    `events` are those of a session that agents are shown. An agent's own messages, those of which
    it is not shown, and reactions do not count.
    """
    messages: list[Message] = []
    read: dict[str, int] = {}
    members: list[str] = []
    fold = Fold(messages.append)
    for event in events:
        if isinstance(event, SessionEvent):
            members = [member.id for member in event.members]
        elif isinstance(event, ReplyStarted):
            read[event.agent] = len(messages)
        elif event.type == "marked_read":
            marked = cast("MarkedRead", event)
            known = [message.id for message in messages]
            count = known.index(marked.upto) + 1 if marked.upto in known else 0
            read |= {agent: max(read.get(agent, 0), count) for agent in marked.agents}
        fold.apply(event)
    return {
        agent: [
            message for message in messages[read.get(agent, 0) :] if _counts_for(message, agent)
        ]
        for agent in agents or members
    }


def _counts_for(message: Message, agent: str) -> bool:
    is_own = message.author_type == "agent" and message.author_id == agent
    is_hidden = bool(message.shown_to) and agent not in message.shown_to
    is_reaction = bool(message.reactions) and not message.content
    return not (is_own or is_hidden or is_reaction)
