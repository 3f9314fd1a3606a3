"""Agents behind APIs that call tools, from the command line: the whole way, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic_events as wire
import llmock_server
import pytest
from program import Done, Program, until
from scripted_api import Answer, ScriptedApi, events, failure

KEY = "sk-test-of-arena-4711"
PRICE = {"input_per_m": 1.0, "output_per_m": 10.0, "cache_read_per_m": 0, "cache_write_per_m": 0}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def chunks(*deltas: dict[str, Any], finish: str) -> Answer:
    """A stream of OpenAI's protocol."""
    some = [{"choices": [{"index": 0, "delta": one}]} for one in deltas]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}
    lines = [f"data: {json.dumps(one)}\n\n" for one in (*some, last, usage)]
    body = "".join([*lines, "data: [DONE]\n\n"]).encode()
    return Answer(body, headers={"content-type": "text/event-stream"})


def function(arguments: str, index: int = 0, **more: Any) -> dict[str, Any]:
    named = {"name": "list_members", "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": named, **more}]}


CALLING = {
    "anthropic": events(
        wire.begin(),
        *wire.text("Who is here?"),
        *wire.tool("list_members", "{", "}", index=1),
        *wire.end("tool_use"),
    ),
    "openai": chunks({"content": "Who is here?"}, function("{}", id="c1"), finish="tool_calls"),
    "json": chunks(
        {"content": 'Who is here?\n{"calls": [{"tool": "list_members", "arguments": {}}]}'},
        finish="stop",
    ),
}
DONE = {
    "anthropic": events(*wire.whole("It is bot and peer.")),
    "openai": chunks({"content": "It is bot and peer."}, finish="stop"),
    "json": chunks({"content": "It is bot and peer."}, finish="stop"),
}
WAYS = pytest.mark.parametrize("way", ["anthropic", "openai", "json"])


def add_bot(program: Program, way: str, url: str, **profile: Any) -> None:
    """A team of an agent with the tool `list_members`, and of one that is scripted."""
    base_url = url if way == "anthropic" else f"{url}/v1"
    kind = "anthropic" if way == "anthropic" else "openai"
    adapter = {"type": kind, "model": "m", "base_url": base_url, "pricing": PRICE}
    mode = {"tools_mode": "json"} if way == "json" else {}
    adapter = {**adapter, **mode, **profile.pop("adapter", {})}
    program.agent("bot", adapter=adapter, tools=["list_members"], **profile)
    program.agent("peer", {"say": "fine"}).team()


def send(program: Program, *args: str) -> Done:
    return program.run("send", "-s", "s", "@bot who is here?", *args)


def shown(body: dict[str, Any]) -> str:
    """The result of the only call, as the model is shown it in this request."""
    content = body["messages"][-1]["content"]
    if isinstance(content, list):
        text: str = content[0]["content"][0]["text"]
        return text
    return str(content).rpartition("\n> ")[2]


def of(program: Program, kind: str) -> list[dict[str, Any]]:
    return [record for record in program.records() if record["type"] == kind]


@WAYS
def test_an_agent_calls_a_tool_and_answers_with_its_result(program: Program, way: str) -> None:
    with ScriptedApi(CALLING[way], DONE[way]).running() as api:
        add_bot(program, way, api.url)
        done = send(program)
        first, second = (sent.body for sent in api.sent)
    assert done.code == 0, done.stdout + done.stderr
    (asked,), (result,) = of(program, "tool_requested"), of(program, "tool_finished")
    assert (asked["tool"], asked["call"]) == ("list_members", "1")
    assert result["status"] == "ok"
    assert [member["id"] for member in json.loads(result["result"])] == ["bot", "peer"]
    assert shown(second) == result["result"]
    assert [thought["text"] for thought in of(program, "thought")] == ["Who is here?"]
    (reply,) = of(program, "reply_finished")
    assert reply["message"]["content"] == "It is bot and peer."
    (end,) = of(program, "agent_ended")
    assert (end["mode"], end["turns"]) == ("goal", 2)
    assert len(second["messages"]) == len(first["messages"]) + 2


@WAYS
def test_the_usage_and_the_cost_of_all_turns_add_up(program: Program, way: str) -> None:
    with ScriptedApi(CALLING[way], DONE[way]).running() as api:
        add_bot(program, way, api.url)
        send(program)
    (reply,) = of(program, "reply_finished")
    usage = reply["usage"]
    if way == "anthropic":
        assert (usage["input_tokens"], usage["output_tokens"]) == (24, 30)
        assert usage["cost_usd"] == pytest.approx((24 * 1 + 30 * 10) / 1e6)
    else:
        assert (usage["input_tokens"], usage["output_tokens"]) == (200, 20)
        assert usage["cost_usd"] == pytest.approx((200 * 1 + 20 * 10) / 1e6)


