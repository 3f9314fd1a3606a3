"""The real `llmock` on loopback: an independent server of Anthropic's, OpenAI's and Gemini's APIs.

    api = llmock_server.fresh()    one server a process, started at first use, its state forgotten;
                                   the test is skipped where llmock is not installed
    api.base_url("anthropic")      for clients in any process (the key may be anything); also
                                   "openai" (chat completions and responses), "gemini"

What comes next, in the order of the calls; each takes `times=1`, None for as long as the test runs:

    api.reply("text")                              answered as it is, word by word if streamed
    api.call_tool("pass", {"reason": "…"}, text=None)
    api.add(Reply("te", finish_reason="length"))   of `llmock.scenarios`; any stop reason
    api.fail(429, retry_after=3, message=None)     any status; 503 and 529 ask for 1 s by themselves
    api.context_overflow()                         400; api.limits(context_window=N): from now on
    api.disconnect(after_chunks=3)                 the connection is cut in the middle of the stream
    api.truncate(after_chunks=3)                   the stream ends early, without a word
    api.corrupt(after_chunks=3)                    a chunk that is no JSON
    api.stall(after_chunks=3, seconds=30)          silence in the middle of the stream
    api.delay(0.1)                                 before the answer

Chunks are events: of Anthropic's, the first three carry no text. Unasked, it answers some text, and
never calls a tool by itself (`api.tool_mode("auto")`: it always does).

    api.requests, api.last_request                 with path, model, stream, status, fault, and
                                                   `body` (the JSON that was sent)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock
    from llmock.testing import LLMockServer


def fresh() -> LLMock:
    """The server, as if just started."""
    pytest.importorskip("llmock", reason="llmock is not installed")
    from llmock.pytest_plugin import LLMock

    return LLMock(_server()).reset().tool_mode("off")


@functools.cache
def _server() -> LLMockServer:
    from llmock.testing import LLMockServer

    return LLMockServer().start()
