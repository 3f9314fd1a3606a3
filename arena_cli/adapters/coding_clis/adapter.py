"""Run the coding programs Codex, Gemini CLI, opencode, pi and Cursor as agents.

Each call starts the program, which resumes its own session if the engine allows it. One class per
program defines how to start it; `parsers` reads its output.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

from pydantic import create_model

from arena_cli.adapters import http
from arena_cli.adapters.base import Adapter, Health, Settings, Setup, ToolWay
from arena_cli.adapters.coding_agents import (
    AttachedFile,
    describe_paths,
    list_new_files,
    report_lost_session,
)
from arena_cli.adapters.coding_clis.parsers import CodingParser, ReportedFailure
from arena_cli.adapters.process import diagnosis
from arena_cli.adapters.process import run as run_module
from arena_cli.adapters.process.output import NotAnAnswerError
from arena_cli.adapters.process.run import ProgramSettings
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.protocol import AgentInput, AgentOutput, AgentSession, Emit, SessionId, Usage


def find_program(setup: Setup, name: str, install: str) -> Path:
    """Return the program file, found by its name or path; `install` is how to install it.

    Raises AgentUnavailable if it cannot be started.
    """
    return run_module.locate_program(
        name,
        setup.settings.cwd,
        agent_id=setup.agent_id,
        workspace=setup.workspace,
        environ=setup.environ,
        key="program",
        asked=name,
        install=install,
    )


def explain_missing_key(
    keys: Sequence[str], env: Mapping[str, str], environ: Mapping[str, str]
) -> str:
    """Return why the program gets none of its keys by a profile's `env`; "" if it gets one."""
    passed = run_module.build_environment(environ, env)
    if any(key in passed for key in keys):
        return ""
    for key in keys:
        if key in environ:
            return f"{key} is set but not passed on; add env: {{{key}: inherit}}"
    for name in env:
        if name not in passed:
            return f"its `env` passes {name} on, but {name} is not set"
    return ""


