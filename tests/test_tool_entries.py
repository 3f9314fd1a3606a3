"""The entries of `tools:` are checked when a workspace is read; servers are listed and checked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from mcp_agents import RAW, SDK, add_agent, call, ends, send
from program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.file("arena.yaml", "")
    return program


PROFILE = """\
agent_id: bob
adapter: {{type: scripted, replies: [hi]}}
mcp:
  github: {{command: [gh-mcp]}}
  file-box: {{url: "http://127.0.0.1:9/mcp"}}
tools:
  - list_members
  - {entry}
"""


@pytest.mark.parametrize(
    ("entry", "problem", "hint"),
    [
        ("list_member", "there is no tool `list_member`", "did you mean `list_members`?"),
        ("githb.*", "there is no MCP server `githb`", "did you mean `github`?"),
        ("gitlab_*.x", "there is no MCP server `gitlab_*`", "known: github, file-box"),
        ("agent:bobb", "there is no agent `bobb`", "did you mean `bob`?"),
    ],
)
def test_an_entry_that_names_nothing_is_an_error_with_its_line(
    program: Program, entry: str, problem: str, hint: str
) -> None:
    program.file("agents/bob.yaml", PROFILE.format(entry=entry))
    done = program.run("agents", "check")
    assert done.code == 2
    assert f"agents/bob.yaml:8: tools[1]: {problem}" in done.stderr
    assert hint in done.stderr


@pytest.mark.parametrize(
    "entry",
    ["github.*", '"*.read_*"', "file-box.put", "search_notes", "agent:bob", '"git*.x"', "goals"],
)
def test_an_entry_that_names_something_is_none(program: Program, entry: str) -> None:
    program.file("agents/bob.yaml", PROFILE.format(entry=entry))
    assert program.run("agents", "check").code == 0


@pytest.mark.parametrize(
    ("mcp", "problem"),
    [
        ("{a.b: {command: [x]}}", "mcp.a.b: `a.b` cannot be the name of a server"),
        ("{a: {}}", "name either `command` or `url`"),
        ("{a: {command: [x], url: 'http://x'}}", "name either `command` or `url`"),
        ("{a: {url: 'ftp://x'}}", "`url` must begin with http:// or https://"),
        ("{a: {command: [x], timeout_s: 0}}", "must be more than 0"),
        ("{a: {comand: [x]}}", "did you mean `command`?"),
    ],
)
def test_a_server_that_is_described_wrongly_is_an_error(
    program: Program, mcp: str, problem: str
) -> None:
    program.file(
        "agents/bob.yaml",
        f"agent_id: bob\nadapter: {{type: scripted, replies: [hi]}}\nmcp: {mcp}\n",
    )
    program.file("arena.yaml", f"mcp: {mcp}\n")
    done = program.run("agents", "check")
    assert done.code == 2
    assert done.stderr.count(problem) == 2
    assert "agents/bob.yaml:3:" in done.stderr
    assert "arena.yaml:1:" in done.stderr


def test_agents_may_name_servers_of_arena_yaml(program: Program) -> None:
    shared = {"s": {"command": RAW, "env": {"FROM": "arena"}}, "t": {"command": ["nosuch"]}}
    program.file("arena.yaml", json.dumps({"mcp": shared}))
    add_agent(program, call("s.pid"), mcp={}, say="@eve go")
    own = {"s": {"command": SDK, "env": {"FROM": "eve"}}}
    add_agent(program, call("s.read_variables", names=["FROM"]), agent="eve", mcp=own)
    program.agent("max", "hello")
    send(program)
    (_, pid, _), (_, seen, result) = ends(program)
    assert (pid, seen) == ("ok", "ok")
    assert json.loads(result) == {"FROM": "eve"}
    listed = json.loads(program.run("agents", "--json").stdout)
    assert {one["agent_id"]: [*one["mcp"]] for one in listed} == {
        "bob": ["s"],
        "eve": ["s"],
        "max": [],
    }


# Checks.


def test_check_lists_what_each_server_offers(program: Program) -> None:
    mcp = {
        "s": {"command": [*RAW, "lies", "noise", "counts"]},
        "gone": {"command": ["nosuch"]},
    }
    add_agent(program, mcp=mcp, tools=["s.pid", "s.l*", "gone.*"])
    assert program.run("agents", "check").code == 0
    assert not (program.folder / "starts").exists()
    done = program.run("agents", "check", "--connect")
    assert done.code == 1
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "ok     bob · mcp s · 15 tools" in lines
    assert "s.pid · only reads" in lines
    assert "s.die · only reads · not in its `tools`" in lines
    assert any(line.startswith("s.lies · its input schema is invalid:") for line in lines)
    assert any("it writes text to stdout" in line for line in lines)
    assert any(
        line.startswith("NOT OK bob · mcp gone · the MCP server gone is not available: there is no")
        for line in lines
    )
    assert (program.folder / "starts").read_text() == "x"
    document = json.loads(program.run("agents", "check", "--connect", "--json").stdout)
    (bob,) = document
    gone, raw = sorted(bob["mcp"], key=lambda one: str(one["server"]))
    assert (bob["ok"], gone["ok"], raw["ok"]) == (True, False, True)
    assert {tool["name"]: tool["named"] for tool in raw["tools"]}["s.die"] is False


def test_check_names_no_other_agent_that_shares_a_failed_server(program: Program) -> None:
    mcp = {"gone": {"command": ["nosuch"]}}
    for agent in ("bob", "eve"):
        add_agent(program, agent=agent, mcp=mcp, tools=["gone.*"])
    done = program.run("agents", "check", "--connect")
    for agent in ("bob", "eve"):
        assert f"NOT OK {agent} · mcp gone · the MCP server gone is not available" in done.stdout


def test_check_warns_of_a_server_that_no_entry_names(program: Program) -> None:
    add_agent(program, mcp={"s": {"command": RAW}}, tools=["list_members"])
    assert "its `tools` name no tool of the MCP server s" in program.run("agents", "check").stderr


def test_trust_lists_programs_hosts_and_variables_of_servers(program: Program) -> None:
    program.env = {"ARENA_TRUST": "", "XDG_CONFIG_HOME": str(program.folder / "home")}
    mcp = {
        "s": {"command": [sys.executable, "own.py"], "env": {"TOKEN": "${env:MY_TOKEN}"}},
        "web": {"url": "https://mcp.example.org/v1", "headers": {"X-Key": "${env:KEY}"}},
    }
    add_agent(program, call("s.pid"), mcp=mcp)
    refused = send(program, code=2)
    listed = program.run("trust").stdout
    for text in (refused, listed):
        assert f"TOKEN=${{env:MY_TOKEN}}' {sys.executable} own.py · with MY_TOKEN" in text
        assert "contact https://mcp.example.org · with KEY" in text
