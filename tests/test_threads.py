"""Threads of tasks: who is shown a message in one, who answers, and what others never learn."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from product import outgoing_outgoing as outgoing
from program import Program
from support import Puppets, Talk, puppet, team

SECRET = "The vault is 4711"
FINDS = {"tool": "search_history", "arguments": {"query": "vault"}}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", "I look into it.", "It is clean.", "So it is.", skills=["vault"])
    made.agent("rev", "Reviewed.", "Reviewed again.", skills=["vault"])
    made.agent("ops", "Nothing new.", skills=["vault"])
    made.team(humans=["maya"])
    made.run("task", "add", "s", "Rotate the keys", "--assign", "dev").check()
    return made


def thread(program: Program, task: str = "t1") -> list[dict[str, Any]]:
    done = program.run("task", "show", "s", task, "--json").check()
    messages: list[dict[str, Any]] = json.loads(done.stdout)["thread"]
    return messages


def told(program: Program) -> list[tuple[str, list[str]]]:
    """(author, the agents that are shown it) of each message in the thread of t1."""
    return [(message["author_id"], message["shown_to"]) for message in thread(program)]


def called(program: Program) -> list[str]:
    """The agents that were called, in order."""
    return [one["agent"] for one in program.records() if one["type"] == "reply_started"]


def test_the_agent_that_works_on_a_task_answers_in_its_thread_alone(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", f"{SECRET}, or is it?").check()
    assert called(program) == ["dev"]
    assert told(program) == [("user", ["dev"]), ("dev", ["dev"])]
    assert "in the thread of task t1, shown to @dev\n> The vault" in (
        program.run("show", "s", "--context", "--agent", "dev").check().stdout
    )
    assert json.loads(program.run("unread", "s", "--json").check().stdout)["ops"] == []


def test_who_wrote_in_a_thread_stays_in_it_when_another_agent_takes_over(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", "which vault?").check()
    program.run("task", "reassign", "s", "t1", "rev").check()
    program.run("send", "-s", "s", "--thread", "t1", "and now?").check()
    program.run("send", "-s", "s", "--thread", "t1", "@dev and before?").check()
    assert called(program) == ["dev", "rev", "dev"]
    assert told(program)[2:] == [
        *(("user", ["rev", "dev"]), ("rev", ["rev", "dev"])),
        *(("user", ["rev", "dev"]), ("dev", ["rev", "dev"])),
    ]


def test_a_writer_of_a_part_that_was_taken_back_is_not_in_the_thread(program: Program) -> None:
    before = program.records()[-1]["seq"]
    program.run("send", "-s", "s", "--thread", "t1", "which vault?").check()
    program.run("rewind", "s", "--at", str(before)).check(stdout=None)
    program.run("task", "reassign", "s", "t1", "rev").check()
    program.run("send", "-s", "s", "--thread", "t1", "which vault?").check()
    assert told(program) == [("user", ["rev"]), ("rev", ["rev"])]


def test_the_agent_that_asked_for_a_task_is_in_its_thread(program: Program) -> None:
    block = '```task_list\n{"tasks": [{"title": "Test it", "assigned_to": "rev"}]}\n```'
    program.agent("dev", f"Please test.\n{block}", "Thanks.")
    program.run("send", "-s", "s", "@dev begin").check()
    program.run("send", "-s", "s", "--thread", "t2", "how far?").check()
    assert thread(program, "t2")[-1]["author_id"] == "rev"
    assert thread(program, "t2")[-1]["shown_to"] == ["rev", "dev"]


def test_an_answer_calls_nobody_outside_the_thread(program: Program) -> None:
    program.agent("dev", "@ops and @rev, see?", "Fine.")
    program.run("send", "-s", "s", "--thread", "t1", "which vault?").check()
    assert called(program) == ["dev"]
    done = next(one for one in program.records() if one["type"] == "reply_finished")
    reason = "it is not in the thread of the task"
    assert done["refused"] == {"ops": reason, "rev": reason}
    assert program.records()[-1]["end"] == "quiet"


def test_all_in_a_thread_are_those_in_it(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", "@all which vault?").check()
    assert called(program) == ["dev"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--thread", "t9", "x"), "session s has no task t9"),
        (("--thread", "", "x"), "--thread: no task is named"),
        (("--thread", "t2", "x"), "no agent of the team works on task t2"),
        (("--thread", "t1", "@ops x"), "ops is not in the thread of task t1"),
        (("--thread", "t1", "--to", "ops", "x"), "ops is not in the thread of task t1"),
        (("--thread", "t1", "--plan", "x"), "a message in the thread of a task is not planned"),
    ],
)
def test_what_cannot_be_in_a_thread_is_an_error(
    program: Program, args: tuple[str, ...], problem: str
) -> None:
    program.team(humans=["maya"], planner="rev")
    program.run("task", "add", "s", "Nobody's").check()
    before = program.raw()
    for more in ((), ("--dry-run",)):
        done = program.run("send", "-s", "s", *args, *more)
        assert (done.code, program.raw()) == (2, before)
        assert problem in done.stderr


def test_a_new_session_has_no_thread(program: Program) -> None:
    done = program.run("send", "-s", "new", "--thread", "t1", "x")
    assert (done.code, (program.folder / "sessions" / "new").exists()) == (2, False)
    assert "a new session has no task" in done.stderr


@pytest.mark.parametrize(
    "config", [{"mode": "planner", "planner": "rev"}, {"mode": "supervisor", "supervisor": "rev"}]
)
def test_neither_planner_nor_supervisor_is_asked(program: Program, config: dict[str, Any]) -> None:
    program.team(humans=["maya"], **config)
    preview = program.run("send", "-s", "s", "--thread", "t1", "-n", "--json", "which?").check()
    assert [call["agent"] for call in json.loads(preview.stdout)["must"]] == ["dev"]
    program.run("send", "-s", "s", "--thread", "t1", "which?").check()
    assert called(program) == ["dev"]
    assert not {"planned", "supervised"} & {one["type"] for one in program.records()}


def test_a_key_is_used_once_in_a_thread_and_is_another_message_outside(program: Program) -> None:
    keyed = ("send", "-s", "s", "--key", "k", "which vault?")
    program.run(*keyed, "--thread", "t1").check()
    program.run("task", "reassign", "s", "t1", "rev").check()
    program.run(*keyed, "--thread", "t1").check()
    assert called(program) == ["dev"]
    assert "thread t1" in program.run(*keyed).stderr


def test_reports_name_the_thread(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", "which vault?").check()
    timeline = program.run("show", "s").check().stdout
    heads = [row for row in timeline.splitlines() if row.endswith(" · thread t1")]
    assert [row.split()[1] for row in heads] == ["user", "dev"]
    assert program.run("show", "s", "--html").check().stdout.count("thread t1") == 2
    audit = program.run("export", "s", "--audit", "--format", "json").check().stdout
    assert audit.count('"thread": "t1"') == 2
    shown = program.run("task", "show", "s", "t1").check().stdout
    assert shown.endswith("  dev\n  | I look into it.\n")
    program.run("send", "-s", "s", "@ops anything?").check()
    assert "Nothing new." not in program.run("task", "show", "s", "t1").check().stdout


def test_a_reaction_in_a_thread_stays_there(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", "which vault?").check()
    program.run("react", "s", thread(program)[-1]["id"], "👍").check()
    assert told(program)[-1] == ("user", ["dev"])


def test_a_correction_in_a_thread_stays_there(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", SECRET).check()
    program.run("edit", "s", thread(program)[0]["id"], "The vault is 12").check(stdout=None)
    assert told(program)[-1] == ("system", ["dev"])
    program.run("send", "-s", "s", "@ops anything?").check()
    assert "vault" not in program.run("show", "s", "--context", "--agent", "ops").check().stdout


def test_a_message_in_a_thread_is_answered_there_alone(program: Program) -> None:
    program.run("send", "-s", "s", "--thread", "t1", SECRET).check()
    answer = ("send", "-s", "s", "--reply-to", thread(program)[-1]["id"], "sure?")
    assert "is in the thread of task t1" in program.run(*answer).stderr
    program.run(*answer, "--thread", "t1").check()
    assert told(program)[2:] == [("user", ["dev"]), ("dev", ["dev"])]


@pytest.mark.parametrize(("agent", "found"), [("ops", False), ("dev", True)])
def test_only_agents_in_a_thread_find_it_in_the_history(
    program: Program, agent: str, found: bool
) -> None:
    program.agent(
        "dev", f"{SECRET}.", {"calls": [FINDS], "say": "Found."}, tools=["search_history"]
    )
    program.agent("ops", {"calls": [FINDS], "say": "Found."}, tools=["search_history"])
    program.run("send", "-s", "s", "--thread", "t1", f"{SECRET}, or is it?").check()
    program.run("send", "-s", "s", f"@{agent} look").check()
    (done,) = [one for one in program.records() if one["type"] == "tool_finished"]
    assert (done["status"], "4711" in done["result"]) == ("ok", found)


def talk_of(folder: Path) -> tuple[Talk, Puppets]:
    note = f"```note\nkind: decision\ntitle: {SECRET}\n\n{SECRET}.\n```"
    puppets = Puppets(
        {
            "dev": lambda _: f"We decided: {SECRET}.\n{note}\n@ops look",
            "ops": lambda _: "Nothing new.",
        }
    )
    return Talk(folder, team(puppet("dev"), puppet("ops")), adapter_type=puppets), puppets


@pytest.mark.parametrize("messages", [1, 3])
def test_an_agent_outside_gets_the_same_input_as_without_the_thread(
    tmp_path: Path, messages: int
) -> None:
    hashes = []
    for name in ("with", "without"):
        talk, puppets = talk_of(tmp_path / name)
        with talk.open() as session:
            session.change_task("add", agent="dev", facts={"title": "Rotate the keys"})
        for _ in range(messages if name == "with" else 0):
            message = outgoing(talk.team, f"We must use {SECRET}.")._replace(thread="t1")
            with talk.open() as session:
                asyncio.run(session.last(session.send(message)))
        talk.send("@ops anything new?")
        (shown,) = puppets.inputs["ops"]
        assert SECRET not in shown.model_dump_json()
        hashes.append(shown.input_hash)
        assert not talk.of("note")
    assert hashes[0] == hashes[1]


def test_a_person_that_steers_a_thread_writes_in_it(tmp_path: Path) -> None:
    stage = Program(tmp_path)
    stage.agent("dev", "First.", "Second.")
    stage.agent("ops", "Nothing new.")
    stage.team(humans=["maya"], selection="none")
    stage.file(
        "scenarios/steered.yaml",
        """\
