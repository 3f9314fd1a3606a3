"""Load scenario files and check them against the workspace, before anything runs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.errors import Fault, FileFaults
from arena_cli.scenarios import lint, select, variables
from arena_cli.scenarios.expect import snapshots
from arena_cli.scenarios.expect.context import Folders
from arena_cli.scenarios.given import Pasts
from arena_cli.scenarios.model import (
    Case,
    Frame,
    Scenario,
    ScenarioFile,
    Sent,
    Step,
    TeamPart,
    sent_of,
    try_making,
)
from arena_cli.scenarios.participants import choose_judges, choose_team
from arena_cli.scenarios.select import Selected
from arena_cli.scenarios.tools import list_profiles
from arena_cli.scenarios.variables import FilledFiles, Reader
from arena_cli.session import outgoing
from arena_cli.workspace.models import Team
from arena_cli.workspace.schema import build_schema
from arena_cli.workspace.workspace import Workspace
from arena_cli.yamlio import loader, nodes
from arena_cli.yamlio.loader import Document, Fragment, find_holder

_VAR = {"type": "string", "pattern": r"^\$\{vars\.[^{}]*\}$"}
_JUDGED = frozenset({"expect", "check"})


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, as far as it is built."""
    return build_schema(ScenarioFile, "arena scenario", instead=_VAR)


class Broken(NamedTuple):
    """A scenario file with errors, none of whose scenarios can be played.

    `title`, `tags` and the ids of its `cases` are those that could be read; `tags` is None if they
    could not.
    """

    path: Path
    shown: str
    title: str
    tags: tuple[str, ...] | None
    faults: tuple[Fault, ...]
    cases: tuple[str, ...] = ()

    @property
    def titles(self) -> list[str]:
        """The titles that its scenarios would have."""
        return [f"{self.title} [{case}]" for case in self.cases] or [self.title]


class Sorted(NamedTuple):
    """The scenarios of the valid files, and the invalid files, each in order."""

    scenarios: list[Scenario]
    broken: list[Broken]


_Faults = dict[Path, dict[Fault, None]]


def load(selected: Selected, workspace: Workspace) -> list[Scenario]:
    """Read and check scenario files; raise FileFaults with every error in all of them.

    A file that another one includes, and that has no steps, is played only as a part of that one.
    """
    scenarios, broken = sort(selected, workspace)
    if broken:
        raise FileFaults([fault for broken_file in broken for fault in broken_file.faults])
    return scenarios


def sort(selected: Selected, workspace: Workspace) -> Sorted:
    """Read and check scenario files, and separate those that have errors."""
    reader = Reader(workspace.root, chosen=selected.chosen, anywhere=workspace.anywhere)
    chains, faults = _read(selected, reader)
    for path, fault in _same_stems(chains):
        faults[path][fault] = None
    loaded: list[Scenario] = []
    teams: _Teams = {}
    for path, documents in chains.items():
        scenarios, wrong = _Loader(path, documents, workspace, reader, teams).scenarios()
        faults[path].update(dict.fromkeys(wrong))
        loaded += scenarios if not faults[path] else ()
    broken = [
        _broken(path, tuple(scenarios), reader) for path, scenarios in faults.items() if scenarios
    ]
    return Sorted(loaded, broken)


def shape_faults(selected: Selected, root: Path, *, anywhere: bool = False) -> list[Fault]:
    """Return the errors of the files by themselves, if the workspace cannot be loaded."""
    chains, by_path = _read(selected, Reader(root, chosen=selected.chosen, anywhere=anywhere))
    faults = dict.fromkeys(fault for file_faults in by_path.values() for fault in file_faults)
    for documents in chains.values():
        cases, wrong = _cases(documents)
        faults.update(dict.fromkeys(wrong))
        for index, case in enumerate(cases):
            filled = _fill(documents, case, index)
            faults.update(dict.fromkeys([*filled.faults, *_check(filled)[1]]))
    return list(faults)


def _broken(path: Path, faults: tuple[Fault, ...], reader: Reader) -> Broken:
    data = variables.merged(reader.chain(path)[0])
    keys = data if isinstance(data, dict) else {}
    title, tags, cases = keys.get("scenario"), keys.get("tags", []), keys.get("cases")
    has_tags = isinstance(data, dict) and isinstance(tags, list)
    listed = cases if isinstance(cases, list) else []
    return Broken(
        path,
        reader.shown(path),
        title if isinstance(title, str) else path.stem,
        tuple(map(str, tags)) if has_tags else None,
        faults,
        tuple(str(case.get("id")) for case in listed if isinstance(case, dict)),
    )


