"""Budgets: a call that would pass a bound is not made; the chain pauses, or works with less."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOutput,
    AgentRefused,
    ControlRequest,
    ModelFacts,
    Usage,
    UsageError,
    budget_rows,
    events,
    read_allowance,
)
from program import Program
from support import Puppets, Talk, puppet, team

OUTPUT = 100
BIG = 10**9


def agent(agent_id: str, **profile: Any) -> Any:
    """A puppet whose answers may have 100 tokens."""
    profile.setdefault("context", {"max_output_tokens": OUTPUT})
    return puppet(agent_id, retries=1, retry_delay_s=0.001, **profile)


def uses(tokens: int, text: str = "well", **usage: Any) -> Callable[[AgentInput], AgentOutput]:
    """An answer that uses so many tokens."""
    return lambda _: AgentOutput(content=text, usage=Usage(output_tokens=tokens, **usage))


def talk_of(
    folder: Path, budget: dict[str, Any], answers: dict[str, Any], **config: Any
) -> tuple[Talk, Puppets]:
    """A session of a team of puppets with that budget."""
    puppets = Puppets(answers)
    members = team(*map(agent, answers), budget=budget, **config)
    return Talk(folder, members, adapter_type=puppets), puppets


def raise_by(talk: Talk, *texts: str) -> Any:
    """Raise the budget and continue, as `arena resume --budget` does."""
    with talk.open() as session:
        session.carry_out(read_allowance(texts))
        return asyncio.run(session.last(session.resume()))


def estimates(talk: Talk) -> list[int]:
    """The estimates of the calls, by the events."""
    return [event.input_tokens + OUTPUT for event in talk.of("reply_started")]


def measure(folder: Path) -> int:
    """The estimate of the first call of `a`, whose team is `a, b, c`."""
    answers = dict.fromkeys("abc", uses(1))
    talk, _ = talk_of(folder / "measured", {"tokens": {"chain": BIG}}, answers)
    talk.send("@a go")
    return estimates(talk)[0]


def test_the_calls_that_fit_are_made_and_the_chain_pauses(tmp_path: Path) -> None:
    one = measure(tmp_path)
    answers = {name: uses(one, name) for name in "abc"}
    talk, puppets = talk_of(tmp_path, {"tokens": {"chain": 2 * one + 50}}, answers)
    assert talk.send("@a @b @c go").type == "chain_paused"
    assert talk.outcomes() == [("a", "success"), ("b", "success")]
    paused = talk.last("chain_paused")
    assert paused.reason == "budget"
    assert re.fullmatch(
        rf"chain: 1,\d+ of {2 * one + 50:,} tokens, with the next call of c", paused.detail
    )

    assert talk.resume().type == "chain_paused"
    assert raise_by(talk, "+10tokens").type == "chain_paused"
    assert raise_by(talk, f"+{one}tokens").type == "chain_finished"
    assert talk.outcomes() == [("a", "success"), ("b", "success"), ("c", "success")]
    assert [len(puppets.inputs[name]) for name in "abc"] == [1, 1, 1]
    assert [event.tokens for event in talk.of("budget")] == [10, one]
    # Whoever comes late in a phase sees none of its other replies.
    assert [message.content for message in puppets.inputs["c"][0].messages] == ["@a @b @c go"]


def test_an_agent_whose_turn_waits_for_its_first_call_is_shown_what_a_person_adds(
    tmp_path: Path,
) -> None:
    one = measure(tmp_path)
    answers = {"a": uses(one, "@b"), "b": uses(1), "c": uses(1)}
    talk, puppets = talk_of(tmp_path, {"tokens": {"chain": one + 50}}, answers, selection="none")
    assert talk.send("@a go").type == "chain_paused"
    assert talk.last("turn_started").must == ["b"]
    with talk.open() as session:
        session.carry_out(ControlRequest(act="steer", text="be brief"))
    assert raise_by(talk, f"+{10 * one}tokens").type == "chain_finished"
    texts = [message.content for message in puppets.inputs["b"][0].messages]
    assert texts == ["@a go", "@b", "be brief"]


@pytest.mark.parametrize("is_parallel", [True, False])
def test_agents_that_answer_twice_as_long_pass_a_bound_by_one_error(
    tmp_path: Path, is_parallel: bool
) -> None:
    one = measure(tmp_path)
    answers = {
        "a": uses(2 * one, "a" if is_parallel else "@b"),
        "b": uses(2 * one, "b" if is_parallel else "@c"),
        "c": uses(2 * one, "c"),
    }
    bound = 3 * one + one // 2
    talk, _ = talk_of(tmp_path, {"tokens": {"chain": bound}}, answers)
    talk.send("@a @b @c go" if is_parallel else "@a go")
    assert talk.last("chain_paused").reason == "budget"
    used = sum(event.usage.output_tokens for event in talk.of("reply_finished"))
    assert bound < used <= bound + one + 50


def test_a_turn_has_a_bound_of_its_own(tmp_path: Path) -> None:
    one = measure(tmp_path)
    answers = {"a": uses(one, "@b"), "b": uses(one, "@c"), "c": uses(one)}
    talk, _ = talk_of(tmp_path, {"tokens": {"turn": one + one // 2}}, answers)
    assert talk.send("@a go").type == "chain_finished"
    assert len(talk.turns()) == 3


def test_a_session_keeps_what_its_budget_was_raised_by(tmp_path: Path) -> None:
    one = measure(tmp_path)
    answers = dict.fromkeys("abc", uses(one))
    talk, _ = talk_of(tmp_path, {"tokens": {"session": one + 50}}, answers)
    assert talk.send("@a go").type == "chain_finished"
    assert talk.send("@a go").type == "chain_paused"
    assert raise_by(talk, f"+{3 * one}tokens").type == "chain_finished"
    assert talk.send("@a go").type == "chain_finished"


def test_a_call_that_alone_exceeds_a_bound_is_an_error(tmp_path: Path) -> None:
    answers = dict.fromkeys("ab", uses(10))
    budget = {"tokens": {"chain": BIG}, "agents": {"b": {"tokens": {"turn": OUTPUT}}}}
    talk, puppets = talk_of(tmp_path, budget, answers)
    assert talk.send("@a @b go").type == "chain_finished"
    assert talk.outcomes() == [("a", "success"), ("b", "error")]
    failed = next(event for event in talk.of("reply_finished") if event.agent == "b")
    assert (failed.error_code, failed.retryable) == ("budget", False)
    assert failed.error.startswith("the call alone exceeds the budget: b, turn: ")
    assert puppets.inputs["b"] == []


def test_an_agent_over_its_bound_is_passed_over_where_it_may_reply(tmp_path: Path) -> None:
    one = measure(tmp_path)
    answers = {"a": uses(10), "b": uses(one), "c": uses(10)}
    budget = {"agents": {"b": {"tokens": {"session": one + 100}}}}
    talk, _ = talk_of(tmp_path, budget, answers, selection="ask", max_responders=2)
    talk.send("@b go")
    assert talk.outcomes() == [("b", "success"), ("a", "success")]
    talk.send("@a go")
    assert talk.last("candidates").asked == ["c"]  # it takes the place of b
    assert talk.last("candidates").passed_over["b"].reason == "budget"
    assert talk.send("@b go").type == "chain_paused"
    assert talk.last("chain_paused").detail.startswith("b, session: ")


def test_a_team_works_with_less_step_by_step_before_it_pauses(tmp_path: Path) -> None:
    one = measure(tmp_path)
    answers = {"a": uses(one, "@b"), "b": uses(one, "@a"), "c": uses(one)}
    budget = {
        "tokens": {"chain": 3 * one - 10},
        "on_exceed": "degrade",
        "degrade": ["no_may_reply", "concise"],
    }
    talk, puppets = talk_of(tmp_path, budget, answers, selection="ask")
    assert talk.send("@a go").type == "chain_paused"
    assert [event.step for event in talk.of("degraded")] == ["no_may_reply", "concise"]
    first = talk.of("candidates")[0]
    assert first.asked == []
    assert {why.reason for why in first.passed_over.values()} == {"budget"}
    shown = [(one.prefer_concise, one.max_output_tokens) for one in puppets.inputs["a"]]
    assert shown == [(False, OUTPUT), (True, OUTPUT // 2)]


def test_a_smaller_context_leaves_older_messages_out(tmp_path: Path) -> None:
    long = "word " * 400
    answers = {"a": uses(1, long), "b": uses(1)}
    budget = {"tokens": {"turn": 700}, "on_exceed": "degrade", "degrade": ["smaller_context"]}
    puppets = Puppets(answers)
    context = {"window_tokens": 2_000, "reserved_output_tokens": 500, "max_output_tokens": 10}
    members = team(agent("a", context=context), agent("b", context=context), budget=budget)
    talk = Talk(tmp_path, members, adapter_type=puppets)
    talk.send("@a go")
    assert talk.of("degraded") == []
    talk.send("@b go")
    assert [event.step for event in talk.of("degraded")] == ["smaller_context"]
    assert [message.content for message in puppets.inputs["b"][0].messages] == ["@b go"]


class ModelPuppets(Puppets):
    """Puppets that list the agent and the model of each call in `called`."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__(answers)
        self.called: list[tuple[str, str]] = []

    def __call__(self, kind: str) -> type[Any]:
        base, called = super().__call__(kind), self.called

        class Noted(base):  # type: ignore[misc, valid-type]
            def __init__(self, setup: Any) -> None:
                super().__init__(setup)
                self.model = setup.settings.model

            async def invoke(self, input: AgentInput, emit: Any) -> AgentOutput:
                called.append((self.agent_id, self.model))
                answer: AgentOutput = await super().invoke(input, emit)
                return answer

        return Noted


