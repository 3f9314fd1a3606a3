"""Scenarios in which people decide, choose, steer and pause: played, recorded, promoted."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from forked import needs_fork
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from past_sessions import loaded
from product import (
    ApprovalQuestion,
    ControlRequest,
    Event,
    FileFaults,
    Inbox,
    PersonAnswer,
    ScenarioResult,
    Session,
)
from product import outgoing_outgoing as outgoing
from program import Program
from stage import Stage, broken, printed

DEPLOY = {"action": "deploy", "detail": "make deploy 2.4"}
WINDOW = {"action": "window", "detail": "When?", "options": ["tonight", "monday"]}
OPS = [
    {"when": {"contains": "was rejected"}, "say": "Then not."},
    {"when": {"contains": "chose"}, "say": "So be it."},
    {"when": {"contains": "window"}, "say": "When?", "request": WINDOW},
    {"say": "Live. @dev please watch.", "asked": "I wait.", "request": DEPLOY},
]
DEV = [
    {"when": {"contains": "canary"}, "say": "Ten percent first."},
    {"when": {"contains": "hand over"}, "say": "@ops your turn."},
    {"say": "I watch."},
]

APPROVED = """\
scenario: x
steps:
  - send: "@ops deploy"
    from: maya
    expect:
      replied: [ops]
      paused: approval
      approvals: [{agent: ops, action: deploy, decision: open}]
  - approve: {agent: ops, action: deploy, because: tested}
    from: maya
    expect:
      replied: [ops, ops, dev]
      turns: 3
      end: quiet
      approvals: [{agent: ops, action: deploy, decision: approved, by: maya}]
      system: [{contains: [approved by maya, tested]}]
      timeline: [{turn: 1, agent: ops, equals: I wait.}, {turn: 2, agent: ops, mentions: [dev]}]
expect:
  replies_count: 3
  approvals: [{agent: ops, decision: approved}]
"""

ALL_ACTS = """\
scenario: x
steps:
  - send: "@ops deploy"
    expect: {paused: approval}
  - reject: {agent: ops, action: deploy}
    from: maya
    expect: {replied: [ops, ops], end: quiet}
  - send: "@ops which window?"
    expect: {paused: choice}
  - choose: {agent: ops, option: monday}
    expect: {approvals: [{agent: ops, action: window, option: monday}], end: quiet}
  - send: "@dev go on"
    from: maya
    steer: "@dev canary please"
    pause: true
    after: {agent: dev}
    expect: {replied: [dev], paused: asked}
  - resume: true
    expect: {replied: [dev, dev], replies: {dev: {last: [{contains: Ten}]}}, end: quiet}
expect:
  approvals: [{agent: ops, decision: rejected}, {agent: ops, decision: approved}]
  turns: 6
