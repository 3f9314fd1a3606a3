"""A running agent of the Agent Client Protocol: arena's process, spoken to by the SDK.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any, cast

import acp
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    PromptResponse,
    SessionCapabilities,
)

import arena_cli
from arena_cli.adapters.acp.acp_client import Client, Permissions
from arena_cli.adapters.processes import json_lines, process, programs
from arena_cli.adapters.processes.json_lines import Lines
from arena_cli.adapters.processes.process import Event, Process, Program
from arena_cli.adapters.processes.tail import ByteTail, Tail
from arena_cli.ground import text as texts

MOST_OUTPUT_MB = 256
CANCEL_GRACE_S = 0.5
STOP_GRACE_S = 0.5
_END_GRACE_S = 1.0
# How often the event loop looks at the pipes before an end that lies behind has been told.
_LOOKS = 8


class Link:
    """One process of an agent. `session` is the one that is open in it, "" if none is.

    `answer` is what the agent said of itself; `spent_usd` what its session has cost so far, None
    where it is not known; `method` what was asked last; `prompting` the last prompt, answered or
    not.
    """

    def __init__(self, running: Process, client: Client) -> None:
        self.answer = InitializeResponse(protocol_version=0)
        self.session = ""
        self.spent_usd: float | None = None
        self.method = ""
        self.prompting: asyncio.Future[PromptResponse] | None = None
        self.client = client
        self.wire = _Wire(running, client)
        self._process = running
        # `Client` has what arena offers; the SDK answers the rest with "method not found".
        self._connection = acp.connect_to_agent(
            cast("acp.Client", client), self.wire, use_unstable_protocol=True
        )

    def ask(self, method: str) -> ClientSideConnection:
        """The agent, to be asked for this now."""
        self.method = method
        return self._connection

    async def introduce(self, *, with_files: bool) -> None:
        """The first exchange: who is there, and what each side can."""
        permissions = self.client.permissions
        files = FileSystemCapabilities(
            read_text_file=with_files and permissions != "deny",
            write_text_file=with_files and permissions == "allow",
        )
        self.answer = await self.ask("initialize").initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(fs=files),
            client_info=Implementation(name="arena", version=arena_cli.__version__),
        )

    @property
    def loads(self) -> bool:
        """Whether the agent can load a session."""
        can = self.answer.agent_capabilities
        return isinstance(can, AgentCapabilities) and bool(can.load_session)

    @property
    def sessions(self) -> SessionCapabilities:
        """What else the agent can do with sessions; the SDK lets through what is none of these."""
        found = getattr(self.answer.agent_capabilities, "session_capabilities", None)
        return found if isinstance(found, SessionCapabilities) else SessionCapabilities()

    async def is_well(self) -> bool:
        """Whether the agent still runs and is listened to."""
        for _ in range(_LOOKS):
            await asyncio.sleep(0)
        return self._process.returncode is None and not self.wire.over.is_set()

    async def how_it_ended(self) -> str:
        """What became of an agent that went away in the middle of a call; it is ended."""
        if self.wire.fault:
            await self.end()
            return self.wire.fault
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_GRACE_S):
                while self._process.returncode is None:
                    await self._process.event()
        code = self._process.returncode
        await self.end()
        if code is None:
            return "closed its stdout"
        return programs.how_it_ended(code) if code else "ended"

    async def cut_off(self) -> None:
        """Tell the agent that its prompt is cancelled, give it a moment, and end it."""
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
        """End the agent, which may first end in peace: its stdin is closed."""
        self._process.write(b"")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                await self.wire.over.wait()
        await self.end()

    async def end(self) -> None:
        """End the agent's whole tree now."""
        try:
            await self._process.end()
        finally:
            await self._connection.close()


async def start(program: Program, permissions: Permissions) -> Link:
    """The agent as a new process. Raises OSError and ValueError where it cannot be started."""
    return Link(await process.start(program), Client(permissions, program.cwd))


class _Wire:
    """The SDK's `Transport` over a process: one JSON message a line, each way.

    What the SDK would answer with a line in its log, it never sees: it logs to stderr.
    """

    def __init__(self, running: Process, client: Client) -> None:
        self.over = asyncio.Event()
        self.fault = ""
        self.log = Tail()
        self.stderr = ByteTail()
        self._process = running
        self._client = client
        self._prompt_id: object = None
        self._messages: Iterator[dict[str, Any]] = iter(())
        self._lines = Lines()
        self._size = 0

    def notes(self) -> dict[str, Any]:
        """What stood beside the messages since `forget`: `log` (on stdout) and `stderr`."""
        notes = {"log": self.log.text, "stderr": self.stderr.text}
        return {name: note for name, note in notes.items() if note}

    def forget(self) -> None:
        """Begin a call."""
        self.log, self.stderr, self._size = Tail(), ByteTail(), 0
        self._client.read = 0

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; one to an agent that is gone is told by `receive`."""
        if message.get("method") == "session/prompt":
            self._prompt_id = message["id"]
        line = json.dumps(message, separators=(",", ":"), default=str)
        self._process.write(line.encode("ascii") + b"\n", last=False)

    async def receive(self) -> dict[str, Any] | None:
        """The next request or response; None when no more comes."""
        has_exited = False
        while True:
            for message in self._messages:
                if (whole := self._for_sdk(message)) is not None:
                    return whole
            event = None
            if not self.fault:
                event = await self._process.event(_END_GRACE_S if has_exited else None)
            if event is None or (event.source == "stdout" and not event.data):
                self.over.set()
                return None
            has_exited = has_exited or event.source == "exit"
            self._messages = self._read(event)

    async def close(self) -> None:
        """Nothing: the process is ended by who started it."""

    def _read(self, event: Event) -> Iterator[dict[str, Any]]:
        """The messages that are whole with this event."""
        if event.source == "stderr":
            self.stderr.add(event.data)
        if event.source != "stdout":
            return
        self._size += len(event.data)
        if self._size > MOST_OUTPUT_MB * 1_000_000:
            self.fault = f"wrote more than {MOST_OUTPUT_MB} MB"
        for line in self._lines.feed(event.data):
            if (message := self._message(line)) is not None:
                yield message

    def _message(self, line: bytes) -> dict[str, Any] | None:
        """The JSON object that a line is; what is none is kept in the log."""
        value, text, _ = json_lines.read(line)
        if value is None and text:
            self.log.add(text + "\n")
        return value if value is None or "\\u" not in text else texts.clean_value(value)[0]

    def _for_sdk(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """A message that the SDK can take; updates are told here, other notifications dropped."""
        has_id = isinstance(message.get("id"), (int, str))
        if "method" in message:
            found = message.get("params")
            params = found if isinstance(found, dict) else {}
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
