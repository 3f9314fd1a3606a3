"""Names that no file has yet, in a folder of many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from arena_cli.memory import slugs


class _Seen(NamedTuple):
    """The names of a folder that fold to others, folded, and when the folder changed last."""

    mtime_ns: int
    odd: frozenset[str]


class Names:
    """The names in some folders that a new one may not be like.

    A name that is written as it folds is asked of the file system. The others, which people give,
    are listed once, and again only after somebody else wrote there: listing 10,000 takes longer
    than all else of a note.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    def unused(self, stem: str, suffix: str, folder: Path) -> str:
        """The stem, or the stem and a number, that no file there has in any spelling."""
        self._look(folder)
        name, count = stem, 1
        while self._is_taken(name + suffix, folder):
            count += 1
            name = f"{stem}-{count}"
        return name

    def wrote(self, folder: Path) -> None:
        """A file was put there, of an unused name, under the lock; nobody else did."""
        if folder in self._seen:
            self._seen[folder] = self._seen[folder]._replace(mtime_ns=_mtime(folder))

    def _look(self, folder: Path) -> None:
        mtime_ns = _mtime(folder)
        if folder not in self._seen or self._seen[folder].mtime_ns != mtime_ns:
            there = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names, many
            self._seen[folder] = _Seen(mtime_ns, _odd(there))

    def _is_taken(self, name: str, folder: Path) -> bool:
        folded = slugs.folded(name)
        if folded in self._seen[folder].odd:
            return True
        return any(os.path.lexists(folder / one) for one in {name, folded})


def _odd(names: list[str]) -> frozenset[str]:
    pairs = zip(names, slugs.all_folded(names), strict=True)
    return frozenset(fold for name, fold in pairs if name != fold)


def _mtime(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return -1