"""


def cast(stage: Stage, **config: Any) -> None:
    stage.agent("ops", *OPS, response={"auto_respond": False})
    stage.agent("dev", *DEV, response={"auto_respond": False})
    config = {"selection": "none", "default_responders": ["dev"], **config}
    stage.team(humans=["maya", "lin"], **config)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    cast(stage)
    return stage


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    cast(program)
    return program


def play(stage: Stage, steps: str, more: str = "") -> ScenarioResult:
    return stage.play(f"scenario: x\nsteps:\n{steps}{more}")


# Steps and expectations.


def test_an_approval_continues_the_chain_and_its_step_covers_all_of_it(stage: Stage) -> None:
    result = stage.play(APPROVED)
    assert result.status == "passed", printed(result)
    assert [(step.kind, step.end) for step in result.steps] == [
        ("send", "approval"),
        ("approve", "quiet"),
    ]


def test_rejecting_choosing_steering_and_pausing(stage: Stage) -> None:
    result = stage.play(ALL_ACTS)
    assert result.status == "passed", printed(result)
    assert result.usage is not None


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        ("[]", ["approvals"]),
        ("[{agent: ops, decision: rejected}]", ["approvals[0]"]),
        ("[{agent: ops, by: lin}]", ["approvals[0]"]),
        ("[{agent: ops, action: window}]", ["approvals[0]"]),
        ("[{agent: dev}]", ["approvals[0]"]),
        ("[{agent: ops}, {agent: ops}]", ["approvals", "approvals[1]"]),
    ],
)
def test_what_was_asked_and_decided_is_compared_exactly(
    stage: Stage, rows: str, fields: list[str]
) -> None:
    result = stage.play(APPROVED.replace("[{agent: ops, decision: approved}]", rows))
    checks = broken(result)
    assert [check.field for check in checks] == fields
    assert {check.line for check in checks} == {20}
    actual = "agent ops · action deploy · decision approved · by maya"
    assert {check.actual for check in checks} == {actual}
    assert result.status == "failed"


def test_no_request_is_expected_as_an_empty_list(stage: Stage) -> None:
    step = '  - send: "@dev go"\n    expect: {approvals: []}\n'
    assert play(stage, step).status == "passed"
    result = play(stage, step.replace("[]", "[{agent: ops}]"))
    assert {check.actual for check in broken(result)} == {"no request"}


def test_a_decision_by_the_settings_is_a_row_too(stage: Stage) -> None:
    part = {"type": "approval_request", "data": {"action": "deploy", "detail": "2.4"}}
    stage.agent("ops", OPS[0], {"say": "May I?", "structured": [part]})
    stage.team(humans=["maya"], approvals={"deploy": "deny"}, selection="none")
    rows = "[{agent: ops, action: deploy, decision: rejected, by: policy}]"
    result = play(stage, f'  - send: "@ops go"\n    expect: {{approvals: {rows}}}\n')
    assert broken(result) == []


FAILING = [
    (
        "approve: {agent: dev, action: deploy}",
        "an open request of dev for deploy",
        "open: request 1 of ops for deploy",
    ),
    (
        "approve: {agent: ops, action: window}",
        "an open request of ops for window",
        "open: request 1 of ops for deploy",
    ),
    (
        "choose: {agent: ops, option: monday}",
        "an open request of ops with the option monday",
        "open: request 1 of ops for deploy",
    ),
    (
        "resume: true",
        "a chain that waits, with every request decided",
        "open: request 1 of ops for deploy",
    ),
]


@pytest.mark.parametrize(("step", "expected", "actual"), FAILING)
def test_a_decision_that_nothing_asks_for_fails_its_step(
    stage: Stage, step: str, expected: str, actual: str
) -> None:
    steps = f'  - send: "@ops deploy"\n    expect: {{paused: approval}}\n  - {step}\n'
    result = play(stage, f"{steps}    expect: {{end: quiet}}\n  - send: never\n")
    (check,) = broken(result)
    assert (check.expected, check.actual) == (expected, actual)
    assert (check.file, check.line) == ("scenarios/s0.yaml", 5)
    assert [step.status for step in result.steps] == ["passed", "failed", "not_run"]
    assert "timeline of step 2" not in printed(result)


@pytest.mark.parametrize("step", ["approve: {agent: ops}", "resume: true"])
def test_a_chain_that_has_ended_cannot_be_continued(stage: Stage, step: str) -> None:
    result = play(stage, f'  - send: "@dev go"\n  - {step}\n')
    (check,) = broken(result)
    assert check.actual == "no chain is open: the last one has ended"


def test_a_choice_is_not_approved_but_can_be_rejected(stage: Stage) -> None:
    steps = '  - send: "@ops which window?"\n    expect: {end: choice}\n'
    result = play(stage, f"{steps}  - approve: {{agent: ops}}\n")
    (check,) = broken(result)
    assert check.actual == "open: request 1 of ops for window (choose one of tonight, monday)"
    result = play(stage, f"{steps}  - reject: {{agent: ops}}\n    expect: {{end: quiet}}\n")
    assert result.status == "passed", printed(result)


def test_requests_are_decided_one_step_at_a_time(stage: Stage) -> None:
    request = {**DEPLOY, "detail": "other"}
    stage.agent("sys", {"say": "done", "request": request}, response={"auto_respond": False})
    stage.team(humans=["maya"], selection="none")
    steps = """\
  - send: "@ops @sys deploy"
    expect: {paused: approval, approvals: [{agent: ops}, {agent: sys}]}
  - approve: {agent: sys}
    expect:
      paused: approval
      turns: 1
      approvals: [{agent: ops, decision: open}, {agent: sys, decision: approved}]
  - approve: {agent: ops}
    expect:
      end: quiet
      approvals: [{agent: ops, decision: approved}, {agent: sys, decision: approved}]
