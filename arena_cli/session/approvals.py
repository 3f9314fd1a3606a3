"""Read from the trail which texts of notes were approved."""

from __future__ import annotations

import hashlib
from pathlib import Path

from arena_cli.adapters import base
from arena_cli.adapters.process import cleanup
from arena_cli.adapters.process.cleanup import Stray
from arena_cli.notes import staging
from arena_cli.notes.staging import NOTHING, ReadTrail
from arena_cli.notes.store import Folder
from arena_cli.session import store
from arena_cli.transcript import events, reader
from arena_cli.transcript.events import NoteEvent
from arena_cli.workspace.workspace import Workspace

HISTORY = "history.jsonl"
TRANSCRIPT = "transcript.jsonl"

_CHECKED_BYTES = 256


def trail_path(folder: Folder) -> Path:
    """Return the path of the trail with the acts on the notes of a folder."""
    return folder.path / HISTORY if folder.shared else folder.path.parent / TRANSCRIPT


def follow(trail: Path, known: ReadTrail = NOTHING) -> ReadTrail:
    """Continue to read a trail from the end of `known`; from its beginning if it is another one."""
    try:
        with trail.open("rb") as file:
            size = file.seek(0, 2)
            if known.end and (size < known.end or _check(trail, known.end) != known.check):
                known = NOTHING
            if size == known.end:
                return known
            file.seek(known.end)
            approved, end = dict(known.approved), known.end
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                end += len(raw)
                if events.read_type(raw) in (None, "note"):
                    for event in reader.parse_events(raw):
                        if isinstance(event, NoteEvent):
                            staging.after(approved, event.note, event.act, event.sha256)
    except FileNotFoundError:
        return NOTHING
    return ReadTrail(end, _check(trail, end), approved)


def read_approvals(folder: Folder, followed: ReadTrail) -> ReadTrail:
    """Continue to read the trail of a folder's notes."""
    return follow(trail_path(folder), followed)


def _check(trail: Path, end: int) -> str:
    """Return a hash of the last bytes before `end`, which identifies the file."""
    with trail.open("rb") as file:
        start = max(0, end - _CHECKED_BYTES)
        file.seek(start)
        return hashlib.sha256(file.read(end - start)).hexdigest()


DOTENV = ".env"


def exposed(workspace: Workspace) -> dict[str, list[str]]:
    """Return `.env` and `sessions` if they are in or below the `cwd` of an agent, by agent id.

    Agents whose `cwd` depends on the environment are skipped.
    """
    root = workspace.root.resolve()
    kept = [path for path in (root / DOTENV, store.sessions_folder(root)) if path.exists()]
    exposed_to: dict[str, list[str]] = {}
    for agent_id, profile in workspace.profiles.items():
        shape = base.settings_type(str(profile.adapter["type"]))
        cwd = profile.adapter.get("cwd", ".")
        if shape is None or "cwd" not in shape.model_fields or not isinstance(cwd, str):
            continue
        folder = (root / cwd).resolve()
        names = [path.name for path in kept if path.is_relative_to(folder)]
        if names:
            exposed_to[agent_id] = names
    return exposed_to


RECORDS = ".processes"


def records_in(workspace: Path) -> Path:
    """Return the folder with the records of running processes."""
    return store.sessions_folder(workspace) / RECORDS


def behind(workspace: Path) -> list[Stray]:
    """Return the processes that the next arena which calls agents there will end."""
    return cleanup.find_strays(records_in(workspace))
