"""Read answers of OpenAI's protocol, streamed or not, with the same result.

A response without an answer becomes the matching error.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from arena_cli.adapters import http
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.openai.tools import GrowingCalls, text_or_empty
from arena_cli.adapters.pricing import read_cost, read_count
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.protocol import Emit, StatusEvent, TextDelta, Usage
from arena_cli.util.text import cut_text

if TYPE_CHECKING:
    import httpx


_SHOWN = 300
_CUT = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})
_BROKEN_OFF: Mapping[str | None, tuple[type[AgentError], str, str]] = {
    "content_filter": (
        AgentRefused,
        "its provider's filter stopped the answer",
        "ask for something else",
    ),
    "insufficient_system_resource": (  # DeepSeek's word for it
        AgentOverloaded,
        "its provider ran out of room in the middle of the answer",
        "try again later",
    ),
    "error": (
        AgentUnavailable,
        "its provider failed in the middle of the answer",
        "try again later",
    ),
}


class ServerSaidError(Exception):
    """The server returned an error: an HTTP status or its equivalent, and the body.

    `status` is 0 if it is not known.
    """

    def __init__(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or {}


class NoAnswerError(Exception):
    """The server returned neither an answer nor an error; `came` is the response as text."""

    def __init__(self, problem: str, came: str = "") -> None:
        super().__init__(problem)
        self.what = problem
        self.came = came


_STATUS_OF = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 503,
    "overloaded": 503,
}


@dataclass
class GrowingAnswer:
    """An answer as it arrives. `finish_reason` is None until the server sends it.

    `sendable` is the thinking that came in the field in which servers may want it back.
    """

    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    sendable: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: GrowingCalls = field(default_factory=GrowingCalls)
    finish_reason: str | None = None
    head: dict[str, Any] = field(default_factory=dict)
    reported: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None

    def add(self, data: object) -> tuple[str, str]:
        """Add a chunk of a stream, or the whole answer; return its text and its thinking.

        Raises ServerSaidError for an error, NoAnswerError if `data` is not a JSON object.
        """
        if not isinstance(data, dict):
            raise NoAnswerError(f"expected a JSON object, got {type(data).__name__}")
        if data.get("error") or data.get("object") == "error":
            raise ServerSaidError(status_of(data), _dumped(data))
        choices = data.get("choices")
        self.head.update({key: data[key] for key in data if key not in ("choices", "usage")})
        if isinstance(data.get("usage"), dict):
            self.reported = data["usage"]
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return "", ""
        if "message" in choices[0]:
            self.body = data
        return self._add_choice(choices[0])

    def _add_choice(self, choice: dict[str, Any]) -> tuple[str, str]:
        if choice.get("error"):
            raise ServerSaidError(status_of(choice), _dumped(choice))
        if choice.get("finish_reason"):
            self.finish_reason = str(choice["finish_reason"])
        message = choice.get("delta") or choice.get("message")
        return self._add_message(message) if isinstance(message, dict) else ("", "")

    def _add_message(self, message: dict[str, Any]) -> tuple[str, str]:
        text, thinking = _pieces(message.get("content"))
        if reasoning := text_or_empty(message.get("reasoning_content")):
            self.sendable.append(reasoning)
        # Some servers send both names with the same text.
        thinking += text_or_empty(message.get("reasoning_content")) or text_or_empty(
            message.get("reasoning")
        )
        if text:
            self.text.append(text)
        if thinking:
            self.thinking.append(thinking)
        if text_or_empty(message.get("refusal")):
            self.refusal.append(message["refusal"])
        self.calls.add(message.get("tool_calls"), streamed=self.body is None)
        return text, thinking

    def raw(self) -> dict[str, Any]:
        """Return the answer as one response object, assembled if it was streamed."""
        if self.body is not None:
            return self.body
        message = {
            "role": "assistant",
            "content": "".join(self.text),
            **({"reasoning_content": "".join(self.thinking)} if self.thinking else {}),
            **({"refusal": "".join(self.refusal)} if self.refusal else {}),
            **({"tool_calls": self.calls.raw()} if self.calls else {}),
        }
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        response = {**self.head, "choices": [choice]}
        return {**response, "usage": self.reported} if self.reported else response

    def usage(self) -> Usage | None:
        """Return the reported usage; None without a report.

        Tokens read from the cache are part of the protocol's `prompt_tokens`; here they are
        separate.
        """
        prompt = read_count(self.reported.get("prompt_tokens"))
        completion = read_count(self.reported.get("completion_tokens"))
        if not prompt:
            return None
        details = self.reported.get("prompt_tokens_details")
        cached = read_count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        cached = min(prompt, cached or read_count(self.reported.get("prompt_cache_hit_tokens")))
        return Usage(
            input_tokens=prompt - cached, output_tokens=completion, cache_read_tokens=cached
        )

    def charged_usd(self) -> float | None:
        """Return the cost that the server reports (OpenRouter does, in its usage)."""
        return read_cost(self.reported.get("cost"))


def status_of(data: dict[str, Any]) -> int:
    """Return the HTTP status that an error in a body corresponds to; 0 if it names none."""
    error = data.get("error")
    fields = error if isinstance(error, dict) else data
    for key in ("code", "status", "type"):
        value = fields.get(key)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
        if isinstance(value, str):
            if re.fullmatch(r"[45]\d\d", value, re.ASCII):
                return int(value)
            if value.lower() in _STATUS_OF:
                return _STATUS_OF[value.lower()]
    return 0


def _pieces(content: object) -> tuple[str, str]:
    """Return the text and the thinking of a content, which some servers send as a list of parts."""
    if isinstance(content, str):
        return content, ""
    text = []
    thinking = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict):
            text.append(text_or_empty(block.get("text")))
            thinking.append("".join(_pieces(block.get("thinking"))))
    return "".join(text), "".join(thinking)


def _dumped(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)


def check(
    request: HttpRequest,
    answer: GrowingAnswer,
    body: dict[str, Any],
    notes: dict[str, Any],
    *,
    acts: bool = False,
) -> None:
    """Raise AgentError if the answer is incomplete or unusable.

    `body` is the request; `notes` are kept with the error, with the received text as `partial`. An
    agent that `acts` may call tools.
    """
    reason = answer.finish_reason
    kind: type[AgentError] = AgentProtocolError
    detail, mend, again = f"finish_reason {reason}", "", True
    if answer.refusal:
        excerpt = cut_text(" ".join("".join(answer.refusal).split()), _SHOWN)
        kind, problem, detail = AgentRefused, f"the model refused: {excerpt}", ""
    elif is_cut(answer):
        problem, mend = _explain_cut(answer, body, is_begun="partial" in notes)
        again = False
    elif reason in _BROKEN_OFF:
        kind, problem, mend = _BROKEN_OFF[reason]
    elif reason is None and answer.body is None:
        problem, mend = "the stream ended before the answer did", "try again"
        detail = "no finish_reason" if answer.head else "no part of an answer"
    elif answer.calls and not acts and "partial" not in notes:
        called = ", ".join(answer.calls.names)
        problem = f"it called {called}, a tool that it was not given, and wrote no text"
        mend = "tell it in its role_prompt to answer in text"
    else:
        return
    raise http.failure(kind, request, problem, detail, mend, notes, again=again)


def is_cut(answer: GrowingAnswer) -> bool:
    """Return True if the answer was cut off at its length limit."""
    return answer.finish_reason in _CUT


def _explain_cut(answer: GrowingAnswer, body: dict[str, Any], *, is_begun: bool) -> tuple[str, str]:
    """Return why an answer reached its length limit, and a hint."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    written = answer.reported.get("completion_tokens")
    problem = "its answer was cut off at the length limit"
    if not is_begun:
        problem = "it reached the length limit while it was still thinking, before its answer began"
    mend = "raise `context.max_output_tokens` in its profile"
    if isinstance(written, int) and isinstance(limit, int) and written < limit:
        mend = (
            f"it wrote {written} of {limit} tokens, so its context is full: lower"
            " `context.window_tokens` in its profile, or give the server a longer context"
        )
    return f"{problem} ({limit} tokens)", mend


