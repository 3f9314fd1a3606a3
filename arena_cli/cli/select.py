"""Select the scenarios that `arena run` plays, and collect the errors in their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from arena_cli import errors
from arena_cli.cli import common
from arena_cli.errors import Fault, FileFaults, UsageError
from arena_cli.scenarios import select as select_module
from arena_cli.scenarios.loader import Broken
from arena_cli.scenarios.recording import store
from arena_cli.scenarios.recording.store import RecordingStore
from arena_cli.scenarios.select import by_words
from arena_cli.scenarios.variables import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from arena_cli.scenarios.model import Scenario
    from arena_cli.scenarios.recording.store import Wanted, WhatOfDrift
    from arena_cli.scenarios.select import Selected
    from arena_cli.workspace.workspace import Workspace


class ScenarioSelection(NamedTuple):
    """The scenarios to play, the files that cannot be played, and the workspace.

    `warnings` contains each warning once.
    """

    files: Selected
    scenarios: list[Scenario]
    broken: list[Broken]
    warnings: tuple[Fault, ...]
    workspace: Workspace

    @property
    def faults(self) -> list[Fault]:
        """All errors of all files that cannot be played."""
        return [fault for file in self.broken for fault in file.faults]

    def refuse_faults(self, *, strict: bool) -> None:
        """Raise FileFaults if nothing can be played, or, if `strict`, for any error or warning."""
        if self.broken and (strict or not self.scenarios):
            raise FileFaults([*self.faults, *(self.warnings if strict else ())])
        if strict and self.warnings:
            raise FileFaults(self.warnings)


def select(
    context: typer.Context, names: list[str], tags: list[str], words: str | None
) -> ScenarioSelection:
    """Return the selected scenarios. Raises UsageError, and FileFaults for an invalid workspace."""
    matcher = by_words(words) if words is not None else None
    anywhere = context.obj.allow_outside
    files = select_module.select(
        common.find_root(context), names, common.current_folder(), anywhere=anywhere
    )
    loaded, (scenarios, broken) = common.load_scenarios(context, files)
    if not scenarios and not broken:
        raise select_module.only_parts(files, loaded.root)
    _check_tags(tags, scenarios, broken)

    def fits(title: str, path: Path, own_tags: Sequence[str] | None) -> bool:
        """Return True if the scenario is selected; an unreadable file always is."""
        return own_tags is None or (
            (not tags or not {*tags}.isdisjoint(own_tags))
            and (matcher is None or matcher(f"{title} {path.name}"))
        )

    chosen = [item for item in scenarios if fits(item.title, item.path, item.file.tags)]
    wrong = [
        item for item in broken if any(fits(title, item.path, item.tags) for title in item.titles)
    ]
    if not chosen and not wrong:
        request = f"-k {words!r}" if words is not None else "these files"
        raise UsageError(
            f"no scenario is selected: none of {len(scenarios)} matches {request}",
            "`arena run --list` shows all scenarios",
        )
    warnings = [fault for scenario in chosen for fault in scenario.warnings]
    warnings += _outside(files, loaded.root)
    return ScenarioSelection(files, chosen, wrong, tuple(dict.fromkeys(warnings)), loaded)


def with_recordings(
    selection: ScenarioSelection,
    mode: Wanted | None,
    *,
    in_ci: bool,
    drift: WhatOfDrift,
    sync: bool,
) -> tuple[ScenarioSelection, RecordingStore]:
    """Return the selection without scenarios whose recordings are invalid, and the recordings.

    Raises UsageError.
    """
    shelf = RecordingStore(
        selection.scenarios, mode, in_ci=in_ci, drift=drift, sync=sync, lenient=True
    )
    broken = list(selection.broken)
    by_path = {scenario.path: scenario for scenario in selection.scenarios}
    for path, faults in shelf.faults.items():
        scenario = by_path[path]
        title = scenario.file.scenario
        broken.append(Broken(path, scenario.shown, title, tuple(scenario.file.tags), tuple(faults)))
    scenarios = [scenario for scenario in selection.scenarios if scenario.path not in shelf.faults]
    warnings = dict.fromkeys(selection.warnings)
    warnings |= dict.fromkeys(store.orphan_files(selection.files, selection.workspace.root))
    warnings |= dict.fromkeys(store.orphan_cases(scenarios, shelf))
    sound = selection._replace(scenarios=scenarios, broken=broken, warnings=tuple(warnings))
    return sound, shelf


def _check_tags(
    tags: Sequence[str],
    scenarios: Sequence[Scenario],
    broken: Sequence[Broken],
) -> None:
    """Raise UsageError for a tag of no scenario, unless some files cannot be read."""
    if any(scenario.tags is None for scenario in broken):
        return
    known_tags = {tag for scenario in scenarios for tag in scenario.file.tags}
    known_tags |= {tag for file in broken for tag in file.tags or ()}
    for tag in tags:
        if tag not in known_tags:
            raise UsageError(
                f"no scenario has the tag `{tag}`", errors.suggest_nearest(tag, sorted(known_tags))
            )


def _outside(files: Selected, root: Path) -> list[Fault]:
    """Return a warning for each link that is not followed."""
    relative: Callable[[Path], str] = Reader(root).shown
    problem = "leads out of the workspace, so it is not played"
    hint = "copy its target into the workspace, allow it with `--allow-outside`, or delete it"
    return [Fault(relative(link), 0, "", problem, hint) for link in files.outside]
