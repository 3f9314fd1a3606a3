"""Check flows: how their steps ended, and with which outputs."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from arena_cli.scenarios.expect import json_checks
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.json_checks import JsonCheck
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.util.text import cut_text

if TYPE_CHECKING:
    from arena_cli.scenarios.expect.model import FlowStepRow

_SHOWN = 300


def check_steps(expected: Mapping[str, FlowStepRow]) -> Iterator[Check]:
    """Yield the checks on the steps of the flow that ran last."""
    for step, row in expected.items():
        if "status" in row.model_fields_set or not row.model_fields_set & {"error_code", "output"}:
            yield Check((step, "status"), functools.partial(_has_ended, step, row.status))
        if row.error_code:
            yield Check((step, "error_code"), functools.partial(_has_class, step, row.error_code))
        checks = [row.output] if isinstance(row.output, JsonCheck) else row.output
        for index, check in enumerate(checks):
            loc = (step, "output") if isinstance(row.output, JsonCheck) else (step, "output", index)
            yield Check(loc, functools.partial(_fits_output, step, check))


def _has_ended(step: str, status: str, conversation: CheckContext) -> Verdict:
    end = conversation.flow_steps.get(step)
    actual = end.status if end else "none"
    return Verdict(actual == status, status, _describe(step, conversation))


def _has_class(step: str, code: str, conversation: CheckContext) -> Verdict:
    end = conversation.flow_steps.get(step)
    actual = (end.error_code if end else None) or "no error"
    return Verdict(actual == code, code, f"{actual} ({_describe(step, conversation)})")


def _fits_output(step: str, check: JsonCheck, conversation: CheckContext) -> Verdict:
    end = conversation.flow_steps.get(step)
    if end is None or end.output is None:
        actual = f"{step} has no output: {_describe(step, conversation)}"
        return Verdict(False, json_checks.asks(check), actual)
    return json_checks.judge_value(end.output, check, conversation.folders)


def _describe(step: str, conversation: CheckContext) -> str:
    end = conversation.flow_steps.get(step)
    if end is None:
        known = ", ".join(conversation.flow_steps) or "no step"
        return f"{step} did not run; ended: {known}"
    if end.error:
        return f"{end.status}: {end.error}"
    output = json.dumps(end.output, ensure_ascii=False)
    return f"{end.status}, {cut_text(output, _SHOWN)}"
