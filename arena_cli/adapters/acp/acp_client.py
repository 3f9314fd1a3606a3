"""What an agent of the Agent Client Protocol may ask of arena, and what it is answered.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    SessionNotification,
    ToolCallUpdate,
    WriteTextFileResponse,
)
from pydantic import ValidationError

from arena_cli.adapters.acp.acp_turn import Turn
from arena_cli.ground import text as texts

Permissions = Literal["deny", "read", "allow"]

_LONGEST_FILE = 10_000_000
_MOST_READ = 50_000_000  # for one answer: an agent may ask for more than it ever takes
_READING = frozenset({"read", "search"})
_YES = ("allow_once", "allow_always")
_NO = ("reject_once", "reject_always")
# A pipe is not waited for, and a link that was not there before is not followed.
_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


class Client:
    """Answers one agent by its profile's `permissions`; files lie in `folder` only.

    `turn` is the prompt that is not answered yet, None where there is none; `read` is how many
    bytes of files it was given for this answer.
    """

    def __init__(self, permissions: Permissions, folder: Path) -> None:
        self.turn: Turn | None = None
        self.read = 0
        self.permissions = permissions
        self._folder = folder.resolve()

    def updated(self, params: dict[str, Any]) -> None:
        """What the agent tells of its work; what belongs to no prompt (a session's past) is lost.

        So is what is of no kind that the protocol had when the SDK was written.
        """
        if self.turn is None:
            return
        with contextlib.suppress(ValidationError):
            told = SessionNotification.model_validate(params)
            if told.session_id == self.turn.session_id:
                self.turn.take(told.update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption]
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
        with self._opened(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > _LONGEST_FILE:
                _refuse(f"it is longer than {_LONGEST_FILE // 1_000_000} MB", path)
            data = file.read(_LONGEST_FILE)
        self.read += len(data)
        if self.read > _MOST_READ:
            _refuse(f"it has read {_MOST_READ // 1_000_000} MB for this answer", path)
        content, _replaced = texts.decode(data)
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            lines = io.StringIO(content, newline="\n").readlines()
            content = "".join(lines[first : None if limit is None else first + limit])
        return ReadTextFileResponse(content=content)

    async def write_text_file(self, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        """Write a file of the folder."""
        if self.permissions != "allow":
            _refuse("this agent may not write files")
        with self._opened(path, "wb") as file:
            file.write(content.encode("utf-8", "replace"))
            file.truncate()
        return WriteTextFileResponse()

    async def create_terminal(self, **_: Any) -> NoReturn:
        """Terminals are not offered; without this, the SDK would answer with an empty one."""
        raise RequestError.method_not_found("terminal/create")

    def _allows(self, tool: ToolCallUpdate) -> bool:
        """Whether the policy has it. To read is to name nothing outside, and to run no command."""
        if self.permissions != "read":
            return self.permissions == "allow"
        given = tool.raw_input
        is_command = isinstance(given, dict) and "command" in given
        places = [one.path for one in tool.locations or []]
        named = (*places, *_texts(given))
        return tool.kind in _READING and not is_command and all(map(self._found, named))

    def _found(self, path: str) -> Path | None:
        """Where a path leads, its links followed; None where that is outside of the folder."""
        try:
            found = (self._folder / Path(path).expanduser()).resolve()
        except (OSError, ValueError, RuntimeError):
            return None
        is_inside = found.is_relative_to(self._folder) and not path.startswith("file:")
        return found if is_inside else None

    def _inside(self, path: str) -> Path:
        return self._found(path) or _refuse("it lies outside of the working folder", path)

    @contextlib.contextmanager
    def _opened(self, path: str, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
        """A file of the folder, not yet emptied. RequestError.

        It is looked at again once it is open: its agent may have put a link in its way meanwhile.
        """
        file = self._inside(path)
        try:
            if mode == "wb":
                file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, mode, opener=_open) as opened:
                found = os.fstat(opened.fileno())
                is_that = os.path.samestat(found, self._inside(path).stat())
                if not is_that or not stat.S_ISREG(found.st_mode):
                    _refuse("it is no file", path)
                yield opened
        except FileNotFoundError as error:
            raise RequestError.resource_not_found(path) from error
        except OSError as error:
            _refuse(str(error), path)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC | _OPEN_FLAGS, 0o666)


def _option(options: Sequence[PermissionOption], kinds: Sequence[str]) -> PermissionOption | None:
    """The first option of the first of these kinds that there is."""
    return next((one for kind in kinds for one in options if one.kind == kind), None)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value: where tools name what they read beside `locations`."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, (dict, list)):
            left.extend(one.values() if isinstance(one, dict) else one)


def _refuse(why: str, path: str = "") -> NoReturn:
    details = f"{path}: {why}" if path else why
    raise RequestError(-32602, f"arena refuses: {details}", {"details": details})
