"""Agents of a session work in their folder: asked about, redacted, and told what others changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from product import AgentProfile, hash_files
from program import Program

ALLOWED = {"modify_file": "allow", "execute_command": "allow"}
EDIT = {"tool": "edit_file", "arguments": {"path": "x.txt", "old": "one", "new": "two"}}
DIFF = "--- a/x.txt\n+++ b/x.txt\n@@ -1,1 +1,1 @@\n-one\n+two\n"
TOOLS = ["read_file", "edit_file", "write_file", "run_command"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.file("app/x.txt", "one\n")
    return made


def worker(program: Program, *calls: Any, **profile: Any) -> None:
    """Add `dev`, which makes these calls and then says its last result."""
    replies = [{"calls": list(calls), "say": "result: ${result}"}]
    adapter = {"type": "scripted", "replies": replies}
    keys: dict[str, Any] = {"tools": TOOLS, "workdir": "app", **profile}
    program.agent("dev", adapter=adapter, **keys)


def of(program: Program, kind: str, *names: str) -> list[tuple[Any, ...]]:
    records = [record for record in program.records() if record["type"] == kind]
    return [tuple(record.get(name) for name in names) for record in records]


def results(program: Program) -> list[tuple[Any, ...]]:
    return of(program, "tool_finished", "status", "result")


def test_a_change_is_approved_by_its_diff_and_made_once(program: Program) -> None:
    worker(program, EDIT)
    path = program.folder / "app/x.txt"
    assert program.run("send", "-s", "s", "go").code == 4
    ((action, detail, diff),) = of(program, "approval_requested", "action", "detail", "diff")
    assert (action, detail, diff) == ("modify_file", "x.txt", DIFF)
    assert path.read_text() == "one\n"
    ((status, text),) = results(program)
    assert status == "denied"
    assert text.endswith("You are called again with the decision: request 1")
    assert "+two" in program.run("approvals", "s").stdout
    program.run("approve", "s", "1").check(stdout=None)
    program.run("resume", "s").check(stdout=None)
    assert path.read_text() == "two\n"
    assert of(program, "tool_finished", "status", "diff")[-1] == ("ok", DIFF)
    assert of(program, "approval_used", "request") == [(1,)]


def test_an_approval_does_not_hold_for_another_change(program: Program) -> None:
    worker(program, EDIT)
    path = program.folder / "app/x.txt"
    program.run("send", "-s", "s", "go")
    path.write_text("one\nmore\n")
    program.run("approve", "s", "1").check(stdout=None)
    assert program.run("resume", "s").code == 4
    assert path.read_text() == "one\nmore\n"
    diffs = [diff for (diff,) in of(program, "approval_requested", "diff")]
    assert len(diffs) == 2
    assert " more" in diffs[1]
    program.run("approve", "s", "2").check(stdout=None)
    program.run("resume", "s").check(stdout=None)
    assert path.read_text() == "two\nmore\n"


def test_a_command_is_approved_by_its_line(program: Program) -> None:
    command = [sys.executable, "-c", "open('made', 'w').write('x')"]
    call = {"tool": "run_command", "arguments": {"command": command}}
    worker(program, call)
    assert program.run("send", "-s", "s", "go").code == 4
    ((action, detail),) = of(program, "approval_requested", "action", "detail")
    assert action == "execute_command"
    assert detail.endswith("""-c 'open('"'"'made'"'"', '"'"'w'"'"').write('"'"'x'"'"')'""")
    assert not (program.folder / "app/made").exists()
    program.run("approve", "s", "1").check(stdout=None)
    program.run("resume", "s").check(stdout=None)
    assert (program.folder / "app/made").read_text() == "x"
    assert results(program)[-1] == ("ok", "exit code 0")


def test_patterns_allow_files_and_commands(program: Program) -> None:
    python = sys.executable
    run = {"tool": "run_command", "arguments": {"command": [python, "--version"]}}
    write = {"tool": "write_file", "arguments": {"path": "./sub/y.txt", "content": "x"}}
    worker(program, run, write, EDIT, approvals={"allow": ["sub/**", f"{python} --version"]})
    assert program.run("send", "-s", "s", "go").code == 4
    assert [status for status, _ in results(program)] == ["ok", "ok", "denied"]
    ((detail,),) = of(program, "approval_requested", "detail")
    assert detail == "x.txt"


def test_edits_in_one_answer_are_all_made(program: Program) -> None:
    program.file("app/x.txt", "one two three\n")
    edits = [
        {"tool": "edit_file", "arguments": {"path": "x.txt", "old": word, "new": word.upper()}}
        for word in ("one", "two", "three")
    ]
    worker(program, edits, approvals=ALLOWED)
    program.run("send", "-s", "s", "go").check(stdout=None)
    assert (program.folder / "app/x.txt").read_text() == "ONE TWO THREE\n"


def test_what_cannot_be_done_is_said_to_the_agent_and_asked_of_nobody(program: Program) -> None:
    program.file(".env", "KEY=value\n")
    worker(
        program,
        {"tool": "edit_file", "arguments": {"path": "../x", "old": "a", "new": "b"}},
        {"tool": "write_file", "arguments": {"path": "agents/../../x", "content": "b"}},
        {"tool": "read_file", "arguments": {"path": ".env"}},
        {"tool": "write_file", "arguments": {"path": "sessions/s/transcript.jsonl", "content": ""}},
        {"tool": "run_command", "arguments": {"command": ["no-such-program"]}},
        {"tool": "run_command", "arguments": {"command": "ls", "shell": True}},
        workdir=".",
    )
    program.run("send", "-s", "s", "go").check(stdout=None)
    statuses, texts = zip(*results(program), strict=True)
    assert set(statuses) == {"error"}
    assert texts[2:4] == (
        ".env: is closed to your tools",
        "sessions/s/transcript.jsonl: is closed to your tools",
    )
    assert of(program, "approval_requested") == []


def test_secrets_in_files_and_diffs_are_redacted(program: Program) -> None:
    program.file("arena.yaml", json.dumps({"redact": ["sk-[0-9]+"]}))
    program.file("app/x.txt", "one sk-123\n")
    worker(program, {"tool": "read_file", "arguments": {"path": "x.txt"}}, EDIT)
    assert program.run("send", "-s", "s", "go").code == 4
    assert "sk-123" not in program.written()
    program.run("approve", "s", "1").check(stdout=None)
    program.run("resume", "s").check(stdout=None)
    assert (program.folder / "app/x.txt").read_text() == "two sk-123\n"
    assert "sk-123" not in program.written()


def test_agents_are_told_what_changed_in_the_files_that_they_know(program: Program) -> None:
    worker(program, {"tool": "read_file", "arguments": {"path": "x.txt"}}, approvals=ALLOWED)
    program.agent("eve", "hello")
    program.run("send", "-s", "s", "@dev read it").check(stdout=None)
    program.run("send", "-s", "s", "@dev again").check(stdout=None)
    assert [message["kind"] for (message,) in of(program, "message", "message")] == ["chat"] * 2
    program.file("app/x.txt", "two\n")
    program.run("send", "-s", "s", "@dev @eve go").check(stdout=None)
    messages = [message for (message,) in of(program, "message", "message")]
    told = next(message for message in messages if message["kind"] == "file")
    assert (told["author_type"], told["shown_to"]) == ("system", ["dev"])
    assert told["content"] == (
        f"The file x.txt has changed since you last read or wrote it.\n\n```diff\n{DIFF}```"
    )
    shown = [
        [message["id"] for message in json.loads(done.stdout)["input"]["messages"]]
        for done in (
            program.run("context", "s", "--agent", agent, "--json").check(stdout=None)
            for agent in ("dev", "eve")
        )
    ]
    assert told["id"] in shown[0]
    assert told["id"] not in shown[1]
    program.run("send", "-s", "s", "@dev once more").check(stdout=None)
    assert [message["kind"] for (message,) in of(program, "message", "message")].count("file") == 1


def test_what_an_agents_own_command_changes_is_not_told(program: Program) -> None:
    command = [sys.executable, "-c", "open('x.txt', 'w').write('made')"]
    read = {"tool": "read_file", "arguments": {"path": "x.txt"}}
    worker(
        program, read, {"tool": "run_command", "arguments": {"command": command}}, approvals=ALLOWED
    )
    program.run("send", "-s", "s", "go").check(stdout=None)
    program.run("send", "-s", "s", "go").check(stdout=None)
    kinds = [message["kind"] for (message,) in of(program, "message", "message")]
    assert kinds == ["chat", "chat"]
    (program.folder / "app/x.txt").unlink()
    program.run("send", "-s", "s", "go").check(stdout=None)
    told = [
        message for (message,) in of(program, "message", "message") if message["kind"] == "file"
    ]
    assert told[0]["content"].endswith("\n-made\n\\ No newline at end of file\n```")


def test_functions_are_tools_and_make_the_message_of_an_output(program: Program) -> None:
    program.file(
        "calc.py",
        "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n\n"
        "def report(value):\n    return f'Sum: {value}'\n\n"
        "def broken(value):\n    raise KeyError(value)\n",
    )
    inline = {
        "name": "plus",
        "description": "Add two.",
        "schema": {"type": "object", "required": ["a"]},
        "python": "calc:add",
    }
    calls = [
        {"tool": "add", "arguments": {"a": 1, "b": 2}},
        {"tool": "plus", "arguments": {"b": 1}},
        {"tool": "plus", "arguments": {"a": 3, "b": 1}},
        {"tool": "complete_task", "arguments": {"result": "3"}},
    ]
    tools = ["python:calc.py:add", inline]
    worker(program, *calls, tools=tools, workdir=None, output={"process": "calc.py:report"})
    program.run("send", "-s", "s", "go").check(stdout=None)
    assert results(program)[:3] == [
        ("ok", "3"),
        ("error", "arguments: 'a' is a required property"),
        ("ok", "4"),
    ]
    ((message,),) = of(program, "reply_finished", "message")
    assert message["content"] == "Sum: 3"

    worker(program, *calls, tools=tools, workdir=None, output={"process": "calc.py:broken"})
    program.run("send", "-s", "t", "go")
    ended = [record for record in program.records("t") if record["type"] == "reply_finished"]
    assert ended[0]["status"] == "error"
    assert "output.process: calc.py:broken: KeyError: '3' (" in ended[0]["error"]


def test_mistakes_in_a_profile_are_told_where_they_are(program: Program) -> None:
    program.file("calc.py", "def add(): ...\n")
    program.file("outside", "")
    profile = (
        "agent_id: dev\n"
        "adapter: {type: scripted, replies: [hello]}\n"
        "output: {process: calc.py:none}\n"
        "tools:\n"
        "  - read_file\n"
        "  - python:none.py:add\n"
        "  - {name: plus, python: nonsense, schema: {}}\n"
    )
    program.file("agents/dev.yaml", profile)
    problems = program.run("agents", "check").stderr
    assert "agents/dev.yaml:3: output.process: there is no function none in calc.py" in problems
    assert "agents/dev.yaml:5: tools[0]: read_file needs a folder to work in" in problems
    assert "agents/dev.yaml:6: tools[1]: there is no file " in problems
    assert "agents/dev.yaml:7: tools[2].python: must be module:function or file.py:f" in problems
    base = "agent_id: dev\nadapter: {type: scripted, replies: [hello]}\ntools: [find]\nworkdir: "
    for folder, problem in (
        ("..", "`..` is not in the workspace"),
        ("none", "there is no folder `none`"),
        ("outside", "there is no folder `outside`"),
    ):
        program.file("agents/dev.yaml", base + folder)
        told = program.run("agents", "check").stderr
        assert f"agents/dev.yaml:4: workdir: {problem}" in told
    program.file("agents/dev.yaml", f"{base}work/dev")
    program.run("send", "-s", "s", "go").check(stdout=None)
    assert (program.folder / "work/dev").is_dir()


def test_trust_lists_functions_and_commands(program: Program, tmp_path: Path) -> None:
    program.file("calc.py", "def add(): ...\n")
    program.env["ARENA_CONFIG_HOME"] = str(tmp_path / "config")
    tools = ["run_command", "python:calc.py:add"]
    worker(program, tools=tools, run={"shell": True}, output={"process": "calc.py:add"})
    listed = program.run("trust").check(stdout=None).stdout
    assert "  start any command (run_command) in app, also by a shell · for dev\n" in listed
    assert "  run calc.py:add · with every variable of the environment · for dev\n" in listed


def test_a_recording_knows_the_files_of_functions(program: Program) -> None:
    program.file("calc.py", "def add(): ...\n")
    profile = AgentProfile.model_validate(
        {"agent_id": "dev", "adapter": {"type": "scripted"}, "tools": ["python:calc:add"]}
    )
    assert list(hash_files(profile, program.folder).files) == ["calc.py"]


def test_a_session_without_tools_imports_none_of_it(program: Program) -> None:
    program.agent("dev", "hello")
    names = ("tools", "engine.local", "engine.changed", "workspace.tool")
    tools = tuple(f"arena_cli.{name}" for name in names)
    imported = program.list_imported("send", "-s", "s", "hi")
    assert [name for name in imported if name.startswith(tools)] == []
