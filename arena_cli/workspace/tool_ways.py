"""Check that the kind of an agent can be given the tools that its profile names.

Imported for profiles with `tools`, `mcp` or an `output` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arena_cli.errors import Fault
from arena_cli.workspace.agents import FALLBACK, AdapterKinds, ProfileSource, list_adapters
from arena_cli.workspace.models import AgentProfile

OWN_SERVER = "arena"
_KEYS = ("tools", "mcp", "output")
_NO_TOOLS = (
    "kinds that can: anthropic, openai, claude_code, codex, gemini, opencode, acp, python, "
    "scripted, and cli with `prompt: json` and `output: json`"
)


def find_tool_faults(
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
