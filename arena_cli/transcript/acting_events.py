"""The events of agents that act: calls of tools, thoughts, goals, intents, and how a reply ended.

They are read when a transcript holds one: a session without tools never imports this module.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from arena_cli.protocol import Attachment, Position, Shape, ToolStatus, Usage, Volatile, omitted
from arena_cli.transcript.events import AgentCall, SideEvent

EndMode = Literal["goal", "timeout", "max_turns", "aborted", "error", "error_no_complete_task"]


def order_call(call: str) -> str:
    """Return a text that sorts calls by their numbers: `2.10` after `2.9`."""
    return ".".join(number.zfill(6) for number in call.split("."))


class ActingEvent(SideEvent):
    """An event within the reply of an agent; `agent` is that agent, or one called as a tool."""

    is_acting: ClassVar[bool] = True

    reply: Annotated[int, Position]
    agent: str


class ToolRequested(ActingEvent):
    """An agent calls a tool.

    `call` counts the calls within the reply; those of an agent that is called as a tool have the
    number of that call in front (`2.1`). `step` is the turn of its model, from 1; `of` is the
    number of calls in that turn. `approval` is the name under which people approve it, if they
    must. `native` is the provider's id of the call.
    """

    is_repeated: ClassVar[bool] = True

    type: Literal["tool_requested"] = "tool_requested"
    call: str
    step: int
    of: int = omitted(1)
    tool: str
    arguments: dict[str, Any] = {}
    problem: str = omitted("")
    approval: str = omitted("")
    native: Annotated[str, Volatile] = omitted("")

    @property
    def order_in_reply(self) -> str:
        """A request comes before its result."""
        return f"{order_call(self.call)} 1"


class ToolFinished(ActingEvent):
    """A call of a tool has ended, after `ms` milliseconds.

    `result` is cut at 16 KB; the rest is in `attachments`, with its images. `diff` is the unified
    diff of the files that it changed. `usage` is that of an agent that was called as a tool, which
    counts by its `agent_ended`.
    """

    type: Literal["tool_finished"] = "tool_finished"
    call: str
    tool: str
    status: ToolStatus
    result: str = ""
    attachments: list[Attachment] = omitted([])
    diff: str = omitted("")
    ms: Annotated[int, Volatile] = 0
    usage: Usage | None = omitted(None)

    @property
    def order_in_reply(self) -> str:
        """A result comes after its request."""
        return f"{order_call(self.call)} 2"


class Thought(ActingEvent):
    """Text of the model next to its calls, or showed of its thinking, in turn `step`.

    `within` is the number of the call by which the agent was called as a tool.
    """

    is_repeated: ClassVar[bool] = True

    type: Literal["thought"] = "thought"
    step: int
    text: str
    kind: Literal["text", "thinking"] = "text"
    within: str = omitted("")

    @property
    def order_in_reply(self) -> str:
        """Thoughts come first, in order of the turns."""
        return f"{order_call(self.within)} 0{self.step:06}{self.kind}"


class AgentEnded(ActingEvent):
    """A reply with tools has ended: how (`mode`), after `turns` turns of the model.

    `output` is what the agent handed in. `within` is as that of a thought; only an agent that was
    called as a tool has its `usage` here, and its adapter's notes in `metadata`.
    """

    is_repeated: ClassVar[bool] = True

    type: Literal["agent_ended"] = "agent_ended"
    mode: EndMode
    turns: int
    output: Any = omitted(None)
    within: str = omitted("")
    usage: Usage | None = omitted(None)
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def order_in_reply(self) -> str:
        """The end comes last."""
        return f"{order_call(self.within)}~" if self.within else "~"

    @property
    def is_in_exchange(self) -> bool:
        """True if it is one message of an exchange, or the work for it."""
        return ".s" in self.within

    @property
    def agent_call(self) -> AgentCall | None:
        """The call of an agent that was called as a tool, or asked by another one."""
        if not self.within:
            return None
        return AgentCall(self.agent, self.usage, self.metadata, failed=self.mode != "goal")


GOAL_MOST = 10
"""So many goals of an agent may be open at once."""


class Goal(Shape):
    """A goal of an agent; `parent` is the id of the goal that it is a part of, or empty."""

    id: str
    description: str
    parent: str = omitted("")


class GoalChanged(ActingEvent):
    """An agent began a goal, ended one (with its `result`), or split one.

    `open` are its open goals since then, the current one last; `count` is how many it began.
    """

    type: Literal["goal"] = "goal"
    action: Literal["push", "pop", "split"]
    goal: Goal
    open: list[Goal] = []
    count: int
    result: str = omitted("")
