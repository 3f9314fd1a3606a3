"""A server by the TypeScript SDK, `server-everything`, which shows all that the protocol has."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp_agents import add_agent, call, ends, send
from program import Program, gone, until

pytestmark = pytest.mark.real_program
NAME = "mcp-server-everything"
CALLS = [
    call("s.echo", message="hi"),
    call("s.get-tiny-image"),
    call("s.trigger-long-running-operation", duration=0.2, steps=2),
    call("s.get-resource-reference", resourceType="Text", resourceId=1),
    call("s.get-roots-list"),
]


@pytest.fixture
def everything() -> str:
    program = shutil.which(NAME)
    if program is None:
        pytest.skip(f"{NAME} is not installed")
    return program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.file("arena.yaml", "")
    return program


def check(program: Program, server: dict[str, Any]) -> None:
    """Call tools of the server, and check what they give."""
    add_agent(program, *CALLS, mcp={"s": server})
    send(program)
    results = ends(program)
    assert [status for _, status, _ in results] == ["ok"] * len(CALLS)
    echo, _, _, resource, roots = [result for _, _, result in results]
    assert echo == "Echo: hi"
    assert "resource demo://resource/dynamic/text/1:\nResource 1:" in resource
    assert program.folder.resolve().as_uri() in roots
    records = program.records()
    images = [file for one in records for file in one.get("attachments", ())]
    assert [file["type"] for file in images] == ["image"]
    assert (program.folder / images[0]["path"]).read_bytes().startswith(b"\x89PNG")
    shares = [one["progress"] for one in records if one["type"] == "status"]
    assert 1.0 in shares


def test_its_tools_are_called_over_stdio(program: Program, everything: str) -> None:
    check(program, {"command": [everything]})
    assert not list((program.folder / "sessions" / ".processes").iterdir())


def test_its_tools_are_called_over_http(program: Program, everything: str) -> None:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]

    def answers() -> bool:
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
            return True
        return False

    environ = {**program.environment(), "PORT": str(port)}
    command = [everything, "streamableHttp"]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, env=environ, stdout=silent, stderr=silent) as running:
        try:
            until(answers)
            check(program, {"url": f"http://127.0.0.1:{port}/mcp"})
        finally:
            running.kill()
    assert gone(running.pid)
