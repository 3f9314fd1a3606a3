"""Check what agents asked people to approve, and what was decided."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import ApprovalRow
from arena_cli.scenarios.expect.text_checks import Check, Verdict

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import Request


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
    asked, decided = request.asked, request.decided
    row = {"agent": asked.agent, "action": asked.action, "decision": "open", "option": "", "by": ""}
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
    return Verdict(holds, _describe(fields), _describe_all(actual))


def _describe_all(rows: Sequence[Mapping[str, str]]) -> str:
    return "\n".join(map(_describe, rows)) or "no request"


def _describe(row: Mapping[str, str]) -> str:
    return " · ".join(f"{name} {value}" for name, value in row.items() if value)
