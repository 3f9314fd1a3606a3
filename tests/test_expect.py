"""Expectations as functions of a conversation: what holds, what does not, and why."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_cli.ground import yamlfile
from arena_cli.ground.protocol import Message, Usage
from arena_cli.ground.yamlfile import Part
from arena_cli.scenario import checks, conversation, expect, judge
from arena_cli.scenario.checks import Verdict
from arena_cli.scenario.conversation import Conversation
from arena_cli.scenario.result import CheckResult
from arena_cli.scenario.shapes import Expect
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    MessageEvent,
    PassedOver,
    ReplyFinished,
    TurnStarted,
)


class Script:
    """Writes down events as a chain would leave them; replies arrive in the order of the calls
    here, whatever the order of call is."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._turn = 0

    def _put(self, shape: type[Event], **fields: Any) -> Script:
        seq = len(self.events) + 1
        self.events.append(shape(seq=seq, ts="2026-11-28T00:00:00.000Z", **fields))
        return self

    def _message(self, author: str, kind: str, text: str) -> Message:
        return Message(
            id=f"m{len(self.events) + 1}",
            author_id=author,
            author_name=author,
            author_type=kind,
            content=text,
            timestamp="2026-11-28T00:00:00.000Z",
        )

    def human(self, text: str, unresolved: tuple[str, ...] = ()) -> Script:
        message = self._message("user", "human", text)
        return self._put(MessageEvent, chain=1, message=message, unresolved=list(unresolved))

    def turn(self, *must: str) -> Script:
        self._turn += 1
        fields = {"chain": 1, "turn": self._turn, "depth": 0, "trigger": [], "must": list(must)}
        return self._put(TurnStarted, **fields)

    def candidates(self, *asked: str, passed_over: tuple[str, ...] = ()) -> Script:
        over = {agent: PassedOver(relevance=0.4, threshold=0.6) for agent in passed_over}
        return self._put(Candidates, turn=self._turn, asked=list(asked), passed_over=over)

    def reply(
        self, agent: str, text: str = "ok", status: str = "success", unresolved: str = ""
    ) -> Script:
        message = self._message(agent, "agent", text) if status == "success" else None
        return self._put(
            ReplyFinished,
            reply=1,
            turn=self._turn,
            phase="A",
            agent=agent,
            status=status,
            message=message,
            unresolved=unresolved.split(),
            error="no answer" if message is None else None,
        )

    def finished(self, end: str = "quiet", awaits: tuple[str, ...] = ()) -> Script:
        counts = {"turns": self._turn, "replies": 0, "usage": Usage(), "session_usage": Usage()}
        return self._put(ChainFinished, chain=1, end=end, awaits=list(awaits), **counts)

    def told(self) -> Conversation:
        return conversation.of(self.events)


def worked() -> Script:
    """The worked example; compliance answers before architect."""
    return (
        Script()
        .human("@架构师 @合规 GDPR")
        .turn("architect", "compliance")
        .reply("compliance", "GDPR 要求：用户同意")
        .reply("architect", "需求拆解如下 @全栈开发")
        .candidates("developer", passed_over=("tester",))
        .reply("developer", "收到")
        .turn("tester")
        .reply("tester", "三组用例")
        .candidates()
        .finished()
    )


def judged(script: Script, **expected: Any) -> list[CheckResult]:
    part = Part(yamlfile.plain({}, "scenarios/x.yaml"))
    return judge.checked(Expect.model_validate(expected), script.told(), part)


def holds(script: Script, **expected: Any) -> bool:
    results = judged(script, **expected)
    assert results, "nothing was checked"
    assert all(result.status != "error" for result in results), results
    return all(result.status == "passed" for result in results)


