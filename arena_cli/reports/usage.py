"""Add up usage by agent, model, day or scenario, and draw its table; sum that of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from arena_cli.protocol import Usage
from arena_cli.reports.columns import fit, pad, width_of
from arena_cli.reports.lines import Line, Span, Words, line
from arena_cli.transcript.events import (
    FREE_KINDS,
    Compacted,
    Event,
    Extracted,
    HeedJudged,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    SideEvent,
)
from arena_cli.util.text import escape_line

By = Literal["agent", "model", "day", "scenario"]

_NARROWEST_NAME = 12
_GAP = "  "
_COUNTS = ("input", "cache read", "cache write", "output")
_TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


@dataclass
class UsageRow:
    """The usage of one agent, model, day or scenario; `name` is None if it is unknown.

    `memory` is work for the team's memory: summaries, and the search for notes. `failed` is the
    number of `calls` that ended as an error, late or cancelled. Of `uncounted` calls no tokens are
    known, of `unpriced` ones no cost; `cost_usd` is the sum of the others. `estimated` is True if
    some of the tokens are estimated.
    """

    name: str | None
    memory: bool = False
    calls: int = 0
    failed: int = 0
    uncounted: int = 0
    unpriced: int = 0
    estimated: bool = False
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> list[int]:
        """The tokens of the input, read from the cache, written to the cache, and of the output."""
        return [getattr(self, name) for name in _TOKENS]

    def add(self, usage: Usage | None, *, failed: bool, free: bool) -> None:
        """Add one call with all its attempts."""
        self.calls += 1
        self.failed += failed
        if usage is None:
            self.uncounted += not free
            self.unpriced += not free
            return
        self.estimated |= usage.estimated
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + getattr(usage, name))
        if usage.cost_usd is not None:
            self.cost_usd = round(self.cost_usd + usage.cost_usd, 10)
        else:
            self.unpriced += not free

    def document(self) -> dict[str, Any]:
        """Return the row as JSON; `cost_usd` is null if no call's cost is known."""
        is_unknown = self.calls and self.unpriced == self.calls
        return {**vars(self), **({"cost_usd": None} if is_unknown else {})}


@dataclass
class Ledger:
    """Rows by name, from the events of any number of sessions; call `session` before each."""

    by: By
    sessions: int = 0
    total: UsageRow = field(default_factory=lambda: UsageRow(None))
    _rows: dict[tuple[str | None, bool], UsageRow] = field(default_factory=dict)
    _scenario: str | None = None
    _kinds: dict[int, str] = field(default_factory=dict)
    _models: dict[str, str] = field(default_factory=dict)

    def session(self) -> None:
        """Begin another session, to which the following events belong."""
        self.sessions += 1
        self._scenario = None
        self._kinds.clear()
        self._models.clear()

    def apply(self, event: Event) -> None:
        """Apply one event."""
        match event:
            case SessionEvent():
                self._scenario = event.scenario or self._scenario
            case ReplyStarted():
                self._kinds[event.reply] = event.adapter
            case ReplyFinished():
                kind = self._kinds.pop(event.reply, "")
                self._models[event.agent] = _model(event.metadata, kind)
                failed = event.status not in ("success", "declined")
                free = kind in FREE_KINDS
                self._add(event, event.agent, event.usage, failed=failed, free=free)
            case SideEvent():
                self._remembered(event)
            case _:
                pass

    def rows(self) -> list[UsageRow]:
        """Return the rows, the most expensive first, then those with the most tokens."""
        return sorted(
            self._rows.values(),
            key=lambda row: (-row.cost_usd, -sum(row.tokens), row.name or "", row.memory),
        )

    def document(self) -> dict[str, Any]:
        """Return the ledger as JSON."""
        return {
            "by": self.by,
            "sessions": self.sessions,
            "rows": [row.document() for row in self.rows()],
            "total": self.total.document(),
        }

    def _remembered(self, event: SideEvent) -> None:
        """Add the call of an event, which is no reply: for control, as a tool, or for memory."""
        call = event.agent_call
        if call is None:
            return
        kind = str(call.metadata.get("adapter", ""))
        model = _model(call.metadata, kind)
        self._models[call.agent] = model or self._models.get(call.agent, "")
        memory = isinstance(event, (Compacted, Extracted, HeedJudged))
        counts = {"failed": call.failed, "free": call.is_free}
        self._add(event, call.agent, call.usage, memory=memory, **counts)

    def _add(
        self, event: Event, agent: str, usage: Usage | None, *, memory: bool = False, **counts: bool
    ) -> None:
        names = {
            "agent": agent,
            "model": self._models.get(agent) or None,
            "day": event.ts[:10],
            "scenario": self._scenario,
        }
        key = (names[self.by], memory)
        row = self._rows.setdefault(key, UsageRow(*key))
        row.add(usage, **counts)
        self.total.add(usage, **counts)


