"""Start, call and stop the agents of one session, and read their output.

All output of an adapter passes here, once: it is redacted, cleaned and read before any of it is
shown, stored or hashed. A session has a list of middlewares (recording, replay, limits), which
calls pass from the first to the last; the last one's `call_next` is the adapter itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from arena_cli.adapters.base import (
    Adapter,
    HandedServer,
    Health,
    SessionConfig,
    Setup,
    find_tool_way,
)
from arena_cli.adapters.reading import read
from arena_cli.chat import Renderer
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentUnavailable,
    DiskRefused,
    UsageError,
)
from arena_cli.protocol import (
    COMPLETE_TASK,
    COST_NOT_TAKEN,
    AgentInput,
    AgentOutput,
    AgentReport,
    CallNote,
    Permission,
    PermissionRequest,
    RefusedAction,
    SessionId,
    StatusEvent,
    TextDelta,
    ToolResult,
    ToolSpec,
    Usage,
)
from arena_cli.util.redaction import GrowingText, Redactor
from arena_cli.util.text import clean_text, clean_value, cut_raw
from arena_cli.util.user_pattern import PatternTimeout
from arena_cli.workspace import agents
from arena_cli.workspace.agents import FALLBACK
from arena_cli.workspace.models import Member
from arena_cli.yamlio.schema_errors import explain_first

HEALTH_LIMIT_S = 20.0
STOP_LIMIT_S = 20.0

_NOT_ASKED = "not checked; use `--connect` to check it"
# Settings on which it does not hang whether an agent is there.
_NO_PLACES = frozenset({"api_key", "env", "headers"})
_SCRIPT_NOTE = "scripted"  # the note on the entry of a script that answered
# The fields of an output's parts that may have secrets.
_PARTS_TO_REDACT = {
    "status_updates": ("detail",),
    "structured": ("data",),
    "tool_calls": ("arguments", "problem"),
}


@dataclass
class Heard:
    """The redacted reports of an agent at work: its text so far and notes on the call.

    `session_id` names the session that the agent keeps for itself, if it told one; `usage` is what
    it used if it fails, `earlier_usage` what the attempts before it did; `refused` are the actions
    that were not allowed, `earlier_refused` those of the attempts before. `on_text` receives the
    end of its text so far, without what may be the beginning of a secret, and `on_delta` each piece
    of it. `on_permit` decides what the agent may do; without it, everything is denied. `permits`
    are its requests and the answers.
    """

    redactor: Redactor
    on_status: Callable[[StatusEvent], None]
    on_text: Callable[[str], None] | None = None
    on_delta: Callable[[str], None] | None = None
    on_permit: Callable[[PermissionRequest], Awaitable[Permission]] | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    session_id: SessionId | None = None
    usage: Usage | None = None
    earlier_usage: list[Usage] = field(default_factory=list)
    refused: list[RefusedAction] = field(default_factory=list)
    earlier_refused: list[RefusedAction] = field(default_factory=list)
    permits: list[tuple[PermissionRequest, Permission]] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _growing: GrowingText | None = None
    _earlier: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, item: AgentReport, /) -> None:
        if isinstance(item, TextDelta):
            self._text.append(item)
            if self.on_text or self.on_delta:
                self._grow(item)
        elif isinstance(item, StatusEvent):
            self.on_status(item.model_copy(update={"detail": self._edge(item.detail)}))
        elif isinstance(item, SessionId):
            self.session_id = SessionId(self._edge(str(item)), self._edge(dict(item.state)))
        elif isinstance(item, Usage):
            self.usage, cost = item.of_one_call()
            if cost is not None:
                self.notes[COST_NOT_TAKEN] = f"{cost:g}"
        elif isinstance(item, RefusedAction):
            self.refused.append(RefusedAction(**self._edge(item.model_dump())))
        else:
            self.notes.update(cut_raw(self._edge(dict(item))))

    def _grow(self, item: TextDelta) -> None:
        self._growing = self._growing or GrowingText(self.redactor)
        try:
            piece = self._growing.feed(item)
        except PatternTimeout:
            self.on_text = self.on_delta = None  # what is not redacted is not shown
            return
        if piece and self.on_text:
            self.on_text(self._growing.tail)
        if piece and self.on_delta:
            self.on_delta(piece)

    async def permit(self, request: PermissionRequest, /) -> Permission:
        """Return the decision of `on_permit` about the redacted request.

        A request that cannot be redacted is denied: it must not be shown.
        """
        if self.on_permit is None:
            permission = Permission("denied", "nobody decides here")
        else:
            try:
                fields = self.redactor.value(clean_value(request.model_dump())[0])
                request = PermissionRequest(**fields)
            except PatternTimeout as error:
                return Permission("denied", f"the request cannot be redacted: {error.what}")
            permission = await self.on_permit(request)
        self.permits.append((request, permission))
        return permission

    def forget(self) -> None:
        """Reset for another attempt; keep the notes as those of an earlier attempt."""
        self._earlier.append(dict(self.notes))
        self.notes.clear()
        self.session_id = None
        self.earlier_usage += [self.usage] if self.usage else []
        self.usage = None
        self.earlier_refused += self.refused
        self.refused = []
        self.permits = []
        self._text.clear()
        self._growing = None

    def list_usage(self) -> list[Usage]:
        """Return the usage of the attempts so far, where it is known."""
        return [*self.earlier_usage, *([self.usage] if self.usage else [])]

    def metadata(self, *, failed: bool) -> dict[str, Any]:
        """Return the notes; of a failed call with the text received so far (`partial`).

        `earlier_attempts` are the notes on those that failed before.
        """
        metadata = dict(self.notes)
        partial = self._edge("".join(self._text)) if failed else ""
        if partial:
            metadata["partial"] = partial
        if any(self._earlier):
            metadata["earlier_attempts"] = list(self._earlier)
        return metadata

    def _edge(self, value: Any) -> Any:
        return self.redactor.value_or_nothing(clean_value(value)[0])


class Answer(NamedTuple):
    """An agent's answer as read: its output, and whether it declined."""

    output: AgentOutput
    declined: bool


