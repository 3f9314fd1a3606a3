"""Build the table of a conversation: turns and their phases down, agents across."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from arena_cli.protocol import Message
from arena_cli.reports import content, lines, timeline
from arena_cli.reports.html import components
from arena_cli.reports.html.components import Cast, FoldedText, Lane, Who
from arena_cli.reports.lines import Span, Words
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Event,
    MessageEvent,
    Recovered,
    ReplyFinished,
    ReplyStarted,
    Resumed,
    SessionEvent,
    TurnStarted,
)
from arena_cli.util.text import escape_line


@dataclass(frozen=True)
class Card:
    """A reply. `status` is empty while there is none; `calls` are agents, then humans by id."""

    who: Who
    status: str
    ts: str = ""
    clock: str = ""
    by: list[Who] = field(default_factory=list)
    error: FoldedText | None = None
    text: FoldedText | None = None
    calls: list[Who] = field(default_factory=list)
    humans: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)


@dataclass
class Cell:
    """An agent's part in a phase, or the reason for none."""

    who: Who
    cards: list[Card] = field(default_factory=list)
    why: str = ""


@dataclass
class PhaseRow:
    """A phase of a turn, a cell for each lane. `turn` counts over the chain."""

    phase: str
    turn: int
    number: int
    cells: dict[str, Cell]
    kind = "phase"


@dataclass(frozen=True)
class SaidRow:
    """A message that is no reply; `author` says what its author is."""

    name: str
    author: str
    ts: str
    clock: str
    text: FoldedText
    planted: bool
    notes: list[str]
    kind = "said"


@dataclass(frozen=True)
class NoteLine:
    """Something that happened, in one line."""

    pieces: Sequence[Span]
    kind = "note"


@dataclass(frozen=True)
class EndRow:
    """The end of a chain; `facts` are counts and cost."""

    end: str
    awaits: list[str]
    facts: list[str]
    notes: list[str]
    kind = "end"


Row = PhaseRow | SaidRow | NoteLine | EndRow


@dataclass(frozen=True)
class Talk:
    """A table of a conversation. `idle` are members without a part in it, `idle_why` says why."""

    lanes: list[Lane]
    rows: list[Row]
    idle: list[Who]
    idle_why: str

    @property
    def has_phases(self) -> bool:
        """True if any agent was called or judged."""
        return any(row.kind == "phase" for row in self.rows)


def build_talk(events: Iterable[Event], cast: Cast, lanes: Mapping[str, Lane], say: Words) -> Talk:
    """The table of these events, which has these lanes."""
    table = _Table(cast, lanes, say)
    for event in events:
        table.take(event)
    return table.talk()