"""
    result = play(stage, steps)
    assert result.status == "passed", printed(result)


def test_a_chain_that_waits_unnamed_is_an_error_that_says_so(stage: Stage) -> None:
    result = play(stage, '  - send: "@ops deploy"\n    expect: {replied: [ops]}\n')
    (step,) = result.steps
    assert result.status == "error"
    assert "`paused: approval`" in (step.error or "")
    result = play(stage, '  - send: "@dev go"\n    pause: true\n    expect: {replied: []}\n')
    assert result.status == "passed", printed(result)  # the step itself pauses it


def test_a_later_pause_of_the_same_chain_is_named_by_its_own_step(stage: Stage) -> None:
    stage.agent("dev", {"say": "@ops which window?"}, response={"auto_respond": False})
    steps = '  - send: "@ops deploy"\n    expect: {paused: approval}\n  - approve: {agent: ops}\n'
    result = play(stage, f"{steps}    expect: {{replied: [ops, ops, dev, ops]}}\n")
    assert result.status == "error"
    assert "`paused: choice`" in (result.steps[1].error or "")
    more = "    expect: {paused: choice}\n  - choose: {agent: ops, option: tonight}\n"
    result = play(stage, f"{steps}{more}    expect: {{end: quiet, replies_count: 5}}\n")
    assert result.status == "passed", printed(result)


# Steering and pausing.


def test_a_person_steers_before_the_first_call_or_after_a_reply(stage: Stage) -> None:
    steps = '  - send: "@dev go"\n    steer: "@ops which window?"\n'
    result = play(stage, f"{steps}    expect: {{must: [[ops, dev]], end: choice}}\n")
    assert broken(result) == []
    steps = f"{steps}    after: {{agent: dev}}\n"
    result = play(stage, f"{steps}    expect: {{must: [[dev], [ops]], end: choice}}\n")
    assert broken(result) == []


def test_after_counts_the_replies_of_the_step(stage: Stage) -> None:
    steps = """\
  - send: "@dev go"
  - send: "@dev hand over"
    steer: "@dev canary"
    after: {agent: ops, reply: 2}
    expect: {paused: approval, outcome: {ops: success}, must: [[dev], [ops]]}
    on_fail: continue
  - approve: {agent: ops}
    steer: "@dev canary"
    after: {agent: ops}
    expect: {must: [[dev], [ops], [ops], [dev]], replies: {dev: {last: [{contains: Ten}]}}}
"""
    result = play(stage, steps)
    (check,) = broken(result)
    assert (check.field, check.line) == ("after", 6)
    assert check.expected == "reply 2 of ops in this step"
    assert check.actual == "1 reply: success"
    assert [step.status for step in result.steps] == ["passed", "failed", "passed"]


@pytest.mark.parametrize("status", ["timeout", "error"])
def test_a_reply_that_failed_counts_for_after(stage: Stage, status: str) -> None:
    stage.agent("dev", {"fail": status}, on_failure="skip", retries=0)
    expect = f"expect: {{outcome: {{dev: {status}}}, end: [failed, asked]}}"
    steps = f'  - send: "@dev go"\n    pause: true\n    after: {{agent: dev}}\n    {expect}\n'
    result = play(stage, steps)
    assert result.status == "passed", printed(result)
    assert result.steps[0].end == "asked"


def test_the_persons_of_steps_act(stage: Stage) -> None:
    steps = """\
  - send: "@dev go"
    from: lin
    steer: "@dev canary"
    pause: true
    after: {agent: dev}
    expect: {paused: asked}
