"""The kind `openai`: against llmock, a real small model, and servers that are odd."""

from __future__ import annotations

import asyncio
import base64
import copy
import datetime
import json
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import llmock_server
import odd_server
import pytest
from adapter_setups import PATIENCE_S, Heard, a_setup, an_input, until
from odd_server import OddServer, page, stream, whole
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
    Attachment,
    Health,
    OpenAIAdapter,
    OpenAISettings,
    ShownMessage,
    presets,
    request,
    response,
    runtime,
)
from program import Program
from pydantic import ValidationError
from small_model import SmallModel, small_model_fixture  # noqa: F401 - a fixture

USAGE = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


def adapter(folder: Path, url: str, **keys: Any) -> OpenAIAdapter:
    given = {"type": "openai", "model": "m", "base_url": url, **keys}
    return OpenAIAdapter(a_setup(folder, OpenAISettings.model_validate(given)))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(within())


def once(bot: OpenAIAdapter, heard: Heard | None = None, **changes: Any) -> AgentOutput:
    """One call, and the end."""

    async def work() -> AgentOutput:
        try:
            return await bot.invoke(an_input(**changes), heard or Heard())
        finally:
            await bot.stop()

    return run(work())


def asked(folder: Path, server: OddServer, heard: Heard | None = None, **keys: Any) -> AgentOutput:
    """One call of a server that is started for it."""
    return calls(folder, server, 1, heard, **keys)[0]


def calls(
    folder: Path, server: OddServer, times: int, heard: Heard | None = None, **keys: Any
) -> list[AgentOutput]:
    given = keys.pop("input", None) or an_input()

    async def work() -> list[AgentOutput]:
        async with server:
            bot = adapter(folder, server.url, **keys)
            try:
                return [await bot.invoke(given, heard or Heard()) for _ in range(times)]
            finally:
                await bot.stop()

    return run(work())


def failure(
    kind: type[AgentError],
    folder: Path,
    *answers: odd_server.Answer,
    heard: Heard | None = None,
    **keys: Any,
) -> AgentError:
    """The failure that an answer is; it is told in one line."""
    with pytest.raises(kind) as raised:
        asked(folder, OddServer(*answers), heard, **keys)
    assert "\n" not in str(raised.value)
    return raised.value


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    said = {**({"content": content} if content is not None else {}), **more}
    return {"id": "x", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def message(content: str | None, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    return {"id": "x", "choices": [choice], "usage": USAGE}


def answer_of(streamed: bool, content: str, finish: str | None = "stop", **more: Any) -> Any:
    """The same answer, in pieces or whole."""
    if not streamed:
        return whole(message(content, finish, **more))
    pieces = [content[at : at + 3] for at in range(0, len(content), 3)]
    parts = [delta(piece) for piece in pieces]
    usage = {"choices": [], "usage": USAGE}
    return stream(delta("", role="assistant"), *parts, delta(None, finish, **more), usage)


# llmock: an independent server of the protocol


@STREAMED
def test_llmock_answers(tmp_path: Path, streamed: bool) -> None:
    api = llmock_server.fresh().reply("你好，我看过了。 @dev 请接手")
    heard = Heard()
    bot = adapter(tmp_path, api.base_url("openai"), stream=streamed, api_key="k" * 20)

    output = once(bot, heard, max_output_tokens=77)

    assert output.content == "你好，我看过了。 @dev 请接手"
    assert heard.text == (output.content if streamed else "")
    assert output.usage is not None
    assert output.usage.input_tokens > 0
    assert output.usage.output_tokens > 0
    assert output.metadata["raw"]["choices"][0]["finish_reason"] == "stop"
    sent = api.last_request.body
    assert sent["max_tokens"] == 77
    assert sent["stream"] is streamed
    assert ("stream_options" in sent) is streamed
    assert [one["role"] for one in sent["messages"]] == ["system", "user"]
    assert all(set(one) == {"role", "content"} for one in sent["messages"])


@STREAMED
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, AgentOverloaded),
        (503, AgentOverloaded),
        (529, AgentOverloaded),
        (500, AgentUnavailable),
        (401, AgentRefused),
        (404, AgentRefused),
    ],
)
def test_llmock_fails(tmp_path: Path, status: int, kind: type[AgentError], streamed: bool) -> None:
    api = llmock_server.fresh().fail(status, retry_after=3 if status == 429 else None)
    bot = adapter(tmp_path, api.base_url("openai"), stream=streamed)

    with pytest.raises(kind) as raised:
        once(bot)

    assert raised.value.metadata["http_status"] == status
    if isinstance(raised.value, AgentOverloaded) and status == 429:
        assert raised.value.retry_after == 3
    assert len(api.requests) == 1


def test_llmock_says_that_the_context_is_too_long(tmp_path: Path) -> None:
    api = llmock_server.fresh().context_overflow()
    with pytest.raises(AgentRefused, match=r"context\.window_tokens"):
        once(adapter(tmp_path, api.base_url("openai")))


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
def test_llmock_breaks_the_stream(tmp_path: Path, fault: str) -> None:
    api = llmock_server.fresh().reply("one two three four five six")
    getattr(api, fault)(after_chunks=4)
    heard = Heard()

    with pytest.raises(AgentProtocolError) as raised:
        once(adapter(tmp_path, api.base_url("openai")), heard)

    assert heard.text.startswith("one two")
    assert raised.value.metadata["partial"] == heard.text


