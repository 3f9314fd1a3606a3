"""Models behind Anthropic's API, called through the adapter: what is sent, what counts, what fails.

Against the independent `llmock`, a real small model, and a server that answers word for word.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic_events as wire
import llmock_server
import pytest
from adapter_setups import PATIENCE_S, Heard, a_setup, an_input, cancelled, until
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
    AnthropicAdapter,
    AnthropicSettings,
    Attachment,
    ShownMessage,
)
from pydantic import ValidationError
from scripted_api import Answer, ScriptedApi, events, failure, sse
from small_model import SmallModel, small_model_fixture  # noqa: F401 - a fixture
from support import Talk, member, team

MODEL = "claude-opus-4-6"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)


def settings(base_url: str, **keys: Any) -> AnthropicSettings:
    given = {"type": "anthropic", "model": MODEL, "base_url": base_url, **keys}
    return AnthropicSettings.model_validate(given)


async def with_adapter(
    folder: Path, shape: AnthropicSettings, use: Callable[[AnthropicAdapter], Awaitable[Any]]
) -> Any:
    adapter = AnthropicAdapter(a_setup(folder, shape))
    await adapter.start()
    try:
        return await use(adapter)
    finally:
        await adapter.stop()


def asked(
    base_url: str, heard: Heard | None = None, input: AgentInput | None = None, **keys: Any
) -> AgentOutput:
    """What the agent answers to one call."""

    async def once(adapter: AnthropicAdapter) -> AgentOutput:
        return await adapter.invoke(input or an_input(), heard or Heard())

    folder = keys.pop("folder", Path.cwd())
    output: AgentOutput = asyncio.run(with_adapter(folder, settings(base_url, **keys), once))
    return output


def failed(base_url: str, heard: Heard | None = None, **keys: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        asked(base_url, heard, **keys)
    assert "\n" not in str(caught.value)
    return caught.value


def streamed(*some: wire.Event, **keys: Any) -> AgentOutput:
    with ScriptedApi(events(*some)).running() as api:
        return asked(api.url, **keys)


def test_an_answer_of_llmock() -> None:
    api, heard = llmock_server.fresh(), Heard()
    api.reply("你好，我在。 All is well.")
    output = asked(api.base_url("anthropic"), heard)
    assert output.content == heard.text == "你好，我在。 All is well."
    assert output.should_respond
    assert output.usage is not None
    assert output.usage.input_tokens > 0
    assert output.usage.output_tokens > 0
    assert [event.status for event in heard.statuses] == ["generating"]
    assert output.metadata["raw"]["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, AgentRefused),
        (401, AgentRefused),
        (403, AgentRefused),
        (404, AgentRefused),
        (413, AgentRefused),
        (429, AgentOverloaded),
        (500, AgentUnavailable),
        (503, AgentOverloaded),
        (529, AgentOverloaded),
    ],
)
def test_a_status_is_the_right_failure_and_is_asked_once(
    status: int, kind: type[AgentError]
) -> None:
    api = llmock_server.fresh()
    api.fail(status, times=None)
    error = failed(api.base_url("anthropic"))
    assert type(error) is kind
    assert str(status) in str(error)
    assert error.metadata["raw"]["type"] == "error"
    assert len(api.requests) == 1  # the SDK tries nothing again by itself


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_c22_a_stream_that_breaks_is_never_an_answer(fault: str, after: int) -> None:
    api, heard = llmock_server.fresh(), Heard()
    api.reply("one two three four five")
    getattr(api, fault)(after_chunks=after)
    error = failed(api.base_url("anthropic"), heard)
    assert type(error) is AgentProtocolError
    assert heard.text == ("one two " if after == 5 else "")
    if after == 5:
        assert error.metadata["raw"]["content"][0]["text"] == "one two "


def test_a_stream_that_stalls_can_be_cut_off() -> None:
    api, heard = llmock_server.fresh(), Heard()
    api.reply("one two three").stall(after_chunks=4, seconds=600)

    async def cut_off(adapter: AnthropicAdapter) -> None:
        task = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until(lambda: bool(heard.text))
        await cancelled(task)

    asyncio.run(with_adapter(Path.cwd(), settings(api.base_url("anthropic")), cut_off))
    assert heard.text == "one "


@pytest.mark.parametrize("status", [0, 200])
def test_a_call_that_is_cut_off_ends_its_request(status: int) -> None:
    begun = sse([wire.begin(), *wire.text("half an ans")[:3]])
    held = Answer(begun, status, {"content-type": "text/event-stream"}, hold=True)

    async def cut_off(adapter: AnthropicAdapter) -> str:
        heard = Heard()
        task = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until(lambda: bool(heard.text if status else api.sent))
        await cancelled(task)
        assert await asyncio.to_thread(api.hung_up.wait, PATIENCE_S)
        return heard.text

    with ScriptedApi(held).running() as api:
        text = asyncio.run(with_adapter(Path.cwd(), settings(api.url), cut_off))
    assert text == ("half an ans" if status else "")


@pytest.mark.parametrize(
    ("given", "wait"), [("3", 3.0), ("86400", 86400.0), ("Wed, 01 Jan 2020 00:00:00 GMT", 0.0)]
)
def test_c21_how_long_to_wait_is_told(given: str, wait: float) -> None:
    busy = failure(429, wire.error("rate_limit_error", "slow down"), retry_after=given)
    with ScriptedApi(busy).running() as api:
        error = failed(api.url)
    assert isinstance(error, AgentOverloaded)
    assert error.retry_after == wait
    assert "slow down" in error.came


@pytest.mark.parametrize("pieces", [(), ("Well, ",)])
def test_c22_overload_in_a_stream_is_tried_again_only_if_nothing_was_said(
    pieces: tuple[str, ...],
) -> None:
    said = wire.text(*pieces)[:-1] if pieces else []
    with ScriptedApi(
        events(wire.begin(), *said, wire.error("overloaded_error", "Overloaded"))
    ).running() as api:
        error = failed(api.url)
    assert isinstance(error, AgentOverloaded)
    assert error.again is (not pieces)
    assert ("on_failure" in error.mend) is error.again


def test_usage_counts_what_the_cache_gave_and_took_and_costs_money() -> None:
    rates = {
        "input_per_m": 5,
        "output_per_m": 25,
        "cache_read_per_m": 0.5,
        "cache_write_per_m": 6.25,
    }
    usage = streamed(*wire.whole("hi"), pricing=rates).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (12, 15)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (2000, 300)
    assert usage.cost_usd == pytest.approx((12 * 5 + 15 * 25 + 2000 * 0.5 + 300 * 6.25) / 1e6)
    listed = streamed(*wire.whole("hi")).usage
    assert listed is not None
    assert listed.cost_usd == pytest.approx(usage.cost_usd)
    unknown = streamed(*wire.whole("hi"), model="smollm2").usage
    assert unknown is not None
    assert unknown.cost_usd is None
    free = streamed(*wire.whole("hi"), model="smollm2", pricing="free").usage
    assert free is not None
    assert free.cost_usd == 0.0


def test_a_server_that_counts_nothing_leaves_the_usage_unknown() -> None:
    uncounted = {**wire.begin()["message"], "usage": None}
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    some = [{"type": "message_start", "message": uncounted}, *wire.text("hi"), ended]
    assert streamed(*some).usage is None


def test_thinking_is_kept_beside_the_answer_and_not_in_it() -> None:
    heard = Heard()
    some = [wire.begin(), *wire.thinking("ask ", "@bob?"), *wire.text("Yes.", index=1), *wire.end()]
    with ScriptedApi(events(*some, request_id="req_7")).running() as api:
        output = asked(api.url, heard, thinking=2048)
        assert api.sent[0].body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
        assert api.sent[0].body["max_tokens"] == 2000 + 2048
    assert (output.content, heard.text) == ("Yes.", "Yes.")
    assert output.metadata["thinking"] == "ask @bob?"
    assert [event.status for event in heard.statuses] == ["analyzing", "generating"]
    assert output.metadata["request_id"] == "req_7"
    assert "c2lnbmVk" not in json.dumps(output.metadata)


@pytest.mark.parametrize(
    ("keys", "max_tokens", "way"),
    [
        ({}, 2000, None),
        ({"model": "claude-3-5-haiku-latest"}, 2000, None),
        ({"model": "claude-sonnet-5"}, 18_000, None),
        ({"model": "claude-opus-5-5", "max_tokens": 900}, 900, None),
        ({"model": "claude-opus-5", "thinking": "disabled"}, 2000, {"type": "disabled"}),
        ({"thinking": "adaptive"}, 18_000, {"type": "adaptive", "display": "summarized"}),
        ({"thinking": 1024, "max_tokens": 1500}, 1500, {"type": "enabled", "budget_tokens": 1024}),
    ],
)
def test_max_tokens_leaves_room_for_thinking(
    keys: dict[str, Any], max_tokens: int, way: dict[str, Any] | None
) -> None:
    with ScriptedApi(events(*wire.whole("ok"))).running() as api:
        asked(api.url, **keys)
        body = api.sent[0].body
    assert body["max_tokens"] == max_tokens
    assert body.get("thinking") == way
    assert "temperature" not in body


def test_a_temperature_is_sent_only_where_one_is_set() -> None:
    with ScriptedApi(events(*wire.whole("ok"))).running() as api:
        asked(api.url, temperature=0.2)
        assert api.sent[0].body["temperature"] == 0.2


@pytest.mark.parametrize(
    "keys",
    [
        {"thinking": 4096, "max_tokens": 4096},
        {"thinking": 1000},
        {"thinking": "deeply"},
        {"thinking": "adaptive", "temperature": 0.2},
        {"temperature": 1.5},
        {"base_url": "api.anthropic.com"},
        {"model": ""},
    ],
)
def test_keys_that_the_api_would_refuse_are_refused_at_once(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**{"base_url": "https://api.anthropic.com", **keys})


@pytest.mark.parametrize(
    ("blocks", "content", "responds"),
    [
        (wire.tool("pass"), "", False),
        (wire.tool("pass", "{", "}"), "", False),
        ([*wire.text(" \n"), *wire.tool("pass", index=1)], "", False),
        ([*wire.text("But yes."), *wire.tool("pass", index=1)], "But yes.", True),
    ],
)
def test_an_agent_passes_by_a_tool_and_a_real_answer_beside_it_counts(
    blocks: list[wire.Event], content: str, responds: bool
) -> None:
    output = streamed(wire.begin(), *blocks, *wire.end("tool_use"))
    assert (output.content, output.should_respond) == (content, responds)


def test_a_tool_that_nobody_gave_is_no_answer() -> None:
    with ScriptedApi(
        events(
            *[wire.begin(), *wire.text("Let me look."), *wire.tool("web", '{"q":"x"}', index=1)],
            *wire.end("tool_use"),
        )
    ).running() as api:
        error = failed(api.url)
    assert type(error) is AgentProtocolError
    assert "web" in error.what
    assert error.metadata["raw"]["content"][1]["input"] == {"q": "x"}


def test_a_refusal_is_told_with_its_reason() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    with ScriptedApi(
        events(wire.begin(), *wire.text("I"), *wire.end("refusal", stop_details=details))
    ).running() as api:
        error = failed(api.url)
    assert type(error) is AgentRefused
    assert error.came == "bio: Not this."


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("max_tokens", "cut off at max_tokens"),
        ("model_context_window_exceeded", "cut off at the end of the model's context window"),
        ("compaction", "compaction"),
    ],
)
def test_a_cut_answer_is_never_whole_and_a_cut_decision_is_not_mended(
    reason: str, told: str
) -> None:
    heard = Heard()
    cut = '{"should_respond": false, "content": "so'
    with ScriptedApi(events(wire.begin(), *wire.text(cut), *wire.end(reason))).running() as api:
        error = failed(api.url, heard)
    assert type(error) is AgentProtocolError
    assert told in error.what
    assert heard.text == cut
    assert not error.again
    assert heard.usage
    assert heard.usage.output_tokens > 0


def test_a_paused_answer_goes_on_where_it_paused() -> None:
    heard = Heard()
    first = [wire.begin(), *wire.thinking("hm"), *wire.text("One, ", index=1)]
    with ScriptedApi(
        events(*first, *wire.end("pause_turn")), events(*wire.whole("two."))
    ).running() as api:
        output = asked(api.url, heard)
        before, after = (sent.body["messages"] for sent in api.sent)
    assert output.content == heard.text == "One, two."
    assert after[:-1] == before
    said = [
        {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
        {"type": "text", "text": "One, "},
    ]
    assert after[-1] == {"role": "assistant", "content": said}
    assert output.usage is not None
    assert output.usage.output_tokens == 30
    assert len(output.metadata["raw"]) == 2


def test_an_answer_that_pauses_for_ever_is_left() -> None:
    with ScriptedApi(events(wire.begin(), *wire.end("pause_turn"))).running() as api:
        error = failed(api.url)
        assert len(api.sent) == 6
    assert type(error) is AgentProtocolError


@pytest.mark.parametrize(
    "some",
    [
        [],
        [{"type": "ping"}],
        [*wire.text("no beginning")],
        [wire.begin(), {"type": "content_block_delta", "delta": {"type": "text_delta"}}],
        [wire.begin(), {"type": "content_block_start"}],
        [wire.begin(), *wire.text("no end")],
        [wire.begin(), *wire.text("no reason"), {"type": "message_stop"}],
    ],
)
def test_events_of_another_shape_are_no_answer(some: list[wire.Event]) -> None:
    with ScriptedApi(events(*some)).running() as api:
        assert type(failed(api.url)) is AgentProtocolError


def test_events_that_are_not_known_are_passed_over() -> None:
    unknown = {"type": "content_block_delta", "index": 0, "delta": {"type": "later_delta"}}
    text = wire.text("fine")
    some = [wire.begin(), {"type": "later"}, *text[:2], unknown, *text[2:], *wire.end()]
    assert streamed(*some).content == "fine"


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (
            Answer(b"<html><title>Sign in</title>", headers={"content-type": "text/html"}),
            *(AgentProtocolError, "a web page"),
        ),
        (
            Answer(b"<!doctype html><h1>Bad", 502, headers={"content-type": "text/html"}),
            *(AgentUnavailable, "a proxy in between"),
        ),
        (failure(200, {"content": "hello"}), AgentProtocolError, "instead of an answer"),
        (
            failure(400, wire.error("invalid_request_error", "prompt is too long: 9 > 8")),
            *(AgentRefused, "too long for the model"),
        ),
        (
            failure(404, wire.error("not_found_error", "model: claude-x")),
            *(AgentRefused, MODEL),
        ),
        (failure(401, wire.error("authentication_error", "invalid")), AgentRefused, "key"),
    ],
)
def test_what_stands_in_for_an_answer_is_named(
    answer: Answer, kind: type[AgentError], told: str
) -> None:
    with ScriptedApi(answer).running() as api:
        error = failed(api.url)
    assert type(error) is kind
    assert told in str(error)


def test_nobody_at_the_address() -> None:
    with ScriptedApi(events()).running() as api:
        url = api.url
    error = failed(url)
    assert type(error) is AgentUnavailable
    assert url.removeprefix("http://") in error.what


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_a_certificate_that_is_not_trusted_and_how_to_trust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    made = tmp_path / "own.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=own -addext"
    subprocess.run(
        [
            *("openssl", *words.split(), "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(made), "-out", str(tmp_path / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    certificate = (tmp_path / "cert.pem").read_text("ascii")
    made.write_text(made.read_text("ascii") + certificate, "ascii")
    with ScriptedApi(events(*wire.whole("ok"))).running(certificate=made) as api:
        error = failed(api.url)
        assert type(error) is AgentUnavailable
        assert "certificate" in error.what
        assert "SSL_CERT_FILE" in error.mend
        assert any(isinstance(one, ssl.SSLError) for one in causes(error))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert asked(api.url).content == "ok"


def test_no_key_of_the_environment_goes_to_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-of-the-tester")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/never")
    with ScriptedApi(events(*wire.whole("ok"))).running() as api:
        assert asked(api.url).content == "ok"
        asked(f"{api.url}/v1/", api_key="local-key-1\n")
        first, second = api.sent
    assert "sk-of-the-tester" not in json.dumps(first.headers)
    assert "local-key-1" in sent_key(second.headers)
    assert first.path == second.path == "/v1/messages"


def sent_key(headers: dict[str, str]) -> str:
    kept = {name.lower(): value for name, value in headers.items()}
    return kept.get("x-api-key", "") + kept.get("authorization", "")


@pytest.mark.parametrize(
    ("given", "implied"),
    [
        ({}, True),
        ({"base_url": "https://gateway.example/anthropic"}, True),
        ({"base_url": "${env:WHERE}"}, True),
        ({"base_url": "http://[broken"}, True),
        ({"base_url": "http://127.0.0.1:8080"}, False),
        ({"base_url": "http://localhost:8080"}, False),
        ({"base_url": "http://[::1]:8080"}, False),
    ],
)
def test_the_key_comes_from_the_environment_save_on_this_machine(
    given: dict[str, Any], implied: bool
) -> None:
    key = {"api_key": "${env:ANTHROPIC_API_KEY}"}
    assert AnthropicSettings.implied(given) == (key if implied else {})


def test_health_says_what_is_missing_and_calls_nobody(tmp_path: Path) -> None:
    def health(**keys: Any) -> tuple[bool, str]:
        shape = settings(**{"base_url": "https://api.anthropic.com", **keys})
        return asyncio.run(AnthropicAdapter(a_setup(tmp_path, shape)).health())

    assert health(api_key="sk-ant-x") == (True, "")
    assert health(base_url="http://127.0.0.1:9") == (True, "")
    well, detail = health(api_key=" ")
    assert not well
    assert "set ANTHROPIC_API_KEY in" in detail
    assert "https://console.anthropic.com/settings/keys" in detail
    assert not health(api_key="sk-“quoted”")[0]


def test_health_says_where_the_package_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    adapter = AnthropicAdapter(a_setup(tmp_path, settings("http://127.0.0.1:9")))
    well, detail = asyncio.run(adapter.health())
    assert not well
    assert "pip install" in detail


def test_an_agent_without_a_key_is_unavailable(tmp_path: Path) -> None:
    adapter = AnthropicAdapter(a_setup(tmp_path, settings("https://api.anthropic.com")))
    with pytest.raises(AgentUnavailable, match="ANTHROPIC_API_KEY"):
        asyncio.run(adapter.start())


def test_what_is_attached_is_sent_as_blocks(tmp_path: Path) -> None:
    contents = {
        "pixel.png": PIXEL,
        "paper.pdf": b"%PDF-1.7 \xff\xfe",
        "说明.md": "先看这里".encode(),
        "empty.txt": b"",
        "tool.bin": b"\x00\xff\xfe",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    attachments = [Attachment(name=name, path=name) for name in [*contents, "gone.txt"]]
    shown = an_input().messages[0].model_copy(update={"attachments": attachments})
    with ScriptedApi(events(*wire.whole("ok"))).running() as api:
        asked(api.url, folder=tmp_path, input=an_input(messages=[shown]))
        (turn,) = api.sent[0].body["messages"]
    image, paper, text = [block for block in turn["content"] if block["type"] != "text"]
    assert base64.b64decode(image["source"]["data"]) == PIXEL
    assert image["source"]["media_type"] == "image/png"
    assert (paper["title"], paper["source"]["media_type"]) == ("paper.pdf", "application/pdf")
    assert base64.b64decode(paper["source"]["data"]) == contents["paper.pdf"]
    assert (text["title"], text["source"]["data"]) == ("说明.md", "先看这里")
    told = [block["text"] for block in turn["content"] if "cannot be shown" in str(block)]
    assert [one.split('"')[1] for one in told] == ["empty.txt", "tool.bin", "gone.txt"]
    assert [one.rpartition("it is ")[2][:7] for one in told] == ["empty.", "neither", "gone, o"]
    assert turn["content"][-2]["cache_control"]  # the last before what is asked


@pytest.mark.parametrize("status", [302, 307])
def test_the_conversation_follows_nobody_to_another_server(status: int) -> None:
    with ScriptedApi(events(*wire.whole("ok"))).running() as other:
        away = Answer(b"", status, headers={"location": f"{other.url}/v1/messages"})
        with ScriptedApi(away).running() as api:
            error = failed(api.url)
        assert not other.sent
    assert f"{status} {other.url}" in error.came
    assert "base_url" in error.mend


def test_a_login_in_the_address_is_not_told() -> None:
    error = failed("http://me:open-sesame@127.0.0.1:9")
    assert "open-sesame" not in str(error)
    assert "POST http://127.0.0.1:9/v1/messages" in str(error)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert streamed(*wire.whole("ok")).content == "ok"


@pytest.mark.parametrize(
    ("name", "value"), [("SSL_CERT_FILE", "/gone.pem"), ("HTTPS_PROXY", "gopher://x")]
)
def test_an_environment_that_cannot_be_used_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    error = failed("https://api.example.invalid")
    assert isinstance(error, AgentUnavailable)
    assert name in error.mend


def test_an_account_without_credit_is_named() -> None:
    said = wire.error("invalid_request_error", "Your credit balance is too low")
    with ScriptedApi(failure(400, said)).running() as api:
        error = failed(api.url)
    assert isinstance(error, AgentRefused)
    assert "top up" in error.mend


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ("", "error"),
        (" \n\t", "error"),
        ("<pass/>", "declined"),
        ('{"should_respond": "No"}', "declined"),
        ('{"should_respond": "maybe", "content": "x"}', "error"),
        ('Here:\n```json\n{"should_respond": false}\n```', "success"),
        ('```json\n{"should_respond": true, "content": "```json\\n{}\\n```"}\n```', "success"),
        ('<think>ask @bob? {"should_respond":true}</think>{"should_respond":false}', "declined"),
        ("<think>for ever", "error"),
    ],
)
def test_c16_c17_c19_what_it_says_is_read_as_everybodys_is(
    tmp_path: Path, content: str, status: str
) -> None:
    with ScriptedApi(events(*wire.whole(content))).running() as api:
        adapter = {"type": "anthropic", "model": MODEL, "base_url": api.url}
        talk = Talk(tmp_path, team(member("bot", adapter=adapter)))
        talk.send("@bot go")
    assert talk.outcomes() == [("bot", status)]


def said(number: int, author: str, text: str) -> ShownMessage:
    message = an_input(text).messages[0]
    role = "assistant" if author == "bot" else "user"
    changes = {"id": f"m{number}", "author_id": author, "author_name": author, "role": role}
    return message.model_copy(update={**changes, "author_type": "agent"})


def test_c25_peers_are_one_turn_of_the_user_and_roles_alternate() -> None:
    texts = [("user", "go"), ("a", "1"), ("b", "2"), ("c", "3"), ("bot", "4"), ("a", "5")]
    messages = [said(number, *text) for number, text in enumerate(texts)]
    with ScriptedApi(events(*wire.whole("ok"))).running() as api:
        asked(api.url, input=an_input(messages=messages, trigger=["m5"]))
        body = api.sent[0].body
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    (own,) = body["messages"][1]["content"]
    assert own == {"type": "text", "text": "4", "cache_control": {"type": "ephemeral"}}
    folded = "\n".join(block["text"] for block in body["messages"][0]["content"])
    for author, text in texts[:4]:
        assert f"(@{author})\n> {text}" in folded
    assert all(block["text"].strip() for turn in body["messages"] for block in turn["content"])


def test_fifty_calls_at_once_share_one_pool() -> None:
    async def twice(adapter: AnthropicAdapter) -> list[AgentOutput]:
        answers: list[AgentOutput] = []
        for _ in range(2):
            calls = [adapter.invoke(an_input(), Heard()) for _ in range(50)]
            answers += await asyncio.gather(*calls)
        return answers

    with ScriptedApi(events(*wire.whole("ok")), together=50).running() as api:
        answers = asyncio.run(with_adapter(Path.cwd(), settings(api.url), twice))
        assert api.connections == 50
        assert len(api.sent) == 100
    assert {answer.content for answer in answers} == {"ok"}


def test_a_real_small_model(small_model: SmallModel) -> None:
    heard = Heard()
    output = asked(small_model.url, heard, model=small_model.name, max_tokens=100)
    assert output.content
    assert output.content == heard.text
    assert output.usage is not None
    assert output.usage.input_tokens > 0
    assert output.usage.output_tokens > 0
    assert output.usage.cost_usd is None
    error = failed(small_model.url, model=small_model.name, max_tokens=2)
    assert "cut off" in error.what
