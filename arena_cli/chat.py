"""The input of an agent as text and as a chat: the shapes between `context` and adapters."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from arena_cli.protocol import AgentInput, Attachment

ChatPart = str | Attachment

Render = Callable[[AgentInput], tuple[str, str]]
"""An input as (system text, prompt text)."""


class ChatTurn(NamedTuple):
    """The parts that one side says before the other speaks again; none is empty."""

    role: Literal["user", "assistant"]
    parts: list[ChatPart]


class Chat(NamedTuple):
    """System text and turns, which alternate; the first and the last are the user's.

    Each message is a part of its own, its attachments follow it. The last part is the request. All
    before it is the same in the agent's next call, as long as no message leaves the window, so a
    provider can keep it in its cache.
    """

    system: str
    turns: list[ChatTurn]


class RenderChat(Protocol):
    """Renders an input as a chat; with `pass_tool`, the agent passes by calling that tool."""

    def __call__(self, input: AgentInput, *, pass_tool: str = "") -> Chat: ...


class Renderer(NamedTuple):
    """The functions that render an input as text and as a chat."""

    text: Render
    chat: RenderChat
