"""Open the index of a workspace's notes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from arena_cli.errors import Fault
from arena_cli.notes import db, ingest
from arena_cli.notes.index import Index
from arena_cli.notes.ingest import OnProgress
from arena_cli.notes.store import Folder
from arena_cli.notes.text import Stems
from arena_cli.session import store
from arena_cli.util import files
from arena_cli.workspace.models import Embedding

INDEX = ".knowledge.sqlite"


def open_index(
    workspace: Path,
    folders: Sequence[Folder],
    *,
    is_stored: bool = True,
    embedding: Embedding | None = None,
    environ: Mapping[str, str] | None = None,
    connects: bool = False,
    on_problem: Callable[[Fault], None] = lambda _: None,
    on_progress: OnProgress = lambda _, __: None,
) -> Index:
    """Return the index of these folders; unless `is_stored`, it is held in memory.

    `on_problem` is called if its file cannot be used because it is a link.
    """
    path = store.sessions_folder(workspace) / INDEX if is_stored else None
    if path is not None and files.is_link(path):
        problem = "is a link, and arena does not write through links: notes are indexed in memory"
        label = path.relative_to(workspace).as_posix()
        on_problem(Fault(label, 0, "", problem, files.LINK_HINT))
        path = None
    return Index(
        path,
        folders,
        embedding=embedding,
        environ=environ,
        follow_trail=store.read_approvals,
        connects=connects,
        on_progress=on_progress,
    )


def forget_notes(folder: Folder) -> None:
    """Remove the notes of a folder that is gone from the index; its texts are in no file then.

    An index that cannot be written keeps them, and no search finds them.
    """
    path = store.sessions_folder(folder.workspace) / INDEX
    if files.is_link(path) or not path.is_file():
        return
    with contextlib.closing(db.opened(path)) as connection, contextlib.suppress(sqlite3.Error):
        place = ingest.place_of_note(folder)
        gone = [(place, name) for name in ingest.known_notes(connection, place)]
        connection.execute("PRAGMA secure_delete = on")
        ingest.put_notes(connection, Stems(connection), (), gone)
