"""Tasks: people, agents and plans add them, agents take them, and each ends with a reason."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from product import (
    LONGEST_TITLE,
    MOST_TASKS,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentRefused,
    ControlRequest,
    Inbox,
    SessionConfig,
    StructuredContent,
    TaskBoard,
    TaskChanged,
    TaskFacts,
    UsageError,
    canonicalize,
    preview,
    reader,
)
from product import session_store as store
from program import Program
from support import Puppets, Talk, puppet, team
from tools import asks, scripted


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


def check_each_cut(whole: Talk, make: Callable[[Path], Talk], folder: Path) -> None:
    """Cut after any event of its chain, a session continues to the same canonical form."""
    expected = canonical(whole)
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    opened = next(at for at, line in enumerate(lines) if b'"chain":1' in line)
    for count in range(opened + 1, len(lines)):
        talk = make(folder / str(count))
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(b"".join(lines[:count]))
        talk.resume()
        assert canonical(talk) == expected, (count, lines[count - 1])


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
    check_each_cut(whole, make, tmp_path)


def test_a_started_task_and_a_message_call_their_agent_once(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    add(talk, "One", assigned_to="dev")
    work(talk)
    lines = talk.transcript.read_bytes().splitlines(keepends=True)
    started = next(
        at
        for at, line in enumerate(lines)
        if b'"action":"start"' in line and b'"type":"task"' in line
    )
    talk.transcript.write_bytes(b"".join(lines[: started + 1]))
    with talk.open() as session:
        session.carry_out(ControlRequest(act="steer", text="@dev be quick"))
    talk.events.clear()
    talk.resume()
    assert talk.turns()[0] == (["dev"], [])
    assert statuses(talk) == {"t1": "completed"}


# What agents add and change.


def test_agents_change_tasks_by_tools_and_it_takes_effect_once(tmp_path: Path) -> None:
    def make(folder: Path) -> Talk:
        dev = scripted(
            asks(
                ("task_list", {"mine": True}),
                ("task_update", {"action": "add", "title": "Check", "assigned_to": "ops"}),
                ("task_update", {"action": "add", "title": "Bad", "needs": ["t9"]}),
            ),
            asks(
                ("task_update", {"action": "add", "title": "Ship", "needs": ["check"]}),
                ("task_update", {"action": "complete", "id": "t2"}),
                ("task_update", {"action": "progress", "percent": 60}),
                ("task_update", {"action": "complete", "text": "v2"}),
            ),
            "All said.",
        )
        puppets = Puppets({"dev": dev, "ops": lambda _: "ok"})
        members = team(puppet("dev", tools=["task_list", "task_update"]), puppet("ops"))
        return Talk(folder, members, adapter_type=puppets)

    whole = make(tmp_path / "whole")
    add(whole, "Write it", assigned_to="dev")
    add(whole, "Another", assigned_to="ops")
    with whole.open() as session:
        asyncio.run(session.last(session.work(by="user", max_tasks=3)))
    ends = [(event.tool, event.status, event.result) for event in whole.of("tool_finished")]
    assert [status for _, status, _ in ends] == ["ok", "ok", "error", "ok", "error", "ok", "ok"]
    assert '"id": "t1", "title": "Write it", "status": "running"' in ends[0][2]
    assert "it needs t9, which is no task" in ends[2][2]
    assert "task t2 is one of ops" in ends[4][2]
    tasks = board(whole).tasks
    assert (tasks["t1"].result, tasks["t1"].percent) == ("v2", 60)
    assert [(task.title, task.needs, task.depth) for task in list(tasks.values())[2:]] == [
        ("Check", [], 1),
        ("Ship", ["t3"], 1),
    ]
    check_each_cut(whole, make, tmp_path)


def test_the_first_task_of_a_session_may_be_added_by_a_tool(tmp_path: Path) -> None:
    dev = scripted(asks(("task_update", {"action": "add", "title": "Check"})), "Noted.")
    members = team(puppet("dev", tools=["task_update"]))
    talk = Talk(tmp_path, members, adapter_type=Puppets({"dev": dev}))
    talk.send("@dev what is left?")
    assert [(task.title, task.by) for task in board(talk).tasks.values()] == [("Check", "dev")]


def test_a_list_with_a_circle_is_refused_the_rest_is_added(tmp_path: Path) -> None:
    tasks = [
        {"title": "a", "needs": ["c"]},
        {"title": "b", "needs": ["a"]},
        {"title": "c", "needs": ["B"]},
        {"title": "d", "needs": ["a"]},
        {"title": "e"},
        {"title": "f", "needs": ["e", "E "], "assigned_to": "nobody"},
        {"title": "g", "needs": ["e", "E "], "to": "ops"},
        {"title": "E"},
        {"title": "old", "done": True},
        7,
    ]
    answers = by_task(t1=part(tasks=tasks))
    talk = talk_of(tmp_path, Puppets({"dev": answers, "ops": lambda _: "fine"}))
    add(talk, "Split it", assigned_to="dev")
    assert work(talk).end == "quiet"
    added = {task.title: (task.id, task.needs) for task in board(talk).tasks.values()}
    assert added == {"Split it": ("t1", []), "e": ("t2", []), "g": ("t3", ["t2"])}
    (refused,) = [text for text in told(talk) if text.startswith("Refused")]
    circle = "a circle: 'a' needs 'c' needs 'b' needs 'a'"
    assert sorted(refused.splitlines()[1:]) == sorted(
        [
            "- a task is an object with a `title`",
            "- E: another task of the list has this title",
            "- f: nobody is no member of this team",
            f"- a: {circle}",
            f"- b: {circle}",
            f"- c: {circle}",
            "- d: it needs a, which is no task",
        ]
    )


def test_tasks_that_beget_tasks_end_at_the_depth_limit(tmp_path: Path) -> None:
    count = iter(range(100))
    puppets = Puppets({"dev": lambda _: part(tasks=[{"title": f"more {next(count)}"}])})
    talk = talk_of(tmp_path, puppets, task_depth_limit=2)
    add(talk, "Begin")
    assert work(talk).end == "quiet"
    assert [task.depth for task in board(talk).tasks.values()] == [0, 1, 2]
    assert "tasks that come of tasks may be 2 deep" in told(talk)[-2]


def test_agents_that_ask_each_other_for_tasks_end_at_the_depth_limit(tmp_path: Path) -> None:
    def answer(_: AgentInput) -> Any:
        return part(tasks=[{"title": f"more {next(count)}", "assigned_to": "dev"}])

    count = iter(range(100))
    talk = talk_of(tmp_path, Puppets({"dev": lambda _: "@ops more?", "ops": answer}))
    add(talk, "Begin", assigned_to="dev")
    assert work(talk).end == "quiet"
    assert [task.depth for task in board(talk).tasks.values()] == [0, 1, 2, 3]


def test_an_escape_in_a_block_hides_no_secret(tmp_path: Path) -> None:
    block = '```task_list\n{"tasks": [{"title": "Call with s\\u0065cret-7"}]}\n```'
    talk = talk_of(tmp_path, Puppets({"dev": by_task(t1=block)}))
    talk.redact = ("secret-7",)
    add(talk, "Split it")
    assert work(talk).end == "quiet"
    assert [task.title for task in board(talk).tasks.values()] == [
        "Split it",
        "Call with [redacted]",
    ]


def test_a_block_in_a_text_blocks_the_task_and_the_end_names_the_person(tmp_path: Path) -> None:
    block = '```task_list\n{"actions": [{"action": "block", "text": "the key of @maya"}]}\n```'
    talk = talk_of(tmp_path, Puppets({"dev": by_task(t1=f"I cannot.\n{block}")}))
    add(talk, "Deploy")
    add(talk, "Announce", needs=["t1"])
    finished = work(talk)
    assert (finished.end, finished.awaits) == ("awaiting_human", ["maya"])
    assert told(talk)[-2:] == [
        "Task blocked: Deploy - the key of @maya",
        "No task can go on. Left:\n- t1 Deploy: blocked: the key of @maya\n"
        "- t2 Announce: needs t1 (blocked)",
    ]
    change(talk, "unblock", "t1", text="it is in the vault", by="maya")
    change(talk, "complete", "t1")
    assert work(talk).end == "quiet"
    assert statuses(talk) == {"t1": "completed", "t2": "completed"}


def test_an_agent_gives_its_task_to_another(tmp_path: Path) -> None:
    given = part(content="not mine", actions=[{"action": "assign", "to": "ops"}])
    talk = talk_of(tmp_path, Puppets({"dev": by_task(t1=given), "ops": lambda _: "mine"}))
    add(talk, "Whose", assigned_to="dev")
    assert work(talk).end == "quiet"
    assert [event.action for event in talk.of("task")] == [
        "add",
        "start",
        "assign",
        "start",
        "complete",
    ]
    assert board(talk).tasks["t1"].result == "mine"


def test_a_percentage_beyond_all_numbers_is_refused(tmp_path: Path) -> None:
    far = part(actions=[{"action": "progress", "percent": 10**400}])
    talk = talk_of(tmp_path, Puppets({"dev": by_task(t1=far)}))
    add(talk, "Count")
    assert work(talk).end == "quiet"
    assert any("`percent` must be a number from 0 to 100" in text for text in told(talk))


def test_work_that_fails_is_tried_again_so_often_then_fails(tmp_path: Path) -> None:
    def fails(shown: AgentInput) -> str:
        raise AgentOverloaded(shown.agent_id, "try later")

    talk = talk_of(tmp_path, Puppets({"dev": fails}), retries=0, task_retries=2)
    add(talk, "Try")
    assert work(talk).end == "failed"
    task = board(talk).tasks["t1"]
    assert (task.status, task.attempts, "try later" in task.error) == ("failed", 3, True)
    assert told(talk)[-1] == "Task failed: Try - dev: try later"
    with pytest.raises(UsageError, match="no open task"):
        work(talk)
    change(talk, "unblock", "t1")
    assert statuses(talk) == {"t1": "pending"}


def test_a_failure_that_no_other_attempt_mends_is_not_tried_again(tmp_path: Path) -> None:
    def fails(shown: AgentInput) -> str:
        raise AgentRefused(shown.agent_id, "no")

    talk = talk_of(tmp_path, Puppets({"dev": fails}))
    add(talk, "Try")
    assert work(talk).end == "failed"
    assert board(talk).tasks["t1"].attempts == 1


def test_tasks_go_to_the_best_fit_and_are_offered_until_one_takes_them(tmp_path: Path) -> None:
    takes = {"dev": "<pass/>", "ops": AgentOutput(should_respond=False), "doc": "written"}
    puppets = Puppets({name: (lambda _, said=said: said) for name, said in takes.items()})
    members = team(
        puppet("dev", skills=["parser", "sql"]),
        puppet("ops", skills=["deploy"], response={"threshold": 0.4}),
        puppet("doc"),
        puppet("shy", response={"auto_respond": False}),
    )
    talk = Talk(tmp_path, members, adapter_type=puppets)
    add(talk, "Describe it")
    add(talk, "Deploy it")
    add(talk, "A parser of SQL", priority=3)
    assert work(talk).end == "quiet"
    # A fit comes before an offer; then each is offered to those that have not passed it.
    assert starts(talk)[:3] == [("t3", "dev"), ("t2", "ops"), ("t1", "doc")]
    assert {task.id: task.assigned_to for task in board(talk).tasks.values()} == {
        "t1": "doc",
        "t2": "doc",
        "t3": "doc",
    }
    assert all(len(set(agents)) == len(agents) for agents in _agents_of(starts(talk)).values())


def _agents_of(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    by: dict[str, list[str]] = {}
    for task, agent in pairs:
        by.setdefault(task, []).append(agent)
    return by


def test_a_task_that_all_pass_is_blocked(tmp_path: Path) -> None:
    talk = talk_of(tmp_path, Puppets({"dev": lambda _: "<pass/>", "ops": lambda _: "<pass/>"}))
    add(talk, "Nobody's")
    finished = work(talk)
    assert (finished.end, finished.awaits) == ("awaiting_human", ["user"])
    assert board(talk).tasks["t1"].error == "no agent takes it: dev, ops handed it back"


def test_a_question_is_answered_before_the_task_continues(tmp_path: Path) -> None:
    def dev(shown: AgentInput) -> Any:
        if any("Postgres" in message.content for message in shown.messages):
            return "done with Postgres"
        return part(
            content="Which database?",
            actions=[{"action": "help", "to": "ops", "text": "the database"}],
        )

    puppets = Puppets({"dev": dev, "ops": lambda _: "Postgres."})
    talk = talk_of(tmp_path, puppets)
    add(talk, "Store it", assigned_to="dev")
    assert work(talk).end == "quiet"
    assert talk.turns() == [(["dev"], []), (["ops"], []), (["dev"], [])]
    assert board(talk).tasks["t1"].result == "done with Postgres"
    assert puppets.inputs["ops"][0].mentioned_by == ["dev"]


def test_a_question_without_end_blocks_the_task(tmp_path: Path) -> None:
    asking = part(content="?", actions=[{"action": "help", "to": "ops", "text": "what"}])
    talk = talk_of(tmp_path, Puppets({"dev": lambda _: asking, "ops": lambda _: "hm"}))
    add(talk, "Ask on", assigned_to="dev")
    assert work(talk).end == "awaiting_human"
    task = board(talk).tasks["t1"]
    assert (task.status, task.attempts) == ("blocked", 4)


def test_ten_agents_and_one_task(tmp_path: Path) -> None:
    puppets = Puppets({f"a{number}": lambda _: "done" for number in range(10)})
    talk = talk_of(tmp_path, puppets)
    add(talk, "The only one")
    assert work(talk).end == "quiet"
    assert starts(talk) == [("t1", "a0")]
    assert sum(map(len, puppets.inputs.values())) == 1


def test_max_responders_holds_and_max_tasks_ends_the_work(tmp_path: Path) -> None:
    puppets = Puppets({f"a{number}": lambda _: "done" for number in range(4)})
    talk = talk_of(tmp_path, puppets, max_responders=2)
    for number in range(6):
        add(talk, f"Task {number}")
    assert work(talk, max_tasks=5).end == "chain_limit"
    assert [len(must) for must, _ in talk.turns()] == [2, 2, 1]
    assert told(talk)[-1].startswith("As many tasks as allowed were started. Left:\n- t6 ")
    assert work(talk).end == "quiet"


def test_a_task_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    async def fail() -> str:
        urgent = {"title": "Urgent", "priority": 9, "assigned_to": "dev"}
        inbox = Inbox(talk.transcript.parent)
        path = inbox.put(ControlRequest(act="task", action="add", arguments=urgent))
        for _ in range(3_000):
            if inbox.read_answer(path) is not None:
                break
            await asyncio.sleep(0.01)
        raise AgentOverloaded("dev", "try later")

    answers = iter([fail, lambda: "done"])
    talk = talk_of(tmp_path, Puppets({"dev": lambda _: next(answers)()}), retries=0)
    add(talk, "Flaky", assigned_to="dev")
    assert work(talk, max_tasks=1).end == "chain_limit"
    assert statuses(talk) == {"t1": "completed", "t2": "pending"}


def test_no_task_starts_after_the_time(tmp_path: Path) -> None:
    puppets = Puppets({"dev": lambda _: "done"})  # each look at the clock takes a second
    talk = talk_of(tmp_path, puppets)
    for number in range(50):
        add(talk, f"Task {number}")
    finished = work(talk, minutes=0.5)
    assert finished.end == "chain_limit"
    assert 0 < len(starts(talk)) < 50
    assert told(talk)[-1].startswith("The time for the work is over. Left:")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"max_tasks": 0}, "0 is no number of tasks"),
        ({"minutes": 0}, "0 is no number of minutes"),
        ({"minutes": float("nan")}, "nan is no number of minutes"),
        ({"tasks": ["t5"]}, "session talk has no task t5"),
        ({"tasks": ["t2"]}, "session talk has no open task"),
    ],
)
def test_wrong_work_is_refused(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    talk = talk_of(tmp_path)
    add(talk, "One")
    add(talk, "Two")
    change(talk, "cancel", "t2")
    with pytest.raises(UsageError) as caught:
        work(talk, **fields)
    assert problem in caught.value.what


def test_only_the_named_tasks_are_worked_on(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    for title in ("One", "Two", "Three"):
        add(talk, title)
    assert work(talk, tasks=["t2"]).end == "quiet"
    assert statuses(talk) == {"t1": "pending", "t2": "completed", "t3": "pending"}


def test_the_task_of_an_agent_that_left_goes_to_another(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    add(talk, "Orphan", assigned_to="ops")
    later = Talk(tmp_path, team(puppet("dev")), adapter_type=Puppets({"dev": lambda _: "mine"}))
    assert work(later).end == "quiet"
    assert board(later).tasks["t1"].result == "mine"
    (event,) = [event for event in later.of("task") if event.action == "reassign"]
    assert (event.by, event.text) == ("arena", "ops is not in the team any more")


def test_the_task_of_a_paused_agent_waits(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    add(talk, "Slow", assigned_to="ops")
    add(talk, "Quick", assigned_to="dev")
    with talk.open() as session:
        session.carry_out(ControlRequest(act="agent_state", agent="ops", state="paused"))
    assert work(talk).end == "awaiting_human"
    assert statuses(talk) == {"t1": "pending", "t2": "completed"}
    assert told(talk)[-1] == "No task can go on. Left:\n- t1 Slow: ops: paused"


def test_people_change_tasks_while_agents_work(tmp_path: Path) -> None:
    async def slow(_: AgentInput) -> str:
        inbox = Inbox(talk.transcript.parent)
        for fields in (
            {"action": "complete", "target": "t2", "text": "by hand"},
            {"action": "cancel", "target": "t1"},
            {"action": "add", "arguments": {"title": "New", "assigned_to": "dev"}},
            {"action": "block", "target": "t9", "text": "x"},
        ):
            path = inbox.put(ControlRequest(act="task", **fields))
            for _ in range(3_000):
                if (outcome := inbox.read_answer(path)) is not None:
                    answers.append(outcome.text)
                    break
                await asyncio.sleep(0.01)
        return "too late"

    answers: list[str] = []
    answering = iter([slow])

    def answer(shown: AgentInput) -> Any:
        return next(answering, lambda _: "done")(shown)

    puppets = Puppets({"dev": answer})
    talk = talk_of(tmp_path, puppets)
    add(talk, "One")
    add(talk, "Two")
    assert work(talk).end == "quiet"
    assert answers == [
        "task t2 is completed",
        "task t1 is cancelled",
        "task t3 is added: New",
        "session talk has no task t9",
    ]
    assert statuses(talk) == {"t1": "cancelled", "t2": "completed", "t3": "completed"}


def test_a_reply_that_a_person_ends_blocks_its_task(tmp_path: Path) -> None:
    async def slow(_: AgentInput) -> str:
        Inbox(talk.transcript.parent).put(ControlRequest(act="cancel", agent="dev", by="maya"))
        await asyncio.sleep(60)
        return "never"

    talk = talk_of(tmp_path, Puppets({"dev": slow}))
    add(talk, "Long")
    assert work(talk).end == "awaiting_human"
    task = board(talk).tasks["t1"]
    assert (task.status, task.error) == ("blocked", "cancelled by maya")


def test_a_chain_that_was_cancelled_leaves_its_task_to_the_next(tmp_path: Path) -> None:
    async def slow(_: AgentInput) -> str:
        Inbox(talk.transcript.parent).put(ControlRequest(act="cancel"))
        await asyncio.sleep(60)
        return "never"

    talk = talk_of(tmp_path, Puppets({"dev": slow}))
    add(talk, "Long", assigned_to="dev")
    assert work(talk).end == "cancelled"
    assert statuses(talk) == {"t1": "pending"}
    later = talk_of(tmp_path, Puppets({"dev": lambda _: "now"}))
    assert work(later).end == "quiet"
    assert board(later).tasks["t1"].result == "now"


def test_rules_refuse_what_agents_do_to_tasks(tmp_path: Path) -> None:
    said = part(
        tasks=[{"title": "Drop the table"}, {"title": "Read it"}],
        actions=[{"action": "fail", "text": "drop it"}],
    )
    rule = {"id": "safe", "on": "task", "forbid": {"contains": "rop"}}
    talk = talk_of(tmp_path, Puppets({"dev": by_task(t1=said)}), rules=[rule])
    add(talk, "Plan")
    assert work(talk).end == "quiet"
    assert [task.title for task in board(talk).tasks.values()] == ["Plan", "Read it"]
    decisions = [(event.kind, event.allowed, event.rules) for event in talk.of("decision")]
    assert decisions == [
        ("task", False, ["safe"]),
        ("task", True, ["safe"]),
        ("task", False, ["safe"]),
    ]
    (refused,) = [text for text in told(talk) if text.startswith("Refused")]
    assert "- Drop the table: refused by rule safe" in refused


def test_killed_between_decisions_each_is_written_once(tmp_path: Path) -> None:
    def make(folder: Path) -> Talk:
        answer = part(tasks=[{"title": "Drop it"}, {"title": "Read it"}])
        rule = {"id": "safe", "on": "task", "forbid": {"contains": "rop"}}
        return talk_of(folder, Puppets({"dev": by_task(t1=answer)}), rules=[rule])

    whole = make(tmp_path / "whole")
    add(whole, "Plan")
    work(whole)
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    decided = [at for at, line in enumerate(lines) if b'"type":"decision"' in line]
    assert len(decided) == 2
    for at in decided:
        talk = make(tmp_path / str(at))
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(b"".join(lines[: at + 1]))
        talk.resume()
        written = [event for event in canonical(talk) if event["type"] in ("decision", "task")]
        assert written == [
            event for event in canonical(whole) if event["type"] in ("decision", "task")
        ]


def test_a_long_result_is_cut_for_the_tasks_that_need_it(tmp_path: Path) -> None:
    puppets = Puppets({"dev": lambda _: "x" * 5_000, "ops": lambda _: "read"})
    talk = talk_of(tmp_path, puppets)
    add(talk, "Write", assigned_to="dev")
    add(talk, "Read", needs=["t1"], assigned_to="ops")
    work(talk)
    assert len(board(talk).tasks["t1"].result) == 5_000
    assert 1_900 < puppets.inputs["ops"][0].brief.count("x") < 2_100


def test_work_is_told_in_chinese(tmp_path: Path) -> None:
    puppets = Puppets({"dev": lambda _: "好"})
    talk = talk_of(tmp_path, puppets)
    talk.language = "zh"
    add(talk, "写文档")
    add(talk, "发布", needs=["t1"])
    change(talk, "block", "t2", text="等密钥")
    work(talk)
    assert told(talk) == [
        "任务受阻：发布 - 等密钥",
        "开始任务 t1：写文档（@dev）",
        "完成任务 t1：写文档",
        "没有可以继续的任务。未完成：\n- t2 发布: 受阻：等密钥",
    ]
    assert puppets.inputs["dev"][0].brief.startswith("任务 t1：写文档\n\n请完成这项任务")


def test_a_session_without_tasks_imports_none_of_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hello")
    program.agent("chief", '{"done": true}')
    for config in ({}, {"supervisor": "chief", "mode": "supervisor"}):
        program.file(
            "agents/teams/crew.yaml",
            json.dumps({"team": "crew", "members": ["dev"], "config": config}),
        )
        imported = program.list_imported("send", "--team", "crew", "@dev hi")
        names = [name for name in imported if name.startswith("arena_cli")]
        assert not [name for name in names if "task" in name and "task_lists" not in name]


def test_the_input_of_a_task_can_be_rebuilt(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    add(talk, "One", assigned_to="dev", description="All of it.")
    add(talk, "Two", needs=["t1"], assigned_to="ops")
    work(talk)
    (stored,) = store.stored(tmp_path)
    place = SessionConfig(workspace=tmp_path, durability="flush")
    for agent in ("dev", "ops"):
        recalled = preview.recall_call(
            stored, agent, None, config=place, team_of=lambda _: talk.team
        )
        assert recalled.same, agent
        assert recalled.planned.input.brief.startswith("Task t")


def test_a_team_that_takes_nothing_by_itself_says_so(tmp_path: Path) -> None:
    members = team(puppet("dev", response={"auto_respond": False}))
    talk = Talk(tmp_path, members, adapter_type=Puppets({"dev": lambda _: "done"}))
    add(talk, "Free")
    assert work(talk).end == "awaiting_human"
    assert told(talk) == [
        "No task can go on. Left:\n- t1 Free: no agent takes it: assign it to one"
    ]
    change(talk, "assign", "t1", agent="dev")
    assert work(talk).end == "quiet"


@pytest.mark.parametrize("answer", ["approve", "reject"])
@pytest.mark.parametrize("places", [1, 3])
def test_a_task_that_needs_an_approval_ends_after_it(
    tmp_path: Path, answer: str, places: int
) -> None:
    arena = Program(tmp_path)
    request = {"action": "deploy", "detail": "release 4"}
    rule = {"say": "Deployed.", "request": request, "denied": "I did not.", "asked": "I wait."}
    arena.agent("dev", rule)
    arena.agent("ops", "Checked.")
    arena.team(max_responders=places)
    arena.run("task", "add", "s", "release it", "--assign", "dev").check(stdout=None)
    arena.run("task", "add", "s", "check it", "--assign", "dev", "-p", "5").check(stdout=None)
    arena.run("task", "add", "s", "look at it", "--assign", "ops").check(stdout=None)
    waits = arena.run("work", "s")
    assert waits.code == 4
    assert "release 4" in waits.stdout
    rows = json.loads(arena.run("tasks", "s", "--json").stdout)
    assert "completed" not in [row["status"] for row in rows if row["assigned_to"] == "dev"]
    for number in ("1", "2"):
        arena.run(answer, "s", number)
        arena.run("resume", "s")
    rows = json.loads(arena.run("tasks", "s", "--json").stdout)
    said = "Deployed." if answer == "approve" else "I did not."
    assert [(row["status"], row["result"]) for row in rows] == [
        ("completed", said),
        ("completed", said),
        ("completed", "Checked."),
    ]
    asked = [record for record in arena.records() if record["type"] == "approval_requested"]
    assert len(asked) == (2 if answer == "approve" else 1)  # a rejected act is not asked again
