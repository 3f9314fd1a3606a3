"""Serve arena to MCP clients: `arena mcp`.

With `--session` and `--agent`, it serves the tools of that agent to its program, which arena starts
with this command; without, teams of the workspace to any client.
"""

from __future__ import annotations

import importlib.util
from importlib import import_module
from typing import Annotated

import typer

from arena_cli.adapters.base import SessionConfig
from arena_cli.cli import common, options, trust
from arena_cli.errors import UsageError
from arena_cli.session import served, store
from arena_cli.util import process_signals
from arena_cli.workspace.models import Team

OfSession = Annotated[
    str | None, options.session_option(help="Serve the tools of an agent in this session.")
]
OfAgent = Annotated[
    str | None,
    options.agent_option(help="Serve the tools of this agent, in the session of --session."),
]


def mcp(context: typer.Context, session: OfSession = None, agent: OfAgent = None) -> None:
    """Serve this workspace to an MCP client on standard input and output.

    A client such as Claude Code, Cursor or Zed can then send messages to its teams.
    """
    if (session is None) != (agent is None):
        raise UsageError("--session and --agent belong together", "Give both, or none of them.")
    if importlib.util.find_spec("mcp") is None:
        install = process_signals.describe_install("mcp")
        raise UsageError("the library of the Model Context Protocol is missing", f"{install}.")
    root = common.find_root(context)
    servers = import_module("arena_cli.cli.mcp_server")
    if session is None or agent is None:
        common.load_workspace(context)  # an invalid one is told before the client connects
        server = servers.make_team_server(context)
    else:
        tools = _serve_agent(context, store.find(root, session), agent)
        server = servers.make_agent_server(tools, root)
    servers.run(server)


def _serve_agent(context: typer.Context, stored: store.Stored, agent: str) -> served.ServedAgent:
    """Return the tools of an agent. Raises UsageError if the session's team has none of that id.

    While another process holds the session, that process knows the agent.
    """

    def open_team() -> tuple[SessionConfig, Team]:
        loaded = common.load_workspace(context)
        team = common.find_team(loaded, stored)
        member = served.find_member(team, agent)
        return trust.live_place(loaded, [member.profile], wait_s=0), team

    if not store.is_held(stored.folder):
        loaded = common.load_workspace(context)
        served.find_member(common.find_team(loaded, stored), agent)
    return served.ServedAgent(stored.folder, agent, open_team)
