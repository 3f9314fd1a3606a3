"""An input as turns of user and assistant, for agents whose protocol has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from arena_cli.ground.protocol import AgentInput, Attachment

Part = str | Attachment

Render = Callable[[AgentInput], tuple[str, str]]
"""An input as (system text, prompt text)."""


class ChatTurn(NamedTuple):
    """What one side says before the other speaks again; no part of it is empty."""

    role: Literal["user", "assistant"]
    parts: list[Part]


class Chat(NamedTuple):
    """System text and turns, which alternate; the first and the last are the user's.

    Each message is a part of its own, its attachments follow it. The last part is what is asked
    now. All before it is the same in the agent's next call, as long as no message leaves the
    window: what a provider can keep in its cache.
    """

    system: str
    turns: list[ChatTurn]


class RenderChat(Protocol):
    """An input as a chat; with `pass_tool`, the agent passes by calling the tool of that name."""

    def __call__(self, input: AgentInput, *, pass_tool: str = "") -> Chat: ...


class Renderer(NamedTuple):
    """How an input is made text, and how a chat."""

    text: Render
    chat: RenderChat
