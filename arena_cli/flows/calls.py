"""The steps of a flow that call agents, each in a session; what agents are shown of its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Middleware
from arena_cli.errors import DiskRefused, UsageError
from arena_cli.flows import loader
from arena_cli.flows.loader import Flow
from arena_cli.flows.model import StepSpec
from arena_cli.flows.outcomes import FlowResult
from arena_cli.flows.work import StepFailed
from arena_cli.session import outgoing, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Session
from arena_cli.transcript import reader
from arena_cli.transcript.events import ChainFinished, Event, ReplyFinished
from arena_cli.util.text import cut_text
from arena_cli.workspace import inputs as agent_inputs
from arena_cli.workspace.models import Member, Team, normalize_id
from arena_cli.workspace.workspace import Workspace

SHOWN_OUTPUT = 2000
"""The characters of a step's output that an agent is shown."""

Listen = Callable[[str, Event], None]
"""Is called with the name of a session and each event in it."""


class ChainWaits(Exception):
    """The chain of a step is paused: it waits for a person in the session `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class AgentCalls:
    """Calls agents and teams for the steps of a flow; `team` gets messages to no other one."""

    workspace: Workspace
    config: SessionConfig
    _: KW_ONLY
    team: Team | None = None
    listen: Listen = lambda _, __: None
    middlewares: Callable[[str], Sequence[Middleware]] = lambda _: ()

    async def send(self, spec: StepSpec, session: str) -> dict[str, Any]:
        """Send a message to a team; return what it replied. Raises StepFailed or ChainWaits."""
        team = loader.find_team(self.workspace, spec, self.team)
        to = [normalize_id(agent) for agent in spec.to]
        end, events = await self._converse(team, session, lambda: self._write(spec, team, to))
        replies = [
            {"agent": event.agent, "text": event.message.content}
            for event in events
            if isinstance(event, ReplyFinished) and event.message is not None
        ]
        text = replies[-1]["text"] if replies else ""
        output = {"text": text, "replies": replies, "end": end.end, "session": session}
        if end.end == "failed":
            raise _make_failure(events, output)
        if end.end == "cancelled":
            raise StepFailed("a person cancelled it", "cancelled", output=output)
        return output

    def _write(self, spec: StepSpec, team: Team, to: Sequence[str]) -> Outgoing:
        return outgoing.outgoing(team, str(spec.send), to=to)

    async def call(self, spec: StepSpec, session: str) -> Any:
        """Call one agent; return its output. Raises StepFailed or ChainWaits."""
        return await self.ask(str(spec.agent), spec.message, spec.inputs, session)

    async def ask(
        self, agent: str, message: str | None, inputs: Mapping[str, Any], session: str
    ) -> Any:
        """Call one agent with a message, by default that of its profile; return its output."""
        team = loader.find_agent_team(self.workspace, agent)
        member = team.members[0]
        _, events = await self._converse(
            team, session, lambda: _write_call(team, member, message, inputs)
        )
        finished = [event for event in events if isinstance(event, ReplyFinished)]
        reply = finished[-1]
        ends = [
            event
            for event in events
            if event.type == "agent_ended" and not getattr(event, "within", "")
        ]
        end = ends[-1] if ends else None
        text = reply.message.content if reply.message else ""
        output = getattr(end, "output", None)
        output = text or None if output is None else output
        mode = getattr(end, "mode", "goal")
        status = reply.status if mode == "goal" else mode
        if status == "success":
            return output
        problem, code = reply.error or f"{member.id}: {status}", reply.error_code or status
        raise StepFailed(problem, code, retryable=bool(reply.retryable), output=output)

    async def _converse(
        self, team: Team, name: str, write: Callable[[], Outgoing]
    ) -> tuple[ChainFinished, list[Event]]:
        """Run a chain in a session; return its end and its events.

        A chain that was cut short continues; if one has ended there, nothing is sent again.
        """
        path = store.sessions_folder(self.config.workspace) / name / store.TRANSCRIPT
        events: list[Event] = []
        for line in reader.read_lines(path) if path.is_file() else ():
            events += line.events

        def hear(event: Event) -> None:
            events.append(event)
            self.listen(name, event)

        try:
            session = Session(
                self.config, name, team, on_event=hear, middlewares=self.middlewares(name)
            )
        except (UsageError, DiskRefused) as error:
            raise StepFailed(str(error), "usage") from error
        with session:
            if session.open_chain is not None:
                last = await session.last(session.resume())
            elif ended := [event for event in events if isinstance(event, ChainFinished)]:
                last = ended[-1]
            else:
                try:
                    last = await session.last(session.send(write()))
                except UsageError as error:
                    raise StepFailed(str(error), "usage") from error
        if not isinstance(last, ChainFinished):
            raise ChainWaits(name)
        return last, events


def _make_failure(events: Sequence[Event], output: dict[str, Any]) -> StepFailed:
    """Return the failure of a chain in which the last failed reply names the reason."""
    failures = [e for e in events if isinstance(e, ReplyFinished) and e.error]
    problem = f"{failures[-1].agent}: {failures[-1].error}" if failures else "it failed"
    code = (failures[-1].error_code if failures else None) or "agent"
    retryable = any(event.retryable for event in failures)
    return StepFailed(problem, code, retryable=retryable, output=output)


def _write_call(
    team: Team, member: Member, message: str | None, given: Mapping[str, Any]
) -> Outgoing:
    specs = member.profile.inputs
    values = agent_inputs.require_inputs(member.id, specs, given)
    content = agent_inputs.make_query(member, values) if message is None else message
    sent = outgoing.outgoing(team, content, to=[member.id])
    return sent._replace(inputs=dict(values))


def read_json(output: Any) -> Any:
    """Return the JSON object in an agent's output: the output itself, or one within its text."""
    if not isinstance(output, str):
        return output
    start, end = output.find("{"), output.rfind("}")
    try:
        return json.loads(output[start : end + 1])
    except (ValueError, RecursionError):
        return None


