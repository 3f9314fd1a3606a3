"""Draw the result of a scenario and of a run: a line, and below it why it did not pass.

It makes lines of pieces (`reports.lines`), as the timeline does. Texts of agents are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from arena_cli.reports import columns, drift
from arena_cli.reports import lines as lines_module
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words, line
from arena_cli.reports.timeline import Timeline
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.result import (
    WRONG,
    CheckResult,
    Failure,
    RunResult,
    ScenarioResult,
    StepResult,
)
from arena_cli.transcript.events import SessionEvent
from arena_cli.util.text import escape_line, escape_text

WIDTH = 80

LABELS = {
    "passed": ("passed", "added"),
    "failed": ("FAILED", "failed"),
    "error": ("ERROR", "failed"),
    "interrupted": ("INTERRUPTED", "failed"),
    "not_run": ("not run", "dim"),
    "skipped": ("skipped", "dim"),
    "xfailed": ("xfailed", "dim"),
    "warned": ("warned", "warned"),
    "drifted": ("DRIFT", "failed"),
    "drift_warned": ("drift", "warned"),
    "accepted": ("updated", "dim"),
    "follows": ("follows", "dim"),
}
"""The word and the style of a status."""

LABEL_WIDTH = 8
MOST_DRIFTS = 6
_ROW = re.compile(r"^timeline(?:_exact)?(?:\[(\d+)\])?$")


def draw_result(
    result: ScenarioResult,
    say: Words | None = None,
    *,
    width: int = WIDTH,
    avatars: Mapping[str, str] | None = None,
) -> Iterator[Line]:
    """Yield the lines for one scenario; columns are drawn for a screen of `width`.

    `avatars` as in `Timeline`.
    """
    return Report(result, say or Words(), width, avatars).lines()


class Report:
    """The report of a scenario, which draws each step once. Arguments as those of `draw_result`."""

    def __init__(
        self,
        result: ScenarioResult,
        say: Words,
        width: int = WIDTH,
        avatars: Mapping[str, str] | None = None,
    ) -> None:
        self._result = result
        self._say = say
        self._width = width
        self._avatars = avatars or {}
        self._timelines: dict[str | None, Timeline] = {}
        self._told: set[int] = set()

    def lines(self) -> Iterator[Line]:
        """Yield all lines of the scenario's report."""
        result = self._result
        yield self._headline()
        if result.status != "xfailed":  # it was to fail
            yield from self._drift()
            to_fail = drift.was_to_fail(result)
            for step in result.steps:
                if not (to_fail and step.status == "failed"):
                    yield from self._step(step)
            if not to_fail:
                yield from self._whole()
        if result.error:
            yield from _block(self._say.message(result.error), INDENT)
        for session in result.sessions:
            command = f"arena show {escape_line(session)}"
            told = self._say("the session is kept: {command}", command=command)
            # As every command: it is never broken.
            yield line(INDENT, Span(told, "dim"))._replace(whole=True)

    def _headline(self) -> Line:
        result, say = self._result, self._say
        told = [escape_line(result.file)]
        if result.status != "skipped":
            told.append(say("{seconds} s", seconds=f"{result.seconds:.2f}"))
        if result.reason and result.status in ("skipped", "xfailed"):
            told.append(escape_line(result.reason))
        warned = sum(check.status == "warned" for check in result.all_checks())
        if warned and result.status != "xfailed":
            told.append(lines_module.count_of(say, warned, "1 warning", "{count} warnings"))
        if result.mode and result.mode != "live":
            reason = drift.why_unkept(result, say)
            told.append(f"{say.enum(drift.word(result))}{say(': ') if reason else ''}{reason}")
        if result.drift and result.status == "xfailed":
            told.append(say.enum("drifted"))
        title = Span(escape_line(result.title), "strong" if result.status in WRONG else "")
        spans = [*label(result.status), title]
        for fact in told:
            spans += [BETWEEN, Span(fact, "dim")]
        return Line(tuple(spans), LABEL_WIDTH)

    def _drift(self) -> Iterator[Line]:
        status = "drifted" if self._result.drift_fails else "drift_warned"
        status = "accepted" if drift.updated(self._result) else status
        found = drift.ordered(self._result)
        for one in found[:MOST_DRIFTS]:
            begins = label("follows" if one.follows else status)
            spans = (Span(INDENT), *begins, *drift.row(one, self._result, self._say).spans)
            yield Line(spans, len(INDENT) + LABEL_WIDTH)
        more = len(found) - MOST_DRIFTS
        if more > 0:
            span = Span(self._say("and {count} more", count=more), "dim")
            yield line(INDENT, " " * LABEL_WIDTH, span)

    def _step(self, step: StepResult) -> Iterator[Line]:
        """Yield the lines of a step that did not pass, or that warned."""
        bad = [check for check in step.checks if check.status != "passed"]
        if step.status == "passed" and not bad:
            return
        status = "warned" if step.status == "passed" else step.status
        title = step_title(step, self._say)
        yield line(INDENT, label(status), title, hang=len(INDENT) + LABEL_WIDTH)
        yield from self.reasons(step)
        if step.status in WRONG:
            yield from self.timelines(step)

    def reasons(self, step: StepResult) -> Iterator[Line]:
        """Yield the reasons why a step did not pass, or its warnings."""
        if step.error:
            file, number = step.place()
            yield from _block(f"{file}:{number}: {self._say.message(step.error)}", INDENT * 2)
        for failure in step.failures:
            yield from self._failure(failure, step)
        yield from self.checks(step.checks)

    def checks(self, checks: Iterable[CheckResult]) -> Iterator[Line]:
        """Yield the checks that did not pass, or that warned."""
        for check in checks:
            if check.status != "passed":
                yield from self._check(check)

    def _covered(self, step: StepResult) -> Iterable[StepResult]:
        """Return the steps that its expectations are about."""
        before = [one for one in self._result.steps if one.number < step.number]
        if step.kind != "check":
            seqs = {event.seq for event in step.before}
            chain = [one for one in before if one.session == step.session and one.kind != "check"]
            return [*(one for one in chain if one.events and one.events[-1].seq in seqs), step]
        return [one for one in before if step.session in (None, one.session)]

    def _whole(self) -> Iterator[Line]:
        found = {check.status for check in self._result.checks} - {"passed"}
        if not found:
            return
        status = next(one for one in ("failed", "error", "warned") if one in found)
        yield line(INDENT, label(status), self._say("over all steps"))
        yield from self.checks(self._result.checks)
        if status in WRONG:
            for step in self._result.steps:
                yield from self.timeline(step)

    def _failure(self, failure: Failure, step: StepResult) -> Iterator[Line]:
        agent = escape_line(failure.agent)
        status = self._say.enum(failure.status)
        text = "{who} in turn {turn}: {status}"
        problem = self._say(text, who=agent, turn=failure.turn, status=status)
        yield line(INDENT * 2, Span(problem, "strong"), hang=6)
        yield from _block(self._say.message(failure.error), INDENT * 3)
        if (step.number, failure.agent) not in drift.missed(self._result):
            expect = f"expect outcome: {{{agent}: {failure.status}}}"
            told = self._say("if this is expected: {expect}", expect=expect)
            yield line(INDENT * 3, Span(told, "dim"), hang=8)

    def _check(self, check: CheckResult) -> Iterator[Line]:
        place = [Span(place_of(check), "strong")]
        if check.status == "error" and check.judge:
            verdict = self._say("(no verdict of {judge})", judge=escape_line(check.judge))
            place.append(Span(f" {verdict}", "failed"))
        elif check.status == "error":
            place.append(Span(f" {self._say('(the check itself crashed)')}", "failed"))
        elif check.status == "warned":
            place.append(Span(f" {self._say('(level: warn)')}", "warned"))
        yield line(INDENT * 2, place, hang=6)
        yield from columns.draw_columns(
            self._say.check(check.expected),
            self._say.check(check.actual),
            self._say,
            width=self._width,
            indent=INDENT * 3,
            index=_row_of(check),
        )

    def timelines(self, step: StepResult) -> Iterator[Line]:
        """Yield the timelines of the steps that its expectations are about."""
        for one in self._covered(step):
            yield from self.timeline(one)

    def timeline(self, step: StepResult) -> Iterator[Line]:
        """Yield the step's timeline when first requested, if its events were kept."""
        if step.number in self._told or not step.events:
            return
        self._told.add(step.number)
        timeline = self._timelines.get(step.session)
        if timeline is None:  # sessions count their turns and replies alike
            timeline = self._timelines[step.session] = Timeline(self._say, self._avatars)
            if self._result.opening:
                list(timeline.drawn(self._result.opening))
        told = self._say(
            "timeline of {step}", step=lines_module.step(step.number, step.name, self._say)
        )
        yield line(INDENT * 2, Span(told, "dim"))
        for event in step.events:
            if not isinstance(event, SessionEvent):
                yield from indented(timeline.drawn(event), INDENT * 3)