@pytest.mark.parametrize(
    ("expected", "right"),
    [
        ({"replied": ["architect", "compliance", "developer", "tester"]}, True),
        ({"replied": ["compliance", "architect", "developer", "tester"]}, False),
        ({"replied": ["architect", "compliance", "developer"]}, False),
        ({"replied": []}, False),
        ({"replied": {"include": ["architect", "tester"]}}, True),
        ({"replied": {"include": ["tester", "architect"]}}, False),
        ({"replied": {"include": ["tester", "architect"], "any_order": True}}, True),
        ({"replied": {"include": ["tester", "tester"], "any_order": True}}, False),
        ({"replied": {"exclude": ["tester"]}}, False),
        ({"replied": {"include": ["architect"], "exclude": ["nobody"]}}, True),
        ({"must": [["architect", "compliance"], ["tester"]]}, True),
        ({"must": [["compliance", "architect"], ["tester"]]}, False),
        ({"must": [["architect", "compliance"]]}, False),
        ({"asked": ["developer"]}, True),
        ({"asked": []}, False),
        ({"outcome": {"tester": "success", "developer": "success"}}, True),
        ({"outcome": {"reviewer": "not_called"}}, True),
        ({"outcome": {"reviewer": "passed_over"}}, False),
        ({"outcome": {"tester": "passed_over"}}, False),
        ({"turns": 2}, True),
        ({"turns": 1}, False),
        ({"turns": {"min": 2, "max": 3}}, True),
        ({"turns": {"min": 3}}, False),
        ({"turns": {"max": 1}}, False),
        ({"end": "quiet"}, True),
        ({"end": ["no_reply", "quiet"]}, True),
        ({"end": "no_reply"}, False),
        ({"awaits": []}, True),
        ({"awaits": ["maya"]}, False),
        ({"unresolved": []}, True),
        ({"unresolved": ["设计师"]}, False),
        ({"replies": {"architect": [{"contains": "需求"}, {"not_contains": "GDPR"}]}}, True),
        ({"replies": {"architect": [{"contains": "需求"}, {"contains": "GDPR"}]}}, False),
        ({"replies": {"tester": []}}, True),
        ({"replies": {"reviewer": []}}, False),
    ],
)
def test_each_key_holds_or_not(expected: dict[str, Any], right: bool) -> None:
    assert holds(worked(), **expected) is right


def test_a_verdict_shows_what_was_expected_and_what_was_there() -> None:
    (result,) = judged(worked(), replied=["architect"])
    assert result.status == "failed"
    assert result.field == "replied"
    assert result.expected == "architect"
    assert result.actual == "architect, compliance, developer, tester"


def test_the_outcome_is_that_of_the_last_call_then_passed_over_then_not_called() -> None:
    script = Script().human("hi").turn("dev").reply("dev", status="timeout")
    script.candidates(passed_over=("qa", "ops")).turn("dev").reply("dev").turn("ops")
    script.reply("ops", status="declined").finished()
    assert holds(script, outcome={"dev": "success", "qa": "passed_over", "ops": "declined"})
    assert holds(script, outcome={"pm": "not_called"})
    assert not holds(script, outcome={"dev": "timeout"})


def test_a_retried_reply_that_was_cancelled_counts_as_it_ended() -> None:
    script = Script().human("hi").turn("dev").reply("dev", status="cancelled").reply("dev")
    assert holds(script.finished(), outcome={"dev": "success"}, replied=["dev"])


def test_turns_count_from_one_through_all_chains_and_the_end_is_the_last_ones() -> None:
    script = Script().human("a").turn("dev").reply("dev").finished("awaiting_human", ("maya",))
    script.human("b").turn("dev").reply("dev", "again").finished("no_reply")
    assert holds(script, turns=2, end="no_reply", awaits=[], must=[["dev"], ["dev"]])
    assert [reply.turn for reply in script.told().replies()] == [1, 2]


def test_awaits_and_unresolved_are_sets_of_names() -> None:
    script = Script().human("@x @y", ("x", "y")).turn("dev").reply("dev", unresolved="z x")
    script.finished("awaiting_human", ("maya", "user"))
    assert holds(script, awaits=["user", "maya"], unresolved=["z", "y", "x"])
    assert not holds(script, unresolved=["x", "y"])


REPLIES = {"dev": ["first red", "then green"]}