"""
    (result,) = stage.play_all(f"scenario: x\nsteps:\n{steps}", detail=True)
    session = result.steps[0].events
    said = [event.message for event in session if event.type == "message"]
    assert [message.author_id for message in said] == ["lin", "lin"]
    assert session[-1].by == "lin"


def test_a_decision_that_failed_steers_no_other_chain(stage: Stage) -> None:
    steps = """\
  - send: "@ops deploy"
    expect: {paused: approval}
  - {approve: {agent: dev}, steer: "@ops window", pause: true, on_fail: continue}
  - send: "@dev go"
    expect: {replied: [dev], end: quiet}
"""
    result = play(stage, steps)
    assert [step.status for step in result.steps] == ["passed", "failed", "passed"]


def test_what_a_person_says_to_a_chain_that_still_waits_joins_no_other(stage: Stage) -> None:
    request = {**DEPLOY, "detail": "other"}
    stage.agent("sys", {"say": "done", "request": request}, response={"auto_respond": False})
    stage.team(humans=["maya"], selection="none")
    steps = """\
  - send: "@ops @sys deploy"
    expect: {paused: approval}
  - {approve: {agent: sys}, steer: "@ops window", expect: {paused: approval}}
  - send: "@dev go"
    expect: {replied: [dev], end: quiet}
"""
    result = play(stage, steps)
    assert result.status == "passed", printed(result)


def test_failures_of_earlier_steps_are_named_there_only(stage: Stage) -> None:
    stage.agent("dev", {"fail": "timeout"}, {"say": "x"}, response={"auto_respond": False})
    steps = """\
  - send: "@ops @dev deploy"
    expect: {paused: approval, outcome: {dev: timeout}}
  - reject: {agent: ops}
    expect: {end: quiet}
"""
    result = play(stage, steps)
    assert result.status == "passed", printed(result)
    assert [len(step.failures) for step in result.steps] == [0, 0]


def test_two_sessions_wait_at_the_same_time(stage: Stage) -> None:
    steps = """\
  - send: "@ops deploy"
    expect: {paused: approval}
  - {send: "@ops deploy", session: two, expect: {paused: approval}}
  - reject: {agent: ops}
    expect: {replied: [ops, ops], turns: 2}
  - {say: {agent: dev, text: "by the way"}, session: two}
  - {approve: {agent: ops}, session: two, expect: {replied: [ops, ops, dev], turns: 3}}
  - {check: {replied: [ops, ops, dev]}, session: two}
  - check: {turns: 5, end: quiet}
