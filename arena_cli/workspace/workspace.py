"""A workspace: the folder's files read, checked and ready to build teams from.

All errors in all files are raised at once (`FileFaults`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from arena_cli import errors
from arena_cli.errors import Fault, FileFaults, UsageError
from arena_cli.util import files
from arena_cli.workspace import models
from arena_cli.workspace.agents import (
    AdapterKinds,
    LoadedProfile,
    ProfileSource,
    extend_source,
    load_profile,
    merge_sources,
    read_sources,
)
from arena_cli.workspace.models import AgentProfile, Member, Team, TeamConfig, WorkspaceFile
from arena_cli.workspace.teams import (
    NO_CHANGES,
    TeamChanges,
    TeamDraft,
    TeamFindings,
    build_team,
    draft_alone,
    find_reference_faults,
    read_team_file,
)
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Document, Fragment, find_holder

WORKSPACE_FILE = "arena.yaml"
AGENTS_FOLDER = "agents"
TEAMS_FOLDER = "agents/teams"
JUDGE_KEY = "judge"
_MEMORY_AGENTS = ("summarizer", "extractor", "judge")
YAML_SUFFIX = ".yaml"
WORK_FOLDER = "work"
"""The folder in which program agents have folders of their own; git ignores it."""

Unsaved = Mapping[str, Document]
"""Files as they are to be, by path (`agents/dev.yaml`): read instead of those on disk."""

NO_UNSAVED: Unsaved = {}


def list_files(folder: Path, suffix: str = YAML_SUFFIX) -> list[str]:
    """Return the sorted names of a folder's files that end in `suffix`, without hidden files."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    matching = (entry for entry in entries if entry.name.endswith(suffix))
    regular = (entry.name for entry in matching if files.is_file_or_refused(entry))
    return sorted(name for name in regular if not name.startswith("."))


def read_workspace_document(root: Path, *, anywhere: bool = False) -> Document:
    """Return `arena.yaml`, or an empty document; `anywhere` is as in `read_document`."""
    if files.is_file_or_refused(root / WORKSPACE_FILE):
        return read_document(root, WORKSPACE_FILE, anywhere=anywhere)
    return loader.wrap_data({}, WORKSPACE_FILE)


def read_document(root: Path, name: str, *, anywhere: bool) -> Document:
    """Read a file of the workspace; a link that leads out of it is an error, unless `anywhere`.

    With `anywhere`, no error quotes the lines of such a file: they are not part of the workspace.
    """
    fault = files.find_link_fault(root / name, name, root)
    if fault is not None and not anywhere:
        return Document(name, None, (fault,))
    return loader.load(root / name, name, is_shown=fault is None)


def read_workspace_file(
    document: Document, kinds: AdapterKinds, faults: list[Fault]
) -> WorkspaceFile | None:
    """Return `arena.yaml` checked, with its `defaults`; append its errors to the list."""
    file, file_faults = loader.validate(document, WorkspaceFile)
    faults += file_faults
    defaults = Fragment(document, ("defaults",)).data
    for key in defaults if isinstance(defaults, dict) else ():
        faults += _find_default_faults(key, document, kinds)
    return file


def _find_default_faults(key: str, document: Document, kinds: AdapterKinds) -> list[Fault]:
    loc = ("defaults", key)
    if key == "config":
        return loader.validate_part(Fragment(document, loc), TeamConfig)[1]
    known_keys = ["config", JUDGE_KEY, *kinds.list_kinds()]
    if key in known_keys or key.startswith("x-"):
        return []
    return [document.fault(loc, "unknown key", errors.suggest_nearest(key, known_keys))]


def _find_agent_faults(
    document: Document, loaded: Collection[str], broken: Collection[str]
) -> Iterator[Fault]:
    """Yield the errors of the agents that `arena.yaml` names; `broken` ones are none."""
    for place, keys in (("defaults", (JUDGE_KEY,)), ("memory", _MEMORY_AGENTS)):
        named = Fragment(document, (place,)).data
        for key in keys if isinstance(named, dict) else ():
            agent = named.get(key)
            if isinstance(agent, str) and models.normalize_id(agent) not in (*loaded, *broken):
                hint = errors.suggest_nearest(agent, loaded)
                yield document.fault((place, key), f"there is no agent `{agent}`", hint)
            elif key in named and not isinstance(agent, str) and place == "defaults":
                yield document.fault((place, key), "must be the id of an agent")


