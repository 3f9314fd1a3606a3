"""Whatever the tasks need and the agents do: no task before its needs, none twice, none lost."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    StructuredContent,
    TaskBoard,
    canonicalize,
    reader,
)
from support import Puppets, Talk, puppet, team

AGENTS = ("dev", "ops", "doc")
DOES = ("done", "pass", "fails", "fails once", "block", "help", "adds", "cancels", "mentions")


class Plan(NamedTuple):
    """A graph of tasks: of each the needs, the priority, the agent, and what is done with it."""

    tasks: list[tuple[list[int], int, str, str]]
    max_responders: int
    max_tasks: int | None


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    tasks = []
    for number in range(draw(st.integers(1, 7))):
        needs = draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []
        tasks.append(
            (
                needs,
                draw(st.integers(-1, 1)),
                draw(st.sampled_from(("", *AGENTS))),
                draw(st.sampled_from(DOES)),
            )
        )
    most = draw(st.one_of(st.none(), st.integers(1, 8)))
    return Plan(tasks, draw(st.integers(1, 4)), most)


def answer_as(plan: Plan) -> Any:
    """Agents that do what the plan says; what they do depends on their input alone."""

    def part(**data: Any) -> AgentOutput:
        return AgentOutput(
            content="see", structured=[StructuredContent(type="task_list", data=data)]
        )

    def answer(shown: AgentInput) -> Any:
        head = shown.brief.partition(":")[0]
        number = int(head.removeprefix("Task t")) - 1 if head.startswith("Task t") else -1
        does = plan.tasks[number][3] if 0 <= number < len(plan.tasks) else "done"
        is_again = "The last attempt" in shown.brief
        if does == "fails" or (does == "fails once" and not is_again):
            raise AgentOverloaded(shown.agent_id, "try later")
        return {
            "pass": "<pass/>",
            "block": part(actions=[{"action": "block", "text": "a key"}]),
            "help": "ok"
            if is_again
            else part(actions=[{"action": "help", "to": "ops", "text": "what"}]),
            "adds": part(
                tasks=[{"title": f"below {number}"}, {"title": f"{number}: bad", "to": 1}]
            ),
            "cancels": part(actions=[{"action": "cancel"}, {"action": "fail", "text": "no"}]),
            "mentions": "@doc look" if shown.agent_id != "doc" else "fine",
        }.get(does, f"result of {number}")

    return answer


def talk_of(folder: Path, plan: Plan) -> Talk:
    config = {"max_responders": plan.max_responders, "retries": 0, "task_retries": 1}
    members = team(
        puppet("dev", skills=["Task 1", "Task 3"], response={"threshold": 0.4}),
        puppet("ops", skills=["Task 2"]),
        puppet("doc"),
        **config,
    )
    return Talk(folder, members, adapter_type=Puppets(dict.fromkeys(AGENTS, answer_as(plan))))


def work(folder: Path, plan: Plan) -> Talk:
    talk = talk_of(folder, plan)
    with talk.open() as session:
        for number, (needs, priority, agent, _) in enumerate(plan.tasks):
            facts = {
                "title": f"Task {number}",
                "needs": [f"t{need + 1}" for need in needs],
                "priority": priority,
                "assigned_to": agent,
            }
            session.change_task("add", facts=facts)
        asyncio.run(session.last(session.work(by="user", max_tasks=plan.max_tasks)))
    return talk


def canonical(talk: Talk) -> list[dict[str, Any]]:
    lines = reader.read_lines(talk.transcript)
    return canonicalize(event for line in lines for event in line.events)


def check_course(talk: Talk, plan: Plan) -> None:
    """Check that the events tell of a course that may be."""
    board = TaskBoard()
    running: dict[str, str] = {}
    begun: set[str] = set()
    for event in talk.events:
        if event.type == "turn_started":
            assert len(event.must) <= plan.max_responders
            assert set(running.values()) <= set(event.must)
        if event.type == "turn_finished":
            assert not running
        if event.type != "task":
            continue
        task = board.tasks.get(event.task)
        if event.action == "start":
            assert task is not None
            assert task.status == "pending"
            assert board.unmet(task) == []
            assert task.assigned_to in ("", event.to)
            assert event.to not in task.passed
            assert event.to not in running.values()
            ready = board.list_ready()
            mine = [other for other in ready if other.assigned_to == event.to]
            if task.assigned_to and plan.max_tasks is None and not _has_asked(talk, mine):
                assert task.priority == max(other.priority for other in mine)
            running[event.task] = event.to
            begun.add(event.task)
        elif event.action != "add" and event.task in running:
            assert task is not None
            assert task.status == "running"
            running.pop(event.task)
        board.apply(event)
    assert not running
    assert plan.max_tasks is None or len(begun) <= plan.max_tasks
    end = talk.last("chain_finished").end
    left = board.list_open()
    if not left:
        assert end in ("quiet", "failed", "no_reply")
    elif end == "awaiting_human":
        assert not board.list_ready()
    else:
        assert end == "chain_limit"
        assert plan.max_tasks is not None
    done = [task for task in board.tasks.values() if task.status == "completed"]
    completed = [e.task for e in talk.of("task") if e.action == "complete"]
    assert sorted(completed) == sorted(task.id for task in done)


def _has_asked(talk: Talk, tasks: list[Any]) -> bool:
    asked = {event.task for event in talk.of("task") if event.action == "help"}
    return any(task.id in asked for task in tasks)


@given(plans())
@settings(max_examples=settings.default.max_examples * 3)
def test_no_task_before_its_needs_none_twice_none_lost(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_course(work(Path(folder), plan), plan)


@given(plans(), st.data())
@settings(max_examples=settings.default.max_examples * 2)
def test_killed_at_any_event_it_continues_to_the_same_form(plan: Plan, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = work(folder / "whole", plan)
        expected = canonical(whole)
        lines = whole.transcript.read_bytes().splitlines(keepends=True)
        opened = next(at for at, line in enumerate(lines) if b'"chain":1' in line)
        counts = st.integers(opened + 1, len(lines) - 1)
        for count in sorted(data.draw(st.sets(counts, min_size=1, max_size=5))):
            talk = talk_of(folder / str(count), plan)
            talk.transcript.parent.mkdir(parents=True)
            talk.transcript.write_bytes(b"".join(lines[:count]))
            talk.resume()
            assert canonical(talk) == expected, json.loads(lines[count - 1])


names = st.sampled_from(["a", "b", "c", "d", "t1", "t9", "A "])


@given(
    st.lists(
        st.one_of(
            st.fixed_dictionaries(
                {"title": names},
                optional={
                    "needs": st.lists(names, max_size=3),
                    "priority": st.one_of(st.integers(-3, 3), st.just("high"), st.floats()),
                    "assigned_to": st.sampled_from(["dev", "@ops", "nobody", "", 3]),
                },
            ),
            st.one_of(st.none(), st.integers(), st.text(max_size=4), st.lists(st.none())),
        ),
        max_size=6,
    ),
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "action": st.sampled_from(
                    ["complete", "block", "help", "assign", "progress", "pass", "boom", None, 3]
                ),
                "id": st.sampled_from(["t1", "t2", "t3", "a", "", None, 5]),
                "percent": st.one_of(st.integers(-5, 105), st.none(), st.floats(), st.text()),
                "to": st.sampled_from(["ops", "dev", "nobody", "", None]),
                "text": st.one_of(st.text(max_size=5), st.none()),
            },
        ),
        max_size=4,
    ),
)
@settings(max_examples=settings.default.max_examples * 3)
def test_a_list_of_any_shape_ends_the_work_and_makes_no_circle(
    tasks: list[Any], actions: list[Any]
) -> None:
    data = {"tasks": tasks, "actions": actions}
    said = AgentOutput(content="x", structured=[StructuredContent(type="task_list", data=data)])
    first = iter([said])
    puppets = Puppets({"dev": lambda _: next(first, "done"), "ops": lambda _: "done"})
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder), team(*map(puppet, puppets.inputs)), adapter_type=puppets)
        with talk.open() as session:
            session.change_task("add", facts={"title": "Split", "assigned_to": "dev"})
            finished = asyncio.run(session.last(session.work(by="user")))
            control = session.journal.fold.control
        assert finished.type == "chain_finished"
        assert control is not None
        assert control.tasks is not None
        assert control.tasks.find_circle({}) == []
        for task in control.tasks.tasks.values():
            assert all(name in control.tasks.tasks for name in task.needs)
            assert task.status != "running"
