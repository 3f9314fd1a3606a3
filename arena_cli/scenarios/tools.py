"""The tools of a scenario's agents: their names, and the folders that they work in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena_cli.errors import DiskRefused
from arena_cli.protocol import COMPLETE_TASK
from arena_cli.workspace.agents import LoadedProfile
from arena_cli.workspace.models import AgentProfile, normalize_id

if TYPE_CHECKING:
    from arena_cli.workspace.acting import InlineTool

ALWAYS_KNOWN = frozenset(
    {
        COMPLETE_TASK,
        *("search_notes", "search_history", "list_members", "read_attachment"),
        *("push_goal", "pop_goal", "split_goal"),
    }
)
"""Tools that agents may have although their `tools` do not name them so."""

_PYTHON, _AGENT = "python:", "agent:"


def name_tools(entry: str | InlineTool) -> str:
    """Return the name of the tool of an entry of `tools`, or the pattern of several names.

    A function has its own name, without its file or module.
    """
    if not isinstance(entry, str):
        return entry.name
    return entry.rpartition(":")[2] if entry.startswith(_PYTHON) else entry


def is_named(name: str, entry: str | InlineTool) -> bool:
    """Return True if the tool of that name is one of those that an entry of `tools` means."""
    pattern = name_tools(entry)
    return name == pattern or ("." in name and fnmatchcase(name, pattern))


def list_profiles(
    members: Iterable[AgentProfile], loaded: Mapping[str, LoadedProfile]
) -> dict[str, AgentProfile]:
    """Return the profiles of members, and of the agents that they may call as tools, by id."""
    profiles: dict[str, AgentProfile] = {}
    waiting = list(members)
    for profile in waiting:
        profiles[normalize_id(profile.agent_id)] = profile
        for entry in profile.tools:
            if isinstance(entry, str) and entry.startswith(_AGENT):
                colleague = loaded.get(normalize_id(entry.removeprefix(_AGENT)))
                if colleague and normalize_id(colleague.profile.agent_id) not in profiles:
                    waiting.append(colleague.profile)
    return profiles


def make_finder(scripts: Mapping[str, Any], *, is_hasty: bool) -> Callable[[Any], Sequence[Any]]:
    """Return what finds the scripted tools of an entry of `tools` (`SessionConfig.find_tools`).

    If it `is_hasty`, as in a replay, they answer at once.
    """
    if not scripts:
        return lambda _: ()
    module = import_module("arena_cli.scenarios.scripted_tools")
    find: Callable[[Any], Sequence[Any]] = module.ScriptedToolset(scripts, is_hasty=is_hasty).find
    return find


WORKDIRS = "workdirs"

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
            copy = self._folder / WORKDIRS / str(len(self._copies) + 1) / (source.name or "root")
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
