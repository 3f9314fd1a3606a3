"""Share what all kinds of coding agents need: attached files, uses of tools, lost sessions.

Files of an input's messages are given as content, or else as paths. A use of a tool is described by
its name, and its command or path.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters import http
from arena_cli.adapters.process import diagnosis
from arena_cli.errors import AgentError, AgentProtocolError, AgentRefused
from arena_cli.protocol import NOT_SHOWN, AgentInput, CallNote, Emit, RefusedAction, StatusEvent
from arena_cli.util.text import cut_text


def report_lost_session(emit: Emit, session_id: str, reason: str = "") -> None:
    """Report that the agent cannot resume its session, and begins a new one in the same call."""
    because = {"lost_because": reason} if reason else {}
    emit(CallNote({"lost_session": session_id, **because}))
    detail = "its session cannot be resumed, so it begins a new one"
    emit(StatusEvent(status="waiting", detail=f"{detail}: {reason}" if reason else detail))


def is_dead_session(error: AgentError) -> bool:
    """Return True if a resumed session that failed before any work failed for no provider's reason.

    Its history may be one that the provider rejects, with status 400; a new session has none.
    """
    if isinstance(error, AgentRefused):
        return not error.overflow and error.metadata.get("http_status") == HTTPStatus.BAD_REQUEST
    is_unexplained = diagnosis.find_error_type(error.came) is AgentProtocolError
    return isinstance(error, AgentProtocolError) and error.again and is_unexplained


class AttachedFile(NamedTuple):
    """A file on the disk; `content` is None if it is too large to be sent, or gone."""

    name: str
    path: Path
    content: http.Attached | None

    @property
    def text(self) -> str | None:
        """Its text, None if it is no text or is empty."""
        return self.content.text or None if self.content else None

    @property
    def is_image(self) -> bool:
        """True if it is a kind of image that models are shown."""
        return self.content is not None and self.content.is_image

    @property
    def is_pdf(self) -> bool:
        """True if it is a PDF."""
        return self.content is not None and self.content.media_type == "application/pdf"

    @property
    def label(self) -> str:
        """The line before its content."""
        return f"The attached file {_quote(self.name)}:"


def list_new_files(input: AgentInput, workspace: Path) -> list[AttachedFile]:
    """Return the files of the messages that the agent is shown now.

    A path that leads out of the workspace, which arena never writes, is left out.
    """
    root = workspace.resolve()
    attachments = [item for message in input.unseen() for item in message.attachments if item.path]
    files = [(item, (root / str(item.path)).resolve()) for item in attachments]
    return [
        AttachedFile(item.name, path, http.read(item, workspace))
        for item, path in files
        if path.is_relative_to(root) and path.is_file()
    ]


def describe_paths(files: Iterable[AttachedFile], emit: Emit) -> str:
    """Return the paths of files that cannot be shown, for the prompt; report them to the reply."""
    hidden = list(files)
    if hidden:
        emit(CallNote({NOT_SHOWN: [file.name for file in hidden]}))
    return "".join(
        f"The attached file {_quote(file.name)} is not shown here. It is at {file.path}\n"
        for file in hidden
    )


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


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

    def postpone(self, use_id: Any) -> None:
        """Do not report a use as refused: a person was asked, and decides later."""
        self._refused_ids |= {_key(use_id)} - {""}


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
