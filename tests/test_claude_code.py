"""The kind `claude_code`: captured output by a stand-in, then the real program where it is."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import agent_programs
import llmock_server
import psutil
import pytest
from adapter_setups import (
    PATIENCE_S,
    PROGRAMS,
    Heard,
    a_setup,
    an_input,
    cancelled,
    pids_in,
    runs,
    until,
)
from product import (
    AgentError,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentSession,
    AgentUnavailable,
    ClaudeCodeAdapter,
    ClaudeCodeSettings,
    Permission,
    PermissionRequest,
    claude_code,
)
from program import LIMIT_S, Program, gone
from program import until as until_now

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

T = TypeVar("T")

SAMPLES = Path(__file__).parent / "samples" / "claude"
MODEL = "claude-sonnet-4-5"


def using(adapter: ClaudeCodeAdapter, use: Callable[[ClaudeCodeAdapter], Awaitable[T]]) -> T:
    """Use an adapter, and see that no process is left of it."""

    async def run() -> T:
        await adapter.start()
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                return await use(adapter)
        finally:
            await adapter.stop()

    started = agent_programs.Started()
    try:
        return asyncio.run(run())
    finally:
        assert started.pids() == []


class Fake:
    """`programs/fake_claude.py` as an executable of its own, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        script = PROGRAMS / "fake_claude.py"
        if sys.platform == "win32":
            self.program = folder / "claude.cmd"
            self.program.write_text(f'@"{sys.executable}" "{script}" %*\n', encoding="utf-8")
        else:
            self.program = folder / "claude"
            text = f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n'
            self.program.write_text(text, encoding="utf-8")
            self.program.chmod(0o755)

    def adapter(self, *words: str | Path, **keys: Any) -> ClaudeCodeAdapter:
        env = {
            "FAKE_CLAUDE": os.pathsep.join(map(str, words)),
            "FAKE_CLAUDE_LOG": str(self.log),
        }
        settings = {"type": "claude_code", "program": str(self.program), "env": env, **keys}
        return ClaudeCodeAdapter(a_setup(self.folder, ClaudeCodeSettings.model_validate(settings)))

    def told(self, key: str) -> list[Any]:
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [value[key] for value in map(json.loads, lines) if key in value]

    def played(self, *objects: dict[str, Any]) -> Path:
        """A file with these objects to play."""
        path = self.folder / f"played-{len(list(self.folder.glob('played-*')))}"
        path.write_text("".join(json.dumps(value) + "\n" for value in objects), encoding="utf-8")
        return path


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def session_of(heard: Heard) -> str:
    """The id that Claude Code itself knows the session by."""
    assert heard.session_id is not None
    return str(heard.session_id)


def result(**changes: Any) -> dict[str, Any]:
    """A `result` object; `tokens` and `cost` are what the session has used so far."""
    tokens, cost = changes.pop("tokens", 11), changes.pop("cost", 0.25)
    usage = {"input_tokens": 10, "output_tokens": 1}
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "好的",
        "total_cost_usd": cost,
        "usage": usage,
        "modelUsage": {"m": {"inputTokens": tokens - 1, "outputTokens": 1}},
        **changes,
    }


def invoked(adapter: ClaudeCodeAdapter, heard: Heard | None = None, **keys: Any) -> AgentOutput:
    return using(adapter, lambda adapter: adapter.invoke(an_input(**keys), heard or Heard()))


def test_captured_text_comes_as_deltas_and_as_answer(fake: Fake) -> None:
    heard = Heard()
    output = invoked(fake.adapter(SAMPLES / "streamjson_partial.stdout"), heard)
    assert output.content == heard.text
    assert output.content.startswith("FAKE-REPLY nmsgs=2")
    assert len(heard.deltas) > 1
    assert [status.status for status in heard.statuses] == ["generating"]
    assert output.usage is not None
    assert (output.usage.input_tokens, output.usage.output_tokens) == (12, 9)
    assert output.usage.cost_usd == 0.000228
    assert output.metadata["raw"]["num_turns"] == 1


def test_captured_tool_use_is_told_and_only_the_last_text_is_the_answer(fake: Fake) -> None:
    heard = Heard()
    output = invoked(fake.adapter(SAMPLES / "tool_ok.stdout"), heard)
    assert [(one.status, one.detail) for one in heard.statuses] == [
        ("calling_tool", "Bash echo hi-from-bash")
    ]
    assert heard.refused == []
    assert output.content == "FAKE-REPLY nmsgs=4 last="


