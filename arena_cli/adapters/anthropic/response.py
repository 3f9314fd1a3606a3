"""Read the streamed answers of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from arena_cli.adapters import http
from arena_cli.adapters.anthropic.request import PASS, AnthropicSettings, NativeAnswer
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.pricing import cost_usd, read_count
from arena_cli.adapters.tool_calls import ToolNames, read_arguments
from arena_cli.errors import AgentError, AgentProtocolError, AgentRefused
from arena_cli.protocol import AgentOutput, Emit, Status, StatusEvent, TextDelta, ToolCall, Usage

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
    request: HttpRequest,
    settings: AnthropicSettings,
    names: ToolNames | None,
) -> AgentOutput:
    """Return the output of a call by the stop reason of its last answer.

    `names` are those of the agent's tools, None if it has none. Raises AgentError if the answer is
    incomplete or missing.
    """
    _check_stop(answers, progress, request)
    blocks = _list_blocks(answers)
    used = [block for block in blocks if block["type"] == "tool_use"]
    call_blocks = [block for block in used if block.get("name") != PASS]
    if call_blocks and names is None:
        called = ", ".join(sorted({str(block.get("name")) for block in call_blocks}))
        problem = f"it called a tool that it was not given: {called}"
        raise not_whole(problem, "ask again, or use another model", answers, progress, request)
    content = _join_texts(blocks)
    output = AgentOutput(
        content=content,
        should_respond=bool(call_blocks or content or not used),
        tool_calls=[_read_call(block, names) for block in call_blocks] if names else [],
        usage=usage_of(answers, settings),
        metadata=metadata(answers, progress),
    )
    if names is None:
        return output
    return output.with_native(NativeAnswer(settings.model, _list_native(blocks)))


def _check_stop(answers: Sequence[Answer], progress: StreamProgress, request: HttpRequest) -> None:
    """Raise AgentError if the last answer is a refusal, or incomplete."""
    last = answers[-1]
    reason = last["stop_reason"]
    if reason in ("end_turn", "stop_sequence", "tool_use"):
        return
    if reason == "refusal":
        raise _refusal(last, progress, request)
    problem = f"it stopped for an unknown reason: {reason}"
    mend = "check for a newer version of arena"
    if reason == "max_tokens":
        amount = f"{read_tokens(last).output_tokens} tokens"
        problem = f"its answer was cut off at max_tokens ({amount}, thinking included)"
        mend = "raise `context.max_output_tokens`, or `max_tokens` of its adapter"
    elif reason == "model_context_window_exceeded":
        problem = "its answer was cut off at the end of the model's context window"
        mend = "lower `context.window_tokens` in its profile"
    raise not_whole(problem, mend, answers, progress, request)


def _read_call(block: Answer, names: ToolNames) -> ToolCall:
    """Return a call; a block keeps `partial_json` if its arguments are no JSON."""
    arguments, problem = read_arguments(block.get("partial_json", block.get("input")))
    tool = names.own(str(block.get("name")))
    return ToolCall(id=str(block.get("id")), tool=tool, arguments=arguments, problem=problem)


def _list_native(blocks: Sequence[Answer]) -> list[Answer]:
    """Return the blocks as the API accepts them: without empty texts, each input an object."""
    native: list[Answer] = []
    for block in blocks:
        if block["type"] == "tool_use":
            arguments = block.get("input")
            fields = {name: value for name, value in block.items() if name != "partial_json"}
            native.append({**fields, "input": arguments if isinstance(arguments, dict) else {}})
        elif block["type"] != "text" or (block.get("text") or "").strip():
            native.append(block)
    return native


def _join_texts(blocks: Sequence[Answer]) -> str:
    texts = [block.get("text") or "" for block in blocks if block["type"] == "text"]
    return "".join(texts).strip()


def _list_blocks(answers: Sequence[Answer]) -> list[Answer]:
    return [block for answer in answers for block in answer["content"]]


def not_whole(
    problem: str,
    mend: str,
    answers: Sequence[Answer],
    progress: StreamProgress,
    request: HttpRequest,
) -> AgentError:
    """Return the error for an unusable answer; a retry would give the same result."""
    details = metadata(answers, progress)
    return http.failure(AgentProtocolError, request, problem, "", mend, details, again=False)


def metadata(answers: Sequence[Answer], progress: StreamProgress) -> dict[str, Any]:
    """Return the metadata of an answer: its thinking, and the API's response.

    The signatures of the thinking are omitted: they only serve to send it back at once.
    """
    blocks = _list_blocks(answers)
    thoughts = [block["thinking"] for block in blocks if block.get("thinking")]
    raw = [
        {**answer, "content": [_unsigned(block) for block in answer["content"]]}
        for answer in answers
    ]
    fields: dict[str, Any] = {}
    if raw:
        fields["raw"] = raw[0] if len(raw) == 1 else raw
    if thoughts:
        fields["thinking"] = "\n\n".join(thoughts)
    if progress.request_id:
        fields["request_id"] = progress.request_id
    return fields


def _unsigned(block: Answer) -> Answer:
    return {name: value for name, value in block.items() if name != "signature"}


def _refusal(last: Answer, progress: StreamProgress, request: HttpRequest) -> AgentError:
    """Return the error for the model's refusal, with the reason that it gives."""
    details = last.get("stop_details") or {}
    reason = [details.get("category"), details.get("explanation")]
    return http.failure(
        AgentRefused,
        request,
        "it refuses to answer this",
        ": ".join(text for text in reason if text),
        "rephrase the message, or use another model",
        metadata([last], progress),
    )


def usage_of(answers: Sequence[Answer], settings: AnthropicSettings) -> Usage | None:
    """Return the usage and cost of all answers; None if the server reports no tokens."""
    usage = Usage.total([read_tokens(answer) for answer in answers])
    if usage == Usage():
        return None
    cost = cost_usd(usage, model=settings.model, provider="anthropic", pricing=settings.pricing)
    return usage.model_copy(update={"cost_usd": cost})


def read_tokens(answer: Answer) -> Usage:
    """Return the tokens of an answer."""
    counts = answer.get("usage")
    counts = counts if isinstance(counts, dict) else {}
    return Usage(
        input_tokens=read_count(counts.get("input_tokens")),
        output_tokens=read_count(counts.get("output_tokens")),
        cache_read_tokens=read_count(counts.get("cache_read_input_tokens")),
        cache_write_tokens=read_count(counts.get("cache_creation_input_tokens")),
    )
