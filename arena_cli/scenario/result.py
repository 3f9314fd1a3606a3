"""What came of a run: one document, from the whole run down to each expectation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, get_args

from pydantic import Field, computed_field

from arena_cli.ground import exits
from arena_cli.ground.protocol import Shape
from arena_cli.transcript.events import SessionEvent

Status = Literal["passed", "failed", "error", "warned"]
StepStatus = Literal["passed", "failed", "error", "not_run"]
ScenarioStatus = Literal["passed", "failed", "error", "interrupted", "skipped", "xfailed"]

WRONG: frozenset[str] = frozenset({"failed", "error", "interrupted"})
"""What makes a scenario, a step or a check one that is looked at."""


class CheckResult(Shape):
    """One expectation. `field` is its place below `expect` (`replies.architect[0].contains`).

    `place` gives its file and line, which are looked up when they are asked for.

    `expected` and `actual` may have several lines. `warned`: it did not hold, and need not.
    `error`: the check itself crashed; `actual` tells how.
    """

    place: Callable[[], tuple[str, int]] = Field(exclude=True, repr=False)
    field: str
    status: Status
    expected: str
    actual: str

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation has it
    @cached_property
    def file(self) -> str:
        return self.place()[0]

    @computed_field  # type: ignore[prop-decorator]  # as above
    @cached_property
    def line(self) -> int:
        return self.place()[1]


class Failure(Shape):
    """A call of an agent that failed, and that no expectation names. `turn` is the step's."""

    agent: str
    turn: int
    status: str
    error: str


class StepResult(Shape):
    """One step. `number` counts from 1; `events` are its part of the transcript.

    `session` is the step's `session:` key. `error` is why arena could not play it.
    """

    number: int
    kind: str = "send"
    name: str = ""
    place: Callable[[], tuple[str, int]] = Field(exclude=True, repr=False)
    status: StepStatus
    end: str = ""
    session: str | None = None
    checks: list[CheckResult] = []
    failures: list[Failure] = []
    error: str | None = None
    events: list[Any] = Field(default=[], exclude=True)

    @computed_field  # type: ignore[prop-decorator]  # as above
    @cached_property
    def line(self) -> int:
        return self.place()[1]


class ScenarioResult(Shape):
    """One scenario, or one case of it.

    `checks` are those over all its steps. `sessions` are the names of those that were kept.
    `reason` is that of its `skip` or `xfail`; `error` what arena itself could not do (write to the
    disk). `seconds` are wall time.
    """

    scenario: str
    case: str | None = None
    file: str
    tags: list[str] = []
    status: ScenarioStatus
    reason: str | None = None
    seconds: float
    steps: list[StepResult] = []
    checks: list[CheckResult] = []
    sessions: list[str] = []
    error: str | None = None
    team: Any = Field(default=None, exclude=True)
    opening: SessionEvent | None = Field(default=None, exclude=True)

    @property
    def title(self) -> str:
        """The scenario's title, with the id of its case."""
        return f"{self.scenario} [{self.case}]" if self.case else self.scenario

    def all_checks(self) -> list[CheckResult]:
        """The checks of its steps, then those over all of them."""
        return [*(check for step in self.steps for check in step.checks), *self.checks]


class RunResult(Shape):
    """All scenarios of a run, in the order of selection; counts and exit code.

    `warned` counts checks that did not hold and need not.
    """

    version: int = 1
    exit_code: int
    passed: int
    failed: int
    error: int
    interrupted: int
    skipped: int
    xfailed: int
    not_run: int
    warned: int
    seconds: float
    scenarios: list[ScenarioResult]


def of_run(
    results: list[ScenarioResult], *, selected: int, seconds: float, interrupted: bool = False
) -> RunResult:
    """The result of a run in which so many scenarios were selected."""
    statuses: tuple[ScenarioStatus, ...] = get_args(ScenarioStatus)
    counts = Counter[str](dict.fromkeys(statuses, 0))
    counts.update(one.status for one in results)
    if interrupted or counts["interrupted"]:
        exit_code = exits.INTERRUPTED
    elif counts["failed"]:
        exit_code = exits.NOT_HELD
    else:
        exit_code = exits.FAILED if counts["error"] else 0
    return RunResult(
        exit_code=exit_code,
        not_run=selected - len(results),
        warned=sum(check.status == "warned" for one in results for check in one.all_checks()),
        seconds=round(seconds, 3),
        scenarios=results,
        **counts,
    )
