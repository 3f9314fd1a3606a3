"""Check what a planner planned."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from arena_cli.scenarios.expect import amounts
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import PlanExpectation, Replied
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.yamlio.nodes import Loc

if TYPE_CHECKING:
    from arena_cli.transcript.plan_events import PlanMade

NO_PLAN = "no plan"


def check_plan(expected: PlanExpectation) -> Iterator[Check]:
    """Yield the checks on the last plan: mode, agents, confidence, and what became of it."""
    given = expected.model_fields_set
    checks: dict[str, Callable[[PlanMade], Verdict]] = {
        "mode": lambda plan: Verdict(plan.mode == expected.mode, expected.mode, plan.mode),
        "agents": lambda plan: _check_agents(expected.agents, plan.agents),
        "confidence": lambda plan: Verdict(
            amounts.within(expected.confidence, plan.confidence),
            amounts.describe_limit(expected.confidence),
            f"{plan.confidence:g}",
        ),
        "fallback": lambda plan: Verdict(
            bool(plan.fallback) == expected.fallback,
            _describe_fallback("", is_fallback=expected.fallback),
            _describe_fallback(plan.fallback, is_fallback=bool(plan.fallback)),
        ),
        "replans": lambda plan: Verdict(
            amounts.within(expected.replans, plan.replan),
            amounts.describe_limit(expected.replans),
            str(plan.replan),
        ),
    }
    for name, check in checks.items():
        if name in given:
            yield Check((name,), functools.partial(_check_last, check))


def list_agents(expected: PlanExpectation | None) -> Iterator[tuple[Loc, str]]:
    """Yield the agents of an expected plan, each with its place."""
    if expected is None:
        return
    agents = expected.agents
    lists: dict[Loc, Sequence[str]] = {
        ("plan", "agents"): agents if isinstance(agents, list) else ()
    }
    if isinstance(agents, Replied):
        lists = {
            ("plan", "agents", "include"): agents.include,
            ("plan", "agents", "exclude"): agents.exclude,
        }
    for loc, names in lists.items():
        for index, agent in enumerate(names):
            yield (*loc, index), agent


def _check_last(check: Callable[[PlanMade], Verdict], conversation: CheckContext) -> Verdict:
    """Check the last plan that was carried out or refused."""
    plans = conversation.plans
    if not plans:
        return Verdict(False, "a plan", NO_PLAN)
    return check(plans[-1])


def _check_agents(expected: Sequence[str] | Replied, actual: Sequence[str]) -> Verdict:
    if not isinstance(expected, Replied):
        return Verdict(set(expected) == set(actual), _names(expected), _names(actual))
    missing = [agent for agent in expected.include if agent not in actual]
    unwanted = [agent for agent in expected.exclude if agent in actual]
    wanted = [*(expected.include or ()), *(f"not {agent}" for agent in expected.exclude)]
    return Verdict(not missing and not unwanted, _names(wanted), _names(actual))


def _names(agents: Sequence[str]) -> str:
    return ", ".join(agents) or "none"


def _describe_fallback(reason: str, *, is_fallback: bool) -> str:
    if not is_fallback:
        return "the plan is carried out"
    return f"the fallback ({reason})" if reason else "the fallback"
