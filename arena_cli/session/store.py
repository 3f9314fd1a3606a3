"""Find, name and lock the sessions of a workspace, and read which notes were approved.

One process at a time has a session, first come first served (`tickets`).
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import ThreadError
from typing import NamedTuple

from arena_cli import errors
from arena_cli.adapters import base
from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.process import cleanup
from arena_cli.adapters.process.cleanup import Stray
from arena_cli.errors import SessionBusy, UsageError
from arena_cli.notes import staging
from arena_cli.notes.staging import NOTHING, ReadTrail
from arena_cli.notes.store import Folder
from arena_cli.transcript import events, log, queries, reader
from arena_cli.transcript.events import NoteEvent, SessionEvent
from arena_cli.transcript.log import Journal, Log
from arena_cli.transcript.state import Fold
from arena_cli.util import files, text, tickets
from arena_cli.util.clock import Clock, format_timestamp
from arena_cli.util.text import escape_line, lazy_pattern
from arena_cli.util.tickets import Lock, Ticket
from arena_cli.workspace import agents
from arena_cli.workspace.models import LaneName
from arena_cli.workspace.workspace import Workspace

LONGEST = 64
RESERVED = frozenset({"knowledge"})

_AUTOMATIC = lazy_pattern(r"\d{8}-\d{6}-[0-9a-f]{4}")


def automatic(clock: Clock) -> str:
    """Return a name `YYYYMMDD-HHMMSS-<4 hex>`, in UTC."""
    return f"{clock.now():%Y%m%d-%H%M%S}-{clock.token(4)}"


def is_automatic(name: str) -> bool:
    """Return True if the name was made by arena."""
    return _AUTOMATIC.fullmatch(name) is not None


def checked(name: str) -> str:
    """Return the name in NFC. Raises UsageError if it cannot name a folder of `sessions`."""
    normal = unicodedata.normalize("NFC", name)
    problem = _fault(normal)
    if problem:
        label = escape_line(normal if len(normal) <= LONGEST else normal[:LONGEST] + "...")
        raise UsageError(
            f"session name {label!r}: {problem}",
            "Use letters, digits, `-` and `_` of any script, at most 64 characters.",
        )
    return normal


def _fault(name: str) -> str:
    faults = {
        "it is empty": not name.strip(),
        f"it is longer than {LONGEST} characters": len(name) > LONGEST,
        f"it is longer than {text.FILESYSTEM_NAME_BYTES} bytes": text.measure_name(name)
        > text.FILESYSTEM_NAME_BYTES,
        'it contains a path separator, or one of : * ? " < > |': any(
            c in text.FORBIDDEN_IN_NAMES for c in name
        ),
        "it contains a character that cannot be printed": not name.isprintable(),
        "it starts with a dot or a dash": name[:1] in ".-",
        "it starts or ends with a space or a dot": name != name.strip(" ").rstrip("."),
        "that name is reserved": name.casefold() in RESERVED or text.is_device_name(name),
    }
    return next((problem for problem, holds in faults.items() if holds), "")


def existing(sessions: Path, name: str) -> Path | None:
    """Return the folder of the session with that name, case-folded, or None. Refuses a link."""
    folder = sessions / name
    if not is_automatic(name):
        folder = _alike(sessions, name) or folder
    if folder.is_symlink():
        raise UsageError(
            f"session {escape_line(name)}: {folder} is a link",
            "A session is a folder of its own below `sessions`.",
        )
    return folder if folder.is_dir() else None


def _alike(sessions: Path, name: str) -> Path | None:
    """Return the path of that name, as it is written there.

    The existence of a path does not show it: on Windows and macOS, `Foo` exists if `foo` does.
    """
    entries = list(sessions.iterdir()) if sessions.is_dir() else []
    alike = [entry for entry in entries if _folded(entry.name) == _folded(name)]
    # A decomposed name goes by its composed form, where the platform takes both for one.
    same = [entry for entry in alike if unicodedata.normalize("NFC", entry.name) == name]
    if same and (sessions / name).is_dir():
        return sessions / name
    return next(iter(same or alike), None)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


TRANSCRIPT = reader.TRANSCRIPT
CONTROL = "control"
"""The folder of requests of people, in the session's folder (`engine.inbox`)."""

