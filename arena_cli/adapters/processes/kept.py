"""Keep one program alive between the calls of one agent: a JSON line in, JSON lines out."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

from arena_cli.adapters.processes import json_lines, process, programs
from arena_cli.adapters.processes.json_lines import Lines
from arena_cli.adapters.processes.process import Event, Process, Program
from arena_cli.adapters.processes.tail import ByteTail, Tail
from arena_cli.ground.errors import AgentError, AgentProtocolError, AgentUnavailable

STOP_GRACE_S = 0.5
_END_GRACE_S = 1.0
_MB = 1_000_000
# The rounds of the event loop in which the end of a program that has ended is surely reported.
_LOOP_ROUNDS = 8

_OnObject = Callable[[dict[str, Any]], None]


class Kept:
    """Keep the program of one agent alive between its calls, which wait for each other.

    The first `exchange` starts the program. A call that fails or is cancelled ends it with its
    whole tree, and the next call starts another. `notes` are there after any end of a call.
    Errors name it `name`, as in "its program failed with exit code 1", and its command line
    `asked`; `mend` is the hint if it cannot be started, or ends before its first answer.
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
        self._lines = Lines()
        self._ends: set[str] = set()
        self._remarks = _Remarks()
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
    ) -> dict[str, Any]:
        """Write `line`; return the first JSON object after it for which `is_end` is true.

        `on_object` gets all others as they come, `on_aside` those before `line` and after the end.
        `program` is started if none runs; `on_sent` gets True if it was.
        Raises AgentUnavailable if it cannot be started; AgentProtocolError, with `notes` as its
        metadata, if it ends before its answer or writes more than `max_output_mb` to stdout.
        """
        async with self._lock:
            try:
                previous = self._process
                running = await self._get_ready(program, on_aside)
                self._remarks = _Remarks()
                running.write(line.encode("utf-8", "replace") + b"\n", last=False)
                on_sent(running is not previous)
                return await self._answer(running, is_end, on_object, on_aside)
            except BaseException:
                await self.end()
                raise

    def is_running(self) -> bool:
        """Return True if a program runs, as far as is known."""
        return self._process is not None and self._process.returncode is None

    def notes(self) -> dict[str, Any]:
        """Return the other output of the last call: `log`, `stderr`, `replaced_bytes`, if any."""
        notes = {
            "log": self._remarks.log.text,
            "stderr": self._remarks.stderr.text,
            "replaced_bytes": self._remarks.has_replaced,
        }
        return {name: note for name, note in notes.items() if note}

    async def stop(self) -> None:
        """Close the program's stdin, wait a moment for it to end, then end it."""
        running = self._process
        if running is not None:
            running.write(b"")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    while running.returncode is None:
                        await running.event()
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
            self._lines, self._ends, self._has_answered = Lines(), set(), False
            try:
                self._process = await process.start(program)
            except (OSError, ValueError) as error:
                raise AgentUnavailable(
                    self._agent_id,
                    f"{self._name} could not be started: {error}",
                    asked=self._command_line,
                    mend=self._mend,
                ) from error
        return self._process

    async def _answer(
        self,
        running: Process,
        is_end: Callable[[dict[str, Any]], bool],
        on_object: _OnObject,
        on_aside: _OnObject,
    ) -> dict[str, Any]:
        size = 0
        while True:
            event = await running.event(_END_GRACE_S if self._has_ended() else None)
            lines = self._read_event(event) if event is not None else []
            is_over = event is None or len(self._ends) == 3
            if is_over:
                lines += self._lines.rest()
            for number, line in enumerate(lines, start=1):
                value = self._remarks.read_object(line)
                if value is not None and is_end(value):
                    self._has_answered = True
                    self._read_waiting(running, on_aside, lines[number:])
                    return value
                if value is not None:
                    on_object(value)
            if event is None or is_over:
                raise await self._broken(running)
            size += len(event.data) if event.source == "stdout" else 0
            if size > self._max_output_mb * _MB:
                raise self._error(
                    f"wrote more than {self._max_output_mb:g} MB to stdout",
                    "raise `max_output_mb` if its answers are so long",
                )

    def _has_ended(self) -> bool:
        return bool(self._ends - {"stderr"})

    def _read_event(self, event: Event) -> list[bytes]:
        """Keep stderr and the end of a stream; return the lines on stdout that are complete."""
        if event.source == "exit" or not event.data:
            self._ends.add(event.source)
        elif event.source == "stderr":
            self._remarks.stderr.add(event.data)
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
            value = json_lines.read(line).value
            if value is not None:
                on_aside(value)

    async def _broken(self, running: Process) -> AgentError:
        await self.end()
        code = running.returncode
        if "exit" not in self._ends or code is None:
            ending = "closed its stdout"
        else:
            ending = programs.how_it_ended(code) if code else "ended"
        mend = "the next call starts another" if self._has_answered else self._mend
        return self._error(f"{self._name} {ending} before it answered", mend)

    def _error(self, problem: str, mend: str) -> AgentProtocolError:
        notes = self.notes()
        return AgentProtocolError(
            self._agent_id,
            problem,
            asked=self._command_line,
            came=programs.last_words(notes.get("stderr") or notes.get("log", "")),
            mend=mend,
            metadata=notes,
        )


class _Remarks:
    """The output of one call besides its answer."""

    def __init__(self) -> None:
        self.log = Tail()
        self.stderr = ByteTail()
        self.has_replaced = False

    def read_object(self, line: bytes) -> dict[str, Any] | None:
        """Return the JSON object in a line of stdout; keep any other line in the log."""
        parsed = json_lines.read(line)
        self.has_replaced = self.has_replaced or parsed.replaced
        if parsed.value is None and parsed.text:
            self.log.add(parsed.text + "\n")
        return parsed.value
