"""List what a flow would start or contact, for the question whether the user trusts it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters import http
from arena_cli.adapters.base import Endpoint
from arena_cli.flows import loader
from arena_cli.flows.loader import Flow
from arena_cli.flows.model import LEAF_KINDS, StepSpec
from arena_cli.flows.work import RUNTIMES
from arena_cli.session.trust_store import EVERYTHING, Contact
from arena_cli.workspace.agents import list_variables
from arena_cli.workspace.models import AgentProfile, Member
from arena_cli.workspace.workspace import Workspace

_INHERIT = "inherit"


def list_profiles(flow: Flow, workspace: Workspace) -> list[AgentProfile]:
    """Return the agents that a flow calls, each once. Raises UsageError."""
    members: dict[str, Member] = {}
    for step in flow.walk():
        if step.spec.send is not None:
            members |= {m.id: m for m in loader.find_team(workspace, step.spec, flow.team).agents}
    names = [step.spec.agent for step in flow.walk() if step.spec.agent]
    reflecting = [f.file.reflect.agent for f in list_flows(flow) if f.file.reflect]
    for name in (*names, *reflecting):
        members |= {m.id: m for m in loader.find_agent_team(workspace, name).agents}
    return [member.profile for member in members.values()]


def list_flows(flow: Flow) -> Iterator[Flow]:
    """Yield a flow, and those that it names."""
    yield flow
    for step in flow.walk():
        if step.flow is not None:
            yield step.flow


def list_settings(flow: Flow) -> list[dict[str, Any]]:
    """Return the settings of steps that may hold secrets."""
    steps = (step.spec for step in flow.walk() if step.spec.kind in LEAF_KINDS)
    return [
        {**spec.model_dump(exclude_unset=True), **({"type": "python"} if spec.python else {})}
        for spec in steps
    ]


def list_rule_functions(flow: Flow) -> list[str]:
    """Return the functions of the user that rules of a flow call."""
    functions = [name for f in list_flows(flow) for rule in f.rules for name in rule.functions]
    return list(dict.fromkeys(functions))


def find_contacts(flow: Flow) -> list[Contact]:
    """Return the programs, functions, images and hosts of a flow's own steps and its rules."""
    endpoints: list[tuple[Endpoint, Sequence[str]]] = [
        (Endpoint("function", name), [EVERYTHING]) for name in list_rule_functions(flow)
    ]
    endpoints += [found for step in flow.walk() for found in _find_endpoints(step.spec)]
    return [
        Contact(endpoint, frozenset(variables), (f"flow {flow.name}",))
        for endpoint, variables in endpoints
    ]


def find_file_contacts(path: Path, workspace: Workspace) -> list[Contact]:
    """Return what the flow in a file would start or contact. Raises FileFaults."""
    return find_contacts(loader.load(path, workspace))


def _find_endpoints(spec: StepSpec) -> Iterator[tuple[Endpoint, Sequence[str]]]:
    if spec.python is not None:
        yield Endpoint("function", spec.python), [EVERYTHING]
    elif spec.shell is not None:
        named = list_variables({"shell": spec.shell, "env": spec.env, "stdin": spec.stdin or ""})
        inherited = [name for name, value in spec.env.items() if value == _INHERIT]
        yield Endpoint("program", shlex.join(spec.shell)), [*named, *inherited]
    elif spec.http is not None:
        yield http.endpoint(spec.http.url), sorted(list_variables(spec.http.model_dump()))
    elif spec.sql is not None and spec.sql.dsn is not None:
        yield http.endpoint(spec.sql.dsn), sorted(list_variables(spec.sql.model_dump()))
    elif spec.container is not None:
        call = spec.container
        command = call.command if call.code is None else [shlex.join(call.words)]
        words = [" or ".join(RUNTIMES), "run", call.image, *command]
        named = list_variables({"container": call.model_dump(), "stdin": spec.stdin or ""})
        yield Endpoint("program", " ".join(words)), sorted(named)
