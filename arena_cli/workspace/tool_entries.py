"""Check the entries of `tools:` in profiles: a tool, a function, an agent or tools of a server.

Profiles without `tools` and `mcp` never import this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from arena_cli import errors
from arena_cli.errors import Fault
from arena_cli.protocol import (
    ASK_AGENT,
    MERGE_RESULTS,
    RUN_FLOW,
    TASK_LIST,
    TASK_UPDATE,
    WAIT_FOR_AGENT,
)
from arena_cli.util import files
from arena_cli.workspace import control, models
from arena_cli.workspace.acting import InlineTool, McpServer
from arena_cli.workspace.agents import (
    FALLBACK,
    AdapterKinds,
    LoadedProfile,
    ProfileSource,
    list_adapters,
)
from arena_cli.workspace.models import AGENT_TOOL, AgentProfile
from arena_cli.workspace.workspace import WORK_FOLDER
from arena_cli.yamlio.loader import Fragment
from arena_cli.yamlio.nodes import Loc

FILE_TOOLS = ("read_file", "write_file", "edit_file", "delete_file", "list_files", "find")
RUN_COMMAND = "run_command"
EXCHANGE_TOOLS = (ASK_AGENT, WAIT_FOR_AGENT, MERGE_RESULTS)
ARENA_TOOLS = (
    "search_notes",
    "search_history",
    "add_note",
    "read_attachment",
    "list_members",
    "check_patterns",
    "estimate_complexity",
    "request_approval",
    "goals",
    *EXCHANGE_TOOLS,
    TASK_LIST,
    TASK_UPDATE,
    RUN_FLOW,
)
PYTHON = "python:"
OWN_TOOLS = (*FILE_TOOLS, RUN_COMMAND, *ARENA_TOOLS)

_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_NAME_HINT = "use letters, digits, `-` and `_`, at most 32 characters"


OWN_SERVER = "arena"
_KEYS = ("tools", "mcp", "output")
_NO_TOOLS = (
    "kinds that can: anthropic, openai, claude_code, codex, gemini, opencode, acp, python, "
    "scripted, and cli with `prompt: json` and `output: json`"
)


def is_server_entry(entry: str | InlineTool) -> bool:
    """Return True if an entry of `tools` names tools of MCP servers."""
    return (
        isinstance(entry, str)
        and entry not in OWN_TOOLS
        and not entry.startswith((PYTHON, AGENT_TOOL))
    )


def names_server(entry: str | InlineTool, server: str) -> bool:
    """Return True if an entry of `tools`, such as `git*.read_*`, names tools of a server."""
    return (
        isinstance(entry, str)
        and is_server_entry(entry)
        and fnmatchcase(server, entry.partition(".")[0])
    )


def list_named_servers(
    entries: Iterable[str | InlineTool], servers: Mapping[str, McpServer]
) -> dict[str, McpServer]:
    """Return the servers of which the entries of `tools` name tools."""
    entries = list(entries)
    return {
        name: server
        for name, server in servers.items()
        if any(names_server(entry, name) for entry in entries)
    }


def read_shared_servers(servers: Fragment) -> dict[str, McpServer]:
    """Return the servers of `arena.yaml` (`mcp`); those with errors are left out."""
    valid: dict[str, McpServer] = {}
    for name, settings in servers.data.items() if isinstance(servers.data, dict) else ():
        try:
            valid[name] = McpServer.model_validate(settings)
        except ValidationError:  # reported with the file
            continue
    return valid


def add_shared_servers(agent: LoadedProfile, shared: Mapping[str, McpServer]) -> LoadedProfile:
    """Return the agent with the shared servers that its `tools` name; its own take precedence."""
    profile = agent.profile
    missing = {name: server for name, server in shared.items() if name not in profile.mcp}
    added = list_named_servers(profile.tools, missing)
    if not added:
        return agent
    return agent._replace(profile=profile.model_copy(update={"mcp": {**added, **profile.mcp}}))


def find_server_faults(servers: Fragment) -> list[Fault]:
    """Return the errors of the names of the servers of `arena.yaml`."""
    names = servers.data if isinstance(servers.data, dict) else ()
    return [
        servers.fault((name,), f"`{name}` cannot be the name of a server", _NAME_HINT)
        for name in names
        if not _SERVER_NAME.fullmatch(str(name))
    ]


def check_agents(
    acting: Sequence[str],
    shared: Fragment,
    agents: Collection[str],
    loaded: dict[str, LoadedProfile],
) -> list[Fault]:
    """Give agents that act the shared servers that they name; return the errors of their tools."""
    faults = find_server_faults(shared)
    servers = read_shared_servers(shared)
    for agent_id in acting:
        loaded[agent_id] = add_shared_servers(loaded[agent_id], servers)
        faults += find_tool_faults(loaded[agent_id], agents)
    return faults


def find_tool_faults(agent: LoadedProfile, agents: Collection[str]) -> list[Fault]:
    """Return the errors of an agent's `tools` and `mcp`; `agents` are the ids of all agents."""
    profile, faults = agent.profile, []
    servers = agent.source.data.get("mcp")
    for name in servers if isinstance(servers, dict) else ():
        if not _SERVER_NAME.fullmatch(str(name)):
            problem = f"`{name}` cannot be the name of a server"
            faults.append(agent.source.fault(("mcp", name), problem, _NAME_HINT))
    for index, entry in enumerate(profile.tools):
        problem, hint = _find_problem(entry, profile.mcp, agents)
        if problem:
            faults.append(agent.source.fault(("tools", index), problem, hint))
    return faults