@pytest.mark.parametrize(
    ("which", "right"),
    [
        ({"last": [{"contains": "green"}]}, True),
        ({"last": [{"contains": "red"}]}, False),
        ({"first": [{"contains": "red"}]}, True),
        ({"first": [{"contains": "green"}]}, False),
        ({"any": [{"contains": "red"}, {"contains": "first"}]}, True),
        ({"any": [{"contains": "red"}, {"contains": "green"}]}, False),
        ({"all": [{"regex": "red|green"}]}, True),
        ({"all": [{"contains": "red"}]}, False),
        ({"first": [{"contains": "red"}], "last": [{"contains": "red"}]}, False),
        ([{"contains": "green"}], False),
        ([{"not_contains": "blue"}], True),
    ],
)
def test_which_replies_are_meant(which: Any, right: bool) -> None:
    script = Script().human("green").turn("dev").reply("dev", "first red")
    script.turn("dev").reply("dev", "then green").finished()
    assert holds(script, replies={"dev": which}) is right
    assert holds(script, replies={"*": which}) is right


def test_everybody_is_all_replies_of_whoever_and_at_least_one() -> None:
    assert holds(worked(), replies={"*": {"any": [{"contains": "三组用例"}]}})
    assert not holds(worked(), replies={"*": [{"contains": "三组用例"}]})
    assert not holds(Script().human("x").finished("no_reply"), replies={"*": []})


def test_the_reply_that_failed_a_check_is_named() -> None:
    (result,) = judged(worked(), replies={"*": [{"not_contains": "收到"}]})
    assert result.field == "replies.*[0].not_contains"
    assert result.actual == 'developer in turn 1: "收到" in "收到"'


def test_a_check_that_crashes_is_an_error_and_the_others_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(*_: Any, **__: Any) -> Verdict:
        raise RuntimeError("boom")

    monkeypatch.setitem(expect._TEXT_CHECKS, "contains", crash)
    results = judged(worked(), replies={"architect": [{"contains": "x"}]}, turns=2)
    assert {result.field: result.status for result in results} == {
        "replies.architect[0].contains": "error",
        "turns": "passed",
    }
    assert judge.status_of(results, []) == "error"


def test_texts_are_compared_in_nfkc() -> None:
    decomposed = unicodedata.normalize("NFD", "Zoë agrees, ＧＤＰＲ")
    assert checks.contains(decomposed, ["Zoë", "GDPR"]).holds
    assert not checks.not_contains("GDPR", ["ＧＤＰＲ"]).holds
    assert checks.regex("版本１２", r"版本\d+$").holds
    assert not checks.contains("abc", ["ABC"]).holds
    assert checks.contains("Straße", ["STRASSE"], ignore_case=True).holds
    assert not checks.not_contains("Straße", ["STRASSE"], ignore_case=True).holds
    assert checks.regex("APPROVED", "approved", ignore_case=True).holds
    assert not checks.regex("APPROVED", "approved").holds


@pytest.mark.parametrize("pattern", ["需求（.+）$", "需求\\（.+\\）$", "需求[（].+[）]$"])
def test_full_width_brackets_in_a_pattern_stay_characters(pattern: str) -> None:
    assert checks.regex("需求(用户管理)", pattern).holds
    assert checks.regex("需求（用户管理）", pattern).holds
    assert not checks.regex("需求用户管理", pattern).holds


@settings(deadline=None)
@given(st.text(max_size=30), st.text(min_size=1, max_size=5), st.booleans())
def test_contains_and_not_contains_are_each_others_opposite(
    text: str, part: str, ignore_case: bool
) -> None:
    there = checks.contains(text, [part], ignore_case=ignore_case).holds
    assert there is not checks.not_contains(text, [part], ignore_case=ignore_case).holds


def test_a_long_text_is_shown_around_what_matched() -> None:
    text = "a" * 500 + " secret " + "b" * 500
    verdict = checks.not_contains(text, ["secret"])
    assert not verdict.holds
    assert '" secret' not in verdict.actual
    assert "a secret b" in verdict.actual
    assert len(verdict.actual) < 300
