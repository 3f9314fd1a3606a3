"""Hand MCP servers to the program of an agent, in the way in which each program takes them.

They are those of the agent's profile, and arena's own (`arena mcp --session S --agent A`). All of
it is for one call; nothing of the user's own configuration is changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import HandedServer
from arena_cli.errors import AgentUnavailable
from arena_cli.workspace import agents
from arena_cli.workspace.models import AgentProfile

OWN = "arena"
"""The name of arena's own server."""

LONGEST_CALL_S = 3600
"""The limit for a call of arena's own tools: the reply's ends earlier, and people may be asked."""

START_LIMIT_S = 30
"""The limit for the start of a server."""

WAIT_FOR_SERVERS = {
    "MCP_CONNECTION_NONBLOCKING": "0",
    "MCP_CONNECT_TIMEOUT_MS": str(START_LIMIT_S * 1000),
    "MCP_TIMEOUT": str(START_LIMIT_S * 1000),
}
"""The variables by which Claude Code asks its model only when it has the servers' tools."""

_GEMINI, _SETTINGS = ".gemini", "settings.json"
_GEMINI_SESSIONS = ("history", "tmp")

_FROM_FOLDERS = (
    "import os, sys; sys.path[:0] = sys.argv.pop(1).split(os.pathsep); "
    "from arena_cli.__main__ import main; main()"
)
_IN_FOLDER = (
    "import os, subprocess, sys; os.chdir(sys.argv[1]); sys.exit(subprocess.call(sys.argv[2:]))"
)


def list_servers(
    profile: AgentProfile, environ: Mapping[str, str], workspace: Path
) -> list[HandedServer]:
    """Return the servers of a profile, filled. Raises AgentUnavailable for a missing variable."""
    servers = []
    for name, server in profile.mcp.items():
        filled, _ = agents.fill_settings(server.model_dump(), environ, agent_id=profile.agent_id)
        servers.append(
            HandedServer(
                name=name,
                command=tuple(filled["command"]),
                env=_fill_inherited(filled["env"], environ),
                cwd=str((workspace / (filled["cwd"] or ".")).resolve()),
                url=filled["url"],
                headers=filled["headers"],
                timeout_s=server.timeout_s,
                tools=_list_allowed(name, profile),
            )
        )
    return servers


