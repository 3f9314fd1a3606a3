"""Index all notes of a workspace in one SQLite file, and keep it up to date with the files.

Files that were added, changed or deleted by hand are found by the next `sync`. The index can be
deleted at any time. Without any note no file is created.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from arena_cli.errors import Fault
from arena_cli.notes import db, embeddings, staging, store
from arena_cli.notes import search as search_module
from arena_cli.notes import text as text_module
from arena_cli.notes import vectors as vectors_module
from arena_cli.notes.embeddings import EmbeddingFailed
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import KINDS, MOST_SHOWN, Kind, Note
from arena_cli.notes.search import Hit, Scope
from arena_cli.notes.staging import Approvals, ReadTrail
from arena_cli.notes.store import Folder, FolderEntry
from arena_cli.notes.text import Stems, of_note
from arena_cli.notes.vectors import Vectors
from arena_cli.workspace.models import Embedding

# A file that changes twice within a tick of its disk's clock looks unchanged. The longest tick is
# FAT's, 2 s; what was read so soon after its change is read again (as git's index does it).
TICK_NS = 2_100_000_000


class Read(NamedTuple):
    """A note's file as it was read: the note, or the errors in it."""

    entry: FolderEntry
    file: str
    place: str
    sha256: str
    read_ns: int
    note: Note | None
    faults: Sequence[Fault]


class Followed(NamedTuple):
    """The result of updating the index by the files; `is_sure`: no need to look again."""

    changed: bool
    is_sure: bool


_Known = tuple[int, int, int, int]
"""A note's file as the index has it: its number, its time and size then, and when it was read."""

_NOTHING: _Known = (0, -1, -1, 0)


@lru_cache(maxsize=256)
def place_of_note(folder: Folder) -> str:
    """Return the name of a folder in the index."""
    return folder.shown(folder.path)


def file_of(folder: Folder, entry: FolderEntry) -> str:
    """Return the path of a note's file within the workspace, with `/`."""
    # As `Folder.shown`, which takes ten times as long, for every file at every look.
    return place_of_note(folder) + str(entry.place)[len(str(folder.path)) :].replace(os.sep, "/")


def follow(
    connection: sqlite3.Connection,
    stems: Stems,
    listed: Iterable[tuple[Folder, Sequence[FolderEntry]]],
    now_ns: Callable[[], int],
) -> Followed:
    """Update the index by the added, changed and deleted files in these folder listings."""
    reads: list[Read] = []
    touched: list[tuple[int, int, int]] = []
    gone: list[int] = []
    for folder, entries in listed:
        indexed = _indexed_notes(connection, place_of_note(folder))
        for entry in entries:
            note, *had = indexed.pop(file_of(folder, entry), _NOTHING)
            if _is_clean(entry, *had):
                continue
            read = read_folder(folder, entry, now_ns())
            if note and _sha256(connection, note) == read.sha256:
                touched.append((entry.mtime_ns, read.read_ns, note))
            else:
                reads.append(read)
        gone += [note for note, *_ in indexed.values()]
    if reads or gone or touched:
        put_note(connection, stems, reads, gone, touched)
    return Followed(bool(reads or gone), is_sure=not (reads or gone or touched))


def read_faults(connection: sqlite3.Connection, places: Sequence[str]) -> list[Fault]:
    """Return the errors of the files that could not be read."""
    rows = connection.execute(
        "SELECT faults FROM record JOIN note USING (note) WHERE kind = '' AND place IN "
        "(SELECT value FROM json_each(?)) ORDER BY file",
        (json.dumps(places),),
    )
    return [Fault(**fault) for (text,) in rows for fault in json.loads(text)]


def _indexed_notes(connection: sqlite3.Connection, name: str) -> dict[str, _Known]:
    rows = connection.execute(
        "SELECT file, note, mtime_ns, size, read_ns FROM note WHERE place = ?", (name,)
    )
    return {row[0]: row[1:] for row in rows}


