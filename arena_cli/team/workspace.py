"""A workspace: the folder's files read, checked and ready to make teams of.

Every fault of every file is told at once (`FileFaults`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The workspace's folder: `explicit`, else ARENA_WORKSPACE, else from `start` upwards.

    Raises UsageError where there is none.
    """
    named = explicit or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if named is not None:
        folder = Path(start, named).resolve()
        if _is_workspace(folder):
            return folder
        what = f"{folder} is no workspace" if folder.is_dir() else f"{folder} is no folder"
        origin = "--workspace" if explicit else VARIABLE
        mend = f"run `arena init {named}` to make one there"
        if folder.exists() and not folder.is_dir():
            mend = f"name a folder, one with {files.FILE} or {files.AGENTS}/*.yaml"
        raise UsageError(f"{origin}: {what}", mend)
    start = start.resolve()
    for folder in (start, *start.parents):
        if _is_workspace(folder):
            return folder
    what = (
        f"no workspace (a folder with {files.FILE} or {files.AGENTS}/*.yaml) in {start} or above it"
    )
    raise UsageError(what, _MEND)


def _is_workspace(folder: Path) -> bool:
    return regularfiles.is_named(folder / files.FILE) or bool(files.names(folder / files.AGENTS))


@dataclass(frozen=True)
class Workspace:
    """The checked files. `loaded` and `teams` go by id, in the order of the files' names.

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
        return {agent_id: one.profile for agent_id, one in self.loaded.items()}

    @property
    def judge(self) -> str | None:
        """The id of the agent that judges where nobody else is named, if there is one."""
        judge = self.file.defaults.get(files.JUDGE)
        return None if judge is None else ids.normal(judge)

    @property
    def summarizer(self) -> Member | None:
        """The agent that summarises what agents need no longer be shown whole, if one is named."""
        return self._alone(self.file.memory.summarizer)

    @property
    def extractor(self) -> Member | None:
        """The agent that looks for what is worth a note, if one is named."""
        return self._alone(self.file.memory.extractor)

    def _alone(self, agent: str | None) -> Member | None:
        """An agent outside of any team."""
        if agent is None:
            return None
        one = self.loaded[ids.normal(agent)]
        name = one.profile.name or one.profile.agent_id
        return Member(one.profile, name, role_prompt=one.role_prompt)

    def team(
        self,
        name: str | None = None,
        *,
        overrides: Sequence[Part] = (),
        humans: Sequence[Human] | None = None,
        humans_part: Part | None = None,
    ) -> Team:
        """The team of that name; None: every agent whose profile does not say `member: false`.

        `overrides` set rules over the team's, the nearest last; `humans`, which stand below
        `humans_part`, replace the team's.
        Raises UsageError for an unknown team or one without members, FileFaults for wrong rules.
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
            mend = nearest.hint(name, self.drafts) or _NO_TEAMS
            raise UsageError(f"there is no team `{name}`", mend)
        return self._built(draft, overrides, humans, humans_part)

    def team_of(
        self,
        agents: Sequence[str],
        part: Part,
        *,
        overrides: Sequence[Part] = (),
        humans: Sequence[Human] | None = None,
        humans_part: Part | None = None,
    ) -> Team:
        """A team of just these agents, which stand at `part`; raises FileFaults."""
        draft = Draft(None, agents, part, rules=files.common_rules(self.document))
        if not agents:
            raise FileFaults([part.fault((), "a team needs a member")])
        return self._built(draft, overrides, humans, humans_part)

    def with_profiles(self, raw: Mapping[str, Any], parts: Sequence[Part]) -> Workspace:
        """The workspace with profiles deep-merged over its own.

        `raw` stands at `parts`, the nearest first. Lists replace, a new adapter type replaces the
        adapter, a new id is a new agent. Raises FileFaults.
        """
        changed: dict[str, Source] = {}
        faults: list[Fault] = []
        for key, keys in raw.items():
            places = tuple(Part(part.document, (*part.loc, key)) for part in parts)
            if isinstance(keys, dict):
                agent_id = ids.normal(key)
                changed[agent_id] = self._overridden(agent_id, Source(keys, places), faults)
            else:
                place = find_holder(parts, (key,))
                faults.append(place.fault((key,), "must be a mapping of keys"))
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
            what = f"`{agent_id}` is there already; only a new agent can extend another"
            faults.append(over.fault(("extends",), what))
        elif isinstance(extends, str):
            named = self.loaded.get(ids.normal(extends))
            if named is None:
                mend = nearest.hint(extends, self.loaded)
                faults.append(over.fault(("extends",), f"there is no agent `{extends}`", mend))
                over = replace(over, is_whole=False)
            else:
                over = profiles.extended(over, named.source)
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
        found = Findings()
        draft = replace(
            draft,
            rules=[*draft.rules, *overrides],
            humans=draft.humans if humans is None else humans,
            humans_part=humans_part,
        )
        team = teams.build(draft, self.loaded, found)
        if team is None:
            raise FileFaults(found.faults)
        return team


