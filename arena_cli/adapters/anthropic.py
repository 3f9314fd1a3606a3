"""Call a model behind Anthropic's Messages API by the official SDK (kind `anthropic`)."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from arena_cli.adapters import http
from arena_cli.adapters.base import Endpoint, Health, Settings, Setup
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.pricing import Pricing, cost_usd, given_pricing, load_ahead
from arena_cli.errors import AgentError, AgentProtocolError, AgentRefused, AgentUnavailable
from arena_cli.protocol import (
    AgentInput,
    AgentOutput,
    CallNote,
    Chat,
    ChatPart,
    Emit,
    Status,
    StatusEvent,
    TextDelta,
    Usage,
)

if TYPE_CHECKING:
    import anthropic
    import httpx2
    from anthropic import AsyncAnthropic


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

    `max_tokens` limits an answer together with its thinking. Without it,
    `context.max_output_tokens` limits the answer, and thinking has tokens of its own. `thinking` is
    a mode, or a number of tokens for models up to Claude 4.6. `temperature` is sent only if it is
    set: newer models refuse it.
    """

    sources: ClassVar[Mapping[str, str]] = {KEY_VARIABLE: f"get a key at {KEYS_AT}"}
    server_variables: ClassVar[tuple[str, str]] = ("ANTHROPIC_BASE_URL", KEY_VARIABLE)
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
        """Return the server, by default Anthropic's."""
        return [http.endpoint(given.get("base_url") or OFFICIAL)]

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key from the environment; nothing for a local server, which needs no key."""
        if http.is_on_this_machine(given.get("base_url")):
            return {}
        return {"api_key": f"${{env:{KEY_VARIABLE}}}"}

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
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
        found = _GENERATION.search(self.model)
        unasked = self.thinking is None and found and int(found[1]) >= _THINKS_UNASKED
        return answer + (THINKING_ROOM if unasked or self.thinking == "adaptive" else 0)

    def way_to_think(self) -> dict[str, Any] | None:
        """Return `thinking` of a request; None leaves it to the model."""
        if isinstance(self.thinking, int):
            return {"type": "enabled", "budget_tokens": self.thinking}
        if self.thinking == "adaptive":
            return {"type": "adaptive", "display": "summarized"}
        return None if self.thinking is None else {"type": self.thinking}


def build_request(
    settings: AnthropicSettings, chat: Chat, workspace: Path, *, answer: int
) -> dict[str, Any]:
    """Return the body of a request for an answer of at most `answer` tokens.

    All blocks but the last are those of the agent's request before, for the provider's cache.
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
    """Return the turns with the attached files, and with two cache marks.

    They are at the agent's last reply, the end of an earlier call, and before the question.
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


def _block(chat_part: ChatPart, workspace: Path) -> Block:
    """Return a text, image or document block, or a note for a file that cannot be shown."""
    if isinstance(chat_part, str):
        return {"type": "text", "text": chat_part}
    file = http.read(chat_part, workspace)
    if file is not None and file.is_image:
        return {"type": "image", "source": _encoded(file)}
    if file is not None and file.media_type == "application/pdf":
        return {"type": "document", "title": file.name, "source": _encoded(file)}
    if file is not None and file.text and file.text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": file.text}
        return {"type": "document", "title": file.name, "source": source}
    return {"type": "text", "text": http.not_shown(chat_part, file)}


def _encoded(file: http.Attached) -> Block:
    data = base64.b64encode(file.data).decode("ascii")
    return {"type": "base64", "media_type": file.media_type, "data": data}


Answer = dict[str, Any]

_DOING: dict[str, Status] = {
    "text": "generating",
    "thinking": "analyzing",
    "redacted_thinking": "analyzing",
}
_GROWS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class StreamProgress:
    """The progress of a call's streams: the emitted text, and the current answer so far.

    `answer` is the message as far as it was received; `request_id` is the provider's id of the
    request.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.has_spoken = False
        self.answer: Answer | None = None
        self.request_id: str | None = None
        self._doing: Status | None = None
        self._pieces: dict[str, list[str]] = {}

    def hear(self, event: Answer) -> None:
        """Add an event; emit the status and the text in it.

        Raises ValueError, TypeError or LookupError if the event has an unexpected shape.
        """
        kind = event["type"]
        if kind == "message_start":
            self.answer = {**event["message"], "content": []}
            self._pieces = {}
        elif self.answer is None:
            return
        elif kind == "content_block_start":
            self.end_block()
            self._begin(event["content_block"])
        elif kind == "content_block_delta":
            self._grow(event["delta"])
        elif kind == "content_block_stop":
            self.end_block()
        elif kind == "message_delta":
            usage = {name: n for name, n in (event.get("usage") or {}).items() if n is not None}
            self.answer |= event["delta"]
            self.answer["usage"] = {**(self.answer.get("usage") or {}), **usage}

    def end_block(self) -> None:
        """Join the received pieces of the current block."""
        pieces, self._pieces = self._pieces, {}
        if self.answer is None or not pieces:
            return
        block = self.answer["content"][-1]
        for name, piece in pieces.items():
            block[name] = (block.get(name) or "") + "".join(piece)
        try:
            block["input"] = json.loads(block["partial_json"])
            del block["partial_json"]
        except (KeyError, ValueError):
            return

    def _begin(self, block: Answer) -> None:
        assert self.answer is not None
        self.answer["content"].append(dict(block))
        doing = _DOING.get(block["type"])
        if doing is not None and doing != self._doing:
            self._doing = doing
            self._emit(StatusEvent(status=doing))
        self._say(block.get("text"))

    def _grow(self, delta: Answer) -> None:
        assert self.answer is not None
        block = self.answer["content"][-1]
        name = _GROWS.get(delta["type"])
        if name is not None:
            self._pieces.setdefault(name, []).append(delta[name])
        elif delta["type"] == "citations_delta":
            block.setdefault("citations", []).append(delta["citation"])
        if name == "text":
            self._say(delta[name])

    def _say(self, text: str | None) -> None:
        if text:
            self.has_spoken = True
            self._emit(TextDelta(text))


