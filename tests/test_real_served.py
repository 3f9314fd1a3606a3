"""Real coding agents, where they are on PATH, call arena's tools by MCP.

Their models are llmock's; that of Codex, whose tools are in namespaces, is a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import agent_programs
import llmock_server
import pytest
from program import Program
from scripted_api import Answer, ScriptedApi, events

pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed")
pytestmark = pytest.mark.real_program

PROGRAMS = {
    "claude_code": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "acp claude": "claude-agent-acp",
    "acp codex": "codex-acp",
    "acp gemini": "gemini",
    "acp opencode": "opencode",
}
PREFIX = {"claude": "mcp__arena__", "gemini": "mcp_arena_", "opencode": "arena_"}
SCHEMA = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}


class Call(NamedTuple):
    """A call that the model makes."""

    tool: str
    arguments: dict[str, Any]


LIST = Call("list_members", {})


class Model(NamedTuple):
    """The model behind a program: where it is, and what it was shown."""

    url: str
    bodies: Any

    def was_shown_a_member(self) -> bool:
        """Whether the list of members came, which programs write as JSON or as text in JSON."""
        shown = json.dumps(self.bodies()).replace("\\", "").replace(" ", "")
        return '"id":"tester"' in shown


def program_of(kind: str) -> str:
    """Whose program it is: claude, codex, gemini or opencode."""
    return kind.removeprefix("acp ").partition("_")[0]


@contextmanager
def model(kind: str, calls: Sequence[Call], text: str) -> Iterator[Model]:
    """A model that makes these calls, one in each answer, and says the text then."""
    program = program_of(kind)
    if program == "codex":
        api = ScriptedApi(*responses(calls, text))
        with api.running():
            yield Model(f"{api.url}/v1", lambda: [sent.body for sent in api.sent])
        return
    from llmock.scenarios import Match, Reply, ToolCall

    mock = llmock_server.fresh()
    for call in calls:
        made = ToolCall(f"{PREFIX[program]}{call.tool}", call.arguments)
        mock.add(Reply(None, (made,), times=1, match=Match(tools=True)))
    mock.reply(text, times=None)
    provider = {"claude": "anthropic", "gemini": "gemini"}.get(program, "openai")
    yield Model(mock.base_url(provider), lambda: [request.body for request in mock.requests])


def responses(calls: Sequence[Call], text: str) -> list[Answer]:
    """The answers of OpenAI's Responses API: the calls, and the text."""
    asked = [
        {
            "type": "function_call",
            "namespace": "mcp__arena",
            "name": call.tool,
            "arguments": json.dumps(call.arguments),
            "call_id": f"c{number}",
        }
        for number, call in enumerate(calls, 1)
    ]
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    return [
        events(
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r", "usage": usage}},
        )
        for item in (*asked, said)
    ]


def adapter_of(kind: str, url: str, folder: Path, environ: dict[str, str]) -> dict[str, Any]:
    """The keys of `adapter` of a real program; `environ` gets what it needs."""
    program = program_of(kind)
    if program == "claude":
        environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        environ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
        if kind == "claude_code":
            return {"model": "claude-haiku-4-5"}
        environ["ANTHROPIC_MODEL"] = "claude-haiku-4-5"
        return {}
    if program == "codex":
        environ |= {"MOCK_KEY": "k", "NO_BROWSER": "1"}
        config = folder / "home/.codex/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(
            'model_provider = "mock"\nmodel = "gpt-5"\n[analytics]\nenabled = false\n'
            f'[model_providers.mock]\nname = "mock"\nbase_url = "{url}"\n'
            'wire_api = "responses"\nenv_key = "MOCK_KEY"\n'
            "request_max_retries = 0\nstream_max_retries = 0\n",
            encoding="utf-8",
        )
        return {}
    if program == "gemini":
        environ |= {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": url}
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        write(folder / "home/.gemini/settings.json", auth)
        return {"model": "gemini-2.5-flash"}
    models = {"m": {"name": "M"}}
    options = {"baseURL": url, "apiKey": "k"}
    npm = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    write(folder / "config.json", {"provider": {"mock": npm}, "model": "mock/m"})
    environ |= {"OPENCODE_CONFIG": str(folder / "config.json")}
    environ["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
    return {"model": "mock/m"} if kind == "opencode" else {}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


@contextmanager
def served(
    kind: str, folder: Path, calls: Sequence[Call], text: str, **profile: Any
) -> Iterator[tuple[Program, Model]]:
    """A team of the program and a scripted member, and the model that makes these calls."""
    environ = agent_programs.real(PROGRAMS[kind], folder / "home")
    with model(kind, calls, text) as behind:
        own: dict[str, str] = {}
        keys = adapter_of(kind, behind.url, folder, own)
        env = dict.fromkeys(own, "inherit")
        program = Program(folder, env={**environ, **own})
        kind, _, preset = kind.partition(" ")
        keys |= {"type": kind, "env": env} | ({"preset": preset} if preset else {})
        program.agent("coder", adapter=keys, **profile)
        program.agent("tester", "I test.")
        yield program.team(), behind


def skip_without_acp(kind: str) -> None:
    if kind.startswith("acp"):
        pytest.importorskip("acp", reason="the SDK of the Agent Client Protocol is not installed")


def acted(program: Program) -> list[dict[str, Any]]:
    types = ("tool_requested", "tool_finished", "agent_ended")
    return [record for record in program.records() if record["type"] in types]


def reply(program: Program) -> str:
    (done,) = [record for record in program.records() if record["type"] == "reply_finished"]
    text: str = done["message"]["content"]
    return text


def check_list(program: Program, behind: Model) -> None:
    """The first tool that was called is the list of members, which the model was shown."""
    requested, finished = acted(program)[:2]
    assert (requested["tool"], requested["reply"]) == ("list_members", 1)
    assert (finished["status"], finished["call"]) == ("ok", "1")
    assert '"id": "tester"' in finished["result"]
    assert behind.was_shown_a_member()
    left = [path.name for path in (program.folder / "sessions/s").iterdir()]
    assert not [name for name in left if name.startswith("calls-")]


@pytest.mark.parametrize("kind", sorted(PROGRAMS))
def test_its_model_calls_the_tools_of_arena(kind: str, tmp_path: Path) -> None:
    skip_without_acp(kind)
    agent_programs.skip_if_slow(PROGRAMS[kind])
    text = "There are two."
    with served(kind, tmp_path, [LIST], text, tools=["list_members"]) as (program, behind):
        done = program.run("send", "-s", "s", "@coder who is here?")
        assert done.code == 0, done.stdout + done.stderr
        check_list(program, behind)
        _, _, ended = acted(program)
        assert ended["mode"] == "goal"
        assert reply(program) == text


@pytest.mark.parametrize("kind", sorted(PROGRAMS))
def test_it_calls_a_tool_and_what_it_hands_in_then_is_its_reply(kind: str, tmp_path: Path) -> None:
    skip_without_acp(kind)
    calls = [LIST, Call("complete_task", {"report": {"lines": 7}})]
    keys = {"tools": ["list_members"], "output": {"name": "report", "schema": SCHEMA}}
    with served(kind, tmp_path, calls, "I am done.", **keys) as (program, behind):
        done = program.run("send", "-s", "s", "@coder count the lines")
        assert done.code == 0, done.stdout + done.stderr
        check_list(program, behind)
        ended = acted(program)[-1]
        assert (ended["type"], ended["mode"]) == ("agent_ended", "goal")
        assert ended["output"] == {"lines": 7}
        assert json.loads(reply(program)) == {"lines": 7}
