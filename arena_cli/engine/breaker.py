"""Pass over agents whose replies are refused or fail too often: their circuit breakers.

A breaker opens after too many rejections or failures. When its time is over, its agent is called
once (`half_open`): a success closes it, a failure opens it again. The state is in the fold, so that
it is the same after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from arena_cli.engine.plan import Room
from arena_cli.transcript.control_events import (
    CORRECTED,
    FAILED,
    REFUSED,
    BreakerChanged,
    session_control_of,
)
from arena_cli.util.clock import format_timestamp

REJECTION_RATE = 0.5
FAILURES = 3
PAUSE_S = 300.0

LEAST_REPLIES = 4
"""The number of replies from which on the share of refused ones counts."""


def find_open(room: Room) -> dict[str, str]:
    """Return the agents that are passed over now, with the reasons."""
    control = room.scene.fold.control
    changes = control.breakers if control else {}
    return {
        agent: f"circuit breaker open until {change.until}: {change.reason}"
        for agent, change in changes.items()
        if change.state == "open" and not _is_over(change, room)
    }


def settle(room: Room, called: Sequence[str]) -> None:
    """Change the breakers by the replies since their last change; `called` are called next."""
    control = session_control_of(room.scene.fold)
    for member in room.scene.team.members:
        agent = member.id
        change, outcomes = control.breakers.get(agent), control.outcomes.get(agent, "")
        state = change.state if change else "closed"
        if outcomes and state != "closed":
            failed = outcomes[-1] in FAILED + REFUSED
            reason = "it failed again" if failed else ""
            _write(room, agent, "open" if failed else "closed", reason)
        elif reason := _find_reason(outcomes, room):
            _write(room, agent, "open", reason)
        elif state == "open" and agent in called:
            _write(room, agent, "half_open", "")


def _find_reason(outcomes: str, room: Room) -> str:
    """Return why a breaker opens after these replies, "" if it does not."""
    config = room.scene.team.config
    in_a_row = len(outcomes) - len(outcomes.rstrip(FAILED + REFUSED))
    if in_a_row >= (config.failures or FAILURES):
        return "it failed" if in_a_row == 1 else f"{in_a_row} failures in a row"
    refused = sum(outcomes.count(letter) for letter in CORRECTED + REFUSED)
    rate = config.rejection_rate or REJECTION_RATE
    if len(outcomes) >= LEAST_REPLIES and refused > rate * len(outcomes):
        return f"rules refused {refused} of its last {len(outcomes)} replies"
    return ""


def _is_over(change: BreakerChanged, room: Room) -> bool:
    """Return True if the time is over; a clock that was set back keeps no agent out for longer."""
    left = datetime.fromisoformat(change.until) - room.clock.now()
    return not timedelta(0) < left <= _pause(room)


def _write(
    room: Room, agent: str, state: Literal["open", "half_open", "closed"], reason: str
) -> None:
    until = format_timestamp(room.clock.now() + _pause(room)) if state == "open" else ""
    room.journal.write(BreakerChanged, agent=agent, state=state, until=until, reason=reason)


def _pause(room: Room) -> timedelta:
    return timedelta(seconds=room.scene.team.config.pause_s or PAUSE_S)
