"""One call of an agent of the Agent Client Protocol: its session, the prompt, the answer.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import acp
from acp import RequestError, schema
from pydantic import ValidationError

from arena_cli.adapters.acp import acp_failures
from arena_cli.adapters.acp.acp_failures import AUTH_REQUIRED, Asked, Said
from arena_cli.adapters.acp.acp_link import Link
from arena_cli.adapters.acp.acp_presets import Preset
from arena_cli.adapters.acp.acp_turn import Turn
from arena_cli.ground import text as texts
from arena_cli.ground.chat import Render
from arena_cli.ground.errors import AgentError, AgentProtocolError, AgentRefused
from arena_cli.ground.protocol import AgentInput, AgentOutput, CallNote, Emit, SessionId

# They take the system text by `_meta`; to all others it is sent before the first prompt.
_TAKE_SYSTEM = ("@agentclientprotocol/claude-agent-acp", "@zed-industries/claude-code-acp")

# Claude Code looks for commands and for paths of files in the last block of text of a prompt, so
# nothing that anybody said may stand there.
_LAST_BLOCK = "Answer now, as the text above asks of you."

_NO_ANSWER = {
    "max_tokens": (
        "its answer was cut off: it reached the limit of its tokens",
        "raise that limit in the agent's own settings, or ask for less",
    ),
    "max_turn_requests": (
        "it gave up before an answer: it asked its model as often as it may",
        "raise that limit in the agent's own settings, or ask for less",
    ),
    "cancelled": ("it says that it was cancelled, which nobody asked for", "try again"),
}

_Opened = schema.NewSessionResponse | schema.ResumeSessionResponse | schema.LoadSessionResponse


@dataclass(frozen=True)
class Agent:
    """Who is called, and how: `folder` is where it works, `careful` that not all is allowed."""

    asked: Asked
    preset: Preset
    folder: Path
    model: str | None
    careful: bool
    render: Render


async def answer(link: Link, agent: Agent, input: AgentInput, emit: Emit) -> AgentOutput:
    """One prompt, in the session that `own_session` names; in a new one if that is none, or lost.

    Raises AgentError; ConnectionError where the agent went away.
    """
    call = _Call(link, agent, emit)
    with call.translated():
        shown, system = await call.opened(input)
        emit(SessionId(link.session))
        return await call.prompted(shown, system)


async def introduced(link: Link, agent: Agent) -> None:
    """The link's first exchange. Raises as `answer` does."""
    call = _Call(link, agent, lambda _: None)
    with call.translated():
        await link.introduce(with_files=agent.preset.takes_files)
    if link.answer.protocol_version != acp.PROTOCOL_VERSION:
        spoken = link.answer.protocol_version
        raise AgentProtocolError(
            agent.asked.agent_id,
            f"it speaks version {spoken} of the protocol, arena version {acp.PROTOCOL_VERSION}",
            asked=agent.asked.command,
            mend="install a newer one of the two",
        )


