"""What went wrong in a scenario, one record for each: a place, what it is, the whole of it.

The reports for machines, and the list at the end of a run, are made of these.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal, NamedTuple

from arena_cli.report import drift
from arena_cli.report.words import Words
from arena_cli.scenario.result import CheckResult, FileProblem, ScenarioResult, StepResult

Kind = Literal[
    "expectation", "drift", "agent", "judge", "check", "arena", "file", "interrupted", "warning"
]


class Finding(NamedTuple):
    """One of them. `kind` says whose: an expectation that did not hold, drift, or who failed.

    `step` is None where it is in none. `title` is one line, `text` what is told below it. Both are
    as they came: whoever prints them escapes them. `aside`: it is as its `xfail` has it, or an
    agent failed only because no record was left for it, which the drift tells.
    """

    kind: Kind
    file: str
    line: int
    step: int | None
    title: str
    text: str = ""
    aside: bool = False

    @property
    def place(self) -> str:
        """Return its file and, where that is known, its line."""
        return f"{self.file}:{self.line}" if self.line else self.file


def was_to_fail(result: ScenarioResult) -> bool:
    """Whether what did not hold in it is as its `xfail` has it; it may still fail by its drift."""
    return result.status == "xfailed" or (result.drift_fails and result.reason is not None)


def missed(result: ScenarioResult) -> set[tuple[int | None, str | None]]:
    """(step, agent) of all who failed only because no record was left for them."""
    return {(one.step, one.agent) for one in result.drift if one.kind == "miss"}


def of(result: ScenarioResult, say: Words) -> Iterator[Finding]:
    """What went wrong, and what warned, in the order of the file; the drift last."""
    missing, to_fail = missed(result), was_to_fail(result)
    for step in result.steps:
        yield from _of_failures(step, missing)
        for check in step.checks:
            yield from _of_check(check, step.number, say, to_fail=to_fail)
    for check in result.checks:
        yield from _of_check(check, None, say, to_fail=to_fail)
    for fault in result.faults:
        yield Finding("file", fault.file, fault.line, None, _of_fault(fault), fault.hint)
    if result.error and not result.faults:
        passed_anyway = result.status == "failed" and result.reason is not None and not to_fail
        kind: Kind = "expectation" if passed_anyway else "arena"
        first, _, more = result.error.partition("\n")
        yield Finding(kind, result.file, result.line, None, first, more)
    if result.status == "interrupted":
        title = say("it was cut short")
        yield Finding("interrupted", result.file, result.line, None, title)
    for one in drift.ordered(result):
        line = result.line_of(one.step)
        what = f"{drift.where(one, say)}{drift.what(one, say)}"
        yield Finding("drift", result.file, line, one.step, what)


def _of_fault(fault: FileProblem) -> str:
    return f"{fault.field}: {fault.what}" if fault.field else fault.what


def wrong(result: ScenarioResult, say: Words) -> list[Finding]:
    """Those that made it go wrong: what did not hold, then who failed, then the drift."""
    order = {"expectation": 0, "drift": 2}
    found = [one for one in of(result, say) if one.kind != "warning"]
    return sorted(found, key=lambda one: 3 if one.aside else order.get(one.kind, 1))


def _of_failures(
    step: StepResult, missing: Container[tuple[int | None, str | None]]
) -> Iterator[Finding]:
    if step.error:
        file, line = step.place()
        first, _, more = step.error.partition("\n")
        yield Finding("arena", file, line, step.number, first, more)
    for failure in step.failures:
        file, line = step.place()
        title = f"{failure.agent}: {failure.status}"
        aside = (step.number, failure.agent) in missing
        yield Finding("agent", file, line, step.number, title, failure.error, aside)


def _of_check(
    check: CheckResult, step: int | None, say: Words, *, to_fail: bool
) -> Iterator[Finding]:
    if check.status == "passed":
        return
    kind: Kind = "expectation"
    if check.status == "warned":
        kind = "warning"
    elif check.status == "error":
        kind = "judge" if check.judge else "check"
    sides = ((say("expected: "), check.expected), (say("actual:   "), check.actual))
    text = "\n".join(f"{label}{side}" for label, side in sides if side)
    aside = to_fail and kind == "expectation"
    yield Finding(kind, check.file, check.line, step, check.field, text, aside)