# What is told of a session that was there a moment ago, such as one of a scenario that passed;
# Windows refuses a file that is being removed.
_GONE = (FileNotFoundError, PermissionError) if sys.platform == "win32" else (FileNotFoundError,)


_FOLDER_HINT = "arena keeps transcripts there; fix the permissions, or choose another --workspace."


class Stored(NamedTuple):
    """A session on disk; `changed` is the time of its last write, in seconds since 1970."""

    name: str
    folder: Path
    changed: float

    @property
    def transcript(self) -> Path:
        return self.folder / TRANSCRIPT


def sessions_folder(workspace: Path) -> Path:
    """Return the folder that contains the sessions; it may not exist yet."""
    return workspace / "sessions"


def stored(workspace: Path) -> list[Stored]:
    """Return every session that has a transcript, the last written first."""
    folder = sessions_folder(workspace)
    entries = folder.iterdir() if folder.is_dir() else ()
    sessions = [
        session for entry in entries if not entry.is_symlink() and (session := _stored(entry))
    ]
    return sorted(sessions, key=lambda one: (-one.changed, one.name))


def _stored(folder: Path) -> Stored | None:
    """Return the session in that folder; None if there is none, or no longer."""
    transcript = folder / TRANSCRIPT
    with contextlib.suppress(*_GONE):
        if transcript.is_file():
            return Stored(folder.name, folder, transcript.stat().st_mtime)
    return None


def summaries(
    workspace: Path,
    limit: int | None = None,
    is_listed: Callable[[Stored], bool] | None = None,
) -> list[dict[str, str | None]]:
    """Return a row for each session (see `queries.summarize_session`), the last written first.

    `limit` is the largest number of rows; with `is_listed`, only these sessions have one.
    """
    rows: list[dict[str, str | None]] = []
    for session in stored(workspace):
        if len(rows) == limit:
            break
        if is_listed is not None and not is_listed(session):
            continue
        with contextlib.suppress(*_GONE):
            rows.append({"session": session.name, **queries.summarize_session(session.transcript)})
    return rows


def last(workspace: Path) -> Stored:
    """Return the session that was written last, ignoring those of scenarios.

    Raises UsageError if there is none.
    """
    for session in stored(workspace):
        with contextlib.suppress(*_GONE):
            if not _is_of_scenario(session.transcript):
                return session
    raise UsageError("there is no session to continue", "Start one: `arena send MESSAGE`.")


def _is_of_scenario(transcript: Path) -> bool:
    with files.open_binary(transcript) as file:
        first = reader.parse_events(file.readline())
    return any(isinstance(event, SessionEvent) and event.scenario is not None for event in first)


def find(workspace: Path, name: str) -> Stored:
    """Return the session with that name. Raises UsageError, with the nearest name."""
    folder = existing(sessions_folder(workspace), checked(name))
    session = _stored(folder) if folder is not None else None
    if session is not None:
        return session
    archived = find_archive(workspace, checked(name))
    if archived is not None:
        raise _archived_error(archived)
    names = [stored_session.name for stored_session in stored(workspace)]
    near = difflib.get_close_matches(name, names, n=1)
    raise UsageError(
        f"there is no session {name!r}",
        f"Did you mean {near[0]!r}?" if near else "`arena sessions` lists all sessions.",
    )


ARCHIVE = ".archive"
ARCHIVE_SUFFIX = ".zip"


def archive_folder(workspace: Path) -> Path:
    """Return the folder that contains the archived sessions; it may not exist yet."""
    return sessions_folder(workspace) / ARCHIVE


def find_archive(workspace: Path, name: str) -> Path | None:
    """Return the archive of the session with that name, case-folded, or None."""
    path = _alike(archive_folder(workspace), f"{name}{ARCHIVE_SUFFIX}")
    return path if path and path.is_file() and not files.is_link(path) else None


def _archived_error(archive: Path) -> UsageError:
    name = escape_line(archive.name.removesuffix(ARCHIVE_SUFFIX))
    return UsageError(
        f"session {name} is archived", f"`arena sessions restore {name}` makes it usable again."
    )


