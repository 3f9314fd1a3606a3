"""The `sessions` folder of a workspace: which sessions there are, and where."""

from __future__ import annotations

import contextlib
import difflib
import sys
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import ownfiles, regularfiles
from arena_cli.ground.clock import Clock
from arena_cli.ground.errors import UsageError
from arena_cli.session import names
from arena_cli.transcript import passage, read
from arena_cli.transcript.events import SessionEvent

TRANSCRIPT = "transcript.jsonl"

# What is told of a session that was there a moment ago, such as one of a scenario that passed;
# Windows refuses a file that is being removed.
_GONE = (FileNotFoundError, PermissionError) if sys.platform == "win32" else (FileNotFoundError,)


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
    folder = sessions_of(workspace)
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [one for entry in entries if not entry.is_symlink() and (one := _stored(entry))]
    return sorted(found, key=lambda one: (-one.changed, one.name))


def _stored(folder: Path) -> Stored | None:
    """The session in that folder; None where there is none, or no longer."""
    transcript = folder / TRANSCRIPT
    with contextlib.suppress(*_GONE):
        if transcript.is_file():
            return Stored(folder.name, folder, transcript.stat().st_mtime)
    return None


def summaries(workspace: Path) -> list[dict[str, str | None]]:
    """What a list of sessions says of each (see `passage.summary_of`), the last written first."""
    found = []
    for one in stored(workspace):
        with contextlib.suppress(*_GONE):
            found.append({"session": one.name, **passage.summary_of(one.transcript)})
    return found


def last(workspace: Path) -> Stored:
    """The session that was written last, those that scenarios left behind apart.

    Raises UsageError where there is none.
    """
    for one in stored(workspace):
        with contextlib.suppress(*_GONE):
            if not _is_of_scenario(one.transcript):
                return one
    raise UsageError("there is no session to go on with", "Start one: `arena send MESSAGE`.")


def _is_of_scenario(transcript: Path) -> bool:
    with regularfiles.open_binary(transcript) as file:
        first = read.events_of(file.readline())
    return any(isinstance(event, SessionEvent) and event.scenario is not None for event in first)


def find(workspace: Path, name: str) -> Stored:
    """The session with that name. Raises UsageError, with the nearest name."""
    folder = names.existing(sessions_of(workspace), names.checked(name))
    there = _stored(folder) if folder is not None else None
    if there is not None:
        return there
    known = [one.name for one in stored(workspace)]
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        f"there is no session {name!r}",
        f"Did you mean {near[0]!r}?" if near else "`arena sessions` lists those there are.",
    )


def made(workspace: Path, name: str | None, clock: Clock) -> Path:
    """The folder of the session with that name, made if need be; None is a new one.

    Raises UsageError.
    """
    sessions = sessions_of(workspace)
    if name is not None:
        name = names.checked(name)
        folder = names.existing(sessions, name) or sessions / name
    try:
        if name is None:
            folder = _claimed(sessions, clock)
        else:
            ownfiles.make_folder(folder, below=workspace)
    except OSError as error:
        raise UsageError(
            f"{sessions}: cannot make a folder here: {error.strerror or error}",
            ownfiles.hint(
                error,
                "arena keeps transcripts there; mend the rights, or choose another --workspace.",
            ),
        ) from error
    return folder


def _claimed(sessions: Path, clock: Clock) -> Path:
    """A new folder that no other process has, even one that started in the same second."""
    ownfiles.make_folder(sessions, below=sessions.parent)
    while True:
        folder = sessions / names.automatic(clock)
        try:
            folder.mkdir(ownfiles.FOLDER_MODE)
        except FileExistsError:
            continue
        return folder
