"""The one writer of a session's transcript: append, flush, cut back, repair.

Whoever makes a `Log` holds the session's lock (`arena_cli.session.lock`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import ownfiles, wholefile
from arena_cli.ground.clock import Clock, timestamp
from arena_cli.ground.errors import ArenaError, DiskRefused, UsageError
from arena_cli.team.model import Durability
from arena_cli.transcript import events, read, rescue
from arena_cli.transcript.events import Event, MessageEvent, Recovered, ReplyFinished


class Stamp(NamedTuple):
    """Number, time and message id of the event that is written next."""

    seq: int
    ts: str

    @property
    def message_id(self) -> str:
        return f"m{self.seq}"


class Log:
    """A transcript open for appending. `seq` is the number of its last event.

    `durability: fsync` reaches the disk at every message and finished reply, `flush` never asks
    for it; both reach the operating system at every event. Raises DiskRefused where a write or
    a sync fails; the file then ends with the last whole line. Where the file was removed, moved,
    replaced or changed by somebody else, the next event raises TranscriptLost, and what is known is
    in a file beside it (`rescue`). Raises UsageError where the path is a link.
    """

    def __init__(self, path: Path, *, clock: Clock, durability: Durability, seq: int) -> None:
        self.path = path
        self.seq = seq
        self._clock = clock
        self._sync = durability == "fsync"
        self._lost: rescue.TranscriptLost | None = None
        self._name = os.fspath(path)
        try:
            # It is read too: a file that was removed can still be copied while it is open.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._file = ownfiles.open_file(path, flags, below=path.parents[2])
            state = os.fstat(self._file)
        except OSError as error:
            raise _refused(path, error) from error
        self.size = state.st_size
        self._is_new = self.size == 0
        self._identity = _identity(state)
        self._held = rescue.Held(self.size)

    @property
    def is_whole(self) -> bool:
        """Whether the file is, as far as is known, what was written to it."""
        return self._lost is None

    def stamp(self) -> Stamp:
        """What the next event carries. Nothing may be appended between this and its event."""
        return Stamp(self.seq + 1, timestamp(self._clock.now()))

    def append(self, event: Event) -> None:
        """Write one whole line in one write; a short write is cut back before the error."""
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} cannot follow {self.seq}")
        line = events.line_of(event)
        self._check_file(line)
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
            if self._sync and isinstance(event, (MessageEvent, ReplyFinished)):
                os.fsync(self._file)
                self._sync_names()
        except OSError as error:
            os.ftruncate(self._file, self.size)
            raise _refused(self.path, error) from error
        self.size += len(line)
        self.seq = event.seq
        held = self._held
        held.add(line)
        if self.size - held.start > held.MOST_BYTES:
            held.trim(self.size)

    def _check_file(self, line: bytes) -> None:
        """Raise TranscriptLost, with `line` rescued too, where the file is not as it was left.

        One look at the path tells: whose file lies there, and how long it is.
        """
        if self._lost is not None:
            raise self._lost
        try:
            state = os.lstat(self._name)
            if state.st_size == self.size and (state.st_ino, state.st_dev) == self._identity:
                return
        except (FileNotFoundError, NotADirectoryError):
            loss: rescue.Loss | None = "removed"
        except OSError as error:
            raise _refused(self.path, error) from error
        else:
            loss = self._loss(state)
        if loss is not None:
            self._held.add(line)
            self._lost = rescue.save(self.path, self._file, self._held, loss, seq=self.seq + 1)
            raise self._lost

    def _loss(self, state: os.stat_result) -> rescue.Loss | None:
        if _identity(state) != self._identity:
            return "replaced"
        # What Windows knows of a path may be older than what it knows of the open file.
        size = os.fstat(self._file).st_size if sys.platform == "win32" else state.st_size
        if size < self.size:
            return "cut"
        return "changed" if size > self.size else None

    def sync(self) -> None:
        """Have what was appended reach the disk, if that is asked for. Raises DiskRefused."""
        if self._sync:
            try:
                os.fsync(self._file)
                self._sync_names()
            except OSError as error:
                raise _refused(self.path, error) from error

    def _sync_names(self) -> None:
        """Have the names of a new transcript and of the folders above it reach the disk, once."""
        if self._is_new:
            self._is_new = False
            wholefile.sync_folders(list(self.path.parents)[:3])

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _identity(state: os.stat_result) -> tuple[int, int]:
    """What tells a file from others; Windows may number its disk in two ways."""
    return state.st_ino, 0 if sys.platform == "win32" else state.st_dev


def _refused(path: Path, error: OSError) -> ArenaError:
    if isinstance(error, ownfiles.LinkRefused):
        return UsageError(str(error.strerror), ownfiles.HINT)
    return DiskRefused(
        f"{path}: could not write: {error.strerror or error}",
        "What was written before is whole; free space or rights, then "
        f"`arena resume {path.parent.name}` goes on.",
    )


class Repair(NamedTuple):
    """What a repair did: `kept_in` names the file with the set-aside bytes, None for none."""

    what: str
    bytes: int
    kept_in: str | None


def repair(path: Path, seq: int) -> Repair | None:
    """Mend the last line of a transcript, if it does not end with a newline.

    What parses gets its newline; what does not is copied to `transcript.torn-<seq>` and cut off.
    `seq` is the number of the next event. Returns None where nothing was wrong.
    """
    try:
        tail, start = read.tail(path)
    except FileNotFoundError:
        return None
    if not tail:
        return None
    whole = read.whole_prefix(tail)
    try:
        descriptor = ownfiles.open_file(path, os.O_RDWR, below=path.parents[2])
        with os.fdopen(descriptor, "r+b") as file:
            if whole == len(tail):
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
                return Repair("the last line had no newline", 0, None)
            aside = _unused(path.with_name(f"{path.stem}.torn-{seq}"))
            ownfiles.write(aside, tail[whole:], below=path.parents[2], is_new=True)
            file.truncate(start + whole)
            if whole:
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
    except OSError as error:
        raise _refused(path, error) from error
    return Repair("the last line was torn", len(tail) - whole, aside.name)


def _unused(path: Path) -> Path:
    count = 1
    free = path
    while os.path.lexists(free):
        count += 1
        free = path.with_name(f"{path.name}-{count}")
    return free


def recovered(repair: Repair, stamp: Stamp) -> Recovered:
    """The event that tells of a repair."""
    return Recovered(
        seq=stamp.seq, ts=stamp.ts, what=repair.what, bytes=repair.bytes, kept_in=repair.kept_in
    )