PRICES = {
    "dear": ModelFacts(input_per_m=10_000, output_per_m=10_000),
    "cheap": ModelFacts(input_per_m=1, output_per_m=1),
}
CHEAPER = {"usd": {"chain": 10}, "on_exceed": "degrade", "degrade": [{"model": "cheap"}]}


def test_another_model_is_taken_by_agents_that_have_one(tmp_path: Path) -> None:
    adapter = {"type": "anthropic", "model": "dear"}
    members = team(
        agent("a", adapter=adapter),
        agent("b", adapter={"type": "scripted"}),
        budget=CHEAPER,
        re_invoke_already_replied=True,
        chain_depth_limit=3,
    )
    costs = iter([9.0, 0.001])

    def answer(_: AgentInput) -> AgentOutput:
        return AgentOutput(content="@b", usage=Usage(output_tokens=900, cost_usd=next(costs)))

    answers = {"a": answer, "b": uses(10, "@a")}
    puppets = ModelPuppets(answers)
    talk = Talk(tmp_path, members, adapter_type=puppets, models=PRICES)
    assert talk.send("@a go").type == "chain_finished"
    assert [model for name, model in puppets.called if name == "a"] == ["dear", "cheap"]
    assert [event.step for event in talk.of("degraded")] == ["model: cheap"]
    assert talk.last("degraded").detail.startswith("chain: $1")


