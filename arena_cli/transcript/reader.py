"""Read a transcript: forwards from any line, backwards from the end, past broken lines.

Records end at byte 0x0A only. A line that cannot be read is skipped and reported with its number;
two records on one line are both read.

A cache of the counters lets opening a session cost the same at any length. It is written when no
chain is open, checked against the bytes before its offset, and rebuilt if they do not match;
deleting it loses nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.protocol import Attachment, Message, Shape, Usage
from arena_cli.transcript.events import (
    Compacted,
    Event,
    MessageEvent,
    ReplyFinished,
    SessionEvent,
    import_control_events,
    parse,
    parse_own,
    read_type,
)
from arena_cli.transcript.revisions import NO_REVISIONS, Revisions, find_lines
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.text import lazy_pattern

TRANSCRIPT = "transcript.jsonl"
"""The name of the file in the folder of a session."""

BLOCK = 262_144
TAIL_BLOCK = 65_536

_decoder = json.JSONDecoder()


NULS = "NUL bytes were skipped"
TWO_RECORDS = "two records on one line"


class Problem(NamedTuple):
    """A line that was skipped, or repaired while it was read. `line` counts from 1."""

    line: int
    what: str

    @property
    def is_mended(self) -> bool:
        """True if all events of the line could be read."""
        return self.what in (NULS, TWO_RECORDS)


class TranscriptLine(NamedTuple):
    """The events of one line; `end` is the byte offset after its newline."""

    events: tuple[Event, ...]
    end: int
    problem: Problem | None = None


def read_lines(path: Path, *, start: int = 0) -> Iterator[TranscriptLine]:
    """Yield every whole line from byte `start` on, in order, numbered from there.

    A last line without newline is left out.
    """
    offset = start
    with files.open_binary(path) as file:
        file.seek(start)
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                return
            offset += len(raw)
            events, problem = parsed(raw)
            if _ATTACHED in raw:
                events = _relocate(events, path)
            yield TranscriptLine(events, offset, Problem(number, problem) if problem else None)


def backwards(path: Path, end: int) -> Iterator[bytes]:
    """Yield every line without its newline, backwards from the one that ends at byte `end`."""
    with files.open_binary(path) as file:
        unfinished: list[bytes] = []
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            first, *complete = file.read(end - start).split(b"\n")
            if complete:
                yield from filter(None, [b"".join([complete.pop(), *reversed(unfinished)])])
                yield from filter(None, reversed(complete))
                unfinished = []
            unfinished.append(first)
            end = start
        yield from filter(None, [b"".join(reversed(unfinished))])


def newest_first(path: Path, end: int, types: Container[str]) -> Iterator[Event | bytes]:
    """Yield the events of these types before byte `end`, backwards, and other lines unparsed.

    Lines that arena did not write are parsed regardless of their type.
    """
    for raw in backwards(path, end):
        kind = read_type(raw)
        events = parse_events(raw) if kind is None or kind in types else ()
        if events:
            yield from reversed(_relocate(events, path) if _ATTACHED in raw else events)
        else:
            yield raw


def ends_with_flow(path: Path) -> bool:
    """Return True if a flow ran in a session after its last message."""
    for raw in backwards(path, path.stat().st_size) if path.is_file() else ():
        kind = read_type(raw)
        if kind in ("message", "reply_finished", "flow_started", "flow_finished"):
            return kind.startswith("flow_")
    return False


_ATTACHED = b"/attachments/"


def _relocate(events: Iterable[Event], transcript: Path) -> tuple[Event, ...]:
    """Return the events with the paths of attachments in the folder of their session.

    The lines of a session that was renamed name its former folder.
    """
    session, sessions = transcript.parent, transcript.parent.parent
    if sessions.name != _SESSIONS:
        return tuple(events)
    return tuple(_with_paths(event, f"{_SESSIONS}/{session.name}/") for event in events)


_SESSIONS = "sessions"
_OLD_PLACE = lazy_pattern(rf"{_SESSIONS}/[^/]+/(?=attachments/[^/]+/[^/]+\Z)")


def _with_paths(event: Event, place: str) -> Event:
    own: Sequence[Attachment] = getattr(event, "attachments", ())
    if own and (moved := _move_attachments(own, place)) != own:
        return event.model_copy(update={"attachments": moved})
    if not isinstance(event, (MessageEvent, ReplyFinished)) or event.message is None:
        return event
    message = event.message
    attachments = _move_attachments(message.attachments, place)
    if attachments == message.attachments:
        return event
    message = message.model_copy(update={"attachments": attachments})
    return event.model_copy(update={"message": message})


def _move_attachments(attachments: Sequence[Attachment], place: str) -> list[Attachment]:
    return [
        item.model_copy(update={"path": _OLD_PLACE.sub(lambda _: place, item.path, count=1)})
        if item.path
        else item
        for item in attachments
    ]


def tail(path: Path) -> tuple[bytes, int]:
    """Return the bytes after the last newline, and the offset where they start."""
    with files.open_binary(path) as file:
        end = file.seek(0, os.SEEK_END)
        rest_of_file = b""
        while end > 0:
            start = max(0, end - TAIL_BLOCK)
            file.seek(start)
            block = file.read(end - start)
            cut = block.rfind(b"\n")
            if cut >= 0:
                return block[cut + 1 :] + rest_of_file, start + cut + 1
            rest_of_file = block + rest_of_file
            end = start
        return rest_of_file, 0


def records(raw: bytes) -> tuple[list[dict[str, Any]], str]:
    """Return the JSON objects in one line, and the problem with it ("" if there is none)."""
    text = raw.decode("utf-8", "replace").strip("\x00 \t\r\n")
    problem = NULS if b"\x00" in raw else ""
    try:
        record = json.loads(text)
        return ([record], problem) if isinstance(record, dict) else ([], "not a JSON object")
    except (ValueError, RecursionError):
        objects, position = _objects(text)
    if not objects:
        return [], "empty" if not text else "not JSON"
    if text[position:].strip("\x00 \t"):
        return objects, "the end of the line is not JSON"
    return objects, TWO_RECORDS


def whole_prefix(raw: bytes) -> int:
    """Return the number of bytes at the beginning of a torn line that are whole records."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = raw[: error.start].decode("utf-8")
    objects, position = _objects(text)
    return len(text[:position].encode("utf-8")) if objects else 0