def indented(drawn: Iterable[Line], indent: str) -> Iterator[Line]:
    """Yield the same lines, indented further."""
    for one in drawn:
        if one.spans:
            hang = one.hang if one.hang is None else one.hang + len(indent)
            yield Line((Span(indent), *one.spans), hang, one.whole)
        else:
            yield EMPTY


def label(status: str) -> list[Span]:
    """Return the beginning of a line: the label of a status."""
    word, style = LABELS[status]
    return [Span(word, style), Span(" " * max(LABEL_WIDTH - len(word), 1))]


def step_title(step: StepResult, say: Words) -> str:
    """Return `step 2 (check, session other): its name`."""
    kind = [] if step.kind == "send" else [step.kind]
    if step.session is not None:
        kind.append(say("session {name}", name=escape_line(step.session)))
    told = f" ({', '.join(kind)})" if kind else ""
    return lines_module.step(step.number, step.name, say, told)


def place_of(check: CheckResult) -> str:
    """Return `file:line: field`."""
    return escape_line(f"{check.file}:{check.line}: {check.field}")


def _row_of(check: CheckResult) -> int | None:
    """Return the index of the row of a timeline that is missing or superfluous."""
    found = _ROW.match(check.field)
    if not found:
        return None
    return int(found[1]) if found[1] else len(check.expected.splitlines())


