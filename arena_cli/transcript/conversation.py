"""The read model: a session as its chains, their turns, and the replies in them.

`Chain.apply` is the only code that builds a chain from events. The fold keeps the open chain of a
session that is written; `read_conversation` keeps the complete conversation for readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arena_cli.protocol import Message, Usage
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Compacted,
    Deviation,
    Event,
    MessageEvent,
    Phase,
    Reasons,
    ReplyFinished,
    ReplyStarted,
    Resumed,
    SessionEvent,
    SideEvent,
    StatusReported,
    TurnFinished,
    TurnStarted,
)

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import ControlState

LIMIT_NOTICE = "chain_limit"
"""The `notice` in the metadata of the system message that reports the depth limit of a chain."""

FAILED = frozenset({"timeout", "error"})
"""The statuses of replies that failed."""


@dataclass
class Reply:
    """A call of an agent in a turn, from its first attempt to its end.

    `failed_attempts` are those that ended by themselves and were retried. `ends` are the ends of
    the reply: cancelled ones, after which it may continue, and the final one.
    """

    number: int
    agent: str
    phase: Phase
    attempt: int
    failed_attempts: int = 0
    cut_short: bool = False
    started: ReplyStarted | None = None
    ends: list[ReplyFinished] = field(default_factory=list)

    @property
    def finished(self) -> ReplyFinished | None:
        """Its end; None while it has only cancelled ones, after which it continues."""
        end = self.ends[-1] if self.ends else None
        if end is None or (end.status == "cancelled" and not end.cancelled_by):
            return None
        return end

    @property
    def is_running(self) -> bool:
        """True if its last attempt has not ended, or was cut off by a crash."""
        if self.started is None:
            return False
        return not self.ends or self.ends[-1].seq < self.started.seq

    @property
    def notes(self) -> list[str]:
        """The ids of the notes that its agent was shown."""
        return self.started.notes if self.started else []

    @property
    def adapter(self) -> str:
        """The kind of its agent; empty if its beginning cannot be read."""
        return self.started.adapter if self.started else ""


@dataclass
class Turn:
    """A turn of a chain; `replies` are by agent, `side_events` those in it or after it.

    `number` is its place in the chain, from 1. `announced` are messages by which agents told the
    group about their exchanges.

    `is_made_up`: its opening line is unknown, and `started` only has its number.
    """

    started: TurnStarted
    number: int = 1
    is_made_up: bool = False
    replies: dict[str, Reply] = field(default_factory=dict)
    candidates: Candidates | None = None
    side_events: list[SideEvent] = field(default_factory=list)
    announced: list[Message] = field(default_factory=list)
    finished: TurnFinished | None = None

    @property
    def must(self) -> list[str]:
        """The agents that must reply, in order of call."""
        return self.started.must

    @property
    def is_sequence(self) -> bool:
        """True if those who must reply are called one after the other."""
        return self.started.order == "sequence"

    @property
    def asked(self) -> list[str]:
        """The agents that may reply, in order of call."""
        return self.candidates.asked if self.candidates else []

    @property
    def passed_over(self) -> Reasons:
        """The agents that were not asked, or due and not called, and the reasons."""
        not_asked = self.candidates.passed_over if self.candidates else {}
        return {**self.started.reasons, **not_asked} if self.started.passed_over else not_asked

    @property
    def called(self) -> list[str]:
        """All agents that are called in this turn, in order of call."""
        candidates = self.candidates
        return [*self.started.must, *(candidates.asked if candidates else ())]

    @property
    def concerned(self) -> list[str]:
        """All agents that were called, deferred or passed over, or that replied in it."""
        candidates = (*self.must, *self.started.deferred, *self.asked, *self.passed_over)
        return list(dict.fromkeys((*candidates, *self.replies)))

    @property
    def is_whole(self) -> bool:
        """True if its heading and its end are known, and those of each reply in it."""
        replies = self.replies.values()
        has_ends = self.finished is not None and not self.is_made_up
        return has_ends and all(reply.started and reply.ends for reply in replies)

    @property
    def is_replan_required(self) -> bool:
        """True if a reply ignored a note so that another plan is needed."""
        return bool(self.side_events) and any(
            event.level == "replan_required" for event in self.deviations
        )

    @property
    def deviations(self) -> list[Deviation]:
        """The notes that replies ignored or contradicted, in order."""
        return [event for event in self.side_events if isinstance(event, Deviation)]

    @property
    def compactions(self) -> list[Compacted]:
        """The summaries made in it, also those rolled back."""
        return [event for event in self.side_events if isinstance(event, Compacted)]

    def result(self, agent: str) -> ReplyFinished | None:
        """Return the end of the agent's reply; None while it has not ended."""
        reply = self.replies.get(agent)
        return reply.finished if reply else None

    def results(self) -> list[ReplyFinished]:
        """Return the replies that ended, in order of call."""
        replies = self.replies
        if not replies:
            return []
        called = [replies[agent] for agent in self.called if agent in replies]
        return [end for reply in called if (end := reply.finished) is not None]

    def ends(self) -> list[ReplyFinished]:
        """Return every end of a reply, those that were cancelled too."""
        return [done for reply in self.replies.values() for done in reply.ends]

    def successes(self) -> list[ReplyFinished]:
        """Return the replies that others are shown, in order of call."""
        return [done for done in self.results() if done.status == "success"]


