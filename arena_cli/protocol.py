"""The protocol between arena and every kind of agent: `AgentInput` in, `AgentOutput` out.

Field names are fixed (docs/reference/adapters.md). All shapes are frozen: a message that was shown
or sent is never changed. Unknown fields that an agent sends are kept in `metadata`.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

AuthorType = Literal["human", "agent", "system"]
Invocation = Literal["must_reply", "may_reply", "supervise"]
EXCHANGE = "exchange"
"""The author of what arena tells an agent about its exchanges."""

ASK_AGENT = "ask_agent"
RUN_FLOW = "run_flow"
"""The tool by which an agent asks another one."""

WAIT_FOR_AGENT, MERGE_RESULTS = "wait_for_agent", "merge_results"
"""The tools by which it fetches answers later."""

LATE = "late"
"""The note of a call whose answer came when the agent that asked no longer waited."""

TASK_LIST, TASK_UPDATE = "task_list", "task_update"
"""The tools by which an agent reads tasks, adds them and changes them."""

TASK_BLOCK = "```task_list"
"""The beginning of a block with tasks, as JSON."""

ASK_ANSWER, ASK_AGAIN = "answer", "again"
"""The ids of what an agent is told that asked within a reply: an answer, and to go on."""

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


def omitted(default: Any) -> Any:
    """Return a field that is left out where it has its default."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Volatile:
    """Mark a field that differs from run to run although the run is the same."""


class Derived:
    """Mark a field that recordings omit: it follows from other fields or is estimated again."""


class Position:
    """Mark a field that depends on the place in a session: a number of a chain or turn, a sum."""


class MessageRef:
    """Mark a field that holds the id of a message, or the ids of several."""


class StatusEvent(Shape):
    """An agent's current activity. `progress` runs from 0 to 1."""

    status: Status
    detail: str = ""
    progress: float | None = Field(default=None, ge=0, le=1)


class RefusedAction(Shape):
    """An action that an agent tried and was not allowed.

    `target` is its command or path, `by` the setting that decided.
    """

    tool: str
    target: str = ""
    by: str = ""

    def __str__(self) -> str:
        """Return it as reports show it."""
        action = " ".join(filter(None, (self.tool, self.target)))
        return f"{action} (tools: {self.by})" if self.by else action


class PermissionRequest(Shape):
    """An act that an agent wants to do and may not do by itself.

    Everything in it is the agent's text: data to show, never a decision. `action` is
    `execute_command`, `modify_file`, `external_api_call`, `deploy` or another name; `detail` the
    complete command line, path or URL; `tool` the agent's own name of the tool. `arguments` are
    those of the act without what varies from try to try, for a digest over them; `diff` is the
    unified diff of a changed file, if the request shows the change.
    """

    action: str
    detail: str
    tool: str = ""
    arguments: dict[str, Any] = {}
    diff: str = ""


class Permission(NamedTuple):
    """The answer to a request. `asked`: a person was asked; the reply should end now."""

    verdict: Literal["allowed", "denied", "asked"]
    reason: str = ""


ToolStatus = Literal["ok", "error", "denied", "timeout"]


SERVED = "served_calls"
"""The key of a call's notes that has the calls of tools by a program, until its reply ends."""

HANDED_IN = "handed_in"
"""The note on a call of a program with the output that it handed in by `complete_task`."""


