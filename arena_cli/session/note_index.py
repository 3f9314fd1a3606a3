"""Open the index of a workspace's notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from arena_cli.errors import Fault
from arena_cli.notes.index import Index
from arena_cli.notes.ingest import OnProgress
from arena_cli.notes.store import Folder
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
