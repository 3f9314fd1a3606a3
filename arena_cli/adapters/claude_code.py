"""Run Claude Code as an agent (`claude_code`): one process, kept alive, per agent and session.

Each call is a line of JSON on its stdin and ends with a `result` object on stdout. With
`keep_alive: false` the process is ended after each call.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import os
import shlex
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from arena_cli.adapters import error_words, http
from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.adapters.claude_tools import ClaudeToolUses, describe_tools, permission_options
from arena_cli.adapters.claude_usage import (
    ClaudeSession,
    Spending,
    dict_or_empty,
    list_or_empty,
    read_spending,
    read_turn_usage,
)
from arena_cli.adapters.coding_agents import (
    AttachedFile,
    describe_paths,
    is_dead_session,
    list_new_files,
    report_lost_session,
)
from arena_cli.adapters.coding_clis import adapter
from arena_cli.adapters.pricing import Pricing, given_pricing
from arena_cli.adapters.process import run
from arena_cli.adapters.process.run import KeptProgram, ProgramSettings
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.protocol import (
    AgentInput,
    AgentOutput,
    CallNote,
    Emit,
    StatusEvent,
    TextDelta,
)
from arena_cli.util.text import clean_text, clean_value, cut_text


class TurnTracker:
    """Follow the turns of one process, to find the `result` that answers the message.

    Claude Code also runs turns of its own, when a task in the background has ended for example,
    before it reads a message or between two of them. Each ends with a `result`, too. Newer versions
    name in a result the messages that it answers (`user_message_uuids`) and its cause (`origin`);
    of older ones only the order of the events is known: `task_notification`, `init`, ..., `result`.

    `observe` must get all that the process writes, in order.
    is_own_turn: the running turn is Claude Code's own, as far as is known yet.
    """

    def __init__(self) -> None:
        self.is_own_turn = False
        self._message_id = ""
        self._is_running = False
        self._was_notified_before = False
        self._was_notified_within = False

    def expect(self) -> str:
        """Return the uuid for the next message."""
        self._message_id = str(uuid.uuid4())
        return self._message_id

    def mark_sent(self, is_new: bool) -> None:
        """Record that the message was sent, to a new process if `is_new`."""
        if is_new:
            self._reset()
        self.is_own_turn = self._is_running

    def observe(self, event: dict[str, Any]) -> None:
        """Update the turns by an object that Claude Code wrote."""
        kind = (event.get("type"), event.get("subtype"))
        if event.get("parent_tool_use_id") is not None:
            return
        if kind[0] == "result":
            self._reset()
        elif kind == ("system", "task_notification"):
            self._was_notified_before = self._was_notified_before or not self._is_running
            self._was_notified_within = self._is_running
        elif kind == ("system", "init") and not self._is_running:
            self._is_running = True
            self.is_own_turn = self._was_notified_before
            self._was_notified_before = False
        elif self._message_id in _message_ids(event):
            self.is_own_turn = False

    def is_answer(self, result: dict[str, Any]) -> bool:
        """Return True if this result, not yet observed, ends the turn of the message."""
        message_ids = _message_ids(result)
        if message_ids:
            return self._message_id in message_ids
        origin = result.get("origin")
        cause = origin.get("kind") if isinstance(origin, dict) else None
        if cause == "human":
            return True
        if cause is not None and not self._was_notified_within:
            return False
        return not self.is_own_turn and not self._was_notified_before

    def _reset(self) -> None:
        self._is_running = self.is_own_turn = False
        self._was_notified_before = self._was_notified_within = False


def _message_ids(event: dict[str, Any]) -> list[Any]:
    """Return the uuids of the messages that caused an event, if it names any."""
    several = event.get("user_message_uuids")
    message_ids = several if isinstance(several, list) else []
    return [each for each in (*message_ids, event.get("user_message_uuid")) if each]


LOST_SESSION = "No conversation found"
LOGIN_HINT = "run `claude` once to log in, or pass a key on: env: {ANTHROPIC_API_KEY: inherit}"

_MAX_SHOWN_CHARACTERS = 600

_UNREACHED = ("connection", "timed out", "network", "dns")


class SessionLostError(Exception):
    """The session to resume is gone."""


class ClaudeTurn:
    """Read the objects of one turn as they come, and emit the text and status in them.

    The shapes are those of `--output-format stream-json` captured from 2.1.197 and 2.1.332.
    `is_error` marks a turn that failed; `subtype` is `success` for most failures too. `has_begun`:
    the model has answered something. `folder` is where the program runs; `rates` are the prices of
    its model in `arena.yaml`.
    """

    def __init__(
        self,
        request: http.HttpRequest,
        emit: Emit,
        tracker: TurnTracker,
        folder: Path,
        rates: Pricing | None,
    ) -> None:
        self._request = request
        self._emit = emit
        self._tracker = tracker
        self._tools = ClaudeToolUses(emit, folder)
        self._rates = rates
        self._thinking: list[str] = []
        self._message_id: Any = None
        self._texts: list[str] = []
        self._own_results: list[dict[str, Any]] = []
        self._resets_at: float | None = None
        self.has_begun = False
        self._is_generating = False

    def is_end(self, event: dict[str, Any]) -> bool:
        """Return True if an object is the result of this turn, and not of one in between."""
        if event.get("type") != "result":
            return False
        is_answer = self._tracker.is_answer(event)
        self._tracker.observe(event)
        if not is_answer:
            self._own_results.append(event)
            self._thinking, self._texts, self._message_id = [], [], None
        return is_answer

    def read_event(self, event: dict[str, Any]) -> None:
        """Read one object that is not the last. Text of subagents is not part of the reply."""
        self._tracker.observe(event)
        kind = event.get("type")
        self.has_begun = self.has_begun or kind in ("assistant", "stream_event")
        is_main = event.get("parent_tool_use_id") is None
        if kind == "rate_limit_event":
            info = dict_or_empty(event.get("rate_limit_info"))
            if info.get("status") == "rejected" and isinstance(info.get("resetsAt"), (int, float)):
                self._resets_at = info["resetsAt"]
        elif kind == "stream_event" and is_main and not self._tracker.is_own_turn:
            self._read_delta(dict_or_empty(dict_or_empty(event.get("event")).get("delta")))
        elif kind == "assistant" and not self._tracker.is_own_turn:
            self._read_message(dict_or_empty(event.get("message")), is_main)
        elif kind == "user":
            self._tools.read_results(event)

    def read_result(self, result: dict[str, Any], earlier: Spending | None) -> AgentOutput:
        """Return the reply; `earlier` is the session's spending before this turn.

        Raises AgentError if there is none, SessionLostError if the session to resume is gone.
        """
        result, has_replaced = clean_value(result)
        self._tools.read_denials(result)
        usage = read_turn_usage(result, earlier, self._own_results, self._rates)
        if usage.input_tokens or usage.output_tokens:
            self._emit(usage)
        if result.get("is_error") or not isinstance(result.get("result"), str):
            raise self._failure(result)
        metadata: dict[str, Any] = {"raw": result}
        if self._own_results:
            metadata["unasked_results"] = len(self._own_results)
        if self._thinking:
            metadata["thinking"] = clean_text("\n\n".join(self._thinking))[0]
        if has_replaced:
            metadata["replaced_bytes"] = True
        content = clean_text("".join(self._texts))[0]
        if result["result"] not in content:
            content = result["result"]
        return AgentOutput(content=content, usage=usage, metadata=metadata)

    def _read_delta(self, delta: dict[str, Any]) -> None:
        text = delta.get("text")
        if delta.get("type") == "text_delta" and isinstance(text, str):
            if not self._is_generating:
                self._is_generating = True
                self._emit(StatusEvent(status="generating"))
            self._emit(TextDelta(text))

    def _read_message(self, message: dict[str, Any], is_main: bool) -> None:
        """Read a message, or the next part of one: a message may come in several events.

        The last message's texts are the reply; `result` has only one of them in some versions.
        """
        if is_main and (message.get("id") is None or message.get("id") != self._message_id):
            self._message_id, self._texts = message.get("id"), []
        for block in map(dict_or_empty, list_or_empty(message.get("content"))):
            kind = block.get("type")
            if kind == "thinking" and block.get("thinking"):
                self._thinking.append(str(block["thinking"]))
            elif kind == "tool_use":
                self._is_generating = False
                self._tools.begin(block)
            if is_main and kind == "text":
                self._texts.append(str(block.get("text", "")))
            elif is_main and "tool" in str(kind):
                self._texts = []  # text before a tool's call is no part of the reply

    def _failure(self, result: dict[str, Any]) -> AgentError | SessionLostError:
        raw_errors = result.get("errors")
        errors = [str(error) for error in raw_errors] if isinstance(raw_errors, list) else []
        message = str(result.get("result") or " | ".join(errors) or result.get("subtype", ""))
        if any(LOST_SESSION in error for error in errors):
            return SessionLostError(message)
        status = result.get("api_error_status")
        if status is None and http.is_too_long(0, message):
            status = 400
        if isinstance(status, int) and not isinstance(status, bool):
            headers = {}
            if self._resets_at is not None:
                headers["retry-after"] = f"{max(0.0, self._resets_at - time.time()):.0f}"
            error = http.status_failure(self._request, status, headers, message)
            if status == 404:
                error.mend = "see `model` in its profile"
        else:
            error_type, summary, hint = _explain_failure(result, message)
            is_max_turns = result.get("subtype") == "error_max_turns"
            error = error_type(
                self._request.agent_id,
                summary,
                asked=self._request.url,
                came=cut_text(" ".join(message.split()), _MAX_SHOWN_CHARACTERS),
                mend=hint,
                again=not (error_words.is_cut_off(message) or is_max_turns),
            )
        error.metadata["raw"] = result
        return error


def _explain_failure(result: dict[str, Any], message: str) -> tuple[type[AgentError], str, str]:
    """Return the class of the error, what happened and a hint, if no HTTP status is reported."""
    subtype, folded = result.get("subtype"), message.casefold()
    status = error_words.find_status(message)
    error_type: type[AgentError] = AgentProtocolError
    summary, hint = "Claude Code failed", "run `claude` by hand to see more"
    if result.get("stop_reason") == "refusal":
        error_type, summary = AgentRefused, "the model refused to answer this"
        hint = "rephrase the message, or ask another agent"
    elif subtype == "error_max_turns":
        summary = "it reached its limit of turns before it answered"
        hint = "raise --max-turns in `args`, or give it fewer tools"
    elif subtype == "error_max_budget_usd":
        error_type, summary = AgentRefused, "its budget is spent"
        hint = "raise --max-budget-usd in `args`"
    elif error_words.is_cut_off(message):
        summary = "its answer was cut off at the length limit"
        hint = (
            "raise it with env: {CLAUDE_CODE_MAX_OUTPUT_TOKENS: ...}, or ask for a shorter answer"
        )
    elif status == HTTPStatus.UNAUTHORIZED:
        error_type, summary, hint = AgentRefused, "Claude Code is not logged in", LOGIN_HINT
    elif status == HTTPStatus.PAYMENT_REQUIRED:
        error_type, summary = AgentRefused, "its provider reports that no credit is left"
        hint = "top up the account that its key belongs to"
    elif status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        error_type, summary = AgentOverloaded, "its provider is overloaded, or limits requests"
        hint = "try again later"
    elif status or any(words in folded for words in _UNREACHED):
        error_type, summary = AgentUnavailable, "Claude Code could not reach its provider"
        hint = "check the network, and ANTHROPIC_BASE_URL if `env` sets it"
    return error_type, summary, hint


INSTALL = (
    "npm install -g @anthropic-ai/claude-code, or pip install claude-agent-sdk;"
    " then run claude once to log in"
)

_JSON_OPTIONS = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--verbose", "--include-partial-messages", "--strict-mcp-config"),
)
# Retries are arena's; @path in the text of a message must not put a file into the request; what
# runs on in the background would answer at a time of its own.
_ENVIRONMENT = {
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
}
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_OTHER_PROVIDERS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


class ClaudeCodeSettings(ProgramSettings):
    """The keys of `adapter: {type: claude_code, ...}`.

    `program` is looked for on PATH, or is a path from the workspace; `tools` are the names of
    Claude Code's own tools that it may use: without a `permission_mode`, which is one of Claude
    Code's, all of them as they are named, files within `cwd`.
    """

    program: Annotated[str, Field(min_length=1)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    tools: list[str] = []
    permission_mode: Annotated[str, Field(min_length=1)] | None = None
    keep_alive: bool = True

    @classmethod
    def command_line(cls, keys: Mapping[str, Any]) -> list[str]:
        """Return the program, by default `claude`."""
        return super().command_line({"program": keys.get("program") or "claude"})

    @classmethod
    def identify_powers(cls, keys: Mapping[str, Any]) -> str:
        """Return what it may do if the profile names tools."""
        return cls.describe_powers(keys) if keys.get("tools") else ""

    @classmethod
    def describe_powers(cls, keys: Mapping[str, Any]) -> str:
        """Return the tools that it may use, and how far."""
        tools, args = list_or_empty(keys.get("tools")), list_or_empty(keys.get("args"))
        return describe_tools(tools, keys.get("permission_mode"), args, keys.get("cwd") or ".")

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return an `env` that passes a key on, unless there is a login that it would replace."""
        if _has_login(run.build_environment(environ, {})):
            return {}
        return adapter.suggest_env(_KEYS, environ, addresses=("ANTHROPIC_BASE_URL",))


