"""Check what agents asked people to approve and what was decided, and a supervisor's decisions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import ApprovalRow, SupervisedRow
from arena_cli.scenarios.expect.text_checks import Check, Verdict

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import Request, Supervised


def approvals(expected: Sequence[ApprovalRow]) -> Iterator[Check]:
    """Yield the checks on the requests: their number, and a row each, in order."""
    yield Check((), functools.partial(_are_as_many, expected))
    for index, row in enumerate(expected):
        yield Check((index,), functools.partial(_is_asked, row, index))


def list_approvals(conversation: CheckContext) -> list[dict[str, str]]:
    """Return what agents asked of people, in order; the decision is `open` if there is none."""
    chains = [chain.control for chain in conversation.conversation.chains if chain.control]
    requests = [request for control in chains for request in control.requests.values()]
    return [_read_row(request) for request in requests]


def _read_row(request: Request) -> dict[str, str]:
    question, decided = request.asked, request.decided
    row = {
        "agent": question.agent,
        "action": question.action,
        "decision": "open",
        "option": "",
        "by": "",
    }
    if decided is not None:
        row |= {"decision": decided.decision, "option": decided.option, "by": decided.by}
    return row


def _are_as_many(rows: Sequence[ApprovalRow], conversation: CheckContext) -> Verdict:
    actual = list_approvals(conversation)
    expected = f"{len(rows)} request{'s' if len(rows) != 1 else ''}" if rows else "no request"
    return Verdict(len(actual) == len(rows), expected, _describe_all(actual))


def _is_asked(row: ApprovalRow, index: int, conversation: CheckContext) -> Verdict:
    actual = list_approvals(conversation)
    fields = row.model_dump(include=row.model_fields_set)
    holds = index < len(actual) and all(
        actual[index][name] == value for name, value in fields.items()
    )
    return Verdict(holds, _describe_request(fields), _describe_all(actual))


def _describe_all(rows: Sequence[Mapping[str, str]]) -> str:
    return "\n".join(map(_describe_request, rows)) or "no request"


def _describe_request(row: Mapping[str, str]) -> str:
    return " · ".join(f"{name} {value}" for name, value in row.items() if value)


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
    expected = _describe_decision(rows[-1].model_dump(include=rows[-1].model_fields_set))
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
    return (
        "\n".join(_describe_decision(_read_fields(*decision)) for decision in decisions)
        or "no decision"
    )


def _describe_decision(fields: dict[str, Any]) -> str:
    texts = []
    for name, value in fields.items():
        text = ", ".join(value) or "none" if isinstance(value, list) else str(value).lower()
        texts.append(f"{name} {text}")
    return " · ".join(texts)
