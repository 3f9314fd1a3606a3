"""The one writer of a session's transcript: append, flush, cut back, repair.

A process that makes a `Log` holds the session's lock (`arena_cli.session.store`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from arena_cli.errors import ArenaError, DiskRefused, UsageError
from arena_cli.protocol import Attachment
from arena_cli.transcript import reader
from arena_cli.transcript.events import Event, MessageEvent, Recovered, ReplyFinished, encode_line
from arena_cli.transcript.state import Fold
from arena_cli.util import files, text
from arena_cli.util.clock import Clock, format_timestamp
from arena_cli.workspace.models import Durability

Loss = Literal["removed", "replaced", "cut", "changed"]

_WHAT = {
    "removed": "the transcript was removed or moved while arena wrote to it",
    "replaced": "another file took the transcript's place while arena wrote to it",
    "cut": "the transcript was cut while arena wrote to it",
    "changed": "something else wrote to the transcript while arena wrote to it",
}
_BLOCK = 1 << 20


class TranscriptLost(DiskRefused):
    """The transcript is no longer as arena wrote it; the known events are in another file."""


class Held:
    """The last lines of a transcript that this process wrote, and the byte where they begin."""

    MOST_BYTES: ClassVar[int] = 8_000_000

    def __init__(self, start: int) -> None:
        self.start = start
        self._lines: deque[bytes] = deque()

    def add(self, line: bytes) -> None:
        """Keep a line; `trim` bounds how many there are."""
        self._lines.append(line)

    def trim(self, end: int) -> None:
        """Drop the oldest lines if there are too many; `end` is the end offset of the last one."""
        while end - self.start > self.MOST_BYTES and len(self._lines) > 1:
            self.start += len(self._lines.popleft())

    def lines(self) -> Iterator[bytes]:
        """Yield them in order."""
        yield from self._lines


def save(path: Path, descriptor: int, held: Held, loss: Loss, *, seq: int) -> TranscriptLost:
    """Write the known events to a file next to the transcript; return the error that names both.

    `descriptor` is the transcript as it was opened, `seq` the number of the last event in `held`.
    """
    problem = f"{path}: {_WHAT[loss]} (at event {seq})"
    try:
        target, missing = _save(path, descriptor, held, seq)
    except OSError as error:
        reason = error.strerror or error
        failed_path = error.filename or path.parent
        unsaved = f"{problem}; its known events could not be saved: {failed_path}: {reason}"
        return TranscriptLost(unsaved, "Free disk space, or fix the permissions there.")
    lack = f", except {missing:,} missing bytes" if missing else ""
    instead = "" if loss == "removed" else f" in place of the current {path.name}"
    return TranscriptLost(
        f"{problem}; its known events, including this one{lack}, are in {target}",
        f"To continue, move that file back to {path}{instead}, then run `arena "
        f"resume {path.parent.name}`.",
    )


def _save(path: Path, descriptor: int, held: Held, seq: int) -> tuple[Path, int]:
    """Write the file; return its path, and the number of missing bytes before the held lines."""
    name = f"{path.stem}.rescued-{seq}{path.suffix}"
    workspace = path.parents[2]
    try:
        if not workspace.is_dir():
            raise FileNotFoundError(workspace)
        files.make_own_folder(path.parent, below=workspace)
        target = _free_path(path.with_name(name), path.suffix)
        copied = _write(target, workspace, descriptor, held)
    except OSError:
        # Folder and all are gone, or take no file: anywhere is better than nowhere.
        import tempfile  # noqa: PLC0415 - hardly ever needed

        folder = Path(tempfile.gettempdir())
        target = _free_path(folder / f"arena-{path.parent.name}-{name}", path.suffix)
        copied = _write(target, folder, descriptor, held)
    return target, held.start - copied


def _write(target: Path, below: Path, descriptor: int, held: Held) -> int:
    """Write the open file's content before the held lines, then these; return the former's size.

    Content before them that ends within a line is cut to whole lines.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    with os.fdopen(files.open_file(target, flags, below=below), "r+b") as file:
        os.lseek(descriptor, 0, os.SEEK_SET)
        bytes_left, whole_end = held.start, 0
        while bytes_left and (block := os.read(descriptor, min(bytes_left, _BLOCK))):
            end = block.rfind(b"\n") + 1
            whole_end = file.tell() + end if end else whole_end
            file.write(block)
            bytes_left -= len(block)
        if bytes_left:
            file.seek(whole_end)
            file.truncate()
        size = file.tell()
        for line in held.lines():
            file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return size


