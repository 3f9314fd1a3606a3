"""List the files of notes in a folder, with what of each changes when it does."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from arena_cli.errors import Fault
from arena_cli.notes.names import mtime_of

SUFFIX = ".md"


class FolderEntry(NamedTuple):
    """A note's file as the folder lists it; `size` in bytes.

    `inode` and `changed_ns`, the time at which the system last changed anything of the file, differ
    after another file took its place or its time was set back. On Windows they are 0.
    """

    id: str
    place: str | Path
    mtime_ns: int
    size: int
    inode: int = 0
    changed_ns: int = 0

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.place)


NoteFile = tuple[str, tuple[int, ...]]
"""A file of a note: its name, and the fields of its state that change with it."""


class Listing(NamedTuple):
    """What a folder held: the time of each of its folders, and the files by folder and prefix."""

    folders: Mapping[Path, int] = MappingProxyType({})
    files: Mapping[tuple[str, Path], list[NoteFile]] = MappingProxyType({})
    entries: list[FolderEntry] = []
    problems: Sequence[Fault] = ()


def read_mtimes(folders: Iterable[Path]) -> dict[Path, int]:
    """Return the time of each folder, which changes when files are added, replaced or deleted."""
    return {folder: mtime_of(folder) for folder in folders}


def make_entries(files: Mapping[tuple[str, Path], list[NoteFile]]) -> Iterable[FolderEntry]:
    """Return the entry of each file; of two with the same id when composed, the composed one."""
    by_id: dict[str, FolderEntry] = {}
    for (prefix, folder), listed in files.items():
        path = f"{folder}{os.sep}"
        spellings = {file[0] for file in listed}
        for file in sorted(listed):
            spelt = prefix + file[0][: -len(SUFFIX)]
            note = spelt if spelt.isascii() else unicodedata.normalize("NFC", spelt)
            is_taken = note.removeprefix(prefix) + SUFFIX in spellings or note in by_id
            if note != spelt and is_taken:
                note = spelt
            by_id[note] = FolderEntry(note, path + file[0], *_as_stamps(file[1]))
    return by_id.values()


TYPE = stat.S_IFMT(0xFFFF)
"""The bits of a mode that say what a file is."""

_LONG = 2**63 - 1  # the largest number that SQLite holds; a disk may have larger ones

# On Windows, what a listing says of the others is not what the file says.
_STAMPS = ("st_mtime_ns", "st_size", "st_ino", "st_ctime_ns")[: 2 if sys.platform == "win32" else 4]
read_stamps: Callable[[os.stat_result], tuple[int, ...]] = attrgetter(*_STAMPS)
"""Return the fields of a file's state that differ once it changed."""


def _as_stamps(fields: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(field & _LONG for field in fields)


def stamps_of(state: os.stat_result) -> tuple[int, ...]:
    """Return the fields of a `FolderEntry` after its path, which differ once a file changed."""
    return _as_stamps(read_stamps(state))


@contextlib.contextmanager
def scan_folder(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a folder; where the system can, its files are looked up within it, not from the root."""
    if os.scandir not in os.supports_fd:
        with os.scandir(folder) as scan:
            yield scan
        return
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        with os.scandir(descriptor) as scan:
            yield scan
    finally:
        os.close(descriptor)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return True for a folder that is not hidden, also by a link."""
    try:
        return entry.name[0] != "." and entry.is_dir()
    except OSError:
        return False
