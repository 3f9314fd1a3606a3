"""Call any agent that speaks the Agent Client Protocol (kind `acp`, agentclientprotocol.com).

Each agent has one process per session of arena. The process is kept alive between the calls and
driven by the protocol's official SDK. An agent continues its own session if the input allows it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from arena_cli.adapters.base import Adapter, Health, Settings, Setup, ToolWay
from arena_cli.adapters.coding_agents import is_dead_session, report_lost_session
from arena_cli.adapters.coding_clis.kinds import PRESETS, AcpPreset
from arena_cli.adapters.process import diagnosis, run
from arena_cli.adapters.process.run import ProgramSettings
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError, AgentProtocolError, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, CallNote, Emit
from arena_cli.util import process_signals

if TYPE_CHECKING:
    from arena_cli.adapters.acp.call import PromptCall
    from arena_cli.adapters.acp.client import AgentLink


SILENT_LIMIT_S = 30.0
TEXT_LIMIT_S = 5.0

INSTALL = process_signals.describe_install("acp")


class AcpSettings(ProgramSettings):
    """The keys of `adapter: {type: acp, ...}`.

    `preset` names a known agent. `command` starts any other agent, or replaces the preset's command
    (no shell reads it). `permissions` decides the agent's requests: refuse all, allow reading in
    `cwd`, allow that and ask (`approvals` decide), or allow all.
    """

    command: Annotated[list[str], Field(min_length=1)] | None = None
    preset: Literal["claude", "codex", "gemini", "cursor", "opencode"] | None = None
    permissions: Literal["deny", "read", "ask", "allow"] = "deny"
    model: Annotated[str, Field(min_length=1)] | None = None

    @classmethod
    def takes_tools(cls, keys: Mapping[str, Any]) -> ToolWay:  # noqa: ARG003 - it is always so
        """Return that its program calls MCP servers."""
        return "mcp"

    @classmethod
    def command_line(cls, keys: Mapping[str, Any]) -> list[str]:
        """Return the command, by default that of the preset."""
        preset = PRESETS.get(str(keys.get("preset")), AcpPreset())
        return super().command_line({"command": keys.get("command") or list(preset.command)})

    @classmethod
    def identify_powers(cls, keys: Mapping[str, Any]) -> str:
        """Return its permissions if the profile sets them."""
        permissions = keys.get("permissions")
        return f"permissions: {permissions}" if permissions else ""

    @classmethod
    def describe_powers(cls, keys: Mapping[str, Any]) -> str:
        """Return what its permission requests are answered."""
        answers = {
            "read": f"may read and search in {keys.get('cwd') or '.'}",
            "ask": f"may read and search in {keys.get('cwd') or '.'}; it asks arena for all else",
            "allow": "may do all that it asks for",
        }
        nothing = "may do nothing that it asks for"
        return answers.get(str(keys.get("permissions")), nothing)

    @model_validator(mode="after")
    def _names_one_agent(self) -> AcpSettings:
        if self.command is None and self.preset is None:
            raise ValueError("set either command or preset")
        return self


class AcpAdapter(Adapter):
    """An agent of the Agent Client Protocol, called once at a time."""

    settings_type: ClassVar[type[Settings]] = AcpSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: AcpSettings = setup.settings
        self._preset = PRESETS.get(self._settings.preset or "", AcpPreset())
        self._command = [*(self._settings.command or self._preset.command), *self._settings.args]
        if self._settings.model and self._preset.model:
            self._command += [*self._preset.model, self._settings.model]
        self._asked = shlex.join(self._command)
        self._link: AgentLink | None = None
        self._call: PromptCall
        self._one_at_a_time = asyncio.Lock()

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Send a prompt in the session of `own_session`, or in a new one if that is lost."""
        async with self._one_at_a_time:
            try:
                return await self._answer_anyway(input, emit)
            except asyncio.CancelledError:
                link, self._link = self._link, None
                if link is not None:
                    emit(CallNote({"waited_for": link.method, **link.wire.notes()}))
                    await link.cut_off()
                raise
            except ConnectionError as error:
                raise await self._broken() from error

    async def health(self) -> Health:
        """Check that the program and the SDK are installed, without running anything.

        A login is not checked.
        """
        try:
            self._program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        if importlib.util.find_spec("acp") is None:
            return Health(ok=False, detail=f"its protocol's library is missing; {INSTALL}")
        return Health(ok=True)

    async def stop(self) -> None:
        """End the process."""
        link, self._link = self._link, None
        if link is not None:
            await link.stop()

    async def _answer_anyway(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Answer in a new session if the agent dies when it resumes its own, or right after."""
        try:
            return await self._answer(input, emit)
        except ConnectionError:
            if input.own_session is None or self._link is None or not self._link.is_untried:
                raise
        failure = await self._broken()
        if not is_dead_session(failure):
            raise failure
        report_lost_session(emit, input.own_session.id, failure.what)
        return await self._answer(input.afresh(), emit)

    async def _answer(self, input: AgentInput, emit: Emit) -> AgentOutput:
        program = self._program()
        run.prepare_folder(self._setup.workspace, self._settings.cwd)
        try:
            from arena_cli.adapters.acp import call, client  # noqa: PLC0415 - it loads the SDK
        except ImportError as error:
            raise self._unavailable("its protocol's library is missing", INSTALL) from error
        if self._link is not None and not await self._link.is_well():
            await self._end()
        if self._link is not None:
            self._link.wire.forget()
            self._call = call.PromptCall(self._link, self._setup, self._preset, self._asked, emit)
        else:
            process = await run.start_program(program, self._asked)
            answering = client.Client(self._settings.permissions, program.cwd)
            self._link = client.AgentLink(process, answering, self._preset.retries)
            self._call = call.PromptCall(self._link, self._setup, self._preset, self._asked, emit)
            try:
                await self._introduced(self._link, self._call.introduce())
            except AgentError:
                await self._end()
                raise
        return await self._call.answer(input)

    async def _introduced(self, link: AgentLink, exchange: Awaitable[None]) -> None:
        """Wait for the first exchange, for a shorter time if the program writes other text."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SILENT_LIMIT_S) as limit:

                def end_if_it_writes_text() -> None:
                    if link.wire.notes().get("log") and not limit.expired():
                        limit.reschedule(loop.time())

                timer = loop.call_later(TEXT_LIMIT_S, end_if_it_writes_text)
                try:
                    await exchange
                finally:
                    timer.cancel()
        except TimeoutError as error:
            notes = link.wire.notes()
            raise AgentProtocolError(
                self._setup.agent_id,
                "its program does not answer in the Agent Client Protocol",
                asked=f"{self._asked} ({link.method})",
                came=diagnosis.list_last_lines(notes.get("log") or notes.get("stderr", "")),
                mend="check that the command starts an agent of this protocol, as in "
                "command: [gemini, --acp]; for other programs use `type: cli`",
                metadata=notes,
            ) from error

    def _program(self) -> Program:
        """Return the program to start. Raises AgentUnavailable if it is not installed."""
        setup, settings = self._setup, self._settings
        path = run.locate_program(
            self._command[0],
            settings.cwd,
            agent_id=setup.agent_id,
            workspace=setup.workspace,
            environ=setup.environ,
            key="command",
            asked=self._asked,
            install=self._preset.install,
        )
        environ = run.build_environment(setup.environ, self._environment())
        environ = {**self._preset.retry_environ(environ), **environ}
        if setup.servers and self._preset.servers_environ:
            environ |= self._preset.servers_environ(setup.servers, setup.agent_id, environ)
        return Program(
            argv=[str(path), *self._command[1:]],
            cwd=(setup.workspace / settings.cwd).resolve(),
            environ=environ,
            records=setup.records,
            agent=setup.agent_id,
        )

    def _environment(self) -> dict[str, str]:
        careful = {} if self._settings.permissions == "allow" else self._preset.careful
        waits = self._preset.waits if self._setup.servers else {}
        return {**self._preset.environ, **waits, **careful, **self._settings.env}

    async def _end(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.end()

    async def _broken(self) -> AgentError:
        """Return the error for an agent that ended or closed its output during a call."""
        link, self._link = self._link, None
        if link is None:
            return self._unavailable("its program is no longer running", "call it again")
        reason = await link.how_it_ended()
        notes: dict[str, Any] = link.wire.notes()
        if link.wire.retried:
            return self._call.retry_failure()
        mend = "the next call starts it again"
        if link.method == "initialize":
            mend = "check that the command starts an agent that supports the Agent Client Protocol"
        return AgentProtocolError(
            self._setup.agent_id,
            f"its program {reason} before it answered {link.method}",
            asked=self._asked,
            came=diagnosis.list_last_lines(notes.get("stderr") or notes.get("log", "")),
            mend=mend,
            metadata=notes,
        )

    def _unavailable(self, problem: str, mend: str) -> AgentUnavailable:
        return AgentUnavailable(self._setup.agent_id, problem, asked=self._asked, mend=mend)
