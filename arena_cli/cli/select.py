"""What `arena run` plays: the scenarios that were meant, and what is wrong with their files."""

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
from arena_cli.scenarios.recording.store import Shelf
from arena_cli.scenarios.select import by_words
from arena_cli.scenarios.variables import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from arena_cli.scenarios.model import Scenario
    from arena_cli.scenarios.recording.store import Wanted, WhatOfDrift
    from arena_cli.scenarios.select import Selected
    from arena_cli.workspace.workspace import Workspace


class Selection(NamedTuple):
    """The scenarios to play, the files that cannot be played, and the workspace.

    `warnings` are what is suspicious, each once.
    """

    files: Selected
    scenarios: list[Scenario]
    broken: list[Broken]
    warnings: tuple[Fault, ...]
    workspace: Workspace

    @property
    def faults(self) -> list[Fault]:
        """All faults of all files that cannot be played."""
        return [fault for one in self.broken for fault in one.faults]

    def refuse_faults(self, *, strict: bool) -> None:
        """Stop where nothing can be played, or nothing may be. Raises FileFaults."""
        if self.broken and (strict or not self.scenarios):
            raise FileFaults([*self.faults, *(self.warnings if strict else ())])
        if strict and self.warnings:
            raise FileFaults(self.warnings)


def select(
    context: typer.Context, wanted: list[str], tags: list[str], words: str | None
) -> Selection:
    """Return what is meant. Raises UsageError, FileFaults where the workspace has faults."""

    meant = by_words(words) if words is not None else None
    anywhere = context.obj.allow_outside
    files = select_module.select(common.root_of(context), wanted, common.here(), anywhere=anywhere)
    loaded, (scenarios, broken) = common.scenarios_of(context, files)
    if not scenarios and not broken:
        raise select_module.only_parts(files, loaded.root)
    unread = any(one.tags is None for one in broken)
    _check_tags(tags, scenarios, broken, or_unread=unread)

    def fits(title: str, path: Path, own: Sequence[str] | None) -> bool:
        """Whether it is meant; of a file that cannot be read nobody knows."""
        return own is None or (
            (not tags or not {*tags}.isdisjoint(own))
            and (meant is None or meant(f"{title} {path.name}"))
        )

    found = [one for one in scenarios if fits(one.title, one.path, one.file.tags)]
    wrong = [one for one in broken if any(fits(it, one.path, one.tags) for it in one.titles)]
    if not found and not wrong:
        asked = f"-k {words!r}" if words is not None else "these files"
        raise UsageError(
            f"no scenario is selected: none of {len(scenarios)} fits {asked}",
            "`arena run --list` shows those there are",
        )
    warnings = [fault for one in found for fault in one.warnings]
    warnings += _outside(files, loaded.root)
    return Selection(files, found, wrong, tuple(dict.fromkeys(warnings)), loaded)


def with_recordings(
    selection: Selection, wanted: Wanted | None, *, in_ci: bool, drift: WhatOfDrift, sync: bool
) -> tuple[Selection, Shelf]:
    """Return the selection without what its recordings keep from being played, and those.

    Raises UsageError.
    """

    shelf = Shelf(selection.scenarios, wanted, in_ci=in_ci, drift=drift, sync=sync, lenient=True)
    broken = list(selection.broken)
    by_path = {one.path: one for one in selection.scenarios}
    for path, faults in shelf.faults.items():
        one = by_path[path]
        title = one.file.scenario
        broken.append(Broken(path, one.shown, title, tuple(one.file.tags), tuple(faults)))
    scenarios = [one for one in selection.scenarios if one.path not in shelf.faults]
    warnings = dict.fromkeys(selection.warnings)
    warnings |= dict.fromkeys(store.orphan_files(selection.files, selection.workspace.root))
    warnings |= dict.fromkeys(store.orphan_cases(scenarios, shelf))
    sound = selection._replace(scenarios=scenarios, broken=broken, warnings=tuple(warnings))
    return sound, shelf


def _check_tags(
    tags: Sequence[str],
    scenarios: Sequence[Scenario],
    broken: Sequence[Broken],
    *,
    or_unread: bool,
) -> None:
    """See that a scenario has each tag, unless it may be one that cannot be read."""
    known = {tag for scenario in scenarios for tag in scenario.file.tags}
    known |= {tag for one in broken for tag in one.tags or ()}
    for tag in tags:
        if tag not in known and not or_unread:
            raise UsageError(
                f"no scenario has the tag `{tag}`", errors.suggest_nearest(tag, sorted(known))
            )


def _outside(files: Selected, root: Path) -> list[Fault]:
    """Return a warning for each link that is not followed."""

    shown: Callable[[Path], str] = Reader(root).shown
    what = "leads out of the workspace, so it is not played"
    hint = "copy what it leads to into the workspace, allow it with `--allow-outside`, or delete it"
    return [Fault(shown(link), 0, "", what, hint) for link in files.outside]
