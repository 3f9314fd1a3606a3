"""The tools of agents on this machine: files and commands in `workdir`, functions of the user."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from arena_cli.adapters.process import cleanup, run
from arena_cli.engine.plan import Room
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import ToolSpec
from arena_cli.tools.base import Tool, ToolFailed
from arena_cli.tools.command import CommandTool
from arena_cli.tools.files import make_file_tool
from arena_cli.tools.folder import WorkFolder
from arena_cli.tools.functions import FunctionPool, FunctionTool
from arena_cli.tools.seen import SeenFiles
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member
from arena_cli.workspace.tool_entries import PYTHON, RUN_COMMAND

_CLOSED = (".env", "sessions")
"""Parts of a workspace that the tools do not touch: its secrets and its transcripts."""


class FolderSource:
    """The tools of a session for files and commands. Agents with one folder share its locks."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._folders: dict[Path, WorkFolder] = {}
        self._copies: set[Path] = set()
        folder = room.seen_folder
        redact = room.runtime.redactor.text_or_nothing
        self._seen = None if folder is None else SeenFiles(folder, redact)

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tool of that name. Raises AgentUnavailable if its folder is not there."""
        folder = self._open_folder(member)
        if entry == RUN_COMMAND:
            limits = member.profile.run
            return [
                CommandTool(
                    folder,
                    self._room.config.environ,
                    cleanup.records_folder(self._room.workspace),
                    member.id,
                    has_shell=limits is not None and limits.shell,
                    on_end=self._seen.refresh if self._seen else None,
                )
            ]
        workspace = self._room.workspace.resolve()
        is_part = folder.root.is_relative_to(workspace) and folder.root not in self._copies
        above = workspace if is_part else folder.root
        on_seen = partial(self._note, folder, member.id)
        return [make_file_tool(str(entry), folder, above, on_seen)]

    def _note(self, folder: WorkFolder, agent: str, path: Path, content: bytes | None) -> None:
        if self._seen is not None:
            self._seen.note(path, folder.name_of(path), agent, content)

    def _open_folder(self, member: Member) -> WorkFolder:
        workspace, name = self._room.workspace, member.profile.workdir
        if name is None:
            raise AgentUnavailable(
                member.id, "its tools need a folder", mend="set `workdir` in its profile"
            )
        path = run.prepare_folder(workspace, name)
        if not path.is_dir():
            raise AgentUnavailable(
                member.id, f"there is no folder {name}", mend="create it, or correct `workdir`"
            )
        placed = self._room.config.place_workdir(path)
        root = placed.resolve()
        if placed != path:  # it has no secrets, and lies among the sessions
            self._copies.add(root)
        if root not in self._folders:
            closed = (
                [] if root in self._copies else [workspace / folder_name for folder_name in _CLOSED]
            )
            self._folders[root] = WorkFolder(name, root, closed)
        return self._folders[root]


class FunctionSource:
    """The functions of a session; agents with the same function share its processes."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._pools: dict[str, FunctionPool] = {}

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the function as a tool. Raises AgentUnavailable if it cannot be loaded."""
        if isinstance(entry, InlineTool):
            spec = ToolSpec(
                name=entry.name, description=entry.description, input_schema=entry.schema_
            )
            pool = self._open(entry.python, member)
            return [FunctionTool(spec, pool, idempotent=entry.idempotent)]
        pool = self._open(entry.removeprefix(PYTHON), member)
        try:
            return [FunctionTool(await pool.describe(), pool)]
        except ToolFailed as failure:
            raise AgentUnavailable(
                member.id, str(failure), mend="correct the function, or `tools` in its profile"
            ) from failure

    def _open(self, target: str, member: Member) -> FunctionPool:
        room = self._room
        if target not in self._pools:
            self._pools[target] = FunctionPool(
                target,
                room.workspace,
                room.config.environ,
                cleanup.records_folder(room.workspace),
                member.id,
            )
        return self._pools[target]

    async def stop(self) -> None:
        """End the processes."""
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))