"""
    more = "expect: {approvals: [{agent: ops, decision: rejected}, {agent: ops, by: user}]}\n"
    result = play(stage, steps, more.replace("by: user", "decision: approved"))
    assert result.status == "passed", printed(result)


# Bad files.


@pytest.mark.parametrize(
    ("step", "line", "what"),
    [
        ("{approve: {agent: opss}}", 4, "no member of this team has the id `opss`"),
        ("{choose: {agent: maya, option: x}}", 4, "no member of this team has the id `maya`"),
        ("{approve: {agent: ops}, from: zed}", 4, "this team has no human called 'zed'"),
        ("{send: x, after: {agent: ops}}", 4, "`after` requires `steer` or `pause`"),
        ("{send: x, steer: hm, after: {agent: x}}", 4, "no member of this team has the id `x`"),
        ("{send: x, steer: ' '}", 4, "steps[1].steer"),
        ("{system: x, steer: hm}", 4, "`steer` goes with a step that runs a chain"),
        ("{send: x, resume: true}", 4, "`send` and `resume` are two steps"),
        ("{resume: true, session: two}", 4, "no chain is open here"),
        ("{approve: {agent: ops}, session: two}", 4, "no chain is open here"),
        ("{choose: {agent: ops}}", 4, "steps[1].choose.option"),
        ("{check: {approvals: [{agent: x}]}}", 4, "no member of this team has the id `x`"),
        ("{check: {approvals: [{}]}}", 4, "approvals[0]"),
        ("{check: {approvals: [{agent: ops, decision: yes}]}}", 4, "approvals[0].decision"),
    ],
)
def test_errors_on_load_have_a_place(stage: Stage, step: str, line: int, what: str) -> None:
    with pytest.raises(FileFaults) as raised:
        stage.load(f"scenario: x\nsteps:\n  - send: hi\n  - {step}\n")
    (fault,) = raised.value.faults
    assert what in str(fault)
    assert (fault.file, fault.line) == ("scenarios/s0.yaml", line)


# Recordings.


def test_a_recording_is_replayed_without_drift_and_decides_again(arena: Program) -> None:
    arena.scenario(ALL_ACTS)
    assert "recorded" in arena.run("run", "--record").check().stdout
    lines = (arena.folder / "scenarios/recordings/one.jsonl").read_text("utf-8").splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert [kinds.count(kind) for kind in ("approval_decided", "steered", "chain_paused")] == [
        2,
        1,
        3,
    ]
    done = arena.run("run", "--replay").check()
    assert "replayed" in done.stdout
    assert "drift" not in done.stdout.lower()
    # What people decide is in the scenario, not in the recording.
    arena.scenario(ALL_ACTS.replace("reject: {agent", "approve: {agent"))
    done = arena.run("run", "--replay")
    assert done.code == 1
    assert "approval_decided has changed" in done.stdout


def test_a_step_in_between_does_not_move_the_recorded_answers(arena: Program) -> None:
    arena.scenario(ALL_ACTS)
    arena.run("run", "--record").check()
    text = ALL_ACTS
    for step in ("  - reject:", "  - choose:", "  - resume:"):
        text = text.replace(step, f"  - check: {{turns: {{min: 1}}}}\n{step}")
    arena.scenario(text)
    done = arena.run("run", "--replay")
    assert (done.code, "DRIFT" in done.stdout) == (0, False), done.stdout


def test_an_agent_that_asks_something_else_is_drift_until_it_is_accepted(arena: Program) -> None:
    stage_text = APPROVED.replace("expect:\n  replies_count", "x-note: 1\nexpect:\n  replies_count")
    arena.scenario(stage_text)
    arena.run("run", "--record").check()
    path = arena.folder / "scenarios/recordings/one.jsonl"
    before = path.read_text("utf-8")
    path.write_text(before.replace("make deploy 2.4", "make deploy 2.5"), encoding="utf-8")
    assert "does not match its checksum" in arena.run("run", "--replay").stderr
    path.write_text(before, encoding="utf-8")
    other = {**OPS[-1], "request": {**DEPLOY, "detail": "make deploy 2.5"}}
    arena.agent("ops", *OPS[:-1], other, response={"auto_respond": False})
    done = arena.run("run", "--replay")
    assert done.code == 1
    assert "request.detail: make deploy 2.4 → make deploy 2.5" in done.stdout
    arena.run("run", "--record").check()
    arena.run("run", "--replay").check()
    assert "make deploy 2.5" in path.read_text("utf-8")


def test_update_takes_over_another_reason_and_keeps_the_answers(arena: Program) -> None:
    arena.scenario(APPROVED)
    arena.run("run", "--record").check()
    text = APPROVED.replace("because: tested", "because: seen").replace(", tested]", ", seen]")
    arena.scenario(text)
    assert arena.run("run", "--replay").code == 1
    done = arena.run("run", "--update").check()
    assert "updated" in done.stdout
    arena.run("run", "--replay").check()


def test_snapshots_of_a_step_that_continues_a_chain(arena: Program) -> None:
    text = APPROVED.replace("      end: quiet\n", "      replies: {ops: [{snapshot: true}]}\n")
    arena.scenario(text)
    arena.run("run", "--update").check()
    arena.run("run").check()
    snapshots = next((arena.folder / "scenarios/recordings").glob("*.snapshots.json"))
    assert "I wait." in snapshots.read_text("utf-8")
    arena.agent("ops", *OPS[:-1], {**OPS[-1], "asked": "Hm."}, response={"auto_respond": False})
    arena.scenario(text.replace("equals: I wait.", "equals: Hm."))
    done = arena.run("run")
    assert done.code == 1
    assert "snapshot" in done.stdout


# Reports.


def test_every_report_shows_the_chain_of_a_failed_decision(arena: Program) -> None:
    arena.scenario(APPROVED.replace("turns: 3", "turns: 4"))
    arguments = ("--html", "r.html", "--junit", "r.xml", "--explain")
    done = arena.run("run", *arguments)
    assert done.code == 1
    assert "scenarios/one.yaml:13: turns\n      expected: 4\n      actual:   3" in done.stdout
    assert done.stdout.index("timeline of step 1") < done.stdout.index("timeline of step 2")
    assert "request 1 approved by maya: tested" in done.stdout
    assert "must reply: dev (named by ops)" in done.stdout
    junit = (arena.folder / "r.xml").read_text("utf-8")
    assert 'name="step 2 (approve)"' in junit
    assert "request 1: ops asks for deploy: make deploy 2.4" in junit
    page = (arena.folder / "r.html").read_text("utf-8")
    assert "make deploy 2.4" in page
    assert "scenarios/one.yaml:9" in page


def test_the_result_as_json(arena: Program) -> None:
    arena.scenario(APPROVED)
    result = json.loads(arena.run("run", "--json", "--keep", "all").check().stdout)
    (scenario,) = result["scenarios"]
    assert [(step["kind"], step["end"]) for step in scenario["steps"]] == [
        ("send", "approval"),
        ("approve", "quiet"),
    ]
    assert arena.run("approvals", scenario["sessions"][0]).code == 0


# Runs.


def test_lanes_budgets_and_approvals_with_several_jobs(arena: Program) -> None:
    usage = {"output_tokens": 2_000}
    arena.agent("big", {"say": "ok", "usage": usage}, response={"auto_respond": False})
    arena.team(humans=["maya"], selection="none", default_responders=["dev"])
    arena.file("arena.yaml", "team: crew\nlanes: {main: 2}\n")
    spent = """\
