"""Decide which tools Claude Code may use, and follow the uses and refusals in what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters.claude_usage import dict_or_empty, list_or_empty
from arena_cli.adapters.coding_agents import ToolUses, describe_tool_use
from arena_cli.protocol import Emit

_NO_SUCH_TOOL = "No such tool available"
_READING_TOOLS = frozenset({"Read", "Glob", "Grep", "LS"})
_EDITING_TOOLS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_PERMISSION_OPTIONS = frozenset(
    {
        "--allowedTools",
        "--allowed-tools",
        "--permission-mode",
        "--permission-prompt-tool",
        "--dangerously-skip-permissions",
    }
)


def permission_options(
    tools: Sequence[str], mode: str | None, args: Sequence[str], readable: Path
) -> list[str]:
    """Return the options that let it use `tools` as they are written, unless the profile decides.

    A profile decides by a permission `mode`, or by options of its own in `args`. Tools for files
    are not allowed by name, which would allow them everywhere: in `cwd`, Claude Code lets it read
    in any mode, and edit in the mode `acceptEdits`. It may also read the files in `readable`, those
    of messages.
    """
    if _decides_permissions(args):
        return ["--permission-mode", mode] if mode else []
    attached = [f"Read(/{readable.as_posix()}/**)"] if "Read" in tools else []
    if mode:
        return ["--permission-mode", mode, *(("--allowedTools", *attached) if attached else ())]
    allowed = [tool for tool in tools if tool not in _READING_TOOLS | _EDITING_TOOLS] + attached
    options = ["--allowedTools", ",".join(allowed)] if allowed else []
    if _EDITING_TOOLS & set(tools):
        options += ["--permission-mode", "acceptEdits"]
    return options


def describe_tools(tools: Sequence[str], mode: str | None, args: Sequence[str], cwd: str) -> str:
    """Return what it may do: the tools that it may use, and how far."""
    if not tools:
        return "may use no tools"
    text = f"may use {', '.join(tools)}"
    if mode:
        return f"{text}, as far as `permission_mode: {mode}` allows"
    if _decides_permissions(args):
        return f"{text}, as far as `args` allow"
    files = (_READING_TOOLS | _EDITING_TOOLS) & set(tools)
    limits = [f"files in {cwd}"] if files else []
    limits += ["any command"] if "Bash" in tools else []
    return "; ".join([text, ", ".join(limits)]) if limits else text


def _decides_permissions(args: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in _PERMISSION_OPTIONS for word in args)


class ClaudeToolUses:
    """Report the uses of tools in one turn, and those that were refused; paths from `folder`."""

    def __init__(self, emit: Emit, folder: Path) -> None:
        self._uses = ToolUses(emit)
        self._folder = folder

    def begin(self, block: dict[str, Any]) -> None:
        """Report a use that begins, by its `tool_use` block."""
        use = describe_tool_use(block.get("name"), block.get("input"), self._folder)
        self._uses.begin(block.get("id"), use)

    def read_results(self, event: dict[str, Any]) -> None:
        """Report the uses that were refused, by the `user` object that tells the agent so."""
        metas = map(dict_or_empty, list_or_empty(event.get("tool_result_meta")))
        decisions = {str(meta.get("id")): meta.get("permission_decision") for meta in metas}
        blocks = list_or_empty(dict_or_empty(event.get("message")).get("content"))
        for block in map(dict_or_empty, blocks):
            use_id = block.get("tool_use_id")
            if dict_or_empty(decisions.get(str(use_id))).get("decision") == "reject":
                self._uses.refuse(use_id, "permission_mode")
            elif block.get("is_error") and _NO_SUCH_TOOL in str(block.get("content")):
                self._uses.refuse(use_id, "not enabled")

    def read_denials(self, result: dict[str, Any]) -> None:
        """Report the uses that only the `result` lists as refused, as older versions do."""
        for denial in map(dict_or_empty, list_or_empty(result.get("permission_denials"))):
            use_id, arguments = denial.get("tool_use_id"), denial.get("tool_input")
            use = describe_tool_use(denial.get("tool_name"), arguments, self._folder)
            self._uses.refuse(use_id, "permission_mode", use)
