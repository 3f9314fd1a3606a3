"""The kinds of agents that are a program and a row of the table (`program_rows`).

Every call starts the program, which goes on in its own session where the engine says it may.
"""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.adapters.cli_output import NotAnAnswerError
from arena_cli.adapters.coding import program_rows, program_session
from arena_cli.adapters.coding.program_output import Failure, ProgramText
from arena_cli.adapters.coding.program_session import ProgramSession
from arena_cli.adapters.coding.program_table import SYSTEM_FILE, ProgramKind
from arena_cli.adapters.processes import one_run, programs
from arena_cli.adapters.processes.one_run import Command
from arena_cli.adapters.processes.programs import ProgramSettings
from arena_cli.ground.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.ground.protocol import AgentInput, AgentOutput, CallNote, Emit

_OVERLOADED = frozenset({429, 503, 529})
_NO_LOGIN = frozenset({401, 403})
_SERVER_FAULT = 500


class KindSettings(ProgramSettings):
    """The keys of these kinds: `program` is a name on PATH, or a path from the workspace."""

    program: str
    model: str | None = None


class _Run(NamedTuple):
    """One run of the program: what it wrote, its exit code, what was wrong before its end."""

    output: ProgramText
    asked: str
    code: int | None = None
    fault: NotAnAnswerError | None = None


class ProgramAdapter:
    """An agent whose program has a row in the table."""

    settings_type: ClassVar[type[Settings]]
    kind: ClassVar[ProgramKind]

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: KindSettings = setup.settings

    async def start(self) -> None:
        """Nothing runs between calls."""

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """One run of the program; another one, afresh, if it has lost its session."""
        earlier = program_session.of(input.own_session)
        run = await self._run(input if earlier else input.afresh(), earlier, emit)
        if earlier is not None and run.output.is_lost():
            emit(CallNote({"lost_session": earlier.id}))
            earlier = None
            run = await self._run(input.afresh(), None, emit)
        answer = self._answer(run)
        used = run.output.usage if self.kind.adds_up else None
        known = run.output.session or (earlier.id if earlier else "")
        kept = program_session.told(ProgramSession(known, used))
        if kept and self.kind.resume:
            emit(kept)
        if used is not None and earlier is not None:
            return answer.model_copy(update={"usage": earlier.since(used)})
        return answer

    async def health(self) -> Health:
        """Whether the program is there, and a key or a login that can be seen; it is not run."""
        try:
            self._program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        if self._is_logged_in():
            return Health(ok=True)
        unused = self._unused_key()
        return Health(ok=not unused, detail=unused or f"no login was seen: {self.kind.login}")

    async def stop(self) -> None:
        """Nothing runs between calls."""

    async def _run(self, input: AgentInput, earlier: ProgramSession | None, emit: Emit) -> _Run:
        output = ProgramText(self.kind, emit)
        with self._command(input, earlier) as command:
            try:
                end = await one_run.run(self._setup.agent_id, command, output)
            except NotAnAnswerError as fault:
                return _Run(output, command.asked, fault=fault)
        return _Run(output, command.asked, end.code)

    @contextlib.contextmanager
    def _command(self, input: AgentInput, earlier: ProgramSession | None) -> Iterator[Command]:
        kind, settings = self.kind, self._settings
        program = self._program()
        system, prompt = self._setup.render(input)
        if not kind.takes_system and earlier is None and system:
            prompt = f"{system}\n\n{prompt}"
        prompt = kind.escape(prompt)
        with self._system_file(program, system) as file:
            arguments = [
                *kind.begin,
                *(word for option in kind.options for word in self._own(option)),
                *([kind.model, settings.model] if settings.model else []),
                *settings.args,
                *_filled(kind.new if earlier is None else kind.resume, earlier),
                *(word.replace(SYSTEM_FILE, file) for word in kind.system),
                *kind.end,
            ]
            asked = shlex.join([settings.program, *arguments])
            if kind.prompt == "argument":
                arguments.append(self._argument(prompt))
            yield Command(
                argv=[str(program), *arguments],
                stdin=prompt.encode("utf-8", "replace") if kind.prompt == "stdin" else b"",
                asked=asked,
                cwd=self._setup.workspace / settings.cwd,
                environ=self._environ(file),
                records=self._setup.records,
            )

    def _program(self) -> Path:
        name, workspace = self._settings.program, self._setup.workspace
        program = programs.find(name, workspace=workspace, environ=self._setup.environ)
        if program is None:
            what, mend = programs.why_missing(
                name, workspace=workspace, key="program", install=self.kind.install
            )
            raise self._unavailable(what, mend)
        if self.kind.prompt == "argument" and programs.is_batch(program):
            raise self._unavailable(
                f"{program.name} is a batch file, which would run commands in the prompt",
                "name the program that it starts in `program`",
            )
        folder = workspace / self._settings.cwd
        if not folder.is_dir():
            raise self._unavailable(f"there is no folder {folder}", "mend `cwd`, or make it")
        return program

    def _own(self, option: tuple[str, ...]) -> tuple[str, ...]:
        """An option of the row, unless the profile's `args` give it themselves."""
        given = (word.partition("=")[0] for word in self._settings.args)
        return () if option[0] in given else option

    @contextlib.contextmanager
    def _system_file(self, program: Path, system: str) -> Iterator[str]:
        """The path of a file with the system text, where the program takes one."""
        if not self.kind.takes_system:
            yield ""
            return
        with contextlib.ExitStack() as stack:
            try:
                path = stack.enter_context(programs.text_file(self._setup.scratch, system))
            except OSError as error:
                raise self._unavailable(
                    f"its system text could not be written: {error}", "make room for it"
                ) from error
            if programs.holds_commands(program, path):
                raise self._unavailable(
                    f"{program.name} is a batch file, which would read commands in {path}",
                    "name the session without special characters",
                )
            yield path

    def _argument(self, prompt: str) -> str:
        size = len(prompt.encode("utf-8", "replace"))
        if size > programs.LONGEST_ARGUMENT:
            raise self._unavailable(
                f"the prompt has {size} bytes, more than the {programs.LONGEST_ARGUMENT} that it"
                " can be given",
                "lower context.window_tokens of its profile",
            )
        return programs.argument(prompt)

    def _environ(self, file: str = "") -> dict[str, str]:
        own = self.kind.environ
        with_system = {
            name: value.replace(SYSTEM_FILE, Path(file).as_posix())
            for name, value in own.items()
            if SYSTEM_FILE in value
        }
        return programs.environment(
            self._setup.environ, {**own, **self._settings.env, **with_system}
        )

    def _is_logged_in(self) -> bool:
        given = self._environ()
        home = Path(given.get("HOME") or given.get("USERPROFILE") or self._setup.workspace)
        return any(name in given for name in self.kind.keys) or any(
            (home / path).is_file() for path in self.kind.logins
        )

    def _unused_key(self) -> str:
        """What to do where a key is there that the program does not get; "" where none is."""
        given = self._environ()
        if any(name in given for name in self.kind.keys):
            return ""
        unused = [name for name in self.kind.keys if name in self._setup.environ]
        return (
            f"{unused[0]} is set, but not passed on; env: {{{unused[0]}: inherit}} does"
            if unused
            else ""
        )

    def _answer(self, run: _Run) -> AgentOutput:
        failure = run.output.failed(run.code)
        if failure is not None:
            raise self._failed(run, failure)
        try:
            if run.fault is not None:
                raise run.fault
            content = run.output.answer()
        except NotAnAnswerError as error:
            raise AgentProtocolError(
                self._setup.agent_id,
                f"{self.kind.name} {error.what}",
                asked=run.asked,
                metadata=_metadata(run.output),
            ) from error
        notes = run.output.notes()
        if run.code is None:
            notes["ended_after_result"] = True
        return AgentOutput(content=content, usage=run.output.usage, metadata=notes)

    def _failed(self, run: _Run, failure: Failure) -> AgentError:
        """The one place where what a program says of a failure becomes an error of ours."""
        name, status = self.kind.name, failure.status or 0
        error: type[AgentError] = AgentProtocolError
        what, mend = f"{name} said that it failed", ""
        if status in _NO_LOGIN:
            error, what = AgentRefused, f"{name} may not call its model"
            mend = self._unused_key() or f"log in: {self.kind.login}"
        elif status in _OVERLOADED:
            error, what = AgentOverloaded, f"the provider of {name} is overloaded, or limits it"
            mend = "try again later"
        elif status >= _SERVER_FAULT:
            error, what = AgentUnavailable, f"{name} did not reach its provider, or that failed"
            mend = "look at the network, or try again later"
        elif status:
            error, what = AgentRefused, f"the provider of {name} refused the request"
            mend = "mend `model`, or the program's own settings"
        elif run.code:
            what = f"{name} {programs.how_it_ended(run.code)}"
            mend = "try the command in a shell"
        return error(
            self._setup.agent_id,
            what,
            asked=run.asked,
            came=failure.message,
            mend=mend,
            metadata=_metadata(run.output),
        )

    def _unavailable(self, what: str, mend: str) -> AgentUnavailable:
        return AgentUnavailable(self._setup.agent_id, what, asked=self._settings.program, mend=mend)


