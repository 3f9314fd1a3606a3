"""Functions of the user as tools, each call in a Python process that can be ended.

A process is kept for the next call. Calls side by side have processes of their own, so a function
keeps no state between calls.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena_cli.adapters.process.run import KeptProgram
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError
from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.tools import function_worker
from arena_cli.tools.base import ToolFailed, ToolOutput, ToolScope
from arena_cli.util.text import clean_value

DESCRIBE_LIMIT_S = 30.0
"""The time in which a function must be imported."""

_MOST_OUTPUT_MB = 64
_NOTHING = "(no result)"


class FunctionPool:
    """The processes of a function, `module:function` or `file.py:function` from the workspace."""

    def __init__(
        self, target: str, workspace: Path, environ: Mapping[str, str], records: Path, agent: str
    ) -> None:
        self.target = target
        worker = str(Path(function_worker.__file__).resolve())
        self._program = Program(
            argv=[sys.executable, worker, target],
            cwd=workspace,
            environ=environ,
            records=records,
            agent=agent,
        )
        self._idle: list[KeptProgram] = []
        self._busy: set[KeptProgram] = set()

    async def describe(self) -> ToolSpec:
        """Return the function as a tool. Raises ToolFailed."""
        try:
            async with asyncio.timeout(DESCRIBE_LIMIT_S):
                output = await self._exchange({"describe": True})
        except TimeoutError as error:
            problem = f"{self.target} cannot be imported within {DESCRIBE_LIMIT_S:g} s"
            raise ToolFailed(problem) from error
        return ToolSpec(
            name=output["name"], description=output["description"], input_schema=output["schema"]
        )

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """Call the function; return its result as text. Raises ToolFailed."""
        text = (await self._exchange({"arguments": arguments}))["text"]
        return _NOTHING if text is None else str(text)

    async def call_typed(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function; return its result as JSON data. Raises ToolFailed."""
        return (await self._exchange({"arguments": arguments, "typed": True}))["value"]

    async def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        worker = self._idle.pop() if self._idle else self._make()
        self._busy.add(worker)
        try:
            answer = await worker.exchange(
                self._program,
                json.dumps(request),
                is_end=lambda value: bool({"output", "error"} & {*value}),
            )
            failure = clean_value(answer["error"])[0] if "error" in answer else None
            if failure and not failure["found"]:
                await worker.end()  # the next call loads it again
        except AgentError as error:
            raise ToolFailed(f"{self.target}: {error.what}") from error
        finally:
            self._busy.discard(worker)
            self._idle.append(worker)
        if failure:
            location = f" ({failure['where']})" if failure["where"] else ""
            raise ToolFailed(f"{self.target}: {failure['what']}{location}")
        output: dict[str, Any] = clean_value(answer["output"])[0]
        return output

    def _make(self) -> KeptProgram:
        return KeptProgram(
            self._program.agent,
            asked=self.target,
            name="its Python process",
            max_output_mb=_MOST_OUTPUT_MB,
        )

    async def stop(self) -> None:
        """End all processes."""
        await asyncio.gather(*(worker.stop() for worker in (*self._idle, *self._busy)))


class FunctionTool:
    """A function of the user as a tool."""

    def __init__(self, spec: ToolSpec, pool: FunctionPool, *, idempotent: bool = False) -> None:
        self.spec = spec
        self.idempotent = idempotent
        self._pool = pool

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:  # noqa: ARG002
        """Return None: the workspace is trusted with its functions."""
        return None

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:  # noqa: ARG002
        """Call the function. Raises ToolFailed with its error, and the place in its code."""
        return ToolOutput(await self._pool.call(arguments))
