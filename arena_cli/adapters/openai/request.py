"""Build requests of OpenAI's protocol: the keys of the kind, and a chat as a request.

Features that a server has turned out to lack are omitted from later requests.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from arena_cli.adapters import http
from arena_cli.adapters.base import Endpoint, Settings
from arena_cli.adapters.openai import presets
from arena_cli.adapters.pricing import Pricing
from arena_cli.chat import Chat, ChatPart, ChatTurn
from arena_cli.protocol import Attachment

DECISION = {
    "name": "decision",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {
            "should_respond": {"type": "boolean"},
            "content": {"type": "string"},
            "next_mentions": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["should_respond", "content", "next_mentions"],
        "additionalProperties": False,
    },
}
DECISION_ASKED = """\
# The form of your answer
Answer with one JSON object and nothing else: {"should_respond": true, "content": "your message",
"next_mentions": ["the ids of the colleagues whom you call"]}. To pass, set should_respond to false
and leave content empty."""


# Models that think do so within the limit of the answer's length: room for it beside the answer.
THINKING_ROOM = 16_000

# What a request can be asked without tells itself by these, never by a limit or a key.
_TELLING = frozenset({0, 400, 415, 422, 500, 501})

# OpenAI streams some models to verified organizations only; some of Qwen's know nothing else.
_NO_STREAM = re.compile(
    r"verified to stream|tools with stream|'stream' does not support true"
    r"|streaming[^.]{0,20} not supported",
    re.IGNORECASE,
)
_NO_STREAM_OPTIONS = re.compile("stream_options")
_NO_MAX_TOKENS = re.compile("max_completion_tokens")
_ONLY_STREAM = re.compile(r"only supports? (?:the )?stream", re.IGNORECASE)

# What templates of models say (Gemma's, Mistral's), and servers that check roles by themselves.
_NO_SYSTEM = re.compile(
    r"system['\"`]? role|role:? ['\"`]?system|only user[^.]{0,40}roles"
    r"|roles must alternate|(?:unsupported|unknown|invalid|unexpected)\W+(?:\w+\W+){0,3}role",
    re.IGNORECASE,
)
_NO_IMAGES = re.compile(
    r"(?:image|vision|multi-?modal)[^.]{0,60}(?:\bnot\b|n't|unsupported|missing)"
    r"|(?:\bnot|n't|missing)\b[^.]{0,40}(?:image|vision|multi-?modal)"
    r"|unknown variant .?image_url|content must be a string",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"max_(?:completion_)?tokens|maximum context length", re.IGNORECASE)
# Servers differ: some refuse the thinking of earlier answers, some refuse a call without it.
_NEEDS_THINKING = re.compile(
    r"reasoning_content.{0,80}(?:passed back|required)|missing.{0,20}reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
_NO_THINKING = re.compile(r"reasoning_content", re.IGNORECASE)
_LONG_DESCRIPTION = re.compile(r"description.{0,10}(?:string )?too long", re.IGNORECASE)
_NO_SCHEMA = re.compile(r"response_format|json_schema", re.IGNORECASE)


class OpenAISettings(Settings):
    """The keys of `adapter: {type: openai, ...}`.

    `base_url` is the address before `/chat/completions`, by default the preset's, else OpenAI's.
    `extra_body` is added to every request and overrides other keys. `response_format: decision`
    requests JSON of a fixed shape; a mapping is sent unchanged. With `tools_mode: json` tools are
    described in the prompt and called by JSON in the answer.
    """

    sources: ClassVar[Mapping[str, str]] = presets.KEYS_AT
    server_variables: ClassVar[tuple[str, str]] = ("OPENAI_BASE_URL", "OPENAI_API_KEY")

    looks_only: ClassVar[bool] = True

    model: str = Field(min_length=1)
    base_url: str = ""
    api_key: str | None = None
    preset: presets.PresetName | None = None
    stream: bool = True
    temperature: float | None = None
    top_p: float | None = Field(default=None, gt=0, le=1)
    tools_mode: Literal["native", "json"] = "native"
    extra_body: dict[str, Any] = {}
    pricing: Pricing | None = None
    response_format: Literal["decision"] | dict[str, Any] | None = None

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:
        """Return the server, by default that of the preset."""
        preset = presets.find_preset(keys.get("preset"))
        return [http.endpoint(keys.get("base_url") or preset.base_url)]

    @classmethod
    def implied(cls, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key of a known server; nothing for an unknown one."""
        variable = presets.key_variable(keys.get("preset"), keys.get("base_url"))
        return {"api_key": f"${{env:{variable}}}"} if variable else {}

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        value = value.strip().rstrip("/").removesuffix("/chat/completions")
        if value and not presets.host_of(value):
            raise ValueError(f"not a server address; write it like {presets.OPENAI_URL}")
        return value

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, value: str | None) -> str | None:
        value = (value or "").strip()
        if not value.isascii() or not value.isprintable():
            raise ValueError("it contains characters that are not allowed in a key")
        return value or None


