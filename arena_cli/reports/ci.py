"""Write the result of a run for CI: JUnit XML, and annotations and a summary for GitHub Actions.

In JUnit XML, a suite is a scenario, or a case of one. A test case is a step; one more each is for
the expectations over all steps, and for drift. A test case has at most one failure or error, since
the readers show one, with the complete report; its timeline is its output. Jenkins and GitLab group
by `classname`, which is the file's path with dots; with the name, which is always English, it stays
the same from run to run. A reason to skip is the element's text and no attribute, and test cases
have no properties: so each schema in use (Jenkins' `junit-4.xsd` and `junit-10.xsd`) accepts the
file.

An annotation of GitHub is a workflow command, whose escapes are those of GitHub's own toolkit: `%`,
CR and LF, in properties also `:` and `,`. GitHub shows ten annotations of each type per step, so
there are never more, the most informative first. The summary is markdown that consists of HTML
blocks: escaped text in them is read neither as markdown nor as HTML. A step's summary may have 1
MiB, else GitHub shows none of it.
"""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.protocol import Usage
from arena_cli.reports import drift, results
from arena_cli.reports.drift import Finding
from arena_cli.reports.lines import Line, Words
from arena_cli.scenarios import select
from arena_cli.scenarios.result import (
    WRONG,
    FileProblem,
    RunResult,
    ScenarioResult,
    StepResult,
)
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
    overall = _select_wrong(findings, None)
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
    return _case(
        result,
        name,
        time=_seconds(step),
        wrong=_select_wrong(findings, step.number),
        is_error=step.status == "error",
        text=reason,
        output=_text(report.timelines(step)),
    )


def _select_wrong(findings: Sequence[Finding], step: int | None) -> list[Finding]:
    """Return what is wrong in a step, or over all steps, other than drift."""
    return [
        finding
        for finding in findings
        if finding.step == step and finding.kind not in ("drift", "warning")
    ]


def _of_drift(result: ScenarioResult, say: Words, findings: Sequence[Finding]) -> TestCase:
    lines: list[Line] = []
    for difference in drift.ordered(result):
        lines.append(drift.row(difference, result, say))
        lines += () if difference.follows else drift.difference(difference, say)
    if not result.drift_fails:
        return _case(result, DRIFT, output=_text(lines))
    wrong = [difference for difference in findings if difference.kind == "drift"]
    return _case(result, DRIFT, wrong=wrong, text=_text(lines))


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
    # `scenarios/team/gdpr.yaml` as `scenarios.team.gdpr`: packages and a class.
    class_name = _line(select.stem(result.file).strip("/").replace("/", "."))
    case = TestCase(_line(f"{prefix}{name}"), class_name, round(time, 3))
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


def _message(wrong: Sequence[Finding]) -> str:
    first = wrong[0]
    suffix = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    details = ", ".join(detail for detail in first.text.split("\n")[:2] if detail)
    problem = f"{first.title}: {details}" if details else first.title
    return _line(cut_text(f"{first.place}: {problem}", LONGEST_MESSAGE)) + suffix


def _ended(error: str) -> TestSuite:
    """Return a suite for the error that ended the run early."""
    from junitparser import Error  # noqa: PLC0415 - for this report only

    first = error.partition("\n")[0] or NAME
    error_node = Error(_line(cut_text(first, LONGEST_MESSAGE)), "arena")
    error_node.text = _defused(escape_text(error))
    return _own_suite(NAME, "the run", result=error_node)


def _warnings(warnings: Sequence[FileProblem]) -> TestSuite:
    """Return a suite for the warnings about files: it passes and has them as its output."""
    text = "\n".join(warning.text for warning in warnings)
    return _own_suite(f"{NAME} warnings", "warnings", system_out=_defused(escape_text(text)))


def _own_suite(name: str, case_name: str, **fields: Any) -> TestSuite:
    """Return a suite with one case that is no scenario, with these fields."""
    from junitparser import TestCase, TestSuite  # noqa: PLC0415 - for this report only

    case = TestCase(case_name, NAME, 0.0)
    for field, value in fields.items():
        setattr(case, field, value)
    suite = TestSuite(name)
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


MOST = 10
"""https://docs.github.com/actions/reference/limits: annotations of a type that a step shows."""

MOST_BYTES = 1024 * 1024
"""https://docs.github.com/actions/reference/workflow-commands: of a step's summary."""

LONGEST_ANNOTATION = 2000
MOST_ROWS = 200
LONGEST_DETAILS = 60_000
_LEFT = 200  # bytes for the line that says what was left out


class Annotation(NamedTuple):
    """An annotation; `level` is `error` or `warning`."""

    level: str
    file: str
    line: int
    title: str
    text: str


def commands(
    run_result: RunResult, say: Words, path: Callable[[str], str], error: str = ""
) -> list[str]:
    """Return the annotations, one per line.

    `path` maps a file to its path in the repository. `error` is the reason if the run ended early.
    """
    notes = [Annotation("error", "", 0, "arena", error)] if error else []
    notes += [*_of_causes(run_result, say), *_of_scenarios(run_result, say), *_of_files(run_result)]
    lines: list[str] = []
    for level in ("error", "warning"):
        level_notes = [note for note in notes if note.level == level]
        shown_notes = level_notes if len(level_notes) <= MOST else level_notes[: MOST - 1]
        lines += [_command(note, path) for note in shown_notes]
        if len(level_notes) > len(shown_notes):
            omitted = say("and {count} more in the log", count=len(level_notes) - len(shown_notes))
            lines.append(_command(Annotation(level, "", 0, "arena", omitted), path))
    return lines


