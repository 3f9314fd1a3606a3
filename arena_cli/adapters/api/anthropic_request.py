"""What is sent to Anthropic's Messages API: the keys of the kind, and a chat as a request.

The API reads tools, system text and messages in this order, and finds a prefix again that it kept
at an earlier call: by the marks of this call, and up to 20 blocks before each
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching). At most 4 marks are allowed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from arena_cli.adapters.api import attached, http
from arena_cli.adapters.api.pricing import Pricing
from arena_cli.adapters.base import Endpoint, Settings
from arena_cli.ground.chat import Chat, Part

Block = dict[str, Any]

OFFICIAL = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
KEYS_AT = "https://console.anthropic.com/settings/keys"

PASS = "pass"
TOOLS: list[Block] = [
    {
        "name": PASS,
        "description": "Say nothing this time; the others get no message from you.",
        "input_schema": {"type": "object", "properties": {}},
    }
]

# A model that thinks as much as it likes does so within `max_tokens`: room for that beside the
# answer. Those of generation 5 and later do it unasked
# (https://platform.claude.com/docs/en/build-with-claude/thinking).
THINKING_ROOM = 16_000
_GENERATION = re.compile(r"claude-(?:[a-z]+-)?(\d+)")
_THINKS_UNASKED = 5

_KEPT = {"type": "ephemeral"}


class AnthropicSettings(Settings):
    """The keys of `adapter: {type: anthropic, ...}`.

    `max_tokens` bounds an answer with its thinking; without it, `context.max_output_tokens` bounds
    the answer, and thinking has room beside it. `thinking` is a way to think, or a number of tokens
    for it, which models up to Claude 4.6 take. `temperature` is sent only if it is given: newer
    models refuse it.
    """

    sources: ClassVar[Mapping[str, str]] = {KEY_VARIABLE: f"there are keys at {KEYS_AT}"}

    looks_only: ClassVar[bool] = True

    model: str = Field(min_length=1)
    base_url: str = OFFICIAL
    api_key: str = ""
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=1)
    thinking: (
        Literal["adaptive", "between_tools", "disabled"] | Annotated[int, Field(ge=1024)] | None
    ) = None
    pricing: Pricing | None = None

    @classmethod
    def endpoints(cls, given: Mapping[str, Any]) -> list[Endpoint]:
        """Return the server, Anthropic's where none is named."""
        return [http.endpoint(given.get("base_url") or OFFICIAL)]

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The key from the environment, save for a server on this machine, which asks for none."""
        if http.is_on_this_machine(given.get("base_url")):
            return {}
        return {"api_key": f"${{env:{KEY_VARIABLE}}}"}

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no address of a server; write it as {OFFICIAL}")
        return value.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _fits(self) -> AnthropicSettings:
        budget = self.thinking if isinstance(self.thinking, int) else 0
        if self.max_tokens is not None and budget >= self.max_tokens:
            raise ValueError("thinking must be less than max_tokens, which bounds it too")
        if self.temperature is not None and (budget or self.thinking == "adaptive"):
            raise ValueError("temperature cannot be set for a model that thinks")
        return self

    def most_tokens(self, answer: int) -> int:
        """`max_tokens` of a request for an answer of at most so many."""
        if self.max_tokens is not None:
            return self.max_tokens
        if isinstance(self.thinking, int):
            return answer + self.thinking
        found = _GENERATION.search(self.model)
        unasked = self.thinking is None and found and int(found[1]) >= _THINKS_UNASKED
        return answer + (THINKING_ROOM if unasked or self.thinking == "adaptive" else 0)

    def way_to_think(self) -> dict[str, Any] | None:
        """`thinking` of a request; None leaves it to the model."""
        if isinstance(self.thinking, int):
            return {"type": "enabled", "budget_tokens": self.thinking}
        if self.thinking == "adaptive":
            return {"type": "adaptive", "display": "summarized"}
        return None if self.thinking is None else {"type": self.thinking}


def of(settings: AnthropicSettings, chat: Chat, workspace: Path, *, answer: int) -> dict[str, Any]:
    """The body of a request for an answer of at most `answer` tokens.

    Of two calls of an agent, all before the last block of the earlier is the same in the later.
    """
    request: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.most_tokens(answer),
        "tools": TOOLS,
        "tool_choice": {"type": "auto"},
        "system": [{"type": "text", "text": chat.system, "cache_control": _KEPT}],
        "messages": _messages(chat, workspace),
        "stream": True,
    }
    way_to_think = settings.way_to_think()
    if way_to_think is not None:
        request["thinking"] = way_to_think
    if settings.temperature is not None:
        request["temperature"] = settings.temperature
    return request


def _messages(chat: Chat, workspace: Path) -> list[Block]:
    """The turns, with the files that are attached.

    Marked are the agent's last own reply, which closes what an earlier call showed, and the last
    block before what is asked now.
    """
    turns: list[Block] = [
        {
            "role": turn.role,
            "content": [_block(part, workspace) for part in turn.parts],
        }
        for turn in chat.turns
    ]
    own = [turn["content"][-1] for turn in turns if turn["role"] == "assistant"]
    before = [block for turn in turns for block in turn["content"]][:-1]
    for block in (*own[-1:], *before[-1:]):
        block["cache_control"] = _KEPT
    return turns


def _block(part: Part, workspace: Path) -> Block:
    """A text, picture or document; of a file that no model reads, that it is so."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    file = attached.read(part, workspace)
    if file is not None and file.is_image:
        return {"type": "image", "source": _encoded(file)}
    if file is not None and file.media_type == "application/pdf":
        return {"type": "document", "title": file.name, "source": _encoded(file)}
    if file is not None and file.text and file.text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": file.text}
        return {"type": "document", "title": file.name, "source": source}
    return {"type": "text", "text": attached.not_shown(part, file)}


def _encoded(file: attached.Attached) -> Block:
    data = base64.b64encode(file.data).decode("ascii")
    return {"type": "base64", "media_type": file.media_type, "data": data}
