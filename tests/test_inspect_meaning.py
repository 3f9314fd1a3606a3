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
        # The same terms in another order or form.
        (
            "Session cookies expire after 24 hours",
            "A session cookie is valid for one day",
            None,
            "same",
        ),
        ("The queue is NATS", "Use NATS as the queue", None, "same"),
        ("Ben owns the search service", "The search service belongs to Ben", None, "same"),
        ("每周三发布新版本", "新版本周三发布", None, "same"),
        ("日志保留 30 天", "日志存一个月后删除", None, "same"),
        ("The scheduler sends the report", "The report is sent by the scheduler", None, "same"),
        # Another value for them.
        ("Session cookies last 12 hours", "A session cookie is valid for one day", None, "number"),
        ("The retry limit of webhooks is 5", "Webhooks are retried 3 times", None, "number"),
        ("The index is rebuilt every night", "We rebuild the index once an hour", None, "option"),
        ("Ben owns the search service", "The search service belongs to Ana", None, "option"),
        ("由张伟负责数据迁移", "数据迁移交给李娜", None, "option"),
        ("测试覆盖率不低于 80%", "测试覆盖率达到 60% 即可", None, "number"),
        (
            "New users must verify their e-mail",
            "Verifying the e-mail is optional for new users",
            None,
            "negation",
        ),
        ("The app lives in S3", "The app lives on the local disk, not in S3", None, "option"),
        ("A player has a bonus of 50 coins", "The bonus of players is 80 coins", None, "number"),
        # A version of a name, and names of which a thing can have many.
        ("The database is Postgres", "Use Postgres 15 as the database", None, None),
        ("系统支持 Chrome", "支持系统 Firefox", None, None),
        # Another subject, another relation, another sort of value, or a narrower subject.
        ("Logs are kept for 30 days", "Audit logs are kept for 90 days", None, None),
        ("日志保留 30 天", "审计日志保留 180 天", None, None),
        ("The API allows 100 requests per minute", "The API answers within 200 ms", None, None),
        ("The app is written in Go", "The app supports Android 10", None, None),
        ("Do not deploy on Friday", "Do not deploy on Monday", None, None),
        ("Invoices are due within 14 days", "Invoices are kept for 10 years", None, None),
        # In two languages: words that have a translation, or vectors.
        ("日志保留 30 天", "Logs are kept for 90 days", None, "number"),
        ("令牌 15 分钟后过期", "Tokens expire after 15 minutes", None, "same"),
        ("前端用 React", "The front end is built with Vue", None, "option"),
        ("露台禁止吸烟", "Smoking is allowed on the terrace", None, None),
        ("露台禁止吸烟", "Smoking is allowed on the terrace", 0.53, "negation"),
        ("露台禁止吸烟", "Smoking is forbidden on the terrace", 0.53, "same"),
        ("露台禁止吸烟", "Smoking is forbidden on the terrace", 0.47, None),
        ("日志保留 30 天", "Backups are kept for 90 days", 0.9, None),
        ("会议室能坐 20 人", "The training room holds 12 people", 0.41, None),
        # In one language, vectors find duplicates alone.
        ("Two people review each patch", "Each patch needs two reviewers", 0.83, "same"),
        ("Two people review each patch", "Each patch needs two reviewers", 0.6, None),
        ("Export orders as CSV", "Import orders as CSV", 0.95, None),
        ("Admins can delete users", "Admins can edit users", 0.9, None),
        ("Tokens expire after 15 minutes", "Refresh tokens expire after 15 minutes", 0.9, None),
        ("", "Tokens expire after 15 minutes", 0.9, None),
    ],
)
def test_titles_in_other_words(
    first: str, second: str, cosine: float | None, expected: str | None
) -> None:
    for ours, theirs in ((first, second), (second, first)):
        found = paraphrases.compare(ours, theirs, cosine)
        assert (found and (found.contrast.type if found.contrast else "same")) == expected


@given(st.text(max_size=60), st.text(max_size=60), st.none() | st.floats(0, 1))
def test_any_titles_are_compared_alike_in_both_orders(
    first: str, second: str, cosine: float | None
) -> None:
    found = paraphrases.compare(first, second, cosine)
    mirrored = paraphrases.compare(second, first, cosine)
    assert (found and found.type) == (mirrored and mirrored.type)
    same = paraphrases.compare(first, first, cosine)
    assert same is None or same.type == "duplicate"


_MEANINGS = [("token", "令牌"), ("shelf", "书架"), ("garden", "花园"), ("lunch", "午餐")]


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
        ("requirement-c", "The shelf is made of Oak", "draft"),
        ("decision-d", "书架使用 Pine", "draft"),
        ("progress-e", "花园已完成", "draft"),
        ("progress-f", "The garden is done", "approved"),
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
        ("duplicate", "decision-b", "decision-a", "terms"),
        ("duplicate", "progress-f", "progress-e", "meaning"),
        ("contradiction", "decision-d", "requirement-c", "meaning"),
    ]
    assert found[0]["reason"] == "says the same as decision-a in other words; found by their terms"
    assert found[2]["reason"].startswith(
        "another choice for the same thing (Oak and Pine); found by"
    )
    assert [each["cosine"] is None for each in found] == [True, False, False]
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
    assert {each["by"] for each in inspected(team)} == {"terms"}
    assert server.asked == []


def test_a_server_that_fails_leaves_the_words(team: Program, server: Server) -> None:
    server.answer = lambda _: (500, {"error": "out of memory"})
    done = team.run("knowledge", "inspect", "--session", "s", "--connect")
    assert done.code == 0
    assert "arena: compared by words only: " in done.stderr
    assert "HTTP 500" in done.stderr