def list_common_rules(document: Document) -> Sequence[Fragment]:
    """Return the rules that `arena.yaml` sets for every team."""
    return _list_fragment(Fragment(document), ("defaults", "config"))


def _list_fragment(fragment: Fragment, loc: tuple[str, ...]) -> Sequence[Fragment]:
    return [fragment.below(*loc)] if fragment.holds(loc) else []


def _read_drafts(
    by_stem: Mapping[str, Fragment], document: Document, faults: list[Fault]
) -> tuple[dict[str, TeamDraft], list[str]]:
    """Return the teams of files by name, and the names of those whose file is invalid."""
    by_name: dict[str, TeamDraft] = {}
    broken: list[str] = []
    for stem, fragment in by_stem.items():
        file, file_faults = read_team_file(stem, fragment)
        faults += file_faults
        if file is None:
            broken.append(stem)
            continue
        rules = [*list_common_rules(document), *_list_fragment(fragment, ("config",))]
        by_name[stem] = TeamDraft(
            file.team, file.members, fragment, ("members",), file.humans, rules, file.description
        )
    return by_name, broken


def _read_folder(
    root: Path, folder: str, faults: list[Fault], unsaved: Unsaved, *, anywhere: bool
) -> dict[str, Fragment]:
    """Return the documents of a folder by stem, in the order of the names."""
    for name in list_files(root / folder, ".yml"):
        hint = f"rename it to {name.removesuffix('.yml')}{YAML_SUFFIX}"
        faults.append(Fault(f"{folder}/{name}", 0, "", f"only {YAML_SUFFIX} files are read", hint))
    by_stem: dict[str, Fragment] = {}
    folded: dict[str, str] = {}
    new = (path.rpartition("/") for path in unsaved)
    present = {*list_files(root / folder), *(name for parent, _, name in new if parent == folder)}
    for name in sorted(present):
        shown_path = f"{folder}/{name}"
        stem = models.normalize_id(name.removesuffix(YAML_SUFFIX))
        first = folded.setdefault(stem.casefold(), shown_path)
        if first != shown_path:
            problem = f"has the same name as {first}, except for upper and lower case"
            faults.append(Fault(shown_path, 0, "", problem, "rename one of them"))
            continue
        by_stem[stem] = Fragment(
            unsaved.get(shown_path) or read_document(root, shown_path, anywhere=anywhere)
        )
    return by_stem


WORKSPACE_VARIABLE = "ARENA_WORKSPACE"

_NO_TEAMS = f"there is no file in {TEAMS_FOLDER}; without a team, every agent is in it"
_FIND_HINT = (
    "run `arena init` to create one here, or `arena agents add` to begin with an "
    "agent that you have, or name one with --workspace DIR"
)


