"""One run of a program: started, fed and read at the same time, ended with its whole tree.

    end = await one_run.run(agent_id, Command(argv, stdin, asked, cwd, environ, records), output)

`output` is told all that the program writes (`Output`); how an answer is made of it is its own.
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
    """What is run: `argv[0]` is a path; `asked` is the command line without any text of a prompt.

    `records` is the folder of `strays`.
    """

    argv: Sequence[str]
    stdin: bytes
    asked: str
    cwd: Path
    environ: Mapping[str, str]
    records: Path


class Output(Protocol):
    """Who reads what a program writes; where `feed` or `finish` raises, the program is ended."""

    def feed(self, source: Source, data: bytes) -> None:
        """Take what came."""
        ...

    def finish(self) -> None:
        """No more comes."""
        ...

    def has_result(self) -> bool:
        """Whether a whole result has come, so that a program that is silent now may be ended."""
        ...

    def cut_off(self) -> None:
        """No more comes, as the call was cancelled; tell what there is of an answer."""
        ...


class End(NamedTuple):
    """How a program ended: its exit code (None: it was ended after its result)."""

    code: int | None

    @property
    def after_result(self) -> bool:
        """Whether it would not end by itself."""
        return self.code is None


async def run(agent_id: str, command: Command, output: Output) -> End:
    """Run it to its end, or until it is silent though its result is there.

    Raises AgentUnavailable if it cannot be started, and what `output` raises. However it ends,
    nothing of it is left running.
    """
    running = await _started(agent_id, command)
    try:
        running.write(command.stdin)
        return await _read(running, output)
    except asyncio.CancelledError:
        await running.end()
        _tell_rest(running, output)
        raise
    finally:
        await running.end()


async def _started(agent_id: str, command: Command) -> Process:
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


def _tell_rest(running: Process, output: Output) -> None:
    """What the program had written when it was cut off, and was not read yet."""
    with contextlib.suppress(NotAnAnswerError):
        while event := running.waiting_event():
            if event.source != "exit" and event.data:
                output.feed(event.source, event.data)
    output.cut_off()