class ClaudeCodeAdapter:
    """Exchange messages with Claude Code, one call at a time."""

    settings_type: ClassVar[type[Settings]] = ClaudeCodeSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: ClaudeCodeSettings = setup.settings
        words = [self._settings.program or "claude", *_JSON_OPTIONS, *self._options()]
        command = shlex.join(words)
        model = self._settings.model or "of that name"
        self._request = http.HttpRequest(
            setup.agent_id, command, model, key=f"the login: {LOGIN_HINT}"
        )
        self._tracker = TurnTracker()
        self._process = KeptProgram(setup.agent_id, asked=command, name="Claude Code")
        self._session = ClaudeSession.begin()
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Do nothing: the process starts with the first call."""

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Run one turn, in the session of `own_session`, or in a new one if that is lost."""
        async with self._lock:
            try:
                output = await self._run_turn(input, emit)
            except SessionLostError as error:
                report_lost_session(emit, self._session.id, str(error))
                output = await self._run_turn(input.afresh(), emit)
            emit(self._session.dump())
            return output

    async def health(self) -> Health:
        """Look for the program, and for a key or a login of it; it is not run."""
        try:
            self._find_program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        environ = self._environment()
        if any(name in environ for name in (*_KEYS, *_OTHER_PROVIDERS)) or _has_login(environ):
            return Health(ok=True)
        problem = adapter.explain_missing_key(_KEYS, self._settings.env, self._setup.environ)
        return Health(ok=False, detail=problem or f"it has no login and no key; {LOGIN_HINT}")

    async def stop(self) -> None:
        """End the process."""
        await self._process.stop()

    async def _run_turn(self, input: AgentInput, emit: Emit) -> AgentOutput:
        session = ClaudeSession.load(input.own_session)
        shown = input if session else input.afresh()
        system, prompt = self._setup.render(shown)
        content = _content(prompt, list_new_files(shown, self._setup.workspace), emit)
        is_open = self._is_open(session)
        if not is_open:
            await self._process.stop()
            self._session = session or ClaudeSession.begin()
        folder = (self._setup.workspace / self._settings.cwd).resolve()
        rates = given_pricing(None, self._setup.models.get(self._settings.model or ""))
        turn = ClaudeTurn(self._request, emit, self._tracker, folder, rates)
        try:
            return await self._exchange(turn, system, content, is_resumed=session is not None)
        except asyncio.CancelledError:
            emit(CallNote(self._process.notes()))
            raise
        except SessionLostError:
            await self._process.end()
            raise
        except AgentError as error:
            await self._process.end()
            notes = self._process.notes()
            may_be_dead = not (is_open or turn.has_begun)
            is_gone = LOST_SESSION in notes.get("stderr", "")
            if session and (is_gone or (may_be_dead and is_dead_session(error))):
                raise SessionLostError(error.came) from error
            error.metadata = {**notes, **error.metadata}
            raise
        finally:
            if not self._settings.keep_alive:
                await self._process.stop()

    def _is_open(self, session: ClaudeSession | None) -> bool:
        """Return True if the running process has this session."""
        is_current = session is not None and session.id == self._session.id
        return is_current and self._process.is_running()

    async def _exchange(
        self, turn: ClaudeTurn, system: str, content: list[Any], *, is_resumed: bool
    ) -> AgentOutput:
        path = self._find_program()
        with adapter.write_system_file(self._setup, path, system) as system_file:
            session = ("--resume" if is_resumed else "--session-id", self._session.id)
            program = Program(
                argv=[
                    *(str(path), *_JSON_OPTIONS, *self._options(), *session),
                    *("--system-prompt-file", system_file, *self._settings.args),
                ],
                cwd=run.prepare_folder(self._setup.workspace, self._settings.cwd),
                environ=self._environment(),
                records=self._setup.records,
                agent=self._setup.agent_id,
            )
            result = await self._process.exchange(
                program,
                _message_line(content, self._tracker.expect()),
                is_end=turn.is_end,
                on_object=turn.read_event,
                on_aside=self._tracker.observe,
                on_sent=self._tracker.mark_sent,
            )
        output = turn.read_result(result, self._session.spending)
        self._session = self._session._replace(spending=read_spending(result))
        return output.model_copy(update={"metadata": {**self._process.notes(), **output.metadata}})

    def _find_program(self) -> Path:
        """Return the configured program, else the one on PATH, else that of `claude-agent-sdk`."""
        if self._settings.program is None:
            return adapter.find_program(self._setup, "claude", INSTALL, fallback=_bundled)
        return adapter.find_program(self._setup, self._settings.program, INSTALL)

    def _options(self) -> list[str]:
        options = ["--tools", ",".join(self._settings.tools)]
        if self._settings.model:
            options += ["--model", self._settings.model]
        settings = self._settings
        return [
            *options,
            *permission_options(
                settings.tools,
                settings.permission_mode,
                settings.args,
                readable=(self._setup.scratch.parent / "attachments").resolve(),
            ),
        ]

    def _environment(self) -> dict[str, str]:
        return run.build_environment(self._setup.environ, {**_ENVIRONMENT, **self._settings.env})


