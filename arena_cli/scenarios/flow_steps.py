"""Play the steps of scenarios that run a flow.

A flow does its real work each time: its programs and requests are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Middleware
from arena_cli.flows import contacts
from arena_cli.flows.calls import AgentCalls
from arena_cli.flows.runner import FlowRun
from arena_cli.scenarios.model import Scenario
from arena_cli.session.session import Session, make_redactor
from arena_cli.workspace.inputs import require_inputs


async def run_flow(
    scenario: Scenario,
    index: int,
    session: Session,
    config: SessionConfig,
    *,
    middlewares: Sequence[Middleware],
    on_session: Callable[[str], None],
) -> str:
    """Run the flow of a step in its session; return why it did not succeed, "" if it did.

    `on_session` is called with the name of each session in which agents of the flow talk. Raises
    UsageError or DiskRefused.
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
    run = FlowRun(
        flow,
        session.journal,
        config,
        calls,
        session=session.name,
        redactor=make_redactor(config, profiles, contacts.list_settings(flow)),
    )
    result = await run.run(require_inputs("the flow", flow.file.inputs, played.inputs))
    problems = [f"{step}: {problem}" for step, problem in result.errors.items()]
    problems += [f"session {name} waits for a person" for name in result.waits]
    return "; ".join(problems)