def test_a_retry_is_made_by_the_cheaper_model(tmp_path: Path) -> None:
    outputs = iter([("", 9.0), ("well", 0.001)])

    def answer(_: AgentInput) -> AgentOutput:
        text, cost = next(outputs)
        return AgentOutput(content=text, usage=Usage(output_tokens=900, cost_usd=cost))

    adapter = {"type": "anthropic", "model": "dear"}
    members = team(agent("a", adapter=adapter), budget=CHEAPER, on_failure="retry")
    puppets = ModelPuppets({"a": answer})
    talk = Talk(tmp_path, members, adapter_type=puppets, models=PRICES)
    assert talk.send("@a go").type == "chain_finished"
    assert puppets.called == [("a", "dear"), ("a", "cheap")]
    assert talk.outcomes() == [("a", "success")]


def test_an_unknown_price_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    members = team(
        agent("a", adapter={"type": "anthropic", "model": "nobody-knows-1"}),
        budget={"usd": {"session": 1}},
    )
    talk = Talk(tmp_path, members, adapter_type=Puppets({"a": uses(1)}))
    with pytest.raises(UsageError, match="the price of nobody-knows-1, the model of a, is unknown"):
        talk.send("@a go")
    assert talk.of("message") == []
    talk.models = {"nobody-knows-1": ModelFacts(input_per_m=1, output_per_m=1)}
    assert talk.send("@a go").type == "chain_finished"


