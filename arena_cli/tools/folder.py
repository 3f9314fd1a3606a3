"""Find paths in the folder of an agent, and never out of it.

A path of a model is relative, without `..`; links are resolved. Closed are `.git`, whose settings
may name programs, and what `closed` lists, such as the secrets of the workspace.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

from arena_cli.tools.base import ToolFailed
from arena_cli.util import files
from arena_cli.util.text import (
    FILESYSTEM_NAME_BYTES,
    clean_text,
    is_device_name,
    measure_name,
    shorten_text,
)

GIT = ".git"

_LONGEST_SHOWN = 80
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IS_WINDOWS = sys.platform == "win32"


class WorkFolder:
    """The folder of an agent: `name` as its profile has it, `root` its resolved path."""

    def __init__(self, name: str, root: Path, closed: Sequence[Path] = ()) -> None:
        self.name = name
        self.root = root.resolve()
        self._closed = [_fold(path.resolve().parts) for path in closed]
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def locate(self, name: str) -> Path:
        """Return the resolved path of a name in the folder, which may not exist.

        Raises ToolFailed if it leads out of the folder, or is closed.
        """
        quoted_name = shorten_text(name, _LONGEST_SHOWN)
        if problem := find_name_problem(name, is_windows=_IS_WINDOWS):
            raise ToolFailed(f"{quoted_name}: {problem}")
        try:
            path = (self.root / name.replace("\\", "/")).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # links in a circle
            raise ToolFailed(f"{quoted_name}: cannot be found: {error}") from error
        if not path.is_relative_to(self.root):
            raise ToolFailed(f"{quoted_name}: is a link that leads out of your folder")
        if self.is_closed(path):
            raise ToolFailed(f"{quoted_name}: is closed to your tools")
        return path

    def is_closed(self, path: Path) -> bool:
        """Return True for a resolved path that the tools may not touch."""
        names = _fold(path.parts)
        if GIT in names[len(self.root.parts) :]:
            return True
        return any(names[: len(closed)] == closed for closed in self._closed)

    def holds(self, path: Path) -> bool:
        """Return True if a path leads to an open place in the folder, by links or without."""
        return files.is_inside(path, self.root) and not self.is_closed(path.resolve())

    def name_of(self, path: Path) -> str:
        """Return the path as a model is shown it, with `/` between folders."""
        return path.relative_to(self.root).as_posix()

    def lock(self, path: Path) -> asyncio.Lock:
        """Return the lock that changes of a file hold, under any spelling of its name."""
        return self._locks["/".join(_fold(path.parts))]

    def read(self, path: Path, most: int) -> bytes | None:
        """Return the content of a file, None if there is none.

        Raises ToolFailed for a folder, a device, a file of more than `most` bytes and one that
        cannot be read.
        """
        name = self.name_of(path)
        try:
            with files.open_binary(path) as file:
                data = file.read(most + 1)
        except FileNotFoundError:
            return None
        except IsADirectoryError as error:
            raise ToolFailed(f"{name}: is a folder") from error
        except OSError as error:
            if path.is_dir():  # Windows opens no folder
                raise ToolFailed(f"{name}: is a folder") from error
            raise ToolFailed(f"{name}: {error.strerror or error}") from error
        if len(data) > most:
            raise ToolFailed(f"{name}: has more than {most // 1_000_000} MB")
        return data


def find_name_problem(name: str, *, is_windows: bool) -> str:
    """Return why a name cannot be one of a path in a folder, "" if it can."""
    if _CONTROL.search(name):
        return "has a control character in it"
    windows = PureWindowsPath(name)
    if windows.drive or windows.root:
        return "is not in your folder; give a path from it, such as src/app.py"
    problems = (_find_part_problem(component, is_windows=is_windows) for component in windows.parts)
    return next(filter(None, problems), "")


def _find_part_problem(component: str, *, is_windows: bool) -> str:
    if clean_text(component)[1]:
        return "is not Unicode text"
    if component == "..":
        return "`..` is not allowed; give a path from your folder"
    if measure_name(component) > FILESYSTEM_NAME_BYTES:
        return f"has a name of more than {FILESYSTEM_NAME_BYTES} bytes"
    if is_windows and (is_device_name(component) or ":" in component):
        return "is the name of a device"
    if is_windows and component[-1:] in (".", " "):
        return "has a name that ends with a dot or a blank"
    return ""


def _fold(components: Sequence[str]) -> list[str]:
    """Return the parts of a path so that names of one file on any disk are equal.

    Some disks ignore case, and signs that are not visible.
    """
    return [
        "".join(
            char
            for char in unicodedata.normalize("NFKC", os.fspath(component)).casefold()
            if unicodedata.category(char) != "Cf"
        )
        for component in components
    ]
