"""Read every line of a session for `arena doctor`, to find broken, missing and open parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from arena_cli.protocol import Attachment
from arena_cli.session import session, shelves
from arena_cli.session.shelves import Shelf
from arena_cli.session.store import Stored
from arena_cli.transcript import reader
from arena_cli.transcript.events import (
    Event,
    MessageEvent,
    ReplyFinished,
    SideEvent,
    find_type,
    read_type,
)
from arena_cli.transcript.reader import Problem, TranscriptLine
from arena_cli.transcript.revisions import find_lines
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.text import escape_line


@dataclass
class Examined:
    """The counts, the remarks (`notes`), and the `problems`, each with its place."""

    lines: int = 0
    events: int = 0
    chains: int = 0
    replies: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def examine(transcript: Path, workspace: Path) -> Examined:
    """Read a whole transcript, the attachments that it names, and its notes. Writes nothing."""
    examined = Examined()
    fold = Fold()
    revisions = reader.read_revisions(transcript)
    end = unread = 0
    for line in reader.read_lines(transcript):
        examined.lines += 1
        end = line.end
        location = f"{transcript}:{examined.lines}"
        if line.problem:
            examined.problems.append(f"{location}: {line.problem.what}")
        loses = _loses_an_event(line)
        unread += loses
        for event in line.events:
            examined.events += 1
            problem = _out_of_step(event.seq, fold.seq, unread)
            if problem:
                examined.problems.append(f"{location}: {problem}")
            # What earlier lines lost stood before this event.
            gap = event.seq - fold.seq - 1
            unread = min(loses, max(0, unread - gap))
            fold.read(event, revisions)
            examined.problems.extend(_attachments(event, location, workspace))
    examined.chains, examined.replies = fold.chain, fold.reply
    tail_bytes = transcript.stat().st_size - end
    if tail_bytes:
        examined.problems.append(
            f"{transcript}:{examined.lines + 1}: the last {tail_bytes} bytes are not a whole line; "
            "the next `arena send` or `arena resume` sets them aside"
        )
    if fold.open:
        examined.notes.append(
            f"chain {fold.open.number} was cut short: `arena resume {transcript.parent.name}`"
        )
    if reader.cache_path(transcript).exists() and not reader.load(transcript, Fold()):
        examined.notes.append("the cache does not match and is not used")
    _examine_notes(examined, transcript, workspace)
    for torn in sorted(transcript.parent.glob(f"{transcript.stem}.torn-*")):
        examined.notes.append(f"set aside earlier: {torn.name}")
    for rescued in sorted(transcript.parent.glob(f"{transcript.stem}.rescued-*")):
        examined.notes.append(f"rescued earlier from a transcript that was lost: {rescued.name}")
    return examined


def _examine_notes(examined: Examined, transcript: Path, workspace: Path) -> None:
    stored = Stored(transcript.parent.name, transcript.parent, 0.0)
    shelf = Shelf(session.own_notes(transcript.parent, workspace), stored)
    notes, problems = shelves.list_notes(shelf)
    examined.problems += [str(fault) for fault in problems]
    examined.notes += [f"{note.file}: {note.approval}" for note in notes if note.approval]
    if shelf.is_unfinished:
        command = f"arena knowledge list --session {stored.name}"
        examined.notes.append(f"a change of its notes was not finished: `{command}` finishes it")


def _loses_an_event(line: TranscriptLine) -> bool:
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


def _attachments(event: Event, location: str, workspace: Path) -> list[str]:
    message = event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
    is_planted = isinstance(event, MessageEvent) and event.planted
    attachments = message.attachments if message else getattr(event, "attachments", ())
    faults = []
    for attachment in attachments:
        if attachment.path is None and is_planted:
            continue  # it was gone already, and agents are told so
        fault = _fault(attachment, workspace)
        if fault:
            faults.append(f"{location}: attachment {escape_line(attachment.name)}: {fault}")
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
        return f"{path} differs from the attached file"
    return ""


_STEPS = frozenset(
    {"session", "turn_started", "reply_started", "reply_finished", "chain_finished", "budget"}
)


@cache
def _tells_spending(kind: str) -> bool:
    """Return True for a step of a conversation, and for events that report a call of an agent."""
    shape = find_type(kind)
    reports_call = (
        shape is not None
        and issubclass(shape, SideEvent)
        and shape.agent_call is not SideEvent.agent_call
    )
    return kind in _STEPS or reports_call


_FORKED = re.compile(rb'"type":\s*"forked"')


def spending(transcript: Path, on_problem: Callable[[Problem], None]) -> Iterator[Event]:
    """Yield the events that tell spending, in order; call `on_problem` for each unreadable line.

    What a fork shares was spent in the other session. A last line without its end is still being
    written, and is left out. Raises OSError.
    """
    forks = [
        event.seq
        for raw in find_lines(transcript, pattern=_FORKED)
        for event in reader.parse_events(raw)
        if event.type == "forked"
    ]
    shared = max(forks, default=0)
    with files.open_binary(transcript) as file:
        for number, raw in enumerate(file, 1):
            kind = read_type(raw)
            if (kind is not None and not _tells_spending(kind)) or not raw.endswith(b"\n"):
                continue
            events, problem = reader.parsed(raw)
            if problem:
                on_problem(Problem(number, problem))
            for event in events:
                is_own = event.seq > shared and _tells_spending(event.type)
                if event.type == "session" or is_own:
                    yield event