scenario: spent
config: {budget: {tokens: {chain: 2500}}}
steps:
  - {send: "@big @dev @ops go", expect: {paused: budget}}
"""
    for number in range(12):
        text = (APPROVED, ALL_ACTS, spent)[number % 3]
        arena.scenario(text.replace("scenario: x", f"scenario: x{number}"), f"s{number}")
    done = arena.run("run", "--jobs", "4", "--json")
    result = json.loads(done.stdout)
    assert (done.code, result["passed"]) == (0, 12), done.stdout
    assert not list((arena.folder / "sessions").glob("*/control"))


@needs_fork
def test_ctrl_c_between_the_pause_and_the_decision_keeps_no_recording(tmp_path: Path) -> None:
    program = Program(tmp_path, real=True)
    slow = {"when": {"contains": "was approved"}, "say": "Live.", "delay_s": 30}
    program.agent("ops", slow, *OPS, response={"auto_respond": False})
    program.agent("dev", *DEV)
    program.team(humans=["maya"], selection="none", default_responders=["dev"])
    program.scenario(APPROVED)
    running = program.start("run", "--record", "--keep", "all")
    deadline = time.monotonic() + 60
    while not any(
        "approval_decided" in path.read_text("utf-8")
        for path in (program.folder / "sessions").glob("*/transcript.jsonl")
    ):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    done = program.finish(running)
    assert done.code == 130
    assert not (program.folder / "scenarios/recordings/one.jsonl").exists()
    program.run("doctor").check()


# Promotion.


def promote(arena: Program) -> dict[str, Any]:
    done = arena.run("promote", "s", "--force")
    assert done.code == 0, done.stdout + done.stderr
    arena.run("run", "s", "--replay").check()
    arena.run("run", "s").check()  # its agents are scripts that answer alike
    text = (arena.folder / "scenarios/s.yaml").read_text("utf-8")
    scenario: dict[str, Any] = yaml.safe_load(text)
    return scenario


def keys(scenario: dict[str, Any]) -> list[str]:
    return [next(iter(step)) for step in scenario["steps"]]


def test_a_session_with_decisions_is_promoted(arena: Program) -> None:
    arena.run("send", "-s", "s", "--from", "maya", "@ops deploy")
    arena.run("approve", "s", "1", "--by", "lin", "--because", "tested")
    arena.run("resume", "s")
    arena.run("send", "-s", "s", "@ops which window?")
    arena.run("choose", "s", "2", "monday")
    arena.run("resume", "s")
    arena.run("send", "-s", "s", "@ops deploy")
    arena.run("reject", "s", "3")
    arena.run("resume", "s")
    scenario = promote(arena)
    assert keys(scenario) == ["send", "approve", "send", "choose", "send", "reject"]
    approve = scenario["steps"][1]
    assert approve["approve"] == {"agent": "ops", "action": "deploy", "because": "tested"}
    assert approve["from"] == "lin"
    assert approve["expect"]["replied"] == ["ops", "ops", "dev"]
    assert scenario["steps"][0]["expect"]["end"] == "approval"
    assert scenario["steps"][3]["choose"] == {"agent": "ops", "option": "monday"}


def test_two_decisions_of_one_pause_are_two_steps(arena: Program) -> None:
    request = {**DEPLOY, "detail": "make other"}
    arena.agent("sys", {"say": "Done.", "request": request}, response={"auto_respond": False})
    arena.team(humans=["maya"], selection="none", default_responders=["dev"])
    arena.run("send", "-s", "s", "@ops @sys deploy")
    arena.run("approve", "s", "2")
    arena.run("approve", "s", "1")
    arena.run("resume", "s")
    scenario = promote(arena)
    assert keys(scenario) == ["send", "approve", "approve"]
    assert [step["expect"]["turns"] for step in scenario["steps"]][:2] == [1, 1]


def test_a_session_that_was_paused_and_steered_is_promoted(arena: Program) -> None:
    arena.run("send", "-s", "s", "@ops deploy")
    arena.run("steer", "s", "--by", "maya", "@dev canary")
    arena.run("approve", "s", "1", "--by", "maya")
    arena.run("resume", "s")
    scenario = promote(arena)
    assert keys(scenario) == ["send", "approve"]
    assert scenario["steps"][1]["steer"] == "@dev canary"


class _Terminal:
    """A person at a terminal who answers each question alike, and notes what was asked."""

    def __init__(self, answer: PersonAnswer) -> None:
        self._answer = answer
        self.asked: list[str] = []

    async def __call__(self, question: ApprovalQuestion) -> PersonAnswer:
        self.asked.append(question.asked.action)
        return self._answer


def converse(arena: Program, message: str, **how: Any) -> None:
    """Have a chain of the session `s`; `how` are settings of it, and `on_event`."""
    now = loaded(arena)
    team = now.team(now.file.team)
    on_event = how.pop("on_event", lambda _: None)
    place = replace(arena.place(), **how)
    with Session(place, "s", team, on_event=on_event) as session:
        asyncio.run(session.last(session.send(outgoing(team, message, author="maya"))))


@pytest.mark.parametrize(
    ("answer", "key"),
    [(PersonAnswer("approved", "monday"), "choose"), (PersonAnswer("rejected"), "reject")],
)
def test_what_was_answered_at_a_terminal_is_promoted(
    arena: Program, answer: PersonAnswer, key: str
) -> None:
    terminal = _Terminal(answer)
    converse(arena, "@ops which window?", ask_person=terminal)
    assert terminal.asked == ["window"]
    scenario = promote(arena)
    assert keys(scenario) == ["send", key]
    assert [step["expect"]["end"] for step in scenario["steps"]] == ["choice", "quiet"]


def test_an_act_that_was_approved_while_its_agent_waited_has_no_step(arena: Program) -> None:
    converse(arena, "@ops deploy", ask_person=_Terminal(PersonAnswer("approved")))
    converse(arena, "@dev go")
    done = arena.run("promote", "s")
    assert "request 1 was decided while its agent waited for it" in done.stderr
    text = (arena.folder / "scenarios/s.yaml").read_text("utf-8")
    assert keys(yaml.safe_load(text)) == ["send"]


def test_what_was_said_while_an_agent_replied_is_said_after_the_reply(arena: Program) -> None:
    slow = {"when": {"contains": "slowly"}, "say": "Half.", "delay_s": 1.5}
    arena.agent("dev", slow, *DEV, response={"auto_respond": False})
    inbox = Inbox(arena.folder / "sessions" / "s")

    def step_in(event: Event) -> None:
        if event.type == "reply_started" and event.agent == "dev" and event.turn == 1:
            inbox.put(ControlRequest(act="steer", by="maya", text="@dev canary"))
            inbox.put(ControlRequest(act="pause", by="maya"))

    converse(arena, "@dev slowly", on_event=step_in)
    arena.run("resume", "s")
    scenario = promote(arena)
    assert keys(scenario) == ["send", "resume"]
    step = scenario["steps"][0]
    assert (step["steer"], step["pause"], step["after"]) == ("@dev canary", True, {"agent": "dev"})
    assert step["expect"]["end"] == "asked"


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([["cancel", "s"]], "a person cancelled it"),
        (
            [["steer", "s", "--by", "maya", "@dev hm"], ["approve", "s", "1", "--by", "lin"]],
            "maya steered it, and lin decided, while it waited",
        ),
        (
            [["steer", "s", "@dev hm"], ["steer", "s", "@dev hm"], ["approve", "s", "1"]],
            "a person stepped in more than once between two pauses",
        ),
        (
            [
                ["pause", "s", "--agent", "dev"],
                ["resume", "s", "--agent", "dev"],
                ["approve", "s", "1"],
            ],
            "the state of dev",
        ),
    ],
)
def test_what_no_step_can_play_is_named(
    arena: Program, commands: list[list[str]], reason: str
) -> None:
    arena.run("send", "-s", "s", "@ops deploy")
    for command in commands:
        arena.run(*command)
    arena.run("resume", "s")
    arena.run("send", "-s", "s", "@dev go")
    done = arena.run("promote", "s")
    assert done.code == 0, done.stderr
    assert "no step can play its chain 1: " in done.stderr
    assert reason in done.stderr
    text = (arena.folder / "scenarios/s.yaml").read_text("utf-8")
    assert keys(yaml.safe_load(text)) == ["send"]
    arena.run("run", "s", "--replay").check()


# Any order of people's acts.

_ACTS = st.lists(
    st.sampled_from(["approve", "reject", "choose", "resume", "send", "window", "pause"]),
    max_size=8,
)


class _Model:
    """What a chain of `ops` waits for, after the acts so far; written without the engine."""

    def __init__(self) -> None:
        self.waits = ""

    def act(self, act: str) -> bool:
        """Change the state; return False if the act must fail."""
        if act in ("send", "window", "pause"):
            self.waits = {"send": "approval", "window": "choice", "pause": "asked"}[act]
            return True
        possible = {"approval": {"approve", "reject"}, "choice": {"reject", "choose"}}
        if act not in possible.get(self.waits, {"resume"} if self.waits else set()):
            return False
        self.waits = ""
        return True


_STEPS = {
    "send": '{send: "@ops deploy", expect: {paused: approval}}',
    "window": '{send: "@ops window", expect: {paused: choice}}',
    "pause": '{send: "@dev go", pause: true, expect: {paused: asked}}',
    "approve": "{approve: {agent: ops}, expect: {end: quiet}}",
    "reject": "{reject: {agent: ops}, expect: {end: quiet}}",
    "choose": "{choose: {agent: ops, option: tonight}, expect: {end: quiet}}",
    "resume": "{resume: true, expect: {end: quiet}}",
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=_ACTS)
def test_acts_in_any_order_succeed_or_fail_as_the_chain_allows(
    stage: Stage, acts: list[str]
) -> None:
    acts = ["send", *acts]
    lines = [f"  - {_STEPS[act][:-1]}, on_fail: continue}}\n" for act in acts]
    model = _Model()
    wanted = ["passed" if model.act(act) else "failed" for act in acts]
    result = play(stage, "".join(lines))
    assert [step.status for step in result.steps] == wanted, printed(result)
