"""Call a model behind Anthropic's Messages API by the official SDK (kind `anthropic`)."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from arena_cli.adapters import http
from arena_cli.adapters.anthropic.request import (
    KEY_VARIABLE,
    KEYS_AT,
    OFFICIAL,
    PASS,
    AnthropicSettings,
    build_request,
)
from arena_cli.adapters.anthropic.response import (
    Answer,
    StreamProgress,
    build_output,
    metadata,
    not_whole,
    usage_of,
)
from arena_cli.adapters.base import Adapter, Health, Settings, Setup
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.pricing import given_pricing, load_ahead
from arena_cli.adapters.tool_calls import ToolNames
from arena_cli.errors import AgentError, AgentProtocolError, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, CallNote, Emit

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

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


class AnthropicAdapter(Adapter):
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
        names = ToolNames.of(input, reserved=[PASS])
        request = await asyncio.to_thread(
            build_request, self._settings, chat, self._setup.workspace, input, names
        )
        emit(CallNote({"model": self._settings.model}))
        progress = StreamProgress(emit)
        answers: list[Answer] = []
        try:
            acts = bool(input.tools or input.steps)
            return await self._whole(request, answers, progress, names if acts else None)
        except (AgentError, asyncio.CancelledError):
            received = [answer for answer in (*answers, progress.answer) if answer is not None]
            if usage := usage_of(received, self._settings):
                emit(usage)
            raise

    async def _whole(
        self,
        request: dict[str, Any],
        answers: list[Answer],
        progress: StreamProgress,
        names: ToolNames | None,
    ) -> AgentOutput:
        """Return the output of a call; append the answer to each request to `answers`."""
        while len(answers) <= MOST_PAUSES:
            answers.append(await self._part(request, progress))
            progress.answer = None
            if answers[-1]["stop_reason"] != "pause_turn":
                output = build_output(answers, progress, self._asked, self._settings, names)
                if len(answers) == 1 and http.is_all_text(request["messages"]):
                    output.metadata["input_counted"] = True
                return output
            message = {"role": "assistant", "content": answers[-1]["content"]}
            request["messages"] = [*request["messages"], message]
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
            body = error.body if isinstance(error.body, str) else json.dumps(error.body)
            headers = error.response.headers
            failure = http.status_failure(self._asked, error.status_code, headers, body)
            raise self._noted(failure, progress) from error
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

    def _broken(self, problem: str, progress: StreamProgress) -> AgentError:
        failure = http.failure(AgentProtocolError, self._asked, problem, mend="try again")
        return self._noted(failure, progress)

    def _noted(self, failure: AgentError, progress: StreamProgress) -> AgentError:
        """Return the error with the part of the answer that was received before it."""
        progress.end_block()
        answers = [] if progress.answer is None else [progress.answer]
        noted = metadata(answers, progress)
        failure.metadata = {**noted, **failure.metadata}
        return failure
