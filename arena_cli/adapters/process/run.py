"""Run a program: once per call, or kept alive between the calls of an agent.

It is started, fed and read at the same time, and ended with its whole tree.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar, Protocol

from arena_cli.adapters.base import Endpoint, Settings, Setup, is_always_given
from arena_cli.adapters.process import diagnosis, spawn
from arena_cli.adapters.process.output import (
    LineSplitter,
    NotAnAnswerError,
    OtherOutput,
    Source,
    parse_line,
)
from arena_cli.adapters.process.spawn import Process, ProcessEvent, Program
from arena_cli.errors import AgentError, AgentProtocolError, AgentUnavailable
from arena_cli.util import files
from arena_cli.util.redaction import HIDDEN, is_secret_key
from arena_cli.util.text import REPLACEMENT
from arena_cli.workspace.agents import INHERIT, is_variable
from arena_cli.workspace.workspace import WORK_FOLDER

GRACE_S = 1.0


class OutputReader(Protocol):
    """A reader of a program's output; if `feed` or `finish` raises, the program is ended."""

    def feed(self, source: Source, data: bytes) -> None:
        """Read the next bytes."""
        ...

    def finish(self) -> None:
        """Read the end of the output."""
        ...

    def has_result(self) -> bool:
        """Return True if a whole result has come, so that a silent program may be ended."""
        ...

    def cut_off(self) -> None:
        """Report the partial output of a call that was cancelled."""
        ...


async def start_program(
    program: Program, asked: str, *, name: str = "", mend: str = "try the command in a shell"
) -> Process:
    """Start a program; errors call it `name`, and its command line `asked`.

    Raises AgentUnavailable if it cannot be started.
    """
    try:
        return await spawn.start_process(program)
    except (OSError, ValueError) as error:
        problem = f"{name or program.argv[0]} could not be started: {error}"
        raise AgentUnavailable(program.agent, problem, asked=asked, mend=mend) from error


async def run_program(
    program: Program, stdin: bytes, output: OutputReader, *, asked: str
) -> int | None:
    """Run a program to its end, or until it is silent after its result; none of it keeps running.

    `output` reads all that the program writes. Returns its exit code, None if it was ended.
    Raises AgentUnavailable if it cannot be started, and the errors that `output` raises.
    """
    running = await start_program(program, asked)
    try:
        running.write(stdin)
        return await _read(running, output)
    except asyncio.CancelledError:
        await running.end()
        _cut_off(running, output)
        raise
    finally:
        await running.end()


async def _read(running: Process, output: OutputReader) -> int | None:
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
            output.feed(event.source, event.data)
            grace = GRACE_S
        else:
            open_streams.discard(event.source)
            if event.source != "stderr" and limit is None:
                limit = clock() + GRACE_S
    output.finish()
    return running.returncode


def _cut_off(running: Process, output: OutputReader) -> None:
    """Feed the output that was not read yet when the call was cancelled."""
    with contextlib.suppress(NotAnAnswerError):
        while event := running.waiting_event():
            if event.source != "exit" and event.data:
                output.feed(event.source, event.data)
    output.cut_off()


LONGEST_ARGUMENT = 30_000
# The first characters of an option, a Windows switch and a file of arguments.
_OPTION_MARKS = ("-", "/", "@")
_BATCH_SUFFIXES = (".cmd", ".bat")
_BATCH_SPECIAL = frozenset('&|<>^%!"')


class ProgramSettings(Settings):
    """The keys of all kinds whose agent is a program.

    `args` are more arguments, `env` more variables (a value, or `inherit`); `cwd` is the working
    folder, relative to the workspace.
    """

    looks_only: ClassVar[bool] = True
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = "."

    @classmethod
    def command_line(cls, keys: Mapping[str, Any]) -> list[str]:
        """Return the program and its own arguments."""
        command = keys.get("command") or keys.get("program")
        return [str(word) for word in command] if isinstance(command, list) else [str(command)]

    @classmethod
    def identify_powers(cls, keys: Mapping[str, Any]) -> str:  # noqa: ARG003 - for subclasses
        """Return what the program may do, for the trust in it; "" for no more than by default.

        Trust ends when this text changes, also by a new version of arena that allows more. It omits
        what the command line says.
        """
        return ""

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:
        """Return the command line, with the variables that the profile sets and its powers."""
        args, env = keys.get("args"), keys.get("env")
        words = [*cls.command_line(keys), *(args if isinstance(args, list) else [])]
        variables = env if isinstance(env, Mapping) else {}
        for name, value in variables.items():
            if value != INHERIT:
                secret = is_secret_key(str(name)) and not is_variable(value)
                words.insert(0, f"{name}={HIDDEN if secret else value}")
        facts = [shlex.join(map(str, words))]
        facts += [cls.identify_powers(keys), f"cwd: {keys['cwd']}" if keys.get("cwd") else ""]
        inherited = (str(name) for name, value in variables.items() if value == INHERIT)
        return [Endpoint("program", " · ".join(filter(None, facts)), tuple(inherited))]