class ToolRequest(NamedTuple):
    """A call of a tool: the agent and its reply, and the number of the call in it (`2.1`)."""

    member: Member
    reply: int
    call: str
    tool: str
    arguments: Mapping[str, Any]


class ToolAnswer(NamedTuple):
    """What a tool gave, redacted; `usage` is that of an agent that was called as a tool.

    `diff` is the unified diff of the files that it changed.
    """

    result: ToolResult
    diff: str = ""
    usage: Usage | None = None


ToolNext = Callable[[ToolRequest], Awaitable[ToolAnswer]]
SpecsNext = Callable[[Member], Awaitable[list[ToolSpec]]]


class Runtime:
    """The adapters of a session by agent; `used` returns the scripted entries an agent used up.

    Programs reach arena's own tools by the name of the `session`, if it has one.
    """

    def __init__(
        self,
        config: SessionConfig,
        *,
        scratch: Path,
        records: Path,
        renderer: Renderer,
        redactor: Redactor,
        used: Callable[[str], frozenset[int]] = lambda _: frozenset(),
        session: str = "",
    ) -> None:
        self.redactor = redactor
        self._session = session
        self._config = config
        self._scratch = scratch
        self._records = records
        self._renderer = renderer
        self._used = used
        self._running: dict[tuple[str, int, str], Adapter] = {}

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """Return the answer of the first adapter that is neither unavailable nor overloaded.

        The others are those of `fallback`. Raises AgentError (redacted), and DiskRefused if
        `heard` does.
        """
        failures: list[str] = []
        adapters = agents.list_adapters(member.profile.adapter)
        call_input = input
        for number, settings in enumerate(adapters):
            if number:
                heard.forget()
                call_input = input.afresh()  # another adapter does not know the agent's session
                model = {"model": settings["model"]} if "model" in settings else {}
                note = {"number": number, "type": settings["type"], **model, "because": [*failures]}
                heard(CallNote({FALLBACK: note}))
            try:
                answer = await self._call(member, heard, number, call_input)
            except (AgentUnavailable, AgentOverloaded) as error:
                if number + 1 == len(adapters):
                    raise
                failures.append(str(error))
                continue
            if number:  # its session and its script are not those of the first adapter
                heard.session_id = None
                heard.notes.pop(_SCRIPT_NOTE, None)
                answer.output.metadata.pop(_SCRIPT_NOTE, None)
            return answer
        raise AssertionError("an agent has an adapter")

    async def _call(self, member: Member, heard: Heard, number: int, input: AgentInput) -> Answer:
        """Call the adapter of that number: 0 is the first, the others are its fallbacks."""
        try:
            adapter = await self._adapter(member, number)
            output = await adapter.invoke(input, heard)
            if not isinstance(output, AgentOutput):
                raise TypeError(f"it returned {type(output).__name__}, expected AgentOutput")
        except DiskRefused:
            raise
        except Exception as error:
            raise self._failure(member, error) from error
        has_output = any(tool.name == COMPLETE_TASK for tool in input.tools)
        answer = read(output, input.invocation, may_be_empty=has_output)
        try:
            said = self._redacted_output(answer.output)
        except PatternTimeout as error:
            problem = f"its answer cannot be redacted, so it is not written: {error.what}"
            raise AgentProtocolError(member.id, problem, mend=error.mend, again=False) from error
        if answer.error:
            heard.usage = said.usage
            failure = AgentProtocolError(member.id, answer.error, metadata=said.metadata)
            raise self._redacted(failure)
        return Answer(said, answer.declined)

    async def health(self, member: Member) -> Health:
        """Check that the agent could be called now; an exception of its adapter means no.

        Unless the runtime connects, no variable is filled in: settings that depend on a variable
        are not checked, nor are kinds whose `health` may start or contact something.
        """
        health = await self._check(member, 0)
        for number in range(1, len(agents.list_adapters(member.profile.adapter))):
            if not health.ok:
                break
            health = await self._check(member, number)
            if not health.ok:
                detail = f"adapter.{FALLBACK}[{number - 1}]: {health.detail}"
                health = health._replace(detail=detail)
        return health

    async def _check(self, member: Member, number: int) -> Health:
        settings = agents.list_adapters(member.profile.adapter)[number]
        kind = self._config.adapter_type(str(settings["type"]))
        if not (self._config.connects or kind.settings_type.looks_only):
            return Health(True, _NOT_ASKED)
        try:
            async with asyncio.timeout(HEALTH_LIMIT_S):
                health = await self._made(member, number).health()
            health = Health(health.ok, self.redactor.text_or_nothing(clean_text(health.detail)[0]))
        except TimeoutError:
            return Health(
                False, f"its adapter did not report its health within {HEALTH_LIMIT_S:g} s"
            )
        except Exception as error:  # noqa: BLE001 - whatever a foreign adapter raises
            health = Health(False, str(self._failure(member, error)))
            if isinstance(error, agents.VariableNotSet):
                return health
        places = {key: settings[key] for key in settings.keys() - _NO_PLACES}
        if not (health.ok or self._config.connects) and agents.list_variables(places):
            return Health(True, _NOT_ASKED)
        return health

    async def stop(self) -> None:
        """End all that is still running for these agents; ignore errors of doing so."""
        running, self._running = self._running, {}
        await asyncio.gather(*(_stop(adapter) for adapter in running.values()))

    async def _adapter(self, member: Member, number: int) -> Adapter:
        # A team that works with less may call the same agent with another model.
        key = (member.id, number, str(member.profile.adapter.get("model", "")))
        adapter = self._running.get(key)
        if adapter is None:
            if not self._config.connects:
                raise AgentUnavailable(member.id, "this command calls no agent")
            adapter = self._made(member, number)
            try:
                await adapter.start()
            except BaseException:
                await _stop(adapter)
                raise
            self._running[key] = adapter
        return adapter

    def _made(self, member: Member, number: int) -> Adapter:
        adapter_settings = agents.list_adapters(member.profile.adapter)[number]
        kind = str(adapter_settings["type"])
        adapter_type = self._config.adapter_type(kind)
        shape = adapter_type.settings_type
        # A command that only reads leaves each `${env:NAME}` as it is.
        config = self._config
        variables = config.environ if config.connects else agents.make_placeholders(config.environ)
        filled, _ = agents.fill_settings(
            adapter_settings,
            variables,
            agent_id=member.id,
            is_template=shape.is_template,
            sources=shape.sources,
        )
        try:
            settings = shape.model_validate(filled)
        except ValidationError as error:
            raise AgentUnavailable(
                member.id, f"adapter.{explain_first(error)}", mend="correct its profile"
            ) from error
        setup = Setup(
            agent_id=member.id,
            settings=settings,
            workspace=config.workspace,
            scratch=self._scratch,
            records=self._records,
            render=self._renderer.text,
            chat=self._renderer.chat,
            used=frozenset if number else lambda: self._used(member.id),
            environ=config.environ,
            models=config.models,
            connects=config.connects,
            servers=self._servers(member, variables) if member.profile.acts else (),
        )
        return adapter_type(setup)

    def _servers(self, member: Member, variables: Mapping[str, str]) -> Sequence[HandedServer]:
        """Return the MCP servers that are handed to the agent's program, if it is one."""
        if find_tool_way(member.profile) != "mcp":
            return ()
        handing: Any = import_module("arena_cli.adapters.mcp_servers")
        config = self._config
        servers: list[HandedServer] = handing.list_servers(
            member.profile, variables, config.workspace
        )
        if self._session and (member.profile.tools or member.profile.output):
            own = handing.own_server(config.workspace, self._session, member.id, config.environ)
            servers.insert(0, own)
        return servers

    def _failure(self, member: Member, error: Exception) -> AgentError:
        """Return an adapter's exception as a redacted AgentError."""
        if isinstance(error, AgentError):
            return self._redacted(error)
        if isinstance(error, UsageError):  # a pattern of its profile that takes too long
            failure = AgentProtocolError(member.id, error.what, mend=error.mend, again=False)
            return self._redacted(failure)
        problem = f"its adapter failed: {type(error).__name__}: {error}"
        mend = "this is an error in the adapter"
        return self._redacted(AgentProtocolError(member.id, problem, mend=mend))

    def _redacted(self, error: AgentError) -> AgentError:
        for name in ("what", "asked", "came", "mend", "metadata"):
            value, _ = clean_value(getattr(error, name))
            setattr(error, name, self.redactor.value_or_nothing(value))
        error.metadata = cut_raw(error.metadata)
        return error

    def _redacted_output(self, output: AgentOutput) -> AgentOutput:
        """Return an output without secrets, and with the usage of one call."""
        changed = self._redact_fields(output)
        if output.usage is not None:
            changed["usage"], cost = output.usage.of_one_call()
            if cost is not None:
                metadata = changed.get("metadata", output.metadata)
                changed["metadata"] = {**metadata, COST_NOT_TAKEN: f"{cost:g}"}
        return output.model_copy(update=changed) if changed else output

    def _redact_fields(self, output: AgentOutput) -> dict[str, Any]:
        """Return the fields of an output that may have secrets, without them."""
        redact = self.redactor
        changed: dict[str, Any] = {}
        if (content := redact.text(output.content)) != output.content:
            changed["content"] = content
        if output.next_mentions:
            changed["next_mentions"] = [redact.text(name) for name in output.next_mentions]
        if output.metadata:
            changed["metadata"] = cut_raw(redact.value(output.metadata))
        if output.attachments:
            changed["attachments"] = [redact.attachment(part) for part in output.attachments]
        for name, keys in _PARTS_TO_REDACT.items():
            if parts := getattr(output, name):
                changed[name] = [
                    part.model_copy(update={key: redact.value(getattr(part, key)) for key in keys})
                    for part in parts
                ]
        return changed


