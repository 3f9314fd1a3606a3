"""Build teams: members and rules from a team file, `arena.yaml` and overrides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

from arena_cli.errors import Fault, UsageError, suggest_nearest
from arena_cli.workspace import mentions, models
from arena_cli.workspace.agents import LoadedProfile
from arena_cli.workspace.mentions import NameClash
from arena_cli.workspace.models import (
    AGENT_TOOL,
    AgentProfile,
    Human,
    Member,
    MemberRef,
    Team,
    TeamConfig,
    TeamFile,
)
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Fragment


@dataclass(frozen=True)
class TeamDraft:
    """A team before it is assembled.

    `agents` are the members in order, from `loc` of `fragment`; `humans_part` holds `humans` if
    `fragment` does not; `rules` are the fragments that set rules, the nearest last.
    """

    name: str | None
    agents: Sequence[str | MemberRef]
    fragment: Fragment
    loc: tuple[str | int, ...] = ()
    humans: Sequence[Human] = ()
    rules: Sequence[Fragment] = ()
    description: str = ""
    humans_part: Fragment | None = None

    def fault(self, loc: tuple[str | int, ...], problem: str, hint: str = "") -> Fault:
        """Return an error of the value at `loc` below the members."""
        return self.fragment.fault((*self.loc, *loc), problem, hint)

    def fault_of_humans(
        self, problem: str, hint: str = "", loc: tuple[str | int, ...] = ()
    ) -> Fault:
        """Return an error of its humans."""
        return (self.humans_part or self.fragment).fault(("humans", *loc), problem, hint)


class TeamChanges(NamedTuple):
    """What a scenario changes in a team: `rules` over its own, the nearest last, and the `humans`.

    `humans` are from `humans_part`; None: those of the team.
    """

    rules: Sequence[Fragment] = ()
    humans: Sequence[Human] | None = None
    humans_part: Fragment | None = None


NO_CHANGES = TeamChanges()


@dataclass
class TeamFindings:
    """The errors in a team, and its warnings."""

    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_team_file(stem: str, fragment: Fragment) -> tuple[TeamFile | None, list[Fault]]:
    """Return the contents of one team file, whose name is its stem, and its errors."""
    file, faults = loader.validate(fragment.document, TeamFile)
    if file is None:
        return None, faults
    name = models.normalize_id(file.team)
    problem = models.find_id_problem(name)
    if problem:
        return None, [fragment.fault(("team",), problem, models.ID_RULE)]
    if name != stem:
        hint = f"write `team: {stem}`, or rename the file to `{name}.yaml`"
        return None, [fragment.fault(("team",), f"`{name}` is not the file's name", hint)]
    if not file.members:
        return None, [fragment.fault(("members",), "a team needs a member")]
    return file.model_copy(update={"team": name}), []


def add_subagents(
    profiles: Iterable[AgentProfile], loaded: Mapping[str, LoadedProfile]
) -> list[AgentProfile]:
    """Return these profiles, and those of the agents that they may call as tools."""
    by_id = {profile.agent_id: profile for profile in profiles}
    waiting = list(by_id.values())
    while waiting:
        for _, agent in waiting.pop().list_subagents():
            if agent in loaded and agent not in by_id:
                by_id[agent] = loaded[agent].profile
                waiting.append(by_id[agent])
    return list(by_id.values())


def find_reference_faults(
    loaded: Mapping[str, LoadedProfile], broken: Collection[str] = ()
) -> list[Fault]:
    """Return the errors of profiles that name an agent that neither is loaded nor `broken`."""
    return [
        agent.source.fault(loc, f"there is no agent `{name}`", suggest_nearest(name, loaded))
        for agent in loaded.values()
        for loc, name in _list_references(agent.profile)
        if models.normalize_id(name) not in (*loaded, *broken)
    ]


def _list_references(profile: AgentProfile) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the agents that a profile names, with their places."""
    for key, names in (("may_mention", profile.may_mention), ("may_ask", profile.may_ask)):
        for index, name in enumerate(names or ()):
            yield (key, index), name
    for index, name in profile.list_subagents():
        yield ("tools", index), name


