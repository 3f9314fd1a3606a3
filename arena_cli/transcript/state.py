"""Fold events into a session's state: its counters, and all of the chain that is open.

The engine applies each event after it is written, a reader after it is read: both end with the
same `Fold`, so resuming after a crash is continuing
(docs/reference/transcript.md has the table of steps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from arena_cli.protocol import Message, Usage
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    Compacted,
    ContextUsage,
    Deviation,
    Event,
    Extracted,
    MessageEvent,
    NoteEvent,
    ReplyFinished,
    ReplyStarted,
    Resumed,
    SessionEvent,
    TurnFinished,
    TurnStarted,
)
from arena_cli.transcript.token_calibration import Counts

LIMIT_NOTICE = "chain_limit"
FITS = "fits_tokens"
MOST_UNSUMMED = 256


@dataclass
class ReplyState:
    """A reply of the open chain. `finished` is None until it ended as anything but cancelled.

    `attempt` is its last attempt; `failed_attempts` are those that ended by themselves and were
    tried again; `notes` are the ids of the notes that its agent was shown.
    """

    number: int
    attempt: int
    failed_attempts: int = 0
    cut_short: bool = False
    notes: list[str] = field(default_factory=list)
    finished: ReplyFinished | None = None


@dataclass
class TurnState:
    """A turn of the open chain; `replies` by agent, `compactions` also those rolled back.

    `noted` are notes, each with the message that it was taken from; `deviations` the numbers of
    replies, each with a note that it did not heed.
    """

    started: TurnStarted
    replies: dict[str, ReplyState] = field(default_factory=dict)
    candidates: Candidates | None = None
    compactions: list[Compacted] = field(default_factory=list)
    noted: set[tuple[str, str]] = field(default_factory=set)
    deviations: set[tuple[int, str]] = field(default_factory=set)
    finished: TurnFinished | None = None

    @property
    def called(self) -> list[str]:
        """Everyone who is called in this turn, in order of call."""
        return [*self.started.must, *(self.candidates.asked if self.candidates else ())]

    def result(self, agent: str) -> ReplyFinished | None:
        """Return the end of the agent's reply; None while it has not ended."""
        reply = self.replies.get(agent)
        return reply.finished if reply else None

    def successes(self) -> list[ReplyFinished]:
        """The replies that others are shown, in order of call."""
        results = (self.result(agent) for agent in self.called)
        return [done for done in results if done is not None and done.status == "success"]


