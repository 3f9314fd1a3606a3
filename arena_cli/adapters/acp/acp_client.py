"""What an agent of the Agent Client Protocol may ask of arena, and what it is answered.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    DeclineElicitationResponse,
    DeniedOutcome,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
    WriteTextFileResponse,
)

from arena_cli.adapters.acp.acp_turn import Turn
from arena_cli.ground import text as texts

Permissions = Literal["deny", "read", "allow"]

_LONGEST_FILE = 10_000_000
_READING = frozenset({"read", "search"})
# Where tools name what they read, beside the protocol's own `locations`.
_PATH_KEYS = ("path", "file_path", "filePath", "abs_path", "directory", "cwd")
_YES = ("allow_once", "allow_always")
_NO = ("reject_once", "reject_always")


class Client:
    """Answers one agent by its profile's `permissions`; files lie in `folder` only.

    `turn` is the call that is going on, None between calls.
    """

    def __init__(self, permissions: Permissions, folder: Path) -> None:
        self.turn: Turn | None = None
        self.permissions = permissions
        self._folder = folder.resolve()

    def updated(self, session_id: str, update: dict[str, Any]) -> None:
        """What the agent tells of its work; what belongs to no call (a session's past) is lost."""
        if self.turn is not None and self.turn.session_id == session_id:
            self.turn.take(update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Yes or no, for this once wherever that is offered."""
        turn = self.turn if self.turn and self.turn.session_id == session_id else None
        seen = turn.use(tool_call) if turn else tool_call
        allowed = self._allows(seen)
        if turn and not allowed:
            turn.refused.append(texts.cut(seen.title or seen.kind or "a tool", 200))
        chosen = _option(options, _YES if allowed else _NO)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def read_text_file(
        self, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        """A file of the folder, or `limit` lines of it from `line` (from 1) on."""
        if self.permissions == "deny":
            _refuse("this agent may not read files")
        file = self._inside(path)
        try:
            if not file.exists():
                raise RequestError.resource_not_found(path)
            if not file.is_file() or file.stat().st_size > _LONGEST_FILE:
                _refuse(f"no file of less than {_LONGEST_FILE // 1_000_000} MB", path)
            content, _replaced = texts.decode(file.read_bytes())
        except OSError as error:
            _refuse(str(error), path)
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            lines = content.splitlines(keepends=True)
            content = "".join(lines[first : None if limit is None else first + limit])
        return ReadTextFileResponse(content=content)

    async def write_text_file(self, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        """Write a file of the folder."""
        if self.permissions != "allow":
            _refuse("this agent may not write files")
        file = self._inside(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode("utf-8", "replace"))
        except OSError as error:
            _refuse(str(error), path)
        return WriteTextFileResponse()

    async def create_elicitation(self, **_: Any) -> DeclineElicitationResponse:
        """There is nobody to ask."""
        return DeclineElicitationResponse(action="decline")

    async def create_terminal(self, **_: Any) -> NoReturn:
        """Terminals are not offered."""
        raise RequestError.method_not_found("terminal/create")

    def _allows(self, tool: ToolCallUpdate) -> bool:
        if self.permissions != "read":
            return self.permissions == "allow"
        return tool.kind in _READING and all(self._holds(path) for path in _paths(tool))

    def _holds(self, path: str) -> bool:
        """Whether a path, its links followed, lies in the folder."""
        try:
            return (self._folder / path).resolve().is_relative_to(self._folder)
        except (OSError, ValueError, RuntimeError):
            return False

    def _inside(self, path: str) -> Path:
        if not self._holds(path):
            _refuse("it lies outside of the working folder", path)
        return (self._folder / path).resolve()


def _option(options: Sequence[PermissionOption], kinds: Sequence[str]) -> PermissionOption | None:
    """The first option of the first of these kinds that there is."""
    return next((one for kind in kinds for one in options if one.kind == kind), None)


def _paths(tool: ToolCallUpdate) -> Iterator[str]:
    """What a tool's call names of files and folders."""
    for location in tool.locations or []:
        yield location.path
    if isinstance(tool.raw_input, dict):
        for key in _PATH_KEYS:
            value = tool.raw_input.get(key)
            if isinstance(value, str):
                yield value


def _refuse(why: str, path: str = "") -> NoReturn:
    details = f"{path}: {why}" if path else why
    raise RequestError(-32602, f"arena refuses: {details}", {"details": details})
