"""The timeline: which agents spoke, when, why, at what cost; which were passed over.

A reader of events, either live or from a file. It makes lines of pieces (`reports.lines`), which a
pipe gets as text (`lines`) and a terminal in colour (`reports.terminal`). Text of agents is
escaped.

An event that is no step of a conversation (a note, a summary, a repair) takes one line, which
`reports.event_lines` makes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arena_cli.protocol import Message
from arena_cli.reports import lines
from arena_cli.reports.event_lines import render_details, render_event
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words, line
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    MessageEvent,
    Reasons,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    SideEvent,
    StatusReported,
    TurnFinished,
    TurnStarted,
)
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.budgets import BudgetTally


def _acting_lines() -> Any:
    """Return the module with the lines of replies with tools, which most sessions have not."""
    return import_module("arena_cli.reports.acting_lines")


def _in_thread(drawn: Line) -> Line:
    """Return a line of a thread next to the turns."""
    hang = None if drawn.hang is None else drawn.hang + len(INDENT) + 2
    return drawn._replace(spans=(Span(f"{INDENT}│ ", "rule"), *drawn.spans), hang=hang)


def _mark_skipped(drawn: Line) -> Line:
    """Return a line of a part that agents no longer see."""
    spans = tuple(Span(span.text, "dim") for span in drawn.spans)
    hang = None if drawn.hang is None else drawn.hang + 2
    return drawn._replace(spans=(Span("┊ " if spans else "┊", "dim"), *spans), hang=hang)


AGENT_STYLES = 10
_MAX_TOOLS_SHOWN = 20

_MOST_ANSWERS = 3
_HEADING = 3
_UNDER_THE_NAME = len("00:00:00  ")


class Timeline:
    """Turn each event into its lines; keep only what later lines need.

    `avatars` by agent id, as profiles have them; what is no short text, an address of a picture
    say, is not shown. `is_live`: the session is the last, so its human can answer with `-c`. The
    lines of events that `is_skipped` by a rewind are marked. With `has_steps`, replies with tools
    are shown with all their steps.
    """

    def __init__(
        self,
        say: Words | None = None,
        avatars: Mapping[str, str] | None = None,
        *,
        is_live: bool = False,
        is_skipped: Callable[[int], bool] | None = None,
        has_steps: bool = False,
    ) -> None:
        self._is_live = is_live
        self._has_steps = has_steps
        self._is_skipped = is_skipped
        self._say = say or Words()
        self._avatars = {agent: lines.avatar(avatar) for agent, avatar in (avatars or {}).items()}
        self._names: dict[str, str] = {}
        self._styles: dict[str, str] = {}
        self._config: dict[str, object] = {}
        self._session_name: str | None = None
        self._budget: BudgetTally | None = None
        self._is_after_blank = False
        self._new_chain()

    def _new_chain(self) -> None:
        self._chain_turn = 0
        self._turn = 0
        self._in_turn = False
        self._is_loose = False  # something stands there that no blank line ends
        self._known_cost = 0.0
        self._tried_before: set[int] = set()
        self._tools_used: dict[int, list[str]] = {}
        self._acting: dict[int, list[Any]] = {}
        self._open_replies: dict[str, int] = {}
        self._why: dict[str, str] = {}
        self._blocked: list[str] | None = None  # tasks, if some are left at the end
        self._called_in_turn: dict[str, str] = {}  # agent: the status of its reply, "" so far

    def goes_on(self, session: SessionEvent, turns: int) -> Iterator[Line]:
        """Yield the heading of a session whose earlier events are not shown.

        Its open chain already has `turns` turns.
        """
        yield from self._session(session)
        self._chain_turn = turns

    def drawn(self, event: Event) -> list[Line]:
        """Return the lines for one event; none for an event that is not shown."""
        is_apart = self._is_loose and isinstance(event, (MessageEvent, ChainFinished))
        self._is_loose = self._is_loose and not is_apart
        if self._budget is not None:
            self._budget.apply(event)
        drawn = [*([EMPTY] if is_apart else ()), *self._drawn(event)]
        if self._is_after_blank and isinstance(event, TurnFinished):
            drawn = []
        if drawn:
            self._is_after_blank = not drawn[-1].spans
        if self._is_skipped and self._is_skipped(event.seq):
            return [_mark_skipped(line) for line in drawn]
        return drawn

    def _drawn(self, event: Event) -> Iterator[Line]:
        match event:
            case SessionEvent():
                yield from self._session(event)
            case MessageEvent():
                yield from self._message(event)
            case TurnStarted():
                self._in_turn = True
                yield from self._turn_started(event)
            case ReplyStarted():
                yield from self._reply_started(event)
            case ReplyFinished():
                yield from self._reply_finished(event)
            case StatusReported():
                self._note_tool(event)
            case Candidates():
                yield from self._candidates(event)
            case TurnFinished():
                self._in_turn = False
                yield EMPTY
            case ChainFinished():
                yield from self._chain_finished(event)
            case _ if event.is_acting:  # shown when its reply has ended
                self._acting.setdefault(getattr(event, "reply", 0), []).append(event)
            case _:
                yield from self._other(event)

    def _other(self, event: Event) -> Iterator[Line]:
        """Yield the lines of an event that is no step of the conversation."""
        text = render_event(event, self._say, self._who)
        if event.type == "planned":
            yield from self._planner_calls()
        if event.type == "exchange_finished":
            yield from map(_in_thread, self._late_calls(getattr(event, "reply", 0)))
        if text is not None:
            yield text
            yield from render_details(event, self._say, self._who)
            self._is_loose = isinstance(event, SideEvent) and not self._in_turn
            if not isinstance(event, SideEvent):
                yield EMPTY

    def named(self, agent: str) -> list[Span]:
        """Return an agent's avatar and name."""
        return [*self._face(agent), self._short(agent)]

    def _session(self, event: SessionEvent) -> Iterator[Line]:
        if event.session != self._session_name:  # each session counts its replies from 1
            self._session_name = event.session
            self._budget = None
            self._new_chain()
        self._names = {member.id: member.name for member in event.members}
        self._styles = {
            member.id: f"agent{index % AGENT_STYLES}" for index, member in enumerate(event.members)
        }
        self._config = event.config
        if event.config.get("budget"):
            self._budget = self._budget or import_module("arena_cli.reports.budgets").BudgetTally()
            self._budget.apply(event)
        name = escape_line(event.team or "")
        team = self._say("team {name}", name=name) if name else self._say("every agent")
        session = self._say("session {name}", name=escape_line(event.session))
        yield line(Span(session, "strong"), BETWEEN, Span(team, "dim"))
        yield EMPTY

    def _message(self, event: MessageEvent) -> Iterator[Line]:
        if event.exchange:
            yield from self._exchanged(event)
            return
        message = event.message
        if event.chain is not None:
            self._new_chain()
        if message.author_type == "system" and isinstance(message.metadata.get("blocked"), list):
            self._blocked = [str(task) for task in message.metadata["blocked"]]
        facts = [Span(self._say("planted"))] if event.planted else []
        yield _heading(event.ts, self._author(message), [*facts, *self._thread(message)])
        yield from lines.draw_message(message, self._say)
        yield from self._unresolved(event.unresolved)
        yield EMPTY

    def _thread(self, message: Message | None) -> Iterator[Span]:
        """Yield the task in whose thread a message is, for its heading."""
        if message is not None and message.thread:
            yield Span(self._say("thread {task}", task=escape_line(message.thread)), "dim")

    def _exchanged(self, event: MessageEvent) -> Iterator[Line]:
        """Yield a message of an exchange in a thread of its own; its announcement like others."""
        if event.is_announcement:
            fact = self._say("announces exchange {number}", number=escape_line(event.exchange))
            yield _heading(event.ts, self._author(event.message), [Span(fact, "dim")])
            yield from self._late_calls(event.reply)
            yield from lines.draw_message(event.message, self._say)
            return
        others = [agent for agent in event.message.shown_to if agent != event.message.author_id]
        author = [*self._author(event.message), Span(" → ", "dim"), *self._list(others)]
        number = Span(self._say("exchange {number}", number=escape_line(event.exchange)), "dim")
        yield _in_thread(_heading(event.ts, author, [number]))
        yield from map(_in_thread, self._late_calls(event.reply))
        yield from map(_in_thread, lines.draw_message(event.message, self._say))

    def _late_calls(self, reply: int) -> Iterator[Line]:
        """Yield the calls for an exchange that were made after the reply that asked."""
        if reply not in self._open_replies.values() and reply in self._acting:
            yield from self._draw_acting(self._acting.pop(reply))

    def _planner_calls(self) -> Iterator[Line]:
        """Yield the calls of a planner, which belong to no reply."""
        if events := self._acting.pop(0, []):
            yield from self._draw_acting(events)

    def _turn_started(self, event: TurnStarted) -> Iterator[Line]:
        self._chain_turn = max(self._chain_turn, event.depth) + 1
        self._turn = event.turn
        self._called_in_turn = dict.fromkeys(event.must, "")
        must = lines.joined((self._called(agent, event) for agent in event.must), self._say(", "))
        yield self._phase("must reply: {who}", must or [Span(self._say("none"))])
        if event.deferred:
            name = self._list(event.deferred)
            yield line(INDENT, self._say.spans("deferred to the next turn: {who}", who=name))
        yield from self._passed_over(event.reasons)

    def _phase(self, problem: str, spans: list[Span]) -> Line:
        turn = self._say("turn {turn}", turn=self._chain_turn)
        if self._turn != self._chain_turn:
            turn = f"{turn} (t{self._turn})"
        said = self._say.spans(problem, who=spans)
        return line(Span("── ", "rule"), Span(turn, "strong"), BETWEEN, said, hang=_HEADING)

    def _called(self, agent: str, event: TurnStarted) -> list[Span]:
        by = event.mentioned_by.get(agent)
        name = [self._short(agent)]
        if not by or event.depth == 0:
            return name
        return [*self._say.spans("{who} (mentioned by {by})", "dim", who=name, by=self._list(by))]

    def _reply_started(self, event: ReplyStarted) -> Iterator[Line]:
        self._open_replies[event.agent] = event.reply
        if event.reply in self._tried_before:
            name = [self._name(event.agent)]
            said = self._say.spans("{who}: attempt {count}", "dim", who=name, count=event.attempt)
            yield line(INDENT, said)
        self._tried_before.add(event.reply)

    def _reply_finished(self, event: ReplyFinished) -> Iterator[Line]:
        say = self._say
        self._open_replies.pop(event.agent, None)
        if event.usage:
            self._known_cost += event.usage.cost_usd or 0
        if event.status != "success":
            self._why[event.agent] = say.enum(event.status)
        facts = [*self._list_facts(event), *self._thread(event.message)]
        acting = self._acting.pop(event.reply, [])
        if acting and (ended := _acting_lines().find_end(acting)) is not None:
            facts += _acting_lines().describe_end(ended, say)
        if acting and event.status == "cancelled":  # it may continue, and end these calls
            self._acting[event.reply] = _acting_lines().list_unfinished(acting)
        yield _heading(event.ts, [*self._face(event.agent), self._name(event.agent)], facts)
        if acting:
            self._tools_used.pop(event.reply, None)
            yield from self._draw_acting(acting)
        yield from lines.draw_text(say.message(event.error or ""), style="failed")
        if event.message:
            yield from lines.draw_message(event.message, say)
        yield from self._silence(event)
        if event.next_mentions:
            called = lines.joined(map(self._called_next, event.next_mentions), say(", "))
            yield line(INDENT, Span("→ ", "dim"), called, hang=4)
        self._called_in_turn[event.agent] = event.status
        yield from self._used(event.reply)
        for remark in lines.remarks(event, say):
            yield line(INDENT, Span(remark, "warned"), hang=4)
        for agent, reason in event.refused.items():
            who, problem = [self._short(agent)], say.message(escape_line(reason))
            yield line(INDENT, say.spans("may not call {who}: {reason}", who=who, reason=problem))
        yield from self._unresolved(event.unresolved)

    def _list_facts(self, event: ReplyFinished) -> Iterator[Span]:
        """Yield the turn, time, tokens, status and attempts of a reply, for its heading."""
        say = self._say
        yield Span(say("turn {turn} {phase}", turn=self._chain_turn, phase=event.phase), "dim")
        yield Span(say("{seconds} s", seconds=f"{event.latency_ms / 1000:.1f}"), "dim")
        if event.usage:
            yield Span(lines.tokens(event.usage), "dim")
        if refused := lines.cost_not_taken(event.metadata, say):
            yield Span(refused, "failed")
        if event.status != "success":
            yield Span(say.enum(event.status), "dim" if event.status == "declined" else "failed")
        if event.attempts > 1:
            yield Span(say("{count} attempts", count=event.attempts), "dim")

    def _draw_acting(self, events: list[Any]) -> Iterator[Line]:
        """Yield the calls of a reply with tools, or all its steps."""
        draw = _acting_lines().draw_steps if self._has_steps else _acting_lines().draw_calls
        yield from draw(events, self._say, self._who)

    def draw_open(self) -> Iterator[Line]:
        """Yield the calls of replies that have not ended, each below its agent's name."""
        yield from self._planner_calls()
        for agent, reply in self._open_replies.items():
            if events := self._acting.pop(reply, []):
                facts = [Span(self._say("no answer yet"), "warned")]
                yield _heading(events[0].ts, [*self._face(agent), self._name(agent)], facts)
                yield from self._draw_acting(events)

    def _silence(self, event: ReplyFinished) -> Iterator[Line]:
        """Yield the line of a marker of silence that the agent wrote."""
        texts = {
            "success": "removed a marker of silence: {marker}",
            "declined": "its marker of silence: {marker}",
        }
        marker = event.metadata.get("silence")
        if marker and event.status in texts:
            written = escape_line(str(marker))
            yield line(INDENT, self._say.spans(texts[event.status], "dim", marker=written))

    def _note_tool(self, event: StatusReported) -> None:
        """Keep the use of a tool for its reply; more detail on a use replaces the report before."""
        if event.status == "calling_tool" and event.detail:
            used = self._tools_used.setdefault(event.reply, [])
            if used and event.detail.startswith(used[-1]):
                used.pop()
            used.append(event.detail)

    def _used(self, reply: int) -> Iterator[Line]:
        used = self._tools_used.pop(reply, [])
        if used:
            shown = self._say(", ").join(escape_line(detail) for detail in used[:_MAX_TOOLS_SHOWN])
            text = "used: {tools}"
            if len(used) > _MAX_TOOLS_SHOWN:
                text = "used: {tools}, and {count} more"
            said = self._say(text, tools=shown, count=len(used) - _MAX_TOOLS_SHOWN)
            yield line(INDENT, Span(said, "dim"), hang=4)

    def _called_next(self, agent: str) -> list[Span]:
        """Return an agent that a reply mentions; with the reason if that calls it no further."""
        name = [self._short(agent)]
        status = self._called_in_turn.get(agent, "declined")
        if status == "declined" or self._config.get("re_invoke_already_replied"):
            return name
        reason = lines.CALLED_ALREADY if status else lines.BEING_CALLED
        return [*self._say.spans(reason, "dim", who=name)]

    def _candidates(self, event: Candidates) -> Iterator[Line]:
        self._called_in_turn.update(dict.fromkeys(event.asked, ""))
        yield from self._passed_over(event.passed_over)
        if event.asked:
            yield EMPTY
            yield self._phase("may reply: {who}", self._list(event.asked))

    def _passed_over(self, reasons: Reasons) -> Iterator[Line]:
        listed = []
        for agent, why in reasons.items():
            self._why[agent] = lines.passed_over(why, self._say)
            name, reason = [self._short(agent)], self._why[agent]
            listed.append([*self._say.spans("{who} ({reason})", "dim", who=name, reason=reason)])
        if listed:
            names = lines.joined(listed, self._say(", "))
            yield line(INDENT, self._say.spans("passed over: {who}", "dim", who=names))

    def _chain_finished(self, event: ChainFinished) -> Iterator[Line]:
        say = self._say
        yield from self.draw_open()
        end = Span(say.enum(event.end), "failed" if event.end == "failed" else "strong")
        awaits = f"{say(': ')}{say(', ').join(map(escape_line, event.awaits))}"
        ended = [end, Span(awaits)] if event.end == "awaiting_human" else [end]
        counts = Span(lines.count_replies(event, say), "dim")
        tokens = [Span(lines.tokens(event.usage), "dim")]
        if event.usage.cost_usd is None and self._known_cost:
            cost = say("{cost} + unknown", cost=f"${self._known_cost:.4f}")
            tokens.append(Span(f" · {cost}", "dim"))
        self._known_cost = 0.0
        for row in self._budget.end_rows(event) if self._budget else ():
            tokens.append(Span(f" · {row.describe(say)}", "dim"))
        yield line(Span("══ ", "rule"), ended, BETWEEN, counts, BETWEEN, tokens, hang=_HEADING)
        for command in self._list_answers(event) if self._is_live else ():
            yield line(INDENT, say("to answer: {command}", command=command))
        if event.end == "no_reply" and event.turns:  # else the supervisor ended it, and says so
            for agent in self._names:
                reason = f"{say(': ')}{self._why.get(agent) or self._unasked()}"
                yield line(INDENT, self._name(agent), reason, hang=4)
            text = "To call an agent, mention it in the message: {name}"
            yield line(INDENT, say(text, name=f"@{escape_line(next(iter(self._names), 'id'))}"))
        yield EMPTY

    def _list_answers(self, event: ChainFinished) -> Iterator[str]:
        """Yield the commands that answer what the chain waits for."""
        if event.awaits and self._blocked is not None:
            session = lines.quote(self._session_name or "")
            for task in self._blocked[:_MOST_ANSWERS]:
                yield f'arena task unblock {session} {lines.quote(task)} --because "..."'
            return
        for human in event.awaits:
            author = "" if human == "user" else f" --from {lines.quote(human)}"
            yield f'arena send -c{author} "..."'

    def _unasked(self) -> str:
        texts = {
            "none": "not asked (selection: none)",
            "relevance_if_unnamed": "not asked (other agents were named)",
        }
        selection = str(self._config.get("selection"))
        return self._say(texts.get(selection, "not asked (it answers only when it is named)"))

    def _who(self, by: str) -> list[Span] | str:
        return [self._short(by)] if by in self._names else escape_line(by)

    def _unresolved(self, names: list[str]) -> Iterator[Line]:
        if names:
            yield line(INDENT, lines.unresolved(names, self._names, self._say))

    def _author(self, message: Message) -> list[Span]:
        if message.author_type == "agent":
            return [self._name(message.author_id)]
        style = "human" if message.author_type == "human" else "strong"
        return [Span(escape_line(message.author_name), style)]

    def _name(self, agent: str) -> Span:
        name = self._names.get(agent, agent)
        text = f"{name} ({agent})" if name != agent else agent
        return Span(escape_line(text), self._style(agent))

    def _face(self, agent: str) -> list[Span]:
        avatar = self._avatars.get(agent)
        return [Span(f"{avatar} ")] if avatar else []

    def _short(self, agent: str) -> Span:
        return Span(escape_line(self._names.get(agent, agent)), self._style(agent))

    def _style(self, agent: str) -> str:
        """Return the style for the agent's place in its team, the same in every session of it."""
        known = self._styles.get(agent)
        return known or f"agent{zlib.crc32(agent.encode()) % AGENT_STYLES}"

    def _list(self, agents: list[str]) -> list[Span]:
        return lines.joined(([self._short(agent)] for agent in agents), self._say(", "))


def _heading(ts: str, author: list[Span], more: list[Span]) -> Line:
    spans = [Span(f"{lines.clock(ts)}  ", "dim"), *author]
    for fact in more:
        spans += [BETWEEN, fact]
    return Line(tuple(spans), _UNDER_THE_NAME)
