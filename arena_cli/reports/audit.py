"""Turn a session's events into the entries of its audit, as plain data for every format.

An entry has `entry` (its kind), the `seq` and `time` of its event, and the fields of its kind. A
`message` holds a text. A `call` is one reply, regardless of its end: the agent, its input, its
notes, its cost, and the text of the answer. `session`, `note`, `context_usage`, `compacted`,
`deviation`, `extracted` and `chain_finished` have the fields of their events. Only open calls are
kept in memory, so a session may have any length.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.protocol import Message, Usage
from arena_cli.transcript.conversation import Chain, follow
from arena_cli.transcript.events import (
    FREE_KINDS,
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    SideEvent,
)
from arena_cli.util import text

Entry = dict[str, Any]

CALL = "call"
MESSAGE = "message"
UNFINISHED = "unfinished"

_APART = {"seq", "ts", "type", "metadata", "usage", "session_usage"}
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def conversation(events: Iterable[Event]) -> Iterator[Entry]:
    """Yield the conversation in order.

    An entry `message` for each message of a person, of the system,
    and of an agent that answered.
    """
    for event in events:
        message = event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
        if message is None or (isinstance(event, ReplyFinished) and event.status != "success"):
            continue
        turn = event.turn if isinstance(event, ReplyFinished) else None
        planted = isinstance(event, MessageEvent) and event.planted
        yield _message(event, message, turn=turn, planted=planted)


def audit(events: Iterable[Event]) -> Iterator[Entry]:
    """Yield every message and every call, in the order in which they ended, and the other entries.

    A call that is still running, or was cut off by a crash, is yielded as `unfinished` when its
    chain ends, else at the end.
    """
    last: Chain | None = None
    for event, chain in follow(events):
        if last and chain is not last:
            yield from _unfinished(last)
        yield from _entries(event, chain)
        last = None if chain is None or chain.finished else chain
    if last:
        yield from _unfinished(last)


def _entries(event: Event, chain: Chain | None) -> Iterator[Entry]:
    match event:
        case SessionEvent():
            name = event.model_dump(mode="json", include={"team", "members"})
            yield {**_event_entry("session", event), **name}
        case MessageEvent():
            yield _message(event, event.message, planted=event.planted)
        case ReplyFinished():
            yield _call(event, chain)
        case ChainFinished():
            yield from _unfinished(chain)
            yield _event_entry(event.type, event)
        case SideEvent():
            yield _event_entry(event.type, event)
        case _:
            pass


def _unfinished(chain: Chain | None) -> Iterator[Entry]:
    """Yield the calls of a chain's last turn that have no end."""
    for reply in chain.turns[-1].replies.values() if chain and chain.turns else ():
        if chain and reply.started and reply.is_running:
            yield {
                **_event_entry(CALL, reply.started),
                **_asked(reply.started, chain),
                "status": UNFINISHED,
                **_usage(None, free=reply.adapter in FREE_KINDS),
            }


def _call(done: ReplyFinished, chain: Chain | None) -> Entry:
    turn = chain.turns[-1] if chain and chain.turns else None
    reply = turn.replies.get(done.agent) if turn else None
    started = reply.started if reply else None
    entry: Entry = {**_event_entry(CALL, done)}
    if started is None or chain is None:  # its line cannot be read
        entry |= {"turn": done.turn, "phase": done.phase, "reply": done.reply}
        entry["agent"] = done.agent
    else:
        entry |= _asked(started, chain)
    entry |= {
        "status": done.status,
        "attempts": done.attempts,
        **_usage(done.usage, free=started is not None and started.adapter in FREE_KINDS),
        "latency_ms": done.latency_ms,
        "error": done.error,
    }
    if done.refused_actions:
        entry["refused"] = [str(action) for action in done.refused_actions]
    if done.message is not None:
        entry |= _content(done.message, done.next_mentions)
    partial = done.metadata.get("partial")
    if isinstance(partial, str) and partial:
        entry["partial"] = partial
    return entry


def _asked(started: ReplyStarted, chain: Chain) -> Entry:
    """Return the fields of a call's input."""
    agent, turn = started.agent, chain.turns[-1].started
    entry: Entry = {"chain": turn.chain}
    for name in ("turn", "phase", "reply", "agent", "adapter", "invocation"):
        entry[name] = getattr(started, name)
    entry["attempts"] = started.attempt
    entry["input_hash"] = started.input_hash
    entry["input_tokens_estimated"] = started.input_tokens
    entry["trigger"] = chain.trigger_for(agent, started.phase)
    mentioners = turn.mentioned_by.get(agent, []) if started.phase == "A" else []
    entry["mentioned_by"] = list(mentioners)
    entry["notes_shown"] = list(started.notes)
    return entry


