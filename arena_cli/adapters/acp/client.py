"""Answer the requests of an agent of the Agent Client Protocol.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, cast

import acp
from acp import RequestError
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    PermissionOption,
    PromptResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    SessionCapabilities,
    SessionNotification,
    ToolCallUpdate,
    WriteTextFileResponse,
)
from pydantic import ValidationError

import arena_cli
from arena_cli.adapters import permission_requests
from arena_cli.adapters.acp.turn import (
    PromptTurn,
    describe_acp_act,
    describe_acp_tool,
    list_changes,
)
from arena_cli.adapters.coding_agents import ToolUse, shorten_path
from arena_cli.adapters.mcp_servers import is_own_tool
from arena_cli.adapters.permission_requests import Change
from arena_cli.adapters.process import run
from arena_cli.adapters.process.output import LineSplitter, OtherOutput
from arena_cli.adapters.process.spawn import Process, ProcessEvent
from arena_cli.util.text import clean_value, decode_output

Permissions = Literal["deny", "read", "ask", "allow"]

_OUTSIDE = "it lies outside of the working folder"
_LONGEST_FILE = 10_000_000
_MOST_READ = 50_000_000  # for one answer: an agent may ask for more than it ever takes
_READING = frozenset({"read", "search"})
_ONCE = ("allow_once",)
_YES = ("allow_once", "allow_always")
_NO = ("reject_once", "reject_always")
# A pipe is not waited for, and a link that was not there before is not followed.
_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


class Client:
    """The client side of one agent; `permissions` of the profile decide its requests.

    Only files below `folder` can be read or written. `turn` is the prompt that is not answered yet,
    or None; `read` counts the bytes of files sent to the agent for this answer.
    """

    def __init__(self, permissions: Permissions, folder: Path) -> None:
        self.turn: PromptTurn | None = None
        self.read = 0
        self.permissions = permissions
        self._folder = folder.resolve()

    def updated(self, params: dict[str, Any]) -> None:
        """Pass on an update of the agent's work; drop one that belongs to no open prompt.

        An update of a kind that the SDK does not know is dropped, too.
        """
        if self.turn is None:
            return
        with contextlib.suppress(ValidationError):
            notification = SessionNotification.model_validate(params)
            if notification.session_id == self.turn.session_id:
                self.turn.take(notification.update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse:
        """Grant or refuse a permission, for this request only if the agent offers that."""
        turn = self.turn if self.turn and self.turn.session_id == session_id else None
        seen = turn.use(tool_call) if turn else tool_call
        allowed = self._allows(seen)
        yes: tuple[str, ...] = _YES
        if turn and not allowed and self.permissions == "ask" and _option(options, _ONCE):
            allowed, yes = await self._permits(turn, seen), _ONCE
        elif turn and not allowed:
            turn.refuse(describe_acp_tool(seen, self._folder))
        chosen = _option(options, yes if allowed else _NO)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def read_text_file(
        self, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        """Return the content of a file, or `limit` lines of it from `line` (from 1) on."""
        if self.permissions == "deny":
            self._refuse_file("read", path, "this agent may not read files")
        if self._found(path) is None:
            self._refuse_file("read", path, _OUTSIDE)
        with self._opened(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > _LONGEST_FILE:
                _refuse(f"it is longer than {_LONGEST_FILE // 1_000_000} MB", path)
            data = file.read(_LONGEST_FILE)
        self.read += len(data)
        if self.read > _MOST_READ:
            _refuse(f"it has read {_MOST_READ // 1_000_000} MB for this answer", path)
        content, _replaced = decode_output(data)
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            lines = io.StringIO(content, newline="\n").readlines()
            content = "".join(lines[first : None if limit is None else first + limit])
        return ReadTextFileResponse(content=content)

    async def write_text_file(self, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        """Write a file below the folder."""
        if self.permissions not in ("ask", "allow"):
            self._refuse_file("write", path, "this agent may not write files")
        if self._found(path) is None:
            self._refuse_file("write", path, _OUTSIDE)
        if self.permissions == "ask":
            await self._ask_to_write(path, content)
        with self._opened(path, "wb") as file:
            file.write(content.encode("utf-8", "replace"))
            file.truncate()
        return WriteTextFileResponse()

    async def create_terminal(self, **_: Any) -> NoReturn:
        """Refuse to create a terminal: without this, the SDK would return an empty one."""
        raise RequestError.method_not_found("terminal/create")

    def _allows(self, tool: ToolCallUpdate) -> bool:
        """Return True if the permissions allow this use of a tool by themselves.

        arena's own tools are always allowed: arena itself asks people where they must decide.
        `read` and `ask` allow tools that read and search, if they name no path outside of the
        folder and run no command.
        """
        if tool.kind in (None, "other") and is_own_tool(tool.title or ""):
            return True
        if self.permissions in ("deny", "allow"):
            return self.permissions == "allow"
        arguments = tool.raw_input
        is_command = isinstance(arguments, dict) and "command" in arguments
        places = [location.path for location in tool.locations or []]
        mentioned_paths = (*places, *_texts(arguments))
        return tool.kind in _READING and not is_command and all(map(self._found, mentioned_paths))

    async def _permits(self, turn: PromptTurn, tool: ToolCallUpdate) -> bool:
        """Return True if a use of a tool is allowed now; note what it may write."""
        use = describe_acp_tool(tool, self._folder)
        permission = await turn.permit(describe_acp_act(tool, self._folder), use)
        if permission.verdict != "allowed":
            return False
        turn.granted |= {
            str(self._found(path)): new_text for path, _, new_text in list_changes(tool)
        }
        return True

    async def _ask_to_write(self, path: str, content: str) -> None:
        """Return if a file may be written, by a permission before or one now. Raises RequestError.

        A permission covers the content that it showed, once.
        """
        prompt = self.turn
        if prompt is None:
            _refuse("no reply is open", path)
        if prompt.granted.pop(str(self._found(path)), None) == content:
            return
        old_text = permission_requests.read_before(path, self._folder)
        change = Change(path, old_text or "", content)
        request = permission_requests.describe_edit("write", [], [change], {}, self._folder)
        use = ToolUse("write", shorten_path(path, self._folder))
        permission = await prompt.permit(request, use)
        if permission.verdict != "allowed":
            _refuse(permission_requests.explain(permission), path)

    def _found(self, path: str) -> Path | None:
        """Return the path with its links resolved; None if it is outside of the folder."""
        try:
            resolved = (self._folder / Path(path).expanduser()).resolve()
        except (OSError, ValueError, RuntimeError):
            return None
        is_inside = resolved.is_relative_to(self._folder) and not path.startswith("file:")
        return resolved if is_inside else None

    def _refuse_file(self, tool: str, path: str, reason: str) -> NoReturn:
        """Refuse to read or write a file for the agent, and report it."""
        if self.turn is not None:
            self.turn.refuse(ToolUse(tool, shorten_path(path, self._folder)))
        _refuse(reason, path if reason == _OUTSIDE else "")

    def _inside(self, path: str) -> Path:
        return self._found(path) or _refuse(_OUTSIDE, path)

    @contextlib.contextmanager
    def _opened(self, path: str, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
        """Open a file below the folder, not yet truncated. Raises RequestError.

        The path is checked again after opening, since the agent may have replaced it by a link.
        """
        file = self._inside(path)
        try:
            if mode == "wb":
                file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, mode, opener=_open) as opened:
                status = os.fstat(opened.fileno())
                is_that = os.path.samestat(status, self._inside(path).stat())
                if not is_that or not stat.S_ISREG(status.st_mode):
                    _refuse("it is no file", path)
                yield opened
        except FileNotFoundError as error:
            raise RequestError.resource_not_found(path) from error
        except OSError as error:
            _refuse(str(error), path)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC | _OPEN_FLAGS, 0o666)


def _option(options: Sequence[PermissionOption], kinds: Sequence[str]) -> PermissionOption | None:
    """Return the first option of the first of these kinds that is offered."""
    return next((option for kind in kinds for option in options if option.kind == kind), None)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value: tools may name the files that they read in any of them."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, (dict, list)):
            pending.extend(item.values() if isinstance(item, dict) else item)


def _refuse(reason: str, path: str = "") -> NoReturn:
    details = f"{path}: {reason}" if path else reason
    raise RequestError(-32602, f"arena refuses: {details}", {"details": details})


MOST_OUTPUT_MB = 256
CANCEL_GRACE_S = 0.5
STOP_GRACE_S = 0.5
_END_GRACE_S = 1.0
# How often the event loop looks at the pipes before an end that lies behind has been told.
_LOOKS = 8


class AgentLink:
    """The connection to an agent's process.

    `session` is the id of the open session, "" if none is open; `is_untried` says that the session
    was resumed, and that the agent has done nothing in it since; `answer` is the response to
    `initialize`; `spent_usd` is the cost of the session so far, None if it is not known; `method`
    is the last requested method; `prompting` is the last prompt, answered or not. A line of stderr
    that `retries` matches ends the process: it would retry by itself for long.
    """

    def __init__(self, running: Process, client: Client, retries: str) -> None:
        self.answer = InitializeResponse(protocol_version=0)
        self.session = ""
        self.is_untried = False
        self.spent_usd: float | None = None
        self.method = ""
        self.prompting: asyncio.Future[PromptResponse] | None = None
        self.client = client
        self.wire = _Wire(running, client, retries)
        self._process = running
        # `Client` has what arena offers; the SDK answers the rest with "method not found".
        self._connection = acp.connect_to_agent(
            cast("acp.Client", client), self.wire, use_unstable_protocol=True
        )

    def ask(self, method: str) -> ClientSideConnection:
        """Set the current method, and return the connection to request it on."""
        self.method = method
        return self._connection

    async def introduce(self, *, with_files: bool) -> None:
        """Exchange names, versions and capabilities with the agent."""
        permissions = self.client.permissions
        files = FileSystemCapabilities(
            read_text_file=with_files and permissions != "deny",
            write_text_file=with_files and permissions in ("ask", "allow"),
        )
        self.answer = await self.ask("initialize").initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(fs=files),
            client_info=Implementation(name="arena", version=arena_cli.__version__),
        )

    @property
    def loads(self) -> bool:
        """True if the agent can load a session."""
        can = self.answer.agent_capabilities
        return isinstance(can, AgentCapabilities) and bool(can.load_session)

    @property
    def sessions(self) -> SessionCapabilities:
        """The session capabilities of the agent."""
        capabilities = getattr(self.answer.agent_capabilities, "session_capabilities", None)
        return (
            capabilities if isinstance(capabilities, SessionCapabilities) else SessionCapabilities()
        )

    async def is_well(self) -> bool:
        """Return True if the agent runs and its output is still read."""
        for _ in range(_LOOKS):
            await asyncio.sleep(0)
        return self._process.returncode is None and not self.wire.over.is_set()

    async def how_it_ended(self) -> str:
        """End an agent that broke off a call, and describe how it ended."""
        if self.wire.fault:
            await self.end()
            return self.wire.fault
        await self._process.wait_exit(_END_GRACE_S)
        code = self._process.returncode
        await self.end()
        return run.describe_exit(code)

    async def cut_off(self) -> None:
        """Cancel the agent's prompt, give it a moment, and end it."""
        prompting = self.prompting
        try:
            if prompting is not None and not prompting.done():
                await self._connection.cancel(session_id=self.session)
                await asyncio.wait({prompting}, timeout=CANCEL_GRACE_S)
        finally:
            if prompting is not None:
                prompting.cancel()
            await self.end()

    async def stop(self) -> None:
        """Close the agent's stdin, wait a moment for it to end, then end it."""
        self._process.write(b"")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                await self.wire.over.wait()
        await self.end()

    async def end(self) -> None:
        """End the agent's whole process tree at once."""
        try:
            await self._process.end()
        finally:
            await self._connection.close()


