"""MCP servers over streamable HTTP: a real one by the official SDK, and ones that refuse."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_agents import SDK, add_agent, call, ends, send
from program import Program, until

ALLOWED = {"allow": ["s.*"]}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.file("arena.yaml", "")
    return program


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
        return True
    return False


@pytest.fixture
def sdk_url() -> Iterator[str]:
    """The address of a running server by the SDK."""
    port = free_port()
    with subprocess.Popen([*SDK, "--http", str(port)], stderr=subprocess.DEVNULL) as running:
        try:
            until(lambda: answers(port))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            running.kill()


class Simple:
    """A server of the older protocol: its tool `token` returns the login that it was given.

    It wants the login `wanted`. After its first call it does not know its first session any more.
    """

    def __init__(self) -> None:
        self.wanted = ""
        self.sessions = 0
        self.lost = False

    def answer(self, message: dict[str, Any], headers: Any) -> tuple[int, dict[str, str], Any]:
        given = headers.get("Authorization", "")
        if self.wanted and given != self.wanted:
            return 401, {}, None
        if "id" not in message:
            return 202, {}, None
        if message["method"] == "initialize":
            self.sessions += 1
            about = {"name": "simple", "version": "1"}
            result: Any = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
            return 200, {"Mcp-Session-Id": f"n{self.sessions}"}, result
        if message["method"] == "server/discover":
            return 400, {}, None
        if self.lost and headers.get("Mcp-Session-Id") == "n1":
            return 404, {}, None
        if message["method"] == "tools/list":
            hints = {"readOnlyHint": True}
            tool = {"name": "token", "inputSchema": {"type": "object"}, "annotations": hints}
            return 200, {}, {"tools": [tool]}
        self.lost = True
        text = f"{headers.get('Mcp-Session-Id')} {given}"
        return 200, {}, {"content": [{"type": "text", "text": text}]}


@contextmanager
def serving(server: Simple) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, result = server.answer(message, self.headers)
            answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
            body = b"" if result is None else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(405)

        def do_DELETE(self) -> None:
            self.send_error(405)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/mcp"
        finally:
            http.shutdown()


def test_a_server_by_the_sdk_is_called_over_http(program: Program, sdk_url: str) -> None:
    calls = [call("s.read_pid"), call("s.read_with_progress"), call("s.read_everything")]
    # The server tells of the added tool in its own time.
    calls += [call("s.read_new_tool"), call("s.read_slowly", seconds=4), call("s.read_added")]
    add_agent(program, *calls, mcp={"s": {"url": sdk_url}})
    send(program)
    results = ends(program)
    assert [status for _, status, _ in results] == ["ok"] * 6
    assert results[-1][2] == "of the added tool"
    details = [one["detail"] for one in program.records() if one["type"] == "status"]
    assert "s.read_with_progress: one of four" in details


def test_headers_are_sent_and_hidden(program: Program) -> None:
    server = Simple()
    server.wanted = "Bearer hunter2-hunter2"
    program.env = {"MY_TOKEN": "hunter2-hunter2"}
    headers = {"Authorization": "Bearer ${env:MY_TOKEN}"}
    with serving(server) as url:
        add_agent(program, call("s.token"), mcp={"s": {"url": url, "headers": headers}})
        send(program)
    ((_, status, result),) = ends(program)
    assert status == "ok"
    assert result.startswith("n1 Bearer ")
    assert "hunter2" not in program.written()


def test_a_server_that_wants_a_login_says_so(program: Program) -> None:
    server = Simple()
    server.wanted = "Bearer hunter2-hunter2"
    with serving(server) as url:
        add_agent(program, call("s.token"), mcp={"s": {"url": url}})
        printed = send(program, code=3)
    assert "the MCP server s is not available: it asks for a login (HTTP 401)" in printed
    assert "Bearer ${env:NAME}" in printed


def test_a_server_that_lost_its_session_is_greeted_again(program: Program) -> None:
    server = Simple()
    with serving(server) as url:
        add_agent(program, call("s.token"), call("s.token"), mcp={"s": {"url": url}})
        send(program)
    assert [result.split()[0] for _, _, result in ends(program)] == ["n1", "n2"]
    assert [status for _, status, _ in ends(program)] == ["ok", "ok"]


def test_a_server_that_goes_away_is_an_error_of_the_call(program: Program) -> None:
    port = free_port()
    mcp = {"s": {"url": f"http://127.0.0.1:{port}/mcp"}}
    with subprocess.Popen([*SDK, "--http", str(port)], stderr=subprocess.DEVNULL):
        until(lambda: answers(port))
        add_agent(program, call("s.end_yourself"), call("s.read_pid"), mcp=mcp, approvals=ALLOWED)
        send(program)
    first, second = ends(program)
    assert (first[1], second[1]) == ("error", "error")
    assert first[2].startswith("the MCP server s ")
    assert "does not answer as one" in second[2]


def test_an_address_that_is_no_mcp_server_says_so(program: Program) -> None:
    class Odd(Simple):
        def answer(self, message: dict[str, Any], headers: Any) -> tuple[int, dict[str, str], Any]:
            return 404, {}, None

    with serving(Odd()) as url:
        add_agent(program, call("s.token"), mcp={"s": {"url": url}})
        printed = send(program, code=3)
    assert "does not answer as one: HTTP 404" in printed