_ABOUT_MEMBERS = ("default_responders", "supervisor", "mode", "planner", "fallback_agent")


def draft_alone(
    name: str, loaded: Mapping[str, LoadedProfile], rules: Sequence[Fragment]
) -> TeamDraft:
    """Return the team `agent:ID` of one agent, which is called by itself. Raises UsageError.

    What `rules` say about other members does not count.
    """
    agent = models.normalize_id(name.removeprefix(AGENT_TOOL))
    if agent not in loaded:
        raise UsageError(f"there is no agent `{agent}`", suggest_nearest(agent, loaded))
    fragment = Fragment(loader.wrap_data(None, "agents"))
    alone = [_without_members(part, agent) for part in rules]
    return TeamDraft(f"{AGENT_TOOL}{agent}", [agent], fragment, rules=alone)


def _without_members(rules: Fragment, agent: str) -> Fragment:
    """Return rules without those about other agents."""
    if not isinstance(rules.data, dict):
        return rules
    kept = {key: value for key, value in rules.data.items() if key not in _ABOUT_MEMBERS}
    budget = kept.get("budget")
    if isinstance(budget, dict) and isinstance(budget.get("agents"), dict):
        own = {key: bound for key, bound in budget["agents"].items() if key == agent}
        kept["budget"] = {**budget, "agents": own}
    data: Any = kept
    for step in reversed(rules.loc):
        data = {step: data}
    return Fragment(rules.document.with_data(data), rules.loc)


def build_team(
    draft: TeamDraft,
    loaded: Mapping[str, LoadedProfile],
    findings: TeamFindings,
    broken: Collection[str] = (),
) -> Team | None:
    """Return the team, or None if it has an error or needs a profile of `broken`.

    Its errors and warnings are added to `findings`.
    """
    fault_count = len(findings.faults)
    members = _build_members(draft, loaded, findings, broken)
    is_complete = len(members) == len(draft.agents)
    rules = _TeamRules(draft.rules, members, loaded, findings)
    if is_complete:
        rules.check_responders()
        rules.check_budget()
    supervisor = rules.find_supervisor(broken)
    sorter = rules.find_sorter(broken)
    planner = rules.find_planner(broken)
    _check_humans(draft, [member.id for member in members], findings)
    if is_complete and len(findings.faults) == fault_count:
        errors, warnings = mentions.find_name_conflicts(members, draft.humans)
        findings.faults += [_make_clash_fault(error, draft, loaded) for error in errors]
        findings.warnings += [f"{draft.fragment.document.name}: {warning}" for warning in warnings]
    if not is_complete or len(findings.faults) > fault_count:
        return None
    return Team(
        name=draft.name,
        members=tuple(members),
        humans=tuple(draft.humans),
        config=TeamConfig(**rules.values),
        description=draft.description,
        supervisor=supervisor,
        sorter=sorter,
        planner=planner,
    )


def _make_clash_fault(
    clash: NameClash, draft: TeamDraft, loaded: Mapping[str, LoadedProfile]
) -> Fault:
    """Return the error for a name that two agents or humans have, or that is reserved."""
    later, earlier = (clash.owner, clash.name), (clash.first_owner, clash.first_name)
    is_id = clash.owner == clash.name
    if clash.reserved:
        hint = "write another id, and rename the file" if is_id else "write another name"
        return _fault_maker(*later, draft, loaded)(str(clash), f"{clash.reserved}; {hint}")
    if is_id and clash.owner in loaded and clash.first_owner != clash.first_name:
        later, earlier = earlier, later  # a name is changed more easily than an id
    make_fault = _fault_maker(*later, draft, loaded)
    rival = _fault_maker(*earlier, draft, loaded)("", "")
    location = f"{rival.file}:{rival.line}" if rival.line else rival.file
    hint = f"write another name here or at {location}"
    if earlier[0] == earlier[1]:
        hint = f"write another name; this one is the id at {location}"
    return make_fault(str(clash), hint)