@pytest.mark.parametrize(
    ("sample", "kind", "says", "mend"),
    [
        ("err401_retries0", AgentRefused, "does not accept the key", "ANTHROPIC_API_KEY: inherit"),
        ("nokey", AgentRefused, "not logged in", "run `claude` once"),
        ("err500_retries1_stream", AgentUnavailable, "HTTP 500", "try again"),
        ("err529_retries1", AgentOverloaded, "HTTP 529", "on_failure: retry"),
        ("refused_retries1", AgentUnavailable, "could not reach", "ANTHROPIC_BASE_URL"),
        ("maxturns1_tool", AgentProtocolError, "limit of turns", "--max-turns"),
        ("maxbudget", AgentRefused, "budget is spent", "--max-budget-usd"),
    ],
)
def test_captured_failures(
    fake: Fake, sample: str, kind: type[AgentError], says: str, mend: str
) -> None:
    with pytest.raises(kind) as caught:
        invoked(fake.adapter(SAMPLES / f"{sample}.stdout"))
    assert type(caught.value) is kind
    assert says in caught.value.what
    assert mend in caught.value.mend
    assert caught.value.came
    assert caught.value.metadata["raw"]["is_error"] is True
    assert "\n" not in str(caught.value)


def test_what_a_failed_turn_used_is_told(fake: Fake) -> None:
    heard = Heard()
    with pytest.raises(AgentProtocolError):
        invoked(fake.adapter(SAMPLES / "maxturns1_tool.stdout"), heard)
    assert heard.usage
    assert heard.usage.output_tokens > 0
    assert heard.usage.cost_usd


def test_a_limit_of_the_subscription_says_when_it_ends(fake: Fake) -> None:
    info = {"status": "rejected", "resetsAt": time.time() + 7200}
    limited = result(is_error=True, api_error_status=429, result="You've hit your limit")
    played = fake.played({"type": "rate_limit_event", "rate_limit_info": info}, limited)
    with pytest.raises(AgentOverloaded) as caught:
        invoked(fake.adapter(played))
    assert caught.value.retry_after == pytest.approx(7200, abs=PATIENCE_S)


def test_thinking_is_kept_and_subagents_are_no_text(fake: Fake) -> None:
    def delta(text: str, parent: str | None) -> dict[str, Any]:
        event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
        return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}

    thinking = {"content": [{"type": "thinking", "thinking": "先想 @all", "signature": "x"}]}
    played = fake.played(
        {"type": "assistant", "message": thinking},
        delta("sub", "toolu_1"),
        delta("好", None),
        {"type": "assistant", "message": "no such shape"},
        result(result="好"),
    )
    heard = Heard()
    output = invoked(fake.adapter(played), heard)
    assert (output.content, heard.text) == ("好", "好")
    assert output.metadata["thinking"] == "先想 @all"


def said(text: str, message_id: str = "msg_1", **changes: Any) -> dict[str, Any]:
    message = {"id": message_id, "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, **changes}


def used(message_id: str = "msg_1") -> dict[str, Any]:
    block = {"type": "server_tool_use", "name": "web_search"}
    return {"type": "assistant", "message": {"id": message_id, "content": [block]}}


@pytest.mark.parametrize(
    "told", ["All three. ", "Verdict: REJECT", "All three. Verdict: REJECT", ""]
)
@pytest.mark.parametrize(
    "before",
    [[], [said("let me look", "msg_0")], [said("let me look"), used()]],
    ids=["alone", "after another message", "after a tool of the same message"],
)
def test_an_answer_in_several_events_of_one_message_is_whole(
    fake: Fake, before: list[dict[str, Any]], told: str
) -> None:
    by_a_helper = said("sub", "msg_2", parent_tool_use_id="toolu_1")
    events = [*before, said("All three. "), by_a_helper, said("Verdict: REJECT")]
    output = invoked(fake.adapter(fake.played(*events, result(result=told))))
    assert output.content == "All three. Verdict: REJECT"


def test_a_result_that_no_event_holds_is_the_answer(fake: Fake) -> None:
    played = fake.played(said("Here it is."), result(result='{"ok": true}'))
    assert invoked(fake.adapter(played)).content == '{"ok": true}'


INIT = {"type": "system", "subtype": "init"}
NOTIFIED = {"type": "system", "subtype": "task_notification", "status": "completed"}
DELTA = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "the task"}}
BY_TASK = {"origin": {"kind": "task-notification"}}


