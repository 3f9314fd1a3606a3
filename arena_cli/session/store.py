"""The `sessions` folder of a workspace: which sessions there are, and where."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground.errors import UsageError
from arena_cli.session import names
from arena_cli.transcript import read
from arena_cli.transcript.events import SessionEvent

TRANSCRIPT = "transcript.jsonl"


class Stored(NamedTuple):
    """A session on disk; `changed` is when it was last written, in seconds since 1970."""

    name: str
    folder: Path
    changed: float

    @property
    def transcript(self) -> Path:
        return self.folder / TRANSCRIPT


def sessions_of(workspace: Path) -> Path:
    """The folder that holds the sessions; it may not be there yet."""
    return workspace / "sessions"


def stored(workspace: Path) -> list[Stored]:
    """Every session that has a transcript, the last written first."""
    found = []
    folder = sessions_of(workspace)
    for entry in folder.iterdir() if folder.is_dir() else ():
        transcript = entry / TRANSCRIPT
        if not entry.is_symlink() and transcript.is_file():
            found.append(Stored(entry.name, entry, transcript.stat().st_mtime))
    return sorted(found, key=lambda one: (-one.changed, one.name))


def last(workspace: Path) -> Stored:
    """The session that was written last, those that scenarios left behind apart.

    Raises UsageError where there is none.
    """
    for one in stored(workspace):
        if not _is_of_scenario(one.transcript):
            return one
    raise UsageError("there is no session to go on with", "Start one: `arena send MESSAGE`.")


def _is_of_scenario(transcript: Path) -> bool:
    with transcript.open("rb") as file:
        first = read.events_of(file.readline())
    return any(isinstance(event, SessionEvent) and event.scenario is not None for event in first)


def find(workspace: Path, name: str) -> Stored:
    """The session with that name. Raises UsageError, with the nearest name."""
    folder = names.existing(sessions_of(workspace), names.checked(name))
    if folder is not None and (folder / TRANSCRIPT).is_file():
        return Stored(folder.name, folder, (folder / TRANSCRIPT).stat().st_mtime)
    known = [one.name for one in stored(workspace)]
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        f"there is no session {name!r}",
        f"Did you mean {near[0]!r}?" if near else "`arena sessions` lists those there are.",
    )
