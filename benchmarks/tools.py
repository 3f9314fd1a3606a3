"""What tools cost beyond the model and the tools: CPU of a round trip, calls at once, first calls.

    python benchmarks/tools.py [--replies 20] [--starts 5]

A round trip is a turn of the model, a call, its result and the next turn. The model is a function
that answers at once, the tool lists the members of the team. CPU is this process's (user and
system), of replies with ten round trips less replies with none, per round trip.

Eight calls of 100 ms at once are made to an MCP server that runs; the time is from the first
request to the last result.

The first call of an MCP server is made in a new process, from the start of the reply to the result.
It is compared with the SDK's own client, already imported, that starts the same server and makes
the same call, each at its best of some starts. The difference is counted in CPU of this process, so
that it does not depend on the load of the machine. Nearly all of it is the import of the SDK, which
arena does while the server starts. The exit code is 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import Health, SessionConfig, Settings, Setup
from arena_cli.protocol import AgentInput, AgentOutput, Emit, ToolCall
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Session
from arena_cli.workspace.models import AgentProfile, Member, Team, TeamConfig

ROUND_TRIPS = 10
AT_ONCE = 8
CALL_S = 0.1
MOST_CPU_MS = 1.0
MOST_AT_ONCE_MS = 150.0
MOST_FIRST_MS = 500.0

PROGRAMS = Path(__file__).parent.parent / "tests" / "programs"
SERVERS = {
    "a plain script": [sys.executable, str(PROGRAMS / "raw_mcp_server.py")],
    "a server by the SDK": [sys.executable, str(PROGRAMS / "mcp_server.py")],
}
TOOL = {"a plain script": "pid", "a server by the SDK": "read_pid"}

Answer = Callable[[AgentInput], AgentOutput]


def make_kind(answer: Answer) -> type[Any]:
    """Return an adapter class whose agents answer by a function."""

    class Model:
        settings_type = Settings

        def __init__(self, setup: Setup) -> None: ...

        async def start(self) -> None: ...

        async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
            return answer(input)

        async def health(self) -> Health:
            return Health(True)

        async def stop(self) -> None: ...

    return Model


def open_session(folder: Path, answer: Answer, on_event: Any, **profile: Any) -> Session:
    keys = {"agent_id": "bob", "adapter": {"type": "model"}, **profile}
    shape = AgentProfile.model_validate({**keys, "run": {"max_turns": 100, "max_minutes": 60}})
    team = Team("bench", (Member(profile=shape, name="bob"),), config=TeamConfig())
    config = SessionConfig(
        workspace=folder,
        durability="flush",
        environ={},
        adapter_type=lambda _: make_kind(answer),
    )
    return Session(config, None, team, on_event=on_event)


def run_once(session: Session) -> None:
    """Send a message, and end the session's servers."""
    asyncio.run(session.last(session.send(Outgoing("@bob go", to=("bob",)))))


def measure_round_trips(replies: int) -> float:
    """Return the CPU of a round trip, in ms."""

    def measure(round_trips: int) -> float:
        def answer(input: AgentInput) -> AgentOutput:
            if len(input.steps) >= round_trips:
                return AgentOutput(content="done")
            call = ToolCall(tool="list_members", arguments={"n": len(input.steps)})
            return AgentOutput(tool_calls=[call])

        with tempfile.TemporaryDirectory() as folder:
            session = open_session(Path(folder), answer, lambda _: None, tools=["list_members"])
            with session:

                async def talk() -> float:
                    message = Outgoing("@bob go", to=("bob",))
                    await session.send(message)
                    began = time.process_time()
                    for _ in range(replies):
                        await session.send(message)
                    return time.process_time() - began

                return asyncio.run(session.last(talk()))

    return 1000 * (measure(ROUND_TRIPS) - measure(0)) / (replies * ROUND_TRIPS)