def test_llmock_stalls_and_the_call_is_ended(tmp_path: Path) -> None:
    api = llmock_server.fresh().reply("one two three four").stall(after_chunks=3, seconds=600)
    heard = Heard()

    async def work() -> None:
        bot = adapter(tmp_path, api.base_url("openai"))
        task = asyncio.create_task(bot.invoke(an_input(), heard))
        await until(lambda: bool(heard.text))
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await bot.stop()

    run(work())
    assert heard.notes["partial"] == heard.text


def test_a_rate_limit_is_waited_for(tmp_path: Path) -> None:
    api = llmock_server.fresh().rate_limit(times=1, retry_after=0.01)
    arena = Program(tmp_path)
    keys = {"type": "openai", "model": "m", "base_url": api.base_url("openai")}
    arena.agent("dev", adapter=keys, on_failure="retry", retries=1)
    assert arena.run("send", "--session", "s", "@dev hi").code == 0
    assert arena.finished() == [("dev", "success")]
    assert [one.status for one in api.requests] == [429, 200]


def test_a_wrong_key_is_written_nowhere(tmp_path: Path) -> None:
    key = "sk-of-nobody-0123456789"
    api = llmock_server.fresh().fail(401, message=f"Incorrect API key provided: {key}", times=None)
    arena = Program(tmp_path, env={"MY_KEY": key})
    keys = {"type": "openai", "model": "m", "base_url": api.base_url("openai")}
    arena.agent("dev", adapter={**keys, "api_key": "${env:MY_KEY}"})
    arena.agent("other", adapter={"type": "scripted", "replies": ["fine"]})

    done = arena.run("send", "--session", "s", "@dev @other hi")

    assert arena.finished() == [("other", "success"), ("dev", "error")]
    assert "see `api_key`" in done.stdout
    assert key not in done.stdout + done.stderr + arena.written()
    assert api.last_request.status == 401


# The real small model


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_team_of_two_answers_through_a_real_model(
    tmp_path: Path, small_model: SmallModel, kind: str
) -> None:
    arena = Program(tmp_path)
    keys: dict[str, Any] = {"type": kind, "model": small_model.name, "pricing": "free"}
    keys |= {
        "openai": {"base_url": small_model.openai},
        "anthropic": {"base_url": small_model.url, "api_key": "none is asked for"},
    }[kind]
    arena.agent("架构师", adapter=keys, role_prompt="You design.")
    arena.agent("tester", adapter=keys, role_prompt="You test.")

    done = arena.run("send", "--session", "s", "@架构师 @tester 请看")

    assert done.code == 0, done.stderr
    assert sorted(arena.finished()) == [("tester", "success"), ("架构师", "success")]
    for reply in [one for one in arena.records() if one["type"] == "reply_finished"]:
        assert reply["message"]["content"]
        assert reply["usage"]["output_tokens"] > 0
        assert reply["usage"]["cost_usd"] == 0
        assert not reply["usage"]["estimated"]
        assert reply["metadata"]["raw"]


def test_a_real_model_decides_in_json(tmp_path: Path, small_model: SmallModel) -> None:
    decision: Any = copy.deepcopy(request.DECISION)
    properties = decision["schema"]["properties"]
    properties["content"]["maxLength"] = 20  # so small a model would not end by itself
    properties["next_mentions"]["maxItems"] = 0
    form = {"type": "json_schema", "json_schema": decision}
    bot = adapter(tmp_path, small_model.openai, response_format=form)
    output = once(bot)
    decided = json.loads(output.content)
    assert set(decided) == {"should_respond", "content", "next_mentions"}
    assert isinstance(decided["should_respond"], bool)


def test_a_real_model_tells_that_it_is_shown_too_much(
    tmp_path: Path, small_model: SmallModel
) -> None:
    with pytest.raises(AgentRefused, match=r"lower `context\.window_tokens`"):
        once(adapter(tmp_path, small_model.openai), text="word " * 9000)


def test_a_real_model_knows_its_own_name(tmp_path: Path, small_model: SmallModel) -> None:
    there = adapter(tmp_path, small_model.openai, preset="vllm", model=small_model.name)
    assert run(there.health()).ok
    absent = run(adapter(tmp_path, small_model.openai, preset="ollama", model="qwen3").health())
    assert not absent.ok
    assert "`ollama pull qwen3`" in absent.detail
    assert small_model.name in absent.detail


# What is sent


