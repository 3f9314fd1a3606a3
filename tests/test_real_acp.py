"""Real agents of the Agent Client Protocol, where they are on PATH, against llmock.

From the command line, where they ask before they act, Claude Code takes part as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import agent_programs
import llmock_server
import psutil
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
    claude_code,
)
from product import context_render as render
from program import Program, gone
from program import until as until_now
from test_approvals import on_posix, read_until, terminal

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


IN_EVERY_RUN = "test_what_is_approved_is_done_once_by_another_process"


class Real(NamedTuple):
    """A real agent and the server that its model is asked of."""

    preset: str
    folder: Path
    api: LLMock
    environ: dict[str, str]

    def adapter(self, **keys: Any) -> AcpAdapter:
        settings = AcpSettings.model_validate({**self.keys(), **keys})
        setup = a_setup(self.folder, settings, environ=self.environ, render=render.render)
        return AcpAdapter(setup)

    def keys(self) -> dict[str, Any]:
        """Return the keys of `adapter` in a profile."""
        given = {"PATH", "HOME", "USERPROFILE", "SYSTEMROOT", "COMSPEC", "PATHEXT"}
        env = {name: "inherit" for name in self.environ if name not in given}
        keys = {"type": "acp", "preset": self.preset, "cwd": "work", "env": env}
        return keys | ({"model": "gemini-2.5-flash"} if self.preset == "gemini" else {})

    def asking(self) -> dict[str, Any]:
        """Return the keys with which it asks before it acts."""
        if self.preset != "claude_code":
            return {**self.keys(), "permissions": "ask"}
        tools = {"tools": ["Write", "Bash"], "permission_mode": "ask"}
        keys = {name: key for name, key in self.keys().items() if name != "preset"}
        return {**keys, **tools, "type": "claude_code", "model": "claude-haiku-4-5"}


def real(preset: str, folder: Path) -> Real:
    home = folder / "home"
    is_bundled = preset == "claude_code" and not shutil.which("claude") and claude_code._bundled()
    name = "sh" if is_bundled else PROGRAMS.get(preset, "claude")
    environ = agent_programs.real(name, home)
    api = llmock_server.fresh()
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "notes.txt").write_text(SECRET, encoding="utf-8")
    if preset in ("claude", "claude_code"):
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


def test_it_answers_where_its_session_is_gone_and_goes_on_in_its_own(agent: Real) -> None:
    """A second process goes on, answers what looks like commands and paths, and is cut off."""
    agent.api.reply("Alright then.", times=None)
    gone = later("11111111-2222-4333-8444-555555555555")
    heard = Heard()

    async def calls(adapter: AcpAdapter) -> list[Any]:
        first = await adapter.invoke(gone, heard)
        assert "你好" in asked(agent)
        agent.api.reset().tool_mode("off").reply("Alright then.", times=None)
        return [first, await adapter.invoke(later(str(heard.session_id)), Heard())]

    for got in using(agent.adapter(), calls):
        assert got.content == "Alright then."
        assert got.usage is not None
        assert got.usage.input_tokens > 0
    assert heard.text.endswith("Alright then.")
    assert "generating" in [one.status for one in heard.statuses]
    assert heard.session_id
    assert heard.session_id != "11111111-2222-4333-8444-555555555555"
    assert "What the others said since" in asked(agent)

    again, cut = Heard(), Heard()
    started = agent_programs.Started()

    async def later_calls(adapter: AcpAdapter) -> None:
        got = await adapter.invoke(later(str(heard.session_id)), again)
        assert got.content == "Alright then."
        text = f"/compact\n@notes.txt @{agent.folder}/work/notes.txt $mine\n/status"
        got = await adapter.invoke(an_input(text), Heard())
        assert got.content == "Alright then."
        assert "> /compact" in asked(agent)
        assert SECRET not in asked(agent)
        agent.api.reset().tool_mode("off").reply(" ".join(["word"] * 50), times=None)
        agent.api.stall(after_chunks=20, seconds=600, times=None)
        call = asyncio.create_task(adapter.invoke(an_input(), cut))
        await until(lambda: "word" in cut.text)
        await cancelled(call)
        assert started.pids() == []

    using(agent.adapter(), later_calls)
    # Gemini can load a session only in another minute than the one in which it was begun.
    if agent.preset != "gemini":
        assert again.session_id == heard.session_id
        assert "lost_session" not in again.notes


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
    if permissions != "allow":
        agent_programs.skip_if_slow(preset)
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
    agent_programs.skip_if_slow(agent.preset)
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

    agent_programs.skip_if_slow(preset)
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
    agent_programs.skip_if_slow(preset)
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


# From the command line: what an agent asks for, a person decides, and the agent does once.

ASKING = (*sorted(PROGRAMS), "claude_code")
APPEND = "echo done >> log.txt"
_PATHS = {"codex": "*/responses", "gemini": "*gemini*", "opencode": "*/chat/completions"}


class Asking(Program):
    """arena with agents that ask before they act; each is a real program, called as its preset.

    `log` is the file that `APPEND` writes a line to.
    """

    def __init__(self, folder: Path, *presets: str, **profile: Any) -> None:
        super().__init__(folder)
        for preset in presets:
            agent = real(preset, folder)
            self.api = agent.api
            self.env |= agent.environ
            self.agent(preset, adapter=agent.asking(), **profile)
        self.team(humans=["maya"])
        self.preset = presets[0]
        self.log = folder / "work" / "log.txt"

    def play(self, *commands: str, file: str = "") -> None:
        """Let the model run these commands, write a new file of that text, and end its reply."""
        self.api.reset().tool_mode("off")
        for command in commands:
            self.call(self.preset, command)
        if file:
            self.write(file)
        self.end()

    def call(self, preset: str, command: str) -> None:
        """Let the model of an agent run a command when it is next called."""
        tool, key, more = _RUNS[preset.removesuffix("_code")]
        self._call(preset, tool, {key: command, **more})

    def write(self, text: str) -> None:
        """Let the model write the file `new.txt`, with one line of text."""
        if self.preset == "codex":
            patch = f"*** Begin Patch\n*** Add File: new.txt\n+{text}\n*** End Patch\n"
            self._call("codex", "exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF\n"})
        else:
            tool, key = _WRITES[self.preset.removesuffix("_code")]
            path = self.folder / "work" / "new.txt"
            self._call(self.preset, tool, {key: f"{path}", "content": f"{text}\n"})

    def end(self) -> None:
        """Let the model end its reply when it is called again."""
        self.api.reply("Alright then.", times=None)

    def _call(self, preset: str, tool: str, arguments: dict[str, Any]) -> None:
        from llmock.scenarios import Match, Reply, ToolCall

        match = Match(tools=True, path=_PATHS.get(preset, "*/messages"))
        self.api.add(Reply(None, (ToolCall(tool, arguments),), match=match))

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of these types."""
        return [record for record in self.records() if record["type"] in kinds]

    def acts(self) -> list[Any]:
        """Return what was asked, decided and used, in order."""
        keys = {
            "approval_requested": "detail",
            "approval_decided": "decision",
            "approval_used": "reply",
        }
        return [(one["request"], one[keys[one["type"]]]) for one in self.of(*keys)]

    def kill_at(self, event: str, file: Path | None = None) -> list[int]:
        """Resume the session, kill arena at its next event of a type, and when there is `file`.

        Return the processes that arena had started.
        """
        count = self.raw().count(b'"%s"' % event.encode())
        running = self.start("resume", "s")
        until_now(lambda: self.raw().count(b'"%s"' % event.encode()) > count)
        until_now(lambda: file is None or file.exists())
        below = [child.pid for child in psutil.Process(running.pid).children(recursive=True)]
        running.kill()
        self.finish(running)
        return below

    def answer_late(self, seconds: float) -> None:
        """Send a message at a terminal, and say yes so long after the question."""
        with terminal(self, "send", "-s", "s", "do it") as (_, user):
            until_now(lambda: re.search(rb'"(approval_requested|chain_finished)"', self.raw()))
            if b'"approval_requested"' in self.raw():
                time.sleep(seconds)
                with contextlib.suppress(OSError):  # it has ended
                    os.write(user, b"y\n")

    def sent(self) -> str:
        """Return all that the model was sent since the last `play`."""
        bodies = [request.body for request in self.api.requests]
        return "\n".join(json.dumps(body, ensure_ascii=False) for body in bodies)


