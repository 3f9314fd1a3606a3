"""Judges what came of a step, or of a scenario. Pure: a conversation in, results out.

A failed call of an agent is an error, unless the step's or the scenario's `expect` names it: by
that agent's `outcome`, by a row of the timeline, or by `end: failed`. A check that crashes is an
error too, and so is one whose judge gave no verdict.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from arena_cli.ground import text as texts
from arena_cli.scenario.expect import judging, keys, walk
from arena_cli.scenario.expect.checks import Check, NoVerdict, Verdict
from arena_cli.scenario.expect.conversation import FAILED, Call, Conversation
from arena_cli.scenario.expect.shapes import Expect
from arena_cli.scenario.expect.verdicts import NOT_YET, Consulted, JudgeError, Question
from arena_cli.scenario.result import CheckResult, Failure, Status
from arena_cli.yamlio import nodes
from arena_cli.yamlio.nodes import Loc

Locate = Callable[[Loc], tuple[str, int]]
"""The file and the line of what stands at a place of a scenario."""


def questions(expected: Expect, told: Conversation) -> list[Question]:
    """What an `expect` asks of judges about a conversation that does not hold the answer yet.

    With the answers there may be more: what a row says is looked at once another row did not fit.
    """
    places = [one.loc for one in walk.given(expected) if one.kind == judging.KIND]
    consulted = Consulted(told.verdicts, instead=NOT_YET)
    asking = replace(told, verdicts=consulted)
    for check in keys.checks_of(expected):
        if any(place[: len(check.loc)] == check.loc for place in places):
            with contextlib.suppress(Exception):  # it is told when it is checked with the answers
                check.judge(asking)
    return [question for question in consulted.looked if question not in told.verdicts]


def checked(expected: Expect, told: Conversation, locate: Locate, loc: Loc) -> list[CheckResult]:
    """Every check of an `expect`, which stands at `loc`, in the order of their lines."""
    results = [_checked(check, told, locate, loc) for check in keys.checks_of(expected)]
    if any(one.status != "passed" for one in results):  # else nobody asks for their lines
        results.sort(key=lambda one: one.line)
    return results


def _checked(check: Check, told: Conversation, locate: Locate, loc: Loc) -> CheckResult:
    status: Status
    consulted = Consulted(told.verdicts)
    judge = None
    try:
        verdict = check.judge(replace(told, verdicts=consulted) if told.verdicts else told)
    except NoVerdict as error:
        status = "error"
        judge = error.judge if isinstance(error, JudgeError) else None
        verdict = Verdict(False, error.expected, str(error))
    except Exception as error:  # noqa: BLE001  # whatever went wrong, it is no verdict
        status = "error"
        verdict = Verdict(False, "", f"the check itself failed: {type(error).__name__}: {error}")
    else:
        status = "passed" if verdict.holds else "warned" if check.warns else "failed"
        judge = consulted.judge
    return result(verdict, status, locate, loc, (*check.loc, *verdict.at), judge)


def result(
    verdict: Verdict,
    status: Status,
    locate: Locate,
    loc: Loc,
    below: Loc,
    judge: str | None = None,
) -> CheckResult:
    """A verdict about what stands at `below` of what stands at `loc`; `judge` gave it, if any."""
    return CheckResult(
        place=functools.partial(locate, (*loc, *below)),
        field=nodes.dotted(below),
        status=status,
        expected=texts.clean(verdict.expected)[0],
        actual=texts.clean(verdict.actual)[0],
        judge=judge,
    )


class Rows:
    """The rows of an `expect` that name a failed call; each names one."""

    def __init__(self, expect: Expect) -> None:
        self._left = [
            row
            for row in (*expect.timeline, *expect.timeline_exact)
            if row.agent and "status" in row.model_fields_set and row.status in FAILED
            if not row.kinds and "mentions" not in row.model_fields_set
        ]

    def name(self, call: Call, turn: int) -> bool:
        """Whether a row that is left names that call, in that turn; it is not left then."""
        for row in self._left:
            actual = {"turn": turn, "phase": call.done.phase}
            keys = actual.keys() & row.model_fields_set
            is_there = all(getattr(row, key) == actual[key] for key in keys)
            if is_there and (row.agent, row.status) == (call.agent, call.done.status):
                self._left.remove(row)
                return True
        return False


def unnamed(
    told: Conversation, step: Expect, scenario: Expect, rows: Rows, before: int
) -> list[Failure]:
    """Return the calls that failed in a step, and that neither `expect` names.

    An expectation names a failure only if its value is that failure: one that fails as well excuses
    nothing. `rows` are the scenario's that are left, `before` the number of turns of the steps
    before; `scenario` has no `end` where the step's chain is not the last.
    """
    failures = told.failures()
    if not failures or (told.end == "failed" and "failed" in (*step.end, *scenario.end)):
        return []
    own = Rows(step)
    return [
        Failure(
            agent=call.agent,
            turn=call.turn,
            status=call.done.status,
            error=call.done.error or "",
        )
        for call in failures
        if not own.name(call, call.turn)
        and not rows.name(call, before + call.turn)
        and call.done.status not in (one.outcome.get(call.agent) for one in (step, scenario))
    ]


def status_of(checks: Sequence[CheckResult], failures: Sequence[Failure]) -> Status:
    """An error is neither a pass nor a failed expectation, whatever else came of the step."""
    found = {check.status for check in checks}
    if failures or "error" in found:
        return "error"
    return "failed" if "failed" in found else "passed"
