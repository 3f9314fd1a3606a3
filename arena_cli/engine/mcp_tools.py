"""The tools of MCP servers, for the agents of a session that name them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from arena_cli.engine.plan import Room
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.tools.mcp_server import SharedServer, make_pool
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member
from arena_cli.workspace.tool_entries import list_named_servers

CALL = "external_api_call"


class McpTool:
    """A tool of a server; `server` is None if arena has none of that name."""

    def __init__(self, spec: ToolSpec, server: SharedServer | None) -> None:
        self.spec = spec
        self._server = server

    @property
    def idempotent(self) -> bool:
        """True if the server says so."""
        return self.spec.idempotent

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:
        """Return a call of an API, unless the server says that the tool only reads."""
        if self.spec.problem:
            raise ToolFailed(f"{self.spec.name} cannot be called: {self.spec.problem}")
        if self.spec.read_only:
            return None
        return PermissionRequest(
            action=CALL,
            detail=self.spec.name,
            tool=self.spec.name,
            arguments={"tool": self.spec.name, "arguments": dict(arguments)},
        )

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Call the tool of the server, which is started if it does not run."""
        name, _, tool = self.spec.name.partition(".")
        if self._server is None:
            raise ToolFailed(f"there is no MCP server {name}")
        return await self._server.call(tool, arguments, scope)


class ServerSource:
    """The MCP servers of a session, and what they offer to each agent."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._pool = make_pool(room.config, room.runtime.redactor)
        self._offers: dict[str, tuple[int, list[ToolSpec]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tools whose names match; their servers are started if they do not run.

        Raises AgentUnavailable if a server that the agent needs cannot be started.
        """
        specs = await self._list(member)
        servers = self._list_servers(member)
        return [
            McpTool(spec, servers.get(spec.name.partition(".")[0]))
            for spec in specs
            if fnmatchcase(spec.name, str(entry))
        ]

    def has_changed(self, member: Member) -> bool:
        """Return True if a server of an agent has changed its list of tools."""
        offer = self._offers.get(member.id)
        return offer is not None and offer[0] != self._count_changes(member)

    async def stop(self) -> None:
        """End all servers."""
        await self._pool.stop()

    async def _list(self, member: Member) -> list[ToolSpec]:
        """Return what the servers of an agent offer now."""
        async with self._locks.setdefault(member.id, asyncio.Lock()):
            if member.id not in self._offers or self.has_changed(member):
                changes = self._count_changes(member)
                try:
                    specs = await self._room.runtime.list_tools(member, self._ask)
                except AgentUnavailable:
                    if member.id not in self._offers:
                        raise
                    specs = self._offers[member.id][1]  # the next call says what is wrong
                self._offers[member.id] = (changes, specs)
            return self._offers[member.id][1]

    def _count_changes(self, member: Member) -> int:
        return sum(server.version for server in self._list_servers(member).values())

    async def _ask(self, member: Member) -> list[ToolSpec]:
        """Return the tools of all servers that an agent needs, by the names that it uses."""
        servers = self._list_servers(member)
        lists = await asyncio.gather(*(server.list_tools() for server in servers.values()))
        return [
            spec.model_copy(update={"name": f"{name}.{spec.name}"})
            for name, specs in zip(servers, lists, strict=True)
            for spec in specs
        ]

    def _list_servers(self, member: Member) -> dict[str, SharedServer]:
        """Return the servers that an agent's `tools` name, by name; none is started."""
        profile = member.profile
        return self._pool.list_servers(profile, list_named_servers(profile.tools, profile.mcp))