def _fault_maker(
    owner: str, name: str, draft: TeamDraft, loaded: Mapping[str, LoadedProfile]
) -> Callable[[str, str], Fault]:
    """Return a function that makes errors of a name: in a profile, the team's members or humans."""
    for index, human in enumerate(draft.humans):
        if human.id == owner:
            key = "id" if name == owner else "name"
            return partial(draft.fault_of_humans, loc=(index, key))
    for index, ref in enumerate(draft.agents):
        if not isinstance(ref, MemberRef) or not ref.name == name != owner:
            continue
        if models.normalize_id(ref.agent) == owner:
            return partial(draft.fault, (index, "name"))
    profile, source = loaded[owner].profile, loaded[owner].source
    loc: tuple[str | int, ...] = ("agent_id",)
    if name != owner:
        is_name = name == profile.name
        loc = ("name",) if is_name else ("aliases", profile.aliases.index(name))
    return partial(source.fault, loc)


@lru_cache(maxsize=256)
def _make_ref(agent: str) -> MemberRef:
    return MemberRef(agent=agent)


def _build_members(
    draft: TeamDraft,
    loaded: Mapping[str, LoadedProfile],
    findings: TeamFindings,
    broken: Collection[str],
) -> list[Member]:
    members: dict[str, Member] = {}
    for index, entry in enumerate(draft.agents):
        ref = entry if isinstance(entry, MemberRef) else _make_ref(entry)
        agent_id = models.normalize_id(ref.agent)
        agent = loaded.get(agent_id)
        if agent_id in broken:
            continue
        if agent is None:
            ids = [other for other in loaded if loaded[other].profile.name == agent_id]
            hint = f"write the id: `{ids[0]}`" if ids else suggest_nearest(agent_id, loaded)
            findings.faults.append(draft.fault((index,), f"there is no agent `{agent_id}`", hint))
        elif agent_id in members:
            findings.faults.append(draft.fault((index,), f"`{agent_id}` appears twice"))
        else:
            name = ref.name or agent.profile.name or agent_id
            members[agent_id] = Member(agent.profile, name, ref.role, agent.role_prompt)
    return list(members.values())