def _of_causes(run_result: RunResult, say: Words) -> Iterator[Annotation]:
    """Yield an annotation for each cause of drift, those that affect most scenarios first."""
    causes = drift.Causes(run_result, say)
    for cause in causes.ordered():
        if causes.is_accepted(cause):
            continue
        first = cause.touches[0]
        title = f"{say('drift: ')}{drift.describe_drift(cause, say)}"
        text = _text(causes.below(cause))
        level = "error" if causes.is_wrong(cause) else "warning"
        yield Annotation(level, first.file, first.line, title, text)


def _of_scenarios(run_result: RunResult, say: Words) -> Iterator[Annotation]:
    """Yield the first annotation of each scenario, then the second of each, and so on."""
    each = [
        [note for one in drift.list_findings(result, say) if (note := _note(one, result))]
        for result in run_result.scenarios
        if result.status not in ("xfailed", "skipped")
    ]
    for rank in zip_longest(*each):
        yield from (note for note in rank if note)


def _of_files(run_result: RunResult) -> Iterator[Annotation]:
    """Yield an annotation for each warning of a file."""
    for warning in run_result.warnings:
        title = f"{warning.field}: {warning.what}" if warning.field else warning.what
        yield Annotation(
            "warning", warning.file, warning.line, title, f"{title}\n{warning.hint}".strip()
        )


def _note(finding: drift.Finding, result: ScenarioResult) -> Annotation | None:
    if finding.kind == "drift" or finding.aside:
        return None
    level = "warning" if finding.kind == "warning" else "error"
    text = f"{finding.title}\n{finding.text}" if finding.text else finding.title
    return Annotation(level, finding.file, finding.line, result.title, text)


def _command(note: Annotation, path: Callable[[str], str]) -> str:
    """Return `::error file=a.yaml,line=3,title=...::...`."""
    line = f"line={note.line}," if note.line else ""
    location = f"file={_property(path(note.file))},{line}" if note.file else ""
    title = _property(cut_text(note.title, LONGEST_ANNOTATION))
    return (
        f"::{note.level} {location}title={title}::{_data(cut_text(note.text, LONGEST_ANNOTATION))}"
    )


def _data(text: str) -> str:
    return escape_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape_line(text)).replace(":", "%3A").replace(",", "%2C")


def summary(run_result: RunResult, say: Words, room: int = MOST_BYTES, error: str = "") -> str:
    """Return the step's summary in at most `room` bytes of UTF-8; empty if there is no room."""
    wrong = [result for result in run_result.scenarios if result.status in WRONG]
    sections = [f"### arena: {_escape_html(results.summary(run_result, say))}"]
    if error:
        sections.append(_pre(error))
    if wrong:
        sections.append(_table(wrong, say))
    causes = drift.Causes(run_result, say)
    for cause in causes.ordered():
        title = f"{say('drift: ')}{drift.describe_drift(cause, say)}"
        sections.append(_folded(title, _text(causes.below(cause)), is_open=True))
    sections += [_folded(item.title, _text(results.draw_result(item, say))) for item in wrong]
    return _fitting(sections, say, room)


def _fitting(sections: Sequence[str], say: Words, room: int) -> str:
    """Return the parts that fit completely, and the number of those that do not."""
    fitting: list[str] = []
    bytes_left = room - _LEFT
    for index, section in enumerate(sections):
        bytes_left -= len(section.encode()) + 2
        if bytes_left < 0:
            omitted = len(sections) - index
            fitting.append(_escape_html(say("and {count} more in the log", count=omitted)))
            break
        fitting.append(section)
    return "\n\n".join(fitting) + "\n" if room > _LEFT else ""


def _table(wrong: Sequence[ScenarioResult], say: Words) -> str:
    rows = [_row(result, say) for result in wrong[:MOST_ROWS]]
    omitted = len(wrong) - len(rows)
    if omitted:
        rows.append(f"<tr><td>{_escape_html(say('and {count} more', count=omitted))}</td></tr>")
    return "\n".join(["<table>", *rows, "</table>"])


def _row(result: ScenarioResult, say: Words) -> str:
    cells = [f"<td><b>{results.LABELS[result.status][0]}</b></td>"]
    findings = drift.wrong(result, say)
    location = findings[0].place if findings else result.file
    problem = findings[0].title if findings else ""
    cells += [
        f"<td><code>{_escape_html(cell)}</code></td>" for cell in (result.title, location, problem)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _folded(title: str, text: str, *, is_open: bool = False) -> str:
    """Return a `<details>` element; its blank lines let `<pre>` contain blank lines itself."""
    begins = "<details open>" if is_open else "<details>"
    summed = f"{begins}<summary><code>{_escape_html(title)}</code></summary>"
    return f"{summed}\n\n{_pre(text)}\n\n</details>"


def _pre(text: str) -> str:
    excerpt = text if len(text) <= LONGEST_DETAILS else cut_text(text, LONGEST_DETAILS) + "\n…"
    return f"<pre>\n{html.escape(escape_text(excerpt))}\n</pre>"


def _escape_html(text: str) -> str:
    return html.escape(escape_line(text))


def in_repository(root: Path, environ: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that maps a file of the workspace to its path in the repository, if any."""
    repository = environ.get("GITHUB_WORKSPACE")
    base = Path(repository).resolve() if repository else None

    def path(file: str) -> str:
        resolved = (root / file).resolve()
        return (
            resolved.relative_to(base).as_posix()
            if base and resolved.is_relative_to(base)
            else file
        )

    return path
