"""Every event that a transcript holds, one frozen shape per kind (docs/reference/transcript.md).

The markers of a field (`Volatile`, `Derived`, `Position`, `MessageRef`) define how the canonical
form, recordings, audits and comparisons treat it. A new kind of event that opens, continues and
ends nothing derives from `SideEvent`; every reader then treats it by its markers.

`seq` counts 1, 2, 3, ... without a gap; `ts` is UTC, ISO 8601, ending in `Z`. `chain`, `turn` and
`reply` count over the session. Readers ignore types and fields that they do not know.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, ValidationError

from arena_cli.protocol import (
    Derived,
    Invocation,
    MemberInfo,
    Message,
    MessageRef,
    Position,
    RefusedAction,
    Shape,
    Status,
    Usage,
    Volatile,
    omitted,
)
from arena_cli.yamlio.schema_errors import explain_first

if TYPE_CHECKING:
    from arena_cli.transcript.conversation import Chain
    from arena_cli.transcript.state import Fold

Phase = Literal["A", "B"]
Order = Literal["parallel", "sequence"]
ReplyStatus = Literal["success", "declined", "timeout", "error", "cancelled"]
End = Literal[
    "failed", "chain_limit", "awaiting_human", "no_reply", "quiet", "interrupted", "cancelled"
]
PauseReason = Literal["budget", "approval", "choice", "asked"]

VERSION = 1

FREE_KINDS = frozenset({"scripted"})
"""Kinds of agents that call no model: what they used is known to cost nothing."""


EVENT_TYPES: dict[str, type["Event"]] = {}
"""Every kind of event by its `type`, the order being that of their classes."""


class Event(Shape):
    """The fields of every event.

    An event whose class is `volatile` is specific to this run, and is ignored in comparisons. One
    that `is_control` is defined in `control_events`, and changes the control of its session. One
    that `is_progress` reports the progress of a running reply; nothing depends on it. One that
        `is_acting` is a step of a reply with tools, of `acting_events`, and is shown with it.
    """

    volatile: ClassVar[bool] = False
    is_progress: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    is_acting: ClassVar[bool] = False

    seq: Annotated[int, Volatile]
    ts: Annotated[str, Volatile]
    type: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register a kind of event by its `type`."""
        super().__pydantic_init_subclass__(**kwargs)
        name = cls.model_fields["type"].default
        if isinstance(name, str):
            EVENT_TYPES[name] = cls


class AgentCall(NamedTuple):
    """A call of an agent that is no reply: its cost, and its adapter's notes in `metadata`.

    `agent` contains a blank if a library did the work; no id of an agent has one.
    """

    agent: str
    usage: Usage | None
    metadata: Mapping[str, Any]
    failed: bool = False

    @property
    def is_by_agent(self) -> bool:
        """True if an agent did the work."""
        return " " not in self.agent

    @property
    def is_free(self) -> bool:
        """True if no model was called."""
        return not self.is_by_agent or self.metadata.get("adapter") in FREE_KINDS


class SideEvent(Event):
    """An event outside the steps of a conversation, such as work for the team's memory.

    It opens, continues and ends nothing. Readers show and compare it by its markers, and in the
    timeline by its entry in `reports.event_lines`. One that `outlives_rewinds` changes the session
    even if a person goes back to before it. One that `is_repeated` is written again, with the same
    `order_in_reply`, if its reply is interrupted right after it.
    """

    outlives_rewinds: ClassVar[bool] = False
    is_repeated: ClassVar[bool] = False

    @property
    def order_in_reply(self) -> str:
        """The text by which events about a reply are sorted in canonical order."""
        return ""

    @property
    def agent_call(self) -> AgentCall | None:
        """The call that it reports, whose cost counts; None if it reports none."""
        return None

    @property
    def session_end(self) -> str | None:
        """The end of a session whose last step it is; None if it is no step."""
        return None

    def change_chain(self, chain: "Chain") -> None:
        """Change the control of the open chain; by default nothing."""

    def change_fold(self, fold: "Fold") -> None:
        """Change the control of the session; by default nothing."""


@cache
def list_fields(shape: type[Shape], *markers: type) -> frozenset[str]:
    """Return the names of the fields of a shape that have one of these markers."""
    marked = set()
    for name, field in shape.model_fields.items():
        for marker in markers:
            if marker in field.metadata:
                marked.add(name)
    return frozenset(marked)


