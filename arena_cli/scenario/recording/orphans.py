"""Recordings, and cases in them, that belong to no scenario."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from arena_cli.ground.errors import Fault
from arena_cli.scenario.expect import snapshots
from arena_cli.scenario.load.include import Reader
from arena_cli.scenario.load.scenario import Scenario
from arena_cli.scenario.load.select import FIXTURES, Selected
from arena_cli.scenario.recording import files
from arena_cli.scenario.recording.shelf import Shelf

_SUFFIXES = (files.SUFFIX, snapshots.SUFFIX)
_CASE = b'{"type":"case"'


def orphan_files(selected: Selected, root: Path) -> Iterator[Fault]:
    """Yield a warning for each recording, or file of snapshots, without a scenario's file.

    Only folders that were selected as a whole are searched.
    """
    owned = {
        _normal(path_of(path))
        for path in selected.paths
        for path_of in (files.path_of, snapshots.path_of)
    }
    reader = Reader(root)
    for folder in sorted(_recording_folders(selected)):
        for path in sorted(folder.iterdir()):
            if path.name[0] == "." or not path.name.endswith(_SUFFIXES) or not path.is_file():
                continue
            if _normal(path) not in owned:
                stem = path.name.removesuffix(snapshots.SUFFIX).removesuffix(files.SUFFIX)
                what = f"belongs to no scenario: there is no `{stem}.yaml` in {folder.parent.name}/"
                hint = "delete it, or name it as its scenario's file is named now"
                yield Fault(reader.shown(path), 0, "", what, hint)


def orphan_cases(scenarios: Iterable[Scenario], shelf: Shelf) -> Iterator[Fault]:
    """Yield a warning for each recorded case that its scenario does not have.

    Where a recording is replayed these are drift, and where it is made anew they go.
    """
    by_path = {scenario.path: scenario for scenario in scenarios}
    for path, scenario in by_path.items():
        if not shelf.leaves_alone(scenario):
            continue
        for line, case in _cases(files.path_of(path)):
            if case not in scenario.cases:
                name = f"the case `{case}`" if case else "a scenario without cases"
                what = f"{name} belongs to no scenario: {scenario.shown} does not have it"
                stem = path.stem
                hint = f"`arena run --update {stem}` takes it out"
                yield Fault(shelf.path_of(scenario), line, "", what, hint)


def _recording_folders(selected: Selected) -> set[Path]:
    found = {path.parent / files.FOLDER for path in selected.paths if path not in selected.named}
    for top in selected.folders:
        for place, folders, _ in os.walk(top):
            folders[:] = [name for name in folders if name != FIXTURES]
            if files.FOLDER in folders:
                found.add(Path(place, files.FOLDER).resolve())
    return {folder for folder in found if folder.is_dir()}


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
