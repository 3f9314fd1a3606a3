"""C27: each kind of agent tells that it was shown more than its model takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import odd_server
import pytest
from adapter_setups import Heard, a_setup, an_input
from agent_programs import Played
from odd_server import OddServer
from product import (
    AgentError,
    AgentRefused,
    AnthropicAdapter,
    AnthropicSettings,
    ClaudeTurn,
    CodexAdapter,
    OpenAIAdapter,
    OpenAISettings,
    RemoteError,
    TurnTracker,
    http,
)
from product import turn as turn_module
from scripted_api import ScriptedApi, failure

# As the servers say it: OpenAI, llama.cpp, vLLM, Ollama, Gemini, Qwen, text-generation-inference.
SAID = [
    (
        400,
        {
            "message": "This model's maximum context length is 8192 tokens. However, your messages"
            " resulted in 9001 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        },
    ),
    (
        400,
        {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
        },
    ),
    (500, {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}),
    (
        400,
        {
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 900. This model's"
            " maximum context length is 1024 tokens and your request has 500 input tokens",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    (400, {"message": "prompt too long; exceeded max context length by 120 tokens"}),
    (
        400,
        {
            "message": "The input token count (1200000) exceeds the maximum number of tokens"
            " allowed (1048576).",
            "code": 400,
        },
    ),
    (400, {"message": "Range of input length should be [1, 129024]", "code": "invalid_parameter"}),
    (422, {"message": "Input validation error: `inputs` must have less than 4096 tokens."}),
    (413, {"message": "Request too large"}),
]

# What is another fault, though it speaks of tokens or contexts.
ELSE = [
    (400, {"message": "max_tokens is too large: 100000. This model supports at most 16384"}),
    (500, {"message": "the context of the request was cancelled"}),
    (400, {"message": "unknown field `context`"}),
    (404, {"message": "no model with a context length of 8k"}),
]


async def refused(work: Callable[[], Awaitable[Any]]) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await work()
    return caught.value


def openai(folder: Path, *answers: odd_server.Answer) -> AgentError:
    async def work() -> AgentError:
        async with OddServer(*answers) as server:
            given = {"type": "openai", "model": "m", "base_url": server.url}
            bot = OpenAIAdapter(a_setup(folder, OpenAISettings.model_validate(given)))
            try:
                return await refused(lambda: bot.invoke(an_input(), Heard()))
            finally:
                await bot.stop()

    return asyncio.run(work())


def anthropic(folder: Path, url: str) -> AgentError:
    async def work() -> AgentError:
        given = {"type": "anthropic", "model": "claude-opus-4-6", "base_url": url}
        bot = AnthropicAdapter(a_setup(folder, AnthropicSettings.model_validate(given)))
        await bot.start()
        try:
            return await refused(lambda: bot.invoke(an_input(), Heard()))
        finally:
            await bot.stop()

    return asyncio.run(work())


def overflows(error: AgentError) -> bool:
    return isinstance(error, AgentRefused) and error.overflow


@pytest.mark.parametrize(("status", "said"), SAID)
def test_c27_a_server_says_that_it_is_too_much(
    tmp_path: Path, status: int, said: dict[str, Any]
) -> None:
    error = openai(tmp_path, odd_server.whole({"error": said}, status))
    assert overflows(error)
    assert "context.window_tokens" in error.mend


def test_c27_a_server_says_so_in_a_stream_without_a_status(tmp_path: Path) -> None:
    said = {"error": {"message": "the request exceeds the available context size"}}
    assert overflows(openai(tmp_path, odd_server.stream(said, done=False)))


@pytest.mark.parametrize(("status", "said"), ELSE)
def test_c27_another_fault_is_none(tmp_path: Path, status: int, said: dict[str, Any]) -> None:
    assert not overflows(openai(tmp_path, odd_server.whole({"error": said}, status)))


@pytest.mark.parametrize(
    "said",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199211 + 20000 > 200000",
    ],
)
def test_c27_anthropic_says_that_it_is_too_much(tmp_path: Path, said: str) -> None:
    data = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    with ScriptedApi(failure(400, data)).running() as api:
        assert overflows(anthropic(tmp_path, api.url))


def test_c27_a_program_says_that_it_is_too_much(tmp_path: Path) -> None:
    said = "Codex ran out of room: your input exceeds the context window of this model."
    played = Played(tmp_path, "codex")
    rows: list[dict[str, Any]] = [
        {"type": "thread.started", "thread_id": "x"},
        {"type": "turn.failed"},
    ]
    rows[1]["error"] = {"message": said}
    played.plan({"stdout": "".join(json.dumps(row) + "\n" for row in rows), "code": 1})
    bot = played.adapter(CodexAdapter)
    error = asyncio.run(refused(lambda: bot.invoke(an_input(), Heard())))
    assert overflows(error)
    assert "context.window_tokens" in error.mend


def test_c27_agents_of_the_protocol_say_that_it_is_too_much() -> None:
    asked = http.HttpRequest("bot", "session/prompt")
    said = RemoteError(-32603, "Internal error: prompt is too long")
    assert overflows(turn_module.failure(asked, said, {}))


def test_c27_claude_code_says_that_it_is_too_much() -> None:
    asked = http.HttpRequest("bot", "claude")
    turn = ClaudeTurn(asked, Heard(), TurnTracker(), Path())
    with pytest.raises(AgentRefused) as caught:
        turn.read_result({"type": "result", "is_error": True, "result": "Prompt is too long"}, None)
    assert caught.value.overflow


def test_c27_what_is_refused_otherwise_is_none() -> None:
    assert not AgentRefused("bot", "no").overflow
