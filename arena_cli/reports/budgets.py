"""Show what is used of a team's budget, wherever tokens are shown: used, bound and percent.

It is imported for sessions whose team has a budget. Costs that no agent reported count as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from arena_cli.reports.lines import Words
from arena_cli.transcript.control_events import BudgetRaised
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import ChainFinished, Event, SessionEvent, TurnStarted
from arena_cli.transcript.spending import (
    ALL,
    UNITS,
    Spent,
    SpentByAgent,
    Unit,
    count_tokens,
    format_amount,
    read_spent,
)
from arena_cli.util.text import escape_line

_OF_CHAIN = ("turn", "chain")


class BudgetRow(NamedTuple):
    """A bound, with what people added to it, and what is used of it.

    `agent` is the agent whose own bound it is, empty for the team's.
    """

    agent: str
    scope: str
    unit: Unit
    used: float
    bound: float

    @property
    def percent(self) -> int:
        """The used part of the bound in percent, rounded down."""
        return int(self.used * 100 / self.bound)

    def describe(self, say: Words) -> str:
        """Return the row as text: `session: 12,450 of 100,000 · 12 %`."""
        text = "{agent}, {scope}: {used} of {bound}" if self.agent else "{scope}: {used} of {bound}"
        amount = say(
            text,
            agent=escape_line(self.agent),
            scope=say.enum(self.scope),
            used=format_amount(self.used, self.unit),
            bound=format_amount(self.bound, self.unit),
        )
        return f"{amount} · {self.percent} %"

    def document(self) -> dict[str, object]:
        """Return the row as JSON."""
        return {**self._asdict(), "percent": self.percent}


class BudgetTally:
    """Adds up the events of a session; `session` begins another one, with sums of its own.

    `day` are the sums of one day over all sessions, for the day's bounds: those of the events that
    are applied, on the day `today` (`YYYY-MM-DD`, UTC), or those that are given.
    """

    def __init__(self, today: str = "", day: SpentByAgent | None = None) -> None:
        self._today = today
        self._day = SpentByAgent() if day is None and today else day
        self._counts_day = day is None and bool(today)
        self._config: Mapping[str, object] = {}
        self._config_ts = ""
        self.session()

    def session(self) -> None:
        """Begin another session."""
        self._sums = {"turn": SpentByAgent(), "chain": SpentByAgent(), "session": SpentByAgent()}
        self._raised: dict[str, dict[Unit, float]] = {}
        self._has_ended = False

    def use_config(self, config: Mapping[str, object], ts: str = "") -> None:
        """Use the bounds of these rules of a team, as `session` events record them."""
        self._config, self._config_ts = config, ts

    def apply(self, event: Event) -> None:
        """Apply one event."""
        if isinstance(event, SessionEvent) and event.ts >= self._config_ts:
            self.use_config(event.config, event.ts)
        if isinstance(event, ChainFinished):
            self._has_ended = True
            return
        if event.type == "forked":  # its past was paid for in the other session
            self.session()
            return
        spent = read_spent(event)
        if spent is None and not isinstance(event, (TurnStarted, BudgetRaised)):
            return
        if self._has_ended:
            self._begin_chain()
        if isinstance(event, TurnStarted):
            self._sums["turn"] = SpentByAgent()
        elif isinstance(event, BudgetRaised):
            self._raise(event)
        elif spent is not None:
            self._add(*spent, day=event.ts[:10])

    def apply_item(self, item: Chain | Event) -> None:
        """Apply the events of a chain, whose end is shown later, or an event between chains."""
        if not isinstance(item, Chain):
            self.apply(item)
            return
        self._has_ended = True  # the one before
        for event in item.events:
            if not isinstance(event, ChainFinished):
                self.apply(event)

    def _begin_chain(self) -> None:
        self._has_ended = False
        for scope in _OF_CHAIN:
            self._sums[scope] = SpentByAgent()
            self._raised.pop(scope, None)

    def _add(self, agent: str, spent: Spent, *, day: str) -> None:
        for sums in self._sums.values():
            sums.add(agent, spent)
        if self._counts_day and self._day and day == self._today:
            self._day.add(agent, spent)

    def _raise(self, event: BudgetRaised) -> None:
        for scope in (*self._sums, *(() if self._counts_day else ("day",))):
            raised = self._raised.setdefault(scope, {})
            raised["tokens"] = raised.get("tokens", 0) + event.tokens
            raised["usd"] = raised.get("usd", 0) + event.usd

    def rows(self, scopes: Iterable[str] = ("turn", "chain", "session", "day")) -> list[BudgetRow]:
        """Return a row for each bound in these scopes, the team's first."""
        return [row for row in self._list_rows() if row.scope in set(scopes)]

    def end_rows(self, event: ChainFinished) -> list[BudgetRow]:
        """Return the team's rows at the end of a chain, which reports what it used."""
        used = {"chain": event.usage, "session": event.session_usage}
        rows = []
        for row in self._list_rows():
            if row.scope in used and not row.agent:
                usage = used[row.scope]
                tokens = row.unit == "tokens"
                spent = count_tokens(usage) if tokens else usage.cost_usd or row.used
                rows.append(row._replace(used=spent))
        return rows

    def _list_rows(self) -> Iterator[BudgetRow]:
        budget = self._config.get("budget")
        if not isinstance(budget, Mapping):
            return
        own = budget.get("agents")
        owners = {ALL: budget, **(own if isinstance(own, Mapping) else {})}
        sums = {**self._sums, **({"day": self._day} if self._day else {})}
        for agent, rules in owners.items():
            for unit in UNITS:
                bounds = rules.get(unit) if isinstance(rules, Mapping) else None
                for scope, bound in bounds.items() if isinstance(bounds, Mapping) else ():
                    if bound and scope in sums:
                        raised = self._raised.get(scope, {}).get(unit, 0)
                        used = sums[scope].spent(agent).of_unit(unit)
                        yield BudgetRow(agent, scope, unit, used, bound + raised)


def make_tally(config: Mapping[str, object]) -> BudgetTally | None:
    """Return the sums for a team's budget, by its rules; None if they have none."""
    if not config.get("budget"):
        return None
    tally = BudgetTally()
    tally.use_config(config)
    return tally


def budget_rows(
    events: Iterable[Event],
    config: Mapping[str, object] | None = None,
    *,
    day: SpentByAgent | None = None,
) -> list[BudgetRow]:
    """Return the rows of a session's budget: of its last turn and chain, the session, and the day.

    `config` are the team's rules, by default those that the session recorded. Without `day`, the
    sums of the day over all sessions, its bounds have no rows.
    """
    tally = BudgetTally(day=day)
    for event in events:
        tally.apply(event)
    if config is not None:
        tally.use_config(config)
    return tally.rows()
