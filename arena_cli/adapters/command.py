"""Call any program that reads text and writes text (kind `cli`).

There is one process per call, or, with `keep_alive`, one for all calls of an agent in a session.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from arena_cli.adapters import http
from arena_cli.adapters.base import Adapter, Health, Settings, Setup, ToolWay
from arena_cli.adapters.process import diagnosis, run
from arena_cli.adapters.process.output import (
    AnswerFormat,
    NotAnAnswerError,
    OutputKind,
    ProgramOutput,
)
from arena_cli.adapters.process.run import KeptProgram, ProgramSettings
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError, AgentProtocolError, AgentRefused, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, CallNote, Emit
from arena_cli.util.text import clean_value

PROMPT_FILE = "{prompt_file}"


class CliSettings(ProgramSettings):
    """The keys of `adapter: {type: cli, ...}`.

    `command` is the program and its arguments, `args` are more arguments; no shell reads them.
    `prompt` is how the input is passed: as text on stdin, as the last argument, in a file (whose
    path replaces `{prompt_file}`, or is the last argument), or as `json`: the whole AgentInput in a
    line on stdin. `output` is the format of the answer. For `json` and `jsonl`, the last object
    that matches `where` (dotted path: value) counts; the answer is its value at `answer` (dotted
    path), else the object as an AgentOutput. With `keep_alive` the program runs between calls: each
    call is a line with the AgentInput, and the first object that matches `where` is its answer.
    """

    command: list[str] = Field(min_length=1)
    prompt: Literal["stdin", "argument", "file", "json"] = "stdin"
    output: OutputKind = "text"
    answer: Annotated[str, Field(min_length=1)] | None = None
    where: dict[str, Any] = {}
    max_output_mb: float = Field(default=32, gt=0)
    keep_alive: bool = False

    @classmethod
    def takes_tools(cls, keys: Mapping[str, Any]) -> ToolWay:
        """Return the loop for a program that reads and writes JSON whole, as it calls tools."""
        is_json = keys.get("prompt") == "json" and keys.get("output") in ("json", "jsonl")
        return "loop" if is_json and keys.get("answer") is None else ""

    @model_validator(mode="after")
    def _fits_together(self) -> CliSettings:
        if self.output == "text" and (self.answer is not None or self.where):
            raise ValueError("`answer` and `where` select from JSON: set output to json or jsonl")
        if self.keep_alive and self.output == "text":
            raise ValueError(
                "keep_alive: arena cannot tell where a text on stdout ends; set "
                "output to json or jsonl"
            )
        if self.keep_alive and self.prompt != "json":
            raise ValueError(
                "keep_alive: a running program cannot tell where a text ends; set "
                "prompt to json (one AgentInput per line)"
            )
        return self


class CliAdapter(Adapter):
    """An agent behind a program, started for each call unless it is kept alive."""

    settings_type: ClassVar[type[Settings]] = CliSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: CliSettings = setup.settings
        self._asked = shlex.join([*self._settings.command, *self._settings.args])
        self._format = AnswerFormat(
            kind=self._settings.output,
            answer=self._settings.answer,
            where=self._settings.where,
            max_output_mb=self._settings.max_output_mb,
        )
        self._kept = KeptProgram(
            setup.agent_id, asked=self._asked, max_output_mb=self._settings.max_output_mb
        )

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Return an answer; emit its text as it arrives, also if the call is cancelled."""
        if self._settings.keep_alive:
            return await self._exchanged(input, emit)
        output = ProgramOutput(self._format, emit)
        with self._command(input) as command:
            try:
                code = await run.run_program(*command, output, asked=self._asked)
                return _answer(output, code)
            except NotAnAnswerError as error:
                raise self._error(error, output) from error

    async def health(self) -> Health:
        """Check that the program is installed, without running it."""
        try:
            self._program()
        except AgentUnavailable as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        return Health(ok=True)

    async def stop(self) -> None:
        """End the program if one is kept alive."""
        await self._kept.stop()

    def _program(self) -> Path:
        setup, command = self._setup, self._settings.command
        program = run.locate_program(
            command[0],
            self._settings.cwd,
            agent_id=setup.agent_id,
            workspace=setup.workspace,
            environ=setup.environ,
            key="command",
            asked=self._asked,
        )
        if self._settings.prompt == "argument" and run.is_batch_file(program):
            raise self._unavailable(
                f"{program.name} is a batch file, which would run commands that an "
                "argument contains",
                "set `prompt: stdin` or `prompt: file`",
            )
        if script := diagnosis.find_missing_script(command, setup.workspace / self._settings.cwd):
            raise self._unavailable(
                f"there is no file {script}", "correct its path in `command`, from `cwd`"
            )
        return program

    @contextlib.contextmanager
    def _command(self, input: AgentInput) -> Iterator[tuple[Program, bytes]]:
        """Yield the program and stdin of one call; its prompt file exists meanwhile."""
        path = self._program()
        words = [*self._settings.command[1:], *self._settings.args]
        stdin = ""
        with contextlib.ExitStack() as stack:
            if self._settings.prompt == "json":
                stdin = input.model_dump_json() + "\n"
            else:
                system, prompt = self._setup.render(input)
                text = f"{system}\n\n{prompt}" if system else prompt
                if self._settings.prompt == "stdin":
                    stdin = text
                elif self._settings.prompt == "argument":
                    words.append(self._argument(text))
                else:
                    writing = run.write_text_file(self._setup, path, text, asked=self._asked)
                    words = _insert_prompt_file(words, stack.enter_context(writing))
            environ = run.build_environment(self._setup.environ, self._settings.env)
            program = run.make_program(self._setup, [str(path), *words], environ)
            yield program, stdin.encode("utf-8", "replace")

    def _argument(self, text: str) -> str:
        size = len(text.encode("utf-8", "replace"))
        if size > run.LONGEST_ARGUMENT:
            raise self._unavailable(
                f"the prompt has {size} bytes, more than the limit of "
                f"{run.LONGEST_ARGUMENT} for an argument",
                "set `prompt: stdin` or `prompt: file`",
            )
        return run.escape_argument(text)

    async def _exchanged(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Return an answer of the program that is kept alive; start it if it is not running."""
        with self._command(input) as (program, _):
            pass  # it has no prompt file
        try:
            found = await self._kept.exchange(
                program, input.model_dump_json(), is_end=self._format.fits
            )
        finally:
            emit(CallNote(self._kept.notes()))
        value, replaced = clean_value(found)
        if replaced:
            emit(CallNote({"replaced_bytes": True}))
        try:
            return self._format.answer_in(value)
        except NotAnAnswerError as error:
            raise AgentProtocolError(
                self._setup.agent_id, error.what, asked=self._asked, mend=error.mend
            ) from error

    def _error(self, error: NotAnAnswerError, output: ProgramOutput) -> AgentError:
        notes = output.notes()
        partial = output.partial()
        came = diagnosis.list_last_lines(notes.get("stderr") or partial.strip())
        error_type: type[AgentError] = AgentProtocolError
        is_cut_off = is_too_long = False
        if isinstance(error, FailedExitError):
            error_type = diagnosis.find_error_type(came)
            is_cut_off = diagnosis.is_cut_off(came)
            is_too_long = not is_cut_off and http.is_too_long(0, came)
        failure = (AgentRefused if is_too_long else error_type)(
            self._setup.agent_id,
            error.what,
            asked=self._asked,
            came=came,
            mend=error.mend,
            metadata={**notes, **({"partial": partial} if partial else {})},
            again=not is_cut_off,
        )
        if isinstance(failure, AgentRefused):
            failure.overflow = is_too_long
        return failure

    def _unavailable(self, problem: str, mend: str) -> AgentUnavailable:
        return AgentUnavailable(self._setup.agent_id, problem, asked=self._asked, mend=mend)


def _insert_prompt_file(words: list[str], path: str) -> list[str]:
    if any(PROMPT_FILE in word for word in words):
        return [word.replace(PROMPT_FILE, path) for word in words]
    return [*words, path]


class FailedExitError(NotAnAnswerError):
    """The program ended with an exit code that is not 0."""


def _answer(read: ProgramOutput, code: int | None) -> AgentOutput:
    """Return the answer of a program that has ended. Raises NotAnAnswerError."""
    if code:
        raise FailedExitError(f"its program {run.describe_exit(code)}")
    answer = read.answer()
    if code is not None:
        return answer
    return answer.model_copy(update={"metadata": {**answer.metadata, "ended_after_result": True}})
