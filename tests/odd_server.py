"""A server on loopback that answers exactly the bytes it is told to, whatever it is asked."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What is written, in these pieces; `cut` ends the connection in the middle of it.

    `held` keeps the connection open afterwards, without the end of the answer.
    """

    pieces: Sequence[bytes]
    status: int = 200
    media_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    held: bool = False

    def head(self) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} Whatever",
            f"content-type: {self.media_type}",
            "transfer-encoding: chunked",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def whole(data: Any, status: int = 200, **more: Any) -> Answer:
    """JSON in one piece."""
    return Answer([json.dumps(data, ensure_ascii=False).encode("utf-8")], status, **more)


def page(text: str, status: int = 200) -> Answer:
    """A web page."""
    return Answer([text.encode("utf-8")], status, "text/html; charset=utf-8")


def stream(*data: Any, done: bool = True, **more: Any) -> Answer:
    """Events, each in a piece of its own: objects, or texts that are written as they are."""
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in data]
    texts += ["[DONE]"] if done else []
    pieces = [f"data: {text}\n\n".encode() for text in texts]
    return Answer(pieces, media_type=EVENTS, **more)


class OddServer:
    """Answers one after the other; the last again and again. Keeps what it was asked."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._answers = list(answers)
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Asked] = []
        self.connections = 0
        self.cut_off = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def bodies(self) -> list[Any]:
        return [asked.json for asked in self.requests if asked.body]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        pairs = [line.partition(":") for line in head[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(Asked(head[0].split()[1], headers, body))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        writer.write(answer.head())
        for piece in answer.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if answer.cut:
            return False
        if answer.held:
            await reader.read()
            self.cut_off.set()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