def unasked(*first: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """The events of a turn that Claude Code has by itself."""
    delta = {"type": "stream_event", "event": DELTA, "parent_tool_use_id": None}
    ended = result(result="the task has ended", **changes)
    return [*first, delta, said("the task has ended", "msg_9"), ended]


@pytest.mark.parametrize(
    "events",
    [
        unasked(NOTIFIED, INIT),
        [NOTIFIED, result(result="", num_turns=0)],
        [NOTIFIED, *unasked(INIT, user_message_uuids=["another"])],
        unasked(INIT, **BY_TASK),
        unasked(INIT, user_message_uuid="another"),
        [*unasked(NOTIFIED, INIT), *unasked(NOTIFIED, INIT)],
    ],
    ids=["told", "without a word", "told and named", "by its origin", "by its message", "two"],
)
def test_a_turn_that_was_not_asked_for_is_no_answer(
    fake: Fake, events: list[dict[str, Any]]
) -> None:
    answered = [INIT, said("the answer"), result(result="the answer", tokens=44)]
    heard = Heard()
    output = invoked(fake.adapter(fake.played(*events, *answered)), heard)
    assert output.content == "the answer"
    count = sum(event["type"] == "result" for event in events)
    assert output.metadata["unasked_results"] == count
    assert output.usage is not None
    assert output.usage.input_tokens == 10 * (count + 1)
    if events[0] == NOTIFIED:
        assert heard.text == ""


@pytest.mark.parametrize(
    "events",
    [
        [INIT, NOTIFIED, said("the answer"), result(result="the answer", **BY_TASK)],
        [INIT, said("the answer"), result(result="the answer", origin={"kind": "human"})],
        [NOTIFIED, INIT, said("the answer"), result(result="the answer", user_message_uuid="own")],
        [
            NOTIFIED,
            INIT,
            said("the answer", user_message_uuids=["own"]),
            result(result="the answer"),
        ],
    ],
    ids=["told within", "by its origin", "named in the result", "named in a message"],
)
def test_a_turn_that_reads_the_message_beside_a_notification_is_the_answer(
    fake: Fake, events: list[dict[str, Any]]
) -> None:
    assert invoked(fake.adapter(fake.played(*events))).content == "the answer"


def test_a_turn_between_two_questions_answers_neither(fake: Fake) -> None:
    first = fake.played(INIT, said("1"), result(result="1"), NOTIFIED, INIT)
    second = fake.played(*unasked(), INIT, said("2"), result(result="2", tokens=33))
    third = fake.played(INIT, said("3"), result(result="3", tokens=44))

    async def calls(adapter: ClaudeCodeAdapter) -> list[str]:
        heard, answers = Heard(), []
        for number in range(3):
            own = heard.own_session() if number else None
            answers.append((await adapter.invoke(an_input(own_session=own), heard)).content)
        return answers

    assert using(fake.adapter(first, second, third), calls) == ["1", "2", "3"]


def test_half_a_pair_is_replaced_and_flagged(fake: Fake) -> None:
    played = fake.folder / "played"
    played.write_text(json.dumps(result(result="a")).replace('"a"', '"a\\ud83d"'), encoding="utf-8")
    with played.open("a", encoding="utf-8") as file:
        file.write("\n")
    output = invoked(fake.adapter(played))
    assert output.content == "a\ufffd"
    assert output.metadata["replaced_bytes"] is True


def test_it_is_called_with_what_the_profile_says(fake: Fake) -> None:
    keys: dict[str, Any] = {"model": MODEL, "tools": ["Read", "Grep"], "permission_mode": "plan"}
    invoked(fake.adapter(fake.played(result()), args=["--effort", "low"], **keys))
    (args,) = fake.told("args")
    pairs = dict(itertools.pairwise(args))
    assert pairs["--tools"] == "Read,Grep"
    assert (pairs["--model"], pairs["--permission-mode"]) == (MODEL, "plan")
    assert args[-2:] == ["--effort", "low"]
    assert fake.told("system") == ["You are a bot."]
    assert not list((fake.folder / "scratch").glob("system-*"))


def test_tools_are_off_where_none_are_named(fake: Fake) -> None:
    invoked(fake.adapter(fake.played(result())))
    (args,) = fake.told("args")
    assert args[args.index("--tools") + 1] == ""
    assert "--strict-mcp-config" in args


def test_a_kept_session_goes_on_in_its_process_and_another_begins_a_new_one(fake: Fake) -> None:
    async def calls(adapter: ClaudeCodeAdapter) -> list[str]:
        heard, ids = Heard(), []
        for goes_on in (False, True, False):
            own = heard.own_session() if goes_on else None
            await adapter.invoke(an_input(own_session=own), heard)
            ids.append(session_of(heard))
        return ids

    first, second, third = using(fake.adapter(fake.played(result())), calls)
    assert first == second != third
    assert [args[args.index("--session-id") + 1] for args in fake.told("args")] == [first, third]


def test_the_cost_is_what_the_total_grew_by(fake: Fake) -> None:
    played = [fake.played(result(tokens=11 * n, cost=0.25 * n)) for n in (1, 2)]

    async def calls(adapter: ClaudeCodeAdapter) -> list[float | None]:
        heard, costs = Heard(), []
        for own in (False, True):
            session = heard.own_session() if own else None
            output = await adapter.invoke(an_input(own_session=session), heard)
            costs.append(output.usage.cost_usd if output.usage else None)
        return costs

    assert using(fake.adapter(*played), calls) == [0.25, 0.25]


@pytest.mark.parametrize(
    ("tokens", "total", "cost"), [(22, 0.45, 0.2), (11, 0.2, 0.2)], ids=["adds up", "begins anew"]
)
def test_the_cost_of_a_resumed_session(fake: Fake, tokens: int, total: float, cost: float) -> None:
    heard = Heard()
    invoked(fake.adapter(fake.played(result())), heard)
    own = heard.own_session()
    again = fake.adapter(fake.played(result(tokens=tokens, cost=total)))
    output = invoked(again, own_session=own)
    assert output.usage is not None
    assert output.usage.cost_usd == cost
    args = fake.told("args")[1]
    assert args[args.index("--resume") + 1] == session_of(heard)


def test_the_cost_is_not_known_where_the_earlier_total_is_gone(fake: Fake) -> None:
    own = AgentSession(id="11111111-2222-4333-8444-555555555555", upto_seq=2)
    output = invoked(fake.adapter(fake.played(result(tokens=99))), own_session=own)
    assert output.usage is not None
    assert output.usage.cost_usd is None


def test_the_cost_is_not_known_where_the_program_guesses_at_a_price(fake: Fake) -> None:
    usage = {"own-model": {"inputTokens": 10, "outputTokens": 1, "costBasis": "unknown"}}
    output = invoked(fake.adapter(fake.played(result(modelUsage=usage))))
    assert output.usage is not None
    assert (output.usage.input_tokens, output.usage.cost_usd) == (10, None)


def test_tokens_that_cost_nothing_have_an_unknown_cost(fake: Fake) -> None:
    played = [fake.played(result(tokens=11 * n, cost=cost)) for n, cost in ((1, 0), (2, 0.25))]

    async def calls(adapter: ClaudeCodeAdapter) -> list[float | None]:
        heard = Heard()
        first = await adapter.invoke(an_input(), heard)
        second = await adapter.invoke(an_input(own_session=heard.own_session()), heard)
        return [output.usage.cost_usd if output.usage else -1 for output in (first, second)]

    assert using(fake.adapter(*played), calls) == [None, 0.25]


@pytest.mark.parametrize(
    ("prices", "cost"),
    [("input_per_m: 2, output_per_m: 10", 3e-05), ("input_per_m: 0, output_per_m: 0", 0.0)],
)
def test_a_model_without_a_price_costs_what_arena_yaml_says(
    fake: Fake, prices: str, cost: float
) -> None:
    program = Program(fake.folder)
    played = fake.played(result(cost=0))
    env = {"FAKE_CLAUDE": str(played), "FAKE_CLAUDE_LOG": str(fake.log)}
    keys = {"type": "claude_code", "program": str(fake.program), "env": env, "model": "own"}
    program.agent("k", adapter=keys)
    program.run("send", "-s", "first", "@k hi").check(code=0, stdout=None)
    program.file("arena.yaml", f"models: {{own: {{{prices}}}}}")
    program.run("send", "-s", "priced", "@k hi").check(code=0, stdout=None)
    costs = [
        record["usage"]["cost_usd"]
        for session in ("first", "priced")
        for record in program.records(session)
        if record["type"] == "reply_finished"
    ]
    assert costs == [None, cost]
    assert "unknown" in program.run("usage", "first").stdout


def test_a_lost_session_that_is_told_on_stderr_only_begins_afresh(fake: Fake) -> None:
    own = AgentSession(id="11111111-2222-4333-8444-555555555555", upto_seq=2)
    heard = Heard()
    output = invoked(fake.adapter("lost", fake.played(result())), heard, own_session=own)
    assert output.content == "好的"
    assert heard.notes["lost_session"] == own.id
    assert ["--resume" in args for args in fake.told("args")] == [True, False]
    args = fake.told("args")[1]
    assert args[args.index("--session-id") + 1] == session_of(heard)


def test_an_id_that_is_none_never_becomes_an_argument(fake: Fake) -> None:
    own = AgentSession(id="--dangerously-skip-permissions", upto_seq=2)
    assert invoked(fake.adapter(fake.played(result())), own_session=own).content == "好的"
    (args,) = fake.told("args")
    assert own.id not in args
    assert "--session-id" in args


def test_a_program_that_dies_is_told_and_the_next_call_has_another(fake: Fake) -> None:
    async def calls(adapter: ClaudeCodeAdapter) -> AgentProtocolError:
        with pytest.raises(AgentProtocolError) as caught:
            await adapter.invoke(an_input(), Heard())
        with pytest.raises(AgentProtocolError):
            await adapter.invoke(an_input(), Heard())
        return caught.value

    error = using(fake.adapter("die=3"), calls)
    assert error.what == "Claude Code failed with exit code 3 before it answered"
    assert error.came == "its last words"
    assert len(fake.told("args")) == 2


@pytest.mark.parametrize("keep_alive", [True, False])
def test_a_cut_off_call_ends_the_whole_tree(fake: Fake, keep_alive: bool) -> None:
    path = fake.folder / "pids"

    async def call(adapter: ClaudeCodeAdapter) -> None:
        task = asyncio.create_task(adapter.invoke(an_input(), Heard()))
        pids = await pids_in(path)
        await cancelled(task)
        assert len(pids) == 2
        assert not any(runs(pid) for pid in pids)

    using(fake.adapter(f"hang={path}", keep_alive=keep_alive), call)


def test_an_answer_that_is_no_text_is_an_error(fake: Fake) -> None:
    with pytest.raises(AgentProtocolError):
        invoked(fake.adapter(fake.played(result(result=None))))


@pytest.mark.parametrize(
    ("environ", "env", "files", "ok", "says"),
    [
        ({}, {}, {}, False, "run `claude` once"),
        ({"ANTHROPIC_API_KEY": "k"}, {}, {}, False, "{ANTHROPIC_API_KEY: inherit}"),
        ({"ANTHROPIC_API_KEY": "k"}, {"ANTHROPIC_API_KEY": "inherit"}, {}, True, ""),
        ({}, {"ANTHROPIC_API_KEY": "inherit"}, {}, False, "ANTHROPIC_API_KEY is not set"),
        ({}, {"CLAUDE_CODE_USE_BEDROCK": "1"}, {}, True, ""),
        ({}, {}, {".claude/.credentials.json": "{}"}, True, ""),
        ({}, {}, {".claude.json": '{"oauthAccount": {"a": 1}}'}, True, ""),
        ({}, {}, {".claude.json": "not json"}, False, "no login and no key"),
        ({}, {}, {".claude/settings.json": '{"apiKeyHelper": "x"}'}, True, ""),
    ],
)
def test_health_looks_for_a_login_or_a_key(
    fake: Fake,
    environ: dict[str, str],
    env: dict[str, str],
    files: dict[str, str],
    ok: bool,
    says: str,
) -> None:
    home = fake.folder / "家"
    for name, content in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content, encoding="utf-8")
    settings = ClaudeCodeSettings(type="claude_code", program=str(fake.program), env=env)
    given = {"PATH": os.environ["PATH"], "HOME": str(home), **environ}
    health = using(
        ClaudeCodeAdapter(a_setup(fake.folder, settings, environ=given)),
        lambda adapter: adapter.health(),
    )
    assert (health.ok, says in health.detail) == (ok, True)


