"""The timeline in its plain form: who spoke, when, why, at what cost; who was passed over.

A reader of events, whether they come live or from a file. Text of agents is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from arena_cli.ground.protocol import Attachment, Message, StructuredContent, Usage
from arena_cli.ground.text import shown, shown_line
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    MessageEvent,
    PassedOver,
    Recovered,
    ReplyFinished,
    ReplyStarted,
    Resumed,
    SessionEvent,
    TurnFinished,
    TurnStarted,
)

INDENT = "  "


class Timeline:
    """Turns each event into the lines that tell of it; keeps only what later lines need."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._config: dict[str, object] = {}
        self._chain_turn = 0
        self._tried_before: set[int] = set()
        self._why: dict[str, str] = {}

    def goes_on(self, session: SessionEvent, turns: int) -> Iterator[str]:
        """Take up a session whose earlier events are not told; its open chain has so many turns."""
        yield from self._session(session)
        self._chain_turn = turns

    def lines(self, event: Event) -> Iterator[str]:
        """The lines for one event, without line ends; none for what is not shown."""
        match event:
            case SessionEvent():
                yield from self._session(event)
            case MessageEvent():
                yield from self._message(event)
            case TurnStarted():
                yield from self._turn_started(event)
            case ReplyStarted():
                yield from self._reply_started(event)
            case ReplyFinished():
                yield from self._reply_finished(event)
            case Candidates():
                yield from self._candidates(event)
            case TurnFinished():
                yield ""
            case ChainFinished():
                yield from self._chain_finished(event)
            case Recovered():
                kept = f", kept in {shown_line(event.kept_in)}" if event.kept_in else ""
                yield f"recovered: {shown_line(event.what)} ({event.bytes} bytes set aside{kept})"
            case Resumed():
                yield f"resumed chain {event.chain} after event {event.after_seq}"
                yield ""
            case _:
                pass

    def _session(self, event: SessionEvent) -> Iterator[str]:
        self._names = {member.id: member.name for member in event.members}
        self._config = event.config
        team = f"team {shown_line(event.team)}" if event.team else "every agent"
        yield f"session {shown_line(event.session)} · {team}"
        yield ""

    def _message(self, event: MessageEvent) -> Iterator[str]:
        message = event.message
        if event.chain is not None:
            self._chain_turn = 0
            self._why = {}
        planted = " · planted" if event.planted else ""
        yield f"{_clock(event.ts)}  {self._author(message)}{planted}"
        yield from _body(message)
        yield from _unresolved(event.unresolved)
        yield ""

    def _turn_started(self, event: TurnStarted) -> Iterator[str]:
        self._chain_turn = event.depth + 1
        must = ", ".join(self._called(agent, event) for agent in event.must) or "nobody"
        yield f"── turn {self._chain_turn} · must reply: {must}"
        if event.deferred:
            yield f"{INDENT}deferred to the next turn: {self._list(event.deferred)}"

    def _reply_started(self, event: ReplyStarted) -> Iterator[str]:
        if event.reply in self._tried_before:
            yield f"{INDENT}{self._name(event.agent)}: attempt {event.attempt}"
        self._tried_before.add(event.reply)

    def _reply_finished(self, event: ReplyFinished) -> Iterator[str]:
        facts = [
            f"{self._name(event.agent)}",
            f"turn {self._chain_turn} {event.phase}",
            f"{event.latency_ms / 1000:.1f} s",
        ]
        if event.usage:
            facts.append(_tokens(event.usage))
        if event.status != "success":
            facts.append(event.status)
            self._why[event.agent] = event.status
        if event.attempts > 1:
            facts.append(f"{event.attempts} attempts")
        yield f"{_clock(event.ts)}  {' · '.join(facts)}"
        if event.error:
            yield from _indented(event.error)
        if event.message:
            yield from _body(event.message)
        if event.next_mentions:
            yield f"{INDENT}→ {self._list(event.next_mentions)}"
        for agent, reason in event.refused.items():
            yield f"{INDENT}may not call {self._short(agent)}: {shown_line(reason)}"
        yield from _unresolved(event.unresolved)

    def _candidates(self, event: Candidates) -> Iterator[str]:
        told = []
        for agent, why in event.passed_over.items():
            self._why[agent] = _passed_over(why)
            told.append(f"{self._short(agent)} ({self._why[agent]})")
        if told:
            yield f"{INDENT}passed over: {', '.join(told)}"
        if event.asked:
            yield f"── turn {self._chain_turn} · may reply: {self._list(event.asked)}"

    def _chain_finished(self, event: ChainFinished) -> Iterator[str]:
        replies = "1 reply" if event.replies == 1 else f"{event.replies} replies"
        turns = "1 turn" if event.turns == 1 else f"{event.turns} turns"
        facts = [self._end(event), f"{replies} in {turns}", _tokens(event.usage)]
        yield f"══ {' · '.join(facts)}"
        if event.end == "no_reply":
            for agent in self._names:
                yield f"{INDENT}{self._name(agent)}: {self._why.get(agent) or self._unasked()}"
            first = next(iter(self._names), "id")
            yield f"{INDENT}To call one, name it in the message: @{shown_line(first)}"
        yield ""

    def _end(self, event: ChainFinished) -> str:
        if event.end == "awaiting_human":
            return f"awaiting_human: {', '.join(map(shown_line, event.awaits))}"
        return event.end

    def _unasked(self) -> str:
        if self._config.get("selection") == "none":
            return "not asked (selection: none)"
        return "not asked (it answers only when it is named)"

    def _called(self, agent: str, event: TurnStarted) -> str:
        by = event.mentioned_by.get(agent)
        if not by or event.depth == 0:
            return self._short(agent)
        return f"{self._short(agent)} (mentioned by {self._list(by)})"

    def _author(self, message: Message) -> str:
        if message.author_type == "agent":
            return self._name(message.author_id)
        return shown_line(message.author_name)

    def _name(self, agent: str) -> str:
        name = self._names.get(agent, agent)
        return shown_line(f"{name} ({agent})" if name != agent else agent)

    def _short(self, agent: str) -> str:
        return shown_line(self._names.get(agent, agent))

    def _list(self, agents: list[str]) -> str:
        return ", ".join(self._short(agent) for agent in agents)