def server_failure(
    request: HttpRequest, error: ServerSaidError, notes: dict[str, Any]
) -> AgentError:
    """Return the error for an error of the server."""
    message = http.said_in(error.body)
    if error.status or http.is_too_long(0, message):
        failure = http.status_failure(request, error.status, error.headers, error.body)
    else:
        problem = "its server answered with an error"
        raw = {"raw": error.body}
        failure = http.failure(AgentUnavailable, request, problem, message, "try again later", raw)
    failure.metadata.update({key: notes[key] for key in notes if key != "raw"})
    return http.once_spoken(failure) if "partial" in notes else failure


def no_answer(request: HttpRequest, error: NoAnswerError, notes: dict[str, Any]) -> AgentError:
    """Return the error for a response that is not an answer."""
    if error.came.lstrip()[:1] == "<":
        return http.status_failure(request, 200, {}, error.came)
    metadata = notes or ({"raw": error.came} if error.came else {})
    excerpt = cut_text(" ".join(error.came.split()), _SHOWN)
    return http.failure(
        AgentProtocolError, request, error.what, excerpt, "see `base_url`", metadata
    )


def model_names(body: str) -> set[str] | None:
    """Return the models that a server lists at `/models`; None if the list cannot be read."""
    try:
        listed = json.loads(body)["data"]
        return {str(model["id"]) for model in listed or []}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


GRACE_S = 2.0
MOST_BYTES = 32_000_000
_BEGINNING = 4000

_OPENING = re.compile(r"\s*<(think|thinking)\s{0,8}>", re.IGNORECASE)
_LONGEST_TAG = len("</thinking        >")