def test_a_missing_program_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_code, "_bundled", lambda: None)
    settings = ClaudeCodeSettings(type="claude_code")
    adapter = ClaudeCodeAdapter(a_setup(tmp_path, settings, environ={"PATH": str(tmp_path)}))
    health = using(adapter, lambda adapter: adapter.health())
    assert not health.ok
    assert "npm install -g @anthropic-ai/claude-code" in health.detail
    with pytest.raises(AgentUnavailable, match="no program claude on PATH"):
        invoked(adapter)


class Real:
    """The real Claude Code with a home of its own, and the API that it speaks to."""

    def __init__(self, folder: Path, api: LLMock) -> None:
        self.folder = folder
        self.api = api
        self.home = folder / "家"
        self.home.mkdir()
        self.env = {
            "HOME": str(self.home),
            "USERPROFILE": str(self.home),
            "ANTHROPIC_BASE_URL": api.base_url("anthropic"),
            "ANTHROPIC_API_KEY": "not-a-real-key",
        }

    def adapter(self, **keys: Any) -> ClaudeCodeAdapter:
        settings = {"type": "claude_code", "model": MODEL, "env": self.env, **keys}
        return ClaudeCodeAdapter(a_setup(self.folder, ClaudeCodeSettings.model_validate(settings)))

    def call_tool(self, name: str, arguments: dict[str, Any], text: str | None = None) -> None:
        """Make the model call a tool once, when it is next offered any."""
        from llmock.scenarios import Match, Reply, ToolCall

        calls = (ToolCall(name, arguments),)
        self.api.add(Reply(text, calls, times=1, match=Match(tools=True)))

    def asked(self) -> list[list[str]]:
        """The texts of the last message of each request to the model."""
        bodies = [request.body for request in self.api.requests if request.body]
        return [
            [part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text"]
            for body in bodies
        ]


@pytest.fixture
def real(tmp_path: Path) -> Real:
    if not shutil.which("claude") and claude_code._bundled() is None:
        pytest.skip("Claude Code is not installed (pip install claude-agent-sdk)")
    return Real(tmp_path, llmock_server.fresh())


@pytest.mark.parametrize("keep_alive", [True, False])
def test_real_replies_of_one_session(real: Real, keep_alive: bool) -> None:
    real.api.reply("好的，收到", times=None)

    async def calls(adapter: ClaudeCodeAdapter) -> list[tuple[AgentOutput, Heard, int]]:
        own, done, started = None, [], agent_programs.Started()
        for text in ("第一条", "第二条"):
            heard = Heard()
            output = await adapter.invoke(an_input(text, own_session=own), heard)
            own = heard.own_session()
            done.append((output, heard, len(started.pids())))
        return done

    done = using(real.adapter(keep_alive=keep_alive), calls)
    assert [(output.content, heard.text) for output, heard, _ in done] == [("好的，收到",) * 2] * 2
    assert len({session_of(heard) for _, heard, _ in done}) == 1
    assert [running for _, _, running in done] == [int(keep_alive)] * 2
    usages = [output.usage for output, _, _ in done]
    assert all(usage and usage.input_tokens and usage.cost_usd for usage in usages)
    first, second = real.asked()
    assert (first[-1], second[-1]) == ("第一条", "第二条")
    assert [len(request.body["messages"]) for request in real.api.requests if request.body] == [
        1,
        3,
    ]
    system = json.dumps(real.api.last_request.body["system"], ensure_ascii=False)
    assert "You are a bot." in system
    assert not real.api.last_request.body.get("tools")


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize(
    "text", ["/help me", "@secret.txt 看", "看 @./secret.txt\n/compact", "-----\n--help", "!ls"]
)
def test_c31_real_text_of_a_message_is_only_text(real: Real, keep_alive: bool, text: str) -> None:
    (real.folder / "secret.txt").write_text("THE-SECRET", encoding="utf-8")
    real.api.reply("fine", times=None)
    output = invoked(real.adapter(keep_alive=keep_alive, tools=["Read"]), text=text)
    assert output.content == "fine"
    (asked,) = real.asked()
    assert asked[-1].removeprefix(" ") == text
    assert "THE-SECRET" not in json.dumps([request.body for request in real.api.requests])


@pytest.mark.parametrize(("text", "role"), [("长" * 68_000, "短"), ("短", "长" * 68_000)])
def test_c31_real_long_prompts(real: Real, text: str, role: str) -> None:
    real.api.reply("fine", times=None)
    output = invoked(real.adapter(), text=text, role_prompt=role)
    assert output.content == "fine"
    assert real.asked()[-1][-1] == text
    assert role in json.dumps(real.api.last_request.body["system"], ensure_ascii=False)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AgentRefused),
        (404, AgentRefused),
        (429, AgentOverloaded),
        (500, AgentUnavailable),
        (529, AgentOverloaded),
    ],
)
def test_real_failures_of_the_provider(real: Real, status: int, kind: type[AgentError]) -> None:
    real.api.fail(status, times=None)
    with pytest.raises(kind) as caught:
        invoked(real.adapter())
    assert type(caught.value) is kind
    asked = [request for request in real.api.requests if request.path.endswith("/messages")]
    assert len(asked) <= 2  # a model that is not there is asked for once more without a stream