def test_an_unknown_price_leaves_no_session_behind(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file("agents/dev.yaml", "agent_id: dev\nadapter: {type: anthropic, model: odd-1}\n")
    program.team(budget={"usd": {"chain": 1}})
    for options in ((), ("-s", "s"), ("--dry-run",)):
        done = program.run("send", *options, "go")
        assert (done.code, done.stdout) == (2, "")
        assert "the price of odd-1, the model of dev, is unknown" in done.stderr
    assert program.run("sessions", "--json").check().stdout.strip() in ("", "[]")


def test_a_price_is_needed_for_the_agents_that_have_a_bound_in_usd_only(tmp_path: Path) -> None:
    for priced in ({"type": "openai", "model": "m", "pricing": "free"}, {"type": "scripted"}):
        members = team(
            agent("a", adapter=priced),
            agent("b", adapter={"type": "cli", "command": ["x"]}),
            budget={"agents": {"a": {"usd": {"session": 0.01}}}},
        )
        name = str(priced["type"])
        answers = Puppets({"a": uses(1), "b": uses(1)})
        talk = Talk(tmp_path, members, name=name, adapter_type=answers)
        assert talk.send("@a @b go").type == "chain_finished"


def test_a_day_counts_all_sessions_of_the_workspace(tmp_path: Path) -> None:
    one = measure(tmp_path)
    answers = dict.fromkeys("abc", uses(one))
    budget = {"tokens": {"day": 2 * one + 50}}
    talk, _ = talk_of(tmp_path, budget, answers)
    other, _ = talk_of(tmp_path, budget, answers)
    other.name = "other"
    assert talk.send("@a go").type == "chain_finished"
    assert other.send("@a go").type == "chain_finished"
    assert other.send("@a go").type == "chain_paused"
    assert other.last("chain_paused").detail.startswith("day: ")
    # Tomorrow, by the clock of the session, there is room again.
    other.clock.seconds += 24 * 3600
    assert other.resume().type == "chain_finished"
    # What has not changed today is not read.
    os.utime(other.transcript, (0, 0))
    third, _ = talk_of(tmp_path, budget, answers)
    third.name = "third"
    assert third.send("@a go").type == "chain_finished"


@pytest.mark.parametrize(
    "ending", [asyncio.CancelledError(), AgentRefused("a", "no")], ids=["cancelled", "error"]
)
def test_a_reply_of_another_session_that_ended_without_usage_reserves_nothing(
    tmp_path: Path, ending: BaseException
) -> None:
    one = measure(tmp_path)

    async def answer(_: AgentInput) -> AgentOutput:
        raise ending

    budget = {"tokens": {"day": one + 50}}
    other, _ = talk_of(tmp_path, budget, {"a": answer, "b": uses(1), "c": uses(1)})
    other.name = "other"
    with contextlib.suppress(asyncio.CancelledError):
        other.send("@a go")
    assert other.last("reply_finished").usage is None
    talk, _ = talk_of(tmp_path, budget, dict.fromkeys("abc", uses(1)))
    assert talk.send("@a go").type == "chain_finished"


def test_a_retry_that_does_not_fit_pauses_the_chain_and_is_made_later(tmp_path: Path) -> None:
    one = measure(tmp_path)
    said = iter(["", "well"])

    def answer(_: AgentInput) -> AgentOutput:
        return AgentOutput(content=next(said), usage=Usage(output_tokens=one))

    answers = {"a": answer, "b": uses(1), "c": uses(1)}
    budget = {"tokens": {"chain": one + 50}}
    talk, puppets = talk_of(tmp_path, budget, answers, on_failure="retry")
    assert talk.send("@a go").type == "chain_paused"
    assert len(puppets.inputs["a"]) == 1
    assert talk.last("reply_finished").status == "cancelled"
    assert talk.last("reply_finished").usage.output_tokens == one
    assert talk.resume().type == "chain_paused"
    assert raise_by(talk, f"+{one}tokens").type == "chain_finished"
    assert len(puppets.inputs["a"]) == 2
    assert talk.last("reply_finished").status == "success"


def test_rows_tell_what_is_used_of_each_bound(tmp_path: Path) -> None:
    answers = {"a": uses(300, cost_usd=0.5), "b": uses(100, cost_usd=0.25)}
    budget = {
        "tokens": {"chain": 1000, "session": 10_000},
        "usd": {"session": 2},
        "agents": {"b": {"tokens": {"chain": 1_000}}},
    }
    puppets = Puppets(answers)
    free = {"type": "scripted"}
    members = team(agent("a", adapter=free), agent("b", adapter=free), budget=budget)
    talk = Talk(tmp_path, members, adapter_type=puppets)
    talk.send("@a @b go")
    talk.send("@b go")
    heard = [event for record in talk.records() if (event := events.parse(record))]
    rows = [(row.agent, row.scope, row.unit, row.used, row.percent) for row in budget_rows(heard)]
    assert rows == [
        ("", "chain", "tokens", 100, 10),
        ("", "session", "tokens", 500, 5),
        ("", "session", "usd", 1.0, 50),
        ("b", "chain", "tokens", 100, 10),
    ]


checked = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def budgets(draw: st.DrawFn) -> dict[str, Any]:
    """Bounds that a single call fits into."""
    bound = st.integers(900, 4_000)
    scopes = draw(st.sets(st.sampled_from(["turn", "chain", "session", "day"]), min_size=1))
    budget: dict[str, Any] = {"tokens": {scope: draw(bound) for scope in sorted(scopes)}}
    if draw(st.booleans()):
        budget["agents"] = {"b": {"tokens": {"chain": draw(bound)}}}
    return budget


@checked
@given(
    budget=budgets(),
    shares=st.lists(st.floats(0, 2), min_size=1, max_size=12),
    fails=st.sets(st.integers(0, 12)),
    raises=st.lists(st.sampled_from([0, 50, 700]), max_size=6),
    message=st.sampled_from(["@a go", "@a @b go", "@all go"]),
    lines=st.fixed_dictionaries(
        {name: st.sampled_from(["x", "@b x", "@c @d x", "@a x"]) for name in "abcd"}
    ),
)
def test_a_bound_holds_within_one_error_and_no_reply_is_lost(
    budget: dict[str, Any],
    shares: list[float],
    fails: set[int],
    raises: list[int],
    message: str,
    lines: dict[str, str],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        free, _ = _play(Path(folder) / "free", None, lines, shares, fails=set())
        free.send(message)
        talk, calls = _play(Path(folder) / "bound", budget, lines, shares, fails)
        outcome = talk.send(message)
        for amount in [*raises, BIG]:
            if outcome.type != "chain_paused":
                break
            outcome = raise_by(talk, f"+{amount}tokens") if amount else talk.resume()
        assert outcome.type == "chain_finished"
        assert _said(talk) == _said(free)
        _check_bounds(talk, budget, max(call.error for call in calls))


class Call(NamedTuple):
    """A call of an agent: whether it failed, and what it used beyond its estimate."""

    agent: str
    failed: bool
    error: int


def _play(
    folder: Path,
    budget: dict[str, Any] | None,
    lines: dict[str, str],
    shares: list[float],
    fails: set[int],
) -> tuple[Talk, list[Call]]:
    """A session of agents that use a share of their estimates; each may fail once."""
    calls: list[Call] = []

    async def answer(shown: AgentInput) -> AgentOutput:
        number = len(calls)
        estimate = next(
            event.input_tokens + OUTPUT
            for event in reversed(talk.of("reply_started"))
            if event.agent == shown.agent_id
        )
        used = int(estimate * shares[number % len(shares)])
        failed_before = any(call.failed and call.agent == shown.agent_id for call in calls)
        failed = number in fails and not failed_before
        calls.append(Call(shown.agent_id, failed, max(used - estimate, 0)))
        for _ in range(number % 3):
            await asyncio.sleep(0)
        text = "" if failed else f"{lines[shown.agent_id]} {shown.turn}"
        return AgentOutput(content=text, usage=Usage(output_tokens=used))

    config = {} if budget is None else {"budget": budget}
    members = team(
        *map(agent, "abcd"), selection="none", on_failure="retry", chain_depth_limit=2, **config
    )
    talk = Talk(folder, members, adapter_type=Puppets(dict.fromkeys("abcd", answer)))
    return talk, calls


def _said(talk: Talk) -> list[tuple[int, int, str, str]]:
    """The turn, number, agent and text of every reply that others see."""
    return sorted(
        (event.turn, event.reply, event.agent, event.message.content)
        for event in talk.of("reply_finished")
        if event.message
    )


def _check_bounds(talk: Talk, budget: dict[str, Any], error: int) -> None:
    """Check after every call that no bound was passed by more than this error of one estimate."""
    bounds = [("", *item) for item in budget["tokens"].items()]
    for name, own in budget.get("agents", {}).items():
        bounds += [(name, *item) for item in own["tokens"].items()]
    for owner, scope, bound in bounds:
        used = allowed = 0
        for event in talk.events:
            if event.type == "turn_started" and scope == "turn":
                used = 0
            elif event.type == "budget":
                allowed += event.tokens
            elif event.type == "reply_finished" and owner in ("", event.agent) and event.usage:
                used += event.usage.output_tokens
                assert used <= bound + allowed + error


def test_an_allowance_of_another_form_shows_the_form(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"})
    program.run("send", "-s", "s", "go")
    for text in ("2usd", "+2", "+2eur", "+0usd", "+1.5tokens", "-3tokens", "+1e3usd", "+∞usd"):
        done = program.run("resume", "s", f"--budget={text}")
        assert done.code == 2
        assert done.stderr == (
            f"arena: --budget: `{text}` is no amount\n  Write +2usd, +0.5usd or +10000tokens.\n"
        )
    done = program.run("resume", "s", "--budget", "+2usd")
    assert done.code == 2
    assert "no open chain to raise the budget of" in done.stderr


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ("{tokens: {chain: 0}}", "budget.tokens.chain: must be more than 0, not 0"),
        ("{usd: {day: -1}}", "budget.usd.day: must be more than 0, not -1"),
        ("{tokens: {chain: 1.5}}", "budget.tokens.chain: must be a whole number"),
        ("{usd: {chain: .inf}}", "budget.usd.chain: must be a finite number"),
        ("{eur: {chain: 1}}", "budget.eur: unknown key"),
        ("{tokens: {week: 1}}", "budget.tokens.week: unknown key"),
        ("{}", "budget: has no bound"),
        (
            "{tokens: {day: 1}, agents: {x: {usd: {day: 1}}}}",
            "budget.agents.x: `x` is not an agent",
        ),
        ("{tokens: {day: 1}, degrade: [concise]}", "budget: has steps in `degrade`"),
        ("{tokens: {day: 1}, on_exceed: stop}", "budget.on_exceed: must be one of pause, degrade"),
        (
            "{tokens: {day: 1}, on_exceed: degrade, degrade: [concis]}",
            "budget.degrade[0]: must be one of",
        ),
    ],
)
@pytest.mark.parametrize("file", ["agents/teams/t.yaml", "arena.yaml", "scenarios/s.yaml"])
def test_a_wrong_budget_is_an_error_with_its_line(
    tmp_path: Path, file: str, budget: str, problem: str
) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"})
    program.file("agents/teams/t.yaml", "team: t\nmembers: [dev]\n")
    texts = {
        "agents/teams/t.yaml": f"team: t\nmembers: [dev]\nconfig:\n  budget: {budget}\n",
        "arena.yaml": f"team: t\ndefaults:\n  config:\n    budget: {budget}\n",
        "scenarios/s.yaml": f"scenario: x\nconfig:\n  budget: {budget}\nsteps: [{{send: hi}}]\n",
    }
    program.file(file, texts[file])
    done = program.run("run", file) if file.startswith("s") else program.run("agents", "check")
    assert done.code == 2
    before = texts[file].partition("budget:")[0]
    assert f"{file}:{before.count(chr(10)) + 1}: " in done.stderr
    assert problem in done.stderr


def test_a_budget_is_shown_wherever_tokens_are(tmp_path: Path) -> None:
    program = Program(tmp_path)
    usage = {"input_tokens": 1_000, "output_tokens": 450, "cost_usd": 0.02}
    program.agent("dev", {"say": "ok", "usage": usage})
    program.team(budget={"tokens": {"chain": 100_000, "day": 5_000}, "usd": {"session": 1}})
    done = program.run("send", "-s", "s", "go")
    assert "chain: 1,450 of 100,000 · 1 % · session: $0.02 of $1.00 · 2 %" in done.stdout
    assert "budget of the session: $0.02 of $1.00 · 2 %" in program.run("usage", "s").stdout
    told = program.run("usage").stdout
    assert "budget of the day: 1,450 of 5,000 · 29 %" in told
    rows = json.loads(program.run("usage", "s", "--json").stdout)["budget"]
    assert [(row["scope"], row["percent"]) for row in rows] == [("chain", 1), ("session", 2)]
    program.run("show", "s", "--html", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "session: $0.02 of $1.00 · 2 %" in page
    assert "chain: 1,450 of 100,000 · 1 %" in page


def test_a_paused_chain_goes_on_in_another_process(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for name in ("dev", "ops"):
        program.agent(name, {"say": "ok", "usage": {"output_tokens": 3_000}})
    program.team(budget={"tokens": {"chain": 5_000}})
    done = program.run("send", "-s", "s", "@dev @ops go")
    assert done.code == 4
    assert "══ paused, the budget is used up: chain: " in done.stdout
    assert done.stderr == "`arena resume s --budget +10000tokens` continues the chain\n"
    assert program.run("resume", "s").code == 4
    done = program.run("resume", "s", "--budget", "+2,000tokens")
    assert done.code == 0
    assert "user raised the budget: +2000 tokens" in done.stdout
    assert "chain: 6,000 of 7,000 · 85 %" in done.stdout
    done = program.run("resume", "s", "--budget", "+2usd")
    assert done.code == 2


PAUSED = """\
scenario: x
team: crew
config: {{budget: {{tokens: {{chain: 2500}}}}}}
steps:
  - send: "@dev @ops go"
    expect: {expect}
"""


@pytest.mark.parametrize(
    ("expect", "code", "told"),
    [
        ("{paused: budget}", 0, ""),
        ("{paused: [asked, budget], spent: {tokens: 2010, usd: 0.5}}", 0, ""),
        ("{end: [quiet, budget]}", 0, ""),
        ("{replied: [dev]}", 3, "the chain waits (budget: chain: "),
        ("{paused: approval}", 1, "budget: chain: "),
        ("{end: quiet}", 1, "budget"),
        ("{paused: budget, spent: {tokens: {max: 100}}}", 1, "2010 tokens"),
        ("{paused: budget, spent: {usd: {max: 0.1}}}", 1, "0.5 USD"),
        ("{paused: budget, spent: {}}", 2, "spent: needs one of tokens, usd"),
        ("{paused: money}", 2, "paused: must be one of budget, approval, choice, asked"),
    ],
)
def test_a_scenario_expects_a_pause_and_what_was_spent(
    tmp_path: Path, expect: str, code: int, told: str
) -> None:
    program = Program(tmp_path)
    for name in ("dev", "ops"):
        usage = {"input_tokens": 10, "output_tokens": 2_000, "cost_usd": 0.5}
        program.agent(name, {"say": "ok", "usage": usage})
    program.team()
    program.file("scenarios/s.yaml", PAUSED.format(expect=expect))
    done = program.run("run", "scenarios/s.yaml")
    assert told in done.stdout + done.stderr
    assert done.code == code


def test_a_scenario_goes_on_after_a_pause_that_it_expects(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok", "usage": {"output_tokens": 2_000}})
    program.agent("ops", {"say": "ok", "usage": {"output_tokens": 2_000}})
    program.team()
    text = PAUSED.format(expect="{paused: budget}")
    program.file("scenarios/s.yaml", f'{text}  - send: "@dev go"\n    expect: {{end: quiet}}\n')
    assert program.run("run", "scenarios/s.yaml").code == 0
    program.file("scenarios/s.yaml", f"{text}expect: {{paused: asked}}\n")
    assert program.run("run", "scenarios/s.yaml").code == 1


def test_work_for_the_memory_that_does_not_fit_is_done_without_an_agent(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "Noted. " + "We decided to use Postgres. " * 30})
    context = {"max_output_tokens": 8_000}
    program.agent("scribe", {"say": "## Decisions\n- Postgres"}, member=False, context=context)
    program.team(budget={"tokens": {"session": 8_000}}, auto_summary_interval=2)
    program.file("arena.yaml", "team: crew\nmemory: {summarizer: scribe, extractor: scribe}\n")
    for _ in range(4):
        program.run("send", "-s", "s", "@dev what do we use?")
    records = program.records("s")
    compacted = [one for one in records if one["type"] == "compacted"]
    refused = [one["rolled_back"] for one in compacted if one["by"] == "scribe"]
    assert refused
    assert refused[0].startswith("scribe is not asked, the budget is used up: session: ")
    assert any(one["by"].startswith("extractive") for one in compacted)
    extracted = [one for one in records if one["type"] == "extracted"]
    assert "the budget is used up" in extracted[-1]["error"]
