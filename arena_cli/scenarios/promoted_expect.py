"""What happened in a chain, as the expectations of the step that plays it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.event_checks import list_approvals, list_reactions
from arena_cli.transcript.conversation import read_conversation
from arena_cli.transcript.events import Event
from arena_cli.util.text import escape_template


def list_expected(events: Sequence[Event], end: str, root: Path) -> Iterator[tuple[str, Any]]:
    """Yield the result of a chain, as expectations; `events` are those up to its end."""
    talk = CheckContext(root, read_conversation(events))
    yield "replied", [call.agent for call in talk.replies()]
    yield "must", [[*turn.must] for turn in talk.turns]
    asked_agents = [agent for turn in talk.turns for agent in turn.asked]
    if asked_agents or any(turn.passed_over for turn in talk.turns):
        yield "asked", asked_agents
    yield from _expected_failures(talk)
    yield "turns", len(talk.turns)
    yield from _expected_acts(talk)
    yield "end", end
    if talk.awaits:
        yield "awaits", talk.awaits
    if talk.unresolved:
        yield "unresolved", talk.unresolved


def _expected_acts(talk: CheckContext) -> Iterator[tuple[str, Any]]:
    """Yield the reactions, requests for approval, calls of tools and ends of agents."""
    if reactions := list_reactions(talk):
        yield "reactions", reactions
    if requests := list_approvals(talk):
        yield "approvals", [_drop_empty(row) for row in requests]
    calls = [call for call in talk.used_tools if call.status == "ok"]
    if calls:
        yield "tool", [{"agent": call.asked.agent, "name": call.asked.tool} for call in calls]
    if talk.acting_ends:
        yield "ended", {agent: end.mode for agent, end in talk.acting_ends.items()}


def _drop_empty(row: dict[str, str]) -> dict[str, str]:
    return {key: escape_template(value) for key, value in row.items() if value}


def _expected_failures(talk: CheckContext) -> Iterator[tuple[str, Any]]:
    """Yield the last status of agents that did not answer, and their failures before it."""
    outcome = {call.agent: talk.outcome(call.agent) for call in talk.calls()}
    outcome = {agent: status for agent, status in outcome.items() if status != "success"}
    if outcome:
        yield "outcome", outcome
    rows = [
        {"turn": call.turn, "agent": call.agent, "status": call.done.status}
        for call in talk.failures()
        if outcome.get(call.agent) != call.done.status
    ]
    if rows:
        yield "timeline", rows
