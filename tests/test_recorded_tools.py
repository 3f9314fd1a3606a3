"""Recordings keep what tools gave, and a replay calls none of them."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from product import (
    CaseRecord,
    RecordedTool,
    Redactor,
    TapedTools,
    ToolAnswer,
    ToolRequest,
    ToolResult,
    ToolSpec,
    encode_recording,
)
from program import Done, Program
from support import member

CALLS = [
    {"tool": "calc.mul", "arguments": {"a": 2}},
    [{"tool": "add", "arguments": {"a": 1}}, {"tool": "calc.mul", "arguments": {"a": 3}}],
]
ADD = """\
def add(a: int) -> int:
    with open("calls", "a") as file:
        file.write("x")
    return a + 1
"""
SCENARIO: dict[str, Any] = {
    "scenario": "Two tools",
    "tools": {"calc.mul": {"returns": ["6", {"x": 9}]}},
    "steps": [
        {
            "send": "@fixer go",
            "expect": {"tool": [{"name": "add"}, {"name": "calc.mul"}]},
        }
    ],
}


@pytest.fixture
def arena(tmp_path: Path, recorded: Path) -> Program:
    """`fixer` calls a scripted tool and a function; its scenario is recorded."""
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return Program(tmp_path)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a workspace that was recorded."""
    made = Program(tmp_path_factory.mktemp("recorded"))
    made.file("calc.py", ADD)
    made.agent(
        "fixer",
        adapter={"type": "scripted", "replies": [{"calls": CALLS, "say": "It is ${result}"}]},
        tools=["calc.*", "python:calc.py:add"],
        mcp={"calc": {"command": ["no-such-program"]}},
    )
    made.team([])
    write(made)
    done = made.run("run", "--record", "--json")
    assert done.code == 0, done.stdout + done.stderr
    return made.folder


def write(program: Program, **keys: Any) -> None:
    program.scenario(json.dumps({**SCENARIO, **keys}), "two")


def path_of(program: Program) -> Path:
    return program.folder / "scenarios" / "recordings" / "two.jsonl"


def lines(program: Program) -> list[dict[str, Any]]:
    text = path_of(program).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def of_type(program: Program, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines(program) if line["type"] == kind]


def causes(done: Done) -> list[tuple[str, str, str, str]]:
    told = json.loads(done.stdout)["drift"]
    return [(one["kind"], one["field"], one["before"], one["after"]) for one in told]


def replay(program: Program, *options: str) -> Done:
    return program.run("run", "--replay", "--json", *options)


def events(program: Program) -> list[dict[str, Any]]:
    (path,) = (program.folder / "sessions").glob("*/transcript.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def change_profile(program: Program, **keys: Any) -> None:
    path = program.folder / "agents" / "fixer.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8")) | keys
    path.write_text(json.dumps(data), encoding="utf-8")


def change_lines(program: Program, change: Any) -> None:
    """Change the lines of the recording as if they had been recorded so."""
    _, *case, _ = lines(program)
    for line in case:
        change(line)
    path_of(program).write_bytes(encode_recording("Two tools", [case]))


def test_a_recording_has_the_calls_the_tools_and_what_they_gave(arena: Program) -> None:
    started = of_type(arena, "reply_started")
    calls = [[call["tool"] for call in one["output"].get("tool_calls", ())] for one in started]
    assert calls == [["calc.mul"], ["add", "calc.mul"], []]
    assert [one["input"]["tools"] for one in started] == [["calc.mul", "add"]] * 3
    (agent,) = of_type(arena, "agent")
    assert [spec["name"] for spec in agent["tools"]] == ["calc.mul", "add"]
    ends = of_type(arena, "tool_finished")
    assert [end["result"] for end in ends] == ["6", "2", '{"x": 9}']
    assert [end["answer"] for end in ends] == [{}, {}, {}]
    assert '"ms"' not in path_of(arena).read_text(encoding="utf-8")