def may_run_in(workspace: Path, cwd: str) -> bool:
    """Return True if the folder exists, or is created when a program is started in it.

    The latter are the agents' own folders below `work/`, if no link leads there.
    """
    folder = workspace / cwd
    if not _is_own_folder(cwd):
        return folder.is_dir()
    return folder.resolve().is_relative_to(workspace.resolve()) and (
        folder.is_dir() or not folder.exists()
    )


def prepare_folder(workspace: Path, cwd: str) -> Path:
    """Return the folder to run a program in; create an agent's own, which git ignores."""
    path = workspace / cwd
    if _is_own_folder(cwd) and not path.is_dir():
        # A folder that cannot be made is reported when the program is started.
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
        with (
            contextlib.suppress(OSError),
            (workspace / WORK_FOLDER / ".gitignore").open("x") as file,
        ):
            file.write("*\n")
    return path


def _is_own_folder(cwd: str) -> bool:
    names = PurePath(cwd).parts
    return len(names) > 1 and names[0] == WORK_FOLDER and ".." not in names


def find_program(name: str, *, workspace: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the program file: a bare name on PATH, any other from `workspace`.

    None if there is none that can be executed.
    """
    if Path(name).name != name:
        path = shutil.which(str(workspace / name))
    else:
        path = shutil.which(name, path=environ.get("PATH", ""))
    return Path(path).absolute() if path else None


def locate_program(
    name: str,
    cwd: str,
    *,
    agent_id: str,
    workspace: Path,
    environ: Mapping[str, str],
    key: str,
    asked: str = "",
    install: str = "",
) -> Path:
    """Return the program file that the setting `key` names, ready to be started in `cwd`.

    `install` is how to install it. Raises AgentUnavailable if it is missing, if the system cannot
    start it, or if there is no such folder.
    """
    folder = workspace / cwd
    path = find_program(name, workspace=workspace, environ=environ)
    problem: tuple[str, str] | None
    if path is None:
        problem = explain_missing(name, workspace=workspace, key=key, cwd=cwd, install=install)
    else:
        problem = diagnosis.find_script_problem(path, name=name, key=key, folder=folder)
        if problem is None and may_run_in(workspace, cwd):
            return path
    what, mend = problem or (
        f"there is no folder {folder.resolve()}",
        "correct `cwd`, or create the folder",
    )
    raise AgentUnavailable(agent_id, what, asked=asked, mend=mend)


def explain_missing(
    name: str, *, workspace: Path, key: str, cwd: str, install: str = ""
) -> tuple[str, str]:
    """Return why `find_program` found nothing, and a hint.

    `key` is the setting that names the program, which runs in `cwd`; `install` is how to install
    it.
    """
    if Path(name).name == name:
        get = f"install it ({install})" if install else "install it"
        return f"there is no program {name} on PATH", f"{get}, or give its path in `{key}`"
    problem = f"there is no program {name} at {workspace / name}"
    if not (workspace / name).is_file():
        return problem, f"paths in `{key}` start from the workspace"
    start = diagnosis.suggest_start(workspace / name, key, workspace / cwd)
    return (
        f"{workspace / name} cannot be executed",
        f"make it executable (chmod +x {name}), or {start}",
    )


def is_batch_file(program: Path) -> bool:
    """Return True for a batch file, in which an argument could run commands."""
    return program.suffix.lower() in _BATCH_SUFFIXES


def holds_commands(program: Path, text: str) -> bool:
    """Return True if the program is a batch file and could run commands from an argument."""
    return is_batch_file(program) and not _BATCH_SPECIAL.isdisjoint(text)


def escape_argument(text: str) -> str:
    """Return the text, safe as an argument: it is not taken for an option or cut at a NUL."""
    text = text.replace("\0", REPLACEMENT)
    return f" {text}" if text.startswith(_OPTION_MARKS) else text


def make_program(setup: Setup, argv: Sequence[str], environ: Mapping[str, str]) -> Program:
    """Return a program to start in the folder of its settings; an agent's own folder is made."""
    cwd = prepare_folder(setup.workspace, setup.settings.cwd)
    return Program(argv, cwd, environ, setup.records, setup.agent_id)


@contextlib.contextmanager
def write_text_file(setup: Setup, program: Path, text: str, *, asked: str) -> Iterator[str]:
    """Write a text to a new file for a call of a program, yield its path, remove it.

    Raises AgentUnavailable if it cannot be written, or if its path could run commands.
    """
    folder, path = setup.scratch, ""
    try:
        try:
            files.make_own_folder(folder, below=folder.parents[2])
            handle, path = tempfile.mkstemp(".txt", "prompt-", folder.absolute())
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "replace"))
        except OSError as error:
            problem = f"its prompt could not be written: {error}"
            raise AgentUnavailable(
                setup.agent_id, problem, asked=asked, mend="free disk space"
            ) from error
        if holds_commands(program, path):
            problem = (
                f"{program.name} is a batch file, which would interpret characters in {path} as"
                " commands"
            )
            mend = "use a session name without special characters"
            raise AgentUnavailable(setup.agent_id, problem, asked=asked, mend=mend)
        yield path
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def build_environment(environ: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return a program's variables: the common ones, and those of `env` (a value, or `inherit`).

    A variable to inherit that is not set is left out.
    """
    passed = {name: value for name, value in environ.items() if is_always_given(name)}
    for name, value in env.items():
        if value != INHERIT:
            passed[name] = value
        elif name in environ:
            passed[name] = environ[name]
    return passed


def describe_exit(code: int | None) -> str:
    """Describe the end of a program by its exit code, or by the signal (below 0).

    Without an exit code, it closed its output and still runs.
    """
    if code is None:
        return "closed its stdout"
    if code >= 0:
        return f"failed with exit code {code}" if code else "ended"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


STOP_GRACE_S = 0.5
_END_GRACE_S = 1.0
_MB = 1_000_000
# The rounds of the event loop in which the end of a program that has ended is surely reported.
_LOOP_ROUNDS = 8

_OnObject = Callable[[dict[str, Any]], None]
_Answer = Callable[[dict[str, Any]], Awaitable[str | None]]


class KeptProgram:
    """Keep the program of one agent alive between its calls, which wait for each other.

    The first `exchange` starts the program. A call that fails or is cancelled ends it with its
    whole tree, and the next call starts another. `notes` are available after any end of a call.
    Errors name it `name`, as in "its program failed with exit code 1", and its command line
    `asked`; they contain the hint if it cannot be started, or if it ends before its first answer.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        asked: str,
        name: str = "its program",
        mend: str = "try the command in a shell",
        max_output_mb: float = math.inf,
    ) -> None:
        self._agent_id = agent_id
        self._command_line = asked
        self._name = name
        self._mend = mend
        self._has_answered = False
        self._max_output_mb = max_output_mb
        self._process: Process | None = None
        self._lines = LineSplitter()
        self._ends: set[str] = set()
        self._other = OtherOutput()
        self._lock = asyncio.Lock()

    async def exchange(
        self,
        program: Program,
        line: str,
        *,
        is_end: Callable[[dict[str, Any]], bool],
        on_object: _OnObject = lambda _: None,
        on_aside: _OnObject = lambda _: None,
        on_sent: Callable[[bool], None] = lambda _: None,
        on_request: _Answer | None = None,
    ) -> dict[str, Any]:
        """Write `line`; return the first JSON object after it for which `is_end` is true.

        `on_object` gets all others as they come, `on_aside` those before `line` and after the end.
        `on_request` gets them too; a line that it returns is written to the program, and nothing
        is read meanwhile. `program` is started if none runs; `on_sent` gets True if it was.
        Raises AgentUnavailable if it cannot be started; AgentProtocolError, with `notes` as its
        metadata, if it ends before its answer or writes more than `max_output_mb` to stdout.
        """
        async with self._lock:
            try:
                previous = self._process
                running = await self._get_ready(program, on_aside)
                self._other = OtherOutput()
                running.write(line.encode("utf-8", "replace") + b"\n", last=False)
                on_sent(running is not previous)
                return await self._answer(running, is_end, on_object, on_aside, on_request)
            except BaseException:
                await self.end()
                raise

    def is_running(self) -> bool:
        """Return True if a program runs, as far as is known."""
        return self._process is not None and self._process.returncode is None

    def notes(self) -> dict[str, Any]:
        """Return the other output of the last call: `log`, `stderr`, `replaced_bytes`, if any."""
        return self._other.notes()

    async def stop(self) -> None:
        """Close the program's stdin, wait a moment for it to end, then end it."""
        running = self._process
        if running is not None:
            running.write(b"")
            await running.wait_exit(STOP_GRACE_S)
        await self.end()

    async def end(self) -> None:
        """End the program's whole tree at once."""
        running, self._process = self._process, None
        if running is not None:
            await running.end()

    async def _get_ready(self, program: Program, on_aside: _OnObject) -> Process:
        """Return the running program, else a new one; report the objects between the calls."""
        if self._process is not None:
            for _ in range(_LOOP_ROUNDS):
                await asyncio.sleep(0)
            self._read_waiting(self._process, on_aside)
            if self._has_ended():
                await self.end()
        if self._process is None:
            self._lines, self._ends, self._has_answered = LineSplitter(), set(), False
            self._process = await start_program(
                program, self._command_line, name=self._name, mend=self._mend
            )
        return self._process

    async def _answer(
        self,
        running: Process,
        is_end: Callable[[dict[str, Any]], bool],
        on_object: _OnObject,
        on_aside: _OnObject,
        on_request: _Answer | None,
    ) -> dict[str, Any]:
        size = 0
        while True:
            event = await running.event(_END_GRACE_S if self._has_ended() else None)
            lines, is_over = self._take_lines(event)
            for number, line in enumerate(lines, start=1):
                value = self._other.read_object(line)
                if value is not None and is_end(value):
                    self._has_answered = True
                    self._read_waiting(running, on_aside, lines[number:])
                    return value
                if value is None:
                    continue
                on_object(value)
                if on_request:
                    await self._answer_request(running, value, on_request)
            if is_over or event is None:
                raise await self._broken(running)
            size += len(event.data) if event.source == "stdout" else 0
            if size > self._max_output_mb * _MB:
                raise self._error(
                    f"wrote more than {self._max_output_mb:g} MB to stdout",
                    "raise `max_output_mb` if its answers are that long",
                )

    def _take_lines(self, event: ProcessEvent | None) -> tuple[list[bytes], bool]:
        """Return the lines that are complete with an event, and True if no more will come."""
        lines = self._read_event(event) if event is not None else []
        if event is not None and len(self._ends) < 3:
            return lines, False
        return [*lines, *self._lines.rest()], True

    async def _answer_request(
        self, running: Process, value: dict[str, Any], on_request: _Answer
    ) -> None:
        """Write the answer to an object of the program, if it has one."""
        answer = await on_request(value)
        if answer is not None:
            running.write(answer.encode("utf-8", "replace") + b"\n", last=False)

    def _has_ended(self) -> bool:
        return bool(self._ends - {"stderr"})

    def _read_event(self, event: ProcessEvent) -> list[bytes]:
        """Keep stderr and the end of a stream; return the lines on stdout that are complete."""
        if event.source == "exit" or not event.data:
            self._ends.add(event.source)
        elif event.source == "stderr":
            self._other.stderr.add_bytes(event.data)
        else:
            return self._lines.feed(event.data)
        return []

    def _read_waiting(
        self, running: Process, on_aside: _OnObject, lines: Iterable[bytes] = ()
    ) -> None:
        """Read the waiting output; objects on stdout after the answer belong to no call."""
        waiting = list(lines)
        while event := running.waiting_event():
            waiting += self._read_event(event)
        for line in waiting:
            value = parse_line(line).value
            if value is not None:
                on_aside(value)

    async def _broken(self, running: Process) -> AgentError:
        await self.end()
        ending = describe_exit(running.returncode if "exit" in self._ends else None)
        mend = "the next call starts it again" if self._has_answered else self._mend
        return self._error(f"{self._name} {ending} before it answered", mend)

    def _error(self, problem: str, mend: str) -> AgentProtocolError:
        notes = self.notes()
        return AgentProtocolError(
            self._agent_id,
            problem,
            asked=self._command_line,
            came=diagnosis.list_last_lines(notes.get("stderr") or notes.get("log", "")),
            mend=mend,
            metadata=notes,
        )