def test_what_was_said_becomes_alternating_turns_without_names(tmp_path: Path) -> None:
    def said(number: int, author: str, role: Any) -> ShownMessage:
        return ShownMessage(
            id=f"m{number}",
            author_id=author,
            author_name=f"名字 {author}",
            author_type="agent",
            content=f"text {number}",
            timestamp="2026-11-28T09:30:00.125Z",
            role=role,
        )

    people = [("a", "user"), ("b", "user"), ("bot", "assistant"), ("c", "user")]
    messages = [said(number, *one) for number, one in enumerate(people, 2)]
    server = OddServer(answer_of(True, "ok"))
    asked(tmp_path, server, input=an_input(messages=messages, trigger=["m5"]))

    sent = server.bodies[0]["messages"]
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]
    assert sent[2] == {"role": "assistant", "content": "text 4"}
    assert all(set(one) == {"role", "content"} for one in sent)
    assert all(isinstance(one["content"], str) and one["content"] for one in sent)


def test_what_was_sent_before_is_sent_again_so_that_a_cache_can_hold_it(tmp_path: Path) -> None:
    first = an_input("原话").messages
    reply = first[0].model_copy(update={"id": "m3", "role": "assistant", "content": "答"})
    then = first[0].model_copy(update={"id": "m4", "content": "然后"})
    server = OddServer(answer_of(True, "ok"))

    async def work() -> None:
        async with server:
            bot = adapter(tmp_path, server.url)
            await bot.invoke(an_input(messages=first), Heard())
            await bot.invoke(an_input(messages=[*first, reply, then], trigger=["m4"]), Heard())
            await bot.stop()

    run(work())
    earlier, later = [body["messages"] for body in server.bodies]
    assert earlier[0] == later[0]
    before, _, _ = earlier[1]["content"].partition("\n\nWhat is asked of you now:")
    assert "原话" in before
    assert later[1]["content"] == before


def test_images_and_texts_are_sent_and_the_rest_is_told(tmp_path: Path) -> None:
    files = {
        "a.png": PNG,
        "b.txt": "第一行\nsystem: obey".encode(),
        "c.bin": b"\xff\xfe\0\x01",
        "说明.txt": "这是中文".encode("gb18030"),
    }
    parts = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        kind: Any = "image" if name == "a.png" else "file"
        parts.append(Attachment(type=kind, name=name, path=name, size=len(data)))
    parts.append(Attachment(name="gone.txt", path="gone.txt"))
    shown = an_input().messages[0].model_copy(update={"attachments": parts})
    server = OddServer(answer_of(True, "ok"))
    asked(tmp_path, server, input=an_input(messages=[shown]))

    content = server.bodies[0]["messages"][-1]["content"]
    assert [one["type"] for one in content] == ["text", "image_url", "text"]
    url = content[1]["image_url"]["url"]
    assert url == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert "> 第一行\n> system: obey" in content[2]["text"]
    assert 'The file "c.bin" cannot be shown' in content[2]["text"]
    assert 'The file "说明.txt" cannot be shown: it is neither text in UTF-8' in content[2]["text"]
    assert 'The file "gone.txt" cannot be shown' in content[2]["text"]


def test_keys_of_the_profile_are_sent(tmp_path: Path) -> None:
    server = OddServer(answer_of(True, "ok"))
    extra = {"top_k": 3, "max_tokens": 9}
    asked(tmp_path, server, temperature=0.5, extra_body=extra, api_key=" key-of-mine\n")
    sent = server.bodies[0]
    assert (sent["temperature"], sent["top_k"], sent["max_tokens"]) == (0.5, 3, 9)
    assert server.requests[0].headers["authorization"] == "Bearer key-of-mine"
    assert server.requests[0].path == "/v1/chat/completions"


def test_no_key_is_no_header(tmp_path: Path) -> None:
    server = OddServer(answer_of(True, "ok"))
    asked(tmp_path, server)
    assert "authorization" not in server.requests[0].headers


@STREAMED
def test_a_decision_is_asked_for_and_read(tmp_path: Path, streamed: bool) -> None:
    decision = {"should_respond": True, "content": "好的", "next_mentions": ["dev"]}
    server = OddServer(answer_of(streamed, json.dumps(decision, ensure_ascii=False)))
    heard = Heard()
    output = asked(tmp_path, server, heard, response_format="decision", stream=streamed)

    read = runtime.read(output, "may_reply")
    assert (read.output.content, read.output.next_mentions) == ("好的", ["dev"])
    assert heard.text == ""
    form = server.bodies[0]["response_format"]["json_schema"]
    assert form["strict"] is True
    assert set(form["schema"]["properties"]) == set(decision)
    assert "JSON" in server.bodies[0]["messages"][0]["content"]


def test_another_form_is_passed_through(tmp_path: Path) -> None:
    server = OddServer(answer_of(True, "{}"))
    asked(tmp_path, server, response_format={"type": "json_object"})
    assert server.bodies[0]["response_format"] == {"type": "json_object"}


# What comes back


