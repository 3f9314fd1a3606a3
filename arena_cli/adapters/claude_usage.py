"""Read the session, the tokens and the cost in what Claude Code writes."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from arena_cli.adapters import pricing
from arena_cli.adapters.pricing import Pricing
from arena_cli.protocol import AgentSession, SessionId, Usage

_CLAUDE_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_COST_USD = 1e15


class Spending(NamedTuple):
    """The dollars and tokens that a session has used so far, as the program counts them."""

    cost_usd: float
    tokens: int


class ClaudeSession(NamedTuple):
    """A session of Claude Code; `spending` is None if it is not known.

    `usage` of a result is that of its turn alone; `total_cost_usd` and `modelUsage` are those of
    the session, or, in older versions, of the process. So the sums are kept with the session's id,
    for the next call to compute the difference, even in another arena process.
    """

    id: str
    spending: Spending | None

    @classmethod
    def begin(cls) -> ClaudeSession:
        """Return a new session without any usage."""
        return cls(str(uuid.uuid4()), Spending(0, 0))

    @classmethod
    def load(cls, session: AgentSession | None) -> ClaudeSession | None:
        """Return the session of an earlier call; None if it is none of Claude Code's."""
        if session is None or not _CLAUDE_SESSION_ID.fullmatch(session.id):
            return None
        try:
            spending = Spending(float(session.state["usd"]), int(session.state["tokens"]))
        except (KeyError, TypeError, ValueError):
            spending = None
        return cls(session.id, spending)

    def dump(self) -> SessionId:
        """Return the session for the next call to load."""
        spent = self.spending
        state = {"usd": round(spent.cost_usd, 10), "tokens": spent.tokens} if spent else {}
        return SessionId(self.id, state)


def read_turn_usage(
    result: dict[str, Any],
    earlier: Spending | None,
    own_results: Sequence[dict[str, Any]] = (),
    rates: Pricing | None = None,
) -> Usage:
    """Return the tokens and the cost of a turn; `earlier` is the session's spending before it.

    `own_results` are the results of turns that the program ran by itself since then; they count
    too. `rates` are the prices of the model in `arena.yaml`. They apply if the program knows no
    price: it then reports a cost of 0, or that it guesses.
    """
    usage = Usage.total([_read_tokens(each) for each in (*own_results, result)])
    cost = _read_session_cost(result)
    if cost is None or 0 <= cost < _MAX_COST_USD:
        cost = _turn_cost(usage, read_spending(result), earlier)
        if not cost and _count_tokens(usage):
            cost = pricing.cost_usd(usage, model="", pricing=rates) if rates else None
    return usage.model_copy(update={"cost_usd": cost})


def read_spending(result: dict[str, Any]) -> Spending | None:
    """Return the session's spending with this turn; None if the program knows no price."""
    cost = _read_session_cost(result)
    models = [dict_or_empty(model) for model in dict_or_empty(result.get("modelUsage")).values()]
    if cost is None or not 0 <= cost < _MAX_COST_USD:
        return None
    if any(model.get("costBasis") == "unknown" for model in models):
        return None
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    return Spending(cost, sum(_token_count(model, name) for model in models for name in names))


def dict_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _read_tokens(result: dict[str, Any]) -> Usage:
    usage = dict_or_empty(result.get("usage"))
    return Usage(
        input_tokens=_token_count(usage, "input_tokens"),
        output_tokens=_token_count(usage, "output_tokens"),
        cache_read_tokens=_token_count(usage, "cache_read_input_tokens"),
        cache_write_tokens=_token_count(usage, "cache_creation_input_tokens"),
    )


def _read_session_cost(result: dict[str, Any]) -> float | None:
    """Return the cost as the program reports it, which may be an invalid amount."""
    cost = result.get("total_cost_usd")
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        return None
    return math.inf if cost >= _MAX_COST_USD else float(cost)  # an int may be too long for a float


def _turn_cost(usage: Usage, current: Spending | None, earlier: Spending | None) -> float | None:
    """Return the cost of a turn, None if unknown.

    If the session's sum is lower than before, the program has restarted its count.
    """
    if current is None:
        return None
    if current.tokens < _count_tokens(usage) + (earlier.tokens if earlier else 1):
        return current.cost_usd
    return max(0.0, round(current.cost_usd - earlier.cost_usd, 10)) if earlier else None


def _count_tokens(usage: Usage) -> int:
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return usage.input_tokens + usage.output_tokens + cached


def _token_count(counts: dict[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
