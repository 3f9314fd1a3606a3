"""Tasks: people, agents and plans add them, agents take them, and each ends with a reason."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from product import (
    LONGEST_TITLE,
    MOST_TASKS,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    StructuredContent,
    TaskBoard,
    TaskChanged,
    TaskFacts,
    UsageError,
    canonicalize,
    reader,
)
from support import Puppets, Talk, puppet, team


def talk_of(folder: Path, puppets: Puppets | None = None, **config: Any) -> Talk:
    answers = puppets or Puppets({"dev": lambda _: "done", "ops": lambda _: "done"})
    members = team(*map(puppet, answers.inputs), humans=["maya"], **config)
    return Talk(folder, members, adapter_type=answers)


def change(talk: Talk, action: str, task: str = "", **fields: Any) -> str:
    with talk.open() as session:
        return session.change_task(action, task, **fields)


def add(talk: Talk, title: str, **fields: Any) -> str:
    return change(talk, "add", facts={"title": title, **fields})


def board(talk: Talk) -> TaskBoard:
    with talk.open() as session:
        control = session.journal.fold.control
    assert control is not None
    assert control.tasks is not None
    return control.tasks


def statuses(talk: Talk) -> dict[str, str]:
    return {task.id: task.status for task in board(talk).tasks.values()}


def told(talk: Talk) -> list[str]:
    """What the group was told about tasks."""
    messages = [event.message for event in talk.of("message")]
    return [message.content for message in messages if message.author_type == "system"]


# Requests of people.


def test_people_add_and_change_tasks(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    assert add(talk, "  Write\n the parser ", priority=2, type="code") == (
        "task t1 is added: Write the parser"
    )
    add(talk, "Test it", needs=["t1"], assigned_to="@ops", description="All of it.")
    task = board(talk).tasks["t2"]
    assert (task.needs, task.assigned_to, task.by) == (["t1"], "ops", "user")
    assert change(talk, "assign", "t1", agent="dev", by="maya") == "task t1 is now for dev"
    change(talk, "block", "t1", text="the deploy key")
    assert statuses(talk) == {"t1": "blocked", "t2": "pending"}
    assert change(talk, "unblock", "t1", text="it is in the vault") == "task t1 is pending again"
    change(talk, "complete", "t1", text="parser.py")
    change(talk, "cancel", "t2", by="maya")
    assert board(talk).tasks["t1"].result == "parser.py"
    assert statuses(talk) == {"t1": "completed", "t2": "cancelled"}
    assert told(talk) == [
        "Task blocked: Write the parser - the deploy key",
        "Task unblocked: Write the parser - it is in the vault",
        "Completed task t1: Write the parser",
        "Task cancelled: Test it",
    ]


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"title": ""}, "the title is empty"),
        ({}, "the title is empty"),
        ({"title": 7}, "`title` must be a text"),
        ({"title": "x" * (LONGEST_TITLE + 1)}, "the title has 201 characters"),
        ({"title": "a", "type": "x" * 51}, "the type has 51 characters"),
        ({"title": "a", "description": "x" * 8_001}, "the description has 8001 characters"),
        ({"title": "a", "priority": "high"}, "`priority` is no whole number"),
        ({"title": "a", "priority": True}, "`priority` is no whole number"),
        ({"title": "a", "priority": 10**9}, "the priority is at most"),
        ({"title": "a", "needs": ["t7"]}, "it needs t7, which is no task"),
        ({"title": "a", "needs": ["a"]}, "a circle: 'a' needs 'a'"),
        ({"title": "a", "needs": ["t3"]}, "it needs task t3, which is cancelled"),
        ({"title": "a", "needs": 3}, "`needs` must be a list"),
        ({"title": "a", "assigned_to": "bob"}, "bob is no member of this team"),
        ({"title": "a", "assigned_to": "maya"}, "maya is a person: tasks are for agents"),
    ],
)
def test_a_wrong_task_is_refused_and_nothing_is_written(
    tmp_path: Path, facts: dict[str, Any], problem: str
) -> None:
    talk = talk_of(tmp_path)
    for title in ("First", "Second", "Third"):
        add(talk, title)
    change(talk, "cancel", "t3")
    before = talk.transcript.read_bytes()
    with pytest.raises(UsageError) as caught:
        change(talk, "add", facts=facts)
    assert problem in caught.value.what
    assert talk.transcript.read_bytes() == before


@pytest.mark.parametrize(
    ("action", "task", "fields", "problem"),
    [
        ("assign", "t9", {"agent": "dev"}, "session talk has no task t9"),
        ("assign", "t1", {"agent": "bob"}, "bob is no member of this team"),
        ("assign", "t1", {}, "no agent is named"),
        ("assign", "t2", {"agent": "dev"}, "task t2 is one of dev already"),
        ("assign", "t3", {"agent": "dev"}, "task t3 has ended: it is completed"),
        ("complete", "t3", {}, "task t3 has ended: it is completed"),
        ("block", "t1", {}, "it is not said what the task waits for"),
        ("block", "t1", {"text": "x" * 8_001}, "the text has 8001 characters"),
        ("unblock", "t1", {}, "task t1 is not blocked: it is pending"),
        ("explode", "t1", {}, "'explode' is nothing that people do to a task"),
        ("start", "t1", {}, "'start' is nothing that people do to a task"),
    ],
)
def test_a_wrong_change_is_refused(
    tmp_path: Path, action: str, task: str, fields: dict[str, Any], problem: str
) -> None:
    talk = talk_of(tmp_path)
    add(talk, "First")
    add(talk, "Second", assigned_to="dev")
    add(talk, "Third")
    change(talk, "complete", "t3")
    with pytest.raises(UsageError) as caught:
        change(talk, action, task, **fields)
    assert problem in caught.value.what


def test_a_session_has_at_most_so_many_tasks(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    with talk.open() as session:
        for number in range(1, MOST_TASKS + 1):
            facts = TaskFacts(title=f"Task {number}")
            session.journal.write(
                TaskChanged, task=f"t{number}", action="add", by="user", facts=facts
            )
        with pytest.raises(UsageError, match="at most 2000 tasks"):
            session.change_task("add", facts={"title": "One more"})


# Work.


def work(talk: Talk, **fields: Any) -> Any:
    with talk.open() as session:
        return asyncio.run(session.last(session.work(by="user", **fields)))


def starts(talk: Talk) -> list[tuple[str, str]]:
    return [(event.task, event.to) for event in talk.of("task") if event.action == "start"]


def test_agents_take_tasks_and_their_answers_are_the_results(tmp_path: Path) -> None:
    puppets = Puppets({"dev": lambda shown: f"done: {shown.brief[:8]}", "ops": lambda _: "fine"})
    talk = talk_of(tmp_path, puppets)
    add(talk, "Write it", assigned_to="dev")
    add(talk, "Ship it", needs=["t1"], assigned_to="ops")
    add(talk, "Praise it", needs=["t1", "t2"], assigned_to="dev")
    finished = work(talk)
    assert finished.end == "quiet"
    assert statuses(talk) == {"t1": "completed", "t2": "completed", "t3": "completed"}
    assert board(talk).tasks["t1"].result == "done: Task t1:"
    assert starts(talk) == [("t1", "dev"), ("t2", "ops"), ("t3", "dev")]
    assert talk.turns() == [(["dev"], []), (["ops"], []), (["dev"], [])]
    assert told(talk) == [
        "Starting task t1: Write it (@dev)",
        "Completed task t1: Write it",
        "Starting task t2: Ship it (@ops)",
        "Completed task t2: Ship it",
        "Starting task t3: Praise it (@dev)",
        "Completed task t3: Praise it",
    ]
    brief = puppets.inputs["dev"][-1].brief
    assert "- t1 Write it:\ndone: Task t1:" in brief
    assert "- t2 Ship it:\nfine" in brief


def part(**data: Any) -> AgentOutput:
    """An answer with a list of tasks."""
    return AgentOutput(
        content=data.pop("content", "see the list"),
        structured=[StructuredContent(type="task_list", data=data)],
    )


def canonical(talk: Talk) -> list[dict[str, Any]]:
    lines = reader.read_lines(talk.transcript)
    return canonicalize(event for line in lines for event in line.events)


def by_task(**answers: Any) -> Any:
    """An agent that answers by the number of its task and of the attempt at it."""
    counts: dict[str, int] = {}

    def answer(shown: AgentInput) -> Any:
        match = re.match(r"Task (t\d+)", shown.brief)
        name = match[1] if match else "none"
        counts[name] = counts.get(name, 0) + 1
        said = answers.get(name, f"{name} is done")
        return said(counts[name]) if callable(said) else said

    return answer


def test_killed_after_any_event_the_work_goes_on_to_the_same_end(tmp_path: Path) -> None:
    def make(folder: Path) -> Talk:
        def flaky(shown: AgentInput) -> Any:
            if "t3" in shown.brief[:8] and "The last attempt" not in shown.brief:
                raise AgentOverloaded("ops", "try later")
            if "t5" in shown.brief[:8]:
                return part(actions=[{"action": "block", "text": "a key of @maya"}])
            return "fine"

        def plan_it(shown: AgentInput) -> Any:
            if "t1:" in shown.brief[:9]:
                return part(
                    tasks=[
                        {"title": "Nested", "needs": ["Nested two"]},
                        {"title": "Nested two", "assigned_to": "ops"},
                        {"title": "Bad", "needs": ["t77"]},
                    ],
                    actions=[{"action": "progress", "percent": 50}, {"id": "t2", "action": "fail"}],
                )
            if "t4" in shown.brief[:8] and "The last attempt" not in shown.brief:
                return part(
                    content="@ops which one?", actions=[{"action": "help", "text": "which"}]
                )
            return "<pass/>" if "t6:" in shown.brief[:9] else "done"

        puppets = Puppets({"dev": plan_it, "ops": flaky})
        return talk_of(folder, puppets, retries=0)

    whole = make(tmp_path / "whole")
    for facts in (
        {"title": "One", "assigned_to": "dev"},
        {"title": "Two", "needs": ["t1"]},
        {"title": "Three", "assigned_to": "ops"},
        {"title": "Four", "assigned_to": "dev", "priority": -1},
        {"title": "Five", "assigned_to": "ops", "priority": -2},
        {"title": "Six", "needs": ["t2"], "assigned_to": "dev"},
        {"title": "Seven", "needs": ["t5"]},
    ):
        change(whole, "add", facts=facts)
    finished = work(whole)
    assert finished.end == "awaiting_human"
    assert finished.awaits == ["maya"]
    print("\n".join(told(whole)))
    expected = canonical(whole)
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    opened = next(at for at, line in enumerate(lines) if b'"chain":1' in line)
    for count in range(opened + 1, len(lines)):
        talk = make(tmp_path / str(count))
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(b"".join(lines[:count]))
        talk.resume()
        assert canonical(talk) == expected, (count, lines[count - 1])
