"""The files of a workspace: `arena.yaml`, `agents/*.yaml`, `agents/teams/*.yaml`."""

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
    """The names, in order, of a folder's files that end in `suffix`; hidden files apart."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    named = (entry for entry in entries if entry.name.endswith(suffix))
    found = (entry.name for entry in named if regularfiles.is_named(entry))
    return sorted(name for name in found if not name.startswith("."))


def workspace_document(root: Path, *, anywhere: bool = False) -> Document:
    """`arena.yaml`, or an empty document where there is none; see `document` for `anywhere`."""
    if regularfiles.is_named(root / FILE):
        return document(root, FILE, anywhere=anywhere)
    return loader.from_data({}, FILE)


def document(root: Path, shown: str, *, anywhere: bool) -> Document:
    """A file of the workspace. One that a link leads out of it is a fault, unless `anywhere`.

    Then its lines stay out of faults: they are not the workspace's to show.
    """
    fault = bounds.link_fault(root / shown, shown, root)
    if fault is not None and not anywhere:
        return Document(shown, None, (fault,))
    return loader.load(root / shown, shown, is_shown=fault is None)


def workspace_file(document: Document, kinds: Kinds, faults: list[Fault]) -> WorkspaceFile | None:
    """`arena.yaml` checked, its `defaults` and patterns too; what is wrong goes to `faults`."""
    file, wrong = loader.validate(document, WorkspaceFile)
    faults += wrong
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
    known = ["config", JUDGE, *kinds.known()]
    if key in known or key.startswith("x-"):
        return []
    return [document.fault(loc, "unknown key", nearest.hint(key, known))]


def judge_faults(
    document: Document, loaded: Collection[str], broken: Collection[str]
) -> list[Fault]:
    """What is wrong with `defaults.judge`, of the agents there are and those with a wrong file."""
    part = Part(document, ("defaults", JUDGE))
    judge = part.data
    if judge is None and not part.holds(()):
        return []
    if not isinstance(judge, str):
        return [part.fault((), "must be the id of an agent")]
    return _agent_faults(part, (), judge, loaded, broken)


def memory_faults(
    document: Document, file: WorkspaceFile, loaded: Collection[str], broken: Collection[str]
) -> list[Fault]:
    """What is wrong with the agents that `memory` names."""
    part = Part(document, ("memory",))
    named = {"summarizer": file.memory.summarizer, "extractor": file.memory.extractor}
    return [
        fault
        for key, agent in named.items()
        if agent is not None
        for fault in _agent_faults(part, (key,), agent, loaded, broken)
    ]


def _agent_faults(
    part: Part, loc: tuple[str, ...], agent: str, loaded: Collection[str], broken: Collection[str]
) -> list[Fault]:
    if ids.normal(agent) in (*loaded, *broken):
        return []
    return [part.fault(loc, f"there is no agent `{agent}`", nearest.hint(agent, loaded))]


def common_rules(document: Document) -> Sequence[Part]:
    """The rules that `arena.yaml` sets for every team."""
    return _at(Part(document), ("defaults", "config"))


def _at(part: Part, loc: tuple[str, ...]) -> Sequence[Part]:
    return [Part(part.document, (*part.loc, *loc))] if part.holds(loc) else []


def agents(
    root: Path, faults: list[Fault], unsaved: Unsaved = NOTHING, *, anywhere: bool = False
) -> dict[str, Part]:
    """The profiles' files by stem."""
    return _parts(root, AGENTS, faults, unsaved, anywhere=anywhere)


def drafts(
    root: Path,
    document: Document,
    faults: list[Fault],
    unsaved: Unsaved = NOTHING,
    *,
    anywhere: bool = False,
) -> tuple[dict[str, Draft], list[str]]:
    """The teams by name, and the names of those whose file is wrong."""
    found: dict[str, Draft] = {}
    broken: list[str] = []
    for stem, part in _parts(root, TEAMS, faults, unsaved, anywhere=anywhere).items():
        file, wrong = teams.read(stem, part)
        faults += wrong
        if file is None:
            broken.append(stem)
            continue
        rules = [*common_rules(document), *_at(part, ("config",))]
        found[stem] = Draft(
            file.team, file.members, part, ("members",), file.humans, rules, file.description
        )
    return found, broken


def _parts(
    root: Path, folder: str, faults: list[Fault], unsaved: Unsaved, *, anywhere: bool
) -> dict[str, Part]:
    """The documents of a folder by stem, in the order of the names."""
    for name in names(root / folder, ".yml"):
        mend = f"rename it to {name.removesuffix('.yml')}{SUFFIX}"
        faults.append(Fault(f"{folder}/{name}", 0, "", f"only {SUFFIX} files are read", mend))
    found: dict[str, Part] = {}
    folded: dict[str, str] = {}
    new = (path.rpartition("/") for path in unsaved)
    there = {*names(root / folder), *(name for parent, _, name in new if parent == folder)}
    for name in sorted(there):
        shown = f"{folder}/{name}"
        stem = ids.normal(name.removesuffix(SUFFIX))
        other = folded.setdefault(stem.casefold(), shown)
        if other != shown:
            what = f"has the name of {other}, upper and lower case apart"
            faults.append(Fault(shown, 0, "", what, "rename one of them"))
            continue
        found[stem] = Part(unsaved.get(shown) or document(root, shown, anywhere=anywhere))
    return found