def find_near(workspace: Path, name: str) -> str | None:
    """Return the session whose name a new one is most likely a typing error of, None if none is.

    Names that differ in digits alone (`day-1`, `day-2`) are no errors.
    """

    def without_digits(text: str) -> str:
        return re.sub(r"\d+", "", text.casefold())

    names = [session.name for session in stored(workspace) if not is_automatic(session.name)]
    near = errors.find_nearest(name, names)
    return near if near and without_digits(near) != without_digits(name) else None


def make_session_folder(workspace: Path, name: str | None, clock: Clock) -> Path:
    """Return the folder of the session with that name, created if needed; None is a new one.

    Raises UsageError.
    """
    sessions = sessions_folder(workspace)
    if name is not None:
        name = checked(name)
        folder = existing(sessions, name) or sessions / name
    try:
        if name is None:
            return _claimed(sessions, clock)
        files.make_own_folder(folder, below=workspace)
    except OSError as error:
        raise UsageError(
            f"{sessions}: cannot make a folder here: {error.strerror or error}",
            files.suggest_fix(error, _FOLDER_HINT),
        ) from error
    # An archive is complete before its session's folder goes, so that this look is late enough.
    archived = None if (folder / TRANSCRIPT).exists() else find_archive(workspace, name)
    if archived is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise _archived_error(archived)
    return folder


def _claimed(sessions: Path, clock: Clock) -> Path:
    """Create a folder that no other process has, even one that started in the same second."""
    files.make_own_folder(sessions, below=sessions.parent)
    while True:
        folder = sessions / automatic(clock)
        try:
            folder.mkdir(files.FOLDER_MODE)
        except FileExistsError:
            continue
        return folder


NAME = "transcript.lock"

_POLL_S = 0.05


@contextlib.contextmanager
def hold(
    folder: Path, name: str, *, wait_s: float, on_wait: Callable[[], None] = lambda: None
) -> Iterator[Lock]:
    """Hold the lock of a folder until the end; see `acquire`."""
    lock = acquire(folder, name, wait_s=wait_s, on_wait=on_wait)
    try:
        yield lock
    finally:
        with contextlib.suppress(ThreadError):  # released to move the folder
            lock.release()


def acquire(folder: Path, name: str, *, wait_s: float, on_wait: Callable[[], None]) -> Lock:
    """Hold the lock of a folder, called `name` for people; call `on_wait` once if it is held.

    Those that wait are served in the order in which they came, over all processes. Raises
    SessionBusy after `wait_s` seconds, UsageError where the folder refuses the file.
    """
    lock = Lock(folder / NAME)
    moved = UsageError(
        f"{escape_line(name)} was archived, renamed or deleted meanwhile",
        "`arena sessions` and `arena sessions --archived` list all sessions.",
    )
    try:
        if _acquire_in_turn(lock, wait_s, on_wait):
            if lock.is_current():
                return lock
            lock.release()
            raise moved
    except (OSError, ThreadError) as error:
        if not folder.exists():
            raise moved from error
        raise UsageError(
            f"{folder}: cannot write here: {getattr(error, 'strerror', None) or error}",
            files.suggest_fix(error, _FOLDER_HINT),
        ) from error
    raise SessionBusy(
        f"{escape_line(name)} is busy: another arena is writing to it "
        f"(waited {wait_s:g} s)\n"
        "  Nothing was written. Try again later, or wait longer with --wait SECONDS."
    )


def is_held(folder: Path) -> bool:
    """Return True if another process writes to that session now; make no lock file.

    Return False if that cannot be checked.
    """
    if not (folder / NAME).is_file() or files.is_link(folder / NAME):
        return False
    lock = Lock(folder / NAME)
    with contextlib.suppress(OSError, ThreadError):
        if not lock.try_acquire():
            return True
        lock.release()
    return False


def _acquire_in_turn(lock: Lock, wait_s: float, on_wait: Callable[[], None]) -> bool:
    """Take the lock if it is free and no process waits for it; else wait up to that time.

    Return True if it is held. Those that wait get it in the order in which they arrived.
    """
    if not tickets.has_queue(lock.path) and lock.try_acquire():
        return True
    if wait_s <= 0:
        return False
    with tickets.draw_ticket(lock.path) as ticket:
        on_wait()
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            time.sleep(_POLL_S)
            if not ticket.find_position() and lock.try_acquire():
                return True
    return False


