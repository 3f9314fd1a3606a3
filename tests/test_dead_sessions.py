"""Sessions of coding agents that cannot be resumed, and errors that a program gets over."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import Heard, an_input
from agent_programs import Played
from product import (
    AgentError,
    AgentProtocolError,
    AgentRefused,
    AgentSession,
    AgentUnavailable,
    CodexAdapter,
    CursorAdapter,
    GeminiAdapter,
    OpencodeAdapter,
    PiAdapter,
)
from program import Program

_KINDS = {
    "codex": CodexAdapter,
    "gemini": GeminiAdapter,
    "opencode": OpencodeAdapter,
    "pi": PiAdapter,
    "cursor-agent": CursorAdapter,
}
_REJECTED = "messages.3: tool_use ids were found without tool_result blocks"
_OWN = "7f0c1d6e-0a51-4c4d-9c1f-0f5b3c1f2a11"

_CLAUDE = """\
import json, sys
def put(**fields):
    print(json.dumps(fields), flush=True)
usage = {"input_tokens": 10, "output_tokens": 5}
empty = {"input_tokens": 0, "output_tokens": 0}
resumes = "--resume" in sys.argv
with open("calls.log", "a") as log:
    log.write("resume " if resumes else "new ")
if resumes:
    FAILURE
for line in sys.stdin:
    put(type="result", subtype="success", is_error=False, result="fine", usage=usage)
