"""Every event that a transcript holds, one frozen shape a kind (docs/reference/transcript.md).

`seq` counts 1, 2, 3, ... without a gap; `ts` is UTC, ISO 8601, ending in `Z`. `chain`, `turn` and
`reply` count over the session. Readers ignore types and fields that they do not know.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from arena_cli.protocol import Invocation, MemberInfo, Message, Shape, Status, Usage

Phase = Literal["A", "B"]
ReplyStatus = Literal["success", "declined", "timeout", "error", "cancelled"]
End = Literal["failed", "chain_limit", "awaiting_human", "no_reply", "quiet", "interrupted"]

VERSION = 1

FREE_KINDS = frozenset({"scripted"})
"""Kinds of agents that call no model: what they used is known to cost nothing."""


class Event(Shape):
    """The fields of every event."""

    seq: int
    ts: str
    type: str


class SessionEvent(Event):
    """The members and rules of the session: the first event, and again after each change.

    `scenario` is the title of the scenario that is played here, if one is.
    """

    type: Literal["session"] = "session"
    version: int = VERSION
    session: str
    team: str | None = None
    members: list[MemberInfo] = []
    config: dict[str, Any] = {}
    scenario: str | None = Field(default=None, exclude_if=lambda title: title is None)


class MessageEvent(Event):
    """A message that is not a reply. It opens a chain only if it carries `chain`."""

    type: Literal["message"] = "message"
    chain: int | None = None
    message: Message
    unresolved: list[str] = []
    planted: bool = False


class TurnStarted(Event):
    """A turn opens: `must` in order of call, `deferred` to the next turn."""

    type: Literal["turn_started"] = "turn_started"
    chain: int
    turn: int
    depth: int
    trigger: list[str]
    must: list[str]
    deferred: list[str] = []
    mentioned_by: dict[str, list[str]] = {}


class ReplyStarted(Event):
    """An attempt at a reply begins. `input_tokens` is an estimate.

    `notes` are the ids of the notes that the agent is shown, in order.
    """

    type: Literal["reply_started"] = "reply_started"
    reply: int
    turn: int
    phase: Phase
    agent: str
    adapter: str
    invocation: Invocation
    attempt: int
    input_hash: str
    input_tokens: int
    notes: list[str] = Field(default=[], exclude_if=lambda shown: not shown)


class StatusReported(Event):
    """A status line that an agent reported while it works."""

    type: Literal["status"] = "status"
    reply: int
    agent: str
    status: Status
    detail: str = ""
    progress: float | None = None


class ReplyFinished(Event):
    """A reply is over. `next_mentions` are the ids that it calls; `latency_ms` in milliseconds."""

    type: Literal["reply_finished"] = "reply_finished"
    reply: int
    turn: int
    phase: Phase
    agent: str
    status: ReplyStatus
    message: Message | None = None
    next_mentions: list[str] = []
    refused: dict[str, str] = {}
    unresolved: list[str] = []
    usage: Usage | None = None
    latency_ms: int = 0
    attempts: int = 1
    error: str | None = None
    agent_session: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}


class PassedOver(Shape):
    """The reason a candidate was not asked: below its `threshold`, or another `reason`."""

    relevance: float
    threshold: float | None = None
    reason: str | None = None


class Candidates(Event):
    """After phase A: who was asked, in order of call, and who was not."""

    type: Literal["candidates"] = "candidates"
    turn: int
    asked: list[str]
    passed_over: dict[str, PassedOver] = {}


class TurnFinished(Event):
    """A turn is over. `next` is everyone due, deferred first, also where a limit stops them."""

    type: Literal["turn_finished"] = "turn_finished"
    turn: int
    called: list[str]
    replied: list[str]
    next: list[str] = []


class ChainFinished(Event):
    """A chain is over; `turns` and `replies` are counts, `awaits` the humans it waits for."""

    type: Literal["chain_finished"] = "chain_finished"
    chain: int
    end: End
    awaits: list[str] = []
    turns: int
    replies: int
    usage: Usage
    session_usage: Usage


NoteAct = Literal[
    "added",
    "seen",
    "edited",
    "submitted",
    "approved",
    "rejected",
    "archived",
    "superseded",
    "changed",
    "refused",
]


class NoteEvent(Event):
    """Something was done to a note: by whom, and as what it stands since.

    `note` is its id (see `notes.model`), `by` the id of an agent or a human, or `rules`; `status`
    is that after it. `message` is the id of the message that it comes from, if one. What an agent
    wrote and is no note is `refused`, for a `reason`; it has no `note`. `sha256` is the hash of the
    text that was `approved`; a text that was changed since is `changed` before anything else is
    done to the note.
    """

    type: Literal["note"] = "note"
    note: str
    act: NoteAct
    by: str
    kind: str
    title: str
    status: str
    message: str | None = None
    reason: str = ""
    sha256: str = Field(default="", exclude_if=lambda value: not value)


class ContextUsage(Event):
    """An agent's window has filled up so far for the first time since the last compaction.

    `usage_ratio` is what all that is not summarised yet would take, over what its window has room
    for, both in tokens.
    """

    type: Literal["context_usage"] = "context_usage"
    agent: str
    level: Literal["warning", "saturated"]
    usage_ratio: float
    tokens: int
    budget: int


class Compacted(Event):
    """Older messages were summarised; nothing is deleted, and they can still be found.

    `by` is the agent that did it, `extractive (<library>)`, or `given (<either>)` in the past of a
    scenario. The summary stands for `messages` messages of the session, all whose seq is not
    greater than that of the id `upto`; an earlier summary is taken up in it. `metadata` are its
    adapter's notes, as a reply's. `tokens_before` and `tokens_after` are estimates. Where it was no
    good, `rolled_back` says why, and the summary counts for nothing.
    """

    type: Literal["compacted"] = "compacted"
    by: str
    upto: str
    messages: int
    summary: str
    tokens_before: int
    tokens_after: int
    usage: Usage | None = None
    rolled_back: str = ""
    metadata: dict[str, Any] = Field(default={}, exclude_if=lambda notes: not notes)

    @property
    def is_by_agent(self) -> bool:
        """True if an agent wrote the summary: no agent's id has a blank."""
        return " " not in self.by


