"""Functions of the user as tools, each call in a Python process that can be ended.

A process is kept for the next call. Calls side by side have processes of their own, so a function
keeps no state between calls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from arena_cli.adapters.python import FunctionFailed, UserFunction
from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.tools import function_worker
from arena_cli.tools.base import ToolFailed, ToolOutput, ToolScope

DESCRIBE_LIMIT_S = 30.0
"""The time in which a function must be imported."""

_NOTHING = "(no result)"


class FunctionPool:
    """The processes of a function, `module:function` or `file.py:function` from the workspace."""

    def __init__(
        self, target: str, workspace: Path, environ: Mapping[str, str], records: Path, agent: str
    ) -> None:
        self.target = target
        self._make = partial(
            UserFunction,
            target,
            workspace,
            environ,
            records,
            agent=agent,
            worker=function_worker.__file__,
            arguments=(),
        )
        self._idle: list[UserFunction] = []
        self._busy: set[UserFunction] = set()

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

    async def _exchange(self, request: Mapping[str, Any]) -> Any:
        worker = self._idle.pop() if self._idle else self._make()
        self._busy.add(worker)
        try:
            return await worker.exchange(json.dumps(request))
        except FunctionFailed as error:
            raise ToolFailed(str(error)) from error
        finally:
            self._busy.discard(worker)
            self._idle.append(worker)

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
