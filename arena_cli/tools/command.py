"""Run a command in the folder of an agent: no shell, a time limit, a bounded output, no leftovers.

It gets the variables that every program gets. Its stdin is empty. All that it started is ended
when it ends, or when its time is over, or when the reply is cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters.process import run, spawn
from arena_cli.adapters.process.spawn import Process, Program
from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.tools.base import ToolFailed, ToolOutput, ToolScope, make_spec
from arena_cli.tools.folder import WorkFolder
from arena_cli.util.text import cut_start, decode_output, strip_ansi

DEFAULT_TIMEOUT_S = 120.0
MOST_BYTES = 50_000_000
"""A command that writes more is ended."""

_KEPT_BYTES = 7000
_GRACE_S = 1.0
_EXECUTE = "execute_command"
_IS_WINDOWS = sys.platform == "win32"


class CommandTool:
    """The tool `run_command`; with `has_shell`, it also takes a text for a shell.

    `on_end` is called when a command has ended: it may have changed files.

    `environ` are arena's variables, `records` is the folder for the records of running programs.
    """

    idempotent = False

    def __init__(
        self,
        folder: WorkFolder,
        environ: Mapping[str, str],
        records: Path,
        agent: str,
        *,
        has_shell: bool,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._folder = folder
        self._environ = run.build_environment(environ, {})
        self._records = records
        self._agent = agent
        self._on_end = on_end or (lambda: None)
        self.spec = _make_spec(has_shell=has_shell)

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest:
        """Return the act that people approve: the whole command line. Raises ToolFailed."""
        command = arguments["command"]
        is_shell = bool(arguments.get("shell"))
        if is_shell != isinstance(command, str):
            raise ToolFailed("`command` is a list; with `shell: true` it is a text")
        if not command or not command[0]:
            raise ToolFailed("`command` is empty")
        if any("\0" in argument for argument in command):
            raise ToolFailed("`command` has a NUL character in it")
        if not is_shell:
            self._find_program(command)
        shell = {"shell": True} if is_shell else {}
        return PermissionRequest(
            action=_EXECUTE,
            detail=command if isinstance(command, str) else shlex.join(command),
            tool=self.spec.name,
            arguments={"workdir": self._folder.name, "command": command, **shell},
        )

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:  # noqa: ARG002
        """Run the command to its end. Raises ToolFailed."""
        limit = float(arguments.get("timeout_s", DEFAULT_TIMEOUT_S))
        command = arguments["command"]
        argv = _shell_words(command, self._environ) if isinstance(command, str) else command
        if not isinstance(command, str):
            argv = [str(self._find_program(command)), *command[1:]]
        program = Program(argv, self._folder.root, self._environ, self._records, self._agent)
        try:
            process = await spawn.start_process(program)
        except (OSError, ValueError) as error:
            raise ToolFailed(f"{argv[0]} could not be started: {error}") from error
        output = BoundedOutput()
        try:
            process.write(b"")
            async with asyncio.timeout(limit) as timer:
                problem = await _read(process, output)
        except TimeoutError as error:
            if not timer.expired():
                raise
            await process.end()
            text = f"ended after {limit:g} s, its time limit\n{output.text}"
            raise ToolFailed(text.strip(), "timeout") from error
        finally:
            await process.end()
            self._on_end()
        code = process.returncode or 0
        state = problem or (run.describe_exit(code) if code < 0 else f"exit code {code}")
        return ToolOutput(f"{state}\n{output.text}".strip(), is_error=code != 0 or bool(problem))

    def _find_program(self, command: Sequence[str]) -> Path:
        """Return the program of a command: a bare name on PATH, any other from the folder."""
        name = command[0]
        root = self._folder.root
        program = run.find_program(name, workspace=root, environ=self._environ)
        if program is None:
            problem, hint = run.explain_missing(name, workspace=root, key="command", cwd=".")
            raise ToolFailed(f"{problem}; {hint}")
        if any(run.holds_commands(program, word) for word in command[1:]):
            raise ToolFailed(
                f"{program.name} is a batch file, in which this argument runs commands"
            )
        return program


class BoundedOutput:
    """The beginning and the end of an output, however long it is."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self.size = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        room = _KEPT_BYTES - len(self._head)
        self._head += data[:room]
        if len(data) > room:
            self._tail = (self._tail + data[room:][-_KEPT_BYTES - 1 :])[-_KEPT_BYTES - 1 :]

    @property
    def text(self) -> str:
        """The output as text; where it is cut, at the ends of words: a half may hide a secret."""
        if self.size <= 2 * _KEPT_BYTES:
            return strip_ansi(decode_output(self._head + self._tail)[0]).strip("\n")
        head, tail = decode_output(self._head)[0], decode_output(self._tail)[0]
        start = head.rstrip("\ufffd")
        end = max(start.rfind(sign) for sign in "\n\t ")
        tail = cut_start(tail, len(tail) - 1)
        left_out = f"\n(… {self.size} bytes in all, the middle is left out …)\n"
        return strip_ansi(start[: end + 1] + left_out + tail).strip("\n")


async def _read(process: Process, output: BoundedOutput) -> str:
    """Read all that a program writes; return why it was not read to its end, "" if it was."""
    clock = asyncio.get_running_loop().time
    is_open = {"stdout": True, "stderr": True}
    until: float | None = None
    while any(is_open.values()) or process.returncode is None:
        wait = None if until is None else max(until - clock(), 0)
        event = await process.event(wait)
        if event is None:
            break
        if event.source == "exit":
            until = clock() + _GRACE_S  # a process that it left may hold its output open
        elif not event.data:
            is_open[event.source] = False
        else:
            output.add(event.data)
            if output.size > MOST_BYTES:
                return f"ended: it wrote more than {MOST_BYTES // 1_000_000} MB"
            if until is not None and clock() > until:
                break
    if any(is_open.values()):
        return f"exit code {process.returncode}; a process that it left running was ended"
    return ""


def _shell_words(command: str, environ: Mapping[str, str]) -> list[str]:
    """Return the words that run a text in the system's shell."""
    if _IS_WINDOWS:
        encoded = base64.b64encode(command.encode("utf-16-le")).decode("ascii")
        shell = environ.get("SYSTEMROOT", r"C:\Windows")
        program = rf"{shell}\System32\WindowsPowerShell\v1.0\powershell.exe"
        return [program, "-NoProfile", "-NonInteractive", "-EncodedCommand", encoded]
    return ["/bin/sh", "-c", command]


def _make_spec(*, has_shell: bool) -> ToolSpec:
    words = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": 'The program and its arguments, such as ["pytest", "-q"].',
    }
    properties: dict[str, Any] = {
        "command": words,
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": f"Time limit in seconds; by default {DEFAULT_TIMEOUT_S:g}.",
        },
    }
    description = (
        "Run a program in your folder; no shell reads the arguments. What it starts is ended with "
        "it. Its output is given from the beginning and the end."
    )
    if has_shell:
        shell = "PowerShell" if _IS_WINDOWS else "/bin/sh"
        properties["command"] = {"anyOf": [words, {"type": "string", "minLength": 1}]}
        properties["shell"] = {
            "type": "boolean",
            "description": f"`command` is a text for {shell}.",
        }
    return make_spec("run_command", description, "command", **properties)
