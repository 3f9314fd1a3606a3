"""What tests of checks on a text share: one agent, `dev`, whose replies are checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from product import CheckResult, FileFaults
from stage import Stage


def stage_in(folder: Path) -> Stage:
    """A workspace with `dev` in it, who is given its replies by each scenario."""
    return Stage(folder).agent("dev").team(selection="none")


def text_of(replies: Sequence[Any], expect: Any, sends: int = 1) -> str:
    """A scenario in which `dev` gives these replies, one a step; `expect` is every step's."""
    steps = [{"send": "@dev go", "on_fail": "continue", "expect": expect} for _ in range(sends)]
    adapter = {"type": "scripted", "replies": list(replies)}
    data = {"scenario": "x", "profiles": {"dev": {"adapter": adapter}}, "steps": steps}
    return json.dumps(data, ensure_ascii=False)


def checked(stage: Stage, reply: Any, *checks: Any) -> list[CheckResult]:
    """What comes of these checks on a reply of `dev`."""
    told = stage.play(text_of([reply], {"replies": {"dev": list(checks)}}))
    assert told.error is None, told.error
    return [result for step in told.steps for result in step.checks]


def holds(stage: Stage, reply: Any, check: Any) -> bool:
    """Whether a check on a reply holds; it may not be an error."""
    (result,) = checked(stage, reply, check)
    assert result.status in ("passed", "failed"), result.actual
    return result.status == "passed"


def faults(stage: Stage, *checks: Any, **expect: Any) -> list[str]:
    """What is wrong with a scenario with these checks, or with this `expect`, before it runs."""
    expect = expect or {"replies": {"dev": list(checks)}}
    with pytest.raises(FileFaults) as raised:
        stage.load(text_of(["hi"], expect))
    return [f"{one.field}: {one.what}" for one in raised.value.faults]
