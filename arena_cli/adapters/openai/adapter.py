"""Call any server with OpenAI's chat completions API over HTTP (kind `openai`)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from arena_cli import __version__
from arena_cli.adapters import http, pricing
from arena_cli.adapters.base import Adapter, Health, Settings, Setup
from arena_cli.adapters.openai import presets, request, tools
from arena_cli.adapters.openai.request import OpenAISettings
from arena_cli.adapters.openai.response import (
    GrowingAnswer,
    NoAnswerError,
    RequestAnswer,
    ServerSaidError,
    check,
    is_cut,
    model_names,
    no_answer,
    read_stream,
    read_whole,
    server_failure,
    text_of,
)
from arena_cli.adapters.tool_calls import ToolNames, describe_tools
from arena_cli.chat import Chat
from arena_cli.errors import AgentError, AgentRefused, AgentUnavailable
from arena_cli.protocol import AgentInput, AgentOutput, CallNote, Emit, StatusEvent, Usage
from arena_cli.util import process_signals

if TYPE_CHECKING:
    import httpx


HEALTH_LIMIT_S = 3.0
# Some servers count only what was not in their cache: so few tokens say nothing.
FEWEST_READ = 500


def _acts(input: AgentInput) -> bool:
    """Return True for a turn of an agent with tools; the last one may have none left."""
    return bool(input.tools or input.steps)


class OpenAIAdapter(Adapter):
    """An agent behind OpenAI's protocol, with one HTTP client, created at the first call."""

    settings_type: ClassVar[type[Settings]] = OpenAISettings

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._settings: OpenAISettings = setup.settings
        self._preset = presets.find_preset(self._settings.preset)
        self._base_url = self._settings.base_url or self._preset.base_url
        self._own = presets.key_variable(self._settings.preset, self._base_url)
        self._server = request.Server(self._settings.stream, schema=self._preset.schema)
        if self._own == presets.OPENAI.key:
            # OpenAI's newer models refuse the older name, all of its models know the newer one.
            self._server.length_key = "max_completion_tokens"
        self._url = f"{self._base_url}/chat/completions"
        self._asked = http.HttpRequest(
            setup.agent_id,
            f"POST {http.without_login(self._url)}",
            self._settings.model,
            "`api_key` in its profile" + (f", or {self._own}" if self._own else ""),
        )
        facts = setup.models.get(self._settings.model)
        self._pricing: pricing.Pricing | None = pricing.given_pricing(
            self._settings.pricing, facts
        ) or ("free" if self._preset.local else None)
        self._client: httpx.AsyncClient | None = None
        self._told_of_cut = False

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Return an answer; repeat the request if the server lacks a feature or room to think."""
        emit(CallNote({"model": self._settings.model}))
        chat = self._setup.chat(input)
        body = self._body(chat, input)
        sent_bodies = [body]
        spent: list[Usage | None] = []
        while True:
            call = RequestAnswer(emit, shown=self._is_shown(input))
            try:
                await self._ask(body, call)
                self._server.saw(thinking=call.thought())
                is_done = call.said() or not is_cut(call.answer)
                if is_done or (again := self._body(chat, input)) in sent_bodies:
                    return self._output(body, call, spent, input)
                spent.append(self._usage(call.answer))
            except ServerSaidError as error:
                learned = not call.said() and self._server.learn(error.status, error.body, body)
                if not learned or (again := self._body(chat, input)) in sent_bodies:
                    raise self._refused(error, body, call.notes()) from error
            except NoAnswerError as error:
                raise no_answer(self._asked, error, call.notes()) from error
            except asyncio.CancelledError:
                emit(CallNote(call.notes()))
                raise
            finally:
                if usage := self._spent(call.answer, spent):
                    emit(usage)
            body = again
            sent_bodies.append(body)

    def _is_shown(self, input: AgentInput) -> bool:
        """Return True if the text of an answer may be shown as it comes: it is no JSON."""
        return self._settings.response_format is None and not (
            _acts(input) and self._settings.tools_mode == "json"
        )

    def _body(self, chat: Chat, input: AgentInput) -> dict[str, Any]:
        settings = self._settings
        response_format = settings.response_format
        if response_format == "decision" and _acts(input):
            response_format = None  # an answer of that form cannot call tools
        form, addition = request.response_format(response_format, self._server)
        messages, offered = self._messages(chat, input, addition)
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": messages,
            **offered,
            **self._server.length(input.max_output_tokens),
            "stream": self._server.stream,
            **form,
        }
        if self._server.stream and self._server.stream_options:
            body["stream_options"] = {"include_usage": True}
        for key in ("temperature", "top_p"):
            if (value := getattr(settings, key)) is not None:
                body[key] = value
        return {**body, **settings.extra_body}

    def _messages(
        self, chat: Chat, input: AgentInput, addition: str
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the messages of a request, with the steps so far, and the keys that offer tools.

        `addition` is added to the system text.
        """
        server, workspace = self._server, self._setup.workspace
        offered: dict[str, Any] = {}
        steps: list[dict[str, Any]] = []
        if self._settings.tools_mode == "json":
            addition = "\n\n".join(filter(None, (addition, describe_tools(input.tools))))
            steps = tools.messages_in_text(input.steps, server, workspace)
        elif _acts(input):
            names = ToolNames.of(input)
            offered = tools.offer(input, names, server)
            source = self._source
            steps = tools.messages_of_steps(input.steps, names, source, server, workspace)
        messages = request.messages(chat, server, workspace, addition=addition)
        return tools.join_users([*messages, *steps]) if steps else messages, offered

    @property
    def _source(self) -> str:
        return f"{self._base_url} {self._settings.model}"

    async def _ask(self, body: dict[str, Any], call: RequestAnswer) -> None:
        import httpx  # noqa: PLC0415  # it takes a fifth of a second

        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        if self._client is None:
            self._client = self._made_client(limit_s=None)
            if self._own:
                pricing.load_ahead(self._pricing)
        try:
            async with self._client.stream("POST", self._url, content=content) as response:
                kind = response.headers.get("content-type", "")
                one_piece = re.search("json|html", kind) or not body["stream"]
                if response.status_code != HTTPStatus.OK:
                    text = await text_of(response)
                    raise ServerSaidError(response.status_code, text, response.headers)
                if one_piece and "event-stream" not in kind:
                    await read_whole(response, call)
                else:
                    await read_stream(response, call)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
            raise self._not_reached(error, call.notes()) from error

    def _made_client(self, *, limit_s: float | None) -> httpx.AsyncClient:
        import httpx  # noqa: PLC0415  # it takes a fifth of a second

        headers = {
            "content-type": "application/json",
            "user-agent": f"{process_signals.DISTRIBUTION}/{__version__}",
        }
        if self._settings.api_key:
            headers["authorization"] = f"Bearer {self._settings.api_key}"
        client: httpx.AsyncClient = http.client(
            httpx, self._asked, self._base_url, headers, limit_s=limit_s
        )
        return client

    def _refused(
        self, error: ServerSaidError, body: dict[str, Any], notes: dict[str, Any]
    ) -> AgentError:
        message = http.said_in(error.body)
        if tools.lacks_tools(error.status, message, body):
            problem = "its server or its model cannot call tools"
            metadata = {**notes, "raw": error.body}
            mend = tools.SET_JSON_MODE
            return http.failure(AgentRefused, self._asked, problem, message, mend, metadata)
        failure = server_failure(self._asked, error, notes)
        if error.status == HTTPStatus.NOT_FOUND and self._preset.model:
            failure.mend = f"try `{self._preset.model.format(self._settings.model)}`"
        return failure

    def _not_reached(self, error: Exception, notes: dict[str, Any]) -> AgentError:
        failure = http.connection_failure(self._asked, error)
        if self._preset.local and isinstance(failure, AgentUnavailable):
            failure.mend = f"start it with `{self._preset.start}`"
            failure.what = f"{self._settings.preset} is not running: {failure.what}"
        failure.metadata.update(notes)
        return failure

    def _output(
        self,
        body: dict[str, Any],
        call: RequestAnswer,
        spent: Sequence[Usage | None],
        input: AgentInput,
    ) -> AgentOutput:
        acts = _acts(input)
        check(self._asked, call.answer, body, call.notes(), acts=acts)
        metadata = call.answer_notes()
        cut = self._cut_prompt(body, call.answer)
        if cut:
            if not self._told_of_cut:
                call.emit(StatusEvent(status="generating", detail=cut))
            self._told_of_cut = True
            metadata["prompt_cut"] = cut
        elif not (spent or acts) and http.is_all_text(body["messages"]):
            metadata["input_counted"] = True
        content = "".join(call.answer.text).strip()
        usage = self._spent(call.answer, spent)
        output = AgentOutput(content=content, usage=usage, metadata=metadata)
        if acts and self._settings.tools_mode == "json":
            return tools.add_calls_in_text(output, input)
        if not acts:
            return output
        thinking = "".join(call.answer.sendable)
        return tools.add_calls(output, call.answer.calls, thinking, input, self._source)

    def _cut_prompt(self, body: dict[str, Any], answer: GrowingAnswer) -> str:
        """Return a warning where the server read far less than it was sent."""
        usage = answer.usage()
        if usage is None:
            return ""
        read = usage.input_tokens + usage.cache_read_tokens
        if read < FEWEST_READ or not request.is_cut(read, body["messages"]):
            return ""
        window = self._preset.window or "give it a longer context"
        return (
            f"its server read only the {read} tokens that fit into its context, and "
            f"cut off the rest of the prompt: {window}, or lower "
            "`context.window_tokens` in its profile"
        )

    def _spent(self, answer: GrowingAnswer, earlier: Sequence[Usage | None]) -> Usage | None:
        """Return the usage of an answer and of the requests before it; None if any is unknown."""
        usages = [*earlier, self._usage(answer)]
        reported = [usage for usage in usages if usage is not None]
        return Usage.total(reported) if len(reported) == len(usages) else None

    def _usage(self, answer: GrowingAnswer) -> Usage | None:
        usage = answer.usage()
        if usage is None:
            return None
        rates = self._pricing
        cost = answer.charged_usd() if rates is None else None
        if cost is None and (rates is not None or self._own):
            cost = pricing.cost_usd(
                usage,
                model=self._settings.model,
                provider=self._preset.provider or None,
                pricing=rates,
            )
        return usage.model_copy(update={"cost_usd": cost})

    async def health(self) -> Health:
        """Check that a local server runs and has the model; contact no other server."""
        if not (self._preset.local or http.is_on_this_machine(self._base_url)):
            return Health(ok=True)
        if not self._setup.connects:
            return Health(ok=True, detail="its server was not checked; use `--connect` to check it")
        import httpx  # noqa: PLC0415  # it takes a fifth of a second

        try:
            async with self._made_client(limit_s=HEALTH_LIMIT_S) as client:
                response = await client.get(f"{self._base_url}/models")
        except AgentError as error:
            return Health(ok=False, detail=f"{error.what}; {error.mend}")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            failure = self._not_reached(error, {})
            name = self._settings.preset or "its server"
            problem = f"{name} is not running at {http.without_login(self._base_url)}"
            return Health(ok=False, detail=f"{problem}: {failure.mend}")
        if response.status_code in (401, 403):
            address = http.without_login(self._base_url)
            return Health(ok=False, detail=f"{address} does not accept the key")
        return self._has_model(response.text)

    def _has_model(self, body: str) -> Health:
        models = model_names(body)
        model = self._settings.model
        if not self._preset.model or models is None or {model, f"{model}:latest"} & models:
            return Health(ok=True)
        get = self._preset.model.format(model)
        has = ", ".join(sorted(models)[:8]) or "none"
        return Health(
            ok=False,
            detail=f"{self._settings.preset} has no model {model} (it has {has}); try `{get}`",
        )

    async def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
