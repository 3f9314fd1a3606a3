"""What calls used that failed, were tried again or were cut off is counted too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from product import AgentInput, AgentOutput, AgentUnavailable, Emit, Health, Settings, Setup, Usage
from support import Talk, puppet, team

SPENT = Usage(input_tokens=100, output_tokens=10, cost_usd=0.5)
MORE = Usage(input_tokens=1, output_tokens=2, cost_usd=0.25)


def spender(*steps: Callable[[Emit], Any]) -> Callable[[str], type[Any]]:
    """Agents whose calls take one step each."""
    left = list(steps)

    class Spender:
        settings_type = Settings

        def __init__(self, setup: Setup) -> None: ...

        async def start(self) -> None: ...

        async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
            said = left.pop(0)(emit)
            return await said if asyncio.iscoroutine(said) else said

        async def health(self) -> Health:
            return Health(True)

        async def stop(self) -> None: ...

    return lambda _: Spender


def fails(emit: Emit) -> AgentOutput:
    emit(SPENT)
    raise AgentUnavailable("a", "it was cut off in the middle")


def fails_untold(emit: Emit) -> AgentOutput:
    raise AgentUnavailable("a", "it was not there")


def answers(emit: Emit) -> AgentOutput:
    return AgentOutput(content="fine", usage=MORE)


def says_nothing(emit: Emit) -> AgentOutput:
    return AgentOutput(content=" ", usage=MORE)


async def _waits(emit: Emit) -> AgentOutput:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        emit(SPENT)
        raise
    raise AssertionError


def usage_after(folder: Path, *steps: Callable[[Emit], Any], **profile: Any) -> Usage | None:
    talk = Talk(folder, team(puppet("a", **profile)), adapter_type=spender(*steps))
    talk.send("@a go")
    used = talk.last("reply_finished").usage
    assert talk.last("chain_finished").usage == (used or Usage())
    return used


def test_a_failed_call_costs_what_it_told(tmp_path: Path) -> None:
    assert usage_after(tmp_path, fails) == SPENT
    assert usage_after(tmp_path / "other", fails_untold) is None


def test_an_answer_that_is_none_costs_what_it_cost(tmp_path: Path) -> None:
    assert usage_after(tmp_path, says_nothing) == MORE


def test_a_call_that_was_too_late_costs_what_it_told(tmp_path: Path) -> None:
    assert usage_after(tmp_path, _waits, timeout_s=0.05) == SPENT


@pytest.mark.parametrize("first", [fails, fails_untold])
def test_attempts_add_up(tmp_path: Path, first: Callable[[Emit], Any]) -> None:
    used = usage_after(tmp_path, first, answers, on_failure="retry", retries=1)
    assert used == (Usage.total([SPENT, MORE]) if first is fails else MORE)


@pytest.mark.parametrize("cost", ["NaN", "Infinity", "-0.5"])
def test_what_is_no_sum_of_money_says_nothing(cost: str) -> None:
    told = json.loads(f'{{"cost_usd": {cost}, "input_tokens": -5, "output_tokens": 7}}')
    usage = Usage.model_validate(told)
    assert usage == Usage(output_tokens=7)
    assert Usage.total([usage, Usage(cost_usd=0.25)]).cost_usd is None
