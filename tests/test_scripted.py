"""The `scripted` kind: which entry answers, with what, and which files are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    CallNote,
    ScriptedAdapter,
    ScriptedSettings,
    Setup,
    ShownMessage,
    StatusEvent,
    StructuredContent,
    TextDelta,
    Usage,
)
from product import context_render as render
from pydantic import ValidationError


def message(number: int, author: str, content: str) -> ShownMessage:
    return ShownMessage(
        id=f"m{number}",
        author_id=author,
        author_name=author.title(),
        author_type="human",
        content=content,
        timestamp="2026-11-28T09:30:00.000Z",
        role="user",
    )


def call(*texts: str, **fields: Any) -> AgentInput:
    """An input whose triggers say `texts`, after an older message."""
    messages = [message(number, "maya", text) for number, text in enumerate(("old", *texts))]
    given: dict[str, Any] = {
        "session_id": "s",
        "turn_id": "t1",
        "turn": 1,
        "call": 1,
        "trigger": [one.id for one in messages[1:]],
        "agent_id": "dev",
        "role_prompt": "",
        "invocation": "must_reply",
        "messages": messages,
    }
    return AgentInput(**{**given, **fields})


class Scripted:
    """An adapter with its replies; what it emits is kept in `emitted`."""

    def __init__(self, *replies: Any, used: tuple[int, ...] = ()) -> None:
        self.emitted: list[Any] = []
        self.used = set(used)
        settings = ScriptedSettings.model_validate({"type": "scripted", "replies": list(replies)})
        self.adapter = ScriptedAdapter(
            Setup(
                agent_id="dev",
                settings=settings,
                workspace=Path(),
                scratch=Path(),
                records=Path(),
                render=render.render,
                chat=render.chat,
                used=lambda: frozenset(self.used),
            )
        )

    def answer(self, input: AgentInput) -> AgentOutput:
        self.emitted.clear()
        output = asyncio.run(self.adapter.invoke(input, self.emitted.append))
        self.used.add(self.emitted[0]["scripted"])
        return output

    def says(self, input: AgentInput) -> str:
        return self.answer(input).content


def faults(replies: Any, **fields: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        ScriptedSettings.model_validate({"type": "scripted", "replies": replies, **fields})
    return [(fault["loc"], fault["msg"]) for fault in caught.value.errors()]


def test_texts_fit_once_and_rules_always() -> None:
    dev = Scripted("first", "second", {"say": "and ever after"})
    said = [dev.says(call("go")) for _ in range(4)]
    assert said == ["first", "second", "and ever after", "and ever after"]


def test_what_an_earlier_process_used_up_is_not_said_again() -> None:
    dev = Scripted("first", "second", used=(0,))
    assert dev.says(call("go")) == "second"


def test_a_rule_before_a_text_goes_first() -> None:
    dev = Scripted({"when": {"contains": "上线"}, "say": "rule"}, "text")
    assert dev.says(call("现在上线吗")) == "rule"
    assert dev.says(call("go")) == "text"
    assert dev.says(call("上线")) == "rule"


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"contains": "release 812"}, True),
        ({"contains": "release 813"}, False),
        ({"contains": "old"}, False),
        ({"regex": r"812\nnow$"}, True),
        ({"regex": r"^now"}, False),
        ({"invocation": "must_reply"}, True),
        ({"invocation": "may_reply"}, False),
        ({"turn": 2}, True),
        ({"turn": 1}, False),
        ({"call": 3}, True),
        ({"call": 2}, False),
        ({"mentioned_by": "triage"}, True),
        ({"mentioned_by": "oncall"}, False),
        ({"contains": "812", "turn": 2, "call": 3, "mentioned_by": "maya"}, True),
        ({"contains": "812", "turn": 2, "call": 4}, False),
        ({}, True),
    ],
)
def test_all_keys_of_a_condition_must_hold(when: dict[str, Any], holds: bool) -> None:
    dev = Scripted({"when": when, "say": "yes"}, {"say": "no"})
    asked = call("roll back release 812", "now", turn=2, call=3, mentioned_by=["maya", "triage"])
    assert dev.says(asked) == ("yes" if holds else "no")


def test_the_entry_is_told_before_anything_else() -> None:
    dev = Scripted("used", {"say": "partial", "fail": "error"}, used=(0,))
    with pytest.raises(AgentProtocolError):
        dev.answer(call("go"))
    assert dev.emitted == [CallNote({"scripted": 1}), TextDelta("partial")]


def test_placeholders_are_filled_once() -> None:
    dev = Scripted({"say": "${author}: ${message} (${turn}) $${turn} $5 $$"})
    assert dev.says(call("a ${turn}", "b")) == "Maya: a ${turn}\nb (1) ${turn} $5 $$"
    assert dev.says(call()) == ":  (1) ${turn} $5 $$"


def test_an_answer_with_everything() -> None:
    dev = Scripted(
        {
            "say": "done",
            "next_mentions": ["tester"],
            "structured": [{"type": "task_list", "data": ["a"]}],
            "attachments": [{"name": "a.md", "data": "x"}],
            "status_updates": [{"status": "reviewing", "detail": "d", "progress": 0.5}],
            "usage": {"input_tokens": 10, "cost_usd": 0.25},
            "delay_s": 0.001,
        }
    )
    output = dev.answer(call("go"))
    assert output.content == "done"
    assert output.next_mentions == ["tester"]
    assert output.structured == [StructuredContent(type="task_list", data=["a"])]
    assert [(part.name, part.data) for part in output.attachments] == [("a.md", "x")]
    assert output.status_updates == [StatusEvent(status="reviewing", detail="d", progress=0.5)]
    assert output.usage == Usage(input_tokens=10, cost_usd=0.25)


def test_declining() -> None:
    assert Scripted({"decline": True}).answer(call("go")).should_respond is False


def test_a_whole_output() -> None:
    dev = Scripted({"output": {"should_respond": "maybe", "content": "x", "extra": 1}})
    output = dev.answer(call("go"))
    assert output.should_respond is None
    assert output.metadata == {"should_respond": "maybe", "extra": 1}


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        ("timeout", AgentTimeout),
        ("error", AgentProtocolError),
        ("overloaded", AgentOverloaded),
        ("refused", AgentRefused),
    ],
)
def test_failures(fail: str, error: type[AgentError]) -> None:
    with pytest.raises(error) as caught:
        Scripted({"fail": fail}).answer(call("go"))
    assert caught.value.agent_id == "dev"


def test_an_empty_answer() -> None:
    dev = Scripted({"fail": "empty", "say": "not this"})
    assert dev.answer(call("go")) == AgentOutput()


def test_nothing_fits_and_what_to_add_is_said() -> None:
    dev = Scripted("only once", used=(0,))
    with pytest.raises(AgentProtocolError) as caught:
        dev.answer(call('say "hi"\nplease', call=2))
    assert "no scripted reply fits call 2 (turn 1, must_reply)" in str(caught.value)
    assert r'  - {when: {contains: "say \"hi\""}, say: "..."}' in caught.value.mend
    assert dev.emitted == []


def test_it_is_always_healthy() -> None:
    assert asyncio.run(Scripted("x").adapter.health()).ok


@pytest.mark.parametrize(
    ("replies", "place", "what"),
    [
        ([404], (0,), "a reply is a text (in quotes"),
        (["ok", "${nobody}"], (1,), "unknown ${nobody}"),
        ([{"say": "${vars.x}"}], (0, "say"), "unknown ${vars.x}"),
        ([{"say": 1}], (0, "say"), "valid string"),
        ([{"sya": "x"}], (0, "sya"), "not permitted"),
        ([{"when": {"contans": "x"}, "say": "y"}], (0, "when", "contans"), "not permitted"),
        ([{"when": {"regex": "("}, "say": "y"}], (0, "when", "regex"), "not a regular expression"),
        ([{"when": {"turn": "1"}, "say": "y"}], (0, "when", "turn"), "valid integer"),
        ([{"when": {"call": 1}}], (0,), "answers nothing"),
        ([{"fail": "crash"}], (0, "fail"), "'timeout'"),
        ([{"fail": "error", "decline": True}], (0,), "cannot both fail and decline"),
        ([{"say": "a", "output": {"content": "b"}}], (0,), "a complete answer"),
        ([{"output": {"content": 3}}], (0, "output", "content"), "valid string"),
        ([{"attachments": [{"nam": "x"}]}], (0, "attachments"), "unknown key 'nam'"),
        ([{"say": "x", "usage": {"tokens": 1}}], (0, "usage"), "unknown key 'tokens'"),
        ([{"say": "x", "delay_s": -1}], (0, "delay_s"), "greater than or equal to 0"),
    ],
)
def test_wrong_replies_are_refused_with_their_place(
    replies: list[Any], place: tuple[int | str, ...], what: str
) -> None:
    found = [said for at, said in faults(replies) if at == ("replies", *place)]
    assert any(what in said for said in found), found


def test_the_schema_allows_texts_and_rules() -> None:
    items = ScriptedSettings.model_json_schema()["properties"]["replies"]["items"]
    assert items == {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Rule"}]}