@dataclass
class ChainState:
    """The open chain: its opening message and its turns so far.

    `messages` are those that agents see, by id; `calling` says whom each of them calls; `called`
    is everyone who was called so far. `remembering` is what it cost to remember, beside replies.
    """

    number: int
    opening: MessageEvent
    turns: list[TurnState] = field(default_factory=list)
    limit_told: bool = False
    messages: dict[str, Message] = field(default_factory=dict)
    calling: dict[str, list[str]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    remembering: list[Usage] = field(default_factory=list)

    def new_messages(self, turn: TurnState) -> list[Message]:
        """Return the new messages of one of its turns: the trigger, and its replies so far."""
        trigger = [self.messages[name] for name in turn.started.trigger if name in self.messages]
        return trigger + [done.message for done in turn.successes() if done.message]

    def results(self) -> list[ReplyFinished]:
        """Every reply that ended, in order of call."""
        ended = (turn.result(agent) for turn in self.turns for agent in turn.called)
        return [done for done in ended if done is not None]


class Fold:
    """The state of a session after the events applied so far.

    `chain`, `turn` and `reply` are the last numbers, `messages` how many agents may be shown.
    `on_message` is told each message that agents may be shown, in the order in which they see it:
    replies of a phase in order of call, when the phase is over. `agent_sessions` are the sessions
    that agents keep for themselves, of those whose last call ended as it should.

    `summary` is the last compaction that holds, `tried` the last there was; `levels` is how full
    the windows of agents were said to be since then. `extracted` is how many messages there were
    when notes were last extracted, up to `extracted_upto`; what was said up to the seq `noted` was
    looked at for notes. `fits` is what an agent takes, in tokens, that was shown more than that.
    """

    def __init__(self, on_message: Callable[[Message], None] = lambda _: None) -> None:
        self.seq = 0
        self.chain = 0
        self.turn = 0
        self.reply = 0
        self.messages = 0
        self.session: SessionEvent | None = None
        self.calls: dict[str, int] = {}
        self.scripted_used: dict[str, set[int]] = {}
        self.agent_sessions: dict[str, dict[str, Any]] = {}
        self.summary: Compacted | None = None
        self.tried: Compacted | None = None
        self.levels: dict[str, str] = {}
        self.fits: dict[str, int] = {}
        self.extracted = 0
        self.extracted_upto = ""
        self.noted = 0
        self.counts = Counts()
        self._usage: Usage | None = None
        self._unsummed: list[Usage] = []
        self.open: ChainState | None = None
        self._on_message = on_message
        self._shown: set[str] = set()

    def apply(self, event: Event) -> None:
        """Take one event in. Events that do not fit what is open are passed over."""
        self.seq = max(self.seq, event.seq)
        self.counts.apply(event)
        match event:
            case SessionEvent():
                self.session = event
            case MessageEvent():
                self._message(event)
            case TurnStarted():
                self._turn_started(event)
            case ReplyStarted():
                self._reply_started(event)
            case ReplyFinished():
                self._reply_finished(event)
            case Candidates():
                self._candidates(event)
            case TurnFinished():
                self._turn_finished(event)
            case ChainFinished():
                self._chain_finished()
            case Resumed():
                self._cut_short()
            case _:
                self._remember(event)

    def spent(self) -> Usage:
        """Return the usage of all replies of the session."""
        return self.usage or Usage()

    @property
    def usage(self) -> Usage | None:
        """The usage of the whole session; None where no agent reported any."""
        self._sum_up()
        return self._usage

    @usage.setter
    def usage(self, usage: Usage | None) -> None:
        self._usage = usage

    def _sum_up(self) -> None:
        if self._unsummed:
            earlier = [self._usage] if self._usage else []
            self._usage = Usage.total([*earlier, *self._unsummed])
            self._unsummed.clear()

    def _message(self, event: MessageEvent) -> None:
        if event.chain is not None:
            self.chain = max(self.chain, event.chain)
            self.open = ChainState(event.chain, event)
            self.open.messages[event.message.id] = event.message
            self.open.calling[event.message.id] = event.message.mentions
            self._shown = set()
        elif self.open and event.message.metadata.get("notice") == LIMIT_NOTICE:
            self.open.limit_told = True
        self._tell(event.message)

    def _turn_started(self, event: TurnStarted) -> None:
        self.turn = max(self.turn, event.turn)
        if self.open and self.open.number == event.chain:
            self.open.turns.append(TurnState(event))
            self.open.called.update(event.must)

    def _reply_started(self, event: ReplyStarted) -> None:
        self.reply = max(self.reply, event.reply)
        self.agent_sessions.pop(event.agent, None)
        turn = self._turn(event.turn)
        if turn is None:
            return
        reply = turn.replies.get(event.agent)
        if reply is None:
            turn.replies[event.agent] = ReplyState(event.reply, event.attempt, notes=event.notes)
            return
        reply.notes = event.notes
        if not reply.cut_short:
            reply.failed_attempts += 1
        reply.attempt = event.attempt
        reply.cut_short = False

    def _reply_finished(self, event: ReplyFinished) -> None:
        self.reply = max(self.reply, event.reply)
        if event.usage is not None:
            self._unsummed.append(event.usage)
            if len(self._unsummed) >= MOST_UNSUMMED:
                self._sum_up()
        turn = self._turn(event.turn)
        # A line that cannot be read may have been its start; the reply counts all the same.
        new = ReplyState(event.reply, event.attempts, failed_attempts=event.attempts - 1)
        reply = turn.replies.setdefault(event.agent, new) if turn else new
        if event.status == "cancelled":
            reply.cut_short = True
            return
        if event.agent_session and event.status in ("success", "declined"):
            self.agent_sessions[event.agent] = event.agent_session
        failed = reply.failed_attempts
        self.calls[event.agent] = self.calls.get(event.agent, 0) + failed + 1
        self._scripted(event.agent, event.metadata)
        if isinstance(fits := event.metadata.get(FITS), int):
            self.fits[event.agent] = fits
        reply.finished = event
        if self.open and event.status == "success" and event.message is not None:
            self.open.messages[event.message.id] = event.message
            self.open.calling[event.message.id] = event.next_mentions

    def _scripted(self, agent: str, metadata: dict[str, Any]) -> None:
        """Count the entries of an agent's script that are used up."""
        earlier = metadata.get("earlier_attempts", ())
        for notes in (metadata, *(earlier if isinstance(earlier, list) else ())):
            entry = notes.get("scripted") if isinstance(notes, dict) else None
            if isinstance(entry, int):
                self.scripted_used.setdefault(agent, set()).add(entry)

    def _candidates(self, event: Candidates) -> None:
        turn = self._turn(event.turn)
        if turn and self.open:
            turn.candidates = event
            self.open.called.update(event.asked)
            self._show(turn)

    def _turn_finished(self, event: TurnFinished) -> None:
        self.noted = event.seq
        turn = self._turn(event.turn)
        if turn:
            turn.finished = event
            self._show(turn)

    def _chain_finished(self) -> None:
        if self.open and self.open.turns:
            self._show(self.open.turns[-1])
        for turn in self.open.turns if self.open else ():
            for agent, reply in turn.replies.items():
                if reply.finished is None and reply.failed_attempts:
                    self.calls[agent] = self.calls.get(agent, 0) + reply.failed_attempts
        self.open = None

    def _remember(self, event: Event) -> None:
        """Apply an event of the team's memory at the end of a turn."""
        turn = self.open.turns[-1] if self.open and self.open.turns else None
        match event:
            case NoteEvent() if turn and event.message:
                turn.noted.add((event.note, event.message))
            case Deviation() if turn:
                turn.deviations.add((event.reply, event.note))
            case ContextUsage():
                self.levels[event.agent] = event.level
            case Compacted():
                self._compacted(event)
            case Extracted():
                self.extracted, self.extracted_upto = self.messages, event.upto
                self._remembering(event)
            case _:
                pass

    def _compacted(self, event: Compacted) -> None:
        self.tried = event
        if not event.rolled_back:
            self.summary = event
            self.levels.clear()
        if self.open and self.open.turns:
            self.open.turns[-1].compactions.append(event)
        self._remembering(event)

    def _remembering(self, event: Compacted | Extracted) -> None:
        """Apply a call of an agent that works for the team's memory."""
        self._scripted(event.by, event.metadata)
        if event.usage is not None:
            self._unsummed.append(event.usage)
            if self.open:
                self.open.remembering.append(event.usage)

    def _cut_short(self) -> None:
        if self.open and self.open.turns:
            for reply in self.open.turns[-1].replies.values():
                if reply.finished is None:
                    reply.cut_short = True

    def _turn(self, number: int) -> TurnState | None:
        """The open turn, if it has that number."""
        if self.open and self.open.turns and self.open.turns[-1].started.turn == number:
            return self.open.turns[-1]
        return None

    def _show(self, turn: TurnState) -> None:
        for done in turn.successes():
            if done.message is not None and done.message.id not in self._shown:
                self._shown.add(done.message.id)
                self._tell(done.message)

    def _tell(self, message: Message) -> None:
        self.messages += 1
        self._on_message(message)
