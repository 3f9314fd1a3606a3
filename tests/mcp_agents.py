"""What tests of MCP share: agents with servers, and the ends of their calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from program import Program

PROGRAMS = Path(__file__).parent / "programs"
SDK = [sys.executable, str(PROGRAMS / "mcp_server.py")]
RAW = [sys.executable, str(PROGRAMS / "raw_mcp_server.py")]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A call of a scripted agent."""
    return {"tool": tool, "arguments": arguments}


def add_agent(
    program: Program,
    *calls: Any,
    command: list[str] | None = None,
    agent: str = "bob",
    say: str = "${result}",
    server: dict[str, Any] | None = None,
    **profile: Any,
) -> None:
    """Add an agent that makes these calls with the server `s`, then says the last result."""
    profile.setdefault("tools", ["s.*"])
    profile.setdefault("mcp", {"s": {"command": command or SDK, **(server or {})}})
    program.agent(agent, {"calls": list(calls), "say": say}, **profile)


def ends(program: Program, session: str = "s") -> list[tuple[str, str, str]]:
    """(tool, status, result) of every call, in the order of the transcript."""
    return [
        (one["tool"], one["status"], one["result"])
        for one in program.records(session)
        if one["type"] == "tool_finished"
    ]


def send(program: Program, text: str = "@bob go", *options: str, code: int = 0) -> str:
    """Send a message in the session `s`; return what is printed."""
    done = program.run("send", "--session", "s", *options, text)
    assert done.code == code, done.stdout + done.stderr
    return done.stdout + done.stderr