def test_the_same_calls_give_the_same_bytes_and_replay_without_drift(arena: Program) -> None:
    before = path_of(arena).read_bytes()
    done = replay(arena)
    assert done.code == 0, done.stdout
    assert causes(done) == []
    arena.run("run", "--update")
    assert path_of(arena).read_bytes() == before
    arena.run("run", "--record")
    assert path_of(arena).read_bytes() == before


def test_a_replay_gives_what_the_recording_has(arena: Program) -> None:
    def change(line: dict[str, Any]) -> None:
        if line["type"] == "tool_finished" and line["tool"] == "add":
            line["result"] = "as recorded"

    change_lines(arena, change)
    called = (arena.folder / "calls").read_text()
    done = replay(arena, "--keep", "all")
    assert (arena.folder / "calls").read_text() == called
    assert (done.code, causes(done)) == (0, []), done.stdout
    results = [event["result"] for event in events(arena) if event["type"] == "tool_finished"]
    assert sorted(results) == sorted(["6", "as recorded", '{"x": 9}'])


def test_a_long_result_and_its_images_are_kept_whole(arena: Program) -> None:
    whole = "x" * 50_000
    image = {"type": "image", "name": "a.png", "data": "iVBORw0KGgo="}

    def change(line: dict[str, Any]) -> None:
        if line["type"] == "tool_finished" and line["tool"] == "add":
            line["answer"] = {"text": whole, "attachments": [image]}

    change_lines(arena, change)
    replay(arena, "--keep", "all")
    (end,) = [event for event in events(arena) if event.get("tool") == "add"][1:]
    files = {file["name"]: arena.folder / file["path"] for file in end["attachments"]}
    assert sorted(files) == ["a.png", "add-2.txt"]
    assert files["add-2.txt"].read_text() == whole
    arena.run("run", "--update")
    (line,) = [one for one in of_type(arena, "tool_finished") if one["tool"] == "add"]
    assert line["answer"] == {"text": whole, "attachments": [image]}


def test_another_answer_of_a_scripted_tool_is_drift_with_its_name(arena: Program) -> None:
    write(arena, tools={"calc.mul": {"returns": ["6", {"x": 10}]}})
    done = replay(arena)
    assert done.code == 1
    assert causes(done) == [("input", "tool calc.mul answer", '{"x": 9}', '{"x": 10}')]
    text = arena.run("run", "--replay").stdout
    assert 'tool calc.mul: its answer changed: {"x": 9} → {"x": 10}' in text
    assert "changed in scenarios/two.yaml:1" in text
    assert arena.run("run", "--update").code == 0
    assert causes(replay(arena)) == []


@pytest.mark.parametrize("key", ["description", "schema"])
def test_another_schema_or_description_is_drift_with_the_tools_name(
    arena: Program, key: str
) -> None:
    value = "Multiply." if key == "description" else {"properties": {"a": {"type": "integer"}}}
    write(arena, tools={"calc.mul": {"returns": ["6", {"x": 9}], key: value}})
    done = replay(arena)
    assert done.code == 1
    [(kind, field, before, after)] = causes(done)
    assert (kind, field) == ("input", "tool calc.mul")
    assert before != after
    text = arena.run("run", "--replay").stdout
    assert "tool calc.mul: its schema or description changed (fixer)" in text


def test_a_tool_that_is_gone_or_new_is_named(arena: Program) -> None:
    change_profile(arena, tools=["calc.*", "python:calc.py:add"], output={"name": "report"})
    fields = [field for _, field, _, _ in causes(replay(arena))]
    assert "tool complete_task" in fields


def test_other_arguments_get_the_next_result_and_are_drift(arena: Program) -> None:
    def change(line: dict[str, Any]) -> None:
        if line["type"] == "tool_requested" and line["tool"] == "add":
            line["arguments"] = {"a": 7}

    change_lines(arena, change)
    done = replay(arena)
    drift = json.loads(done.stdout)["scenarios"][0]["drift"]
    fields = [one["field"] for one in drift]
    assert "tool add arguments" in fields
    text = arena.run("run", "--replay").stdout
    assert "fixer calls the tool add with other arguments" in text


