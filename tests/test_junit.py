"""`arena run --junit`: what Jenkins, GitLab and GitHub's reporters read, and its schema."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st
from product import (
    CheckResult,
    Drift,
    Failure,
    RecordingStore,
    Runner,
    RunResult,
    ScenarioResult,
    StepResult,
    Usage,
    Words,
    ci,
    result,
)
from stage import Stage

SCHEMA = Path(__file__).parent / "schemas" / "junit.xsd"

STEPS = """scenario: the tour
steps:
  - step: fine
    send: "@dev first"
  - step: wrong
    send: "@dev second"
    expect: {replies: {dev: [{contains: GDPR}]}}
  - step: later
    send: "@dev third"
"""


@cache
def schema() -> Any:
    return xmlschema.XMLSchema(str(SCHEMA))


def document(*told: ScenarioResult, **more: Any) -> ElementTree.Element:
    """The report as it is read; it must be valid."""
    text = ci.document(whole(*told), **more)
    root = ElementTree.fromstring(text)
    schema().validate(root)
    return root


def whole(*told: ScenarioResult) -> RunResult:
    return result.of_run([*told], selected=len(told), seconds=1.5)


def cases(root: ElementTree.Element) -> Iterator[tuple[str, str, ElementTree.Element | None]]:
    """(class name, name, what makes it no pass) of each test case."""
    for case in root.iter("testcase"):
        wrong = [one for one in case if one.tag in ("failure", "error", "skipped")]
        yield case.attrib["classname"], case.attrib["name"], wrong[0] if wrong else None


def told_of(root: ElementTree.Element) -> list[tuple[str, str]]:
    """(name, passed or the element's name) of each test case."""
    return [(name, "passed" if one is None else one.tag) for _, name, one in cases(root)]


def counts(one: ElementTree.Element) -> tuple[str, ...]:
    return tuple(one.attrib[name] for name in ("tests", "failures", "errors"))


def step(number: int = 1, status: str = "failed", **more: Any) -> StepResult:
    return StepResult(number=number, place=lambda: ("s/x.yaml", 3), status=status, **more)


def check(status: str = "failed", **more: Any) -> CheckResult:
    known = {"expected": "dev", "actual": "nobody", "field": "replied", **more}
    return CheckResult(place=lambda: ("s/x.yaml", 7), status=status, **known)


def scenario(status: str = "failed", *steps: StepResult, **more: Any) -> ScenarioResult:
    known = {"scenario": "x", "file": "s/x.yaml", "seconds": 0.25, **more}
    return ScenarioResult(status=status, steps=list(steps), place=lambda: ("s/x.yaml", 1), **known)


def test_a_suite_is_a_scenario_and_a_case_is_a_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    root = document(*stage.play_all(STEPS, "scenario: fine\nsteps: [{send: '@dev hi'}]"))
    assert counts(root) == ("4", "1", "0")
    assert [(one.attrib["name"], counts(one)) for one in root] == [
        ("the tour", ("3", "1", "0")),
        ("fine", ("1", "0", "0")),
    ]
    fine, wrong, later, other = cases(root)
    assert fine == ("scenarios.s0", "step 1: fine", None)
    assert other == ("scenarios.s1", "step 1", None)
    assert wrong[1] == "step 2: wrong"
    failure = wrong[2]
    assert failure is not None
    assert failure.attrib["type"] == "expectation"
    place = "scenarios/s0.yaml:7: replies.dev[0].contains"
    assert failure.attrib["message"].startswith(f"{place}: expected: ")
    assert failure.text is not None
    assert failure.text.startswith(f"{place}\n  expected: ")
    assert "GDPR" in failure.text
    assert later[2] is not None
    assert (later[2].tag, later[2].attrib) == ("skipped", {})
    assert later[2].text == "not run: an earlier step did not pass"


def test_a_failed_step_has_its_timeline_and_no_other(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    root = document(*stage.play_all(STEPS))
    (out,) = root.iter("system-out")
    assert out.text is not None
    assert out.text.startswith("timeline of step 2: wrong\n  ")
    assert "@dev second" in out.text
    assert "@dev first" not in out.text


def test_a_failed_check_has_the_timelines_of_what_it_covers(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    steps = "[{send: '@dev first'}, {send: '@dev second'}, {check: {turns: 7}}]"
    (out,) = document(stage.play(f"scenario: a\nsteps: {steps}")).iter("system-out")
    assert [line for line in str(out.text).splitlines() if line.startswith("timeline")] == [
        "timeline of step 1",
        "timeline of step 2",
    ]


def test_times_are_those_of_the_run_and_of_its_steps(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    (told,) = stage.play_all("scenario: a\nsteps: [{send: '@dev hi'}]", detail=True)
    events = told.steps[0].events
    events[0] = events[0].model_copy(update={"ts": "2026-11-28T10:00:00.250Z"})
    events[-1] = events[-1].model_copy(update={"ts": "2026-11-28T10:01:00.500Z"})
    root = document(told.model_copy(update={"seconds": 61.0}))
    (suite,) = root
    assert (root.attrib["time"], suite.attrib["time"]) == ("1.5", "61.0")
    assert told.opening is not None
    assert suite.attrib["timestamp"] == told.opening.ts
    assert [case.attrib["time"] for case in suite.iter("testcase")] == ["60.25"]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"failures": [Failure(agent="dev", turn=1, status="timeout", error="late")]}, "agent"),
        ({"error": "nothing was saved as `plan`"}, "arena"),
        ({"checks": [check("error", actual="KeyError")]}, "check"),
        ({"checks": [check("error", actual="prose", judge="critic")]}, "judge"),
    ],
)
def test_errors_are_apart_from_failures(wrong: dict[str, Any], kind: str) -> None:
    root = document(scenario("error", step(status="error", **wrong)))
    assert counts(root) == ("1", "0", "1")
    ((_, _, error),) = cases(root)
    assert error is not None
    assert (error.tag, error.attrib["type"]) == ("error", kind)


