"""Fold events into a session's state: its counters, and the complete open chain.

The engine applies each event after it is written, a reader after it is read: both end with the same
`Fold`, so resuming after a crash is continuing (docs/reference/transcript.md has the table of
steps).

`Counts` corrects the estimates of tokens by the counts of providers, for each agent and its model.
A reply counts if its metadata report that its provider was sent exactly the text that arena
renders, once (`input_counted`), and if it succeeded at the first attempt. The factor is the sum of
counts divided by the sum of estimates, and each further reply halves the earlier sums. So the
longest and the latest inputs weigh most, and the tokens that a provider adds to each call (a chat's
frames, a tool) matter less as inputs grow. A server whose context is too small cuts prompts
silently, and one with a cache may count only the uncached part. Such counts are reported
(`cut_suspected`), and are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

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
    import_control_events,
    list_fields,
)

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import SessionControl
    from arena_cli.transcript.revisions import Revisions

MARK = "input_counted"

# Tokenizers in use make 0.6 (a large vocabulary's Hindi) to 3 (a small model's Chinese) of the
# estimate, few more: a correction beyond that would rather come of something else.
LEAST, MOST = 0.4, 3.0

# So much more than the estimate is no text's (a small model's Thai is 5 times): it is a prompt of
# the provider's own.
_NO_TEXT = 6.0

# The least that servers give a context by default (Ollama's was 2,048 tokens); others double it.
SMALLEST_WINDOW = 2_048

_KEPT = 0.5


@dataclass
class _Learned:
    """The counts of one agent's model. `cut` is the last count, if it is one that is not used.

    `estimated` and `counted` are the sums, `last_estimated` and `last_counted` those of the last
    reply that was used.
    """

    model: str
    estimated: float = 0.0
    counted: float = 0.0
    last_estimated: float = 0.0
    last_counted: int = 0
    cut: int | None = None

    @property
    def factor(self) -> float:
        if not self.estimated:
            return 1.0
        return round(min(MOST, max(LEAST, self.counted / self.estimated)), 3)

    def hear(self, estimated: float, counted: int) -> None:
        """Add one count of an input, in tokens, with its uncorrected estimate."""
        if self._is_short(estimated, counted):
            self.cut = counted
            return
        self.cut = None
        if counted > _NO_TEXT * estimated:
            return
        self.estimated = round(self.estimated * _KEPT + estimated, 3)
        self.counted = round(self.counted * _KEPT + counted, 3)
        self.last_estimated, self.last_counted = estimated, counted

    def _is_short(self, estimated: float, counted: int) -> bool:
        """Return True if the count cannot be that of the whole input."""
        expected = estimated * self.factor
        if counted < LEAST * estimated:
            return True
        if expected >= 0.9 * SMALLEST_WINDOW and counted < 0.6 * expected:
            return True
        if _fills_a_window(counted) and expected > 1.15 * counted:
            return True
        if not self.last_counted:
            return False
        grown = estimated / self.last_estimated - 1
        count_grown = counted / self.last_counted - 1
        if grown > 0.1:
            return count_grown < grown / 4
        return grown > -0.05 and count_grown < -0.1


def _fills_a_window(counted: int) -> bool:
    """Return True for a power of two, from the smallest window on, or up to 2 % less."""
    window = SMALLEST_WINDOW
    while window < counted:
        window *= 2
    return 0.98 * window <= counted


class Counts:
    """The ratio of its model's counts to the estimates, by agent."""

    def __init__(self) -> None:
        self._learned: dict[str, _Learned] = {}
        self._asked: dict[int, float] = {}

    def factor(self, agent: str) -> float:
        """Return the factor that corrects an estimate for this agent; 1.0 if none is known."""
        learned = self._learned.get(agent)
        return learned.factor if learned else 1.0

    def cut_suspected(self, agent: str) -> int | None:
        """Return the provider's last count if it cannot have read the whole input, else None."""
        learned = self._learned.get(agent)
        return learned.cut if learned else None

    def apply(self, event: Event) -> None:
        """Apply one event."""
        if isinstance(event, ReplyStarted):
            # What the event tells is corrected already.
            self._asked[event.reply] = event.input_tokens / self.factor(event.agent)
        elif isinstance(event, ReplyFinished):
            self._finished(event, self._asked.pop(event.reply, 0.0))
        elif isinstance(event, ChainFinished):
            self._asked.clear()

    def _finished(self, event: ReplyFinished, estimated: float) -> None:
        usage = event.usage
        if not event.metadata.get(MARK) or usage is None or usage.estimated or estimated <= 0:
            return
        if event.attempts != 1 or event.status not in ("success", "declined"):
            return
        counted = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        model = str(event.metadata.get("model", ""))
        learned = self._learned.get(event.agent)
        if learned is None or learned.model != model:
            learned = self._learned[event.agent] = _Learned(model)
        if counted > 0:
            learned.hear(round(estimated, 3), counted)

    def record(self) -> dict[str, list[Any]]:
        """Return the counts as JSON; a call that is not answered yet is left out."""
        return {agent: list(astuple(learned)) for agent, learned in self._learned.items()}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Restore the recorded state. Raises TypeError or ValueError if it has another shape."""
        learned = {str(agent): _restored(*figures) for agent, figures in record.items()}
        self._learned, self._asked = learned, {}


def _restored(
    model: object,
    estimated: float,
    counted: float,
    last_estimated: float,
    last_counted: int,
    cut: int | None,
) -> _Learned:
    return _Learned(
        str(model),
        float(estimated),
        float(counted),
        float(last_estimated),
        int(last_counted),
        None if cut is None else int(cut),
    )


FITS = "fits_tokens"
MOST_UNSUMMED = 256
_BREAKER_KEYS = frozenset({"rules", "rejection_rate", "failures", "pause_s"})
"""The rules of a team by which replies are counted for circuit breakers."""

_COUNTERS = frozenset({"chain", "turn", "reply"})


@cache
def _list_counters(shape: type[Event]) -> Sequence[str]:
    """Return the numbers of an event that the fold counts; control is about a turn to come."""
    return () if shape.is_control else tuple(_COUNTERS & list_fields(shape, Position))


class Fold:
    """The state of a session after the events applied so far.

    `chain`, `turn` and `reply` are the last numbers; `messages` is the number of messages that
    all agents may be shown. `on_message` is called for each message, in the order in which agents
    see them: replies of a phase in order of call, when the phase is over, and messages that
    came meanwhile after them. `agent_sessions` are the sessions of agents' own, of those whose last
    call ended properly.

    `summary` is the last valid compaction, `tried` the last one; `levels` are the fill levels of
    agents' windows reported since then; `crowded` are the agents whose pinned messages are reported
    to have no room. `extracted` is the number of messages when notes were last
    extracted, up to `extracted_upto`; messages up to the seq `noted` were searched for notes.
    `fits` is the number of tokens that an agent accepts, for those whose input exceeded it.
    `control` is what people and rules decided for the rest of the session, if they did;
    `revisions` are the rewinds and corrections, if there are any.
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
        self.crowded: set[str] = set()
        self.fits: dict[str, int] = {}
        self.extracted = 0
        self.extracted_upto = ""
        self.noted = 0
        self.counts = Counts()
        self.control: SessionControl | None = None
        self.revisions: Revisions | None = None
        self._usage: Usage | None = None
        self._unsummed: list[Usage] = []
        self.open: Chain | None = None
        self._on_message = on_message

    def apply(self, event: Event) -> None:
        """Apply one event. Events that do not fit the open chain change nothing."""
        self._count(event)
        self.counts.apply(event)
        if isinstance(event, MessageEvent) and event.chain is not None:
            self.open = Chain.open(event)
            self._tell(event.message)
        elif self.open:
            for message in self.open.apply(event):
                self._tell(message)
            if self.open.turns and event is self.open.turns[-1].finished:
                self.noted = event.seq
        elif isinstance(event, MessageEvent):
            self._tell(event.message)
        match event:
            case SessionEvent():
                self._open_session(event)
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

    def _open_session(self, event: SessionEvent) -> None:
        self.session = event
        if self.control is None and not _BREAKER_KEYS.isdisjoint(event.config):
            import_control_events().session_control_of(self)

    def read(self, event: Event, revisions: Revisions) -> None:
        """Apply an event of a transcript with these revisions: as agents are shown it now.

        Of an event that is skipped, only what a rewind does not undo counts: the numbers, the team,
        the cost, and decisions that hold for the session (`outlives_rewinds`).
        """
        if not revisions:
            self.apply(event)
        elif not revisions.is_skipped(event.seq):
            self.apply(revisions.correct(event))
        else:
            self._count(event)
            if isinstance(event, SessionEvent):
                self._open_session(event)
            elif isinstance(event, ReplyFinished) and event.usage is not None:
                self._unsummed.append(event.usage)
            elif isinstance(event, SideEvent):
                if event.outlives_rewinds:
                    event.change_fold(self)
                if (call := event.agent_call) and call.usage is not None:
                    self._unsummed.append(call.usage)

    def _count(self, event: Event) -> None:
        """Count the numbers of an event."""
        self.seq = max(self.seq, event.seq)
        for name in _list_counters(type(event)):
            if (number := getattr(event, name)) and number > getattr(self, name):
                setattr(self, name, number)

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
        self._unsummed.clear()

    def _sum_up(self) -> None:
        if self._unsummed:
            earlier = [self._usage] if self._usage else []
            self._usage = Usage.total([*earlier, *self._unsummed])
            self._unsummed.clear()

    def _reply_finished(self, event: ReplyFinished) -> None:
        if event.usage is not None:
            self._unsummed.append(event.usage)
            if len(self._unsummed) >= MOST_UNSUMMED:
                self._sum_up()
        if event.status == "cancelled":
            return
        if self.control is not None:
            self.control.count_reply(event)
        turn = self._turn(event.turn)
        reply = turn.replies[event.agent] if turn else make_reply(event)
        if event.agent_session and event.status in ("success", "declined"):
            started = reply.started.seq if reply.started else event.seq
            if not self._is_corrected_since(started):
                self.agent_sessions[event.agent] = event.agent_session
        self.calls[event.agent] = self.calls.get(event.agent, 0) + reply.failed_attempts + 1
        self._scripted(event.agent, event.metadata)
        if isinstance(fits := event.metadata.get(FITS), int):
            self.fits[event.agent] = fits

    def _is_corrected_since(self, seq: int) -> bool:
        """Return True if a message was corrected while a call that began there ran."""
        corrections = self.revisions.corrections if self.revisions else ()
        return any(correction.seq > seq for correction in corrections)

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
        if self.control is not None and self.control.tasks is not None:
            self.control.tasks.release()

    def _remember(self, event: SideEvent) -> None:
        """Apply an event of the team's memory or of its control."""
        if event.is_control:
            event.change_fold(self)
        match event:
            case ContextUsage():
                self.levels[event.agent] = event.level
                if event.pinned_left:
                    self.crowded.add(event.agent)
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
        self.messages += not message.shown_to
        self._on_message(message)