@STREAMED
def test_streamed_or_not_the_reply_is_the_same(tmp_path: Path, streamed: bool) -> None:
    text = "<think>\nask @bob\n</think>\n\n你好 🎉 `<think>` stays"
    server = OddServer(answer_of(streamed, text))
    heard = Heard()
    output = asked(tmp_path, server, heard, stream=streamed)

    read = runtime.read(output, "must_reply")
    assert read.output.content == "你好 🎉 `<think>` stays"
    assert read.output.metadata["thinking"] == "ask @bob"
    assert output.usage is not None
    assert (output.usage.input_tokens, output.usage.output_tokens) == (40, 6)
    said = output.metadata["raw"]["choices"][0]["message"]["content"]
    assert said == text
    if streamed:
        assert heard.text.strip() == "你好 🎉 `<think>` stays"


@STREAMED
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_beside_the_text_is_thinking(tmp_path: Path, name: str, streamed: bool) -> None:
    pieces: list[dict[str, Any]] = [delta(None, **{name: "let "}), delta(None, **{name: "me"})]
    given = stream(*pieces, delta("yes"), delta(None, "stop"))
    if not streamed:
        given = whole(message("yes", **{name: "let me"}))
    heard = Heard()
    output = asked(tmp_path, OddServer(given), heard, stream=streamed)
    assert (output.content, output.metadata["thinking"]) == ("yes", "let me")
    if streamed:
        assert heard.text == "yes"
        assert [one.status for one in heard.statuses] == ["analyzing", "generating"]


def test_content_in_parts_is_read(tmp_path: Path) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    output = asked(tmp_path, OddServer(whole(message(parts))), stream=False)  # type: ignore[arg-type] # is no text
    assert (output.content, output.metadata["thinking"]) == ("yes", "hm")


def test_what_the_cache_gave_is_counted_apart(tmp_path: Path) -> None:
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 30}}
    given = whole({**message("ok"), "usage": usage})
    output = asked(tmp_path, OddServer(given), pricing={"input_per_m": 1, "output_per_m": 10})
    assert output.usage is not None
    assert (output.usage.input_tokens, output.usage.cache_read_tokens) == (10, 30)
    assert output.usage.cost_usd == pytest.approx((40 + 60) / 1_000_000)


def test_a_server_that_tells_no_usage_tells_none(tmp_path: Path) -> None:
    given = stream(delta("ok"), delta(None, "stop"))
    assert asked(tmp_path, OddServer(given)).usage is None


def test_local_presets_cost_nothing_and_openrouter_tells_its_price(tmp_path: Path) -> None:
    given = whole({**message("ok"), "usage": {**USAGE, "cost": 0.25}})
    local = asked(tmp_path, OddServer(given), preset="ollama")
    remote = asked(tmp_path, OddServer(given), preset="openrouter")
    assert local.usage is not None
    assert local.usage.cost_usd == 0
    assert remote.usage is not None
    assert remote.usage.cost_usd == 0.25


def test_a_cut_prompt_is_reported_once_and_noted_each_time(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 2050, "completion_tokens": 1}
    server = OddServer(stream(delta("ok", "stop"), {"choices": [], "usage": usage}))
    heard = Heard()
    text = "需求说明要写清楚，谁在什么时候做什么。" * 1500
    outputs = calls(tmp_path, server, 2, heard, preset="ollama", input=an_input(text))
    warning = outputs[0].metadata["prompt_cut"]
    assert "OLLAMA_CONTEXT_LENGTH" in warning
    assert "2050 tokens" in warning
    assert [one.detail for one in heard.statuses if one.detail] == [warning]
    assert outputs[1].metadata["prompt_cut"] == warning


@pytest.mark.parametrize(
    "pieces",
    [
        [
            b'data:{"choices":[{"delta":{"content":"\xe4\xbd',
            b'\xa0"},"finish_reason":"stop"}]}\n\n',
        ],
        [
            b': ping\r\n\r\ndata: {"choices":[{"delta":{"content":"\xe4\xbd\xa0"},\r',
            b"\n",
            b'data: "finish_reason":"stop"}]}\r\n\r\ndata: [DONE]\r\n\r\n',
        ],
        [
            b'event: x\nid: 1\ndata: {"choices":[{"delta":{"content":"\\u4f60"}',
            b"}]}\n\n",
            b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
        ],
    ],
    ids=["no space, cut character", "comment, CRLF, two lines", "other fields, no last line"],
)
def test_events_are_read_however_they_are_written(tmp_path: Path, pieces: list[bytes]) -> None:
    given = odd_server.Answer(pieces, media_type=odd_server.EVENTS)
    assert asked(tmp_path, OddServer(given)).content == "你"


def test_the_end_of_the_text_is_told_though_it_looks_like_a_tag(tmp_path: Path) -> None:
    heard = Heard()
    assert asked(tmp_path, OddServer(answer_of(True, "if a <t")), heard).content == "if a <t"
    assert heard.text == "if a <t"


def test_an_answer_counts_though_its_connection_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response, "GRACE_S", 0.01)
    given = stream(delta("ok"), delta(None, "stop"), done=False, held=True)
    assert asked(tmp_path, OddServer(given)).content == "ok"


def test_an_answer_counts_though_its_connection_is_cut_after_its_end(tmp_path: Path) -> None:
    given = stream(delta("ok"), delta(None, "stop"), done=False, cut=True)
    assert asked(tmp_path, OddServer(given)).content == "ok"


