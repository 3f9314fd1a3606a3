"""What a session's record adds up to, by agent and over all, while its entries pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from arena_cli.report.audit.entries import CALL, Entry

_MEMORY = ("compacted", "extracted")
_SUMS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "latency_ms",
)


class Totals:
    """Sums over the entries that passed. A cost that is not known is counted, not taken as free."""

    def __init__(self) -> None:
        self._agents: dict[str, Counter[str]] = {}
        self._costs: dict[str, float] = {}

    def passing(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries."""
        for entry in entries:
            kind = entry["entry"]
            if kind == CALL:
                self._add(entry["agent"], entry, ("calls", entry["status"]))
            elif kind in _MEMORY:
                self._add(entry["by"], entry, (kind,))
            yield entry

    def _add(self, agent: str, entry: Entry, counted: Iterable[str]) -> None:
        sums = self._agents.setdefault(agent, Counter())
        sums.update(counted)
        for name in _SUMS:
            sums[name] += entry.get(name) or 0
        if entry["cost_usd"] is None:
            sums["cost_unknown"] += 1
        else:
            self._costs[agent] = self._costs.get(agent, 0.0) + entry["cost_usd"]

    def agents(self) -> dict[str, dict[str, Any]]:
        """By agent, in the order in which they were first called."""
        return {agent: _told(sums, self._costs.get(agent)) for agent, sums in self._agents.items()}

    def total(self) -> dict[str, Any]:
        """Over all of them."""
        whole: Counter[str] = Counter()
        for sums in self._agents.values():
            whole.update(sums)
        return _told(whole, sum(self._costs.values()) if self._costs else None)


def _told(sums: Counter[str], cost: float | None) -> dict[str, Any]:
    """`cost_usd` is the sum of what is known, None where nothing is; `cost_unknown` is the number
    of calls whose cost is not."""
    told: dict[str, Any] = {name: count for name, count in sums.items() if name not in _SUMS}
    unknown = told.pop("cost_unknown", 0)
    told |= {name: sums[name] for name in _SUMS}
    told["cost_usd"] = None if cost is None else round(cost, 10)
    told["cost_unknown"] = unknown
    return told