class SessionEvent(Event):
    """The members and rules of the session: the first event, and again after each change.

    `scenario` is the title of the scenario that is played here, if one is.
    """

    type: Literal["session"] = "session"
    version: Annotated[int, Derived] = VERSION
    session: Annotated[str, Derived]
    team: str | None = None
    members: list[MemberInfo] = []
    config: dict[str, Any] = {}
    scenario: Annotated[str | None, Derived] = omitted(None)


class MessageEvent(Event):
    """A message that is not a reply. It opens a chain only if it carries `chain`.

    The same `key` opens no second chain in its session.

    One with the number of an `exchange` belongs to it, and to the `reply` of the agent that asked:
    only those two are shown it. Without `shown_to` it is the announcement of that exchange, for
    all. `step` counts its messages, the question being 0.
    """

    is_repeated: ClassVar[bool] = False

    type: Literal["message"] = "message"
    chain: Annotated[int | None, Position] = None
    message: Message
    unresolved: list[str] = []
    planted: bool = False
    key: str = omitted("")
    exchange: Annotated[str, Position] = omitted("")
    reply: Annotated[int, Position] = omitted(0)
    step: int = omitted(0)

    @property
    def is_announcement(self) -> bool:
        """True if it tells the group about an exchange."""
        return bool(self.exchange) and not self.message.shown_to

    @property
    def order_in_reply(self) -> str:
        """Messages of an exchange follow each other, each after the work on it."""
        step = "say" if self.is_announcement else f"s{self.step}"
        return f"{order_in_exchange(self.exchange, step)}~~"


class PassedOver(Shape):
    """The reason a candidate was not asked: below its `threshold`, or another `reason`."""

    relevance: float
    threshold: float | None = None
    reason: str | None = None


Reasons = dict[str, PassedOver]
"""The reasons of agents that were not asked, by id."""


class TurnStarted(Event):
    """A turn opens: `must` in order of call, `deferred` to the next turn.

    `passed_over` are agents that were due and may not be called now, with the reasons. In the
    `order` sequence those who must reply are called one after the other.
    """

    type: Literal["turn_started"] = "turn_started"
    chain: Annotated[int, Position]
    turn: Annotated[int, Position]
    depth: Annotated[int, Position]
    trigger: Annotated[list[str], MessageRef]
    must: list[str]
    deferred: list[str] = []
    mentioned_by: dict[str, list[str]] = {}
    passed_over: dict[str, str] = omitted({})
    order: Order = omitted("parallel")

    @property
    def reasons(self) -> Reasons:
        """The agents that were due and are not called, as those that were not asked."""
        due = self.passed_over.items()
        return {agent: PassedOver(relevance=0.0, reason=reason) for agent, reason in due}


class ReplyStarted(Event):
    """An attempt at a reply begins. `input_tokens` is an estimate.

    `notes` are the ids of the notes that the agent is shown, in order.
    """

    type: Literal["reply_started"] = "reply_started"
    reply: Annotated[int, Position]
    turn: Annotated[int, Position]
    phase: Phase
    agent: str
    adapter: str
    invocation: Invocation
    attempt: Annotated[int, Volatile]
    input_hash: str
    input_tokens: Annotated[int, Derived]
    notes: list[str] = omitted([])


class StatusReported(Event):
    """A status line that an agent reported while it works."""

    volatile: ClassVar[bool] = True
    is_progress: ClassVar[bool] = True

    type: Literal["status"] = "status"
    reply: Annotated[int, Position]
    agent: str
    status: Status
    detail: str = ""
    progress: float | None = None


class ReplyFinished(Event):
    """A reply is over. `next_mentions` are the ids that it calls; `latency_ms` in milliseconds.

    `refused` are the agents that it may not call, `refused_actions` the actions it was not allowed.
    `cancelled_by` is the person that ended a `cancelled` reply, or the state in which its agent may
    not be called; such a reply is final. `error_code` is the class of an error (`AgentError.kind`);
    `retryable` tells whether another attempt may succeed.
    """

    type: Literal["reply_finished"] = "reply_finished"
    reply: Annotated[int, Position]
    turn: Annotated[int, Position]
    phase: Phase
    agent: str
    status: ReplyStatus
    message: Message | None = None
    next_mentions: list[str] = []
    refused: dict[str, str] = {}
    refused_actions: list[RefusedAction] = omitted([])
    unresolved: list[str] = []
    usage: Annotated[Usage | None, Derived] = None
    latency_ms: Annotated[int, Volatile] = 0
    attempts: Annotated[int, Volatile] = 1
    cancelled_by: str = omitted("")
    error: Annotated[str | None, Derived] = None
    error_code: Annotated[str | None, Derived] = omitted(None)
    retryable: Annotated[bool | None, Derived] = omitted(None)
    agent_session: Annotated[dict[str, Any] | None, Volatile] = None
    metadata: Annotated[dict[str, Any], Volatile] = {}


