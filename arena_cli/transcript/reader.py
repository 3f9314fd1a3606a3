"""Read a transcript: forwards from any line, backwards from the end, past broken lines.

Records end at byte 0x0A only. A line that cannot be read is skipped and reported with its number;
two records on one line are both read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.transcript.events import Event, parse, parse_own, read_type
from arena_cli.util import files

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
            yield from reversed(events)
        else:
            yield raw


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
