"""Open notes in one place, of a session or shared, and their index; find one by its name."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import NamedTuple

from arena_cli import errors
from arena_cli.errors import Fault, UsageError
from arena_cli.notes import db, ingest, model, staging
from arena_cli.notes.index import Index
from arena_cli.notes.ingest import OnProgress
from arena_cli.notes.listing import SUFFIX
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import Kind, Note
from arena_cli.notes.staging import Approvals
from arena_cli.notes.store import Folder, NoSuchNote
from arena_cli.notes.text import Stems
from arena_cli.session import store
from arena_cli.session.session import KNOWLEDGE, own_notes, shared_notes
from arena_cli.session.store import Stored
from arena_cli.transcript import reader
from arena_cli.transcript.events import NoteEvent, read_type
from arena_cli.util import clock, files
from arena_cli.util.text import escape_line
from arena_cli.workspace.models import Embedding

_INDEX = ".knowledge.sqlite"


class Shelf(NamedTuple):
    """Notes in one place: those of a session, or the shared ones, which have no session."""

    folder: Folder
    stored: Stored | None

    @property
    def trail(self) -> Path:
        """The file with the acts on its notes; it may not exist yet."""
        return self.stored.transcript if self.stored else store.trail_path(self.folder)

    @property
    def is_unfinished(self) -> bool:
        """True if an act on its notes was begun and not ended."""
        return staging.path_of(self.trail).is_file()

    @property
    def name(self) -> str:
        """The name of the whole set of notes."""
        return f"session {self.stored.name}" if self.stored else "the shared notes"


def open_shelf(workspace: Path, stored: Stored | None) -> Shelf:
    """Return the notes of a session, or the shared ones."""
    if stored is None:
        return Shelf(shared_notes(workspace), None)
    return Shelf(own_notes(stored.folder, workspace), stored)


def list_notes(shelf: Shelf) -> tuple[list[Note], list[Fault]]:
    """Read all its files: return its notes sorted by id, and the errors in unreadable ones."""
    notes: list[Note] = []
    entries = shelf.folder.entries()
    problems = list(shelf.folder.problems)
    for entry in entries:
        with contextlib.suppress(NoSuchNote):
            try:
                notes.append(shelf.folder.read(entry.id))
            except NoteFault as error:
                problems += error.faults
    if any(note.status == "approved" for note in notes):
        approved = read_shelf_approvals(shelf)
        notes = [staging.judge(note, approved) for note in notes]
    return notes, problems


class VectorSource(NamedTuple):
    """Where vectors of notes come from: nowhere without an `embedding`; see `Index`."""

    embedding: Embedding | None = None
    environ: Mapping[str, str] | None = None
    connects: bool = False


NO_VECTORS = VectorSource()


def find_note(shelf: Shelf, id: str) -> Note:
    """Return a note with its present status. Raises NoteFault or NoSuchNote."""
    note = shelf.folder.read(id)
    return staging.judge(note, read_shelf_approvals(shelf)) if note.status == "approved" else note


def read_shelf_approvals(shelf: Shelf) -> Approvals:
    """Return the texts of its notes that were approved."""
    return store.follow(shelf.trail).approved


def history(shelf: Shelf, *, kind: Kind | None = None) -> list[NoteEvent]:
    """Return the acts on its notes, oldest first; lines that cannot be read are skipped.

    With `kind`, only those on notes of that kind.
    """
    try:
        size = shelf.trail.stat().st_size
    except FileNotFoundError:
        return []
    wanted = b"" if kind is None else b'"kind":"%s"' % kind.encode()
    acts: list[NoteEvent] = []
    for raw in reader.backwards(shelf.trail, size):
        line_type = read_type(raw)
        if line_type is None or (line_type == "note" and wanted in raw):
            events = [event for event in reader.parse_events(raw) if isinstance(event, NoteEvent)]
            acts += (event for event in reversed(events) if kind in (None, event.kind))
    return acts[::-1]


def history_with_changes(shelf: Shelf) -> list[NoteEvent]:
    """Return the history, then the approved notes that were changed since and not approved again.

    The trail has no event for those: they have the number 0, and the time of the file.
    """
    with contextlib.closing(open_index([shelf.folder])) as index:
        changed = [
            note for note in index.notes_in(shelf.folder) if note.approval == staging.CHANGED
        ]
    return [*history(shelf), *(_changed(note, shelf.folder.workspace) for note in changed)]


def _changed(note: Note, workspace: Path) -> NoteEvent:
    time = ""
    with contextlib.suppress(OSError):
        time = clock.format_timestamp(
            datetime.fromtimestamp((workspace / note.file).stat().st_mtime, UTC)
        )
    return NoteEvent(
        seq=0,
        ts=time,
        note=note.id,
        act="changed",
        by="",
        kind=note.kind,
        title=note.title,
        status=note.status,
        reason=note.approval,
    )


_MOST_NAMED = 5


class NoteReference(NamedTuple):
    """A note by its id, and the shelf that it is on."""

    shelf: Shelf
    id: str


def find(name: str, among: Sequence[Shelf], root: Path, here: Path) -> NoteReference:
    """Return the note of that name, or at that path from `here` or `root`, the workspace.

    Raises UsageError, with the nearest names, if there is none or more than one.
    """
    by_path = _by_path(name, root, here) if name.endswith(SUFFIX) else None
    if by_path is not None:
        return by_path
    candidates = [
        NoteReference(shelf, entry.id) for shelf in among for entry in shelf.folder.entries()
    ]
    matches = _match_name(name, candidates)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(name, matches)
    scope = " or ".join(shelf.name for shelf in among)
    near = errors.find_nearest(name, [candidate.id for candidate in candidates])
    mend = f"did you mean `{escape_line(near)}`?" if near else "`arena knowledge list` lists them"
    raise UsageError(f"there is no note {escape_line(name)} in {escape_line(scope)}", mend)


def _match_name(name: str, candidates: Sequence[NoteReference]) -> list[NoteReference]:
    """Return the notes of exactly that name; else those alike; else those that begin with it."""
    folded = model.folded(name.removesuffix(SUFFIX))
    exact = [candidate for candidate in candidates if candidate.id == name]
    alike = [candidate for candidate in candidates if model.folded(candidate.id) == folded]
    begins = [candidate for candidate in candidates if folded and _begins(candidate.id, folded)]
    return exact or alike or begins


def _ambiguous(name: str, matches: Sequence[NoteReference]) -> UsageError:
    ids = ", ".join(escape_line(match.id) for match in matches[:_MOST_NAMED])
    more = len(matches) - _MOST_NAMED
    omitted = f", and {more} more" if more > 0 else ""
    return UsageError(f"{escape_line(name)} is ambiguous: {ids}{omitted}", "Name one of them.")


def _begins(id: str, prefix: str) -> bool:
    folded = model.folded(id)
    return folded.startswith(prefix) or folded.rpartition("/")[2].startswith(prefix)


def _by_path(name: str, root: Path, here: Path) -> NoteReference | None:
    """Return the note whose file is at that path in the workspace; None if there is no file."""
    for start in (here, root):
        path = start / name
        try:
            if not path.is_file():
                continue
        except OSError:  # no file has so long a name
            continue
        for candidate in (path.absolute(), path.resolve()):
            with contextlib.suppress(ValueError):
                reference = _at(candidate.relative_to(root.resolve()), root)
                if reference:
                    return reference
        raise UsageError(
            f"{escape_line(name)} is not a note of this workspace",
            "Notes are in sessions/SESSION/knowledge and in sessions/knowledge.",
        )
    return None


def _at(path: PurePath, root: Path) -> NoteReference | None:
    match path.parts:
        case ("sessions", folder, _, *_, _) if folder == KNOWLEDGE:
            shelf = open_shelf(root, None)
            return _on(shelf, "/".join(path.parts[2:]).removesuffix(SUFFIX))
        case ("sessions", session, folder, file) if folder == KNOWLEDGE:
            shelf = open_shelf(root, store.find(root, session))
            return _on(shelf, file.removesuffix(SUFFIX))
    return None


def _on(shelf: Shelf, id: str) -> NoteReference | None:
    ids = [entry.id for entry in shelf.folder.entries()]
    alike = [other for other in ids if model.folded(other) == model.folded(id)]
    return NoteReference(shelf, id if id in ids else alike[0]) if alike else None


def open_index(
    folders: Sequence[Folder],
    vectors: VectorSource = NO_VECTORS,
    *,
    is_stored: bool = True,
    on_problem: Callable[[Fault], None] = lambda _: None,
    on_progress: OnProgress = lambda _, __: None,
) -> Index:
    """Return the index of these folders; unless `is_stored`, it is held in memory.

    `on_problem` is called if its file cannot be used because it is a link.
    """
    workspace = folders[0].workspace
    path = store.sessions_folder(workspace) / _INDEX if is_stored else None
    if path is not None and files.is_link(path):
        problem = "is a link, and arena does not write through links: notes are indexed in memory"
        label = path.relative_to(workspace).as_posix()
        on_problem(Fault(label, 0, "", problem, files.LINK_HINT))
        path = None
    return Index(
        path,
        folders,
        follow_trail=lambda folder, known: store.follow(store.trail_path(folder), known),
        on_progress=on_progress,
        **vectors._asdict(),
    )


def forget_notes(folder: Folder) -> None:
    """Remove the notes of a folder that is gone from the index; its texts are in no file then.

    An index that cannot be written keeps them, and no search finds them.
    """
    path = store.sessions_folder(folder.workspace) / _INDEX
    if files.is_link(path) or not path.is_file():
        return
    with contextlib.closing(db.opened(path)) as connection, contextlib.suppress(sqlite3.Error):
        place = ingest.place_of_note(folder)
        gone = [(place, name) for name in ingest.known_notes(connection, place)]
        connection.execute("PRAGMA secure_delete = on")
        ingest.put_notes(connection, Stems(connection), (), gone)
