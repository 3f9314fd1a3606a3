"""Call a function of the user's rules in a Python process of its own, within a time limit.

The process is kept between calls; one that is late or breaks it is ended with its whole tree.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena_cli.adapters import python_worker
from arena_cli.adapters.process.run import KeptProgram
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError
from arena_cli.util.text import clean_value

LIMIT_S = 10.0
"""The time limit of a call in seconds, with the start of the process and the import of the file."""


class FunctionFailed(Exception):
    """The function gave no answer; the message has the reason and the place."""


class UserFunction:
    """A function `module:function` or `file.py:function`, seen from the workspace.

    `environ` are the variables of its process, `records` is the folder for records of running
    programs.
    """

    def __init__(
        self, target: str, workspace: Path, environ: Mapping[str, str], records: Path
    ) -> None:
        self._target = target
        worker = str(Path(python_worker.__file__).resolve())
        self._program = Program(
            argv=[sys.executable, worker, target, "json"],
            cwd=workspace,
            environ=environ or os.environ,
            records=records,
            agent="rules",
        )
        self._kept = KeptProgram("rules", asked=target, name="its Python process")

    async def call(self, decision: str) -> Any:
        """Return the function's answer to a decision, given as JSON. Raises FunctionFailed."""
        try:
            async with asyncio.timeout(LIMIT_S):
                answer = await self._kept.exchange(
                    self._program,
                    decision,
                    is_end=lambda value: bool({"output", "error"} & {*value}),
                )
        except TimeoutError as error:
            problem = f"{self._target} did not return within {LIMIT_S:g} s"
            raise FunctionFailed(problem) from error
        except AgentError as error:
            raise FunctionFailed(f"{self._target}: {error.what}") from error
        if "error" in answer:
            failure = clean_value(answer["error"])[0]
            place = f" ({failure['where']})" if failure["where"] else ""
            if not failure["found"]:
                await self._kept.end()
            raise FunctionFailed(f"{self._target}: {failure['what']}{place}")
        return clean_value(answer["output"])[0]

    async def stop(self) -> None:
        """End its process."""
        await self._kept.stop()