class Deviation(Event):
    """A reply did not heed a note that its agent was shown; `kind` is the note's."""

    type: Literal["deviation"] = "deviation"
    reply: int
    agent: str
    note: str
    kind: str
    level: Literal["replan_required", "warning"]
    reason: str


class Extracted(Event):
    """An agent looked for what is worth a note, up to the message `upto`; `notes` it found.

    `error` says why nothing came of it, where it failed.
    """

    type: Literal["extracted"] = "extracted"
    by: str
    upto: str
    notes: int = 0
    usage: Usage | None = None
    error: str | None = None
    metadata: dict[str, Any] = Field(default={}, exclude_if=lambda notes: not notes)


class Recovered(Event):
    """The bytes that were set aside when the transcript was repaired."""

    type: Literal["recovered"] = "recovered"
    what: str
    bytes: int
    kept_in: str | None = None


class Resumed(Event):
    """The point at which an interrupted chain continues."""

    type: Literal["resumed"] = "resumed"
    chain: int
    after_seq: int


class EventTypes:
    """Event shapes by the value of `type`."""

    by_name: ClassVar[dict[str, type[Event]]] = {
        "session": SessionEvent,
        "message": MessageEvent,
        "turn_started": TurnStarted,
        "reply_started": ReplyStarted,
        "status": StatusReported,
        "reply_finished": ReplyFinished,
        "candidates": Candidates,
        "turn_finished": TurnFinished,
        "chain_finished": ChainFinished,
        "note": NoteEvent,
        "context_usage": ContextUsage,
        "compacted": Compacted,
        "deviation": Deviation,
        "extracted": Extracted,
        "recovered": Recovered,
        "resumed": Resumed,
    }


def parse(record: dict[str, Any]) -> Event | None:
    """The event in one decoded line; None for a type that this version does not know.

    Raises ValueError where the line is a known type with wrong fields.
    """
    shape = EventTypes.by_name.get(str(record.get("type")))
    if shape is None:
        return None
    try:
        return shape.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"{record.get('type')}: {location}: {first['msg']}") from error


_OWN_LINE = re.compile(rb'\{"seq":\d+,"ts":"[^"\\]*","type":"(\w+)",')


def read_type(raw: bytes) -> str | None:
    """The type of the event in a line as `encode_line` writes it; None for every other line."""
    match = _OWN_LINE.match(raw)
    return match[1].decode() if match else None


def parse_own(raw: bytes) -> Event | None:
    """The event in a line as `encode_line` writes it; None for every other line.

    About half the time of decoding the line first, for what nearly every line is.
    """
    shape = EventTypes.by_name.get(read_type(raw) or "")
    if shape is None:
        return None
    try:
        return shape.model_validate_json(raw)
    except ValidationError:
        return None


def encode_line(event: Event) -> bytes:
    r"""The event as its line in the transcript, `\n` included."""
    return event.model_dump_json().encode("utf-8") + b"\n"