def _read(selected: Selected, reader: Reader) -> tuple[dict[Path, list[Document]], _Faults]:
    """Return each file that is played with all that it includes, and the read errors by file."""
    faults: _Faults = {path: {} for path in selected.paths}
    chains: dict[Path, list[Document]] = {}
    for path in selected.paths:
        chains[path], wrong = reader.chain(path)
        faults[path].update(dict.fromkeys(wrong))
        for document in chains[path]:
            faults[path].update(dict.fromkeys(document.faults))
    for path in [path for path in chains if path not in selected.named]:
        document = reader.document(path)
        if not variables.is_part(document):
            continue
        if not _is_included(path, reader):
            problem = "has neither `scenario` nor `steps`, and no file includes it"
            faults[path][document.fault((), problem, "give it both, or `include` it")] = None
        del chains[path]
    return chains, faults


def _is_included(path: Path, reader: Reader) -> bool:
    """Return True if a file that was read, or another one of the workspace, includes it."""
    if path not in reader.included:
        for including in select.of_workspace(reader.root):
            reader.chain(including)
    return path in reader.included


def _same_stems(chains: Mapping[Path, list[Document]]) -> Iterator[tuple[Path, Fault]]:
    """Yield an error for each file whose stem is not unique on every file system.

    The stem is the name of a scenario and of its recording.
    """
    by_stem: dict[str, str] = {}
    for path, (document, *_) in chains.items():
        stem = unicodedata.normalize("NFC", path.stem).casefold()
        if stem in by_stem:
            problem = f"`{path.stem}` is also the name of {by_stem[stem]}"
            mend = "a scenario's recording is named after its file: rename one of them"
            yield path, Fault(document.name, 1, "", problem, mend)
        by_stem.setdefault(stem, document.name)


def _cases(documents: Sequence[Document]) -> tuple[list[Case | None], list[Fault]]:
    """Return the cases of a file, None alone if it has none; no cases if they are invalid."""
    if any(document.data is None and document.faults for document in documents):
        return [], []  # those faults are told already
    merged = variables.merged(documents)
    if not isinstance(merged, dict):
        return [None], []
    keys = {key: merged[key] for key in Frame.model_fields if key in merged}
    if not keys:
        return [None], []
    fragments = [Fragment(document) for document in documents]
    frame, faults = loader.validate_merged(keys, Frame, fragments)
    if frame is None:
        return [], faults
    seen: set[str] = set()
    for index, case in enumerate(frame.cases):
        if case.id in seen:
            holder = find_holder(fragments, ("cases", index))
            faults.append(holder.fault(("cases", index, "id"), f"`{case.id}` appears twice"))
        seen.add(case.id)
    return list(frame.cases) or [None], faults


def _check(filled: FilledFiles) -> tuple[ScenarioFile | None, list[Fault]]:
    """Validate files as a scenario; errors that an unknown var causes are left out."""

    def is_unknown(value: Any) -> bool:
        return isinstance(value, str) and value in filled.unknown

    def check() -> tuple[ScenarioFile | None, list[Fault]]:
        return loader.validate_merged(
            filled.data, ScenarioFile, filled.parts, is_pending=is_unknown
        )

    file, faults = check()
    if file is None and (typed := filled.typed):
        wrong = {fault.field for fault in faults}
        texts = {loc: text for loc, text in typed.items() if nodes.format_loc(loc) in wrong}
        filled.data = variables.as_texts(filled.data, texts)
        file, faults = check()
    return file, faults


def _fill(documents: Sequence[Document], case: Case | None, index: int) -> FilledFiles:
    return FilledFiles(documents, case.vars if case else {}, index)


_Teams = dict[str, tuple[Team | None, Workspace, list[Fault]]]
"""Teams, by their keys in scenarios, with the workspace of their profiles, and the errors."""


