"""The agents of one session: made and started at their first call, stopped at the end.

Everything that leaves an adapter passes here, once: it is redacted, cleaned and read before any
of it is shown, stored or hashed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from arena_cli.adapters import reading, registry
from arena_cli.adapters.base import Adapter, Health, Setup
from arena_cli.ground import text as texts
from arena_cli.ground.chat import Renderer
from arena_cli.ground.errors import (
    AgentError,
    AgentProtocolError,
    AgentUnavailable,
    DiskRefused,
    UsageError,
)
from arena_cli.ground.growing import GrowingText
from arena_cli.ground.protocol import (
    COST_NOT_TAKEN,
    AgentInput,
    AgentOutput,
    SessionId,
    StatusEvent,
    TextDelta,
    Told,
    Usage,
)
from arena_cli.ground.redact import Redactor
from arena_cli.ground.userpattern import PatternTimeout
from arena_cli.team import environ
from arena_cli.team.model import Member, ModelFacts

HEALTH_LIMIT_S = 20.0
MOST_RAW_CHARS = 16_384
STOP_LIMIT_S = 20.0

_NOT_ASKED = "not asked; `--connect` asks it"
# Settings on which it does not hang whether an agent is there.
_NO_PLACES = frozenset({"api_key", "env", "headers"})


@dataclass
class Heard:
    """What an agent told while it worked, redacted: its text so far and notes on the call.

    `session_id` names the session that the agent keeps for itself, if it told one; `usage` is what
    it used if it fails, `earlier_usage` what the attempts before it did. `on_text` is told the end
    of its text so far, without what may be the beginning of a secret.
    """

    redactor: Redactor
    on_status: Callable[[StatusEvent], None]
    on_text: Callable[[str], None] | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    session_id: SessionId | None = None
    usage: Usage | None = None
    earlier_usage: list[Usage] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _growing: GrowingText | None = None
    _earlier: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, item: Told, /) -> None:
        if isinstance(item, TextDelta):
            self._text.append(item)
            if self.on_text:
                self._growing = self._growing or GrowingText(self.redactor)
                try:
                    if self._growing.feed(item):
                        self.on_text(self._growing.tail)
                except PatternTimeout:
                    self.on_text = None  # what is not redacted is not shown
        elif isinstance(item, StatusEvent):
            self.on_status(item.model_copy(update={"detail": self._edge(item.detail)}))
        elif isinstance(item, SessionId):
            self.session_id = SessionId(self._edge(str(item)), self._edge(dict(item.state)))
        elif isinstance(item, Usage):
            self.usage, cost = item.of_one_call()
            if cost is not None:
                self.notes[COST_NOT_TAKEN] = f"{cost:g}"
        else:
            self.notes.update(_within_limit(self._edge(dict(item))))

    def forget(self) -> None:
        """Begin anew, for another attempt; the notes on this one are kept as an earlier one's."""
        self._earlier.append(dict(self.notes))
        self.notes.clear()
        self.session_id = None
        self.earlier_usage += [self.usage] if self.usage else []
        self.usage = None
        self._text.clear()
        self._growing = None

    def metadata(self, *, failed: bool) -> dict[str, Any]:
        """The notes; of a failed call with the text that had come (`partial`).

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
        return self.redactor.value_or_nothing(texts.clean_value(value)[0])


class Answer(NamedTuple):
    """What an agent answered, read: whether it declined, else its output."""

    output: AgentOutput
    declined: bool


class Calls(Protocol):
    """What the engine calls agents through: the `Runtime`, or what stands around it."""

    redactor: Redactor

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """One call of one agent. Raises AgentError, redacted; DiskRefused where `heard` does."""
        ...

    async def stop(self) -> None:
        """End whatever is still running for these agents."""
        ...


class Runtime:
    """Adapters by agent. `used` tells which scripted entries an agent has used up."""

    def __init__(  # noqa: PLR0913  # each is a thing of its own
        self,
        *,
        workspace: Path,
        scratch: Path,
        records: Path,
        renderer: Renderer,
        redactor: Redactor,
        environ: Mapping[str, str],
        models: Mapping[str, ModelFacts] | None = None,
        used: Callable[[str], frozenset[int]] = lambda _: frozenset(),
        adapter_type: Callable[[str], type[Adapter]] = registry.adapter_type,
        connects: bool = True,
    ) -> None:
        self._connects = connects
        self.redactor = redactor
        self._workspace = workspace
        self._scratch = scratch
        self._records = records
        self._renderer = renderer
        self._environ = environ
        self._models = models or {}
        self._used = used
        self._adapter_type = adapter_type
        self._running: dict[str, Adapter] = {}

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """One call of one agent. Raises AgentError, redacted; DiskRefused where `heard` does."""
        try:
            adapter = await self._adapter(member)
            output = await adapter.invoke(input, heard)
            if not isinstance(output, AgentOutput):
                raise TypeError(f"it answered {type(output).__name__}, no AgentOutput")
        except DiskRefused:
            raise
        except Exception as error:
            raise self._failure(member, error) from error
        answer = reading.read(output, input.invocation)
        try:
            said = self._redacted_output(answer.output)
        except PatternTimeout as error:
            what = f"its answer cannot be redacted, so it is not written: {error.what}"
            raise AgentProtocolError(member.id, what, mend=error.mend, again=False) from error
        if answer.error:
            heard.usage = said.usage
            failure = AgentProtocolError(member.id, answer.error, metadata=said.metadata)
            raise self._redacted(failure)
        return Answer(said, answer.declined)

    async def health(self, member: Member) -> Health:
        """Whether the agent could be called now; one whose adapter fails at that could not.

        Unless the runtime connects, no variable is filled in: what hangs on one is not checked, nor
        are kinds whose `health` may do more than look.
        """
        kind = self._adapter_type(str(member.profile.adapter["type"]))
        if not (self._connects or kind.settings_type.looks_only):
            return Health(True, _NOT_ASKED)
        try:
            async with asyncio.timeout(HEALTH_LIMIT_S):
                health = await self._made(member).health()
            health = Health(health.ok, self.redactor.text_or_nothing(texts.clean(health.detail)[0]))
        except TimeoutError:
            return Health(False, f"its adapter did not say within {HEALTH_LIMIT_S:g} s")
        except Exception as error:  # noqa: BLE001 - whatever a foreign adapter raises
            health = Health(False, str(self._failure(member, error)))
            if isinstance(error, environ.NotSet):
                return health
        if not (health.ok or self._connects) and _hangs_on_variables(member):
            return Health(True, _NOT_ASKED)
        return health

    async def stop(self) -> None:
        """End whatever is still running for these agents; what fails at that is left alone."""
        running, self._running = self._running, {}
        await asyncio.gather(*(_stop(adapter) for adapter in running.values()))

    async def _adapter(self, member: Member) -> Adapter:
        adapter = self._running.get(member.id)
        if adapter is None:
            if not self._connects:
                raise AgentUnavailable(member.id, "this command calls no agent")
            adapter = self._made(member)
            try:
                await adapter.start()
            except BaseException:
                await _stop(adapter)
                raise
            self._running[member.id] = adapter
        return adapter

    def _made(self, member: Member) -> Adapter:
        kind = str(member.profile.adapter["type"])
        adapter_type = self._adapter_type(kind)
        shape = adapter_type.settings_type
        # A command that only reads leaves each `${env:NAME}` as it is.
        variables = self._environ if self._connects else environ.placeholders(self._environ)
        filled, _ = environ.fill(
            member.profile.adapter,
            variables,
            agent_id=member.id,
            is_template=shape.is_template,
            sources=shape.sources,
        )
        try:
            settings = shape.model_validate(filled)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise AgentUnavailable(
                member.id, f"adapter.{place}: {first['msg']}", mend="mend its profile"
            ) from error
        setup = Setup(
            agent_id=member.id,
            settings=settings,
            workspace=self._workspace,
            scratch=self._scratch,
            records=self._records,
            render=self._renderer.text,
            chat=self._renderer.chat,
            used=lambda: self._used(member.id),
            environ=self._environ,
            models=self._models,
            connects=self._connects,
        )
        return adapter_type(setup)

    def _failure(self, member: Member, error: Exception) -> AgentError:
        """What an adapter raised, as a failure that it may raise, redacted."""
        if isinstance(error, AgentError):
            return self._redacted(error)
        if isinstance(error, UsageError):  # a pattern of its profile that takes too long
            failure = AgentProtocolError(member.id, error.what, mend=error.mend, again=False)
            return self._redacted(failure)
        what = f"its adapter failed: {type(error).__name__}: {error}"
        mend = "this is a fault of the adapter"
        return self._redacted(AgentProtocolError(member.id, what, mend=mend))

    def _redacted(self, error: AgentError) -> AgentError:
        for name in ("what", "asked", "came", "mend", "metadata"):
            value, _ = texts.clean_value(getattr(error, name))
            setattr(error, name, self.redactor.value_or_nothing(value))
        error.metadata = _within_limit(error.metadata)
        return error

    def _redacted_output(self, output: AgentOutput) -> AgentOutput:
        redact = self.redactor
        changed: dict[str, Any] = {"content": redact.text(output.content)}
        if output.next_mentions:
            changed["next_mentions"] = [redact.text(name) for name in output.next_mentions]
        if output.metadata:
            changed["metadata"] = _within_limit(redact.value(output.metadata))
        if output.status_updates:
            changed["status_updates"] = [
                status.model_copy(update={"detail": redact.text(status.detail)})
                for status in output.status_updates
            ]
        if output.attachments:
            changed["attachments"] = [redact.attachment(part) for part in output.attachments]
        if output.structured:
            changed["structured"] = [
                part.model_copy(update={"data": redact.value(part.data)})
                for part in output.structured
            ]
        if output.usage is not None:
            changed["usage"], cost = output.usage.of_one_call()
            if cost is not None:
                metadata = changed.get("metadata", output.metadata)
                changed["metadata"] = {**metadata, COST_NOT_TAKEN: f"{cost:g}"}
        return output.model_copy(update=changed)


def _within_limit(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata with what the provider answered (`raw`) cut to a text where it is long."""
    if "raw" not in metadata:
        return metadata
    raw = metadata["raw"]
    text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
    if len(text) <= MOST_RAW_CHARS:
        return metadata
    cut = f"{texts.cut(text, MOST_RAW_CHARS)} ... ({len(text)} characters)"
    return {**metadata, "raw": cut}


def _hangs_on_variables(member: Member) -> bool:
    """Return whether the environment decides what is called."""
    adapter = member.profile.adapter
    return bool(environ.variables({key: adapter[key] for key in adapter.keys() - _NO_PLACES}))


async def _stop(adapter: Adapter) -> None:
    """Stop an adapter that nobody needs any more, so that its failure is nobody's either."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(STOP_LIMIT_S):
            await adapter.stop()