class _Table:
    """Takes events in order; keeps what later rows need."""

    def __init__(self, cast: Cast, lanes: Mapping[str, Lane], say: Words) -> None:
        self._cast = cast
        self._lanes = lanes
        self._say = say
        self._rows: list[Row] = []
        self._phases: dict[tuple[int, str], PhaseRow] = {}
        self._turn = 0
        self._mentioned_by: dict[str, list[str]] = {}
        self._running: dict[int, ReplyStarted] = {}
        self._concerned: set[str] = set()
        self._opened = False
        self._ended = False

    def take(self, event: Event) -> None:
        """Add an event; one that is not shown is skipped."""
        match event:
            case MessageEvent():
                self._opened = self._opened or event.chain is not None
                self._rows.append(self._said(event))
            case TurnStarted():
                self._turn_started(event)
            case ReplyStarted():
                self._running[event.reply] = event
            case ReplyFinished():
                self._running.pop(event.reply, None)
                self._reply(event)
            case Candidates():
                self._candidates(event)
            case ChainFinished():
                self._ended = True
                self._rows.append(self._end(event))
            case Recovered():
                problem = self._say("recovered: {what}", what=escape_line(event.what))
                self._rows.append(NoteLine([Span(problem)]))
            case Resumed():
                fields = {"chain": event.chain, "seq": event.after_seq}
                text = self._say("resumed chain {chain} after event {seq}", **fields)
                self._rows.append(NoteLine([Span(text)]))
            case _:
                line = timeline.line_of(event, self._say, lambda by: self._cast.who(by).name)
                if line is not None:
                    self._rows.append(NoteLine(line.spans))

    def talk(self) -> Talk:
        """The table of all that was taken."""
        for started in self._running.values():
            card = Card(self._cast.who(started.agent), "", by=self._by(started.agent))
            self._cell(started.turn, started.phase, started.agent).cards.append(card)
        # Of a part of a chain nobody knows who else was called in it.
        members = self._cast.members if self._opened and self._ended else []
        idle = [member for member in members if member.id not in self._concerned]
        reason = (
            self._say("not asked (selection: none)")
            if self._cast.config.get("selection") == "none"
            else self._say("not asked (it answers only when it is named)")
        )
        return Talk(list(self._lanes.values()), self._rows, idle, reason)

    def _said(self, event: MessageEvent) -> SaidRow:
        message = event.message
        name = message.author_name
        if message.author_type == "agent":
            name = self._cast.who(message.author_id).name
        return SaidRow(
            name=escape_line(name),
            author=message.author_type,
            ts=event.ts,
            clock=lines.clock(event.ts),
            text=self._text(message),
            planted=event.planted,
            notes=self._unresolved(event.unresolved),
        )

    def _turn_started(self, event: TurnStarted) -> None:
        self._turn = event.depth + 1
        self._mentioned_by = event.mentioned_by if event.depth else {}
        self._phase(event.turn, "A")
        for agent in event.must:
            self._concerned.add(escape_line(agent))
        for agent in event.deferred:
            self._cell(event.turn, "A", agent).why = self._say("deferred to the next turn")

    def _candidates(self, event: Candidates) -> None:
        if event.asked or event.passed_over:
            self._phase(event.turn, "B")
        for agent in event.asked:
            self._concerned.add(escape_line(agent))
        for agent, over in event.passed_over.items():
            cell = self._cell(event.turn, "B", agent)
            reason = self._say("passed over: {who}", who=lines.passed_over(over, self._say))
            cell.why = reason

    def _reply(self, event: ReplyFinished) -> None:
        cell = self._cell(event.turn, event.phase, event.agent)
        message = event.message
        mentioned = message.mentions if message else []
        cell.cards.append(
            Card(
                who=self._cast.who(event.agent),
                status=event.status,
                ts=event.ts,
                clock=lines.clock(event.ts),
                by=self._by(event.agent) if event.phase == "A" else [],
                error=components.of_text(event.error) if event.error else None,
                text=self._text(message) if message else None,
                calls=[self._cast.who(agent) for agent in event.next_mentions],
                humans=[
                    escape_line(member_id)
                    for member_id in mentioned
                    if not self._cast.is_member(member_id)
                ],
                notes=self._refused(event) + self._unresolved(event.unresolved),
                facts=self._facts(event),
            )
        )

    def _facts(self, event: ReplyFinished) -> list[str]:
        facts = [self._say("{seconds} s", seconds=f"{event.latency_ms / 1000:.1f}")]
        if event.usage:
            facts.append(lines.tokens(event.usage))
        if refused := lines.cost_not_taken(event.metadata, self._say):
            facts.append(refused)
        if event.attempts > 1:
            facts.append(self._say("{count} attempts", count=event.attempts))
        return facts

    def _refused(self, event: ReplyFinished) -> list[str]:
        return [
            self._say(
                "may not call {who}: {reason}",
                who=self._cast.who(agent).name,
                reason=escape_line(reason),
            )
            for agent, reason in event.refused.items()
        ]

    def _unresolved(self, names: list[str]) -> list[str]:
        if not names:
            return []
        names_text = self._say(", ").join(f"@{escape_line(name)}" for name in names)
        return [self._say("nobody is called {names}", names=names_text)]

    def _end(self, event: ChainFinished) -> EndRow:
        say = self._say
        notes = []
        if event.end == "no_reply" and self._cast.members:
            name = f"@{self._cast.members[0].id}"
            notes.append(say("To call one, name it in the message: {name}", name=name))
        replies = (
            say("1 reply") if event.replies == 1 else say("{count} replies", count=event.replies)
        )
        turns = say("1 turn") if event.turns == 1 else say("{count} turns", count=event.turns)
        counts = say("{replies} in {turns}", replies=replies, turns=turns)
        return EndRow(
            end=event.end,
            awaits=[escape_line(human) for human in event.awaits],
            facts=[counts, lines.tokens(event.usage)],
            notes=notes,
        )

    def _text(self, message: Message) -> FoldedText:
        return components.of_lines(content.draw_message(message, self._say))

    def _by(self, agent: str) -> list[Who]:
        return [self._cast.who(agent_id) for agent_id in self._mentioned_by.get(agent, ())]

    def _phase(self, number: int, phase: str) -> PhaseRow:
        """The row of a phase, made where its heading was not told."""
        row = self._phases.get((number, phase))
        if row is None:
            cells = {agent: Cell(lane.who) for agent, lane in self._lanes.items()}
            row = PhaseRow(phase, self._turn or number, number, cells)
            self._phases[number, phase] = row
            self._rows.append(row)
        return row

    def _cell(self, number: int, phase: str, agent: str) -> Cell:
        self._concerned.add(escape_line(agent))
        return self._phase(number, phase).cells[agent]


def sessions(events: Iterable[Event]) -> list[SessionEvent]:
    """Return the session events, which name the members."""
    return [event for event in events if isinstance(event, SessionEvent)]
