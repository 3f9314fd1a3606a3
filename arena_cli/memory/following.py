"""How the index follows the notes' files: what changed is read, all else is left alone."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import NamedTuple

from arena_cli.ground.errors import Fault
from arena_cli.memory import approval, indexfile, vectors, words
from arena_cli.memory import folder as folders
from arena_cli.memory.folder import Entry, Folder
from arena_cli.memory.note import Note
from arena_cli.memory.reading import NoteFault
from arena_cli.memory.words import Stems

# A file that changes twice within a tick of its disk's clock looks unchanged. The longest tick is
# FAT's, 2 s; what was read so soon after its change is read again (as git's index does it).
TICK_NS = 2_100_000_000


class Read(NamedTuple):
    """A note's file as it was read: the note, or what is wrong with it."""

    entry: Entry
    file: str
    place: str
    sha256: str
    read_ns: int
    note: Note | None
    faults: Sequence[Fault]


class Followed(NamedTuple):
    """What the index did to be as the files are; `is_sure`: it need not look at these again."""

    changed: bool
    is_sure: bool


_Known = tuple[int, int, int, int]
"""A note's file as the index has it: its number, its time and size then, and when it was read."""

_NOTHING: _Known = (0, -1, -1, 0)


@lru_cache(maxsize=256)
def place(folder: Folder) -> str:
    """What the index calls a folder."""
    return folder.shown(folder.path)


def file_of(folder: Folder, entry: Entry) -> str:
    """A note's file as people are shown it, within the workspace."""
    # As `Folder.shown`, which takes ten times as long, for every file at every look.
    return place(folder) + str(entry.place)[len(str(folder.path)) :].replace(os.sep, "/")


def follow(
    connection: sqlite3.Connection,
    stems: Stems,
    listed: Iterable[tuple[Folder, Sequence[Entry]]],
    now_ns: Callable[[], int],
) -> Followed:
    """Take over what was added, changed or deleted in these folders, which were just listed."""
    reads: list[Read] = []
    touched: list[tuple[int, int, int]] = []
    gone: list[int] = []
    for folder, entries in listed:
        known = _known(connection, place(folder))
        for entry in entries:
            note, *had = known.pop(file_of(folder, entry), _NOTHING)
            if _is_clean(entry, *had):
                continue
            found = read(folder, entry, now_ns())
            if note and _sha256(connection, note) == found.sha256:
                touched.append((entry.mtime_ns, found.read_ns, note))
            else:
                reads.append(found)
        gone += [note for note, *_ in known.values()]
    if reads or gone or touched:
        put(connection, stems, reads, gone, touched)
    return Followed(bool(reads or gone), is_sure=not (reads or gone or touched))


def faults(connection: sqlite3.Connection, places: Sequence[str]) -> list[Fault]:
    """What is wrong with the files that could not be read."""
    rows = connection.execute(
        "SELECT faults FROM record JOIN note USING (note) WHERE kind = '' AND place IN "
        "(SELECT value FROM json_each(?)) ORDER BY file",
        (json.dumps(places),),
    )
    return [Fault(**fault) for (told,) in rows for fault in json.loads(told)]


def _known(connection: sqlite3.Connection, name: str) -> dict[str, _Known]:
    rows = connection.execute(
        "SELECT file, note, mtime_ns, size, read_ns FROM note WHERE place = ?", (name,)
    )
    return {row[0]: row[1:] for row in rows}


def _is_clean(entry: Entry, mtime_ns: int, size: int, read_ns: int) -> bool:
    same = mtime_ns == entry.mtime_ns and size == entry.size
    return same and read_ns - mtime_ns > TICK_NS


def _sha256(connection: sqlite3.Connection, note: int) -> str:
    found: str = connection.execute("SELECT sha256 FROM note WHERE note = ?", (note,)).fetchone()[0]
    return found


def read(folder: Folder, entry: Entry, now_ns: int) -> Read:
    """A note's file, read now."""
    file = file_of(folder, entry)
    raw, note = b"", None
    wrong: Sequence[Fault] = ()
    try:
        raw = folders.beginning(entry.path, file)
        note = folders.parsed(raw, entry.id, file)
    except NoteFault as fault:
        wrong = fault.faults
    digest = hashlib.sha256(b"%d:" % entry.size + raw).hexdigest()
    return Read(entry, file, place(folder), digest, now_ns, note, wrong)


def put(
    connection: sqlite3.Connection,
    stems: Stems,
    reads: Sequence[Read],
    gone: Sequence[int] = (),
    touched: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Write what changed in one short transaction; all that takes time is done before."""
    made = [(one, *_texts(one.note, stems)) for one in reads]
    with indexfile.transaction(connection):
        connection.executemany("UPDATE note SET mtime_ns = ?, read_ns = ? WHERE note = ?", touched)
        find = "SELECT note FROM note WHERE file = ?"
        old = [row for one in reads for row in connection.execute(find, (one.file,))]
        for table, key in (("note", "note"), ("record", "note"), ("words", "rowid")):
            numbers = [*old, *((number,) for number in gone)]
            connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", numbers)
        for one, title, body in made:
            _insert(connection, one, title, body)


def _texts(note: Note | None, stems: Stems) -> tuple[str, str]:
    if note is None:
        return "", ""
    title = words.of_note(" ".join((note.title, *note.tags)))
    return " ".join(stems.of(title)), " ".join(stems.of(words.of_note(note.body)))


def _insert(connection: sqlite3.Connection, one: Read, title: str, body: str) -> None:
    note, entry = one.note, one.entry
    facts: tuple[object, ...] = ("", "", False, 0.0, "", "[]", "")
    if note:
        tags = json.dumps([words.tag(tag) for tag in note.tags])
        passage = vectors.key(vectors.passage(note))
        newest = note.updated or note.created
        facts = (note.kind, note.status, note.pins, note.importance, newest, tags, passage)
    stamp = (entry.mtime_ns, entry.size, one.sha256, one.read_ns)
    length = len(title.split()) + len(body.split())
    sealed = approval.sha256(note) if note and note.status == "approved" else ""
    row = (one.file, one.place, entry.id, *facts, length, *stamp, sealed)
    places = ", ?" * len(row)
    number = connection.execute(f"INSERT INTO note VALUES (NULL{places})", row).lastrowid
    told = json.dumps([asdict(fault) for fault in one.faults])
    record = note.model_dump_json(exclude_defaults=True) if note else ""
    connection.execute("INSERT INTO record VALUES (?, ?, ?)", (number, record, told))
    connection.execute(
        "INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", (number, title, body)
    )