def build_output(
    answers: Sequence[Answer],
    progress: StreamProgress,
    asked: HttpRequest,
    settings: AnthropicSettings,
) -> AgentOutput:
    """Return the output of a call by the stop reason of its last answer.

    Raises AgentError if the answer is incomplete or missing.
    """
    last = answers[-1]
    reason = last["stop_reason"]
    if reason == "refusal":
        raise _refusal(last, progress, asked)
    if reason == "max_tokens":
        came = f"{_counted(last, 'output_tokens')} tokens"
        problem = f"its answer was cut off at max_tokens ({came}, thinking included)"
        mend = "raise `context.max_output_tokens`, or `max_tokens` of its adapter"
        raise not_whole(problem, mend, answers, progress, asked)
    if reason == "model_context_window_exceeded":
        problem = "its answer was cut off at the end of the model's context window"
        mend = "lower `context.window_tokens` in its profile"
        raise not_whole(problem, mend, answers, progress, asked)
    if reason not in ("end_turn", "stop_sequence", "tool_use"):
        problem = f"it stopped for an unknown reason: {reason}"
        raise not_whole(problem, "check for a newer version of arena", answers, progress, asked)
    blocks = [block for part in answers for block in part["content"]]
    called = {str(block.get("name")) for block in blocks if block["type"] == "tool_use"}
    if called - {PASS}:
        problem = f"it called a tool that it was not given: {', '.join(sorted(called))}"
        raise not_whole(problem, "ask again, or use another model", answers, progress, asked)
    content = "".join(block.get("text") or "" for block in blocks if block["type"] == "text")
    return AgentOutput(
        content=content.strip(),
        should_respond=not called or bool(content.strip()),
        usage=usage_of(answers, settings),
        metadata=metadata(answers, progress),
    )


def is_all_text(request: Answer) -> bool:
    """Return True if a request contains nothing but text, whose tokens can be estimated."""
    blocks = (block for turn in request["messages"] for block in turn["content"])
    return all(block["type"] == "text" for block in blocks)


def not_whole(
    problem: str, mend: str, answers: Sequence[Answer], progress: StreamProgress, asked: HttpRequest
) -> AgentError:
    """Return the error for an unusable answer; a retry would give the same result."""
    kept = metadata(answers, progress)
    return AgentProtocolError(
        asked.agent_id, problem, asked=asked.url, mend=mend, metadata=kept, again=False
    )


def metadata(answers: Sequence[Answer], progress: StreamProgress) -> dict[str, Any]:
    """Return the metadata of an answer: its thinking, and the API's response.

    The signatures of the thinking are omitted: they only serve to send it back at once.
    """
    blocks = [block for part in answers for block in part["content"]]
    thoughts = [block["thinking"] for block in blocks if block.get("thinking")]
    raw = [{**part, "content": [_unsigned(block) for block in part["content"]]} for part in answers]
    kept: dict[str, Any] = {}
    if raw:
        kept["raw"] = raw[0] if len(raw) == 1 else raw
    if thoughts:
        kept["thinking"] = "\n\n".join(thoughts)
    if progress.request_id:
        kept["request_id"] = progress.request_id
    return kept


