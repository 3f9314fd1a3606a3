"""The protocol between arena and every kind of agent: `AgentInput` in, `AgentOutput` out.

Field names are fixed (docs/adapters.md). All shapes are frozen: what was shown or said is never
changed, only written anew. What an agent sends beside the known fields is kept in `metadata`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

AuthorType = Literal["human", "agent", "system"]
Invocation = Literal["must_reply", "may_reply"]
MessageKind = Literal["chat", "task", "system", "file", "code"]
Role = Literal["user", "assistant", "system"]
Status = Literal[
    "idle",
    "analyzing",
    "reading_memory",
    "calling_tool",
    "generating",
    "reviewing",
    "waiting",
    "done",
    "error",
    "timeout",
]

TRUE_WORDS = frozenset({"true", "1", "yes", "y", "是"})
FALSE_WORDS = frozenset({"false", "0", "no", "n", "否"})


class Shape(BaseModel):
    """A frozen record; its schema is built at first use, so that importing it costs little."""

    model_config = ConfigDict(frozen=True, defer_build=True, extra="ignore")


class StatusEvent(Shape):
    """What an agent is doing now. `progress` runs from 0 to 1."""

    status: Status
    detail: str = ""
    progress: float | None = Field(default=None, ge=0, le=1)


class Attachment(Shape):
    """A file that goes with a message.

    On its way in or out `data` holds the content (text; base64 for an image). In a transcript and
    in an `AgentInput` the content lies at `path` (relative to the workspace), `size` in bytes.
    """

    type: Literal["file", "code", "json", "image"] = "file"
    name: str
    data: Any = None
    path: str | None = None
    size: int | None = None
    sha256: str | None = None

    def picture(self) -> bytes | None:
        """The content of an image that comes as base64; None for all else."""
        if self.type != "image" or not isinstance(self.data, str):
            return None
        import base64  # noqa: PLC0415 - few messages carry a picture

        try:
            return base64.b64decode(self.data, validate=True)
        except ValueError:
            return None


class StructuredContent(Shape):
    """A part of a message that is data, not prose; the timeline draws each type."""

    type: Literal[
        "task_list", "code_block", "architecture_diagram", "diff", "approval_request", "note"
    ]
    data: Any = None


# No call costs more, in US dollars: a million tokens cost at most some hundreds.
MOST_COST_USD = 10_000.0
COST_NOT_TAKEN = "cost_not_taken"
"""The key of a reply's metadata that has the cost which its agent gave and nobody believes."""


class Usage(Shape):
    """Tokens and money of one call or of many. `cost_usd` None: not known, which is not free."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    @field_validator(
        "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", mode="after"
    )
    @classmethod
    def _at_least_none(cls, count: int) -> int:
        return max(0, count)

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002 - given by pydantic
        """Set aside a cost that is no sum of money: NaN, infinite, negative."""
        cost = self.cost_usd
        if cost is not None and not 0 <= cost < math.inf:
            self.__dict__.update(cost_usd=None, refused_cost=cost)

    @cached_property
    def refused_cost(self) -> float | None:
        """The cost that was set aside; None where there was none."""
        return None

    def of_one_call(self) -> tuple[Usage, float | None]:
        """Return it without a cost that no call can have, and that cost."""
        cost = self.cost_usd if self.refused_cost is None else self.refused_cost
        if cost is None or 0 <= cost <= MOST_COST_USD:
            return self, None
        return self.model_copy(update={"cost_usd": None}), cost

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """The sum; its cost is known only if every part's is, and it is estimated if one is."""
        whole = list(parts)
        costs = [part.cost_usd for part in whole if part.cost_usd is not None]
        known = bool(whole) and len(costs) == len(whole)
        summed = cls(
            input_tokens=sum([part.input_tokens for part in whole]),
            output_tokens=sum([part.output_tokens for part in whole]),
            cache_read_tokens=sum([part.cache_read_tokens for part in whole]),
            cache_write_tokens=sum([part.cache_write_tokens for part in whole]),
            cost_usd=round(sum(costs), 10) if known else None,
            estimated=any(part.estimated for part in whole),
        )
        refused = [cost for part in whole if (cost := part.__dict__.get("refused_cost"))]
        summed.__dict__.update({"refused_cost": refused[0]} if refused else {})
        return summed


class Message(Shape):
    """One message of a session, as the transcript keeps it. Its `id` is `m<seq>`."""

    id: str
    turn_id: str | None = None
    author_id: str
    author_name: str
    author_type: AuthorType
    content: str
    mentions: list[str] = []
    reply_to: str | None = None
    attachments: list[Attachment] = []
    structured: list[StructuredContent] = []
    timestamp: str
    kind: MessageKind = "chat"
    metadata: dict[str, Any] = {}

    @property
    def seq(self) -> int:
        """The seq of the event that carries it, 0 where its id tells none."""
        return seq_of(self.id)


def seq_of(message_id: str) -> int:
    """The seq of the event that carries the message of that id, 0 where it tells none."""
    digits = message_id.removeprefix("m")
    return int(digits) if digits.isascii() and digits.isdigit() else 0


class ShownMessage(Message):
    """A message as one agent is shown it: its own are `assistant`; `metadata` is left out."""

    role: Role


