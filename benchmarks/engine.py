"""CPU per reply of the turn engine, beside a bare asyncio loop that appends the same lines.

    python benchmarks/engine.py

A stub adapter answers at once; the history before it fills the window at every length. Figures
are medians of several rounds taken in turn in one process; the last columns are ratios against
the bare loop and against the shortest history, which hold when the machine's speed does not.

The last table is a hand-over of two stubs, beside LangGraph and AutoGen where this Python, or that
of `--python PATH`, has them; handover.py says what those do, and what of the engine's work they do
not. Its ratios are against the engine with its transcript, in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import ClassVar

import handover

from arena_cli.adapters.base import Health, SessionConfig, Settings, Setup
from arena_cli.protocol import AgentInput, AgentOutput, Emit, Message
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Session
from arena_cli.transcript import events
from arena_cli.transcript.events import Event, MessageEvent
from arena_cli.transcript.log import Log
from arena_cli.util.clock import SystemClock
from arena_cli.workspace.models import AgentProfile, Member, Team, TeamConfig

FILLER = "The nightly import finished with two warnings; the second one needs a closer look. " * 16
ENGINE = "engine, transcript on disk"
GROUPS = (("ping0", "ping1", "ping2", "ping3"), ("pong0", "pong1", "pong2", "pong3"))


class Stub:
    """Answers at once and hands the word to its opposite number."""

    settings_type: ClassVar[type[Settings]] = Settings
    wait_s: ClassVar[float] = 0.0
    text: ClassVar[str] = FILLER

    def __init__(self, setup: Setup) -> None:
        side = 0 if setup.agent_id in GROUPS[0] else 1
        other = GROUPS[1 - side][GROUPS[side].index(setup.agent_id)]
        self._answer = AgentOutput(content=self.text + handover.text_for(other))

    async def start(self) -> None: ...

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        if self.wait_s:
            await asyncio.sleep(self.wait_s)
        return self._answer

    async def health(self) -> Health:
        return Health(True)

    async def stop(self) -> None: ...


class Nowhere(Log):
    """A log that keeps nothing."""

    def append(self, event: Event) -> None:
        self.seq = event.seq


@cache
def team(turns: int) -> Team:
    """Two groups who call each other; the depth limit ends it after so many turns."""
    members = tuple(
        Member(profile=AgentProfile(agent_id=name, adapter={"type": "stub"}), name=name)
        for name in (*GROUPS[0], *GROUPS[1])
    )
    return Team("bench", members, config=TeamConfig(chain_depth_limit=turns - 1, selection="none"))


def opened(folder: Path, name: str | None, turns: int) -> Session:
    place = SessionConfig(workspace=folder, durability="flush", adapter_type=lambda _: Stub)
    return Session(place, name, team(turns))


def opening(per_turn: int) -> Outgoing:
    """The message that so many answer in every turn."""
    return Outgoing(" ".join(f"@{name}" for name in GROUPS[0][:per_turn]))


def plant(session: Session, count: int) -> None:
    """Neutral messages before the measured ones."""
    for number in range(count):
        stamp = session.journal.stamp()
        message = Message(
            id=stamp.message_id,
            author_id=GROUPS[number % 2][0],
            author_name=GROUPS[number % 2][0],
            author_type="agent",
            content=f"{number}: {FILLER}",
            timestamp=stamp.ts,
        )
        session.journal.write(MessageEvent, stamp=stamp, message=message, planted=True)


def engine_us(
    history: int, replies: int, per_turn: int, *, kept: bool
) -> tuple[float, list[bytes]]:
    """Microseconds of CPU a reply, and the lines that were written for them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(Path(folder), "bench", replies // per_turn) as session,
    ):
        log = session.journal.log
        if not kept:
            session.journal.log = Nowhere(
                log.path, clock=SystemClock(), durability="flush", seq=log.seq
            )
        plant(session, history)
        # What is planted is looked through for notes, and summarised, once: not at each reply.
        asyncio.run(session.send(opening(1)))
        size = log.path.stat().st_size
        began = time.process_time()
        asyncio.run(session.send(opening(per_turn)))
        spent = time.process_time() - began
        lines = log.path.read_bytes()[size:].splitlines(keepends=True)
        if not kept:
            session.journal.log.close()
            session.journal.log = log
    return spent / replies * 1e6, lines


