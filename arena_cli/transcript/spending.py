"""Add up what agents used: tokens and US dollars, by agent, in a chain, a session and a day.

Budgets are checked against these sums (`engine.budget`), and reports show them. A transcript is the
only record of what was used; `TranscriptSpending` follows one, and reads only what is new in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from arena_cli.protocol import Usage
from arena_cli.transcript.events import Event, ReplyFinished, ReplyStarted, SideEvent, TurnStarted
from arena_cli.transcript.reader import TRANSCRIPT, parse_events
from arena_cli.util import files

Unit = Literal["tokens", "usd"]
UNITS: tuple[Unit, ...] = ("tokens", "usd")

ALL = ""
"""The key of the sum over all agents; no agent has this id."""

_USES = b'"usage":{'
_STARTS = b'"type":"reply_started"'
_ENDS = b'"type":"reply_finished"'
_FORKS = b'"type":"forked"'


class Spent(NamedTuple):
    """An amount that was used, or may be: tokens of all kinds, and US dollars."""

    tokens: int = 0
    usd: float = 0.0

    def plus(self, other: Spent) -> Spent:
        """Return the sum."""
        return Spent(self.tokens + other.tokens, round(self.usd + other.usd, 10))

    def of_unit(self, unit: Unit) -> float:
        """Return the number of tokens, or of dollars."""
        return self.tokens if unit == "tokens" else self.usd


Price = Callable[[str, Usage], float]
"""Returns the cost of an agent's usage in US dollars."""


def known_cost(_: str, usage: Usage) -> float:
    """Return the cost that was reported; one that is not known counts as 0."""
    return usage.cost_usd or 0.0


def count_tokens(usage: Usage) -> int:
    """Return the tokens of a usage, cached ones included."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return usage.input_tokens + usage.output_tokens + cached


def read_spent(event: Event, price: Price = known_cost) -> tuple[str, Spent] | None:
    """Return the agent that an event reports a call of, and what it used; None for other events."""
    if isinstance(event, ReplyFinished):
        agent, usage = event.agent, event.usage
    elif isinstance(event, SideEvent) and (call := event.agent_call):
        agent, usage = call.agent, call.usage
    else:
        return None
    if usage is None:
        return None
    return agent, Spent(count_tokens(usage), price(agent, usage))


class SpentByAgent:
    """Sums by agent; `ALL` is that of all agents."""

    def __init__(self) -> None:
        self._by_agent: dict[str, Spent] = {}

    def add(self, agent: str, spent: Spent) -> None:
        """Add what an agent used."""
        for key in (ALL, agent):
            self._by_agent[key] = self.spent(key).plus(spent)

    def add_all(self, other: SpentByAgent) -> None:
        """Add the sums of another part."""
        for key, spent in other._by_agent.items():
            self._by_agent[key] = self.spent(key).plus(spent)

    def spent(self, agent: str) -> Spent:
        """Return the sum of an agent."""
        return self._by_agent.get(agent, _NOTHING)


_NOTHING = Spent()


def sum_chain(
    events: Iterable[Event], price: Price = known_cost
) -> tuple[SpentByAgent, SpentByAgent]:
    """Return what the last turn of a chain used, and what the chain used, from its events."""
    turn, chain = SpentByAgent(), SpentByAgent()
    for event in events:
        if isinstance(event, TurnStarted):
            turn = SpentByAgent()
        elif (used := read_spent(event, price)) is not None:
            turn.add(*used)
            chain.add(*used)
    return turn, chain


class Running(NamedTuple):
    """A reply that has started and not ended: its agent, its estimated input, and its start."""

    agent: str
    input_tokens: int
    ts: str


class TranscriptSpending:
    """The sums of one transcript: of the whole session, and of each day (`YYYY-MM-DD`, UTC)."""

    def __init__(self, path: Path, price: Price = known_cost) -> None:
        self._path = path
        self._price = price
        self._state: tuple[int, int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._clear()

    def _clear(self) -> None:
        self.session = SpentByAgent()
        self.by_day: dict[str, SpentByAgent] = {}
        self.running: dict[int, Running] = {}

    def of_day(self, day: str) -> SpentByAgent:
        """Return the sums of a day."""
        return self.by_day.get(day) or SpentByAgent()

    def follow(self, state: os.stat_result | None = None) -> None:
        """Read what is new; a transcript that cannot be read has the sums that are known."""
        try:
            state = state or self._path.stat()
            seen = (state.st_ino, state.st_size, state.st_mtime_ns)
            if seen == self._state:
                return
            if state.st_size < self._offset or (self._state and seen[0] != self._state[0]):
                self._begin()
            with files.open_binary(self._path) as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return
        end = new.rfind(b"\n") + 1
        self._offset += end
        self._state = seen
        for line in new[:end].splitlines():
            if _USES in line or _STARTS in line or _ENDS in line or _FORKS in line:
                for event in parse_events(line):
                    self._apply(event)

    def _apply(self, event: Event) -> None:
        if isinstance(event, ReplyStarted):
            self.running[event.reply] = Running(event.agent, event.input_tokens, event.ts)
        elif isinstance(event, ReplyFinished):
            self.running.pop(event.reply, None)
        elif event.type == "forked":  # its past was paid for in the other session
            self._clear()
        if (used := read_spent(event, self._price)) is not None:
            self.session.add(*used)
            self.by_day.setdefault(event.ts[:10], SpentByAgent()).add(*used)


class WorkspaceSpending:
    """What the sessions of a workspace used, except one: their transcripts that changed that day.

    `folder` holds the sessions, `own` is the name of that one.
    """

    def __init__(self, folder: Path, own: str, price: Price = known_cost) -> None:
        self._folder = folder
        self._own = own
        self._price = price
        self._sessions: dict[str, TranscriptSpending] = {}

    def follow(self, day_start: datetime) -> list[TranscriptSpending]:
        """Read what is new in the transcripts that changed since the beginning of a day."""
        begins = day_start.timestamp()
        changed = []
        for name in self._list():
            path = self._folder / name / TRANSCRIPT
            try:
                state = path.stat()
            except OSError:
                continue
            if state.st_mtime < begins:
                continue
            session = self._sessions.get(name)
            if session is None:
                session = self._sessions[name] = TranscriptSpending(path, self._price)
            session.follow(state)
            changed.append(session)
        return changed

    def _list(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.name != self._own and entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return []


def format_amount(value: float, unit: Unit) -> str:
    """Return an amount as people read it: `12,450`, or `$0.0213`."""
    return f"{value:,.0f}" if unit == "tokens" else f"${value:,.4f}".removesuffix("00")
