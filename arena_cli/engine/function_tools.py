"""The functions of the user that a session's agents have as tools."""

from __future__ import annotations

import asyncio

from arena_cli.adapters.process import cleanup
from arena_cli.engine.plan import Room
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import ToolSpec
from arena_cli.tools.base import Tool, ToolFailed
from arena_cli.tools.functions import FunctionPool, FunctionTool
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member
from arena_cli.workspace.tool_entries import PYTHON


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
