"""Read the files of notes into the index: those that changed since it has read them.

A file counts as unchanged if its time, size, inode and the system's time of its last change are
those at which it was read. A full check compares the hash of its content too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import NamedTuple

from arena_cli.errors import Fault
from arena_cli.notes import db, lifecycle, staging, store
from arena_cli.notes import text as text_module
from arena_cli.notes import vectors as vectors_module
from arena_cli.notes.listing import FolderEntry
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import Note
from arena_cli.notes.store import Folder
from arena_cli.notes.text import Stems, of_note

# A file that changes twice within a tick of its disk's clock looks unchanged. The longest tick is
# FAT's, 2 s; what was read so soon after its change is read again (as git's index does it).
TICK_NS = 2_100_000_000

Known = dict[str, tuple[object, ...] | None]
"""The stamps of a folder's notes by id, as the index has them; None if they must be read again."""

OnProgress = Callable[[int, int], None]
"""Receives the number of files that were read, and of all that are to be read."""

_BATCH = 500  # files that are written in one transaction; a kill costs no more than these
_QUIET_S = 2.0  # how long reading takes before, and between, reports of its progress
_NEVER = 0  # the time of reading a file that has to be read again at every look


class Read(NamedTuple):
    """A note's file as it was read: the note, or the errors in it."""

    entry: FolderEntry
    file: str
    place: str
    sha256: str
    read_ns: int
    note: Note | None
    faults: Sequence[Fault]

    @property
    def is_sure(self) -> bool:
        """True if a later change of the file is certain to change its stamps."""
        return _is_sure(self.read_ns, self.entry.mtime_ns, self.entry.changed_ns)


@lru_cache(maxsize=256)
def place_of_note(folder: Folder) -> str:
    """Return the name of a folder in the index."""
    return folder.shown(folder.path)


def file_of(folder: Folder, entry: FolderEntry) -> str:
    """Return the path of a note's file within the workspace, with `/`."""
    # As `Folder.shown`, which takes ten times as long, for every file at every look.
    return place_of_note(folder) + str(entry.place)[len(str(folder.path)) :].replace(os.sep, "/")


def known_notes(connection: sqlite3.Connection, place: str) -> Known:
    """Return the stamps of a folder's notes as the index has them."""
    rows = connection.execute(
        "SELECT id, mtime_ns, size, inode, changed_ns, read_ns FROM note WHERE place = ?", (place,)
    )
    return {row[0]: row[1:5] if _is_sure(row[5], row[1], row[4]) else None for row in rows}


def _is_sure(read_ns: int, mtime_ns: int, changed_ns: int) -> bool:
    return read_ns - max(mtime_ns, changed_ns) > TICK_NS


def follow(
    connection: sqlite3.Connection,
    stems: Stems,
    folder: Folder,
    entries: Sequence[FolderEntry],
    known: Known,
    *,
    now_ns: Callable[[], int],
    on_progress: OnProgress,
) -> bool:
    """Update the index, and `known`, by the files of a folder; return True if a note changed."""
    place = place_of_note(folder)
    changed = [entry for entry in entries if known.get(entry.id) != entry[2:]]
    gone = known.keys() - {entry.id for entry in entries}
    is_changed = bool(gone)
    if gone:
        put_notes(connection, stems, (), [(place, name) for name in gone])
        for name in gone:
            del known[name]
    reported = time.monotonic()
    for start in range(0, len(changed), _BATCH):
        batch = changed[start : start + _BATCH]
        is_changed |= _follow_batch(connection, stems, folder, batch, known, now_ns)
        if time.monotonic() - reported > _QUIET_S:
            reported = time.monotonic()
            on_progress(min(start + _BATCH, len(changed)), len(changed))
    return is_changed


def _follow_batch(
    connection: sqlite3.Connection,
    stems: Stems,
    folder: Folder,
    entries: Sequence[FolderEntry],
    known: Known,
    now_ns: Callable[[], int],
) -> bool:
    place = place_of_note(folder)
    hashes = _hashes(connection, place, [entry.id for entry in entries])
    reads: list[Read] = []
    same: list[Read] = []
    for entry in entries:
        sha256, stamps = hashes.get(entry.id, (None, ()))
        read = read_file(folder, entry, now_ns(), unless=sha256)
        if read.sha256 != sha256:
            reads.append(read)
        elif stamps != entry[2:] or read.is_sure:
            same.append(read)
        known[entry.id] = entry[2:] if read.is_sure else None
    if reads or same:
        put_notes(connection, stems, reads, same=same)
    return bool(reads)


