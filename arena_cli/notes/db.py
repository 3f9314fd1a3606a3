"""Open the index's file, create a new one if it is not of this version, or else use memory.

The index is derived from the notes: if the file is invalid, it is deleted and nothing is lost. It
uses a rollback journal, because SQLite's alternative, WAL, does not work on network disks
(https://sqlite.org/wal.html). Syncing is left to the system: a power cut costs the index only.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from arena_cli.util import files

FORMAT = 4
"""The version of what is derived from the notes: the tables, and how words are cut."""
APPLICATION = 0x4152_4E41
"""`ARNA`: by it a file is known for arena's (https://sqlite.org/pragma.html#pragma_application_id)."""

BUSY_S = 2.0
"""How long another process is waited for; its transactions take milliseconds."""

# The words come cut and stemmed; the tokenizer parts them at the spaces again.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE note (
    note INTEGER PRIMARY KEY, file TEXT NOT NULL, place TEXT NOT NULL, id TEXT NOT NULL,
    kind TEXT NOT NULL, status TEXT NOT NULL, pins INTEGER NOT NULL, importance REAL NOT NULL,
    updated TEXT NOT NULL, tags TEXT NOT NULL, text TEXT NOT NULL, title TEXT NOT NULL,
    words INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL,
    inode INTEGER NOT NULL, changed_ns INTEGER NOT NULL, sha256 TEXT NOT NULL,
    read_ns INTEGER NOT NULL, approval TEXT NOT NULL, UNIQUE (place, id)
);
CREATE TABLE record (
    note INTEGER PRIMARY KEY, json TEXT NOT NULL, faults TEXT NOT NULL, body TEXT NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(
    title, body, detail = none,
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* Co'"
);
CREATE TABLE vector (text TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
COMMIT;
"""

_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


def opened(path: Path) -> sqlite3.Connection:
    """Open the index in that file, or one in memory if it can be neither read nor created."""
    for _ in range(2):
        try:
            return _opened(path)
        except (sqlite3.Error, OSError) as error:
            if not is_broken(error) or not remove(path):
                break
    return in_memory()


def in_memory() -> sqlite3.Connection:
    """Open an index in memory, which is lost when it is closed."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_SCHEMA)
    return connection


def is_broken(error: Exception) -> bool:
    """Return True if an error means that the file is truncated, foreign, or of another version.

    Otherwise another process holds it, or the disk refused.
    """
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        return code & 0xFF in _BROKEN
    return False


def remove(path: Path) -> bool:
    """Delete the file, its journal first, which would otherwise be applied to the next file."""
    try:
        for name in (f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm", path.name):
            path.with_name(name).unlink(missing_ok=True)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all changes made within it, or none; other processes wait meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # SQLite has rolled back by itself where the disk was full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _opened(path: Path) -> sqlite3.Connection:
    # A database is opened through links, and made for everybody to read.
    files.make_own_folder(path.parent, below=path.parents[1])
    files.make_file(path, below=path.parents[1])
    # Who shares it says so: Index takes turns between threads.
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA temp_store = memory")
        connection.execute("PRAGMA synchronous = off")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if not tables:
            _make(connection)
        _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection) -> None:
    try:
        connection.executescript(_SCHEMA)
    except sqlite3.OperationalError:
        # Another process may have made it meanwhile; `_check` tells.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    marks = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "page_count", "page_size")
    ]
    # A file that was cut at a page is found out else only when the page is asked for.
    if marks[:2] != [APPLICATION, FORMAT] or path.stat().st_size < marks[2] * marks[3]:
        raise sqlite3.DatabaseError("not an index of this version")