class ToolSpec(Shape):
    """A tool that an agent may call; `input_schema` is the JSON Schema of its arguments.

    `read_only` and `idempotent` are what an MCP server says of its tool; `problem` is the reason
    why it cannot be called.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}
    read_only: bool = omitted(False)
    idempotent: bool = omitted(False)
    problem: str = omitted("")


class ToolCall(Shape):
    """A call of a tool, as the model asked for it.

    `id` is the provider's. `problem` is the reason why the arguments cannot be read.
    """

    id: str = ""
    tool: str
    arguments: dict[str, Any] = {}
    problem: str = ""


class ToolResult(Shape):
    """The result of a call, as the model is shown it, with its images in `attachments`."""

    status: ToolStatus = "ok"
    text: str = ""
    attachments: "list[Attachment]" = []


class ToolStep(Shape):
    """A turn of the model within a reply: its text, its calls, and their results in that order.

    `notice` is what arena tells the model after them. `native` are the blocks of the answer as
    its provider wants them back; None after a restart.
    """

    text: str = ""
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    notice: str = ""
    native: Any = Field(default=None, exclude=True)


class ExampleTurn(Shape):
    """A message of an example conversation, which shows an agent how to answer."""

    role: Literal["user", "agent"]
    text: str

    @classmethod
    def of(cls, user: str, agent: str) -> "ExampleTurn":
        """Return the turn of the one that says something."""
        return cls(role="user", text=user) if user else cls(role="agent", text=agent)


COMPLETE_TASK = "complete_task"
"""The name of the tool by which an agent hands in its output."""


class Attachment(Shape):
    """A file that goes with a message.

    On its way in or out `data` holds the content (text; base64 for an image). In a transcript and
    in an `AgentInput` the content is at `path` (relative to the workspace), `size` in bytes.
    """

    type: Literal["file", "code", "json", "image"] = "file"
    name: str
    data: Any = None
    path: Annotated[str | None, Volatile] = None
    size: int | None = None
    sha256: str | None = None

    def picture(self) -> bytes | None:
        """Return the content of an image that comes as base64; None for all else."""
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
        "task_list",
        "code_block",
        "architecture_diagram",
        "diff",
        "approval_request",
        "note",
        "reaction",
    ]
    data: Any = None


# No call costs more, in US dollars: a million tokens cost at most some hundreds.
MOST_COST_USD = 10_000.0
COST_NOT_TAKEN = "cost_not_taken"
"""The key of a reply's metadata that has the cost which its agent gave and nobody believes."""


NOT_SHOWN = "not_shown"
"""The key of a reply's metadata with the names of files that its agent was given as paths only."""


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
        """The cost that was set aside; None if there was none."""
        return None

    def of_one_call(self) -> tuple["Usage", float | None]:
        """Return the usage without a cost that no call can have, and that cost."""
        cost = self.cost_usd if self.refused_cost is None else self.refused_cost
        if cost is None or 0 <= cost <= MOST_COST_USD:
            return self, None
        return self.model_copy(update={"cost_usd": None}), cost

    @classmethod
    def total(cls, usages: Iterable["Usage"]) -> "Usage":
        """Return the sum; its cost is known only if all costs are, and estimated if one is."""
        items = list(usages)
        costs = [usage.cost_usd for usage in items if usage.cost_usd is not None]
        is_known = bool(items) and len(costs) == len(items)
        summed = cls(
            input_tokens=sum([usage.input_tokens for usage in items]),
            output_tokens=sum([usage.output_tokens for usage in items]),
            cache_read_tokens=sum([usage.cache_read_tokens for usage in items]),
            cache_write_tokens=sum([usage.cache_write_tokens for usage in items]),
            cost_usd=round(sum(costs), 10) if is_known else None,
            estimated=any(usage.estimated for usage in items),
        )
        refused = [cost for usage in items if (cost := usage.__dict__.get("refused_cost"))]
        summed.__dict__.update({"refused_cost": refused[0]} if refused else {})
        return summed