def _find_problem(
    entry: str | InlineTool, servers: Mapping[str, Any], agents: Collection[str]
) -> tuple[str, str]:
    """Return why an entry of `tools` names nothing, and a hint; "" twice if it does."""
    if not isinstance(entry, str) or entry.startswith(PYTHON):
        return "", ""  # `find_faults` looks at functions
    if entry.startswith(AGENT_TOOL):
        agent = models.normalize_id(entry.removeprefix(AGENT_TOOL))
        problem, hint = f"there is no agent `{agent}`", errors.suggest_nearest(agent, agents)
        return ("", "") if agent in agents else (problem, hint)
    server, dot, _ = entry.partition(".")
    if entry in OWN_TOOLS or (dot and any(names_server(entry, name) for name in servers)):
        return "", ""
    if not dot:
        tool_names = [*OWN_TOOLS, *(f"{name}.*" for name in servers)]
        return f"there is no tool `{entry}`", errors.suggest_nearest(entry, tool_names)
    hint = errors.suggest_nearest(server, servers) or (
        f"describe the server under `mcp`: `mcp: {{{server}: {{command: [...]}}}}`"
    )
    return f"there is no MCP server `{server}`", hint


def list_functions(profile: AgentProfile) -> list[str]:
    """Return the functions of the user that are tools of an agent, or process its output."""
    return list(dict.fromkeys(target for _, target in _list_functions(profile)))


def _list_functions(profile: AgentProfile) -> Iterator[tuple[Loc, str]]:
    for index, entry in enumerate(profile.tools):
        if not isinstance(entry, str):
            yield ("tools", index, "python"), entry.python
        elif entry.startswith(PYTHON):
            yield ("tools", index), entry.removeprefix(PYTHON)
    if profile.output is not None and profile.output.process is not None:
        yield ("output", "process"), profile.output.process


def describe_commands(profile: AgentProfile) -> str:
    """Return what an agent with `run_command` may start; "" without it."""
    if RUN_COMMAND not in profile.tools:
        return ""
    shell = ", also by a shell" if profile.run is not None and profile.run.shell else ""
    return f"any command (run_command) in {profile.workdir}{shell}"


def describe_flows(profile: AgentProfile) -> str:
    """Return what an agent with `run_flow` may start; "" without it."""
    return "any program, request and agent (run_flow)" if RUN_FLOW in profile.tools else ""


def find_faults(
    profile: AgentProfile, source: ProfileSource, root: Path, *, anywhere: bool
) -> Iterator[Fault]:
    """Yield the errors of functions that are not there, and of a folder that is missing."""
    for loc, target in _list_functions(profile):
        problem = control.import_text_checks().find_function_problem(target, root)
        if problem is not None:
            yield source.fault(loc, *problem)
    needs = [name for name in (*FILE_TOOLS, RUN_COMMAND) if name in profile.tools]
    if profile.workdir is None and needs:
        loc = ("tools", profile.tools.index(needs[0]))
        hint = "set `workdir` to a folder of the workspace"
        yield source.fault(loc, f"{needs[0]} needs a folder to work in", hint)
    if profile.workdir is not None:
        problem = _find_folder_problem(profile.workdir, root, anywhere=anywhere)
        if problem is not None:
            yield source.fault(("workdir",), *problem)


def _find_folder_problem(name: str, root: Path, *, anywhere: bool) -> tuple[str, str] | None:
    problem = files.find_name_problem(name, root, anywhere=anywhere)
    if problem is not None:
        return problem
    path, components = root / name, PurePosixPath(name).parts
    is_made = len(components) > 1 and components[0] == WORK_FOLDER and not path.exists()
    if not path.is_dir() and not is_made:
        return f"there is no folder `{name}`", f"create it, or name one below {WORK_FOLDER}/"
    return None


def find_kind_faults(
    profile: AgentProfile, source: ProfileSource, kinds: AdapterKinds
) -> list[Fault]:
    """Return the errors of a profile with tools: of its kind, its fallbacks and its servers."""
    ways = [_find_way(adapter, kinds) for adapter in list_adapters(profile.adapter)]
    kind = str(profile.adapter["type"])
    faults = []
    if not ways[0]:
        used = (key for key in _KEYS if getattr(profile, key))
        problem = f"an agent of the kind {kind} cannot be given tools"
        faults += [source.fault((key,), problem, _NO_TOOLS) for key in used]
    for index, way in enumerate(ways[1:]):
        if way != ways[0] and ways[0]:
            problem = "takes tools in another way than the adapter that it replaces"
            hint = "name one that does, or leave it out"
            faults.append(source.fault(("adapter", FALLBACK, index, "type"), problem, hint))
    if ways[0] == "mcp" and OWN_SERVER in profile.mcp:
        problem = f"`{OWN_SERVER}` is the name of arena's own server"
        faults.append(source.fault(("mcp", OWN_SERVER), problem, "choose another name"))
    return faults


def _find_way(adapter: Mapping[str, Any], kinds: AdapterKinds) -> str:
    shape = kinds.settings_type(str(adapter["type"]))
    takes_tools: Callable[[Mapping[str, Any]], str] | None = getattr(shape, "takes_tools", None)
    return "loop" if takes_tools is None else takes_tools(adapter)
