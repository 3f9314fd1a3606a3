"""Messages are sorted by what they ask for, and one agent answers what is simple."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from product import Message, intent_sort_by_rules
from program import Program

TEAM = {
    "team": "t",
    "members": ["desk", "dev"],
    "config": {
        "default_responders": ["dev"],
        "selection": "ask",
        "intent": {"enabled": True},
        "simple": {"agent": "desk"},
    },
}


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def crew(arena: Program) -> Callable[..., Program]:
    def make(**config: Any) -> Program:
        arena.agent("desk", {"say": "你好"})
        arena.agent("dev", {"say": "working"})
        team = {**TEAM, "config": {**TEAM["config"], **config}}
        arena.file("agents/teams/t.yaml", json.dumps(team))
        return arena

    return make


def send(arena: Program, text: str, session: str = "s") -> list[dict[str, Any]]:
    done = arena.run("send", "--team", "t", "-s", session, "--json", text)
    assert done.code in (0, 3, 4), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def called(events: list[dict[str, Any]]) -> list[str]:
    return [event["agent"] for event in events if event["type"] == "reply_started"]


def sorted_as(events: list[dict[str, Any]]) -> tuple[str, str]:
    (event,) = [event for event in events if event["type"] == "intent"]
    return event["intent"], event.get("answered_by", "")


SENTENCES = {
    "greeting": [
        *("hi", "Hello all!", "hey team", "Good morning, everyone.", "thanks a lot", "ok 👍"),
        *("你好", "大家好！", "各位早上好", "谢谢啦", "好的", "辛苦了，晚安"),
    ],
    "simple_query": [
        *("What is the port of staging?", "Who is on call today?", "Is the build green?"),
        *("测试环境的端口是什么？", "今天谁值班？", "构建通过了吗？"),
    ],
    "complex_task": [
        *("Fix the login page", "Could you review the design of the importer?"),
        *(
            "What would it take to migrate the database?",
            "请帮我拆解这个需求",
            "写一个导入脚本，可以吗？",
        ),
    ],
    "workflow": [
        "First export the table, then convert it and mail it",
        "every night: run the report",
        "先导出数据，再生成报表",
        "每天早上汇总一次",
    ],
    "unknown": ["The importer is slow.", "hello world is what the program prints", "导入器很慢。"],
}


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in SENTENCES.items() for text in texts]
)
def test_rules_sort_messages_of_both_languages(kind: str, text: str) -> None:
    message = Message(
        id="m1", author_id="user", author_name="user", author_type="human", content=text,
        timestamp="",
    )  # fmt: skip
    found, confidence = intent_sort_by_rules(message)
    assert found == kind
    assert 0 <= confidence <= 1
    assert (confidence >= 0.8) == (kind != "unknown")


def test_a_greeting_is_answered_by_one_agent(crew: Callable[..., Program]) -> None:
    events = send(crew(), "大家好")
    assert sorted_as(events) == ("greeting", "desk")
    assert called(events) == ["desk"]
    (candidates,) = [event for event in events if event["type"] == "candidates"]
    assert candidates["asked"] == []


def test_work_wakes_the_team(crew: Callable[..., Program]) -> None:
    events = send(crew(), "fix the login page")
    assert sorted_as(events) == ("complex_task", "")
    assert called(events) == ["dev", "desk"]


def test_who_is_named_is_called(crew: Callable[..., Program]) -> None:
    events = send(crew(), "@dev hello")
    assert not [event for event in events if event["type"] == "intent"]
    assert called(events)[0] == "dev"


def test_the_agent_may_call_the_team_in(crew: Callable[..., Program]) -> None:
    arena = crew()
    arena.agent("desk", {"say": "@dev please"})
    assert called(send(arena, "Is the build green?")) == ["desk", "dev"]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"simple": {"agent": "desk", "min_confidence": 0.9}}, "simple_query"),
        ({"intent": {"enabled": False}}, None),
    ],
)
def test_too_little_confidence_wakes_the_team(
    crew: Callable[..., Program], config: dict[str, Any], kind: str | None
) -> None:
    events = send(crew(**config), "Who is on call today?")
    assert [event["intent"] for event in events if event["type"] == "intent"] == (
        [kind] if kind else []
    )
    assert called(events) == ["dev", "desk"]


@pytest.mark.parametrize(
    ("answer", "expected", "error"),
    [
        ('{"intent": "greeting", "confidence": 0.9}', ("greeting", "desk"), False),
        ('```json\n{"intent": "workflow", "confidence": 1}\n```', ("workflow", ""), False),
        ('{"intent": "greeting", "confidence": 7}', ("unknown", ""), True),
        ('{"intent": "joke", "confidence": 1}', ("unknown", ""), True),
        ("a greeting", ("unknown", ""), True),
    ],
)
def test_an_agent_sorts_and_its_call_counts(
    crew: Callable[..., Program], answer: str, expected: tuple[str, str], error: bool
) -> None:
    arena = crew(intent={"agent": "sorter"})
    usage = {"input_tokens": 50, "output_tokens": 5}
    arena.agent("sorter", {"say": answer, "usage": usage}, member=False)
    events = send(arena, "whatever this is")
    assert sorted_as(events) == expected
    (event,) = [event for event in events if event["type"] == "intent"]
    assert bool(event.get("error")) == error
    assert event["usage"]["input_tokens"] == 50
    end = events[-1]
    assert end["usage"]["input_tokens"] >= 50
    assert called(events)[0] == (expected[1] or "dev")


def test_a_chain_that_was_cut_after_its_intent_goes_on_with_it(
    crew: Callable[..., Program], tmp_path: Path
) -> None:
    arena = crew()
    events = send(arena, "hello")
    transcript = next(tmp_path.rglob("s/transcript.jsonl"))
    lines = transcript.read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(i for i, event in enumerate(events) if event["type"] == "intent")
    transcript.write_text("".join(lines[: at + 1]), encoding="utf-8")
    done = arena.run("resume", "s", "--json").check()
    resumed = [json.loads(line) for line in done.stdout.splitlines()]
    assert called(resumed) == ["desk"]
    assert not [event for event in resumed if event["type"] == "intent"]


@pytest.mark.parametrize(
    ("config", "where", "problem"),
    [
        ({"simple": {"agent": "dsk"}}, "config.simple.agent", "`dsk` is not an agent"),
        ({"intent": {"agent": "nobody"}}, "config.intent.agent", "there is no agent `nobody`"),
        ({"intent": None}, "config.simple", "no message is sorted, so it is never used"),
        ({"intent": {"rules": False}}, "config.intent", "needs an `agent`, or `rules: true`"),
    ],
)
def test_wrong_settings_are_errors_with_their_place(
    crew: Callable[..., Program], config: dict[str, Any], where: str, problem: str
) -> None:
    arena = crew(**config)
    if config.get("intent", 0) is None:
        team = {**TEAM, "config": {"simple": {"agent": "desk"}}}
        arena.file("agents/teams/t.yaml", json.dumps(team))
    done = arena.run("send", "--team", "t", "hello")
    assert done.code == 2
    assert f"agents/teams/t.yaml:1: {where}: {problem}" in done.stderr


def test_a_recorded_sorter_replays(crew: Callable[..., Program]) -> None:
    arena = crew(intent={"agent": "sorter"})
    arena.agent("sorter", {"say": '{"intent": "greeting", "confidence": 1}'}, member=False)
    scenario = {
        "scenario": "greeting",
        "team": "t",
        "steps": [{"send": "good day to you all", "expect": {"replied": ["desk"]}}],
    }
    arena.file("scenarios/greeting.yaml", json.dumps(scenario))
    arena.run("run", "--record").check()
    replayed = arena.run("run", "--replay").check()
    assert "1 passed in" in replayed.stdout
    assert "1 replayed" in replayed.stdout
    recording = next(arena.folder.glob("scenarios/recordings/*")).read_text(encoding="utf-8")
    assert '"type":"intent"' in recording.replace(" ", "")
