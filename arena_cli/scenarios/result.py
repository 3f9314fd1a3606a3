"""The result of a run: one document, from the whole run down to each expectation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

from pydantic import Field, computed_field

from arena_cli import errors
from arena_cli.errors import Fault
from arena_cli.protocol import Shape, StructuredContent, Usage
from arena_cli.transcript.conversation import read_conversation
from arena_cli.transcript.events import SessionEvent
from arena_cli.workspace.schema import DIALECT

Status = Literal["passed", "failed", "error", "warned"]
StepStatus = Literal["passed", "failed", "error", "not_run"]
ScenarioStatus = Literal["passed", "failed", "error", "interrupted", "skipped", "xfailed"]

Mode = Literal["live", "replay", "record", "update"]
"""Where a scenario's answers came from: its agents (`record`: kept), or its recording (`update`:
what drifted is accepted). With `--record=missing` one that has a recording is `replay`, or `record`
where agents were called for what was missing in it.
"""

DriftKind = Literal["input", "settings", "routing", "left_over", "miss"]

DRIFTED = "the replay differs from the recording; accept the change with --update first"
DRIFTED_AND_NEW = (
    "the replay differs from the recording, and agents were called for new parts: "
    "record everything again with --record"
)
"""Why a recording was not added to; an update calls no agent, so it keeps no new answer."""

WRONG: frozenset[str] = frozenset({"failed", "error", "interrupted"})
"""What makes a scenario, a step or a check one that is looked at."""


_SHARED = frozenset({"input", "settings"})
"""What may be one text for several agents: a message, a prompt that one extends."""


class CheckResult(Shape):
    """The result of one expectation.

    `field` is its place below `expect` (`replies.architect[0].contains`).

    `place` returns its file and line, which are computed only when requested.

    `expected` and `actual` may have several lines. `warned`: it did not hold, but its level is
    `warn`. `error`: the check itself crashed, or its judge gave no verdict; `actual` has the
    reason. `judge` is the agent that judged, if any.
    """

    place: Callable[[], tuple[str, int]] = Field(exclude=True, repr=False)
    field: str
    status: Status
    expected: str
    actual: str
    judge: str | None = None

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


TOOL = "tool "
"""The beginning of the field of a difference that is about a tool, before its name."""

FLOW_STEP = "flow step "
"""The beginning of the field of a difference that is about a step of a flow, before its name."""


class Drift(Shape):
    """A difference between a replay and its recording, in one scenario.

    `input`: an agent has a different input. `settings`: its profile, or a rule of the team, has
    changed. `routing`: another agent is called, or a chain ends in another way. `left_over`: a
    recorded call is no longer made. `miss`: a call has no record, so its reply is an error.

    `agent` is the affected agent, None for the team or the chain. `field` is the field that differs
    (`role_prompt`, `messages[3]`, `response.threshold`, `config.max_responders`, `must`; of a tool
    `tool add`, `tool add arguments`, `tool add answer`; `flow step ID`); `before` and `after` are
    its texts. `step` counts from 1, `turn` within the step's chain; None if the difference is in no
    step, or in all.
    `calls` is the number of calls of this scenario that it affects. `follows`: it follows from
    another difference in this scenario. `changed` is `file:line` of the change; empty if that is
    the step itself, or unknown. `is_followed`: a recorded step comes after this `miss`, so
    `--record=missing` cannot add it.
    """

    kind: DriftKind
    agent: str | None = None
    field: str
    before: str = ""
    after: str = ""
    step: int | None = None
    turn: int | None = None
    calls: int = 0
    follows: bool = False
    changed: str = ""
    is_followed: bool = False


class Touched(Shape):
    """A scenario that a cause of drift affects; `line` is that of the step, or of the title."""

    scenario: str
    file: str
    line: int
    step: int | None = None
    turn: int | None = None
    calls: int = 0


class Cause(Shape):
    """A cause of drift, reported once for all scenarios that it affects.

    Fields as in `Drift`; `agents` are all affected agents, `changed` all places of the change.
    """

    kind: DriftKind
    agents: list[str] = []
    field: str
    before: str = ""
    after: str = ""
    changed: list[str] = []
    touches: list[Touched]


class FileProblem(Shape):
    """An error in a file, or a warning about it; `line` is 0 for the file as a whole."""

    file: str
    line: int
    field: str = ""
    what: str
    hint: str = ""
    text: str = Field(exclude=True, repr=False)

    @classmethod
    def of(cls, fault: Fault) -> FileProblem:
        """Return an error in a file as part of a result; `text` is the complete message."""
        return cls(
            file=fault.file,
            line=fault.line,
            field=fault.field,
            what=fault.what,
            hint=fault.mend,
            text=str(fault),
        )


class ReplyResult(Shape):
    """A reply of a step, successful or not; its `turn` counts from 1 in the step.

    `text` is empty where the agent said nothing. `calls` are the agents that it calls.
    """

    agent: str
    turn: int
    phase: str
    status: str
    text: str = ""
    structured: list[StructuredContent] = []
    calls: list[str] = []
    error: str | None = None
    attempts: int = 1
    latency_ms: int = 0
    usage: Usage | None = None


class StepResult(Shape):
    """The result of a step. `number` counts from 1; `events` are its part of the transcript.

    `session` is the step's `session:` key, `session_name` the name of the stored session, None
    where it was not kept. `error` is why arena could not play it. `usage` is what its agents used,
    None where none was called. `replies` is None unless the detail was asked for. `before` are the
    events of its chain in earlier steps, if it continues one.
    """

    number: int
    kind: str = "send"
    name: str = ""
    place: Callable[[], tuple[str, int]] = Field(exclude=True, repr=False)
    status: StepStatus
    end: str = ""
    session: str | None = None
    session_name: str | None = None
    replies: list[ReplyResult] | None = None
    checks: list[CheckResult] = []
    failures: list[Failure] = []
    error: str | None = None
    usage: Usage | None = None
    events: list[Any] = Field(default=[], exclude=True)
    before: list[Any] = Field(default=[], exclude=True)

    @computed_field  # type: ignore[prop-decorator]  # as above
    @cached_property
    def line(self) -> int:
        return self.place()[1]


class ScenarioResult(Shape):
    """The result of a scenario, or of one case of it.

    `checks` are those over all its steps. `sessions` are the names of the sessions that were kept.
    `reason` is that of its `skip` or `xfail`; `error` is an error of arena itself (such as a full
    disk). `seconds` are wall time. `mode` is None if it was not played. `recording` is the path of
    its recording, if one was used or written; `written` is True if it was written again. If it was
    to be written and was not, `unkept` is the reason, and `unkept_agents` are the agents whose
    failure was the cause. `drift_fails`: it failed because of drift. `usage` is the usage of its
    agents, `judges_usage` that of its judges. The errors in its file, if any, are why it was not
    played.
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
    faults: list[FileProblem] = []
    mode: Mode | None = None
    recording: str | None = None
    written: bool = False
    unkept: str = ""
    unkept_agents: list[str] = []
    drift: list[Drift] = []
    drift_fails: bool = False
    usage: Usage | None = None
    judges_usage: Usage | None = None
    place: Callable[[], tuple[str, int]] = Field(exclude=True, repr=False)
    team: Any = Field(default=None, exclude=True)
    opening: SessionEvent | None = Field(default=None, exclude=True)

    @computed_field  # type: ignore[prop-decorator]  # as above
    @cached_property
    def line(self) -> int:
        return self.place()[1]

    @property
    def title(self) -> str:
        """The scenario's title, with the id of its case."""
        return f"{self.scenario} [{self.case}]" if self.case else self.scenario

    @property
    def fails_only_by_drift(self) -> bool:
        """True if it would have passed as recorded; a call without a record is drift too."""
        if self.status != "failed" or not self.drift_fails or self.error:
            return False
        missed = {(drift.step, drift.agent) for drift in self.drift if drift.kind == "miss"}
        unexpected = [
            failure
            for step in self.steps
            for failure in step.failures
            if (step.number, failure.agent) not in missed
        ]
        statuses = {check.status for check in self.all_checks()}
        wrong = {"error"} if self.reason is not None else {"failed", "error"}
        has_errors = any(step.error for step in self.steps)
        return not (unexpected or has_errors or statuses & wrong)

    def line_of(self, step: int | None) -> int:
        """Return the line of a step (from 1), or of the title."""
        lines = [step_result.line for step_result in self.steps if step_result.number == step]
        return lines[0] if lines else self.line

    def all_checks(self) -> list[CheckResult]:
        """Return the checks of its steps, then those over all of them."""
        return [*(check for step in self.steps for check in step.checks), *self.checks]


