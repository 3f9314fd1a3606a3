"""Write the result of a run as JUnit XML for Jenkins, GitLab and GitHub's reporters.

A suite is a scenario, or a case of one. A test case is a step; one more each is for the
expectations over all steps, and for drift. A test case has at most one failure or error, since the
readers show one, with the complete report; its timeline is its output. Jenkins and GitLab group by
`classname`, which is the file's path with dots; with the name, which is always English, it stays
the same from run to run. A reason to skip is the element's text and no attribute, and test cases
have no properties: so each schema in use (Jenkins' `junit-4.xsd` and `junit-10.xsd`) accepts the
file.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from arena_cli.protocol import Usage
from arena_cli.reports import drift, results
from arena_cli.reports.drift import Finding
from arena_cli.reports.lines import Line, Words
from arena_cli.scenarios import select
from arena_cli.scenarios.result import WRONG, FileProblem, RunResult, ScenarioResult, StepResult
from arena_cli.util.text import cut_text, escape_line, escape_text

if TYPE_CHECKING:
    from junitparser import TestCase, TestSuite


WIDTH = 100
LONGEST_MESSAGE = 500
LONGEST_OUTPUT = 100_000  # characters of a timeline; Jenkins keeps no more

NAME = "arena"
WHOLE = "over all steps"
DRIFT = "as recorded"

_ENGLISH = Words()
# Plugins of Jenkins and GitLab attach the file that such a mark in an output names.
_MARK = re.compile(r"\[(?=\[\s*[A-Za-z]+\s*\|)")


def document(run_result: RunResult, say: Words | None = None, error: str = "") -> bytes:
    """Return the XML in UTF-8. `error` is the reason if the run ended early."""
    from junitparser.xunit2 import JUnitXml  # noqa: PLC0415 - for this report only

    say = say or _ENGLISH
    xml = JUnitXml(NAME)
    suites = [_suite(result, say) for result in run_result.scenarios]
    if error:
        suites.append(_ended(error))
    if run_result.warnings:
        suites.append(_warnings(run_result.warnings))
    xml.extend(suites)  # type: ignore[no-untyped-call]  # it has no types there
    xml.update_statistics()  # type: ignore[no-untyped-call]  # as above
    for suite, result in zip(suites, run_result.scenarios, strict=False):
        suite.time = result.seconds
    xml.time = run_result.seconds
    written = io.BytesIO()
    xml.write(written)
    return written.getvalue()


def _suite(result: ScenarioResult, say: Words) -> TestSuite:
    from junitparser import TestSuite  # noqa: PLC0415 - for this report only

    suite = TestSuite(_line(result.title))
    if result.opening:
        suite.timestamp = result.opening.ts
    for name, value in _properties(result):
        suite.add_property(name, _line(value))
    suite.add_testcases(list(_cases(result, say)))
    return suite


def _properties(result: ScenarioResult) -> Iterator[tuple[str, str]]:
    yield "file", f"{result.file}:{result.line}"
    yield "status", result.status
    if result.tags:
        yield "tags", ", ".join(result.tags)
    if result.mode:
        yield "mode", result.mode
    if result.recording:
        yield "recording", result.recording
    if reason := drift.why_unkept(result, _ENGLISH):
        yield "unkept", reason
    yield from _usage("", result.usage)
    yield from _usage("judges_", result.judges_usage)


def _usage(whose: str, usage: Usage | None) -> Iterator[tuple[str, str]]:
    if usage is None:
        return
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    yield f"{whose}input_tokens", str(sent)
    yield f"{whose}output_tokens", str(usage.output_tokens)
    if usage.cost_usd is not None:
        yield f"{whose}cost_usd", f"{usage.cost_usd:g}"


def _cases(result: ScenarioResult, say: Words) -> Iterator[TestCase]:
    if result.status == "skipped":
        yield _case(result, WHOLE, skipped=result.reason or "skipped")
        return
    findings = list(drift.list_findings(result, say))
    report = results.Report(result, say, WIDTH)
    for step in result.steps:
        yield _of_step(step, result, report, findings)
    if result.mode in ("replay", "update") or result.drift:
        yield _of_drift(result, say, findings)
    overall = [
        finding
        for finding in findings
        if finding.step is None and finding.kind not in ("drift", "warning")
    ]
    if result.checks or overall:
        yield _of_whole(result, say, report, overall)


def _of_step(
    step: StepResult, result: ScenarioResult, report: results.Report, findings: Sequence[Finding]
) -> TestCase:
    name = results.step_title(step, _ENGLISH)
    if step.status == "not_run":
        return _case(result, name, skipped="not run: an earlier step did not pass")
    reason = _text(report.reasons(step))
    if step.status not in WRONG:
        return _case(result, name, time=_seconds(step), output=reason)
    step_findings = [
        finding
        for finding in findings
        if finding.step == step.number and finding.kind not in ("drift", "warning")
    ]
    return _case(
        result,
        name,
        time=_seconds(step),
        wrong=step_findings,
        is_error=step.status == "error",
        text=reason,
        output=_text(report.timelines(step)),
    )


def _of_drift(result: ScenarioResult, say: Words, findings: Sequence[Finding]) -> TestCase:
    lines: list[Line] = []
    for difference in drift.ordered(result):
        lines.append(drift.row(difference, result, say))
        lines += () if difference.follows else drift.difference(difference, say)
    if not result.drift_fails:
        return _case(result, DRIFT, output=_text(lines))
    return _case(
        result,
        DRIFT,
        wrong=[difference for difference in findings if difference.kind == "drift"],
        text=_text(lines),
    )


def _of_whole(
    result: ScenarioResult, say: Words, report: results.Report, wrong: Sequence[Finding]
) -> TestCase:
    texts = [_text(report.checks(result.checks)), result.error or ""]
    if result.status == "interrupted":
        texts.append(say("it was cut short"))
    text = "\n".join(filter(None, texts))
    if not wrong:
        return _case(result, WHOLE, output=text)
    timelines = [_text(report.timeline(step)) for step in result.steps]
    return _case(
        result,
        WHOLE,
        wrong=wrong,
        is_error={finding.kind for finding in wrong} != {"expectation"},
        text=text,
        output="\n".join(filter(None, timelines)),
    )


def _case(
    result: ScenarioResult,
    name: str,
    *,
    time: float = 0.0,
    skipped: str = "",
    wrong: Sequence[Finding] = (),
    is_error: bool = False,
    text: str = "",
    output: str = "",
) -> TestCase:
    """Return a test case; `wrong` are its failures, `text` is the complete report."""
    from junitparser import (  # noqa: PLC0415 - for this report only
        Error,
        Failure,
        Skipped,
        TestCase,
    )

    prefix = f"[{result.case}] " if result.case else ""
    case = TestCase(_line(f"{prefix}{name}"), _class_name(result.file), round(time, 3))
    if wrong and all(finding.aside and finding.kind == "expectation" for finding in wrong):
        skipped, output = f"xfail: {result.reason}", "\n".join(filter(None, (text, output)))
    if skipped:
        skipped_node = Skipped()
        skipped_node.text = _line(skipped)
        case.result = skipped_node
    elif wrong:
        kind = Error if is_error else Failure
        failure_node = kind(_message(wrong), wrong[0].kind)
        failure_node.text = _defused(escape_text(text))
        case.result = failure_node
    if output:
        case.system_out = _defused(_shortened(output))
    return case


def _class_name(file: str) -> str:
    """Return `scenarios/team/gdpr.yaml` as `scenarios.team.gdpr`: packages and a class."""
    return _line(select.stem(file).strip("/").replace("/", "."))


def _message(wrong: Sequence[Finding]) -> str:
    first = wrong[0]
    suffix = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    details = ", ".join(detail for detail in first.text.split("\n")[:2] if detail)
    problem = f"{first.title}: {details}" if details else first.title
    return _line(cut_text(f"{first.place}: {problem}", LONGEST_MESSAGE)) + suffix


def _ended(error: str) -> TestSuite:
    """Return a suite for the error that ended the run early."""
    from junitparser import Error, TestCase, TestSuite  # noqa: PLC0415 - for this report only

    first = error.partition("\n")[0] or NAME
    error_node = Error(_line(cut_text(first, LONGEST_MESSAGE)), "arena")
    error_node.text = _defused(escape_text(error))
    case = TestCase("the run", NAME, 0.0)
    case.result = error_node
    suite = TestSuite(NAME)
    suite.add_testcases([case])
    return suite


def _warnings(warnings: Sequence[FileProblem]) -> TestSuite:
    """Return a suite for the warnings about files: it passes and has them as its output."""
    from junitparser import TestCase, TestSuite  # noqa: PLC0415 - for this report only

    case = TestCase("warnings", NAME, 0.0)
    case.system_out = _defused(escape_text("\n".join(warning.text for warning in warnings)))
    suite = TestSuite(f"{NAME} warnings")
    suite.add_testcases([case])
    return suite


def _seconds(step: StepResult) -> float:
    """Return the seconds from the step's first event to its last; 0 if its events were not kept."""
    times = [event.ts for event in step.events]
    if not times:
        return 0.0
    first, last = (datetime.fromisoformat(ts) for ts in (times[0], times[-1]))
    return max((last - first).total_seconds(), 0.0)


def _text(lines: Iterable[Line]) -> str:
    return textwrap.dedent("\n".join(line.text for line in lines))


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_OUTPUT:
        return text
    excerpt = cut_text(text, LONGEST_OUTPUT)
    return f"{excerpt}\n({len(text) - len(excerpt)} more characters)"


def _line(text: str) -> str:
    return _defused(escape_line(text))


def _defused(text: str) -> str:
    return _MARK.sub(r"[\\", text)
