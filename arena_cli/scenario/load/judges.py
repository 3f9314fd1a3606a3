"""Who judges: the agents that a scenario's `judge` checks ask, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from arena_cli.ground import nearest
from arena_cli.scenario.expect import judging, walk
from arena_cli.scenario.expect.judging import JudgeCheck
from arena_cli.scenario.load import beside
from arena_cli.scenario.load.named import Wrong
from arena_cli.scenario.load.shapes import ScenarioFile
from arena_cli.team.model import Member, Team
from arena_cli.team.profiles import Loaded
from arena_cli.yamlio.nodes import Loc

DEFAULT = "defaults: {judge: ID}"


def of(
    file: ScenarioFile, team: Team, profiles: Mapping[str, Loaded], default: str | None
) -> tuple[dict[str, Member], Sequence[Wrong]]:
    """The judges by the name that checks give them (empty: `default`), and what is wrong.

    `default` is the workspace's, None where it names none.
    """
    judges: dict[str, Member] = {}
    wrong: list[Wrong] = []
    for loc, check, covers_all in _checks(file):
        if covers_all and check.over == "step":
            what, mend = "this covers all steps, not one", "write `over: scenario`"
            wrong.append(((*loc, "over"), what, mend))
        agent = check.agent or default
        place = (*loc, "agent") if check.agent else loc
        fault = _fault(agent, team, profiles)
        if fault is not None:
            wrong.append((place, *fault))
        elif agent is not None:
            judges[check.agent] = _member(profiles[agent])
    return dict(sorted(judges.items())), wrong


def _checks(file: ScenarioFile) -> Iterator[tuple[Loc, JudgeCheck, bool]]:
    """Each judge that is asked, its place, and whether that covers all steps."""
    for loc, expect in beside.expects(file):
        covers_all = loc == ("expect",) or loc[-1] == "check"
        for one in walk.given(expect):
            if one.kind == judging.KIND:
                yield (*loc, *one.loc), one.value, covers_all


def _fault(agent: str | None, team: Team, profiles: Mapping[str, Loaded]) -> tuple[str, str] | None:
    """(what, mend) of a judge that cannot be asked."""
    if agent is None:
        return "nobody is named to judge", f"name one with `agent`, or in arena.yaml: {DEFAULT}"
    if agent not in profiles:
        others = [name for name in profiles if team.member(name) is None]
        return f"there is no agent `{agent}`", nearest.hint(agent, others)
    if team.member(agent) is not None:
        what = f"`{agent}` is a member of the team that is judged"
        return what, "name an agent that is none, with `member: false` in its profile"
    return None


def _member(one: Loaded) -> Member:
    return Member(one.profile, one.profile.name or one.profile.agent_id, "", one.role_prompt)
