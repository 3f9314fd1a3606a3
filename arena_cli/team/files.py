"""Read the files of a workspace: `arena.yaml`, `agents/*.yaml`, `agents/teams/*.yaml`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from arena_cli.ground import bounds, nearest, regularfiles
from arena_cli.ground.errors import Fault
from arena_cli.team import ids, teams
from arena_cli.team.model import TeamConfig, WorkspaceFile
from arena_cli.team.profiles import Kinds
from arena_cli.team.teams import Draft
from arena_cli.yamlio import loader
from arena_cli.yamlio.document import Document, Part

FILE = "arena.yaml"
AGENTS = "agents"
TEAMS = "agents/teams"
JUDGE = "judge"
SUFFIX = ".yaml"
WORK = "work"
"""The folder in which program agents have folders of their own; git ignores it."""

Unsaved = Mapping[str, Document]
"""Files as they are to be, by path (`agents/dev.yaml`): read instead of those on disk."""

NOTHING: Unsaved = {}


def names(folder: Path, suffix: str = SUFFIX) -> list[str]:
    """Return the sorted names of a folder's files that end in `suffix`; hidden files apart."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    matching = (entry for entry in entries if entry.name.endswith(suffix))
    regular = (entry.name for entry in matching if regularfiles.is_named(entry))
    return sorted(name for name in regular if not name.startswith("."))


def workspace_document(root: Path, *, anywhere: bool = False) -> Document:
    """Return `arena.yaml`, an empty document if there is none; see `document` for `anywhere`."""
    if regularfiles.is_named(root / FILE):
        return document(root, FILE, anywhere=anywhere)
    return loader.from_data({}, FILE)


def document(root: Path, name: str, *, anywhere: bool) -> Document:
    """Read a file of the workspace. If a link leads out of it, that is a fault, unless `anywhere`.

    Then no fault quotes its lines: they are not the workspace's to show.
    """
    fault = bounds.link_fault(root / name, name, root)
    if fault is not None and not anywhere:
        return Document(name, None, (fault,))
    return loader.load(root / name, name, is_shown=fault is None)


def workspace_file(document: Document, kinds: Kinds, faults: list[Fault]) -> WorkspaceFile | None:
    """Return `arena.yaml` checked, with `defaults` and patterns; add what is wrong to `faults`."""
    file, file_faults = loader.validate(document, WorkspaceFile)
    faults += file_faults
    patterns = Part(document, ("redact",)).data
    for index, pattern in enumerate(patterns if isinstance(patterns, list) else ()):
        faults += _pattern_faults(pattern, document, ("redact", index))
    defaults = Part(document, ("defaults",)).data
    for key in defaults if isinstance(defaults, dict) else ():
        faults += _default_faults(key, document, kinds)
    return file


def _pattern_faults(pattern: object, document: Document, loc: tuple[str | int, ...]) -> list[Fault]:
    try:
        re.compile(str(pattern))
    except re.error as error:
        return [document.fault(loc, f"is no regular expression: {error}")]
    return []


def _default_faults(key: str, document: Document, kinds: Kinds) -> list[Fault]:
    loc = ("defaults", key)
    if key == "config":
        return loader.validate_part(Part(document, loc), TeamConfig)[1]
    known_keys = ["config", JUDGE, *kinds.list_kinds()]
    if key in known_keys or key.startswith("x-"):
        return []
    return [document.fault(loc, "unknown key", nearest.hint(key, known_keys))]


def judge_faults(
    document: Document, loaded: Collection[str], broken: Collection[str]
) -> list[Fault]:
    """Return the faults of `defaults.judge`, which may name any agent, `broken` ones too."""
    fragment = Part(document, ("defaults", JUDGE))
    judge = fragment.data
    if judge is None and not fragment.holds(()):
        return []
    if not isinstance(judge, str):
        return [fragment.fault((), "must be the id of an agent")]
    return _agent_faults(fragment, (), judge, loaded, broken)


def memory_faults(
    document: Document, file: WorkspaceFile, loaded: Collection[str], broken: Collection[str]
) -> list[Fault]:
    """Return the faults of the agents that `memory` names."""
    fragment = Part(document, ("memory",))
    agents = {"summarizer": file.memory.summarizer, "extractor": file.memory.extractor}
    return [
        fault
        for key, agent in agents.items()
        if agent is not None
        for fault in _agent_faults(fragment, (key,), agent, loaded, broken)
    ]


def _agent_faults(
    fragment: Part,
    loc: tuple[str, ...],
    agent: str,
    loaded: Collection[str],
    broken: Collection[str],
) -> list[Fault]:
    if ids.normal(agent) in (*loaded, *broken):
        return []
    return [fragment.fault(loc, f"there is no agent `{agent}`", nearest.hint(agent, loaded))]


def common_rules(document: Document) -> Sequence[Part]:
    """Return the rules that `arena.yaml` sets for every team."""
    return _at(Part(document), ("defaults", "config"))


def _at(fragment: Part, loc: tuple[str, ...]) -> Sequence[Part]:
    return [Part(fragment.document, (*fragment.loc, *loc))] if fragment.holds(loc) else []


def agents(
    root: Path, faults: list[Fault], unsaved: Unsaved = NOTHING, *, anywhere: bool = False
) -> dict[str, Part]:
    """Return the profiles' files by stem."""
    return _parts(root, AGENTS, faults, unsaved, anywhere=anywhere)


def drafts(
    root: Path,
    document: Document,
    faults: list[Fault],
    unsaved: Unsaved = NOTHING,
    *,
    anywhere: bool = False,
) -> tuple[dict[str, Draft], list[str]]:
    """Return the teams by name, and the names of those whose file is wrong."""
    by_name: dict[str, Draft] = {}
    broken: list[str] = []
    for stem, fragment in _parts(root, TEAMS, faults, unsaved, anywhere=anywhere).items():
        file, file_faults = teams.read(stem, fragment)
        faults += file_faults
        if file is None:
            broken.append(stem)
            continue
        rules = [*common_rules(document), *_at(fragment, ("config",))]
        by_name[stem] = Draft(
            file.team, file.members, fragment, ("members",), file.humans, rules, file.description
        )
    return by_name, broken


def _parts(
    root: Path, folder: str, faults: list[Fault], unsaved: Unsaved, *, anywhere: bool
) -> dict[str, Part]:
    """Return the documents of a folder by stem, in the order of the names."""
    for name in names(root / folder, ".yml"):
        hint = f"rename it to {name.removesuffix('.yml')}{SUFFIX}"
        faults.append(Fault(f"{folder}/{name}", 0, "", f"only {SUFFIX} files are read", hint))
    by_stem: dict[str, Part] = {}
    folded: dict[str, str] = {}
    new = (path.rpartition("/") for path in unsaved)
    present = {*names(root / folder), *(name for parent, _, name in new if parent == folder)}
    for name in sorted(present):
        shown_path = f"{folder}/{name}"
        stem = ids.normal(name.removesuffix(SUFFIX))
        first = folded.setdefault(stem.casefold(), shown_path)
        if first != shown_path:
            problem = f"has the name of {first}, upper and lower case apart"
            faults.append(Fault(shown_path, 0, "", problem, "rename one of them"))
            continue
        by_stem[stem] = Part(
            unsaved.get(shown_path) or document(root, shown_path, anywhere=anywhere)
        )
    return by_stem