def _model(metadata: Mapping[str, Any], kind: str) -> str:
    """Return the model that answered; if it is unknown, the kind of agent in parentheses."""
    model = metadata.get("model")
    if isinstance(model, str) and model:
        return model
    raw = metadata.get("raw")
    answered = raw.get("model") if isinstance(raw, dict) else None
    if isinstance(answered, str) and answered:
        return answered
    return f"({kind})" if kind else ""


def draw_usage(ledger: Ledger, say: Words, width: int) -> Iterator[Line]:
    """Yield the table in `width` columns; if it is too narrow, each row goes below its name."""
    rows = ledger.rows()
    total = ledger.total
    names = [*(_name(row, ledger.by, say) for row in rows), say("total")]
    figures = [_figures(row, say) for row in (*rows, total)]
    heads = [say("calls ").strip(), *(say(name) for name in _COUNTS), say("cost")]
    columns = list(zip(heads, *figures, strict=True))
    widths = [max(map(width_of, column)) for column in columns]
    room = width - sum(widths) - len(_GAP) * len(widths)
    if room < _NARROWEST_NAME:
        yield from _stacked(names, figures, heads)
    else:
        head = say(ledger.by)
        name_width = min(room, max(map(width_of, (head, *names))))
        table = zip((head, *names), (heads, *figures), strict=True)
        for index, (name, row) in enumerate(table):
            cells = [
                " " * (room - width_of(cell)) + cell for room, cell in zip(widths, row, strict=True)
            ]
            text = _GAP.join((pad(fit(name, name_width), name_width), *cells)).rstrip()
            yield line(Span(text, "" if index else "dim"))._replace(whole=True)
    yield from _remarks(total, say)


def _stacked(names: list[str], figures: list[list[str]], heads: list[str]) -> Iterator[Line]:
    for name, row in zip(names, figures, strict=True):
        yield line(Span(name, "strong"))
        told = " · ".join(f"{head} {one}" for head, one in zip(heads, row, strict=True))
        yield line("  ", told, hang=2)


def _name(row: UsageRow, by: By, say: Words) -> str:
    unknown = "(no scenario)" if by == "scenario" else "(unknown)"
    name = escape_line(row.name) if row.name else say(unknown)
    return say("{name} (memory)", name=name) if row.memory else name


def _figures(row: UsageRow, say: Words) -> list[str]:
    about = "~" if row.estimated else ""
    tokens = [f"{about if count else ''}{count:,}" for count in row.tokens]
    cost = f"${row.cost_usd:,.4f}"
    if row.unpriced and row.unpriced == row.calls:
        cost = say("unknown")
    elif row.unpriced:
        cost = say("{cost} + unknown", cost=cost)
    return [f"{row.calls:,}", *tokens, cost]


def _remarks(total: UsageRow, say: Words) -> Iterator[Line]:
    remarks = {
        "failed calls, included: {count}": total.failed,
        "calls without a token count: {count}": total.uncounted,
        "calls of unknown cost: {count}": total.unpriced,
    }
    for text, count in remarks.items():
        if count:
            yield line(Span(say(text, count=count), "dim"))


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