class Candidates(Event):
    """After phase A: the agents that are asked, in order of call, and those that are not."""

    type: Literal["candidates"] = "candidates"
    turn: Annotated[int, Position]
    asked: list[str]
    passed_over: Reasons = {}


class TurnFinished(Event):
    """A turn is over. `next` are all agents due, deferred first, also if a limit stops them."""

    type: Literal["turn_finished"] = "turn_finished"
    turn: Annotated[int, Position]
    called: list[str]
    replied: list[str]
    next: list[str] = []


class ChainFinished(Event):
    """A chain is over; `turns` and `replies` are counts, `awaits` the humans it waits for."""

    type: Literal["chain_finished"] = "chain_finished"
    chain: Annotated[int, Position]
    end: End
    awaits: list[str] = []
    turns: int
    replies: int
    usage: Annotated[Usage, Derived]
    session_usage: Annotated[Usage, Derived, Position]


NoteAct = Literal[
    "added",
    "seen",
    "edited",
    "submitted",
    "approved",
    "rejected",
    "archived",
    "restored",
    "superseded",
    "changed",
    "refused",
]


class NoteEvent(SideEvent):
    """An act on a note: its author, and the status of the note since then.

    `note` is its id (see `notes.model`), `by` the id of an agent or a human, or `rules`; `status`
    is that after the act. `message` is the id of the message that it comes from, if any. An agent's
    text that is no valid note is `refused`, for a `reason`, and has no `note`. `sha256` is the hash
    of the text that was `approved`; if the text was edited since, `changed` is written before any
    further act on the note.
    """

    type: Literal["note"] = "note"
    note: str
    act: NoteAct
    by: str
    kind: str
    title: str
    status: str
    message: Annotated[str | None, MessageRef] = None
    reason: str = ""
    sha256: Annotated[str, Volatile] = omitted("")


class ContextUsage(SideEvent):
    """An agent's window has reached this fill level for the first time since the last compaction.

    `usage_ratio` is the size of all messages without a summary, divided by the room in its window,
    both in tokens. `pinned_left` is the number of pinned messages that have no room, not even by
    title; it is reported once for each agent.
    """

    type: Literal["context_usage"] = "context_usage"
    agent: str
    level: Literal["warning", "saturated"]
    usage_ratio: Annotated[float, Derived]
    tokens: Annotated[int, Derived]
    budget: Annotated[int, Derived]
    pinned_left: Annotated[int, Derived] = 0


class Compacted(SideEvent):
    """Older messages were summarised; nothing is deleted, and they can still be found.

    `by` is the agent that did it, `extractive (<library>)`, or `given (<either>)` in the past of a
    scenario. The summary replaces `messages` messages of the session, all whose seq is not greater
    than that of the id `upto`; it includes an earlier summary. `metadata` are its adapter's notes,
    as a reply's. `tokens_before` and `tokens_after` are estimates. If the summary was unusable,
    `rolled_back` has the reason, and the summary is ignored. `corrected` are the titles of draft
    notes that a later message corrects; they are no longer shown.
    """

    type: Literal["compacted"] = "compacted"
    by: str
    upto: Annotated[str, MessageRef]
    messages: int
    summary: str
    tokens_before: Annotated[int, Derived]
    tokens_after: Annotated[int, Derived]
    usage: Annotated[Usage | None, Derived] = None
    rolled_back: str = ""
    corrected: list[str] = omitted([])
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def is_by_agent(self) -> bool:
        """True if an agent wrote the summary: no agent's id has a blank."""
        return " " not in self.by

    @property
    def agent_call(self) -> AgentCall | None:
        """The call for the summary; None for one that was made without an agent."""
        if self.usage is None and not self.is_by_agent:
            return None
        return AgentCall(self.by, self.usage, self.metadata, failed=bool(self.rolled_back))


def order_in_exchange(exchange: str, *steps: str) -> str:
    """Return the text by which an event of an exchange is sorted within its reply.

    The number of an exchange is that of its reply, and of the call or block by which it began.
    """
    return ".".join(part.zfill(6) for part in (*exchange.split(".")[1:], *steps))


