"""Run Claude Code as an agent (`claude_code`): one process, kept alive, per agent and session.

Each call is a line of JSON on its stdin and ends with a `result` object on stdout. With
`keep_alive: false` the process is ended after each call.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from arena_cli.adapters.api import http
from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.adapters.coding import launch
from arena_cli.adapters.coding.claude_code_answer import (
    LOGIN_HINT,
    LOST_SESSION,
    ClaudeTurn,
    SessionLostError,
)
from arena_cli.adapters.coding.claude_code_session import (
    ClaudeSession,
    dict_or_empty,
    read_spending,
)
from arena_cli.adapters.coding.claude_code_turns import TurnTracker
from arena_cli.adapters.processes import programs
from arena_cli.adapters.processes.kept import Kept
from arena_cli.adapters.processes.process import Program
from arena_cli.adapters.processes.programs import ProgramSettings
from arena_cli.ground.errors import AgentError, AgentUnavailable
from arena_cli.ground.protocol import AgentInput, AgentOutput, CallNote, Emit

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
    Claude Code's own tools that it may use, `permission_mode` is one of Claude Code's.
    """

    powers: ClassVar[tuple[str, ...]] = ("tools", "permission_mode")

    program: Annotated[str, Field(min_length=1)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    tools: list[str] = []
    permission_mode: Annotated[str, Field(min_length=1)] | None = None
    keep_alive: bool = True

    @classmethod
    def command_line(cls, keys: Mapping[str, Any]) -> list[str]:
        """Return the program, `claude` where none is named."""
        return super().command_line({"program": keys.get("program") or "claude"})

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return an `env` that passes a key on, unless there is a login that it would replace."""
        if _has_login(programs.environment(environ, {})):
            return {}
        return launch.suggest_env(_KEYS, environ, addresses=("ANTHROPIC_BASE_URL",))


class ClaudeCodeAdapter:
    """Exchange messages with Claude Code, one call at a time."""

    settings_type: ClassVar[type[Settings]] = ClaudeCodeSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: ClaudeCodeSettings = setup.settings
        words = [self._settings.program or "claude", *_JSON_OPTIONS, *self._options()]
        command = shlex.join(words)
        model = self._settings.model or "of that name"
        self._request = http.Asked(setup.agent_id, command, model, key=f"the login: {LOGIN_HINT}")
        self._tracker = TurnTracker()
        self._process = Kept(setup.agent_id, asked=command, name="Claude Code")
        self._session = ClaudeSession.begin()
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Do nothing: the process starts with the first call."""

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Run one turn, in the session of `own_session`, or in a new one if that is lost."""
        async with self._lock:
            try:
                output = await self._run_turn(input, emit)
            except SessionLostError:
                emit(CallNote({"lost_session": self._session.id}))
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
        problem = launch.explain_missing_key(_KEYS, self._settings.env, self._setup.environ)
        return Health(ok=False, detail=problem or f"it has no login and no key; {LOGIN_HINT}")

    async def stop(self) -> None:
        """End the process."""
        await self._process.stop()

    async def _run_turn(self, input: AgentInput, emit: Emit) -> AgentOutput:
        session = ClaudeSession.load(input.own_session)
        system, prompt = self._setup.render(input if session else input.afresh())
        is_open = session is not None and session.id == self._session.id
        if not is_open or not self._process.is_running():
            await self._process.stop()
            self._session = session or ClaudeSession.begin()
        turn = ClaudeTurn(self._request, emit, self._tracker)
        try:
            return await self._exchange(turn, system, prompt, is_resumed=session is not None)
        except asyncio.CancelledError:
            emit(CallNote(self._process.notes()))
            raise
        except (AgentError, SessionLostError) as error:
            await self._process.end()
            if isinstance(error, SessionLostError):
                raise
            notes = self._process.notes()
            if session and LOST_SESSION in notes.get("stderr", ""):
                raise SessionLostError(notes["stderr"]) from error
            error.metadata = {**notes, **error.metadata}
            raise
        finally:
            if not self._settings.keep_alive:
                await self._process.stop()

    async def _exchange(
        self, turn: ClaudeTurn, system: str, prompt: str, *, is_resumed: bool
    ) -> AgentOutput:
        path = self._find_program()
        with launch.write_system_file(self._setup, path, system) as system_file:
            session = ("--resume" if is_resumed else "--session-id", self._session.id)
            program = Program(
                argv=[
                    *(str(path), *_JSON_OPTIONS, *self._options(), *session),
                    *("--system-prompt-file", system_file, *self._settings.args),
                ],
                cwd=programs.folder(self._setup.workspace, self._settings.cwd),
                environ=self._environment(),
                records=self._setup.records,
                agent=self._setup.agent_id,
            )
            result = await self._process.exchange(
                program,
                _message_line(prompt, self._tracker.expect()),
                is_end=turn.is_end,
                on_object=turn.read_event,
                on_aside=self._tracker.observe,
                on_sent=self._tracker.mark_sent,
            )
        output = turn.read_result(result, self._session.spending)
        self._session = self._session._replace(spending=read_spending(result))
        return output.model_copy(update={"metadata": {**self._process.notes(), **output.metadata}})

    def _find_program(self) -> Path:
        """Return the program as set, else on PATH, else that of the package `claude-agent-sdk`."""
        if self._settings.program is None:
            return launch.find_program(self._setup, "claude", INSTALL, fallback=_bundled)
        return launch.find_program(self._setup, self._settings.program, INSTALL)

    def _options(self) -> list[str]:
        options = ["--tools", ",".join(self._settings.tools)]
        if self._settings.model:
            options += ["--model", self._settings.model]
        if self._settings.permission_mode:
            options += ["--permission-mode", self._settings.permission_mode]
        return options

    def _environment(self) -> dict[str, str]:
        return programs.environment(self._setup.environ, {**_ENVIRONMENT, **self._settings.env})


def _message_line(prompt: str, message_id: str) -> str:
    """Return a prompt as a line; one that begins with a slash would be a command."""
    text = f" {prompt}" if prompt.startswith("/") else prompt
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
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