def _event_entry(kind: str, event: Event) -> Entry:
    """Return the entry of an event; for an event other than a reply it has all fields."""
    entry: Entry = {"entry": kind, "seq": event.seq, "time": event.ts}
    if isinstance(event, (SideEvent, ChainFinished)):
        entry |= event.model_dump(mode="json", exclude=_APART)
    if isinstance(event, SideEvent) and "usage" in type(event).model_fields:
        call = event.agent_call
        entry |= _usage(call.usage if call else None, free=call is None or call.is_free)
    return entry


def _message(
    event: Event, message: Message, *, turn: int | None = None, planted: bool = False
) -> Entry:
    entry: Entry = {**_event_entry(MESSAGE, event)}
    if isinstance(event, MessageEvent) and event.chain is not None:
        entry["chain"] = event.chain
    if turn is not None:
        entry["turn"] = turn
    entry |= {
        "author_id": message.author_id,
        "author_name": message.author_name,
        "author_type": message.author_type,
        "kind": message.kind,
    }
    if planted:
        entry["planted"] = True
    return entry | _content(message, message.mentions)


def _content(message: Message, to: Sequence[str]) -> Entry:
    entry: Entry = {"message_id": message.id, "to": list(to)}
    if message.reply_to:
        entry["reply_to"] = message.reply_to
    entry["text"] = message.content
    entry["text_sha256"] = hashlib.sha256(message.content.encode("utf-8", "replace")).hexdigest()
    entry["attachments"] = [
        item.model_dump(mode="json", exclude={"data"}) for item in message.attachments
    ]
    if message.structured:
        entry["structured"] = [item.model_dump(mode="json") for item in message.structured]
    return entry


def _usage(usage: Usage | None, *, free: bool) -> Entry:
    """Return the token counts and the cost; None if unknown, 0 for a `free` call without a cost."""
    if usage is None and not free:
        return {**dict.fromkeys(_TOKENS), "tokens_estimated": None, "cost_usd": None}
    used = usage or Usage()
    cost = 0.0 if free and used.cost_usd is None else used.cost_usd
    counts = {name: getattr(used, name) for name in _TOKENS}
    return {**counts, "tokens_estimated": used.estimated, "cost_usd": cost}


_SUMS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "latency_ms",
)


class Totals:
    """Sums over the entries that passed. An unknown cost is counted as unknown, not as free."""

    def __init__(self) -> None:
        self._agents: dict[str, Counter[str]] = {}
        self._costs: dict[str, float] = {}

    def passing(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the same entries and add each call to the totals."""
        for entry in entries:
            kind = entry["entry"]
            if kind == CALL:
                self._add(entry["agent"], entry, ("calls", entry["status"]))
            elif "cost_usd" in entry:
                self._add(entry.get("by") or entry["agent"], entry, (kind,))
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


@dataclass
class AuditRecord:
    """The record of a session: its name, its current members, and its events, read once.

    With `audit` it has every call, not only the conversation. `totals` and `unreadable`, the number
    of unreadable lines of the transcript, are known once all entries have passed.
    """

    session: str
    opening: SessionEvent | None
    events: Iterable[Event]
    audit: bool = False
    totals: Totals = field(default_factory=Totals)
    unreadable: int = 0

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the record, in order."""
        if not self.audit:
            yield from conversation(self.events)
            return
        yield from self.totals.passing(audit(self.events))

    def facts(self) -> dict[str, Any]:
        """Return the facts of the session: its id, its team, and its members."""
        opening = self.opening
        fields: dict[str, Any] = {
            "session": self.session,
            "team": opening.team if opening else None,
            "members": [member.model_dump(mode="json") for member in opening.members]
            if opening
            else [],
            "audit": self.audit,
        }
        if opening and opening.scenario is not None:
            fields["scenario"] = opening.scenario
        return fields


VERSION = 1


def write_json(record: AuditRecord) -> Iterator[str]:
    """Yield the JSON document, piece by piece; texts are kept unchanged."""
    facts = {"version": VERSION, **record.facts()}
    yield "{" + "".join(f"{_json(name)}: {_json(value)},\n" for name, value in facts.items())
    yield '"entries": ['
    mark = "\n"
    for entry in record.entries():
        yield mark + _json(entry)
        mark = ",\n"
    yield "\n]"
    if record.audit:
        yield f',\n"agents": {_json(record.totals.agents())}'
        yield f',\n"total": {_json(record.totals.total())}'
    yield f',\n"unreadable_lines": {record.unreadable}' + "}\n"


def write_json_list(records: Iterable[AuditRecord]) -> Iterator[str]:
    """Yield one document with the documents of several sessions, piece by piece."""
    yield f'{{"version": {VERSION},\n"sessions": ['
    mark = "\n"
    for record in records:
        yield mark
        yield from write_json(record)
        mark = ","
    yield "]}\n"


def _json(value: Any) -> str:
    return text.escape_json(json.dumps(value, ensure_ascii=False))
