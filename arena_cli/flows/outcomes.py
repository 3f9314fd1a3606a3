"""How flows and their steps end, and what a transcript says of those that ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from arena_cli.transcript.events import Event
from arena_cli.transcript.flow_events import (
    FlowFinished,
    FlowStarted,
    FlowStatus,
    StepFinished,
    StepStarted,
)

OutcomeStatus = Literal["success", "failed", "skipped", "cancelled", "waiting"]

FACTS = ("status", "output", "error", "error_code", "retryable")
"""What is known of a step that has ended."""


class StepOutcome(NamedTuple):
    """How a step ended; `is_new`: it was carried out now. `waiting`: it waits for a person.

    `error_code` and `retryable` are as in `StepFinished`.
    """

    status: OutcomeStatus
    output: Any = None
    error: str | None = None
    is_new: bool = True
    error_code: str | None = None
    retryable: bool | None = None

    @classmethod
    def of(cls, end: StepFinished, *, is_new: bool) -> StepOutcome:
        """Return the end of a step by its event."""
        return cls(end.status, end.output, end.error, is_new, end.error_code, end.retryable)

    @property
    def facts(self) -> dict[str, Any]:
        """What other steps and programs can refer to."""
        return {name: getattr(self, name) for name in FACTS}


class FlowCaller(NamedTuple):
    """The agent that runs a flow, what tells its call from all others, and its team's name.

    `digest` is the SHA-256 of the files of the flow that were approved.
    """

    agent: str
    key: str
    team: str = ""
    digest: str = ""


class StepLog(NamedTuple):
    """What a session's events say of a flow: ends of steps, attempts, and open sessions."""

    file: str
    inputs: Mapping[str, Any]
    finished: Mapping[str, StepFinished]
    open_sessions: Mapping[str, str]
    attempts: Mapping[str, int]
    definitions: Mapping[str, str]
    status: FlowStatus | None
    caller: FlowCaller | None = None

    def make_result(self, steps: Iterable[str]) -> FlowResult:
        """Return how the flow ended, with these of its steps."""
        outcomes = {
            key: StepOutcome.of(end, is_new=False)
            for key in steps
            if (end := self.finished.get(key)) is not None
        }
        errors = {
            key: end.error or "" for key, end in self.finished.items() if end.status == "failed"
        }
        return FlowResult(self.status or "failed", outcomes, (), errors)


def read_log(events: Iterable[Event]) -> StepLog | None:
    """Return what the events say of their last flow, None if there is none."""
    log: StepLog | None = None
    finished: dict[str, StepFinished] = {}
    sessions: dict[str, str] = {}
    attempts: dict[str, int] = {}
    definitions: dict[str, str] = {}
    for event in events:
        if isinstance(event, FlowStarted):
            if not event.resumed:
                finished, sessions, attempts, definitions = {}, {}, {}, {}
            facts = (finished, sessions, attempts, definitions)
            caller = (
                FlowCaller(event.by, event.caller, event.team, event.digest) if event.by else None
            )
            log = StepLog(event.file, event.inputs, *facts, status=None, caller=caller)
        elif isinstance(event, StepStarted):
            attempts[event.step] = attempts.get(event.step, 0) + 1
            finished.pop(event.step, None)
            sessions[event.step] = event.session
            definitions[event.step] = event.definition
        elif isinstance(event, StepFinished):
            finished[event.step] = event
            definitions[event.step] = event.definition
            if event.status != "cancelled":
                sessions.pop(event.step, None)
        elif isinstance(event, FlowFinished) and log is not None:
            log = log._replace(status=event.status)
    return log


class FlowResult(NamedTuple):
    """How a flow ended: its steps by id, and the `errors` of those that failed.

    `waits` are the sessions that wait for a person.
    """

    status: FlowStatus
    outcomes: Mapping[str, StepOutcome]
    waits: Sequence[str]
    errors: Mapping[str, str]
