"""Run a program: once per call, or kept alive between the calls of an agent.

It is started, fed and read at the same time, and ended with its whole tree.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from arena_cli.adapters.processes import process
from arena_cli.adapters.processes.cli_output import NotAnAnswerError, Source
from arena_cli.adapters.processes.process import Process, Program
from arena_cli.ground.errors import AgentUnavailable

GRACE_S = 1.0


@dataclass(frozen=True)
class Command:
    """A program to run: `argv[0]` is a path, `asked` the command line without a prompt's text.

    `records` is the folder for the records of running programs.
    """

    argv: Sequence[str]
    stdin: bytes
    asked: str
    cwd: Path
    environ: Mapping[str, str]
    records: Path


class Output(Protocol):
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


class End(NamedTuple):
    """The end of a program: its exit code (None: it was ended after its result)."""

    code: int | None

    @property
    def after_result(self) -> bool:
        """True if the program did not end by itself."""
        return self.code is None


async def run(agent_id: str, command: Command, output: Output) -> End:
    """Run a program to its end, or until it is silent after its result; none of it keeps running.

    `output` reads all that the program writes.
    Raises AgentUnavailable if it cannot be started, and the errors that `output` raises.
    """
    running = await _start(agent_id, command)
    try:
        running.write(command.stdin)
        return await _read(running, output)
    except asyncio.CancelledError:
        await running.end()
        _cut_off(running, output)
        raise
    finally:
        await running.end()


async def _start(agent_id: str, command: Command) -> Process:
    program = Program(command.argv, command.cwd, command.environ, command.records, agent_id)
    try:
        return await process.start(program)
    except (OSError, ValueError) as error:
        raise AgentUnavailable(
            agent_id,
            f"{command.argv[0]} could not be started: {error}",
            asked=command.asked,
            mend="try the command in a shell",
        ) from error


async def _read(running: Process, output: Output) -> End:
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
    return End(running.returncode)


def _cut_off(running: Process, output: Output) -> None:
    """Feed the output that was not read yet when the call was cancelled."""
    with contextlib.suppress(NotAnAnswerError):
        while event := running.waiting_event():
            if event.source != "exit" and event.data:
                output.feed(event.source, event.data)
    output.cut_off()
