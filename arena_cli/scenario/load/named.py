"""Names in a scenario that nobody has.

In an expectation such a name would hold, or fail, for the wrong reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from arena_cli.ground import nearest
from arena_cli.scenario.expect import keys
from arena_cli.scenario.expect.shapes import Expect
from arena_cli.scenario.load.shapes import ScenarioFile
from arena_cli.session.outgoing import USER
from arena_cli.team import mentions
from arena_cli.team.model import Team
from arena_cli.yamlio.nodes import Loc

Wrong = tuple[Loc, str, str]

_WAIT = ("send", "attach", "say", "system", "check", "expect")


def unknown(file: ScenarioFile, team: Team, waiting: Sequence[tuple[Loc, str]]) -> Iterator[Wrong]:
    """(place, what, mend) of every id that nobody in the team has, and of what is never saved.

    `waiting` are the names of something saved that the file waits for, and where.
    """
    for index, step in enumerate(file.steps):
        loc: Loc = ("steps", index)
        yield from _in_expect(step.expect, (*loc, "expect"), team)
        if step.check is not None:
            yield from _in_expect(step.check, (*loc, "check"), team)
        if step.say is not None:
            yield from _agent(step.say.agent, (*loc, "say", "agent"), team)
        for name, saved in step.save.items():
            yield from _agent(saved.agent, (*loc, "save", name, "from"), team)
    yield from _in_expect(file.expect, ("expect",), team)
    yield from _no_session(file)
    yield from _never_saved(file, waiting)


def _no_session(file: ScenarioFile) -> Iterator[Wrong]:
    """A `check` of a session in which nothing happens."""
    used = {step.session for step in file.steps if step.kind != "check" and step.session}
    for index, step in enumerate(file.steps):
        if step.kind == "check" and step.session and step.session not in used:
            what = f"no step is played in the session `{step.session}`"
            yield ("steps", index, "session"), what, nearest.hint(step.session, sorted(used))


def _in_expect(expected: Expect, loc: Loc, team: Team) -> Iterator[Wrong]:
    if not expected.model_fields_set:
        return
    for place, agent in keys.named_agents(expected):
        yield from _agent(agent, (*loc, *place), team)
    humans = [USER.id, *(human.id for human in team.humans)]
    for index, human in enumerate(expected.awaits):
        if human not in humans:
            what = f"this team has no human with the id `{human}`"
            yield (*loc, "awaits", index), what, nearest.hint(human, humans)
    members = [member.id for member in team.members]
    for place, somebody in keys.named_somebody(expected):
        if somebody not in humans:
            yield from _agent(somebody, (*loc, *place), team, members + humans)


def _agent(
    agent: str, loc: Loc, team: Team, known: Collection[str] | None = None
) -> Iterator[Wrong]:
    if team.member(agent) is not None:
        return
    members = known or [member.id for member in team.members]
    meant = mentions.resolve([agent], mentions.roster_of(team), author="", opener="").ids
    by_name = f"write the id: `{meant[0]}`" if len(meant) == 1 else ""
    mend = by_name or nearest.hint(agent, members)
    yield loc, f"nobody in this team has the id `{agent}`", mend


def _never_saved(file: ScenarioFile, waiting: Sequence[tuple[Loc, str]]) -> Iterator[Wrong]:
    """A step may use what an earlier one saves, its `expect` also what its own does."""
    if not waiting:
        return
    before: list[set[str]] = [set()]
    for step in file.steps:
        before.append(before[-1] | set(step.save))
    for loc, name in waiting:
        key = loc[2] if loc[0] == "steps" else loc[0]
        if key not in _WAIT:
            what = f"`${{saved.{name}}}` cannot stand in `{key}`"
            yield loc, what, f"it can in {', '.join(_WAIT)}"
            continue
        at = int(loc[1]) + (key == "expect") if loc[0] == "steps" else len(file.steps)
        if name not in before[at]:
            yield _wrong_name(loc, name, before[at])


def _wrong_name(loc: Loc, name: str, saved: Collection[str]) -> Wrong:
    mend = nearest.hint(name, saved) if saved else "a step's `save:` keeps a part of a reply"
    return loc, f"nothing is saved as `{name}` before this", mend
