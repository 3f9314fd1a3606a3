"""Play the steps of scenarios that run a flow, with or without a recording."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Middleware
from arena_cli.flows import contacts, loader
from arena_cli.flows.calls import AgentCalls
from arena_cli.flows.loader import Flow
from arena_cli.flows.model import StepSpec
from arena_cli.flows.runner import FlowRun
from arena_cli.flows.step_rules import find_work
from arena_cli.flows.work import StepFailed
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.recording import settings
from arena_cli.scenarios.recording.flow_calls import NoRecord
from arena_cli.scenarios.recording.model import RecordedStep
from arena_cli.scenarios.recording.recorder import Tape
from arena_cli.session.session import Session, make_redactor
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