Severity = Literal["high", "medium", "low"]

_SEVERITIES: dict[str, Severity] = {"blocker": "high", "next_action": "medium"}


class Deviation(SideEvent):
    """A reply that ignored or contradicted a note; `kind` is the note's.

    `sentence` decided it: of the reply, or of the messages that ask for a next action.
    """

    type: Literal["deviation"] = "deviation"
    reply: Annotated[int, Position]
    agent: str
    note: str
    kind: str
    level: Literal["replan_required", "warning"]
    severity: Severity = Field(
        default_factory=lambda fields: _SEVERITIES.get(fields.get("kind", ""), "low")
    )
    reason: str
    sentence: Annotated[str, Derived] = omitted("")


class HeedJudged(SideEvent):
    """An agent judged if the reply ignores one of `notes` notes.

    `error` is the reason if it failed; the rules decided then.
    """

    type: Literal["heed_judged"] = "heed_judged"
    by: str
    reply: Annotated[int, Position]
    notes: int
    usage: Annotated[Usage | None, Derived] = None
    error: Annotated[str | None, Derived] = None
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def agent_call(self) -> AgentCall | None:
        """The call of the agent that judged."""
        return AgentCall(self.by, self.usage, self.metadata, failed=self.error is not None)


class Extracted(SideEvent):
    """An agent searched for new notes, up to the message `upto`, and found `notes` of them.

    `error` is the reason if it failed.
    """

    type: Literal["extracted"] = "extracted"
    by: str
    upto: Annotated[str, MessageRef]
    notes: int = 0
    usage: Annotated[Usage | None, Derived] = None
    error: Annotated[str | None, Derived] = None
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def agent_call(self) -> AgentCall | None:
        """The call of the agent that searched."""
        failed = self.error is not None and not self.notes
        return AgentCall(self.by, self.usage, self.metadata, failed=failed)


class Recovered(Event):
    """The bytes that were set aside when the transcript was repaired."""

    volatile: ClassVar[bool] = True

    type: Literal["recovered"] = "recovered"
    what: str
    bytes: int
    kept_in: str | None = None


class Resumed(Event):
    """The point at which an interrupted chain continues."""

    volatile: ClassVar[bool] = True

    type: Literal["resumed"] = "resumed"
    chain: Annotated[int, Position]
    after_seq: int


def find_type(name: str) -> type[Event] | None:
    """Return the class of a type of event; None for one that this version does not know."""
    for module in _MORE_EVENTS if name else ():
        if name in EVENT_TYPES:
            break
        import_module(module)
    return EVENT_TYPES.get(name)


_CONTROL_EVENTS = "arena_cli.transcript.control_events"
_MORE_EVENTS = (
    _CONTROL_EVENTS,
    "arena_cli.transcript.acting_events",
    "arena_cli.transcript.exchange_events",
    "arena_cli.transcript.flow_events",
    "arena_cli.transcript.plan_events",
    "arena_cli.transcript.task_events",
)
"""The modules of events that few sessions have; each is imported when it is needed."""


def import_control_events() -> Any:
    """Return the module of the events of control, which register themselves on import."""
    return import_module(_CONTROL_EVENTS)


def parse(record: dict[str, Any]) -> Event | None:
    """Return the event in one decoded line; None for a type that this version does not know.

    Raises ValueError if the line is of a known type with invalid fields.
    """
    shape = find_type(str(record.get("type")))
    if shape is None:
        return None
    try:
        return shape.model_validate(record)
    except ValidationError as error:
        raise ValueError(f"{record.get('type')}: {explain_first(error)}") from error


_OWN_LINE = re.compile(rb'\{"seq":\d+,"ts":"[^"\\]*","type":"(\w+)",')


def read_type(raw: bytes) -> str | None:
    """Return the type of the event in a line by `encode_line`; None for every other line."""
    match = _OWN_LINE.match(raw)
    return match[1].decode() if match else None


def parse_own(raw: bytes) -> Event | None:
    """Return the event in a line by `encode_line`; None for every other line.

    For nearly all lines, this takes about half the time of decoding the line first.
    """
    shape = find_type(read_type(raw) or "")
    if shape is None:
        return None
    try:
        return shape.model_validate_json(raw)
    except ValidationError:
        return None


def encode_line(event: Event) -> bytes:
    r"""Return the event as its line in the transcript, `\n` included."""
    return event.model_dump_json().encode("utf-8") + b"\n"
