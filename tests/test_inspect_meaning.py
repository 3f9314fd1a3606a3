"""Duplicates and contradictions in other words, or in another language, are found by vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import paraphrases
from program import Program
from test_search_meaning import Server


@pytest.mark.parametrize(
    ("first", "second", "cosine", "expected"),
    [
        # In other words, or in another language: the same.
        ("Tokens expire after 15 minutes", "An access token is valid for 15 minutes", 0.7, "same"),
        ("令牌 15 分钟后过期", "Tokens expire after 15 minutes", 0.6, "same"),
        ("令牌 15 分钟后过期", "Tokens expire after 15 minutes", 0.5, None),
        ("密码必须加密存储", "Passwords must be stored encrypted", 0.7, "same"),
        ("密码必须加密存储", "Passwords must be stored encrypted", 0.6, None),
        ("Passwords are hashed with bcrypt", "We hash passwords using bcrypt", 0.9, "same"),
        # Another value.
        ("Use PostgreSQL for session storage", "Sessions are kept in MySQL", 0.6, "option"),
        ("日志保留 30 天", "Logs are kept for 90 days", 0.45, "number"),
        ("上传文件不得超过 10 MB", "Uploads may be as large as 25 MB", 0.5, "number"),
        ("前端用 React", "The user interface is built with Vue", 0.45, "option"),
        ("每周五发布", "We release every Monday", 0.45, "option"),
        ("每周五发布", "We release every Friday", 0.6, "same"),
        ("Guests can check out without an account", "允许游客结账", 0.7, "negation"),
        ("Dark mode is on by default", "The dark theme is disabled by default", 0.8, "negation"),
        ("密码至少 8 位", "A password needs at least 12 characters", 0.45, "number"),
        # Too far apart.
        ("日志保留 30 天", "Logs are kept for 90 days", 0.35, None),
        ("Guests can check out", "不允许游客结账", 0.5, None),
        # Of another subject, or but for one word equal: words decide.
        ("Logs are kept for 30 days", "Backups are kept for 90 days", 0.9, None),
        ("Export orders as CSV", "Import orders as CSV", 0.95, None),
        ("The front end is written in React", "The back end is written in Go", 0.9, None),
        ("SMS are sent by Twilio", "E-mails are sent by SendGrid", 0.9, None),
        ("Admins can delete users", "Admins can edit users", 0.9, None),
        ("Each pull request needs a review", "Each pull request needs a changelog", 0.9, None),
        # Other sorts of values, or a value on one side only.
        ("支付失败重试 3 次", "Payments time out after 30 seconds", 0.9, None),
        ("令牌会过期", "Tokens expire after 15 minutes", 0.9, None),
        ("", "Tokens expire after 15 minutes", 0.9, None),
    ],
)
def test_titles_that_are_alike_in_meaning(
    first: str, second: str, cosine: float, expected: str | None
) -> None:
    for ours, theirs in ((first, second), (second, first)):
        found = paraphrases.compare(ours, theirs, cosine)
        assert (found and (found.contrast.type if found.contrast else "same")) == expected


@given(st.text(max_size=60), st.text(max_size=60), st.floats(0, 1))
def test_any_titles_are_compared_alike_in_both_orders(
    first: str, second: str, cosine: float
) -> None:
    found = paraphrases.compare(first, second, cosine)
    mirrored = paraphrases.compare(second, first, cosine)
    assert (found and found.type) == (mirrored and mirrored.type)
    same = paraphrases.compare(first, first, cosine)
    assert same is None or same.type == "duplicate"


_MEANINGS = [("token", "令牌"), ("database", "数据库"), ("backup", "备份"), ("lunch", "午餐")]


def vector(text: str) -> list[float]:
    """A vector with a place for each thing that is meant, one for the language, one for all."""
    meant = [float(any(word in text.lower() for word in words)) for words in _MEANINGS]
    return [1.0, float(not text.isascii()), *meant]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.vector = vector
    yield made
    made.released.set()
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def team(tmp_path: Path, server: Server) -> Program:
    """A session with notes in two languages, and an embedding server."""
    program = Program(tmp_path)
    program.agent("dev", "hello").team(humans=["alice"])
    program.run("send", "--session", "s", "@dev hi").check(stdout=None)
    settings = server.settings(timeout_s=60.0).model_dump(
        include={"base_url", "model", "timeout_s"}
    )
    program.file("arena.yaml", json.dumps({"memory": {"embedding": settings}}))
    for name, title, status in (
        ("decision-a", "令牌 15 分钟后过期", "draft"),
        ("decision-b", "Tokens expire after 15 minutes", "draft"),
        ("requirement-c", "The database is PostgreSQL", "draft"),
        ("decision-d", "数据库使用 MySQL", "draft"),
        ("progress-e", "备份已完成", "draft"),
        ("progress-f", "The backup is done", "approved"),
        ("task-g", "Order lunch for 5 people", "draft"),
        ("task-h", "订 9 个人的午餐", "draft"),
    ):
        lines = [f"title: {title}", f"kind: {name.partition('-')[0]}", f"status: {status}"]
        created = f"created: 2026-11-0{ord(name[-1]) - ord('a') + 1}"
        text = "\n".join(["---", *lines, created, "---", ""])
        program.file(f"sessions/s/knowledge/{name}.md", text)
    return program


def inspected(program: Program, *options: str) -> list[dict[str, Any]]:
    done = program.run("knowledge", "inspect", "--session", "s", "--json", *options)
    assert done.code == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return [each for each in found if each["what"] != "approval"]


def test_inspect_compares_by_meaning(team: Program, server: Server) -> None:
    found = inspected(team, "--connect")
    assert [(each["what"], each["note"], each["other"], each["by"]) for each in found] == [
        ("duplicate", "decision-b", "decision-a", "meaning"),
        ("duplicate", "progress-f", "progress-e", "meaning"),
        ("contradiction", "decision-d", "requirement-c", "meaning"),
    ]
    assert found[0]["reason"] == "says the same as decision-a in other words"
    assert found[2]["reason"] == ("another choice for the same thing (PostgreSQL and MySQL)")
    server.asked.clear()
    assert inspected(team, "--connect") == found
    assert server.asked == []  # all vectors are kept


def test_what_is_found_by_meaning_is_left_to_people(team: Program) -> None:
    before = team.records()
    done = team.run("knowledge", "inspect", "--session", "s", "--apply", "--connect")
    assert team.records() == before
    told = done.stdout.splitlines()
    assert "    arena knowledge archive --session s decision-b --reason" in done.stdout
    assert not any("--apply" in line for line in told)


def test_without_connect_the_server_is_not_contacted(team: Program, server: Server) -> None:
    done = team.run("knowledge", "inspect", "--session", "s")
    assert "compared by words only: the embedding server was not checked" in done.stderr
    assert inspected(team) == []
    assert server.asked == []


def test_a_server_that_fails_leaves_the_words(team: Program, server: Server) -> None:
    server.answer = lambda _: (500, {"error": "out of memory"})
    done = team.run("knowledge", "inspect", "--session", "s", "--connect")
    assert done.code == 0
    assert "arena: compared by words only: " in done.stderr
    assert "HTTP 500" in done.stderr
