"""Call an agent of the Agent Client Protocol: its session, the prompt, the answer.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import acp
from acp import RequestError, schema
from pydantic import ValidationError

from arena_cli.adapters import http, permission_requests
from arena_cli.adapters.acp import turn as turn_module
from arena_cli.adapters.acp.client import AgentLink
from arena_cli.adapters.acp.turn import AUTH_REQUIRED, PromptTurn, RemoteError
from arena_cli.adapters.base import HandedServer, Setup
from arena_cli.adapters.coding_agents import (
    AttachedFile,
    describe_paths,
    is_dead_session,
    list_new_files,
    report_lost_session,
)
from arena_cli.adapters.coding_clis.kinds import AcpPreset
from arena_cli.adapters.mcp_servers import list_words
from arena_cli.errors import AgentError, AgentProtocolError, AgentRefused, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, Emit, SessionId
from arena_cli.util.text import clean_text, cut_text
from arena_cli.yamlio.schema_errors import explain_first

# Agents look for commands and for paths of files in the last block of text of a prompt, so nothing
# that anybody said may stand there.
_LAST_BLOCK = "Answer now, as the text above asks of you."

# A rejection carries no text, and agents report it to their model as a refusal for good.
_ASKING_BLOCK = (
    "If you are refused permission to do something, do not try it again, and do nothing in its "
    "place: say so, and end your reply. If a person has yet to decide, you are called again with "
    f"the decision. {_LAST_BLOCK}"
)

_NO_ANSWER: dict[str, tuple[type[AgentError], str, str]] = {
    "refusal": (
        AgentRefused,
        "it refuses to answer this",
        "rephrase the message, or ask another agent",
    ),
    "max_tokens": (
        AgentProtocolError,
        "its answer was cut off at the token limit",
        "raise the limit in the agent's own settings, or ask for a shorter answer",
    ),
    "max_turn_requests": (
        AgentProtocolError,
        "it stopped before it answered: it reached its limit of model requests",
        "raise the limit in the agent's own settings, or ask for a shorter answer",
    ),
    "cancelled": (
        AgentProtocolError,
        "it reported a cancellation that arena did not request",
        "try again",
    ),
}

# How a prompt may end after a permission was not given.
_ENDS_AFTER_REFUSAL = ("refusal", "cancelled")
_LIMITS = ("max_tokens", "max_turn_requests")

_Opened = schema.NewSessionResponse | schema.ResumeSessionResponse | schema.LoadSessionResponse


def describe_acp_server(server: HandedServer, folder: Path) -> schema.McpServerStdio:
    """Return a server with a command as the protocol takes it: the command is a whole path."""
    program, *args = list_words(server, folder)
    return schema.McpServerStdio(
        name=server.name,
        command=shutil.which(program, path=server.env.get("PATH")) or program,
        args=args,
        env=[schema.EnvVariable(name=name, value=value) for name, value in server.env.items()],
    )


class PromptCall:
    """A call of an agent with the `command`, over an open connection to its process."""

    def __init__(
        self, link: AgentLink, setup: Setup, preset: AcpPreset, command: str, emit: Emit
    ) -> None:
        self._link = link
        self._setup = setup
        self._preset = preset
        self._command = command
        self._emit = emit
        self._model: str | None = setup.settings.model
        self._folder = (setup.workspace / setup.settings.cwd).resolve()

    async def introduce(self) -> None:
        """Initialize the connection and check the protocol version.

        Raises the errors of `answer`.
        """
        with self._translated():
            await self._link.introduce(with_files=self._preset.takes_files)
        spoken = self._link.answer.protocol_version
        if spoken != acp.PROTOCOL_VERSION:
            problem = (
                f"it uses version {spoken} of the protocol, "
                f"arena uses version {acp.PROTOCOL_VERSION}"
            )
            raise self._error(AgentProtocolError, problem, "update the older of the two")

    async def answer(self, input: AgentInput) -> AgentOutput:
        """Send a prompt in the session that `own_session` names, or in a new session.

        A new session is opened if none is named, or if the named one is lost. Raises AgentError,
        and ConnectionError if the agent ended.
        """
        with self._translated():
            fitted, system = await self._open(input)
            try:
                return await self._prompt(fitted, system)
            except (RequestError, AgentError) as error:
                reason = self._explain_dead_session(error)
                if reason is None:
                    raise
            report_lost_session(self._emit, self._link.session, reason)
            fitted, system = await self._open(input.afresh())
            return await self._prompt(fitted, system)

    def retry_failure(self) -> AgentError:
        """Return the failure after which the agent would retry by itself."""
        return self._failed(RemoteError(None, self._link.wire.retried))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Convert the errors of the SDK to AgentError."""
        try:
            yield
        except RequestError as error:
            raise self._failed(RemoteError(error.code, str(error), error.data)) from error
        except ValueError as error:  # of pydantic: not of the shape, or too deep
            reason = explain_first(error) if isinstance(error, ValidationError) else error
            problem = f"its answer does not follow the protocol: {reason}"
            raise self._error(
                AgentProtocolError, problem, "install a newer version of it"
            ) from error

    def _error(
        self, kind: type[AgentError], problem: str, mend: str, *, answer: str = "", **notes: Any
    ) -> AgentError:
        """Return the error of the last request."""
        return kind(
            self._setup.agent_id,
            problem,
            asked=self._asked,
            came=answer,
            mend=mend,
            metadata={**self._link.wire.notes(), **notes},
        )

    async def _open(self, input: AgentInput) -> tuple[AgentInput, str]:
        """Open the session; return the input that fits it, and the system text to send."""
        session = input.own_session
        if session and (
            session.id == self._link.session or await self._taken_up(input, session.id)
        ):
            return input, ""
        await self._closed()
        self._link.is_untried = False
        system, _ = self._setup.render(input)
        response = await self._link.ask("session/new").new_session(
            cwd=str(self._folder), mcp_servers=self._servers(), **self._meta(system)
        )
        self._link.session, self._link.spent_usd = response.session_id, 0.0
        await self._set_up(response)
        return input.afresh(), "" if self._preset.system_at else system

    async def _prompt(self, input: AgentInput, system: str) -> AgentOutput:
        """Send the input in the open session and return the answer."""
        link, preset = self._link, self._preset
        _, prompt = self._setup.render(input)
        text = preset.escape(f"{system}\n\n{prompt}" if system else prompt)
        blocks = self._file_blocks(list_new_files(input, self._setup.workspace))
        last = _ASKING_BLOCK if link.client.permissions == "ask" else _LAST_BLOCK
        blocks += [acp.text_block(clean_text(block_text)[0]) for block_text in (text, last)]
        turn = link.client.turn = PromptTurn(link.session, preset, self._emit, self._folder)
        try:
            link.prompting = asyncio.ensure_future(
                link.ask("session/prompt").prompt(session_id=link.session, prompt=blocks)
            )
            response = await asyncio.shield(link.prompting)
        finally:
            link.client.turn = None
            turn.close()
            link.is_untried = link.is_untried and not turn.has_begun
        if turn.fault is not None:
            raise turn.fault
        self._emit(SessionId(link.session))
        earlier_usd, link.spent_usd = link.spent_usd, turn.session_usd
        cost = _cost(earlier_usd, turn.session_usd)
        return self._read(turn, response, cost if turn.refused_usd is None else turn.refused_usd)

    def _explain_dead_session(self, error: RequestError | AgentError) -> str | None:
        """Return why a resumed session is dead, by the error of its first prompt; None if not.

        An answer that refuses and says nothing is no answer of a model.
        """
        if not self._link.is_untried:
            return None
        if isinstance(error, AgentError):
            is_empty_refusal = isinstance(error, AgentRefused) and not error.came
            return error.what if is_empty_refusal or is_dead_session(error) else None
        remote_error = RemoteError(error.code, str(error), error.data)
        failure = self._failed(remote_error._replace(message=remote_error.cause))
        return remote_error.text if not remote_error.cause or is_dead_session(failure) else None

    def _file_blocks(self, files: Sequence[AttachedFile]) -> list[Any]:
        """Return the blocks for files, each as the agent takes it; the paths of the others."""
        blocks: list[Any] = []
        hidden: list[AttachedFile] = []
        for file in files:
            if block := self._file_block(file):
                blocks += [acp.text_block(self._preset.escape(file.label)), block]
            else:
                hidden.append(file)
        paths = describe_paths(hidden, self._emit)
        return [*blocks, acp.text_block(paths)] if paths else blocks

    def _file_block(self, file: AttachedFile) -> Any:
        """Return a file as a block that the agent can take; None if there is none."""
        capabilities = getattr(self._link.answer.agent_capabilities, "prompt_capabilities", None)
        uri = file.path.as_uri()
        if file.content is None or capabilities is None:
            return None
        data = base64.b64encode(file.content.data).decode("ascii")
        if file.is_image and capabilities.image:
            return acp.image_block(data, file.content.media_type)
        if not capabilities.embedded_context:
            return None
        if file.text is not None:
            text = clean_text(file.text)[0]
            return acp.resource_block(acp.embedded_text_resource(uri, text, mime_type="text/plain"))
        if file.is_pdf:
            resource = acp.embedded_blob_resource(uri, data, mime_type=file.content.media_type)
            return acp.resource_block(resource)
        return None

    def _read(
        self, turn: PromptTurn, prompt_response: schema.PromptResponse, cost_usd: float | None
    ) -> AgentOutput:
        is_refused = any(action.by == permission_requests.REFUSED_BY for action in turn.refused)
        is_put_off = prompt_response.stop_reason in _ENDS_AFTER_REFUSAL and (
            turn.was_asked or is_refused
        )
        if prompt_response.stop_reason in _NO_ANSWER and not is_put_off:
            raise self._explain_stop(turn, prompt_response)
        if turn.failed:
            raise self._failed(RemoteError(None, turn.last_remark or "it gave no reason"))
        output = turn.output(prompt_response, cost_usd)
        if not output.content and (turn.was_asked or is_refused):
            wait, stop = permission_requests.WAITS_TEXT, permission_requests.DENIED_TEXT
            output = output.model_copy(update={"content": wait if turn.was_asked else stop})
        if turn.refused and not output.content:
            problem = f"it stopped because a permission was denied: {turn.refused[-1]}"
            mend = "see `permissions` in its profile"
            raise self._error(AgentProtocolError, problem, mend, **output.metadata)
        notes = {**self._link.wire.notes(), **output.metadata}
        return output.model_copy(update={"metadata": notes})

    def _explain_stop(self, turn: PromptTurn, prompt_response: schema.PromptResponse) -> AgentError:
        """Return the error of a prompt that ended without an answer, by its reason."""
        reason = prompt_response.stop_reason
        kind, problem, mend = _NO_ANSWER[reason]
        remark = cut_text(turn.last_remark, 300) if kind is AgentRefused else reason
        error = self._error(kind, problem, mend, answer=remark, raw=turn.raw(prompt_response))
        error.again = reason not in _LIMITS
        return error

    async def _taken_up(self, input: AgentInput, session_id: str) -> bool:
        """Resume the session of an earlier process; return False if the agent cannot."""
        self._link.is_untried = True
        system, _ = self._setup.render(input)
        parameters: dict[str, Any] = {
            "cwd": str(self._folder),
            "session_id": session_id,
            "mcp_servers": self._servers(),
        }
        try:
            if self._link.sessions.resume is not None:
                link = self._link.ask("session/resume")
                taken_up: _Opened = await link.resume_session(**parameters, **self._meta(system))
            elif self._link.loads:
                link = self._link.ask("session/load")
                taken_up = await link.load_session(**parameters, **self._meta(system))
            else:
                report_lost_session(self._emit, session_id)
                return False
        except RequestError as error:
            if error.code == AUTH_REQUIRED:
                raise
            reason = RemoteError(error.code, str(error), error.data).text
            report_lost_session(self._emit, session_id, reason)
            return False
        # Some count the cost of the session on, some begin anew.
        self._link.session, self._link.spent_usd = session_id, None
        await self._set_up(taken_up)
        return True

    def _servers(self) -> list[Any]:
        """Return the MCP servers for a session. Raises AgentUnavailable for one it cannot take."""
        capabilities = getattr(self._link.answer.agent_capabilities, "mcp_capabilities", None)
        described: list[Any] = []
        for server in () if self._preset.servers_environ else self._setup.servers:
            if not server.url:
                described.append(describe_acp_server(server, self._folder))
                continue
            if capabilities is None or not capabilities.http:
                problem = f"it takes no MCP server with a url, as {server.name} is"
                raise self._error(AgentUnavailable, problem, "name its `command`, or another agent")
            headers = [schema.HttpHeader(name=name, value=v) for name, v in server.headers.items()]
            described.append(
                schema.HttpMcpServer(type="http", name=server.name, url=server.url, headers=headers)
            )
        return described

    async def _closed(self) -> None:
        """Close the open session if the agent supports it: it may hold a process of its own."""
        if self._link.session and self._link.sessions.close is not None:
            with contextlib.suppress(RequestError):
                await self._link.ask("session/close").close_session(session_id=self._link.session)
        self._link.session = ""

    async def _set_up(self, opened: _Opened) -> None:
        """Choose the session's mode and model."""
        session_id, mode = self._link.session, self._preset.careful_mode
        modes = opened.modes.available_modes if opened.modes else []
        if self._setup.settings.permissions != "allow" and any(
            mode == each_mode.id for each_mode in modes
        ):
            connection = self._link.ask("session/set_mode")
            await connection.set_session_mode(session_id=session_id, mode_id=mode)
        if self._model and not self._preset.model:
            await self._choose_model(opened, self._model)

    async def _choose_model(self, opened: _Opened, model: str) -> None:
        options = [
            candidate
            for candidate in opened.config_options or []
            if "model" in (candidate.category, candidate.id)
        ]
        option = next((candidate for candidate in options if candidate.type == "select"), None)
        if option is None:
            problem = "it does not support choosing a model"
            mend = "remove `model`, and choose the model in the agent's own settings"
            raise self._error(AgentRefused, problem, mend)
        if option.current_value == model:
            return
        try:
            await self._link.ask("session/set_config_option").set_config_option(
                config_id=option.id, session_id=self._link.session, value=model
            )
        except RequestError as error:
            listing = cut_text(", ".join(_values(option)), 600)
            problem, mend = f"it has no model {model}", f"known models: {listing}"
            raise self._error(AgentRefused, problem, mend) from error

    def _meta(self, system: str) -> dict[str, Any]:
        """Return `_meta` with the system text, if the preset names a place for it there."""
        meta: Any = system
        for key in reversed(self._preset.system_at):
            meta = {key: meta}
        return meta if isinstance(meta, dict) else {}

    def _failed(self, remote_error: RemoteError) -> AgentError:
        ways = [way.description or way.name for way in self._link.answer.auth_methods or []]
        offered = f"; it offers: {cut_text('; '.join(ways), 300)}" if ways else ""
        key = f"its login: {self._preset.log_in}{offered}"
        request = http.HttpRequest(self._setup.agent_id, self._asked, self._model or "", key)
        failure = turn_module.failure(request, remote_error, self._preset.says)
        raw = {
            "code": remote_error.code,
            "message": remote_error.message,
            "data": remote_error.data,
        }
        failure.metadata.update({**self._link.wire.notes(), "raw": raw})
        return failure

    @property
    def _asked(self) -> str:
        return f"{self._command} ({self._link.method})"


def _cost(earlier_usd: float | None, session_usd: float | None) -> float | None:
    """Return the cost of a prompt in USD: agents report the cost of the whole session.

    None for a session that costs nothing: agents report 0 for a model without a known price.
    """
    if earlier_usd is None or not session_usd or session_usd < earlier_usd:
        return None
    return round(session_usd - earlier_usd, 10)


def _values(option: schema.SessionConfigOptionSelect) -> Iterator[str]:
    """Yield the values of an option, grouped or not."""
    for entry in option.options:
        if isinstance(entry, schema.SessionConfigSelectGroup):
            yield from (inner.value for inner in entry.options)
        else:
            yield entry.value