@pytest.fixture(params=ASKING)
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Asking:
    if request.node.originalname != IN_EVERY_RUN:
        agent_programs.skip_if_slow(request.param)
    return Asking(tmp_path, request.param)


def test_what_is_approved_is_done_once_by_another_process(asking: Asking) -> None:
    asking.play(APPEND)
    asked = asking.run("send", "-s", "s", "do it")
    assert asked.code == 4, asked.stdout + asked.stderr
    listed = asking.run("approvals").check().stdout
    request = f"s · request 1: {asking.preset} asks for execute_command\n  | {APPEND}\n"
    assert listed.startswith(request)
    assert not asking.log.exists()
    assert "called again with the decision" in asking.sent()
    asking.run("approve", "s", "1", "--by", "maya").check(stdout=None)

    asking.play(APPEND, file="written")
    assert asking.run("resume", "s").code == 4
    assert "was approved by maya" in asking.sent()
    assert asking.log.read_text() == "done\n"
    listed = asking.run("approvals").check().stdout
    assert "  | --- new.txt\n  | +++ new.txt\n  | @@ -0,0 +1 @@\n  | +written\n" in listed
    assert not (asking.log.parent / "new.txt").exists()
    asking.run("approve", "s", "2").check(stdout=None)

    asking.play(file="written")
    asking.run("resume", "s").check()
    assert (asking.log.parent / "new.txt").read_text() == "written\n"
    assert asking.log.read_text() == "done\n"
    first = [(1, APPEND), (1, "approved"), (1, 2)]
    assert asking.acts() == [*first, (2, "new.txt"), (2, "approved"), (2, 3)]
    assert asking.finished() == [(asking.preset, "success")] * 3
    if asking.preset != "gemini":  # it cannot load a session in the minute in which it began
        own = [reply["agent_session"]["id"] for reply in asking.of("reply_finished")]
        assert len({session.partition("?")[0] for session in own}) == 1
    raw = asking.raw()
    assert asking.run("resume", "s").code == 0
    assert asking.raw() == raw


