"""Write the result of a run for GitHub Actions: annotations, and a summary of the step.

An annotation is a workflow command, whose escapes are those of GitHub's own toolkit: `%`, CR and
LF, in properties also `:` and `,`. GitHub shows ten annotations of each type per step, so there are
never more, the most informative first. The summary is markdown that consists of HTML blocks:
escaped text in them is read neither as markdown nor as HTML. A step's summary may have 1 MiB, else
GitHub shows none of it.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from arena_cli.reports import drift, results
from arena_cli.reports.lines import Line, Words
from arena_cli.scenarios.result import WRONG, Cause, RunResult, ScenarioResult
from arena_cli.util.text import cut_text, escape_line, escape_text

MOST = 10
"""https://docs.github.com/actions/reference/limits: annotations of a type that a step shows."""

MOST_BYTES = 1024 * 1024
"""https://docs.github.com/actions/reference/workflow-commands: of a step's summary."""

LONGEST_MESSAGE = 2000
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
        text = _plain(causes.below(cause))
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
    title = _property(cut_text(note.title, LONGEST_MESSAGE))
    return f"::{note.level} {location}title={title}::{_data(cut_text(note.text, LONGEST_MESSAGE))}"


def _data(text: str) -> str:
    return escape_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape_line(text)).replace(":", "%3A").replace(",", "%2C")


def summary(run_result: RunResult, say: Words, room: int = MOST_BYTES, error: str = "") -> str:
    """Return the step's summary in at most `room` bytes of UTF-8; empty if there is no room."""
    wrong = [result for result in run_result.scenarios if result.status in WRONG]
    sections = [_head(run_result, say)]
    if error:
        sections.append(_pre(error))
    if wrong:
        sections.append(_table(wrong, say))
    causes = drift.Causes(run_result, say)
    sections += [_cause(cause, causes, say) for cause in causes.ordered()]
    sections += [_details(result, say) for result in wrong]
    return _fitting(sections, say, room)


def _fitting(sections: Sequence[str], say: Words, room: int) -> str:
    """Return the parts that fit completely, and the number of those that do not."""
    fitting: list[str] = []
    bytes_left = room - _LEFT
    for index, section in enumerate(sections):
        bytes_left -= len(section.encode()) + 2
        if bytes_left < 0:
            omitted = len(sections) - index
            fitting.append(_text(say("and {count} more in the log", count=omitted)))
            break
        fitting.append(section)
    return "\n\n".join(fitting) + "\n" if room > _LEFT else ""


def _head(run_result: RunResult, say: Words) -> str:
    return f"### arena: {_text(results.summary(run_result, say))}"


def _table(wrong: Sequence[ScenarioResult], say: Words) -> str:
    rows = [_row(result, say) for result in wrong[:MOST_ROWS]]
    omitted = len(wrong) - len(rows)
    if omitted:
        rows.append(f"<tr><td>{_text(say('and {count} more', count=omitted))}</td></tr>")
    return "\n".join(["<table>", *rows, "</table>"])


def _row(result: ScenarioResult, say: Words) -> str:
    cells = [f"<td><b>{results.LABELS[result.status]}</b></td>"]
    findings = drift.wrong(result, say)
    location = findings[0].place if findings else result.file
    problem = findings[0].title if findings else ""
    cells += [f"<td><code>{_text(cell)}</code></td>" for cell in (result.title, location, problem)]
    return f"<tr>{''.join(cells)}</tr>"


def _cause(cause: Cause, causes: drift.Causes, say: Words) -> str:
    title = f"{say('drift: ')}{drift.describe_drift(cause, say)}"
    return _folded(title, _plain(causes.below(cause)), is_open=True)


def _details(result: ScenarioResult, say: Words) -> str:
    report = results.Report(result, say)
    return _folded(result.title, _plain(report.lines()))


def _plain(lines: Iterable[Line]) -> str:
    return textwrap.dedent("\n".join(line.text for line in lines))


def _folded(title: str, text: str, *, is_open: bool = False) -> str:
    """Return a `<details>` element; its blank lines let `<pre>` contain blank lines itself."""
    begins = "<details open>" if is_open else "<details>"
    summed = f"{begins}<summary><code>{_text(title)}</code></summary>"
    return f"{summed}\n\n{_pre(text)}\n\n</details>"


def _pre(text: str) -> str:
    excerpt = text if len(text) <= LONGEST_DETAILS else cut_text(text, LONGEST_DETAILS) + "\n…"
    return f"<pre>\n{html.escape(escape_text(excerpt))}\n</pre>"


def _text(text: str) -> str:
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
