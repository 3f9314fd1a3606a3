"""Real coding agents call arena's tools by MCP, where they are on PATH, against llmock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agent_programs
import llmock_server
import pytest
from program import Program

pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed")
pytestmark = pytest.mark.real_program

PROGRAMS = {"claude_code": "claude", "codex": "codex", "gemini": "gemini", "opencode": "opencode"}
PREFIX = {
    "claude_code": "mcp__arena__",
    "codex": "mcp__arena__",
    "gemini": "mcp_arena_",
    "opencode": "arena_",
}


def adapter_of(kind: str, folder: Path, environ: dict[str, str]) -> dict[str, Any]:
    """The keys of `adapter` of a real program; `environ` gets what it needs."""
    api = llmock_server.fresh()
    if kind == "claude_code":
        environ |= {"ANTHROPIC_BASE_URL": api.base_url("anthropic"), "ANTHROPIC_API_KEY": "k"}
        environ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
        return {"model": "claude-haiku-4-5"}
    if kind == "codex":
        environ["OPENAI_API_KEY"] = "k"
        provider = {"name": "mock", "base_url": api.base_url("openai"), "wire_api": "responses"}
        provider["env_key"] = "OPENAI_API_KEY"
        options = {f"model_providers.mock.{key}": value for key, value in provider.items()}
        options["model_provider"] = "mock"
        words = [f"{key}={json.dumps(value)}" for key, value in options.items()]
        return {"model": "gpt-5", "args": [part for word in words for part in ("-c", word)]}
    if kind == "gemini":
        environ["GEMINI_API_KEY"] = "k"
        environ["GOOGLE_GEMINI_BASE_URL"] = api.base_url("gemini")
        settings = folder / "home/.gemini/settings.json"
        settings.parent.mkdir(parents=True)
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        settings.write_text(json.dumps(auth), encoding="utf-8")
        return {"model": "gemini-2.5-flash"}
    provider_options = {"baseURL": api.base_url("openai"), "apiKey": "k"}
    models = {"m": {"name": "M"}}
    npm = {"npm": "@ai-sdk/openai-compatible", "options": provider_options, "models": models}
    config = folder / "opencode-config.json"
    config.write_text(json.dumps({"provider": {"mock": npm}}), encoding="utf-8")
    environ |= {"OPENCODE_CONFIG": str(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return {"model": "mock/m"}


@pytest.fixture(params=sorted(PROGRAMS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def served(kind: str, folder: Path, **profile: Any) -> Program:
    """A team of the program and a scripted member."""
    environ = agent_programs.real(PROGRAMS[kind], folder / "home")
    own: dict[str, str] = {}
    keys = adapter_of(kind, folder, own)
    env = dict.fromkeys(own, "inherit")
    program = Program(folder, env={**environ, **own}, real=True)
    program.agent("coder", adapter={"type": kind, **keys, "env": env}, **profile)
    program.agent("tester", "I test.")
    return program.team()


def call_tool(api: Any, name: str, arguments: dict[str, Any]) -> None:
    """Make the model call a tool once, when it is next offered any."""
    from llmock.scenarios import Match, Reply, ToolCall

    calls = (ToolCall(name, arguments),)
    api.add(Reply(None, calls, times=1, match=Match(tools=True)))


def acted(program: Program) -> list[dict[str, Any]]:
    types = ("tool_requested", "tool_finished", "agent_ended")
    return [record for record in program.records() if record["type"] in types]


def test_its_model_calls_the_tools_of_arena(kind: str, tmp_path: Path) -> None:
    program = served(kind, tmp_path, tools=["list_members"])
    api = llmock_server.fresh()
    call_tool(api, f"{PREFIX[kind]}list_members", {})
    api.reply("two members", times=None)
    done = program.run("send", "-s", "s", "@coder who is here?")
    assert done.code == 0, done.stdout + done.stderr
    requested, finished, ended = acted(program)
    assert (requested["tool"], requested["reply"]) == ("list_members", 1)
    assert (finished["status"], finished["call"]) == ("ok", "1")
    assert "tester" in finished["result"]
    assert ended["mode"] == "goal"
    assert "tester" in json.dumps(api.last_request.body)
    assert program.records()[-1]["type"] == "chain_finished"


def test_what_it_hands_in_is_its_reply(kind: str, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
    program = served(kind, tmp_path, output={"name": "report", "schema": schema})
    api = llmock_server.fresh()
    call_tool(api, f"{PREFIX[kind]}complete_task", {"report": {"lines": 7}})
    api.reply("I am done.", times=None)
    done = program.run("send", "-s", "s", "@coder count the lines")
    assert done.code == 0, done.stdout + done.stderr
    ended = acted(program)[-1]
    assert (ended["type"], ended["mode"], ended["output"]) == ("agent_ended", "goal", {"lines": 7})
    (reply,) = [r for r in program.records() if r["type"] == "reply_finished"]
    assert json.loads(reply["message"]["content"]) == {"lines": 7}