def test_real_context_that_is_too_long(real: Real) -> None:
    real.api.context_overflow(times=None)
    with pytest.raises(AgentRefused, match="too long for the model"):
        invoked(real.adapter())


@pytest.mark.parametrize(
    ("reason", "kind", "says"),
    [
        ("refusal", AgentRefused, "refused"),
        ("length", AgentProtocolError, "cut off at the length limit"),
    ],
)
def test_real_ends_that_are_no_answer(
    real: Real, reason: str, kind: type[AgentError], says: str
) -> None:
    from llmock.scenarios import Reply

    real.api.add(Reply("half a", finish_reason=reason, times=None))
    with pytest.raises(kind, match=says):
        invoked(real.adapter())


def test_real_tools_that_are_on_are_used_and_told(real: Real) -> None:
    (real.folder / "备忘.txt").write_text("THE-CONTENT", encoding="utf-8")
    real.call_tool("Read", {"file_path": str(real.folder / "备忘.txt")}, text="看一下。")
    real.api.reply("读完了", times=None)
    heard = Heard()
    output = invoked(real.adapter(tools=["Read"]), heard)
    assert output.content == "读完了"
    told = [(status.status, status.detail) for status in heard.statuses]
    assert told == [("generating", ""), ("calling_tool", "Read 备忘.txt"), ("generating", "")]
    assert "THE-CONTENT" in json.dumps(real.api.last_request.body)


