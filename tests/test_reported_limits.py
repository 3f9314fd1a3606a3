"""Failures that programs report in words: which are repeated, and what they are called."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from product import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
    diagnosis,
)
from program import Program

_SCRIPT = """\
import sys
open("calls.log", "a").write("x")
sys.exit(sys.argv[1])
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize(
    ("words", "error_type"),
    [
        ("ECONNRESET: The socket connection was closed unexpectedly", AgentUnavailable),
        ("TypeError: fetch failed", AgentUnavailable),
        ("503 Service Unavailable", AgentOverloaded),
        ("You've hit your usage limit. Try again at 3 pm.", AgentOverloaded),
        ("You've hit your limit · resets 3pm", AgentOverloaded),
        ("Claude AI usage limit reached|1764400000", AgentOverloaded),
        ("您的请求过于频繁，请稍后再试", AgentOverloaded),
        ("账户余额不足", AgentRefused),
        ("Your credit balance is too low", AgentRefused),
        ("Invalid API key · Please run /login", AgentRefused),
        ("Error: the model's answer was cut off (finish_reason: length)", AgentProtocolError),
        ("KeyError: 'text'", AgentProtocolError),
    ],
)
def test_words_name_the_class_of_an_error(words: str, error_type: type[AgentError]) -> None:
    assert diagnosis.find_error_type(words) is error_type


@pytest.mark.parametrize(
    ("words", "calls", "shown"),
    [
        ("read ECONNRESET: socket hang up", 3, "socket hang up"),
        ("429 rate limit exceeded", 3, "rate limit"),
        ("KeyError: 'text'", 3, "KeyError"),
        ("the response was truncated (finish_reason: length)", 1, "truncated"),
        ("Your credit balance is too low", 1, "credit balance"),
        ("maximum output tokens reached", 1, "maximum output"),
    ],
)
def test_a_program_that_fails_in_words(
    program: Program, words: str, calls: int, shown: str
) -> None:
    program.file("bot.py", _SCRIPT)
    adapter = {"type": "cli", "command": [sys.executable, "bot.py", words]}
    program.agent("a", adapter=adapter, on_failure="retry", retries=2)
    done = program.run("send", "@a hello")
    assert done.code == 3
    assert shown in done.stdout
    assert len((program.folder / "calls.log").read_text()) == calls


def test_a_program_that_was_given_too_much_is_given_less(program: Program) -> None:
    script = """\
import sys
prompt = sys.stdin.read()
if len(prompt) > 6000: sys.exit("prompt is too long: 9000 tokens exceed the context window")
print("read it")
"""
    program.file("bot.py", script)
    program.agent("a", adapter={"type": "cli", "command": [sys.executable, "bot.py"]})
    for number in range(4):
        done = program.run("send", "-s", "s", f"@a message {number} " + "word " * 300)
    assert "read it" in done.stdout
    assert "2 attempts" in done.stdout


class _CuttingServer(BaseHTTPRequestHandler):
    """A server that reads 2,050 tokens of any prompt."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "ok"}
        answer = {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2050, "completion_tokens": 1},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def cutting_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _CuttingServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("strict", [True, False])
def test_a_server_that_cuts_prompts_fails_a_strict_scenario(
    program: Program, cutting_url: str, strict: bool
) -> None:
    adapter = {"type": "openai", "model": "m", "base_url": cutting_url, "stream": False}
    program.agent("k", adapter=adapter)
    text = "需求说明要写清楚，谁在什么时候做什么。" * 1000
    scenario = {"scenario": "long", "steps": [{"send": f"@k {text}"}], "strict_context": strict}
    program.file("scenarios/long.yaml", json.dumps(scenario, ensure_ascii=False, indent=1))
    for mode in ("--record", "--replay"):
        done = program.run("run", mode)
        assert done.code == int(strict)
        if strict:
            assert "strict_context" in done.stdout
            assert "the server of k reads the whole prompt" in done.stdout
            assert "only the 2050 tokens" in done.stdout
        if strict:
            break  # a recording of a failed scenario is not kept