class RunResult(Shape):
    """All scenarios of a run, in the order of selection; counts and exit code.

    `warned` counts checks that did not hold and need not, `judge_errors` judges that gave no
    verdict, `drifted` the scenarios that are not as they were recorded, `drift_only` the failed
    ones that would have passed as recorded, `modes` the scenarios by mode. `warnings` are what is
    suspicious in files, and would be an error with `--strict`.
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
    judge_errors: int
    drifted: int
    drift_only: int = 0
    seconds: float
    modes: dict[Mode, int]
    drift: list[Cause]
    warnings: list[FileProblem] = []
    scenarios: list[ScenarioResult]


def list_replies(result: ScenarioResult) -> ScenarioResult:
    """Return the result with the replies of each step, in order of call."""
    steps = [step.model_copy(update={"replies": _replies(step)}) for step in result.steps]
    return result.model_copy(update={"steps": steps})


def _replies(step: StepResult) -> list[ReplyResult]:
    since = step.events[0].seq if step.events else 0
    return [
        ReplyResult(
            agent=done.agent,
            turn=turn,
            phase=done.phase,
            status=done.status,
            text=done.message.content if done.message else "",
            structured=done.message.structured if done.message else [],
            calls=done.next_mentions,
            error=done.error,
            attempts=done.attempts,
            latency_ms=done.latency_ms,
            usage=done.usage,
        )
        for turn, turn_record in enumerate(read_conversation([*step.before, *step.events]).turns, 1)
        for done in turn_record.results()
        if done.seq >= since
    ]


def build_result_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document that `arena run --json` prints."""
    schema = RunResult.model_json_schema(mode="serialization")
    schema["$defs"]["StepResult"]["properties"]["reasons"] = {
        "description": "With --explain: whom each mention names, and why agents were asked.",
        "items": {"type": "object"},
        "type": "array",
    }
    return {"$schema": DIALECT, **schema, "title": "arena result"}


