"""What a call of a real agent costs beyond the wire: CPU per call, and a kept process's replies.

    python benchmarks/calls.py [--calls 200] [--claude PROGRAM]

HTTP kinds: an adapter's call against a server on loopback that answers at once, with a prompt of
20 messages and an answer of 60 streamed pieces; the baseline is `httpx` that sends the same number
of bytes and reads the same stream to its end, in turn with it. CPU is this process's (user and
system), per call, medians over rounds.

`claude_code`: seconds from call to reply against the same server, which takes next to nothing, of
the first reply and of later ones in the same session, with a kept process and with one a reply.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from arena_cli.adapters import base as base_module
from arena_cli.adapters.base import Adapter, Setup
from arena_cli.context import render
from arena_cli.protocol import (
    AgentInput,
    AgentReport,
    AgentSession,
    MemberInfo,
    SessionId,
    ShownMessage,
)

PIECES = 60
ROUNDS = 5


def _sse(events: list[dict[str, Any]], *, named: bool) -> bytes:
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


def openai_stream() -> bytes:
    """An answer of `PIECES` pieces in the protocol of OpenAI's chat completions."""
    chunks = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "model": "m",
            "choices": [{"index": 0, "delta": {"content": f"word {n} "}, "finish_reason": None}],
        }
        for n in range(PIECES)
    ]
    usage = {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020}
    end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return _sse([*chunks, {**end, "usage": usage}], named=False) + b"data: [DONE]\n\n"


def anthropic_stream() -> bytes:
    """The same in the protocol of Anthropic's messages."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 900, "output_tokens": 1},
    }
    start = {"type": "text", "text": ""}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": f"word {n} "},
        }
        for n in range(PIECES)
    ]
    return _sse(
        [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            *deltas,
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 120},
            },
            {"type": "message_stop"},
        ],
        named=True,
    )


class Server:
    """Answers each request at once, in a process of its own."""

    def __init__(self) -> None:
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Server:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--serve", stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout
        self.port = int(await self._process.stdout.readline())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process
        self._process.kill()
        await self._process.wait()


async def serve() -> None:
    """The server's own process: HTTP/1.1 with kept connections, and nothing else."""
    bodies = {"/v1/messages": anthropic_stream(), "/v1/chat/completions": openai_stream()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1].split("?")[0]
                length = 0
                for line in head.split("\r\n"):
                    if line.lower().startswith("content-length:"):
                        length = int(line.split(":")[1])
                await reader.readexactly(length)
                body = bodies.get(path, b"{}")
                kind = b"text/event-stream" if path in bodies else b"application/json"
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
                    % (kind, len(body))
                )
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def an_input(number: int) -> AgentInput:
    """The input of call `number`, which has two messages more than the one before."""
    messages = [
        ShownMessage(
            id=f"m{n}",
            author_id="user",
            author_name="user",
            author_type="human",
            content="what do you think of this plan? " * 6,
            timestamp="2026-11-28T09:30:00.125Z",
            role="user",
        )
        for n in range(1, 21)
    ]
    return AgentInput(
        session_id="s",
        turn_id=f"t{number}",
        turn=1,
        call=number,
        trigger=["m20"],
        agent_id="bot",
        role_prompt="You are a bot. " * 40,
        invocation="must_reply",
        members=[MemberInfo(id="bot", name="Bot"), MemberInfo(id="dev", name="Dev")],
        messages=messages,
    )


def made(kind: str, folder: Path, **settings: Any) -> Adapter:
    """An adapter of a kind, as a session makes it."""

    adapter_type = base_module.adapter_type(kind)
    given = adapter_type.settings_type.model_validate({"type": kind, **settings})
    setup = Setup(
        agent_id="bot",
        settings=given,
        workspace=folder,
        scratch=folder / "scratch",
        records=folder / "records",
        render=render.render,
        chat=render.chat,
        environ=dict(os.environ),
    )
    return adapter_type(setup)


async def bare(client: httpx.AsyncClient, url: str, body: bytes) -> None:
    """The same request and answer by httpx alone."""
    async with client.stream("POST", url, content=body) as response:
        async for _ in response.aiter_bytes():
            pass


async def http_kind(kind: str, url: str, folder: Path, calls: int) -> None:
    """Print CPU per call of an adapter and of httpx alone."""
    base = url if kind == "anthropic" else f"{url}/v1"
    path = "/v1/messages" if kind == "anthropic" else "/v1/chat/completions"
    model = "claude-sonnet-4-5" if kind == "anthropic" else "m"
    adapter = made(kind, folder, base_url=base, model=model, api_key="k" * 20, pricing="free")
    body = b"x" * 6_000
    own, baseline = [], []
    await adapter.start()
    async with httpx.AsyncClient(trust_env=False) as client:
        await adapter.invoke(an_input(0), lambda _: None)
        await bare(client, url + path, body)
        for _ in range(ROUNDS):
            began = time.process_time()
            for number in range(calls):
                await adapter.invoke(an_input(number), lambda _: None)
            own.append((time.process_time() - began) / calls * 1000)
            began = time.process_time()
            for _ in range(calls):
                an_input(0)
                await bare(client, url + path, body)
            baseline.append((time.process_time() - began) / calls * 1000)
    await adapter.stop()
    ours, theirs = statistics.median(own), statistics.median(baseline)
    print(
        f"{kind:12} {ours:.2f} ms CPU a call, httpx alone {theirs:.2f} ms:"
        f" {ours - theirs:.2f} ms beyond the wire ({ours / theirs:.1f} x)"
    )


async def claude(program: str, url: str, folder: Path, calls: int) -> None:
    """Print seconds a reply of the real program, kept alive and not."""
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k" * 20, "HOME": str(folder)}
    for keep_alive in (True, False):
        adapter = made("claude_code", folder, program=program, env=env, keep_alive=keep_alive)
        await adapter.start()
        seconds = []
        agent_reports: list[AgentReport] = []
        agent_session: AgentSession | None = None
        for number in range(calls):
            shown = an_input(number).model_copy(update={"own_session": agent_session})
            began = time.monotonic()
            await adapter.invoke(shown, agent_reports.append)
            seconds.append(time.monotonic() - began)
            session = next(one for one in reversed(agent_reports) if isinstance(one, SessionId))
            agent_session = AgentSession(id=session, upto_seq=20, state=dict(session.state))
        await adapter.stop()
        how = "kept process" if keep_alive else "one process a reply"
        later = statistics.median(seconds[1:])
        print(f"claude_code  {how}: first {seconds[0]:.2f} s, later ones {later:.3f} s (median)")


async def main(calls: int, program: str | None) -> None:
    """Measure everything in turn."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with Server() as server:
            url = f"http://127.0.0.1:{server.port}"
            for kind in ("openai", "anthropic"):
                await http_kind(kind, url, folder, calls)
            if program:
                await claude(program, url, folder, 10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--claude", default=shutil.which("claude"), metavar="PROGRAM")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    asyncio.run(serve() if given.serve else main(given.calls, given.claude))
