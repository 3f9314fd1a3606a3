"""Play the steps of scenarios that run a flow, with or without a recording.

A flow that is run by itself is recorded like a scenario with one step, which runs it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Middleware
from arena_cli.errors import FileFaults, UsageError
from arena_cli.flows import contacts, loader
from arena_cli.flows.calls import AgentCalls
from arena_cli.flows.loader import Flow
from arena_cli.flows.model import StepSpec
from arena_cli.flows.runner import FlowRun
from arena_cli.flows.step_rules import find_work
from arena_cli.flows.work import StepFailed
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.recording import file, inner_calls, settings
from arena_cli.scenarios.recording.inner_calls import NoRecord
from arena_cli.scenarios.recording.model import RecordedStep
from arena_cli.scenarios.recording.recorder import Tape
from arena_cli.scenarios.result import Drift
from arena_cli.session.session import Session, make_redactor
from arena_cli.transcript.events import Event
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.inputs import require_inputs
from arena_cli.workspace.workspace import Workspace


async def run_flow(
    scenario: Scenario,
    index: int,
    session: Session,
    config: SessionConfig,
    *,
    middlewares: Sequence[Middleware],
    on_session: Callable[[str], None],
    tape: Tape | None,
) -> str:
    """Run the flow of a step in its session; return why it did not succeed, "" if it did.

    `on_session` is called with the name of each session in which agents of the flow talk. With a
    `tape`, steps are recorded, or answered from the recording. Raises UsageError or DiskRefused.
    """
    flow, played = scenario.flows[index], scenario.file.steps[index].played_flow
    assert played is not None
    profiles = contacts.list_profiles(flow, scenario.workspace)
    calls = AgentCalls(
        scenario.workspace,
        config,
        team=flow.team,
        listen=lambda name, _: on_session(name),
        middlewares=lambda _: middlewares,
    )
    redactor = make_redactor(config, profiles, contacts.list_settings(flow))
    run = FlowRun(
        flow,
        session.journal,
        config,
        calls,
        session=session.name,
        redactor=redactor,
    )
    if tape is not None:
        run.answer_by(StepAnswers(scenario.workspace, flow, tape, redactor).answer)
    result = await run.run(require_inputs("the flow", flow.file.inputs, played.inputs))
    problems = [f"{step}: {problem}" for step, problem in result.errors.items()]
    problems += [f"session {name} waits for a person" for name in result.waits]
    return "; ".join(problems)


class StepAnswers:
    """Answers the steps of a flow from a tape, or records what they give."""

    def __init__(self, workspace: Workspace, flow: Flow, tape: Tape, redactor: Redactor) -> None:
        self._workspace = workspace
        self._flow = flow
        self._tape = tape
        self._redactor = redactor
        tape.flow_steps.begin()

    async def answer(
        self, name: str, spec: StepSpec, carry_out: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the output of a step. Raises StepFailed, and what its work raises."""
        tape = self._tape

        async def call() -> Any:
            tape.called_agents = True
            return await carry_out()

        try:
            answer = await tape.flow_steps.answer(
                name,
                tape.stretches[-1].step,
                self._describe(spec),
                call,
                may_call=tape.may_call,
            )
        except NoRecord:
            problem = f"its recording has no result of the step {name} left; {tape.mend}"
            raise StepFailed(problem, "no_record") from None
        return _read(answer) if isinstance(answer, RecordedStep) else answer

    def _describe(self, spec: StepSpec) -> dict[str, Any]:
        """Return what a step does, with the settings of the agents that it calls."""
        work = {**find_work(spec)}
        workspace = self._workspace
        team = None
        if spec.send is not None:
            team = loader.find_team(workspace, spec, self._flow.team)
        elif spec.agent is not None:
            team = loader.find_agent_team(workspace, spec.agent)
        if team is not None:
            work["agents"] = {
                member.id: settings.record(member, self._redactor) for member in team.agents
            }
        text = json.dumps(self._redactor.value(work), ensure_ascii=False, default=str)
        described: dict[str, Any] = json.loads(text)
        return described


def _read(record: RecordedStep) -> Any:
    """Return the output of a recorded step. Raises StepFailed if it failed."""
    line = record.line
    if "answer" in line:
        return line["answer"]
    if line.get("error") is not None or line.get("status") == "cancelled":
        raise StepFailed(
            line.get("error") or "it was cut short when it was recorded",
            line.get("error_code") or "cancelled",
            retryable=bool(line.get("retryable")),
            output=line.get("output"),
            is_final=True,
        )
    return line.get("output")


_STEP = 1


class FlowRecording:
    """The recording of a flow in a file; unless it `replays`, the flow runs, and is recorded."""

    def __init__(self, path: Path, flow: Flow, *, replays: bool) -> None:
        """Read the recording that is replayed. Raises FileFaults or UsageError."""
        self.replays = replays
        self._path = path
        self._flow = flow
        mend = f"record it: `arena flow run {flow.name} --record {path}`"
        recorded = None
        if replays:
            if not file.is_there(path):
                raise UsageError(f"there is no recording {path}", mend)
            try:
                recorded = file.read(path, str(path)).cases.get(None)
            except FileFaults as error:
                faults = [replace(fault, mend=mend) for fault in error.faults]
                raise FileFaults(faults) from error
            if recorded is None:
                raise UsageError(f"{path} is no recording of a flow", mend)
        else:
            file.check_writable(path, str(path))
        self._tape = Tape(recorded, live=not replays, mend=mend)
        self._tape.begin(_STEP)

    def attach(self, run: FlowRun, workspace: Workspace, redactor: Redactor) -> None:
        """Let the recording answer the steps of a run, or keep what they give."""
        run.answer_by(StepAnswers(workspace, self._flow, self._tape, redactor).answer)

    def hear(self, event: Event) -> None:
        """Keep an event of the run."""
        self._tape.hear(None, event)

    def write(self) -> None:
        """Write the recording. Raises DiskRefused."""
        lines = file.lines(self._tape, None, [])
        file.write(self._path, file.encode_recording(self._flow.file.flow, [lines]))

    def list_drift(self) -> list[Drift]:
        """Return the steps that differ from the recording, once the run is over."""
        self._tape.finished = True
        pairs = inner_calls.list_step_drift(self._tape.flow_steps, self._tape.was_played)
        return [drift.model_copy(update={"step": None}) for drift, _ in pairs]
