"""What came of scenarios, as text: a line each, and for each that did not pass, why.

What agents said is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena_cli.ground.text import shown, shown_line
from arena_cli.report.timeline import Timeline
from arena_cli.scenario.result import CheckResult, Failure, RunResult, ScenarioResult, StepResult

INDENT = "  "
LABELS = {
    "passed": "passed",
    "failed": "FAILED",
    "error": "ERROR",
    "interrupted": "INTERRUPTED",
    "not_run": "not run",
}


def lines(result: ScenarioResult) -> Iterator[str]:
    """The lines for one scenario, without line ends."""
    facts = [shown_line(result.scenario), shown_line(result.file), f"{result.seconds:.2f} s"]
    yield f"{LABELS[result.status]:6}  {' · '.join(facts)}"
    if result.status == "passed":
        return
    timeline = Timeline()
    if result.opening:
        list(timeline.lines(result.opening))
    for step in result.steps:
        if step.status != "passed":
            yield from _step(step, timeline)
    wrong = [check for check in result.checks if check.status != "passed"]
    if wrong:
        yield f"{INDENT}{LABELS['failed']}  over all steps"
        for check in wrong:
            yield from _check(check)
        for step in result.steps:
            if step.status == "passed":
                yield from _timeline(step, timeline)
    if result.error:
        yield from _block(result.error, INDENT)
    if result.session:
        yield f"{INDENT}its session is kept: arena show {shown_line(result.session)}"


def _step(step: StepResult, timeline: Timeline) -> Iterator[str]:
    yield f"{INDENT}{LABELS[step.status]:6}  {_title(step)}"
    for failure in step.failures:
        yield from _failure(failure)
    for check in step.checks:
        if check.status != "passed":
            yield from _check(check)
    if step.status != "not_run":
        yield from _timeline(step, timeline)


def _title(step: StepResult) -> str:
    return f"step {step.number}{f': {shown_line(step.name)}' if step.name else ''}"


def _failure(failure: Failure) -> Iterator[str]:
    agent = shown_line(failure.agent)
    yield f"{INDENT * 2}{agent} in turn {failure.turn}: {failure.status}"
    yield from _block(failure.error, INDENT * 3)
    yield f"{INDENT * 3}if it should: expect outcome: {{{agent}: {failure.status}}}"


def _check(check: CheckResult) -> Iterator[str]:
    crashed = " (the check crashed)" if check.status == "error" else ""
    place = f"{check.file}:{check.line}: {check.field}"
    yield f"{INDENT * 2}{shown_line(place)}{crashed}"
    yield f"{INDENT * 3}expected: {shown_line(check.expected)}"
    yield f"{INDENT * 3}actual:   {shown_line(check.actual)}"


def _timeline(step: StepResult, timeline: Timeline) -> Iterator[str]:
    yield f"{INDENT * 2}timeline of {_title(step)}"
    for event in step.events:
        for line in timeline.lines(event):
            yield INDENT * 3 + line if line else ""


def _block(text: str, indent: str) -> Iterator[str]:
    for line in shown(text).split("\n"):
        yield indent + line


def summary(result: RunResult) -> str:
    """`2 passed, 1 failed, 1 error in 0.3 s`."""
    counts = {
        "passed": result.passed,
        "failed": result.failed,
        "error" if result.error == 1 else "errors": result.error,
        "interrupted": result.interrupted,
        "not run": result.not_run,
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{told} in {result.seconds:.1f} s"