def _clock(ts: str) -> str:
    """The time of day, in the zone of whoever looks."""
    try:
        return f"{datetime.fromisoformat(ts).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def _tokens(usage: Usage) -> str:
    """Tokens in and out; `~` before an estimate; the cost where it is known."""
    about = "~" if usage.estimated else ""
    cost = f" · ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return f"{about}{sent} → {about}{usage.output_tokens} tokens{cost}"


def _passed_over(why: PassedOver) -> str:
    if why.threshold is not None:
        return f"relevance {why.relevance:g} < {why.threshold:g}"
    return f"relevance {why.relevance:g}, {shown_line(why.reason or '')}"


def _body(message: Message) -> Iterator[str]:
    yield from _indented(message.content)
    for part in message.structured:
        yield from _structured(part)
    for attachment in message.attachments:
        yield f"{INDENT}{_attachment(attachment)}"


def _structured(part: StructuredContent) -> Iterator[str]:
    import json  # noqa: PLC0415 - few messages carry data

    yield f"{INDENT}[{part.type}]"
    data = part.data
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
    yield from _indented(text, INDENT * 2)


def _attachment(attachment: Attachment) -> str:
    size = f", {attachment.size} bytes" if attachment.size is not None else ""
    path = f" at {shown_line(attachment.path)}" if attachment.path else ""
    return f"[{attachment.type}: {shown_line(attachment.name)}{size}{path}]"


def _indented(text: str, indent: str = INDENT) -> Iterator[str]:
    if text:
        for line in shown(text).split("\n"):
            yield indent + line if line else ""


def _unresolved(names: list[str]) -> Iterator[str]:
    if names:
        said = ", ".join(f"@{shown_line(name)}" for name in names)
        yield f"{INDENT}nobody is called {said}"
