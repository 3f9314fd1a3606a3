"""Describe what an agent wants to do, as the request that arena or a person decides.

All of a request is the agent's text. Nothing is cut out of a command or path, links in a path are
resolved, and what a pattern could take for something smaller is written so that it cannot.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.protocol import Permission, PermissionRequest
from arena_cli.util import files

EXECUTE, MODIFY, CALL = "execute_command", "modify_file", "external_api_call"
READ, OTHER = "read_file", "use_tool"

REFUSED_BY = "approvals"
"""The setting that a denied request is reported with."""

WAITS_TEXT = "I asked for permission, and wait for the decision of a person."
"""The reply of an agent that ends without a text of its own after a person was asked."""

DENIED_TEXT = "I am not allowed to do that."
"""The reply of an agent that ends without a text of its own after it was denied an act."""

# Arguments that change from try to try, or stand in `detail`.
_LEFT_OUT = frozenset({"description", "justification", "command", "cmd", "cwd", "workdir"})
_SHELLS = frozenset(
    f"{folder}{name}" for folder in ("", "/bin/", "/usr/bin/") for name in ("sh", "bash", "zsh")
)
_MAX_DIFF_CHARACTERS = 200_000
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NO_LINE_END = "\\ No newline at end of file"


class Change(NamedTuple):
    """A change of a file, or of a part of it: its text before and after."""

    path: str
    before: str
    after: str


def explain(permission: Permission) -> str:
    """Return the message to an agent whose act is not allowed now."""
    reason = f": {permission.reason}" if permission.reason else ""
    if permission.verdict == "asked":
        return (
            "A person was asked whether this may be done. Do not try it again, and do nothing in "
            f"its place: end your reply now. You are called again with the decision{reason}"
        )
    return f"This is not allowed{reason}"


def describe_command(
    tool: str, command: Any, arguments: Mapping[str, Any], folder: Path
) -> PermissionRequest:
    """Return the request to run a command: a line for a shell, or a program and its arguments.

    A `cwd` other than `folder` comes first in the line, as `cd`.
    """
    line = _command_line(command)
    folder_argument = arguments.get("cwd") or arguments.get("workdir")
    if isinstance(folder_argument, str) and _resolve(folder_argument, folder) != _resolve(
        ".", folder
    ):
        line = f"cd {shlex.quote(_resolve(folder_argument, folder))} && {line}"
    other_arguments = {key: value for key, value in arguments.items() if key not in _LEFT_OUT}
    return PermissionRequest(
        action=EXECUTE, detail=line, tool=tool, arguments={"command": line, **other_arguments}
    )


def describe_edit(
    tool: str,
    paths: Sequence[str],
    changes: Sequence[Change],
    arguments: Mapping[str, Any],
    folder: Path,
) -> PermissionRequest:
    """Return the request to change the files of `paths` and `changes`, at least one."""
    resolved = dict.fromkeys(
        _resolve(path, folder) for path in (*paths, *(change.path for change in changes))
    )
    diffs = [_diff(change, _resolve(change.path, folder)) for change in changes]
    details = dict(arguments) or {"changes": [change._asdict() for change in changes]}
    return PermissionRequest(
        action=MODIFY,
        detail=_join_paths(list(resolved)),
        tool=tool,
        arguments={"paths": list(resolved), **details},
        diff="".join(diffs),
    )


def describe_reading(
    tool: str, paths: Sequence[str], arguments: Mapping[str, Any], folder: Path
) -> PermissionRequest:
    """Return the request to read files, at least one: those outside of an agent's folder."""
    resolved = list(dict.fromkeys(_resolve(path, folder) for path in paths))
    return PermissionRequest(
        action=READ,
        detail=_join_paths(resolved),
        tool=tool,
        arguments=dict(arguments) or {"paths": resolved},
    )


def describe_call(tool: str, target: str, arguments: Mapping[str, Any]) -> PermissionRequest:
    """Return the request to contact a URL, or to search for something."""
    details = dict(arguments) or {"target": target}
    return PermissionRequest(action=CALL, detail=target, tool=tool, arguments=details)


def describe_other(
    tool: str, arguments: Mapping[str, Any], action: str = OTHER
) -> PermissionRequest:
    """Return the request to use any other tool; its arguments follow the name."""
    shown = json.dumps(dict(arguments), ensure_ascii=False, default=str) if arguments else ""
    details = {"tool": tool, **arguments}
    return PermissionRequest(
        action=action, detail=f"{tool} {shown}".strip(), tool=tool, arguments=details
    )


def read_before(path: str, folder: Path) -> str | None:
    """Return the text of a file in `folder`, "" if there is none; None if it is not to be read."""
    try:
        file = (folder / path).resolve()
        if not file.is_relative_to(folder.resolve()):
            return None
        if file.exists() and file.stat().st_size > _MAX_DIFF_CHARACTERS:
            return None
        return files.read_regular(file).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


def _command_line(command: Any) -> str:
    """Return the line that a shell is given; a list of words is quoted as a shell reads it."""
    if isinstance(command, str):
        return command
    words = [str(word) for word in command] if isinstance(command, Sequence) else [str(command)]
    if len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


def _resolve(path: str, folder: Path) -> str:
    """Return a path with its links resolved, relative to `folder` if it lies in it."""
    try:
        root = folder.resolve()
        resolved = (root / Path(path).expanduser()).resolve()
    except (OSError, ValueError, RuntimeError):
        return path
    inside = resolved.is_relative_to(root)
    return resolved.relative_to(root).as_posix() if inside else str(resolved)


def _join_paths(paths: Sequence[str]) -> str:
    """Return one path as it is; of several, a text that no pattern for one of them matches."""
    return paths[0] if len(paths) == 1 else f"{len(paths)} files: {', '.join(paths)}"


def _diff(change: Change, path: str) -> str:
    """Return a change as a unified diff; a change too long for that by its length."""
    name = path.replace("\n", "\\n")
    if len(change.before) + len(change.after) > _MAX_DIFF_CHARACTERS:
        lengths = f"{len(change.before)} characters before, {len(change.after)} after"
        return f"--- {name}\n+++ {name}\n@@ too long to show: {lengths} @@\n"
    old_lines, new_lines = (_LINE.findall(text) for text in (change.before, change.after))
    lines = difflib.unified_diff(old_lines, new_lines, name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_LINE_END}\n" for line in lines)