@WAYS
@pytest.mark.parametrize("status", [429, 529])
def test_an_overloaded_turn_is_tried_again_with_the_same_steps(
    program: Program, way: str, status: int
) -> None:
    busy = failure(status, wire.error("overloaded_error", "busy"), retry_after="0")
    with ScriptedApi(CALLING[way], busy, DONE[way]).running() as api:
        add_bot(program, way, api.url, on_failure="retry")
        done = send(program)
        _, refused, again = (sent.body for sent in api.sent)
    assert done.code == 0, done.stdout + done.stderr
    assert refused == again
    assert len(of(program, "tool_requested")) == len(of(program, "tool_finished")) == 1
    (reply,) = of(program, "reply_finished")
    assert (reply["status"], reply["attempts"]) == ("success", 2)
    assert reply["usage"]["output_tokens"] == (30 if way == "anthropic" else 20)


def test_after_a_kill_the_reply_continues_with_the_steps_so_far(program: Program) -> None:
    held = CALLING["anthropic"]._replace(body=b"", hold=True)
    with ScriptedApi(CALLING["anthropic"], held, DONE["anthropic"]).running() as api:
        add_bot(program, "anthropic", api.url, adapter={"thinking": "adaptive"})
        running = program.start("send", "-s", "s", "@bot who is here?")
        until(lambda: len(api.sent) == 2)
        running.kill()
        program.finish(running)
        done = program.run("resume", "s")
        before, after = (sent.body["messages"] for sent in api.sent[1:])
    assert done.code == 0, done.stdout + done.stderr
    assert [turn["role"] for turn in before] == ["user", "assistant", "user"]
    assert [turn["role"] for turn in after] == ["user"]
    told = after[0]["content"][-1]["text"]
    (result,) = of(program, "tool_finished")
    assert told.endswith(f"\n> {result['result']}")
    assert "> Who is here?" in told
    (reply,) = of(program, "reply_finished")
    assert reply["message"]["content"] == "It is bot and peer."


@pytest.mark.parametrize("way", ["anthropic", "openai"])
def test_arguments_that_are_no_json_go_back_to_the_model(program: Program, way: str) -> None:
    broken = {
        "anthropic": events(
            wire.begin(), *wire.tool("list_members", '{"a": ', KEY), *wire.end("tool_use")
        ),
        "openai": chunks(function('{"a": ' + KEY), finish="tool_calls"),
    }
    program.env["BOT_KEY"] = KEY
    with ScriptedApi(broken[way], DONE[way]).running() as api:
        add_bot(program, way, api.url, adapter={"api_key": "${env:BOT_KEY}"})
        done = send(program)
        told = json.dumps(api.sent[-1].body["messages"][-1])
    assert done.code == 0, done.stdout + done.stderr
    (asked,), (result,) = of(program, "tool_requested"), of(program, "tool_finished")
    assert "are no JSON" in asked["problem"]
    assert result["status"] == "error"
    assert "are no JSON" in told
    assert KEY not in program.written()


def test_arguments_with_half_a_character_are_written_and_answered(program: Program) -> None:
    half = chunks(function('{"name": "a\\ud800b\\u0000"}'), finish="tool_calls")
    with ScriptedApi(half, DONE["openai"]).running() as api:
        add_bot(program, "openai", api.url)
        done = send(program)
    assert done.code == 0, done.stdout + done.stderr
    (asked,) = of(program, "tool_requested")
    assert asked["arguments"]["name"].startswith("a\ufffdb")
    assert program.finished() == [("bot", "success")]


def test_a_server_that_cannot_call_tools_is_an_error_with_the_key_to_set(program: Program) -> None:
    said = {"error": {"message": "m does not support tools"}}
    with ScriptedApi(failure(400, said)).running() as api:
        add_bot(program, "openai", api.url, on_failure="retry")
        done = send(program)
        assert len(api.sent) == 1
    assert "set `tools_mode: json`" in " ".join(done.stdout.split())
    assert program.finished() == [("bot", "error")]


@pytest.mark.parametrize("way", ["anthropic", "openai"])
def test_llmock_calls_a_tool(program: Program, way: str) -> None:
    api = llmock_server.fresh().call_tool("list_members", {}, text="Who?").reply("Two of us.")
    url = api.base_url(way)
    add_bot(program, way, url.removesuffix("/v1"))
    done = send(program)
    assert done.code == 0, done.stdout + done.stderr
    assert [one["status"] for one in of(program, "tool_finished")] == ["ok"]
    (reply,) = of(program, "reply_finished")
    assert reply["message"]["content"] == "Two of us."
    assert len(api.requests) == 2


def test_examples_come_before_the_first_message(program: Program) -> None:
    examples = [{"user": "2 + 2?"}, {"agent": "4."}, {"user": "And 3 + 3?"}, {"agent": "6."}]
    with ScriptedApi(DONE["anthropic"]).running() as api:
        add_bot(program, "anthropic", api.url, examples=examples)
        send(program)
        turns = api.sent[0].body["messages"]
    texts = [(turn["role"], [block["text"] for block in turn["content"]]) for turn in turns]
    assert [role for role, _ in texts] == ["user", "assistant", "user", "assistant", "user"]
    assert texts[0][1][-1] == "2 + 2?"
    assert texts[1:4] == [("assistant", ["4."]), ("user", ["And 3 + 3?"]), ("assistant", ["6."])]
    assert texts[4][1][0] == "The example ends here."
    assert "@bot who is here?" in texts[4][1][2]
