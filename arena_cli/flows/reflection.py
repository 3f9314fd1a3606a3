"""What agents are shown of a flow that has ended, and how one of them assesses it."""

from __future__ import annotations

import json
from typing import Any

from arena_cli.flows.loader import Flow
from arena_cli.flows.outcomes import FlowResult
from arena_cli.util.text import cut_text

SHOWN_OUTPUT = 2000
"""The characters of a step's output that an agent is shown."""


def describe_run(flow: Flow, result: FlowResult) -> str:
    """Return the end of a flow as a text: its steps, their ends, and their outputs, cut."""
    steps = {}
    for key, outcome in result.outcomes.items():
        facts: dict[str, Any] = {"status": outcome.status}
        if outcome.error_code is not None:
            facts |= {"error_code": outcome.error_code, "retryable": outcome.retryable}
        if outcome.output is not None:
            text = json.dumps(outcome.output, ensure_ascii=False)
            is_short = len(text) <= SHOWN_OUTPUT
            facts["output"] = outcome.output if is_short else cut_text(text, SHOWN_OUTPUT)
        steps[key] = facts
    told = {
        "flow": flow.file.flow,
        "description": flow.file.description,
        "status": result.status,
        "steps": steps,
        "errors": dict(result.errors),
    }
    return json.dumps(told, ensure_ascii=False, indent=2)


def make_request(flow: Flow, result: FlowResult) -> str:
    """Return the message to the agent that reflects."""
    return (
        "A workflow has ended. Assess its result. Answer with one JSON object: "
        '{"assessment": text, "should_retry": true or false (run the failed steps again), '
        '"confidence": 0 to 1, "recommendations": [texts]}.\n\n'
        f"{describe_run(flow, result)}"
    )


def read_assessment(answer: Any) -> dict[str, Any]:
    """Return the fields of an assessment. Raises ValueError."""
    if not isinstance(answer, dict) or not isinstance(answer.get("should_retry"), bool):
        raise ValueError("it answered no JSON object with `should_retry`")
    confidence = answer.get("confidence")
    is_number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    recommendations = answer.get("recommendations")
    return {
        "assessment": str(answer.get("assessment", "")),
        "should_retry": answer["should_retry"],
        "confidence": min(max(float(confidence or 0), 0.0), 1.0) if is_number else None,
        "recommendations": [str(item) for item in recommendations]
        if isinstance(recommendations, list)
        else [],
    }
