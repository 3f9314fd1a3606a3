"""Codex and Gemini CLI: arguments and prompts, and replies read from captured output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import Heard, a_setup, an_input, cancelled, runs, until
from agent_programs import SAMPLES, Played, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentSession,
    AgentUnavailable,
    CodexAdapter,
    CursorAdapter,
    GeminiAdapter,
    Health,
    NotAnAnswerError,
    OpencodeAdapter,
    PiAdapter,
    ProgramAdapter,
    Usage,
)
from program import Program

CODEX_ID = "01a21fc1-b87f-73a1-997c-723fcba64050"
GEMINI_ID = "11111111-2222-4333-8444-555555555556"


def call(
    adapter: ProgramAdapter, input: AgentInput | None = None, heard: Heard | None = None
) -> AgentOutput:
    return asyncio.run(adapter.invoke(input or an_input(), heard or Heard()))


def failure(adapter: ProgramAdapter) -> AgentError:
    with pytest.raises(AgentError) as caught:
        call(adapter)
    assert "\n" not in str(caught.value)
    return caught.value


def resumed(session_id: str, *counts: int) -> AgentInput:
    """A call that goes on in a session, which used so many tokens: in, out, cache read, written."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    state = dict(zip(names, counts, strict=False))
    own = AgentSession(id=session_id, upto_seq=1, state=state)
    return an_input("second", own_session=own)


def after(heard: Heard) -> AgentInput:
    """The call that follows."""
    return an_input("second", own_session=heard.own_session(upto_seq=1))


def lines(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"stdout": "".join(json.dumps(one) + "\n" for one in objects)}


def test_codex_answers(tmp_path: Path) -> None:
    codex, heard = Played(tmp_path, "codex"), Heard()
    codex.plan(sample("codex", "json"))
    got = call(codex.adapter(CodexAdapter, model="m", args=["-c", "x=1"]), None, heard)
    assert got.content.startswith("FAKE-RESPONSES nitems=4")
    assert heard.text == got.content
    assert got.usage == Usage(input_tokens=12, output_tokens=9)
    assert got.metadata["raw"]["type"] == "turn.completed"
    (was,) = codex.calls()
    assert was["stdin"] == "You are a bot.\n\n你好"
    assert was["args"][:2] == ["exec", "--json"]
    assert was["args"][-5:] == ["--model", "m", "-c", "x=1", "-"]
    assert "sandbox_mode=read-only" in was["args"]


def test_codex_goes_on_in_its_session_and_its_sum_becomes_a_difference(tmp_path: Path) -> None:
    codex, heard = Played(tmp_path, "codex"), Heard()
    codex.plan(sample("codex", "json"), sample("codex", "resume"))
    call(codex.adapter(CodexAdapter), None, heard)
    assert heard.session_id == CODEX_ID
    again = call(codex.adapter(CodexAdapter), after(heard), heard)
    assert again.usage == Usage(input_tokens=12, output_tokens=9)
    first, second = codex.calls()
    assert "resume" not in first["args"]
    assert second["args"][-3:] == ["resume", CODEX_ID, "-"]
    assert second["stdin"] == "second"
    third = call(codex.adapter(CodexAdapter), after(heard))
    assert third.usage == Usage(), "the sum of both calls was kept"


def test_codex_whose_earlier_sum_is_not_known_tells_no_usage(tmp_path: Path) -> None:
    codex = Played(tmp_path, "codex")
    codex.plan(sample("codex", "resume"))
    assert call(codex.adapter(CodexAdapter), resumed(CODEX_ID)).usage is None
    assert call(codex.adapter(CodexAdapter), resumed(CODEX_ID, 99, 9, 0, 0)).usage is None


@pytest.mark.parametrize(
    ("kind", "adapter", "code"), [("codex", CodexAdapter, 1), ("gemini", GeminiAdapter, 42)]
)
def test_a_session_that_was_lost_is_begun_afresh_in_the_same_call(
    tmp_path: Path, kind: str, adapter: type[ProgramAdapter], code: int
) -> None:
    played, heard = Played(tmp_path, kind), Heard()
    answered = sample(kind, "json" if kind == "codex" else "streamjson")
    played.plan(sample(kind, "lost", code=code), answered)
    got = call(played.adapter(adapter), resumed(CODEX_ID, 1, 1, 0, 0), heard)
    assert got.content.startswith("FAKE-")
    assert got.usage == Usage(input_tokens=12, output_tokens=9)
    assert heard.notes["lost_session"] == CODEX_ID
    first, second = played.calls()
    assert (first["stdin"], second["stdin"]) == ("second", "You are a bot.\n\nsecond")
    assert CODEX_ID in first["args"]
    assert CODEX_ID not in second["args"]


