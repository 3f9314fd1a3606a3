"""Scenarios played: what passes, what fails, what is an error, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from product import DiskRefused, Runner, ScenarioResult, Session, result
from stage import Stage, broken, printed


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return (
        Stage(tmp_path)
        .agent("dev", {"when": {"contains": "crash"}, "fail": "error"}, {"say": "done"})
        .agent("oncall", {"when": {"contains": "again"}, "say": "here"}, {"fail": "timeout"})
        .team(humans=["maya"], selection="none")
    )


def statuses(told: ScenarioResult) -> list[str]:
    return [step.status for step in told.steps]


def test_a_scenario_passes_and_leaves_nothing_behind(stage: Stage) -> None:
    told = stage.play(
        """scenario: x
steps:
  - send: "@dev hi"
    from: maya
    expect: {replied: [dev], outcome: {oncall: not_called}, replies: {dev: [{contains: done}]}}
  - send: "@dev and @nobody"
    expect: {unresolved: [nobody]}
expect: {replied: [dev, dev], turns: 2, end: quiet}
"""
    )
    assert told.status == "passed", printed(told)
    assert told.sessions == []
    assert [check.status for check in told.checks] == ["passed"] * 3
    assert stage.sessions() == []


def test_a_failed_expectation_stops_the_scenario_and_its_session_is_kept(stage: Stage) -> None:
    told = stage.play(
        """scenario: x
steps:
  - step: ask
    send: "@dev hi"
    expect:
      replies:
        dev: [{contains: finished}]
  - send: "@dev hi"
expect: {turns: 7}
"""
    )
    assert told.status == "failed"
    assert statuses(told) == ["failed", "not_run"]
    (check,) = broken(told)
    assert (check.file, check.line, check.field) == (
        "scenarios/s0.yaml",
        7,
        "replies.dev[0].contains",
    )
    assert told.checks == []
    assert told.sessions == stage.sessions()
    text = printed(told)
    assert "scenarios/s0.yaml:7: replies.dev[0].contains" in text
    assert 'expected: contains "finished"' in text
    assert 'actual:   dev in turn 1: no "finished" in "done"' in text
    assert "must reply: dev" in text
    assert f"arena show {told.sessions[0]}" in text


def test_on_fail_continue_goes_on_and_the_whole_is_judged(stage: Stage) -> None:
    told = stage.play(
        """scenario: x
steps:
  - {send: "@dev hi", on_fail: continue, expect: {turns: 2}}
  - {send: "@dev hi", expect: {turns: 1}}
expect: {turns: 3}
"""
    )
    assert told.status == "failed"
    assert statuses(told) == ["failed", "passed"]
    assert [(check.line, check.actual) for check in broken(told)] == [(3, "1"), (5, "2")]


@pytest.mark.parametrize(
    ("step", "whole", "status"),
    [
        ("{}", "{}", "error"),
        ("{replied: [dev], end: quiet}", "{}", "error"),
        ("{outcome: {oncall: timeout}}", "{}", "passed"),
        ("{}", "{outcome: {oncall: timeout}}", "passed"),
        ("{outcome: {oncall: success}}", "{}", "error"),
        ("{outcome: {oncall: error}}", "{}", "error"),
        ("{timeline: [{agent: oncall}]}", "{}", "error"),
        ("{timeline: [{agent: oncall, turn: 1}]}", "{}", "error"),
        ("{timeline: [{agent: oncall, status: timeout}]}", "{}", "passed"),
        ("{timeline: [{agent: oncall, status: timeout, phase: B}]}", "{}", "error"),
        ("{timeline: [{agent: oncall, status: timeout, contains: x}]}", "{}", "error"),
        ("{timeline: [{agent: oncall, status: timeout, mentions: []}]}", "{}", "error"),
        ("{timeline: [{agent: oncall, status: error}]}", "{}", "error"),
        ("{}", "{outcome: {oncall: success}}", "error"),
        ("{outcome: {dev: success}}", "{}", "error"),
        ("{end: failed}", "{}", "error"),
        ("{end: [failed, quiet]}", "{}", "error"),
        ("{}", "{end: failed}", "error"),
        ("{replied: []}", "{}", "error"),
    ],
)
def test_one_agent_that_fails_is_an_error_unless_it_is_named(
    stage: Stage, step: str, whole: str, status: str
) -> None:
    text = f"scenario: x\nsteps:\n  - send: '@dev @oncall go'\n    expect: {step}\nexpect: {whole}"
    assert stage.play(text).status == status


def test_a_chain_that_failed_as_expected_passes(stage: Stage) -> None:
    text = "scenario: x\nsteps: [{send: '@dev crash', expect: {end: failed}}]"
    assert stage.play(text).status == "passed"


@pytest.mark.parametrize(
    "step",
    [
        "{outcome: {oncall: success}}",
        "{outcome: {oncall: error}}",
        "{end: failed}",
        "{timeline: [{agent: oncall, status: error}]}",
        "{timeline: [{agent: oncall}], turns: 7}",
    ],
)
def test_an_agent_that_failed_never_satisfies_xfail(stage: Stage, step: str) -> None:
    text = "scenario: x\nxfail: '#412'\nsteps:\n  - send: '@dev @oncall go'\n    expect: "
    assert stage.play(text + step).status == "error"
    assert stage.play(text + "{outcome: {oncall: timeout}, turns: 7}").status == "xfailed"


def test_an_end_over_the_whole_excuses_only_the_last_chain(stage: Stage) -> None:
    crash = "{send: '@dev crash', on_fail: continue}"
    last = f"scenario: x\nsteps: [{{send: '@dev hi'}}, {crash}]\nexpect: {{end: [failed, quiet]}}"
    first = f"scenario: x\nsteps: [{crash}, {{send: '@dev hi'}}]\nexpect: {{end: [failed, quiet]}}"
    assert stage.play(last).status == "passed"
    assert stage.play(first).status == "error"


def test_an_outcome_that_comes_later_does_not_excuse_the_failure_before(stage: Stage) -> None:
    told = stage.play(
        """scenario: x
