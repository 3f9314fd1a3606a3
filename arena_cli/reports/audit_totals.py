"""Sum the tokens, times and costs of an audit by agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SUMS = (*TOKENS, "latency_ms")


class Totals:
    """Sums over the entries that passed. An unknown cost is counted as unknown, not as free."""

    def __init__(self) -> None:
        self._agents: dict[str, Counter[str]] = {}
        self._costs: dict[str, float] = {}

    def passing(self, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the same entries and add each call to the totals."""
        for entry in entries:
            kind = entry["entry"]
            if kind == "call":
                self._add(entry["agent"], entry, ("calls", entry["status"]))
            elif "cost_usd" in entry:
                self._add(entry.get("by") or entry["agent"], entry, (kind,))
            yield entry

    def _add(self, agent: str, entry: dict[str, Any], counted: Iterable[str]) -> None:
        sums = self._agents.setdefault(agent, Counter())
        sums.update(counted)
        for name in _SUMS:
            sums[name] += entry.get(name) or 0
        if entry["cost_usd"] is None:
            sums["cost_unknown"] += 1
        else:
            self._costs[agent] = self._costs.get(agent, 0.0) + entry["cost_usd"]

    def agents(self) -> dict[str, dict[str, Any]]:
        """Return the figures by agent, in the order of their first calls."""
        return {
            agent: _make_figures(sums, self._costs.get(agent))
            for agent, sums in self._agents.items()
        }

    def total(self) -> dict[str, Any]:
        """Return the figures summed over all agents."""
        counts: Counter[str] = Counter()
        for sums in self._agents.values():
            counts.update(sums)
        return _make_figures(counts, sum(self._costs.values()) if self._costs else None)


def _make_figures(sums: Counter[str], cost: float | None) -> dict[str, Any]:
    """Return the figures of a sum.

    `cost_usd` is the sum of the known costs, None if none is known; `cost_unknown` is the number of
    calls with an unknown cost.
    """
    figures: dict[str, Any] = {name: count for name, count in sums.items() if name not in _SUMS}
    unknown = figures.pop("cost_unknown", 0)
    figures |= {name: sums[name] for name in _SUMS}
    figures["cost_usd"] = None if cost is None else round(cost, 10)
    figures["cost_unknown"] = unknown
    return figures