def test_a_session_id_never_becomes_an_option(tmp_path: Path) -> None:
    codex = Played(tmp_path, "codex")
    codex.plan(sample("codex", "json"))
    call(codex.adapter(CodexAdapter), resumed("--dangerously-bypass-approvals-and-sandbox"))
    (was,) = codex.calls()
    assert not [word for word in was["args"] if "dangerously" in word]
    assert was["stdin"] == "You are a bot.\n\nsecond"


def test_gemini_answers_under_the_id_that_it_was_given(tmp_path: Path) -> None:
    gemini, heard = Played(tmp_path, "gemini"), Heard()
    gemini.plan(sample("gemini", "streamjson"), sample("gemini", "resume"))
    got = call(gemini.adapter(GeminiAdapter), None, heard)
    assert heard.deltas[0] == "FAKE-GEMIN"
    assert got.content == heard.text
    assert got.usage == Usage(input_tokens=12, output_tokens=9)
    assert heard.session_id == GEMINI_ID
    call(gemini.adapter(GeminiAdapter), resumed(GEMINI_ID))
    first, second = gemini.calls()
    assert first["args"][-2] == "--session-id"
    assert first["args"][2:4] == ["--approval-mode", "plan"]
    assert first["env"]["GEMINI_CLI_TRUST_WORKSPACE"] == "true"
    assert second["args"][-2:] == ["--resume", GEMINI_ID]


def test_gemini_counts_what_was_thought_and_what_the_cache_gave(tmp_path: Path) -> None:
    gemini = Played(tmp_path, "gemini")
    stats = {"input_tokens": 100, "output_tokens": 5, "cached": 60, "total_tokens": 130}
    gemini.plan(
        lines(
            {"type": "message", "role": "assistant", "content": "let me look", "delta": True},
            {"type": "tool_use", "tool_name": "read_file"},
            {"type": "message", "role": "assistant", "content": "seen", "delta": True},
            {"type": "result", "status": "success", "stats": stats},
        )
    )
    heard = Heard()
    got = call(gemini.adapter(GeminiAdapter), None, heard)
    assert got.content == "seen"
    assert got.usage == Usage(input_tokens=40, output_tokens=30, cache_read_tokens=60)
    assert [(one.status, one.detail) for one in heard.statuses] == [("calling_tool", "read_file")]


def test_an_option_of_the_profile_replaces_the_adapter_s(tmp_path: Path) -> None:
    gemini = Played(tmp_path, "gemini")
    gemini.plan(sample("gemini", "streamjson"))
    call(gemini.adapter(GeminiAdapter, args=["--approval-mode=yolo"]))
    (was,) = gemini.calls()
    assert [word for word in was["args"] if "approval" in word] == ["--approval-mode=yolo"]


def test_what_is_a_path_to_gemini_is_none_any_more(tmp_path: Path) -> None:
    text = "/help @notes.txt a@b.c \\@x `@y` $mine costs $5 [@z](plugin://z)"
    gemini = Played(tmp_path, "gemini")
    gemini.plan(sample("gemini", "streamjson"))
    call(gemini.adapter(GeminiAdapter), an_input(text, role_prompt=""))
    assert gemini.calls()[0]["stdin"] == (
        "\n/help \\@notes.txt a\\@b.c \\@x `\\@y` $mine costs $5 [\\@z](plugin://z)"
    )


def test_what_is_a_skill_to_codex_is_none_any_more(tmp_path: Path) -> None:
    text = "/help @notes.txt $mine costs $5 [@z](plugin://z)"
    codex = Played(tmp_path, "codex")
    codex.plan(sample("codex", "json"))
    call(codex.adapter(CodexAdapter), an_input(text, role_prompt=""))
    assert codex.calls()[0]["stdin"] == "/help @notes.txt ＄mine costs ＄5 [＠z](plugin://z)"


def test_a_backslash_that_gemini_took_over_is_taken_out_of_prose(tmp_path: Path) -> None:
    gemini = Played(tmp_path, "gemini")
    gemini.plan(
        lines(
            {"type": "message", "role": "assistant", "content": "\\@dev: `\\@array`"},
            {"type": "result", "status": "success", "stats": {}},
        )
    )
    got = call(gemini.adapter(GeminiAdapter))
    assert got.content == "@dev: `\\@array`"
    assert got.usage is None


FAILURES = [
    ("codex", "err401", 1, AgentRefused, "401 Unauthorized"),
    ("codex", "err429", 1, AgentOverloaded, "429 Too Many"),
    ("codex", "err500", 1, AgentOverloaded, "high demand"),
    ("codex", "refused", 1, AgentUnavailable, "waiting for network"),
    ("gemini", "err401", 145, AgentRefused, "401 Unauthorized"),
    ("gemini", "err404", 1, AgentRefused, "not found"),
    ("gemini", "err429", 1, AgentOverloaded, "429 fake rate_limit_error"),
    ("gemini", "nologin", 41, AgentRefused, "set an Auth method"),
]
ADAPTERS: dict[str, type[ProgramAdapter]] = {
    "codex": CodexAdapter,
    "gemini": GeminiAdapter,
    "opencode": OpencodeAdapter,
    "pi": PiAdapter,
    "cursor": CursorAdapter,
}


