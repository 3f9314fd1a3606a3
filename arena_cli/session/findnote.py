"""Which note is meant: by its id, the beginning of one, or the path of its file."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from arena_cli.ground import nearest
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.memory import slugs
from arena_cli.memory.folder import SUFFIX
from arena_cli.session import remembering, shelves, store
from arena_cli.session.shelves import Shelf

_MOST_NAMED = 5


class Named(NamedTuple):
    """A note by its id, and where it is."""

    shelf: Shelf
    id: str


def find(name: str, among: Sequence[Shelf], root: Path, here: Path) -> Named:
    """The note of that name; `here` is where a path may begin, as `root`, the workspace.

    Raises UsageError, with the nearest names, where there is none or more than one.
    """
    by_path = _by_path(name, root, here) if name.endswith(SUFFIX) else None
    if by_path is not None:
        return by_path
    wanted = slugs.folded(name.removesuffix(SUFFIX))
    there = [Named(shelf, entry.id) for shelf in among for entry in shelf.folder.entries()]
    exact = [one for one in there if one.id == name]
    alike = [one for one in there if slugs.folded(one.id) == wanted]
    begins = [one for one in there if wanted and _begins(one.id, wanted)]
    for found in (exact, alike, begins):
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(shown_line(one.id) for one in found[:_MOST_NAMED])
            more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            raise UsageError(f"{shown_line(name)} may be one of: {ids}{more}", "Name one of them.")
    where = " or ".join(shelf.name for shelf in among)
    near = nearest.of(name, [one.id for one in there])
    mend = f"did you mean `{shown_line(near)}`?" if near else "`arena knowledge list` lists them"
    raise UsageError(f"there is no note {shown_line(name)} in {shown_line(where)}", mend)


def _begins(id: str, wanted: str) -> bool:
    folded = slugs.folded(id)
    return folded.startswith(wanted) or folded.rpartition("/")[2].startswith(wanted)


def _by_path(name: str, root: Path, here: Path) -> Named | None:
    """The note whose file lies there, within the workspace; None where no file does."""
    for start in (here, root):
        path = start / name
        try:
            if not path.is_file():
                continue
        except OSError:  # no file has so long a name
            continue
        for place in (path.absolute(), path.resolve()):
            with contextlib.suppress(ValueError):
                found = _at(place.relative_to(root.resolve()), root)
                if found:
                    return found
        raise UsageError(
            f"{shown_line(name)} is no note of this workspace",
            "Notes lie in sessions/SESSION/knowledge and in sessions/knowledge.",
        )
    return None


def _at(path: PurePath, root: Path) -> Named | None:
    match path.parts:
        case ("sessions", folder, _, *_, _) if folder == remembering.KNOWLEDGE:
            shelf = shelves.of(root, None)
            return _on(shelf, "/".join(path.parts[2:]).removesuffix(SUFFIX))
        case ("sessions", session, folder, file) if folder == remembering.KNOWLEDGE:
            shelf = shelves.of(root, store.find(root, session))
            return _on(shelf, file.removesuffix(SUFFIX))
    return None


def _on(shelf: Shelf, id: str) -> Named | None:
    entries = shelf.folder.entries()
    exact = [entry.id for entry in entries if entry.id == id]
    alike = [entry.id for entry in entries if slugs.folded(entry.id) == slugs.folded(id)]
    found = exact or alike
    return Named(shelf, found[0]) if found else None
