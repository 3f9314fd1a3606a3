"""Models behind Anthropic's API in a team, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic_events as wire
import pytest
from program import Program
from scripted_api import ScriptedApi, events, failure
from small_model import SmallModel, small_model_fixture  # noqa: F401 - a fixture
from support import Talk, member, team

KEY = "sk-test-of-arena-4711"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, env={"ANTHROPIC_API_KEY": KEY})


def adapter(base_url: str, **keys: Any) -> dict[str, Any]:
    return {"type": "anthropic", "model": "claude-opus-4-6", "base_url": base_url, **keys}


def blocks(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """All that the API reads, in its order: each block's bytes, and whether the cache keeps it."""
    for tool in body["tools"]:
        yield json.dumps(tool), False
    for role, some in [
        ("system", body["system"]),
        *((turn["role"], turn["content"]) for turn in body["messages"]),
    ]:
        for block in some:
            kept = block.pop("cache_control", None)
            assert kept in (None, {"type": "ephemeral"})
            yield role + json.dumps(block), kept is not None


def test_the_next_call_of_a_session_reads_what_the_last_one_wrote_to_the_cache(
    tmp_path: Path,
) -> None:
    with ScriptedApi(events(*wire.whole("我看过了。 @peer"))).running() as api:
        bot = member("bot", adapter=adapter(api.url))
        talk = Talk(tmp_path, team(bot, member("peer", [{"say": "thanks"}]), selection="none"))
        for message in ("@bot 第一个问题", "@bot 还有第二个", "@peer @bot third", "@bot last"):
            assert talk.send(message).end == "quiet"
        bodies = [sent.body for sent in api.sent]
    assert len(bodies) == 4
    assert len({(body["model"], json.dumps(body["tool_choice"])) for body in bodies}) == 1
    before: list[tuple[str, bool]] = []
    for body in bodies:
        assert json.dumps(body).count("cache_control") <= 4
        now = list(blocks(body))
        kept = [place for place, (_, is_kept) in enumerate(now) if is_kept]
        written = [place for place, (_, is_kept) in enumerate(before) if is_kept]
        for place in written:
            assert [text for text, _ in now[: place + 1]] == [t for t, _ in before[: place + 1]]
        if written:  # the last that was written lies within reach of a mark of this call
            assert any(0 <= place - written[-1] < 20 for place in kept)
        assert kept[0] == 1  # the tool and the system text
        assert kept[-1] == len(now) - 2  # all but what is asked now
        before = now
    own = [turn for turn in bodies[-1]["messages"] if turn["role"] == "assistant"]
    assert [turn["content"][0]["text"] for turn in own] == ["我看过了。 @peer"] * 3


def test_another_process_sends_the_same_prefix(program: Program) -> None:
    with ScriptedApi(events(*wire.whole("Yes."))).running() as api:
        program.agent("bot", adapter=adapter(api.url), role_prompt="你是架构师。").team()
        for message in ("one", "two"):
            program.run("send", "-s", "s", message).check(code=0)
        first, second = ([text for text, _ in blocks(sent.body)] for sent in api.sent)
    assert second[: len(first) - 1] == first[:-1]


def test_a_wrong_key_is_one_line_of_that_agent_and_harms_nobody(program: Program) -> None:
    said = wire.error("authentication_error", f"invalid key {KEY}")
    with ScriptedApi(failure(401, said, request_id="req_1")).running() as api:
        program.agent("bot", adapter=adapter(api.url, api_key="${env:ANTHROPIC_API_KEY}"))
        program.agent("peer", {"say": "fine"}).team()
        done = program.run("send", "-s", "s", "@bot @peer hello")
        assert json.dumps(api.sent[0].headers).count(KEY) == 1
    assert done.code == 0
    (line,) = [line for line in done.stdout.splitlines() if "does not accept the key" in line]
    assert line.strip().startswith("bot: ")
    assert dict(program.finished()) == {"bot": "error", "peer": "success"}
    (reply,) = [one for one in program.records() if one.get("error")]
    assert reply["metadata"]["request_id"] == "req_1"
    assert KEY not in done.stdout + done.stderr + program.written()