def measure_at_once(rounds: int = 5) -> float:
    """Return the time of eight calls at once, in ms, the median of some rounds."""
    times: dict[str, list[float]] = {"tool_requested": [], "tool_finished": []}

    def note(event: Any) -> None:
        if event.type in times and event.tool == "s.read_slowly":
            times[event.type].append(time.perf_counter())

    def answer(input: AgentInput) -> AgentOutput:
        if not input.steps:  # the server is started by another call
            return AgentOutput(tool_calls=[ToolCall(tool="s.read_pid")])
        if len(input.steps) > rounds:
            return AgentOutput(content="done")
        arguments = {"seconds": CALL_S}
        calls = [ToolCall(tool="s.read_slowly", arguments=arguments) for _ in range(AT_ONCE)]
        calls = [
            call.model_copy(update={"arguments": {**arguments, "n": n}})
            for n, call in enumerate(calls)
        ]
        return AgentOutput(tool_calls=calls)

    mcp = {"s": {"command": SERVERS["a server by the SDK"]}}
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(Path(folder), answer, note, tools=["s.*"], mcp=mcp)
        with session:
            run_once(session)
    requested, finished = times["tool_requested"], times["tool_finished"]
    spans = [
        max(finished[at : at + AT_ONCE]) - min(requested[at : at + AT_ONCE])
        for at in range(0, len(requested), AT_ONCE)
    ]
    return 1000 * statistics.median(spans)


def measure_first(server: str) -> None:
    """Print the ms from the start of a reply to the result of its first call, and those of CPU."""
    began = (0.0, 0.0)

    def note(event: Any) -> None:
        nonlocal began
        if event.type == "reply_started":
            began = time.perf_counter(), time.process_time()
        elif event.type == "tool_finished":
            assert event.status == "ok", event.result
            wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
            print(1000 * wall, 1000 * cpu)

    def answer(input: AgentInput) -> AgentOutput:
        if input.steps:
            return AgentOutput(content="done")
        return AgentOutput(tool_calls=[ToolCall(tool=f"s.{TOOL[server]}")])

    mcp = {"s": {"command": SERVERS[server]}}
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(Path(folder), answer, note, tools=["s.*"], mcp=mcp)
        with session:
            run_once(session)


def measure_sdk(server: str) -> None:
    """Print the same of the SDK's own client, from the start of a server."""
    from mcp import StdioServerParameters
    from mcp.client.client import Client

    command, *args = SERVERS[server]

    async def call() -> None:
        began, cpu = time.perf_counter(), time.process_time()
        async with Client(StdioServerParameters(command=command, args=args)) as client:
            await client.list_tools()
            await client.call_tool(TOOL[server], {})
            print(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu))

    asyncio.run(call())


def run_child(what: str, server: str) -> list[float]:
    command = [sys.executable, __file__, "--child", json.dumps([what, server])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return [float(figure) for figure in done.stdout.split()]


def compare_first(server: str, starts: int) -> float:
    """Return how much more CPU arena takes than the SDK's own client, in ms, at best."""
    arena = [
        min(column)
        for column in zip(*(run_child("arena", server) for _ in range(starts)), strict=True)
    ]
    sdk = [
        min(column)
        for column in zip(*(run_child("sdk", server) for _ in range(starts)), strict=True)
    ]
    print(
        f"first call, {server}: {arena[0]:.0f} ms ({arena[1]:.0f} ms CPU), "
        f"the SDK alone {sdk[0]:.0f} ms ({sdk[1]:.0f} ms CPU)"
    )
    return arena[1] - sdk[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replies", type=int, default=20)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, server = json.loads(options.child)
        (measure_first if what == "arena" else measure_sdk)(server)
        return 0
    cpu = measure_round_trips(options.replies)
    print(f"one round trip: {cpu:.2f} ms CPU (limit {MOST_CPU_MS:g})")
    span = measure_at_once()
    print(f"{AT_ONCE} calls of {1000 * CALL_S:.0f} ms at once: {span:.0f} ms (limit 150)")
    more = max(compare_first(server, options.starts) for server in SERVERS)
    print(f"first call: {more:.0f} ms CPU more than the SDK alone (limit {MOST_FIRST_MS:g})")
    is_kept = cpu < MOST_CPU_MS and span < MOST_AT_ONCE_MS and more < MOST_FIRST_MS
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
