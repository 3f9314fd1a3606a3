"""Build the parts of a page: lanes of agents, and the table of a conversation.

The table has turns and their phases down, agents across.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from arena_cli.protocol import Message, Usage
from arena_cli.reports import event_lines, lines
from arena_cli.reports.budgets import make_tally
from arena_cli.reports.control_lines import find_tone
from arena_cli.reports.html.page_text import CollapsibleText, of_lines, of_markdown, of_text
from arena_cli.reports.lines import Words, avatar
from arena_cli.reports.timeline import AGENT_STYLES
from arena_cli.transcript.conversation import Chain, Reply, Turn
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    Reasons,
    ReplyFinished,
    SessionEvent,
    SideEvent,
)
from arena_cli.transcript.revisions import NO_REVISIONS, Revisions
from arena_cli.util.text import escape_line

MOST_LANES = 5  # columns that agents have even if they were only passed over


View = dict[str, Any]
"""What a template draws, by name."""


class Who(NamedTuple):
    """An agent as a page shows it; `colour` is a number below `AGENT_STYLES`."""

    id: str
    name: str
    face: str = ""
    role: str = ""
    colour: int = 0


class Lane(NamedTuple):
    """A column of a timeline: an agent, the number of its replies, and their usage."""

    who: Who
    replies: int = 0
    usage: Usage | None = None


class Cast:
    """All participants of a session, from its `session` events. `avatars` are by agent id."""

    def __init__(self, sessions: Iterable[SessionEvent], avatars: Mapping[str, str]) -> None:
        self._avatars = avatars
        self._everybody: dict[str, Who] = {}
        self.config: dict[str, object] = {}
        for session in sessions:
            self.config = session.config
            for index, member in enumerate(session.members):
                self._everybody[member.id] = self._who(
                    member.id, member.name, member.role, index % AGENT_STYLES
                )

    @property
    def members(self) -> list[Who]:
        """All members, in team order."""
        return list(self._everybody.values())

    def who(self, agent: str) -> Who:
        """Return a member, also one that has left the team."""
        cast_member = self._everybody.get(agent)
        return cast_member or self._who(agent, agent, "", zlib.crc32(agent.encode()) % AGENT_STYLES)

    def is_member(self, agent: str) -> bool:
        """Return True if an id is that of an agent, and not of a human."""
        return agent in self._everybody

    def _who(self, agent: str, name: str, role: str, colour: int) -> Who:
        face = avatar(self._avatars.get(agent, ""))
        return Who(escape_line(agent), escape_line(name), face, escape_line(role), colour)

    def lanes(self, turns: Iterable[Turn]) -> dict[str, Lane]:
        """Return the lanes of agents that were called or judged, in team order.

        Of more than `MOST_LANES` those that were only passed over have none.
        """
        turns = list(turns)
        seen = _choose_lanes(turns)
        replies: Counter[str] = Counter()
        usage: dict[str, list[Usage]] = {}
        for turn in turns:
            for done in turn.ends():
                replies[done.agent] += done.status == "success"
                if done.usage:
                    usage.setdefault(done.agent, []).append(done.usage)
        ordered = [agent for agent in self._everybody if agent in seen]
        ordered += [agent for agent in seen if agent not in self._everybody]
        totals = {agent: Usage.total(usages) for agent, usages in usage.items()}
        return {
            agent: Lane(self.who(agent), replies[agent], totals.get(agent)) for agent in ordered
        }


def _choose_lanes(turns: list[Turn]) -> dict[str, None]:
    concerned = dict.fromkeys(agent for turn in turns for agent in turn.concerned)
    if len(concerned) <= MOST_LANES:
        return concerned
    return dict.fromkeys(
        agent
        for turn in turns
        for agent in (*turn.must, *turn.started.deferred, *turn.asked, *turn.replies)
    )


def build_talk(
    items: Iterable[Chain | Event],
    cast: Cast,
    lanes: Mapping[str, Lane],
    say: Words,
    revisions: Revisions = NO_REVISIONS,
) -> View:
    """Return the table of a part of a conversation, with these lanes.

    `idle` did not take part, for `idle_why`; a rewind skips the `skipped` rows.
    """
    items, table = list(items), _Table(cast, lanes, say)
    rows = [row for item in items for row in table.rows(item)]
    skipped = {index for index, (seq, _) in enumerate(rows) if revisions.is_skipped(seq)}
    chains = [item for item in items if isinstance(item, Chain)]
    reason = say("not asked (it answers only when it is named)")
    if cast.config.get("selection") == "none":
        reason = say("not asked (selection: none)")
    return {
        "lanes": list(lanes.values()),
        "rows": [row for _, row in rows],
        "has_phases": any(row["kind"] == "phase" for _, row in rows),
        "idle": _list_idle(chains, cast),
        "idle_why": reason,
        "skipped": skipped,
    }


def _list_idle(chains: Sequence[Chain], cast: Cast) -> list[Who]:
    """Return the members that were not called; of a part of a chain, that is not known."""
    if not any(chain.first for chain in chains) or not any(chain.finished for chain in chains):
        return []
    concerned = {agent for chain in chains for turn in chain.turns for agent in turn.concerned}
    names = set(map(escape_line, concerned))
    return [member for member in cast.members if member.id not in names]


def _list_acting(reply: int, turn: Turn) -> list[Any]:
    """Return the events of a reply with tools; none for others."""
    events = (event for event in turn.side_events if event.is_acting)
    return [event for event in events if getattr(event, "reply", 0) == reply]


def _acting_lines() -> Any:
    return import_module("arena_cli.reports.acting_lines")


def _make_cell(who: Who) -> View:
    """Return the part of an agent in a phase: its replies, or the reason for none."""
    return {"who": who, "cards": [], "why": ""}


def _make_card(who: Who, **fields: Any) -> View:
    """Return a reply. `status` is empty while there is none; `calls` are agents, then humans."""
    texts = dict.fromkeys(("status", "ts", "clock", "error", "text"), "")
    lists: View = {name: [] for name in ("by", "calls", "humans", "notes", "facts", "steps")}
    return {"who": who, **texts, **lists, **fields}


class _Table:
    """Makes the rows of a table."""

    def __init__(self, cast: Cast, lanes: Mapping[str, Lane], say: Words) -> None:
        self._cast = cast
        self._lanes = lanes
        self._say = say
        self._budget = make_tally(cast.config)
        self._planner_calls: list[Any] = []

    def rows(self, item: Chain | Event) -> Iterator[tuple[int, View]]:
        """Yield the rows of a chain, or of an event between chains, each with its event's seq."""
        if self._budget is not None:
            self._budget.apply_item(item)
        if not isinstance(item, Chain):
            yield from ((item.seq, row) for row in self._event(item))
            return
        turns = {turn.started.turn: turn for turn in item.turns}
        drawn: set[tuple[int, str]] = set()
        for event in item.events:
            turn = turns.get(getattr(event, "turn", 0))
            if turn is None or isinstance(event, SideEvent):
                yield from ((event.seq, row) for row in self._event(event))
                continue
            phase = "B" if event is turn.candidates else getattr(event, "phase", "A")
            if (turn.started.turn, phase) not in drawn:
                drawn.add((turn.started.turn, phase))
                yield from ((event.seq, row) for row in self._phase(turn, phase))

    def _event(self, event: Event) -> Iterator[View]:
        match event:
            case MessageEvent():
                yield self._said(event)
            case ChainFinished():
                yield self._end(event)
            case SideEvent(is_acting=True):
                if not getattr(event, "reply", 0):
                    self._planner_calls.append(event)
                return  # it is in the card of its reply, or below the plan
            case _:
                line = event_lines.render_event(event, self._say, self._name)
                if line is None:
                    return
                details = [*self._list_planner_calls(event)]
                details += event_lines.render_details(event, self._say, self._name)
                tone = find_tone(event) if event.is_control else ""
                pieces = [span for span in line.spans if not (tone and span.style == "rule")]
                yield {
                    "kind": "note",
                    "pieces": pieces,
                    "tone": tone,
                    "details": of_lines(details) if details else None,
                }

    def _list_planner_calls(self, event: Event) -> list[lines.Line]:
        """Return the calls of tools that led to a plan."""
        if event.type != "planned" or not self._planner_calls:
            return []
        calls, self._planner_calls = self._planner_calls, []
        return list(_acting_lines().draw_calls(calls, self._say, self._name))

    def _name(self, agent: str) -> str:
        return self._cast.who(agent).name

    def _phase(self, turn: Turn, phase: str) -> Iterator[View]:
        """Yield the row of a phase; an empty one has none, unless it is a turn's first.

        It has a cell for each lane; `folded` are the agents without a lane that were passed over.
        """
        cells = {agent: _make_cell(lane.who) for agent, lane in self._lanes.items()}
        if phase == "A":
            for agent in turn.started.deferred:
                cells[agent]["why"] = self._say("deferred to the next turn")
        kept_out = turn.started.passed_over
        reasons = {
            agent: reason
            for agent, reason in turn.passed_over.items()
            if (agent in kept_out) == (phase == "A")
        }
        folded = self._explain_passed_over(reasons, cells)
        for agent, reply in turn.replies.items():
            if reply.phase == phase:
                cells[agent]["cards"] += self._cards(reply, turn)
        has_heading = phase == "A" and not turn.is_made_up
        has_cells = any(cell["cards"] or cell["why"] for cell in (*cells.values(), *folded))
        if has_heading or turn.asked or has_cells:
            yield {
                "kind": "phase",
                "phase": phase,
                "turn": turn.number,
                "number": turn.started.turn,
                "cells": cells,
                "folded": folded,
            }

    def _explain_passed_over(self, reasons: Reasons, cells: Mapping[str, View]) -> list[View]:
        """Write into cells why agents were passed over; return those without a column."""
        folded: list[View] = []
        for agent, over in reasons.items():
            reason = lines.passed_over(over, self._say)
            cell = cells.get(agent) or _make_cell(self._cast.who(agent))
            cell["why"] = self._say("passed over: {who}", who=reason)
            folded += [] if agent in cells else [cell]
        return folded

    def _cards(self, reply: Reply, turn: Turn) -> Iterator[View]:
        mentioned_by = turn.started.mentioned_by if turn.started.depth else {}
        by = [self._cast.who(agent) for agent in mentioned_by.get(reply.agent, ())]
        for done in reply.ends:
            yield self._card(done, by if reply.phase == "A" else [], turn)
        if reply.is_running:
            steps = self._steps(reply.number, turn)
            yield _make_card(self._cast.who(reply.agent), by=by, steps=steps)

    def _said(self, event: MessageEvent) -> View:
        message = event.message
        name = message.author_name
        if message.author_type == "agent":
            name = self._cast.who(message.author_id).name
        return {
            "kind": "said",
            "name": escape_line(name),
            "author": message.author_type,
            "ts": event.ts,
            "clock": lines.clock(event.ts),
            "text": self._text(message),
            "planted": event.planted,
            "exchange": self._name_exchange(event) or self._name_thread(message),
            "is_private": bool(message.thread or (event.exchange and not event.is_announcement)),
            "notes": self._unresolved(event.unresolved),
        }

    def _name_exchange(self, event: MessageEvent) -> str:
        """Return the exchange of a message, "" if it belongs to none."""
        if not event.exchange:
            return ""
        if event.is_announcement:
            return self._say("announces exchange {number}", number=event.exchange)
        author = event.message.author_id
        to = [self._name(name) for name in event.message.shown_to if name != author]
        number = self._say("exchange {number}", number=event.exchange)
        return f"→ {self._say(', ').join(to)} · {number}"

    def _name_thread(self, message: Message | None) -> str:
        """Return the task in whose thread a message is, "" if it is in none."""
        if message is None or not message.thread:
            return ""
        return self._say("thread {task}", task=message.thread)

    def _card(self, done: ReplyFinished, by: list[Who], turn: Turn) -> View:
        message = done.message
        mentioned = message.mentions if message else []
        # A reply that was interrupted and continued has its steps where they end.
        reply = turn.replies[done.agent]
        is_last = reply.ends[-1] is done and not reply.is_running
        return _make_card(
            self._cast.who(done.agent),
            status=done.status,
            ts=done.ts,
            clock=lines.clock(done.ts),
            by=by,
            error=of_text(self._say.message(done.error)) if done.error else None,
            text=self._text(message) if message else None,
            calls=[self._cast.who(agent) for agent in done.next_mentions],
            humans=[escape_line(name) for name in mentioned if not self._cast.is_member(name)],
            notes=[
                *lines.remarks(done, self._say),
                *self._called_already(done, turn),
                *self._refused(done),
                *self._unresolved(done.unresolved),
            ],
            facts=[
                *self._facts(done),
                *filter(None, [self._name_thread(message)]),
                *(self._describe_end(done.reply, turn) if is_last else ()),
            ],
            steps=self._steps(done.reply, turn) if is_last else [],
        )

    def _steps(self, reply: int, turn: Turn) -> list[View]:
        """Return the steps of a reply with tools."""
        events = _list_acting(reply, turn)
        if not events:
            return []
        steps = _acting_lines().list_page_steps(events, self._say, self._name)
        return [
            {
                "pieces": step.spans,
                "depth": step.depth,
                "details": of_lines(step.details) if step.details else None,
            }
            for step in steps
        ]

    def _describe_end(self, reply: int, turn: Turn) -> list[str]:
        events = _list_acting(reply, turn)
        ended = _acting_lines().find_end(events) if events else None
        if ended is None:
            return []
        return [span.text for span in _acting_lines().describe_end(ended, self._say)]

    def _facts(self, event: ReplyFinished) -> list[str]:
        facts = [self._say("{seconds} s", seconds=f"{event.latency_ms / 1000:.1f}")]
        if event.usage:
            facts.append(lines.tokens(event.usage))
        if refused := lines.cost_not_taken(event.metadata, self._say):
            facts.append(refused)
        if event.attempts > 1:
            facts.append(self._say("{count} attempts", count=event.attempts))
        return facts

    def _called_already(self, done: ReplyFinished, turn: Turn) -> list[str]:
        """Return a note for each agent that a reply mentions in vain: its turn called it before."""
        called = {*turn.started.must, *(turn.asked if done.phase == "B" else ())}
        if turn.finished is None:
            return []
        return [
            self._say(lines.CALLED_ALREADY, who=self._cast.who(agent).name)
            for agent in done.next_mentions
            if agent in called and agent not in turn.finished.next
        ]

    def _refused(self, event: ReplyFinished) -> list[str]:
        text = "may not call {who}: {reason}"
        return [
            self._say(text, who=self._name(agent), reason=escape_line(reason))
            for agent, reason in event.refused.items()
        ]

    def _unresolved(self, names: list[str]) -> list[str]:
        if not names:
            return []
        members = {member.id: member.name for member in self._cast.members}
        return [lines.unresolved(names, members, self._say)]

    def _end(self, event: ChainFinished) -> View:
        say = self._say
        notes = []
        if event.end == "no_reply" and event.turns and self._cast.members:
            name = f"@{self._cast.members[0].id}"
            notes.append(say("To call an agent, mention it in the message: {name}", name=name))
        budget = self._budget.end_rows(event) if self._budget else ()
        return {
            "kind": "end",
            "end": event.end,
            "awaits": [escape_line(human) for human in event.awaits],
            "facts": [
                lines.count_replies(event, say),
                lines.tokens(event.usage),
                *(row.describe(say) for row in budget),
            ],
            "notes": notes,
        }

    def _text(self, message: Message) -> CollapsibleText:
        return of_markdown(lines.draw_message(message, self._say))
