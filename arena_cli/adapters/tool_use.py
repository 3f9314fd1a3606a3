"""Describe how an agent's program uses a tool: its name, and its command or path."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.protocol import Emit, RefusedAction, StatusEvent
from arena_cli.util.text import cut_text

_MAX_CHARACTERS = 200
# The arguments that say most about a use of a tool, in this order; programs spell them differently.
_COMMANDS = ("command", "cmd")
_PATHS = ("file_path", "filePath", "absolute_path", "notebook_path", "path", "dir_path")
_OTHERS = ("pattern", "query", "url", "prompt", "description")


class ToolUse(NamedTuple):
    """A use of a tool; `target` is its command or path, "" if it has none."""

    tool: str
    target: str = ""

    @property
    def status(self) -> StatusEvent:
        """The status to report when the use begins."""
        detail = cut_text(" ".join(filter(None, self)), _MAX_CHARACTERS)
        return StatusEvent(status="calling_tool", detail=detail)


class ToolUses:
    """Report each use of a tool once as it begins, and once if it is refused."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._uses: dict[str, ToolUse] = {}
        self._refused_ids: set[str] = set()

    def begin(self, use_id: Any, use: ToolUse) -> None:
        """Report that a use begins, unless that of the same id has begun before."""
        key = _key(use_id)
        if not key or key not in self._uses:
            self._uses[key] = use
            self._emit(use.status)

    def refuse(self, use_id: Any, by: str, use: ToolUse | None = None) -> None:
        """Report that a use was refused; `by` is the setting that decided.

        `use` describes one that did not begin.
        """
        key = _key(use_id)
        use = self._uses.get(key, use)
        if use is not None and key not in self._refused_ids:
            self._refused_ids |= {key} if key else set()
            self._emit(RefusedAction(tool=use.tool, target=use.target, by=by))


def _key(use_id: Any) -> str:
    return use_id if isinstance(use_id, str) else ""


def describe_tool_use(name: Any, arguments: Any, folder: Path | None = None) -> ToolUse:
    """Return the use of a tool with these arguments; paths in `folder` are relative to it."""
    tool = _one_line(name)
    by_name = arguments if isinstance(arguments, Mapping) else {}
    for key in (*_COMMANDS, *_PATHS, *_OTHERS):
        words = list(_words(by_name.get(key)))
        if words:
            target = _one_line(" ".join(words))
            return ToolUse(tool, shorten_path(target, folder) if key in _PATHS else target)
    return ToolUse(tool)


def shorten_path(path: str, folder: Path | None) -> str:
    """Return a path relative to `folder` if it lies in it, else the path itself."""
    try:
        inside = Path(path).relative_to(folder) if folder else None
    except ValueError:
        return path
    return inside.as_posix() if inside else path


def _words(value: Any) -> Iterator[str]:
    """Yield the words of a text, or of a list of texts such as a command with its arguments."""
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    yield from (item for item in items if isinstance(item, str) and item.strip())


def _one_line(value: Any) -> str:
    return cut_text(" ".join(value.split()), _MAX_CHARACTERS) if isinstance(value, str) else ""


def describe_codex_item(item: Mapping[str, Any], folder: Path | None) -> ToolUse | None:
    """Return the use of a tool that an item of Codex is about; None if it is about none."""
    kind = item.get("type")
    if kind == "command_execution":
        return ToolUse("shell", _one_line(_unwrap_shell(str(item.get("command")))))
    if kind == "file_change":
        changes = item.get("changes")
        changes = changes if isinstance(changes, list) else []
        paths = [change.get("path") for change in changes if isinstance(change, Mapping)]
        return ToolUse("edit", ", ".join(shorten_path(str(path), folder) for path in paths))
    if kind == "mcp_tool_call":
        name = f"{item.get('server')}.{item.get('tool')}"
        return describe_tool_use(name, item.get("arguments"), folder)
    return describe_tool_use(kind, item) if kind == "web_search" else None


def _unwrap_shell(command: str) -> str:
    """Return the command within `bash -lc '...'`."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(words) == 3 and words[1] in ("-c", "-lc") and words[0].endswith("sh")
    return words[2] if is_shell else command