@pytest.mark.parametrize(("kind", "name", "code", "error", "came"), FAILURES)
def test_a_program_s_failure_becomes_the_error_that_it_means(
    tmp_path: Path, kind: str, name: str, code: int, error: type[AgentError], came: str
) -> None:
    played = Played(tmp_path, kind)
    played.plan(sample(kind, name, code=code))
    got = failure(played.adapter(ADAPTERS[kind]))
    assert type(got) is error
    assert came in got.came
    assert got.mend
    assert "node_modules" not in str(got)
    assert got.asked.startswith(kind)


@pytest.mark.parametrize(("kind", "name"), [("codex", "refused"), ("gemini", "err429")])
def test_a_program_that_would_try_again_for_long_is_ended(
    tmp_path: Path, kind: str, name: str
) -> None:
    played = Played(tmp_path, kind)
    played.plan(sample(kind, name, sleep=True))
    with pytest.raises((AgentUnavailable, AgentOverloaded)):
        call(played.adapter(ADAPTERS[kind]))
    assert not any(runs(one["pid"]) for one in played.calls())


def test_a_stream_that_ends_early_is_no_answer_but_kept_as_partial(tmp_path: Path) -> None:
    gemini = Played(tmp_path, "gemini")
    gemini.plan(lines({"type": "message", "role": "assistant", "content": "half"}))
    got = failure(gemini.adapter(GeminiAdapter))
    assert type(got) is AgentProtocolError
    assert "before its answer was complete" in got.what
    assert got.metadata["partial"] == "half"


def test_an_answer_of_nothing_is_none(tmp_path: Path) -> None:
    codex = Played(tmp_path, "codex")
    codex.plan(lines({"type": "turn.completed", "usage": {"input_tokens": "many"}}))
    assert "answered nothing" in failure(codex.adapter(CodexAdapter)).what


def test_an_exit_code_without_a_word(tmp_path: Path) -> None:
    codex = Played(tmp_path, "codex")
    codex.plan({"stderr": "thread panicked\n   at src/main.rs:1\n", "code": 101})
    got = failure(codex.adapter(CodexAdapter))
    assert type(got) is AgentProtocolError
    assert got.what == "Codex failed with exit code 101"
    assert got.came == "thread panicked"


def test_odd_objects_do_no_harm(tmp_path: Path) -> None:
    codex = Played(tmp_path, "codex")
    odd: list[dict[str, Any]] = [
        {"type": "thread.started", "thread_id": {"a": 1}},
        {"type": "item.completed", "item": None},
        {"type": "item.completed", "item": {"type": "agent_message", "text": 5}},
        {"type": ["turn.failed"], "error": 3},
        {"type": "error", "message": None},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "好"}},
        {"type": "turn.completed", "usage": {"input_tokens": -1, "output_tokens": True}},
        {"type": "turn.completed", "usage": {"input_tokens": math.inf, "output_tokens": math.nan}},
    ]
    codex.plan(lines(*odd))
    heard = Heard()
    got = call(codex.adapter(CodexAdapter), None, heard)
    assert (got.content, got.usage, heard.session_id) == ("好", None, None)


