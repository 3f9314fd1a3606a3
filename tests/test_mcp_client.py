"""Agents call the tools of MCP servers: real ones by the official SDK, and ones that misbehave."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_agents import RAW, SDK, add_agent, call, ends, send
from product import mcp_server
from program import Program, gone, until


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.file("arena.yaml", "")
    return program


def statuses(program: Program) -> list[tuple[str, float | None]]:
    return [
        (one["detail"], one["progress"])
        for one in program.records()
        if one["type"] == "status" and one["status"] == "waiting"
    ]


# What servers give.


def test_a_result_has_texts_resources_and_files(program: Program) -> None:
    add_agent(program, call("s.read_everything"))
    send(program)
    (end,) = [one for one in program.records() if one["type"] == "tool_finished"]
    assert end["status"] == "ok"
    assert end["result"].splitlines() == [
        "first",
        "audio: the attachment read_everything-2.wav",
        "resource file:///report.pdf: report, application/pdf",
        "resource file:///a.txt:",
        "inside",
        "resource file:///b.dat: the attachment b.dat",
        "last",
    ]
    image, audio, blob = end["attachments"]
    assert [image["type"], audio["type"], blob["type"]] == ["image", "file", "file"]
    assert image["name"] == "read_everything-1.png"
    contents = [(program.folder / file["path"]).read_bytes() for file in (image, audio, blob)]
    assert contents == [b"\x89PNG\r\n\x1a\n" + bytes(16), b"\x00\x01", b"\x00\x01"]


def test_data_is_json_failures_are_errors_progress_is_a_status_and_new_tools_are_there(
    program: Program,
) -> None:
    tools = ("structured", "nothing", "with_progress", "added", "new_tool", "added")
    add_agent(program, *(call(f"s.read_{tool}") for tool in tools))
    send(program)
    structured, failed, *others = ends(program)
    assert structured[1] == "ok"
    assert json.loads(structured[2]) == {"count": 3}
    assert failed[1] == "error"
    assert "read_nothing" in failed[2]
    assert [status for _, status, _ in others] == ["ok", "error", "ok", "ok"]
    assert statuses(program) == [
        ("s.read_with_progress: one of four", 0.25),
        ("s.read_with_progress: all", 1.0),
    ]


def test_a_tool_that_is_new_is_there_at_the_next_turn_without_a_library(program: Program) -> None:
    calls = ("s.added", "s.add", "s.added")
    add_agent(program, *map(call, calls), command=RAW)
    send(program)
    assert [status for _, status, _ in ends(program)] == ["error", "ok", "ok"]


def test_all_pages_of_a_list_are_read(program: Program) -> None:
    add_agent(program, call("s.odd"), call("s.pid"), command=[*RAW, "pages"])
    send(program)
    (_, odd, why), (_, status, _) = ends(program)
    assert (odd, status) == ("error", "ok")
    assert "does not follow the protocol" in why


def test_a_tool_with_an_invalid_schema_fails_alone(program: Program) -> None:
    names = ["s.untyped", "s.text", "s.lies", "s.pid"]
    add_agent(program, *map(call, names), command=[*RAW, "lies"])
    send(program)
    results = ends(program)
    assert [status for _, status, _ in results] == ["error", "error", "error", "ok"]
    for name, _, result in results[:3]:
        assert result.startswith(f"{name} cannot be called: its input schema is")


def test_the_schema_of_a_server_neither_holds_up_arena_nor_fetches_anything(
    program: Program,
) -> None:
    long = "a" * 60 + "!"
    calls = [call("s.slow", a=long), call("s.slow_names", **{long: 1}), call("s.far", a=1)]
    add_agent(program, *calls, call("s.pid"), command=[*RAW, "lies"])
    send(program)
    slow, slow_names, far, pid = ends(program)
    assert [status for _, status, _ in (slow, slow_names, far, pid)] == ["error"] * 3 + ["ok"]
    assert "the pattern /^(a|aa)+$/ takes longer than 1 s" in slow[2]
    assert "the pattern /^(a|aa)+$/ takes longer than 1 s" in slow_names[2]
    assert "Unresolvable" in far[2]


def test_a_tool_may_have_a_chinese_name(program: Program) -> None:
    add_agent(program, call("s.查询"), command=[*RAW, "lies"], tools=["s.查询"])
    send(program)
    ((name, status, _),) = ends(program)
    assert (name, status) == ("s.查询", "ok")


def test_a_server_is_refused_what_it_asks_persons_and_models_for(program: Program) -> None:
    (program.folder / "shop").mkdir()
    add_agent(program, call("s.ask"), command=RAW, workdir="shop")
    send(program)
    ((_, status, result),) = ends(program)
    elicited, sampled, roots = result.split(" | ")
    assert status == "ok"
    assert (elicited, sampled) == ("Elicitation not supported", "Sampling not supported")
    assert json.loads(roots)["roots"][0]["uri"] == (program.folder / "shop").resolve().as_uri()


# One process for a session.


def test_one_server_is_shared_by_agents_and_replies(program: Program) -> None:
    calls = [[call("s.pid"), call("s.pid")], call("s.pid")]
    add_agent(program, *calls, say="@eve your turn", command=RAW)
    add_agent(program, call("s.pid"), agent="eve", say="@bob again", tools=["s.p*"], command=RAW)
    send(program, code=0)
    pids = [int(result) for _, _, result in ends(program)]
    assert len(pids) >= 4
    assert len({*pids}) == 1
    until(lambda: gone(pids[0]))
    assert not list((program.folder / "sessions" / ".processes").iterdir())


def test_servers_that_differ_are_processes_of_their_own(program: Program) -> None:
    other = {"command": RAW, "env": {"COLOUR": "red"}}
    mcp = {"s": {"command": RAW}, "t": other}
    calls = [call("s.pid"), call("t.pid"), call("t.variables", names=["COLOUR"])]
    add_agent(program, *calls, mcp=mcp, tools=["*.pid", "*.variables"])
    send(program)
    one, two, variables = [result for _, _, result in ends(program)]
    assert one != two
    assert json.loads(variables) == {"COLOUR": "red"}


@pytest.mark.skipif(sys.platform == "win32", reason="processes leave their job there")
def test_what_a_server_started_ends_with_the_session(program: Program) -> None:
    add_agent(program, call("s.start_child"), approvals={"allow": ["s.start_*"]})
    send(program)
    ((_, status, pid),) = ends(program)
    assert status == "ok"
    assert gone(int(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a program with its parent")
def test_a_server_ends_with_an_arena_that_is_killed(program: Program) -> None:
    add_agent(program, call("s.pid"), call("s.hang"), command=RAW)
    running = program.start("send", "--session", "s", "@bob go")
    until(lambda: b'"tool_finished"' in program.raw())
    ((_, _, pid),) = ends(program)
    running.kill()
    program.finish(running)
    until(lambda: gone(int(pid)))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_a_server_ends_with_a_call_that_is_interrupted(program: Program) -> None:
    add_agent(program, call("s.read_pid"), call("s.read_slowly", seconds=600))
    running = program.start("send", "--session", "s", "@bob go")
    until(lambda: b'"s.read_slowly"' in program.raw())
    ((_, _, pid),) = ends(program)
    running.send_signal(signal.SIGINT)
    assert program.finish(running).code == 130
    assert gone(int(pid))


def test_a_server_sees_the_variables_that_programs_get_and_its_own(program: Program) -> None:
    program.env = {"OTHER": "not for it", "MY_TOKEN": "hunter2-hunter2", "PLAIN": "grey"}
    env = {"TOKEN": "${env:MY_TOKEN}", "PLAIN": "inherit", "FIXED": "1"}
    names = ["PATH", "OTHER", "TOKEN", "PLAIN", "FIXED"]
    server = {"command": RAW, "env": env}
    add_agent(program, call("s.variables", names=names), server=server)
    send(program)
    ((_, _, result),) = ends(program)
    seen = json.loads(result)
    assert seen["PATH"]
    assert (seen["OTHER"], seen["PLAIN"], seen["FIXED"]) == (None, "grey", "1")
    assert "hunter2" not in program.written()
    assert seen["TOKEN"]


# Approvals.


def test_a_tool_that_may_change_something_is_asked_about(program: Program) -> None:
    add_agent(program, call("s.write_issue", title="leak"), command=RAW)
    send(program, code=4)
    ((_, status, _),) = ends(program)
    assert status == "denied"
    (asked,) = [one for one in program.records() if one["type"] == "approval_requested"]
    assert (asked["action"], asked["detail"]) == ("external_api_call", "s.write_issue")
    assert asked["arguments"] == {"tool": "s.write_issue", "arguments": {"title": "leak"}}
    assert not (program.folder / "issues.txt").exists()
    assert program.run("approve", "s", str(asked["request"])).code == 0
    assert program.run("resume", "s").code == 0
    assert (program.folder / "issues.txt").read_text() == "leak\n"


@pytest.mark.parametrize(("pattern", "status"), [("s.write_*", "ok"), ("s.v*", "denied")])
def test_patterns_allow_tools_by_name(program: Program, pattern: str, status: str) -> None:
    approvals = {"allow": [pattern], "expires_s": 5}
    add_agent(program, call("s.write_issue", title="leak"), approvals=approvals, command=RAW)
    send(program, code=0 if status == "ok" else 4)
    assert [one[1] for one in ends(program)] == [status]


# Servers that fail.


def test_text_on_stdout_is_skipped_and_reported_once(program: Program) -> None:
    add_agent(program, call("s.pid"), call("s.pid"), command=[*RAW, "noise"])
    send(program)
    assert [status for _, status, _ in ends(program)] == ["ok", "ok"]
    ((detail, _),) = statuses(program)
    assert "wrote text to stdout, skipped: Server listening... | {not json} | [1]" in detail


def test_a_server_that_dies_is_started_again_at_the_next_call_once(program: Program) -> None:
    calls = ["s.pid", "s.die", "s.pid", "s.die", "s.die", "s.pid"]
    add_agent(program, *map(call, calls), command=[*RAW, "counts"])
    send(program)
    results = ends(program)
    assert [one[1] for one in results] == ["ok", "error", "ok", "error", "error", "error"]
    assert results[0][2] != results[2][2]
    for _, _, result in (results[1], results[3]):
        assert "failed with exit code 3: out of memory in the engine room" in result
        assert "the next call starts it again" in result
    assert "starts it again" not in results[4][2]
    assert "ended twice without an answer" in results[5][2]
    assert (program.folder / "starts").read_text() == "xxx"


def test_a_call_without_an_end_times_out(program: Program) -> None:
    add_agent(program, call("s.hang"), command=RAW, server={"timeout_s": 0.2})
    send(program)
    ((_, status, result),) = ends(program)
    assert (status, result) == ("timeout", "s.hang did not answer within 0.2 s")


def test_a_server_that_does_not_start_fails_the_agents_that_need_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "START_LIMIT_S", 0.5)
    mcp = {"s": {"command": [*RAW, "hangs"]}, "unused": {"command": ["nosuch"]}}
    add_agent(program, call("s.pid"), mcp=mcp)
    program.agent("eve", "I am here")
    send(program, "@bob @eve go")
    replies = {one["agent"]: one for one in program.records() if one["type"] == "reply_finished"}
    assert replies["eve"]["status"] == "success"
    assert replies["bob"]["status"] == "error"
    assert replies["bob"]["error_code"] == "unavailable"
    assert replies["bob"]["error"].startswith(
        "bob: the MCP server s is not available: it did not answer within 0.5 s; "
    )
    assert replies["bob"]["attempts"] == 1


@pytest.mark.parametrize(
    ("server", "problem", "hint"),
    [
        ({"command": [*RAW, "quits"]}, "failed with exit code 1; came: no config file", "by hand"),
        ({"command": ["nosuch"]}, "there is no program nosuch on PATH", "mcp.s.command"),
        ({"command": SDK, "cwd": "nosuch"}, "there is no folder", "correct `cwd`"),
        ({"url": "http://127.0.0.1:1/mcp"}, "http://127.0.0.1:1/mcp does not answer", "endpoint"),
        ({"url": "http://${env:NOT_SET}/"}, "mcp.s.url: NOT_SET is not set", "set NOT_SET"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    program: Program, server: dict[str, Any], problem: str, hint: str
) -> None:
    add_agent(program, call("s.pid"), mcp={"s": server})
    send(program, code=3)
    (reply,) = [one for one in program.records() if one["type"] == "reply_finished"]
    assert problem in reply["error"]
    assert hint in reply["error"]


def test_the_variables_of_a_server_are_redacted_in_its_errors(program: Program) -> None:
    program.env = {"MY_TOKEN": "hunter2-hunter2"}
    code = "import os, sys; sys.exit('bad token ' + os.environ['TOKEN'])"
    server = {"command": [sys.executable, "-c", code], "env": {"TOKEN": "${env:MY_TOKEN}"}}
    add_agent(program, call("s.pid"), mcp={"s": server})
    printed = send(program, code=3)
    assert "bad token" in printed
    assert "hunter2" not in printed + program.written()


def test_without_the_library_arena_says_how_to_install_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "arena_cli.tools.mcp_client", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.client.client", None)
    add_agent(program, call("s.pid"))
    assert "pip install '.[mcp]'" in send(program, code=3)


# Sessions without tools.


def test_a_session_without_servers_loads_nothing_of_them(program: Program) -> None:
    program.agent("dev", "hello")
    program.env = {"PYTHONPROFILEIMPORTTIME": "1"}
    done = program.run("send", "@dev hello")
    assert done.code == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "arena_cli.session.session" in loaded
    unwanted = ("mcp", "arena_cli.tools", "arena_cli.engine.mcp_tools")
    assert not [name for name in loaded if name.startswith(unwanted)]
    assert "arena_cli.workspace.tool_entries" not in loaded
