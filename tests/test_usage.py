"""`arena usage`: what agents used, by agent, model, day and scenario; what is known of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from product import Ledger, ModelFacts, Usage, columns, doctor, pricing
from program import Program

COSTLY = Usage(input_tokens=1000, output_tokens=200, cache_read_tokens=500, cost_usd=0.02)


@pytest.fixture
def talk(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "ok"})
    return made


class Past:
    """A transcript written line by line."""

    def __init__(self, program: Program, session: str = "s", scenario: str | None = None) -> None:
        self._path = program.transcript(session)
        self._path.parent.mkdir(parents=True)
        self._seq = 0
        self.reply = 0
        self.raw(self.line("session", session=session, scenario=scenario))

    def line(self, kind: str, **fields: Any) -> str:
        self._seq += 1
        told = {"seq": self._seq, "ts": "2026-11-28T23:59:59.000Z", "type": kind, **fields}
        return json.dumps(told, ensure_ascii=False)

    def raw(self, text: str) -> None:
        with self._path.open("ab") as file:
            file.write(f"{text}\n".encode())

    def called(
        self,
        agent: str,
        usage: Usage | None,
        *,
        status: str = "success",
        adapter: str = "openai",
        model: str = "",
        **more: Any,
    ) -> None:
        """One call, from its start to its end."""
        self.reply += 1
        shared = {"reply": self.reply, "turn": 1, "phase": "A", "agent": agent}
        started = {"invocation": "must_reply", "attempt": 1, "input_hash": "", "input_tokens": 1}
        self.raw(self.line("reply_started", **shared, adapter=adapter, **started))
        metadata = {"model": model} if model else {}
        used = usage.model_dump() if usage else None
        ended = {"status": status, "usage": used, "metadata": metadata}
        self.raw(self.line("reply_finished", **shared, **ended, **more))

    def compacted(self, by: str, usage: Usage | None) -> None:
        fields = {"upto": "m2", "messages": 9, "summary": "", "tokens_before": 9, "tokens_after": 1}
        used = usage.model_dump() if usage else None
        self.raw(self.line("compacted", by=by, usage=used, **fields))

    def extracted(
        self, by: str, usage: Usage | None, error: str | None = None, notes: int = 0
    ) -> None:
        used = usage.model_dump() if usage else None
        fields = {"upto": "m2", "notes": notes, "error": error}
        self.raw(self.line("extracted", by=by, usage=used, **fields))


def document(program: Program, *args: str) -> dict[str, Any]:
    done = program.run("usage", "--json", *args)
    assert (done.code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(program: Program, by: str, *keys: str) -> list[tuple[Any, ...]]:
    found = document(program, "--by", by)["rows"]
    return [tuple(row[key] for key in ("name", *keys)) for row in found]


def test_a_table_of_agents(talk: Program) -> None:
    past = Past(talk)
    past.called("architect", COSTLY, model="gpt-5")
    past.called("architect", COSTLY.model_copy(update={"cost_usd": None}), model="own")
    past.called("测试", Usage(input_tokens=30_000, output_tokens=7, estimated=True), model="own")
    past.called("dev", None, status="timeout", model="own")
    past.called(
        "script", Usage(input_tokens=12, output_tokens=3, estimated=True), adapter="scripted"
    )
    done = talk.run("usage")
    assert done.stderr == ""
    assert (
        done.stdout
        == "agent      calls    input  cache read  cache write  output               cost\n"
        "architect      2    2,000       1,000            0     400  $0.0200 + unknown\n"
        "测试           1  ~30,000           0            0      ~7            unknown\n"
        "script         1      ~12           0            0      ~3            $0.0000\n"
        "dev            1        0           0            0       0            unknown\n"
        "total          5  ~32,012      ~1,000            0    ~410  $0.0200 + unknown\n"
        "failed calls, included: 1\n"
        "calls without a token count: 1\n"
        "calls of unknown cost: 3\n"
    )


def test_below_its_name_where_the_terminal_is_narrow(talk: Program) -> None:
    Past(talk).called("架构师", COSTLY, model="gpt-5")
    talk.env.update(COLUMNS="40", ARENA_LANG="zh")
    assert (
        talk.run("usage").stdout == "架构师\n"
        "  次数 1 · 输入 1,000 · 读缓存 500 · 写缓存 0 · 输出 200 · 费用 $0.0200\n"
        "合计\n"
        "  次数 1 · 输入 1,000 · 读缓存 500 · 写缓存 0 · 输出 200 · 费用 $0.0200\n"
    )


def test_names_are_shown_harmless_and_cut_to_the_terminal(talk: Program) -> None:
    Past(talk).called("::error::" + "架构师" * 20 + "\x1b[31m", COSTLY)
    done = talk.run("usage")
    assert "\x1b" not in done.stdout
    assert "…" in done.stdout
    assert all(columns.width_of(line) <= 80 for line in done.stdout.splitlines())


def test_by_model_from_what_the_call_tells(talk: Program) -> None:
    past = Past(talk)
    past.called("a", COSTLY, model="gpt-5")
    past.called("b", COSTLY, model="gpt-5")
    past.called("c", COSTLY.model_copy(update={"cost_usd": 0.01}), adapter="claude_code")
    assert rows(talk, "model", "calls", "cost_usd") == [
        ("gpt-5", 2, 0.04),
        ("(claude_code)", 1, 0.01),
    ]


def test_by_scenario_and_over_all_sessions(talk: Program) -> None:
    Past(talk, "zero").called("dev", COSTLY)
    Past(talk, "one", scenario="登录").called("dev", COSTLY)
    Past(talk, "two", scenario="登录").called("dev", COSTLY)
    Past(talk, "three").called("dev", COSTLY.model_copy(update={"cost_usd": 0.001}))
    assert rows(talk, "scenario", "calls") == [("登录", 2), (None, 2)]
    assert document(talk)["sessions"] == 4
    assert document(talk, "three")["total"]["calls"] == 1
    assert "(no scenario)" in talk.run("usage", "--by", "scenario").stdout


def test_days_are_those_of_utc(talk: Program) -> None:
    past = Past(talk)
    past.called("dev", COSTLY)
    started = {"agent": "dev", "reply": 2, "turn": 2, "phase": "A", "status": "success"}
    night = "2026-11-29T00:00:00.000Z"
    past.raw(past.line("reply_finished", ts=night, usage=COSTLY.model_dump(), **started))
    talk.env["TZ"] = "America/New_York"
    found = sorted(rows(talk, "day", "calls"))
    assert found == [("2026-11-28", 1), ("2026-11-29", 1)]


def test_memory_work_stands_apart(talk: Program) -> None:
    past = Past(talk)
    past.called("cheap", COSTLY, model="small")
    past.compacted("cheap", COSTLY)
    past.compacted("extractive (LexRank)", None)
    past.extracted("cheap", None, error="it did not answer")
    assert rows(talk, "agent", "memory", "calls", "failed", "uncounted") == [
        ("cheap", False, 1, 0, 0),
        ("cheap", True, 2, 1, 1),
    ]
    assert rows(talk, "model", "memory") == [("small", False), ("small", True)]
    assert "cheap (memory)" in talk.run("usage").stdout


def test_memory_work_of_an_agent_that_never_replies_has_its_model_and_a_script_is_free(
    talk: Program,
) -> None:
    past = Past(talk)
    used = Usage(input_tokens=1, estimated=True)
    shared = {"upto": "m1", "messages": 1, "usage": used.model_dump()}
    summary = {**shared, "summary": "s", "tokens_before": 9, "tokens_after": 1}
    by_model = {"by": "scribe", "metadata": {"model": "small"}}
    past.raw(past.line("compacted", **summary, **by_model))
    past.raw(
        past.line(
            "extracted",
            **shared,
            by="puppet",
            notes=0,
            metadata={"adapter": "scripted", "scripted": 0},
        )
    )
    assert rows(talk, "model", "memory", "unpriced", "cost_usd") == [
        ("(scripted)", True, 0, 0.0),
        ("small", True, 1, None),
    ]


def test_a_summary_that_an_agent_was_late_with_is_not_free(talk: Program) -> None:
    past = Past(talk)
    past.compacted("scribe", None)
    assert rows(talk, "agent", "memory", "calls", "uncounted", "unpriced") == [
        ("scribe", True, 1, 1, 1)
    ]


def test_a_reply_counts_once_with_all_its_attempts(talk: Program) -> None:
    Past(talk).called("dev", COSTLY, attempts=3)
    total = document(talk)["total"]
    assert (total["calls"], total["input_tokens"], total["cost_usd"]) == (1, 1000, 0.02)


def test_who_was_cut_short_and_called_again_used_both(talk: Program) -> None:
    past = Past(talk)
    past.called("dev", COSTLY, status="cancelled")
    past.reply -= 1
    past.called("dev", COSTLY)
    assert rows(talk, "agent", "calls", "failed", "cost_usd") == [("dev", 2, 1, 0.04)]


def test_lines_that_cannot_be_read_are_told_and_the_rest_counts(talk: Program) -> None:
    past = Past(talk)
    past.called("dev", COSTLY)
    past.raw("{broken")
    past.raw('{"seq":9,"ts":"","type":"reply_finished","agent":7}')
    past.called("dev", COSTLY)
    with talk.transcript().open("ab") as file:
        file.write(b'{"seq":99,"ts":"","type":"reply_fin')
    done = talk.run("usage", "s", "--json")
    place = talk.transcript()
    first, second = done.stderr.splitlines()
    assert first == f"{place}:4: not JSON"
    assert second.startswith(f"{place}:5: reply_finished: ")
    assert json.loads(done.stdout)["total"]["calls"] == 2


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nosuch"], "arena: there is no session 'nosuch'\n"),
        (["--by", "week"], "'week' is not one of 'agent', 'model', 'day', 'scenario'"),
    ],
)
def test_what_is_not_there_is_told(talk: Program, args: list[str], told: str) -> None:
    done = talk.run("usage", *args)
    assert (done.code, done.stdout) == (2, "")
    assert told in done.stderr


def test_nobody_was_called_yet(talk: Program) -> None:
    talk.run("usage").check(stdout="", stderr="no agent was called yet\n")
    assert document(talk)["rows"] == []


def test_a_real_conversation_is_counted(talk: Program) -> None:
    assert talk.run("send", "--session", "s", "hello").code == 0
    (row,) = document(talk)["rows"]
    assert (row["name"], row["calls"], row["estimated"], row["cost_usd"]) == ("dev", 1, True, 0)
    assert row["input_tokens"] > 100


def test_events_that_tell_nothing_are_not_even_read(talk: Program) -> None:
    past = Past(talk)
    past.raw('{"seq":2,"ts":"2026-11-28T09:30:00.125Z","type":"status","reply":"no number"}')
    past.called("dev", COSTLY)
    ledger = Ledger("agent")
    ledger.session()
    problems: list[Any] = []
    for event in doctor.spending(talk.transcript(), problems.append):
        ledger.apply(event)
    assert (ledger.total.calls, problems) == (1, [])


# What is known of models

OWN = {"own": ModelFacts(window_tokens=16_384, input_per_m=1, output_per_m=10)}
GPT = {"type": "openai", "model": "gpt-5"}


@pytest.mark.parametrize(
    ("adapter", "window"),
    [
        (GPT, 400_000),
        ({"type": "anthropic", "model": "claude-sonnet-4-5"}, 200_000),
        ({"type": "openai", "model": "own"}, 16_384),
        ({"type": "openai", "model": "own", "preset": "ollama"}, 16_384),
        ({"type": "openai", "model": "gpt-5", "base_url": "http://127.0.0.1:8000/v1"}, None),
        ({"type": "openai", "model": "gpt-5", "preset": "vllm"}, None),
        ({"type": "openai", "model": "nobody-knows-it"}, None),
        ({"type": "openai", "model": "gpt-4"}, 8_192),
        ({"type": "openai", "model": "gpt-4-turbo"}, 128_000),
        ({"type": "openai", "model": "gpt-4o"}, 128_000),
        ({"type": "openai", "model": "gpt-4o-mini"}, 128_000),
        ({"type": "openai", "model": "deepseek-chat", "preset": "deepseek"}, 64_000),
        ({"type": "openai", "model": "deepseek-coder", "preset": "deepseek"}, 32_768),
        ({"type": "openai", "model": "qwen-turbo", "preset": "qwen"}, 8_192),
        ({"type": "openai", "model": "qwen-plus-latest", "preset": "qwen"}, 32_768),
        ({"type": "openai", "model": "qwen-max", "preset": "qwen"}, 8_192),
        (
            {
                "type": "openai",
                "model": "qwen-max",
                "preset": "qwen",
                "base_url": "https://proxy.example/v1",
            },
            None,
        ),
        ({"type": "openai", "model": "llama2", "preset": "ollama"}, 4_096),
        ({"type": "openai", "model": "mistral:7b-instruct", "preset": "ollama"}, 8_192),
        ({"type": "openai", "model": "codellama:13b", "preset": "ollama"}, 16_384),
        ({"type": "openai", "model": "llama2", "preset": "vllm"}, None),
        ({"type": "openai", "model": "qwen3:8b", "preset": "ollama"}, None),
        ({"type": "codex", "model": "gpt-5"}, 400_000),
        ({"type": "codex"}, None),
        ({"type": "scripted", "replies": []}, None),
        ({"type": "cli", "command": ["x"], "model": "gpt-5"}, None),
    ],
)
def test_the_window_of_a_model(adapter: dict[str, Any], window: int | None) -> None:
    assert pricing.window_of(adapter, OWN) == window


@pytest.mark.parametrize(
    ("adapter", "known"),
    [
        (GPT, ("gpt-5", 400_000, "the public list", "the public list")),
        ({**GPT, "model": "own"}, ("own", 16_384, "arena.yaml", "arena.yaml")),
        ({**GPT, "model": "x", "pricing": "free"}, ("x", None, "", "its profile")),
        ({**GPT, "preset": "ollama"}, ("gpt-5", None, "", "its own machine")),
        ({**GPT, "model": "x"}, ("x", None, "", "")),
        (
            {**GPT, "model": "llama2:7b", "preset": "ollama"},
            ("llama2:7b", 4_096, "arena's own list", "its own machine"),
        ),
        ({"type": "codex", "model": "gpt-5"}, None),
    ],
)
def test_from_where_it_is_known(adapter: dict[str, Any], known: tuple[Any, ...] | None) -> None:
    assert pricing.find_model_facts(adapter, OWN) == known


def test_a_profile_prices_before_arena_yaml_and_that_before_the_list() -> None:
    rates = pricing.Rates(input_per_m=2, output_per_m=2)
    assert pricing.given_pricing(rates, OWN["own"]) == rates
    assert pricing.given_pricing("free", OWN["own"]) == "free"
    assert pricing.given_pricing(None, OWN["own"]) == pricing.Rates(input_per_m=1, output_per_m=10)
    assert pricing.given_pricing(None, ModelFacts(window_tokens=9)) is None
    assert pricing.given_pricing(None, None) is None


def test_check_says_what_is_known_and_warns_of_a_window_too_wide(talk: Program) -> None:
    talk.file("arena.yaml", "models: {own: {window_tokens: 16384}}")
    local = {"type": "openai", "base_url": "https://models.example.com/v1"}
    talk.agent("big", adapter={**local, "model": "own"}, context={"window_tokens": 20_000})
    talk.agent("far", adapter={**local, "model": "far"})
    done = talk.run("agents", "check")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert (
        "big · model own · window 16384 tokens (arena.yaml) · price unknown "
        "(set `models` in arena.yaml)"
    ) in lines
    assert (
        "far · model far · window 32000 tokens (assumed, from its profile) · price unknown"
        " (set `models` in arena.yaml)"
    ) in lines
    assert (
        done.stderr == "warning: big: its `context.window_tokens` is 20000, more than the 16384 "
        "tokens that own accepts, according to arena.yaml\n"
    )
    assert done.code == 0


def test_half_a_price_is_a_fault(talk: Program) -> None:
    talk.file("arena.yaml", "models:\n  m:\n    output_per_m: 1\n")
    done = talk.run("agents", "check")
    assert done.code == 2
    assert "arena.yaml:2: models.m: has output_per_m without input_per_m; give both" in done.stderr


def test_looking_for_notes_failed_only_where_nothing_came_of_it(talk: Program) -> None:
    past = Past(talk)
    past.extracted("finder", COSTLY, error="one of them names no message", notes=2)
    assert rows(talk, "agent", "failed") == [("finder", 0)]
    past.extracted("finder", COSTLY, error="no JSON")
    assert rows(talk, "agent", "failed") == [("finder", 1)]
