"""A workspace: the folder's files read, checked and ready to build teams from.

All faults of all files are raised at once (`FileFaults`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arena_cli.ground import nearest, regularfiles
from arena_cli.ground.errors import Fault, FileFaults, UsageError
from arena_cli.team import files, ids, profiles, teams
from arena_cli.team.model import AgentProfile, Human, Member, Team, WorkspaceFile
from arena_cli.team.profiles import Kinds, Loaded, Source
from arena_cli.team.teams import Draft, Findings
from arena_cli.yamlio import loader
from arena_cli.yamlio.document import Document, Part, find_holder

VARIABLE = "ARENA_WORKSPACE"

_NO_TEAMS = f"there is no file in {files.TEAMS}; without a team, every agent is in it"
_MEND = (
    "run `arena init` to make one here, or `arena agents add` to begin with an agent that you have,"
    " or name one with --workspace DIR"
)


def find(start: Path, explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the workspace's folder: `explicit`, else ARENA_WORKSPACE, else from `start` upwards.

    Raise UsageError if there is none.
    """
    chosen = explicit or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if chosen is not None:
        folder = Path(start, chosen).resolve()
        if _is_workspace(folder):
            return folder
        problem = f"{folder} is no workspace" if folder.is_dir() else f"{folder} is no folder"
        origin = "--workspace" if explicit else VARIABLE
        hint = f"run `arena init {chosen}` to make one there"
        if folder.exists() and not folder.is_dir():
            hint = f"name a folder, one with {files.FILE} or {files.AGENTS}/*.yaml"
        raise UsageError(f"{origin}: {problem}", hint)
    start = start.resolve()
    for folder in (start, *start.parents):
        if _is_workspace(folder):
            return folder
    problem = (
        f"no workspace (a folder with {files.FILE} or {files.AGENTS}/*.yaml) in {start} or above it"
    )
    raise UsageError(problem, _MEND)


def _is_workspace(folder: Path) -> bool:
    return regularfiles.is_named(folder / files.FILE) or bool(files.names(folder / files.AGENTS))


@dataclass(frozen=True)
class Workspace:
    """The checked files. `loaded` and `teams` are by id, in the order of the files' names.

    `warnings` are names that are easily mistaken, for `arena agents check`. `anywhere`: files that
    it names, and links in it, may lead out of it.
    """

    root: Path
    file: WorkspaceFile
    document: Document
    kinds: Kinds
    loaded: Mapping[str, Loaded]
    drafts: Mapping[str, Draft]
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
        judge = self.file.defaults.get(files.JUDGE)
        return None if judge is None else ids.normal(judge)

    @property
    def summarizer(self) -> Member | None:
        """The agent that summarises older messages, if one is named."""
        return self._alone(self.file.memory.summarizer)

    @property
    def extractor(self) -> Member | None:
        """The agent that extracts notes, if one is named."""
        return self._alone(self.file.memory.extractor)

    def _alone(self, agent: str | None) -> Member | None:
        """Return an agent as a member of no team."""
        if agent is None:
            return None
        loaded = self.loaded[ids.normal(agent)]
        name = loaded.profile.name or loaded.profile.agent_id
        return Member(loaded.profile, name, role_prompt=loaded.role_prompt)

    def team(
        self,
        name: str | None = None,
        *,
        overrides: Sequence[Part] = (),
        humans: Sequence[Human] | None = None,
        humans_part: Part | None = None,
    ) -> Team:
        """Return the team of that name; None: every agent whose profile has no `member: false`.

        `overrides` set rules over the team's, the nearest last; `humans`, from `humans_part`,
        replace the team's. Raise UsageError for an unknown team or one without members, FileFaults
        for wrong rules.
        """
        if name is None:
            draft = _everyone(self.loaded, self.document)
            if not draft.agents:
                raise UsageError(
                    f"no agents in {self.root / files.AGENTS}", "run `arena init` there"
                )
        elif ids.normal(name) in self.drafts:
            name = ids.normal(name)
            if not overrides and humans is None and name in self.teams:
                return self.teams[name]
            draft = self.drafts[name]
        else:
            hint = nearest.hint(name, self.drafts) or _NO_TEAMS
            raise UsageError(f"there is no team `{name}`", hint)
        return self._built(draft, overrides, humans, humans_part)

    def team_of(
        self,
        agents: Sequence[str],
        fragment: Part,
        *,
        overrides: Sequence[Part] = (),
        humans: Sequence[Human] | None = None,
        humans_part: Part | None = None,
    ) -> Team:
        """Return a team of just these agents, which `fragment` holds; raise FileFaults."""
        draft = Draft(None, agents, fragment, rules=files.common_rules(self.document))
        if not agents:
            raise FileFaults([fragment.fault((), "a team needs a member")])
        return self._built(draft, overrides, humans, humans_part)

    def with_profiles(self, raw: Mapping[str, Any], fragments: Sequence[Part]) -> Workspace:
        """Return the workspace with profiles deep-merged over its own.

        `raw` is in `fragments`, the nearest first. Lists replace, a new adapter type replaces the
        adapter, a new id is a new agent. Raise FileFaults.
        """
        changed: dict[str, Source] = {}
        faults: list[Fault] = []
        for key, keys in raw.items():
            below = tuple(Part(fragment.document, (*fragment.loc, key)) for fragment in fragments)
            if isinstance(keys, dict):
                agent_id = ids.normal(key)
                changed[agent_id] = self._overridden(agent_id, Source(keys, below), faults)
            else:
                holder = find_holder(fragments, (key,))
                faults.append(holder.fault((key,), "must be a mapping of keys"))
        loaded = dict(self.loaded)
        faults += _load_profiles(
            self.root, self.kinds, self.document, changed, loaded, anywhere=self.anywhere
        )
        broken = [agent_id for agent_id in changed if agent_id not in loaded]
        faults += profiles.reference_faults(loaded, broken)
        if faults:
            raise FileFaults(faults)
        return replace(self, loaded=loaded, teams={})

    def _overridden(self, agent_id: str, over: Source, faults: list[Fault]) -> Source:
        base = self.loaded.get(agent_id)
        extends = over.data.get("extends")
        if base is not None and "extends" in over.data:
            problem = f"`{agent_id}` is there already; only a new agent can extend another"
            faults.append(over.fault(("extends",), problem))
        elif isinstance(extends, str):
            extended = self.loaded.get(ids.normal(extends))
            if extended is None:
                hint = nearest.hint(extends, self.loaded)
                faults.append(over.fault(("extends",), f"there is no agent `{extends}`", hint))
                over = replace(over, is_whole=False)
            else:
                over = profiles.extended(over, extended.source)
        if base is not None:
            return profiles.merged(over, base.source)
        return replace(over, data={"agent_id": agent_id, **over.data})

    def _built(
        self,
        draft: Draft,
        overrides: Sequence[Part],
        humans: Sequence[Human] | None,
        humans_part: Part | None,
    ) -> Team:
        findings = Findings()
        draft = replace(
            draft,
            rules=[*draft.rules, *overrides],
            humans=draft.humans if humans is None else humans,
            humans_part=humans_part,
        )
        team = teams.build(draft, self.loaded, findings)
        if team is None:
            raise FileFaults(findings.faults)
        return team