def test_a_call_without_a_record_is_a_miss_and_an_error(arena: Program) -> None:
    _, *case, _ = lines(arena)
    kept = [
        line for line in case if not (line["type"].startswith("tool_") and line["tool"] == "add")
    ]
    path_of(arena).write_bytes(encode_recording("Two tools", [kept]))
    done = replay(arena)
    assert done.code == 1
    told = json.loads(done.stdout)["scenarios"][0]
    missed = [one for one in told["drift"] if one["kind"] == "miss"]
    assert [one["field"] for one in missed] == ["tool add"]
    error = told["steps"][0]["failures"][0]["error"]
    assert "its recording has no result of add left in step 1" in error
    text = arena.run("run", "--replay").stdout
    assert "fixer calls the tool add, but no recorded result is left for it" in text


def test_in_ci_a_scripted_agent_without_a_recording_may_call_tools(arena: Program) -> None:
    path_of(arena).unlink()
    arena.env["CI"] = "true"
    done = arena.run("run", "--json")
    assert (done.code, json.loads(done.stdout)["modes"]) == (0, {"live": 1}), done.stdout


SERVER = Path(__file__).parents[1] / "scenarios" / "fixtures" / "archive_server.py"


def test_a_replay_starts_no_server_and_has_its_tools(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    program = Program(tmp_path)
    shutil.copy(SERVER, tmp_path)
    calls = [{"tool": "library.read", "arguments": {"name": "handbook.md"}}]
    program.agent(
        "fixer",
        adapter={"type": "scripted", "replies": [{"calls": calls, "say": "${result}"}]},
        tools=["library.*"],
        mcp={"library": {"command": [sys.executable, SERVER.name]}},
    )
    program.team([])
    expect = {"replies": {"fixer": [{"contains": "ten years"}]}, "tool": {"status": "ok"}}
    write(program, tools={}, steps=[{"send": "@fixer go", "expect": expect}])
    done = program.run("run", "--record", "--json")
    assert done.code == 0, done.stdout + done.stderr
    (agent,) = of_type(program, "agent")
    assert [spec["name"] for spec in agent["tools"]] == ["library.search", "library.read"]
    assert all(spec["read_only"] for spec in agent["tools"])
    (tmp_path / SERVER.name).unlink()
    done = replay(program)
    assert (done.code, causes(done)) == (0, []), done.stdout
    assert program.run("run", "--live", "--json").code == 3  # it would need the server


def test_a_colleague_that_is_called_as_a_tool_is_replayed_with_its_calls(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file("calc.py", ADD)
    asked = [
        [{"tool": "agent:rev", "arguments": {"task": f"add {number}"}} for number in range(2)],
        {"tool": "agent:rev", "arguments": {"task": "add 2"}},
    ]
    rules = [
        {
            "when": {"contains": f"add {number}"},
            "calls": [{"tool": "add", "arguments": {"a": number}}],
            "say": "${result}",
        }
        for number in range(3)
    ]
    script = {"type": "scripted", "replies": [{"calls": asked, "say": "${result}"}]}
    program.agent("fixer", adapter=script, tools=["agent:rev"])
    script = {"type": "scripted", "replies": rules}
    program.agent("rev", adapter=script, tools=["python:calc.py:add"], member=False)
    program.team([])
    expect = {
        "tool": [{"agent": "fixer", "name": "agent:rev", "times": 3}],
        "ended": {"rev": "goal", "fixer": "goal"},
        "replies": {"fixer": [{"equals": "3"}]},
    }
    write(program, tools={}, agents=["fixer"], steps=[{"send": "@fixer go", "expect": expect}])
    done = program.run("run", "--record", "--json")
    assert done.code == 0, done.stdout + done.stderr
    called = (tmp_path / "calls").read_text()
    assert len(of_type(program, "memory")) == 6
    done = replay(program)
    assert (done.code, causes(done)) == (0, []), done.stdout
    assert (tmp_path / "calls").read_text() == called
    before = path_of(program).read_bytes()
    program.run("run", "--record")
    assert path_of(program).read_bytes() == before


PROGRAM = Path(__file__).parent / "programs" / "serving_agent.py"


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")
def test_the_calls_of_a_program_are_made_again_in_a_replay(tmp_path: Path) -> None:
    program = Program(tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[1])})
    shutil.copy(PROGRAM, tmp_path)
    program.file("calc.py", ADD)
    program.file("calls.json", json.dumps([{"tool": "add", "arguments": {"a": 4}}]))
    script = tmp_path / "helper"
    source = f"{sys.executable} {tmp_path / PROGRAM.name}"
    script.write_text(f"#!/bin/sh\nexport PYTHONPATH={Path(__file__).parents[1]}\nexec {source}\n")
    script.chmod(0o755)
    program.agent(
        "helper",
        adapter={"type": "gemini", "program": str(script)},
        tools=["python:calc.py:add"],
    )
    program.team([])
    expect = {"tool": {"agent": "helper", "name": "add", "arguments": {"a": 4}, "status": "ok"}}
    write(program, tools={}, steps=[{"send": "@helper go", "expect": expect}])
    done = program.run("run", "--record", "--json")
    assert done.code == 0, done.stdout + done.stderr
    called = (tmp_path / "calls").read_text()
    (started,) = of_type(program, "reply_started")
    assert started["output"]["served_calls"] == [{"tool": "add", "arguments": {"a": 4}}]
    script.unlink()
    done = replay(program, "--keep", "all")
    assert (done.code, causes(done)) == (0, []), done.stdout
    assert (tmp_path / "calls").read_text() == called
    assert "served_calls" not in json.dumps(events(program))


