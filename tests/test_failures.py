"""What follows a failed reply, by its class of error: another attempt, the others, the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    AgentError,
    AgentInput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    FailureRules,
    call,
    errors,
    rules,
)
from program import Program
from support import CountingClock, Puppets, Talk, member, puppet, team

CODES = ("timeout", "refused", "overloaded", "unavailable", "protocol")
STRATEGIES = ("skip", "retry", "abort")
backoff = call.compute_backoff


@pytest.mark.parametrize("on_team", [False, True], ids=["agent", "team"])
@pytest.mark.parametrize(
    ("fail", "attempts", "end"),
    [("overloaded", 3, "quiet"), ("timeout", 1, "quiet"), ("error", 1, "failed")],
)
def test_each_class_of_error_has_its_own_strategy(
    tmp_path: Path, on_team: bool, fail: str, attempts: int, end: str
) -> None:
    strategy = {"default": "abort", "overloaded": "retry", "timeout": "skip"}
    here: dict[str, Any] = {"on_failure": strategy, "retries": 2}
    people = team(
        member("a", [{"fail": fail}], **({} if on_team else here)),
        member("b", [{"say": "ok"}]),
        **(here if on_team else {}),
    )
    talk = Talk(tmp_path, people)
    assert talk.send("@a @b go").end == end
    (failed,) = (event for event in talk.of("reply_finished") if event.agent == "a")
    assert failed.attempts == attempts
    code = {"error": "protocol"}.get(fail, fail)
    assert (failed.error_code, failed.retryable) == (code, True)


def test_a_retry_ends_where_the_next_error_is_of_another_class(tmp_path: Path) -> None:
    replies = [{"when": {"call": 1}, "fail": "overloaded"}, {"fail": "error"}]
    strategy = {"overloaded": "retry", "protocol": "abort"}
    talk = Talk(tmp_path, team(member("a", replies, on_failure=strategy), member("b")))
    assert talk.send("@a go").end == "failed"
    assert talk.last("reply_finished").attempts == 2


_rules = st.none() | st.sampled_from(STRATEGIES)
_mappings = st.dictionaries(st.sampled_from(("default", *CODES)), st.sampled_from(STRATEGIES)).map(
    FailureRules.model_validate
)


@given(_rules | _mappings, st.sampled_from(STRATEGIES) | _mappings, st.sampled_from(CODES))
def test_the_nearest_rule_that_names_the_error_decides(own: Any, common: Any, code: str) -> None:
    agent = puppet("a", on_failure=own)
    people = team(agent, on_failure=common)
    expected = "skip"
    for source in (common, own):  # the nearer overrides
        if isinstance(source, FailureRules):
            expected = getattr(source, code) or source.default or expected
        elif source is not None:
            expected = source
    assert rules.choose_strategy(agent, people, code) == expected


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (AgentRefused("a", "no"), "refused", False),
        (AgentProtocolError("a", "cut", again=False), "protocol", False),
        (AgentOverloaded("a", "busy"), "overloaded", True),
        (errors.AgentUnavailable("a", "down"), "unavailable", True),
        (errors.AgentTimeout("a", "late"), "timeout", True),
    ],
)
def test_a_failed_reply_has_its_class_and_whether_a_retry_may_help(
    tmp_path: Path, error: AgentError, code: str, retryable: bool
) -> None:
    def fail(_: AgentInput) -> str:
        raise error

    talk = Talk(tmp_path, team(puppet("a")), adapter_type=Puppets({"a": fail}))
    talk.send("@a go")
    finished = talk.last("reply_finished")
    assert (finished.error_code, finished.retryable) == (code, retryable)


def test_a_reply_that_did_not_fail_has_no_class(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("a", [{"say": "ok"}])))
    talk.send("go")
    assert not {"error_code", "retryable"} & set(talk.records()[-2])
    assert talk.last("reply_finished").error_code is None


def test_the_wait_before_a_retry_begins_with_retry_delay_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "compute_backoff", backoff)
    waits: list[float] = []

    class Clock(CountingClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)

        def jitter(self) -> float:
            return 1.0

    for keys, rules_of_team, expected in (
        ({}, {}, [1, 2, 4]),
        ({}, {"retry_delay_s": 0.25}, [0.25, 0.5, 1]),
        ({"retry_delay_s": 20}, {"retry_delay_s": 0.25}, [20, 30, 30]),
        ({"retry_delay_s": 45}, {}, [45, 45, 45]),
    ):
        waits.clear()
        agent = member("a", [{"fail": "overloaded"}], on_failure="retry", timeout_s=3600, **keys)
        talk = Talk(tmp_path, team(agent, **rules_of_team), clock=Clock(), name=f"s{expected[0]}")
        talk.send("@a go")
        assert waits == expected


def test_the_class_is_in_the_events_and_the_same_in_a_replay(program: Program) -> None:
    program.program("bot", "exit", "3", on_failure={"protocol": "skip"})
    program.agent("dev", "ok").team()
    program.scenario(
        "scenario: S\nsteps:\n  - send: '@bot @dev go'\n    expect: {outcome: {bot: error}}"
    )
    assert program.run("run", "--record").code == 0
    for mode in ((), ("--replay",)):
        done = program.run("run", "--keep", "all", *mode)
        assert done.code == 0, done.stderr
    kept = sorted((program.folder / "sessions").glob("2*"))
    assert kept
    for folder in kept:
        (failed,) = (
            record
            for record in program.records(folder.name)
            if record["type"] == "reply_finished" and record["agent"] == "bot"
        )
        assert (failed["error_code"], failed["retryable"]) == ("protocol", True)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