class Stamp(NamedTuple):
    """Number, time and message id of the event that is written next."""

    seq: int
    ts: str

    @property
    def message_id(self) -> str:
        return f"m{self.seq}"


class Log:
    """A transcript open for appending. `seq` is the number of its last event.

    With `durability: fsync`, every message and every finished reply is flushed to the disk; with
    `flush` none is. With both, every event is passed to the operating system. Raises DiskRefused if
    a write or a sync fails; the file then ends with the last whole line. If another process has
    removed, moved, replaced or changed the file, the next event raises TranscriptLost, and the
    known events are saved to a file next to it (`save`). Raises UsageError if the path is a link.
    """

    def __init__(self, path: Path, *, clock: Clock, durability: Durability, seq: int) -> None:
        self.path = path
        self.seq = seq
        self._clock = clock
        self._sync = durability == "fsync"
        self._lost: TranscriptLost | None = None
        self._name = os.fspath(path)
        try:
            # It is read too: a file that was removed can still be copied while it is open.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._file = files.open_file(path, flags, below=path.parents[2])
            state = os.fstat(self._file)
        except OSError as error:
            raise _refused(path, error) from error
        self.size = state.st_size
        self._is_new = self.size == 0
        self._identity = _identity(state)
        self._held = Held(self.size)

    @property
    def is_whole(self) -> bool:
        """True as long as the file is known to hold exactly what was written."""
        return self._lost is None

    def stamp(self) -> Stamp:
        """Return the number and time of the next event; append nothing before that event."""
        return Stamp(self.seq + 1, format_timestamp(self._clock.now()))

    def append(self, event: Event) -> None:
        """Write one whole line in one write; a short write is cut back before the error."""
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} cannot follow {self.seq}")
        line = encode_line(event)
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
        """Raise TranscriptLost, with `line` rescued too, if the file has been changed.

        The path's file identity and size show it.
        """
        if self._lost is not None:
            raise self._lost
        try:
            state = os.lstat(self._name)
            if state.st_size == self.size and (state.st_ino, state.st_dev) == self._identity:
                return
        except (FileNotFoundError, NotADirectoryError):
            loss: Loss | None = "removed"
        except OSError as error:
            raise _refused(self.path, error) from error
        else:
            loss = self._loss(state)
        if loss is not None:
            self._held.add(line)
            self._lost = save(self.path, self._file, self._held, loss, seq=self.seq + 1)
            raise self._lost

    def _loss(self, state: os.stat_result) -> Loss | None:
        if _identity(state) != self._identity:
            return "replaced"
        # What Windows knows of a path may be older than what it knows of the open file.
        size = os.fstat(self._file).st_size if sys.platform == "win32" else state.st_size
        if size < self.size:
            return "cut"
        return "changed" if size > self.size else None

    def sync(self) -> None:
        """Flush the appended events to the disk, if required. Raises DiskRefused."""
        if self._sync:
            try:
                os.fsync(self._file)
                self._sync_names()
            except OSError as error:
                raise _refused(self.path, error) from error

    def _sync_names(self) -> None:
        """Flush the names of a new transcript and of its folders to the disk, once."""
        if self._is_new:
            self._is_new = False
            files.sync_folders(list(self.path.parents)[:3])

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _identity(state: os.stat_result) -> tuple[int, int]:
    """Return the numbers that identify a file; Windows may number its disk in two ways."""
    return state.st_ino, 0 if sys.platform == "win32" else state.st_dev


def _refused(path: Path, error: OSError) -> ArenaError:
    if isinstance(error, files.LinkRefused):
        return UsageError(str(error.strerror), files.LINK_HINT)
    return DiskRefused(
        f"{path}: could not write: {error.strerror or error}",
        "Everything written before is intact; free disk space or fix the "
        f"permissions, then run `arena resume {path.parent.name}`.",
    )


class Repair(NamedTuple):
    """The result of a repair: `kept_in` names the file with the set-aside bytes, or None."""

    what: str
    bytes: int
    kept_in: str | None


def repair(path: Path, seq: int) -> Repair | None:
    """Repair the last line of a transcript, if it does not end with a newline.

    A line that parses gets its newline; any other is copied to `transcript.torn-<seq>` and cut off.
    `seq` is the number of the next event. Returns None if nothing was wrong.
    """
    try:
        tail, start = reader.tail(path)
    except FileNotFoundError:
        return None
    if not tail:
        return None
    whole_bytes = reader.whole_prefix(tail)
    try:
        descriptor = files.open_file(path, os.O_RDWR, below=path.parents[2])
        with os.fdopen(descriptor, "r+b") as file:
            if whole_bytes == len(tail):
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
                return Repair("the last line had no newline", 0, None)
            aside = _free_path(path.with_name(f"{path.stem}.torn-{seq}"))
            files.write_file(aside, tail[whole_bytes:], below=path.parents[2], is_new=True)
            file.truncate(start + whole_bytes)
            if whole_bytes:
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
    except OSError as error:
        raise _refused(path, error) from error
    return Repair("the last line was torn", len(tail) - whole_bytes, aside.name)