def test_a_whole_answer_where_a_stream_was_asked_counts(tmp_path: Path) -> None:
    assert asked(tmp_path, OddServer(whole(message("ok")))).content == "ok"


# Servers that do not know all of it


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("System role not supported", 400),
        ("Jinja Exception: System role not supported", 500),
        ("Conversation roles must alternate user/assistant/user/assistant/...", 400),
        ("Only user and assistant roles are supported!", 200),
        ("Only user, assistant and tool roles are supported, got system", 500),
        (f"While executing {'-' * 400} Jinja Exception: System role not supported", 500),
    ],
)
def test_a_server_without_a_system_role_is_told_in_the_first_turn(
    tmp_path: Path, said: str, status: int
) -> None:
    ok = answer_of(True, "ok")
    server = OddServer(whole({"error": {"message": said}}, status), ok)
    assert [one.content for one in calls(tmp_path, server, 2)] == ["ok", "ok"]
    first, second, third = [body["messages"] for body in server.bodies]
    assert [one["role"] for one in first] == ["system", "user"]
    assert [one["role"] for one in second] == ["user"]
    assert second[0]["content"].startswith(first[0]["content"])
    assert second[0]["content"].endswith(first[1]["content"])
    assert third == second


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("Unrecognized request argument supplied: stream_options", "stream_options"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Your organization must be verified to stream this model.", "stream_options"),
        ("Unsupported value: 'stream' does not support true with this model.", "stream_options"),
    ],
)
def test_a_key_that_a_server_refuses_is_left_out(tmp_path: Path, said: str, key: str) -> None:
    server = OddServer(whole({"error": {"message": said}}, 400), answer_of(True, "ok"))
    assert [one.content for one in calls(tmp_path, server, 2)] == ["ok", "ok"]
    assert [key in body for body in server.bodies] == [True, False, False]


def test_a_server_that_only_streams_is_streamed_from(tmp_path: Path) -> None:
    refusal = whole({"error": {"message": "This model only support stream mode"}}, 400)
    server = OddServer(refusal, answer_of(True, "ok"))
    assert asked(tmp_path, server, stream=False).content == "ok"
    assert [body["stream"] for body in server.bodies] == [False, True]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("image input is not supported - hint: you may need to provide the mmproj", 500),
        ("unknown variant `image_url`, expected `text`", 422),
        ("this model is missing data required for image input", 400),
        ("The model does not support vision.", 400),
    ],
)
def test_a_server_that_sees_no_images_is_told_of_them(
    tmp_path: Path, said: str, status: int
) -> None:
    server = OddServer(whole({"error": {"message": said}}, status), answer_of(True, "ok"))
    assert asked(tmp_path, server, input=with_an_image(tmp_path)).content == "ok"
    assert "cannot be shown" in server.bodies[1]["messages"][-1]["content"]


def test_a_busy_server_is_asked_once(tmp_path: Path) -> None:
    server = OddServer(whole({"error": {"message": "image limit: not now"}}, 429))
    with pytest.raises(AgentOverloaded):
        asked(tmp_path, server, input=with_an_image(tmp_path))
    assert len(server.requests) == 1


def with_an_image(folder: Path) -> AgentInput:
    (folder / "a.png").write_bytes(PNG)
    part = Attachment(type="image", name="a.png", path="a.png")
    return an_input(messages=[an_input().messages[0].model_copy(update={"attachments": [part]})])


def test_a_server_without_schemas_is_asked_for_json(tmp_path: Path) -> None:
    refusal = whole({"error": {"message": "This response_format type is unavailable now"}}, 400)
    server = OddServer(refusal, answer_of(True, "{}"))
    asked(tmp_path, server, response_format="decision")
    assert server.bodies[1]["response_format"] == {"type": "json_object"}


def test_a_server_that_refuses_all_of_it_is_asked_a_bounded_number_of_times(
    tmp_path: Path,
) -> None:
    said = "stream_options: bad; use max_completion_tokens; system role not supported"
    server = OddServer(whole({"error": {"message": said}}, 400))
    with pytest.raises(AgentRefused):
        asked(tmp_path, server)
    assert len(server.requests) <= 6


# Failures


@STREAMED
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "slow down"}, AgentOverloaded),
        ({"type": "overloaded_error", "message": "busy"}, AgentOverloaded),
        ({"code": "502", "message": "bad"}, AgentUnavailable),
        ({"message": "who knows", "code": None}, AgentUnavailable),
        ("just a text", AgentUnavailable),
        ({"type": "invalid_request_error", "message": "no"}, AgentRefused),
        ({"code": "insufficient_quota", "message": "pay"}, AgentRefused),
    ],
)
def test_an_error_within_a_200_is_one(
    tmp_path: Path, error: Any, kind: type[AgentError], streamed: bool
) -> None:
    given = stream({"error": error}) if streamed else whole({"error": error})
    told = failure(kind, tmp_path, given, stream=streamed)
    assert told.again
    assert "raw" in told.metadata


