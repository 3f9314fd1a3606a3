"""Fold events into a session's state: its counters, and the complete open chain.

The engine applies each event after it is written, a reader after it is read: both end with the same
`Fold`, so resuming after a crash is continuing (docs/reference/transcript.md has the table of
steps).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arena_cli.protocol import Message, Position, Usage
from arena_cli.transcript.conversation import Chain, Turn, make_reply
from arena_cli.transcript.events import (
    ChainFinished,
    Compacted,
    ContextUsage,
    Event,
    Extracted,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    SideEvent,
    list_fields,
)
from arena_cli.transcript.token_calibration import Counts

FITS = "fits_tokens"
MOST_UNSUMMED = 256
_COUNTERS = frozenset({"chain", "turn", "reply"})


class Fold:
    """The state of a session after the events applied so far.

    `chain`, `turn` and `reply` are the last numbers; `messages` is the number of messages that
    agents may be shown. `on_message` is called for each of these messages, in the order in which
    agents see them: replies of a phase in order of call, when the phase is over. `agent_sessions`
    are the sessions of agents' own, of those whose last call ended properly.

    `summary` is the last valid compaction, `tried` the last one; `levels` are the fill levels of
    agents' windows reported since then. `extracted` is the number of messages when notes were last
    extracted, up to `extracted_upto`; messages up to the seq `noted` were searched for notes.
    `fits` is the number of tokens that an agent accepts, for those whose input exceeded it.
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
        self.open: Chain | None = None
        self._on_message = on_message

    def apply(self, event: Event) -> None:
        """Apply one event. Events that do not fit the open chain change nothing."""
        self.seq = max(self.seq, event.seq)
        for name in _COUNTERS & list_fields(type(event), Position):
            setattr(self, name, max(getattr(self, name), getattr(event, name) or 0))
        self.counts.apply(event)
        if isinstance(event, MessageEvent):
            self._message(event)
        elif self.open:
            for message in self.open.apply(event):
                self._tell(message)
            if self.open.turns and event is self.open.turns[-1].finished:
                self.noted = event.seq
        match event:
            case SessionEvent():
                self.session = event
            case ReplyStarted():
                self.agent_sessions.pop(event.agent, None)
            case ReplyFinished():
                self._reply_finished(event)
            case ChainFinished():
                self._chain_finished()
            case SideEvent():
                self._remember(event)
            case _:
                pass

    def spent(self) -> Usage:
        """Return the usage of all replies of the session."""
        return self.usage or Usage()

    @property
    def usage(self) -> Usage | None:
        """The usage of the whole session; None if no agent reported any."""
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
            self.open = Chain.open(event)
        elif self.open:
            self.open.apply(event)
        self._tell(event.message)

    def _reply_finished(self, event: ReplyFinished) -> None:
        if event.usage is not None:
            self._unsummed.append(event.usage)
            if len(self._unsummed) >= MOST_UNSUMMED:
                self._sum_up()
        if event.status == "cancelled":
            return
        if event.agent_session and event.status in ("success", "declined"):
            self.agent_sessions[event.agent] = event.agent_session
        turn = self._turn(event.turn)
        reply = turn.replies[event.agent] if turn else make_reply(event)
        self.calls[event.agent] = self.calls.get(event.agent, 0) + reply.failed_attempts + 1
        self._scripted(event.agent, event.metadata)
        if isinstance(fits := event.metadata.get(FITS), int):
            self.fits[event.agent] = fits

    def _scripted(self, agent: str, metadata: Mapping[str, Any]) -> None:
        """Count the entries of an agent's script that are used up."""
        earlier = metadata.get("earlier_attempts", ())
        for notes in (metadata, *(earlier if isinstance(earlier, list) else ())):
            entry = notes.get("scripted") if isinstance(notes, dict) else None
            if isinstance(entry, int):
                self.scripted_used.setdefault(agent, set()).add(entry)

    def _chain_finished(self) -> None:
        for turn in self.open.turns if self.open else ():
            for agent, reply in turn.replies.items():
                if reply.finished is None and reply.failed_attempts:
                    self.calls[agent] = self.calls.get(agent, 0) + reply.failed_attempts
        self.open = None

    def _remember(self, event: SideEvent) -> None:
        """Apply an event of the team's memory."""
        match event:
            case ContextUsage():
                self.levels[event.agent] = event.level
            case Compacted():
                self.tried = event
                if not event.rolled_back:
                    self.summary = event
                    self.levels.clear()
            case Extracted():
                self.extracted, self.extracted_upto = self.messages, event.upto
            case _:
                pass
        call = event.agent_call
        if call is not None:
            self._scripted(call.agent, call.metadata)
            self._unsummed += [call.usage] if call.usage is not None else []

    def _turn(self, number: int) -> Turn | None:
        """Return the open turn, if it has that number."""
        if self.open and self.open.turns and self.open.turns[-1].started.turn == number:
            return self.open.turns[-1]
        return None

    def _tell(self, message: Message) -> None:
        self.messages += 1
        self._on_message(message)