# What is known of a case decides what a tape gives.


def test_servers_offer_what_they_offered_when_it_was_recorded() -> None:
    specs = [{"name": name, "description": name} for name in ("gh.find", "ghx.a", "list_members")]
    case = CaseRecord(None, agents={"fixer": {"tools": specs}})
    tools = TapedTools(case)
    offered = tools.list_offered(member("fixer", mcp={"gh": {"command": ["x"]}}, tools=["gh.*"]))
    assert [tool.name for tool in offered] == ["gh.find"]
    assert tools.list_offered(member("fixer", tools=["list_members"])) == []


def test_a_tool_that_changed_within_a_session_is_written_out() -> None:
    tools, redactor = TapedTools(None), Redactor()
    first, later = ToolSpec(name="a.x"), ToolSpec(name="a.x", description="new")
    tools.keep_specs("fixer", [first], redactor)
    tools.keep_specs("fixer", [later], redactor)
    named = tools.name_specs("fixer", [later, first], redactor)
    assert named == [later.model_dump(), "a.x"]
    case = CaseRecord(None, agents={"fixer": {"tools": [*tools.specs["fixer"].values()]}})
    assert case.specs("fixer") == [first.model_dump()]


def test_files_are_changed_in_a_replay_and_the_recorded_result_counts() -> None:
    ran: list[str] = []

    async def run(request: ToolRequest) -> ToolAnswer:
        ran.append(request.tool)
        return ToolAnswer(ToolResult(text="now"))

    line = {"status": "ok", "result": "then", "answer": {}}
    names = ["write_file", "read_file", "calc.mul", "agent:rev"]
    recorded = [RecordedTool(1, "fixer", name, {"path": "a"}, line) for name in names]
    tools = TapedTools(CaseRecord(None, tools=recorded), ["calc.mul"])

    async def call(number: int, name: str) -> str:
        request = ToolRequest(member("fixer"), 1, str(number), name, {"path": "a"})
        taped = tools.open(request, None, 1)
        answer = await tools.answer(taped, run, may_call=lambda: False, mend="")
        return answer.result.text

    texts = [asyncio.run(call(number, name)) for number, name in enumerate(names)]
    assert ran == ["write_file", "calc.mul"]
    assert texts == ["then", "then", "now", "then"]  # no call of rev is recorded
