"""What checks need that lies in other files: schemas, functions, snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from arena_cli.scenario.expect import as_json, python, snapshots, walk
from arena_cli.scenario.expect.folders import Folders
from arena_cli.scenario.expect.shapes import Expect
from arena_cli.scenario.load.shapes import ScenarioFile
from arena_cli.yamlio.nodes import Loc

Wrong = tuple[Loc, str, str]


def wrong(file: ScenarioFile, folders: Folders) -> Iterator[Wrong]:
    """(place, what, mend) of every check whose file is not there, or is not what it should be."""
    told: set[str] = set()
    for loc, expect in expects(file):
        for check in walk.given(expect):
            for below, what, mend in _of_check(check, folders):
                if check.kind == "snapshot" and what in told:
                    continue  # all of them lie in one file
                told.add(what)
                yield (*loc, *check.loc, *below), what, mend


def expects(file: ScenarioFile) -> Iterator[tuple[Loc, Expect]]:
    """Every `expect` and `check` of a scenario, with its place."""
    for index, step in enumerate(file.steps):
        yield ("steps", index, "expect"), step.expect
        if step.check is not None:
            yield ("steps", index, "check"), step.check
    yield ("expect",), file.expect


def _of_check(check: walk.Given, folders: Folders) -> Iterator[Wrong]:
    if check.kind == "as_json":
        yield from as_json.wrong(check.value, folders)
    elif check.kind == "python":
        yield from python.wrong(check.value, folders)
    elif check.kind == "snapshot":
        yield from snapshots.wrong(check.loc, folders)