def load_state(transcript: Path) -> Fold:
    """Return the state of a session without its messages; its cache stays as it is."""
    return reader.load_fold(
        transcript, on_message=lambda _: None, weigh=lambda _: 1, budget=0, keep=False
    )


@contextlib.contextmanager
def open_journal(config: SessionConfig, transcript: Path) -> Iterator[Journal]:
    """Repair the transcript of a session that is held, and open it for further events."""
    repair = log.repair(transcript, reader.last_seq(transcript) + 1)
    fold = load_state(transcript)
    opened = Log(transcript, clock=config.clock, durability=config.durability, seq=fold.seq)
    with contextlib.closing(opened):
        journal = Journal(opened, fold, lambda _: None)
        journal.write_repair(repair)
        yield journal


LANES = ".lanes"


def lane_path(workspace: Path, lane: LaneName) -> Path:
    """Return the path that the tickets of a lane are next to."""
    return sessions_folder(workspace) / LANES / lane


def draw_place(config: SessionConfig, lane: LaneName, session: str, agent: str) -> Ticket:
    """Return the last place in a lane that has a bound. Raises DiskRefused."""
    path = lane_path(config.workspace, lane)
    since = format_timestamp(config.clock.now())
    owner = {"session": session, "agent": agent, "pid": os.getpid(), "since": since}
    try:
        files.make_own_folder(path.parent, below=config.workspace)
        return tickets.draw_ticket(
            path,
            bound=config.lanes.find_bound(lane) or 1,
            owner=json.dumps(owner, ensure_ascii=False).encode(),
        )
    except (OSError, ThreadError) as error:
        raise tickets.refused(path.parent, error) from error


HISTORY = "history.jsonl"

_CHECKED_BYTES = 256


def trail_path(folder: Folder) -> Path:
    """Return the path of the trail with the acts on the notes of a folder."""
    return folder.path / HISTORY if folder.shared else folder.path.parent / TRANSCRIPT


def follow(trail: Path, known: ReadTrail = NOTHING) -> ReadTrail:
    """Continue to read a trail from the end of `known`; from its beginning if it is another one."""
    try:
        with trail.open("rb") as file:
            size = file.seek(0, 2)
            if known.end and (size < known.end or _hash_end(trail, known.end) != known.check):
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
    return ReadTrail(end, _hash_end(trail, end), approved)


def _hash_end(trail: Path, end: int) -> str:
    """Return a hash of the last bytes before `end`, which identifies the file."""
    with trail.open("rb") as file:
        start = max(0, end - _CHECKED_BYTES)
        file.seek(start)
        return hashlib.sha256(file.read(end - start)).hexdigest()


DOTENV = ".env"


def list_exposed(workspace: Workspace) -> dict[str, list[str]]:
    """Return `.env` and `sessions` if they are in or below the `cwd` of an agent, by agent id.

    Agents whose `cwd` depends on the environment are skipped.
    """
    root = workspace.root.resolve()
    kept = [path for path in (root / DOTENV, sessions_folder(root)) if path.exists()]
    exposed_to: dict[str, list[str]] = {}
    for agent_id, profile in workspace.profiles.items():
        for adapter in agents.list_adapters(profile.adapter):
            shape = base.settings_type(str(adapter["type"]))
            cwd = adapter.get("cwd", ".")
            if shape is None or "cwd" not in shape.model_fields or not isinstance(cwd, str):
                continue
            folder = (root / cwd).resolve()
            names = [path.name for path in kept if path.is_relative_to(folder)]
            if names:
                exposed_to[agent_id] = names
    return exposed_to


def process_records_folder(workspace: Path) -> Path:
    """Return the folder with the records of running processes."""
    return cleanup.records_folder(workspace)


def find_strays(workspace: Path) -> list[Stray]:
    """Return the processes that the next arena which calls agents there will end."""
    return cleanup.find_strays(process_records_folder(workspace))