async def _stop(adapter: Adapter) -> None:
    """Stop an adapter that is no longer needed; ignore its errors."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(STOP_LIMIT_S):
            await adapter.stop()


class CallRequest(NamedTuple):
    """A call of an agent: its input, and the receiver of its reports while it runs."""

    member: Member
    input: AgentInput
    heard: Heard
    redactor: Redactor


CallNext = Callable[[CallRequest], Awaitable[Answer]]


class Middleware(Protocol):
    """A step that every call of an agent passes through.

    It may have a `call_tool` and a `list_tools`, as `Calls` has them, with `call_next` and
    `list_next`: calls of tools, and what MCP servers offer, then pass through it.
    """

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Answer a call, or pass it on. Raises AgentError (redacted) and DiskRefused."""
        ...


class Calls:
    """The calls of a session's agents, passed through its middlewares."""

    def __init__(self, runtime: Runtime, middlewares: Sequence[Middleware]) -> None:
        self.redactor = runtime.redactor
        self._runtime = runtime
        self._middlewares = middlewares

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """Call an agent once. Raises AgentError (redacted), and DiskRefused if `heard` does."""
        return await self._call(0, CallRequest(member, input, heard, self.redactor))

    async def _call(self, index: int, request: CallRequest) -> Answer:
        if index == len(self._middlewares):
            return await self._runtime.invoke(request.member, request.input, request.heard)
        return await self._middlewares[index].invoke(request, partial(self._call, index + 1))

    async def call_tool(self, request: ToolRequest, run: ToolNext) -> ToolAnswer:
        """Call a tool by `run`, unless a middleware answers."""
        for middleware in reversed(self._middlewares):
            if (call_tool := getattr(middleware, "call_tool", None)) is not None:
                run = partial(call_tool, call_next=run)
        return await run(request)

    async def list_tools(self, member: Member, ask: SpecsNext) -> list[ToolSpec]:
        """Return the tools that the MCP servers of an agent offer, by `ask` or a middleware."""
        for middleware in reversed(self._middlewares):
            if (list_tools := getattr(middleware, "list_tools", None)) is not None:
                ask = partial(list_tools, list_next=ask)
        return await ask(member)

    async def stop(self) -> None:
        """End all that is still running for these agents."""
        await self._runtime.stop()
