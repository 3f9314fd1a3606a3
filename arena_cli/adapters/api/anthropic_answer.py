"""What comes from Anthropic's Messages API: the events of a stream, and what the answer means.

An answer counts only if it ended by itself: what was cut off, wherever, is an error. Events are
read as plain JSON: the SDK's shapes take as long for each of them as all the rest of a call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from arena_cli.adapters.api import anthropic_request, pricing
from arena_cli.adapters.api.anthropic_request import AnthropicSettings
from arena_cli.adapters.api.http import Asked
from arena_cli.ground.errors import AgentError, AgentProtocolError, AgentRefused
from arena_cli.ground.protocol import AgentOutput, Emit, Status, StatusEvent, TextDelta, Usage

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


class Progress:
    """What of a call's streams was passed on, and how far the present one is.

    `answer` is the message as it has come, `request_id` what the provider calls the request.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.has_spoken = False
        self.answer: Answer | None = None
        self.request_id: str | None = None
        self._doing: Status | None = None
        self._pieces: dict[str, list[str]] = {}

    def hear(self, event: Answer) -> None:
        """Add an event, and pass on what it says: what the agent is doing, and its text.

        Raises ValueError, TypeError or LookupError where it is of another shape than it should be.
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
        """Put together what has come of the present block."""
        pieces, self._pieces = self._pieces, {}
        if self.answer is None or not pieces:
            return
        block = self.answer["content"][-1]
        for name, some in pieces.items():
            block[name] = (block.get(name) or "") + "".join(some)
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


def output(
    parts: Sequence[Answer], progress: Progress, asked: Asked, settings: AnthropicSettings
) -> AgentOutput:
    """The answer that ended with the last of its parts, by the reason why it stopped.

    Raises AgentError where it is not whole, or none.
    """
    last = parts[-1]
    reason = last["stop_reason"]
    if reason == "refusal":
        raise _refusal(last, progress, asked)
    if reason == "max_tokens":
        came = f"{_counted(last, 'output_tokens')} tokens"
        what = f"its answer was cut off, as it reached max_tokens ({came}, its thinking included)"
        mend = "raise `context.max_output_tokens`, or `max_tokens` of its adapter"
        raise not_whole(what, mend, parts, progress, asked)
    if reason == "model_context_window_exceeded":
        what = "its answer was cut off where the model's context window ends"
        mend = "lower `context.window_tokens` in its profile"
        raise not_whole(what, mend, parts, progress, asked)
    if reason not in ("end_turn", "stop_sequence", "tool_use"):
        what = f"it stopped for a reason that arena does not know: {reason}"
        raise not_whole(what, "see whether there is a newer arena", parts, progress, asked)
    blocks = [block for part in parts for block in part["content"]]
    called = {str(block.get("name")) for block in blocks if block["type"] == "tool_use"}
    if called - {anthropic_request.PASS}:
        what = f"it called a tool that it was not given: {', '.join(sorted(called))}"
        raise not_whole(what, "ask it again, or another model", parts, progress, asked)
    content = "".join(block.get("text") or "" for block in blocks if block["type"] == "text")
    return AgentOutput(
        content=content.strip(),
        should_respond=not called or bool(content.strip()),
        usage=usage_of(parts, settings),
        metadata=metadata(parts, progress),
    )


def is_all_text(request: Answer) -> bool:
    """Whether a request shows nothing but text, whose tokens can be estimated."""
    blocks = (block for turn in request["messages"] for block in turn["content"])
    return all(block["type"] == "text" for block in blocks)


def not_whole(
    what: str, mend: str, parts: Sequence[Answer], progress: Progress, asked: Asked
) -> AgentError:
    """An answer that ended, and is none; asked again, the same would come."""
    kept = metadata(parts, progress)
    return AgentProtocolError(
        asked.agent_id, what, asked=asked.url, mend=mend, metadata=kept, again=False
    )


def metadata(parts: Sequence[Answer], progress: Progress) -> dict[str, Any]:
    """What is kept beside an answer: its thinking, and what the API sent.

    The signatures of its thinking are not: they only serve to send it back at once.
    """
    blocks = [block for part in parts for block in part["content"]]
    thoughts = [block["thinking"] for block in blocks if block.get("thinking")]
    raw = [{**part, "content": [_unsigned(block) for block in part["content"]]} for part in parts]
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


def _refusal(last: Answer, progress: Progress, asked: Asked) -> AgentError:
    """The model's own refusal, with what it says of it."""
    details = last.get("stop_details") or {}
    why = [details.get("category"), details.get("explanation")]
    return AgentRefused(
        asked.agent_id,
        "it refuses to answer this",
        asked=asked.url,
        came=": ".join(text for text in why if text),
        mend="say it otherwise, or ask another model",
        metadata=metadata([last], progress),
    )


def usage_of(parts: Sequence[Answer], settings: AnthropicSettings) -> Usage | None:
    """Tokens and money of all parts; None where the server counts nothing."""
    usage = Usage(
        input_tokens=sum(_counted(part, "input_tokens") for part in parts),
        output_tokens=sum(_counted(part, "output_tokens") for part in parts),
        cache_read_tokens=sum(_counted(part, "cache_read_input_tokens") for part in parts),
        cache_write_tokens=sum(_counted(part, "cache_creation_input_tokens") for part in parts),
    )
    if usage == Usage():
        return None
    cost = pricing.cost_usd(
        usage, model=settings.model, provider="anthropic", pricing=settings.pricing
    )
    return usage.model_copy(update={"cost_usd": cost})


def _counted(part: Answer, name: str) -> int:
    count = (part.get("usage") or {}).get(name)
    return count if isinstance(count, int) else 0
