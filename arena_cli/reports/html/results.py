"""Build the views of scenarios, drift and text differences for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from arena_cli.reports import lines as lines_module
from arena_cli.reports.diff.text import blocks, changes_of
from arena_cli.reports.drift import (
    Causes,
    Finding,
    describe_drift,
    missed,
    ordered,
    texts,
    where,
    why_unkept,
    word,
    wrong,
)
from arena_cli.reports.html import page_text
from arena_cli.reports.html.components import Cast, View, build_talk
from arena_cli.reports.html.page_text import CollapsibleText
from arena_cli.reports.lines import Words
from arena_cli.scenarios.result import (
    WRONG,
    Cause,
    CheckResult,
    Drift,
    Failure,
    RunResult,
    ScenarioResult,
    StepResult,
    Touched,
)
from arena_cli.transcript.conversation import read_conversation
from arena_cli.util.text import cut_text, escape_line, escape_text

Kind = Literal["same", "removed", "added", "left_out"]

CONTEXT = 2  # lines that stay around what differs
LONGEST_SAME = 240  # characters that are alike, within a line that differs, before they are cut


class Part(NamedTuple):
    """A piece of a line; `differs`: the other line does not have it."""

    text: str
    differs: bool = False


class DiffRow(NamedTuple):
    """A line of one of the texts, or of both; `left_out`: that many equal lines."""

    kind: Kind
    parts: list[Part]
    left_out: int = 0


def diff_rows(old_text: str, new_text: str) -> list[DiffRow]:
    """Return the rows of a diff; both texts are escaped."""
    old, new = (escape_text(text).split("\n") if text else [] for text in (old_text, new_text))
    rows: list[DiffRow] = []
    diff_blocks = blocks(old, new)
    for index, block in enumerate(diff_blocks):
        lines = old[block.a1 : block.a2]
        if block.same:
            rows += _equal_rows(lines, begins=index == 0, ends=index == len(diff_blocks) - 1)
        else:
            rows += _changed(lines, new[block.b1 : block.b2])
    return rows


def _equal_rows(lines: Sequence[str], *, begins: bool, ends: bool) -> Iterator[DiffRow]:
    """Yield the lines next to a change, and the number of lines between them."""
    above = 0 if begins else CONTEXT
    below = 0 if ends else CONTEXT
    left_out = len(lines) - above - below
    if left_out < 2:  # to say so takes a line too
        yield from (DiffRow("same", [Part(line)]) for line in lines)
        return
    yield from (DiffRow("same", [Part(line)]) for line in lines[:above])
    yield DiffRow("left_out", [], left_out)
    yield from (DiffRow("same", [Part(line)]) for line in lines[len(lines) - below :])


def _changed(went: Sequence[str], came: Sequence[str]) -> Iterator[DiffRow]:
    """Yield all removed lines, then the added ones; lines at the same index have marked changes."""
    added: list[DiffRow] = []
    for old, new in zip_longest(went, came):
        both = _within(old, new) if old is not None and new is not None else None
        if old is not None:
            yield DiffRow("removed", both[0] if both else [Part(old)])
        if new is not None:
            added.append(DiffRow("added", both[1] if both else [Part(new)]))
    yield from added


def _within(old: str, new: str) -> tuple[list[Part], list[Part]] | None:
    changes = changes_of(old, new)
    if changes is None:
        return None
    sides: tuple[list[Part], list[Part]] = ([], [])
    for index, change in enumerate(changes):
        same = _shortened(change.same, begins=index == 0, ends=index == len(changes) - 1)
        for side, differs in zip(sides, (change.old, change.new), strict=True):
            side += [fragment for fragment in (Part(same), Part(differs, True)) if fragment.text]
    return sides


def _shortened(text: str, *, begins: bool, ends: bool) -> str:
    """Return the ends of a long unchanged text that are next to a change."""
    if len(text) <= LONGEST_SAME:
        return text
    half = LONGEST_SAME // 2
    return f"{'' if begins else text[:half]} […] {'' if ends else text[-half:]}"


# The number of a scenario on the page, and its steps, by title and file.
_Targets = dict[tuple[str, str], tuple[int, set[int]]]

# The numbers of causes, with their agents, by what they have in common with their drift.
_Causes = dict[tuple[str, str, str, str], list[tuple[int, list[str]]]]


BRIEF_LINES = 4  # of a finding, in the list of all of them
BRIEF = 200  # characters of what was expected, and held, that stand in its line


def build_views(run_result: RunResult, say: Words) -> list[View]:
    """Return the scenarios of a run, in its order."""
    numbers: _Causes = {}
    for number, cause in enumerate(Causes(run_result, say).ordered(), 1):
        numbers.setdefault(_alike(cause), []).append((number, cause.agents))
    return [
        _scenario(result, number, numbers, say)
        for number, result in enumerate(run_result.scenarios, 1)
    ]


def causes(run_result: RunResult, say: Words) -> list[View]:
    """Return the causes of the run's drift, the scenarios that each affects, and the advice."""
    targets = {
        (result.title, result.file): (number, {step.number for step in result.steps})
        for number, result in enumerate(run_result.scenarios, 1)
    }
    causes = Causes(run_result, say)
    return [
        {
            "told": describe_drift(cause, say),
            "diff": diff_rows(*texts(cause)),
            "todo": " · ".join(
                filter(None, [causes.changed(cause), causes.advice(cause).text.strip()])
            ),
            "touches": [_link(touched, targets) for touched in cause.touches],
        }
        for cause in causes.ordered()
    ]


