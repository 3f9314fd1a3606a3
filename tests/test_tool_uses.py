"""What coding agents did and were refused: status, timeline, audit, scenarios, recordings."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import agent_programs
import pytest
from adapter_setups import PROGRAMS, Heard, an_input
from product import ProgramAdapter, RefusedAction, permission_options
from product import kinds as clis
from program import Program

SHELL = "/bin/bash -lc 'echo hi > y'"


def codex_item(kind: str, status: str, **fields: Any) -> dict[str, Any]:
    item = {"id": "item_1", "type": kind, "status": status, **fields}
    return {"type": "item.completed" if status != "in_progress" else "item.started", "item": item}


def codex(output: str) -> list[dict[str, Any]]:
    return [
        codex_item("command_execution", "in_progress", command=SHELL, aggregated_output=""),
        codex_item("command_execution", "failed", command=SHELL, aggregated_output=output),
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    ]


def gemini(error: dict[str, str]) -> list[dict[str, Any]]:
    arguments = {"file_path": "notes.md", "content": "x"}
    use = {"type": "tool_use", "tool_name": "write_file", "tool_id": "t", "parameters": arguments}
    return [
        use,
        {"type": "tool_result", "tool_id": "t", "status": "error", "error": error},
        {"type": "message", "role": "assistant", "content": "done"},
        {"type": "result", "status": "success"},
    ]


def opencode(tool: str, state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "part": {"tool": tool, "callID": "c", "state": state}},
        {"type": "text", "part": {"text": "done"}},
        {"type": "step_finish", "part": {"reason": "stop"}},
    ]


def pi(error: str) -> list[dict[str, Any]]:
    use = {"toolCallId": "t", "toolName": "write"}
    content = [{"type": "text", "text": error}]
    return [
        {"type": "tool_execution_start", "args": {"path": "notes.md"}, **use},
        {"type": "tool_execution_end", "isError": True, "result": {"content": content}, **use},
        {"type": "message_end", "message": {"role": "assistant", "content": "done"}},
        {"type": "agent_end"},
    ]


def cursor(result: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"editToolCall": {"args": {"path": "notes.md"}, "result": result}}
    return [
        {"type": "tool_call", "subtype": "started", "call_id": "c", "tool_call": call},
        {"type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": call},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "done"}]}},
        {"type": "result", "subtype": "success", "result": "done"},
    ]


WRITE = {"filePath": "notes.md", "content": "x"}
UNAVAILABLE = {"tool": "write", "error": "Model tried to call unavailable tool 'write'."}


@pytest.mark.parametrize(
    ("adapter", "events", "used", "by"),
    [
        (clis.CodexAdapter, codex("y: Read-only file system"), "shell echo hi > y", "sandbox_mode"),
        (clis.CodexAdapter, codex("remote: rejected"), "shell echo hi > y", ""),
        (
            clis.GeminiAdapter,
            gemini({"type": "tool_not_registered", "message": 'Tool "write_file" not found.'}),
            "write_file notes.md",
            "--approval-mode",
        ),
        (
            clis.GeminiAdapter,
            gemini({"type": "invalid_tool_params", "message": "Access denied: plan path"}),
            "write_file notes.md",
            "--approval-mode",
        ),
        (clis.GeminiAdapter, gemini({"message": "no such file"}), "write_file notes.md", ""),
        (
            clis.OpencodeAdapter,
            opencode("invalid", {"status": "completed", "input": UNAVAILABLE}),
            "write",
            "OPENCODE_PERMISSION",
        ),
        (
            clis.OpencodeAdapter,
            opencode("write", {"input": WRITE, "error": "a rule which prevents you from using"}),
            "write notes.md",
            "OPENCODE_PERMISSION",
        ),
        (clis.OpencodeAdapter, opencode("write", {"input": WRITE}), "write notes.md", ""),
        (clis.PiAdapter, pi("Tool write not found"), "write notes.md", "--tools"),
        (clis.PiAdapter, pi("ENOENT"), "write notes.md", ""),
        (clis.CursorAdapter, cursor({"rejected": {}}), "edit notes.md", "--mode"),
        (clis.CursorAdapter, cursor({"success": {}}), "edit notes.md", ""),
    ],
)
def test_a_tool_is_a_status_with_its_command_or_path_and_a_refusal_is_reported(
    tmp_path: Path, adapter: type[ProgramAdapter], events: list[Any], used: str, by: str
) -> None:
    played = agent_programs.Played(tmp_path, adapter.program)
    played.plan({"stdout": "".join(json.dumps(event) + "\n" for event in events)})
    heard = Heard()
    assert asyncio.run(played.adapter(adapter).invoke(an_input(), heard)).content == "done"
    statuses = [status.detail for status in heard.statuses if status.status == "calling_tool"]
    assert statuses == [used]
    assert [" ".join(filter(None, (one.tool, one.target))) for one in heard.refused] == (
        [used] if by else []
    )
    assert all(action.by == by for action in heard.refused)


def claude_turn(*tools: tuple[str, dict[str, Any]], denied: int = 0) -> str:
    """The output of a turn that uses these tools, of which the last `denied` are refused."""
    blocks = [
        {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(tools)
    ]
    denials = [
        {"tool_use_id": f"t{number}", "tool_name": tools[number][0], "tool_input": tools[number][1]}
        for number in range(len(tools) - denied, len(tools))
    ]
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "我改好了",
        "permission_denials": denials,
    }
    said = {"type": "assistant", "message": {"id": "m", "content": blocks}}
    return "".join(json.dumps(event) + "\n" for event in (said, result))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    script = tmp_path / "claude"
    script.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{PROGRAMS / "fake_claude.py"}" "$@"\n', "utf-8"
    )
    script.chmod(0o755)
    output = claude_turn(
        ("Read", {"file_path": str(tmp_path.resolve() / "笔记.md")}),
        ("Bash", {"command": "ls\n-l"}),
        ("Write", {"file_path": str(tmp_path.resolve() / "notes.md"), "content": "x"}),
        denied=1,
    )
    program.file("turn.jsonl", output)
    env = {"FAKE_CLAUDE": str(tmp_path / "turn.jsonl"), "FAKE_CLAUDE_LOG": str(tmp_path / "log")}
    adapter = {"type": "claude_code", "program": str(script), "env": env}
    program.agent("ed", adapter={**adapter, "tools": ["Read", "Write"], "keep_alive": False})
    program.team()
    return program


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
LINE = "refused: Write notes.md (tools: permission_mode)"


def test_what_was_done_and_refused_is_under_the_reply_on_the_page_and_in_the_audit(
    program: Program,
) -> None:
    sent = program.run("send", "-s", "s", "@ed 改一下").check(code=0, stdout=None)
    lines = [line.strip() for line in sent.stdout.splitlines()]
    place = lines.index("我改好了")
    assert lines[place + 1 : place + 3] == [
        "used: Read 笔记.md, Bash ls -l, Write notes.md",
        LINE,
    ]
    shown = program.run("show", "s").check(code=0, stdout=None).stdout
    assert LINE in shown
    page = program.folder / "page.html"
    program.run("show", "s", "--html", str(page)).check(code=0, stdout=None)
    assert LINE in page.read_text(encoding="utf-8")
    audit = program.run("export", "s", "--audit", "--format", "json").check(code=0, stdout=None)
    (call,) = [entry for entry in json.loads(audit.stdout)["entries"] if entry["entry"] == "call"]
    assert call["refused"] == ["Write notes.md (tools: permission_mode)"]
    (reply,) = [one for one in program.records() if one["type"] == "reply_finished"]
    assert [RefusedAction.model_validate(one) for one in reply["refused_actions"]] == [
        RefusedAction(tool="Write", target="notes.md", by="permission_mode")
    ]


def test_a_scenario_counts_what_was_refused_live_and_from_its_recording(program: Program) -> None:
    def scenario(expected: str) -> None:
        program.scenario(
            "scenario: edit\nagents: [ed]\nsteps:\n  - send: '@ed hi'\n"
            f"    expect: {{refused: {expected}}}\n"
        )

    scenario("{ed: 1}")
    program.run("run", "--record").check(code=0, stdout=None)
    (program.folder / "turn.jsonl").write_text(claude_turn(), encoding="utf-8")
    program.run("run", "--replay").check(code=0, stdout=None)
    scenario("{ed: 0}")
    failed = program.run("run", "--replay")
    assert failed.code == 1
    assert "refused.ed" in failed.stdout
    assert "1: Write notes.md (tools: permission_mode)" in failed.stdout
    program.run("run", "--live").check(code=0, stdout=None)
    scenario("{nobody: 0}")
    assert program.run("run").code == 2


def test_a_promoted_session_keeps_what_was_refused(program: Program) -> None:
    program.run("send", "-s", "s", "@ed hi").check(code=0, stdout=None)
    program.run("promote", "s").check(code=0, stdout=None)
    program.run("run", "s", "--replay").check(code=0, stdout=None)
    recorded = "".join(
        path.read_text(encoding="utf-8") for path in program.folder.rglob("scenarios/**/*.jsonl")
    )
    assert recorded.count('"refused_actions"') == 2


@pytest.mark.parametrize(
    ("adapter", "powers"),
    [
        ({"type": "claude_code"}, "may use no tools"),
        (
            {"type": "claude_code", "tools": ["Edit", "Bash"], "cwd": "work/ed"},
            "may use Edit, Bash; files in work/ed, any command",
        ),
        (
            {"type": "claude_code", "tools": ["Edit"], "permission_mode": "plan"},
            "may use Edit, as far as `permission_mode: plan` allows",
        ),
        (
            {"type": "claude_code", "tools": ["Bash"], "args": ["--allowedTools=Bash(ls:*)"]},
            "may use Bash, as far as `args` allow",
        ),
        ({"type": "codex"}, "may read files; it runs commands in a read-only sandbox"),
        (
            {"type": "codex", "args": ["-c", "sandbox_mode=workspace-write"]},
            "may do what `sandbox_mode=workspace-write` in `args` allows",
        ),
        (
            {"type": "gemini", "args": ["--approval-mode", "auto_edit"]},
            "may do what `--approval-mode auto_edit` in `args` allows",
        ),
        ({"type": "pi"}, "may use no tools"),
        (
            {"type": "opencode", "env": {"OPENCODE_PERMISSION": "{}"}},
            "may do what `OPENCODE_PERMISSION: {}` in `env` allows",
        ),
        ({"type": "cursor"}, "may read files"),
        ({"type": "acp", "preset": "claude"}, "may do nothing that it asks for"),
        ({"type": "acp", "preset": "claude", "permissions": "read"}, "may read and search in ."),
    ],
)
def test_agents_check_says_what_a_profile_may_do(
    tmp_path: Path, adapter: dict[str, Any], powers: str
) -> None:
    program = Program(tmp_path)
    program.agent("ed", adapter=adapter)
    assert program.run("agents", "check").stdout.rstrip().endswith(f" · {powers}")


@pytest.mark.parametrize(
    ("tools", "mode", "args", "options"),
    [
        (
            ["Edit", "Bash"],
            None,
            [],
            ["--allowedTools", "Bash", "--permission-mode", "acceptEdits"],
        ),
        (["Read"], None, [], ["--allowedTools", "Read(//w/files/**)"]),
        (["Edit"], "plan", [], ["--permission-mode", "plan"]),
        (["Edit", "Bash"], None, ["--permission-mode=plan"], []),
        ([], None, [], []),
    ],
)
def test_claude_code_is_allowed_the_tools_of_its_profile(
    tools: list[str], mode: str | None, args: list[str], options: list[str]
) -> None:
    assert permission_options(tools, mode, args, Path("/w/files")) == options