def _free_path(path: Path, ending: str = "") -> Path:
    """Return the path, or, if it is taken, one with a number before its ending."""
    count = 1
    free = path
    while os.path.lexists(free):
        count += 1
        free = path.with_name(f"{path.name.removesuffix(ending)}-{count}{ending}")
    return free


class NullLog(Log):
    """A log without a file, for trials and previews: it only counts."""

    def __init__(self, clock: Clock, *, seq: int = 0) -> None:
        self.seq = seq
        self._clock = clock

    def append(self, event: Event) -> None:
        """Count the event."""
        self.seq = event.seq


E = TypeVar("E", bound=Event)


class Journal:
    """A log and its fold, updated together. `on_event` is called after each event is on disk."""

    def __init__(self, log: Log, fold: Fold, on_event: Callable[[Event], None]) -> None:
        self.log = log
        self.fold = fold
        self._on_event = on_event

    def stamp(self) -> Stamp:
        """Return the number and time of the next event, for a message that it will carry."""
        return self.log.stamp()

    def write(self, shape: type[E], *, stamp: Stamp | None = None, **fields: Any) -> E:
        """Append an event of these fields, numbered and timed. Raises DiskRefused."""
        event = self._append(shape, stamp or self.log.stamp(), fields)
        self._on_event(event)
        return event

    def write_repair(self, repair: Repair | None) -> None:
        """Append the repair of the transcript, if there was one. Raises DiskRefused."""
        if repair is not None:
            self.write(Recovered, **repair._asdict())

    def write_all(
        self, shape: type[E], records: Sequence[Mapping[str, Any]], then: Callable[[], object]
    ) -> list[E]:
        """Append an event for each of `records`, call `then`, and only then report the events.

        Raises DiskRefused.
        """
        events = [self._append(shape, self.log.stamp(), record) for record in records]
        then()
        for event in events:
            self._on_event(event)
        return events

    def _append(self, shape: type[E], stamp: Stamp, fields: Mapping[str, Any]) -> E:
        event = shape(seq=stamp.seq, ts=stamp.ts, **fields)
        self.log.append(event)
        self.fold.apply(event)
        return event


def store(
    attachments: Sequence[Attachment],
    message_id: str,
    *,
    session: Path,
    workspace: Path,
    sync: bool = False,
) -> list[Attachment]:
    """Write the content of each into the session's folder and return what the transcript keeps.

    Names are made safe and unique; with `sync` all of it is flushed to the disk. Raises
    DiskRefused.
    """
    changed: list[Path] = []
    records = planned(attachments, message_id, session=session, workspace=workspace)
    for attachment, record in zip(attachments, records, strict=True):
        path = workspace / str(record.path)
        try:
            changed += [*files.make_own_folder(path.parent, below=workspace), path.parent]
            files.write_file(path, decode_content(attachment), below=workspace, sync=sync)
            if sync and attachment is attachments[-1]:
                files.sync_folders(changed)
        except OSError as error:
            problem = f"{path}: could not write: {error.strerror or error}"
            raise DiskRefused(problem, files.suggest_fix(error, "")) from error
    return records


def planned(
    attachments: Sequence[Attachment], message_id: str, *, session: Path, workspace: Path
) -> list[Attachment]:
    """Return the attachments as the transcript will keep them, without writing any."""
    if not attachments:
        return []
    folder = (session / "attachments" / message_id).relative_to(workspace)
    names: set[str] = set()
    records = []
    for attachment in attachments:
        content = decode_content(attachment)
        records.append(
            Attachment(
                type=attachment.type,
                name=attachment.name,
                path=(
                    folder / text.make_unique_name(text.make_safe_name(attachment.name), names)
                ).as_posix(),
                size=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    return records


def decode_content(attachment: Attachment) -> bytes:
    """Return the bytes of an attachment with content: text, JSON, or base64 for an image."""
    data = attachment.data
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        return json.dumps(data, ensure_ascii=False, indent=2).encode("utf-8", "replace")
    picture = attachment.picture()
    return data.encode("utf-8", "replace") if picture is None else picture