def _unsigned(block: Answer) -> Answer:
    return {name: value for name, value in block.items() if name != "signature"}


def _refusal(last: Answer, progress: StreamProgress, asked: HttpRequest) -> AgentError:
    """Return the error for the model's refusal, with the reason that it gives."""
    details = last.get("stop_details") or {}
    reason = [details.get("category"), details.get("explanation")]
    return AgentRefused(
        asked.agent_id,
        "it refuses to answer this",
        asked=asked.url,
        came=": ".join(text for text in reason if text),
        mend="rephrase the message, or use another model",
        metadata=metadata([last], progress),
    )


def usage_of(answers: Sequence[Answer], settings: AnthropicSettings) -> Usage | None:
    """Return the usage and cost of all answers; None if the server reports no tokens."""
    usage = Usage(
        input_tokens=sum(_counted(part, "input_tokens") for part in answers),
        output_tokens=sum(_counted(part, "output_tokens") for part in answers),
        cache_read_tokens=sum(_counted(part, "cache_read_input_tokens") for part in answers),
        cache_write_tokens=sum(_counted(part, "cache_creation_input_tokens") for part in answers),
    )
    if usage == Usage():
        return None
    cost = cost_usd(usage, model=settings.model, provider="anthropic", pricing=settings.pricing)
    return usage.model_copy(update={"cost_usd": cost})


def _counted(answer: Answer, name: str) -> int:
    count = (answer.get("usage") or {}).get(name)
    return count if isinstance(count, int) else 0


GET_A_KEY = (
    f"set {KEY_VARIABLE} in the environment, or in the workspace's .env file; get a "
    f"key at {KEYS_AT}"
)
MOST_PAUSES = 5

