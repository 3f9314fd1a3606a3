"""What `arena run` prints of results: columns, steps, warnings, reasons, the summary, progress."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    CheckResult,
    Drift,
    Failure,
    Progress,
    RecordingStore,
    Runner,
    RunResult,
    ScenarioResult,
    StepResult,
    Wanted,
    Words,
    ci,
    columns,
    result,
)
from product import reports_results as results
from screen import Screen
from stage import Stage

SAY = Words()
ROWS = st.lists(
    st.text("ab 开发→👩‍🔬é·\t\x1b", min_size=1, max_size=60).map(lambda row: f"x{row}"),
    min_size=1,
    max_size=6,
)


def beside(expected: str, actual: str, width: int = 80, **more: Any) -> list[str]:
    drawn = columns.draw_columns(expected, actual, SAY, width=width, indent="  ", **more)
    return [line.text for line in drawn]


def check(field: str = "replied", status: str = "failed", **more: Any) -> CheckResult:
    given = {"expected": "dev", "actual": "nobody", **more}
    return CheckResult(place=lambda: ("s/x.yaml", 7), field=field, status=status, **given)


def step(number: int = 1, status: str = "failed", **more: Any) -> StepResult:
    return StepResult(number=number, place=lambda: ("s/x.yaml", 3), status=status, **more)


def scenario(status: str = "failed", *steps: StepResult, **more: Any) -> ScenarioResult:
    given = {"scenario": "x", "file": "s/x.yaml", "seconds": 0.25, **more}
    given.setdefault("place", lambda: ("s/x.yaml", 1))
    return ScenarioResult(status=status, steps=list(steps), **given)


def printed(told: ScenarioResult, say: Words = SAY, **more: Any) -> str:
    return "\n".join(line.text for line in results.draw_result(told, say, **more))


def closed(*told: ScenarioResult, say: Words = SAY, **more: Any) -> list[str]:
    whole = result.of_run([*told], selected=more.pop("selected", len(told)), seconds=1.5, **more)
    return [line.text for line in results.closing(whole, say)]


def test_short_texts_stand_one_above_the_other() -> None:
    assert beside("developer", "developer, tester") == [
        "  expected: developer",
        "  actual:   developer, tester",
    ]


def test_several_lines_stand_in_columns_with_the_row_that_differs_marked() -> None:
    expected = "turn 1 A · dev\nturn 2 · 测试"
    actual = "turn 1 A · dev · success\nturn 2 A · 测试 · error\n(row 2: status is error)"
    assert beside(expected, actual, index=1) == [
        "    expected                             | actual",
        "    1. turn 1 A · dev                    | 1. turn 1 A · dev · success",
        "  > 2. turn 2 · 测试                     | 2. turn 2 A · 测试 · error",
        "    (row 2: status is error)",
    ]


def test_a_narrow_terminal_and_very_long_rows_stack() -> None:
    stacked = ["  expected:", "  > 1. dev", "    2. ops", "  actual:", "  > 1. dev"]
    assert beside("dev\nops", "dev", width=20, index=0) == stacked
    assert beside("dev\nops", "dev" * 200, index=0)[:4] == stacked[:4]


@given(ROWS, ROWS, st.integers(60, 200))
def test_columns_line_up_and_keep_every_text(left: list[str], right: list[str], width: int) -> None:
    told = beside("\n".join([*left, "end"]), "\n".join([*right, "end"]), width)
    if told[0].startswith("  expected:"):  # stacked: a row is too long for a column
        return
    assert len({columns.width_of(row[: row.index(" |")]) for row in told}) == 1
    assert "\x1b" not in "".join(told)
    for place, texts in enumerate((left, right)):
        halves = "".join(row.partition(" |")[2 * place] for row in told).replace(" ", "")
        for text in texts:
            shown = text.replace("\x1b", "\\x1b").replace("\t", "\\t").replace(" ", "")
            assert shown in halves


def test_the_row_of_a_timeline_that_is_one_too_many_is_marked(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "@ops go"}).agent("ops", {"say": "gone"}).team()
    told = stage.play(
        """scenario: x
