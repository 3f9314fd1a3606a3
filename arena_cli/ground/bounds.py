"""Keep the files that a workspace or a scenario names in the workspace, links resolved.

A workspace may come from anywhere; the files it names are read, and sent to agents. A scenario that
the user names from elsewhere may name files in its own folder, with which it came.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from arena_cli.ground import ownfiles, regularfiles
from arena_cli.ground.errors import Fault, UsageError

OPTION = "--allow-outside"
HINT = f"Copy it into the workspace, or allow it: `arena {OPTION} ...`, `arena run {OPTION}`."


class OutsideError(UsageError):
    """A file outside the workspace was named in it."""


def is_inside(path: Path, root: Path) -> bool:
    """Return True if a path leads to a place in that folder, or to itself."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):  # a NUL in it, or links in a circle
        return False


def locate(
    name: str, folders: Iterable[Path], *, root: Path, scenario: Path | None, anywhere: bool
) -> Path | None:
    """Return the first file of that name in `folders`, resolved; None if there is none.

    Raise OutsideError if every such file is outside `root` and, for a scenario outside it, outside
    the scenario's folder.
    """
    allowed = [root.resolve()]
    if scenario is not None and not is_inside(scenario, root):
        allowed.append(scenario.resolve().parent)
    refused: Path | None = None
    for folder in folders:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long, or as above
            path = (folder / name).resolve()
            if not regularfiles.is_named(path):
                continue
            if anywhere or any(path.is_relative_to(allowed_folder) for allowed_folder in allowed):
                return path
            refused = refused or path
    if refused is not None:
        raise OutsideError(f"`{name}` lies outside the workspace: {refused}", HINT)
    return None


def link_fault(path: Path, name: str, root: Path) -> Fault | None:
    """Return the fault of a file of the workspace that a link leads out of it."""
    if not any(map(ownfiles.is_link, _up_to(path, root))) or is_inside(path, root):
        return None
    problem = f"is a link that leads out of the workspace: {path.resolve()}"
    return Fault(name, 0, "", problem, HINT)


def _up_to(path: Path, root: Path) -> Iterable[Path]:
    """Return the path and the folders above it, below `root`."""
    return [
        path,
        *(folder for folder in path.parents if folder != root and folder.is_relative_to(root)),
    ]
