"""`adapter.fallback`: the next adapter answers if one is unavailable or overloaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from program import SPEAK, Program
from scripted_api import Answer, ScriptedApi

GONE = {"type": "cli", "command": ["no-such-program-anywhere"]}
KEY = "sk-fallback-0123456789abcdef"


def cli(*words: str) -> dict[str, Any]:
    return {"type": "cli", "command": [*SPEAK, *words]}


def says(text: str) -> dict[str, Any]:
    return {"type": "scripted", "replies": [{"say": text}]}


def fails(how: str) -> dict[str, Any]:
    return {"type": "scripted", "replies": [{"fail": how}]}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def reply(program: Program, session: str = "s") -> dict[str, Any]:
    """Return the last finished reply of the agent `dev`."""
    replies = [one for one in program.records(session) if one["type"] == "reply_finished"]
    return replies[-1]


@pytest.mark.parametrize(
    ("chain", "number", "status"),
    [
        ([GONE, says("two"), says("three")], 1, "success"),
        ([GONE, fails("overloaded"), says("three")], 2, "success"),
        ([fails("overloaded"), cli("say", "two")], 1, "success"),
        ([GONE, fails("refused"), says("three")], 1, "error"),
        ([GONE, GONE], 1, "error"),
        ([fails("refused"), says("two")], None, "error"),
        ([fails("timeout"), says("two")], None, "timeout"),
        ([fails("error"), says("two")], None, "error"),
        ([says("one"), says("two")], None, "success"),
    ],
)
def test_the_next_adapter_answers_only_where_one_cannot_be_reached(
    program: Program, chain: list[dict[str, Any]], number: int | None, status: str
) -> None:
    first, *fallback = chain
    program.agent("dev", adapter={**first, "fallback": fallback})
    program.run("send", "-q", "-s", "s", "go")
    finished = reply(program)
    assert finished["status"] == status
    note = finished["metadata"].get("fallback")
    assert (note and note["number"]) == number
    if note:
        assert note["type"] == chain[note["number"]]["type"]
        assert len(note["because"]) == note["number"]
    if status == "success":
        words = ("one", "two", "three")
        assert finished["message"]["content"].strip() == words[number or 0]
        assert finished["error"] is None
    shown = program.run("show", "s").stdout
    assert (f"fallback {number} was called" in shown) is (number is not None)
    program.run("export", "s", "--audit", "--format", "json").check(stdout=None)


def test_the_timeline_names_it_in_chinese(program: Program) -> None:
    program.agent("dev", adapter={**GONE, "fallback": [says("ok")]})
    program.env["ARENA_LANG"] = "zh"
    assert "调用了第 1 个备用适配器：scripted" in program.run("send", "go").stdout


def test_each_attempt_begins_with_the_first_adapter(program: Program) -> None:
    overloaded = {"type": "scripted", "replies": [{"when": {"call": 1}, "fail": "overloaded"}]}
    overloaded["replies"] += [{"say": "first again"}]
    program.agent(
        "dev", adapter={**overloaded, "fallback": [fails("overloaded")]}, on_failure="retry"
    )
    program.run("send", "-q", "-s", "s", "go").check()
    finished = reply(program)
    assert (finished["attempts"], finished["message"]["content"]) == (2, "first again")
    assert "fallback" not in finished["metadata"]


def test_a_variable_that_is_not_set_is_unavailable_and_a_fallback_needs_only_its_own(
    program: Program,
) -> None:
    api = {"type": "openai", "model": "big", "base_url": "http://127.0.0.1:9/v1"}
    needs = {**api, "api_key": "${env:NO_SUCH_KEY}"}
    program.agent("dev", adapter={**needs, "fallback": [says("offline")]})
    program.run("send", "-q", "-s", "s", "go").check()
    assert "NO_SUCH_KEY is not set" in reply(program)["metadata"]["fallback"]["because"][0]
    program.agent("dev", adapter={**says("own"), "fallback": [needs]})
    program.run("send", "-q", "-s", "t", "go").check()
    assert reply(program, "t")["message"]["content"] == "own"


def test_a_fallback_behind_an_api_is_called_and_its_key_is_redacted(program: Program) -> None:
    event = {"choices": [{"index": 0, "delta": {"content": f"my key is {KEY}"}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in (event, end)) + "data: [DONE]\n\n"
    server = ScriptedApi(Answer(body.encode(), headers={"Content-Type": "text/event-stream"}))
    with server.running() as api:
        fallback = {
            "type": "openai",
            "model": "small",
            "base_url": f"{api.url}/v1",
            "api_key": KEY,
        }
        program.agent("dev", adapter={**GONE, "fallback": [fallback]})
        program.run("send", "-q", "-s", "s", "go").check()
    assert api.sent[0].headers["authorization"] == f"Bearer {KEY}"
    finished = reply(program)
    assert finished["metadata"]["fallback"]["model"] == "small"
    assert "my key is" in finished["message"]["content"]
    assert KEY not in program.written()


def test_a_secret_in_the_environment_of_a_fallback_is_redacted(program: Program) -> None:
    code = "import os; print('key', os.environ['GATE_TOKEN'])"
    second = {"type": "cli", "command": [sys.executable, "-c", code], "env": {"GATE_TOKEN": KEY}}
    program.agent("dev", adapter={**GONE, "fallback": [second]})
    program.run("send", "-q", "-s", "s", "go").check()
    assert reply(program)["message"]["content"].startswith("key ")
    assert KEY not in program.written()


def test_trust_lists_every_fallback_with_only_its_own_variables(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.env["ARENA_TRUST"] = ""
    remote = {"type": "openai", "model": "m", "base_url": "https://two.example/v1"}
    fallback = [{**remote, "api_key": "${env:TWO_KEY}"}, {"type": "cli", "command": ["three"]}]
    program.agent("dev", adapter={"type": "cli", "command": ["one"], "fallback": fallback})
    done = program.run("send", "go")
    assert done.code == 2
    listed = [line.strip() for line in done.stderr.splitlines()]
    assert any(line.startswith("start one · for dev") for line in listed)
    assert any(line.startswith("start three · for dev") for line in listed)
    assert any("two.example" in line and "TWO_KEY" in line for line in listed)
    assert not program.raw()


def test_a_recording_keeps_which_answered_and_replays_it(program: Program) -> None:
    program.agent("dev", adapter={**cli("exit", "3"), "fallback": []})
    program.agent("dev", adapter={**GONE, "fallback": [cli("say", "from the second")]})
    program.team()
    program.scenario(
        "scenario: S\nsteps:\n  - send: go\n    expect: {replies: {dev: [{contains: second}]}}"
    )
    program.run("run", "--record").check(stdout=None, stderr="")
    recording = next((program.folder / "scenarios" / "recordings").glob("*.jsonl")).read_text()
    assert '"fallback":{"number":1' in recording
    done = program.run("run", "--replay", "--keep", "all")
    assert done.code == 0, done.stdout
    (folder,) = (program.folder / "sessions").glob("2*")
    note = reply(program, folder.name)["metadata"]["fallback"]
    assert (note["number"], note["type"]) == (1, "cli")
    # Another fallback is drift, at its place in the profile.
    program.agent("dev", adapter={**GONE, "fallback": [cli("say", "from another")]})
    done = program.run("run", "--replay")
    assert done.code == 1
    assert "adapter.fallback[0].command" in done.stdout


def test_check_reports_a_broken_fallback(program: Program) -> None:
    program.agent("dev", adapter={**cli("say", "x"), "fallback": [cli("say", "y"), GONE]})
    done = program.run("agents", "check")
    assert done.code == 1
    assert "NOT OK dev · adapter.fallback[1]: " in done.stdout
    program.agent("dev", adapter={**cli("say", "x"), "fallback": [cli("say", "y")]})
    assert program.run("agents", "check").code == 0


@pytest.mark.parametrize(
    ("fallback", "place", "problem"),
    [
        ("[{type: ecko}]", "fallback[0].type", "unknown kind of adapter `ecko`"),
        ("[{}]", "fallback[0].type", "is missing"),
        ("[{type: 3}]", "fallback[0].type", "must be a text"),
        ("[{type: scripted, replys: []}]", "fallback[0].replys", "unknown key"),
        ("[{type: cli, command: x}]", "fallback[0].command", "must be a list"),
        (
            "[{type: scripted, replies: [], fallback: []}]",
            "fallback[0].fallback",
            "a fallback has no fallback",
        ),
        ("{type: scripted}", "fallback", "must be a list"),
        ("scripted", "fallback", "must be a list"),
        ("[scripted]", "fallback[0]", "must be a mapping"),
        ("[{type: cli, command: ['$${X}', '${X}']}]", "fallback[0].command[1]", ""),
    ],
)
def test_a_wrong_fallback_is_an_error_with_its_line(
    program: Program, fallback: str, place: str, problem: str
) -> None:
    program.file(
        "agents/dev.yaml",
        f"agent_id: dev\nadapter:\n  type: scripted\n  replies: []\n  fallback: {fallback}\n",
    )
    done = program.run("agents", "check")
    assert done.code == 2
    assert f"agents/dev.yaml:5: adapter.{place}: {problem}" in done.stderr


def test_the_defaults_of_a_kind_apply_to_fallbacks_of_it(program: Program) -> None:
    program.file(
        "arena.yaml",
        json.dumps({"defaults": {"cli": {"env": {"WORD": "given"}, "fallback": [says("x")]}}}),
    )
    code = "import os; print(os.environ['WORD'])"
    printing = {"type": "cli", "command": [sys.executable, "-c", code]}
    program.agent("dev", adapter={**fails("overloaded"), "fallback": [printing]})
    program.run("send", "-q", "-s", "s", "go").check()
    assert reply(program)["message"]["content"] == "given"
    program.agent("dev", adapter=GONE)  # the kind's own fallback
    program.run("send", "-q", "-s", "s", "go").check()
    assert reply(program)["message"]["content"] == "x"


def test_a_live_fallback_is_not_called_in_ci_without_a_recording(program: Program) -> None:
    program.agent("dev", adapter={**fails("overloaded"), "fallback": [cli("say", "live")]}).team()
    program.scenario("scenario: S\nsteps: [{send: go}]")
    program.env["CI"] = "true"
    done = program.run("run")
    assert done.code != 0
    assert "calls `dev` live" in done.stdout + done.stderr