def test_a_case_has_one_error_with_all_that_is_told_of_it() -> None:
    failure = Failure(agent="dev", turn=1, status="timeout", error="late")
    root = document(scenario("error", step(status="error", failures=[failure], checks=[check()])))
    ((_, _, error),) = cases(root)
    assert error is not None
    assert error.attrib["message"] == "s/x.yaml:3: dev: timeout: late (and 1 more)"
    assert error.text is not None
    assert "dev in turn 1: timeout" in error.text
    assert "s/x.yaml:7: replied" in error.text


def test_what_is_expected_over_all_steps_is_a_case_of_its_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    text = "scenario: a\nsteps: [{send: '@dev hi'}]\nexpect: {turns: %d}"
    root = document(*stage.play_all(text % 1, text % 7))
    assert told_of(root) == [
        ("step 1", "passed"),
        ("over all steps", "passed"),
        ("step 1", "passed"),
        ("over all steps", "failure"),
    ]
    (out,) = root.iter("system-out")
    assert "timeline of step 1" in str(out.text)


def test_skipped_expected_to_fail_and_unexpectedly_passed(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    steps = "steps: [{send: '@dev hi', expect: {end: failed}}]"
    told = stage.play_all(
        f"scenario: a\nskip: no sandbox\n{steps}",
        f"scenario: b\nxfail: '#412'\n{steps}",
        "scenario: c\nxfail: '#413'\nsteps: [{send: '@dev hi'}]",
    )
    root = document(*told)
    assert counts(root) == ("4", "1", "0")
    skipped, expected, fine, passed = (one for _, _, one in cases(root))
    assert skipped is not None
    assert (skipped.tag, skipped.text) == ("skipped", "no sandbox")
    assert expected is not None
    assert (expected.tag, expected.text) == ("skipped", "xfail: #412")
    assert any("expected: failed" in str(one.text) for one in root.iter("system-out"))
    assert fine is None
    assert passed is not None
    assert "remove its `xfail`" in passed.attrib["message"]


def test_what_warns_passes_and_is_told() -> None:
    root = document(scenario("passed", step(status="passed", checks=[check("warned")])))
    assert told_of(root) == [("step 1", "passed")]
    assert "(level: warn)" in str(next(root.iter("system-out")).text)


def test_a_run_that_was_cut_short_has_what_came_until_then() -> None:
    root = document(scenario("passed", step(status="passed")), scenario("interrupted"))
    assert told_of(root) == [("step 1", "passed"), ("over all steps", "error")]
    assert next(root.iter("error")).attrib["type"] == "interrupted"


def test_an_error_that_ended_the_run_is_a_suite() -> None:
    root = document(scenario("passed", step(status="passed")), error="disk full\n  make room")
    assert told_of(root) == [("step 1", "passed"), ("the run", "error")]
    assert next(root.iter("error")).attrib == {"message": "disk full", "type": "arena"}


def played(stage: Stage, text: str, wanted: Any, **more: Any) -> list[ScenarioResult]:
    """What came of a scenario that was recorded or replayed."""
    told: list[ScenarioResult] = []
    scenarios = stage.load(text)
    shelf = RecordingStore(scenarios, wanted, **more)
    asyncio.run(Runner(scenarios, stage.place(), told.append, shelf=shelf).run())
    return told


REPLAYED = "scenario: a\nsteps: [{send: '@dev hi', expect: {replied: [dev]}}]"


def test_drift_is_a_case_of_its_own_with_what_changed(tmp_path: Path) -> None:
    stage = (
        Stage(tmp_path).agent("dev", {"say": "done"}, role_prompt="You plan\n with care.").team()
    )
    played(stage, REPLAYED, "record")
    before = document(*played(stage, REPLAYED, "replay"))
    assert told_of(before) == [("step 1", "passed"), ("as recorded", "passed")]
    stage.agent("dev", {"say": "done"}, role_prompt="You plan\n with speed.")
    after = document(*played(stage, REPLAYED, "replay"))
    assert told_of(after) == [("step 1", "passed"), ("as recorded", "failure")]
    failure = next(after.iter("failure"))
    line = "scenarios/s0.yaml:2: step 1, turn 1: dev is shown a different role_prompt"
    assert failure.attrib == {"message": line, "type": "drift"}
    assert failure.text is not None
    assert failure.text.splitlines()[0] == line
    assert "with {-care-}{+speed+}." in failure.text
    warned = document(*played(stage, REPLAYED, "replay", drift="warn"))
    assert told_of(warned) == told_of(before)
    assert "a different role_prompt" in str(next(warned.iter("system-out")).text)


def test_an_xfail_that_drifts_fails_by_its_drift_alone() -> None:
    drift = Drift(kind="settings", agent="dev", field="model", before="a", after="b")
    bad = step(checks=[check()])
    more = {"reason": "#412", "mode": "replay", "drift": [drift], "drift_fails": True}
    root = document(scenario("failed", bad, checks=[check()], **more))
    assert told_of(root) == [
        ("step 1", "skipped"),
        ("as recorded", "failure"),
        ("over all steps", "skipped"),
    ]
    assert counts(root) == ("3", "1", "0")


def test_what_arena_could_not_do_is_an_error_beside_what_did_not_hold() -> None:
    drift = Drift(kind="settings", agent="dev", field="model", before="a", after="b")
    expected = {"reason": "#412", "drift": [drift], "drift_fails": True}
    for more, first in (({}, "failure"), (expected, "skipped")):
        root = document(scenario("failed", step(checks=[check()]), error="disk full", **more))
        assert (told_of(root)[0], told_of(root)[-1]) == (
            ("step 1", first),
            ("over all steps", "error"),
        )
        assert next(root.iter("error")).attrib["type"] == "arena"


def test_an_xfail_that_arena_could_not_play_to_its_end_is_an_error() -> None:
    root = document(scenario("error", step(status="passed"), reason="#412", error="disk full"))
    assert told_of(root)[-1] == ("over all steps", "error")
    assert next(root.iter("error")).attrib["type"] == "arena"


def test_a_call_without_a_record_is_an_error_of_its_step_and_drift() -> None:
    miss = Drift(kind="miss", agent="dev", field="calls", step=1)
    failure = Failure(agent="dev", turn=1, status="error", error="no record")
    bad = step(status="error", failures=[failure])
    root = document(scenario("failed", bad, mode="replay", drift=[miss], drift_fails=True))
    assert told_of(root) == [("step 1", "error"), ("as recorded", "failure")]


def test_why_a_recording_was_not_kept_is_a_property() -> None:
    told = [
        scenario("error", mode="record", unkept="an agent or arena failed"),
        scenario("interrupted", mode="update"),
        scenario("passed", mode="record", written=True),
    ]
    found = [
        [one.attrib["value"] for one in suite.iter("property") if one.attrib["name"] == "unkept"]
        for suite in document(*told)
    ]
    assert found == [["an agent or arena failed"], ["it was cut short"], []]


def test_properties_say_where_answers_came_from_and_what_they_cost() -> None:
    used = Usage(input_tokens=10, cache_read_tokens=5, output_tokens=3, cost_usd=0.0125)
    more = {"recording": "s/recordings/x.jsonl", "tags": ["a", "b"], "judges_usage": Usage()}
    told = scenario("passed", step(status="passed"), mode="replay", usage=used, **more)
    root = document(told)
    assert {one.attrib["name"]: one.attrib["value"] for one in root.iter("property")} == {
        "file": "s/x.yaml:1",
        "status": "passed",
        "tags": "a, b",
        "mode": "replay",
        "recording": "s/recordings/x.jsonl",
        "input_tokens": "15",
        "output_tokens": "3",
        "cost_usd": "0.0125",
        "judges_input_tokens": "0",
        "judges_output_tokens": "0",
    }


def test_names_are_the_same_whatever_came_of_it_and_in_any_language(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    text = """scenario: a
cases: [{id: eu}, {id: us}]
steps:
  - send: "@dev hi"
    session: other
    expect: {end: [%s]}
  - check: {turns: 1}
"""
    fine, wrong = (stage.play_all(text % end) for end in ("quiet", "failed"))
    names = [[one[:2] for one in cases(document(*told))] for told in (fine, wrong, wrong)]
    names.append([one[:2] for one in cases(document(*wrong, say=Words("zh")))])
    assert names[0] == [
        ("scenarios.s0", "[eu] step 1 (session other)"),
        ("scenarios.s0", "[eu] step 2 (check)"),
        ("scenarios.s0", "[us] step 1 (session other)"),
        ("scenarios.s0", "[us] step 2 (check)"),
    ]
    assert all(one == names[0] for one in names)
    assert "期望：" in ci.document(whole(*wrong), Words("zh")).decode()


def test_c45_what_xml_cannot_hold_is_written_as_an_escape(tmp_path: Path) -> None:
    said = "a\0b \ufffe \x1b[31mred ]]> <b>&amp;\n::stop-commands::t\n  ##[error]x\r\n"
    said += "[[ATTACHMENT|/etc/x]]"
    (tmp_path / "bot.py").write_text(f"def answer(input):\n    return {said!a}\n")
    adapter = {"type": "python", "target": "bot.py:answer"}
    stage = Stage(tmp_path).agent("evil", adapter=adapter, name="e [b]vil").team()
    expect = '{replies: {evil: [{equals: "\\0\\uFFFE"}]}}'
    root = document(stage.play(f'scenario: "a\\0"\nsteps: [{{send: "@evil x", expect: {expect}}}]'))
    told = "\n".join(str(one.text) for one in (*root.iter("failure"), *root.iter("system-out")))
    assert "a\\x00b \\ufffe \\x1b[31mred ]]> <b>&amp;\n" in told
    assert "\\::stop-commands::t" in told
    assert "##\\[error]x" in told
    assert "[\\[ATTACHMENT|/etc/x]]" in told
    assert "[[" not in told
    assert next(root.iter("testsuite")).attrib["name"] == "a\\x00"
    assert 'expected: is "\\u0000\\ufffe"' in next(root.iter("failure")).attrib["message"]


WILD = st.text(min_size=1)


@given(WILD, WILD, st.text(), st.text(st.characters(), max_size=60))  # halves of pairs too
def test_whatever_is_said_the_document_is_valid(a: str, b: str, c: str, path: str) -> None:
    drift = Drift(kind="input", agent=a, field=b, before=c, after=f"{c}{a}")
    failure = Failure(agent=a, turn=1, status="error", error=c)
    checks = [
        CheckResult(place=lambda: (path, 1), field=b, status="failed", expected=a, actual=c),
        check("error", expected=c, actual=a, judge=b),
    ]
    told = scenario(
        "failed",
        step(1, "failed", name=a, session=b, checks=checks),
        step(2, "error", failures=[failure], error=b),
        scenario=a,
        case=b,
        file=f"s/{b}.yaml",
        tags=[c],
        error=b,
        checks=checks,
        drift=[drift],
    )
    root = document(told, scenario("skipped", reason=c), error=b)
    assert counts(root)[0] == "6"


def test_the_schema_refuses_what_readers_do_not_take() -> None:
    text = ci.document(whole(scenario("failed", step(checks=[check()])))).decode()
    assert schema().is_valid(text)
    for before, after in [
        ('time="0.25"', 'time="1e-05"'),
        ('classname="s.x"', ""),
        ("<testcase", "<properties /><testcase"),
        ("</failure>", '</failure><error message="a" type="b" />'),
        ('tests="1"', 'tests="one"'),
    ]:
        assert before in text
        assert not schema().is_valid(text.replace(before, after))
