"""What a server of OpenAI's protocol answered, in one piece or in many: the same comes of both."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_cli.ground.protocol import Usage


class ServerSaidError(Exception):
    """It answered with an error: an HTTP status, or what stands for one, and the body as it came.

    `status` is 0 where it is not known.
    """

    def __init__(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or {}


class NoAnswerError(Exception):
    """It answered with something that is neither an answer nor an error: `came`, as text."""

    def __init__(self, what: str, came: str = "") -> None:
        super().__init__(what)
        self.what = what
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
class Answer:
    """One answer as it grows. `finish_reason` is None until the server says why it ended."""

    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    head: dict[str, Any] = field(default_factory=dict)
    reported: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None

    def add(self, data: object) -> tuple[str, str]:
        """Take in a chunk of a stream, or the whole; gives its text and its thinking.

        Raises ServerSaidError where it is an error, NoAnswerError where it is no JSON object.
        """
        if not isinstance(data, dict):
            raise NoAnswerError(f"JSON came that is no object: {type(data).__name__}")
        if data.get("error") or data.get("object") == "error":
            raise ServerSaidError(status_of(data), _dumped(data))
        choices = data.get("choices")
        self.head.update({key: data[key] for key in data if key not in ("choices", "usage")})
        if isinstance(data.get("usage"), dict):
            self.reported = data["usage"]
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return "", ""
        choice = choices[0]
        if choice.get("error"):
            raise ServerSaidError(status_of(choice), _dumped(choice))
        if choice.get("finish_reason"):
            self.finish_reason = str(choice["finish_reason"])
        if "message" in choice:
            self.body = data
        said = choice.get("delta") or choice.get("message")
        return self._add_said(said) if isinstance(said, dict) else ("", "")

    def _add_said(self, said: dict[str, Any]) -> tuple[str, str]:
        text, thinking = _pieces(said.get("content"))
        # Some servers send both names with the same text.
        thinking += _text(said.get("reasoning_content")) or _text(said.get("reasoning"))
        if text:
            self.text.append(text)
        if thinking:
            self.thinking.append(thinking)
        if _text(said.get("refusal")):
            self.refusal.append(said["refusal"])
        for call in said.get("tool_calls") or []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and function.get("name"):
                self.tools.append(str(function["name"]))
        return text, thinking

    def raw(self) -> dict[str, Any]:
        """The answer as the server gives it in one piece, put together where it came in many."""
        if self.body is not None:
            return self.body
        message = {
            "role": "assistant",
            "content": "".join(self.text),
            **({"reasoning_content": "".join(self.thinking)} if self.thinking else {}),
            **({"refusal": "".join(self.refusal)} if self.refusal else {}),
            **({"tool_calls": self.tools} if self.tools else {}),
        }
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        whole = {**self.head, "choices": [choice]}
        return {**whole, "usage": self.reported} if self.reported else whole

    def usage(self) -> Usage | None:
        """What it says that it used; None where it says nothing.

        What it read from its cache is part of the protocol's `prompt_tokens`, and not of ours.
        """
        prompt = _count(self.reported.get("prompt_tokens"))
        completion = _count(self.reported.get("completion_tokens"))
        if not prompt:
            return None
        details = self.reported.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        cached = min(prompt, cached or _count(self.reported.get("prompt_cache_hit_tokens")))
        return Usage(
            input_tokens=prompt - cached, output_tokens=completion, cache_read_tokens=cached
        )

    def charged_usd(self) -> float | None:
        """What the server says that the call cost (OpenRouter does, in its usage)."""
        cost = self.reported.get("cost")
        return float(cost) if isinstance(cost, (int, float)) and cost >= 0 else None


def status_of(data: dict[str, Any]) -> int:
    """The HTTP status that an error in a body stands for; 0 where it tells none."""
    error = data.get("error")
    parts = error if isinstance(error, dict) else data
    for key in ("code", "status", "type"):
        value = parts.get(key)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
        if isinstance(value, str):
            if re.fullmatch(r"[45]\d\d", value, re.ASCII):
                return int(value)
            if value.lower() in _STATUS_OF:
                return _STATUS_OF[value.lower()]
    return 0


def _pieces(content: object) -> tuple[str, str]:
    """The text and the thinking of a content, which some servers give in parts."""
    if isinstance(content, str):
        return content, ""
    text = []
    thinking = []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict):
            text.append(_text(part.get("text")))
            thinking.append("".join(_pieces(part.get("thinking"))))
    return "".join(text), "".join(thinking)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _dumped(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)