class MemberInfo(Shape):
    """A member of the team as the others know it. `role` is its role in the team, or empty."""

    id: str
    name: str
    role: str = ""


class AgentSession(Shape):
    """A session that an agent keeps for itself.

    `upto_seq` is the greatest seq among the messages that it was shown there; `state` is what its
    adapter noted with the last `SessionId`.
    """

    id: str
    upto_seq: int
    state: dict[str, Any] = {}


class AgentInput(Shape):
    """One call of one agent.

    `turn` counts the chain's turns from 1; `call` is 1 + this agent's finished calls in the
    session; `trigger` names the turn's new messages; `deadline_s` is the time left, in seconds.
    `memory_context` is what the team remembers: the summary of what stands before the messages,
    which seldom changes, then the notes that bear on this call; `memory_stable` is how many
    characters of it the first part is. `own_session` is where an agent that keeps a session may go
    on, None where it is to begin afresh. `input_hash` is the hash of all that is shown
    (`context.digest`). These last three are in no dump, so in no hash and no recording.
    """

    session_id: str
    turn_id: str
    turn: int
    call: int
    trigger: list[str]
    agent_id: str
    role_prompt: str
    invocation: Invocation
    mentioned_by: list[str] = []
    members: list[MemberInfo] = []
    messages: list[ShownMessage] = []
    memory_context: str | None = None
    max_output_tokens: int = 2000
    prefer_concise: bool = False
    deadline_s: float | None = None
    memory_stable: int = Field(default=0, exclude=True)
    own_session: AgentSession | None = Field(default=None, exclude=True)
    input_hash: str = Field(default="", exclude=True)

    def afresh(self) -> AgentInput:
        """The same call without a session to go on in: the agent is shown everything."""
        return self.model_copy(update={"own_session": None})

    def unseen(self) -> list[ShownMessage]:
        """The messages that the agent's own session does not hold yet; all, where it has none."""
        if self.own_session is None:
            return self.messages
        upto = self.own_session.upto_seq
        return [
            message
            for message in self.messages
            if message.seq > upto and message.role != "assistant"
        ]

    def triggers(self) -> list[ShownMessage]:
        """The messages that `trigger` names, in order."""
        wanted = set(self.trigger)
        return [message for message in self.messages if message.id in wanted]


def decision(value: object) -> bool | None:
    """What a model wrote for a yes or no, read by a table; None where it is neither."""
    word = str(value).strip().casefold()
    if isinstance(value, (bool, int, float, str)):
        if word in TRUE_WORDS or value == 1:
            return True
        if word in FALSE_WORDS or value == 0:
            return False
    return None


class AgentOutput(Shape):
    """What an agent answered.

    `should_respond` is read by `decision`; None is a decision that could not be read. Unknown keys,
    here and in the parts, are moved into `metadata` under the place where they stood.
    """

    content: str = ""
    next_mentions: list[str] = []
    should_respond: bool | None = True
    status_updates: list[StatusEvent] = []
    attachments: list[Attachment] = []
    structured: list[StructuredContent] = []
    usage: Usage | None = None
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _set_aside_what_is_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        metadata = data.get("metadata", {})
        kept = dict(metadata) if isinstance(metadata, dict) else {"metadata": metadata}
        known = _known_keys(cls, data, "", kept)
        parts: dict[str, type[Shape]] = {
            "status_updates": StatusEvent,
            "attachments": Attachment,
            "structured": StructuredContent,
        }
        for key, shape in parts.items():
            if isinstance(known.get(key), list):
                known[key] = [
                    _known_keys(shape, item, f"{key}[{index}].", kept)
                    for index, item in enumerate(known[key])
                ]
            elif known.get(key, ()) is None:
                known.pop(key)
        if isinstance(known.get("usage"), dict):
            known["usage"] = _known_keys(Usage, known["usage"], "usage.", kept)
        for key in ("content", "next_mentions"):
            if known.get(key, "") is None:
                known.pop(key)
        if "should_respond" in known:
            said = known["should_respond"]
            known["should_respond"] = decision(said)
            if known["should_respond"] is None:
                kept["should_respond"] = said
        known["metadata"] = kept
        return known


def _known_keys(shape: type[Shape], data: Any, place: str, aside: dict[str, Any]) -> Any:
    if not isinstance(data, dict):
        return data
    for key in data:
        if key not in shape.model_fields:
            aside[f"{place}{key}"] = data[key]
    return {key: value for key, value in data.items() if key in shape.model_fields}


class TextDelta(str):
    """A piece of an answer's text, as it comes."""


class CallNote(dict[str, Any]):
    """What an adapter knows of a call before it has an answer; merged into the reply's metadata."""


class SessionId(str):
    """The id of the session that an agent keeps for itself, in which this call was made.

    `state` is what its adapter needs to know when it goes on there, as plain JSON.
    """

    state: Mapping[str, Any]

    def __new__(cls, value: str, state: Mapping[str, Any] | None = None) -> SessionId:
        made = super().__new__(cls, value)
        made.state = state or {}
        return made


Told = StatusEvent | TextDelta | CallNote | SessionId | Usage


class Emit(Protocol):
    """What an adapter tells while it works.

    A `Usage` is what a call that fails, or is cut off, had used; an answer carries its own.
    """

    def __call__(self, item: Told, /) -> None: ...
