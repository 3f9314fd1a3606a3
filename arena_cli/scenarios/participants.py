"""Choose the participants of a scenario: its team, its judges, and all that they contact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from arena_cli import errors
from arena_cli.errors import Fault
from arena_cli.scenarios import lint
from arena_cli.scenarios.expect import judge_checks
from arena_cli.scenarios.expect.judge_checks import JudgeCheck
from arena_cli.scenarios.expect.model import iter_checks
from arena_cli.scenarios.model import (
    Scenario,
    ScenarioFile,
    TeamPart,
    below,
    below_all,
    try_making,
)
from arena_cli.session.trust_store import Contact, find_contacts, merge_contacts
from arena_cli.workspace import models
from arena_cli.workspace.agents import LoadedProfile
from arena_cli.workspace.models import AgentProfile, Member, Team
from arena_cli.workspace.teams import TeamChanges, add_subagents
from arena_cli.workspace.workspace import Workspace
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Fragment, find_holder
from arena_cli.yamlio.nodes import Loc


def choose_team(
    keys: Mapping[str, Any], fragments: Sequence[Fragment], workspace: Workspace
) -> tuple[Team | None, Workspace, list[Fault]]:
    """Return the team, the workspace with the profiles it is made of, and the errors.

    `keys` are those of `TeamPart`, as written in `fragments`. If there is neither a team nor an
    error, the shape's errors give the reason.
    """
    keys_of_team, _ = loader.validate_merged(keys, TeamPart, fragments)
    if keys_of_team is None:
        return None, workspace, []
    faults: list[Fault] = []
    if keys_of_team.team is not None and keys_of_team.agents is not None:
        holder = find_holder(fragments, ("agents",))
        problem, mend = "`team` and `agents` are both given", "remove one of them"
        return None, workspace, [holder.fault(("agents",), problem, mend)]
    changed = workspace
    if keys_of_team.profiles:
        places = below_all(fragments, ("profiles",))
        changed = (
            try_making(
                lambda: workspace.with_profiles(keys_of_team.profiles, places),
                fragments,
                ("profiles",),
                faults,
            )
            or workspace
        )
    # The nearest has the last word.
    rules = [
        below(fragment, ("config",))
        for fragment in reversed(fragments)
        if fragment.holds(("config",))
    ]
    agents, humans, name = (
        keys_of_team.agents,
        keys_of_team.humans,
        keys_of_team.team or workspace.file.team,
    )
    their_part = None if humans is None else find_holder(fragments, ("humans",))
    changes = TeamChanges(rules, humans, their_part)

    def made() -> Team:
        if agents is None:
            return changed.team(name, changes)
        members = below(find_holder(fragments, ("agents",)), ("agents",))
        return changed.team_of(agents, members, changes)

    team = try_making(made, fragments, ("team",) if agents is None else ("agents",), faults)
    if team is not None:
        faults += _strangers(keys_of_team, team, workspace, fragments)
    return team, changed, faults


def _strangers(
    team_part: TeamPart, team: Team, workspace: Workspace, fragments: Sequence[Fragment]
) -> Iterator[Fault]:
    """Yield errors for new agents that no team plays: most likely a misspelled id of a member."""
    extended = {keys.get("extends") for keys in team_part.profiles.values()}
    for agent_id, keys in team_part.profiles.items():
        is_known = models.normalize_id(agent_id) in workspace.loaded or agent_id in extended
        if is_known or team.agent(models.normalize_id(agent_id)) or keys.get("member") is False:
            continue
        members = [member.id for member in team.members]
        near = errors.find_nearest(agent_id, members)
        mend = f"did you mean `{near}`?" if near else "a new agent plays if `agents:` names it"
        holder = find_holder(fragments, ("profiles", agent_id))
        problem = f"`{agent_id}` is not an agent of the workspace, nor a member of the team"
        yield holder.fault(("profiles", agent_id), problem, mend)


DEFAULT_JUDGE = "defaults: {judge: ID}"


def choose_judges(
    file: ScenarioFile, team: Team, workspace: Workspace
) -> tuple[dict[str, Member], Sequence[lint.Wrong]]:
    """Return the judges by the name that checks give them, and the errors.

    The name is empty for the default judge of the workspace.
    """
    judges: dict[str, Member] = {}
    wrong: list[lint.Wrong] = []
    for loc, check, covers_all in _judge_checks(file):
        if covers_all and check.over == "step":
            problem, mend = "this covers all steps, not one", "write `over: scenario`"
            wrong.append(((*loc, "over"), problem, mend))
        agent = check.agent or workspace.judge
        agent_loc = (*loc, "agent") if check.agent else loc
        fault = _judge_fault(agent, team, workspace.loaded)
        if fault is not None:
            wrong.append((agent_loc, *fault))
        elif member := workspace.find_agent(agent or ""):
            judges[check.agent] = member
    return dict(sorted(judges.items())), wrong


def _judge_checks(file: ScenarioFile) -> Iterator[tuple[Loc, JudgeCheck, bool]]:
    """Yield each judge check, its place, and whether it covers all steps."""
    for loc, expect in lint.expects(file):
        covers_all = loc == ("expect",) or loc[-1] == "check"
        for check in iter_checks(expect):
            if check.kind == judge_checks.KIND:
                yield (*loc, *check.loc), check.value, covers_all


def _judge_fault(
    agent: str | None, team: Team, profiles: Mapping[str, LoadedProfile]
) -> tuple[str, str] | None:
    """Return the problem and the hint for a judge that cannot be called; None if it can."""
    if agent is None:
        return "no judge is named", f"name one with `agent`, or in arena.yaml: {DEFAULT_JUDGE}"
    if agent not in profiles:
        candidates = [name for name in profiles if team.member(name) is None]
        return f"there is no agent `{agent}`", errors.suggest_nearest(agent, candidates)
    if team.member(agent) is not None:
        problem = f"`{agent}` is a member of the team that is judged"
        return problem, "name an agent that is not a member, with `member: false` in its profile"
    return None


def list_contacts(
    workspace: Workspace,
    live: Iterable[Scenario],
    checked: Iterable[Scenario],
    *,
    dotenv: Mapping[str, str],
) -> list[Contact]:
    """Return the contacts of `live` scenarios, and the functions of `checked` ones.

    These are in checks, and in rules of teams, agents and flows, which a replay follows too.
    """
    live, checked = list(live), list(checked)
    functions = dict.fromkeys(target for scenario in checked for target in _functions(scenario))
    rules: dict[str, None] = {}
    for scenario in checked:
        rules |= dict.fromkeys(scenario.team.list_rule_functions())
        for flow in scenario.flows.values():
            rules |= dict.fromkeys(_import_contacts().list_rule_functions(flow))
    return merge_contacts(
        find_contacts((), functions=functions, rules=rules),
        # A scenario may have an agent of that id with another adapter.
        *(
            find_contacts(
                _profiles(scenario, workspace), workspace.file.memory.embedding, dotenv=dotenv
            )
            for scenario in live
        ),
        *_find_flow_contacts(live, dotenv),
    )


def _find_flow_contacts(
    scenarios: Iterable[Scenario], dotenv: Mapping[str, str]
) -> Iterator[list[Contact]]:
    """Yield what the flows of scenarios would contact."""
    for scenario in scenarios:
        for flow in scenario.flows.values():
            yield _import_contacts().find_contacts(flow)
            profiles = _import_contacts().list_profiles(flow, scenario.workspace)
            yield find_contacts(profiles, dotenv=dotenv)


def _import_contacts() -> Any:
    """Return the module for what flows contact, which few scenarios need."""
    return import_module("arena_cli.flows.contacts")


def _profiles(scenario: Scenario, workspace: Workspace) -> Iterator[AgentProfile]:
    """Yield the profiles of every agent that the scenario may call, with its changes."""
    members = (*scenario.team.agents, *scenario.judges.values())
    loaded = {**workspace.loaded, **scenario.profiles}
    yield from add_subagents([member.profile for member in members], loaded)
    for helper in workspace.memory_agents:
        played = scenario.as_played(helper)
        if played is not None:
            yield played.profile


def _functions(scenario: Scenario) -> Iterator[str]:
    for _, expect in lint.expects(scenario.file):
        for check in iter_checks(expect):
            if check.kind == "python":
                yield str(check.value)