def _hashes(
    connection: sqlite3.Connection, place: str, ids: Sequence[str]
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the hash of the content of these notes' files, and the stamps at which it was read."""
    rows = connection.execute(
        "SELECT id, sha256, mtime_ns, size, inode, changed_ns FROM note WHERE place = ? "
        "AND id IN (SELECT value FROM json_each(?))",
        (place, json.dumps(ids)),
    )
    return {row[0]: (row[1], row[2:]) for row in rows}


def read_file(
    folder: Folder, entry: FolderEntry, now_ns: int, *, unless: str | None = None
) -> Read:
    """Read a note's file; its content is only parsed if its hash is not `unless`."""
    file = file_of(folder, entry)
    place = place_of_note(folder)
    try:
        raw = store.beginning(entry.path, file)
    except NoteFault as fault:  # it may be readable at the next look, without a change
        return Read(entry, file, place, "", _NEVER, None, fault.faults)
    digest = hashlib.sha256(b"%d:" % entry.size + raw).hexdigest()
    note: Note | None = None
    faults: Sequence[Fault] = ()
    if digest != unless:
        try:
            note = store.parsed(raw, entry.id, file)
        except NoteFault as fault:
            faults = fault.faults
    return Read(entry, file, place, digest, now_ns, note, faults)


def read_faults(connection: sqlite3.Connection, places: Iterable[str]) -> list[Fault]:
    """Return the errors of the files in these folders that could not be read."""
    rows = connection.execute(
        "SELECT faults FROM record JOIN note USING (note) WHERE kind = '' AND place IN "
        "(SELECT value FROM json_each(?)) ORDER BY file",
        (json.dumps(list(places)),),
    )
    return [Fault(**fault) for (text,) in rows for fault in json.loads(text)]


def put_notes(
    connection: sqlite3.Connection,
    stems: Stems,
    reads: Sequence[Read],
    gone: Sequence[tuple[str, str]] = (),
    same: Sequence[Read] = (),
) -> None:
    """Write the changes in one short transaction; all that takes time is done before it.

    `gone` are the places and ids of deleted notes, `same` the files whose content did not change.
    """
    prepared = [(read, *_texts(read.note, stems)) for read in reads]
    stamps = [(*read.entry[2:], read.read_ns, read.place, read.entry.id) for read in same]
    with db.transaction(connection):
        connection.executemany(
            "UPDATE note SET mtime_ns = ?, size = ?, inode = ?, changed_ns = ?, read_ns = ? "
            "WHERE place = ? AND id = ?",
            stamps,
        )
        find = "SELECT note FROM note WHERE place = ? AND id = ?"
        names = [*gone, *((read.place, read.entry.id) for read in reads)]
        numbers = [row for name in names for row in connection.execute(find, name)]
        for table, key in (("note", "note"), ("record", "note"), ("words", "rowid")):
            connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", numbers)
        for read, title, body in prepared:
            _insert(connection, read, title, body)


def _texts(note: Note | None, stems: Stems) -> tuple[str, str]:
    if note is None:
        return "", ""
    title = of_note(" ".join((note.title, *note.tags, *note.aliases)))
    return " ".join(stems.of(title)), " ".join(stems.of(of_note(note.body)))


def _insert(connection: sqlite3.Connection, read: Read, title: str, body: str) -> None:
    note, entry = read.note, read.entry
    facts: tuple[object, ...] = ("", "", False, 0.0, "", "[]", "", "")
    if note:
        tags = json.dumps([text_module.tag(tag) for tag in note.tags])
        passage = vectors_module.key(vectors_module.passage(note))
        newest = note.updated or note.created
        title_words = " ".join(lifecycle.words(note.title))
        facts = (note.kind, note.status, note.pins, note.importance, newest, tags)
        facts = (*facts, passage, title_words)
    length = title.count(" ") + body.count(" ") + bool(title) + bool(body)
    sealed = staging.sha256(note) if note and note.status == "approved" else ""
    row = (read.file, read.place, entry.id, *facts, length, *entry[2:], read.sha256, read.read_ns)
    number = connection.execute(
        f"INSERT INTO note VALUES (NULL{', ?' * (len(row) + 1)})", (*row, sealed)
    ).lastrowid
    faults = json.dumps([asdict(fault) for fault in read.faults])
    head = note.model_dump_json(exclude={"body"}, exclude_defaults=True) if note else ""
    text = json.dumps(note.body, ensure_ascii=False) if note else ""
    connection.execute("INSERT INTO record VALUES (?, ?, ?, ?)", (number, head, faults, text))
    connection.execute(
        "INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", (number, title, body)
    )
