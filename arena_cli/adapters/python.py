"""Call functions of the user, of agents (`python`), rules and tools, in Python processes.

There is one process per agent and session, so the module keeps its state between calls. A call that
is cancelled, or that breaks the process, ends it with its whole tree; the next call starts another.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import os
import symtable
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import field_validator

from arena_cli.adapters import python_worker
from arena_cli.adapters.base import Adapter, Endpoint, Health, Settings, Setup
from arena_cli.adapters.process.output import NotAnAnswerError, parse_output
from arena_cli.adapters.process.run import KeptProgram
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError, AgentProtocolError, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, CallNote, Emit
from arena_cli.util import files
from arena_cli.util.text import clean_value


class PythonSettings(Settings):
    """The keys of `adapter: {type: python, ...}`.

    `target` is `module:function` or `file.py:function` (the path from the workspace); the function
    takes an AgentInput and returns a text, an AgentOutput or a dict of its fields, async or not.
    """

    looks_only: ClassVar[bool] = True

    target: str

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:
        """Return the function, whose process has the whole environment."""
        return [Endpoint("function", str(keys.get("target")), ("*",))]

    @field_validator("target")
    @classmethod
    def _has_both_halves(cls, target: str) -> str:
        where, name = python_worker.split(target)
        if not where or not name.isidentifier():
            raise ValueError("must be module:function or file.py:function")
        return target


class PythonAdapter(Adapter):
    """An agent behind a Python function, called once at a time."""

    settings_type: ClassVar[type[Settings]] = PythonSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._target: str = setup.settings.target
        worker = str(Path(python_worker.__file__).resolve())
        self._program = Program(
            argv=[sys.executable, worker, self._target],
            cwd=setup.workspace,
            environ=setup.environ,
            records=setup.records,
            agent=setup.agent_id,
        )
        self._worker = KeptProgram(
            setup.agent_id,
            asked=self._target,
            name="its Python process",
            mend=f"check that {sys.executable} runs",
        )

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Call the function; its printed output goes into `metadata["stderr"]`."""
        line = input.model_dump_json()
        try:
            answer = await self._worker.exchange(self._program, line, is_end=lambda _: True)
        except asyncio.CancelledError:
            emit(CallNote(self._worker.notes()))
            raise
        if "error" in answer:
            raise await self._failed(answer["error"])
        return self._output(answer["output"])

    async def health(self) -> Health:
        """Check that the function exists by reading its file, without running it."""
        return look_up(self._target, self._setup.workspace)

    async def stop(self) -> None:
        """Close the process's stdin, wait a moment for it to end, then end it."""
        await self._worker.stop()

    async def _failed(self, error: dict[str, Any]) -> AgentUnavailable | AgentProtocolError:
        """Return the error for an exception of the user's code.

        If the code cannot be loaded, the process is ended, so that the next call loads it again.
        """
        error, _ = clean_value(error)
        problem = f"{error['what']} ({error['where']})" if error["where"] else error["what"]
        notes = self._worker.notes()
        if error["trace"]:
            notes["traceback"] = error["trace"]
        if error["found"]:
            return AgentProtocolError(
                self._setup.agent_id, problem, asked=self._target, metadata=notes
            )
        await self._worker.end()
        return AgentUnavailable(
            self._setup.agent_id,
            f"its function cannot be loaded: {problem}",
            asked=self._target,
            mend="correct the file, or `target` in its profile",
            metadata=notes,
        )

    def _output(self, value: dict[str, Any]) -> AgentOutput:
        value, replaced = clean_value(value)
        notes = self._worker.notes() | ({"replaced_bytes": True} if replaced else {})
        try:
            output = parse_output(value)
        except NotAnAnswerError as error:
            raise AgentProtocolError(
                self._setup.agent_id,
                error.what,
                asked=self._target,
                mend="return a text, an AgentOutput or a dict of its fields",
                metadata=notes,
            ) from error
        return output.model_copy(update={"metadata": {**output.metadata, **notes}})


def look_up(target: str, workspace: Path) -> Health:
    """Check that a function of the user exists by reading its file, without running it."""
    where, name = python_worker.split(target)
    if python_worker.is_file(where):
        path: Path | None = workspace / where
    else:
        path = _file_of_module(where, workspace)
    if path is None or not path.is_file():
        detail = f"there is no {'file' if path else 'module'} {path or where}"
        return Health(ok=False, detail=f"{detail}; correct `target`, or install it")
    try:
        found = path.suffix != ".py" or _may_define(path, name)
    except (OSError, ValueError, SyntaxError) as error:
        return Health(ok=False, detail=f"{path} cannot be read: {error}")
    if not found:
        return Health(ok=False, detail=f"there is no function {name} in {where}; correct `target`")
    return Health(ok=True)


def _file_of_module(module: str, workspace: Path) -> Path | None:
    """Return the file of a module, found without running any code of it."""
    folders = [str(workspace), *sys.path]
    name = origin = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or [])
        origin = spec.origin or ""
    return Path(origin) if origin else None


def _may_define(path: Path, name: str) -> bool:
    """Return True if a module binds the name at its top level, or has a star import."""
    source = importlib.util.decode_source(files.read_regular(path))
    try:
        symbol = symtable.symtable(source, str(path), "exec").lookup(name)
    except KeyError:
        return "import *" in source
    return symbol.is_assigned() or symbol.is_imported() or "import *" in source


LIMIT_S = 10.0
"""The time limit of a rule in seconds, with the start of the process and the import of the file."""

_MOST_OUTPUT_MB = 64


class FunctionFailed(Exception):
    """The function gave no answer; the message has the reason and the place."""


class UserFunction:
    """A function `module:function` or `file.py:function`, seen from the workspace.

    `environ` are the variables of its process, `records` is the folder for records of running
    programs. `worker` is the file that runs it there, with these `arguments`.
    """

    def __init__(
        self,
        target: str,
        workspace: Path,
        environ: Mapping[str, str],
        records: Path,
        *,
        agent: str = "rules",
        worker: str = python_worker.__file__,
        arguments: Sequence[str] = ("json",),
    ) -> None:
        self._target = target
        self._program = Program(
            argv=[sys.executable, str(Path(worker).resolve()), target, *arguments],
            cwd=workspace,
            environ=environ or os.environ,
            records=records,
            agent=agent,
        )
        self._kept = KeptProgram(
            agent, asked=target, name="its Python process", max_output_mb=_MOST_OUTPUT_MB
        )

    async def call(self, decision: str) -> Any:
        """Return the function's answer to a decision, given as JSON. Raises FunctionFailed."""
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self.exchange(decision)
        except TimeoutError as error:
            problem = f"{self._target} did not return within {LIMIT_S:g} s"
            raise FunctionFailed(problem) from error

    async def exchange(self, line: str) -> Any:
        """Return the output for a line, without a time limit. Raises FunctionFailed."""
        try:
            answer = await self._kept.exchange(
                self._program, line, is_end=lambda value: bool({"output", "error"} & {*value})
            )
        except AgentError as error:
            raise FunctionFailed(f"{self._target}: {error.what}") from error
        if "error" in answer:
            failure = clean_value(answer["error"])[0]
            place = f" ({failure['where']})" if failure["where"] else ""
            if not failure["found"]:
                await self._kept.end()  # the next call loads it again
            raise FunctionFailed(f"{self._target}: {failure['what']}{place}")
        return clean_value(answer["output"])[0]

    async def stop(self) -> None:
        """End its process."""
        await self._kept.stop()
