"""The kind `claude_code`: Claude Code, one kept-alive process per agent and session of its own.

Each call is a line of JSON on its stdin and ends with a `result` object on stdout. With
`keep_alive: false` the process is ended after each call; it is spoken to in the same way.
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
from arena_cli.adapters.coding import claude_code_answer, claude_code_session, launch
from arena_cli.adapters.coding.claude_code_answer import LOGIN, SessionLostError, Turn
from arena_cli.adapters.coding.claude_code_turns import Turns
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

_SPEAKS_JSON = (
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
    def command_line(cls, given: Mapping[str, Any]) -> list[str]:
        """Return the program, `claude` where none is named."""
        return super().command_line({"program": given.get("program") or "claude"})

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """A key is handed on where there is one, and no login that it would take the place of."""
        if _has_login(programs.environment(environ, {})):
            return {}
        return launch.suggest_env(_KEYS, environ, addresses=("ANTHROPIC_BASE_URL",))


class ClaudeCodeAdapter:
    """Speaks to Claude Code, one call at a time."""

    settings_type: ClassVar[type[Settings]] = ClaudeCodeSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: ClaudeCodeSettings = setup.settings
        name = self._settings.program or "claude"
        asked = shlex.join([name, *_SPEAKS_JSON, *self._options()])
        model = self._settings.model or "of that name"
        self._asked = http.Asked(setup.agent_id, asked, model, key=f"the login: {LOGIN}")
        self._turns = Turns()
        self._kept = Kept(setup.agent_id, asked=asked, name="Claude Code")
        self._session = claude_code_session.new()
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """The process starts with the first call."""

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """One turn, in the session that `own_session` names, or in a new one if that is lost."""
        async with self._one_at_a_time:
            try:
                output = await self._turn(input, emit)
            except SessionLostError:
                emit(CallNote({"lost_session": self._session.id}))
                output = await self._turn(input.afresh(), emit)
            emit(claude_code_session.told(self._session))
            return output

    async def health(self) -> Health:
        """Whether the program and a key or a login for it are there; it is not run."""
        try:
            self._program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        given = self._environment()
        if any(name in given for name in (*_KEYS, *_OTHER_PROVIDERS)) or _has_login(given):
            return Health(ok=True)
        wrong = launch.explain_missing_key(_KEYS, self._settings.env, self._setup.environ)
        return Health(ok=False, detail=wrong or f"it has no login and no key; {LOGIN}")

    async def stop(self) -> None:
        """End the process."""
        await self._kept.stop()

    async def _turn(self, input: AgentInput, emit: Emit) -> AgentOutput:
        system, prompt = self._setup.render(input)
        own = claude_code_session.of(input.own_session)
        if input.own_session and not own:
            return await self._turn(input.afresh(), emit)
        if not own or own.id != self._session.id or not self._kept.is_running():
            await self._kept.stop()
            self._session = own or claude_code_session.new()
        turn = Turn(self._asked, emit, self._turns)
        try:
            return await self._answer(turn, system, prompt, is_resumed=bool(own))
        except asyncio.CancelledError:
            emit(CallNote(self._kept.notes()))
            raise
        except SessionLostError:
            await self._kept.end()
            raise
        except AgentError as error:
            await self._kept.end()
            notes = self._kept.notes()
            if own and claude_code_answer.LOST in notes.get("stderr", ""):
                raise SessionLostError(notes["stderr"]) from error
            error.metadata = {**notes, **error.metadata}
            raise
        finally:
            if not self._settings.keep_alive:
                await self._kept.stop()

    async def _answer(
        self, turn: Turn, system: str, prompt: str, *, is_resumed: bool
    ) -> AgentOutput:
        program_file = self._program()
        with launch.write_system_file(self._setup, program_file, system) as path:
            session = ["--resume" if is_resumed else "--session-id", self._session.id]
            program = Program(
                argv=[
                    *(str(program_file), *_SPEAKS_JSON, *self._options()),
                    *(*session, "--system-prompt-file", path, *self._settings.args),
                ],
                cwd=programs.folder(self._setup.workspace, self._settings.cwd),
                environ=self._environment(),
                records=self._setup.records,
                agent=self._setup.agent_id,
            )
            result = await self._kept.exchange(
                program,
                _message(prompt, self._turns.expect()),
                is_end=turn.is_end,
                on_object=turn.take,
                on_aside=self._turns.take,
                on_sent=self._turns.sent,
            )
        output = turn.output(result, self._session.spent)
        self._session = self._session._replace(spent=claude_code_session.spent_in(result))
        return output.model_copy(update={"metadata": {**self._kept.notes(), **output.metadata}})

    def _program(self) -> Path:
        """The program file: as set, else on PATH, else what `claude-agent-sdk` brought along."""
        name = self._settings.program
        if name is None:
            return launch.find_program(self._setup, "claude", INSTALL, fallback=_bundled)
        return launch.find_program(self._setup, name, INSTALL)

    def _options(self) -> list[str]:
        options = ["--tools", ",".join(self._settings.tools)]
        if self._settings.model:
            options += ["--model", self._settings.model]
        if self._settings.permission_mode:
            options += ["--permission-mode", self._settings.permission_mode]
        return options

    def _environment(self) -> dict[str, str]:
        return programs.environment(self._setup.environ, {**_ENVIRONMENT, **self._settings.env})


def _message(prompt: str, message_id: str) -> str:
    """A prompt as a line; one that begins with a slash would be a command of Claude Code's."""
    text = f" {prompt}" if prompt.startswith("/") else prompt
    content = [{"type": "text", "text": text}]
    message = {"role": "user", "content": content}
    return json.dumps({"type": "user", "message": message, "uuid": message_id})


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("claude_agent_sdk")
    name = "claude.exe" if sys.platform == "win32" else "claude"
    for folder in spec.submodule_search_locations or [] if spec else []:
        path = Path(folder) / "_bundled" / name
        if os.access(path, os.X_OK):
            return path
    return None


def _has_login(environ: Mapping[str, str]) -> bool:
    """Whether Claude Code has been logged in, or told how to get a key, in its files."""
    home = environ.get("USERPROFILE" if sys.platform == "win32" else "HOME") or "."
    given = environ.get("CLAUDE_CONFIG_DIR")
    folder = Path(given or Path(home) / ".claude")
    known: Any = _json_of((Path(given) if given else Path(home)) / ".claude.json")
    settings: Any = _json_of(folder / "settings.json")
    return (
        (folder / ".credentials.json").is_file()
        or any(known.get(key) for key in ("oauthAccount", "primaryApiKey"))
        or bool(settings.get("apiKeyHelper"))
        or any(key in (settings.get("env") or {}) for key in (*_KEYS, *_OTHER_PROVIDERS))
    )


def _json_of(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
