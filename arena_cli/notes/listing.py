"""List the files of notes in a folder, and choose names for new ones."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


class _Seen(NamedTuple):
    """The names of a folder that folding changes, folded, and the time of its last change."""

    mtime_ns: int
    odd: frozenset[str]


class Names:
    """The names in some folders, with which a new name must not collide.

    A name that folding does not change is looked up in the file system. Other names, which people
    choose, are listed once, and again only after another process has written there: listing 10,000
    files takes longer than everything else about a note.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    def unused(self, stem: str, suffix: str, folder: Path) -> str:
        """Return the stem, with a number if a file there has the name in any spelling."""
        self._look(folder)
        name, count = stem, 1
        while self._is_taken(name + suffix, folder):
            count += 1
            name = f"{stem}-{count}"
        return name

    def wrote(self, folder: Path) -> None:
        """Record that this process alone, under the lock, created a file of an unused name."""
        if folder in self._seen:
            self._seen[folder] = self._seen[folder]._replace(mtime_ns=mtime_of(folder))

    def _look(self, folder: Path) -> None:
        mtime_ns = mtime_of(folder)
        if folder not in self._seen or self._seen[folder].mtime_ns != mtime_ns:
            names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names, many
            self._seen[folder] = _Seen(mtime_ns, _odd(names))

    def _is_taken(self, name: str, folder: Path) -> bool:
        folded = model.folded(name)
        if folded in self._seen[folder].odd:
            return True
        return any(os.path.lexists(folder / candidate) for candidate in {name, folded})


def _odd(names: list[str]) -> frozenset[str]:
    pairs = zip(names, model.all_folded(names), strict=True)
    return frozenset(fold for name, fold in pairs if name != fold)


def mtime_of(folder: Path) -> int:
    """Return the time of the last change of a folder, in ns; -1 if it is missing."""
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return -1
