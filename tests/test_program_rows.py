"""opencode, pi and Cursor: arguments, and replies read from captured and documented output."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import Heard, an_input
from agent_programs import Played, sample
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentSession,
    AgentUnavailable,
    CursorAdapter,
    OpencodeAdapter,
    PiAdapter,
    ProgramAdapter,
    Usage,
)

KINDS: dict[str, type[ProgramAdapter]] = {
    "opencode": OpencodeAdapter,
    "pi": PiAdapter,
    "cursor-agent": CursorAdapter,
}
OPENCODE_ID = "ses_de03c3433ffesE24pR7TpMPJe8"
PI_ID = "01a21fc4-2ed8-7162-b61b-c514fa9dc5a3"


def call(
    adapter: ProgramAdapter, input: AgentInput | None = None, heard: Heard | None = None
) -> AgentOutput:
    return asyncio.run(adapter.invoke(input or an_input(), heard or Heard()))


def failure(adapter: ProgramAdapter, heard: Heard | None = None) -> AgentError:
    with pytest.raises(AgentError) as caught:
        call(adapter, None, heard)
    assert "\n" not in str(caught.value)
    return caught.value


def resumed(session_id: str) -> AgentInput:
    return an_input("second", own_session=AgentSession(id=session_id, upto_seq=1))


def lines(*objects: dict[str, Any], stderr: str = "", **more: Any) -> dict[str, Any]:
    text = "".join(json.dumps(one) + "\n" for one in objects)
    return {"stdout": text, "stderr": stderr, **more}


def stepped(reason: str, **part: Any) -> dict[str, Any]:
    return {"type": "step_finish", "sessionID": OPENCODE_ID, "part": {"reason": reason, **part}}


def spoken(text: str, reason: str, **message: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    said = {"role": "assistant", "content": content, "stopReason": reason, **message}
    return {"type": "message_end", "message": said}


def test_opencode_answers(tmp_path: Path) -> None:
    opencode, heard = Played(tmp_path, "opencode"), Heard()
    opencode.plan(sample("opencode", "json"))
    got = call(opencode.adapter(OpencodeAdapter, model="mock/m"), None, heard)
    assert got.content == heard.text == 'FAKE-CHAT nmsgs=2 last="hello opencode"'
    assert got.usage == Usage(input_tokens=12, output_tokens=9)
    assert heard.session_id == OPENCODE_ID
    (given,) = opencode.calls()
    assert given["stdin"] == "你好"
    assert given["args"][:3] == ["run", "--format", "json"]
    assert given["args"][-4:] == ["--model", "mock/m", "--title", "arena"]
    config = json.loads(given["env"]["OPENCODE_CONFIG_CONTENT"])
    assert config["agent"]["arena"]["prompt"].startswith("{file:" + tmp_path.as_posix())
    assert given["env"]["OPENCODE_PERMISSION"] == '{"*": "deny"}'
    assert list((tmp_path / "scratch").iterdir()) == []


def test_opencode_keeps_the_role_whatever_the_profile_sets(tmp_path: Path) -> None:
    opencode = Played(tmp_path, "opencode")
    opencode.plan(sample("opencode", "json"))
    adapter = opencode.adapter(
        OpencodeAdapter,
        env={
            "PLAY_FOLDER": str(tmp_path),
            "OPENCODE_CONFIG_CONTENT": "{}",
            "OPENCODE_PERMISSION": '{"edit": "deny"}',
        },
    )
    call(adapter)
    (given,) = opencode.calls()
    assert "{file:" in given["env"]["OPENCODE_CONFIG_CONTENT"]
    assert given["env"]["OPENCODE_PERMISSION"] == '{"edit": "deny"}'


def test_opencode_says_what_follows_its_tools_and_adds_up_its_steps(tmp_path: Path) -> None:
    opencode, heard = Played(tmp_path, "opencode"), Heard()
    tokens = {"input": 10, "output": 3, "reasoning": 4, "cache": {"read": 5, "write": 0}}
    opencode.plan(
        lines(
            {"type": "text", "part": {"text": "let me look"}},
            {"type": "tool_use", "part": {"tool": "read"}},
            stepped("tool-calls", tokens={**tokens, "total": 22}, cost=0.5),
            {"type": "text", "part": {"text": "seen"}},
            stepped("stop", tokens={**tokens, "total": 22}, cost=0.25),
        )
    )
    got = call(opencode.adapter(OpencodeAdapter), None, heard)
    assert got.content == "seen"
    assert got.usage == Usage(
        input_tokens=20, output_tokens=14, cache_read_tokens=10, cost_usd=0.75
    )
    assert [status.detail for status in heard.statuses] == ["read"]


STREAM_ERROR = (
    'timestamp=2026-11-28T09:09:27Z level=ERROR run=9 message="stream error" providerID=mock'
    ' modelID=m1 session.id=ses_1 small={small} agent=arena error.error="AI_APICallError: {said}"\n'
)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Rate limit exceeded.", AgentOverloaded),
        ("Service overloaded.", AgentOverloaded),
        ("Internal server error.", AgentUnavailable),
        ("Cannot connect to API: The socket connection was closed.", AgentUnavailable),
    ],
)
def test_opencode_is_ended_where_it_would_try_again_without_a_word(
    tmp_path: Path, said: str, error: type[AgentError]
) -> None:
    opencode = Played(tmp_path, "opencode")
    opencode.plan(
        {"stderr": STREAM_ERROR.format(small="false", said=said), "sleep": True, "code": 0}
    )
    failed = failure(opencode.adapter(OpencodeAdapter))
    assert type(failed) is error
    assert failed.came == said


@pytest.mark.parametrize(("small", "said"), [("true", "Rate limit exceeded."), ("false", "No.")])
def test_what_opencode_can_do_without_does_not_end_it(
    tmp_path: Path, small: str, said: str
) -> None:
    opencode = Played(tmp_path, "opencode")
    said = STREAM_ERROR.format(small=small, said=said)
    opencode.plan({**sample("opencode", "json"), "stderr": said})
    assert call(opencode.adapter(OpencodeAdapter)).content.startswith("FAKE-CHAT")


def test_opencode_does_not_ask_again_and_again_for_what_was_cut(tmp_path: Path) -> None:
    opencode = Played(tmp_path, "opencode")
    opencode.plan(
        lines({"type": "text", "part": {"text": "Hello! You "}}, stepped("unknown"), sleep=True)
    )
    failed = failure(opencode.adapter(OpencodeAdapter))
    assert type(failed) is AgentProtocolError
    assert failed.came == "its model's answer ended before it was complete"
    assert failed.metadata["partial"] == "Hello! You "


@pytest.mark.parametrize(
    ("kind", "plan", "error", "came"),
    [
        ("opencode", sample("opencode", "err401", code=1), AgentRefused, "401 fake authentica"),
        (
            "opencode",
            lines(
                {"type": "error", "error": {"data": {"message": "Unexpected server error."}}},
                stderr='level=ERROR message=failed error="ProviderModelNotFoundError: Model not'
                ' found: mock/nope." cause="at <anonymous>"\n',
                code=1,
            ),
            AgentRefused,
            "Model not found: mock/nope.",
        ),
        ("pi", sample("pi", "err401"), AgentRefused, "401 fake authentication_error"),
        ("pi", sample("pi", "err429", sleep=True), AgentOverloaded, "429 fake rate_limit_error"),
        ("pi", {"stderr": "No API key found for anthropic.\n", "code": 1}, AgentRefused, "No API"),
        ("pi", {"stderr": 'Error: Unknown provider "x".\n', "code": 1}, AgentRefused, "Error: Un"),
        (
            "pi",
            lines(spoken("", "error", errorMessage="terminated"), sleep=True),
            AgentUnavailable,
            "terminated",
        ),
        (
            "cursor-agent",
            {"stderr": "Authentication required. Run 'agent login' first\n", "code": 1},
            AgentRefused,
            "Authentication required. Run",
        ),
        ("cursor-agent", {"stderr": "Workspace Trust Required\n", "code": 1}, AgentRefused, "W"),
        (
            "cursor-agent",
            lines({"type": "result", "is_error": True, "result": "You've hit your usage limit"}),
            AgentOverloaded,
            "You've hit",
        ),
    ],
)
def test_a_failure_is_told_for_what_it_is(
    tmp_path: Path, kind: str, plan: dict[str, Any], error: type[AgentError], came: str
) -> None:
    played = Played(tmp_path, kind)
    played.plan(plan)
    failed = failure(played.adapter(KINDS[kind]))
    assert type(failed) is error
    assert failed.came.startswith(came)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("opencode", [{"type": "text", "part": {"text": "cut off"}}, stepped("length")]),
        ("pi", [spoken("cut off", "length"), {"type": "agent_end"}]),
    ],
)
def test_an_answer_that_was_cut_off_is_none(
    tmp_path: Path, kind: str, said: list[dict[str, Any]]
) -> None:
    played, heard = Played(tmp_path, kind), Heard()
    played.plan(lines(*said))
    failed = failure(played.adapter(KINDS[kind]), heard)
    assert type(failed) is AgentProtocolError
    assert "cut off at the limit of output tokens" in str(failed)
    assert not failed.again
    assert failed.metadata["partial"] == heard.text == "cut off"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("opencode", [{"type": "step_start"}, stepped("stop")]),
        ("pi", [spoken("", "stop"), {"type": "agent_end"}]),
        ("cursor-agent", [{"type": "result", "is_error": False, "result": ""}]),
    ],
)
def test_nothing_is_no_answer(tmp_path: Path, kind: str, said: list[dict[str, Any]]) -> None:
    played = Played(tmp_path, kind)
    played.plan(lines(*said))
    assert "answered nothing" in str(failure(played.adapter(KINDS[kind])))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("opencode", {"type": "text", "part": {"text": "half"}}),
        ("pi", spoken("half", "stop")),
        ("cursor-agent", {"type": "assistant", "message": {"content": [{"text": "half"}]}}),
    ],
)
def test_a_stream_without_its_end_is_no_answer(
    tmp_path: Path, kind: str, said: dict[str, Any]
) -> None:
    played = Played(tmp_path, kind)
    played.plan(lines(said))
    failed = failure(played.adapter(KINDS[kind]))
    assert "ended before its answer was complete" in str(failed)
    assert failed.metadata["partial"] == "half"


def test_pi_answers_and_tells_it_as_it_comes(tmp_path: Path) -> None:
    pi, heard = Played(tmp_path, "pi"), Heard()
    pi.plan(sample("pi", "json_anth"))
    got = call(pi.adapter(PiAdapter, model="mock/m", args=["--tools", "read"]), None, heard)
    assert got.content == heard.text == "FAKE-REPLY nmsgs=1 last=hello pi"
    assert len(heard.deltas) > 1
    assert got.usage == Usage(input_tokens=12, output_tokens=9)
    assert heard.session_id == PI_ID
    (given,) = pi.calls()
    assert given["stdin"] == "你好"
    assert given["args"][-6:-1] == ["--model", "mock/m", "--tools", "read", "--system-prompt"]
    assert Path(given["args"][-1]).parent == tmp_path / "scratch"
    assert "--no-tools" in given["args"]


def test_pi_says_what_follows_its_tools(tmp_path: Path) -> None:
    pi, heard = Played(tmp_path, "pi"), Heard()
    usage = {"input": 10, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.5}}
    pi.plan(
        lines(
            spoken("let me look", "toolUse", usage=usage),
            {"type": "tool_execution_start", "toolName": "ls"},
            {"type": "message_end", "message": {"role": "toolResult", "content": [{"text": "x"}]}},
            spoken("seen", "stop", usage=usage),
            {"type": "agent_end"},
        )
    )
    got = call(pi.adapter(PiAdapter), None, heard)
    assert got.content == "seen"
    assert got.usage == Usage(
        input_tokens=20, output_tokens=4, cache_read_tokens=6, cache_write_tokens=8, cost_usd=1
    )
    assert [status.detail for status in heard.statuses] == ["ls"]


def test_cursor_answers_as_documented(tmp_path: Path) -> None:
    cursor, heard = Played(tmp_path, "cursor-agent"), Heard()
    cursor.plan(sample("cursor", "documented"))
    got = call(cursor.adapter(CursorAdapter, model="m"), None, heard)
    assert got.content == heard.text == "..."
    assert got.usage is None
    (given,) = cursor.calls()
    assert given["stdin"] == "You are a bot.\n\n你好"
    assert given["args"] == [
        *("--print", "--output-format", "stream-json", "--mode", "ask", "--trust"),
        *("--model", "m"),
    ]


def test_cursor_says_what_follows_its_tools_though_stderr_holds_it_again(tmp_path: Path) -> None:
    cursor, heard = Played(tmp_path, "cursor-agent"), Heard()
    usage = {"inputTokens": 7, "outputTokens": 2, "cacheReadTokens": 1, "cacheWriteTokens": 0}
    said = lines(
        {"type": "system", "subtype": "init", "session_id": "c-1"},
        {"type": "user", "message": {"content": [{"type": "text", "text": "asked"}]}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "let me look"}]}},
        {"type": "tool_call", "subtype": "started", "tool_call": {"readToolCall": {}}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "seen"}]}},
        {"type": "result", "is_error": False, "result": "let me lookseen", "usage": usage},
    )
    cursor.plan({**said, "stderr": said["stdout"]})
    got = call(cursor.adapter(CursorAdapter, args=["--mode", "plan"]), None, heard)
    assert got.content == "seen"
    assert got.usage == Usage(input_tokens=7, output_tokens=2, cache_read_tokens=1)
    assert heard.session_id == "c-1"
    (given,) = cursor.calls()
    assert given["args"].count("--mode") == 1


@pytest.mark.parametrize("whole", [[], ["All three. Verdict: REJECT"]], ids=["parts", "and whole"])
def test_cursor_answers_in_several_events(tmp_path: Path, whole: list[str]) -> None:
    cursor, heard = Played(tmp_path, "cursor-agent"), Heard()
    parts = ["All three. ", "Verdict: REJECT", *whole]
    events = [{"type": "assistant", "message": {"content": [{"text": part}]}} for part in parts]
    cursor.plan(lines(*events, {"type": "result", "is_error": False, "result": "ignored"}))
    got = call(cursor.adapter(CursorAdapter), None, heard)
    assert got.content == heard.text == "All three. Verdict: REJECT"


@pytest.mark.parametrize(
    ("kind", "option", "lost"),
    [
        ("opencode", "--session", "\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"),
        ("pi", "--session", "No session found matching 'an-id'\n"),
        ("cursor-agent", "--resume", "Chat an-id not found\n"),
    ],
)
def test_it_goes_on_in_its_session_or_afresh_where_that_is_lost(
    tmp_path: Path, kind: str, option: str, lost: str
) -> None:
    name = {"opencode": "json", "pi": "json_anth"}.get(kind, "documented")
    answered = sample(kind.removesuffix("-agent"), name)
    played, heard = Played(tmp_path, kind), Heard()
    played.plan(answered, {"stderr": lost, "code": 1}, answered)
    call(played.adapter(KINDS[kind]), resumed("an-id"), heard)
    assert "lost_session" not in heard.notes
    call(played.adapter(KINDS[kind]), resumed("an-id"), heard)
    assert heard.notes["lost_session"] == "an-id"
    first, second, third = played.calls()
    for given in (first, second):
        place = given["args"].index(option)
        assert given["args"][place + 1] == "an-id"
        assert given["stdin"] == "second"
    assert option not in third["args"]
    assert third["stdin"].endswith("second")


@pytest.mark.parametrize("kind", KINDS)
def test_health_says_how_to_get_it_and_how_to_log_in(tmp_path: Path, kind: str) -> None:
    played = Played(tmp_path, kind)
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    there = asyncio.run(played.adapter(KINDS[kind], env=home).health())
    assert there.ok
    assert "login" in there.detail
    (played.bin / kind).unlink(missing_ok=True)
    missing = asyncio.run(played.adapter(KINDS[kind], program="not-there").health())
    assert not missing.ok
    assert KINDS[kind].install in missing.detail
