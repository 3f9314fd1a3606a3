"""`similar`: a figure by a measure that has a name, for scripts with spaces and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checking import checked, faults, holds, stage_in
from hypothesis import given
from hypothesis import strategies as st
from product import CheckContext, Checks, Subject, check_kinds
from stage import Stage

ZH = "登录分为三步：认证、会话和审计"
EN = "Roll back release 812, then tell the customers by noon"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return stage_in(tmp_path)


@pytest.mark.parametrize(
    ("to", "text", "right"),
    [
        (ZH, "登录分三步：认证、会话、审计", True),
        (ZH, "今天下午三点开会，请带上电脑", False),
        (EN, "First roll back release 812, then tell all customers by noon.", True),
        (EN, "Please bring a laptop to the meeting at three this afternoon", False),
        ("はい、実装します", "はい、すぐ実装します", True),
        ("จองตั๋วแล้ว", "จองตั๋วแล้วครับ", True),
    ],
)
def test_the_usual_measure_tells_near_from_far(
    stage: Stage, to: str, text: str, right: bool
) -> None:
    assert holds(stage, text, {"similar": {"to": to, "min": 0.7}}) is right


@pytest.mark.parametrize(
    ("measure", "text", "figure"),
    [
        ("words", "one two three four", "1"),
        ("words", "one two four three", "0.75"),
        ("words", "one, two; THREE four!", "0.75"),
        ("any_order", "four three two one", "1"),
        ("any_order", "one one two", "0.5714"),
        ("characters", "one two three four", "1"),
        ("characters", "one two three for", "0.9714"),
        ("part", "so then: one two three four, and so on and on", "1"),
        ("part", "one", "0.4"),
        ("words", "🙂", "0"),
    ],
)
def test_the_figure_and_its_measure_are_told(
    stage: Stage, measure: str, text: str, figure: str
) -> None:
    check = {"similar": {"to": "one two three four", "min": 1, "measure": measure}}
    (result,) = checked(stage, text, check)
    assert result.status == ("passed" if figure == "1" else "failed")
    assert result.expected == f'similar to "one two three four", at least 1 by {measure}'
    assert f"{figure} by {measure}: " in result.actual


def test_case_counts_unless_it_is_ignored_and_width_never_does(stage: Stage) -> None:
    check = {"similar": {"to": "ship V２ now", "min": 1}}
    assert holds(stage, "ship V2 now", check)
    assert not holds(stage, "Ship v2 Now", check)
    assert holds(stage, "Ship v2 Now", {**check, "ignore_case": True})


def test_one_word_in_many_is_not_the_same(stage: Stage) -> None:
    check = {"similar": {"to": "go " * 9000, "min": 1}}
    assert holds(stage, "go " * 9000, check)
    assert not holds(stage, "go " * 8999 + "no", check)


def figure(text: str, to: str, measure: str) -> float:
    checks = Checks.model_validate({"similar": {"to": to, "min": 1, "measure": measure}})
    verdict = check_kinds.all_of(Subject(text, CheckContext(Path())), checks)
    value = float(verdict.actual.partition(" ")[0])
    assert verdict.holds is (value == 1)
    return value


SOME = st.text("ab 好的", max_size=12).filter(str.strip)


@given(SOME, SOME, st.sampled_from(["words", "any_order", "characters"]))
def test_figures_lie_between_nothing_and_the_same(one: str, other: str, measure: str) -> None:
    value = figure(one, other, measure)
    assert 0 <= value <= 1
    assert figure(other, one, measure) == value
    assert figure(one, one, measure) == 1


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ({"to": "x", "min": 80}, "min: must be at most 1, not 80"),
        ({"to": "x", "min": 0}, "min: must be more than 0, not 0"),
        ({"to": "x"}, "min: is missing"),
        ({"to": " ", "min": 1}, "`to` is empty"),
        ({"to": "🙂", "min": 1}, "measure: characters"),
        ({"to": "x", "min": 1, "measure": "word"}, "must be one of words, characters"),
        ("x", "must be a mapping"),
    ],
)
def test_what_cannot_be_measured_is_told(stage: Stage, given_: Any, what: str) -> None:
    (fault,) = faults(stage, {"similar": given_})
    assert what in fault