steps:
  - {send: "@oncall", on_fail: continue}
  - {send: "@oncall again"}
expect: {outcome: {oncall: success}}
"""
    )
    assert statuses(told) == ["error", "passed"]
    assert told.status == "error"


def test_an_error_says_what_happened_and_how_to_expect_it(stage: Stage) -> None:
    told = stage.play("scenario: x\nsteps: [{send: '@oncall go'}]")
    text = printed(told)
    assert "oncall in turn 1: timeout" in text
    assert "expect outcome: {oncall: timeout}" in text
    assert told.sessions[0] in text


def test_the_disk_that_refuses_is_an_error_of_that_scenario(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise DiskRefused("transcript.jsonl: no space left")

    monkeypatch.setattr(Session, "send", refuse)
    told = stage.play("scenario: x\nsteps: [{send: '@dev hi', expect: {turns: 1}}]")
    assert told.status == "error"
    assert "no space left" in printed(told)
    assert result.of_run([told], selected=1, seconds=0).exit_code == 3


def test_what_agents_say_cannot_draw_on_the_screen(stage: Stage) -> None:
    stage.agent("evil", {"say": "\x1b]0;owned\x07\n::stop-commands::t"}).team()
    told = stage.play(
        """scenario: "::error::x"
steps: [{send: "@evil", expect: {replies: {evil: [{contains: nice}]}}}]
"""
    )
    assert told.status == "failed"
    text = printed(told)
    assert "\x1b" not in text
    assert not any(line.strip().startswith("::") for line in text.splitlines())


def test_interrupted_tells_how_far_it_came(stage: Stage) -> None:
    stage.agent("slow", {"say": "late", "delay_s": 600}).team()
    scenarios = stage.load(
        "scenario: a\nsteps: [{send: '@dev hi'}]",
        "scenario: b\nsteps: [{send: '@dev hi'}, {send: '@slow'}]",
        "scenario: c\nsteps: [{send: '@dev hi'}]",
    )
    told: list[ScenarioResult] = []

    async def interrupted() -> None:
        playing = asyncio.create_task(Runner(scenarios, stage.place(), told.append).run())
        while not any("slow" in text for text in transcripts(stage)):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing

    asyncio.run(interrupted())
    assert [one.status for one in told] == ["passed", "interrupted"]
    assert statuses(told[1]) == ["passed"]
    assert stage.sessions() == told[1].sessions
    whole = result.of_run(told, selected=3, seconds=1)
    assert (whole.exit_code, whole.interrupted, whole.not_run) == (130, 1, 1)


def transcripts(stage: Stage) -> list[str]:
    """What stands in the transcripts about replies that have begun."""
    found = (stage.folder / "sessions").glob("*/transcript.jsonl")
    lines = (line for path in found for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if '"reply_started"' in line]


@pytest.mark.parametrize(
    ("statuses", "exit_code"),
    [
        (["passed", "passed"], 0),
        (["passed", "failed", "error"], 1),
        (["passed", "error"], 3),
    ],
)
def test_exit_codes(statuses: list[str], exit_code: int) -> None:
    results = [
        ScenarioResult(scenario="x", file="x", status=s, seconds=0, place=lambda: ("x", 1))
        for s in statuses
    ]
    assert result.of_run(results, selected=len(results), seconds=0).exit_code == exit_code
