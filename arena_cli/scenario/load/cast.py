"""Who plays: the team of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arena_cli.ground import nearest
from arena_cli.ground.errors import Fault
from arena_cli.scenario.load.parts import below, below_all, tried
from arena_cli.scenario.load.shapes import TeamPart
from arena_cli.team import ids
from arena_cli.team.model import Team
from arena_cli.team.workspace import Workspace
from arena_cli.yamlio import loader
from arena_cli.yamlio.document import Part, find_holder


def team_of(
    keys: Mapping[str, Any], parts: Sequence[Part], workspace: Workspace
) -> tuple[Team | None, Workspace, list[Fault]]:
    """The team, the workspace with the profiles it is made of, and what is wrong.

    `keys` are those of `TeamPart`, as they stand in `parts`. Without a team and a fault, the
    shape's faults tell why.
    """
    part, _ = loader.validate_merged(keys, TeamPart, parts)
    if part is None:
        return None, workspace, []
    faults: list[Fault] = []
    if part.team is not None and part.agents is not None:
        place = find_holder(parts, ("agents",))
        what, mend = "`team` and `agents` are both given", "take one of them out"
        return None, workspace, [place.fault(("agents",), what, mend)]
    changed = workspace
    if part.profiles:
        places = below_all(parts, ("profiles",))
        changed = (
            tried(
                lambda: workspace.with_profiles(part.profiles, places), parts, ("profiles",), faults
            )
            or workspace
        )
    # The nearest has the last word.
    rules = [below(one, ("config",)) for one in reversed(parts) if one.holds(("config",))]
    agents, humans, name = part.agents, part.humans, part.team or workspace.file.team
    their_part = None if humans is None else find_holder(parts, ("humans",))

    def made() -> Team:
        if agents is None:
            return changed.team(name, overrides=rules, humans=humans, humans_part=their_part)
        members = below(find_holder(parts, ("agents",)), ("agents",))
        return changed.team_of(
            agents, members, overrides=rules, humans=humans, humans_part=their_part
        )

    team = tried(made, parts, ("team",) if agents is None else ("agents",), faults)
    if team is not None:
        faults += _strangers(part, team, workspace, parts)
    return team, changed, faults


def _strangers(
    part: TeamPart, team: Team, workspace: Workspace, parts: Sequence[Part]
) -> Iterator[Fault]:
    """New agents that nobody plays: most likely a wrong id of one that somebody does."""
    extended = {keys.get("extends") for keys in part.profiles.values()}
    for agent_id, keys in part.profiles.items():
        known = ids.normal(agent_id) in workspace.loaded or agent_id in extended
        if known or team.member(ids.normal(agent_id)) or keys.get("member") is False:
            continue
        members = [member.id for member in team.members]
        near = nearest.of(agent_id, members)
        mend = f"did you mean `{near}`?" if near else "a new agent plays if `agents:` names it"
        place = find_holder(parts, ("profiles", agent_id))
        what = f"`{agent_id}` is no agent of the workspace, and not in the team"
        yield place.fault(("profiles", agent_id), what, mend)
