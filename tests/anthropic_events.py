"""Events of Anthropic's Messages API, as its documentation and captured streams have them."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]

USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 300,
    "cache_read_input_tokens": 2000,
    "output_tokens": 1,
}


def begin(model: str = "claude-opus-4-6") -> Event:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }
    return {"type": "message_start", "message": message}


def text(*pieces: str, index: int = 0) -> list[Event]:
    """A block of text that comes in pieces."""
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block({"type": "text", "text": ""}, *deltas, index=index)


def thinking(*pieces: str, index: int = 0) -> list[Event]:
    """A block of thinking, signed."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return block(start, *deltas, signed, index=index)


def tool(name: str, *pieces: str, index: int = 0) -> list[Event]:
    """A call of a tool, whose arguments come in pieces of JSON."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    start = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    return block(start, *deltas, index=index)


def block(start: Event, *deltas: Event, index: int = 0) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": index, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(stop_reason: str = "end_turn", **more: Any) -> list[Event]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None, **more}
    usage = {"output_tokens": 15}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def error(kind: str, message: str) -> Event:
    return {"type": "error", "error": {"type": kind, "message": message}}


def whole(*pieces: str) -> list[Event]:
    """A whole answer of text."""
    return [begin(), *text(*pieces), *end()]
