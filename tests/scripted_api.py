"""A server on loopback that answers what a test says, and keeps what it was sent.

For what `llmock_server` cannot do: events and bodies word for word, headers, connections counted.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 60.0


class Answer(NamedTuple):
    """One answer; with status 0, none at all.

    `hold` keeps the connection open after it, until the client closes it.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = {}
    hold: bool = False


class Sent(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: Any


class ScriptedApi:
    """Answers in turn; the last one stands for all that follow. `url` has no slash at its end.

    `together` requests are answered only when as many have come. `hung_up` is set when a client
    has closed a connection that was held.
    """

    def __init__(self, *answers: Answer, together: int = 1) -> None:
        self.answers = list(answers)
        self.sent: list[Sent] = []
        self.connections = 0
        self.hung_up = threading.Event()
        self.url = ""
        self._lock = threading.Lock()
        self._all_here = threading.Barrier(together)

    @contextmanager
    def running(self, *, certificate: Path | None = None) -> Iterator[ScriptedApi]:
        """The server, at work; with a `certificate` (and key) it speaks TLS."""
        server = _Server(("127.0.0.1", 0), _handler(self))
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            server.socket = tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join(PATIENCE_S)

    def take(self, sent: Sent) -> Answer:
        """Keep a request, and give its answer."""
        self._all_here.wait(PATIENCE_S)
        with self._lock:
            self.sent.append(sent)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def count(self) -> None:
        """Another connection."""
        with self._lock:
            self.connections += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may hang up, or not trust the certificate."""


def _handler(api: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            api.count()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = api.take(Sent(self.path, dict(self.headers), json.loads(body)))
            if answer.status:
                self.answer(answer)
            if answer.hold:
                self.close_connection = True
                if self.connection.recv(1) == b"":
                    api.hung_up.set()

        def answer(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if not answer.hold:
                self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    return Handler


def events(*some: dict[str, Any], **headers: str) -> Answer:
    """A stream of these events, whole."""
    return Answer(sse(some), headers={"content-type": "text/event-stream", **_named(headers)})


def sse(some: Sequence[dict[str, Any]]) -> bytes:
    """Events as they go over the wire, each under the name of its type."""
    lines = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in some]
    return "".join(lines).encode("utf-8")


def failure(status: int, data: Any, **headers: str) -> Answer:
    """An error with a JSON body."""
    body = json.dumps(data).encode("utf-8")
    return Answer(body, status, {"content-type": "application/json", **_named(headers)})


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