def describe_run(flow: Flow, result: FlowResult) -> str:
    """Return the end of a flow as a text: its steps, their ends, and their outputs, cut."""
    steps = {}
    for key, outcome in result.outcomes.items():
        facts: dict[str, Any] = {"status": outcome.status}
        if outcome.error_code is not None:
            facts |= {"error_code": outcome.error_code, "retryable": outcome.retryable}
        if outcome.output is not None:
            text = json.dumps(outcome.output, ensure_ascii=False)
            is_short = len(text) <= SHOWN_OUTPUT
            facts["output"] = outcome.output if is_short else cut_text(text, SHOWN_OUTPUT)
        steps[key] = facts
    report = {
        "flow": flow.file.flow,
        "description": flow.file.description,
        "status": result.status,
        "steps": steps,
        "errors": dict(result.errors),
    }
    return json.dumps(report, ensure_ascii=False, indent=2)


def make_reflection(flow: Flow, result: FlowResult) -> str:
    """Return the message to the agent that reflects."""
    return (
        "A workflow has ended. Assess its result. Answer with one JSON object: "
        '{"assessment": text, "should_retry": true or false (run the failed steps again), '
        '"confidence": 0 to 1, "recommendations": [texts]}.\n\n'
        f"{describe_run(flow, result)}"
    )


def read_assessment(answer: Any) -> dict[str, Any]:
    """Return the fields of an assessment. Raises ValueError."""
    if not isinstance(answer, dict) or not isinstance(answer.get("should_retry"), bool):
        raise ValueError("it answered no JSON object with `should_retry`")
    confidence = answer.get("confidence")
    is_number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    recommendations = answer.get("recommendations")
    return {
        "assessment": str(answer.get("assessment", "")),
        "should_retry": answer["should_retry"],
        "confidence": min(max(float(confidence or 0), 0.0), 1.0) if is_number else None,
        "recommendations": [str(item) for item in recommendations]
        if isinstance(recommendations, list)
        else [],
    }