def _content(prompt: str, files: Sequence[AttachedFile], emit: Emit) -> list[dict[str, Any]]:
    """Return a message's blocks: the files, then the prompt, which must not begin with a slash."""
    blocks: list[dict[str, Any]] = []
    for file in files:
        if block := _file_block(file):
            blocks += [{"type": "text", "text": file.label}, block]
    if hidden := describe_paths([file for file in files if not _file_block(file)], emit):
        blocks.append({"type": "text", "text": hidden})
    text = f" {prompt}" if prompt.startswith("/") else prompt
    return [*blocks, {"type": "text", "text": text}]


def _file_block(file: AttachedFile) -> dict[str, Any] | None:
    """Return an image, a PDF or a text as the block that Claude Code takes; None for others."""
    if file.content is None:
        return None
    if file.is_image or file.is_pdf:
        data = base64.b64encode(file.content.data).decode("ascii")
        source = {"type": "base64", "media_type": file.content.media_type, "data": data}
        return {"type": "image" if file.is_image else "document", "source": source}
    if file.text is None:
        return None
    source = {"type": "text", "media_type": "text/plain", "data": file.text}
    return {"type": "document", "title": file.name, "source": source}


def _message_line(content: Sequence[Any], message_id: str) -> str:
    message = {"role": "user", "content": content}
    return json.dumps({"type": "user", "message": message, "uuid": message_id})


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("claude_agent_sdk")
    name = "claude.exe" if sys.platform == "win32" else "claude"
    folders = (spec and spec.submodule_search_locations) or []
    paths = (Path(folder) / "_bundled" / name for folder in folders)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _has_login(environ: Mapping[str, str]) -> bool:
    """Return True if Claude Code's files have a login, or a way to get a key."""
    home = Path(environ.get("USERPROFILE" if sys.platform == "win32" else "HOME") or ".")
    config = environ.get("CLAUDE_CONFIG_DIR")
    folder = Path(config) if config else home / ".claude"
    state = _read_object((Path(config) if config else home) / ".claude.json")
    settings = _read_object(folder / "settings.json")
    return (
        (folder / ".credentials.json").is_file()
        or any(state.get(key) for key in ("oauthAccount", "primaryApiKey"))
        or bool(settings.get("apiKeyHelper"))
        or any(key in (settings.get("env") or {}) for key in (*_KEYS, *_OTHER_PROVIDERS))
    )


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return dict_or_empty(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