VALUES = st.recursive(
    st.sampled_from([None, True, -1, 7, 10**30, float("inf"), float("nan"), "", "{", "好", '{"a"']),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


EVENTS = {
    kind: [
        event
        for path in sorted((SAMPLES / kind).glob("*.stdout"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("{") and isinstance(event := json.loads(line), dict)
    ]
    for kind in ADAPTERS
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(ADAPTERS)))
def test_odd_values_in_the_events_of_a_program_are_read_or_ignored(
    data: st.DataObject, kind: str
) -> None:
    events = data.draw(st.lists(st.sampled_from(EVENTS[kind]), max_size=5))
    output = ADAPTERS[kind].parser(Heard())
    written = b""
    for event in events:
        changed = json.loads(json.dumps(event))
        for *folders, name in data.draw(st.lists(st.sampled_from(paths(event)), max_size=3)):
            holder = changed
            for folder in folders:
                holder = holder.get(folder) if isinstance(holder, dict) else None
            if isinstance(holder, dict):
                holder[name] = data.draw(VALUES)
        written += json.dumps(changed).encode() + b"\n"
    with contextlib.suppress(NotAnAnswerError):
        output.feed("stdout", written)
        output.finish()
        output.reply()
    assert output.failure(1)


def paths(event: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the keys of an event, with those of the objects in it."""
    return (
        [
            path
            for name, value in event.items()
            for path in [(name,), *((name, *inner) for inner in paths(value))]
        ]
        if isinstance(event, dict)
        else []
    )


def test_a_call_that_is_cut_off_ends_the_program_and_tells_what_it_was_waiting_for(
    tmp_path: Path,
) -> None:
    codex, heard = Played(tmp_path, "codex"), Heard()
    trouble = {"type": "error", "message": "Reconnecting... 1/5 (timeout)"}
    codex.plan({**lines(trouble), "sleep": True})

    async def scene() -> None:
        task = asyncio.create_task(codex.adapter(CodexAdapter).invoke(an_input(), heard))
        await until(lambda: bool(heard.statuses and codex.calls()))
        await cancelled(task)

    asyncio.run(scene())
    assert heard.notes["trouble"] == "Reconnecting... 1/5 (timeout)"
    assert not any(runs(one["pid"]) for one in codex.calls())


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    settings = GeminiAdapter.settings_type.model_validate({"type": "gemini"})
    adapter = GeminiAdapter(a_setup(tmp_path, settings, environ={"PATH": str(tmp_path)}))
    health = asyncio.run(adapter.health())
    assert not health.ok
    assert "no program gemini on PATH" in health.detail
    assert "npm install -g @google/gemini-cli" in health.detail
    with pytest.raises(AgentUnavailable, match="npm install"):
        call(adapter)


def test_health_looks_for_a_login_or_a_key_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex = Played(tmp_path, "codex")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("CODEX_API_KEY", raising=False)

    def health(**keys: Any) -> Health:
        return asyncio.run(codex.adapter(CodexAdapter, **keys).health())

    assert health() == (True, "no login found: `codex login`, or a key in CODEX_API_KEY")
    assert health(env={"CODEX_API_KEY": "inherit"}) == (
        False,
        "its `env` passes CODEX_API_KEY on, but CODEX_API_KEY is not set",
    )
    monkeypatch.setenv("CODEX_API_KEY", "k")
    assert health() == (
        False,
        "CODEX_API_KEY is set but not passed on; add env: {CODEX_API_KEY: inherit}",
    )
    assert health(env={"CODEX_API_KEY": "inherit"}) == (True, "")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/auth.json").write_text("{}", encoding="utf-8")
    assert health() == (True, "")
    assert codex.calls() == []


def test_a_program_gets_a_key_only_if_its_profile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    gemini = Played(tmp_path, "gemini")
    gemini.plan(sample("gemini", "nologin", code=41))
    assert "add env: {GEMINI_API_KEY: inherit}" in failure(gemini.adapter(GeminiAdapter)).mend
    got = failure(gemini.adapter(GeminiAdapter, env={"GEMINI_API_KEY": "inherit"}))
    assert got.mend == "log in: `gemini` in a terminal, or a key in GEMINI_API_KEY"
    first, second = gemini.calls()
    assert "GEMINI_API_KEY" not in first["env"]
    assert second["env"]["GEMINI_API_KEY"] == "k"


def test_a_new_profile_hands_on_a_key_unless_there_is_a_login(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.env = {"GEMINI_API_KEY": "k"}
    done = program.run("agents", "add", "one", "--adapter", "gemini", "--set", "program=none")
    assert "GEMINI_API_KEY: inherit" in done.stdout, done.stderr
    login = Path(program.environment()["HOME"]) / ".gemini/oauth_creds.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}", encoding="utf-8")
    done = program.run("agents", "add", "two", "--adapter", "gemini", "--set", "program=none")
    assert "two.yaml" in done.stdout, done.stderr
    assert "inherit" not in done.stdout


def test_the_whole_program_goes_on_in_the_session_across_commands(tmp_path: Path) -> None:
    program = Program(tmp_path)
    codex = Played(tmp_path, "codex")
    codex.plan(sample("codex", "json"), sample("codex", "resume"))
    env = {"PLAY_FOLDER": str(tmp_path)}
    program.agent("bot", adapter={"type": "codex", "program": "bin/codex", "env": env}).team()
    for message in ("one", "two"):
        done = program.run("send", "--session", "s", message)
        assert done.code == 0, done.stderr
    first, second = codex.calls()
    assert "resume" not in first["args"]
    assert second["args"][-3:] == ["resume", CODEX_ID, "-"]
    assert "> one" in first["stdin"]
    assert "> two" in second["stdin"]
    assert "> one" not in second["stdin"]
    assert "FAKE-RESPONSES" not in second["stdin"], "its own reply is in its session"
    finished = [one for one in program.records() if one["type"] == "reply_finished"]
    assert [one["usage"]["input_tokens"] for one in finished] == [12, 12]
    assert [one["agent_session"]["id"].split("?")[0] for one in finished] == [CODEX_ID] * 2
