"""What came of a run: one document, from the whole run down to each expectation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from arena_cli.ground.protocol import Shape
from arena_cli.transcript.events import SessionEvent

Status = Literal["passed", "failed", "error"]
StepStatus = Literal["passed", "failed", "error", "not_run"]
ScenarioStatus = Literal["passed", "failed", "error", "interrupted"]


class CheckResult(Shape):
    """One expectation. `field` is its place below `expect` (`replies.architect[0].contains`).

    `error`: the check itself crashed; `actual` tells how.
    """

    file: str
    line: int
    field: str
    status: Status
    expected: str
    actual: str


class Failure(Shape):
    """A call of an agent that failed, and that no expectation names. `turn` is the step's."""

    agent: str
    turn: int
    status: str
    error: str


class StepResult(Shape):
    """One step. `number` counts from 1; `events` are its part of the transcript."""

    number: int
    name: str = ""
    line: int
    status: StepStatus
    end: str = ""
    checks: list[CheckResult] = []
    failures: list[Failure] = []
    events: list[Any] = Field(default=[], exclude=True)


class ScenarioResult(Shape):
    """One scenario. `checks` are those over all its steps; `session` is kept unless it passed.

    `error` is what arena itself could not do (write to the disk).
    """

    scenario: str
    file: str
    status: ScenarioStatus
    seconds: float
    steps: list[StepResult] = []
    checks: list[CheckResult] = []
    session: str | None = None
    error: str | None = None
    opening: SessionEvent | None = Field(default=None, exclude=True)


class RunResult(Shape):
    """All scenarios of a run, in the order in which they were played; counts and exit code."""

    version: int = 1
    exit_code: int
    passed: int
    failed: int
    error: int
    interrupted: int
    not_run: int
    seconds: float
    scenarios: list[ScenarioResult]


def of_run(results: list[ScenarioResult], *, selected: int, seconds: float) -> RunResult:
    """The result of a run in which so many scenarios were selected."""
    counts = {"passed": 0, "failed": 0, "error": 0, "interrupted": 0}
    for one in results:
        counts[one.status] += 1
    not_run = selected - len(results)
    if counts["interrupted"] or not_run:
        exit_code = 130
    elif counts["failed"]:
        exit_code = 1
    else:
        exit_code = 3 if counts["error"] else 0
    return RunResult(
        exit_code=exit_code,
        not_run=not_run,
        seconds=round(seconds, 3),
        scenarios=results,
        **counts,
    )