steps:
  - send: "@dev hi"
    expect: {timeline_exact: [{agent: dev}], timeline: [{agent: ops}, {agent: dev}]}
"""
    )
    rows = [row for row in printed(told).splitlines() if " | " in row]
    marked = [row.strip() for row in rows if row.strip().startswith(">")]
    halves = [[half.strip() for half in row.split(" | ")] for row in marked]
    assert halves == [
        ["> 2. dev", "2. turn 2 A · ops · success ·"],
        [">", "2. turn 2 A · ops · success ·"],
    ]


def test_a_failure_has_its_place_both_sides_and_the_timeline_of_its_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    told = stage.play(
        """scenario: x
steps:
  - step: fine
    send: "@dev first"
  - step: wrong
    send: "@dev second"
    expect: {end: failed}
"""
    )
    text = printed(told)
    head, *rest = text.splitlines()
    assert head.startswith("FAILED  x · ")
    assert rest[:5] == [
        "  FAILED  step 2: wrong",
        "    scenarios/s0.yaml:7: end",
        "      expected: failed",
        "      actual:   quiet",
        "    timeline of step 2: wrong",
    ]
    assert "@dev second" in text
    assert "@dev first" not in text
    assert rest[-1] == f"  the session is kept: arena show {told.sessions[0]}"
    assert [*results.draw_result(told, SAY)][-1].whole  # a command is never broken


def test_a_failed_check_shows_the_steps_that_it_covers_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).team()
    told = stage.play(
        """scenario: x
steps:
  - send: "@dev first"
  - send: "@dev second"
    session: other
  - check: {turns: 7}
    session: other
    on_fail: continue
  - check: {turns: 8}
    on_fail: continue