def load(
    root: Path,
    *,
    kinds: Kinds,
    unsaved: files.Unsaved = files.NOTHING,
    anywhere: bool = False,
) -> Workspace:
    """Reads and checks all files of a workspace; raises FileFaults.

    A file that lies outside it is one, unless `anywhere`.
    """
    found = Findings()
    document = files.workspace_document(root, anywhere=anywhere)
    file = files.workspace_file(document, kinds, found.faults)
    sources, faults = profiles.sources(files.agents(root, found.faults, unsaved, anywhere=anywhere))
    found.faults += faults
    loaded: dict[str, Loaded] = {}
    found.faults += _load_profiles(root, kinds, document, sources, loaded, anywhere=anywhere)
    broken = [agent_id for agent_id in sources if agent_id not in loaded]
    found.faults += profiles.reference_faults(loaded, broken)
    found.faults += files.judge_faults(document, loaded, broken)
    if file is not None:
        found.faults += files.memory_faults(document, file, loaded, broken)
    drafts, broken_teams = files.drafts(root, document, found.faults, unsaved, anywhere=anywhere)
    built: dict[str, Team] = {}
    for name, draft in drafts.items():
        team = teams.build(draft, loaded, found, broken)
        if team is not None:
            built[name] = team
    if file is not None and file.team is None and not broken:
        teams.build(_everyone(loaded, document), loaded, found)
    elif file is not None and file.team is not None:
        name = ids.normal(file.team)
        if name not in drafts and name not in broken_teams:
            mend = nearest.hint(name, drafts)
            found.faults.append(document.fault(("team",), f"there is no team `{name}`", mend))
    if found.faults or file is None:
        raise FileFaults(found.faults)
    return Workspace(
        root,
        file,
        document,
        kinds,
        loaded,
        drafts,
        built,
        tuple(dict.fromkeys(found.warnings)),
        anywhere,
    )


def _load_profiles(
    root: Path,
    kinds: Kinds,
    document: Document,
    sources: Mapping[str, Source],
    loaded: dict[str, Loaded],
    *,
    anywhere: bool,
) -> list[Fault]:
    """Checks profiles and puts the right ones into `loaded`."""
    faults: list[Fault] = []
    defaults = Part(document, ("defaults",))
    for agent_id, source in sources.items():
        one, wrong = profiles.load(
            agent_id, source, root=root, kinds=kinds, defaults=defaults, anywhere=anywhere
        )
        faults += wrong
        if one is not None:
            loaded[agent_id] = one
    return faults


def _everyone(loaded: Mapping[str, Loaded], document: Document) -> Draft:
    """The team of a workspace that names none."""
    agents = [agent_id for agent_id, one in loaded.items() if one.profile.member]
    part = Part(loader.from_data(None, files.AGENTS))
    return Draft(None, agents, part, rules=files.common_rules(document))