def _objects(text: str) -> tuple[list[dict[str, Any]], int]:
    objects: list[dict[str, Any]] = []
    position = 0
    while position < len(text) and text[position] == "{":
        try:
            record, position = _decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        objects.append(record)
        while position < len(text) and text[position] in " \t\r\x00":
            position += 1
    return objects, position


def parsed(raw: bytes) -> tuple[tuple[Event, ...], str]:
    """Return the events in one line, and the problem with it; unknown types are ignored."""
    own_event = parse_own(raw)
    if own_event is not None:
        return (own_event,), ""
    events: list[Event] = []
    decoded, problem = records(raw)
    for record in decoded:
        try:
            event = parse(record)
        except ValueError as error:
            problem = str(error)
            continue
        if event is not None:
            events.append(event)
    return tuple(events), problem


def parse_events(raw: bytes) -> tuple[Event, ...]:
    """Return the events in one line, ignoring any other content."""
    return parsed(raw)[0]


def last_seq(path: Path) -> int:
    """Return the number of the last readable event; 0 in an empty or missing transcript."""
    try:
        size = path.stat().st_size
        for raw in backwards(path, size):
            numbers = [r["seq"] for r in records(raw)[0] if isinstance(r.get("seq"), int)]
            if numbers:
                return int(max(numbers))
    except FileNotFoundError:
        pass
    return 0


POLL_S = 0.25


def follow(
    path: Path, start: int, *, wait: Callable[[], None], on_cut: Callable[[], None]
) -> Iterator[TranscriptLine]:
    """Yield every whole line from byte `start` on, also later ones, until the file is gone.

    `wait` is called whenever all lines so far were yielded. If the transcript became shorter than
    the part already yielded, or if it was replaced by another file, `on_cut` is called, and lines
    already yielded are not repeated. A torn last line is yielded when it is complete.
    """
    offset, file_id, seen = start, None, None
    last: Event | None = None
    cut = False
    while True:
        try:
            status = path.stat()
            if status.st_size < offset or file_id not in (None, status.st_ino):
                offset, cut = 0, True
                on_cut()
            file_id = status.st_ino
            if (status.st_size, status.st_mtime_ns) != seen:
                for line in read_lines(path, start=offset):
                    offset = line.end
                    events = [event for event in line.events if not cut or _is_new(event, last)]
                    last = events[-1] if events else last
                    yield line._replace(events=tuple(events))
                seen = status.st_size, status.st_mtime_ns
        except FileNotFoundError:
            return
        wait()


