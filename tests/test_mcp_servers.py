"""How MCP servers are handed to programs, and which kinds of agents take tools at all."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import Heard, a_setup, an_input
from agent_programs import Played, sample
from product import (
    AgentProfile,
    AgentUnavailable,
    ClaudeCodeAdapter,
    ClaudeCodeSettings,
    CodexAdapter,
    FileFaults,
    HandedServer,
    base,
    mcp_servers,
    permission_options,
    workspace,
)
from stage import Stage
from test_claude_code import Fake, invoked

SECRET = "token-that-nobody-may-see"
PROFILE: dict[str, Any] = {
    "agent_id": "bot",
    "adapter": {"type": "codex"},
    "tools": ["hub.read_issue", "hub.list_issues", "list_members"],
    "mcp": {
        "hub": {"command": ["hub", "--stdio"], "env": {"HUB_TOKEN": "${env:TOKEN}"}, "cwd": "sub"},
        "web": {"url": "https://mcp.test/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
    },
}
ENVIRON = {"TOKEN": SECRET}


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def servers_of(folder: Path, **changes: Any) -> list[HandedServer]:
    profile = AgentProfile.model_validate({**PROFILE, **changes})
    return mcp_servers.list_servers(profile, ENVIRON, folder)


def test_servers_of_a_profile_are_filled_and_limited_to_the_tools_that_it_names(
    tmp_path: Path,
) -> None:
    hub, web = servers_of(tmp_path)
    assert (hub.name, hub.command, hub.env) == ("hub", ("hub", "--stdio"), {"HUB_TOKEN": SECRET})
    assert (hub.cwd, hub.tools) == (str(tmp_path / "sub"), ("read_issue", "list_issues"))
    assert (web.url, web.headers) == ("https://mcp.test/mcp", {"Authorization": f"Bearer {SECRET}"})
    assert web.tools == ("*",)
    with pytest.raises(AgentUnavailable, match="TOKEN"):
        mcp_servers.list_servers(AgentProfile.model_validate(PROFILE), {}, tmp_path)


def test_codex_gets_servers_by_options_and_secrets_by_variables(tmp_path: Path) -> None:
    played = Played(tmp_path, "codex")
    played.plan(sample("codex", "json"))
    adapter = played.adapter(CodexAdapter, servers=servers_of(tmp_path))
    asyncio.run(adapter.invoke(an_input(), Heard()))
    (call,) = played.calls()
    assert SECRET not in " ".join(call["args"])
    options = [word for word in call["args"] if word.startswith("mcp_servers.")]
    config = tomllib.loads("\n".join(options))["mcp_servers"]
    assert config["hub"]["enabled_tools"] == ["read_issue", "list_issues"]
    assert (config["hub"]["command"], config["hub"]["args"]) == ("hub", ["--stdio"])
    assert config["hub"]["env_vars"] == ["HUB_TOKEN"]
    variable = config["web"]["env_http_headers"]["Authorization"]
    assert call["env"][variable] == f"Bearer {SECRET}"
    assert call["env"]["HUB_TOKEN"] == SECRET


def test_claude_code_gets_servers_by_a_file_that_is_gone_after_the_start(fake: Fake) -> None:
    answer = {"type": "result", "is_error": False, "result": "done", "uuid": "own"}
    folder = fake.folder
    env = {"FAKE_CLAUDE": str(fake.played(answer)), "FAKE_CLAUDE_LOG": str(fake.log)}
    keys = {"type": "claude_code", "program": str(fake.program), "env": env}
    settings = ClaudeCodeSettings.model_validate(keys)
    adapter = ClaudeCodeAdapter(a_setup(folder, settings, servers=servers_of(folder)))
    assert invoked(adapter).content == "done"
    (args,) = fake.told("args")
    assert SECRET not in " ".join(args)
    path = Path(args[args.index("--mcp-config") + 1])
    assert not path.exists()
    allowed = args[args.index("--allowedTools") + 1]
    assert allowed == "mcp__hub__read_issue,mcp__hub__list_issues,mcp__web"


def test_where_claude_code_asks_only_arenas_own_tools_are_allowed(tmp_path: Path) -> None:
    own = mcp_servers.own_server(tmp_path, "s", "bot", {})
    options = permission_options([], "ask", [], tmp_path, [own, *servers_of(tmp_path)])
    assert options[options.index("--allowedTools") + 1 :] == ["mcp__arena"]
    assert "--permission-prompt-tool" in options


def test_the_file_for_claude_code_starts_a_server_in_its_folder(tmp_path: Path) -> None:
    config = json.loads(mcp_servers.describe_for_claude(servers_of(tmp_path), tmp_path))
    hub = config["mcpServers"]["hub"]
    assert hub["args"][-3:] == [str(tmp_path / "sub"), "hub", "--stdio"]
    inside = json.loads(mcp_servers.describe_for_claude(servers_of(tmp_path), tmp_path / "sub"))
    assert inside["mcpServers"]["hub"]["command"] == "hub"


def test_gemini_has_a_home_of_the_call_with_the_users_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    real = home / ".gemini"
    real.mkdir(parents=True)
    own = {"theme": "x", "mcpServers": {"mine": {"command": "m"}}}
    (real / "settings.json").write_text(json.dumps(own), encoding="utf-8")
    (real / "oauth_creds.json").write_text("{}", encoding="utf-8")
    before = (real / "settings.json").read_bytes()
    servers = mcp_servers.describe_for_gemini(servers_of(tmp_path), "bot")
    scratch = tmp_path / "sessions" / "s" / "scratch"
    with mcp_servers.make_gemini_home(scratch, home, servers) as folder:
        inside = Path(folder) / ".gemini"
        settings = json.loads((inside / "settings.json").read_text(encoding="utf-8"))
        assert settings["theme"] == "x"
        assert [*settings["mcpServers"]] == ["mine", "hub", "web"]
        assert settings["mcpServers"]["hub"]["includeTools"] == ["read_issue", "list_issues"]
        assert (inside / "oauth_creds.json").resolve() == real / "oauth_creds.json"
        assert (inside / "tmp").resolve() == real / "tmp"
        rules = tomllib.loads(Path(settings["policyPaths"][-1]).read_text(encoding="utf-8"))
        assert [rule["mcpName"] for rule in rules["rule"]] == ["hub", "web"]
    assert not Path(folder).exists()
    assert (real / "settings.json").read_bytes() == before
    assert (real / "oauth_creds.json").exists()


@pytest.mark.parametrize(
    "describe", [mcp_servers.list_codex_options, mcp_servers.describe_for_gemini]
)
def test_a_pattern_that_a_program_cannot_take_is_an_error(tmp_path: Path, describe: Any) -> None:
    servers = servers_of(tmp_path, tools=["hub.read_*"])
    with pytest.raises(AgentUnavailable, match=r"no pattern of tools: hub\.read_\*"):
        describe(servers, "bot")
    assert describe(servers_of(tmp_path, tools=["hub.*"]), "bot")


@pytest.mark.parametrize(
    ("title", "is_own"),
    [
        ("mcp__arena__list_members", True),
        ("mcp.arena.list_members", True),
        ("arena_list_members", True),
        ("list_members (arena MCP Server)", True),
        ("mcp__arena__x; rm -rf /", False),
        ("mcp__github__list_members", False),
        ("rm (arena MCP Server) x", False),
    ],
)
def test_only_arenas_own_tools_are_allowed_by_their_title(title: str, is_own: bool) -> None:
    assert mcp_servers.is_own_tool(title) is is_own


@pytest.mark.parametrize(
    ("adapter", "keys", "problem"),
    [
        ({"type": "cursor"}, {"tools": ["list_members"]}, "tools: an agent of the kind cursor"),
        ({"type": "pi"}, {"output": {"name": "x"}}, "output: an agent of the kind pi"),
        (
            {"type": "pi"},
            {"mcp": {"hub": {"command": ["hub"]}}},
            "mcp: an agent of the kind pi cannot be given tools",
        ),
        ({"type": "cli", "command": ["x"]}, {"tools": ["list_members"]}, "of the kind cli"),
        (
            {"type": "codex", "fallback": [{"type": "scripted", "replies": ["x"]}]},
            {"tools": ["list_members"]},
            "adapter.fallback[0].type: takes tools in another way",
        ),
        (
            {"type": "codex"},
            {"mcp": {"arena": {"command": ["hub"]}}},
            "`arena` is the name of arena's own server",
        ),
        (
            {"type": "codex"},
            {"mcp": {"my hub": {"command": ["hub"]}}},
            "`my hub` cannot be the name of a server",
        ),
    ],
)
def test_a_kind_that_takes_no_tools_is_an_error_of_the_file(
    tmp_path: Path, adapter: dict[str, Any], keys: dict[str, Any], problem: str
) -> None:
    Stage(tmp_path).agent("bot", adapter=adapter, **keys)
    with pytest.raises(FileFaults) as caught:
        workspace.load_workspace(tmp_path, kinds=base.KINDS)
    assert problem in str(caught.value)
    assert "agents/bot.yaml:1" in str(caught.value)


@pytest.mark.parametrize(
    "adapter",
    [
        {"type": "cli", "command": ["x"], "prompt": "json", "output": "json"},
        {"type": "opencode", "fallback": [{"type": "codex"}]},
        {"type": "acp", "preset": "claude"},
    ],
)
def test_a_kind_that_takes_tools_is_loaded(tmp_path: Path, adapter: dict[str, Any]) -> None:
    Stage(tmp_path).agent("bot", adapter=adapter, tools=["list_members"])
    loaded = workspace.load_workspace(tmp_path, kinds=base.KINDS)
    assert loaded.profiles["bot"].acts
