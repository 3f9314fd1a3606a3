"""The events of flows: the steps that were carried out, with their outputs.

They are read when a transcript holds one: a session without a flow never imports this module.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from arena_cli.protocol import Volatile, omitted
from arena_cli.transcript.events import SideEvent

StepStatus = Literal["success", "failed", "skipped", "cancelled"]
FlowStatus = Literal["success", "failed", "paused"]


class FlowStarted(SideEvent):
    """A flow begins, or continues (`resumed`) after it was cut short or a person changed it.

    `by` is the agent that runs it, `caller` the session, reply and time of its call, `team` its
    team, `digest` the SHA-256 of the files of the flow that were approved; they are empty for the
    flow of a person.
    """

    type: Literal["flow_started"] = "flow_started"
    flow: str
    file: str
    inputs: dict[str, Any] = {}
    resumed: bool = omitted(False)
    by: str = omitted("")
    caller: Annotated[str, Volatile] = omitted("")
    team: str = omitted("")
    digest: Annotated[str, Volatile] = omitted("")

    @property
    def session_end(self) -> str:
        """The flow runs, or was cut short."""
        return "open"


class StepStarted(SideEvent):
    """An attempt at a step begins.

    `step` is its id; `outer.inner` is a step within another one, `outer[2].inner` the same in
    round or item 2, from 0. `session` is the session in which its agents talk. `definition` is the
    hash of its lines in the file, without those of steps in it.
    """

    type: Literal["step_started"] = "step_started"
    step: str
    kind: str
    attempt: Annotated[int, Volatile] = 1
    session: Annotated[str, Volatile] = omitted("")
    definition: Annotated[str, Volatile] = ""


class StepFinished(SideEvent):
    """A step is over, after `ms` milliseconds in all its attempts.

    A `skipped` step has no output: its `when` was false, or it failed and may be skipped.
    `retryable` tells whether another attempt may succeed. `definition` is as at its start.
    """

    type: Literal["step_finished"] = "step_finished"
    step: str
    kind: str
    status: StepStatus
    output: Any = omitted(None)
    error: str | None = omitted(None)
    error_code: str | None = omitted(None)
    retryable: bool | None = omitted(None)
    attempts: Annotated[int, Volatile] = 1
    ms: Annotated[int, Volatile] = 0
    definition: Annotated[str, Volatile] = ""


class Reflected(SideEvent):
    """An agent looked at a finished flow; `should_retry`: the failed steps run again.

    `error` is the reason if its answer was no assessment.
    """

    type: Literal["reflected"] = "reflected"
    by: str
    assessment: str = ""
    should_retry: bool = False
    confidence: float | None = omitted(None)
    recommendations: list[str] = []
    session: Annotated[str, Volatile] = ""
    error: str | None = omitted(None)


class FlowFinished(SideEvent):
    """A flow is over; `failed` are the steps that failed, `waits` the sessions that are paused."""

    type: Literal["flow_finished"] = "flow_finished"
    status: FlowStatus
    failed: list[str] = omitted([])
    waits: Annotated[list[str], Volatile] = omitted([])

    @property
    def session_end(self) -> str:
        """The end of the flow."""
        return self.status
