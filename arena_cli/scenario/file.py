"""Scenario files: found, read and checked against the workspace, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from arena_cli.ground import nearest, yamlfile
from arena_cli.ground.errors import Fault, FileFaults, UsageError
from arena_cli.ground.yamlfile import Document, Part
from arena_cli.ground.yamlnodes import Loc
from arena_cli.scenario import expect
from arena_cli.scenario.shapes import Expect, ScenarioFile, Step, TeamPart
from arena_cli.session import outgoing
from arena_cli.session.outgoing import USER, Outgoing
from arena_cli.team import mentions
from arena_cli.team import schema as schemas
from arena_cli.team.model import Team
from arena_cli.team.workspace import Workspace

FOLDER = "scenarios"
SUFFIX = ".yaml"

T = TypeVar("T")


class Scenario(NamedTuple):
    """A checked scenario, its team, and what each of its steps sends."""

    document: Document
    file: ScenarioFile
    team: Team
    messages: tuple[Outgoing, ...]

    @property
    def shown(self) -> str:
        """The file's path as the user is shown it."""
        return self.document.shown


def schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, as far as it is built."""
    return schemas.of(ScenarioFile, "arena scenario")


def select(root: Path, wanted: Sequence[str], start: Path) -> list[Path]:
    """The scenario files that are meant: all of the workspace's, or those that are named.

    Each of `wanted` is a file, a folder, or the name of a file in `scenarios/`; paths are relative
    to `start`. Raises UsageError where one is not there, or where none is left.
    """
    found: dict[Path, None] = {}
    for name in wanted:
        found.update(dict.fromkeys(_meant(root, name, start)))
    if not wanted:
        found.update(dict.fromkeys(of_workspace(root)))
    if not found:
        where = ", ".join(wanted) or str(root / FOLDER)
        raise UsageError(f"no scenario is selected: no *{SUFFIX} in {where}")
    return list(found)


def of_workspace(root: Path) -> list[Path]:
    """Every scenario file of a workspace."""
    return _inside(root / FOLDER)


def _meant(root: Path, name: str, start: Path) -> list[Path]:
    named = Path(start, name)
    candidates = [named, root / FOLDER / name, root / FOLDER / (name + SUFFIX)]
    for path in candidates:
        if path.is_dir():
            return _inside(path)
        if path.is_file():
            return [path.resolve()]
    known = [path.stem for path in of_workspace(root)]
    raise UsageError(f"there is no scenario `{name}`", nearest.hint(name, known))


def _inside(folder: Path) -> list[Path]:
    paths = (path.resolve() for path in folder.rglob(f"*{SUFFIX}") if path.is_file())
    return sorted(paths, key=lambda path: path.as_posix())


def load(paths: Sequence[Path], workspace: Workspace) -> list[Scenario]:
    """Reads and checks scenario files; raises FileFaults with every fault of all of them."""
    loaded: list[Scenario] = []
    faults: list[Fault] = []
    for path in paths:
        scenario, wrong = _load_one(_read(path, workspace.root), workspace)
        faults += wrong
        if scenario is not None:
            loaded.append(scenario)
    if faults:
        raise FileFaults(faults)
    return loaded


def shape_faults(paths: Iterable[Path], root: Path) -> list[Fault]:
    """What is wrong with the files by themselves, where the workspace cannot be loaded."""
    faults: list[Fault] = []
    for path in paths:
        faults += yamlfile.validate(_read(path, root), ScenarioFile)[1]
    return faults


def _read(path: Path, root: Path) -> Document:
    inside = path.is_relative_to(root)
    return yamlfile.load(path, (path.relative_to(root) if inside else path).as_posix())


def _load_one(document: Document, workspace: Workspace) -> tuple[Scenario | None, list[Fault]]:
    file, faults = yamlfile.validate(document, ScenarioFile)
    team, wrong = _team(document, workspace)
    faults += wrong
    if file is None or team is None:
        return None, faults
    messages = []
    for index, step in enumerate(file.steps):
        message, wrong = _message(document, index, step, team)
        faults += wrong
        if message is not None:
            messages.append(message)
        faults += _unknown_ids(document, ("steps", index, "expect"), step.expect, team)
    faults += _unknown_ids(document, ("expect",), file.expect, team)
    if faults:
        return None, faults
    return Scenario(document, file, team, tuple(messages)), []


def _team(document: Document, workspace: Workspace) -> tuple[Team | None, list[Fault]]:
    """The team that plays; None, without a fault, where the shape's faults tell why."""
    data = document.data if isinstance(document.data, dict) else {}
    keys = {key: data[key] for key in TeamPart.model_fields if key in data}
    part, _ = yamlfile.validate_merged(keys, TeamPart, [Part(document)])
    if part is None or not data:
        return None, []
    if part.team is not None and part.agents is not None:
        mend = "take one of them out"
        return None, [document.fault(("agents",), "`team` and `agents` are both given", mend)]
    rules = [Part(document, ("config",))] if part.config else []
    faults: list[Fault] = []
    changed = _changed(part.profiles, document, workspace, faults)
    agents, name = part.agents, part.team or workspace.file.team
    if agents is not None:
        place = Part(document, ("agents",))
        team = _tried(
            lambda: changed.team_of(agents, place, overrides=rules), document, ("agents",), faults
        )
    else:
        team = _tried(lambda: changed.team(name, overrides=rules), document, ("team",), faults)
    return team, faults


def _changed(
    raw: Mapping[str, Any], document: Document, workspace: Workspace, faults: list[Fault]
) -> Workspace:
    """The workspace with the scenario's profiles; as it is where they are wrong."""
    if not raw:
        return workspace
    loc = ("profiles",)
    changed = _tried(
        lambda: workspace.with_profiles(raw, document=document, loc=loc), document, loc, faults
    )
    return changed or workspace


def _tried(make: Callable[[], T], document: Document, loc: Loc, faults: list[Fault]) -> T | None:
    """What `make` gives, or None and what was wrong, told at `loc` where it tells no place."""
    try:
        return make()
    except FileFaults as error:
        faults += error.faults
    except UsageError as error:
        faults.append(document.fault(loc, error.what, error.mend))
    return None


def _message(
    document: Document, index: int, step: Step, team: Team
) -> tuple[Outgoing | None, list[Fault]]:
    loc = ("steps", index)
    if not step.send.strip():
        return None, [document.fault((*loc, "send"), "is missing, or says nothing")]
    faults: list[Fault] = []
    message = _tried(
        lambda: outgoing.outgoing(team, step.send, author=step.author),
        document,
        (*loc, "from"),
        faults,
    )
    return message, faults


def _unknown_ids(document: Document, loc: Loc, expected: Expect, team: Team) -> Iterator[Fault]:
    """A name in an expectation that nobody has would hold, or fail, for the wrong reason."""
    members = [member.id for member in team.members]
    roster = mentions.roster_of(team)
    for place, agent in expect.named_agents(expected):
        if agent not in members:
            what = f"nobody in this team has the id `{agent}`"
            meant = mentions.resolve([agent], roster, author="", opener="").ids
            by_name = f"write the id: `{meant[0]}`" if len(meant) == 1 else ""
            mend = by_name or nearest.hint(agent, members)
            yield document.fault((*loc, *place), what, mend)
    humans = [USER.id, *(human.id for human in team.humans)]
    for index, human in enumerate(expected.awaits):
        if human not in humans:
            what = f"this team has no human with the id `{human}`"
            mend = nearest.hint(human, humans)
            yield document.fault((*loc, "awaits", index), what, mend)
