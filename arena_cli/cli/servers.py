"""Check the MCP servers of agents, for `arena agents check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arena_cli.cli import common
from arena_cli.reports import lines
from arena_cli.session import one_shot
from arena_cli.util import language
from arena_cli.util.text import cut_text, display_width, escape_line
from arena_cli.workspace.workspace import Workspace

if TYPE_CHECKING:
    from arena_cli.reports.lines import Words
    from arena_cli.session.one_shot import ServerCheck

_HANDED_OVER = frozenset({"claude_code", "codex", "gemini", "opencode", "acp"})
"""The kinds whose programs get all servers of the profile, and call them themselves."""

_LONGEST_DESCRIPTION = 60


def warn_of_unnamed(loaded: Workspace) -> None:
    """Print a warning per server of which an agent may call no tool."""
    for agent_id, profile in loaded.profiles.items():
        if not profile.mcp or profile.adapter["type"] in _HANDED_OVER:
            continue
        for name in one_shot.list_unnamed_servers(profile):
            common.warn(
                f"warning: {escape_line(agent_id)}: its `tools` name no tool of the MCP server "
                f"{name}, so it sees none\n  add `{name}.*` to `tools`, for all of them"
            )


def check_servers(loaded: Workspace, *, connect: bool) -> dict[str, list[ServerCheck]]:
    """Start each server of the workspace's agents once; return what they offer, by agent.

    Without `connect`, none is started.
    """
    profiles = [profile for profile in loaded.profiles.values() if profile.mcp]
    if not connect or not profiles:
        return {}
    config = common.make_config(loaded, wait_s=0, connects=True)
    checked: dict[str, list[ServerCheck]] = common.run(
        one_shot.check_servers(config, profiles), hint=""
    )
    return checked


def print_servers(servers: dict[str, list[ServerCheck]]) -> None:
    """Print a line per server, and one per tool that it offers."""
    say = lines.user_words()
    for agent, checks in servers.items():
        for check in checks:
            state = say("ok") if check.health.ok else say("NOT OK")
            state += " " * (6 - display_width(state))
            name = f"{escape_line(agent)} · mcp {check.server}"
            detail = language.translate_message(check.health.detail)
            if check.health.ok:
                detail = say("{count} tools", count=len(check.tools))
            common.print_line(f"{state} {name} · {escape_line(detail)}")
            if check.wrote:
                text = say("it writes text to stdout, which is skipped: {text}", text=check.wrote)
                common.print_line(f"       {escape_line(text)}")
            for tool in check.tools:
                common.print_line(f"       {_describe_tool(tool, say)}")


def _describe_tool(tool: Any, say: Words) -> str:
    facts = [
        tool.spec.name,
        say("only reads") if tool.spec.read_only else "",
        "" if tool.is_named else say("not in its `tools`"),
        tool.spec.problem,
        cut_text(" ".join(tool.spec.description.split()), _LONGEST_DESCRIPTION),
    ]
    return " · ".join(escape_line(fact) for fact in facts if fact)


def dump_servers(checks: list[ServerCheck]) -> list[dict[str, Any]]:
    """Return the checks of an agent's servers, as JSON."""
    return [
        {
            "server": check.server,
            "ok": check.health.ok,
            "detail": check.health.detail,
            "tools": [{**tool.spec.model_dump(), "named": tool.is_named} for tool in check.tools],
        }
        for check in checks
    ]