def test_another_command_is_asked_about_anew_and_a_rejected_one_is_not_run(
    asking: Asking,
) -> None:
    asking.play("touch made")
    assert asking.run("send", "-s", "s", "do it").code == 4
    asking.run("approve", "s", "1").check(stdout=None)
    asking.play("touch made; touch other")
    assert asking.run("resume", "s").code == 4
    asking.run("reject", "s", "2", "--because", "too much").check(stdout=None)
    asking.play("touch made; touch other")
    asking.run("resume", "s").check()
    assert "(too much)" in asking.sent()
    assert [path.name for path in asking.log.parent.iterdir()] == ["notes.txt"]
    first, second = "touch made", "touch made; touch other"
    assert asking.acts() == [(1, first), (1, "approved"), (2, second), (2, "rejected")]
    (refused,) = asking.of("reply_finished")[-1]["refused_actions"]
    assert refused["by"] == "approvals"


@on_posix
def test_killed_before_and_after_it_acts_it_never_acts_twice(asking: Asking) -> None:
    act = f"{APPEND}; sleep 600"
    asking.play(act)
    assert asking.run("send", "-s", "s", "do it").code == 4
    asking.run("approve", "s", "1").check(stdout=None)
    asking.play(act)
    asking.api.delay(600)
    asking.kill_at("reply_started")
    assert not asking.log.exists()
    asking.play(act)
    below = asking.kill_at("approval_used", asking.log)
    asking.play(act)
    assert asking.run("resume", "s").code == 4  # the grant is used up
    until_now(lambda: gone(*below))
    assert asking.log.read_text() == "done\n"
    assert [act for act in asking.acts() if act[1] == "approved"] == [(1, "approved")]


@on_posix
def test_a_person_at_the_terminal_decides_while_the_agent_waits(asking: Asking) -> None:
    asking.play(APPEND, APPEND, APPEND, "touch refused")
    with terminal(asking, "send", "-s", "s", "do it") as (running, user):
        assert f"  | {APPEND}\r\n" in read_until(user, "e(xplain): ")
        os.write(user, b"e\n")
        assert '"command": ' in read_until(user, "e(xplain): ")
        for answer in (b"y\n", b"a\n"):
            os.write(user, answer)
            read_until(user, "e(xplain): ")
        os.write(user, b"n\n")
    assert running.returncode == 0
    assert asking.log.read_text() == "done\n" * 3
    assert not (asking.log.parent / "refused").exists()
    decisions = [one["decision"] for one in asking.of("approval_decided")]
    assert decisions == ["approved", "approved", "rejected"]
    (reply,) = asking.of("reply_finished")
    ends_there = asking.preset in ("codex", "opencode")
    text = "I am not allowed to do that." if ends_there else "Alright then."
    assert reply["message"]["content"] == text
    assert [action["by"] for action in reply["refused_actions"]] == ["approvals"]


@on_posix
@pytest.mark.parametrize("preset", ["codex"])
def test_its_time_stands_still_while_a_person_thinks(tmp_path: Path, preset: str) -> None:
    """It is given more time if this machine is too slow for its work alone."""
    for limit_s in (5.0, 60.0):
        folder = tmp_path / f"within {limit_s}"
        folder.mkdir()
        asking = Asking(folder, preset, timeout_s=limit_s)
        asking.play(APPEND)
        asking.answer_late(limit_s + 1)
        if asking.finished() == [(preset, "success")]:
            break
    assert asking.log.read_text() == "done\n"


@on_posix
def test_a_person_is_asked_about_two_agents_at_once(tmp_path: Path) -> None:
    asking = Asking(tmp_path, "claude_code", "codex")
    for preset in ("claude_code", "codex"):
        asking.call(preset, f"echo {preset} >> log.txt")
    asking.end()
    with terminal(asking, "send", "-s", "s", "@claude_code @codex do it") as (running, user):
        until_now(lambda: asking.raw().count(b'"approval_requested"') == 2)
        for answer in (b"n\n", b"y\n"):
            read_until(user, "e(xplain): ")
            os.write(user, answer)
    assert running.returncode == 0
    rejected, approved = (one["agent"] for one in asking.of("approval_requested"))
    assert rejected != approved
    assert asking.log.read_text() == f"{approved}\n"
    decisions = [(one["agent"], one["decision"]) for one in asking.of("approval_decided")]
    assert decisions == [(rejected, "rejected"), (approved, "approved")]
    assert len(asking.finished()) == 2
