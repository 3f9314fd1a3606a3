"""Lanes: how many replies run at once in a workspace, over all processes, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOverloaded,
    DiskRefused,
    Event,
    Lanes,
    Session,
    SessionConfig,
    base,
    lanes,
    tickets,
)
from product import session_store as store
from product import workspace as workspaces
from program import ROOT, Program, until
from support import CountingClock, Puppets, outgoing, puppet, team

LANE_FOLDER = Path("sessions") / ".lanes"


@pytest.mark.parametrize(
    ("value", "field", "problem"),
    [
        ("{main: 0}", ".main", "must be at least 1, not 0"),
        ("{planner: -2}", ".planner", "must be at least 1, not -2"),
        ("{mian: 4}", ".mian", "unknown key"),
        ("{nested: many}", ".nested", "must be a whole number"),
        ("{subagent: 1.5}", ".subagent", "must be a whole number"),
        ("{parallel: true}", ".parallel", "must be a whole number"),
        ("4", "", "must be a mapping of keys"),
    ],
)
def test_an_invalid_bound_is_an_error_with_its_line(
    tmp_path: Path, value: str, field: str, problem: str
) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "hello"})
    program.file("arena.yaml", f"language: en\nlanes: {value}\n")
    done = program.run("send", "@dev hi")
    assert done.code == 2
    assert f"arena.yaml:2: lanes{field}: {problem}" in done.stderr
    assert not (tmp_path / "sessions").exists()


def test_all_lanes_have_names(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "hello"})
    bounds = {"main": 4, "nested": 4, "parallel": 8, "subagent": 8, "planner": 1}
    program.file("arena.yaml", json.dumps({"lanes": bounds}))
    program.run("send", "-q", "@dev hi").check()
    states = lanes.list_lanes(workspaces.load_workspace(tmp_path, kinds=base.KINDS))
    assert {state.name: state.bound for state in states} == bounds
    assert not any(state.holders or state.waiting for state in states)
    assert list((tmp_path / LANE_FOLDER).iterdir()) == []


def test_without_a_bound_there_are_no_places(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "hello"})
    program.file("arena.yaml", "lanes: {planner: 1}\n")
    program.run("send", "-q", "@dev hi").check()
    assert not (tmp_path / LANE_FOLDER).exists()


def test_a_replay_waits_for_no_place_and_a_scenario_with_live_agents_does(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.program("dev", "say", "hello")
    program.file("arena.yaml", "lanes: {main: 1}\n")
    program.scenario("scenario: x\nsteps: [{send: '@dev hi', expect: {end: quiet}}]")
    program.run("run", "--record").check()
    assert (tmp_path / LANE_FOLDER).is_dir()
    with tickets.draw_ticket(tmp_path / LANE_FOLDER / "main"):  # a replay would wait for ever
        program.run("run", "--replay").check()


@dataclass
class JumpingClock(CountingClock):
    """A clock on which an hour passes whenever a test says so."""

    passed_s: float = 0.0
    jump: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return super().now() + self.jump

    def monotonic(self) -> float:
        return self.passed_s


@dataclass
class Room:
    """A session of agents that are functions, in a workspace with one place in its lane."""

    workspace: Path
    answers: dict[str, Callable[[AgentInput], Any]]
    main: int = 1
    on_event: Callable[[Event], None] = lambda _: None
    events: list[Event] = field(default_factory=list)
    clock: JumpingClock = field(default_factory=JumpingClock)

    @property
    def lane(self) -> Path:
        path = self.workspace / LANE_FOLDER / "main"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def send(self, content: str, **config: Any) -> None:
        members = team(*(puppet(name) for name in self.answers), retry_delay_s=0.01, **config)
        place = SessionConfig(
            workspace=self.workspace,
            durability="flush",
            clock=self.clock,
            wait_s=0,
            adapter_type=Puppets(self.answers),
            lanes=Lanes(main=self.main),
        )
        with Session(place, "talk", members, on_event=self.hear) as session:
            asyncio.run(session.last(session.send(outgoing(members, content))))

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    def statuses(self) -> list[tuple[str, str, str]]:
        return [(event.agent, event.status, event.detail) for event in self.of("status")]

    def left(self) -> list[str]:
        return [path.name for path in self.lane.parent.iterdir()]


@pytest.mark.parametrize("bound", [1, 2, 3, 9])
def test_replies_of_a_session_run_in_the_order_of_call_within_the_bound(
    tmp_path: Path, bound: int
) -> None:
    running: list[str] = []
    begun: list[str] = []
    most = 0

    def answer(name: str) -> Callable[[AgentInput], Any]:
        async def run(_: AgentInput) -> str:
            nonlocal most
            begun.append(name)
            running.append(name)
            most = max(most, len(running))
            await asyncio.sleep(0.02)
            running.remove(name)
            return f"from {name}"

        return run

    names = ["ada", "bea", "cyd", "dan", "eve"]
    room = Room(tmp_path, {name: answer(name) for name in names}, main=bound)
    room.send(" ".join(f"@{name}" for name in names))
    assert most <= bound
    assert bound < len(names) or most == len(names)
    assert bound > 1 or begun == names
    assert sorted(begun) == names
    assert [event.status for event in room.of("reply_finished")] == ["success"] * 5
    assert room.left() == []
    first = [detail for _, status, detail in room.statuses() if status == "waiting"]
    expected = [f"place {place} in lane main" for place in range(1, len(names) - bound + 1)]
    assert first[: len(expected)] == expected


def test_a_wait_is_reported_with_its_place_and_uses_up_no_deadline(tmp_path: Path) -> None:
    holders: list[Any] = []

    def on_event(event: Event) -> None:
        if event.type == "status" and event.status == "waiting":
            room.clock.passed_s += 3600
            holders.pop().release()

    room = Room(tmp_path, {"ada": lambda _: "done"}, on_event=on_event)
    holders = [tickets.draw_ticket(room.lane) for _ in range(3)]
    room.send("@ada", turn_timeout_s=60)
    assert room.statuses() == [
        ("ada", "waiting", "place 3 in lane main"),
        ("ada", "waiting", "place 2 in lane main"),
        ("ada", "waiting", "place 1 in lane main"),
        ("ada", "generating", ""),
    ]
    (finished,) = room.of("reply_finished")
    assert (finished.status, finished.latency_ms) == ("success", 0)
    assert room.left() == []


def test_a_retry_keeps_its_place(tmp_path: Path) -> None:
    calls: list[str] = []

    def fail_once(_: AgentInput) -> str:
        calls.append("ada")
        if calls == ["ada"]:
            raise AgentOverloaded("ada", "busy", retry_after=0.2)
        return "done"

    def follow(_: AgentInput) -> str:
        calls.append("bea")
        return "done"

    room = Room(tmp_path, {"ada": fail_once, "bea": follow})
    room.send("@ada @bea", on_failure="retry")
    assert calls == ["ada", "ada", "bea"]
    assert room.left() == []


def test_a_reply_that_is_cancelled_while_it_waits_leaves_no_ticket(tmp_path: Path) -> None:
    def on_event(event: Event) -> None:
        if event.type == "status":
            for task in asyncio.all_tasks():
                task.cancel()

    room = Room(tmp_path, {"ada": lambda _: "done"}, on_event=on_event)
    with tickets.draw_ticket(room.lane):
        with pytest.raises(asyncio.CancelledError):
            room.send("@ada")
        assert room.left() == ["main.000001"]
    assert [event.status for event in room.of("reply_finished")] == ["cancelled"]


def test_a_lane_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    room = Room(tmp_path, {"ada": lambda _: "done"})
    (tmp_path / "sessions").mkdir()
    (tmp_path / LANE_FOLDER).write_text("in the way")
    with pytest.raises(DiskRefused, match="could not write"):
        room.send("@ada")
    (tmp_path / LANE_FOLDER).unlink()
    room.send("@ada")
    assert [event.status for event in room.of("reply_finished")] == ["success"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_lane_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sessions").mkdir()
    (tmp_path / LANE_FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DiskRefused, match="is a link"):
        Room(tmp_path, {"ada": lambda _: "done"}).send("@ada")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_lanes_are_listed_with_who_holds_and_who_waits(tmp_path: Path) -> None:
    (tmp_path / "arena.yaml").write_text("lanes: {main: 2}")
    workspace = workspaces.load_workspace(tmp_path, kinds=base.KINDS)
    clock = JumpingClock()
    config = SessionConfig(workspace=tmp_path, clock=clock, lanes=workspace.file.lanes)
    with contextlib.ExitStack() as held:
        for number, agent in enumerate(["ada", "bea", "代理"]):
            clock.jump = timedelta(days=-100 * number)  # the clock is set back
            held.enter_context(store.draw_place(config, "main", f"s{number}", agent))
        (state,) = lanes.list_lanes(workspace)
        assert (state.name, state.bound) == ("main", 2)
        assert [place.session for place in state.holders] == ["s0", "s1"]
        assert [place.agent for place in state.waiting] == ["代理"]
        assert state.waiting[0].since < state.holders[0].since
        (tmp_path / LANE_FOLDER / "main.000002.json").write_text("{")
        (state,) = lanes.list_lanes(workspace)
        assert state.holders[1] == ("", "", 0, "")
    assert lanes.list_lanes(workspace) == [("main", 2, (), ())]


@given(
    bound=st.integers(1, 4),
    acts=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("dddre")), max_size=40),
)
def test_the_first_live_tickets_have_their_turn(bound: int, acts: list[tuple[int, str]]) -> None:
    """A ticket is drawn (d), released (r), or its process ends (e)."""
    with _folder() as folder:
        path = folder / "sessions" / ".lanes" / "main"
        live: list[Any] = []
        ended = 0
        for number, act in acts:
            if act == "d" or not live:
                live.append(tickets.draw_ticket(path, bound=bound, owner=b"{}"))
            elif act == "r":
                live.pop(number % len(live)).release()
            else:
                live.pop(number % len(live))._lock.release()  # as the system does then
                ended += 1
        positions = [ticket.find_position() for ticket in live]
        owners = tickets.list_owners(path)
        cleaned = [ticket.find_position() for ticket in live]
        for ticket in live:
            ticket.release()
        assert all(position == 0 for position in positions[:bound])
        waiting = enumerate(positions[bound:], start=1)
        assert all(place <= position <= place + ended for place, position in waiting)
        assert owners == [b"{}"] * len(live)
        assert cleaned == [max(index - bound + 1, 0) for index in range(len(live))]
        assert list(path.parent.iterdir()) == []


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "sessions" / ".lanes").mkdir(parents=True)
        yield folder


def test_a_process_that_was_stopped_while_it_drew_comes_after_those_that_drew_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions" / ".lanes" / "main"
    path.parent.mkdir(parents=True)
    first = tickets.draw_ticket(path)
    with tickets.draw_ticket(path) as second:
        first.release()
        read = tickets._read_numbers
        outdated = [[]]
        monkeypatch.setattr(
            tickets, "_read_numbers", lambda path: outdated.pop() if outdated else read(path)
        )
        with tickets.draw_ticket(path) as late:
            assert (second.find_position(), late.find_position()) == (0, 1)


def test_senders_behind_a_slow_reply_are_served_in_the_order_in_which_they_came(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    program.program("dev", "wait", "go", "say", "done")
    program.file("arena.yaml", "lanes: {main: 1}\n")
    running = [program.start("send", "-q", "-s", "s", "message 0")]
    until(lambda: b"reply_started" in program.raw())
    for number in range(1, 5):
        running.append(program.start("send", "-q", "-s", "s", f"message {number}"))
        assert running[-1].stderr
        assert running[-1].stderr.readline() == b"session s is busy; waiting up to 600 s\n"
    program.file("go", "")
    for process in running:
        assert program.finish(process).code == 0
    records = [record for record in program.records() if record["type"] == "message"]
    asked = [record["message"]["content"] for record in records]
    assert asked == [f"message {number}" for number in range(5)]


@pytest.mark.skipif(sys.platform == "win32", reason="processes are stopped by a signal")
def test_many_processes_keep_the_bound_and_the_order_and_lose_nothing(tmp_path: Path) -> None:
    """Runs of `arena send`, of which some are killed, and one is stopped and continued.

    A slow machine may wake processes in another order: only differences of seconds count here.
    """
    load = ["--slack", "5", "--senders", "6", "--sessions", "4", "--bound", "2", "--seconds", "4"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "lanes.py"), *load, "--reply-seconds", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
