"""Expectations as functions of a conversation: what holds, what does not, and why."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    Attachment,
    Candidates,
    ChainFinished,
    CheckContext,
    CheckResult,
    Event,
    Expect,
    Message,
    MessageEvent,
    PassedOver,
    ReplyFinished,
    ReplyStarted,
    StructuredContent,
    TurnStarted,
    Usage,
    Verdict,
    check_kinds,
    evaluate,
    read_conversation,
    text_checks,
)
from pydantic import ValidationError


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

    def started(self, agent: str, adapter: str) -> Script:
        fields = {"reply": 1, "phase": "A", "invocation": "must_reply", "attempt": 1}
        counts = {"input_hash": "", "input_tokens": 1}
        return self._put(
            ReplyStarted, turn=self._turn, agent=agent, adapter=adapter, **fields, **counts
        )

    def system(self, text: str) -> Script:
        return self._put(MessageEvent, message=self._message("system", "system", text))

    def candidates(self, *asked: str, passed_over: tuple[str, ...] = ()) -> Script:
        over = {agent: PassedOver(relevance=0.4, threshold=0.6) for agent in passed_over}
        return self._put(Candidates, turn=self._turn, asked=list(asked), passed_over=over)

    def reply(
        self,
        agent: str,
        text: str = "ok",
        status: str = "success",
        unresolved: str = "",
        phase: str = "A",
        usage: Usage | None = None,
        ms: int = 0,
        **message_fields: Any,
    ) -> Script:
        message = self._message(agent, "agent", text) if status == "success" else None
        if message:
            message = message.model_copy(update=message_fields)
        return self._put(
            ReplyFinished,
            reply=1,
            turn=self._turn,
            phase=phase,
            agent=agent,
            status=status,
            message=message,
            usage=usage,
            latency_ms=ms,
            unresolved=unresolved.split(),
            error="no answer" if message is None else None,
        )

    def finished(self, end: str = "quiet", awaits: tuple[str, ...] = ()) -> Script:
        counts = {"turns": self._turn, "replies": 0, "usage": Usage(), "session_usage": Usage()}
        return self._put(ChainFinished, chain=1, end=end, awaits=list(awaits), **counts)

    def told(self) -> CheckContext:
        return CheckContext(Path(), read_conversation(self.events))


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
    shape = Expect.model_validate(expected)
    return evaluate.checked(shape, script.told(), lambda _: ("scenarios/x.yaml", 1), ("expect",))


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


def test_what_no_text_was_held_against_is_told_too() -> None:
    wanted = [{"contains": "15"}, {"not": {"regex": "x"}}]
    (result,) = judged(worked(), system=wanted)
    assert result.expected == 'a system message that contains "15" and not: matches /x/'
    assert result.actual == "no system message"


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({"max_words": 3}, "max_words"),
        ({"judge": "x"}, "judge"),
        ({"python": "a.py:f"}, "python"),
        (
            {"any_of": [{"language": "zh", "max_chars": 9, "ignore_case": True}]},
            "max_chars and lan",
        ),
        ({"any_of": [{"language": "zh", "contains": "x", "ignore_case": True}]}, None),
        ({"not": {"equals": "x"}}, None),
        ({"snapshot": True}, None),
    ],
)
def test_case_means_nothing_to_some_checks(check: dict[str, Any], told: str | None) -> None:
    expected = {"replies": {"tester": [{"ignore_case": True, **check}]}}
    if told is None:
        Expect.model_validate(expected)
        return
    with pytest.raises(ValidationError, match=f"`ignore_case` has no effect on {told}"):
        Expect.model_validate(expected)


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

    monkeypatch.setitem(check_kinds.KINDS, "contains", check_kinds.Kind(crash, crash))
    results = judged(worked(), replies={"architect": [{"contains": "x"}]}, turns=2)
    assert {result.field: result.status for result in results} == {
        "replies.architect[0].contains": "error",
        "turns": "passed",
    }
    assert evaluate.status_of(results, []) == "error"


def test_texts_are_compared_in_nfkc() -> None:
    decomposed = unicodedata.normalize("NFD", "Zoë agrees, ＧＤＰＲ")
    assert text_checks.contains(decomposed, ["Zoë", "GDPR"]).holds
    assert not text_checks.not_contains("GDPR", ["ＧＤＰＲ"]).holds
    assert text_checks.regex("版本１２", r"版本\d+$").holds
    assert not text_checks.contains("abc", ["ABC"]).holds
    assert text_checks.contains("Straße", ["STRASSE"], ignore_case=True).holds
    assert not text_checks.not_contains("Straße", ["STRASSE"], ignore_case=True).holds
    assert text_checks.regex("APPROVED", "approved", ignore_case=True).holds
    assert not text_checks.regex("APPROVED", "approved").holds


@pytest.mark.parametrize("pattern", ["需求（.+）$", "需求\\（.+\\）$", "需求[（].+[）]$"])
def test_full_width_brackets_in_a_pattern_stay_characters(pattern: str) -> None:
    assert text_checks.regex("需求(用户管理)", pattern).holds
    assert text_checks.regex("需求（用户管理）", pattern).holds
    assert not text_checks.regex("需求用户管理", pattern).holds


@settings(deadline=None)
@given(st.text(max_size=30), st.text(min_size=1, max_size=5), st.booleans())
def test_contains_and_not_contains_are_each_others_opposite(
    text: str, part: str, ignore_case: bool
) -> None:
    there = text_checks.contains(text, [part], ignore_case=ignore_case).holds
    assert there is not text_checks.not_contains(text, [part], ignore_case=ignore_case).holds


def test_a_long_text_is_shown_around_what_matched() -> None:
    text = "a" * 500 + " secret " + "b" * 500
    verdict = text_checks.not_contains(text, ["secret"])
    assert not verdict.holds
    assert '" secret' not in verdict.actual
    assert "a secret b" in verdict.actual
    assert len(verdict.actual) < 300


def rich() -> Script:
    """A live agent and a scripted one; one failed, one declined, one was passed over."""
    return (
        Script()
        .human("go")
        .system("15 minutes without an answer")
        .turn("dev", "qa")
        .started("dev", "python")
        .started("qa", "scripted")
        .reply(
            "dev",
            "Plan A, done",
            usage=Usage(input_tokens=100, output_tokens=20, cost_usd=0.02),
            ms=1500,
            mentions=["qa", "maya"],
            structured=[
                StructuredContent(type="task_list", data={"items": [{"t": "测试", "ok": True}]}),
                StructuredContent(type="diff", data="-a\n+b"),
            ],
            attachments=[Attachment(name="plan.md", path="plan.md")],
        )
        .reply("qa", status="declined", ms=9000)
        .candidates("pm", passed_over=("ops",))
        .started("pm", "python")
        .reply("pm", status="timeout", ms=700, phase="B")
        .turn("ops")
        .reply("ops", "ok")
        .finished()
    )


@pytest.mark.parametrize(
    ("expected", "right"),
    [
        ({"silent": ["qa", "nobody"]}, True),
        ({"silent": ["dev"]}, False),
        ({"silent": ["pm"]}, False),
        ({"passed_over": {"ops": {}}}, True),
        ({"passed_over": {"ops": {"relevance": {"max": 0.5}}}}, True),
        ({"passed_over": {"ops": {"relevance": 0.4}}}, True),
        ({"passed_over": {"ops": {"relevance": {"min": 0.5}}}}, False),
        ({"passed_over": {"qa": {}}}, False),
        ({"replies_count": 2}, True),
        ({"replies_count": {"max": 1}}, False),
        ({"tokens": 120}, True),
        ({"tokens": {"max": 119}}, False),
        ({"latency_s": {"min": 2.2, "max": 2.2}}, True),
        ({"latency_s": {"max": 2}}, False),
        ({"system": [{"contains": "15 minutes"}, {"not_contains": "16"}]}, True),
        ({"system": [{"contains": "16 minutes"}]}, False),
        ({"timeline": [{"agent": "dev"}, {"agent": "pm", "status": "timeout"}]}, True),
        ({"timeline": [{"agent": "pm"}, {"agent": "dev"}]}, False),
        ({"timeline": [{"turn": 1, "phase": "B"}]}, True),
        ({"timeline": [{"turn": 2, "phase": "B"}]}, False),
        ({"timeline": [{"turn": 2, "agent": "ops"}]}, True),
        ({"timeline": [{"agent": "dev", "mentions": ["qa"], "contains": "done"}]}, True),
        ({"timeline": [{"agent": "dev", "mentions": ["pm"]}]}, False),
        ({"timeline": [{"agent": "dev", "mentions": {"exactly": ["maya", "qa"]}}]}, True),
        ({"timeline": [{"agent": "dev", "mentions": {"exactly": ["qa"]}}]}, False),
        ({"timeline": [{"agent": "ops", "mentions": {"exactly": []}}]}, True),
        ({"timeline": [{"agent": "dev", "contains": "done", "max_words": 2}]}, False),
        ({"timeline_exact": [{}, {}, {}, {}]}, None),
        ({"timeline_exact": [{"agent": a} for a in ("dev", "qa", "pm", "ops")]}, True),
        ({"timeline_exact": [{"agent": a} for a in ("dev", "qa", "pm")]}, False),
        ({"timeline_exact": [{"agent": a} for a in ("dev", "qa", "pm", "ops", "ops")]}, False),
        ({"timeline_exact": [{"agent": a} for a in ("qa", "dev", "pm", "ops")]}, False),
        ({"structured": ["task_list", "diff"]}, True),
        ({"structured": ["code_block"]}, False),
        ({"structured": [{"type": "task_list", "agent": "dev", "contains": "测试"}]}, True),
        ({"structured": [{"type": "task_list", "contains": "items[0].ok: true"}]}, True),
        ({"structured": [{"type": "task_list", "agent": "qa"}]}, False),
        ({"structured": {"diff": [{"regex": r"^\+b$|\+b"}, {"contains": "-a"}]}}, True),
        ({"structured": {"diff": [{"contains": "+c"}]}}, False),
        ({"attachments": ["plan.md"]}, True),
        ({"attachments": ["Plan.md"]}, False),
        ({"attachments": {"plan.md": [{"starts_with": "# Plan"}]}}, True),
        ({"attachments": [{"name": "plan.md", "agent": "dev", "contains": "nothing"}]}, False),
    ],
)
def test_each_further_key_holds_or_not(
    tmp_path: Path, expected: dict[str, Any], right: bool | None
) -> None:
    if right is None:
        with pytest.raises(ValueError, match="a row needs"):
            Expect.model_validate(expected)
        return
    (tmp_path / "plan.md").write_text("# Plan\n好", encoding="utf-8")
    told = CheckContext(tmp_path, read_conversation(rich().events))
    shape = Expect.model_validate(expected)
    results = evaluate.checked(shape, told, lambda _: ("x.yaml", 1), ("expect",))
    assert results
    assert all(one.status in ("passed", "failed") for one in results), results
    assert all(one.status == "passed" for one in results) is right, results


def test_an_attachment_that_is_gone_is_an_error_not_a_failure() -> None:
    (result,) = judged(rich(), attachments={"plan.md": [{"not_contains": "secret"}]})
    assert result.status == "error"


def test_a_cost_that_is_not_known_is_not_free() -> None:
    live = Script().human("x").turn("dev").started("dev", "python").reply("dev").finished()
    assert not holds(live, cost_usd={"max": 5})
    assert not holds(live, cost_usd={"max": 5, "unknown": "fail"})
    assert holds(live, cost_usd={"max": 5, "unknown": "pass"})
    scripted = Script().human("x").turn("dev").started("dev", "scripted").reply("dev").finished()
    assert holds(scripted, cost_usd=0)
    assert not holds(scripted, cost_usd={"min": 0.01})
    told = Script().human("x").turn("dev").started("dev", "python")
    told.reply("dev", usage=Usage(cost_usd=0.02)).finished()
    assert holds(told, cost_usd=0.02)
    assert not holds(told, cost_usd={"max": 0.01})


def test_latency_is_judged_only_where_agents_are_live() -> None:
    scripted = Script().human("x").turn("dev").started("dev", "scripted").reply("dev", ms=99_000)
    (result,) = judged(scripted.finished(), latency_s={"max": 1})
    assert (result.status, "not judged" in result.actual) == ("passed", True)
    recorded = rich().told()
    recorded.live = False
    shape = Expect.model_validate({"latency_s": {"max": 1}})
    (result,) = evaluate.checked(shape, recorded, lambda _: ("x.yaml", 1), ("expect",))
    assert (result.status, "not judged" in result.actual) == ("passed", True)


@pytest.mark.parametrize(
    ("check", "text", "right"),
    [
        ({"equals": "Zoë"}, " Zoë\n", True),
        ({"equals": "zoe"}, "ZOE", False),
        ({"equals": "zoe", "ignore_case": True}, "ZOE", True),
        ({"starts_with": "好"}, "好的", True),
        ({"starts_with": "的"}, "好的", False),
        ({"max_chars": 2}, "好的", True),
        ({"max_chars": 1}, "好的", False),
        ({"max_words": 3}, "don't re-run p99", True),
        ({"max_words": 2}, "don't re-run p99", False),
        ({"max_words": 3}, "好的 ok", True),
        ({"max_words": 2}, "好的 ok", False),
        ({"language": "zh"}, "好的，用 PostgreSQL 和 Redis 实现 @dev", True),
        ({"language": "zh"}, "please roll back 812", False),
        ({"language": "zh"}, "はい、実装します", False),
        ({"language": "ja"}, "はい、実装します", True),
        ({"language": "ko"}, "네, 배포했습니다 v2", True),
        ({"language": "zh"}, "```\nlong code in english words\n``` 好", True),
        ({"language": "zh"}, "12:30 ...", False),
        ({"not": {"contains": "no", "regex": "x+"}}, "yes", True),
        ({"not": {"contains": "no", "regex": "y.s"}}, "yes", False),
        ({"any_of": [{"contains": "a"}, {"contains": "b", "max_chars": 1}]}, "b", True),
        ({"any_of": [{"contains": "a"}, {"contains": "b", "max_chars": 1}]}, "bb", False),
        ({"any_of": [{"not": {"contains": "b"}}]}, "bb", False),
        ({"not": {"contains": "hello"}, "ignore_case": True}, "HELLO", False),
        (
            {"any_of": [{"not": {"equals": "x"}}, {"contains": "y"}], "ignore_case": True},
            "X",
            False,
        ),
        ({"any_of": [{"contains": "hello"}], "ignore_case": True}, "HELLO", True),
    ],
)
def test_each_check_on_a_text(check: dict[str, Any], text: str, right: bool) -> None:
    script = Script().human("x").turn("dev").reply("dev", text).finished()
    (result,) = judged(script, replies={"dev": [check]})
    assert result.status == ("passed" if right else "failed"), result
    assert result.expected
    assert result.actual


@pytest.mark.parametrize(
    "check",
    [
        {},
        {"ignore_case": True},
        {"contains": "a", "equals": "b"},
        {"not": {}},
        {"any_of": []},
        {"any_of": [{}]},
        {"language": "Chinese"},
        {"max_words": -1},
        {"contains": "a", "level": "loud"},
        {"regex": "("},
    ],
)
def test_a_check_that_checks_nothing_is_refused(check: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the wording is tested with the files
        Expect.model_validate({"replies": {"dev": [check]}})


def test_a_warning_is_told_and_does_not_fail() -> None:
    results = judged(
        rich(),
        replies={"dev": [{"contains": "nope", "level": "warn"}, {"contains": "Plan"}]},
        system=[{"contains": "nope", "level": "warn"}],
    )
    assert sorted(one.status for one in results) == ["passed", "warned", "warned"]
    assert evaluate.status_of(results, []) == "passed"


def test_the_row_that_is_not_there_is_pointed_at() -> None:
    rows = [{"agent": "dev"}, {"agent": "ops", "phase": "B"}]
    (result,) = judged(rich(), timeline=rows)
    assert result.field == "timeline[1]"
    assert "ops in turn 2: phase is A" in result.actual
    (result,) = judged(rich(), timeline_exact=[{"agent": "dev"}, {"agent": "pm"}])
    assert result.field == "timeline_exact[1]"
    assert "row 2: agent is qa" in result.actual


def test_a_failure_is_named_by_a_row_with_its_status() -> None:
    told = rich().told()

    def unnamed(step: dict[str, Any], whole: dict[str, Any]) -> list[str]:
        expects = (Expect.model_validate(step), Expect.model_validate(whole))
        rows = evaluate.Rows(expects[1])
        return [failure.agent for failure in evaluate.unnamed(told, *expects, rows, turns_before=3)]

    row = {"agent": "pm", "status": "timeout"}
    assert unnamed({}, {}) == ["pm"]
    assert unnamed({"timeline": [row]}, {}) == []
    assert unnamed({"timeline_exact": [{**row, "turn": 1}]}, {}) == []
    assert unnamed({"timeline": [{**row, "turn": 2}]}, {}) == ["pm"]
    assert unnamed({"timeline": [{"agent": "pm"}]}, {}) == ["pm"]
    assert unnamed({"timeline": [{**row, "status": "error"}]}, {}) == ["pm"]
    assert unnamed({}, {"timeline": [{**row, "turn": 4}]}) == []
    assert unnamed({}, {"timeline": [{**row, "turn": 1}]}) == ["pm"]


def test_a_row_names_one_failure() -> None:
    script = Script().human("x").turn("dev").reply("dev", status="error").turn("dev")
    told = script.reply("dev", status="error").finished("failed").told()
    row = {"agent": "dev", "status": "error"}

    def unnamed(rows: list[dict[str, Any]]) -> list[int]:
        step = Expect.model_validate({"timeline": rows})
        whole = Expect()
        found = evaluate.unnamed(told, step, whole, evaluate.Rows(whole), turns_before=0)
        return [failure.turn for failure in found]

    assert unnamed([row]) == [2]
    assert unnamed([{**row, "turn": 2}]) == [1]
    assert unnamed([row, row]) == []


@pytest.mark.parametrize("status", ["error", "timeout", "declined"])
def test_a_row_of_a_call_that_said_nothing_passes_no_check(status: str) -> None:
    script = Script().human("x").turn("dev").reply("dev", status=status).finished()
    for row in (
        {"not_contains": "secret"},
        {"max_words": 10},
        {"equals": ""},
        {"mentions": {"exactly": []}},
        {"mentions": []},
    ):
        assert not holds(script, timeline=[{"agent": "dev", **row}])
        assert not holds(script, timeline_exact=[{"agent": "dev", "status": status, **row}])
    assert holds(script, timeline=[{"agent": "dev", "status": status}])


def test_a_check_that_only_warns_fails_nothing_in_company() -> None:
    script = Script().human("x").system("note").turn("dev").reply("dev", "hi").finished()
    wanted = [{"contains": "hi"}, {"contains": "zz", "level": "warn"}]
    assert [one.status for one in judged(script, replies={"dev": {"any": wanted}})] == [
        "passed",
        "warned",
    ]
    wanted = [{"contains": "note"}, {"contains": "zz", "level": "warn"}]
    assert [one.status for one in judged(script, system=wanted)] == ["passed", "warned"]


def test_what_is_expected_empty_is_none() -> None:
    assert not holds(rich(), attachments=[])
    assert not holds(rich(), structured={})
    assert not holds(rich(), system=[])
    plain = Script().human("x").turn("dev").reply("dev").finished()
    assert holds(plain, attachments=[], structured=[], system=[])
    for key in ("timeline", "silent", "outcome", "passed_over", "replies"):
        with pytest.raises(ValueError, match="at least 1"):
            Expect.model_validate({key: {} if key in ("outcome", "passed_over", "replies") else []})


def test_an_id_in_two_spellings_is_refused() -> None:
    twice = {"\u00e9": "error", "e\u0301": "success"}
    with pytest.raises(ValueError, match="in two spellings"):
        Expect.model_validate({"outcome": twice})


def test_without_the_library_a_language_of_its_kind_is_an_error() -> None:
    script = Script().human("x").turn("dev").reply("dev", "please roll back").finished()
    (result,) = judged(script, replies={"dev": [{"language": "en"}]})
    try:
        import py3langid  # noqa: F401 - is it there?
    except ImportError:
        assert result.status == "error"
        assert "arena-agents[language]" in result.actual
    else:
        assert result.status == "passed"
