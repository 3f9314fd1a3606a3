"""`arena work`: what it prints, how it exits, and what a person sees and does meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from product import columns
from program import Program, until

BLOCKS = {
    "when": {"call": 1},
    "say": "Which vault?",
    "structured": [
        {
            "type": "task_list",
            "data": {"actions": [{"action": "block", "text": "@maya which vault?"}]},
        }
    ],
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "The keys are rotated."})
    made.agent("ops", {"say": "The customers know."})
    made.team(humans=["maya"], selection="none")
    return made


def add(program: Program, *titles: str, agent: str = "dev") -> None:
    for title in titles:
        program.run("task", "add", "s", title, "--assign", agent).check()


def statuses(program: Program) -> dict[str, str]:
    tasks = json.loads(program.run("tasks", "s", "--json").check().stdout)
    return {task["id"]: task["status"] for task in tasks}


def test_the_work_is_printed_like_a_message(program: Program) -> None:
    add(program, "Rotate the keys")
    program.run("task", "add", "s", "Tell the customers", "--needs", "t1", "-a", "ops").check()
    done = program.run("work", "s", "--from", "maya").check()
    lines = [columns.fit(line.strip(), 40) for line in done.stdout.splitlines() if line.strip()]
    order = ["Starting task t1", "The keys are rotated.", "Starting task t2", "The customers know."]
    found = [next(n for n, line in enumerate(lines) if text in line) for text in order]
    assert found == sorted(found)
    assert "\n\n\n" not in done.stdout
    assert [line[:9] for line in lines if line.startswith("── turn")] == ["── turn 1", "── turn 2"]
    assert done.stdout.endswith("\ntasks: 2 completed\n")
    assert statuses(program) == {"t1": "completed", "t2": "completed"}
    program.run("work", "s").check(
        stdout="session s · team crew\n\nnothing to do: no task is left\n"
    )
    events = [json.loads(line) for line in program.run("show", "s", "--json").stdout.splitlines()]
    assert events == program.records()
    assert "Completed task t2: Tell the customers" in program.run("show", "s").check().stdout


def test_json_and_quiet_print_events_or_nothing(program: Program) -> None:
    add(program, "Rotate the keys", "Tell the customers")
    before = len(program.records())
    done = program.run("work", "s", "--json", "--max-tasks", "1").check()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events == program.records()[before:]
    (begun,) = [event for event in events if event["type"] == "work_started"]
    assert (begun["by"], begun["max_tasks"]) == ("user", 1)
    program.run("work", "s", "-q").check(stdout="")
    assert set(statuses(program).values()) == {"completed"}
    assert program.run("work", "s", "--json", "-q").code == 2


def test_blocked_tasks_exit_with_4_and_say_on_whom(program: Program) -> None:
    program.agent("dev", BLOCKS, "The keys are rotated.")
    add(program, "Rotate the keys")
    program.run("task", "add", "s", "Tell the customers", "--needs", "t1", "-a", "ops").check()
    waits = (
        "arena: session s: no task can continue, 2 left\n"
        "  t1 blocked: Rotate the keys: waits: @maya which vault?\n"
        "  t2 pending: Tell the customers: waits for t1 (blocked)\n"
        "  `arena task unblock s TASK` lets an agent take it again.\n"
    )
    program.run("work", "s", "-q").check(code=4, stderr=waits)
    size = len(program.raw())
    program.run("work", "s").check(code=4, stderr=waits)
    assert len(program.raw()) == size  # nobody is called in vain
    program.run("task", "unblock", "s", "t1", "--because", "vault 3").check()
    program.run("work", "s", "-q").check()
    assert statuses(program) == {"t1": "completed", "t2": "completed"}


def test_limits_leave_the_rest(program: Program) -> None:
    add(program, "One", "Two", "Three")
    done = program.run("work", "s", "--max-tasks", "1").check()
    assert done.stdout.endswith("\nthe limit is reached, 2 tasks are left\n")
    assert list(statuses(program).values()) == ["completed", "pending", "pending"]
    program.run("work", "s", "-q", "--tasks", "t3").check()
    assert list(statuses(program).values()) == ["completed", "pending", "completed"]
    program.run("work", "s", "--minutes", "5").check()
    done = program.run("work", "s", "--tasks", "t9")
    assert (done.code, "session s has no task t9" in done.stderr) == (2, True)


def test_failed_tasks_exit_as_a_failed_chain(program: Program) -> None:
    program.agent("dev", {"fail": "refused"})
    add(program, "Rotate the keys")
    done = program.run("work", "s", "-q")
    assert (done.code, statuses(program)) == (3, {"t1": "failed"}), done.stderr


def test_an_open_chain_comes_first(program: Program) -> None:
    ask = {"action": "deploy", "detail": "make deploy"}
    program.agent("dev", {"when": {"call": 1}, "say": "I wait.", "request": ask}, "Done.")
    assert program.run("send", "-s", "s", "-q", "@dev deploy").code == 4
    add(program, "Rotate the keys")
    done = program.run("work", "s")
    assert done.code == 2
    assert "session s has an open chain (1): no other work can begin" in done.stderr
    assert "`arena resume s` continues it, `arena cancel s` ends it." in done.stderr


def test_a_session_without_tasks_or_that_is_not_there(program: Program) -> None:
    program.run("send", "-s", "s", "-q", "@dev hi").check()
    assert "nothing to do: no task is left" in program.run("work", "s").check().stdout
    assert program.run("work", "none").code == 2


def test_people_change_tasks_while_agents_work(program: Program, tmp_path: Path) -> None:
    """Another process adds a task and blocks one; the one that works carries it out."""
    program.program("dev", "wait", str(tmp_path / "go"), "say", "done")
    program.real = True
    add(program, "First", "Second")
    running = program.start("work", "s")
    until(lambda: b'"reply_started"' in program.raw())
    (session,) = json.loads(program.run("status", "s", "--json").stdout)["sessions"]
    assert session["tasks"]["running"] == [{"task": "t1", "agent": "dev", "title": "First"}]
    assert "    dev works on t1: First\n" in program.run("status", "s").stdout
    program.run("task", "block", "s", "t2", "--because", "wait for me").check(
        stdout="task t2 is blocked\n"
    )
    program.run("task", "add", "s", "Third", "-a", "ops").check(stdout="task t3 is added: Third\n")
    program.file("go", "")
    done = program.finish(running)
    assert done.code == 4, done.stderr
    assert statuses(program) == {"t1": "completed", "t2": "blocked", "t3": "completed"}


def test_work_that_is_killed_goes_on_and_does_nothing_twice(
    program: Program, tmp_path: Path
) -> None:
    program.program("dev", "wait", str(tmp_path / "go"), "say", "done")
    program.real = True
    add(program, "First", "Second")
    running = program.start("work", "s")
    until(lambda: b'"reply_started"' in program.raw())
    running.kill()
    program.finish(running)
    program.file("go", "")
    done = program.run("work", "s")
    assert (done.code, "`arena resume s` continues it" in done.stderr) == (2, True)
    program.run("resume", "s", "-q").check()
    ends = [e["task"] for e in program.records() if e.get("action") == "complete"]
    assert ends == ["t1", "t2"]
    assert statuses(program) == {"t1": "completed", "t2": "completed"}


def test_the_page_has_a_table_of_tasks(program: Program) -> None:
    add(program, "Rotate the keys")
    program.run("work", "s", "-q").check()
    page = program.run("show", "s", "--html").check().stdout
    assert "<h2>Tasks</h2>" in page
    assert '<td>t1</td><td><b class="badge is-completed">completed</b></td>' in page


@pytest.mark.parametrize(
    "action",
    [
        {"action": "help", "to": "maya", "text": "which vault?"},
        {"action": "help", "to": "@maya", "text": "maya: which vault?"},
        {"action": "help", "text": "which vault?"},
    ],
)
def test_a_question_to_a_person_blocks_the_task_on_that_person(
    program: Program, action: dict[str, str]
) -> None:
    part = {"type": "task_list", "data": {"actions": [action]}}
    program.agent("dev", {"say": "I need to know, @maya.", "structured": [part]})
    add(program, "Rotate the keys")
    done = program.run("work", "s", "--from", "maya")
    assert done.code == 4
    assert statuses(program) == {"t1": "blocked"}
    assert "waits: maya: which vault?" in program.run("tasks", "s").stdout
    again = program.run("work", "s")
    assert again.code == 4
    assert "maya: which vault?" in again.stderr


def test_a_blocked_task_says_how_to_answer(program: Program) -> None:
    """A message would not unblock it."""
    program.agent("dev", BLOCKS)
    add(program, "Rotate the keys")
    program.run("task", "add", "s", "Later", "--needs", "t1").check()
    done = program.run("work", "s")
    assert done.code == 4
    assert '\n  to answer: arena task unblock s t1 --because "..."\n' in done.stdout
    assert "arena send" not in done.stdout
