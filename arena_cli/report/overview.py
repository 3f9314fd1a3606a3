"""A run as a whole: what would be played, how it ended, and what went wrong in it."""

from __future__ import annotations

from collections.abc import Iterator

from arena_cli.ground.text import shown_line
from arena_cli.report import drift, findings, modes, results
from arena_cli.report.spans import BETWEEN, EMPTY, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.scenario.load.scenario import Scenario
from arena_cli.scenario.result import RunResult, ScenarioResult


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
    """The end of a run: of several scenarios those that went wrong, a line each; the counts.

    Each cause of drift stands between them, once for all scenarios, in place of those that do
    nothing but drift.
    """
    say = say or Words()
    wrong = [result for result in whole.scenarios if result.status in ("failed", "error")]
    listed = [(result, why) for result in wrong if (why := _why(result, say))]
    if listed and len(whole.scenarios) > 1:
        yield EMPTY
        for result, why in listed:
            title = Span(shown_line(result.title), "dim")
            told = [*results.label(result.status), Span(why), BETWEEN, title]
            yield Line(tuple(told), results.LABEL_WIDTH)
    if whole.drift:
        yield from drift.Causes(whole, say).lines()
        yield EMPTY
    yield line(Span(summary(whole, say), "failed" if whole.exit_code else "strong"))


def summary(whole: RunResult, say: Words | None = None) -> str:
    """`2 passed, 1 failed, 1 error, 1 drifted in 0.3 s · 3 replayed, 1 live`."""
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
    if whole.drifted:
        told.append(f"{whole.drifted} {say.enum('drifted')}")
    if whole.judge_errors:
        one, many = "1 judge error", "{count} judge errors"
        told.append(results.counted(say, whole.judge_errors, one, many))
    counts_told = say(", ").join(told)
    text = say("{counts} in {seconds} s", counts=counts_told, seconds=f"{whole.seconds:.1f}")
    counted = modes.counted(whole)
    if set(counted) <= {modes.LIVE}:
        return text
    return f"{text} · {say(', ').join(f'{counted[word]} {say.enum(word)}' for word in counted)}"


def _why(result: ScenarioResult, say: Words) -> str:
    """The first place where a scenario did not hold, and what; empty where it only drifted."""
    found = findings.wrong(result, say)
    if not found:
        return shown_line(result.file)
    first = found[0]
    return "" if first.kind == "drift" else shown_line(f"{first.place}: {first.title}")


def _plural(what: str, count: int) -> str:
    return "errors" if what == "error" and count > 1 else what
