"""Read one turn of Claude Code: a reply or an error."""

from __future__ import annotations

import time
from typing import Any

from arena_cli.adapters.api import http
from arena_cli.adapters.coding.claude_code_session import Spending, dict_or_empty, read_turn_usage
from arena_cli.adapters.coding.claude_code_turns import TurnTracker
from arena_cli.ground import text as texts
from arena_cli.ground.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.ground.protocol import AgentOutput, Emit, StatusEvent, TextDelta

LOST_SESSION = "No conversation found"
LOGIN_HINT = "run `claude` once to log in, or pass a key on: env: {ANTHROPIC_API_KEY: inherit}"

_MAX_SHOWN_CHARACTERS = 600

_UNREACHED = ("unable to connect", "connection", "timed out", "fetch failed", "network", "dns")
_LOGGED_OUT = ("not logged in", "/login", "invalid api key", "authenticat")


class SessionLostError(Exception):
    """The session to resume is gone."""


class ClaudeTurn:
    """Read the objects of one turn as they come, and emit the text and status in them.

    The shapes are those of `--output-format stream-json` captured from 2.1.197 and 2.1.332.
    `is_error` tells that a turn failed; `subtype` is `success` for most failures too.
    """

    def __init__(self, request: http.Asked, emit: Emit, tracker: TurnTracker) -> None:
        self._request = request
        self._emit = emit
        self._tracker = tracker
        self._thinking: list[str] = []
        self._message_id: Any = None
        self._texts: list[str] = []
        self._own_results: list[dict[str, Any]] = []
        self._resets_at: float | None = None
        self._is_generating = False

    def is_end(self, event: dict[str, Any]) -> bool:
        """Return True if an object is the result of this turn, and not of one in between."""
        if event.get("type") != "result":
            return False
        is_answer = self._tracker.is_answer(event)
        self._tracker.observe(event)
        if not is_answer:
            self._own_results.append(event)
            self._thinking, self._texts, self._message_id = [], [], None
        return is_answer

    def read_event(self, event: dict[str, Any]) -> None:
        """Read one object that is not the last. Text of subagents is none of the reply."""
        self._tracker.observe(event)
        kind = event.get("type")
        is_main = event.get("parent_tool_use_id") is None
        if kind == "rate_limit_event":
            info = dict_or_empty(event.get("rate_limit_info"))
            if info.get("status") == "rejected" and isinstance(info.get("resetsAt"), (int, float)):
                self._resets_at = info["resetsAt"]
        elif kind == "stream_event" and is_main and not self._tracker.is_own_turn:
            self._read_delta(dict_or_empty(dict_or_empty(event.get("event")).get("delta")))
        elif kind == "assistant" and not self._tracker.is_own_turn:
            self._read_message(dict_or_empty(event.get("message")), is_main)

    def read_result(self, result: dict[str, Any], earlier: Spending | None) -> AgentOutput:
        """Return the reply; `earlier` is the session's spending before this turn.

        Raises AgentError if there is none, SessionLostError if the session to resume is gone.
        """
        result, has_replaced = texts.clean_value(result)
        usage = read_turn_usage(result, earlier, self._own_results)
        if usage.input_tokens or usage.output_tokens:
            self._emit(usage)
        if result.get("is_error") or not isinstance(result.get("result"), str):
            raise self._failure(result)
        metadata: dict[str, Any] = {"raw": result}
        if self._own_results:
            metadata["unasked_results"] = len(self._own_results)
        if self._thinking:
            metadata["thinking"] = texts.clean("\n\n".join(self._thinking))[0]
        if has_replaced:
            metadata["replaced_bytes"] = True
        content = texts.clean("".join(self._texts))[0]
        if result["result"] not in content:
            content = result["result"]
        return AgentOutput(content=content, usage=usage, metadata=metadata)

    def _read_delta(self, delta: dict[str, Any]) -> None:
        text = delta.get("text")
        if delta.get("type") == "text_delta" and isinstance(text, str):
            if not self._is_generating:
                self._is_generating = True
                self._emit(StatusEvent(status="generating"))
            self._emit(TextDelta(text))

    def _read_message(self, message: dict[str, Any], is_main: bool) -> None:
        """Read a message, or the next part of one: a message may come in several events.

        The last message's texts are the reply; `result` has only one of them in some versions.
        """
        if is_main and (message.get("id") is None or message.get("id") != self._message_id):
            self._message_id, self._texts = message.get("id"), []
        blocks = message.get("content")
        for block in map(dict_or_empty, blocks if isinstance(blocks, list) else []):
            kind = block.get("type")
            if kind == "thinking" and block.get("thinking"):
                self._thinking.append(str(block["thinking"]))
            elif kind == "tool_use":
                self._is_generating = False
                self._emit(StatusEvent(status="calling_tool", detail=str(block.get("name", ""))))
            if is_main and kind == "text":
                self._texts.append(str(block.get("text", "")))
            elif is_main and "tool" in str(kind):
                self._texts = []  # text before a tool's call is no part of the reply

    def _failure(self, result: dict[str, Any]) -> AgentError | SessionLostError:
        raw_errors = result.get("errors")
        errors = [str(error) for error in raw_errors] if isinstance(raw_errors, list) else []
        message = str(result.get("result") or " | ".join(errors) or result.get("subtype", ""))
        if any(LOST_SESSION in error for error in errors):
            return SessionLostError(message)
        status = result.get("api_error_status")
        if status is None and http.is_too_long(0, message):
            status = 400
        if isinstance(status, int) and not isinstance(status, bool):
            headers = {}
            if self._resets_at is not None:
                headers["retry-after"] = f"{max(0.0, self._resets_at - time.time()):.0f}"
            error = http.status_failure(self._request, status, headers, message)
            if status == 404:
                error.mend = "see `model` in its profile"
        else:
            error_type, summary, hint = _explain_failure(result, message)
            error = error_type(
                self._request.agent_id,
                summary,
                asked=self._request.url,
                came=texts.cut(" ".join(message.split()), _MAX_SHOWN_CHARACTERS),
                mend=hint,
            )
        error.metadata["raw"] = result
        return error


def _explain_failure(result: dict[str, Any], message: str) -> tuple[type[AgentError], str, str]:
    """Return the class, what happened and a hint, where no HTTP status is reported."""
    subtype, folded = result.get("subtype"), message.casefold()
    error_type: type[AgentError] = AgentProtocolError
    summary, hint = "Claude Code failed", "run `claude` by hand to see more"
    if result.get("stop_reason") == "refusal":
        error_type, summary = AgentRefused, "the model refused to answer this"
        hint = "say it otherwise, or ask another"
    elif subtype == "error_max_turns":
        summary = "it reached its limit of turns before it answered"
        hint = "raise --max-turns in `args`, or give it fewer tools"
    elif subtype == "error_max_budget_usd":
        error_type, summary = AgentRefused, "its budget is spent"
        hint = "raise --max-budget-usd in `args`"
    elif "output token maximum" in folded:
        summary = "its answer was cut off at the limit of its length"
        hint = "env: {CLAUDE_CODE_MAX_OUTPUT_TOKENS: ...} raises the limit, or ask for less"
    elif any(words in folded for words in _LOGGED_OUT):
        error_type, summary, hint = AgentRefused, "Claude Code is not logged in", LOGIN_HINT
    elif any(words in folded for words in _UNREACHED):
        error_type, summary = AgentUnavailable, "Claude Code did not reach its provider"
        hint = "see whether there is a network, and ANTHROPIC_BASE_URL, if `env` sets it"
    return error_type, summary, hint