TOOLS = ["Edit", "Write", "Bash"]


@pytest.mark.parametrize(
    ("keys", "tool", "path", "by"),
    [
        ({"tools": TOOLS}, "Write", "work/made", ""),
        ({"tools": TOOLS}, "Bash", "work/made", ""),
        ({"tools": TOOLS}, "Write", "made", "permission_mode"),
        ({"tools": TOOLS, "permission_mode": "default"}, "Write", "work/made", "permission_mode"),
        ({"tools": TOOLS, "permission_mode": "acceptEdits"}, "Write", "work/made", ""),
        ({"tools": TOOLS, "args": ["--allowedTools", "Bash(ls:*)"]}, "Bash", "work/made", "mode"),
        ({"tools": ["Edit", "Bash"]}, "Write", "work/made", "not enabled"),
    ],
)
def test_real_tools_work_as_they_are_written(
    real: Real, keys: dict[str, Any], tool: str, path: str, by: str
) -> None:
    (real.folder / "work").mkdir()
    made, heard = real.folder / path, Heard()
    arguments = {
        "Write": {"file_path": str(made), "content": "x"},
        "Bash": {"command": f"echo x > {made.name}", "description": "make it"},
    }
    real.call_tool(tool, arguments[tool])
    real.api.reply("done", times=None)
    assert invoked(real.adapter(cwd="work", **keys), heard).content == "done"
    assert made.exists() == (not by)
    target = {"Bash": "echo x > made", "Write": "made" if path == "work/made" else str(made)}[tool]
    assert f"{tool} {target}" in [status.detail for status in heard.statuses]
    assert [(action.tool, action.target) for action in heard.refused] == [(tool, target)] * bool(by)
    assert all(by in action.by for action in heard.refused)


