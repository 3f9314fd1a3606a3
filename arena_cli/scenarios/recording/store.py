"""Keep the recordings of a run: read them, choose the mode of each scenario, write them."""

from __future__ import annotations

import contextlib
import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from arena_cli.errors import DiskRefused, Fault, FileFaults
from arena_cli.scenarios import select
from arena_cli.scenarios.expect import snapshots
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.recording import file as file_module
from arena_cli.scenarios.recording import steps
from arena_cli.scenarios.recording.model import CaseRecord, Hashes, LiveCallGuard, Recording
from arena_cli.scenarios.recording.recorder import FAILURE, Ignoring, Tape, TapedCall
from arena_cli.scenarios.result import Drift, Mode
from arena_cli.scenarios.select import FIXTURES, Selected
from arena_cli.scenarios.variables import Reader
from arena_cli.util.user_pattern import PatternTimeout, UserPattern
from arena_cli.workspace.agents import list_adapters

Wanted = Literal["live", "replay", "record", "missing", "update"]
"""What is asked for a run: agents called, recordings replayed, all made anew, only what is missing
in them made, what drifted taken over.
"""

WhatOfDrift = Literal["fail", "warn", "ignore"]

SCRIPTED = "scripted"


@dataclass
class _Volume:
    """A recording file of a run.

    It holds its valid cases (None if there are none) and bytes when read, the cases recorded since,
    and the number of its scenarios that are still to be played.
    """

    path: Path
    shown: str
    content: bytes | None = None
    before: Recording | None = None
    changed: dict[str | None, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    left: int = 0


class RecordingStore:
    """The recordings that a run of these scenarios needs, read before it begins.

    `hashes` are those of agents' files, by profile (`settings.Surroundings`). `drift` is its
    effect: `fail`, `warn` or `ignore`. If `mode` is None, a scenario is replayed if `in_ci` and it
    has a recording, else it is played live. Errors of scenarios that cannot be played are kept by
    the path of their file; they are raised unless `lenient`.
    """

    def __init__(
        self,
        scenarios: Iterable[Scenario],
        mode: Wanted | None,
        *,
        in_ci: bool = False,
        drift: WhatOfDrift = "fail",
        sync: bool = False,
        lenient: bool = False,
    ) -> None:
        """Read the recordings; with `sync`, each write is flushed to the disk.

        Raises FileFaults with every error in all of them, and UsageError. If `lenient`, the errors
        are kept instead, by their scenarios' files.
        """
        self._sync = sync
        self.faults: dict[Path, list[Fault]] = {}
        self.drift = drift
        self._wanted = mode
        self._in_ci = in_ci
        self._volumes: dict[Path, _Volume] = {}
        self._told: set[Path] = set()
        self.hashes: dict[int, Hashes] = {}
        scenarios = list(scenarios)
        for path, file_scenarios in _by_file(scenarios).items():
            self._open(path, file_scenarios)
        if mode == "replay" and not self.faults:
            for path, fault in self._unrecorded(scenarios):
                self.faults.setdefault(path, []).append(fault)
        if self.faults and not lenient:
            raise FileFaults([fault for faults in self.faults.values() for fault in faults])
        if mode in ("record", "missing"):
            for volume in self._volumes.values():
                file_module.check_writable(volume.path, volume.shown)

    def _open(self, path: Path, scenarios: Sequence[Scenario]) -> None:
        recording = file_module.path_of(path)
        volume = _Volume(
            recording,
            Reader(scenarios[0].root).shown(recording),
            file_module.content_of(recording),
            left=sum(scenario.skip is None for scenario in scenarios),
        )
        self._volumes[path] = volume
        try:
            volume.before = self._read(scenarios, recording, volume.shown)
        except FileFaults as error:
            self.faults[path] = list(error.faults)
        except PatternTimeout as error:  # where its title does not tell whose recording it is
            self.faults[path] = [Fault(volume.shown, 1, "", error.what, error.mend)]

    def _read(self, scenarios: Sequence[Scenario], path: Path, label: str) -> Recording | None:
        """Return the recording of these scenarios, all that were selected of its file."""
        if self._wanted == "live" or (self._wanted is None and not self._in_ci):
            return None
        if not file_module.is_there(path):
            return None
        first = scenarios[0]
        try:
            recording = file_module.read(path, label, strict=self._wanted != "update")
        except FileFaults:
            if self._wanted == "record" and len(scenarios) == len(first.cases):
                return None  # it is written anew as a whole
            raise
        title = first.file.scenario
        if (
            recording.scenario != title
            and self._wanted not in ("record", "update")
            and not steps.has_common_step(recording, scenarios)
        ):
            problem = (
                f"is the recording of `{recording.scenario}`, not of `{title}` ({first.shown})"
            )
            name = select.run_name(first.shown)
            mend = f"no step sends the recorded message; record it: `arena run --record {name}`"
            raise FileFaults([Fault(label, 1, "", problem, mend)])
        return recording

    def _unrecorded(self, scenarios: Iterable[Scenario]) -> Iterable[tuple[Path, Fault]]:
        """Yield an error for each scenario without a recording; a scripted one needs none."""
        for scenario in scenarios:
            volume = self._volume(scenario)
            if volume.before is None and scenario.skip is None and not _is_scripted(scenario):
                mend = f"record it: `arena run --record {select.run_name(scenario.shown)}`"
                _, line = scenario.place(("scenario",))
                problem = f"has no recording: {volume.shown}"
                yield scenario.path, Fault(scenario.shown, line, "", problem, mend)

    @property
    def updates(self) -> bool:
        """True if snapshots are replaced: if changes are accepted, or all is recorded."""
        return self._wanted in ("update", "record")

    def mode_of(self, scenario: Scenario) -> Mode:
        """Return the mode in which a scenario is played."""
        recording = self._volume(scenario).before
        is_new = recording is None or _case(scenario) not in recording.cases
        if self._wanted == "record" or (self._wanted == "missing" and is_new):
            return "record"
        if recording is None:
            return "live"
        return "update" if self._wanted == "update" else "replay"

    def before(self, scenario: Scenario) -> CaseRecord | None:
        """Return the recorded case of a scenario, if it is valid."""
        recording = self._volume(scenario).before
        return recording.cases.get(_case(scenario)) if recording else None

    def calls_agents(self, scenario: Scenario) -> bool:
        """Return whether live agents may be called while it is played."""
        return self._wanted == "missing" or self.mode_of(scenario) in ("live", "record")

    def leaves_alone(self, scenario: Scenario) -> bool:
        """Return whether neither drift nor a new recording reports recorded cases that are gone."""
        if self._wanted in ("record", "missing", "update"):
            return False
        return self._volume(scenario).before is None or self.drift == "ignore"

    def guard_of(self, scenario: Scenario) -> LiveCallGuard | None:
        """Return the guard that refuses calls of live agents; None if they may be called."""
        if not self._in_ci or self._wanted is not None or self._volume(scenario).before is not None:
            return None
        name = select.run_name(scenario.shown)
        allowed = f"allow live calls: `arena run --live {name}`"
        return LiveCallGuard(f"record it: `arena run --record {name}`; or {allowed}")

    def path_of(self, scenario: Scenario) -> str:
        """Return the path of its recording as shown to the user."""
        return self._volume(scenario).shown

    def tape_of(self, scenario: Scenario) -> Tape | None:
        """Return the recorder of its agents' calls; None if they are called without recording."""
        mode = self.mode_of(scenario)
        if mode == "live":
            return None
        recorded = None
        recording = self._volume(scenario).before
        if mode != "record" and recording is not None:
            recorded = recording.cases.get(_case(scenario)) or CaseRecord(_case(scenario))
            ignoring = Ignoring(_ignored(scenario))
            with contextlib.suppress(PatternTimeout):  # playing it meets the pattern too
                recorded = steps.renumber(recorded, scenario, ignoring)
        return Tape(
            recorded,
            live=mode == "record" or self._wanted == "missing",
            ignore=_ignored(scenario),
            mend=(
                f"record it: `arena run --record {select.run_name(scenario.shown)}`"
                if self.drift == "ignore"
                else "the reported drift shows how to record it"
            ),
            scripted=scenario.file.tools,
        )

    def drift_of_cases(self, scenario: Scenario) -> list[Drift]:
        """Return drift for a case not recorded, and, once, for recorded cases that are gone."""
        path = scenario.path
        recording = self._volume(scenario).before
        if recording is None or self._wanted == "record":
            return []
        case = _case(scenario)
        drifts = []
        if case not in recording.cases and self._wanted != "missing":
            drifts.append(Drift(kind="miss", field="case", after=case or "without cases"))
        if path in self._told:
            return drifts
        self._told.add(path)
        case_names = scenario.cases
        return drifts + [
            Drift(
                kind="left_over",
                field="case",
                before=case or "without cases",
                calls=len(case_record.calls),
            )
            for case, case_record in recording.cases.items()
            if case not in case_names
        ]

    def played(self, scenario: Scenario, lines: Sequence[Mapping[str, Any]] | None) -> bool:
        """Finish a scenario; `lines` are its new case, None if its recording is kept.

        Return True if its file is written again, now or once all its cases are over. Raises
        DiskRefused.
        """
        volume = self._volume(scenario)
        volume.left -= 1
        anew = False
        if lines is not None:
            case = _case(scenario)
            recorded = volume.before.cases.get(case) if volume.before else None
            is_edited = volume.before is not None and volume.before.is_edited
            anew = recorded is None or is_edited or file_module.lines_of(recorded) != list(lines)
            volume.changed[case] = lines
        if volume.left <= 0:
            self._write(scenario)
        return anew

    def close(self, scenarios: Iterable[Scenario]) -> None:
        """Write the new cases, also of files whose cases are not all over.

        Raises DiskRefused.
        """
        for scenario in scenarios:
            self._write(scenario)

    def _write(self, scenario: Scenario) -> None:
        """Write the new cases together with the cases that the file has by now."""
        volume = self._volume(scenario)
        if not volume.changed:
            return
        try:
            with file_module.lock(scenario.root):
                self._merge(scenario, volume)
        except OSError as error:
            problem = f"{volume.shown}: could not write: {error.strerror or error}"
            raise DiskRefused(problem) from error
        finally:
            volume.changed.clear()  # what is refused once is told once

    def _merge(self, scenario: Scenario, volume: _Volume) -> None:
        recorded = volume.before.cases if volume.before else {}
        if (
            file_module.content_of(volume.path) != volume.content
        ):  # another arena wrote it meanwhile
            try:
                recorded = file_module.read(volume.path, volume.shown).cases
            except FileFaults as error:
                raise DiskRefused(f"it was changed meanwhile: {error}") from error
        kept_lines = {case: file_module.lines_of(entry) for case, entry in recorded.items()}
        all_lines: dict[str | None, Sequence[Mapping[str, Any]]] = {**kept_lines, **volume.changed}
        # What the file has no case for any more goes when that is taken over.
        gone = [
            entry for entry in recorded if self._wanted == "missing" and entry not in scenario.cases
        ]
        lines = [all_lines[case] for case in (*scenario.cases, *gone) if case in all_lines]
        file_module.write(
            volume.path,
            file_module.encode_recording(scenario.file.scenario, lines),
            sync=self._sync,
        )

    def _volume(self, scenario: Scenario) -> _Volume:
        return self._volumes[scenario.path]


def _by_file(scenarios: Iterable[Scenario]) -> dict[Path, list[Scenario]]:
    by_path: dict[Path, list[Scenario]] = {}
    for scenario in scenarios:
        by_path.setdefault(scenario.path, []).append(scenario)
    return by_path


def _ignored(scenario: Scenario) -> list[UserPattern]:
    """Return the patterns of `ignore`, each with its file and line."""
    patterns = []
    for index, entry in enumerate(scenario.file.ignore):
        file, line = scenario.place(("ignore", index, "regex"))
        patterns.append(UserPattern(entry.regex, where=f"{file}:{line}: ignore"))
    return patterns


def _case(scenario: Scenario) -> str | None:
    return scenario.case.id if scenario.case else None


def _is_scripted(scenario: Scenario) -> bool:
    everyone = [*scenario.team.agents, *scenario.judges.values()]
    return all(
        adapter.get("type") == SCRIPTED
        for member in everyone
        for adapter in list_adapters(member.profile.adapter)
    )


def of_calls(calls: Iterable[TapedCall], *, but_replies: bool = False) -> set[str]:
    """Return the agents that failed; of several attempts the last one counts.

    With `but_replies`, return only those that failed in a call for the team's memory.
    """
    last: dict[object, TapedCall] = {}
    for call in calls:
        if call.reply is not None:
            last[call.session, call.reply] = call
        elif not call.is_judge:  # a judge that failed is a check that gave no verdict
            last[call.session, call.key, call.input_hash] = call
    return {
        call.key.agent
        for call in last.values()
        if FAILURE in call.came and (call.reply is None or not but_replies)
    }


def of_case(case: CaseRecord) -> set[str]:
    """Return the agents that failed when a case was recorded."""
    # An attempt that another one followed has its number.
    return {line["agent"] for line in case.lines if FAILURE in line and "attempt" not in line}


_SUFFIXES = (file_module.SUFFIX, snapshots.SUFFIX)
_CASE = b'{"type":"case"'


def orphan_files(selected: Selected, root: Path) -> Iterator[Fault]:
    """Yield a warning for each recording, or file of snapshots, without a scenario's file.

    Only folders that were selected as a whole are searched.
    """
    owned = {
        _normal(path_of(path))
        for path in selected.paths
        for path_of in (file_module.path_of, snapshots.path_of)
    }
    reader = Reader(root)
    for folder in sorted(_recording_folders(selected)):
        for path in sorted(folder.iterdir()):
            if path.name[0] == "." or not path.name.endswith(_SUFFIXES) or not path.is_file():
                continue
            if _normal(path) not in owned:
                stem = path.name.removesuffix(snapshots.SUFFIX).removesuffix(file_module.SUFFIX)
                problem = (
                    f"belongs to no scenario: there is no `{stem}.yaml` in {folder.parent.name}/"
                )
                hint = "delete it, or rename it after its scenario's file"
                yield Fault(reader.shown(path), 0, "", problem, hint)


def orphan_cases(scenarios: Iterable[Scenario], shelf: RecordingStore) -> Iterator[Fault]:
    """Yield a warning for each recorded case that its scenario does not have.

    When a recording is replayed, these cases are drift; when it is made again, they are removed.
    """
    by_path = {scenario.path: scenario for scenario in scenarios}
    for path, scenario in by_path.items():
        if not shelf.leaves_alone(scenario):
            continue
        for line, case in _cases(file_module.path_of(path)):
            if case not in scenario.cases:
                name = f"the case `{case}`" if case else "a scenario without cases"
                problem = f"{name} belongs to no scenario: {scenario.shown} does not have it"
                stem = path.stem
                hint = f"`arena run --update {stem}` removes it"
                yield Fault(shelf.path_of(scenario), line, "", problem, hint)


def _recording_folders(selected: Selected) -> set[Path]:
    folders_found = {
        path.parent / file_module.FOLDER for path in selected.paths if path not in selected.named
    }
    for top in selected.folders:
        for directory, folders, _ in os.walk(top):
            folders[:] = [name for name in folders if name != FIXTURES]
            if file_module.FOLDER in folders:
                folders_found.add(Path(directory, file_module.FOLDER).resolve())
    return {folder for folder in folders_found if folder.is_dir()}


def _cases(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield line and id of each case in a recording, as far as it can be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        if not line.startswith(_CASE):
            continue
        try:
            yield number, json.loads(line).get("case")
        except ValueError:
            continue


def _normal(path: Path) -> str:
    return unicodedata.normalize("NFC", path.as_posix())