"""

_CLAUDE_FAILURES = {
    "an empty refusal": (
        'put(type="result", subtype="error_during_execution", is_error=True, usage=empty);exit(1)'
    ),
    "the end of the process": f'sys.exit("API Error: 400 {_REJECTED}")',
    "a rejected history": (
        'put(type="result", subtype="success", is_error=True, usage=empty, api_error_status=400, '
        f'result="API Error: 400 {_REJECTED}"); sys.exit(1)'
    ),
}
_NOT_LOGGED_IN = (
    'put(type="result", subtype="success", is_error=True, usage=empty, result="Not logged in")'
)


def claude_program(tmp_path: Path, failure: str) -> Program:
    program = Program(tmp_path)
    script = program.file("fake.py", _CLAUDE.replace("FAILURE", failure))
    launcher = program.file("fake", f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    launcher.chmod(0o755)
    program.agent("k", adapter={"type": "claude_code", "program": "./fake"})
    return program


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
@pytest.mark.parametrize("failure", _CLAUDE_FAILURES.values(), ids=_CLAUDE_FAILURES)
def test_claude_code_begins_afresh_in_the_same_call(tmp_path: Path, failure: str) -> None:
    program = claude_program(tmp_path, failure)
    assert program.run("send", "-s", "s", "@k first").code == 0
    done = program.run("send", "-s", "s", "@k second")
    assert done.code == 0, done.stdout
    assert "fine" in done.stdout
    assert (tmp_path / "calls.log").read_text() == "new resume new "
    finished = [line for line in program.records("s") if line["type"] == "reply_finished"]
    assert finished[1]["metadata"]["lost_session"]
    assert finished[1]["metadata"]["lost_because"]
    [told] = [line for line in program.records("s") if line["type"] == "status"]
    assert "its session cannot be resumed, so it begins a new one" in told["detail"]


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_a_failure_of_the_provider_is_not_a_lost_session(tmp_path: Path) -> None:
    program = claude_program(tmp_path, _NOT_LOGGED_IN)
    program.run("send", "-s", "s", "@k first")
    done = program.run("send", "-s", "s", "@k second")
    assert done.code == 3
    assert "is not logged in" in done.stdout
    assert (tmp_path / "calls.log").read_text() == "new resume "


def lines(*objects: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"stdout": "".join(json.dumps(value) + "\n" for value in objects), **more}


def answer(kind: str, text: str, **more: Any) -> dict[str, Any]:
    """Return a run in which the program answers."""
    objects: dict[str, list[dict[str, Any]]] = {
        "codex": [
            {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
            {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 1}},
        ],
        "gemini": [
            {"type": "message", "role": "assistant", "content": text},
            {"type": "result", "status": "success", "stats": {}},
        ],
        "opencode": [
            {"type": "text", "part": {"text": text}},
            {"type": "step_finish", "part": {"reason": "stop"}},
        ],
        "pi": [
            {
                "type": "message_end",
                "message": {"role": "assistant", "content": [{"type": "text", "text": text}]},
            },
            {"type": "agent_end"},
        ],
        "cursor-agent": [
            {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}},
            {"type": "result", "is_error": False},
        ],
    }
    return lines(*objects[kind], **more)


def call(played: Played, kind: str, heard: Heard, **keys: Any) -> str:
    adapter = played.adapter(_KINDS[kind])
    return asyncio.run(adapter.invoke(an_input("hello", **keys), heard)).content


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "dead", [{"stderr": f"Error: {_REJECTED}\n", "code": 1}, {"stderr": "", "code": 0}]
)
def test_a_session_that_dies_at_once_begins_afresh(
    tmp_path: Path, kind: str, dead: dict[str, Any]
) -> None:
    played, heard = Played(tmp_path, kind), Heard()
    played.plan(dead, answer(kind, "fine"))
    own = AgentSession(id=_OWN, upto_seq=1)
    assert call(played, kind, heard, own_session=own) == "fine"
    assert heard.notes["lost_session"] == _OWN
    assert len(played.calls()) == 2


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    ("words", "error_type"),
    [
        ("Error: status 401 invalid api key", AgentRefused),
        ("Error: read ECONNRESET", AgentUnavailable),
    ],
)
def test_a_provider_that_fails_is_not_asked_twice(
    tmp_path: Path, kind: str, words: str, error_type: type[AgentError]
) -> None:
    played = Played(tmp_path, kind)
    played.plan({"stderr": f"{words}\n", "code": 1})
    with pytest.raises(error_type):
        call(played, kind, Heard(), own_session=AgentSession(id=_OWN, upto_seq=1))
    assert len(played.calls()) == 1


_LOST_LINK = {
    "type": "error",
    "error": {
        "name": "ProviderTransport",
        "data": {"message": "ECONNRESET: The socket was closed", "statusCode": 200},
    },
}


def test_an_error_that_opencode_got_over_is_not_the_end(tmp_path: Path) -> None:
    played, heard = Played(tmp_path, "opencode"), Heard()
    half = {"type": "text", "part": {"text": "half an ans"}}
    whole = answer("opencode", "the whole answer")["stdout"]
    plan = lines(half, _LOST_LINK, code=1)
    plan["stdout"] += whole
    played.plan(plan)
    assert call(played, "opencode", heard) == "the whole answer"


@pytest.mark.parametrize("later", [[], [{"type": "text", "part": {"text": "half an ans"}}]])
def test_a_transport_error_that_stays_is_retried(tmp_path: Path, later: list[Any]) -> None:
    played = Played(tmp_path, "opencode")
    played.plan(lines(_LOST_LINK, *later, code=1))
    with pytest.raises(AgentUnavailable) as caught:
        call(played, "opencode", Heard())
    assert caught.value.again
    assert "ECONNRESET" in caught.value.came


def test_the_error_line_of_a_silent_program_is_shown(tmp_path: Path) -> None:
    played = Played(tmp_path, "opencode")
    played.plan(
        {"stderr": "Error: AI_APICallError: No auth credentials found\n", "code": 0},
        {"stderr": "Error: something odd\n", "code": 0},
    )
    with pytest.raises(AgentRefused) as refused:
        call(played, "opencode", Heard())
    assert "No auth credentials" in refused.value.came
    with pytest.raises(AgentProtocolError) as caught:
        call(played, "opencode", Heard())
    assert caught.value.came == "Error: something odd"