def causes(results: Iterable[ScenarioResult]) -> list[Cause]:
    """Return the causes of a run's drift, each once, in order of appearance."""
    by_cause: dict[tuple[str, str | None, str, str, str], list[tuple[ScenarioResult, Drift]]] = {}
    for result in results:
        for drift in (drift for drift in result.drift if not drift.follows):
            by_cause.setdefault(_same_cause(drift), []).append((result, drift))
    return [_cause(met) for met in by_cause.values()]


def _same_cause(drift: Drift) -> tuple[str, str | None, str, str, str]:
    """Return the key of a cause: the same differing text, regardless of the agent."""
    shared = drift.kind in _SHARED and drift.field != "mentioned_by"
    field = drift.field.partition("[")[0] if shared else drift.field
    return (drift.kind, None if shared else drift.agent, field, drift.before, drift.after)


def _cause(met: Sequence[tuple[ScenarioResult, Drift]]) -> Cause:
    first = met[0][1]
    return Cause(
        kind=first.kind,
        agents=list(dict.fromkeys(drift.agent for _, drift in met if drift.agent)),
        field=first.field,
        before=first.before,
        after=first.after,
        changed=list(dict.fromkeys(drift.changed for _, drift in met if drift.changed)),
        touches=[
            Touched(
                scenario=result.title,
                file=result.file,
                line=result.line_of(drift.step),
                step=drift.step,
                turn=drift.turn,
                calls=drift.calls,
            )
            for result, drift in met
        ],
    )


def unplayed(title: str, file: str, tags: Iterable[str], faults: Sequence[Fault]) -> ScenarioResult:
    """Return the result of a scenario that could not be played because of its file: an error."""
    first = min(faults, key=lambda fault: (fault.file != file, fault.line))
    return ScenarioResult(
        scenario=title,
        file=file,
        tags=list(tags),
        status="error",
        seconds=0,
        error="\n".join(map(str, faults)),
        faults=[FileProblem.of(fault) for fault in faults],
        place=lambda: (file, first.line if first.file == file and first.line else 1),
    )


def of_run(
    results: list[ScenarioResult],
    *,
    selected: int,
    seconds: float,
    interrupted: bool = False,
    refused: bool = False,
    warnings: Iterable[Fault] = (),
) -> RunResult:
    """Return the result of a run for which `selected` scenarios were selected.

    `refused`: no scenario was played, because of errors in files.
    """
    statuses: tuple[ScenarioStatus, ...] = get_args(ScenarioStatus)
    counts = Counter[str](dict.fromkeys(statuses, 0))
    counts.update(result.status for result in results)
    exit_code = _exit_code(counts, interrupted=interrupted, refused=refused)
    checks = [check for result in results for check in result.all_checks()]
    return RunResult(
        exit_code=exit_code,
        not_run=selected - len(results),
        warned=sum(check.status == "warned" for check in checks),
        judge_errors=sum(check.judge is not None and check.status == "error" for check in checks),
        drifted=sum(bool(result.drift) for result in results),
        drift_only=sum(result.fails_only_by_drift for result in results),
        modes=dict(Counter(result.mode for result in results if result.mode)),
        drift=causes(results),
        warnings=[FileProblem.of(fault) for fault in warnings],
        seconds=round(seconds, 3),
        scenarios=results,
        **counts,
    )


def _exit_code(counts: Mapping[str, int], *, interrupted: bool, refused: bool) -> int:
    if interrupted or counts["interrupted"]:
        return errors.EXIT_INTERRUPTED
    if refused:
        return errors.EXIT_USAGE
    if counts["failed"]:
        return errors.EXIT_NOT_HELD
    return errors.EXIT_FAILED if counts["error"] else 0
