"""Scenarios and causes of drift as a page shows them."""

from __future__ import annotations

from dataclasses import dataclass

from arena_cli.ground.protocol import Usage
from arena_cli.ground.text import shown_line
from arena_cli.report import drift, facts, findings, modes
from arena_cli.report.html import blocks, diffs, talk
from arena_cli.report.html.blocks import Text
from arena_cli.report.html.cast import Cast
from arena_cli.report.html.diffs import Row
from arena_cli.report.html.talk import Talk
from arena_cli.report.words import Words
from arena_cli.scenario.result import (
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

# The number of a scenario on the page, and its steps, by title and file.
_Targets = dict[tuple[str, str], tuple[int, set[int]]]

# The numbers of causes, with their agents, by what they have in common with their drift.
_Causes = dict[tuple[str, str, str, str], list[tuple[int, list[str]]]]


BRIEF = 200  # characters of what was expected, and held, that stand in its line


@dataclass(frozen=True)
class Check:
    """One expectation; both texts are numbered by line where they have several."""

    status: str
    place: str
    field: str
    expected: Text | None
    actual: Text
    brief: str
    judge: str


@dataclass(frozen=True)
class Failed:
    """A call that failed and that nobody expected."""

    agent: str
    turn: int
    status: str
    error: Text
    remedy: str


@dataclass(frozen=True)
class Drifted:
    """One difference in one scenario; `cause` is the number of the cause that tells more, None
    where it `follows` from another one.
    """

    told: str
    calls: int
    cause: int | None
    follows: bool


@dataclass(frozen=True)
class Link:
    """A place on the page, or only its name where the page has not got it."""

    text: str
    target: str
    place: str
    calls: int


@dataclass(frozen=True)
class CauseView:
    """One cause of drift, the scenarios that it touches, and what to do about it."""

    told: str
    diff: list[Row]
    todo: str
    touches: list[Link]


@dataclass(frozen=True)
class Step:
    """One step with its expectations and its conversation."""

    id: str
    title: str
    kind: str
    session: str
    status: str
    place: str
    end: str
    error: Text | None
    tokens: str
    failures: list[Failed]
    checks: list[Check]
    talk: Talk | None


@dataclass(frozen=True)
class ScenarioView:
    """One scenario. `opened` ones are shown unfolded."""

    id: str
    title: str
    status: str
    opened: bool
    place: str
    tags: list[str]
    mode: str
    facts: list[str]
    reason: str
    error: Text | None
    recording: str
    written: bool
    unkept: str
    sessions: list[str]
    warned: int
    drift: list[Drifted]
    steps: list[Step]
    checks: list[Check]


def of(whole: RunResult, say: Words) -> list[ScenarioView]:
    """The scenarios of a run, in its order."""
    numbers: _Causes = {}
    for number, cause in enumerate(drift.Causes(whole, say).ordered(), 1):
        numbers.setdefault(_alike(cause), []).append((number, cause.agents))
    return [
        _scenario(result, number, numbers, say) for number, result in enumerate(whole.scenarios, 1)
    ]


def causes(whole: RunResult, say: Words) -> list[CauseView]:
    """The causes of its drift, with links into the page."""
    targets = {
        (result.title, result.file): (number, {step.number for step in result.steps})
        for number, result in enumerate(whole.scenarios, 1)
    }
    causes = drift.Causes(whole, say)
    return [_cause(cause, causes, targets, say) for cause in causes.ordered()]


def _cause(cause: Cause, causes: drift.Causes, targets: _Targets, say: Words) -> CauseView:
    return CauseView(
        told=drift.what(cause, say),
        diff=diffs.of(*drift.texts(cause)),
        todo=" · ".join(filter(None, [causes.changed(cause), causes.advice(cause).text.strip()])),
        touches=[_link(touched, targets) for touched in cause.touches],
    )


def _link(touched: Touched, targets: _Targets) -> Link:
    number, steps = targets.get((touched.scenario, touched.file), (0, set()))
    target = f"s{number}" if number else ""
    if number and touched.step in steps:
        target = f"s{number}-{touched.step}"
    return Link(
        text=shown_line(touched.scenario),
        target=target,
        place=shown_line(f"{touched.file}:{touched.line}"),
        calls=touched.calls,
    )


def _scenario(result: ScenarioResult, number: int, causes: _Causes, say: Words) -> ScenarioView:
    steps = _Steps(result, number, say)
    skipped = result.status == "skipped"
    told = [] if skipped else [say("{seconds} s", seconds=f"{result.seconds:.2f}")]
    if result.usage:
        told.append(facts.tokens(result.usage))
    if result.judges_usage:
        told.append(say("judges: {tokens}", tokens=facts.tokens(result.judges_usage)))
    return ScenarioView(
        id=f"s{number}",
        title=shown_line(result.title),
        status=result.status,
        opened=result.status in WRONG,
        place=shown_line(f"{result.file}:{result.line}"),
        tags=[shown_line(tag) for tag in result.tags],
        mode=modes.word(result),
        facts=told,
        reason=shown_line(result.reason or ""),
        error=blocks.of_text(result.error) if result.error else None,
        recording=shown_line(result.recording or ""),
        written=result.written,
        unkept=modes.why_unkept(result, say),
        sessions=[shown_line(name) for name in result.sessions],
        warned=sum(check.status == "warned" for check in result.all_checks()),
        drift=[_drifted(one, causes, say) for one in drift.ordered(result)],
        steps=[steps.view(step) for step in result.steps],
        checks=[_check(check) for check in result.checks],
    )


def _drifted(one: Drift, causes: _Causes, say: Words) -> Drifted:
    told = f"{drift.where(one, say)}{drift.what(one, say)}"
    causing = (
        number
        for number, agents in causes.get(_alike(one), ())
        if one.agent is None or one.agent in agents
    )
    cause = None if one.follows else next(causing, None)
    return Drifted(told, one.calls, cause, one.follows)


def _alike(one: Drift | Cause) -> tuple[str, str, str, str]:
    """What a cause and its drift have in common, their agent apart (see `result.causes`)."""
    return (one.kind, one.field.partition("[")[0], one.before, one.after)


class _Steps:
    """The steps of one scenario, whose conversations have the same lanes."""

    def __init__(self, result: ScenarioResult, number: int, say: Words) -> None:
        self._say = say
        self._id = f"s{number}"
        self._result = result
        events = [event for step in result.steps for event in step.events]
        opening = [result.opening] if result.opening else []
        members = result.team.members if result.team else ()
        avatars = {member.id: member.profile.avatar for member in members}
        self._cast = Cast([*opening, *talk.sessions(events)], avatars)
        self._lanes = self._cast.lanes(events)

    def view(self, step: StepResult) -> Step:
        """One step."""
        file, line = step.place()
        return Step(
            id=f"{self._id}-{step.number}",
            title=facts.step(step.number, step.name, self._say),
            kind=step.kind,
            session=shown_line(step.session or ""),
            status=step.status,
            place=shown_line(f"{file}:{line}"),
            end=step.end,
            error=blocks.of_text(step.error) if step.error else None,
            tokens=_tokens(step.usage),
            failures=[self._failed(failure, step) for failure in step.failures],
            checks=[_check(check) for check in step.checks],
            talk=talk.of(step.events, self._cast, self._lanes, self._say) if step.events else None,
        )

    def _failed(self, failure: Failure, step: StepResult) -> Failed:
        agent = shown_line(failure.agent)
        is_missed = (step.number, failure.agent) in findings.missed(self._result)
        return Failed(
            agent=agent,
            turn=failure.turn,
            status=failure.status,
            error=blocks.of_text(failure.error),
            remedy="" if is_missed else f"expect outcome: {{{agent}: {failure.status}}}",
        )


def _tokens(usage: Usage | None) -> str:
    return facts.tokens(usage) if usage else ""


def _check(check: CheckResult) -> Check:
    wanted, there = check.expected.splitlines(), check.actual.splitlines()
    numbered = max(len(wanted), len(there)) > 1
    # As in `report.columns`: a last line in parentheses tells of all of it.
    note = there.pop() if numbered and there and there[-1].startswith("(") else ""
    sides = [_numbered(rows) if numbered else "\n".join(rows) for rows in (wanted, there)]
    return Check(
        status=check.status,
        place=shown_line(f"{check.file}:{check.line}"),
        field=shown_line(check.field),
        expected=blocks.of_text(sides[0]) if sides[0] else None,
        actual=blocks.of_text("\n".join([sides[1], note]).strip("\n")),
        brief=shown_line(wanted[0]) if len(wanted) == 1 and len(wanted[0]) < BRIEF else "",
        judge=shown_line(check.judge or ""),
    )


def _numbered(rows: list[str]) -> str:
    return "\n".join(f"{number}. {row}" for number, row in enumerate(rows, 1))
