"""A run as a whole: what would be played, how it ended, and what went wrong in it."""

from __future__ import annotations

from collections.abc import Iterator

from arena_cli.ground.text import shown_line
from arena_cli.report import results
from arena_cli.report.spans import BETWEEN, EMPTY, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.scenario.load.scenario import Scenario
from arena_cli.scenario.result import WRONG, RunResult, ScenarioResult


def listed(scenario: Scenario, say: Words) -> Line:
    """The line for a scenario that would be played."""
    tags = say(", ").join(map(shown_line, scenario.file.tags))
    facts = [Span(shown_line(scenario.shown), "dim")]
    if tags:
        facts.append(Span(f"{say('tags')}{say(': ')}{tags}"))
    for status, reason in (("skip", scenario.skip), ("xfail", scenario.xfail)):
        if reason is not None:
            facts.append(Span(f"{status}{say(': ')}{shown_line(reason)}", "warned"))
    spans = [Span(shown_line(scenario.title), "strong")]
    for fact in facts:
        spans += [BETWEEN, fact]
    return Line(tuple(spans), 4)


def closing(whole: RunResult, say: Words | None = None) -> Iterator[Line]:
    """The end of a run: of several scenarios those that went wrong, a line each; the counts."""
    say = say or Words()
    wrong = [result for result in whole.scenarios if result.status in ("failed", "error")]
    if wrong and len(whole.scenarios) > 1:
        yield EMPTY
        for result in wrong:
            title = Span(shown_line(result.title), "dim")
            told = [*results.label(result.status), Span(_why(result)), BETWEEN, title]
            yield Line(tuple(told), results.LABEL_WIDTH)
    yield line(Span(summary(whole, say), "failed" if whole.exit_code else "strong"))


def summary(whole: RunResult, say: Words | None = None) -> str:
    """`2 passed, 1 failed, 1 error in 0.3 s`."""
    say = say or Words()
    counts = {
        "passed": whole.passed,
        "failed": whole.failed,
        "error": whole.error,
        "interrupted": whole.interrupted,
        "skipped": whole.skipped,
        "xfailed": whole.xfailed,
        "not run": whole.not_run,
    }
    told = [f"{count} {say.enum(_plural(what, count))}" for what, count in counts.items() if count]
    if whole.warned:
        told.append(results.counted(say, whole.warned, "1 warning", "{count} warnings"))
    return say(
        "{counts} in {seconds} s", counts=say(", ").join(told), seconds=f"{whole.seconds:.1f}"
    )


def _why(result: ScenarioResult) -> str:
    """The first place where a scenario did not hold, and what."""
    for check in result.all_checks():
        if check.status in WRONG:
            return results.place_of(check)
    for step in result.steps:
        file, number = step.place() if step.status in WRONG else ("", 0)
        for failure in step.failures:
            what = f"{failure.agent}: {failure.status}"
            return shown_line(f"{file}:{number}: {what}")
        if step.error:
            return _first_line(f"{file}:{number}: {step.error}")
    return _first_line(f"{result.file}: {result.error}" if result.error else result.file)


def _plural(what: str, count: int) -> str:
    return "errors" if what == "error" and count > 1 else what


def _first_line(text: str) -> str:
    return shown_line(text.partition("\n")[0])