@dataclass
class Server:
    """The features of a server; `learn` removes those that it reports to lack.

    `thinks`: its model has been seen to think, which counts towards the length of the answer; None
    if there is no room for thinking. `thinking_back`: the thinking of earlier answers in a reply is
    sent back where it came, always (even if there was none), or never. `short_descriptions`: it
    refuses long descriptions of tools.
    """

    stream: bool
    thinks: bool | None = False
    system_role: bool = True
    images: bool = True
    stream_options: bool = True
    schema: bool = True
    short_descriptions: bool = False
    thinking_back: Literal["given", "always", "never"] = "given"
    length_key: str = "max_tokens"

    def length(self, answer: int) -> dict[str, int]:
        """Return the key that limits an answer to `answer` tokens, with its value."""
        return {self.length_key: answer + (THINKING_ROOM if self.thinks else 0)}

    def saw(self, *, thinking: bool) -> None:
        """Record whether the model thought."""
        if self.thinks is False:
            self.thinks = thinking

    def learn(self, status: int, error_text: str, body: dict[str, Any]) -> bool:
        """Learn from an error; return True if the request can be repeated without that part."""
        if status not in _TELLING:
            return False
        roles = {message["role"] for message in body["messages"]}
        has_images = any(isinstance(message["content"], list) for message in body["messages"])
        form = body.get("response_format")
        asks_decision = isinstance(form, dict) and form.get("json_schema") is DECISION
        stream_words = _NO_STREAM if body["stream"] else _ONLY_STREAM
        answers = [message for message in body["messages"] if "tool_calls" in message]
        thoughts = any("reasoning_content" in message for message in answers)
        lessons: list[tuple[bool, re.Pattern[str], str, object]] = [
            (bool(answers), _NEEDS_THINKING, "thinking_back", "always"),
            (thoughts, _NO_THINKING, "thinking_back", "never"),
            ("tools" in body, _LONG_DESCRIPTION, "short_descriptions", True),
            (bool(self.thinks), _TOO_LARGE, "thinks", None),
            ("stream_options" in body, _NO_STREAM_OPTIONS, "stream_options", False),
            (True, stream_words, "stream", not body["stream"]),
            ("max_tokens" in body, _NO_MAX_TOKENS, "length_key", "max_completion_tokens"),
            (has_images, _NO_IMAGES, "images", False),
            (asks_decision, _NO_SCHEMA, "schema", False),
            ("system" in roles, _NO_SYSTEM, "system_role", False),
        ]
        for was_sent, words, name, value in lessons:
            if was_sent and words.search(error_text):
                setattr(self, name, value)
                return True
        return False


def messages(
    chat: Chat, server: Server, workspace: Path, *, addition: str = ""
) -> list[dict[str, Any]]:
    """Return the messages of a request; `addition` is added to the system text.

    The content is a single text if possible, which every server accepts. The key `name` is never
    used: the text contains the name of the author, and not every name is valid there.
    """
    system = "\n\n".join(text for text in (chat.system, addition) if text)
    turns = chat.turns
    if system and not server.system_role:
        first = turns[0]
        turns = [ChatTurn(first.role, [system, *first.parts]), *turns[1:]]
    turn_messages = [
        {"role": turn.role, "content": content_of(turn.parts, server, workspace)} for turn in turns
    ]
    return (
        [{"role": "system", "content": system}, *turn_messages]
        if system and server.system_role
        else turn_messages
    )


def content_of(
    chat_parts: list[ChatPart], server: Server, workspace: Path
) -> str | list[dict[str, Any]]:
    """Return the content of a message: a single text if possible, else its parts."""
    pieces: list[str | dict[str, Any]] = []
    for chat_part in chat_parts:
        piece = chat_part if isinstance(chat_part, str) else _attached(chat_part, server, workspace)
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += f"\n\n{piece}"
        else:
            pieces.append(piece)
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return pieces[0]
    return [
        {"type": "text", "text": content} if isinstance(content, str) else content
        for content in pieces
    ]


def _attached(attachment: Attachment, server: Server, workspace: Path) -> str | dict[str, Any]:
    """Return an image as it is, a text quoted with `> ` like every message, else a note."""
    file = http.read(attachment, workspace)
    if file is not None and file.is_image and server.images:
        data = base64.b64encode(file.data).decode("ascii")
        url = f"data:{file.media_type};base64,{data}"
        return {"type": "image_url", "image_url": {"url": url}}
    if file is None or not (file.text and file.text.strip()):
        return http.not_shown(attachment, file)
    lines = "\n".join(f"> {line}" for line in file.text.splitlines())
    return f"The file {json.dumps(attachment.name, ensure_ascii=False)}:\n{lines}"


def response_format(value: object, server: Server) -> tuple[dict[str, Any], str]:
    """Return the key `response_format` of a request, and its addition to the system text."""
    if value is None:
        return {}, ""
    if value != "decision":
        return {"response_format": value}, ""
    form: dict[str, Any] = {"type": "json_object"}
    if server.schema:
        form = {"type": "json_schema", "json_schema": DECISION}
    return {"response_format": form}, DECISION_ASKED


def is_cut(read: int, messages: list[dict[str, Any]]) -> bool:
    """Return True if a server that read only `read` tokens cannot have read all messages.

    On average over a long text, no tokenizer in use puts more than about eight ASCII characters or
    four others into a token. A run of one character can be one token, so it is not counted.
    """
    texts = []
    for message in messages:
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        texts += [block["text"] for block in blocks if "text" in block]
    text = "".join(texts)
    return read < _fewest_tokens(text) and read < _fewest_tokens(_RUN.sub("", text))


def _fewest_tokens(text: str) -> int:
    ascii_chars = len(text.encode("ascii", "ignore"))
    return ascii_chars // 8 + (len(text) - ascii_chars) // 4


_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)