class _Call:
    def __init__(self, link: Link, agent: Agent, emit: Emit) -> None:
        self._link = link
        self._agent = agent
        self._emit = emit
        self._turn: Turn | None = None

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """The one place where the SDK's errors become an agent's."""
        try:
            yield
        except RequestError as error:
            raise self._failed(Said(error.code, str(error), error.data)) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise AgentProtocolError(
                self._agent.asked.agent_id,
                f"it answered what the protocol does not know: {place}: {first['msg']}",
                asked=f"{self._agent.asked.command} ({self._link.method})",
                mend="install a newer version of it",
                metadata=self._notes(),
            ) from error

    async def opened(self, input: AgentInput) -> tuple[AgentInput, str]:
        """The input as it fits the session that is then open, and the system text to send."""
        own = input.own_session.id if input.own_session else ""
        if own and own == self._link.session:
            return input, ""
        if own and await self._taken_up(input, own):
            return input, ""
        await self._closed()
        system, _ = self._agent.render(input)
        made = await self._link.ask("session/new").new_session(
            cwd=str(self._agent.folder), **self._meta(system)
        )
        self._link.session, self._link.spent_usd = made.session_id, 0.0
        await self._set_up(made)
        return input.afresh(), "" if self._takes_system() else system

    async def prompted(self, input: AgentInput, system: str) -> AgentOutput:
        """The answer to the input in the session that is open."""
        link = self._link
        _, prompt = self._agent.render(input)
        text = self._agent.preset.escape(f"{system}\n\n{prompt}" if system else prompt)
        blocks: list[Any] = [acp.text_block(texts.clean(part)[0]) for part in (text, _LAST_BLOCK)]
        turn = self._turn = link.client.turn = Turn(link.session, self._emit)
        try:
            link.prompting = asyncio.ensure_future(
                link.ask("session/prompt").prompt(session_id=link.session, prompt=blocks)
            )
            said = await asyncio.shield(link.prompting)
        finally:
            link.client.turn = None
            cost_usd = self._spent(turn)
        if turn.fault is not None:
            raise turn.fault
        return self._read(turn, said, cost_usd)

    def _read(self, turn: Turn, said: schema.PromptResponse, cost_usd: float | None) -> AgentOutput:
        asked = f"{self._agent.asked.command} (session/prompt)"
        notes = {**self._notes(), "raw": turn.raw(said)}
        if said.stop_reason == "refusal":
            raise AgentRefused(
                self._agent.asked.agent_id,
                "it refuses to answer this",
                asked=asked,
                came=texts.cut(turn.last_remark, 300),
                metadata=notes,
            )
        if said.stop_reason in _NO_ANSWER:
            what, mend = _NO_ANSWER[said.stop_reason]
            raise AgentProtocolError(
                self._agent.asked.agent_id,
                what,
                asked=asked,
                came=f"stop reason {said.stop_reason}",
                mend=mend,
                metadata=notes,
            )
        if turn.failed:
            raise self._failed(Said(None, turn.last_remark or "it gave no reason"))
        output = turn.output(said, cost_usd)
        if turn.refused and not output.content:
            raise AgentProtocolError(
                self._agent.asked.agent_id,
                f"it gave up when it was not allowed to do something: {turn.refused[-1]}",
                asked=asked,
                mend="see `permissions` in its profile",
                metadata={**self._notes(), **output.metadata},
            )
        return output.model_copy(update={"metadata": {**self._notes(), **output.metadata}})

    async def _taken_up(self, input: AgentInput, session_id: str) -> bool:
        """Whether the agent goes on in a session of an earlier process."""
        capabilities = self._link.answer.agent_capabilities or schema.AgentCapabilities()
        sessions = capabilities.session_capabilities
        system, _ = self._agent.render(input)
        where: dict[str, Any] = {"cwd": str(self._agent.folder), "session_id": session_id}
        try:
            if sessions is not None and sessions.resume is not None:
                link = self._link.ask("session/resume")
                taken_up: _Opened = await link.resume_session(**where, **self._meta(system))
            elif capabilities.load_session:
                link = self._link.ask("session/load")
                taken_up = await link.load_session(**where, **self._meta(system))
            else:
                self._emit(CallNote({"lost_session": session_id}))
                return False
        except RequestError as error:
            if error.code == AUTH_REQUIRED:
                raise
            why = Said(error.code, str(error), error.data).text
            self._emit(CallNote({"lost_session": session_id, "lost_because": why}))
            return False
        self._link.session, self._link.spent_usd = session_id, None
        await self._set_up(taken_up)
        return True

    async def _closed(self) -> None:
        """Close the session that is open, where the agent can: it may hold a process of its own."""
        capabilities = self._link.answer.agent_capabilities
        sessions = capabilities.session_capabilities if capabilities else None
        if self._link.session and sessions is not None and sessions.close is not None:
            with contextlib.suppress(RequestError):
                await self._link.ask("session/close").close_session(session_id=self._link.session)
        self._link.session = ""

    async def _set_up(self, opened: _Opened) -> None:
        """Choose the session's mode and model."""
        session_id, mode = self._link.session, self._agent.preset.careful_mode
        modes = opened.modes.available_modes if opened.modes else []
        if self._agent.careful and any(mode == one.id for one in modes):
            connection = self._link.ask("session/set_mode")
            await connection.set_session_mode(session_id=session_id, mode_id=mode)
        if self._agent.model and not self._agent.preset.model:
            await self._choose_model(opened, self._agent.model)

    async def _choose_model(self, opened: _Opened, model: str) -> None:
        options = [one for one in opened.config_options or [] if "model" in (one.category, one.id)]
        option = next((one for one in options if one.type == "select"), None)
        if option is None:
            raise self._refused(
                "it does not let anybody choose its model",
                "leave `model` out, and choose it in the agent's own settings",
            )
        if option.current_value == model:
            return
        try:
            await self._link.ask("session/set_config_option").set_config_option(
                config_id=option.id, session_id=self._link.session, value=model
            )
        except RequestError as error:
            known = ", ".join(_values(option))
            raise self._refused(
                f"it has no model {model}", f"known are: {texts.cut(known, 600)}"
            ) from error

    def _meta(self, system: str) -> dict[str, Any]:
        return {"systemPrompt": {"append": system}} if system and self._takes_system() else {}

    def _takes_system(self) -> bool:
        info = self._link.answer.agent_info
        return info is not None and info.name in _TAKE_SYSTEM

    def _spent(self, turn: Turn) -> float | None:
        """What this prompt cost: agents tell what the whole session has cost."""
        before, after = self._link.spent_usd, turn.session_usd
        self._link.spent_usd = after if after is not None else before
        if after is None or before is None or after < before:
            return None
        return round(after - before, 10)

    def _failed(self, said: Said) -> AgentError:
        asked = self._agent.asked
        log_in = asked.log_in or _ways_in(self._link)
        asked = replace(asked, method=self._link.method, log_in=log_in)
        return acp_failures.failure(asked, said, self._notes())

    def _refused(self, what: str, mend: str) -> AgentRefused:
        asked = f"{self._agent.asked.command} ({self._link.method})"
        return AgentRefused(self._agent.asked.agent_id, what, asked=asked, mend=mend)

    def _notes(self) -> dict[str, Any]:
        return self._link.wire.notes()


def _values(option: schema.SessionConfigOptionSelect) -> Iterator[str]:
    """The values that an option can have, in groups or not."""
    for one in option.options:
        if isinstance(one, schema.SessionConfigSelectGroup):
            yield from (inner.value for inner in one.options)
        else:
            yield one.value


def _ways_in(link: Link) -> str:
    """How one logs in, as far as the agent says."""
    ways = [way.description or way.name for way in link.answer.auth_methods or []]
    offered = f"; it offers: {texts.cut('; '.join(ways), 300)}" if ways else ""
    return f"log in with its own program, or pass a key on in `env`{offered}"