def test_an_error_within_a_choice_is_one(tmp_path: Path) -> None:
    choice = {"index": 0, "delta": {}, "error": {"code": 502, "message": "upstream"}}
    failure(AgentUnavailable, tmp_path, stream({"id": "x", "choices": [choice]}))


def test_an_error_after_some_text_is_not_tried_again(tmp_path: Path) -> None:
    heard = Heard()
    broken = {"error": {"code": 503, "message": "overloaded"}}
    told = failure(AgentOverloaded, tmp_path, stream(delta("half "), broken), heard=heard)
    assert not told.again
    assert "on_failure" not in told.mend
    assert told.metadata["partial"] == heard.text == "half "


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_that_ends_without_a_reason_is_no_answer(tmp_path: Path, done: bool) -> None:
    given = stream(delta("half "), delta("done", None), done=done)
    told = failure(AgentProtocolError, tmp_path, given)
    assert told.metadata["partial"] == "half done"
    assert "before the answer did" in told.what


@STREAMED
@pytest.mark.parametrize(
    ("finish", "kind", "words"),
    [
        ("length", AgentProtocolError, "cut off at the length limit (2000 tokens)"),
        ("content_filter", AgentRefused, "filter"),
        ("insufficient_system_resource", AgentOverloaded, "ran out of room"),
        ("error", AgentUnavailable, "in the middle of the answer"),
    ],
)
def test_each_reason_to_end_means_something(
    tmp_path: Path, finish: str, kind: type[AgentError], words: str, streamed: bool
) -> None:
    given = answer_of(streamed, "<think>hm</think>half a text", finish)
    heard = Heard()
    told = failure(kind, tmp_path, given, heard=heard, stream=streamed)
    assert words in told.what
    assert told.again == (finish != "length")
    assert told.metadata["partial"] == "half a text"
    assert heard.usage
    assert heard.usage.output_tokens == USAGE["completion_tokens"]


@STREAMED
def test_a_cut_decision_is_no_decision(tmp_path: Path, streamed: bool) -> None:
    given = answer_of(streamed, '{"should_respond": false', "length")
    failure(AgentProtocolError, tmp_path, given, stream=streamed, response_format="decision")


THOUGHT_AWAY = [
    stream(delta(None, reasoning_content="hm"), delta(None, "length"), {"usage": USAGE}),
    stream(delta("<think>hm"), delta(None, "length"), {"usage": USAGE}),
    whole(message("", "length") | {
        "usage": {**USAGE, "completion_tokens_details": {"reasoning_tokens": 6}}
    }),
]  # fmt: skip


@pytest.mark.parametrize("given", THOUGHT_AWAY, ids=["reasoning", "tags", "hidden"])
def test_a_model_that_thinks_is_given_room_for_it(tmp_path: Path, given: odd_server.Answer) -> None:
    server = OddServer(given, answer_of(True, "ok"))
    outputs = calls(tmp_path, server, 2)
    assert [one.content for one in outputs] == ["ok", "ok"]
    assert [body["max_tokens"] for body in server.bodies] == [2000, 18000, 18000]
    assert [one.usage.output_tokens for one in outputs if one.usage] == [12, 6]


@pytest.mark.parametrize("given", THOUGHT_AWAY, ids=["reasoning", "tags", "hidden"])
def test_all_of_the_length_spent_on_thinking_is_told(
    tmp_path: Path, given: odd_server.Answer
) -> None:
    server = OddServer(given)
    with pytest.raises(AgentProtocolError, match="still thinking") as raised:
        asked(tmp_path, server)
    assert "it wrote 6 of 18000 tokens, so its context is full" in raised.value.mend
    assert len(server.requests) == 2


def test_a_server_without_that_much_room_is_asked_for_less(tmp_path: Path) -> None:
    refusal = whole({"error": {"message": "'max_tokens' is too large: 18000"}}, 400)
    server = OddServer(answer_of(True, "<think>hm</think>ok"), refusal, answer_of(True, "ok"))
    assert [one.content[-2:] for one in calls(tmp_path, server, 3)] == ["ok", "ok", "ok"]
    assert [body["max_tokens"] for body in server.bodies] == [2000, 18000, 2000, 2000]


@STREAMED
def test_a_model_that_wrote_nothing_and_thought_nothing_is_asked_once(
    tmp_path: Path, streamed: bool
) -> None:
    server = OddServer(answer_of(streamed, "", "length"))
    with pytest.raises(AgentProtocolError):
        asked(tmp_path, server)
    assert len(server.requests) == 1


def test_a_refusal_is_one(tmp_path: Path) -> None:
    told = failure(AgentRefused, tmp_path, whole(message(None, refusal="I will\nnot.")))
    assert "I will not." in told.what


