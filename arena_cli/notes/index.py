"""Index all notes of a workspace in one SQLite file, and keep it up to date with the files.

Files that were added, changed or deleted by hand are found by the next `sync`. The index can be
deleted at any time. Without any note no file is created.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from arena_cli.errors import Fault
from arena_cli.notes import db, embeddings, ingest, lifecycle, staging
from arena_cli.notes import search as search_module
from arena_cli.notes import text as text_module
from arena_cli.notes.embeddings import EmbeddingFailed
from arena_cli.notes.ingest import Known, OnProgress, place_of_note
from arena_cli.notes.listing import FolderEntry, stamps_of, was_edited
from arena_cli.notes.model import KINDS, MOST_SHOWN, Kind, Note
from arena_cli.notes.search import FoundNotes, Hit, Scope
from arena_cli.notes.staging import Approvals, ReadTrail
from arena_cli.notes.store import Folder
from arena_cli.notes.text import Stems
from arena_cli.notes.vectors import AlikeNotes, AlikePair, Vectors
from arena_cli.workspace.models import Embedding

_T = TypeVar("_T")

_SHORT_TRAIL = 65_536  # bytes that are read again sooner than how far one read is kept


class Index:
    """The notes of these folders. If `path` is None, the index is held in memory.

    Without `embedding`, notes are found by words alone; `environ` are the environment and the
    workspace's `.env`, for its key. `follow_trail` reads the new part of a folder's trail, which
    records approvals; without it the status in the files counts. Unless it `connects`, no server is
    contacted. `on_progress` is called every two seconds while many files are read.

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
        on_progress: OnProgress = lambda _, __: None,
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
        self._on_progress = on_progress
        self._trails: dict[str, ReadTrail] = {}
        self._recorded_ends: dict[str, int] = {}
        self._current_trails: set[str] = set()
        self._approvals = 0
        self._connection: sqlite3.Connection | None = None
        self._stems: Stems | None = None
        self._is_synced = False
        self._changes = 0
        self._known: dict[str, Known] = {}
        self._known_of = 0
        self._followed: dict[str, Sequence[FolderEntry]] = {}
        self._cached: dict[tuple[object, ...], Any] = {}
        self._cached_of: tuple[int, ...] = ()
        self._turn = threading.RLock()

    def sync(self, *, is_full: bool = False, most_looks: int | None = None) -> list[Fault]:
        """Update the index by the files; return the errors of those that cannot be read.

        With `is_full`, the content of each file is compared, regardless of its time. With
        `most_looks`, only that number of files in a folder is looked at, in turn; others that were
        edited in place are missed; but `search` and `pinning` always look at what they return.
        """
        with self._turn:
            listed = [(folder, folder.entries(most_looks)) for folder in self._folders]
            faults = [fault for folder in self._folders for fault in folder.problems]
            self._is_synced = True
            self._current_trails.clear()
            if self._connection is None and not any(entries for _, entries in listed):
                return faults

            def follow() -> list[Fault]:
                for folder, entries in listed:
                    if is_full:
                        known = self._known_notes(folder)
                        known.update(dict.fromkeys(known))
                        self._followed.clear()
                    self._follow(folder, entries)
                places = self._places(None)
                return self._cache(("faults",), lambda: ingest.read_faults(self._opened, places))

            return faults + self._done(follow)

    def update(self, note: Note) -> None:
        """Update the index by one file that was just written, without looking at the others."""
        folder = self._folder_of(note)
        path = folder.workspace / note.file
        with self._turn:
            if not self._is_synced:
                self.sync()
            entry = FolderEntry(note.id, path, *stamps_of(path.stat()))
            read = ingest.read_file(folder, entry, self._now_ns())

            def put() -> None:
                known = self._known_notes(folder)
                ingest.put_notes(self._opened, self._opened_stems, [read])
                known[entry.id] = entry[2:] if read.is_sure else None
                self._followed.clear()
                self._changes += 1

            self._done(put)

    def notes(self, session: str | None = None) -> list[Note]:
        """Return all notes, archived ones too, by file; of a session, its own and the shared."""
        return self._notes("ORDER BY file", self._places(session))

    def notes_in(self, folder: Folder) -> list[Note]:
        """Return all notes of a folder without their texts, sorted by id."""
        return self._notes("ORDER BY id", [place_of_note(folder)], has_body=False)

    def pinning(self, session: str) -> list[Note]:
        """Return the session's own notes whose source messages are always shown."""
        condition, places = "AND pins ORDER BY file", self._own(session)
        notes = self._notes(condition, places)
        return self._notes(condition, places) if self._catch_up(notes) else notes

    def archived(self, session: str) -> list[Note]:
        """Return the session's own notes that are archived, superseded ones included."""
        return self._notes("AND status = 'archived' ORDER BY file", self._own(session))

    def own(
        self, session: str, kinds: Sequence[Kind] = KINDS, *, archived: bool = False
    ) -> list[Note]:
        """Return the session's own notes of these kinds, by file, without shared ones.

        Archived and superseded notes are only included if `archived`.
        """
        kinds_json = json.dumps(list(kinds))
        condition = "AND kind IN (SELECT value FROM json_each(?)) ORDER BY file"
        return self._notes(condition, self._own(session), kinds_json, is_living=not archived)

    def alike(self, kind: Kind, title: str) -> list[Note]:
        """Return the notes of a kind, archived ones too, with that title, or nearly that title."""
        words = " ".join(lifecycle.words(title))
        places = self._places(None)

        def find_near() -> list[int]:
            rows = self._opened.execute(
                "SELECT note, title FROM note WHERE kind = ? AND place IN "
                "(SELECT value FROM json_each(?))",
                (kind, json.dumps(places)),
            ).fetchall()
            near = search_module.spelled_alike(words, dict(rows), lifecycle.NEAR)
            return [number for _, number in near]

        numbers = json.dumps(self._asked(find_near) or [])
        condition = "AND note IN (SELECT value FROM json_each(?)) ORDER BY file"
        return self._notes(condition, places, numbers)

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
        where, values = self._narrow(kinds, tags, session, archived=archived)
        if approved_only:
            where = f"{where} AND note IN (SELECT value FROM json_each(:approved))"

        def find() -> list[Hit]:
            if approved_only:
                values["approved"] = self._approved_in(values["places"])
            hits = search_module.hits(
                self._opened,
                self._opened_stems,
                self._cache(("found",), FoundNotes),
                query,
                self._scope(where, values),
                lambda: self._nearness(query, where, values),
                limit,
            )
            return [hit._replace(note=self._judged(hit.note)) for hit in hits]

        hits = self._asked(find) or []
        return (self._asked(find) or []) if self._catch_up(hit.note for hit in hits) else hits

    def alike_in_meaning(
        self,
        notes: Sequence[Note],
        texts: Sequence[str],
        least: float,
        *,
        groups: Sequence[object],
        within: bool = False,
    ) -> list[AlikeNotes]:
        """Return the pairs of notes whose texts have that cosine or more, the closest few of each.

        They are of different groups, or `within` one. There are none without vectors; `lack` is
        then why.
        """
        self.lack = ""
        if not within and len(set(groups)) < 2:
            return []
        pairs = self._compare(texts, least, groups=groups, within=within)
        return [AlikeNotes(notes[first], notes[other], cosine) for first, other, cosine in pairs]

    def find_near(
        self, question: str, texts: Sequence[str], least: float
    ) -> dict[int, float] | None:
        """Return the places of the texts whose cosine with the question is that or more.

        At most five are returned. None: there are no vectors of all of them, and `lack` is why.
        """
        pairs = self._compare([*texts, question], least)
        near = {pair.first: pair.cosine for pair in pairs if pair.second == len(texts)}
        return None if self.lack or self._vectors is None else near

    def _compare(
        self,
        texts: Sequence[str],
        least: float,
        *,
        groups: Sequence[object] = (),
        within: bool = False,
    ) -> Sequence[AlikePair]:
        """Return the pairs of texts with that cosine or more; `lack` is why some are missing."""
        self.lack = ""

        def compare() -> Sequence[AlikePair]:
            if self._vectors is None:
                return ()
            pairs = self._vectors.alike(self._opened, texts, least, groups=groups, within=within)
            self.lack = self._vectors.lack
            return pairs

        try:
            with self._turn:
                return self._done(compare)
        except EmbeddingFailed as error:
            self.lack = _describe(error)
            return ()

    def near_words(self, query: str, *, session: str | None = None) -> list[str]:
        """Return words of the notes that are spelled nearly like words of a question."""
        where, values = self._narrow((), (), session, archived=False)

        def find() -> list[str]:
            scope = self._scope(where, values)
            return search_module.near_words(self._opened, self._opened_stems, query, scope)

        return self._asked(find) or []

    def _narrow(
        self, kinds: Sequence[str], tags: Sequence[str], session: str | None, *, archived: bool
    ) -> tuple[str, dict[str, str]]:
        """Return the SQL condition of the notes that may be found, and its values."""
        conditions = {
            "kind != '' AND place IN (SELECT value FROM json_each(:places))": True,
            "kind IN (SELECT value FROM json_each(:kinds))": kinds,
            "NOT EXISTS (SELECT value FROM json_each(:tags) EXCEPT SELECT value FROM "
            "json_each(note.tags))": tags,
            "status != 'archived'": not archived,
        }
        values = {
            "places": json.dumps(self._places(session)),
            "kinds": json.dumps(list(kinds)),
            "tags": json.dumps([text_module.tag(tag) for tag in tags]),
        }
        return " AND ".join(condition for condition, holds in conditions.items() if holds), values

    def version(self) -> tuple[int, ...]:
        """Return numbers that change with each note and each approval, by any process."""
        return self._asked(self._state) or ()

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _catch_up(self, notes: Iterable[Note]) -> bool:
        """Return True, after a look at each file, if the file of one of these notes was edited."""
        is_edited = any(map(self._was_edited, notes))
        if is_edited:
            self.sync()
        return is_edited

    def _was_edited(self, note: Note) -> bool:
        """Return True if the file of a note is no longer as the index knows it."""
        folder = self._folder_of(note)
        known = self._known.get(place_of_note(folder), {}).get(note.id)
        return known is not None and was_edited(f"{folder.workspace}{os.sep}{note.file}", known)

    def _folder_of(self, note: Note) -> Folder:
        return next(folder for folder in self._folders if _holds(folder, note))

    def _scope(self, where: str, values: Mapping[str, str]) -> Scope:
        """Return the notes that satisfy the condition."""
        return self._cache(
            (where, *values.values()),
            lambda: search_module.scope(self._opened, where, values),
        )

    def _cache(self, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        """Return what was made for the key, until any note or approval changes."""
        state = self._state()
        if self._cached_of != state:
            self._cached_of = state
            self._cached.clear()
        if key not in self._cached:
            self._cached[key] = make()
        value: _T = self._cached[key]
        return value

    def _state(self) -> tuple[int, ...]:
        """Return numbers that change with each write of any process, and with each approval."""
        for folder in self._folders:
            self._approvals_of(folder)
        version: int = self._opened.execute("PRAGMA data_version").fetchone()[0]
        return version, self._changes, self._approvals

    def _nearness(self, query: str, where: str, values: Mapping[str, str]) -> Mapping[int, float]:
        """Return the nearness in meaning by note; empty without vectors, and `lack` is why."""
        if self._vectors is None:
            return {}
        keys = self._cache(
            ("keys", where, *values.values()),
            lambda: search_module.passage_keys(self._opened, where, values),
        )
        try:
            nearness = self._vectors.near(
                self._opened, query, keys, lambda some: search_module.passages(self._opened, some)
            )
        except EmbeddingFailed as error:
            self.lack = _describe(error)
            return {}
        self.lack = self._vectors.lack
        return nearness

    def _notes(
        self,
        condition: str,
        places: Sequence[str],
        *values: str,
        has_body: bool = True,
        is_living: bool = False,
    ) -> list[Note]:
        """Return the notes that satisfy an SQL condition, with the status that counts.

        With `is_living`, none that is archived or superseded.
        """
        where = f"AND place IN (SELECT value FROM json_each(?)) {condition}"
        all_values = (json.dumps(places), *values)

        def select() -> list[Note]:
            rows = search_module.select(self._opened, where, all_values, has_body=has_body)
            judged = [self._judged(note, sha) for note, sha in rows]
            return [note for note in judged if note.is_living or not is_living]

        key = (where, has_body, is_living, *all_values)
        return list(self._asked(lambda: self._cache(key, select)) or ())

    def _judged(self, note: Note, sha: str = "") -> Note:
        """Return a note with the status that counts; `sha` is the hash of its approved parts."""
        if note.status != "approved" or self._follow_trail is None:
            return note
        return staging.judge(note, self._approvals_of(self._folder_of(note)), sha)

    def _approved_in(self, places: str) -> str:
        """Return the numbers of the approved notes in these places, as JSON."""

        def select() -> str:
            rows = self._opened.execute(
                "SELECT note, id, place, approval FROM note WHERE status = 'approved' "
                "AND place IN (SELECT value FROM json_each(?))",
                (places,),
            ).fetchall()
            approved = {
                place_of_note(folder): self._approvals_of(folder) for folder in self._folders
            }
            return json.dumps(
                [
                    number
                    for number, name, place, sealed in rows
                    if self._follow_trail is None or approved[place].get(name) in ("", sealed)
                ]
            )

        return self._cache(("approved", places), select)

    def _approvals_of(self, folder: Folder) -> Approvals:
        """Return the approvals in a folder, as its trail was when the files were last read.

        The position in the trail is kept in the index, so that only the new part is read.
        """
        place = place_of_note(folder)
        if place not in self._current_trails and self._follow_trail is not None:
            name = f"approvals {place}"
            known = self._trails.get(place)
            if known is None:
                row = self._opened.execute("SELECT value FROM fact WHERE name = ?", (name,))
                known = next((ReadTrail(*json.loads(value)) for (value,) in row), ReadTrail())
                self._recorded_ends[place] = known.end
            current = self._follow_trail(folder, known)
            if not 0 <= current.end - self._recorded_ends[place] < _SHORT_TRAIL:
                value = json.dumps([current.end, current.check, dict(current.approved)])
                with contextlib.suppress(sqlite3.OperationalError):  # somebody else writes it
                    self._opened.execute("REPLACE INTO fact VALUES (?, ?)", (name, value))
                    self._recorded_ends[place] = current.end
            if current is not known and current.approved != known.approved:
                self._approvals += 1
            self._trails[place] = current
            self._current_trails.add(place)
        return self._trails[place].approved if place in self._trails else {}

    def _asked(self, question: Callable[[], _T]) -> _T | None:
        """Return the answer of the index; None if there is no note at all."""
        with self._turn:
            if not self._is_synced:
                self.sync()
            return None if self._connection is None else self._done(question)

    def _done(self, work: Callable[[], _T]) -> _T:
        """Run the work; if the index fails meanwhile, create it again, the last time in memory."""
        for attempt in range(3):
            try:
                if self._connection is None:
                    self._open()
                    if attempt:
                        for folder in self._folders:
                            self._follow(folder, folder.entries())
                return work()
            except sqlite3.DatabaseError as error:
                if self.in_memory or self._path is None:
                    raise
                self.close()
                is_gone = db.is_broken(error) and db.remove(self._path)
                if attempt or not is_gone:
                    self._path = None
        raise AssertionError("the third is in memory, and raises what it raises")

    @property
    def _opened_stems(self) -> Stems:
        assert self._stems is not None
        return self._stems

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        self._connection = db.opened(self._path) if self._path is not None else db.in_memory()
        self._changes += 1
        self._known.clear()
        self._followed.clear()
        self._stems = Stems(self._connection)
        self._vectors = Vectors(self._embedder) if self._embedder else None
        # Its third column is the file's path, empty for one in memory.
        self.in_memory = not self._connection.execute("PRAGMA database_list").fetchone()[2]

    def _follow(self, folder: Folder, entries: Sequence[FolderEntry]) -> None:
        """Update the index by the files of a folder."""
        known = self._known_notes(folder)
        place = place_of_note(folder)
        if self._followed.get(place) is entries:  # the folder returns the same if none changed
            return
        is_changed = ingest.follow(
            self._opened,
            self._opened_stems,
            folder,
            entries,
            known,
            now_ns=self._now_ns,
            on_progress=self._on_progress,
        )
        self._changes += is_changed
        if None in known.values():
            self._followed.pop(place, None)
        else:
            self._followed[place] = entries

    def _known_notes(self, folder: Folder) -> Known:
        """Return the stamps of a folder's notes, read again if another process wrote the index."""
        version: int = self._opened.execute("PRAGMA data_version").fetchone()[0]
        if self._known_of != version:
            self._known_of = version
            self._known.clear()
            self._followed.clear()
        place = place_of_note(folder)
        if place not in self._known:
            self._known[place] = ingest.known_notes(self._opened, place)
        return self._known[place]

    def _own(self, session: str) -> list[str]:
        return [
            place_of_note(folder)
            for folder in self._folders
            if not folder.shared and folder.path.parent.name == session
        ]

    def _places(self, session: str | None) -> list[str]:
        if session is None:
            return list(map(place_of_note, self._folders))
        shared = [place_of_note(folder) for folder in self._folders if folder.shared]
        return [*self._own(session), *shared]


def _describe(error: EmbeddingFailed) -> str:
    return f"{error.what}; {error.mend}" if error.mend else error.what


def _holds(folder: Folder, note: Note) -> bool:
    if folder.shared or note.is_shared:
        return folder.shared and note.is_shared
    return folder.path.parent.name == note.session