def _block(text: str, indent: str) -> Iterator[Line]:
    for row in escape_text(text).split("\n"):
        yield line(indent, Span(row, "failed")) if row else EMPTY


def draw_listing(scenario: Scenario, say: Words) -> Line:
    """Return the line for a scenario that would be played."""
    tags = say(", ").join(map(escape_line, scenario.file.tags))
    facts = [Span(escape_line(scenario.shown), "dim")]
    if tags:
        facts.append(Span(f"{say('tags')}{say(': ')}{tags}"))
    for status, reason in (("skip", scenario.skip), ("xfail", scenario.xfail)):
        if reason is not None:
            facts.append(Span(f"{status}{say(': ')}{escape_line(reason)}", "warned"))
    spans = [Span(escape_line(scenario.title), "strong")]
    for fact in facts:
        spans += [BETWEEN, fact]
    return Line(tuple(spans), 4)


def closing(run_result: RunResult, say: Words | None = None) -> Iterator[Line]:
    """Yield the end of a run: the scenarios that went wrong, a line each, then the counts.

    The list is omitted if there is only one scenario. Each cause of drift is listed once for all
    scenarios, in place of the scenarios that only drifted.
    """
    say = say or Words()
    wrong = [result for result in run_result.scenarios if result.status in ("failed", "error")]
    listed = [(result, reason) for result in wrong if (reason := _why(result, say))]
    if listed and len(run_result.scenarios) > 1:
        yield EMPTY
        for result, reason in listed:
            title = Span(escape_line(result.title), "dim")
            told = [*label(result.status), Span(reason), BETWEEN, title]
            yield Line(tuple(told), LABEL_WIDTH)
    if run_result.drift:
        yield from drift.Causes(run_result, say).lines()
        yield EMPTY
    yield line(Span(summary(run_result, say), "failed" if run_result.exit_code else "strong"))


def summary(run_result: RunResult, say: Words | None = None) -> str:
    """`2 passed, 1 failed, 1 error, 1 failed only by drift in 0.3 s · 3 replayed, 1 live`."""
    say = say or Words()
    counts = {
        "passed": run_result.passed,
        "failed": run_result.failed - run_result.drift_only,
        "failed only by drift": run_result.drift_only,
        "errors" if run_result.error > 1 else "error": run_result.error,
        "interrupted": run_result.interrupted,
        "skipped": run_result.skipped,
        "xfailed": run_result.xfailed,
        "not run": run_result.not_run,
    }
    told = [f"{count} {say.enum(status)}" for status, count in counts.items() if count]
    if run_result.warned:
        told.append(lines_module.count_of(say, run_result.warned, "1 warning", "{count} warnings"))
    if drifted := run_result.drifted - run_result.drift_only:
        told.append(f"{drifted} {say.enum('drifted')}")
    if errors := run_result.judge_errors:
        told.append(lines_module.count_of(say, errors, "1 judge error", "{count} judge errors"))
    counts_told = say(", ").join(told)
    text = say("{counts} in {seconds} s", counts=counts_told, seconds=f"{run_result.seconds:.1f}")
    counted = drift.counted(run_result)
    if set(counted) <= {drift.LIVE}:
        return text
    return f"{text} · {say(', ').join(f'{counted[word]} {say.enum(word)}' for word in counted)}"


def _why(result: ScenarioResult, say: Words) -> str:
    """Return the first failure of a scenario with its place; empty if it only drifted."""
    found = drift.wrong(result, say)
    if not found:
        return escape_line(result.file)
    first = found[0]
    return "" if first.kind == "drift" else escape_line(f"{first.place}: {first.title}")
