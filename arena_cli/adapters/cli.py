"""The kind `cli`: any program that reads text and writes text, one process a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from arena_cli.adapters import process, programs
from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.adapters.cli_output import Format, Kind, NotAnAnswerError, ProgramOutput
from arena_cli.adapters.process import Process, Program
from arena_cli.ground.errors import AgentProtocolError, AgentUnavailable
from arena_cli.ground.protocol import AgentInput, AgentOutput, CallNote, Emit, TextDelta

PROMPT_FILE = "{prompt_file}"
LONGEST_ARGUMENT = 30_000
GRACE_S = 1.0

# What an option, a Windows switch or a file of arguments begins with.
_OPTION_MARKS = ("-", "/", "@")
_BATCH_SUFFIXES = (".cmd", ".bat")
_BATCH_SPECIAL = frozenset('&|<>^%!"')
_LINES_SHOWN = 5
_SHOWN = 600


class CliSettings(Settings):
    """The keys of `adapter: {type: cli, ...}`.

    `command` is the program and its arguments, `args` more of them; no shell reads them. `prompt`
    says how the input goes in: as text on stdin, as last argument, in a file (whose path takes the
    place of `{prompt_file}`, or comes last), or as `json`, the whole AgentInput in a line on stdin.
    `output` says what comes back; of `json` and `jsonl` the last object that has what `where` says
    (dotted path: value), in it `answer` (dotted path), else the object as an AgentOutput.
    """

    command: list[str] = Field(min_length=1)
    args: list[str] = []
    prompt: Literal["stdin", "argument", "file", "json"] = "stdin"
    output: Kind = "text"
    answer: Annotated[str, Field(min_length=1)] | None = None
    where: dict[str, Any] = {}
    max_output_mb: float = Field(default=32, gt=0)
    env: dict[str, str] = {}
    cwd: str = "."
    keep_alive: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> CliSettings:
        if self.keep_alive:
            raise ValueError("keep_alive is not built yet: every call starts the program anew")
        if self.output == "text" and (self.answer is not None or self.where):
            raise ValueError("answer and where choose from JSON: set output to json or jsonl")
        return self


@dataclass(frozen=True)
class _Call:
    """One call as it is started: `asked` is the command line without any text of the prompt."""

    argv: list[str]
    stdin: bytes
    asked: str


@dataclass(frozen=True)
class _End:
    """How the program ended: its exit code, or that it was ended after its result."""

    code: int | None
    after_result: bool


class CliAdapter:
    """Starts the program for every call, and ends its whole tree with the call."""

    settings_type: ClassVar[type[Settings]] = CliSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: CliSettings = setup.settings
        self._format = Format(
            kind=self._settings.output,
            answer=self._settings.answer,
            where=self._settings.where,
            max_output_mb=self._settings.max_output_mb,
        )

    async def start(self) -> None:
        """Nothing runs between calls."""

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """One run of the program. Text is told as it comes; what came of it when it is cut off."""
        output = ProgramOutput(self._format)
        program = self._program()
        with self._call(program, input) as call:
            running = await self._started(call)
            cut_off = True
            try:
                running.write(call.stdin)
                end = await self._drained(running, output, emit)
                cut_off = False
            except NotAnAnswerError as error:
                cut_off = False
                raise self._error(call, error, output) from error
            finally:
                await running.end()
                if cut_off:
                    self._tell_rest(running, output, emit)
        return self._answered(call, output, end)

    async def health(self) -> Health:
        """Whether the program is there; it is not run."""
        try:
            self._checked(self._program())
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        return Health(ok=True)

    async def stop(self) -> None:
        """Nothing runs between calls."""

    def _program(self) -> Path:
        name = self._settings.command[0]
        found = programs.find(name, workspace=self._setup.workspace, environ=self._setup.environ)
        if found is not None:
            return found
        if Path(name).name == name:
            where = "on PATH"
            mend = "install it, or give its path in `command`"
        else:
            where = f"at {self._setup.workspace / name}"
            mend = "paths in `command` start from the workspace"
            if (self._setup.workspace / name).is_file():
                where += ": the file is there, but it cannot be executed"
                mend = "make it executable, or name what runs it first, as in [python, bot.py]"
        raise self._unavailable(f"there is no program {name} {where}", mend)

    def _checked(self, program: Path) -> None:
        if self._settings.prompt == "argument" and program.suffix.lower() in _BATCH_SUFFIXES:
            raise self._unavailable(
                f"{program.name} is a batch file, which would run commands in an argument",
                "set `prompt: stdin` or `prompt: file`",
            )
        folder = self._setup.workspace / self._settings.cwd
        if not folder.is_dir():
            raise self._unavailable(f"there is no folder {folder}", "mend `cwd`, or make it")

    @contextlib.contextmanager
    def _call(self, program: Path, input: AgentInput) -> Iterator[_Call]:
        """The command line and stdin of one call, with its prompt file while it runs."""
        self._checked(program)
        given = [*self._settings.command[1:], *self._settings.args]
        asked = shlex.join([self._settings.command[0], *given])
        if self._settings.prompt == "json":
            line = input.model_dump_json().encode("utf-8") + b"\n"
            yield _Call([str(program), *given], line, asked)
            return
        system, prompt = self._setup.render(input)
        text = f"{system}\n\n{prompt}" if system else prompt
        if self._settings.prompt == "stdin":
            yield _Call([str(program), *given], text.encode("utf-8", "replace"), asked)
        elif self._settings.prompt == "argument":
            yield _Call([str(program), *given, self._argument(text)], b"", asked)
        else:
            with self._prompt_file(program, text) as path:
                if any(PROMPT_FILE in part for part in given):
                    given = [part.replace(PROMPT_FILE, path) for part in given]
                else:
                    given.append(path)
                yield _Call([str(program), *given], b"", asked)

    def _argument(self, text: str) -> str:
        size = len(text.encode("utf-8", "replace"))
        if size > LONGEST_ARGUMENT:
            raise self._unavailable(
                f"the prompt has {size} bytes, more than the {LONGEST_ARGUMENT} of an argument",
                "set `prompt: stdin` or `prompt: file`",
            )
        # The system ends an argument at NUL; a space before it makes an option mere text.
        text = text.replace("\0", "\ufffd")
        return f" {text}" if text.startswith(_OPTION_MARKS) else text

    @contextlib.contextmanager
    def _prompt_file(self, program: Path, text: str) -> Iterator[str]:
        try:
            self._setup.scratch.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(".txt", "prompt-", self._setup.scratch.absolute())
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "replace"))
        except OSError as error:
            raise self._unavailable(
                f"its prompt could not be written: {error}", "make room for it, or `prompt: stdin`"
            ) from error
        try:
            if program.suffix.lower() in _BATCH_SUFFIXES and _BATCH_SPECIAL.intersection(path):
                raise self._unavailable(
                    f"{program.name} is a batch file, which would read commands in {path}",
                    "set `prompt: stdin`, or name the session without special characters",
                )
            yield path
        finally:
            with contextlib.suppress(OSError):
                Path(path).unlink()

    async def _started(self, call: _Call) -> Process:
        program = Program(
            argv=call.argv,
            cwd=self._setup.workspace / self._settings.cwd,
            environ=programs.environment(self._setup.environ, self._settings.env),
            records=self._setup.records,
        )
        try:
            return await process.start(program)
        except (OSError, ValueError) as error:
            raise self._unavailable(
                f"{call.argv[0]} could not be started: {error}", "try the command in a shell"
            ) from error

    async def _drained(self, running: Process, output: ProgramOutput, emit: Emit) -> _End:
        """Read until the program has ended, or is silent though its result is there."""
        open_streams = {"stdout", "stderr"}
        clock = asyncio.get_running_loop().time
        grace: float | None = None
        limit: float | None = None
        while open_streams or running.returncode is None:
            if limit is not None:
                grace = max(0.0, limit - clock())
            event = await running.event(grace)
            if event is None:
                if limit is not None or output.has_result():
                    break
                grace = None
            elif event.source != "exit" and event.data:
                _tell(output.feed(event.source, event.data), emit)
                grace = GRACE_S
            else:
                open_streams.discard(event.source)
                if event.source != "stderr" and limit is None:
                    limit = clock() + GRACE_S
        _tell(output.finish(), emit)
        return _End(running.returncode, after_result=running.returncode is None)

    def _answered(self, call: _Call, output: ProgramOutput, end: _End) -> AgentOutput:
        if end.code:
            raise self._error(
                call, NotAnAnswerError(f"its program {programs.how_it_ended(end.code)}"), output
            )
        try:
            answer = output.answer()
        except NotAnAnswerError as error:
            raise self._error(call, error, output) from error
        if not end.after_result:
            return answer
        return answer.model_copy(
            update={"metadata": {**answer.metadata, "ended_after_result": True}}
        )

    def _error(
        self, call: _Call, error: NotAnAnswerError, output: ProgramOutput
    ) -> AgentProtocolError:
        notes = output.notes()
        partial = output.partial()
        lines = (notes.get("stderr") or partial.strip()).splitlines()
        return AgentProtocolError(
            self._setup.agent_id,
            error.what,
            asked=call.asked,
            came=" | ".join(line for line in lines[-_LINES_SHOWN:] if line.strip())[-_SHOWN:],
            mend=error.mend,
            metadata={**notes, **({"partial": partial} if partial else {})},
        )

    def _tell_rest(self, running: Process, output: ProgramOutput, emit: Emit) -> None:
        """What the program had written when it was cut off, and was not read yet."""
        with contextlib.suppress(NotAnAnswerError):
            while event := running.waiting_event():
                if event.source != "exit" and event.data:
                    _tell(output.feed(event.source, event.data), emit)
            if self._settings.output == "text":
                _tell(output.finish(), emit)
        notes = output.notes()
        if self._settings.output != "text" and output.partial():
            notes["partial"] = output.partial()
        emit(CallNote(notes))

    def _unavailable(self, what: str, mend: str) -> AgentUnavailable:
        asked = shlex.join([*self._settings.command, *self._settings.args])
        return AgentUnavailable(self._setup.agent_id, what, asked=asked, mend=mend)


def _tell(text: str, emit: Emit) -> None:
    if text:
        emit(TextDelta(text))
