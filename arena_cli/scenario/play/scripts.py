"""`strict: true` on a scripted agent: at the scenario's end every entry must have been used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from arena_cli.ground import text as texts
from arena_cli.scenario.expect import checks
from arena_cli.scenario.load.scenario import Scenario
from arena_cli.scenario.result import CheckResult
from arena_cli.yamlio.document import find_holder
from arena_cli.yamlio.nodes import Loc, dotted

KIND = "scripted"


def unused(scenario: Scenario, used: Sequence[Mapping[str, set[int]]]) -> list[CheckResult]:
    """A failed result for each entry that no session of the scenario used, of members and judges;
    `used` has a session's entries (from 0) by agent.
    """
    judges = {member.id: member for member in scenario.judges.values()}
    return [
        _unused(scenario, member.id, index, entry)
        for member in (*scenario.team.members, *judges.values())
        if member.profile.adapter.get("strict") is True and member.profile.adapter["type"] == KIND
        for index, entry in enumerate(member.profile.adapter["replies"])
        if not any(index in session.get(member.id, ()) for session in used)
    ]


def _unused(scenario: Scenario, agent: str, index: int, entry: object) -> CheckResult:
    loc: Loc = ("adapter", "replies", index)
    parts = scenario.profiles[agent].source.fragments
    part = find_holder(parts, loc)
    return CheckResult(
        place=lambda: (part.document.name, part.document.line((*part.loc, *loc))),
        field=dotted((*part.loc, *loc)),
        status="failed",
        expected=f"the script of {agent} is used up (strict)",
        actual=f"never used: {texts.cut(json.dumps(entry, ensure_ascii=False), checks.EXCERPT)}",
    )