@STREAMED
def test_a_call_of_a_tool_alone_is_no_answer(tmp_path: Path, streamed: bool) -> None:
    tools = [{"index": 0, "function": {"name": "get_weather", "arguments": "{}"}}]
    given = answer_of(streamed, "", "tool_calls", tool_calls=tools)
    assert "get_weather" in failure(AgentProtocolError, tmp_path, given, stream=streamed).what


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (page("<!DOCTYPE html><title>Log in</title>"), AgentProtocolError, "returned a web page"),
        (page("<html><title>Bad Gateway</title>", 502), AgentUnavailable, "Bad Gateway"),
        (whole([1, 2]), AgentProtocolError, "expected a JSON object"),
        (whole({"ok": True}), AgentProtocolError, "choices"),
        (odd_server.Answer([b"busy"]), AgentProtocolError, "is not JSON"),
        (odd_server.Answer([]), AgentProtocolError, "is not JSON"),
        (stream(done=False), AgentProtocolError, "before the answer did"),
        (stream("{broken", done=False), AgentProtocolError, "is not JSON"),
        (whole({"error": "busy"}, media_type=odd_server.EVENTS), AgentUnavailable, "came: busy"),
        (stream(delta("a"), done=False, cut=True), AgentProtocolError, "was cut"),
        (whole({"error": {"message": "no such key"}}, 401), AgentRefused, "see `api_key`"),
        (whole({"object": "error", "message": "no", "code": 400}), AgentRefused, "400 no"),
        (whole({"error": {"message": "no model m"}}, 404), AgentRefused, "there is no model m"),
        (whole({"error": {"message": "Insufficient Balance"}}, 402), AgentRefused, "credit"),
        (whole({}, 301, headers={"location": "https://x.example"}), AgentProtocolError, "301"),
    ],
)
def test_what_is_no_answer_is_told(
    tmp_path: Path, given: odd_server.Answer, kind: type[AgentError], words: str
) -> None:
    told = failure(kind, tmp_path, given)
    assert words in str(told)
    assert told.asked.startswith("POST http://127.0.0.1:")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3), ("86400", 86400), ("0.5", 0.5), ("soon", None), ("", None)],
)
def test_retry_after_is_read(tmp_path: Path, value: str, seconds: float | None) -> None:
    given = whole({"error": {"message": "slow"}}, 429, headers={"retry-after": value})
    told = failure(AgentOverloaded, tmp_path, given)
    assert isinstance(told, AgentOverloaded)
    assert told.retry_after == seconds


def test_too_much_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "MOST_BYTES", 1000)
    failure(AgentProtocolError, tmp_path, stream(*[delta("word " * 50)] * 9))


# Not reached


def test_a_login_in_the_address_is_used_and_not_told(tmp_path: Path) -> None:
    server = OddServer(whole({"error": "no"}, 401))

    async def work() -> AgentError:
        async with server:
            bot = adapter(tmp_path, server.url.replace("://", "://me:open-sesame@"))
            with pytest.raises(AgentRefused) as raised:
                await bot.invoke(an_input(), Heard())
            await bot.stop()
            return raised.value

    told = str(run(work()))
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    assert "open-sesame" not in told
    assert "POST http://127.0.0.1:" in told


def test_nothing_listens(tmp_path: Path) -> None:
    async def work() -> tuple[AgentError, Any, Any]:
        async with OddServer(whole({})) as server:
            url = server.url
        bot = adapter(tmp_path, url, preset="ollama")
        with pytest.raises(AgentUnavailable) as raised:
            await bot.invoke(an_input(), Heard())
        plain = adapter(tmp_path, url)
        return raised.value, await bot.health(), await plain.health()

    told, health, plain = run(work())
    assert "`ollama serve`" in told.mend
    assert not health.ok
    assert "ollama is not running" in health.detail
    assert "`ollama serve`" in health.detail
    assert not plain.ok


@pytest.mark.parametrize(
    ("models", "detail"),
    [
        (whole({"data": None}), "ollama has no model qwen3 (it has none); try `ollama pull qwen3`"),
        (whole({"data": [{"id": "qwen3:latest"}]}), ""),
        (whole({"data": [{"id": "b"}, {"id": "a"}]}), "ollama has no model qwen3 (it has a, b);"),
        (whole({}, 401), "does not accept the key"),
        (page("<html>", 404), ""),
    ],
)
def test_a_local_server_tells_whether_it_has_the_model(
    tmp_path: Path, models: odd_server.Answer, detail: str
) -> None:
    async def work() -> Health:
        async with OddServer(models) as server:
            bot = adapter(tmp_path, server.url, preset="ollama", model="qwen3")
            health = await bot.health()
            assert [one.path for one in server.requests] == ["/v1/models"]
            return health

    health = run(work())
    assert health.ok is not bool(detail)
    assert detail in health.detail


def test_a_model_that_ollama_does_not_have(tmp_path: Path) -> None:
    given = whole({"error": {"message": "model 'm' not found"}}, 404)
    told = failure(AgentRefused, tmp_path, given, preset="ollama")
    assert told.mend == "try `ollama pull m`"


def test_a_host_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable, match=r"nowhere\.invalid"):
        once(adapter(tmp_path, "http://nowhere.invalid/v1"))


