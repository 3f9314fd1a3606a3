"""Find expectations that cannot fail, names that are unknown, and files that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from arena_cli.errors import suggest_nearest
from arena_cli.protocol import COMPLETE_TASK
from arena_cli.scenarios.expect import (
    evaluate,
    json_checks,
    model,
    python_checks,
    snapshots,
    text_checks,
)
from arena_cli.scenarios.expect.context import Folders
from arena_cli.scenarios.expect.model import Expect
from arena_cli.scenarios.model import CONTINUING, OPENING, RUNNING, ScenarioFile, Step
from arena_cli.scenarios.tools import ALWAYS_KNOWN, is_named, name_tools
from arena_cli.session.outgoing import USER
from arena_cli.workspace import mentions
from arena_cli.workspace.models import AgentProfile, Team
from arena_cli.yamlio.nodes import Loc

if TYPE_CHECKING:
    from arena_cli.workspace.acting import InlineTool

Wrong = tuple[Loc, str, str]


def report_problem(file: ScenarioFile, folders: Folders) -> Iterator[Wrong]:
    """Yield (place, problem, hint) of every check whose file is missing or invalid."""
    reported: set[str] = set()
    for loc, expect in expects(file):
        for check in model.iter_checks(expect):
            wrong: Iterator[Wrong] = iter(())
            if check.kind == model.AS_JSON:
                wrong = json_checks.wrong(check.value, folders)
            elif check.kind == "python":
                wrong = python_checks.wrong(check.value, folders)
            elif check.kind == "snapshot":
                wrong = snapshots.wrong(check.loc, folders)
            for below, problem, mend in wrong:
                if check.kind == "snapshot" and problem in reported:
                    continue  # all of them lie in one file
                reported.add(problem)
                yield (*loc, *check.loc, *below), problem, mend
    for name, tool in file.tools.items():
        try:
            if tool.schema_:
                json_checks.load_validator(tool.schema_, folders)
        except json_checks.NotASchema as error:
            yield ("tools", name, "schema"), str(error), ""


def expects(file: ScenarioFile) -> Iterator[tuple[Loc, Expect]]:
    """Yield every `expect` and `check` of a scenario, with its place."""
    for index, step in enumerate(file.steps):
        yield ("steps", index, "expect"), step.expect
        if step.check is not None:
            yield ("steps", index, "check"), step.check
    yield ("expect",), file.expect


def errors(file: ScenarioFile) -> Iterator[Wrong]:
    """Yield (place, problem, hint) of each `check` that cannot fail."""
    for index, step in enumerate(file.steps):
        if step.check is None:
            continue
        loc: Loc = ("steps", index, "check")
        if not step.check.model_fields_set:
            yield loc, "it expects nothing", "write an expectation, or remove the step"


def warnings(file: ScenarioFile, folders: Folders, *, recorded: bool) -> Iterator[Wrong]:
    """Yield (place, problem, hint) of each expectation that any result may meet.

    A scenario that is `recorded` expects that a replay equals its recording.
    """
    if not recorded:
        yield from _without_expectations(file)
    for index, step in enumerate(file.steps):
        if "expect" in step.model_fields_set and not step.expect.model_fields_set:
            yield ("steps", index, "expect"), "it expects nothing", "write an expectation"
        if step.check is not None and not _has_step_before(file, index):
            yield ("steps", index, "check"), "no step comes before it to check", "move it down"
    yield from _lax_checks(file, folders)
    for index, ignored in enumerate(file.ignore):
        if text_checks.count_swallowed(ignored.regex)[0]:
            problem = "it matches whole sentences, so a changed prompt may not be seen"
            yield ("ignore", index, "regex"), problem, "write only what varies, such as a date"


def _lax_checks(file: ScenarioFile, folders: Folders) -> Iterator[Wrong]:
    """Report patterns that may match every text, and unknown keywords of JSON schemas."""
    for loc, expect in expects(file):
        for check in model.iter_checks(expect):
            if check.kind == "regex" and _may_be_empty(check.value):
                problem = "it matches the empty text too, so it may match every text"
                yield (*loc, *check.loc), problem, "write the text that must be there"
            elif check.kind == model.AS_JSON:
                for below, problem, hint in json_checks.unknown_keywords(check.value, folders):
                    yield (*loc, *check.loc, *below), problem, hint


def _may_be_empty(pattern: str) -> bool:
    return text_checks.matches_empty(pattern) and not text_checks.looks_around(pattern)


def _without_expectations(file: ScenarioFile) -> Iterator[Wrong]:
    """Report a scenario without expectations, or else its last steps that none covers."""
    if file.expect.model_fields_set or _has_strict_script(file):
        return
    last = -1
    for index, step in enumerate(file.steps):
        if step.check is not None or step.expect.model_fields_set or step.save:
            last = index
    hint = "add `expect` to a step, or to the scenario"
    if last < 0:
        yield ("scenario",), "it expects nothing: it passes unless an agent fails", hint
        return
    for index in range(last + 1, len(file.steps)):
        if file.steps[index].kind in RUNNING:
            yield ("steps", index), "nothing is expected of this step", "add `expect`, or a `check`"


def _has_strict_script(file: ScenarioFile) -> bool:
    """Return whether a script must be used up, which is an expectation too."""
    adapters = (profile.get("adapter") for profile in file.profiles.values())
    return any(isinstance(adapter, dict) and adapter.get("strict") is True for adapter in adapters)


def _has_step_before(file: ScenarioFile, index: int) -> bool:
    """Return whether a `check` follows a step of its session; an unknown session has its error."""
    session = file.steps[index].session
    covered = [
        position
        for position, step in enumerate(file.steps)
        if step.kind != "check" and session in (None, step.session)
    ]
    return covered[0] < index if covered else session is not None


_WAIT = ("send", "attach", "say", "system", "check", "task", "expect")


def unknown(
    file: ScenarioFile,
    team: Team,
    waiting: Sequence[tuple[Loc, str]],
    profiles: Mapping[str, AgentProfile],
) -> Iterator[Wrong]:
    """Yield (place, problem, hint) of every unknown id, and of every value that is never saved.

    `waiting` are the places and names of saved values that the file uses; `profiles` are those of
    the agents, and of agents that they may call as tools.
    """
    people = {"", USER.id, *(human.id for human in team.humans)}
    for index, step in enumerate(file.steps):
        for below, agent in _list_named(step, people):
            yield from _agent(agent, ("steps", index, *below), team)
    for loc, expect in expects(file):
        yield from _in_expect(expect, loc, team)
    entries = [entry for profile in profiles.values() for entry in profile.tools]
    yield from _unknown_scripted_tools(file, entries)
    yield from _unknown_actors(file, profiles, entries)
    yield from _no_session(file)
    yield from _no_chain(file)
    yield from _never_saved(file, waiting)


def _list_named(step: Step, people: Collection[str]) -> Iterator[tuple[Loc, str]]:
    """Yield every agent that the keys of a step name, with its place; `people` may be named too."""
    for key in ("say", "approve", "reject", "choose", "after"):
        if (named := getattr(step, key)) is not None:
            yield (key, "agent"), named.agent
    if step.task is not None and step.task.agent:
        yield ("task", *step.task.agent_loc), step.task.agent
    if step.react is not None and step.react.agent not in people:
        yield ("react", "agent"), step.react.agent
    for name, saved in step.save.items():
        yield ("save", name, "from"), saved.agent


def _unknown_scripted_tools(
    file: ScenarioFile, entries: Sequence[str | InlineTool]
) -> Iterator[Wrong]:
    """Yield each scripted tool that no agent has; `entries` are the tools of all."""
    for name in file.tools:
        if not any(is_named(name, entry) for entry in entries):
            known = [name_tools(entry) for entry in entries]
            hint = suggest_nearest(name, known) if known else "add it to `tools` of an agent"
            yield ("tools", name), f"no agent of this scenario has a tool `{name}`", hint


def _unknown_actors(
    file: ScenarioFile,
    profiles: Mapping[str, AgentProfile],
    entries: Sequence[str | InlineTool],
) -> Iterator[Wrong]:
    """Yield each unknown agent that is expected to act, and each expected tool that none has.

    A name with a `*` may mean any tool.
    """
    for loc, expected in expects(file):
        for inner, agent in _named_actors(expected):
            if agent not in profiles:
                problem = f"no agent of this scenario has the id `{agent}`"
                yield (*loc, *inner), problem, suggest_nearest(agent, profiles)
        for index, row in enumerate(expected.tool):
            named = profiles.get(row.agent)
            row_entries = entries if named is None else named.tools
            is_known = row.name in ALWAYS_KNOWN or any(
                is_named(row.name, entry) for entry in row_entries
            )
            if row.name and "*" not in row.name and not is_known:
                known = [*map(name_tools, row_entries), COMPLETE_TASK]
                problem = f"no agent of this scenario has a tool `{row.name}`"
                if named is not None:
                    problem = f"`{row.agent}` has no tool `{row.name}`"
                yield (*loc, "tool", index, "name"), problem, suggest_nearest(row.name, known)


def _named_actors(expect: Expect) -> Iterator[tuple[Loc, str]]:
    """Yield every id of an agent that acts, which may also be called as a tool."""
    for index, row in enumerate(expect.tool):
        if row.agent:
            yield ("tool", index, "agent"), row.agent
    for key in ("ended", "output"):
        for agent in getattr(expect, key):
            yield (key, agent), agent


def _no_session(file: ScenarioFile) -> Iterator[Wrong]:
    """Yield each `check` of a session in which no step is played."""
    used = {step.session for step in file.steps if step.kind != "check" and step.session}
    for index, step in enumerate(file.steps):
        if step.kind == "check" and step.session and step.session not in used:
            problem = f"no step is played in the session `{step.session}`"
            yield ("steps", index, "session"), problem, suggest_nearest(step.session, sorted(used))


def _no_chain(file: ScenarioFile) -> Iterator[Wrong]:
    """Yield each step that continues a chain of a session in which nothing was sent before."""
    sent: set[str | None] = set()
    for index, step in enumerate(file.steps):
        if step.kind in OPENING:
            sent.add(step.session)
        elif step.kind in CONTINUING and step.session not in sent:
            problem = "no chain is open here: no step before it sends a message in its session"
            yield ("steps", index, step.kind), problem, "a chain that waits is one of a `send` step"


def _in_expect(expected: Expect, loc: Loc, team: Team) -> Iterator[Wrong]:
    if not expected.model_fields_set:
        return
    for inner, agent in evaluate.named_agents(expected):
        yield from _agent(agent, (*loc, *inner), team)
    humans = [USER.id, *(human.id for human in team.humans)]
    for index, human in enumerate(expected.awaits):
        if human not in humans:
            problem = f"this team has no human with the id `{human}`"
            yield (*loc, "awaits", index), problem, suggest_nearest(human, humans)
    members = [member.id for member in team.members]
    for inner, somebody in evaluate.named_somebody(expected):
        if somebody not in humans:
            yield from _agent(somebody, (*loc, *inner), team, members + humans)


def _agent(
    agent: str, loc: Loc, team: Team, known_agents: Collection[str] | None = None
) -> Iterator[Wrong]:
    if team.member(agent) is not None or (team.planner and team.planner.id == agent):
        return
    members = known_agents or [member.id for member in team.members]
    resolved = mentions.resolve_mentions(
        [agent], mentions.build_roster(team), author="", opener=""
    ).ids
    by_name = f"write the id: `{resolved[0]}`" if len(resolved) == 1 else ""
    mend = by_name or suggest_nearest(agent, members)
    yield loc, f"no member of this team has the id `{agent}`", mend


def _never_saved(file: ScenarioFile, waiting: Sequence[tuple[Loc, str]]) -> Iterator[Wrong]:
    """Yield each use of a value that no earlier step saves.

    The `expect` of a step may also use the values that the step itself saves.
    """
    if not waiting:
        return
    saved_so_far: list[set[str]] = [set()]
    for step in file.steps:
        saved_so_far.append(saved_so_far[-1] | set(step.save))
    for loc, name in waiting:
        key = loc[2] if loc[0] == "steps" else loc[0]
        if key not in _WAIT:
            problem = f"`${{saved.{name}}}` cannot be used in `{key}`"
            yield loc, problem, f"it can be used in {', '.join(_WAIT)}"
            continue
        index = int(loc[1]) + (key == "expect") if loc[0] == "steps" else len(file.steps)
        if name not in (saved := saved_so_far[index]):
            hint = "a step's `save:` keeps a part of a reply"
            problem = f"nothing is saved as `{name}` before this"
            yield loc, problem, suggest_nearest(name, saved) if saved else hint
