"""Locate in the files what drift reports as changed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from arena_cli.ground import templates
from arena_cli.scenario.load.scenario import Scenario
from arena_cli.scenario.recording import settings
from arena_cli.scenario.result import Drift
from arena_cli.team import ids
from arena_cli.yamlio.document import Part, find_holder
from arena_cli.yamlio.nodes import Loc

_OF_WORKSPACE = ("models", "memory")


def locate(drift: Drift, scenario: Scenario) -> str:
    """Return `file:line` of the setting, prompt or rubric that changed; empty where none is known.

    Of a key that was taken out it is the nearest that is still there.
    """
    field, agent = drift.field, drift.agent
    if field.startswith(settings.FILE):
        return field.removeprefix(settings.FILE)
    if field == "rubric":
        return _rubric(drift, scenario)
    if agent is not None:
        of_profile = drift.kind == "settings" or (drift.kind, field) == (
            "input",
            settings.ROLE_PROMPT,
        )
        return _profile(drift, agent, scenario) if of_profile else ""
    loc = _loc(field)
    parts: Sequence[Part] = ()
    if drift.kind == "settings" and loc[0] == "config":
        parts, loc = _rules(scenario), loc[1:]
    elif drift.kind == "settings" and loc[0] == "ignore":
        parts = scenario.parts
    elif drift.kind == "settings" and loc[0] in _OF_WORKSPACE:
        parts = [Part(scenario.workspace.document)]
    return _shown(parts, loc)


def _loc(field: str) -> Loc:
    """Return the place that a field names: `ignore[0]` and `adapter.args.1` too."""
    first, _, rest = field.partition(".")
    if first == "models":  # a model's name may have dots
        name, _, key = rest.rpartition(".")
        return (first, name, key)
    parts = re.split(r"[.\[]", field.replace("]", ""))
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _first_line(drift: Drift) -> int:
    """Return the number of the first line in which two texts differ."""
    both = zip(drift.before.splitlines(), drift.after.splitlines(), strict=False)
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], both)
    return min(len([*equal]) + 1, max(drift.after.count("\n") + 1, 1))


def _profile(drift: Drift, agent: str, scenario: Scenario) -> str:
    loc = _loc(drift.field)
    loaded = scenario.profiles.get(agent)
    if loaded is None:
        return ""
    parts = loaded.source.fragments
    prompt = loaded.source.data.get(settings.ROLE_PROMPT)
    if loc == (settings.ROLE_PROMPT,) and isinstance(prompt, dict):
        return f"{prompt.get('file', '')}:{_first_line(drift)}"
    if loc[0] == settings.ADAPTER and len(loc) > 1:
        kind = str(loaded.profile.adapter.get("type"))
        common = Part(scenario.workspace.document, ("defaults", kind))
        below = [Part(part.document, (*part.loc, settings.ADAPTER)) for part in parts]
        held = [part for part in (*below, common) if part.holds(loc[1:2])]
        if held:
            return _shown(held, loc[1:])
    return _shown(parts, loc)


def _rules(scenario: Scenario) -> list[Part]:
    """Return the parts that set rules of the team, the nearest first."""
    own = [Part(part.document, (*part.loc, "config")) for part in scenario.parts]
    name = scenario.team.name
    draft = scenario.workspace.drafts.get(ids.normal(name)) if name else None
    shared = draft.rules if draft else [Part(scenario.workspace.document, ("defaults", "config"))]
    held = [part for part in (*own, *reversed(shared)) if part.holds(())]
    if held:
        return held
    return [draft.fragment] if draft else list(scenario.parts)


def _shown(parts: Sequence[Part], loc: Loc) -> str:
    """Return the place of the nearest part that holds `loc`, or as much of it as any does."""
    if not parts:
        return ""
    part = find_holder(parts, loc)
    document = part.document
    return f"{document.name}:{document.line((*part.loc, *loc))}"


def _rubric(drift: Drift, scenario: Scenario) -> str:
    """Return the place of a judge's rubric that was not asked before."""
    for loc in _new_rubrics(drift, scenario):
        return "{}:{}".format(*scenario.place(loc))
    return ""


def _new_rubrics(drift: Drift, scenario: Scenario) -> Iterator[Loc]:
    before, after = (" ".join(text.split()) for text in (drift.before, drift.after))
    for loc, text in templates.texts(scenario.data):
        plain = " ".join(text.split())
        if {"judge", "rubric"} & {*loc} and plain in after and plain not in before:
            yield loc
