"""Call a function of the user, of a rule or a tool, in a Python process of its own.

The process is kept between calls; one that is late or breaks it is ended with its whole tree.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters import python_worker
from arena_cli.adapters.process.run import KeptProgram
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError
from arena_cli.util.text import clean_value

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
