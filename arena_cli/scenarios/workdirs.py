"""Fresh copies of agents' folders, so that a scenario changes no file of the workspace."""

from __future__ import annotations

import shutil
from pathlib import Path

from arena_cli.errors import DiskRefused

FOLDER = "workdirs"

_LEFT_OUT = (".env", ".git", ".venv", "__pycache__", "node_modules")


class WorkdirCopies:
    """The copies that a scenario's agents work in, made when an agent first needs its folder.

    `sessions`, the folder of all sessions of the workspace, is never copied.
    """

    def __init__(self, folder: Path, sessions: Path) -> None:
        self._folder = folder
        self._sessions = sessions
        self._copies: dict[Path, Path] = {}

    def place(self, workdir: Path) -> Path:
        """Return the copy of a folder; links in it stay links. Raises DiskRefused."""
        source = workdir.resolve()
        copy = self._copies.get(source)
        if copy is None:
            copy = self._folder / FOLDER / str(len(self._copies) + 1) / (source.name or "root")
            try:
                if source.is_dir():
                    shutil.copytree(source, copy, symlinks=True, ignore=self._list_left_out)
                else:  # whoever needs it reports what is wrong with it
                    return workdir
            except (OSError, shutil.Error) as error:
                raise DiskRefused(f"{workdir}: could not copy this folder: {error}") from error
            self._copies[source] = copy
        return copy

    def _list_left_out(self, folder: str, names: list[str]) -> list[str]:
        sessions = self._sessions.name if Path(folder) == self._sessions.parent else ""
        return [name for name in names if name in _LEFT_OUT or name == sessions]