@dataclass
class Chain:
    """A chain: the message that opened it, its turns, and all its events in order.

    `first` is None if a part of a session begins within the chain. `messages` are those that agents
    see, by id; `calling` are the agents that each of them calls; `called` are all agents called so
    far. `shown` are the ids of replies that agents may be shown; `held` are those of messages that
    came since the first reply of the turn began: agents are shown them after the phase.
    """

    number: int
    first: MessageEvent | None
    turns: list[Turn] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    finished: ChainFinished | None = None
    limits_told: set[int] = field(default_factory=set)
    messages: dict[str, Message] = field(default_factory=dict)
    calling: dict[str, list[str]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    held: list[str] = field(default_factory=list)
    control: ControlState | None = None

    @classmethod
    def open(cls, event: MessageEvent) -> Chain:
        """Return the chain that a message opens."""
        chain = cls(event.chain or 0, event, events=[event])
        chain._add_message(event.message, event.message.mentions)
        return chain

    @property
    def limit_told(self) -> bool:
        """True if a message has named the agents that the depth limit stops after the last turn."""
        return len(self.turns) in self.limits_told

    @property
    def opening(self) -> MessageEvent:
        """The message that opened it."""
        assert self.first is not None
        return self.first

    @property
    def thread(self) -> str:
        """The task in whose thread it is; empty if it is in none."""
        return self.first.message.thread if self.first else ""

    def put_in_thread(self, message: Message) -> Message:
        """Return a message that joins it: shown to the agents in its thread, if it is in one."""
        if not self.thread:
            return message
        shown_to = self.opening.message.shown_to
        return message.model_copy(update={"thread": self.thread, "shown_to": shown_to})

    @property
    def end(self) -> str:
        """The way it ended; empty while it is open."""
        return self.finished.end if self.finished else ""

    @property
    def remembering(self) -> list[Usage]:
        """The usage of the calls for the team's memory or its control, which are no replies."""
        side_events = [event for event in self.events if isinstance(event, SideEvent)]
        calls = [event.agent_call for event in side_events]
        return [call.usage for call in calls if call and call.usage is not None]

    def find_status(self, reply: Reply) -> StatusReported | None:
        """Return the last status that the agent of a reply reported."""
        for event in reversed(self.events):
            if isinstance(event, StatusReported) and event.reply == reply.number:
                return event
        return None

    def apply(self, event: Event) -> list[Message]:
        """Apply an event; one that does not fit the open turn changes nothing.

        Return the messages that agents may be shown from now on: the replies of a phase that is
        over, in order of call, or each of those that are called one after the other, and after them
        the messages that came meanwhile.
        """
        turn = self.turns[-1] if self.turns else None
        self.events.append(event)
        if event.is_control and isinstance(event, SideEvent):
            event.change_chain(self)
        elif self.control is not None and isinstance(event, Resumed):
            self.control.pause = None
        match event:
            case MessageEvent():
                return self._apply_message(event, turn)
            case TurnStarted() if event.chain == self.number:
                turn = Turn(event, len(self.turns) + 1)
                self.turns.append(turn)
                self.called.update(event.must)
            case ChainFinished():
                self.finished = event
            case _ if turn:
                self._apply_in_turn(event, turn)
        return self._show(turn) if turn and (self.finished or _ends_phase(event, turn)) else []

    def _apply_message(self, event: MessageEvent, turn: Turn | None) -> list[Message]:
        """Add a message that joins the chain; it is held once a reply of the turn has begun."""
        self._add_message(event.message, event.message.mentions)
        if event.message.metadata.get("notice") == LIMIT_NOTICE:
            self.limits_told.add(len(self.turns))
        if turn is None or not turn.replies or turn.finished:
            return [event.message]
        self.held.append(event.message.id)
        if event.is_announcement:
            turn.announced.append(event.message)
        return []

    def _apply_in_turn(self, event: Event, turn: Turn) -> None:
        match event:
            case ReplyStarted(turn=turn.started.turn):
                _start_reply(turn, event)
            case ReplyFinished(turn=turn.started.turn):
                self._finish_reply(turn, event)
            case Candidates(turn=turn.started.turn):
                turn.candidates = event
                self.called.update(event.asked)
            case TurnFinished(turn=turn.started.turn):
                turn.finished = event
            case Resumed():
                for reply in turn.replies.values():
                    reply.cut_short |= reply.finished is None
            case SideEvent():
                turn.side_events.append(event)
            case _:
                pass

    def _show(self, turn: Turn) -> list[Message]:
        replies = [done.message for done in turn.successes() if done.message]
        new = [message for message in replies if message.id not in self.shown]
        self.shown.update(message.id for message in new)
        held, self.held = self.held, []
        return new + [self.messages[name] for name in held]

    def new_messages(self, turn: Turn) -> list[Message]:
        """Return the new messages of one of its turns: the trigger, and its replies so far."""
        trigger = [self.messages[name] for name in turn.started.trigger if name in self.messages]
        return trigger + [done.message for done in turn.successes() if done.message]

    def results(self) -> list[ReplyFinished]:
        """Return every reply that ended, in order of call."""
        return [done for turn in self.turns for done in turn.results()]

    def trigger_for(self, agent: str, phase: Phase) -> list[str]:
        """Return the ids of the last turn's new messages as an agent sees them, in order.

        Phase B also sees phase A, and in a sequence each agent the replies before its own; a
        deferred agent also sees the message that called it then; no agent sees its own messages.
        """
        turn = self.turns[-1]
        ids = dict.fromkeys(self._since_deferred(agent, len(self.turns) - 1))
        earlier = turn.must if phase == "B" else _list_earlier(agent, turn)
        for done in turn.successes() if earlier else ():
            if done.message and done.agent in earlier:
                ids[done.message.id] = None
        return [name for name in ids if self.messages[name].author_id != agent]

    def _since_deferred(self, agent: str, number: int) -> list[str]:
        started = self.turns[number].started
        trigger = [name for name in started.trigger if name in self.messages]
        if number == 0 or agent not in self.turns[number - 1].started.deferred:
            return trigger
        earlier = self._since_deferred(agent, number - 1)
        calling = [name for name in earlier if agent in self.calling[name]]
        return [*(calling or earlier), *trigger]

    def _finish_reply(self, turn: Turn, event: ReplyFinished) -> None:
        # A line that cannot be read may have been its start; the reply counts all the same.
        reply = turn.replies.setdefault(event.agent, make_reply(event))
        reply.ends.append(event)
        reply.cut_short |= event.status == "cancelled"
        if event.status == "success" and event.message is not None:
            self._add_message(event.message, event.next_mentions)

    def _add_message(self, message: Message, calls: list[str]) -> None:
        self.messages[message.id] = message
        self.calling[message.id] = calls


def _ends_phase(event: Event, turn: Turn) -> bool:
    """Return True if an event ends a phase of its turn; in a sequence, each reply of A does."""
    if isinstance(event, ReplyFinished):
        return event.phase == "A" and turn.is_sequence
    return event is turn.candidates or event is turn.finished


def _list_earlier(agent: str, turn: Turn) -> list[str]:
    """Return the agents of phase A that are called before this one, in a sequence."""
    if not turn.is_sequence or agent not in turn.must:
        return []
    return turn.must[: turn.must.index(agent)]


def make_reply(event: ReplyFinished) -> Reply:
    """Return the reply of an end whose beginning is unknown."""
    failed = event.attempts - 1
    return Reply(event.reply, event.agent, event.phase, event.attempts, failed_attempts=failed)


def _start_reply(turn: Turn, event: ReplyStarted) -> None:
    reply = turn.replies.get(event.agent)
    if reply is None:
        reply = Reply(event.reply, event.agent, event.phase, event.attempt)
        turn.replies[event.agent] = reply
    else:
        reply.failed_attempts += not reply.cut_short
    reply.started = event
    reply.attempt = event.attempt
    reply.cut_short = False


@dataclass
class Conversation:
    """A session, or a part of it: chains, and the events between them, in order."""

    items: list[Chain | Event] = field(default_factory=list)
    sessions: list[SessionEvent] = field(default_factory=list)
    open: Chain | None = None

    @property
    def chains(self) -> list[Chain]:
        """The chains, in order."""
        return [item for item in self.items if isinstance(item, Chain)]

    @property
    def turns(self) -> Iterator[Turn]:
        """Yield the turns of all chains, in order."""
        for chain in self.chains:
            yield from chain.turns

    @property
    def events(self) -> Iterator[Event]:
        """Yield all its events, in order."""
        for item in self.items:
            yield from item.events if isinstance(item, Chain) else (item,)

    @property
    def deviations(self) -> list[Deviation]:
        """The notes that replies ignored or contradicted, in order."""
        return [event for event in self.events if isinstance(event, Deviation)]

    def said(self) -> Iterator[MessageEvent | ReplyFinished]:
        """Yield the events with messages, in order; the replies of a turn in order of call.

        Replies that ended without a message are included.
        """
        for item in self.items:
            turns = iter(item.turns if isinstance(item, Chain) else ())
            for event in item.events if isinstance(item, Chain) else (item,):
                if isinstance(event, MessageEvent):
                    yield event
                elif isinstance(event, TurnStarted):
                    yield from next(turns).results()

    def apply(self, event: Event) -> None:
        """Apply the next event; a chain that another one follows keeps no end."""
        if isinstance(event, SessionEvent):
            self.sessions.append(event)
            self.items.append(event)
        elif isinstance(event, MessageEvent) and event.chain is not None:
            self._add(Chain.open(event))
        elif self.open is None and not isinstance(event, _IN_A_TURN):
            self.items.append(event)
        else:
            chain = self.open or self._add(Chain(getattr(event, "chain", 0), None))
            _open_turn(chain, event)
            chain.apply(event)
            if chain.finished:
                self.open = None

    def _add(self, chain: Chain) -> Chain:
        self.items.append(chain)
        self.open = chain
        return chain


_IN_A_TURN = (TurnStarted, ReplyStarted, ReplyFinished, Candidates, TurnFinished)


def _open_turn(chain: Chain, event: Event) -> None:
    """Open the turn of an event whose opening line cannot be read, or was not requested.

    The chain then treats the event as one of that turn.
    """
    if not isinstance(event, _IN_A_TURN) or isinstance(event, TurnStarted):
        return
    if not chain.turns or chain.turns[-1].started.turn != event.turn:
        heading = {"chain": chain.number, "turn": event.turn, "depth": len(chain.turns)}
        started = TurnStarted(seq=event.seq, ts=event.ts, trigger=[], must=[], **heading)
        chain.turns.append(Turn(started, started.depth + 1, is_made_up=True))


def follow(events: Iterable[Event]) -> Iterator[tuple[Event, Chain | None]]:
    """Yield each event with the chain that it belongs to, in its state then; keep nothing else."""
    conversation = Conversation()
    for event in events:
        chain = conversation.open
        conversation.apply(event)
        yield event, conversation.open or chain
        conversation.items.clear()
        conversation.sessions.clear()


def read_conversation(events: Iterable[Event]) -> Conversation:
    """Return the conversation that consists of these events, in order."""
    conversation = Conversation()
    for event in events:
        conversation.apply(event)
    return conversation


_QUOTED = 60  # characters of a message that another one answers


def quote_message(message: Message) -> str:
    """Return the author and the beginning of a message, in one line."""
    beginning = " ".join(message.content.split())
    if len(beginning) > _QUOTED:
        beginning = f"{beginning[:_QUOTED]}..."
    names = beginning or ", ".join(attachment.name for attachment in message.attachments)
    return f"@{message.author_id}: {json.dumps(names, ensure_ascii=False)}"