def suggest_env(
    keys: Sequence[str], environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the `env` of a new profile that passes on the first key that is set, if any.

    Those of the `addresses` that are set are passed on with it: they name the key's server.
    """
    key = next((key for key in keys if environ.get(key)), None)
    if key is None:
        return {}
    names = [key, *(name for name in addresses if environ.get(name))]
    return {"env": dict.fromkeys(names, "inherit")}


_AdapterType: TypeAlias = "type[ProgramAdapter]"  # settings have a key `type`


class CodingSettings(ProgramSettings):
    """The keys of these kinds: `program` is a name on PATH, or a path from the workspace."""

    adapter: ClassVar[_AdapterType]

    program: str
    model: str | None = None

    @classmethod
    def takes_tools(cls, keys: Mapping[str, Any]) -> ToolWay:  # noqa: ARG003 - by the program
        """Return that its program calls MCP servers, if it takes them for a call."""
        return "mcp" if cls.adapter.takes_servers else ""

    @classmethod
    def command_line(cls, keys: Mapping[str, Any]) -> list[str]:
        """Return the program, by default that of the adapter."""
        return super().command_line({"program": cls.adapter.program, **keys})

    @classmethod
    def describe_powers(cls, keys: Mapping[str, Any]) -> str:
        """Return what it may do by arena's options, or which of the profile's decide."""
        env = keys.get("env")
        for name, value in env.items() if isinstance(env, Mapping) else ():
            if name in cls.adapter.powers_options:
                return f"may do what `{name}: {value}` in `env` allows"
        args = [str(word) for word in keys.get("args") or ()]
        for word, value in zip(args, [*args, ""][1:], strict=True):
            name = word.partition("=")[0]
            if name in cls.adapter.powers_options:
                option = f"{word} {value}" if word == name and value[:1] not in ("", "-") else word
                return f"may do what `{option}` in `args` allows"
        return cls.adapter.powers

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return an `env` that passes a key on, unless there is a login that it would replace."""
        has_login = cls.adapter.has_login(environ)
        if has_login:
            return {}
        return suggest_env(cls.adapter.keys, environ, addresses=cls.adapter.addresses)


_SESSION_ID = re.compile(r"\w[\w.:-]{0,199}")  # none that could be an option of a program
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class ProgramSession(NamedTuple):
    """The program's own session, and its usage so far if the program reports only that sum."""

    id: str
    used: Usage | None = None

    @classmethod
    def load(cls, session: AgentSession | None) -> ProgramSession | None:
        """Return the session of an earlier call; None if there is none that can be resumed."""
        if session is None or not _SESSION_ID.fullmatch(session.id):
            return None
        counts = {name: session.state.get(name) for name in _COUNTS}
        is_known = all(isinstance(count, int) for count in counts.values())
        return cls(session.id, Usage.model_validate(counts) if is_known else None)

    def dump(self) -> SessionId | None:
        """Return the session for the next call to load; None if its id cannot be kept."""
        if not _SESSION_ID.fullmatch(self.id):
            return None
        return SessionId(
            self.id, {name: getattr(self.used, name) for name in _COUNTS} if self.used else {}
        )

    def usage_since(self, total: Usage) -> Usage | None:
        """Return the difference to the session's new `total`; None if that is not known."""
        if self.used is None:
            return None
        counts = {name: getattr(total, name) - getattr(self.used, name) for name in _COUNTS}
        return Usage(**counts) if min(counts.values()) >= 0 else None


class RunInput(NamedTuple):
    """The session to continue, "" for a new one, a file with the system text, and attached files.

    The files are all those of new messages, with those that the program does not take.
    """

    session_id: str
    system_file: str
    files: Sequence[AttachedFile]


class _ProgramRun(NamedTuple):
    """A run of the program: its output, its exit code, and why it was ended early."""

    output: CodingParser
    command: str
    exit_code: int | None = None
    error: NotAnAnswerError | None = None


class ProgramAdapter(Adapter):
    """An agent whose program is run once for each call.

    name, program, install, login: its name, and how the user gets it and logs in. keys: the
    variables in which it looks for a key; the profile's `env` passes them on. addresses: those that
    name the server of the key. login_files: files below the home folder of which one is there after
    a login. environ: variables for it, unless `env` sets them. powers: what it may do by arena's
    options, unless the profile has one of the powers_options, in `args` or `env`.
    takes_system_file: it gets the system text in a file; the others get it before the prompt of a
    session's first call. takes_servers: it takes MCP servers for a call. reports_session_usage:
    its usage is the whole session's.
    """

    settings_type: ClassVar[type[Settings]]
    parser: ClassVar[type[CodingParser]]
    name: ClassVar[str]
    program: ClassVar[str]
    install: ClassVar[str]
    login: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    addresses: ClassVar[tuple[str, ...]] = ()
    login_files: ClassVar[tuple[str, ...]] = ()
    environ: ClassVar[Mapping[str, str]] = {}
    powers: ClassVar[str]
    powers_options: ClassVar[tuple[str, ...]]
    takes_system_file: ClassVar[bool] = False
    takes_servers: ClassVar[bool] = False
    reports_session_usage: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Set `settings_type`: `CodingSettings` with the program as its default."""
        kind = cls.__name__.removesuffix("Adapter")
        settings = create_model(
            f"{kind}Settings",
            __base__=CodingSettings,
            __doc__=f"The keys of `adapter: {{type: {kind.lower()}, ...}}`.",
            program=(str, cls.program),
        )
        settings.adapter = cls
        cls.settings_type = settings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: CodingSettings = setup.settings

    def arguments(self, run: RunInput) -> list[str]:
        """Return the program's arguments."""
        raise NotImplementedError

    def system_environ(self, system_file: str) -> dict[str, str]:  # noqa: ARG002 - for subclasses
        """Return the variables for the program that name the file with the system text."""
        return {}

    @contextlib.contextmanager
    def write_settings(self) -> Iterator[dict[str, str]]:
        """Write the settings of a call, if there are any; yield the variables that name them.

        Raises OSError.
        """
        yield {}

    def escape_prompt(self, prompt: str) -> str:
        """Return the prompt, escaped so that the program finds no command or path in it."""
        return prompt

    def takes_file(self, file: AttachedFile) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the program can show its model this file."""
        return False

    @classmethod
    def has_login(cls, environ: Mapping[str, str]) -> bool:
        """Return True if the user of this environment seems to be logged in."""
        home = Path(environ.get("HOME") or environ.get("USERPROFILE") or ".")
        return any((home / path).is_file() for path in cls.login_files)

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Run the program; if its session is lost, run it again without the session."""
        session = ProgramSession.load(input.own_session)
        run = await self._run(input if session else input.afresh(), session, emit)
        if session is not None and run.output.is_session_lost(run.exit_code):
            failure = run.output.failure(run.exit_code)
            reason = failure.message if failure else run.output.last_words()
            report_lost_session(emit, session.id, reason)
            session = None
            run = await self._run(input.afresh(), None, emit)
        usage = run.output.usage
        session_usage = usage if self.reports_session_usage else None
        if session_usage is not None and session is not None:
            usage = session.usage_since(session_usage)
        if usage is not None and usage.cost_usd == 0:
            usage = usage.model_copy(update={"cost_usd": None})  # of a model without a known price
        if usage is not None:
            emit(usage)
        output = self._read_reply(run)
        session_id = run.output.session_id or (session.id if session else "")
        next_session = ProgramSession(session_id, session_usage).dump()
        if next_session:
            emit(next_session)
        return output.model_copy(update={"usage": usage})

    async def health(self) -> Health:
        """Look for the program, and for a key or a login of it; it is not run."""
        try:
            self._find_program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        environ = self._environ()
        if self.has_login(environ) or any(key in environ for key in self.keys):
            return Health(ok=True)
        problem = self._explain_missing_key()
        return Health(ok=not problem, detail=problem or f"no login found: {self.login}")

    async def _run(
        self, input: AgentInput, session: ProgramSession | None, emit: Emit
    ) -> _ProgramRun:
        folder = (self._setup.workspace / self._settings.cwd).resolve()
        output = self.parser(emit, folder)
        with self._command(input, session, emit) as (program, stdin):
            asked = shlex.join([self._settings.program, *program.argv[1:]])
            try:
                code = await run_module.run_program(program, stdin, output, asked=asked)
            except NotAnAnswerError as error:
                return _ProgramRun(output, asked, error=error)
        return _ProgramRun(output, asked, code)

    @contextlib.contextmanager
    def _command(
        self, input: AgentInput, session: ProgramSession | None, emit: Emit
    ) -> Iterator[tuple[Program, bytes]]:
        """Yield the program and the stdin of a call; its files exist meanwhile."""
        path = self._find_program()
        system, prompt = self._setup.render(input)
        with contextlib.ExitStack() as stack:
            system_file = ""
            if self.takes_system_file:
                system_file = stack.enter_context(
                    run_module.write_text_file(self._setup, path, system, asked=path.name)
                )
            elif session is None and system:
                prompt = f"{system}\n\n{prompt}"
            environ = self._environ(system_file)
            try:
                environ |= stack.enter_context(self.write_settings())
            except OSError as error:
                raise AgentUnavailable(
                    self._setup.agent_id,
                    f"the settings with its MCP servers could not be written: {error}",
                    mend="free disk space, or correct the permissions",
                ) from error
            files = list_new_files(input, self._setup.workspace)
            session_id = session.id if session else ""
            arguments = self.arguments(RunInput(session_id, system_file, files))
            hidden = describe_paths([file for file in files if not self.takes_file(file)], emit)
            stdin = self.escape_prompt(f"{hidden}\n{prompt}" if hidden else prompt)
            program = run_module.make_program(self._setup, [str(path), *arguments], environ)
            yield program, stdin.encode("utf-8", "replace")

    def _find_program(self) -> Path:
        return find_program(self._setup, self._settings.program, self.install)

    def _default(self, *option: str) -> tuple[str, ...]:
        """Return an option with its value, or nothing if the profile's `args` contain it."""
        names = [word.partition("=")[0] for word in self._settings.args]
        return () if option[0] in names else option

    def _profile_arguments(self) -> list[str]:
        model = ["--model", self._settings.model] if self._settings.model else []
        return [*model, *self._settings.args]

    def _environ(self, system_file: str = "") -> dict[str, str]:
        variables = {**self.environ, **self._settings.env, **self.system_environ(system_file)}
        return run_module.build_environment(self._setup.environ, variables)

    def _explain_missing_key(self) -> str:
        return explain_missing_key(self.keys, self._settings.env, self._setup.environ)

    def _read_reply(self, run: _ProgramRun) -> AgentOutput:
        failure = run.output.failure(run.exit_code)
        if failure is not None:
            raise self._agent_error(run, failure)
        try:
            if run.error is not None:
                raise run.error
            content = run.output.reply()
        except NotAnAnswerError as error:
            came = run.output.last_words()
            raise diagnosis.find_error_type(came)(
                self._setup.agent_id,
                f"{self.name} {error.what}",
                asked=run.command,
                came=came,
                metadata=run.output.notes(is_partial=True),
            ) from error
        notes = run.output.notes()
        if run.exit_code is None:
            notes["ended_after_result"] = True
        return AgentOutput(content=content, metadata=notes)

    def _agent_error(self, run: _ProgramRun, failure: ReportedFailure) -> AgentError:
        overflows = http.is_too_long(failure.status or 0, failure.message)
        error_type, summary, hint = self._explain(failure.status or 0, run.exit_code)
        is_cut_off = not overflows and diagnosis.is_cut_off(failure.message)
        if overflows:
            error_type, summary = AgentRefused, "the prompt is too long for the model"
            hint = "lower `context.window_tokens` in its profile"
        elif is_cut_off:
            error_type, summary = AgentProtocolError, f"{self.name} was cut off at a length limit"
            hint = "raise the limit in the program's own settings, or ask for a shorter answer"
        error = error_type(
            self._setup.agent_id,
            summary,
            asked=run.command,
            came=failure.message,
            mend=hint,
            metadata=run.output.notes(is_partial=True),
            again=not is_cut_off,
        )
        if isinstance(error, AgentRefused):
            error.overflow = overflows
        return error

    def _explain(self, status: int, exit_code: int | None) -> tuple[type[AgentError], str, str]:
        """Return the class of the error, what happened and a hint."""
        name = self.name
        if status in (401, 403):
            hint = self._explain_missing_key() or f"log in: {self.login}"
            return AgentRefused, f"{name} is not allowed to call its model", hint
        if status in (429, 503, 529):
            summary = f"the provider of {name} is overloaded, or limits requests"
            return AgentOverloaded, summary, "try again later"
        if status >= 500:
            summary = f"{name} could not reach its provider, or the provider failed"
            return AgentUnavailable, summary, "check the network, or try again later"
        if status:
            summary = f"the provider of {name} refused the request"
            return AgentRefused, summary, "correct `model`, or the program's own settings"
        if exit_code:
            summary = f"{name} {run_module.describe_exit(exit_code)}"
            return AgentProtocolError, summary, "try the command in a shell"
        return AgentProtocolError, f"{name} reported a failure", ""