def load(
    root: Path,
    *,
    kinds: Kinds,
    unsaved: files.Unsaved = files.NOTHING,
    anywhere: bool = False,
) -> Workspace:
    """Read and check all files of a workspace; raise FileFaults.

    A file outside it is a fault, unless `anywhere`.
    """
    findings = Findings()
    document = files.workspace_document(root, anywhere=anywhere)
    file = files.workspace_file(document, kinds, findings.faults)
    sources, faults = profiles.sources(
        files.agents(root, findings.faults, unsaved, anywhere=anywhere)
    )
    findings.faults += faults
    loaded: dict[str, Loaded] = {}
    findings.faults += _load_profiles(root, kinds, document, sources, loaded, anywhere=anywhere)
    broken = [agent_id for agent_id in sources if agent_id not in loaded]
    findings.faults += profiles.reference_faults(loaded, broken)
    findings.faults += files.judge_faults(document, loaded, broken)
    if file is not None:
        findings.faults += files.memory_faults(document, file, loaded, broken)
    drafts, broken_teams = files.drafts(root, document, findings.faults, unsaved, anywhere=anywhere)
    all_built = {
        name: teams.build(draft, loaded, findings, broken) for name, draft in drafts.items()
    }
    built = {name: team for name, team in all_built.items() if team is not None}
    if file is not None and file.team is not None:
        findings.faults += _default_team_faults(file.team, document, drafts, broken_teams)
    elif file is not None and not broken:
        teams.build(_everyone(loaded, document), loaded, findings)
    if findings.faults or file is None:
        raise FileFaults(findings.faults)
    return Workspace(
        root,
        file,
        document,
        kinds,
        loaded,
        drafts,
        built,
        tuple(dict.fromkeys(findings.warnings)),
        anywhere,
    )


def _default_team_faults(
    team: str, document: Document, drafts: Mapping[str, Draft], broken: Collection[str]
) -> list[Fault]:
    name = ids.normal(team)
    if name in drafts or name in broken:
        return []
    hint = nearest.hint(name, drafts)
    return [document.fault(("team",), f"there is no team `{name}`", hint)]


def _load_profiles(
    root: Path,
    kinds: Kinds,
    document: Document,
    sources: Mapping[str, Source],
    loaded: dict[str, Loaded],
    *,
    anywhere: bool,
) -> list[Fault]:
    """Check profiles and add the right ones to `loaded`."""
    faults: list[Fault] = []
    defaults = Part(document, ("defaults",))
    for agent_id, source in sources.items():
        agent, agent_faults = profiles.load(
            agent_id, source, root=root, kinds=kinds, defaults=defaults, anywhere=anywhere
        )
        faults += agent_faults
        if agent is not None:
            loaded[agent_id] = agent
    return faults


def _everyone(loaded: Mapping[str, Loaded], document: Document) -> Draft:
    """Return the team of a workspace that names none."""
    agents = [agent_id for agent_id, agent in loaded.items() if agent.profile.member]
    fragment = Part(loader.from_data(None, files.AGENTS))
    return Draft(None, agents, fragment, rules=files.common_rules(document))