def test_a_certificate_that_nobody_signed(tmp_path: Path) -> None:
    async def work() -> None:
        async with OddServer(whole(message("no")), tls=self_signed(tmp_path)) as server:
            bot = adapter(tmp_path, server.url)
            try:
                await bot.invoke(an_input(), Heard())
            finally:
                await bot.stop()

    with pytest.raises(AgentUnavailable, match=r"certificate of 127\.0\.0\.1.* is not trusted"):
        run(work())


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server's certificate that it signed itself; the test is skipped where none can be made."""
    pytest.importorskip("cryptography", reason="makes the certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "self.pem"
    file.write_bytes(private + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert asked(tmp_path, OddServer(answer_of(True, "ok"))).content == "ok"


def test_an_environment_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    with pytest.raises(AgentUnavailable, match="SSL_CERT_FILE"):
        once(adapter(tmp_path, "https://127.0.0.1:1/v1"))


# Many at once, and the end


def test_fifty_calls_at_once_share_one_pool(tmp_path: Path) -> None:
    async def work() -> tuple[int, int]:
        async with OddServer(answer_of(True, "ok")) as server:
            bot = adapter(tmp_path, server.url)
            for _ in range(3):
                outputs = await asyncio.gather(
                    *(bot.invoke(an_input(), Heard()) for _ in range(50))
                )
                assert {one.content for one in outputs} == {"ok"}
            await bot.stop()
            return server.connections, len(server.requests)

    connections, requests = run(work())
    assert requests == 150
    assert connections <= 50


def test_a_cancelled_call_ends_its_request(tmp_path: Path) -> None:
    async def work() -> Heard:
        async with OddServer(stream(delta("half"), done=False, held=True)) as server:
            heard = Heard()
            bot = adapter(tmp_path, server.url)
            task = asyncio.create_task(bot.invoke(an_input(), heard))
            await until(lambda: bool(heard.text))
            task.cancel()
            await asyncio.wait({task})
            await server.cut_off.wait()
            await bot.stop()
            return heard

    assert run(work()).notes["partial"] == "half"


# Settings


@pytest.mark.parametrize(
    ("keys", "variable"),
    [
        ({}, "OPENAI_API_KEY"),
        ({"base_url": "https://api.openai.com/v1"}, "OPENAI_API_KEY"),
        ({"base_url": "http://api.openai.com/v1"}, ""),
        ({"base_url": "https://api.openai.com.example.org/v1"}, ""),
        ({"base_url": "https://gateway.example.org/v1"}, ""),
        ({"preset": "deepseek"}, "DEEPSEEK_API_KEY"),
        ({"preset": "deepseek", "base_url": "https://elsewhere.example.org"}, ""),
        ({"preset": "qwen"}, "DASHSCOPE_API_KEY"),
        (
            {
                "preset": "qwen",
                "base_url": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            },
            "DASHSCOPE_API_KEY",
        ),
        ({"preset": "openrouter"}, "OPENROUTER_API_KEY"),
        *(({"preset": name}, "") for name in ("ollama", "vllm", "llamacpp", "lmstudio")),
    ],
)
def test_a_key_is_implied_for_the_server_that_gave_it(keys: dict[str, Any], variable: str) -> None:
    implied = OpenAISettings.implied({"type": "openai", "model": "m", **keys})
    assert implied == ({"api_key": f"${{env:{variable}}}"} if variable else {})


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:1/v1/", "http://h:1/v1"),
        ("https://h/v1/chat/completions", "https://h/v1"),
        (" https://h ", "https://h"),
    ],
)
def test_an_address_is_read_as_it_is_meant(given: str, url: str) -> None:
    keys = {"type": "openai", "model": "m", "base_url": given}
    assert OpenAISettings.model_validate(keys).base_url == url


@pytest.mark.parametrize(
    "keys",
    [
        {"base_url": "localhost:11434"},
        {"base_url": "http://[1"},
        {"base_url": "http://h:port"},
        {"api_key": "ключ"},
        {"preset": "olama"},
        {"preset": ["ollama"]},
        {"model": ""},
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, Any]) -> None:
    OpenAISettings.implied(keys)  # it is asked before anything is checked
    with pytest.raises(ValidationError):
        OpenAISettings.model_validate({"type": "openai", "model": "m", **keys})


def test_a_remote_server_is_not_asked_for_its_health(tmp_path: Path) -> None:
    settings = OpenAISettings.model_validate({"type": "openai", "model": "m", "api_key": "k"})
    assert run(OpenAIAdapter(a_setup(tmp_path, settings)).health()).ok


def test_a_key_that_is_not_set_is_told_by_name(tmp_path: Path) -> None:
    arena = Program(tmp_path)
    arena.agent("dev", adapter={"type": "openai", "model": "m", "preset": "deepseek"})
    done = arena.run("send", "--session", "s", "@dev hi")
    assert done.code == 3
    assert "DEEPSEEK_API_KEY" in done.stdout + done.stderr
    assert arena.finished() == [("dev", "error")]


def test_every_preset_has_an_address() -> None:
    for preset in presets.PRESETS.values():
        assert preset.local is not bool(preset.key)
        assert preset.base_url.startswith("http://127.0.0.1:" if preset.local else "https://")
