"""Earlier work that is similar: by vectors where there are any, by words elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import Program
from test_search_meaning import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.released.set()
    made.http.shutdown()
    made.http.server_close()


def make(tmp_path: Path, server: Server | None = None) -> Program:
    program = Program(tmp_path)
    replies = [
        {"calls": [{"tool": "estimate_complexity", "arguments": {"requirement": "a sql service"}}]}
        | {"say": "looked"}
    ]
    adapter = {"type": "scripted", "replies": replies}
    program.agent("dev", adapter=adapter, tools=["estimate_complexity"])
    program.team(selection="none", default_responders=["dev"])
    if server is not None:
        url = server.settings().base_url
        embedding = {"base_url": url, "model": "toy"}
        program.file("arena.yaml", json.dumps({"team": "crew", "memory": {"embedding": embedding}}))
    for name, message in (("first", "the database is migrated"), ("second", "a sql cat service")):
        program.run("send", "-s", name, message).check()
    return program


def find_similar(program: Program) -> list[tuple[str, float]]:
    program.run("send", "-s", "third", "look").check()
    lines = (program.folder / "sessions/third/transcript.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (result,) = [event["result"] for event in events if event["type"] == "tool_finished"]
    return [(chain["session"], chain["similarity"]) for chain in json.loads(result)["similar"]]


def test_vectors_find_what_has_other_words(tmp_path: Path, server: Server) -> None:
    program = make(tmp_path, server)
    found = dict(find_similar(program))
    assert found["first"] > 0.9
    asked = len(server.asked)
    program.run("send", "-s", "fourth", "look").check()
    texts = [text for one in server.asked[asked:] for text in one["input"]]
    assert "the database is migrated" not in texts  # its vector is kept


def test_a_server_that_fails_leaves_the_words(tmp_path: Path, server: Server) -> None:
    server.answer = lambda _: (500, b"broken")
    found = dict(find_similar(make(tmp_path, server)))
    assert set(found) == {"second"}


def test_without_an_embedding_words_count(tmp_path: Path) -> None:
    assert dict(find_similar(make(tmp_path))) == {"second": 0.8}
