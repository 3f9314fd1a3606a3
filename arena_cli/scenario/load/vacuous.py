"""Expectations that hold of everything, and scenarios that expect nothing."""

from __future__ import annotations

from collections.abc import Iterator

from arena_cli.scenario.expect import as_json, patterns, walk
from arena_cli.scenario.expect.folders import Folders
from arena_cli.scenario.load import beside
from arena_cli.scenario.load.beside import Wrong
from arena_cli.scenario.load.shapes import ScenarioFile
from arena_cli.yamlio.nodes import Loc


def errors(file: ScenarioFile) -> Iterator[Wrong]:
    """Yield (place, problem, hint) of each `check` that cannot fail."""
    for index, step in enumerate(file.steps):
        if step.check is None:
            continue
        loc: Loc = ("steps", index, "check")
        if not step.check.model_fields_set:
            yield loc, "it expects nothing", "write what must hold, or take the step out"


def warnings(file: ScenarioFile, folders: Folders, *, recorded: bool) -> Iterator[Wrong]:
    """Yield (place, problem, hint) of each expectation that may hold of everything.

    A scenario that is `recorded` expects that a replay comes out as it was.
    """
    if not recorded:
        yield from _without_expectations(file)
    for index, step in enumerate(file.steps):
        if "expect" in step.model_fields_set and not step.expect.model_fields_set:
            yield ("steps", index, "expect"), "it expects nothing", "write what must hold"
        if step.check is not None and not _has_step_before(file, index):
            yield ("steps", index, "check"), "no step comes before it to check", "move it down"
    for loc, expect in beside.expects(file):
        for check in walk.given(expect):
            if check.kind == "regex" and _may_match_anything(check.value):
                what = "it matches the empty text too, so it may match every text"
                yield (*loc, *check.loc), what, "write what must stand there"
            elif check.kind == "as_json":
                for below, what, hint in as_json.unknown_keywords(check.value, folders):
                    yield (*loc, *check.loc, *below), what, hint
    for index, ignored in enumerate(file.ignore):
        if patterns.count_swallowed(ignored.regex)[0]:
            what = "it matches whole sentences, so a changed prompt may not be seen"
            yield ("ignore", index, "regex"), what, "write only what varies, such as a date"


def _may_match_anything(pattern: str) -> bool:
    """Return whether a pattern finds nothing in a text, and sets no condition by looking around."""
    return patterns.matches_empty(pattern) and not patterns.looks_around(pattern)


def _without_expectations(file: ScenarioFile) -> Iterator[Wrong]:
    """Tell of a scenario without expectations, or else of its last steps that none covers."""
    if file.expect.model_fields_set or _has_strict_script(file):
        return
    last = -1
    for index, step in enumerate(file.steps):
        if step.check is not None or step.expect.model_fields_set or step.save:
            last = index
    hint = "add `expect` to a step, or to the scenario"
    if last < 0:
        yield ("scenario",), "it expects nothing: it passes unless an agent fails", hint
        return
    for index in range(last + 1, len(file.steps)):
        if file.steps[index].kind == "send":
            yield ("steps", index), "nothing is expected of this step", "add `expect`, or a `check`"


def _has_strict_script(file: ScenarioFile) -> bool:
    """Return whether a script must be used up, which is an expectation too."""
    adapters = (profile.get("adapter") for profile in file.profiles.values())
    return any(isinstance(one, dict) and one.get("strict") is True for one in adapters)


def _has_step_before(file: ScenarioFile, index: int) -> bool:
    """Return whether a `check` follows a step of its session; an unknown session has its error."""
    session = file.steps[index].session
    covered = [
        at
        for at, step in enumerate(file.steps)
        if step.kind != "check" and session in (None, step.session)
    ]
    return covered[0] < index if covered else session is not None