scenario: steered
steps:
  - task: {add: {title: Rotate the keys, assign: dev}}
  - send: which vault?
    thread: t1
    steer: and which key?
    after: {agent: dev}
    expect: {replied: [dev, dev]}
""",
    )
    done = stage.run("run", "steered", "--keep", "all")
    assert done.code == 0, done.stdout
    (session,) = [path.name for path in (tmp_path / "sessions").iterdir()]
    said = [
        one["message"]
        for one in stage.records(session)
        if one["type"] in ("message", "reply_finished")
    ]
    assert [(one["content"], one["shown_to"]) for one in said] == [
        ("which vault?", ["dev"]),
        ("First.", ["dev"]),
        ("and which key?", ["dev"]),
        ("Second.", ["dev"]),
    ]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("{system: x, thread: t1}", "`thread` goes with `send` only, not with `system`"),
        ("{send: x, thread: one}", "thread"),
        ("{send: x, thread: t1, plan: true}", "is not planned"),
    ],
)
def test_a_step_has_a_thread_only_with_a_message(program: Program, step: str, problem: str) -> None:
    program.file("scenarios/odd.yaml", f"scenario: odd\nsteps:\n  - {step}\n")
    done = program.run("run", "odd")
    assert done.code == 2
    assert problem in done.stderr
