"""What Claude Code writes about one turn (`--output-format stream-json`), as an answer or an error.

Shapes as captured from 2.1.197 and 2.1.332. Whether a turn failed is said by `is_error`; `subtype`
is `success` for most failures too.
"""

from __future__ import annotations

import time
from typing import Any

from arena_cli.adapters.api import http
from arena_cli.adapters.coding import claude_code_session
from arena_cli.adapters.coding.claude_code_session import Spent
from arena_cli.adapters.coding.claude_code_turns import Turns
from arena_cli.ground import text as texts
from arena_cli.ground.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.ground.protocol import AgentOutput, Emit, StatusEvent, TextDelta

LOST = "No conversation found"
LOGIN = "run `claude` once to log in, or pass a key on: env: {ANTHROPIC_API_KEY: inherit}"

_SHOWN = 600
_UNREACHED = ("unable to connect", "connection", "timed out", "fetch failed", "network", "dns")
_LOGGED_OUT = ("not logged in", "/login", "invalid api key", "authenticat")


class SessionLostError(Exception):
    """The session that was to go on is not there any more."""


class Turn:
    """Reads the objects of one turn as they come, and tells what they say."""

    def __init__(self, asked: http.Asked, emit: Emit, turns: Turns) -> None:
        self._asked = asked
        self._emit = emit
        self._turns = turns
        self._thinking: list[str] = []
        self._message_id: Any = None
        self._texts: list[str] = []
        self._unasked: list[dict[str, Any]] = []
        self._resets_at: float | None = None
        self._generating = False

    def is_end(self, value: dict[str, Any]) -> bool:
        """Return whether an object is the result of this turn, and not of one in between."""
        if value.get("type") != "result":
            return False
        is_answer = self._turns.is_answer(value)
        self._turns.take(value)
        if not is_answer:
            self._unasked.append(value)
            self._thinking, self._texts, self._message_id = [], [], None
        return is_answer

    def take(self, value: dict[str, Any]) -> None:
        """One object that is not the last. Those of subagents are no text of the answer."""
        self._turns.take(value)
        kind = value.get("type")
        if kind == "rate_limit_event":
            info = _dict(value.get("rate_limit_info"))
            if info.get("status") == "rejected" and isinstance(info.get("resetsAt"), (int, float)):
                self._resets_at = info["resetsAt"]
        elif self._turns.is_own:
            pass
        elif kind == "stream_event" and value.get("parent_tool_use_id") is None:
            self._take_delta(_dict(_dict(value.get("event")).get("delta")))
        elif kind == "assistant":
            self._take_message(_dict(value.get("message")), value.get("parent_tool_use_id") is None)

    def output(self, result: dict[str, Any], before: Spent | None) -> AgentOutput:
        """The answer that the turn's `result` is, with what the session had used `before` it.

        Raises AgentError where it is none.
        Raises SessionLostError where there was no session to go on with.
        """
        result, replaced = texts.clean_value(result)
        usage = claude_code_session.usage_of(result, before, self._unasked)
        if usage.input_tokens or usage.output_tokens:
            self._emit(usage)
        if result.get("is_error") or not isinstance(result.get("result"), str):
            raise self._failure(result)
        metadata: dict[str, Any] = {"raw": result}
        if self._unasked:
            metadata["unasked_results"] = len(self._unasked)
        if self._thinking:
            metadata["thinking"] = texts.clean("\n\n".join(self._thinking))[0]
        if replaced:
            metadata["replaced_bytes"] = True
        content = texts.clean("".join(self._texts))[0]
        if result["result"] not in content:
            content = result["result"]
        return AgentOutput(content=content, usage=usage, metadata=metadata)

    def _take_delta(self, delta: dict[str, Any]) -> None:
        text = delta.get("text")
        if delta.get("type") == "text_delta" and isinstance(text, str):
            if not self._generating:
                self._generating = True
                self._emit(StatusEvent(status="generating"))
            self._emit(TextDelta(text))

    def _take_message(self, message: dict[str, Any], is_main: bool) -> None:
        """Read a message, or the next part of one: a message may come in several events.

        The last message's texts are the answer; `result` has only one of them in some versions.
        """
        if is_main and (message.get("id") is None or message.get("id") != self._message_id):
            self._message_id, self._texts = message.get("id"), []
        blocks = message.get("content")
        for block in map(_dict, blocks if isinstance(blocks, list) else []):
            self._take_block(block)
            if not is_main:
                continue
            if block.get("type") == "text":
                self._texts.append(str(block.get("text", "")))
            elif "tool" in str(block.get("type")):
                self._texts = []  # what stands before a tool's call is talk

    def _take_block(self, block: dict[str, Any]) -> None:
        if block.get("type") == "thinking" and block.get("thinking"):
            self._thinking.append(str(block["thinking"]))
        elif block.get("type") == "tool_use":
            self._generating = False
            self._emit(StatusEvent(status="calling_tool", detail=str(block.get("name", ""))))

    def _failure(self, result: dict[str, Any]) -> AgentError | SessionLostError:
        errors = result.get("errors")
        told = [str(error) for error in errors] if isinstance(errors, list) else []
        said = str(result.get("result") or " | ".join(told) or result.get("subtype", ""))
        if any(LOST in error for error in told):
            return SessionLostError(said)
        status = result.get("api_error_status")
        if status is None and http.is_too_long(0, said):
            status = 400
        if isinstance(status, int) and not isinstance(status, bool):
            failure = self._status_failure(status, said)
        else:
            kind, what, mend = _meaning(result, said)
            came = texts.cut(" ".join(said.split()), _SHOWN)
            asked = self._asked
            failure = kind(asked.agent_id, what, asked=asked.url, came=came, mend=mend)
        failure.metadata["raw"] = result
        return failure

    def _status_failure(self, status: int, said: str) -> AgentError:
        headers = {}
        if self._resets_at is not None:
            headers["retry-after"] = f"{max(0.0, self._resets_at - time.time()):.0f}"
        failure = http.status_failure(self._asked, status, headers, said)
        if status == 404:
            failure.mend = "see `model` in its profile"
        return failure


def _meaning(result: dict[str, Any], said: str) -> tuple[type[AgentError], str, str]:
    """The class, what happened, what to do, where no status of its provider is said."""
    folded = said.casefold()
    found: tuple[type[AgentError], str, str] = (
        AgentProtocolError,
        "Claude Code failed",
        "run `claude` by hand to see more",
    )
    if result.get("stop_reason") == "refusal":
        mend = "say it otherwise, or ask another"
        found = (AgentRefused, "the model refused to answer this", mend)
    elif result.get("subtype") == "error_max_turns":
        mend = "raise --max-turns in `args`, or give it fewer tools"
        found = (AgentProtocolError, "it reached its limit of turns before it answered", mend)
    elif result.get("subtype") == "error_max_budget_usd":
        found = (AgentRefused, "its budget is spent", "raise --max-budget-usd in `args`")
    elif "output token maximum" in folded:
        mend = "env: {CLAUDE_CODE_MAX_OUTPUT_TOKENS: ...} raises the limit, or ask for less"
        found = (AgentProtocolError, "its answer was cut off at the limit of its length", mend)
    elif any(words in folded for words in _LOGGED_OUT):
        found = (AgentRefused, "Claude Code is not logged in", LOGIN)
    elif any(words in folded for words in _UNREACHED):
        mend = "see whether there is a network, and ANTHROPIC_BASE_URL, if `env` sets it"
        found = (AgentUnavailable, "Claude Code did not reach its provider", mend)
    return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
