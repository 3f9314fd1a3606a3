"""One conversation of real agents of many kinds, from the command line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import llmock_server
import pytest
from product import claude_code
from program import Program

KEY = "not-a-real-key-4711"


@pytest.fixture
def mixed(tmp_path: Path) -> Program:
    """A model behind each API, and a script; their servers are one llmock."""
    api = llmock_server.fresh()
    program = Program(
        tmp_path,
        env={
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": api.base_url("anthropic"),
            "PATH": os.environ["PATH"],
        },
    )
    anthropic = {"type": "anthropic", "model": "claude-sonnet-4-5"}
    program.agent("planner", adapter={**anthropic, "base_url": "${env:ANTHROPIC_BASE_URL}"})
    openai = {"type": "openai", "model": "m", "base_url": api.base_url("openai")}
    program.agent("local", name="本地模型", adapter={**openai, "pricing": "free"})
    program.program("script", "say", "exit code 0")
    return program


def claude_agent() -> dict[str, Any]:
    if not shutil.which("claude") and claude_code._bundled() is None:
        pytest.skip("Claude Code is not installed (pip install claude-agent-sdk)")
    env = {"ANTHROPIC_API_KEY": "inherit", "ANTHROPIC_BASE_URL": "inherit"}
    return {"type": "claude_code", "model": "claude-sonnet-4-5", "env": env}


def codex_agent() -> dict[str, Any]:
    if not shutil.which("codex"):
        pytest.skip("codex is not on PATH")
    url = llmock_server.fresh().base_url("openai")
    provider = {
        "model_providers.mock.name": "mock",
        "model_providers.mock.base_url": url,
        "model_providers.mock.wire_api": "responses",
        "model_provider": "mock",
    }
    args = [
        word for key, value in provider.items() for word in ("-c", f"{key}={json.dumps(value)}")
    ]
    return {"type": "codex", "model": "gpt-5", "args": args}


def finished(program: Program, *send: str) -> dict[str, dict[str, Any]]:
    """What came of each agent's reply to a message."""
    done = program.run("send", "-s", "s", "--json", *send)
    assert done.stderr == ""
    assert done.code == 0
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return {event["agent"]: event for event in events if event["type"] == "reply_finished"}


def check(replies: dict[str, dict[str, Any]], *agents: str) -> None:
    assert {agent: one["status"] for agent, one in replies.items()} == dict.fromkeys(
        agents, "success"
    )
    for one in replies.values():
        assert one["message"]["content"].strip()
        assert one["usage"]["input_tokens"] > 0


def test_models_of_two_apis_and_a_script_answer_one_message(mixed: Program) -> None:
    check(finished(mixed, "@all 请各说一句"), "planner", "local", "script")
    assert KEY not in mixed.written()


@pytest.mark.real_program
def test_claude_code_and_codex_join_them_and_go_on(mixed: Program) -> None:
    mixed.agent("reviewer", adapter=claude_agent())
    mixed.agent("coder", adapter=codex_agent())
    everyone = ("planner", "local", "script", "reviewer", "coder")
    first = finished(mixed, "@all 请各说一句")
    check(first, *everyone)
    second = finished(mixed, "@all and once more")
    check(second, *everyone)
    for agent in ("reviewer", "coder"):
        before, after = (one[agent]["agent_session"] for one in (first, second))
        assert before["id"] == after["id"]
        assert before["upto_seq"] < after["upto_seq"]


def test_one_that_fails_leaves_the_others_as_they_are(mixed: Program) -> None:
    mixed.agent(
        "nobody", adapter={"type": "openai", "model": "m", "base_url": "http://127.0.0.1:9"}
    )
    mixed.agent("missing", adapter={"type": "gemini", "program": "no-such-program"})
    done = mixed.run("send", "-s", "s", "@all go")
    assert done.code == 0
    replies = dict(mixed.finished())
    assert replies == {
        **dict.fromkeys(("planner", "local", "script"), "success"),
        **dict.fromkeys(("nobody", "missing"), "error"),
    }
    assert "nobody: nothing answers at 127.0.0.1:9" in done.stdout
    assert "npm install -g @google/gemini-cli" in done.stdout
