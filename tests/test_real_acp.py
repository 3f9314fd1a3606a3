"""Real agents of the Agent Client Protocol, where they are on PATH, against llmock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import agent_programs
import llmock_server
import pytest
from adapter_setups import PATIENCE_S, Heard, a_setup, an_input, cancelled, until
from product import (
    AcpAdapter,
    AcpSettings,
    AgentError,
    AgentInput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentSession,
    Permission,
    PermissionRequest,
)
from product import context_render as render

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

pytest.importorskip("acp", reason="the SDK of the Agent Client Protocol is not installed")
pytestmark = pytest.mark.real_program

T = TypeVar("T")
SECRET = "what-only-the-file-says"
PROGRAMS = {
    "claude": "claude-agent-acp",
    "codex": "codex-acp",
    "gemini": "gemini",
    "opencode": "opencode",
}


class Real(NamedTuple):
    """A real agent and the server that its model is asked of."""

    preset: str
    folder: Path
    api: LLMock
    environ: dict[str, str]

    def adapter(self, **keys: Any) -> AcpAdapter:
        given = {"PATH", "HOME", "USERPROFILE", "SYSTEMROOT", "COMSPEC", "PATHEXT"}
        env = {name: "inherit" for name in self.environ if name not in given}
        if self.preset == "gemini":
            keys["model"] = "gemini-2.5-flash"
        settings = AcpSettings.model_validate(
            {"type": "acp", "preset": self.preset, "cwd": "work", "env": env, **keys}
        )
        setup = a_setup(self.folder, settings, environ=self.environ, render=render.render)
        return AcpAdapter(setup)


def real(preset: str, folder: Path) -> Real:
    home = folder / "home"
    environ = agent_programs.real(PROGRAMS[preset], home)
    api = llmock_server.fresh()
    work = folder / "work"
    work.mkdir()
    (work / "notes.txt").write_text(SECRET, encoding="utf-8")
    if preset == "claude":
        environ["ANTHROPIC_BASE_URL"] = api.base_url("anthropic")
        environ |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "claude-haiku-4-5"}
        environ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    elif preset == "codex":
        environ |= {"MOCK_KEY": "k", "NO_BROWSER": "1"}
        _file(
            home / ".codex/config.toml",
            f'model_provider = "mock"\nmodel = "gpt-5.5"\n[analytics]\nenabled = false\n'
            f'[model_providers.mock]\nname = "mock"\nbase_url = "{api.base_url("openai")}"\n'
            'wire_api = "responses"\n'
            'env_key = "MOCK_KEY"\n'
            "request_max_retries = 0\n"
            "stream_max_retries = 0\n",
        )
        _file(
            home / ".codex/skills/mine/SKILL.md",
            f"---\nname: mine\ndescription: d\n---\n{SECRET}\n",
        )
    elif preset == "gemini":
        environ |= {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": api.base_url("gemini")}
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        _file(home / ".gemini/settings.json", json.dumps(auth))
    else:
        environ["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
        options = {"baseURL": api.base_url("openai"), "apiKey": "k"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": options,
            "models": {"gpt-4o": {"name": "m"}},
        }
        config = {"model": "mock/gpt-4o", "small_model": "mock/gpt-4o", "autoupdate": False}
        _file(
            home / ".config/opencode/opencode.json",
            json.dumps({**config, "provider": {"mock": provider}}),
        )
    return Real(preset, folder, api, environ)


def _file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(params=sorted(PROGRAMS))
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Real:
    return real(request.param, tmp_path)


@pytest.fixture
def claude(tmp_path: Path) -> Real:
    return real("claude", tmp_path)


def using(adapter: AcpAdapter, use: Callable[[AcpAdapter], Awaitable[T]]) -> T:
    """Use an adapter, stop it, and see that nothing of it is left."""

    async def run() -> T:
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                return await use(adapter)
        finally:
            await adapter.stop()

    started = agent_programs.Started()
    try:
        return asyncio.run(run())
    finally:
        assert started.pids() == []


def failure(adapter: AcpAdapter, heard: Heard | None = None) -> AgentError:
    with pytest.raises(AgentError) as caught:
        using(adapter, lambda one: one.invoke(an_input(), heard or Heard()))
    return caught.value


def later(session_id: str) -> AgentInput:
    first = an_input().messages[0]
    new = first.model_copy(update={"id": "m5", "content": "and now?"})
    session = AgentSession(id=session_id, upto_seq=2)
    return an_input(messages=[first, new], trigger=["m5"], own_session=session)


def asked(agent: Real) -> str:
    """All that the model was sent."""
    return "\n".join(json.dumps(one.body, ensure_ascii=False) for one in agent.api.requests)


def test_it_answers_and_goes_on_in_its_session(agent: Real) -> None:
    agent.api.reply("Alright then.", times=None)
    heard = Heard()

    async def calls(adapter: AcpAdapter) -> list[Any]:
        first = await adapter.invoke(an_input(), heard)
        return [first, await adapter.invoke(later(str(heard.session_id)), Heard())]

    for got in using(agent.adapter(), calls):
        assert got.content == "Alright then."
        assert got.usage is not None
        assert got.usage.input_tokens > 0
    assert heard.text.endswith("Alright then.")
    assert "generating" in [one.status for one in heard.statuses]
    assert "What the others said since" in asked(agent)
    again = Heard()
    got = using(agent.adapter(), lambda one: one.invoke(later(str(heard.session_id)), again))
    assert got.content == "Alright then."
    # Gemini can load a session only in another minute than the one in which it was begun.
    if agent.preset != "gemini":
        assert again.session_id == heard.session_id
        assert "lost_session" not in again.notes


def test_a_session_that_is_gone_begins_anew(agent: Real) -> None:
    agent.api.reply("Alright then.", times=None)
    heard = Heard()
    gone = later("11111111-2222-4333-8444-555555555555")
    got = using(agent.adapter(), lambda one: one.invoke(gone, heard))
    assert got.content == "Alright then."
    assert heard.session_id
    assert heard.session_id != "11111111-2222-4333-8444-555555555555"
    assert "你好" in asked(agent)


def test_nothing_that_is_said_is_a_command_or_a_path(agent: Real) -> None:
    agent.api.reply("Alright then.", times=None)
    text = f"/compact\n@notes.txt @{agent.folder}/work/notes.txt $mine\n/status"
    got = using(agent.adapter(), lambda one: one.invoke(an_input(text), Heard()))
    assert got.content == "Alright then."
    assert "> /compact" in asked(agent)
    assert SECRET not in asked(agent)


def test_a_call_that_is_cut_off_leaves_nothing(agent: Real) -> None:
    agent.api.reply(" ".join(["word"] * 50), times=None)
    agent.api.stall(after_chunks=20, seconds=600, times=None)
    heard = Heard()

    async def cut_off(adapter: AcpAdapter) -> None:
        call = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until(lambda: "word" in heard.text)
        await cancelled(call)
        assert started.pids() == []

    started = agent_programs.Started()
    using(agent.adapter(), cut_off)


@pytest.mark.parametrize("preset", ["claude", "codex", "gemini"])
def test_a_wrong_key_is_refused(tmp_path: Path, preset: str) -> None:
    agent = real(preset, tmp_path)
    agent.api.fail(401, times=None)
    error = failure(agent.adapter())
    assert type(error) is AgentRefused
    assert "log" in error.mend


@pytest.mark.parametrize("preset", ["claude", "codex"])
def test_too_many_requests_are_told(tmp_path: Path, preset: str) -> None:
    agent = real(preset, tmp_path)
    agent.api.fail(429, times=None)
    error = failure(agent.adapter())
    assert type(error) is AgentOverloaded


def test_a_cut_answer_is_no_answer(claude: Real) -> None:
    from llmock.scenarios import Reply

    claude.api.add(Reply("half of", finish_reason="length", times=None))
    heard = Heard()
    error = failure(claude.adapter(), heard)
    assert type(error) is AgentProtocolError
    assert "half of" in heard.text


_WRITES = {
    "claude": ("Write", "file_path"),
    "gemini": ("write_file", "file_path"),
    "opencode": ("write", "filePath"),
}


@pytest.mark.parametrize("permissions", ["deny", "read", "allow"])
@pytest.mark.parametrize("preset", sorted(_WRITES))
def test_files_are_changed_only_where_all_is_allowed(
    tmp_path: Path, preset: str, permissions: str
) -> None:
    from llmock.scenarios import Match, Reply, ToolCall

    agent = real(preset, tmp_path)
    tool, key = _WRITES[preset]
    path = tmp_path / "work" / "new.txt"
    call = ToolCall(tool, {key: str(path), "content": "written"})
    agent.api.add(Reply(tool_calls=(call,), match=Match(tools=True)))
    agent.api.reply("Alright then.", times=None)
    heard = Heard()
    adapter = agent.adapter(permissions=permissions)
    if preset == "opencode" and permissions != "allow":  # it ends its turn where it is refused
        error = failure(adapter, heard)
        assert "permission was denied" in error.what
    else:
        got = using(adapter, lambda one: one.invoke(an_input(), heard))
        assert got.content == "Alright then."
    assert path.exists() == (permissions == "allow")
    assert bool(heard.refused) == (permissions != "allow")
    assert all("new.txt" in str(action) for action in heard.refused)
    used = [one.detail for one in heard.statuses if one.status == "calling_tool"]
    assert any("new.txt" in detail for detail in used)


_RUNS = {
    "claude": ("Bash", "command", {"description": "d"}),
    "codex": ("exec_command", "cmd", {"sandbox_permissions": "require_escalated"}),
    "gemini": ("run_shell_command", "command", {"description": "d"}),
    "opencode": ("bash", "command", {"description": "d"}),
}


def _runs(agent: Real, command: str) -> Heard:
    """What is heard of a reply in which the model runs a command, where `touch made` is allowed."""
    from llmock.scenarios import Match, Reply, ToolCall

    def decide(request: PermissionRequest) -> Permission:
        return Permission("allowed" if request.detail == "touch made" else "denied")

    tool, key, more = _RUNS[agent.preset]
    agent.api.reset().tool_mode("off")
    call = ToolCall(tool, {key: command, **more})
    agent.api.add(Reply("I try.", (call,), match=Match(tools=True)))
    agent.api.reply("Alright then.", times=None)
    heard = Heard(decide)
    output = using(agent.adapter(permissions="ask"), lambda one: one.invoke(an_input(), heard))
    assert output.content in ("Alright then.", "I try.")
    return heard


def test_a_command_is_run_only_where_it_is_permitted(agent: Real) -> None:
    allowed = _runs(agent, "touch made")
    denied = _runs(agent, "touch made; touch other")
    details = [[request.detail for request in heard.requests] for heard in (allowed, denied)]
    assert details == [["touch made"], ["touch made; touch other"]]
    for request in (*allowed.requests, *denied.requests):
        assert request.action == "execute_command"
        assert request.arguments == {"command": request.detail}
    made = sorted(path.name for path in (agent.folder / "work").iterdir())
    assert made == ["made", "notes.txt"]
    assert not allowed.refused
    assert [action.by for action in denied.refused] == ["approvals"]


@pytest.mark.parametrize(
    ("preset", "key"), [("codex", "workdir"), ("gemini", "dir_path"), ("opencode", "workdir")]
)
def test_a_command_in_another_folder_is_another_command(
    tmp_path: Path, preset: str, key: str
) -> None:
    from llmock.scenarios import Match, Reply, ToolCall

    agent = real(preset, tmp_path)
    sub = tmp_path / "work" / "sub"
    sub.mkdir()
    tool, command, more = _RUNS[preset]
    where = "sub" if preset == "gemini" else str(sub)
    call = ToolCall(tool, {command: "touch made", key: where, **more})
    agent.api.add(Reply("I try.", (call,), match=Match(tools=True)))
    agent.api.reply("Alright then.", times=None)
    heard = Heard(lambda _: Permission("allowed"))
    using(agent.adapter(permissions="ask"), lambda one: one.invoke(an_input(), heard))
    assert [request.detail for request in heard.requests] == ["cd sub && touch made"]
    assert (sub / "made").exists()


@pytest.mark.parametrize("preset", sorted(_WRITES))
@pytest.mark.parametrize("verdict", ["allowed", "asked"])
def test_a_change_of_a_file_is_shown_and_made_with_permission(
    tmp_path: Path, preset: str, verdict: str
) -> None:
    from llmock.scenarios import Match, Reply, ToolCall

    agent = real(preset, tmp_path)
    tool, key = _WRITES[preset]
    path = tmp_path / "work" / "new.txt"
    call = ToolCall(tool, {key: str(path), "content": "written\n"})
    agent.api.add(Reply("", (call,), match=Match(tools=True)))
    agent.api.reply("Alright then.", times=None)
    heard = Heard(lambda _: Permission(verdict))
    output = using(agent.adapter(permissions="ask"), lambda one: one.invoke(an_input(), heard))
    assert output.content
    [request] = heard.requests
    assert (request.action, request.detail) == ("modify_file", "new.txt")
    assert request.diff == "--- new.txt\n+++ new.txt\n@@ -0,0 +1 @@\n+written\n"
    assert path.exists() == (verdict == "allowed")
    assert not heard.refused