class Message(Shape):
    """A message of a session, as the transcript keeps it. Its `id` is `m<seq>`.

    `corrected_by` is the person that corrected its `content` since; the transcript keeps the
    original. Only the agents of `shown_to` are shown it, if there are any. One in the `thread` of a
    task has its id, and first in `shown_to` the agent that works on it. `quoted` is the author and
    the beginning of the message `reply_to`, if its author named that one; `reactions` are to it.
    """

    id: Annotated[str, MessageRef]
    turn_id: Annotated[str | None, Position] = None
    author_id: str
    author_name: str
    author_type: AuthorType
    content: str
    mentions: list[str] = []
    reply_to: Annotated[str | None, MessageRef] = None
    attachments: list[Attachment] = []
    structured: list[StructuredContent] = []
    timestamp: Annotated[str, Volatile]
    kind: MessageKind = "chat"
    corrected_by: str = omitted("")
    shown_to: list[str] = omitted([])
    thread: str = omitted("")
    quoted: str = omitted("")
    reactions: list[str] = omitted([])
    metadata: Annotated[dict[str, Any], Volatile] = {}

    @property
    def seq(self) -> int:
        """The seq of the event that carries it, 0 if its id has none."""
        return parse_seq(self.id)


def parse_seq(message_id: str) -> int:
    """Return the seq of the event that carries the message of that id, 0 if it has none."""
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


class MemberState(Shape):
    """The state of a member in the open chain; `relevance` is that to the new messages.

    `reason` is the class of the error of a `failed` one, or why it is `unavailable`.
    """

    id: str
    state: Literal[
        "not_called", "called", "declined", "failed", "cancelled", "deferred", "unavailable"
    ]
    reason: str = ""
    relevance: float = 0


class Supervision(Shape):
    """The state of the open chain, for the supervisor that decides about its next turn.

    `due` are the agents that would be called without it; `problems` are failures and ignored notes
    of the last turn, if another plan is asked for.
    """

    members: list[MemberState]
    due: list[str] = []
    problems: list[str] = []


class AgentInput(Shape):
    """A call of an agent.

    `turn` counts the chain's turns from 1. `call` is 1 + the agent's finished calls in the session.
    `trigger` names the turn's new messages. `deadline_s` is the time left, in seconds.

    `brief` is for this agent alone, from the supervisor or about its tasks. `supervision` is for a
    supervisor only (invocation `supervise`). `memory_context` is the team's memory: first the
    summary of earlier messages, which seldom changes, then the notes that are relevant to this
    call. `memory_stable` is the length of the first part, in characters. `own_session` is the
    session that the agent may continue; None if it must begin a new one. `input_hash` is the hash
    of the complete input (`context.hashing.input_digest`). `tools` are those that the agent may
    call, `steps` its turns within this reply so far; `examples` are shown before the first message.
    All from `memory_stable` on are excluded from dumps, and so from hashes and recordings.
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
    brief: str = omitted("")
    supervision: Supervision | None = omitted(None)
    tools: list[ToolSpec] = omitted([])
    examples: list[ExampleTurn] = omitted([])
    memory_stable: int = Field(default=0, exclude=True)
    steps: list[ToolStep] = Field(default=[], exclude=True)
    own_session: AgentSession | None = Field(default=None, exclude=True)
    input_hash: str = Field(default="", exclude=True)

    def afresh(self) -> "AgentInput":
        """Return the same call without a session to continue: the agent is shown everything."""
        return self.model_copy(update={"own_session": None})

    def unseen(self) -> list[ShownMessage]:
        """Return the messages that the agent's own session lacks; all, if it has none."""
        if self.own_session is None:
            return self.messages
        upto = self.own_session.upto_seq
        return [
            message
            for message in self.messages
            if message.seq > upto and message.role != "assistant"
        ]

    def triggers(self) -> list[ShownMessage]:
        """Return the messages that `trigger` names, in order."""
        trigger_ids = set(self.trigger)
        return [message for message in self.messages if message.id in trigger_ids]


def parse_decision(value: object) -> bool | None:
    """Return a model's yes or no as a bool, read by a table; None if it is neither."""
    word = str(value).strip().casefold()
    if isinstance(value, (bool, int, float, str)):
        if word in TRUE_WORDS or value == 1:
            return True
        if word in FALSE_WORDS or value == 0:
            return False
    return None


_KINDS_OF_AGENTS = ("chat", "task", "file", "code")


