"""`adapter: {type: anthropic}`: a model behind Anthropic's Messages API, by the official SDK."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from arena_cli.adapters.api import anthropic_answer, anthropic_request, http, pricing
from arena_cli.adapters.api.anthropic_answer import Answer, Progress
from arena_cli.adapters.api.anthropic_request import (
    KEY_VARIABLE,
    KEYS_AT,
    OFFICIAL,
    AnthropicSettings,
)
from arena_cli.adapters.api.http import Asked
from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.ground.errors import AgentError, AgentProtocolError, AgentUnavailable
from arena_cli.ground.protocol import AgentInput, AgentOutput, CallNote, Emit

if TYPE_CHECKING:
    import anthropic
    import httpx2
    from anthropic import AsyncAnthropic

GET_A_KEY = (
    f"set {KEY_VARIABLE} in the environment, or in the workspace's .env file; there are keys at"
    f" {KEYS_AT}"
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
    """One agent; its calls share one client, and so one pool of connections."""

    settings_type: ClassVar[type[Settings]] = AnthropicSettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        settings: AnthropicSettings = setup.settings
        charged = pricing.given(settings.pricing, setup.models.get(settings.model))
        self._settings = settings.model_copy(update={"pricing": charged})
        self._client: AsyncAnthropic | None = None
        url = f"POST {http.without_login(self._settings.base_url)}/v1/messages"
        key = f"`api_key` in its profile, or {KEY_VARIABLE} in the environment"
        self._asked = Asked(setup.agent_id, url, self._settings.model, key)

    async def start(self) -> None:
        """Make the client. Raises AgentUnavailable where the package or a key is missing."""
        missing = self._missing()
        if missing:
            raise AgentUnavailable(self._setup.agent_id, missing, asked=self._asked.url)
        self._client = await asyncio.to_thread(self._made)

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """One answer: more than one request only where the API pauses in the middle of it."""
        chat = self._setup.chat(input, pass_tool=anthropic_request.PASS)
        request = await asyncio.to_thread(
            anthropic_request.of,
            self._settings,
            chat,
            self._setup.workspace,
            answer=input.max_output_tokens,
        )
        emit(CallNote({"model": self._settings.model}))
        progress = Progress(emit)
        parts: list[Answer] = []
        try:
            return await self._whole(request, parts, progress)
        except (AgentError, asyncio.CancelledError):
            came = [part for part in (*parts, progress.answer) if part is not None]
            if usage := anthropic_answer.usage_of(came, self._settings):
                emit(usage)
            raise

    async def _whole(
        self, request: dict[str, Any], parts: list[Answer], progress: Progress
    ) -> AgentOutput:
        """The answer; its parts, each of one request, are added to `parts`."""
        while len(parts) <= MOST_PAUSES:
            parts.append(await self._part(request, progress))
            progress.answer = None
            if parts[-1]["stop_reason"] != "pause_turn":
                output = anthropic_answer.output(parts, progress, self._asked, self._settings)
                if len(parts) == 1 and anthropic_answer.is_all_text(request):
                    output.metadata["input_counted"] = True
                return output
            said = {"role": "assistant", "content": parts[-1]["content"]}
            request["messages"] = [*request["messages"], said]
        what = f"it paused {len(parts)} times and never ended"
        raise anthropic_answer.not_whole(what, "try again", parts, progress, self._asked)

    async def health(self) -> Health:
        """Whether the package and a key are there; nothing is called."""
        missing = self._missing()
        return Health(not missing, missing)

    async def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _missing(self) -> str:
        """What is needed and not there, and how to get it."""
        if not all(importlib.util.find_spec(package) for package in ("anthropic", "httpx2")):
            return "the package `anthropic` is missing or too old: pip install -U anthropic"
        key = self._settings.api_key.strip()
        if not key and urlsplit(self._settings.base_url).hostname == urlsplit(OFFICIAL).hostname:
            return f"it has no key: {GET_A_KEY}"
        if not (key.isascii() and key.isprintable()):
            return "`api_key` holds characters that no key has: copy it anew"
        return ""

    def _made(self) -> AsyncAnthropic:
        """The client; the SDK takes about a second to load."""
        import httpx2  # noqa: PLC0415 - here, in a thread
        from anthropic import AsyncAnthropic  # noqa: PLC0415 - likewise

        settings = self._settings
        client: httpx2.AsyncClient = http.client(httpx2, self._asked, settings.base_url, {})
        pricing.load_ahead(settings.pricing)
        return AsyncAnthropic(
            # Without one, the SDK would look for a key of its own, and send it.
            api_key=settings.api_key.strip() or "none",
            base_url=settings.base_url,
            max_retries=0,
            timeout=client.timeout,
            http_client=client,
            open_telemetry=False,
        )

    async def _part(self, request: dict[str, Any], progress: Progress) -> Answer:
        """One streamed answer to its end. Raises AgentError."""
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
            what = f"a piece of its answer cannot be read: {type(error).__name__}: {error}"
            raise self._broken(what, progress) from error
        if progress.answer is None:
            raise self._broken("its provider answered nothing", progress)
        if progress.answer.get("stop_reason") is None:
            raise self._broken("its answer ended before it was whole", progress)
        return progress.answer

    async def _expect_events(self, response: httpx2.Response) -> None:
        """Raise AgentError where something else than a stream comes with status 200."""
        kind = response.headers.get("content-type", "text/event-stream")
        if not kind.startswith("text/event-stream"):
            body = (await response.aread()).decode("utf-8", "replace")
            raise http.status_failure(self._asked, response.status_code, response.headers, body)

    def _hear(self, event: Any, headers: Mapping[str, str], progress: Progress) -> None:
        """Take an event. Raises AgentError where it tells of an error."""
        if event["type"] != "error":
            progress.hear(event)
            return
        status = _STATUS_OF.get(event["error"]["type"], 500)
        failure = http.status_failure(self._asked, status, headers, json.dumps(event))
        if progress.has_spoken:
            http.once_spoken(failure)
        raise self._noted(failure, progress)

    def _refused(self, error: anthropic.APIStatusError, progress: Progress) -> AgentError:
        body = error.body if isinstance(error.body, str) else json.dumps(error.body)
        headers = error.response.headers
        failure = http.status_failure(self._asked, error.status_code, headers, body)
        return self._noted(failure, progress)

    def _broken(self, what: str, progress: Progress) -> AgentError:
        asked = self._asked
        failure = AgentProtocolError(asked.agent_id, what, asked=asked.url, mend="try again")
        return self._noted(failure, progress)

    def _noted(self, failure: AgentError, progress: Progress) -> AgentError:
        """The failure, with what of an answer had come before it."""
        progress.end_block()
        came = [] if progress.answer is None else [progress.answer]
        noted = anthropic_answer.metadata(came, progress)
        failure.metadata = {**noted, **failure.metadata}
        return failure