# An error in the middle of a stream comes with status 200; its type says which it would be
# (https://platform.claude.com/docs/en/api/errors).
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicAdapter:
    """An agent of Anthropic's API; its calls share one client, and so one connection pool."""

    settings_type: ClassVar[type[Settings]] = AnthropicSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        settings: AnthropicSettings = setup.settings
        charged = given_pricing(settings.pricing, setup.models.get(settings.model))
        self._settings = settings.model_copy(update={"pricing": charged})
        self._client: AsyncAnthropic | None = None
        url = f"POST {http.without_login(self._settings.base_url)}/v1/messages"
        key = f"`api_key` in its profile, or {KEY_VARIABLE} in the environment"
        self._asked = HttpRequest(setup.agent_id, url, self._settings.model, key)

    async def start(self) -> None:
        """Create the client. Raises AgentUnavailable if the package or a key is missing."""
        missing = self._missing()
        if missing:
            raise AgentUnavailable(self._setup.agent_id, missing, asked=self._asked.url)
        self._client = await asyncio.to_thread(self._made)

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Return an answer; send more than one request only if the API pauses in the middle."""
        chat = self._setup.chat(input, pass_tool=PASS)
        request = await asyncio.to_thread(
            build_request,
            self._settings,
            chat,
            self._setup.workspace,
            answer=input.max_output_tokens,
        )
        emit(CallNote({"model": self._settings.model}))
        progress = StreamProgress(emit)
        answers: list[Answer] = []
        try:
            return await self._whole(request, answers, progress)
        except (AgentError, asyncio.CancelledError):
            came = [part for part in (*answers, progress.answer) if part is not None]
            if usage := usage_of(came, self._settings):
                emit(usage)
            raise

    async def _whole(
        self, request: dict[str, Any], answers: list[Answer], progress: StreamProgress
    ) -> AgentOutput:
        """Return the output of a call; append the answer to each request to `answers`."""
        while len(answers) <= MOST_PAUSES:
            answers.append(await self._part(request, progress))
            progress.answer = None
            if answers[-1]["stop_reason"] != "pause_turn":
                output = build_output(answers, progress, self._asked, self._settings)
                if len(answers) == 1 and is_all_text(request):
                    output.metadata["input_counted"] = True
                return output
            said = {"role": "assistant", "content": answers[-1]["content"]}
            request["messages"] = [*request["messages"], said]
        problem = f"it paused {len(answers)} times and did not finish"
        raise not_whole(problem, "try again", answers, progress, self._asked)

    async def health(self) -> Health:
        """Check that the package and a key are present; call nothing."""
        missing = self._missing()
        return Health(not missing, missing)

    async def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _missing(self) -> str:
        """Return what is missing and how to get it; "" if nothing is missing."""
        if not all(importlib.util.find_spec(package) for package in ("anthropic", "httpx2")):
            return "the package `anthropic` is missing or too old: pip install -U anthropic"
        key = self._settings.api_key.strip()
        if not key and urlsplit(self._settings.base_url).hostname == urlsplit(OFFICIAL).hostname:
            return f"it has no key: {GET_A_KEY}"
        if not (key.isascii() and key.isprintable()):
            return "`api_key` contains characters that are not allowed in a key: copy it again"
        return ""

    def _made(self) -> AsyncAnthropic:
        """Create the client; the SDK takes about a second to load."""
        import httpx2  # noqa: PLC0415 - here, in a thread
        from anthropic import AsyncAnthropic  # noqa: PLC0415 - likewise

        settings = self._settings
        client: httpx2.AsyncClient = http.client(httpx2, self._asked, settings.base_url, {})
        load_ahead(settings.pricing)
        return AsyncAnthropic(
            # Without one, the SDK would look for a key of its own, and send it.
            api_key=settings.api_key.strip() or "none",
            base_url=settings.base_url,
            max_retries=0,
            timeout=client.timeout,
            http_client=client,
            open_telemetry=False,
        )

    async def _part(self, request: dict[str, Any], progress: StreamProgress) -> Answer:
        """Stream the answer to one request to its end. Raises AgentError."""
        import anthropic  # noqa: PLC0415 - it is there, once started
        import httpx2  # noqa: PLC0415 - likewise

        progress.answer = progress.request_id = None
        assert self._client is not None
        try:
            # Past `messages.create`, which prints warnings and reads every event into shapes.
            async with await self._client.post(
                "/v1/messages",
                cast_to=object,
                body=request,
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            ) as stream:
                response = stream.response
                progress.request_id = response.headers.get("request-id")
                await self._expect_events(response)
                async for event in stream.raw_events(response):
                    if event.data and event.event != "ping":
                        self._hear(json.loads(event.data), response.headers, progress)
        except anthropic.APIStatusError as error:
            progress.request_id = error.request_id
            raise self._refused(error, progress) from error
        except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
            raise self._noted(http.connection_failure(self._asked, error), progress) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # An event that is no JSON, or of another shape than it should be.
            problem = f"a piece of its answer cannot be read: {type(error).__name__}: {error}"
            raise self._broken(problem, progress) from error
        if progress.answer is None:
            raise self._broken("its provider returned an empty answer", progress)
        if progress.answer.get("stop_reason") is None:
            raise self._broken("its answer ended before it was complete", progress)
        return progress.answer

    async def _expect_events(self, response: httpx2.Response) -> None:
        """Raise AgentError if a response with status 200 is not an event stream."""
        kind = response.headers.get("content-type", "text/event-stream")
        if not kind.startswith("text/event-stream"):
            body = (await response.aread()).decode("utf-8", "replace")
            raise http.status_failure(self._asked, response.status_code, response.headers, body)

    def _hear(self, event: Any, headers: Mapping[str, str], progress: StreamProgress) -> None:
        """Read an event. Raises AgentError if it reports an error."""
        if event["type"] != "error":
            progress.hear(event)
            return
        status = _STATUS_OF.get(event["error"]["type"], 500)
        failure = http.status_failure(self._asked, status, headers, json.dumps(event))
        if progress.has_spoken:
            http.once_spoken(failure)
        raise self._noted(failure, progress)

    def _refused(self, error: anthropic.APIStatusError, progress: StreamProgress) -> AgentError:
        body = error.body if isinstance(error.body, str) else json.dumps(error.body)
        headers = error.response.headers
        failure = http.status_failure(self._asked, error.status_code, headers, body)
        return self._noted(failure, progress)

    def _broken(self, problem: str, progress: StreamProgress) -> AgentError:
        asked = self._asked
        failure = AgentProtocolError(asked.agent_id, problem, asked=asked.url, mend="try again")
        return self._noted(failure, progress)

    def _noted(self, failure: AgentError, progress: StreamProgress) -> AgentError:
        """Return the error with the part of the answer that was received before it."""
        progress.end_block()
        came = [] if progress.answer is None else [progress.answer]
        noted = metadata(came, progress)
        failure.metadata = {**noted, **failure.metadata}
        return failure