def _fill_inherited(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    values = {name: environ.get(name) if text == "inherit" else text for name, text in env.items()}
    return {name: value for name, value in values.items() if value is not None}


def _list_allowed(server: str, profile: AgentProfile) -> tuple[str, ...]:
    """Return the patterns of the server's tools that `tools` names; all if it names none."""
    entries = [entry for entry in profile.tools if isinstance(entry, str) and "." in entry]
    halves = [entry.partition(".") for entry in entries]
    return tuple(tool for name, _, tool in halves if fnmatchcase(server, name)) or ("*",)


def own_server(
    workspace: Path, session: str, agent: str, environ: Mapping[str, str]
) -> HandedServer:
    """Return arena's own server for an agent in a session.

    Gemini CLI passes no PYTHONPATH on, so its folders are an argument.
    """
    start = ["-m", "arena_cli"]
    if paths := environ.get("PYTHONPATH"):
        folders = map(os.path.abspath, paths.split(os.pathsep))
        start = ["-c", _FROM_FOLDERS, os.pathsep.join(folders)]
    options = ["--workspace", str(workspace.resolve()), "mcp"]
    return HandedServer(
        name=OWN,
        command=(sys.executable, *start, *options, "--session", session, "--agent", agent),
        cwd=str(workspace.resolve()),
        timeout_s=LONGEST_CALL_S,
        is_own=True,
    )


_OWN_TOOL = re.compile(
    rf"mcp__{OWN}__[\w-]+|mcp\.{OWN}\.[\w-]+|{OWN}[_/][\w-]+|[\w-]+ \({OWN} MCP Server\)"
)


def is_own_tool(title: str) -> bool:
    """Return True for the title under which a program shows one of arena's own tools, alone."""
    return _OWN_TOOL.fullmatch(title) is not None


def list_words(server: HandedServer, folder: Path) -> list[str]:
    """Return the command of a server for a program that starts it in `folder`."""
    if server.is_own or not server.cwd or Path(server.cwd) == folder.resolve():
        return list(server.command)
    return [sys.executable, "-c", _IN_FOLDER, server.cwd, *server.command]


def describe_for_claude(servers: Sequence[HandedServer], folder: Path) -> str:
    """Return the content of a file for `--mcp-config`."""
    described = {
        server.name: {"type": "http", "url": server.url, "headers": {**server.headers}}
        if server.url
        else {
            "type": "stdio",
            "command": list_words(server, folder)[0],
            "args": list_words(server, folder)[1:],
            "env": {**server.env},
            **({"alwaysLoad": True} if server.is_own else {}),
        }
        for server in servers
    }
    return json.dumps({"mcpServers": described})


def list_claude_rules(servers: Sequence[HandedServer]) -> list[str]:
    """Return the rules that let Claude Code call the tools of these servers."""
    return [
        f"mcp__{server.name}" if tool == "*" else f"mcp__{server.name}__{tool}"
        for server in servers
        for tool in server.tools
    ]


def list_codex_options(servers: Sequence[HandedServer], agent_id: str) -> list[str]:
    """Return the options of Codex that start these servers; it gets secrets by variables.

    Raises AgentUnavailable for a pattern of tools, which it does not take.
    """
    return [
        word
        for name, keys in describe_for_codex(servers, agent_id).items()
        for key, value in keys.items()
        for word in ("-c", f"mcp_servers.{name}.{key}={_write_toml(value)}")
    ]


def describe_for_codex(servers: Sequence[HandedServer], agent_id: str) -> dict[str, dict[str, Any]]:
    """Return the table `mcp_servers` of Codex's configuration; secrets are in variables.

    Raises AgentUnavailable for a pattern of tools, which it does not take.
    """
    return {server.name: _describe_for_codex(server, agent_id) for server in servers}


def _describe_for_codex(server: HandedServer, agent_id: str) -> dict[str, Any]:
    limits = {"startup_timeout_sec": START_LIMIT_S, "tool_timeout_sec": server.timeout_s}
    approved: dict[str, Any] = {"default_tools_approval_mode": "approve", "required": True}
    if names := list_exact_tools(server, "Codex", agent_id):
        approved["enabled_tools"] = names
    if server.url:
        headers = {name: variable for name, (variable, _) in _name_headers(server).items()}
        connection: dict[str, Any] = {"url": server.url, "env_http_headers": headers}
    else:
        program, *args = server.command
        connection = {
            "command": program,
            "args": args,
            "cwd": server.cwd,
            "env_vars": [*server.env],
        }
    return {**connection, **limits, **approved}


def list_codex_variables(servers: Sequence[HandedServer]) -> dict[str, str]:
    """Return the variables that Codex passes on to its servers."""
    variables: dict[str, str] = {}
    for server in servers:
        variables |= server.env
        variables |= dict(_name_headers(server).values())
    return variables


def _name_headers(server: HandedServer) -> dict[str, tuple[str, str]]:
    """Return for each header a variable that holds its value, and the value."""
    prefix = "ARENA_MCP_" + re.sub(r"\W", "_", server.name).upper()
    return {
        name: (f"{prefix}_{number}", value)
        for number, (name, value) in enumerate(server.headers.items(), 1)
    }


def _write_toml(value: Any) -> str:
    """Return a value in TOML; its texts and lists are written as in JSON."""
    if isinstance(value, dict):
        pairs = (f"{_write_toml(key)} = {_write_toml(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


def describe_for_gemini(servers: Sequence[HandedServer], agent_id: str) -> dict[str, Any]:
    """Return the key `mcpServers` of Gemini CLI's settings.

    Raises AgentUnavailable for a pattern of tools, which it does not take.
    """
    described: dict[str, Any] = {}
    for server in servers:
        connection: dict[str, Any] = {"httpUrl": server.url, "headers": {**server.headers}}
        if not server.url:
            program, *args = server.command
            env = {**server.env}
            connection = {"command": program, "args": args, "env": env, "cwd": server.cwd}
        described[server.name] = {
            **connection,
            "timeout": round(server.timeout_s * 1000),
            "trust": True,
        }
        if names := list_exact_tools(server, "Gemini CLI", agent_id):
            described[server.name]["includeTools"] = names
    return described


def _allow_in_plan_mode(server: str) -> str:
    """Return the rule of Gemini CLI that lets it call a server's tools in its careful mode."""
    rule = {"mcpName": server, "toolName": "*", "decision": "allow", "priority": 500}
    lines = [f"{key} = {_write_toml(value)}\n" for key, value in rule.items()]
    return "".join(["[[rule]]\n", *lines, 'modes = ["plan"]\n'])


@contextlib.contextmanager
def make_gemini_home(scratch: Path, home: Path, servers: Mapping[str, Any]) -> Iterator[str]:
    """Yield a home folder of a call whose settings are those of the user and these servers.

    Gemini CLI takes no settings file of a call: that of the system must be root's. All else in the
    folder is the user's, by links. Raises OSError.
    """
    real = home / _GEMINI
    for name in _GEMINI_SESSIONS:
        (real / name).mkdir(parents=True, exist_ok=True)
    settings: Any = {}
    with contextlib.suppress(OSError, ValueError):
        settings = json.loads((real / _SETTINGS).read_text(encoding="utf-8"))
    settings = settings if isinstance(settings, dict) else {}
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gemini-", dir=scratch.absolute()) as folder:
        gemini_folder = Path(folder) / _GEMINI
        gemini_folder.mkdir()
        for entry in real.iterdir():
            if entry.name != _SETTINGS:
                (gemini_folder / entry.name).symlink_to(entry.absolute(), entry.is_dir())
        policy = gemini_folder / "arena.toml"
        policy.write_text("".join(map(_allow_in_plan_mode, servers)), encoding="utf-8")
        policies = settings.get("policyPaths") or [str(gemini_folder / "policies")]
        merged = {
            **settings,
            "mcpServers": {**settings.get("mcpServers", {}), **servers},
            "policyPaths": [*policies, str(policy)],
        }
        (gemini_folder / _SETTINGS).write_text(json.dumps(merged), encoding="utf-8")
        yield folder


def describe_for_opencode(servers: Sequence[HandedServer], folder: Path) -> dict[str, Any]:
    """Return the key `mcp` of opencode's configuration."""
    return {
        server.name: {
            **(
                {"type": "remote", "url": server.url, "headers": {**server.headers}}
                if server.url
                else {
                    "type": "local",
                    "command": list_words(server, folder),
                    "environment": {**server.env},
                }
            ),
            "enabled": True,
            "timeout": round(max(server.timeout_s, START_LIMIT_S) * 1000),
        }
        for server in servers
    }


def list_opencode_permissions(servers: Sequence[HandedServer]) -> dict[str, str]:
    """Return the permissions of opencode that allow the tools of these servers."""
    return {f"{server.name}_{tool}": "allow" for server in servers for tool in server.tools}


def list_exact_tools(server: HandedServer, program: str, agent_id: str) -> list[str]:
    """Return the names of the tools that may be called; an empty list is all of them.

    Raises AgentUnavailable for a pattern.
    """
    if "*" in server.tools:
        return []
    for tool in server.tools:
        if set(tool) & set("*?["):
            raise AgentUnavailable(
                agent_id,
                f"{program} takes no pattern of tools: {server.name}.{tool}",
                mend=f"name each tool, or all of them: {server.name}.*",
            )
    return list(server.tools)