class _Wire:
    """The SDK's `Transport` over a process: one JSON message per line, each way.

    It drops messages that the SDK would report in its log, since the SDK logs to stderr.
    """

    def __init__(self, running: Process, client: Client, retries: str) -> None:
        self.over = asyncio.Event()
        self.fault = ""
        self.retried = ""
        self._retries = re.compile(retries) if retries else None
        self._stderr_lines = LineSplitter()
        self._other = OtherOutput()
        self._process = running
        self._client = client
        self._prompt_id: object = None
        self._messages: Iterator[dict[str, Any]] = iter(())
        self._lines = LineSplitter()
        self._size = 0

    def notes(self) -> dict[str, Any]:
        """Return the other output of the current call, if any: `log` (on stdout) and `stderr`."""
        return self._other.notes()

    def forget(self) -> None:
        """Discard the output of the last call, before the next one."""
        self._other, self._size = OtherOutput(), 0
        self._client.read = 0

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; `receive` reports an agent that has ended."""
        if message.get("method") == "session/prompt":
            self._prompt_id = message["id"]
        line = json.dumps(message, separators=(",", ":"), default=str)
        self._process.write(line.encode("ascii") + b"\n", last=False)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request or response; None at the end of the output."""
        has_exited = False
        while True:
            for message in self._messages:
                if (sdk_message := self._for_sdk(message)) is not None:
                    return sdk_message
            event = None
            if not (self.fault or self.retried):
                event = await self._process.event(_END_GRACE_S if has_exited else None)
            if event is None or (event.source == "stdout" and not event.data):
                self.over.set()
                return None
            has_exited = has_exited or event.source == "exit"
            self._messages = self._read(event)

    async def close(self) -> None:
        """Do nothing: `AgentLink` ends the process."""

    def _read(self, event: ProcessEvent) -> Iterator[dict[str, Any]]:
        """Yield the messages that this event completes."""
        if event.source == "stderr":
            self._other.stderr.add_bytes(event.data)
            if self._retries and not self.retried:
                for line in self._stderr_lines.feed(event.data):
                    match = self._retries.search(line.decode("utf-8", "replace"))
                    if match and not self.retried:
                        self.retried = match["message"]
        if event.source != "stdout":
            return
        self._size += len(event.data)
        if self._size > MOST_OUTPUT_MB * 1_000_000:
            self.fault = f"wrote more than {MOST_OUTPUT_MB} MB"
        for line in self._lines.feed(event.data):
            if (message := self._other.read_object(line)) is not None:
                yield clean_value(message)[0] if b"\\u" in line else message

    def _for_sdk(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the message if it is for the SDK; handle updates, drop other notifications."""
        has_id = isinstance(message.get("id"), (int, str))
        if "method" in message:
            raw_params = message.get("params")
            params = raw_params if isinstance(raw_params, dict) else {}
            if has_id and isinstance(message["method"], str):
                # The SDK would take what stands in `_meta` for parameters that it has checked.
                checked = {name: value for name, value in params.items() if name != "_meta"}
                return {**message, "params": checked}
            if message["method"] == "session/update":
                self._client.updated(params)
            return None
        if not has_id:
            return None
        if message["id"] == self._prompt_id:
            self._client.turn = None  # what comes later is no part of the answer
        error = message.get("error")
        if error is None or isinstance(error, dict):
            return message
        return {"id": message["id"], "error": {"code": -32603, "message": str(error)}}
