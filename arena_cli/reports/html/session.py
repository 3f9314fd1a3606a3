"""Build the table of a conversation: turns and their phases down, agents across."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from arena_cli.protocol import Message
from arena_cli.reports import lines, timeline
from arena_cli.reports.html import components
from arena_cli.reports.html.components import Cast, CollapsibleText, Lane, Who
from arena_cli.reports.lines import Span, Words
from arena_cli.transcript.conversation import Chain, Reply, Turn
from arena_cli.transcript.events import ChainFinished, Event, MessageEvent, ReplyFinished
from arena_cli.util.text import escape_line


@dataclass(frozen=True)
class Card:
    """A reply. `status` is empty while there is none; `calls` are agents, then humans by id."""

    who: Who
    status: str
    ts: str = ""
    clock: str = ""
    by: list[Who] = field(default_factory=list)
    error: CollapsibleText | None = None
    text: CollapsibleText | None = None
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
    """A phase of a turn, a cell for each lane. `turn` counts over the chain.

    `folded` are the agents without a lane that were passed over.
    """

    phase: str
    turn: int
    number: int
    cells: dict[str, Cell]
    folded: list[Cell] = field(default_factory=list)
    kind = "phase"


@dataclass(frozen=True)
class SaidRow:
    """A message that is no reply; `author` is the kind of its author."""

    name: str
    author: str
    ts: str
    clock: str
    text: CollapsibleText
    planted: bool
    notes: list[str]
    kind = "said"


@dataclass(frozen=True)
class NoteLine:
    """An event in one line."""

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
    """A table of a conversation. `idle` are members without a part in it, for `idle_why`."""

    lanes: list[Lane]
    rows: list[Row]
    idle: list[Who]
    idle_why: str

    @property
    def has_phases(self) -> bool:
        """True if any agent was called or judged."""
        return any(row.kind == "phase" for row in self.rows)


def build_talk(
    items: Iterable[Chain | Event], cast: Cast, lanes: Mapping[str, Lane], say: Words
) -> Talk:
    """Return the table of a part of a conversation, with these lanes."""
    items = list(items)
    table = _Table(cast, lanes, say)
    rows = [row for item in items for row in table.rows(item)]
    chains = [item for item in items if isinstance(item, Chain)]
    reason = (
        say("not asked (selection: none)")
        if cast.config.get("selection") == "none"
        else say("not asked (it answers only when it is named)")
    )
    return Talk(list(lanes.values()), rows, _list_idle(chains, cast), reason)


def _list_idle(chains: Sequence[Chain], cast: Cast) -> list[Who]:
    """Return the members that were not called; of a part of a chain, that is not known."""
    if not any(chain.first for chain in chains) or not any(chain.finished for chain in chains):
        return []
    concerned = {agent for chain in chains for turn in chain.turns for agent in turn.concerned}
    names = set(map(escape_line, concerned))
    return [member for member in cast.members if member.id not in names]


class _Table:
    """Makes the rows of a table."""

    def __init__(self, cast: Cast, lanes: Mapping[str, Lane], say: Words) -> None:
        self._cast = cast
        self._lanes = lanes
        self._say = say

    def rows(self, item: Chain | Event) -> Iterator[Row]:
        """Yield the rows of a chain, or of an event between chains."""
        if not isinstance(item, Chain):
            yield from self._event(item)
            return
        turns = {turn.started.turn: turn for turn in item.turns}
        drawn: set[tuple[int, str]] = set()
        for event in item.events:
            turn = turns.get(getattr(event, "turn", 0))
            if turn is None:
                yield from self._event(event)
                continue
            phase = "B" if event is turn.candidates else getattr(event, "phase", "A")
            if (turn.started.turn, phase) not in drawn:
                drawn.add((turn.started.turn, phase))
                yield from self._phase(turn, phase)

    def _event(self, event: Event) -> Iterator[Row]:
        match event:
            case MessageEvent():
                yield self._said(event)
            case ChainFinished():
                yield self._end(event)
            case _:
                line = timeline.render_event(event, self._say, lambda by: self._cast.who(by).name)
                if line is not None:
                    yield NoteLine(line.spans)

    def _name(self, agent: str) -> str:
        return self._cast.who(agent).name

    def _phase(self, turn: Turn, phase: str) -> Iterator[PhaseRow]:
        """Yield the row of a phase; an empty one has none, unless it is a turn's first."""
        cells = {agent: Cell(lane.who) for agent, lane in self._lanes.items()}
        folded: list[Cell] = []
        if phase == "A":
            for agent in turn.started.deferred:
                cells[agent].why = self._say("deferred to the next turn")
        else:
            folded = self._explain_passed_over(turn, cells)
        for agent, reply in turn.replies.items():
            if reply.phase == phase:
                cells[agent].cards += self._cards(reply, turn)
        has_heading = phase == "A" and not turn.is_made_up
        has_cells = any(cell.cards or cell.why for cell in (*cells.values(), *folded))
        if has_heading or turn.asked or has_cells:
            yield PhaseRow(phase, turn.started.depth + 1, turn.started.turn, cells, folded)

    def _explain_passed_over(self, turn: Turn, cells: Mapping[str, Cell]) -> list[Cell]:
        """Write into cells why agents were passed over; return those without a column."""
        folded: list[Cell] = []
        for agent, over in turn.passed_over.items():
            reason = lines.passed_over(over, self._say)
            cell = cells.get(agent) or Cell(self._cast.who(agent))
            cell.why = self._say("passed over: {who}", who=reason)
            folded += [] if agent in cells else [cell]
        return folded

    def _cards(self, reply: Reply, turn: Turn) -> Iterator[Card]:
        mentioned_by = turn.started.mentioned_by if turn.started.depth else {}
        by = [self._cast.who(agent) for agent in mentioned_by.get(reply.agent, ())]
        for done in reply.ends:
            yield self._card(done, by if reply.phase == "A" else [], turn)
        if reply.is_running:
            yield Card(self._cast.who(reply.agent), "", by=by)

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

    def _card(self, done: ReplyFinished, by: list[Who], turn: Turn) -> Card:
        message = done.message
        mentioned = message.mentions if message else []
        return Card(
            who=self._cast.who(done.agent),
            status=done.status,
            ts=done.ts,
            clock=lines.clock(done.ts),
            by=by,
            error=components.of_text(self._say.message(done.error)) if done.error else None,
            text=self._text(message) if message else None,
            calls=[self._cast.who(agent) for agent in done.next_mentions],
            humans=[
                escape_line(member_id)
                for member_id in mentioned
                if not self._cast.is_member(member_id)
            ],
            notes=[
                *lines.remarks(done, self._say),
                *self._called_already(done, turn),
                *self._refused(done),
                *self._unresolved(done.unresolved),
            ],
            facts=self._facts(done),
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
        members = {member.id: member.name for member in self._cast.members}
        return [lines.unresolved(names, members, self._say)]

    def _end(self, event: ChainFinished) -> EndRow:
        say = self._say
        notes = []
        if event.end == "no_reply" and self._cast.members:
            name = f"@{self._cast.members[0].id}"
            notes.append(say("To call an agent, mention it in the message: {name}", name=name))
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

    def _text(self, message: Message) -> CollapsibleText:
        return components.of_markdown(lines.draw_message(message, self._say))