@pytest.mark.parametrize("keep_alive", [True, False])
def test_real_asks_before_it_acts(real: Real, keep_alive: bool) -> None:
    """It runs one command and edits a file with permission, and does without the other command."""

    def decide(request: PermissionRequest) -> Permission:
        asked.append(request)
        return Permission("denied", "too much") if ";" in request.detail else Permission("allowed")

    async def calls(adapter: ClaudeCodeAdapter) -> list[Heard]:
        own, heard = None, []
        for tool, arguments in uses:
            real.api.reset().tool_mode("off")
            real.call_tool(tool, arguments)
            real.api.reply("done", times=None)
            heard.append(Heard(decide))
            output = await adapter.invoke(an_input(own_session=own), heard[-1])
            assert output.content == "done"
            own = heard[-1].own_session()
        return heard

    asked: list[PermissionRequest] = []
    (real.folder / "work").mkdir()
    new = real.folder / "work" / "新.txt"
    uses: list[tuple[str, dict[str, Any]]] = [
        ("Bash", {"command": "touch made", "description": "make it"}),
        ("Bash", {"command": "touch made; touch other", "description": "make it"}),
        ("Write", {"file_path": str(new), "content": "一\n"}),
    ]
    keys = {"cwd": "work", "tools": TOOLS, "permission_mode": "ask", "keep_alive": keep_alive}
    first, second, third = using(real.adapter(**keys), calls)
    assert [(request.action, request.detail) for request in asked] == [
        ("execute_command", "touch made"),
        ("execute_command", "touch made; touch other"),
        ("modify_file", "新.txt"),
    ]
    assert asked[0].arguments == {"command": "touch made"}
    assert asked[2].diff == "--- 新.txt\n+++ 新.txt\n@@ -0,0 +1 @@\n+一\n"
    assert sorted(path.name for path in new.parent.iterdir()) == ["made", "新.txt"]
    assert [(action.target, action.by) for action in second.refused] == [
        ("touch made; touch other", "approvals")
    ]
    assert first.refused == third.refused == []


def test_real_ends_its_reply_when_a_person_was_asked(real: Real) -> None:
    real.call_tool("Bash", {"command": "touch made", "description": "make it"})
    real.api.reply("I wait.", times=None)
    heard = Heard(lambda _: Permission("asked"))
    output = invoked(real.adapter(tools=TOOLS, permission_mode="ask"), heard)
    assert output.content == "I wait."
    assert "end your reply now" in json.dumps(real.api.last_request.body)
    assert not (real.folder / "made").exists()
    assert heard.refused == []


