"""What is saved of a transcript that somebody removed, moved, replaced or cut while it is written.

The open file still holds what a removed or moved one held. Of one that was cut, the lines that this
process wrote are known, up to `Held.MOST_BYTES` of them: what it costs stays flat.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from arena_cli.ground import ownfiles
from arena_cli.ground.errors import DiskRefused

Loss = Literal["removed", "replaced", "cut", "changed"]

_WHAT = {
    "removed": "the transcript was removed or moved while arena wrote to it",
    "replaced": "another file took the transcript's place while arena wrote to it",
    "cut": "the transcript was cut while arena wrote to it",
    "changed": "something else wrote to the transcript while arena wrote to it",
}
_BLOCK = 1 << 20


class TranscriptLost(DiskRefused):
    """The transcript is no longer what arena wrote; what is known lies in another file."""


class Held:
    """The last lines of a transcript that this process wrote, and at which byte they begin."""

    MOST_BYTES: ClassVar[int] = 8_000_000

    def __init__(self, start: int) -> None:
        self.start = start
        self._lines: deque[bytes] = deque()

    def add(self, line: bytes) -> None:
        """Keep a line; `trim` bounds how many there are."""
        self._lines.append(line)

    def trim(self, end: int) -> None:
        """Let go of the oldest lines where they are too many; `end` is where the last one ends."""
        while end - self.start > self.MOST_BYTES and len(self._lines) > 1:
            self.start += len(self._lines.popleft())

    def lines(self) -> Iterator[bytes]:
        """Yield them in order."""
        yield from self._lines


def save(path: Path, descriptor: int, held: Held, loss: Loss, *, seq: int) -> TranscriptLost:
    """Write what is known to a file beside the transcript, and return the error that names both.

    `descriptor` is the transcript as it was opened, `seq` the number of the last event in `held`.
    """
    what = f"{path}: {_WHAT[loss]} (at event {seq})"
    try:
        target, missing = _save(path, descriptor, held, seq)
    except OSError as error:
        why = error.strerror or error
        place = error.filename or path.parent
        unsaved = f"{what}; what is known of it could not be saved: {place}: {why}"
        return TranscriptLost(unsaved, "Free space or rights there.")
    lack = f", but for {missing:,} bytes that are gone" if missing else ""
    instead = "" if loss == "removed" else f" in the place of what lies at {path.name} now"
    return TranscriptLost(
        f"{what}; what is known of it, this event included{lack}, is in {target}",
        f"To go on, put that file back as {path}{instead}, then `arena resume {path.parent.name}`.",
    )


def _unused(path: Path) -> Path:
    """Return the path, or, where something has that name, one with a number before its ending."""
    count = 1
    free = path
    while os.path.lexists(free):
        count += 1
        free = path.with_name(f"{path.stem}-{count}{path.suffix}")
    return free


def _save(path: Path, descriptor: int, held: Held, seq: int) -> tuple[Path, int]:
    """Write the file; return where, and how many bytes before the held lines are missing."""
    name = f"{path.stem}.rescued-{seq}{path.suffix}"
    workspace = path.parents[2]
    try:
        if not workspace.is_dir():
            raise FileNotFoundError(workspace)
        ownfiles.make_folder(path.parent, below=workspace)
        target = _unused(path.with_name(name))
        copied = _write(target, workspace, descriptor, held)
    except OSError:
        # Folder and all are gone, or take no file: anywhere is better than nowhere.
        import tempfile  # noqa: PLC0415 - hardly ever needed

        folder = Path(tempfile.gettempdir())
        target = _unused(folder / f"arena-{path.parent.name}-{name}")
        copied = _write(target, folder, descriptor, held)
    return target, held.start - copied


def _write(target: Path, below: Path, descriptor: int, held: Held) -> int:
    """Write what the open file holds before the held lines, then these; return the former's size.

    What lies before them and ends within a line is cut to whole lines.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    with os.fdopen(ownfiles.open_file(target, flags, below=below), "r+b") as file:
        os.lseek(descriptor, 0, os.SEEK_SET)
        left, whole = held.start, 0
        while left and (block := os.read(descriptor, min(left, _BLOCK))):
            end = block.rfind(b"\n") + 1
            whole = file.tell() + end if end else whole
            file.write(block)
            left -= len(block)
        if left:
            file.seek(whole)
            file.truncate()
        size = file.tell()
        for line in held.lines():
            file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return size
