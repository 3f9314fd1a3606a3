"""Where files lie that a workspace or a scenario names: in the workspace, links resolved.

A workspace may come from anywhere; what it names is read, and sent to agents. A scenario that the
user names from elsewhere may name files in its own folder, with which it came.
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
    """A file that lies outside the workspace was named in it."""


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path leads to a place in that folder, or to itself."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):  # a NUL in it, or links in a circle
        return False


def locate(
    name: str, folders: Iterable[Path], *, root: Path, scenario: Path | None, anywhere: bool
) -> Path | None:
    """Return the first file of that name in `folders`, resolved; None where there is none.

    Raises OutsideError where all that there is lies neither in `root` nor, if the scenario lies
    outside it, in the scenario's folder.
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
            if anywhere or any(path.is_relative_to(one) for one in allowed):
                return path
            refused = refused or path
    if refused is not None:
        raise OutsideError(f"`{name}` lies outside the workspace: {refused}", HINT)
    return None


def link_fault(path: Path, shown: str, root: Path) -> Fault | None:
    """Return what is wrong with a file of the workspace that a link leads out of it."""
    if not any(map(ownfiles.is_link, _up_to(path, root))) or is_inside(path, root):
        return None
    what = f"is a link that leads out of the workspace: {path.resolve()}"
    return Fault(shown, 0, "", what, HINT)


def _up_to(path: Path, root: Path) -> Iterable[Path]:
    """The path and the folders it lies in, below `root`."""
    return [path, *(one for one in path.parents if one != root and one.is_relative_to(root))]
