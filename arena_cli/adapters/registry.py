"""The kinds of adapters by name; a kind's module is imported when the kind is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from arena_cli.adapters.base import Adapter, Settings
from arena_cli.ground.errors import UsageError
from arena_cli.team.profiles import Kinds

GROUP = "arena.adapters"  # entry points: a kind's name -> "module:Class"

_BUILT_IN = {
    "scripted": "arena_cli.adapters.scripted:ScriptedAdapter",
    "cli": "arena_cli.adapters.cli:CliAdapter",
    "python": "arena_cli.adapters.python:PythonAdapter",
    "anthropic": "arena_cli.adapters.api.anthropic_api:AnthropicAdapter",
    "openai": "arena_cli.adapters.api.openai_api:OpenAIAdapter",
    "claude_code": "arena_cli.adapters.coding.claude_code:ClaudeCodeAdapter",
    "codex": "arena_cli.adapters.coding.adapter:CodexAdapter",
    "gemini": "arena_cli.adapters.coding.adapter:GeminiAdapter",
    "cursor": "arena_cli.adapters.coding.adapter:CursorAdapter",
    "opencode": "arena_cli.adapters.coding.adapter:OpencodeAdapter",
    "pi": "arena_cli.adapters.coding.adapter:PiAdapter",
    "acp": "arena_cli.adapters.acp.acp_agent:AcpAdapter",
}


def adapter_type(kind: str) -> type[Adapter]:
    """The class of a kind; raises UsageError where there is none, or it cannot be imported."""
    found = _found(kind)
    if found is None:
        raise UsageError(f"unknown kind of adapter `{kind}`", f"known: {', '.join(known())}")
    return found


def settings_type(kind: str) -> type[Settings] | None:
    """The shape of a kind's keys, or None where there is no such kind."""
    found = _found(kind)
    return None if found is None else found.settings_type


def implied(kind: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys that follow from the given ones of a kind (`Settings.implied`)."""
    shape = settings_type(kind)
    return {} if shape is None else shape.implied(given)


def known() -> list[str]:
    """All kinds, the built-in ones first."""
    return [*_BUILT_IN, *sorted(set(_entry_points()) - set(_BUILT_IN))]


def _found(kind: str) -> type[Adapter] | None:
    if kind in _BUILT_IN:
        module, _, name = _BUILT_IN[kind].partition(":")
        return cast("type[Adapter]", getattr(import_module(module), name))
    entry_point = _entry_points().get(kind)
    if entry_point is None:
        return None
    try:
        return cast("type[Adapter]", entry_point.load())
    except (ImportError, AttributeError) as error:
        what = f"the kind of adapter `{kind}` cannot be imported: {error}"
        raise UsageError(what, f"it comes from {entry_point.value}; install it anew") from error


def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # only for kinds from elsewhere

    return {point.name: point for point in entry_points(group=GROUP)}


KINDS = Kinds(settings_type=settings_type, list_kinds=known, implied=implied)