class _TeamRules:
    """The rules of a team that are set anywhere; errors in them are added to `findings`."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        members: Sequence[Member],
        loaded: Mapping[str, LoadedProfile],
        findings: TeamFindings,
    ) -> None:
        self.values: dict[str, Any] = {}
        self._setters: dict[str, Fragment] = {}  # the fragment that set a rule last
        self._members = {member.id: member for member in members}
        self._loaded = loaded
        self._faults = findings.faults
        for fragment in fragments:
            config, faults = loader.validate_part(fragment, TeamConfig)
            self._faults += faults
            for key in config.model_fields_set if config is not None else ():
                self.values[key] = getattr(config, key)
                self._setters[key] = fragment

    def check_responders(self) -> None:
        """Check that the default responders are members, and normalize their ids."""
        key = "default_responders"
        if key not in self.values:
            return
        self.values[key] = [models.normalize_id(name) for name in self.values[key]]
        for index, name in enumerate(self.values[key]):
            self._check_member(name, (key, index))

    def check_budget(self) -> None:
        """Check the agents with bounds of their own, and normalize their ids."""
        budget = self.values.get("budget")
        if budget is None:
            return
        profiles = [member.profile for member in self._members.values()]
        called = {profile.agent_id for profile in add_subagents(profiles, self._loaded)}
        for name in budget.agents:
            if models.normalize_id(name) not in called:
                self._check_member(name, ("budget", "agents", name))
        agents = {models.normalize_id(name): own for name, own in budget.agents.items()}
        self.values["budget"] = budget.model_copy(update={"agents": agents})

    def _check_member(self, name: str, loc: tuple[str | int, ...]) -> None:
        """Add an error if no member has the name at `loc` of a rule."""
        agent_id = models.normalize_id(name)
        if agent_id in self._members:
            return
        problem = "is not a member of this team" if agent_id in self._loaded else "is not an agent"
        self._add(loc, f"`{name}` {problem}", suggest_nearest(name, list(self._members)))

    def _add(self, loc: tuple[str | int, ...], problem: str, hint: str) -> None:
        """Add an error of the value at `loc` of a rule, in the file that set it last."""
        self._faults.append(self._setters[str(loc[0])].fault(loc, problem, hint))

    def _find_agent(self, name: str, broken: Collection[str], *loc: str) -> Member | None:
        """Return the agent at `loc` of a rule, as a member if it is one; add an error if none."""
        agent = models.normalize_id(name)
        if agent in self._loaded:
            return self._members.get(agent) or self._loaded[agent].as_member()
        if agent not in broken:
            hint = suggest_nearest(agent, self._loaded)
            self._add(loc, f"there is no agent `{agent}`", hint)
        return None

    def find_supervisor(self, broken: Collection[str]) -> Member | None:
        """Return the agent that supervises the team, if its rules name one."""
        agent, mode = self.values.get("supervisor"), self.values.get("mode", "free")
        if agent is None:
            if mode in ("supervisor", "mixed"):
                hint = "name it with `supervisor: AGENT`, or remove `mode`"
                self._add(("mode",), f"`{mode}` needs an agent that supervises", hint)
            return None
        agent = self.values["supervisor"] = models.normalize_id(agent)
        if mode in ("free", "planner"):
            hint = "write `mode: supervisor` or `mode: mixed`, or remove it"
            self._add(("supervisor",), f"`{agent}` is never asked: the mode is {mode}", hint)
            return None
        return self._find_agent(agent, broken, "supervisor")

    def find_planner(self, broken: Collection[str]) -> Member | None:
        """Return the agent that plans work, if the rules name one; check what belongs to it."""
        agent, fallback = self.values.get("planner"), self.values.get("fallback_agent")
        if agent is None:
            if self.values.get("mode") == "planner":
                hint = "name it with `planner: AGENT`, or remove `mode`"
                self._add(("mode",), "`planner` needs an agent that plans", hint)
            return None
        if fallback is not None:
            fallback = self.values["fallback_agent"] = models.normalize_id(fallback)
            if fallback not in broken:
                self._check_member(fallback, ("fallback_agent",))
        agent = self.values["planner"] = models.normalize_id(agent)
        return self._find_agent(agent, broken, "planner")

    def find_sorter(self, broken: Collection[str]) -> Member | None:
        """Return the agent that sorts messages by their intent, if any; check `simple`."""
        intent, simple = self.values.get("intent"), self.values.get("simple")
        if simple is not None:
            agent = models.normalize_id(simple.agent)
            self.values["simple"] = simple.model_copy(update={"agent": agent})
            if intent is None:
                hint = "write `intent: {enabled: true}` next to it"
                self._add(("simple",), "no message is sorted, so it is never used", hint)
            elif agent not in broken:
                self._check_member(agent, ("simple", "agent"))
        if intent is None or intent.agent is None:
            return None
        return self._find_agent(intent.agent, broken, "intent", "agent")


def _check_humans(draft: TeamDraft, members: Collection[str], findings: TeamFindings) -> None:
    seen: set[str] = set()
    for human in draft.humans:
        problem = models.find_id_problem(human.id)
        folded = models.normalize_id(human.id).casefold()
        if not problem and folded in seen:
            problem = "appears twice among the humans"
        if not problem and folded in {member.casefold() for member in members}:
            problem = "is also the id of a member"
        if not problem and folded == "system":
            problem = "is the author of arena's own messages"
        if problem:
            findings.faults.append(draft.fault_of_humans(f"`{human.id}` {problem}"))
        seen.add(folded)