def _is_new(event: Event, last: Event | None) -> bool:
    """Return True if an event of a transcript that was cut is not among those before the cut.

    Numbers begin again after the cut, times do not.
    """
    return last is None or event.seq > last.seq or event.ts > last.ts


FORMAT = 4
CHECKED_BYTES = 4_096

# A shorter transcript is folded in a few milliseconds.
WORTH_BYTES = 65_536


def cache_path(transcript: Path) -> Path:
    """Return the path of the cache of that transcript."""
    return transcript.with_name(f"{transcript.stem}.index.json")


def save_fold(transcript: Path, fold: Fold, offset: int) -> None:
    """Save the fold of the first `offset` bytes, if they are many and no chain is open there.

    A disk that refuses the write, or a missing transcript, is no error: it is a cache.
    """
    if fold.open is not None or offset < WORTH_BYTES:
        return
    target = cache_path(transcript)
    temporary = target.with_name(target.name + ".part")
    with contextlib.suppress(OSError):
        record = _record(fold, offset, _is_cache_valid(transcript, offset))
        content = json.dumps(record, ensure_ascii=False).encode("utf-8")
        files.check_no_link(target.parent, below=transcript.parents[2])
        files.write_part(temporary, content, instead_of=target)
        temporary.replace(target)


_NUMBERS = ("seq", "chain", "turn", "reply", "messages", "extracted", "noted")
_PLAIN = (*_NUMBERS, "extracted_upto", "calls", "agent_sessions", "levels", "fits")
_SHAPES: Mapping[str, type[Shape]] = {
    "session": SessionEvent,
    "usage": Usage,
    "summary": Compacted,
    "tried": Compacted,
}


def _record(fold: Fold, offset: int, check: str) -> dict[str, Any]:
    shapes = {name: getattr(fold, name) for name in _SHAPES}
    return {
        "format": FORMAT,
        "offset": offset,
        "check": check,
        **{name: getattr(fold, name) for name in _PLAIN},
        **{name: shape.model_dump() if shape else None for name, shape in shapes.items()},
        "scripted_used": {agent: sorted(used) for agent, used in fold.scripted_used.items()},
        "crowded": sorted(fold.crowded),
        "counts": fold.counts.record(),
        "control": fold.control.record() if fold.control else None,
        "revisions": fold.revisions.record() if fold.revisions else None,
    }


def load(transcript: Path, fold: Fold) -> int:
    """Fill a new fold from the cache; return the byte offset that it covers, 0 for none."""
    try:
        record = json.loads(files.read_regular(cache_path(transcript)).decode("utf-8"))
        offset = int(record["offset"])
        if record["format"] != FORMAT or record["check"] != _is_cache_valid(transcript, offset):
            return 0
        _fill_fold(Fold(), record)  # what is of another shape is to leave nothing behind
        _fill_fold(fold, record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return 0
    return offset


def _fill_fold(fold: Fold, record: dict[str, Any]) -> None:
    for name in _NUMBERS:
        setattr(fold, name, int(record[name]))
    for name, shape in _SHAPES.items():
        setattr(fold, name, record[name] and shape.model_validate(record[name]))
    used = record["scripted_used"].items()
    fold.scripted_used = {str(agent): set(entries) for agent, entries in used}
    own_sessions = record["agent_sessions"].items()
    fold.agent_sessions = {str(agent): dict(own_session) for agent, own_session in own_sessions}
    fold.calls = {str(agent): int(count) for agent, count in record["calls"].items()}
    fold.fits = {str(agent): int(tokens) for agent, tokens in record["fits"].items()}
    fold.levels = {str(agent): str(level) for agent, level in record["levels"].items()}
    fold.crowded = {str(agent) for agent in record["crowded"]}
    fold.extracted_upto = str(record["extracted_upto"])
    fold.counts.restore(record["counts"])
    if record["control"]:
        fold.control = import_control_events().SessionControl.restore(record["control"])
    if record["revisions"]:
        fold.revisions = Revisions.restore(record["revisions"])


def _is_cache_valid(transcript: Path, offset: int) -> str:
    """Return a hash of the last bytes before `offset`; it differs if the file is shorter."""
    with files.open_binary(transcript) as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, offset - CHECKED_BYTES)
        file.seek(start)
        block = file.read(offset - start)
    return hashlib.sha256(f"{min(size, offset)}:".encode() + block).hexdigest()


