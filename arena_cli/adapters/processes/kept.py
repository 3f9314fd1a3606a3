"""One program kept alive between the calls of one agent: a JSON line in, JSON lines out.

    self._kept = kept.Kept(agent_id, asked=command_line, max_output_mb=32)     # once
    result = await self._kept.exchange(                                        # in `invoke`
        Program(argv, cwd, environ, records), input.model_dump_json(), is_end=fits, on_object=tell
    )
    emit(CallNote(self._kept.notes()))                     # also after an error, or a cancellation
    await self._kept.stop()                                # in `stop`

The first `exchange` starts the program; the next ones find it there. A call that fails or is
cancelled ends it with its whole tree, and the next call starts another.
"""

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
# How often the event loop looks at the pipes before an end that lies behind has been told.
_LOOKS = 8

_OnObject = Callable[[dict[str, Any]], None]


class Kept:
    """The program of one agent; its calls wait for each other.

    In errors it is called `name` and was asked for `asked`, as in "its program failed with exit
    code 1"; `mend` says what to do where it cannot be started, or ends without a first answer.
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
        self._asked = asked
        self._name = name
        self._mend = mend
        self._has_answered = False
        self._max_output_mb = max_output_mb
        self._process: Process | None = None
        self._lines = Lines()
        self._ends: set[str] = set()
        self._heard = _Heard()
        self._one_at_a_time = asyncio.Lock()

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
        """The first JSON object after `line` was written for which `is_end` holds.

        All others are told to `on_object` as they come, and to `on_aside` those that came before
        `line` or after the end; `program` is what to start if none runs, and `on_sent` is told
        whether it was.
        Raises AgentUnavailable if it cannot be started; AgentProtocolError, with `notes` as its
        metadata, if it ends before its answer or writes more than `max_output_mb` to stdout.
        """
        async with self._one_at_a_time:
            try:
                before = self._process
                running = await self._ready(program, on_aside)
                self._heard = _Heard()
                running.write(line.encode("utf-8", "replace") + b"\n", last=False)
                on_sent(running is not before)
                return await self._answer(running, is_end, on_object, on_aside)
            except BaseException:
                await self.end()
                raise

    def is_running(self) -> bool:
        """Whether a program is there, as far as its end has been told."""
        return self._process is not None and self._process.returncode is None

    def notes(self) -> dict[str, Any]:
        """What stood beside the last answer: `log`, `stderr`, `replaced_bytes`, where any did."""
        heard = self._heard
        notes = {
            "log": heard.log.text,
            "stderr": heard.stderr.text,
            "replaced_bytes": heard.replaced,
        }
        return {name: note for name, note in notes.items() if note}

    async def stop(self) -> None:
        """End the program, which may first end in peace: its stdin is closed."""
        running = self._process
        if running is not None:
            running.write(b"")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    while running.returncode is None:
                        await running.event()
        await self.end()

    async def end(self) -> None:
        """End the program's whole tree now."""
        running, self._process = self._process, None
        if running is not None:
            await running.end()

    async def _ready(self, program: Program, on_aside: _OnObject) -> Process:
        """The program that is there and well, else a new one; what came between calls is aside."""
        if self._process is not None:
            for _ in range(_LOOKS):
                await asyncio.sleep(0)
            self._read_what_is_there(self._process, on_aside)
            if self._ends - {"stderr"}:
                await self.end()
        if self._process is None:
            self._lines, self._ends, self._has_answered = Lines(), set(), False
            try:
                self._process = await process.start(program)
            except (OSError, ValueError) as error:
                raise AgentUnavailable(
                    self._agent_id,
                    f"{self._name} could not be started: {error}",
                    asked=self._asked,
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
            event = await running.event(_END_GRACE_S if self._ends - {"stderr"} else None)
            lines = self._noticed(event) if event is not None else []
            if event is None or len(self._ends) == 3:
                lines += self._lines.rest()
            for number, line in enumerate(lines, start=1):
                found = self._heard.object_in(line)
                if found is not None and is_end(found):
                    self._has_answered = True
                    self._read_what_is_there(running, on_aside, lines[number:])
                    return found
                if found is not None:
                    on_object(found)
            if event is None or len(self._ends) == 3:
                raise await self._broken(running)
            size += len(event.data) if event.source == "stdout" else 0
            if size > self._max_output_mb * _MB:
                raise self._error(
                    f"wrote more than {self._max_output_mb:g} MB to stdout",
                    "raise `max_output_mb` if its answers are so long",
                )

    def _noticed(self, event: Event) -> list[bytes]:
        """Keep what an event says of stderr and of the end; the lines on stdout that it ends."""
        if event.source == "exit" or not event.data:
            self._ends.add(event.source)
        elif event.source == "stderr":
            self._heard.stderr.add(event.data)
        else:
            return self._lines.feed(event.data)
        return []

    def _read_what_is_there(
        self, running: Process, on_aside: _OnObject, lines: Iterable[bytes] = ()
    ) -> None:
        """What was said with the answer; what stdout says after it belongs to no call."""
        after = list(lines)
        while event := running.waiting_event():
            after += self._noticed(event)
        for line in after:
            value = json_lines.read(line).value
            if value is not None:
                on_aside(value)

    async def _broken(self, running: Process) -> AgentError:
        await self.end()
        code = running.returncode
        if "exit" not in self._ends or code is None:
            how = "closed its stdout"
        else:
            how = programs.how_it_ended(code) if code else "ended"
        mend = "the next call starts another" if self._has_answered else self._mend
        return self._error(f"{self._name} {how} before it answered", mend)

    def _error(self, what: str, mend: str) -> AgentProtocolError:
        notes = self.notes()
        return AgentProtocolError(
            self._agent_id,
            what,
            asked=self._asked,
            came=programs.last_words(notes.get("stderr") or notes.get("log", "")),
            mend=mend,
            metadata=notes,
        )


class _Heard:
    """What stood beside the answer of one call."""

    def __init__(self) -> None:
        self.log = Tail()
        self.stderr = ByteTail()
        self.replaced = False

    def object_in(self, line: bytes) -> dict[str, Any] | None:
        """The JSON object that a line of stdout is; what is none is kept in the log."""
        found = json_lines.read(line)
        self.replaced = self.replaced or found.replaced
        if found.value is None and found.text:
            self.log.add(found.text + "\n")
        return found.value