def _link(touched: Touched, targets: _Targets) -> View:
    """Return a place on the page, or only its name if the page does not have it."""
    number, steps = targets.get((touched.scenario, touched.file), (0, set()))
    target = f"s{number}" if number else ""
    if number and touched.step in steps:
        target = f"s{number}-{touched.step}"
    return {
        "text": escape_line(touched.scenario),
        "target": target,
        "place": escape_line(f"{touched.file}:{touched.line}"),
        "calls": touched.calls,
    }


def _scenario(result: ScenarioResult, number: int, causes: _Causes, say: Words) -> View:
    steps = _Steps(result, number, say)
    facts = []
    if result.status != "skipped":
        facts.append(say("{seconds} s", seconds=f"{result.seconds:.2f}"))
    if result.usage:
        facts.append(lines_module.tokens(result.usage))
    if result.judges_usage:
        facts.append(say("judges: {tokens}", tokens=lines_module.tokens(result.judges_usage)))
    return {
        "id": f"s{number}",
        "title": escape_line(result.title),
        "status": result.status,
        "opened": result.status in WRONG,
        "place": escape_line(f"{result.file}:{result.line}"),
        "tags": [escape_line(tag) for tag in result.tags],
        "mode": word(result),
        "facts": facts,
        "reason": escape_line(result.reason or ""),
        "error": _text(result.error, say),
        "recording": escape_line(result.recording or ""),
        "written": result.written,
        "unkept": why_unkept(result, say),
        "sessions": [escape_line(name) for name in result.sessions],
        "warned": sum(check.status == "warned" for check in result.all_checks()),
        "findings": [_finding(finding, number, result, say) for finding in _reasons(result, say)],
        "drift": [_drifted(difference, causes, say) for difference in ordered(result)],
        "steps": [steps.view(step) for step in result.steps],
        "checks": [_check(check, say) for check in result.checks],
    }


def _text(error: str | None, say: Words) -> CollapsibleText | None:
    return page_text.of_text(say.message(error)) if error else None


def _reasons(result: ScenarioResult, say: Words) -> list[Finding]:
    """Return why a scenario failed, except by drift."""
    if result.status not in WRONG:
        return []
    return [
        finding
        for finding in wrong(result, say)
        if finding.kind not in ("drift", "interrupted") and not finding.aside
    ]


def _finding(finding: Finding, number: int, result: ScenarioResult, say: Words) -> View:
    steps = [step for step in result.steps if step.number == finding.step]
    rows = finding.text.split("\n")[:BRIEF_LINES]
    return {
        "status": "failed" if finding.kind == "expectation" else "error",
        "title": escape_line(finding.title),
        "place": escape_line(finding.place),
        "target": f"s{number}-{steps[0].number}" if steps else f"s{number}",
        "where": lines_module.step(steps[0].number, steps[0].name, say) if steps else "",
        "brief": [escape_line(cut_text(row, BRIEF)) for row in rows],
    }