def _is_clean(entry: FolderEntry, mtime_ns: int, size: int, read_ns: int) -> bool:
    same = mtime_ns == entry.mtime_ns and size == entry.size
    return same and read_ns - mtime_ns > TICK_NS


def _sha256(connection: sqlite3.Connection, note: int) -> str:
    digest: str = connection.execute("SELECT sha256 FROM note WHERE note = ?", (note,)).fetchone()[
        0
    ]
    return digest


def read_folder(folder: Folder, entry: FolderEntry, now_ns: int) -> Read:
    """Read a note's file."""
    file = file_of(folder, entry)
    raw, note = b"", None
    wrong: Sequence[Fault] = ()
    try:
        raw = store.beginning(entry.path, file)
        note = store.parsed(raw, entry.id, file)
    except NoteFault as fault:
        wrong = fault.faults
    digest = hashlib.sha256(b"%d:" % entry.size + raw).hexdigest()
    return Read(entry, file, place_of_note(folder), digest, now_ns, note, wrong)


def put_note(
    connection: sqlite3.Connection,
    stems: Stems,
    reads: Sequence[Read],
    gone: Sequence[int] = (),
    touched: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Write the changes in one short transaction; all that takes time is done before it."""
    prepared = [(read, *_texts(read.note, stems)) for read in reads]
    with db.transaction(connection):
        connection.executemany("UPDATE note SET mtime_ns = ?, read_ns = ? WHERE note = ?", touched)
        find = "SELECT note FROM note WHERE file = ?"
        old = [row for read in reads for row in connection.execute(find, (read.file,))]
        for table, key in (("note", "note"), ("record", "note"), ("words", "rowid")):
            numbers = [*old, *((number,) for number in gone)]
            connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", numbers)
        for read, title, body in prepared:
            _insert(connection, read, title, body)


def _texts(note: Note | None, stems: Stems) -> tuple[str, str]:
    if note is None:
        return "", ""
    title = of_note(" ".join((note.title, *note.tags)))
    return " ".join(stems.of(title)), " ".join(stems.of(of_note(note.body)))


def _insert(connection: sqlite3.Connection, read: Read, title: str, body: str) -> None:
    note, entry = read.note, read.entry
    facts: tuple[object, ...] = ("", "", False, 0.0, "", "[]", "")
    if note:
        tags = json.dumps([text_module.tag(tag) for tag in note.tags])
        passage = vectors_module.key(vectors_module.passage(note))
        newest = note.updated or note.created
        facts = (note.kind, note.status, note.pins, note.importance, newest, tags, passage)
    stamp = (entry.mtime_ns, entry.size, read.sha256, read.read_ns)
    length = len(title.split()) + len(body.split())
    sealed = staging.sha256(note) if note and note.status == "approved" else ""
    row = (read.file, read.place, entry.id, *facts, length, *stamp, sealed)
    places = ", ?" * len(row)
    number = connection.execute(f"INSERT INTO note VALUES (NULL{places})", row).lastrowid
    faults = json.dumps([asdict(fault) for fault in read.faults])
    record = note.model_dump_json(exclude_defaults=True) if note else ""
    connection.execute("INSERT INTO record VALUES (?, ?, ?)", (number, record, faults))
    connection.execute(
        "INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", (number, title, body)
    )


_T = TypeVar("_T")

_SHORT_TRAIL = 65_536  # bytes that are read again sooner than how far one read is kept

_SELECT = (
    "SELECT json FROM note JOIN record USING (note) "
    "WHERE kind != '' AND place IN (SELECT value FROM json_each(?))"
)


class Index:
    """The notes of these folders. If `path` is None, the index is held in memory.

    Without `embedding`, notes are found by words alone; `environ` are the environment and the
    workspace's `.env`, for its key. `follow_trail` reads the new part of a folder's trail, which
    records approvals; without it the status in the files counts. Unless it `connects`, no server is
    contacted.

    After a search, `lack` is why meaning was not used, or only for some notes; it is "" if all was
    well, or if no embedding is configured. `in_memory` is True if the file could not be used. One
    `Index` may be used by several threads in turn, and its file by other processes at the same
    time.
    """

    def __init__(
        self,
        path: Path | None,
        folders: Iterable[Folder],
        *,
        embedding: Embedding | None = None,
        environ: Mapping[str, str] | None = None,
        connects: bool = True,
        now_ns: Callable[[], int] = time.time_ns,
        follow_trail: Callable[[Folder, ReadTrail], ReadTrail] | None = None,
    ) -> None:
        self.lack = ""
        self.in_memory = False
        self._path = path
        self._folders = list(folders)
        self._embedder = (
            embeddings.find_embedder(embedding, environ or {}, connects=connects)
            if embedding
            else None
        )
        self._vectors: Vectors | None = None
        self._now_ns = now_ns
        self._follow_trail = follow_trail
        self._approvals: dict[str, Approvals] = {}
        self._approved: dict[str, str] = {}
        self._approved_of = (0, 0)
        self._connection: sqlite3.Connection | None = None
        self._stems: Stems | None = None
        self._is_synced = False
        self._changes = 0
        self._sure: tuple[int, int, list[list[FolderEntry]]] | None = None
        self._faults: list[Fault] = []
        self._scopes: dict[tuple[str, ...], Scope] = {}
        self._scopes_of = (0, 0)
        self._turn = threading.RLock()

    def sync(self) -> list[Fault]:
        """Update the index by the files; return the errors of those that cannot be read."""
        with self._turn:
            listed = self._listed()
            faults = [fault for folder in self._folders for fault in folder.problems]
            self._is_synced = True
            self._approvals.clear()
            self._approved.clear()
            if self._connection is None and not any(entries for _, entries in listed):
                return faults

            def follow(connection: sqlite3.Connection) -> list[Fault]:
                entries_of_all = [entries for _, entries in listed]
                if self._sure != (*self._state(connection), entries_of_all):
                    is_sure = self._follow(connection, listed)
                    self._faults = read_faults(connection, self._places(None))
                    self._sure = (*self._state(connection), entries_of_all) if is_sure else None
                return self._faults

            return faults + self._done(follow)

    def update(self, note: Note) -> None:
        """Update the index by one file that was just written, without looking at the others."""
        folder = next(
            candidate for candidate in self._folders if candidate.shared is note.is_shared
        )
        path = folder.workspace / note.file
        with self._turn:
            if not self._is_synced:
                self.sync()
            stat = path.stat()
            entry = FolderEntry(note.id, path, stat.st_mtime_ns, stat.st_size)
            read = read_folder(folder, entry, self._now_ns())

            def put(connection: sqlite3.Connection) -> None:
                assert self._stems is not None
                put_note(connection, self._stems, [read])
                self._changes += 1

            self._done(put)

    def notes(self, session: str | None = None) -> list[Note]:
        """Return all notes, archived ones too, by file; of a session, its own and the shared."""
        return self._notes("ORDER BY file", self._places(session))

    def pinning(self, session: str) -> list[Note]:
        """Return the session's own notes whose source messages are always shown."""
        return self._notes("AND pins ORDER BY file", self._own(session))

    def own(
        self, session: str, kinds: Sequence[Kind] = KINDS, *, archived: bool = False
    ) -> list[Note]:
        """Return the session's own notes of these kinds, by file, without shared ones.

        Archived and superseded notes are only included if `archived`.
        """
        kinds_json = json.dumps(list(kinds))
        condition = "AND kind IN (SELECT value FROM json_each(?)) ORDER BY file"
        notes = self._notes(condition, self._own(session), kinds_json)
        return [note for note in notes if archived or note.is_living]

    def search(
        self,
        query: str,
        *,
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        session: str | None = None,
        approved_only: bool = False,
        archived: bool = False,
        limit: int = MOST_SHOWN,
    ) -> list[Hit]:
        """Return the notes that are relevant to a text of any length, the best first.

        Only notes of one of the `kinds` and with all `tags` are returned, of `session` or shared
        ones (None: of every folder); with `approved_only` only approved ones; archived ones only
        with `archived`. A search waits no longer than the embedding's `timeout_s`; if that fails,
        it uses words alone (`lack`).
        """
        self.lack = ""
        conditions = {
            "kind != '' AND place IN (SELECT value FROM json_each(:places))": True,
            "kind IN (SELECT value FROM json_each(:kinds))": kinds,
            "NOT EXISTS (SELECT value FROM json_each(:tags) EXCEPT SELECT value FROM "
            "json_each(note.tags))": tags,
            "note IN (SELECT value FROM json_each(:approved))": approved_only,
            "status != 'archived'": not archived,
        }
        values = {
            "places": json.dumps(self._places(session)),
            "kinds": json.dumps(list(kinds)),
            "tags": json.dumps([text_module.tag(tag) for tag in tags]),
        }
        where = " AND ".join(condition for condition, holds in conditions.items() if holds)

        def find(connection: sqlite3.Connection) -> list[Hit]:
            assert self._stems is not None
            if approved_only:
                values["approved"] = self._approved_in(connection, values["places"])
            scope = self._scope(connection, where, values)

            def near() -> Mapping[int, float]:
                if self._vectors is None:
                    return {}
                return self._nearness(self._vectors, connection, query, scope.keys)

            hits = search_module.hits(connection, self._stems, query, scope, near, limit)
            return [hit._replace(note=self._judged(connection, hit.note)) for hit in hits]

        return self._asked(find) or []

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _scope(
        self, connection: sqlite3.Connection, where: str, values: Mapping[str, str]
    ) -> Scope:
        """Return the notes that satisfy the condition, cached until any note changes."""
        state = self._state(connection)
        if self._scopes_of != state:
            self._scopes_of = state
            self._scopes.clear()
        cache_key = (where, *values.values())
        if cache_key not in self._scopes:
            self._scopes[cache_key] = search_module.scope(connection, where, values)
        return self._scopes[cache_key]

    def _state(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Return the version of the index, which changes with each write of any process."""
        return connection.execute("PRAGMA data_version").fetchone()[0], self._changes

    def _nearness(
        self,
        vectors: Vectors,
        connection: sqlite3.Connection,
        query: str,
        keys: Mapping[int, str],
    ) -> Mapping[int, float]:
        """Return the nearness in meaning by note; empty without vectors, and `lack` is why."""
        try:
            nearness = vectors.near(
                connection, query, keys, lambda some: search_module.passages(connection, some)
            )
        except EmbeddingFailed as error:
            self.lack = f"{error.what}; {error.mend}" if error.mend else error.what
            return {}
        self.lack = vectors.lack
        return nearness

    def _notes(self, condition: str, places: Sequence[str], *values: str) -> list[Note]:
        def select(connection: sqlite3.Connection) -> list[Note]:
            rows = connection.execute(
                f"{_SELECT} {condition}", (json.dumps(places), *values)
            ).fetchall()
            notes = [Note.model_validate_json(record) for (record,) in rows]
            return [self._judged(connection, note) for note in notes]

        return self._asked(select) or []

    def _judged(self, connection: sqlite3.Connection, note: Note) -> Note:
        """Return a note with the status that counts."""
        if note.status != "approved" or self._follow_trail is None:
            return note
        folder = next(candidate for candidate in self._folders if _holds(candidate, note))
        return staging.judge(note, self._approvals_of(connection, folder))

    def _approved_in(self, connection: sqlite3.Connection, places: str) -> str:
        """Return the numbers of the approved notes in these places, as JSON."""
        state = self._state(connection)
        if self._approved_of != state:
            self._approved_of = state
            self._approved.clear()
        if places not in self._approved:
            rows = connection.execute(
                "SELECT note, id, place, approval FROM note WHERE status = 'approved' "
                "AND place IN (SELECT value FROM json_each(?))",
                (places,),
            ).fetchall()
            by_place = {place_of_note(folder): folder for folder in self._folders}
            numbers = [
                number
                for number, name, folder_name, sealed in rows
                if self._is_approved(connection, by_place[folder_name], name, sealed)
            ]
            self._approved[places] = json.dumps(numbers)
        return self._approved[places]

    def _is_approved(
        self, connection: sqlite3.Connection, folder: Folder, id: str, sealed: str
    ) -> bool:
        if self._follow_trail is None:
            return True
        return self._approvals_of(connection, folder).get(id) in ("", sealed)

    def _approvals_of(self, connection: sqlite3.Connection, folder: Folder) -> Approvals:
        """Return the approvals in a folder, as its trail was when the files were last read.

        The position in the trail is kept in the index, so that only the new part is read.
        """
        assert self._follow_trail is not None
        folder_name = place_of_note(folder)
        if folder_name not in self._approvals:
            name = f"approvals {folder_name}"
            row = connection.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
            recorded = ReadTrail(*json.loads(row[0])) if row else ReadTrail()
            current = self._follow_trail(folder, recorded)
            if not 0 <= current.end - recorded.end < _SHORT_TRAIL:
                value = json.dumps([current.end, current.check, dict(current.approved)])
                with contextlib.suppress(sqlite3.OperationalError):  # somebody else writes it
                    connection.execute("REPLACE INTO fact VALUES (?, ?)", (name, value))
            self._approvals[folder_name] = current.approved
        return self._approvals[folder_name]

    def _asked(self, question: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Return the answer of the index; None if there is no note at all."""
        with self._turn:
            if not self._is_synced:
                self.sync()
            return None if self._connection is None else self._done(question)

    def _done(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run the work; if the index fails meanwhile, create it again, the last time in memory."""
        for attempt in range(3):
            try:
                if self._connection is None:
                    self._open()
                    if attempt:
                        self._follow(self._opened, self._listed())
                return work(self._opened)
            except sqlite3.DatabaseError as error:
                if self.in_memory or self._path is None:
                    raise
                self.close()
                is_gone = db.is_broken(error) and db.remove(self._path)
                if attempt or not is_gone:
                    self._path = None
        raise AssertionError("the third is in memory, and raises what it raises")

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        self._connection = db.opened(self._path) if self._path is not None else db.in_memory()
        self._changes += 1
        self._stems = Stems(self._connection)
        self._vectors = Vectors(self._embedder) if self._embedder else None
        # Its third column is the file's path, empty for one in memory.
        self.in_memory = not self._connection.execute("PRAGMA database_list").fetchone()[2]

    def _follow(
        self, connection: sqlite3.Connection, listed: Iterable[tuple[Folder, Sequence[FolderEntry]]]
    ) -> bool:
        """Update the index by the files; return True if unchanged files need no second look."""
        assert self._stems is not None
        followed = follow(connection, self._stems, listed, self._now_ns)
        self._changes += followed.changed
        return followed.is_sure

    def _listed(self) -> list[tuple[Folder, list[FolderEntry]]]:
        return [(folder, folder.entries()) for folder in self._folders]

    def _own(self, session: str) -> list[str]:
        shared = {place_of_note(folder) for folder in self._folders if folder.shared}
        return [folder_name for folder_name in self._places(session) if folder_name not in shared]

    def _places(self, session: str | None) -> list[str]:
        return [
            place_of_note(folder)
            for folder in self._folders
            if session is None or folder.shared or folder.path.parent.name == session
        ]


def _holds(folder: Folder, note: Note) -> bool:
    if folder.shared or note.is_shared:
        return folder.shared and note.is_shared
    return folder.path.parent.name == note.session