class AgentOutput(Shape):
    """An agent's answer.

    `should_respond` is read by `decision`; None is a decision that could not be read. With
    `tool_calls` it is no reply yet: the agent is called again with their results. `reply_to` is the
    id of a message, or the last one of that author. Unknown keys, here and in the parts, are moved
    into `metadata` under the place that they had.
    """

    content: str = ""
    next_mentions: list[str] = []
    should_respond: bool | None = True
    status_updates: list[StatusEvent] = []
    attachments: list[Attachment] = []
    structured: list[StructuredContent] = []
    kind: MessageKind = omitted("chat")
    reply_to: str | None = omitted(None)
    tool_calls: list[ToolCall] = omitted([])
    usage: Usage | None = None
    metadata: dict[str, Any] = {}

    _native: Any = PrivateAttr(default=None)

    @property
    def native(self) -> Any:
        """The blocks of the answer as its provider wants them back, for `ToolStep.native`."""
        return self._native

    def with_native(self, native: Any) -> "AgentOutput":
        """Return the output with these blocks."""
        output = self.model_copy()
        output._native = native
        return output

    @model_validator(mode="before")
    @classmethod
    def _set_aside_what_is_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        metadata = data.get("metadata", {})
        extra = dict(metadata) if isinstance(metadata, dict) else {"metadata": metadata}
        fields = _known_keys(cls, data, "", extra)
        nested: dict[str, type[Shape]] = {
            "status_updates": StatusEvent,
            "attachments": Attachment,
            "structured": StructuredContent,
            "tool_calls": ToolCall,
        }
        for key, shape in nested.items():
            if isinstance(fields.get(key), list):
                fields[key] = [
                    _known_keys(shape, item, f"{key}[{index}].", extra)
                    for index, item in enumerate(fields[key])
                ]
            elif fields.get(key, ()) is None:
                fields.pop(key)
        if isinstance(fields.get("usage"), dict):
            fields["usage"] = _known_keys(Usage, fields["usage"], "usage.", extra)
        for key in ("content", "next_mentions"):
            if fields.get(key, "") is None:
                fields.pop(key)
        if fields.get("kind", "chat") not in _KINDS_OF_AGENTS:
            extra["kind"] = fields.pop("kind")
        if not isinstance(fields.get("reply_to", ""), str):
            extra["reply_to"] = fields.pop("reply_to")
        if "should_respond" in fields:
            answer = fields["should_respond"]
            fields["should_respond"] = parse_decision(answer)
            if fields["should_respond"] is None:
                extra["should_respond"] = answer
        fields["metadata"] = extra
        return fields


def _known_keys(shape: type[Shape], data: Any, prefix: str, extra: dict[str, Any]) -> Any:
    if not isinstance(data, dict):
        return data
    for key in data:
        if key not in shape.model_fields:
            extra[f"{prefix}{key}"] = data[key]
    return {key: value for key, value in data.items() if key in shape.model_fields}


class TextDelta(str):
    """A piece of an answer's text, as it comes."""


class CallNote(dict[str, Any]):
    """Facts about a call that an adapter has before the answer, for the reply's metadata."""


class SessionId(str):
    """The id of the session that an agent keeps for itself, in which this call was made.

    `state` is what its adapter needs to continue there, as plain JSON.
    """

    state: Mapping[str, Any]

    def __new__(cls, value: str, state: Mapping[str, Any] | None = None) -> "SessionId":
        instance = super().__new__(cls, value)
        instance.state = state or {}
        return instance


AgentReport = StatusEvent | TextDelta | CallNote | SessionId | Usage | RefusedAction


class Emit(Protocol):
    """Receives the reports of an adapter while it works, and decides what the agent may do.

    A `Usage` is that of a call that fails, or is cut off; an answer carries its own.
    """

    def __call__(self, item: AgentReport, /) -> None: ...

    async def permit(self, request: PermissionRequest, /) -> Permission:
        """Return whether the agent may do this. A person may take long to decide."""
        ...