def test_a_missing_key_is_named_before_anything_is_called(program: Program) -> None:
    program.env = {}
    program.agent("bot", adapter={"type": "anthropic", "model": "claude-opus-4-6"})
    done = program.run("agents", "check")
    assert done.code == 1
    assert "ANTHROPIC_API_KEY is not set" in done.stdout
    program.env = {"ANTHROPIC_API_KEY": ""}
    done = program.run("agents", "check", "--connect")
    assert "https://console.anthropic.com/settings/keys" in done.stdout
    program.env = {"ANTHROPIC_API_KEY": KEY}
    done = program.run("agents", "check")
    assert done.code == 0
    assert done.stdout.startswith("ok     bot\n")


@pytest.mark.parametrize("wait", ["0", "0.01"])
def test_c21_what_is_tried_again_may_succeed(tmp_path: Path, wait: str) -> None:
    busy = failure(429, wire.error("rate_limit_error", "slow down"), retry_after=wait)
    with ScriptedApi(busy, events(*wire.whole("here"))).running() as api:
        talk = Talk(tmp_path, team(member("bot", adapter=adapter(api.url), on_failure="retry")))
        talk.send("hello")
        assert len(api.sent) == 2
    reply = talk.last("reply_finished")
    assert (reply.status, reply.attempts) == ("success", 2)


def test_c22_overload_after_some_text_is_not_tried_again_and_the_text_is_kept(
    tmp_path: Path,
) -> None:
    broken = [wire.begin(), *wire.text("Half a")[:3], wire.error("overloaded_error", "Overloaded")]
    with ScriptedApi(events(*broken)).running() as api:
        talk = Talk(tmp_path, team(member("bot", adapter=adapter(api.url), on_failure="retry")))
        assert talk.send("hello").end == "failed"
        assert len(api.sent) == 1
    reply = talk.last("reply_finished")
    assert (reply.status, reply.message) == ("error", None)
    assert reply.metadata["partial"] == "Half a"


def test_an_agent_passes_and_what_is_asked_tells_it_how(tmp_path: Path) -> None:
    passed = events(wire.begin(), *wire.tool("pass"), *wire.end("tool_use"))
    with ScriptedApi(passed).running() as api:
        bot = member("bot", adapter=adapter(api.url))
        talk = Talk(tmp_path, team(bot, member("peer", [{"say": "fine"}]), selection="ask"))
        talk.send("@peer hello")
        (sent,) = api.sent
    asked = sent.body["messages"][-1]["content"][-1]["text"]
    assert sent.body["tools"][0]["name"] == "pass"
    assert "`pass`" in asked
    assert "<pass/>" not in asked
    assert talk.outcomes() == [("peer", "success"), ("bot", "declined")]
    assert talk.last("reply_finished").usage.cache_read_tokens == 2000


def test_the_steps_of_a_scenario_share_a_connection(program: Program) -> None:
    with ScriptedApi(events(*wire.whole("Yes."))).running() as api:
        program.agent("bot", adapter=adapter(api.url))
        steps = "[{send: one}, {send: two}, {send: three, expect: {timeline: [{agent: bot}]}}]"
        program.scenario(f"scenario: three\nagents: [bot]\nsteps: {steps}")
        program.run("run").check(code=0)
        assert (len(api.sent), api.connections) == (3, 1)


def test_a_team_of_two_on_a_real_small_model(program: Program, small_model: SmallModel) -> None:
    program.env = {}
    keys = {"model": small_model.name, "max_tokens": 100, "pricing": "free"}
    for agent_id in ("one", "two"):
        program.agent(agent_id, adapter=adapter(small_model.url, **keys))
    program.team()
    done = program.run("send", "-s", "s", "@one @two 你们好")
    assert done.code == 0, done.stdout + done.stderr
    assert sorted(program.finished()) == [("one", "success"), ("two", "success")]
    replies = [one for one in program.records() if one["type"] == "reply_finished"]
    assert all(reply["usage"]["output_tokens"] > 0 for reply in replies)
    assert all(reply["usage"]["cost_usd"] == 0.0 for reply in replies)
