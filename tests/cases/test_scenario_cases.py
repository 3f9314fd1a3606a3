"""Cases from the field about scenarios: what must never count as a pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from product import result
from stage import Stage, broken, printed


def test_c10_two_agents_that_call_each_other_end_at_the_limit_and_pass(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "@b your turn"}).agent("b", {"say": "@a your turn"})
    told = stage.team(selection="none").play(
        "scenario: x\nsteps: [{send: '@a go', expect: {end: chain_limit, turns: 6}}]"
    )
    assert told.status == "passed", printed(told)
    assert result.of_run([told], selected=1, seconds=0).exit_code == 0


def c14(stage: Stage, check: str) -> str:
    return f"""scenario: x
steps:
  - send: "@reviewer say APPROVED if you agree"
    expect:
      replies:
        reviewer: [{check}]
"""


def test_c14_what_the_user_wrote_satisfies_no_expectation_about_replies(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("reviewer", {"say": "Not approved yet"}).team()
    told = stage.play(c14(stage, "{contains: APPROVED}"))
    assert told.status == "failed"
    (check,) = broken(told)
    assert check.actual == 'reviewer in turn 1: no "APPROVED" in "Not approved yet"'


def test_c14_the_rule_that_matched_is_shown(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("reviewer", {"say": "Not approved yet"}).team()
    told = stage.play(c14(stage, "{contains: APPROVED, ignore_case: true}"))
    assert told.status == "passed"
    (check,) = told.steps[0].checks
    assert (check.line, check.field) == (6, "replies.reviewer[0].contains")
    assert check.actual == 'reviewer in turn 1: "Not approved yet"'


@pytest.mark.parametrize("fail", ["timeout", "error", "overloaded", "refused", "empty"])
@pytest.mark.parametrize(
    "expected",
    [
        "{replies: {dev: [{not_contains: secret}]}}",
        "{replies: {'*': [{not_contains: secret}]}}",
        "{replied: {exclude: [qa]}}",
        "{end: [failed, quiet, no_reply], turns: 1, unresolved: []}",
        "{}",
    ],
)
def test_c20_a_crashed_agent_passes_nothing(tmp_path: Path, fail: str, expected: str) -> None:
    stage = Stage(tmp_path).agent("dev", {"fail": fail}).agent("qa", {"say": "fine"})
    stage.team(selection="none")
    told = stage.play(f"scenario: x\nsteps: [{{send: '@dev @qa go', expect: {expected}}}]")
    assert told.status == "error"
    assert [failure.agent for failure in told.steps[0].failures] == ["dev"]
    assert result.of_run([told], selected=1, seconds=0).exit_code == 3


def test_c20_other_scenarios_and_steps_go_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"when": {"contains": "x"}, "fail": "error"}, {"say": "y"})
    told = stage.team().play(
        """scenario: x
steps:
  - {send: "@dev x", on_fail: continue}
  - {send: "@dev go", expect: {replied: [dev]}}
"""
    )
    assert [step.status for step in told.steps] == ["error", "passed"]
    assert told.status == "error"
