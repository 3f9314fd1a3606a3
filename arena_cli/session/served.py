"""Serve the tools of an agent in a session, by the process that holds the session or by this one.

It knows nothing of MCP: `cli.mcp_server` speaks it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from arena_cli.adapters.base import SessionConfig
from arena_cli.engine.inbox import ControlRequest, Inbox, Outcome
from arena_cli.errors import SessionBusy, UsageError
from arena_cli.protocol import ToolResult, ToolSpec
from arena_cli.session import store
from arena_cli.session.session import Session
from arena_cli.util.text import escape_line
from arena_cli.workspace.models import Member, Team

POLL_S = 0.05
_LOOK_S = 1.0
_PATIENCE_S = 10.0
"""How long a request waits for a process that holds the session to begin with it."""

_SPECS = TypeAdapter(list[ToolSpec])

OpenTeam = Callable[[], tuple[SessionConfig, Team]]
"""Loads what is needed to call an agent's tools here; raises ArenaError."""


class ServedAgent:
    """The tools of one agent in a session, by its folder."""

    def __init__(self, folder: Path, agent: str, open_team: OpenTeam) -> None:
        self._folder = folder
        self._agent = agent
        self._open_team = open_team
        self._inbox = Inbox.of_calls(folder, agent)
        self._one_at_a_time = asyncio.Lock()

    async def list_tools(self) -> list[ToolSpec]:
        """Return the agent's tools. Raises ArenaError."""
        outcome = await self._carry_out(ControlRequest(act="tool_list", agent=self._agent))
        return _SPECS.validate_json(outcome.check())

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; if cancelled, the call ends. Raises ArenaError."""
        request = ControlRequest(
            act="tool_call", agent=self._agent, tool=tool, arguments=dict(arguments)
        )
        outcome = await self._carry_out(request)
        return ToolResult.model_validate_json(outcome.check())

    async def _carry_out(self, request: ControlRequest) -> Outcome:
        """Have a request carried out. Raises ArenaError."""
        if not store.is_held(self._folder):
            return await self._carry_out_here(request)
        path = self._inbox.put(request)
        began = looked = time.monotonic()
        try:
            while (outcome := self._inbox.read_answer(path)) is None:
                await asyncio.sleep(POLL_S)
                moment = time.monotonic()
                if moment - looked >= _LOOK_S:
                    looked = moment
                    if not store.is_held(self._folder) and self._inbox.withdraw(path):
                        return await self._carry_out_here(request)
                if moment - began >= _PATIENCE_S and path.exists() and self._inbox.withdraw(path):
                    raise self._busy()
        except BaseException:
            self._inbox.withdraw(path)
            raise
        return outcome

    async def _carry_out_here(self, request: ControlRequest) -> Outcome:
        """Carry out a request in this process, which takes the session's lock for it."""
        async with self._one_at_a_time:
            config, team = self._open_team()
            member = find_member(team, self._agent)
            try:
                opened = Session(config, self._folder.name, team)
            except SessionBusy as error:
                raise self._busy() from error
            with opened:
                return await opened.last(opened.serve_tool(member, request))

    def _busy(self) -> SessionBusy:
        return SessionBusy(
            f"session {escape_line(self._folder.name)} is busy, and no reply of "
            f"{escape_line(self._agent)} is running in it",
            "Call the tool again later.",
        )


def find_member(team: Team, agent: str) -> Member:
    """Return the agent of a team by its id. Raises UsageError."""
    for member in team.agents:
        if member.id == agent:
            return member
    listing = ", ".join(member.id for member in team.agents)
    raise UsageError(
        f"no member of this team has the id {escape_line(agent)!r}", f"Its agents: {listing}."
    )