class _Loader:
    """Makes the scenarios of one file. Parts that its cases share are checked once.

    `common` are the teams that are the same in every file.
    """

    def __init__(
        self,
        path: Path,
        documents: Sequence[Document],
        workspace: Workspace,
        reader: Reader,
        common: _Teams,
    ) -> None:
        self._path = path
        self._documents = documents
        self._workspace = workspace
        self._reader = reader
        self._teams: _Teams = {}
        self._common = common
        self._pasts = Pasts(path, reader)
        self._warned: dict[lint.Wrong, Fault] = {}
        self._recorded = (path.parent / snapshots.FOLDER / f"{path.stem}.jsonl").is_file()

    def scenarios(self) -> tuple[list[Scenario], list[Fault]]:
        """Return its scenarios and their errors."""
        cases, faults = _cases(self._documents)
        scenarios: list[Scenario] = []
        cases_by_fault: dict[Fault, list[str]] = {}
        ids = tuple(case_or_none.id if case_or_none else None for case_or_none in cases)
        for index, case in enumerate(cases):
            scenario, wrong = self._one(case, index, ids)
            for fault in wrong:
                cases_by_fault.setdefault(fault, []).append(case.id if case else "")
            if scenario is not None:
                scenarios.append(scenario)
        faults += [_in_cases(fault, names, len(cases)) for fault, names in cases_by_fault.items()]
        return scenarios, faults

    def _one(
        self, case: Case | None, index: int, cases: tuple[str | None, ...]
    ) -> tuple[Scenario | None, list[Fault]]:
        filled = _fill(self._documents, case, index)
        file, wrong = _check(filled)
        fragments, data, faults = filled.parts, filled.data, [*filled.faults, *wrong]
        team, workspace, wrong = self._team(data, fragments)
        faults += wrong
        if file is None or team is None:
            return None, faults
        past = self._pasts.of(file.given, team, fragments, faults)
        noted = self._pasts.load_notes(file.given.notes, fragments, faults)
        waits = any(fragment.document.has_placeholders for fragment in fragments)
        waiting = list(variables.saved_names(data)) if waits else []
        later = {loc[1] for loc, _ in waiting if loc[0] == "steps" and loc[2] not in _JUDGED}
        sent = [
            None if index in later else self._sent(fragments, index, step, team, faults)
            for index, step in enumerate(file.steps)
        ]
        judging, unfit = choose_judges(file, team, workspace)
        flows = self._flows(file, workspace, team, fragments, faults)
        folders = Folders(self._workspace.root, self._path, self._workspace.anywhere)
        profiles = list_profiles((member.profile for member in team.agents), workspace.loaded)
        unfit = [
            *lint.unknown(file, team, waiting, profiles),
            *unfit,
            *lint.report_problem(file, folders),
        ]
        faults += _faults([*unfit, *lint.errors(file)], fragments)
        if faults:
            return None, faults
        scenario = Scenario(
            file=file,
            case=case,
            cases=cases,
            parts=tuple(fragments),
            data=data,
            path=self._path,
            root=self._workspace.root,
            team=team,
            workspace=workspace,
            profiles=workspace.loaded,
            judges=judging,
            notes=noted,
            past=tuple(past),
            sent=tuple(sent),
            waiting=frozenset(loc for loc, _ in waiting),
            anywhere=self._workspace.anywhere,
            flows=flows,
            warnings=tuple(
                self._warnings(lint.warnings(file, folders, recorded=self._recorded), fragments)
            ),
        )
        return scenario, []

    def _team(
        self, data: Any, fragments: Sequence[Fragment]
    ) -> tuple[Team | None, Workspace, list[Fault]]:
        """Return the team that plays, made once for all cases that have the same one.

        Members of the workspace alone, without any settings, are the same team in every file.
        """
        data = data if isinstance(data, dict) else {}
        keys = {key: data[key] for key in TeamPart.model_fields if key in data}
        same = repr(keys)
        if same not in self._teams:
            made = self._common.get(same) or choose_team(keys, fragments, self._workspace)
            self._teams[same] = made
            if keys.keys() == {"agents"} and not made[2]:
                self._common[same] = made
        return self._teams[same]

    def _flows(
        self,
        file: ScenarioFile,
        workspace: Workspace,
        team: Team,
        fragments: Sequence[Fragment],
        faults: list[Fault],
    ) -> dict[int, Any]:
        """Return the flows of the steps that run one, by their index."""
        flows = {}
        for index, step in enumerate(file.steps):
            played = step.played_flow
            if played is not None:
                load = import_module("arena_cli.flows.loader").load_for_step
                make = partial(
                    load, self._workspace.root / played.file, played.inputs, workspace, team
                )
                flows[index] = try_making(make, fragments, ("steps", index, "flow"), faults)
        return flows

    def _warnings(
        self, wrong: Iterable[lint.Wrong], fragments: Sequence[Fragment]
    ) -> Iterator[Fault]:
        """Yield the warnings; equal ones of many cases are located once."""
        for entry in wrong:
            if entry not in self._warned:
                (self._warned[entry],) = _faults([entry], fragments)
            yield self._warned[entry]

    def _sent(
        self, fragments: Sequence[Fragment], index: int, step: Step, team: Team, faults: list[Fault]
    ) -> Sent:
        loc = ("steps", index)
        if step.say is not None and team.member(step.say.agent) is None:
            return None  # `named` tells
        author = step.author
        if author is not None:
            from_loc = (*loc, "from")
            human = try_making(
                lambda: outgoing.find_human(team, author), fragments, from_loc, faults
            )
            if human is None:
                return None
        from_loc = (*loc, step.kind)
        return try_making(
            lambda: sent_of(step, team, self._path, self._reader), fragments, from_loc, faults
        )


def _faults(wrong: Iterable[lint.Wrong], fragments: Sequence[Fragment]) -> list[Fault]:
    return [find_holder(fragments, loc).fault(loc, problem, mend) for loc, problem, mend in wrong]


def _in_cases(fault: Fault, cases: Sequence[str], of: int) -> Fault:
    """Return the error, with the names of its cases if not all cases have it."""
    if of == 1 or len(cases) == of:
        return fault
    names = select.shorten_list([f"`{case}`" for case in cases])
    return replace(fault, what=f"{fault.what} (in case {names})")