@pytest.mark.parametrize("keys", [{}, {"permission_mode": "default"}])
def test_real_files_of_messages_may_be_read(real: Real, keys: dict[str, Any]) -> None:
    for name in ("work", "attachments/m2", "other"):
        (real.folder / name).mkdir(parents=True)
    for path, refused in (("attachments/m2/表 格.txt", False), ("other/b.txt", True)):
        (real.folder / path).write_text("THE-CONTENT", encoding="utf-8")
        real.api.reset().tool_mode("off")
        real.call_tool("Read", {"file_path": str(real.folder.resolve() / path)})
        real.api.reply("read", times=None)
        heard = Heard()
        invoked(real.adapter(cwd="work", tools=["Read"], **keys), heard)
        assert bool(heard.refused) == refused
        assert ("THE-CONTENT" in json.dumps(real.api.last_request.body)) != refused


def test_real_lost_session_gets_the_whole_context(real: Real) -> None:
    real.api.reply("fine", times=None)
    own = AgentSession(id="11111111-2222-4333-8444-555555555555", upto_seq=2)
    heard = Heard()
    assert invoked(real.adapter(), heard, own_session=own).content == "fine"
    assert session_of(heard) != own.id
    assert heard.notes["lost_session"] == own.id


def test_real_wrong_mode_is_told_in_its_own_words(real: Real) -> None:
    with pytest.raises(AgentProtocolError) as caught:
        invoked(real.adapter(permission_mode="nonsense"))
    assert "nonsense" in caught.value.came
    assert "acceptEdits" in caught.value.came
    assert "in a shell" in caught.value.mend


def test_real_call_that_is_cut_off_leaves_nothing(real: Real) -> None:
    real.api.stall(after_chunks=5, seconds=600)

    async def call(adapter: ClaudeCodeAdapter) -> None:
        heard, started = Heard(), agent_programs.Started()
        task = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until(lambda: bool(heard.text))
        assert started.pids()
        await cancelled(task)
        assert started.pids() == []

    using(real.adapter(), call)


@pytest.fixture
def arena(real: Real) -> Program:
    program = Program(real.folder / "工作区")
    adapter = {"type": "claude_code", "model": MODEL, "env": real.env}
    bundled = claude_code._bundled()
    if not shutil.which("claude") and bundled:
        adapter["program"] = str(bundled)
    program.agent("审阅员", adapter=adapter)
    return program


def test_real_session_goes_on_in_another_arena_with_the_unseen_only(
    real: Real, arena: Program
) -> None:
    real.api.reply("我的第一个回答", times=None)
    for text in ("一号消息", "二号消息", "三号消息"):
        done = arena.run("send", "--quiet", "--session", "s", text)
        assert done.code == 0, done.stderr
        if text == "二号消息":
            shutil.rmtree(real.home / ".claude" / "projects")
    kept = [record["agent_session"]["id"].partition("?")[0] for record in replies(arena)]
    assert kept[0] == kept[1] != kept[2]
    first, second, third = (asked[-1] for asked in real.asked())
    assert "一号消息" in first
    assert "二号消息" in second
    assert "一号消息" not in second
    assert "我的第一个回答" not in second
    assert all(text in third for text in ("一号消息", "二号消息", "三号消息", "我的第一个回答"))
    costs = [record["usage"]["cost_usd"] for record in replies(arena)]
    assert all(0 < cost < 2 * costs[0] for cost in costs[:2])


def replies(arena: Program) -> list[dict[str, Any]]:
    return [record for record in arena.records() if record["type"] == "reply_finished"]


def test_real_profile_and_health_from_the_command_line(real: Real, arena: Program) -> None:
    done = arena.run("agents", "check")
    assert done.code == 0, done.stderr
    assert "审阅员" in done.stdout


def in_the_middle(arena: Program) -> tuple[subprocess.Popen[bytes], list[int]]:
    """An arena whose agent has begun to answer and does not go on, and the processes below it."""
    running = arena.start("send", "--session", "s", "一号消息")
    until_now(lambda: b'"generating"' in arena.raw())
    below = [child.pid for child in psutil.Process(running.pid).children(recursive=True)]
    assert below
    return running, below


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
def test_real_interrupt_ends_it_and_keeps_the_partial_text(real: Real, arena: Program) -> None:
    real.api.reply("一 二 三 四 五 六 七 八")
    real.api.stall(after_chunks=5, seconds=600)
    running, below = in_the_middle(arena)
    running.send_signal(signal.SIGINT)
    assert arena.finish(running).code == 130
    assert gone(*below)
    (reply,) = replies(arena)
    assert reply["status"] == "cancelled"
    assert reply["metadata"]["partial"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it on Linux only")
def test_real_kill_of_arena_leaves_nothing(real: Real, arena: Program) -> None:
    real.api.stall(after_chunks=5, seconds=600)
    running, below = in_the_middle(arena)
    running.kill()
    running.communicate(timeout=LIMIT_S)
    until_now(lambda: gone(*below))
