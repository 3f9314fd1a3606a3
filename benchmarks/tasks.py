"""Schedule 1,000 tasks in a random graph with 8 agents, and compare it with as many plain replies.

    python benchmarks/tasks.py [--tasks 1000] [--seed 1]

All runs in one process; the agents are scripted and answer at once. Printed is the processor time
of the desk alone (which agent takes what, and how each task ends) per task, and the time of the
whole run as a ratio to chains with as many replies of the same agents, as many at once. It fails if
the desk takes more than 1 ms per task, if a task is done twice, or before its needs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.engine import task_ends, tasks
from arena_cli.session import outgoing
from arena_cli.session.session import Session
from arena_cli.transcript.events import Event
from arena_cli.transcript.task_events import TaskBoard, TaskChanged, TaskFacts
from arena_cli.workspace.models import AgentProfile, Member, Team, TeamConfig

AGENTS = 8
MOST_MS = 1.0
SKILLS = ("parser", "sql", "docs", "tests", "deploy", "review", "design", "data")


def make_team(replies: int) -> Team:
    members = []
    for skill in SKILLS:
        adapter = {"type": "scripted", "replies": [{"say": "done"}]}
        fields = {"agent_id": skill, "adapter": adapter, "skills": [f"{skill} work"]}
        shape = AgentProfile.model_validate({**fields, "response": {"threshold": 0.4}})
        members.append(Member(profile=shape, name=skill))
    config = TeamConfig(max_responders=AGENTS, chain_depth_limit=replies, selection="none")
    return Team(name="crew", members=tuple(members), config=config)


def make_facts(count: int, seed: int) -> list[tuple[TaskFacts, str]]:
    """Return tasks of which each needs up to three earlier ones, with the agents of some."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        size = min(number, chance.choice((0, 0, 1, 2, 3)))
        needs = sorted(chance.sample(range(number), size))
        facts = TaskFacts(
            title=f"{chance.choice(SKILLS)} work {number}",
            priority=chance.randint(-2, 2),
            needs=[f"t{need + 1}" for need in needs],
        )
        made.append((facts, chance.choice(("", "", *SKILLS))))
    return made


class Stopwatch:
    """The processor time within some functions, not within those that are given to them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def begin(self) -> float:
        self._depth += 1
        return time.process_time()

    def end(self, began: float) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.process_time() - began

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **options: Any) -> Any:
            began = self.begin()
            try:
                return function(*args, **options)
            finally:
                self.end(began)

        return measured

    def wrap_awaited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def measured(*args: Any, **options: Any) -> Any:
            began = self.begin()
            try:
                return await function(*args, **options)
            finally:
                self.end(began)

        return measured


def open_session(folder: Path, name: str, team: Team, heard: list[Event]) -> Session:
    place = SessionConfig(workspace=folder, durability="flush")
    return Session(place, name, team, on_event=heard.append)


def check(events: list[Event]) -> None:
    """Check that each task was done once, after its needs."""
    board = TaskBoard()
    started: list[str] = []
    for event in events:
        if isinstance(event, TaskChanged):
            if event.action == "start":
                assert not board.unmet(board.tasks[event.task]), event.task
                started.append(event.task)
            board.apply(event)
    assert len(started) == len(set(started)) == len(board.tasks)
    assert all(task.status == "completed" for task in board.tasks.values())


def run_tasks(folder: Path, facts: list[tuple[TaskFacts, str]], watch: Stopwatch) -> float:
    """Return the processor time of the work, in seconds."""
    heard: list[Event] = []
    with open_session(folder, "tasks", make_team(len(facts)), heard) as session:
        for number, (fields, agent) in enumerate(facts, start=1):
            session.journal.write(
                TaskChanged, task=f"t{number}", action="add", by="user", to=agent, facts=fields
            )
        settle, next_step = task_ends.settle, tasks.TaskDesk.next_step
        task_ends.settle = watch.wrap_awaited(settle)
        tasks.TaskDesk.next_step = watch.wrap(next_step)  # type: ignore[method-assign]
        began = time.process_time()
        try:
            finished = asyncio.run(session.last(session.work(by="user")))
        finally:
            task_ends.settle = settle
            tasks.TaskDesk.next_step = next_step  # type: ignore[method-assign]
        took = time.process_time() - began
    assert finished.end == "quiet", finished
    check(heard)
    return took


def run_plain(folder: Path, count: int) -> float:
    """Return the processor time of as many replies without tasks, in seconds."""
    team = make_team(count)
    with open_session(folder, "plain", team, []) as session:

        async def send() -> None:
            for _ in range(count // AGENTS):
                await session.send(outgoing.outgoing(team, "go", to=SKILLS))
            await session.stop()

        began = time.process_time()
        asyncio.run(send())
        return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        plain = run_plain(Path(folder), options.tasks)
        took = run_tasks(Path(folder), make_facts(options.tasks, options.seed), watch)
    desk = watch.seconds / options.tasks * 1000
    print(f"{options.tasks} tasks, {AGENTS} agents: the desk takes {desk:.3f} ms of CPU per task")
    print(f"the whole run: {took / options.tasks * 1000:.2f} ms per task", end=", ")
    print(f"{took / plain:.2f} times as many plain replies")
    return int(desk > MOST_MS)


if __name__ == "__main__":
    raise SystemExit(main())