def find_workspace(start: Path, explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the workspace's folder: `explicit`, else ARENA_WORKSPACE, else from `start` upwards.

    Raise UsageError if there is none.
    """
    chosen = explicit or (
        Path(environ[WORKSPACE_VARIABLE]) if environ.get(WORKSPACE_VARIABLE) else None
    )
    if chosen is not None:
        folder = Path(start, chosen).resolve()
        if _is_workspace(folder):
            return folder
        problem = f"{folder} is not a workspace" if folder.is_dir() else f"{folder} is not a folder"
        origin = "--workspace" if explicit else WORKSPACE_VARIABLE
        hint = f"run `arena init {chosen}` to create one there"
        if folder.exists() and not folder.is_dir():
            hint = f"name a folder, one with {WORKSPACE_FILE} or {AGENTS_FOLDER}/*.yaml"
        raise UsageError(f"{origin}: {problem}", hint)
    start = start.resolve()
    for folder in (start, *start.parents):
        if _is_workspace(folder):
            return folder
    problem = (
        f"no workspace (a folder with {WORKSPACE_FILE} or {AGENTS_FOLDER}/*.yaml) "
        f"in {start} or above it"
    )
    raise UsageError(problem, _FIND_HINT)


def _is_workspace(folder: Path) -> bool:
    return files.is_file_or_refused(folder / WORKSPACE_FILE) or bool(
        list_files(folder / AGENTS_FOLDER)
    )


@dataclass(frozen=True)
class Workspace:
    """The checked files. `loaded` and `teams` are by id, in the order of the files' names.

    `warnings` are names that are easily confused, for `arena agents check`. `anywhere`: files that
    it names, and links in it, may lead out of it.
    """

    root: Path
    file: WorkspaceFile
    document: Document
    kinds: AdapterKinds
    loaded: Mapping[str, LoadedProfile]
    drafts: Mapping[str, TeamDraft]
    teams: Mapping[str, Team]
    warnings: tuple[str, ...] = ()
    anywhere: bool = False

    @property
    def profiles(self) -> dict[str, AgentProfile]:
        """Every agent's profile by id."""
        return {agent_id: agent.profile for agent_id, agent in self.loaded.items()}

    @property
    def judge(self) -> str | None:
        """The id of the agent that judges by default, if there is one."""
        judge = self.file.defaults.get(JUDGE_KEY)
        return None if judge is None else models.normalize_id(judge)

    @property
    def summarizer(self) -> Member | None:
        """The agent that summarises older messages, if one is named."""
        return self._alone(self.file.memory.summarizer)

    @property
    def extractor(self) -> Member | None:
        """The agent that extracts notes, if one is named."""
        return self._alone(self.file.memory.extractor)

    @property
    def memory_judge(self) -> Member | None:
        """The agent that judges if replies ignore notes, if one is named."""
        return self._alone(self.file.memory.judge)

    def list_rule_functions(self) -> list[str]:
        """Return the functions of the user that rules of its teams call."""
        common = [fragment for fragment in list_common_rules(self.document) if fragment.data]
        has_members = any(agent.profile.member for agent in self.loaded.values())
        teams = [*self.teams.values(), *([self.team()] if common and has_members else ())]
        functions = [name for team in teams for name in team.list_rule_functions()]
        return list(dict.fromkeys(functions))

    @property
    def memory_agents(self) -> list[Member]:
        """The agents that work for the team's memory."""
        agents = (self.summarizer, self.extractor, self.memory_judge)
        return [agent for agent in agents if agent is not None]

    def find_agent(self, agent: str) -> Member | None:
        """Return an agent of the workspace as a member of no team; None if there is none."""
        return self._alone(agent) if models.normalize_id(agent) in self.loaded else None

    def _alone(self, agent: str | None) -> Member | None:
        """Return an agent as a member of no team."""
        return None if agent is None else self.loaded[models.normalize_id(agent)].as_member()

    def team(self, name: str | None = None, changes: TeamChanges = NO_CHANGES) -> Team:
        """Return the team of that name; None: every agent whose profile has no `member: false`.

        `agent:ID` is a team of that agent alone. Raise UsageError for an unknown team or one
        without members, FileFaults for invalid rules.
        """
        if name is None:
            draft = _draft_everyone(self.loaded, self.document)
            if not draft.agents:
                raise UsageError(
                    f"no agents in {self.root / AGENTS_FOLDER}", "run `arena init` there"
                )
        elif name.startswith(models.AGENT_TOOL):
            draft = draft_alone(name, self.loaded, list_common_rules(self.document))
        elif models.normalize_id(name) in self.drafts:
            name = models.normalize_id(name)
            if not changes.rules and changes.humans is None and name in self.teams:
                return self.teams[name]
            draft = self.drafts[name]
        else:
            hint = errors.suggest_nearest(name, self.drafts) or _NO_TEAMS
            raise UsageError(f"there is no team `{name}`", hint)
        return self._build(draft, changes)

    def team_of(
        self, agents: Sequence[str], fragment: Fragment, changes: TeamChanges = NO_CHANGES
    ) -> Team:
        """Return a team of just these agents, which `fragment` holds; raise FileFaults."""
        draft = TeamDraft(None, agents, fragment, rules=list_common_rules(self.document))
        if not agents:
            raise FileFaults([fragment.fault((), "a team needs a member")])
        return self._build(draft, changes)

    def with_profiles(self, raw: Mapping[str, Any], fragments: Sequence[Fragment]) -> Workspace:
        """Return the workspace with profiles deep-merged over its own.

        `raw` is in `fragments`, the nearest first. Lists replace, a new adapter type replaces the
        adapter, a new id is a new agent. Raise FileFaults.
        """
        changed: dict[str, ProfileSource] = {}
        faults: list[Fault] = []
        for key, keys in raw.items():
            below = tuple(fragment.below(key) for fragment in fragments)
            if isinstance(keys, dict):
                agent_id = models.normalize_id(key)
                changed[agent_id] = self._overridden(agent_id, ProfileSource(keys, below), faults)
            else:
                holder = find_holder(fragments, (key,))
                faults.append(holder.fault((key,), "must be a mapping of keys"))
        loaded = dict(self.loaded)
        faults += _load_profiles(
            self.root, self.kinds, self.document, changed, loaded, anywhere=self.anywhere
        )
        broken = [agent_id for agent_id in changed if agent_id not in loaded]
        faults += find_reference_faults(loaded, broken)
        if faults:
            raise FileFaults(faults)
        return replace(self, loaded=loaded, teams={})

    def _overridden(self, agent_id: str, over: ProfileSource, faults: list[Fault]) -> ProfileSource:
        base = self.loaded.get(agent_id)
        extends = over.data.get("extends")
        if base is not None and "extends" in over.data:
            problem = f"`{agent_id}` already exists; only a new agent can extend another"
            faults.append(over.fault(("extends",), problem))
        elif isinstance(extends, str):
            extended = self.loaded.get(models.normalize_id(extends))
            if extended is None:
                hint = errors.suggest_nearest(extends, self.loaded)
                faults.append(over.fault(("extends",), f"there is no agent `{extends}`", hint))
                over = replace(over, is_whole=False)
            else:
                over = extend_source(over, extended.source)
        if base is not None:
            return merge_sources(over, base.source)
        return replace(over, data={"agent_id": agent_id, **over.data})

    def _build(self, draft: TeamDraft, changes: TeamChanges) -> Team:
        findings = TeamFindings()
        draft = replace(
            draft,
            rules=[*draft.rules, *changes.rules],
            humans=draft.humans if changes.humans is None else changes.humans,
            humans_part=changes.humans_part,
        )
        team = self.build_team(draft, findings)
        if team is None or findings.faults:
            raise FileFaults(findings.faults)
        return team

    def build_team(
        self, draft: TeamDraft, findings: TeamFindings, broken: Collection[str] = ()
    ) -> Team | None:
        """Return a team with the rules of files that it names; add all its errors.

        None for one that has an error in its members, or needs a profile of `broken`.
        """
        team = build_team(draft, self.loaded, findings, broken)
        if team is None:
            return None
        findings.faults += _find_heed_faults(team, draft, self.file)
        if not team.config.rules:
            return team
        rules, faults = import_module("arena_cli.workspace.rule_files").resolve_rules(
            team.config.rules,
            find_holder(draft.rules[::-1], ("rules",)),
            self.root,
            anywhere=self.anywhere,
            taken={
                rule.key: f"the profile of {member.id}"
                for member in team.members
                for rule in member.profile.rules
            },
            agents=self.loaded,
        )
        findings.faults += faults
        return replace(team, config=team.config.model_copy(update={"rules": rules}))


def load_workspace(
    root: Path,
    *,
    kinds: AdapterKinds,
    unsaved: Unsaved = NO_UNSAVED,
    anywhere: bool = False,
) -> Workspace:
    """Read and check all files of a workspace; raise FileFaults.

    A file outside it is an error, unless `anywhere`.
    """
    findings = TeamFindings()
    document = read_workspace_document(root, anywhere=anywhere)
    file = read_workspace_file(document, kinds, findings.faults)
    sources, faults = read_sources(
        _read_folder(root, AGENTS_FOLDER, findings.faults, unsaved, anywhere=anywhere)
    )
    findings.faults += faults
    loaded: dict[str, LoadedProfile] = {}
    findings.faults += _load_profiles(root, kinds, document, sources, loaded, anywhere=anywhere)
    broken = [agent_id for agent_id in sources if agent_id not in loaded]
    findings.faults += find_reference_faults(loaded, broken)
    findings.faults += _find_agent_faults(document, loaded, broken)
    team_files = _read_folder(root, TEAMS_FOLDER, findings.faults, unsaved, anywhere=anywhere)
    drafts, broken_teams = _read_drafts(team_files, document, findings.faults)
    if file is None:
        for draft in drafts.values():
            build_team(draft, loaded, findings, broken)
        raise FileFaults(findings.faults)
    new = Workspace(root, file, document, kinds, loaded, drafts, {}, (), anywhere)
    teams = {name: new.build_team(draft, findings, broken) for name, draft in drafts.items()}
    if file.team is not None:
        findings.faults += _find_default_team_faults(file.team, document, drafts, broken_teams)
    elif not broken:
        new.build_team(_draft_everyone(loaded, document), findings)
    if findings.faults:
        raise FileFaults(findings.faults)
    built = {name: team for name, team in teams.items() if team is not None}
    return replace(new, teams=built, warnings=tuple(dict.fromkeys(findings.warnings)))


def _find_heed_faults(team: Team, draft: TeamDraft, file: WorkspaceFile) -> list[Fault]:
    """Return the error of a team whose replies a judge judges, if no judge is named."""
    if team.config.memory.heed == "rules" or file.memory.judge is not None:
        return []
    loc = ("memory", "heed")
    holder = find_holder(draft.rules[::-1], loc)
    hint = "name it in arena.yaml: `memory: {judge: AGENT}`"
    return [holder.fault(loc, "`judge` needs an agent that judges", hint)]


def _find_default_team_faults(
    team: str, document: Document, drafts: Mapping[str, TeamDraft], broken: Collection[str]
) -> list[Fault]:
    name = models.normalize_id(team)
    if name in drafts or name in broken:
        return []
    hint = errors.suggest_nearest(name, drafts)
    return [document.fault(("team",), f"there is no team `{name}`", hint)]


def _load_profiles(
    root: Path,
    kinds: AdapterKinds,
    document: Document,
    sources: Mapping[str, ProfileSource],
    loaded: dict[str, LoadedProfile],
    *,
    anywhere: bool,
) -> list[Fault]:
    """Check profiles and add the valid ones to `loaded`."""
    faults: list[Fault] = []
    defaults = Fragment(document, ("defaults",))
    for agent_id, source in sources.items():
        agent, agent_faults = load_profile(
            agent_id, source, root=root, kinds=kinds, defaults=defaults, anywhere=anywhere
        )
        faults += agent_faults
        if agent is not None:
            loaded[agent_id] = agent
    acting = [
        agent_id for agent_id in sources if agent_id in loaded and loaded[agent_id].profile.acts
    ]
    shared = Fragment(document, ("mcp",))
    if not acting and not shared.data:
        return faults
    entries = import_module("arena_cli.workspace.tool_entries")
    faults += entries.check_agents(acting, shared, {*sources, *loaded}, loaded)
    return faults


def _draft_everyone(loaded: Mapping[str, LoadedProfile], document: Document) -> TeamDraft:
    """Return the team of a workspace that names none."""
    agents = [agent_id for agent_id, agent in loaded.items() if agent.profile.member]
    fragment = Fragment(loader.wrap_data(None, AGENTS_FOLDER))
    return TeamDraft(None, agents, fragment, rules=list_common_rules(document))