class Spoken:
    """The streamed text without the thinking that some models begin with.

    It is only for the live view: the reply is computed from the whole answer.
    """

    def __init__(self) -> None:
        self._held = ""
        self._within = ""
        self._has_begun = False

    def feed(self, text: str) -> str:
        """Return the text to show now: "" while it may be thinking."""
        if self._has_begun:
            return text
        self._held += text
        while True:
            if not self._within:
                opening = _OPENING.match(self._held)
                if opening is None:
                    break
                self._within = opening[1]
                self._held = self._held[opening.end() :]
            closing = re.search(rf"</{self._within}\s{{0,8}}>", self._held, re.IGNORECASE)
            if closing is None:
                self._held = self._held[-_LONGEST_TAG:]
                return ""
            self._within = ""
            self._held = self._held[closing.end() :]
        if "<thinking".startswith(self._held.strip().lower()):
            return ""
        self._has_begun = True
        return self.finish()

    def finish(self) -> str:
        """Return the withheld text if it was not thinking after all."""
        held, self._held = self._held, ""
        return "" if self._within else held


class RequestAnswer:
    """The answer to one request, and the text of it that was emitted."""

    def __init__(self, emit: Emit, *, shown: bool) -> None:
        self.emit = emit
        self.answer = GrowingAnswer()
        self._shown = shown
        self._spoken = Spoken()
        self._told: list[str] = []
        self._statuses: set[str] = set()
        self.ended = False

    def take(self, data: object, *, live: bool) -> None:
        """Add a piece of the answer; emit it if it is part of a stream."""
        text, thinking = self.answer.add(data)
        self.ended = self.ended or self.answer.finish_reason is not None
        spoken = self._spoken.feed(text) if text else ""
        if thinking and live:
            self._status("analyzing")
        if spoken:
            self._tell(spoken, live=live)

    def finish(self, *, live: bool) -> None:
        """Emit the withheld text."""
        if spoken := self._spoken.finish():
            self._tell(spoken, live=live)

    def _tell(self, text: str, *, live: bool) -> None:
        self._told.append(text)
        if live:
            self._status("generating")
            if self._shown:
                self.emit(TextDelta(text))

    def _status(self, status: Literal["analyzing", "generating"]) -> None:
        if status not in self._statuses:
            self._statuses.add(status)
            self.emit(StatusEvent(status=status))

    def thought(self) -> bool:
        """Return True if the model thought before it answered."""
        details = self.answer.reported.get("completion_tokens_details")
        hidden = isinstance(details, dict) and details.get("reasoning_tokens")
        spoken = sum(map(len, self._told))
        return bool(hidden or self.answer.thinking or spoken < sum(map(len, self.answer.text)))

    def said(self) -> bool:
        """Return True if part of the answer itself was received."""
        return bool("".join(self._told).strip())

    def answer_notes(self) -> dict[str, Any]:
        """Return the metadata of an answer: its thinking and the raw response."""
        thinking = "".join(self.answer.thinking).strip()
        return {**({"thinking": thinking} if thinking else {}), "raw": self.answer.raw()}

    def notes(self) -> dict[str, Any]:
        """Return the metadata of an answer that failed; empty if nothing was received."""
        if not (self.answer.head or self.answer.text or self.answer.thinking):
            return {}
        partial = "".join(self._told)
        return {**self.answer_notes(), **({"partial": partial} if partial.strip() else {})}


async def read_stream(response: httpx.Response, call: RequestAnswer) -> None:
    """Read a stream to its end.

    After the end of the answer it is read only for a short time more, and a cut connection is
    ignored.
    """
    import httpx  # noqa: PLC0415  # it is here by now

    reader = http.StreamReader()
    beginning = b""
    try:
        async with asyncio.timeout(None) as limit:
            async for chunk in _limited(response):
                if len(beginning) < _BEGINNING:
                    beginning += chunk
                for data in reader.feed(chunk):
                    _add_data(data, call)
                if call.ended and limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + GRACE_S)
    except (TimeoutError, httpx.HTTPError):
        if not call.ended:
            raise
    for data in reader.finish():
        _add_data(data, call)
    if not (call.ended or call.notes()) and beginning.strip():
        # It may be an error, written as if nobody had asked for a stream.
        call.take(_parsed(beginning.decode("utf-8", "replace")), live=True)
    call.finish(live=True)


def _add_data(data: str, call: RequestAnswer) -> None:
    if data.strip() == "[DONE]":
        call.ended = True
    elif data.strip():
        call.take(_parsed(data), live=True)


async def read_whole(response: httpx.Response, call: RequestAnswer) -> None:
    """Read an answer that is not streamed."""
    body = await text_of(response)
    data = _parsed(body)
    call.take(data, live=False)
    call.finish(live=False)
    if not isinstance(data, dict) or not data.get("choices"):
        raise NoAnswerError("its provider returned JSON without `choices`", body)


async def text_of(response: httpx.Response) -> str:
    """Return the whole body as text."""
    body = b"".join([chunk async for chunk in _limited(response)])
    return body.decode("utf-8", "replace")


async def _limited(response: httpx.Response) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MOST_BYTES:
            raise NoAnswerError(f"its provider sent more than {MOST_BYTES // 1_000_000} MB")
        yield chunk


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswerError("its provider's response is not JSON", text) from error
