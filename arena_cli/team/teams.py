"""Teams: members and rules put together from a team file, `arena.yaml` and what overrides them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from arena_cli.ground import nearest
from arena_cli.ground.errors import Fault
from arena_cli.team import ids, mentions
from arena_cli.team.model import Human, Member, MemberRef, Team, TeamConfig, TeamFile
from arena_cli.team.profiles import Loaded
from arena_cli.team.roster import Clash
from arena_cli.yamlio import loader
from arena_cli.yamlio.document import Part


@dataclass(frozen=True)
class Draft:
    """A team before it is put together.

    `agents` are the members in order, told at `loc` of `part`; `humans_part` holds `humans` where
    `part` does not; `rules` are the parts that set rules, the nearest last.
    """

    name: str | None
    agents: Sequence[str | MemberRef]
    part: Part
    loc: tuple[str | int, ...] = ()
    humans: Sequence[Human] = ()
    rules: Sequence[Part] = ()
    description: str = ""
    humans_part: Part | None = None

    def fault(self, loc: tuple[str | int, ...], what: str, mend: str = "") -> Fault:
        """A fault of what stands at `loc` below the members."""
        return self.part.fault((*self.loc, *loc), what, mend)

    def fault_of_humans(self, what: str, mend: str = "", loc: tuple[str | int, ...] = ()) -> Fault:
        """A fault of its humans."""
        return (self.humans_part or self.part).fault(("humans", *loc), what, mend)


@dataclass
class Findings:
    """What is wrong with a team, and what is worth a second look."""

    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read(stem: str, part: Part) -> tuple[TeamFile | None, list[Fault]]:
    """One team file, by its stem."""
    file, faults = loader.validate(part.document, TeamFile)
    if file is None:
        return None, faults
    name = ids.normal(file.team)
    wrong = ids.fault(name)
    if wrong:
        return None, [part.fault(("team",), wrong, ids.RULE)]
    if name != stem:
        mend = f"write `team: {stem}`, or rename the file to `{name}.yaml`"
        return None, [part.fault(("team",), f"`{name}` is not the file's name", mend)]
    if not file.members:
        return None, [part.fault(("members",), "a team needs a member")]
    return file.model_copy(update={"team": name}), []


def build(
    draft: Draft, loaded: Mapping[str, Loaded], found: Findings, broken: Collection[str] = ()
) -> Team | None:
    """The team, or None where a fault prevents it: one in `found`, or in a profile of `broken`."""
    before = len(found.faults)
    members = _members(draft, loaded, found, broken)
    whole = len(members) == len(draft.agents)
    rules, setters = _rules(draft.rules, found)
    if whole:
        _check_responders(rules, setters, [member.id for member in members], loaded, found)
    _check_humans(draft, [member.id for member in members], found)
    if whole and len(found.faults) == before:
        errors, warnings = mentions.roster_conflicts(members, draft.humans)
        found.faults += [_clash(error, draft, loaded) for error in errors]
        found.warnings += [f"{draft.part.document.name}: {warning}" for warning in warnings]
    if not whole or len(found.faults) > before:
        return None
    return Team(
        name=draft.name,
        members=tuple(members),
        humans=tuple(draft.humans),
        config=TeamConfig(**rules),
        description=draft.description,
    )


def _clash(clash: Clash, draft: Draft, loaded: Mapping[str, Loaded]) -> Fault:
    """A name of two, or a reserved one, told where it stands."""
    here, there = (clash.owner, clash.name), (clash.other, clash.other_name)
    is_id = clash.owner == clash.name
    if clash.reserved:
        mend = "write another id, and rename the file" if is_id else "write another name"
        return _place_of(*here, draft, loaded)(str(clash), f"{clash.reserved}; {mend}")
    if is_id and clash.owner in loaded and clash.other != clash.other_name:
        here, there = there, here  # a name is changed more easily than an id
    tell = _place_of(*here, draft, loaded)
    other = _place_of(*there, draft, loaded)("", "")
    where = f"{other.file}:{other.line}" if other.line else other.file
    mend = f"write another name here or at {where}"
    if there[0] == there[1]:
        mend = f"write another name; this one is the id at {where}"
    both = [loaded[one].profile for one in (clash.owner, clash.other) if one in loaded]
    if not all(profile.member for profile in both):  # they meet in this team only
        mend += f"; both are in {draft.part.document.name}"
    return tell(str(clash), mend)


def _place_of(
    owner: str, name: str, draft: Draft, loaded: Mapping[str, Loaded]
) -> Callable[[str, str], Fault]:
    """What tells of a name where it stands: in a profile, in the team's members or humans."""
    entries = [entry if isinstance(entry, MemberRef) else None for entry in draft.agents]
    for index, human in enumerate(draft.humans):
        if human.id == owner:
            key = "id" if name == owner else "name"
            return partial(draft.fault_of_humans, loc=(index, key))
    for index, ref in enumerate(entries):
        if ref is not None and ids.normal(ref.agent) == owner and ref.name == name != owner:
            return partial(draft.fault, (index, "name"))
    profile, source = loaded[owner].profile, loaded[owner].source
    loc: tuple[str | int, ...] = ("agent_id",)
    if name != owner:
        named = name == profile.name
        loc = ("name",) if named else ("aliases", profile.aliases.index(name))
    return partial(source.fault, loc)