def read_revisions(path: Path, start: int = 0, before: int | None = None) -> Revisions:
    """Return the rewinds and corrections from byte `start` on, before the event `before`."""
    revisions = Revisions()
    for raw in find_lines(path, start):
        for event in parse_events(raw):
            if before is None or event.seq < before:
                revisions.add(event)
    return revisions


# All that old messages are read from.
TELLING = frozenset({"message", "reply_finished"})


def load_fold(
    path: Path,
    *,
    on_message: Callable[[Message], None],
    weigh: Callable[[Message], int],
    budget: int,
    least: int = 0,
    on_problem: Callable[[Problem], None] = lambda _: None,
    keep: bool = True,
) -> Fold:
    """Return the fold of a transcript; call `on_message` for its newest messages, in order.

    They go back until their sizes by `weigh` add up to at least `budget` tokens, and until there
    are at least `least` of them, if there are that many. `on_problem` is called for skipped lines,
    if the whole transcript is read. A missing transcript folds to nothing. `keep` writes the cache.
    """
    fold = Fold(on_message)
    if not path.exists():
        return fold
    offset = load(path, fold)
    revisions = read_revisions(path, offset)
    if revisions and offset:  # they change what the cache was made of
        fold, offset = Fold(on_message), 0
        revisions = read_revisions(path)
    if offset:
        past = fold.revisions or NO_REVISIONS
        for message in newest_messages(path, offset, weigh, budget, least, past):
            on_message(message)
    end = offset
    for line in read_lines(path, start=offset):
        end = line.end
        if line.problem and not offset:
            on_problem(line.problem)
        for event in line.events:
            fold.read(event, revisions)
    fold.seq = max(fold.seq, last_seq(path))
    if keep and end > offset:
        save_fold(path, fold, end)
    return fold


def newest_messages(
    path: Path,
    end: int,
    weigh: Callable[[Message], int],
    budget: int,
    least: int = 0,
    revisions: Revisions = NO_REVISIONS,
) -> list[Message]:
    """Return the messages before byte `end` that a window may show, from a chain's start on.

    There are at least `least` of them, if there are that many.
    """
    newest: list[MessageEvent | ReplyFinished | bytes] = []
    weight = count = 0
    for event in newest_first(path, end, TELLING):
        if isinstance(event, bytes) and read_type(event) in _BOUNDS:
            newest.append(event)
        if not isinstance(event, (MessageEvent, ReplyFinished)):
            continue
        if revisions and revisions.is_skipped(event.seq):
            continue
        shown = revisions.correct(event) if revisions else event
        newest.append(shown)
        if shown.message is None:
            continue
        count += 1
        weight += weigh(shown.message)
        begins = isinstance(event, MessageEvent) and event.chain is not None
        if begins and weight >= budget and count >= least:
            break
    return _in_order_shown(reversed(newest))


_PHASE_ENDS = frozenset({"candidates", "turn_finished", "chain_finished"})
_BOUNDS = _PHASE_ENDS | {"turn_started", "reply_started"}
_SEQUENCE = b'"order":"sequence"'


def _in_order_shown(events: Iterable[MessageEvent | ReplyFinished | bytes]) -> list[Message]:
    """Return the messages in the order of a `Fold`, which shows those of a phase at its end.

    There are lines that begin a turn or a reply, or end a phase, among them. Replies are numbered
    in the order of call.
    """
    messages: list[Message] = []
    phase: list[ReplyFinished] = []
    held: list[Message] = []
    is_sequence = is_replying = False
    for event in events:
        if isinstance(event, MessageEvent):
            is_replying = is_replying and event.chain is None
            (held if is_replying else messages).append(event.message)
            continue
        if isinstance(event, ReplyFinished):
            phase.append(event)
            is_over = is_sequence and event.phase == "A"
        else:
            kind = read_type(event)
            is_sequence = _SEQUENCE in event if kind == "turn_started" else is_sequence
            is_replying = kind == "reply_started" or (is_replying and kind == "candidates")
            is_over = kind in _PHASE_ENDS
        if is_over:
            messages += [*_list_messages(phase), *held]
            phase.clear()
            held.clear()
    return [*messages, *_list_messages(phase), *held]


def _list_messages(phase: Iterable[ReplyFinished]) -> list[Message]:
    replies = sorted(phase, key=lambda event: event.reply)
    return [event.message for event in replies if event.message is not None]
