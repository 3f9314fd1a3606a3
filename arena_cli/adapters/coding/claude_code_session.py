"""Claude Code's own session: its id, and what it has cost so far.

`usage` of a result is of its turn alone, `total_cost_usd` and `modelUsage` are of the session, or,
in older versions, of the process. So what a session has used is kept with its id, for the next call
to tell the difference, in whatever arena.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from arena_cli.ground.protocol import AgentSession, SessionId, Usage

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Spent(NamedTuple):
    """What a session has used so far: dollars and tokens, as the program counts them."""

    cost_usd: float
    tokens: int


_MOST_USD = 1e15


class ClaudeSession(NamedTuple):
    """A session; `spent` is None where that is not known."""

    id: str
    spent: Spent | None


def new() -> ClaudeSession:
    """A session that is to begin."""
    return ClaudeSession(str(uuid.uuid4()), Spent(0, 0))


def of(kept: AgentSession | None) -> ClaudeSession | None:
    """What `told` told of an earlier call; None where it is none."""
    if kept is None or not _ID.fullmatch(kept.id):
        return None
    try:
        spent = Spent(float(kept.state["usd"]), int(kept.state["tokens"]))
    except (KeyError, TypeError, ValueError):
        spent = None
    return ClaudeSession(kept.id, spent)


def told(session: ClaudeSession) -> SessionId:
    """The session as the next call is to know it."""
    spent = session.spent
    state = {"usd": round(spent.cost_usd, 10), "tokens": spent.tokens} if spent else {}
    return SessionId(session.id, state)


def usage_of(
    result: dict[str, Any], before: Spent | None, unasked: Sequence[dict[str, Any]] = ()
) -> Usage:
    """The tokens of the turn, and its cost, with what the session had used `before`.

    `unasked` are the results of the program's own turns since: they cost as well.
    """
    turn = Usage.total([_tokens(each) for each in (*unasked, result)])
    refused = _refused_cost(result)
    cost = _cost(turn, spent_in(result), before) if refused is None else refused
    return turn.model_copy(update={"cost_usd": cost})


def _tokens(result: dict[str, Any]) -> Usage:
    usage = _dict(result.get("usage"))
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cache_read_tokens=_count(usage, "cache_read_input_tokens"),
        cache_write_tokens=_count(usage, "cache_creation_input_tokens"),
    )


def _refused_cost(result: dict[str, Any]) -> float | None:
    """Return the cost of the session if that is no sum of money."""
    cost = result.get("total_cost_usd")
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or 0 <= cost < _MOST_USD:
        return None
    return math.inf if cost >= _MOST_USD else float(cost)  # an int may be too long for a float


def spent_in(result: dict[str, Any]) -> Spent | None:
    """What the program counts up to now; None where it does not say, or has no price."""
    cost = result.get("total_cost_usd")
    models = [_dict(model) for model in _dict(result.get("modelUsage")).values()]
    is_known = all(model.get("costBasis") != "unknown" for model in models)
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not is_known:
        return None
    if _refused_cost(result) is not None:
        return None
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    return Spent(float(cost), sum(_count(model, name) for model in models for name in names))


def _cost(turn: Usage, now: Spent | None, before: Spent | None) -> float | None:
    """None: not known. A count below what was there and came to it has begun anew."""
    if now is None:
        return None
    tokens = turn.input_tokens + turn.output_tokens
    tokens += turn.cache_read_tokens + turn.cache_write_tokens
    if now.tokens < tokens + (before.tokens if before else 1):
        return now.cost_usd
    return max(0.0, round(now.cost_usd - before.cost_usd, 10)) if before else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(counts: dict[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