def bare_us(lines: list[bytes], replies: int) -> float:
    """Microseconds of CPU a reply of a loop that only serialises and appends the same events."""
    kept = [event for line in lines if (event := events.parse(_json(line))) is not None]

    async def loop(path: Path) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for event in kept:
            await asyncio.sleep(0)
            os.write(file, events.encode_line(event))
        os.close(file)

    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        asyncio.run(loop(Path(folder) / "lines"))
        return (time.process_time() - began) / replies * 1e6


def _json(line: bytes) -> dict[str, object]:
    record: dict[str, object] = json.loads(line)
    return record


def sessions_s(count: int, replies: int, wait_s: float) -> float:
    """Seconds of wall clock for so many sessions at once in one process, opened and closed."""

    async def together(folder: Path) -> None:
        sessions = [opened(folder, None, replies) for _ in range(count)]
        await asyncio.gather(*(session.send(opening(1)) for session in sessions))
        for session in sessions:
            session.close()

    with stubs_of("", wait_s), tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        asyncio.run(together(Path(folder)))
        return time.perf_counter() - began


@contextmanager
def stubs_of(text: str, wait_s: float = 0.0) -> Iterator[None]:
    """Stubs that say no more than this, after so long."""
    Stub.wait_s, Stub.text = wait_s, text
    try:
        yield
    finally:
        Stub.wait_s, Stub.text = 0.0, FILLER


def handovers(python: str, replies: int) -> dict[str, float]:
    """Microseconds of CPU a reply where two hand the word over, by who runs them."""
    figures = {}
    with stubs_of(""):
        for name, kept in ((ENGINE, True), ("engine, nothing kept", False)):
            gc.collect()
            figures[name] = engine_us(0, replies, 1, kept=kept)[0]
    for framework in handover.FRAMEWORKS:
        command = [python, handover.__file__, framework, f"{replies}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        figures |= json.loads(done.stdout)
    return figures


def main() -> None:
    gc.set_threshold(50_000, 20, 20)  # as arena's command line does
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--replies", type=int, default=400)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--history", type=int, nargs="*", default=[100, 1_000, 5_000])
    options.add_argument("--handover", type=int, nargs="*", default=[100, 1_000])
    options.add_argument("--python", metavar="PATH", default=sys.executable)
    chosen = options.parse_args()
    print(f"CPU per reply, µs; medians of {chosen.rounds} rounds of {chosen.replies} replies")
    print("replies a turn  history  transcript  without  bare loop  ratio  vs first")
    for per_turn in (1, 4):
        table(chosen, per_turn)
    ideal = 10 * 0.05
    took = statistics.median(sessions_s(200, 10, 0.05) for _ in range(3))
    print(f"200 sessions x 10 replies of 50 ms: {took:.2f} s, {took / ideal:.2f} x the ideal")
    for replies in chosen.handover:
        beside(chosen, replies)


def table(chosen: argparse.Namespace, per_turn: int) -> None:
    """Measure and print the rows for turns of so many replies."""
    figures: dict[int, list[tuple[float, float, float]]] = {size: [] for size in chosen.history}
    for _ in range(chosen.rounds):
        for size in chosen.history:
            kept, lines = engine_us(size, chosen.replies, per_turn, kept=True)
            without = engine_us(size, chosen.replies, per_turn, kept=False)[0]
            figures[size].append((kept, without, bare_us(lines, chosen.replies)))
    first = 0.0
    for size, rounds in figures.items():
        kept, without, bare = (statistics.median(column) for column in zip(*rounds, strict=True))
        first = first or kept
        print(
            f"{per_turn:>14} {size:>8} {kept:>11.0f} {without:>8.0f} {bare:>10.0f} "
            f"{kept / bare:>6.1f} {kept / first:>9.2f}"
        )


def beside(chosen: argparse.Namespace, replies: int) -> None:
    """Measure and print the rows of a hand-over of so many replies."""
    rounds = [handovers(chosen.python, replies) for _ in range(chosen.rounds)]
    print(f"hand-over of {replies} replies, CPU per reply, µs   median  least  ratio")
    for name in rounds[0]:
        taken = [one[name] for one in rounds]
        ratio = statistics.median(one[name] / one[ENGINE] for one in rounds)
        print(f"  {name:44} {statistics.median(taken):6.0f} {min(taken):6.0f} {ratio:6.2f}")
    for framework in handover.FRAMEWORKS:
        if not any(name.lower().startswith(framework) for name in rounds[0]):
            print(f"  {framework:44} not installed")


if __name__ == "__main__":
    main()