expect: {turns: 9}
"""
    )
    text = printed(told)
    assert "  FAILED  step 3 (check, session other)\n" in text
    assert text.index("timeline of step 2") < text.index("step 4 (check)")
    assert text.index("step 4 (check)") < text.index("timeline of step 1") < text.index("over all")
    assert text.count("timeline of") == 2
    assert text.count("turn 1 · must reply") == 2
    assert "attempt" not in text  # both sessions have a reply 1


def test_what_arena_could_not_do_and_what_failed_is_told_where_it_is() -> None:
    failure = Failure(agent="dev", turn=2, status="timeout", error="no answer\nwithin 3 s")
    told = scenario(
        "error",
        step(1, "error", failures=[failure]),
        step(2, "error", kind="say", error="nothing was saved as `plan`"),
        step(3, "not_run", name="later"),
        error="disk full",
    )
    assert printed(told).splitlines() == [
        "ERROR   x · s/x.yaml · 0.25 s",
        "  ERROR   step 1",
        "    dev in turn 2: timeout",
        "      no answer",
        "      within 3 s",
        "      if this is expected: expect outcome: {dev: timeout}",
        "  ERROR   step 2 (say)",
        "    s/x.yaml:3: nothing was saved as `plan`",
        "  not run step 3: later",
        "  disk full",
    ]


def test_a_check_that_crashed_says_so() -> None:
    told = printed(scenario("error", step(1, "error", checks=[check(status="error", expected="")])))
    assert "s/x.yaml:7: replied (the check itself crashed)" in told
    assert "expected" not in told


def test_what_only_warns_is_shown_of_a_scenario_that_passed() -> None:
    told = scenario(
        "passed", step(1, "passed", checks=[check(status="warned"), check("end", "passed")])
    )
    assert printed(told).splitlines() == [
        "passed  x · s/x.yaml · 0.25 s · 1 warning",
        "  warned  step 1",
        "    s/x.yaml:7: replied (level: warn)",
        "      expected: dev",
        "      actual:   nobody",
    ]
    assert closed(told) == ["1 passed, 1 warning in 1.5 s"]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (scenario("passed"), "passed  x · s/x.yaml · 0.25 s"),
        (scenario("passed", case="eu"), "passed  x [eu] · s/x.yaml · 0.25 s"),
        (scenario("skipped", reason="no sandbox"), "skipped x · s/x.yaml · no sandbox"),
        (
            scenario("xfailed", step(checks=[check(), check(status="warned")]), reason="#412"),
            "xfailed x · s/x.yaml · 0.25 s · #412",
        ),
        (scenario("interrupted"), "INTERRUPTED x · s/x.yaml · 0.25 s"),
    ],
)
def test_what_needs_no_look_is_one_line(told: ScenarioResult, line: str) -> None:
    assert printed(told) == line


def test_an_xfail_that_passed_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "ok"}).team()
    told = stage.play("scenario: x\nxfail: '#412'\nsteps: [{send: '@dev hi'}]")
    assert printed(told).startswith("FAILED  x · ")
    assert "remove its `xfail`" in printed(told)
    assert closed(told, told)[1].startswith("FAILED  scenarios/s0.yaml:1: it was expected to fail")


def test_what_agents_and_files_say_draws_nothing() -> None:
    evil = "\x1b[2J::stop-commands::x"
    failure = Failure(agent="dev", turn=1, status="error", error=f"a\n{evil}")
    bad = check(evil, expected=evil, actual=f"{evil}\n{evil}")
    told = printed(
        scenario("failed", step(name=evil, checks=[bad], failures=[failure]), error=evil, case=evil)
    )
    assert "\x1b" not in told
    assert not [line for line in told.splitlines() if line.strip().startswith("::")]


def test_the_end_lists_what_went_wrong_and_counts() -> None:
    failure = Failure(agent="dev", turn=1, status="error", error="boom")
    told = [
        scenario("passed", scenario="a"),
        scenario("failed", step(checks=[check("x", "passed"), check("end")]), scenario="b"),
        scenario("error", step(status="error", failures=[failure]), scenario="c"),
        scenario("error", scenario="d", error="disk full\n  make room"),
        scenario("failed", step(checks=[check("turns")]), scenario="e", error="disk full"),
        scenario("skipped", scenario="e"),
        scenario("interrupted", scenario="f"),
    ]
    assert closed(*told, selected=8) == [
        "",
        "FAILED  s/x.yaml:7: end · b",
        "ERROR   s/x.yaml:3: dev: error · c",
        "ERROR   s/x.yaml:1: disk full · d",
        "FAILED  s/x.yaml:7: turns · e",
        "1 passed, 2 failed, 2 errors, 1 interrupted, 1 skipped, 1 not run in 1.5 s",
    ]
    assert closed(told[1]) == ["1 failed in 1.5 s"]


def test_a_chinese_reader_gets_chinese_words_and_the_same_status() -> None:
    told = scenario("failed", step(checks=[check()], name="先问"))
    text = printed(told, Words("zh"))
    assert text.splitlines() == [
        "FAILED  x · s/x.yaml · 0.25 秒",
        "  FAILED  第 1 步：先问",
        "    s/x.yaml:7: replied",
        "      期望：dev",
        "      实际：nobody",
    ]
    assert closed(told, say=Words("zh")) == ["1 failed（失败），用时 1.5 秒"]


def test_a_mode_is_told_where_nobody_was_called() -> None:
    told = [scenario("passed", mode=mode) for mode in ("live", "replay", "record")]
    told += [scenario("passed", mode="update", written=written) for written in (True, False)]
    heads = [printed(one).removeprefix("passed  x · s/x.yaml · 0.25 s") for one in told]
    assert heads == ["", " · replayed", " · recorded", " · updated", " · replayed"]
    assert closed(*told) == ["5 passed in 1.5 s · 1 live, 2 replayed, 1 recorded, 1 updated"]
    assert closed(told[0], told[0]) == ["2 passed in 1.5 s"]


def test_what_was_not_kept_is_told_with_its_reason() -> None:
    why = "an agent or arena failed"
    told = [scenario("error", mode=mode, unkept=why) for mode in ("record", "update", "replay")]
    told.append(scenario("interrupted", mode="record"))
    heads = [printed(one).partition("0.25 s · ")[2] for one in told]
    assert heads == [
        f"not recorded: {why}",
        f"not updated: {why}",
        "replayed",
        "not recorded: it was cut short",
    ]
    assert closed(*told)[-1].endswith(" · 1 replayed, 2 not recorded, 1 not updated")
    chinese = printed(told[0], Words("zh"))
    assert chinese.endswith(" · not recorded（未录制）：有成员或 arena 本身出错")


def test_a_judge_without_a_verdict_is_no_crash_and_is_counted() -> None:
    checks = [check("replies.dev[0].judge", "error", expected="", actual="prose", judge="critic")]
    told = scenario("error", step(1, "error", checks=checks))
    assert "    s/x.yaml:7: replies.dev[0].judge (no verdict of critic)" in printed(told)
    assert "crashed" not in printed(told)
    assert closed(told) == ["1 error, 1 judge error in 1.5 s"]
    assert closed(told, told)[-1] == "2 errors, 2 judge errors in 1.5 s"


PROMPT = "You plan.\nName {}.\n"


def drifted(status: str = "failed", **more: Any) -> ScenarioResult:
    """A scenario whose dev is shown another role prompt in step 2, for which it is called twice."""
    change = {"before": PROMPT.format("three risks"), "after": PROMPT.format("two risks")}
    one = Drift(kind="input", agent="dev", field="role_prompt", step=2, turn=1, calls=2, **change)
    steps = more.pop("steps", [step(2, "passed")])
    given = {"mode": "replay", "drift": [one], "drift_fails": status == "failed", **more}
    return scenario(status, *steps, **given)


@pytest.mark.parametrize(
    ("drift", "line"),
    [
        (
            Drift(kind="input", agent="a", field="members", before="x" * 99),
            "a is shown a different members",
        ),
        (
            Drift(
                kind="settings", agent="a", field="response.threshold", before="0.6", after="0.8"
            ),
            "a has a different response.threshold: 0.6 → 0.8",
        ),
        (
            Drift(kind="settings", field="config.max_responders", before="5", after=""),
            "the team has a different config.max_responders: 5 → nothing",
        ),
        (
            Drift(kind="routing", field="must", before="a, b", after="a", step=1, turn=2),
            "step 1, turn 2: must has changed: a, b → a",
        ),
        (
            Drift(kind="routing", agent="a", field="passed_over", before="1\n2", step=1),
            "step 1: a: passed_over has changed",
        ),
        (Drift(kind="left_over", agent="a", field="calls"), "a is no longer called"),
        (
            Drift(kind="left_over", field="case", before="eu"),
            "the file no longer has the case eu",
        ),
        (
            Drift(kind="miss", agent="a", field="calls", calls=3),
            "a is called, but no recorded answer is left for it (3 calls)",
        ),
    ],
)
def test_each_kind_of_drift_is_one_line_with_its_place(drift: Drift, line: str) -> None:
    told = printed(drifted(steps=[step(1, "passed")], drift=[drift])).splitlines()
    place = "s/x.yaml:3" if drift.step else "s/x.yaml:1"
    assert told[1:] == [f"  DRIFT   {place}: {line}"]


def test_a_cause_is_told_once_with_its_words_and_what_to_do() -> None:
    told = [
        drifted(scenario=f"the {name}", file=f"s/{name}.yaml", place=lambda: ("", 1))
        for name in "abcd"
    ]
    assert printed(told[0]).splitlines() == [
        "FAILED  the a · s/a.yaml · 0.25 s · replayed",
        "  DRIFT   s/a.yaml:3: step 2, turn 1: dev is shown a different role_prompt (2 calls)",
    ]
    assert closed(*told, scenario("passed", mode="live")) == [
        "",
        "drift: dev is shown a different role_prompt",
        "      You plan.",
        "    ~ Name {-three-}{+two+} risks.",
        "  in 4 scenarios, 8 calls",
        "    s/a.yaml:3 · the a",
        "    s/b.yaml:3 · the b",
        "    s/c.yaml:3 · the c",
        "    and 1 more",
        "  review the change; to accept it: `arena run --update s/a.yaml s/b.yaml "
        "s/c.yaml s/d.yaml`",
        "",
        "1 passed, 4 failed only by drift in 1.5 s · 1 live, 4 replayed",
    ]


def test_only_a_line_end_of_both_texts_is_left_out() -> None:
    one = Drift(kind="input", agent="dev", field="role_prompt", before="a" * 90, after="b\n")
    told = closed(drifted(drift=[one]))
    assert "    - " + "a" * 90 in told
    assert told.count("    + ") == 1


def test_many_names_are_left_out_of_a_command() -> None:
    told = [drifted(file=f"s/{name}.yaml") for name in "abcdef"]
    assert "`arena run --update`" in "\n".join(closed(*told))


def test_what_no_record_answers_is_to_be_recorded() -> None:
    miss = Drift(kind="miss", agent="ops", field="calls", step=2, turn=1, calls=1, follows=True)
    cause = drifted().drift[0]
    told = closed(
        drifted(scenario="a", file="s/a b.yaml", drift=[miss, cause]), drifted(file="s/c.yaml")
    )
    assert [line for line in told if line.startswith("drift: ")] == [
        "drift: dev is shown a different role_prompt"
    ]
    todo = "`arena run --update s/c.yaml`, `arena run --record 's/a b.yaml'`"
    assert f"  review the change; to accept it: {todo}" in told
    first, second = printed(drifted(drift=[miss, cause])).splitlines()[1:]
    assert "role_prompt" in first
    assert "no recorded answer is left" in second


MISS = Drift(kind="miss", agent="ops", field="calls", after="must_reply", step=2)
CASE = Drift(kind="miss", field="case", after="us")
PLANTED = Drift(kind="input", field="message", after="system: x", step=1)


@pytest.mark.parametrize(
    ("drifts", "told"),
    [
        ([[MISS, PLANTED.model_copy(update={"step": 2})]], "`arena run --record=missing s/x.yaml`"),
        ([[MISS, PLANTED]], "`arena run --record s/x.yaml`"),  # there was nothing, in an old step
        ([[CASE, PLANTED]], "`arena run --record=missing s/x.yaml`"),
        (
            [[CASE, PLANTED], [PLANTED]],
            "`arena run --update s/x.yaml`, `arena run --record=missing s/x.yaml`",
        ),
        ([[CASE, PLANTED], [PLANTED], [MISS, PLANTED]], "`arena run --record s/x.yaml`"),
    ],
)
def test_what_is_missing_is_recorded_alone_where_all_else_is_new(
    drifts: list[list[Drift]], told: str
) -> None:
    each = [drifted(case=str(number), drift=found) for number, found in enumerate(drifts)]
    first = next(line for line in closed(*each) if "review the change" in line)
    assert first == f"  review the change; to accept it: {told}"


def run(stage: Stage, wanted: Wanted) -> RunResult:
    """What came of all scenarios of the stage, recorded or replayed."""
    told: list[ScenarioResult] = []
    scenarios = stage.load_files(*sorted(stage.folder.glob("scenarios/**/*.yaml")))
    shelf = RecordingStore(scenarios, wanted)
    asyncio.run(Runner(scenarios, stage.place(), told.append, shelf=shelf).run())
    return result.of_run(told, selected=len(told), seconds=1)


FIRST = "  - send: '@dev first'\n"
NEW = "  - send: '@ops and you'\n"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (f"steps:\n{FIRST}", f"steps:\n{FIRST}{NEW}", "`arena run --record=missing a/x`"),
        (f"steps:\n{FIRST}", f"steps:\n{NEW}{FIRST}", "`arena run --record a/x`"),
        (
            f"cases: [{{id: eu}}]\nsteps:\n{FIRST}",
            f"cases: [{{id: eu}}, {{id: us}}]\nsteps:\n{FIRST}",
            "`arena run --record=missing a/x`",
        ),
        (
            f"cases: [{{id: eu}}]\nsteps:\n{FIRST}",
            f"cases: [{{id: us}}]\nsteps:\n{FIRST}",
            "`arena run --record a/x`",
        ),
        (f"steps:\n{FIRST}", "steps:\n  - send: '@dev second'\n", "`arena run --update a/x`"),
    ],
)
def test_the_command_that_is_told_takes_the_drift_over(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).agent("ops", {"say": "gone"}).team()
    (tmp_path / "scenarios" / "a").mkdir(parents=True)
    stage.scenario(f"scenario: x\n{before}", "a/x")
    run(stage, "record")
    stage.scenario(f"scenario: x\n{after}", "a/x")
    closing = [line.text for line in results.closing(run(stage, "replay"))]
    assert {line for line in closing if "review the change" in line} == {
        f"  review the change; to accept it: {told}"
    }
    commands: dict[str, Wanted] = {"=missing": "missing", "record ": "record", "update": "update"}
    run(stage, next(wanted for part, wanted in commands.items() if part in told))
    assert run(stage, "replay").exit_code == 0


def test_what_follows_from_drift_is_told_in_its_scenario_only(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "done"}).agent("ops", {"say": "gone"}).team()
    for name in "ab":
        stage.scenario(f"scenario: {name}\nsteps:\n{FIRST}", name)
    run(stage, "record")
    for name in "ab":
        stage.scenario(f"scenario: {name}\nsteps:\n{FIRST}{NEW}", name)
    whole = run(stage, "replay")
    rows = [line.split(":")[-1].strip() for line in printed(whole.scenarios[0]).splitlines()[1:4]]
    labels = [line.split()[0] for line in printed(whole.scenarios[0]).splitlines()[1:4]]
    assert labels == ["DRIFT", "follows", "follows"]
    assert rows[2] == "ops is called, but no recorded answer is left for it"
    assert [line.text for line in results.closing(whole)][1:3] == [
        "drift: a different message is sent: nothing → user: @ops and you",
        "  in 2 scenarios",
    ]
    assert "no answer left" in printed(whole.scenarios[0])
    assert "if this is expected" not in printed(whole.scenarios[0])
    (only,) = ci.commands(whole, SAY, lambda file: file)
    assert "title=drift%3A a different message is sent" in only


def test_an_xfail_that_fails_by_its_drift_is_told_for_that_alone() -> None:
    bad = step(2, "failed", checks=[check("end")])
    told = drifted(steps=[bad], reason="#412", checks=[check("turns")])
    assert len(printed(told).splitlines()) == 2
    assert not [line for line in closed(told, told) if line.startswith("FAILED")]
    whole = result.of_run([told], selected=1, seconds=1)
    (only,) = ci.commands(whole, SAY, lambda file: file)
    assert "title=drift" in only
    other = step(1, "error", failures=[Failure(agent="ops", turn=1, status="error", error="boom")])
    assert "boom" in printed(drifted(steps=[other, bad], reason="#412"))
    crashed = drifted(steps=[bad], reason="#412", checks=[check("turns", "error")])
    assert "FAILED  s/x.yaml:7: turns · x" in closed(crashed, crashed)


def test_an_update_that_kept_nothing_says_why_in_place_of_a_command() -> None:
    told = drifted("error", mode="update", unkept="an agent or arena failed")
    assert "  not accepted: an agent or arena failed" in closed(told)
    assert "review the change" not in "\n".join(closed(told))
    both = closed(told, drifted("passed", mode="update", file="s/other.yaml"))
    assert "  review the change; to accept it: `arena run --update s/other.yaml`" in both


def test_of_many_causes_those_that_touch_most_are_told() -> None:
    def told(number: int, value: str) -> ScenarioResult:
        one = Drift(kind="settings", agent="dev", field="model", before="a", after=value)
        return drifted(file=f"s/{number}.yaml", drift=[one])

    each = [told(number, str(number)) for number in range(40)]
    lines = closed(*each, told(40, "most"), told(41, "most"))
    causes = [line for line in lines if line.startswith("drift: ")]
    assert causes[0] == "drift: dev has a different model: a → most"
    assert causes[-1] == "drift: and 11 more"
    assert len(causes) == 31


def test_drift_that_only_warns_and_drift_that_was_accepted_are_no_failure() -> None:
    warned = drifted("passed")
    assert printed(warned).splitlines()[1].startswith("  drift   s/x.yaml:3: ")
    assert closed(warned)[-1] == "1 passed, 1 drifted in 1.5 s · 1 replayed"
    accepted = drifted("passed", mode="update", written=True)
    assert printed(accepted).splitlines()[1].startswith("  updated s/x.yaml:3: ")
    assert "  accepted: written into the recording" in closed(accepted)
    refused = drifted("passed", mode="update")
    assert printed(refused).splitlines()[1].startswith("  drift   s/x.yaml:3: ")


def test_an_xfail_that_drifts_says_so_in_its_line() -> None:
    told = drifted("xfailed", reason="#412")
    assert printed(told) == "xfailed x · s/x.yaml · 0.25 s · #412 · replayed · drifted"
    assert "drift: dev is shown a different role_prompt" in closed(told)


def test_a_scenario_that_drifts_and_fails_is_listed_for_what_failed() -> None:
    told = drifted(checks=[check("turns")])
    assert "FAILED  s/x.yaml:7: turns · x" in closed(told, told)


def test_a_long_diff_is_cut_and_says_so() -> None:
    one = Drift(kind="input", agent="dev", field="role_prompt", before="a\n" * 90, after="b\n" * 90)
    told = closed(drifted(drift=[one]))
    assert len(told) < 40
    assert any(re.fullmatch(r" +and \d+ more lines", line) for line in told)


def test_a_chinese_reader_is_told_of_drift_in_chinese() -> None:
    told = drifted(case="甲")
    assert printed(told, Words("zh")).splitlines()[1] == (
        "  DRIFT   s/x.yaml:3: 第 2 步、第 1 轮：dev 看到的 role_prompt 变了 (2 次调用)"
    )
    lines = closed(told, say=Words("zh"))
    assert lines[1] == "与录制不同：dev 看到的 role_prompt 变了"
    assert lines[-3] == "  请先确认；若是有意的改动：`arena run --update s/x.yaml`"
    assert lines[-1] == "1 failed only by drift（仅与录制不同），用时 1.5 秒 · 1 replayed（回放）"


def test_what_drifted_draws_nothing() -> None:
    evil = "\x1b[2J::stop-commands::x\n::error::y\n##[error]z"
    one = Drift(kind="input", agent=evil, field=evil, before=evil, after=f"{evil}!")
    told = [printed(drifted(drift=[one])), *closed(drifted(drift=[one]))]
    assert "\x1b" not in "".join(told)
    for line in "\n".join(told).splitlines():
        assert not line.strip().startswith("::")
        assert "##[" not in line


class Terminal(io.StringIO):
    """A terminal to write to."""

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        """What stands there."""
        screen = Screen(120)
        screen.write(self.getvalue())
        return screen.text


def test_progress_says_how_far_it_is_and_leaves_nothing() -> None:
    now = [0.0]
    screen = Terminal()
    progress = Progress(SAY, screen, 3, clock=lambda: now[0])
    progress.begins(1, "first")
    assert screen.text == ""  # a run that is over at once shows nothing
    progress.begins(2, "第二 \x1b[2J")
    now[0] = 2.5
    progress.tick()
    assert screen.text == "0 of 3 · 2 s · first, 第二 \\x1b[2J"
    progress.ends(1, wrong=True)
    with progress.aside():
        assert screen.text == ""
        screen.write("a line of the result\n")
    line = "1 of 3 · 1 failed · 2 s · 第二 \\x1b[2J"
    assert screen.text == f"a line of the result\n{line}"
    progress.tick()
    assert screen.text == f"a line of the result\n{line}"
    progress.ends(2, wrong=False)
    progress.close()
    assert screen.text == "a line of the result"


@given(st.integers(0, 60))
def test_progress_fits_any_terminal(width: int) -> None:
    progress = Progress(SAY, Terminal(), 1000)
    for key in range(8):
        progress.begins(key, f"场景 👩‍🔬 {key}")
    assert columns.width_of(progress.text(width)) <= width


def test_a_run_result_has_what_the_documentation_names() -> None:
    whole: RunResult = result.of_run(
        [scenario("failed", step(checks=[check()]))], selected=1, seconds=1
    )
    told = whole.model_dump(mode="json")
    assert told["exit_code"] == 1
    (one,) = told["scenarios"]
    assert {"scenario", "case", "file", "tags", "status", "reason", "seconds", "sessions"} <= {*one}
    (only,) = one["steps"]
    assert (only["kind"], only["session"], only["line"]) == ("send", None, 3)
    keys = {"file", "line", "field", "status", "expected", "actual", "judge"}
    assert {*only["checks"][0]} == keys
