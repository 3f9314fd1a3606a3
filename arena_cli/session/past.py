"""Go back to an earlier state of a session, or let another session continue from there.

`find_point` reads where that is: after a whole turn. A fork copies the transcript up to there, line
by line, with the attachments and notes of that time; it only reads the other session. A rewind
appends one event, which marks the events after that point as skipped (`transcript.revisions`).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.adapters.base import SessionConfig
from arena_cli.engine import loop
from arena_cli.engine.past import is_within_turn
from arena_cli.errors import SessionBusy, UsageError
from arena_cli.notes import markdown
from arena_cli.notes.listing import SUFFIX
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import Note
from arena_cli.notes.store import Folder, NoSuchNote
from arena_cli.protocol import parse_seq
from arena_cli.session import end_of_life, shelves, store
from arena_cli.session.end_of_life import ArchivedSession
from arena_cli.session.notes import Keeper
from arena_cli.session.session import KNOWLEDGE, own_notes
from arena_cli.session.store import Stored
from arena_cli.transcript import queries, reader
from arena_cli.transcript.control_events import Checkpoint, Forked, Rewound
from arena_cli.transcript.events import (
    ChainFinished,
    NoteEvent,
    SessionEvent,
    encode_line,
    read_type,
)
from arena_cli.transcript.log import Journal
from arena_cli.transcript.revisions import find_lines
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_line

ATTACHMENTS = "attachments"
_CHECKPOINT = re.compile(rb'"type":\s*"checkpoint"')
_WAIT_S = 2.0  # for a command that only holds the session for a moment


class MarkedPoint(NamedTuple):
    """A checkpoint of a session; `is_skipped`: a rewind went back to before it."""

    event: Checkpoint
    is_skipped: bool


def list_checkpoints(transcript: Path) -> list[MarkedPoint]:
    """Return the checkpoints of a session, oldest first."""
    revisions = reader.read_revisions(transcript)
    return [
        MarkedPoint(event, revisions.is_skipped(event.at))
        for raw in find_lines(transcript, pattern=_CHECKPOINT)
        for event in reader.parse_events(raw)
        if isinstance(event, Checkpoint)
    ]


class Point(NamedTuple):
    """A place in a session: the state after the event `at`, which follows a whole turn.

    `requested` is the event that was asked for; if it is within the turn `turn`, that turn is left
    out. `ts` is the time of the event.
    """

    requested: int
    at: int
    turn: int | None
    ts: str


def find_point(stored: Stored, name: str) -> Point:
    """Return the place with that label, or of that event. Raises UsageError."""
    transcript = stored.transcript
    requested = _find_seq(stored, name)
    revisions = reader.read_revisions(transcript, before=requested + 1)
    fold, ts = Fold(), ""
    for line in reader.read_lines(transcript):
        for event in line.events:
            if event.seq <= requested:
                fold.read(event, revisions)
                ts = event.ts
        if fold.seq >= requested:
            break
    chain = fold.open
    if chain is None or not is_within_turn(chain):
        return Point(requested, requested, None, ts)
    started = chain.turns[-1].started
    return Point(requested, started.seq - 1, started.turn, ts)


def _find_seq(stored: Stored, name: str) -> int:
    session = escape_line(stored.name)
    checkpoints = list_checkpoints(stored.transcript)
    for checkpoint in checkpoints:
        if checkpoint.event.label == name:
            return checkpoint.event.at
    if not (name.isascii() and name.isdigit()):
        labels = ", ".join(escape_line(checkpoint.event.label) for checkpoint in checkpoints)
        raise UsageError(
            f"session {session} has no checkpoint {escape_line(name)!r}",
            f"Its checkpoints: {labels}."
            if labels
            else "Give the number of an event, or make one "
            f"for the present state: `arena checkpoint {session} --label LABEL`.",
        )
    seq, last = int(name), reader.last_seq(stored.transcript)
    if not 1 <= seq <= last:
        raise UsageError(
            f"session {session} has no event {name}",
            f"Its events are 1 to {last}." if last else "It has no event yet.",
        )
    return seq


class Rewind(NamedTuple):
    """What a rewind did: the skipped events, first and last, and the chains it closed.

    `archived` are the notes that were archived; `approved` were made in the skipped part too, but a
    person approved them; `changed` are older notes that were changed in it.
    """

    point: Point
    first: int
    last: int
    closed: list[int]
    archived: list[str]
    approved: list[str]
    changed: list[str]


def rewind(
    config: SessionConfig,
    stored: Stored,
    name: str,
    by: str,
    *,
    redactor: Redactor,
    on_problem: Callable[[str], None] = lambda _: None,
) -> Rewind:
    """Go back to a label or event. Raises UsageError, SessionBusy or DiskRefused."""
    with _hold(stored):
        point = _check_visible(stored, find_point(stored, name))
        closed, last = _write_rewind(config, stored, point, by)
    shelf = shelves.open_shelf(config.workspace, stored)
    added, changed = _list_acts(shelves.history(shelf), point.at, last)
    notes = {note.id: note for note in shelves.list_notes(shelf)[0] if note.id in added}
    approved = [name for name, note in notes.items() if note.status == "approved"]
    archived = [name for name, note in notes.items() if note.status in ("draft", "pending_user")]
    if archived:
        keeper = Keeper(config, shelf, by, redactor=redactor, on_problem=on_problem)
        with contextlib.closing(keeper):
            for note_id in archived:
                keeper.step(note_id, "archive", f"rewound to event {point.at}")
    return Rewind(point, point.at + 1, last, closed, archived, approved, changed)


def _list_acts(acts: Sequence[NoteEvent], after: int, upto: int) -> tuple[set[str], list[str]]:
    """Return the notes that were added in a part of the session, and the others changed in it."""
    part = [event for event in acts if after < event.seq <= upto and event.note]
    added = {event.note for event in part if event.act == "added"}
    changed = dict.fromkeys(event.note for event in part if event.note not in added)
    return added, list(changed)


@contextlib.contextmanager
def _hold(stored: Stored) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(store.hold(stored.folder, f"session {stored.name}", wait_s=_WAIT_S))
        except SessionBusy as error:
            name = escape_line(stored.name)
            raise SessionBusy(
                f"session {name} is in use by another process: it cannot go back now",
                f"Pause or cancel its chain first: `arena pause {name}` or `arena cancel {name}`.",
            ) from error
        yield


def _check_visible(stored: Stored, point: Point) -> Point:
    """Check that agents are shown the state at a point, and that something follows it."""
    session = escape_line(stored.name)
    span = reader.read_revisions(stored.transcript).find_span(point.requested)
    if span is not None:
        raise UsageError(
            f"event {point.requested} of session {session} was skipped by the rewind at event "
            f"{span.before}",
            f"Continue from it in another session: `arena fork {session} --at {point.requested}`.",
        )
    if point.at >= reader.last_seq(stored.transcript):
        raise UsageError(
            f"event {point.at} is the last of session {session}: there is nothing to go back from",
            "Give an earlier event, or the label of a checkpoint.",
        )
    return point


def _write_rewind(
    config: SessionConfig, stored: Stored, point: Point, by: str
) -> tuple[list[int], int]:
    """Append the events of a rewind; return the chains that they close, and the last skipped event.

    A chain that is open is closed before it, as people see it then; one that is open at the point
    is closed after it.
    """
    transcript = stored.transcript
    closed: list[int] = []
    with store.open_journal(config, transcript) as journal:
        opened = journal.log
        if journal.fold.open is not None:
            closed.append(_interrupt(journal))
        last = opened.seq
        journal.write(Rewound, to=point.at, by=by, last=last)
        rewound = Journal(opened, store.load_state(transcript), lambda _: None)
        if rewound.fold.open is not None:
            closed.append(_interrupt(rewound))
        opened.sync()
        reader.save_fold(transcript, rewound.fold, opened.size)
    return list(dict.fromkeys(closed)), last


def _interrupt(journal: Journal) -> int:
    finished: ChainFinished = loop.finish_chain("interrupted", (), journal)
    return finished.chain


class Fork(NamedTuple):
    """A new session: its name, its past, and what differs from that time.

    `closed` is the chain that was open then. `newer` is the number of notes that were made later
    and are left out; `changed` are the notes that have a later text.
    """

    name: str
    source: str
    point: Point
    closed: int | None
    newer: int
    changed: list[str]


def fork(config: SessionConfig, name: str, at: str, new_name: str | None) -> Fork:
    """Make a session that shares the past of another one, also of an archived one.

    Raises UsageError, SessionBusy or DiskRefused; then there is no new session.
    """
    if new_name is not None:
        new_name = store.checked(new_name)
    with contextlib.ExitStack() as held:
        stored = _find_source(config, name, held)
        point = find_point(stored, at)
        home = held.enter_context(end_of_life.hold_archives(config))
        new_name = new_name or _choose_name(config)
        end_of_life.check_unused(config.workspace, new_name)
        part = home / f"{end_of_life.PART}{os.getpid()}"
        part.mkdir(files.FOLDER_MODE)
        _copy_transcript(stored.transcript, part / store.TRANSCRIPT, point.at, new_name)
        _copy_attachments(stored.folder, part, point.at)
        newer, changed = _copy_notes(stored, part, point)
        closed = _open_fork(config, part / store.TRANSCRIPT, stored.name, point.at)
        folder = store.sessions_folder(config.workspace) / new_name
        part.rename(folder)
        files.sync_folders([folder, folder.parent])
        return Fork(new_name, stored.name, point, closed, newer, changed)


def _find_source(config: SessionConfig, name: str, held: contextlib.ExitStack) -> Stored:
    """Return the session to read: from a temporary folder if it is archived."""
    path = store.find_archive(config.workspace, store.checked(name))
    if path is None or end_of_life.is_session(config.workspace, store.checked(name)):
        return store.find(config.workspace, name)
    archived = ArchivedSession(path.name.removesuffix(store.ARCHIVE_SUFFIX), path)
    folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
    return end_of_life.read_archived(archived, folder, only=None)


def _choose_name(config: SessionConfig) -> str:
    sessions = store.sessions_folder(config.workspace)
    while True:
        name = store.automatic(config.clock)
        if not (sessions / name).exists():
            return name


def _copy_transcript(source: Path, target: Path, at: int, name: str) -> None:
    """Copy the lines up to that event as they are; `session` events name the new session."""
    left = queries.offset_after(source, at)
    with files.open_binary(source) as lines, target.open("xb") as copy:
        for raw in lines:
            left -= len(raw)
            if left < 0:
                break
            copy.write(_rename(raw, name) if read_type(raw) in (None, "session") else raw)
        copy.flush()
        os.fsync(copy.fileno())


def _rename(raw: bytes, name: str) -> bytes:
    """Return a line whose `session` events name the new session, which no scenario plays."""
    events = reader.parse_events(raw)
    if not any(isinstance(event, SessionEvent) for event in events):
        return raw
    named = {"session": name, "scenario": None}
    return b"".join(
        encode_line(event.model_copy(update=named) if isinstance(event, SessionEvent) else event)
        for event in events
    )


def _copy_attachments(source: Path, target: Path, at: int) -> None:
    """Copy the attachments of the messages up to that event."""
    folder = source / ATTACHMENTS
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not 0 < parse_seq(entry.name) <= at or files.is_link(entry):
            continue
        for path in sorted(entry.iterdir()):
            if not files.is_link(path) and path.is_file():
                _write(target / ATTACHMENTS / entry.name / path.name, files.read_regular(path))


def _write(path: Path, content: bytes) -> None:
    below = path.parents[2]
    files.make_own_folder(path.parent, below=below)
    files.write_file(path, content, below=below, is_new=True, sync=True)


def _copy_notes(stored: Stored, target: Path, point: Point) -> tuple[int, list[str]]:
    """Copy the notes that existed at a point, with the status that they had.

    Return the number of those that were made later, and the ids of those whose text is a later one.
    """
    folder: Folder = own_notes(stored.folder, stored.folder.parents[1])
    shelf = shelves.Shelf(folder, stored)
    acts: dict[str, list[NoteEvent]] = {}
    for event in shelves.history(shelf):
        acts.setdefault(event.note, []).append(event)
    newer, changed = 0, []
    for entry in folder.entries():
        with contextlib.suppress(NoteFault, NoSuchNote):
            text, note = folder.whole(entry.id), folder.read(entry.id)
            own = acts.get(entry.id, ())
            if _is_newer(note, own, point):
                newer += 1
                continue
            earlier = [act for act in own if act.seq <= point.at]
            later = own[len(earlier) :]
            if earlier and later and earlier[-1].status != note.status:
                text = _restore_status(text, earlier[-1].status)
            if any(event.act in ("edited", "changed", "seen") for event in later):
                changed.append(entry.id)
            path = target / KNOWLEDGE / f"{entry.id}{SUFFIX}"
            _write(path, text.encode("utf-8"))
    return newer, changed


def _is_newer(note: Note, acts: Sequence[NoteEvent], point: Point) -> bool:
    """Return True if a note was made after a point; its acts, in order, or its time tell."""
    if acts:
        return acts[0].seq > point.at
    return bool(note.created and note.created > point.ts)


def _restore_status(text: str, status: str) -> str:
    """Return the text of a note with an earlier status."""
    fields = {"status": status, "superseded_by": ""}
    if status != "approved":
        fields |= {"approved_by": "", "approved_at": ""}
    return markdown.changed(text, **fields)


def _open_fork(config: SessionConfig, transcript: Path, source: str, at: int) -> int | None:
    """Append where the session comes from; close the chain that was open there."""
    with store.open_journal(config, transcript) as journal:
        journal.write(Forked, session=source, at=at)
        closed = _interrupt(journal) if journal.fold.open is not None else None
        journal.log.sync()
    return closed