def _filled(words: tuple[str, ...], session: ProgramSession | None) -> Iterator[str]:
    for word in words:
        yield word.replace("{id}", session.id if session else str(uuid.uuid4()))


def _metadata(output: ProgramText) -> dict[str, object]:
    partial = output.partial()
    return {**output.notes(), **({"partial": partial} if partial else {})}


class CodexSettings(KindSettings):
    """The keys of `adapter: {type: codex, ...}`."""

    program: str = "codex"


class CodexAdapter(ProgramAdapter):
    """OpenAI's Codex, `codex exec`."""

    settings_type = CodexSettings
    kind = program_rows.CODEX


class GeminiSettings(KindSettings):
    """The keys of `adapter: {type: gemini, ...}`."""

    program: str = "gemini"


class GeminiAdapter(ProgramAdapter):
    """Google's Gemini CLI, without a terminal."""

    settings_type = GeminiSettings
    kind = program_rows.GEMINI


class OpencodeSettings(KindSettings):
    """The keys of `adapter: {type: opencode, ...}`."""

    program: str = "opencode"


class OpencodeAdapter(ProgramAdapter):
    """opencode, `opencode run`."""

    settings_type = OpencodeSettings
    kind = program_rows.OPENCODE


class PiSettings(KindSettings):
    """The keys of `adapter: {type: pi, ...}`."""

    program: str = "pi"


class PiAdapter(ProgramAdapter):
    """pi, `pi --print`."""

    settings_type = PiSettings
    kind = program_rows.PI


class CursorSettings(KindSettings):
    """The keys of `adapter: {type: cursor, ...}`."""

    program: str = "cursor-agent"


class CursorAdapter(ProgramAdapter):
    """Cursor's agent in a terminal, `cursor-agent --print`."""

    settings_type = CursorSettings
    kind = program_rows.CURSOR
