"""List the files of notes in a folder, and choose names for new ones."""

from __future__ import annotations

import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from arena_cli.errors import Fault
from arena_cli.notes import model

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


NoteFiles = dict[str, tuple[int, ...]]
"""The files of notes in a folder: the stamps of each by its name."""


@dataclass(frozen=True, eq=False)
class Listing:
    """What a folder held: the time of each of its folders, and the files by folder and prefix."""

    folders: Mapping[Path, int] = field(default_factory=dict)
    files: Mapping[tuple[str, Path], NoteFiles] = field(default_factory=dict)
    entries: list[FolderEntry] = field(default_factory=list)
    problems: Sequence[Fault] = ()

    def has_same_names(self) -> bool:
        """Return True if no file was added, replaced or deleted since; this looks at no file."""
        times = self.folders.items()
        return bool(times) and all(mtime_of(folder) == time for folder, time in times)


def was_edited(place: str | Path, stamps: tuple[object, ...]) -> bool:
    """Return True if a file no longer has these stamps, which are the end of its `FolderEntry`."""
    try:
        state = os.stat(place)  # noqa: PTH116 - of thousands
    except OSError:
        return True
    return FolderEntry("", "", *stamps_of(state))[2:] != stamps


def make_entries(files: Mapping[tuple[str, Path], NoteFiles]) -> Iterable[FolderEntry]:
    """Return the entry of each file; of two with the same id when composed, the composed one."""
    by_id: dict[str, FolderEntry] = {}
    for (prefix, folder), stamps in files.items():
        path = f"{folder}{os.sep}"
        for name in sorted(stamps):
            spelt = prefix + name[: -len(SUFFIX)]
            note = spelt if spelt.isascii() else unicodedata.normalize("NFC", spelt)
            is_taken = note.removeprefix(prefix) + SUFFIX in stamps or note in by_id
            if note != spelt and is_taken:
                note = spelt
            by_id[note] = FolderEntry(note, path + name, *_as_stamps(stamps[name]))
    return by_id.values()


TYPE = stat.S_IFMT(0xFFFF)
"""The bits of a mode that say what a file is."""

_LONG = 2**63 - 1  # the largest number that SQLite holds; a disk may have larger ones

# On Windows, what a listing says of the others is not what the file says.
_STAMPS = ("st_mtime_ns", "st_size", "st_ino", "st_ctime_ns")[: 2 if sys.platform == "win32" else 4]
read_stamps: Callable[[os.stat_result], tuple[int, ...]] = attrgetter(*_STAMPS)
"""Return the fields of a file's state that differ once it changed."""


def _as_stamps(fields: Iterable[int]) -> tuple[int, ...]:
    return tuple(field & _LONG for field in fields)


def stamps_of(state: os.stat_result) -> tuple[int, ...]:
    """Return the fields of a `FolderEntry` after its path, which differ once a file changed."""
    return _as_stamps(read_stamps(state))


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return True for a folder that is not hidden, also by a link."""
    try:
        return entry.name[0] != "." and entry.is_dir()
    except OSError:
        return False


def unused_name(stem: str, folder: Path) -> str:
    """Return the stem, with a number if a note there has the name in any spelling."""
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names, many
    taken = set(model.all_folded(names))
    name, count = stem, 1
    while model.folded(name + SUFFIX) in taken:
        count += 1
        name = f"{stem}-{count}"
    return name


def mtime_of(folder: Path) -> int:
    """Return the time of the last change of a folder, in ns; -1 if it is missing."""
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return -1
