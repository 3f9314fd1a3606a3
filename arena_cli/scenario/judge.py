"""Judges what came of a step, or of a scenario. Pure: a conversation in, results out.

A failed call of an agent is an error, unless the step's or the scenario's `expect` names it: by
that agent's `outcome`, by a row of the timeline, or by `end: failed`. A check that crashes is an
error too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from arena_cli.ground import yamlnodes
from arena_cli.ground.yamlnodes import Loc
from arena_cli.scenario import expect
from arena_cli.scenario.checks import Check, Verdict
from arena_cli.scenario.conversation import Call, Conversation
from arena_cli.scenario.expect_shapes import Expect
from arena_cli.scenario.result import CheckResult, Failure, Status

Place = Callable[[Loc], tuple[str, int]]
"""The file and the line of what stands at a place of a scenario."""


def checked(expected: Expect, told: Conversation, place: Place, loc: Loc) -> list[CheckResult]:
    """Every check of an `expect`, which stands at `loc`, in the order of their lines."""
    results = [_checked(check, told, place, loc) for check in expect.checks_of(expected)]
    if any(one.status != "passed" for one in results):  # else nobody asks for their lines
        results.sort(key=lambda one: one.line)
    return results


def _checked(check: Check, told: Conversation, place: Place, loc: Loc) -> CheckResult:
    status: Status
    try:
        verdict = check.judge(told)
    except Exception as error:  # noqa: BLE001  # whatever went wrong, it is no verdict
        status = "error"
        verdict = Verdict(False, "", f"the check itself failed: {type(error).__name__}: {error}")
    else:
        status = "passed" if verdict.holds else "warned" if check.warns else "failed"
    return result(verdict, status, place, loc, (*check.loc, *verdict.at))


def result(verdict: Verdict, status: Status, place: Place, loc: Loc, below: Loc) -> CheckResult:
    """A verdict about what stands at `below` of what stands at `loc`."""
    return CheckResult(
        place=functools.partial(place, (*loc, *below)),
        field=yamlnodes.dotted(below),
        status=status,
        expected=verdict.expected,
        actual=verdict.actual,
    )


def unnamed(told: Conversation, step: Expect, scenario: Expect) -> list[Failure]:
    """The calls that failed in a step, and that neither `expect` names."""
    failures = told.failures()
    if not failures:
        return []
    ended_as_named = told.end == "failed" and "failed" in (*step.end, *scenario.end)
    # Where no other end will do, that expectation has failed, and says so.
    ended_as_named = ended_as_named or set(step.end) == {"failed"}
    return [
        Failure(
            agent=call.agent,
            turn=call.turn,
            status=call.done.status,
            error=call.done.error or "",
        )
        for call in failures
        if not ended_as_named
        and scenario.outcome.get(call.agent) != call.done.status
        and not _named_by_step(call, told, step)
        and not _has_row(call, step, told)
        and not _has_row(call, scenario, None)
    ]


def _named_by_step(call: Call, told: Conversation, step: Expect) -> bool:
    """By the same outcome, or by another one: then that expectation has failed, and says so."""
    expected = step.outcome.get(call.agent)
    status = call.done.status
    return expected is not None and (expected == status or expected != told.outcome(call.agent))


def _has_row(call: Call, expected: Expect, told: Conversation | None) -> bool:
    """Whether a row tells of that agent, with a status: the failed one, in the same turn.

    Turns are those of `told`; None: they are counted through other steps too.
    """
    return any(
        row.agent == call.agent
        and "status" in row.model_fields_set
        and row.status == call.done.status
        and (told is None or "turn" not in row.model_fields_set or row.turn == call.turn)
        for row in (*expected.timeline, *expected.timeline_exact)
    )


def status_of(checks: Sequence[CheckResult], failures: Sequence[Failure]) -> Status:
    """An error is neither a pass nor a failed expectation, whatever else came of the step."""
    found = {check.status for check in checks}
    if failures or "error" in found:
        return "error"
    return "failed" if "failed" in found else "passed"
