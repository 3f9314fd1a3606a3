"""Check what agents asked each other directly."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arena_cli.scenarios.expect import amounts
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import ExchangeRow
from arena_cli.scenarios.expect.text_checks import Check, Verdict

_USUAL = {"priority": "normal", "timed_out": False}


def check_exchanges(expected: Sequence[ExchangeRow]) -> Iterator[Check]:
    """Yield the checks on the exchanges: their number, and a row each, in order."""
    yield Check((), functools.partial(_are_as_many, len(expected)))
    for index, row in enumerate(expected):
        yield Check((index,), functools.partial(_is_met, row, index))


def list_exchanges(conversation: CheckContext) -> list[dict[str, Any]]:
    """Return the exchanges, in order; the end is `open` if one has not ended."""
    return [
        {
            "requester": started.requester,
            "target": started.target,
            "mode": started.mode,
            "priority": started.priority,
            "timed_out": started.exchange in conversation.timed_out_exchanges,
            "turns": ended.turns if ended else 0,
            "end": ended.end if ended else "open",
            "announced": bool(ended and ended.announced),
        }
        for started, ended in conversation.exchanges
    ]


def _are_as_many(count: int, conversation: CheckContext) -> Verdict:
    actual = list_exchanges(conversation)
    expected = f"{count} exchange{'s' if count != 1 else ''}" if count else "no exchange"
    return Verdict(len(actual) == count, expected, _describe_all(actual))


def _is_met(row: ExchangeRow, index: int, conversation: CheckContext) -> Verdict:
    actual = list_exchanges(conversation)
    given = row.model_fields_set
    fields = {name: getattr(row, name) for name in type(row).model_fields if name in given}
    holds = index < len(actual) and all(
        amounts.within(value, actual[index][name])
        if name == "turns"
        else actual[index][name] == value
        for name, value in fields.items()
    )
    return Verdict(holds, _describe(fields), _describe_all(actual))


def _describe_all(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        {name: value for name, value in row.items() if _USUAL.get(name) != value} for row in rows
    ]
    return "\n".join(map(_describe, shown)) or "no exchange"


def _describe(row: Mapping[str, Any]) -> str:
    return " · ".join(_describe_fact(name, value) for name, value in row.items())


def _describe_fact(name: str, value: Any) -> str:
    if name in ("announced", "timed_out"):
        fact = name.replace("_", " ")
        return fact if value else f"not {fact}"
    return f"{name} {amounts.describe_limit(value) if name == 'turns' else value}"
