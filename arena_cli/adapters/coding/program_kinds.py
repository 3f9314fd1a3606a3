"""The kinds of agents that are a program and a row of the table (`program_rows`).

Every call starts the program, which goes on in its own session where the engine says it may.
"""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import create_model

from arena_cli.adapters.api import http
from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.adapters.coding import launch, program_rows, program_session
from arena_cli.adapters.coding.program_output import Failure, ProgramText
from arena_cli.adapters.coding.program_session import ProgramSession
from arena_cli.adapters.coding.program_table import SYSTEM_FILE, ProgramKind
from arena_cli.adapters.processes import one_run, programs
from arena_cli.adapters.processes.cli_output import NotAnAnswerError
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

    kind: ClassVar[ProgramKind]

    program: str
    model: str | None = None

    @classmethod
    def command_line(cls, given: Mapping[str, Any]) -> list[str]:
        """Return the program, the row's where none is named."""
        return super().command_line({"program": cls.kind.program, **given})

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """A key is handed on where there is one, and no login that it would take the place of."""
        return {} if _has_login(cls.kind, environ) else launch.suggested(cls.kind.keys, environ)


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

    def __init_subclass__(cls, kind: ProgramKind) -> None:
        """A kind is its row; its keys are `KindSettings` with the row's program."""
        name = cls.__name__.removesuffix("Adapter")
        settings = create_model(
            f"{name}Settings",
            __base__=KindSettings,
            __doc__=f"The keys of `adapter: {{type: {name.lower()}, ...}}`.",
            program=(str, kind.program),
        )
        settings.kind = cls.kind = kind
        cls.settings_type = settings

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
        usage = run.output.usage
        whole = usage if self.kind.adds_up else None
        if whole is not None and earlier is not None:
            usage = earlier.since(whole)
        if usage is not None:
            emit(usage)
        answer = self._answer(run)
        known = run.output.session or (earlier.id if earlier else "")
        kept = program_session.told(ProgramSession(known, whole))
        if kept:
            emit(kept)
        return answer.model_copy(update={"usage": usage})

    async def health(self) -> Health:
        """Whether the program is there, and a key or a login that can be seen; it is not run."""
        try:
            self._program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        given = self._environ()
        if _has_login(self.kind, given) or any(key in given for key in self.kind.keys):
            return Health(ok=True)
        wrong = self._missing_key()
        return Health(ok=not wrong, detail=wrong or f"no login was seen: {self.kind.login}")

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
        no_file = contextlib.nullcontext("")
        given = launch.system_file(self._setup, program, system) if kind.takes_system else no_file
        with given as file:
            arguments = [
                *kind.begin,
                *(word for option in kind.options for word in self._own(option)),
                *(["--model", settings.model] if settings.model else []),
                *settings.args,
                *_filled(kind.new if earlier is None else kind.resume, earlier),
                *(word.replace(SYSTEM_FILE, file) for word in kind.system),
                *kind.end,
            ]
            asked = shlex.join([settings.program, *arguments])
            yield Command(
                argv=[str(program), *arguments],
                stdin=kind.escape(prompt).encode("utf-8", "replace"),
                asked=asked,
                cwd=programs.folder(self._setup.workspace, settings.cwd),
                environ=self._environ(file),
                records=self._setup.records,
            )

    def _program(self) -> Path:
        return launch.program(self._setup, self._settings.program, self.kind.install)

    def _own(self, option: tuple[str, ...]) -> tuple[str, ...]:
        """An option of the row, unless the profile's `args` give it themselves."""
        given = (word.partition("=")[0] for word in self._settings.args)
        return () if option[0] in given else option

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

    def _missing_key(self) -> str:
        return launch.missing_key(self.kind.keys, self._settings.env, self._setup.environ)

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
        return AgentOutput(content=content, metadata=notes)

    def _failed(self, run: _Run, failure: Failure) -> AgentError:
        """The one place where what a program says of a failure becomes an error of ours."""
        name, status = self.kind.name, failure.status or 0
        error: type[AgentError] = AgentProtocolError
        what, mend = f"{name} said that it failed", ""
        if status in _NO_LOGIN:
            error, what = AgentRefused, f"{name} may not call its model"
            mend = self._missing_key() or f"log in: {self.kind.login}"
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
        overflows = http.is_too_long(status, failure.message)
        if overflows:
            error, what = AgentRefused, "what it is shown is more than the model takes"
            mend = "lower `context.window_tokens` in its profile"
        failed = error(
            self._setup.agent_id,
            what,
            asked=run.asked,
            came=failure.message,
            mend=mend,
            metadata=_metadata(run.output),
        )
        if isinstance(failed, AgentRefused):
            failed.overflow = overflows
        return failed


def _has_login(kind: ProgramKind, environ: Mapping[str, str]) -> bool:
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or ".")
    return any((home / path).is_file() for path in kind.logins)


def _filled(words: tuple[str, ...], session: ProgramSession | None) -> Iterator[str]:
    for word in words:
        yield word.replace("{id}", session.id if session else str(uuid.uuid4()))


def _metadata(output: ProgramText) -> dict[str, object]:
    partial = output.partial()
    return {**output.notes(), **({"partial": partial} if partial else {})}


class CodexAdapter(ProgramAdapter, kind=program_rows.CODEX):
    """OpenAI's Codex, `codex exec`."""


class GeminiAdapter(ProgramAdapter, kind=program_rows.GEMINI):
    """Google's Gemini CLI, without a terminal."""


class OpencodeAdapter(ProgramAdapter, kind=program_rows.OPENCODE):
    """opencode, `opencode run`."""


class PiAdapter(ProgramAdapter, kind=program_rows.PI):
    """pi, `pi --print`."""


class CursorAdapter(ProgramAdapter, kind=program_rows.CURSOR):
    """Cursor's agent in a terminal, `cursor-agent --print`."""
