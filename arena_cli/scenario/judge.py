"""Judges what came of a step, or of a scenario. Pure: a conversation in, results out.

A failed call of an agent is an error, unless the step's or the scenario's `expect` names it: by
that agent's `outcome`, or by `end: failed`. A check that crashes is an error too.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena_cli.ground import yamlnodes
from arena_cli.ground.yamlfile import Part
from arena_cli.scenario import expect
from arena_cli.scenario.conversation import Conversation
from arena_cli.scenario.result import CheckResult, Failure, Status
from arena_cli.scenario.shapes import Expect


def checked(expected: Expect, told: Conversation, part: Part) -> list[CheckResult]:
    """Every check of an `expect`, which stands at `part`, in the order of their lines."""
    results = []
    for loc, check in expect.checks_of(expected):
        status: Status
        try:
            verdict = check(told)
        except Exception as error:  # noqa: BLE001  # whatever went wrong, it is no verdict
            status, wanted = "error", ""
            actual = f"the check itself failed: {type(error).__name__}: {error}"
        else:
            status = "passed" if verdict.holds else "failed"
            wanted, actual = verdict.expected, verdict.actual
        results.append(
            CheckResult(
                file=part.document.shown,
                line=part.document.line((*part.loc, *loc)),
                field=yamlnodes.dotted(loc),
                status=status,
                expected=wanted,
                actual=actual,
            )
        )
    return sorted(results, key=lambda one: one.line)


def unnamed(told: Conversation, step: Expect, scenario: Expect) -> list[Failure]:
    """The calls that failed in a step, and that neither `expect` names."""
    ended_as_named = told.end == "failed" and "failed" in (*step.end, *scenario.end)
    # Where no other end will do, that expectation has failed, and says so.
    ended_as_named = ended_as_named or set(step.end) == {"failed"}
    return [
        Failure(agent=done.agent, turn=turn, status=done.status, error=done.error or "")
        for turn, done in told.failures()
        if not ended_as_named
        and scenario.outcome.get(done.agent) != done.status
        and not _named_by_step(done.agent, done.status, told, step)
    ]


def _named_by_step(agent: str, status: str, told: Conversation, step: Expect) -> bool:
    """By the same outcome, or by another one: then that expectation has failed, and says so."""
    expected = step.outcome.get(agent)
    return expected is not None and (expected == status or expected != told.outcome(agent))


def status_of(checks: Sequence[CheckResult], failures: Sequence[Failure]) -> Status:
    """An error is neither a pass nor a failed expectation, whatever else came of the step."""
    found = {check.status for check in checks}
    if failures or "error" in found:
        return "error"
    return "failed" if "failed" in found else "passed"
