"""Choose names for new files that no file in their folder has in any spelling."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from arena_cli.notes import model


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
