"""Reading every line of a session for `arena doctor`: what is broken, missing or still open."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arena_cli.protocol import Attachment
from arena_cli.session import session, shelves
from arena_cli.session.shelves import Shelf
from arena_cli.session.store import Stored
from arena_cli.transcript import cache, reader
from arena_cli.transcript.events import Event, MessageEvent, ReplyFinished, type_of
from arena_cli.transcript.reader import Line, Problem
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.text import escape_line


@dataclass
class Examined:
    """Counts, `notes` that are no fault, and `problems`, each with its place."""

    lines: int = 0
    events: int = 0
    chains: int = 0
    replies: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def examine(transcript: Path, workspace: Path) -> Examined:
    """Read a whole transcript, the attachments that it names, and its notes. Writes nothing."""
    found = Examined()
    fold = Fold()
    end = unread = 0
    for line in reader.lines(transcript):
        found.lines += 1
        end = line.end
        place = f"{transcript}:{found.lines}"
        if line.problem:
            found.problems.append(f"{place}: {line.problem.what}")
        loses = _loses_an_event(line)
        unread += loses
        for event in line.events:
            found.events += 1
            what = _out_of_step(event.seq, fold.seq, unread)
            if what:
                found.problems.append(f"{place}: {what}")
            # What earlier lines lost stood before this event.
            gap = event.seq - fold.seq - 1
            unread = min(loses, max(0, unread - gap))
            fold.apply(event)
            found.problems.extend(_attachments(event, place, workspace))
    found.chains, found.replies = fold.chain, fold.reply
    rest = transcript.stat().st_size - end
    if rest:
        found.problems.append(
            f"{transcript}:{found.lines + 1}: the last {rest} bytes are not a whole line; "
            "the next `arena send` or `arena resume` sets them aside"
        )
    if fold.open:
        found.notes.append(
            f"chain {fold.open.number} was cut short: `arena resume {transcript.parent.name}`"
        )
    if cache.path_of(transcript).exists() and not cache.load(transcript, Fold()):
        found.notes.append("the cache does not match and is not used")
    _examine_notes(found, transcript, workspace)
    for torn in sorted(transcript.parent.glob(f"{transcript.stem}.torn-*")):
        found.notes.append(f"set aside earlier: {torn.name}")
    for rescued in sorted(transcript.parent.glob(f"{transcript.stem}.rescued-*")):
        found.notes.append(f"rescued earlier from a transcript that was lost: {rescued.name}")
    return found


def _examine_notes(found: Examined, transcript: Path, workspace: Path) -> None:
    stored = Stored(transcript.parent.name, transcript.parent, 0.0)
    own = Shelf(session.own_notes(transcript.parent, workspace), stored)
    notes, problems = shelves.list_notes(own)
    found.problems += [str(fault) for fault in problems]
    found.notes += [f"{note.file}: {note.approval}" for note in notes if note.approval]
    if own.is_unfinished:
        command = f"arena knowledge list --session {stored.name}"
        found.notes.append(f"something was begun with its notes and not ended: `{command}` ends it")


def _loses_an_event(line: Line) -> bool:
    """Return True if a line's number belongs to an unreadable event, or to a later version."""
    return not line.problem.is_mended if line.problem else not line.events


def _out_of_step(seq: int, last: int, unread: int) -> str:
    """Describe the wrong number of an event after `last`, with `unread` lines between."""
    if seq <= last:
        return f"event {seq} after event {last}"
    missing = seq - last - 1 - unread
    if missing <= 0:
        return ""
    if unread:
        return f"events are missing between event {last} and event {seq}"
    gone = f"event {last + 1} is" if missing == 1 else f"events {last + 1} to {seq - 1} are"
    return f"{gone} missing"


def _attachments(event: Event, place: str, workspace: Path) -> list[str]:
    message = event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
    is_planted = isinstance(event, MessageEvent) and event.planted
    faults = []
    for attachment in message.attachments if message else ():
        if attachment.path is None and is_planted:
            continue  # it was gone already, and agents are told so
        fault = _fault(attachment, workspace)
        if fault:
            faults.append(f"{place}: attachment {escape_line(attachment.name)}: {fault}")
    return faults


def _fault(attachment: Attachment, workspace: Path) -> str:
    if attachment.path is None:
        return "it names no file"
    path = workspace / attachment.path
    try:
        content = files.read_regular(path)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    if hashlib.sha256(content).hexdigest() != attachment.sha256:
        return f"{path} is not what was attached"
    return ""


TYPES = frozenset({"session", "reply_started", "reply_finished", "compacted", "extracted"})


def spending(transcript: Path, on_problem: Callable[[Problem], None]) -> Iterator[Event]:
    """The events of these types, in order; `on_problem` is told of lines that cannot be read.

    A last line without its end is being written, and left out. Raises OSError.
    """
    with files.open_binary(transcript) as file:
        for number, raw in enumerate(file, 1):
            kind = type_of(raw)
            if (kind is not None and kind not in TYPES) or not raw.endswith(b"\n"):
                continue
            found, what = reader.parsed(raw)
            if what:
                on_problem(Problem(number, what))
            yield from (event for event in found if event.type in TYPES)