@lru_cache(maxsize=256)
def _plain(agent: str) -> MemberRef:
    return MemberRef(agent=agent)


def _members(
    draft: Draft, loaded: Mapping[str, Loaded], found: Findings, broken: Collection[str]
) -> list[Member]:
    members: dict[str, Member] = {}
    for index, entry in enumerate(draft.agents):
        ref = entry if isinstance(entry, MemberRef) else _plain(entry)
        agent_id = ids.normal(ref.agent)
        one = loaded.get(agent_id)
        if agent_id in broken:
            continue
        if one is None:
            named = [other for other in loaded if loaded[other].profile.name == agent_id]
            mend = f"write the id: `{named[0]}`" if named else nearest.hint(agent_id, loaded)
            found.faults.append(draft.fault((index,), f"there is no agent `{agent_id}`", mend))
        elif agent_id in members:
            found.faults.append(draft.fault((index,), f"`{agent_id}` stands twice"))
        else:
            name = ref.name or one.profile.name or agent_id
            members[agent_id] = Member(one.profile, name, ref.role, one.role_prompt)
    return list(members.values())


def _rules(parts: Sequence[Part], found: Findings) -> tuple[dict[str, Any], dict[str, Part]]:
    """The rules that are set anywhere, and the part that has the last word on each."""
    rules: dict[str, Any] = {}
    setters: dict[str, Part] = {}
    for part in parts:
        config, faults = loader.validate_part(part, TeamConfig)
        found.faults += faults
        for key in config.model_fields_set if config is not None else ():
            rules[key] = getattr(config, key)
            setters[key] = part
    return rules, setters


def _check_responders(
    rules: dict[str, Any],
    setters: Mapping[str, Part],
    members: Sequence[str],
    loaded: Mapping[str, Loaded],
    found: Findings,
) -> None:
    key = "default_responders"
    if key not in rules:
        return
    rules[key] = [ids.normal(name) for name in rules[key]]
    for index, name in enumerate(rules[key]):
        if name not in members:
            what = "is no member of this team" if name in loaded else "is no agent"
            fault = setters[key].fault(
                (key, index), f"`{name}` {what}", nearest.hint(name, members)
            )
            found.faults.append(fault)


def _check_humans(draft: Draft, members: Collection[str], found: Findings) -> None:
    seen: set[str] = set()
    for human in draft.humans:
        wrong = ids.fault(human.id)
        folded = ids.normal(human.id).casefold()
        if not wrong and folded in seen:
            wrong = "stands twice among the humans"
        if not wrong and folded in {member.casefold() for member in members}:
            wrong = "is the id of a member too"
        if not wrong and folded == "system":
            wrong = "is the author of arena's own messages"
        if wrong:
            found.faults.append(draft.fault_of_humans(f"`{human.id}` {wrong}"))
        seen.add(folded)
