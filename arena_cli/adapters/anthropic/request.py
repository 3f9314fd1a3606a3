"""Build requests of Anthropic's Messages API: the keys of the kind, a chat, and tools."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from arena_cli.adapters import http, tool_calls
from arena_cli.adapters.base import Endpoint, Settings
from arena_cli.adapters.pricing import Pricing
from arena_cli.adapters.tool_calls import ToolNames
from arena_cli.chat import Chat, ChatPart
from arena_cli.protocol import AgentInput, ToolResult, ToolStep

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
_PASSED = ToolResult(status="error", text="Ignored: you called other tools in the same answer.")


class AnthropicSettings(Settings):
    """The keys of `adapter: {type: anthropic, ...}`.

    `max_tokens` limits an answer together with its thinking. Without it,
    `context.max_output_tokens` limits the answer, and thinking has tokens of its own. `thinking` is
    a mode, or a number of tokens for models up to Claude 4.6. `temperature` and `top_p` are sent
    only if they are set: newer models refuse them.
    """

    sources: ClassVar[Mapping[str, str]] = {KEY_VARIABLE: f"get a key at {KEYS_AT}"}
    server_variables: ClassVar[tuple[str, str]] = ("ANTHROPIC_BASE_URL", KEY_VARIABLE)
    looks_only: ClassVar[bool] = True

    model: str = Field(min_length=1)
    base_url: str = OFFICIAL
    api_key: str = ""
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    thinking: (
        Literal["adaptive", "between_tools", "disabled"] | Annotated[int, Field(ge=1024)] | None
    ) = None
    pricing: Pricing | None = None

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:
        """Return the server, by default Anthropic's."""
        return [http.endpoint(keys.get("base_url") or OFFICIAL)]

    @classmethod
    def implied(cls, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key from the environment; nothing for a local server, which needs no key."""
        if http.is_on_this_machine(keys.get("base_url")):
            return {}
        return {"api_key": f"${{env:{KEY_VARIABLE}}}"}

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"not a server address; write it like {OFFICIAL}")
        return value.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _fits(self) -> AnthropicSettings:
        budget = self.thinking if isinstance(self.thinking, int) else 0
        if self.max_tokens is not None and budget >= self.max_tokens:
            raise ValueError(
                "thinking must be less than max_tokens, because max_tokens includes it"
            )
        if self.temperature is not None and (budget or self.thinking == "adaptive"):
            raise ValueError("temperature cannot be combined with thinking")
        return self

    def most_tokens(self, answer: int) -> int:
        """Return `max_tokens` of a request for an answer of at most `answer` tokens."""
        if self.max_tokens is not None:
            return self.max_tokens
        if isinstance(self.thinking, int):
            return answer + self.thinking
        needs_room = self.thinking == "adaptive" or self._thinks_unasked()
        return answer + (THINKING_ROOM if needs_room else 0)

    def _thinks_unasked(self) -> bool:
        match = _GENERATION.search(self.model)
        is_new = match is not None and int(match[1]) >= _THINKS_UNASKED
        return is_new and self.thinking is None

    def may_think(self) -> bool:
        """Return True if answers may begin with thinking."""
        return self.thinking not in (None, "disabled") or self._thinks_unasked()

    def way_to_think(self) -> dict[str, Any] | None:
        """Return `thinking` of a request; None leaves it to the model."""
        if isinstance(self.thinking, int):
            return {"type": "enabled", "budget_tokens": self.thinking}
        if self.thinking == "adaptive":
            return {"type": "adaptive", "display": "summarized"}
        return None if self.thinking is None else {"type": self.thinking}


class NativeAnswer(NamedTuple):
    """The blocks of an answer as the API wants them back, and the model that wrote them."""

    model: str
    blocks: list[Block]


def build_request(
    settings: AnthropicSettings, chat: Chat, workspace: Path, input: AgentInput, names: ToolNames
) -> dict[str, Any]:
    """Return the body of the next request in a reply.

    All blocks but the last are those of the agent's request before, for the provider's cache.
    """
    tools: list[Block] = []
    for tool in input.tools:
        description, schema = tool_calls.describe_for_api(tool)
        name = names.sent(tool.name)
        tools.append({"name": name, "description": description, "input_schema": schema})
    request: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.most_tokens(input.max_output_tokens),
        "tools": [*TOOLS, *tools],
        "tool_choice": {"type": "auto"},
        "system": [{"type": "text", "text": chat.system, "cache_control": _KEPT}],
        "messages": _messages(chat, workspace, len(input.steps)),
        "stream": True,
    }
    _StepBlocks(settings, names, workspace, request["messages"]).add(input.steps)
    way_to_think = settings.way_to_think()
    if way_to_think is not None:
        request["thinking"] = way_to_think
    for key in ("temperature", "top_p"):
        if (value := getattr(settings, key)) is not None:
            request[key] = value
    return request


def _messages(chat: Chat, workspace: Path, steps: int) -> list[Block]:
    """Return the turns with the attached files, and with two cache marks.

    They are at the agent's last reply, the end of an earlier call, and before the question. With
    several steps after it, only the second one: four marks are allowed in all.
    """
    turns: list[Block] = [
        {"role": turn.role, "content": [_block(chat_part, workspace) for chat_part in turn.parts]}
        for turn in chat.turns
    ]
    reply_ends = [turn["content"][-1] for turn in turns if turn["role"] == "assistant"]
    earlier_blocks = [block for turn in turns for block in turn["content"]][:-1]
    for block in (*(reply_ends[-1:] if steps < 2 else ()), *earlier_blocks[-1:]):
        block["cache_control"] = _KEPT
    return turns


class _StepBlocks:
    """Adds the steps of a reply to the turns of its request; the last two have a cache mark.

    With thinking, the API expects each answer of a reply unchanged, with its signed thinking.
    After a restart of arena, or if another model wrote it, it is not available; the step is then
    sent as text (https://platform.claude.com/docs/en/build-with-claude/thinking-tool-workflows).
    """

    def __init__(
        self, settings: AnthropicSettings, names: ToolNames, workspace: Path, turns: list[Block]
    ) -> None:
        self._settings = settings
        self._names = names
        self._workspace = workspace
        self._turns = turns

    def add(self, steps: Sequence[ToolStep]) -> None:
        """Add the steps, in order."""
        for number, step in enumerate(steps, 1):
            native = step.native
            if isinstance(native, NativeAnswer) and native.model == self._settings.model:
                self._append("assistant", native.blocks)
                self._append("user", self._native_results(native.blocks, step))
            elif self._settings.may_think():
                self._append("user", self._as_text(step))
            else:
                blocks = self._rebuild(step, number)
                self._append("assistant", blocks)
                self._append("user", self._native_results(blocks, step))
            if step.notice:
                self._append("user", [{"type": "text", "text": step.notice}])
            if number > len(steps) - 2:
                last = self._turns[-1]["content"]
                last[-1] = {**last[-1], "cache_control": _KEPT}

    def _append(self, role: str, blocks: Iterable[Block]) -> None:
        added = list(blocks)
        if not added:
            return
        if self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += added
        else:
            self._turns.append({"role": role, "content": added})

    def _rebuild(self, step: ToolStep, number: int) -> list[Block]:
        """Return the answer of a step as blocks, built from its text and calls."""
        blocks: list[Block] = []
        if step.text.strip():
            blocks.append({"type": "text", "text": step.text.strip()})
        for position, call in enumerate(step.calls, 1):
            name = self._names.sent(call.tool)
            call_id = f"call_{number}_{position}"
            blocks.append(
                {"type": "tool_use", "id": call_id, "name": name, "input": call.arguments}
            )
        return blocks

    def _native_results(self, blocks: Sequence[Block], step: ToolStep) -> list[Block]:
        """Return a result for each call in an answer; each call must have one."""
        results = iter(step.results)
        entries: list[Block] = []
        for block in blocks:
            if block["type"] != "tool_use":
                continue
            result = _PASSED if block["name"] == PASS else next(results, _PASSED)
            entry: Block = {"type": "tool_result", "tool_use_id": block["id"]}
            if content := self._shown(result):
                entry["content"] = content
            if result.status != "ok":
                entry["is_error"] = True
            entries.append(entry)
        return entries

    def _shown(self, result: ToolResult) -> list[Block]:
        text = [{"type": "text", "text": result.text}] if result.text.strip() else []
        return [*text, *(_block(file, self._workspace) for file in result.attachments)]

    def _as_text(self, step: ToolStep) -> list[Block]:
        text = tool_calls.describe_step(step)
        files = [file for result in step.results for file in result.attachments]
        blocks = [{"type": "text", "text": text}] if text else []
        return [*blocks, *(_block(file, self._workspace) for file in files)]


def _block(chat_part: ChatPart, workspace: Path) -> Block:
    """Return a text, image or document block, or a note for a file that cannot be shown."""
    if isinstance(chat_part, str):
        return {"type": "text", "text": chat_part}
    file = http.read(chat_part, workspace)
    return make_file_block(file) or {"type": "text", "text": http.not_shown(chat_part, file)}


def make_file_block(file: http.Attached | None) -> Block | None:
    """Return the block of an image, a PDF or a text; None for a file that cannot be shown."""
    if file is None:
        return None
    if file.text is not None:
        source = {"type": "text", "media_type": "text/plain", "data": file.text}
        document = {"type": "document", "title": file.name, "source": source}
        return document if file.text.strip() else None
    data = base64.b64encode(file.data).decode("ascii")
    source = {"type": "base64", "media_type": file.media_type, "data": data}
    if file.media_type == "application/pdf":
        return {"type": "document", "title": file.name, "source": source}
    return {"type": "image", "source": source} if file.is_image else None
