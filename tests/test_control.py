"""Stepping in: pause, cancel, steer, and the states of single agents, from another process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program import Program, until

GATED = """\
import pathlib, sys, time
name = sys.argv[1]
said = sys.stdin.read()
pathlib.Path(f"{name}.started").write_text("")
while not pathlib.Path(f"{name}.go").exists():
    time.sleep(0.02)
print(sys.argv[2])
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`slow` answers when it may, and calls `next`; `other` is never called by name."""
    made = Program(tmp_path)
    made.file("gated.py", GATED)
    command = [sys.executable, "gated.py", "slow", "done @next"]
    made.agent("slow", adapter={"type": "cli", "command": command})
    made.agent("next", {"say": "I am next"}, {"say": "again"})
    made.agent("other", {"say": "here"})
    made.team(selection="none")
    return made


def start(program: Program, message: str = "@slow go") -> subprocess.Popen[bytes]:
    """A chain whose first reply runs."""
    running = program.start("send", "--session", "s", message)
    until((program.folder / "slow.started").exists)
    return running


def let_go(program: Program) -> None:
    program.file("slow.go", "")


def kinds(program: Program) -> list[str]:
    return [record["type"] for record in program.records()]


def last(program: Program, kind: str) -> dict[str, Any]:
    return next(one for one in reversed(program.records()) if one["type"] == kind)


def test_a_running_chain_pauses_after_its_running_replies_and_resumes(program: Program) -> None:
    running = start(program)
    done = program.run("pause", "s").check()
    assert done.stdout == "the chain pauses when the running replies have ended\n"
    let_go(program)
    ended = program.finish(running)
    assert ended.code == 4
    assert "══ paused: by user" in ended.stdout
    assert program.finished() == [("slow", "success")]

    again = program.run("pause", "s")
    assert again.code == 2
    assert "paused already" in again.stderr

    program.run("resume", "s").check()
    assert program.finished() == [("slow", "success"), ("next", "success")]
    assert last(program, "chain_finished")["end"] == "quiet"
    assert not (program.folder / "sessions" / "s" / "control").exists()


def test_a_cancelled_chain_ends_its_replies_for_good(program: Program) -> None:
    running = start(program, "@slow @other go")
    program.run("cancel", "s").check(stdout="chain 1 is cancelled\n")
    assert program.finish(running).code == 130
    replies = {r["agent"]: r for r in program.records() if r["type"] == "reply_finished"}
    assert replies["slow"]["status"] == "cancelled"
    assert replies["slow"]["cancelled_by"] == "user"
    assert replies["other"]["status"] == "success"
    assert last(program, "chain_finished")["end"] == "cancelled"
    assert "nothing to resume" in program.run("resume", "s").stderr


def test_a_chain_that_no_process_runs_can_be_cancelled(program: Program) -> None:
    running = start(program)
    program.run("pause", "s")
    let_go(program)
    program.finish(running)
    program.run("cancel", "s").check(stdout="chain 1 is cancelled\n")
    assert last(program, "chain_finished")["end"] == "cancelled"


def test_one_reply_is_cancelled_and_the_others_continue(program: Program) -> None:
    running = start(program, "@slow @other go")
    program.run("cancel", "s", "--agent", "slow").check()
    assert program.finish(running).code == 0
    assert program.finished() == [("other", "success"), ("slow", "cancelled")]
    assert last(program, "chain_finished")["end"] == "quiet"


def test_a_message_joins_the_running_chain_at_its_next_turn(program: Program) -> None:
    running = start(program)
    program.run("steer", "s", "@other 请看这里").check(stdout="m5 joins chain 1 at its next turn\n")
    let_go(program)
    assert program.finish(running).code == 0
    second = [one for one in program.records() if one["type"] == "turn_started"][1]
    assert second["must"] == ["other", "next"]
    assert "m5" in second["trigger"]
    assert second["mentioned_by"] == {"next": ["slow"], "other": ["user"]}
    assert last(program, "chain_finished")["end"] == "quiet"


def test_steering_now_ends_the_running_replies_first(program: Program) -> None:
    running = start(program)
    program.run("steer", "s", "--now", "@other instead").check()
    assert program.finish(running).code == 0
    assert program.finished() == [("slow", "cancelled"), ("other", "success")]


def test_a_steering_message_that_names_no_agent_goes_to_those_that_spoke_last(
    program: Program,
) -> None:
    running = program.start("send", "--session", "s", "@slow @other go")
    until((program.folder / "slow.started").exists)
    program.run("steer", "s", "shorter, please").check()
    let_go(program)
    program.finish(running)
    second = [one for one in program.records() if one["type"] == "turn_started"][1]
    assert second["must"] == ["slow", "other", "next"]


def test_a_paused_agent_is_passed_over_until_it_may_continue(program: Program) -> None:
    program.run("send", "--session", "s", "@other hello").check()
    program.run("pause", "s", "--agent", "other").check(stdout="other is paused from now on\n")
    done = program.run("send", "--session", "s", "@other hello").check()
    assert last(program, "turn_started")["passed_over"] == {"other": "paused"}
    assert "passed over: other (paused)\n" in done.stdout
    program.run("resume", "s", "--agent", "other").check()
    program.run("send", "--session", "s", "@other hello").check()
    assert program.finished()[-1] == ("other", "success")


def test_a_terminated_agent_stays_out_of_its_session(program: Program) -> None:
    running = start(program, "@slow @other go")
    program.run("terminate", "s", "--agent", "slow").check()
    program.finish(running)
    assert program.finished() == [("other", "success"), ("slow", "cancelled")]
    done = program.run("resume", "s", "--agent", "slow")
    assert done.code == 2
    assert "for good" in done.stderr
    program.run("send", "--session", "s", "@slow again").check()
    assert last(program, "turn_started")["passed_over"] == {"slow": "terminated"}
    program.run("send", "--session", "fresh", "@other hello").check()


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("pause", "s"), "session s has no open chain to pause"),
        (("cancel", "s"), "session s has no open chain to cancel"),
        (("steer", "s", "hello"), "session s has no open chain to steer"),
        (("pause", "none"), "none"),
        (("cancel", "s", "--agent", "stranger"), "stranger"),
        (("pause", "s", "--agent", "stranger"), "no member of this team has the id 'stranger'"),
        (("pause", "s", "--by", "stranger"), "no human called 'stranger'"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    program: Program, args: tuple[str, ...], problem: str
) -> None:
    program.run("send", "--session", "s", "@other hello").check()
    before = program.raw()
    done = program.run(*args)
    assert done.code == 2
    assert problem in done.stderr
    assert program.raw() == before


def test_the_status_has_every_agent_and_what_it_does(program: Program) -> None:
    running = start(program)
    (found,) = json.loads(program.run("status", "--json").check().stdout)["sessions"]
    states = {agent["agent"]: agent["state"] for agent in found["agents"]}
    assert (found["session"], found["state"]) == ("s", "running")
    assert states == {"next": "idle", "other": "idle", "slow": "running"}
    program.run("pause", "s").check()
    program.run("pause", "s", "--agent", "other").check()
    let_go(program)
    program.finish(running)
    text = program.run("status").check().stdout
    assert "session s · chain 1 · paused: by user" in text
    assert re.search(r"slow +done +since", text)
    assert re.search(r"other +paused", text)
    assert "paused" in program.run("sessions").check().stdout
    program.run("resume", "s").check()
    assert "chain 1 · idle" in program.run("status").check().stdout


def test_a_killed_chain_is_shown_as_cut_short(program: Program) -> None:
    running = start(program)
    running.kill()
    program.finish(running)
    assert "session s · chain 1 · cut short" in program.run("status", "s").check().stdout


def test_a_file_that_is_no_request_stops_nothing(program: Program) -> None:
    running = start(program)
    bad = program.file("sessions/s/control/00000000000000000001-x.json", "{not json")
    until(lambda: not bad.exists())
    let_go(program)
    assert program.finish(running).code == 0
