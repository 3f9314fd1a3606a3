"""Check the decisions of a supervisor."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import SupervisedRow
from arena_cli.scenarios.expect.text_checks import Check, Verdict

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import Supervised


def supervised(expected: Sequence[SupervisedRow]) -> Iterator[Check]:
    """Yield the checks on the decisions, a row each, in this order; none: none was made."""
    if not expected:
        yield Check((), _is_free)
    for index in range(len(expected)):
        yield Check((index,), functools.partial(_is_decided, expected[: index + 1]))


def _is_free(conversation: CheckContext) -> Verdict:
    listed = _list_decisions(conversation)
    return Verdict(not conversation.supervised, "no decision", listed)


def _is_decided(rows: Sequence[SupervisedRow], conversation: CheckContext) -> Verdict:
    """Check that the last row is met by a decision after those of the rows before it."""
    remaining = iter(conversation.supervised)
    holds = all(any(_is_met(row, *decision) for decision in remaining) for row in rows)
    expected = _describe(rows[-1].model_dump(include=rows[-1].model_fields_set))
    return Verdict(holds, expected, _list_decisions(conversation))


def _is_met(row: SupervisedRow, turn: int, decision: Supervised) -> bool:
    actual = _read_fields(turn, decision)
    return all(actual[name] == getattr(row, name) for name in row.model_fields_set)


def _read_fields(turn: int, decision: Supervised) -> dict[str, Any]:
    return {
        "turn": turn,
        "should_reply": decision.should_reply,
        "order": decision.order,
        "fallback": "free" if decision.fallback else "none",
        "done": decision.done,
        "replan": decision.replan,
    }


def _list_decisions(conversation: CheckContext) -> str:
    decisions = conversation.supervised
    return "\n".join(_describe(_read_fields(*one)) for one in decisions) or "no decision"


def _describe(fields: dict[str, Any]) -> str:
    texts = []
    for name, value in fields.items():
        text = ", ".join(value) or "none" if isinstance(value, list) else str(value).lower()
        texts.append(f"{name} {text}")
    return " · ".join(texts)