def _drifted(drift: Drift, causes: _Causes, say: Words) -> View:
    """Return a difference in one scenario, and the number of its cause if it has one."""
    causing = (
        number
        for number, agents in causes.get(_alike(drift), ())
        if drift.agent is None or drift.agent in agents
    )
    return {
        "told": f"{where(drift, say)}{describe_drift(drift, say)}",
        "calls": drift.calls,
        "cause": None if drift.follows else next(causing, None),
        "follows": drift.follows,
    }


def _alike(difference: Drift | Cause) -> tuple[str, str, str, str]:
    """Return the key that a cause and its drift share, except their agent (see `result.causes`)."""
    return (
        difference.kind,
        difference.field.partition("[")[0],
        difference.before,
        difference.after,
    )


class _Steps:
    """The steps of one scenario, whose conversations have the same lanes."""

    def __init__(self, result: ScenarioResult, number: int, say: Words) -> None:
        self._say = say
        self._id = f"s{number}"
        self._missed = missed(result)
        talks = [read_conversation([*step.before, *step.events]) for step in result.steps]
        opening = [result.opening] if result.opening else []
        members = result.team.members if result.team else ()
        avatars = {member.id: member.profile.avatar for member in members}
        sessions = [session for talk in talks for session in talk.sessions]
        self._cast = Cast([*opening, *sessions], avatars)
        self._lanes = self._cast.lanes(turn for talk in talks for turn in talk.turns)
        self._items = {
            step.number: talk.items for step, talk in zip(result.steps, talks, strict=True)
        }

    def view(self, step: StepResult) -> View:
        """Return a step with its expectations and its conversation."""
        file, line = step.place()
        items = self._items[step.number]
        return {
            "id": f"{self._id}-{step.number}",
            "title": lines_module.step(step.number, step.name, self._say),
            "kind": step.kind,
            "session": escape_line(step.session or ""),
            "status": step.status,
            "place": escape_line(f"{file}:{line}"),
            "error": _text(step.error, self._say),
            "tokens": lines_module.tokens(step.usage) if step.usage else "",
            "failures": [self._failed(failure, step) for failure in step.failures],
            "checks": [_check(check, self._say) for check in step.checks],
            "talk": build_talk(items, self._cast, self._lanes, self._say) if items else None,
        }

    def _failed(self, failure: Failure, step: StepResult) -> View:
        agent = escape_line(failure.agent)
        is_missed = (step.number, failure.agent) in self._missed
        return {
            "agent": agent,
            "turn": failure.turn,
            "status": failure.status,
            "error": page_text.of_text(self._say.message(failure.error)),
            "remedy": "" if is_missed else f"expect outcome: {{{agent}: {failure.status}}}",
        }


def _check(check: CheckResult, say: Words) -> View:
    """Return an expectation; both texts are numbered by line if they have several."""
    expected, actual = (say.check(side).splitlines() for side in (check.expected, check.actual))
    is_brief = len(expected) == 1 and len(expected[0]) < BRIEF
    brief = escape_line(expected[0]) if is_brief else ""
    if max(len(expected), len(actual)) > 1:
        # As in `reports.columns`: a last line in parentheses tells of all of it.
        note = [actual.pop()] if actual and actual[-1].startswith("(") else []
        expected, actual = _numbered(expected), [*_numbered(actual), *note]
    return {
        "status": check.status,
        "place": escape_line(f"{check.file}:{check.line}"),
        "field": escape_line(check.field),
        "expected": page_text.of_text("\n".join(expected)) if expected else None,
        "actual": page_text.of_text("\n".join(actual)),
        "brief": brief,
        "judge": escape_line(check.judge or ""),
    }


def _numbered(rows: list[str]) -> list[str]:
    return [f"{number}. {row}" for number, row in enumerate(rows, 1)]
