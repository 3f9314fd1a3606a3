"""Run Claude Code as an agent (`claude_code`): one process, kept alive, per agent and session.

Each call is a line of JSON on its stdin and ends with a `result` object on stdout. With
`keep_alive: false` the process is ended after each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from arena_cli.adapters import http
from arena_cli.adapters.anthropic.request import make_file_block
from arena_cli.adapters.base import Adapter, HandedServer, Health, Settings, Setup, ToolWay
from arena_cli.adapters.claude_turn import (
    EDITING_TOOLS,
    LOGIN_HINT,
    LOST_SESSION,
    ClaudeSession,
    ClaudeTurn,
    SessionLostError,
    TurnTracker,
    dict_or_empty,
    list_or_empty,
    read_spending,
)
from arena_cli.adapters.coding_agents import (
    AttachedFile,
    describe_paths,
    is_dead_session,
    list_new_files,
    report_lost_session,
)
from arena_cli.adapters.coding_clis import adapter
from arena_cli.adapters.mcp_servers import WAIT_FOR_SERVERS, describe_for_claude, list_claude_rules
from arena_cli.adapters.pricing import given_pricing
from arena_cli.adapters.process import run
from arena_cli.adapters.process.run import KeptProgram, ProgramSettings
from arena_cli.errors import AgentError, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, CallNote, Emit

_READING_TOOLS = frozenset({"Read", "Glob", "Grep", "LS"})
_PERMISSION_OPTIONS = frozenset(
    {
        "--allowedTools",
        "--allowed-tools",
        "--permission-mode",
        "--permission-prompt-tool",
        "--dangerously-skip-permissions",
    }
)
# Options that would decide in place of arena.
_MODE_OPTIONS = _PERMISSION_OPTIONS - {"--allowedTools", "--allowed-tools"}

ASK = "ask"
"""The permission mode in which Claude Code asks arena, beside its own modes."""


def permission_options(
    tools: Sequence[str],
    mode: str | None,
    args: Sequence[str],
    readable: Path,
    servers: Sequence[HandedServer] = (),
) -> list[str]:
    """Return the options that let it use `tools` as they are written, unless the profile decides.

    A profile decides by a permission `mode`, or by options of its own in `args`. Tools for files
    are not allowed by name, which would allow them everywhere: in `cwd`, Claude Code lets it read
    in any mode, and edit in the mode `acceptEdits`. It may also read the files in `readable`, those
    of messages. In the mode `ask`, it asks arena for all else. It may call the tools of the MCP
    servers; in the mode `ask`, those of arena's own.
    """
    attached = [f"Read(/{readable.as_posix()}/**)"] if "Read" in tools else []
    if mode == ASK:
        asks = ["--permission-prompt-tool", "stdio"] if tools or servers else []
        attached += list_claude_rules([server for server in servers if server.is_own])
        return ["--permission-mode", "default", *asks, *_allow(attached)]
    called = list_claude_rules(servers)
    if _decides_permissions(args):
        return [*(("--permission-mode", mode) if mode else ()), *_allow(called)]
    attached += called
    if mode:
        return ["--permission-mode", mode, *_allow(attached)]
    allowed = [tool for tool in tools if tool not in _READING_TOOLS | EDITING_TOOLS] + attached
    options = ["--allowedTools", ",".join(allowed)] if allowed else []
    if EDITING_TOOLS & set(tools):
        options += ["--permission-mode", "acceptEdits"]
    return options


def _allow(rules: Sequence[str]) -> list[str]:
    """Return the option that allows what these rules name."""
    return ["--allowedTools", *rules] if rules else []


def _decides_permissions(args: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in _PERMISSION_OPTIONS for word in args)


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
    Claude Code's own tools that it may use: without a `permission_mode`, all of them as they are
    named, files within `cwd`. That mode is one of Claude Code's, or `ask`: `approvals` decide.
    """

    program: Annotated[str, Field(min_length=1)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    tools: list[str] = []
    permission_mode: Annotated[str, Field(min_length=1)] | None = None
    keep_alive: bool = True

    @model_validator(mode="after")
    def _lets_one_decide(self) -> ClaudeCodeSettings:
        for word in self.args if self.permission_mode == ASK else ():
            if word.partition("=")[0] in _MODE_OPTIONS:
                raise ValueError(f"permission_mode: ask does not work with {word} in args")
        return self

    @classmethod
    def takes_tools(cls, keys: Mapping[str, Any]) -> ToolWay:  # noqa: ARG003 - it is always so
        """Return that its program calls MCP servers."""
        return "mcp"

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
        tools, mode = list_or_empty(keys.get("tools")), keys.get("permission_mode")
        if not tools:
            return "may use no tools"
        text = f"may use {', '.join(tools)}"
        if mode == ASK:
            return f"{text}; it asks arena first"
        if mode:
            return f"{text}, as far as `permission_mode: {mode}` allows"
        if _decides_permissions(list_or_empty(keys.get("args"))):
            return f"{text}, as far as `args` allow"
        files = (_READING_TOOLS | EDITING_TOOLS) & set(tools)
        limits = [f"files in {keys.get('cwd') or '.'}"] if files else []
        limits += ["any command"] if "Bash" in tools else []
        return "; ".join([text, ", ".join(limits)]) if limits else text

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return an `env` that passes a key on, unless there is a login that it would replace."""
        if _has_login(run.build_environment(environ, {})):
            return {}
        return adapter.suggest_env(_KEYS, environ, addresses=("ANTHROPIC_BASE_URL",))


class ClaudeCodeAdapter(Adapter):
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
        message = {"role": "user", "content": content}
        with (
            run.write_text_file(self._setup, path, system, asked=path.name) as system_file,
            self._write_servers(path) as server_options,
        ):
            session = ("--resume" if is_resumed else "--session-id", self._session.id)
            argv = [
                *(str(path), *_JSON_OPTIONS, *self._options(), *server_options, *session),
                *("--system-prompt-file", system_file, *self._settings.args),
            ]
            program = run.make_program(self._setup, argv, self._environment())
            result = await self._process.exchange(
                program,
                json.dumps({"type": "user", "message": message, "uuid": self._tracker.expect()}),
                is_end=turn.is_end,
                on_object=turn.read_event,
                on_aside=self._tracker.observe,
                on_sent=self._tracker.mark_sent,
                on_request=turn.answer_request,
            )
        output = turn.read_result(result, self._session.spending)
        self._session = self._session._replace(spending=read_spending(result))
        return output.model_copy(update={"metadata": {**self._process.notes(), **output.metadata}})

    def _find_program(self) -> Path:
        """Return the configured program, else the one on PATH, else that of `claude-agent-sdk`."""
        setup, name = self._setup, self._settings.program or "claude"
        if self._settings.program is None:
            known = run.find_program(name, workspace=setup.workspace, environ=setup.environ)
            name = name if known else str(_bundled() or name)
        return adapter.find_program(setup, name, INSTALL)

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
                servers=self._setup.servers,
            ),
        ]

    @contextlib.contextmanager
    def _write_servers(self, program: Path) -> Iterator[list[str]]:
        """Yield the options that name the file with the MCP servers, which may hold secrets."""
        servers = self._setup.servers
        if not servers:
            yield []
            return
        folder = self._setup.workspace / self._settings.cwd
        text = describe_for_claude(servers, folder)
        with run.write_text_file(self._setup, program, text, asked=program.name) as path:
            yield ["--mcp-config", path]

    def _environment(self) -> dict[str, str]:
        waits = WAIT_FOR_SERVERS if self._setup.servers else {}
        variables = {**_ENVIRONMENT, **waits, **self._settings.env}
        return run.build_environment(self._setup.environ, variables)


def _content(prompt: str, files: Sequence[AttachedFile], emit: Emit) -> list[dict[str, Any]]:
    """Return a message's blocks: the files, then the prompt, which must not begin with a slash."""
    blocks: list[dict[str, Any]] = []
    hidden: list[AttachedFile] = []
    for file in files:
        if block := make_file_block(file.content):
            blocks += [{"type": "text", "text": file.label}, block]
        else:
            hidden.append(file)
    if paths := describe_paths(hidden, emit):
        blocks.append({"type": "text", "text": paths})
    text = f" {prompt}" if prompt.startswith("/") else prompt
    return [*blocks, {"type": "text", "text": text}]


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
