"""How an answer is read: thinking, decisions, passes, empty answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentOutput,
    Attachment,
    Invocation,
    Reading,
    StatusEvent,
    StructuredContent,
    Usage,
    runtime,
    visible_text,
)


def read(content: str, invocation: Invocation = "must_reply", **fields: Any) -> Reading:
    return runtime.read(AgentOutput(content=content, **fields), invocation)


def test_an_ordinary_answer_stays_as_it_is() -> None:
    output = AgentOutput(content=" 收到，先做认证模块 @测试工程师\n", next_mentions=["tester"])
    assert runtime.read(output, "must_reply") == Reading(output, declined=False, error=None)


@pytest.mark.parametrize(
    ("content", "left", "thinking"),
    [
        ("<think>ask @bob?</think>\n\nhello", "hello", "ask @bob?"),
        ("a <THINKING>x</Thinking> b <think>y</think>", "a  b", "x\n\ny"),
        (
            "<think>an open ``` fence</think>then <think>more</think>",
            "then",
            "an open ``` fence\n\nmore",
        ),
        ("<think></think>hello", "hello", ""),
        ("<think>a </thinking> b</think>c", "c", "a </thinking> b"),
        ("the prompt opened it @bob\n</think>\nhello", "hello", "the prompt opened it @bob"),
    ],
)
def test_thinking_is_taken_out_and_kept(content: str, left: str, thinking: str) -> None:
    result = read(content)
    assert (result.output.content, result.error) == (left, None)
    assert result.output.metadata == {"thinking": thinking}


@pytest.mark.parametrize(
    "content",
    ["use `<think>` tags", "```\n<think>x</think>\n```", "> <think>x</think>", "the </think> tag"],
)
def test_thinking_in_code_and_quotes_is_text(content: str) -> None:
    assert read(content) == Reading(AgentOutput(content=content), declined=False, error=None)


def test_thinking_that_the_adapter_found_is_kept_too() -> None:
    result = read("<think>b</think>c", metadata={"thinking": "a"})
    assert result.output.metadata["thinking"] == "a\n\nb"


def test_thinking_that_is_never_closed_is_no_answer() -> None:
    result = read("first <think>then @bob")
    assert result.error == "thinking was never closed"
    assert not result.declined
    assert result.output.content == "first"
    assert result.output.metadata == {"thinking": "then @bob", "unclosed_thinking": True}


@pytest.mark.parametrize("content", ["<pass/>", " <PASS />\n", "<pass/> <pass/>"])
@pytest.mark.parametrize("invocation", ["may_reply", "must_reply"])
def test_a_mere_pass_is_silence(content: str, invocation: Invocation) -> None:
    assert read(content, invocation) == Reading(AgentOutput(), declined=True, error=None)


def test_a_pass_beside_an_answer_is_taken_out() -> None:
    assert read("One thing: use TLS.\n<pass/>").output.content == "One thing: use TLS."
    with_file = read("<pass/>", attachments=[Attachment(name="a.md", data="x")])
    assert (with_file.declined, with_file.error) == (False, None)


@pytest.mark.parametrize("content", ["write `<pass/>` to pass", "```\n<pass/>\n```", "<passage/>"])
def test_a_pass_in_code_is_text(content: str) -> None:
    assert read(content) == Reading(AgentOutput(content=content), declined=False, error=None)


def test_a_decision_in_the_content_is_read_as_an_output() -> None:
    usage = Usage(input_tokens=3)
    said = {
        "should_respond": "yes",
        "content": "好的 ```json\n{}\n```",
        "next_mentions": ["bob"],
        "usage": {"input_tokens": 99},
        "reason": "asked",
    }
    for content in (json.dumps(said), f"\n```json\n{json.dumps(said, ensure_ascii=False)}\n```\n"):
        result = read(content, usage=usage, metadata={"model": "m"})
        assert result.output == AgentOutput(
            content="好的 ```json\n{}\n```",
            next_mentions=["bob"],
            usage=usage,
            metadata={"model": "m", "reason": "asked"},
        )
        assert (result.declined, result.error) == (False, None)


def test_what_the_adapter_found_beside_a_decision_is_kept() -> None:
    result = read(
        '{"should_respond": true, "content": "a", "status_updates": [{"status": "done"}]}',
        status_updates=[StatusEvent(status="generating")],
        structured=[StructuredContent(type="diff", data="x")],
    )
    assert [update.status for update in result.output.status_updates] == ["generating", "done"]
    assert len(result.output.structured) == 1


@pytest.mark.parametrize(
    "content",
    [
        'prose {"should_respond": false}',
        '{"content": "no decision"}',
        '["should_respond"]',
        '{"should_respond": false',
        "{" * 3000 + '"should_respond"' + "}" * 3000,
    ],
)
def test_other_json_is_text(content: str) -> None:
    assert read(content) == Reading(AgentOutput(content=content), declined=False, error=None)


def test_a_decision_of_the_wrong_shape_is_an_error() -> None:
    result = read('{"should_respond": true, "content": ["a"]}')
    assert result.error is not None
    assert result.error.startswith("its decision cannot be read: content:")


@pytest.mark.parametrize("content", ["", " \n", '{"should_respond": true}', "<think>x</think>"])
@pytest.mark.parametrize("invocation", ["may_reply", "must_reply"])
def test_no_answer_is_an_error(content: str, invocation: Invocation) -> None:
    result = read(content, invocation)
    assert (result.declined, result.error) == (False, "answered nothing")


def test_a_structured_part_is_an_answer() -> None:
    assert read("", structured=[StructuredContent(type="task_list", data=[])]).error is None


def test_half_characters_are_replaced_everywhere_and_flagged() -> None:
    result = read(
        "a\ud83d",
        next_mentions=["b\udc00"],
        attachments=[Attachment(name="n\ud83d", data={"x": "\ud83d"})],
        status_updates=[StatusEvent(status="done", detail="\ud83d")],
        metadata={"raw": "\ud83d"},
    )
    assert result.output == AgentOutput(
        content="a\ufffd",
        next_mentions=["b\ufffd"],
        attachments=[Attachment(name="n\ufffd", data={"x": "\ufffd"})],
        status_updates=[StatusEvent(status="done", detail="\ufffd")],
        metadata={"raw": "\ufffd", "replaced_characters": True},
    )


TAGS = ["<think>", "</think>", "<thinking>", "</thinking>", "<pass/>"]
DECISIONS = ['{"should_respond": true, "content": "y"}', '{"should_respond": 0}']
answers = st.lists(
    st.sampled_from([*TAGS, *DECISIONS, "`", "```\n", "\n", "> ", "x", " ", "\ud83d"]), max_size=10
).map("".join)


@settings(deadline=None)
@given(answers, st.sampled_from(["must_reply", "may_reply"]))
def test_a_reading_is_whole(content: str, invocation: Invocation) -> None:
    result = read(content, invocation)
    result.output.model_dump_json().encode("utf-8")
    assert not (result.declined and result.error)
    answered = not result.declined and result.error is None
    assert not answered or result.output.content.strip()
    if answered and "<pass/>" not in content:
        assert "<think" not in visible_text.blank_hidden(result.output.content)
