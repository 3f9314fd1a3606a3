"""A planner with tools: its calls, their limits and costs, and what survives a crash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from product import ToolCall, Usage, canonicalize, reader
from program import Program
from support import Puppets, Talk, puppet, team
from test_planner import plan, step
from tools import ONCE, TWICE, FakeTool, asks, offer, scripted, statuses

ALONE = plan("single", [step("a", "dev")])


def talk_of(
    folder: Path, answer: Any, *, profile: dict[str, Any] | None = None, **config: Any
) -> tuple[Talk, Puppets]:
    """`dev` works; the planner has tools and this answer."""
    puppets = Puppets({"planner": answer, "dev": lambda _: "done"})
    made = team(puppet("dev"), mode="planner", planner="planner", selection="none", **config)
    profile = {"tools": [TWICE, ONCE], **(profile or {})}
    object.__setattr__(made, "planner", puppet("planner", member=False, **profile))
    return Talk(folder, made, adapter_type=puppets), puppets


def hands_in(text: str) -> Any:
    return asks(("complete_task", {"plan": json.loads(text)}))


def test_it_looks_before_it_hands_its_plan_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, FakeTool(TWICE, lambda _: "a pit"), FakeTool(ONCE, lambda _: "noted"))
    answer = scripted(asks((TWICE, {"n": 1}), (ONCE, {"n": 2}), text="I look."), hands_in(ALONE))
    talk, puppets = talk_of(tmp_path, answer)
    assert talk.send("build it").end == "quiet"
    assert statuses(talk.events) == [
        ("p1.1", TWICE, "ok"),
        ("p1.2", ONCE, "ok"),
        ("p1.3", "complete_task", "ok"),
    ]
    (made,) = talk.of("planned")
    (end,) = talk.of("agent_ended")
    assert (made.call, made.agents, made.fallback) == ("p1", ["dev"], "")
    assert (end.within, end.reply, end.mode, end.turns) == ("p1", 0, "goal", 2)
    assert [one.text for one in talk.of("thought")] == ["I look."]
    names = [spec.name for spec in puppets.inputs["planner"][0].tools]
    assert names == ["complete_task", TWICE, ONCE]
    schema = puppets.inputs["planner"][0].tools[0].input_schema["properties"]["plan"]
    assert schema["required"] == ["mode", "confidence", "plan"]
    assert talk.outcomes() == [("dev", "success")]


def test_a_plan_in_text_is_taken_and_one_that_does_not_fit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, FakeTool(TWICE, lambda _: "a pit"), FakeTool(ONCE, lambda _: "noted"))
    talk, _ = talk_of(tmp_path / "a", scripted(asks((TWICE, {})), f"Here: {ALONE}"))
    talk.send("build it")
    assert (talk.last("planned").mode, talk.last("planned").fallback) == ("single", "")
    wrong = asks(("complete_task", {"plan": {"mode": "swarm"}}))
    talk, puppets = talk_of(tmp_path / "b", scripted(wrong, hands_in(ALONE)))
    talk.send("build it")
    assert talk.last("planned").agents == ["dev"]
    (result,) = puppets.inputs["planner"][1].steps[0].results
    assert "'swarm' is not one of" in result.text
    talk, _ = talk_of(tmp_path / "c", lambda _: "I cannot plan this.", fallback_agent="dev")
    talk.send("build it")
    assert "without calling complete_task" in talk.last("planned").fallback
    assert talk.outcomes() == [("dev", "success")]


def test_its_turns_count_once_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, FakeTool(TWICE, lambda _: "a pit"), FakeTool(ONCE, lambda _: "noted"))
    used = {"usage": Usage(input_tokens=1_000, output_tokens=10)}
    answers = [asks((TWICE, {})), asks((TWICE, {"n": 2})), hands_in(ALONE)]
    answer = scripted(*(each.model_copy(update=used) for each in answers))
    talk, _ = talk_of(tmp_path / "a", answer)
    end = talk.send("build it")
    assert talk.last("agent_ended").usage.input_tokens == 3_000
    assert 3_000 < end.usage.input_tokens < 4_000
    talk, _ = talk_of(tmp_path / "b", answer, budget={"tokens": {"chain": 2_500}})
    talk.send("build it")
    made = talk.last("planned")
    assert "the budget is used up" in made.fallback or "budget" in made.fallback
    assert len(talk.of("tool_finished")) < 3


def test_a_planner_that_is_a_member_replies_with_its_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, FakeTool(TWICE, lambda _: "a pit"))
    alone = plan("single", [step("a", "lead")])
    answer = lambda shown: hands_in(alone) if shown.turn_id == "aside" else "done"  # noqa: E731
    puppets = Puppets({"lead": answer, "dev": lambda _: "ok"})
    lead = puppet("lead", tools=[TWICE])
    made = team(lead, puppet("dev"), mode="planner", planner="lead", selection="none")
    object.__setattr__(made, "planner", lead)
    talk = Talk(tmp_path, made, adapter_type=puppets)
    talk.send("build it")
    names = [[spec.name for spec in one.tools] for one in puppets.inputs["lead"]]
    assert names == [["complete_task", TWICE], [TWICE]]
    assert talk.outcomes() == [("lead", "success")]


def test_one_that_is_late_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(_: Any) -> str:
        await asyncio.sleep(600)
        return "never"

    offer(monkeypatch, FakeTool(TWICE, wait), FakeTool(ONCE, str))
    answer = scripted(asks((TWICE, {"n": 1})), "I have no plan.")
    talk, _ = talk_of(tmp_path, answer, plan_timeout_s=0.4, fallback_agent="dev")
    talk.send("build it")
    assert statuses(talk.events) == [("p1.1", TWICE, "timeout")]
    assert talk.last("agent_ended").mode != "goal"
    assert talk.last("planned").fallback
    assert talk.outcomes() == [("dev", "success")]


def test_a_refused_plan_is_another_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, FakeTool(TWICE, lambda _: "a pit"), FakeTool(ONCE, str))
    rule = {"id": "dev_only", "on": "plan", "forbid": {"contains": "secret"}}
    secret = plan("single", [step("a", "dev", task="the secret")])
    answer = scripted(asks((TWICE, {})), hands_in(secret))
    talk, _ = talk_of(tmp_path, answer, rules=[rule], fallback_agent="dev")
    talk.send("build it")
    assert [made.call for made in talk.of("planned")] == ["p1", "p1.r2"]
    assert [call for call, tool, _ in statuses(talk.events) if tool == TWICE] == ["p1.1", "p1.r2.1"]
    talk.send("build it again")
    assert talk.last("planned").call == "p2.r2"


def test_without_tools_nothing_of_the_loop_is_imported(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("planner", {"say": ALONE}, member=False)
    program.agent("dev", "hi")
    program.team(mode="planner", planner="planner", selection="none")
    imported = program.list_imported("send", "-q", "build it")
    assert not {"arena_cli.engine.planner_loop", "arena_cli.engine.tool_loop"} & {*imported}


def test_it_has_no_tools_of_a_turn(tmp_path: Path) -> None:
    tools = ["list_members", "ask_agent", "task_update", "goals", "estimate_complexity"]
    talk, puppets = talk_of(tmp_path, lambda _: hands_in(ALONE), profile={"tools": tools})
    talk.send("build it")
    names = [spec.name for spec in puppets.inputs["planner"][0].tools]
    assert names == ["complete_task", "list_members", "estimate_complexity"]


def test_rules_on_tools_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noting = FakeTool(ONCE, lambda _: "noted")
    offer(monkeypatch, FakeTool(TWICE, lambda _: "a pit"), noting)
    rule = {"id": "no_notes", "on": "tool", "when": {"tool": ONCE}, "forbid": {"regex": "."}}
    answer = scripted(asks((ONCE, {"n": 1})), hands_in(ALONE))
    talk, _ = talk_of(tmp_path, answer, rules=[rule])
    talk.send("build it")
    assert statuses(talk.events)[0] == ("p1.1", ONCE, "denied")
    assert noting.made == []
    assert talk.last("planned").agents == ["dev"]


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_person_decides_about_an_act_before_there_is_a_plan(
    tmp_path: Path, decision: str
) -> None:
    program = Program(tmp_path)
    (tmp_path / "app").mkdir()
    replies = [
        {"calls": [{"tool": "run_command", "arguments": {"command": ["touch", "seen"]}}]}
        | {"say": ALONE}
    ]
    program.agent(
        "planner",
        adapter={"type": "scripted", "replies": replies},
        member=False,
        tools=["run_command"],
        workdir="app",
    )
    program.agent("dev", {"say": "coded"})
    program.team(mode="planner", planner="planner", fallback_agent="dev", selection="none")
    paused = program.run("send", "-s", "s", "build it")
    assert paused.code == 4
    kinds = [one["type"] for one in program.records()]
    assert "planned" not in kinds
    assert "planner" in program.run("approvals", "s").out.decode()
    program.run(decision, "s", "1").check()
    done = program.run("resume", "s").check()
    assert (tmp_path / "app" / "seen").exists() == (decision == "approve")
    assert program.finished() == [("dev", "success")]
    calls = [one["call"] for one in program.records() if one["type"] == "tool_finished"]
    assert calls[:2] == ["p1.1", "p1.r2.1"]
    shown = done.out.decode()
    assert "run_command(" in shown


def test_killed_after_any_event_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting, looking = FakeTool(ONCE, lambda _: "noted", idempotent=False), FakeTool(TWICE, str)
    offer(monkeypatch, noting, looking)
    answer = scripted(
        asks((TWICE, {"n": 1}), (TWICE, {"n": 2}), text="I look."),
        asks((TWICE, {"n": 3})),
        hands_in(ALONE),
    )

    def make(folder: Path) -> Talk:
        return talk_of(folder, answer)[0]

    whole = make(tmp_path / "whole")
    whole.send("build it")
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds.count("tool_finished") == 4
    for count in range(2, len(lines)):
        talk = make(tmp_path / str(count))
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(b"".join(lines[:count]))
        talk.resume()
        events = [
            [event for line in reader.read_lines(one.transcript) for event in line.events]
            for one in (talk, whole)
        ]
        assert canonicalize(events[0]) == canonicalize(events[1]), (count, kinds[count])


def test_what_had_an_effect_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = FakeTool(ONCE, lambda _: "noted", idempotent=False)
    offer(monkeypatch, noting, FakeTool(TWICE, str))
    answer = scripted(asks(ToolCall(tool=ONCE, arguments={"n": 1})), hands_in(ALONE))
    whole, _ = talk_of(tmp_path / "whole", answer)
    whole.send("build it")
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    requested = next(n for n, line in enumerate(lines) if b'"tool_requested"' in line)
    talk, _ = talk_of(tmp_path / "again", answer)
    talk.transcript.parent.mkdir(parents=True)
    talk.transcript.write_bytes(b"".join(lines[: requested + 1]))
    noting.made.clear()
    talk.resume()
    assert noting.made == []
    assert "arena was interrupted while this tool ran" in talk.of("tool_finished")[0].result
    assert talk.last("planned").agents == ["dev"]


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    calls = [
        {"tool": "estimate_complexity", "arguments": {"requirement": "an API with 12 endpoints"}},
        {"tool": "search_history", "arguments": {"query": "API endpoints"}},
    ]
    adapter = {"type": "scripted", "replies": [{"calls": calls, "say": ALONE}]}
    tools = ["estimate_complexity", "search_history", "add_note"]
    program.agent("planner", adapter=adapter, member=False, tools=tools)
    program.agent("dev", {"say": "coded"})
    program.team(mode="planner", planner="planner", fallback_agent="dev", selection="none")
    return program


def test_its_calls_are_shown_above_the_plan(arena: Program) -> None:
    done = arena.run("send", "-s", "s", "an API with 12 endpoints").check()
    lines = [line.strip() for line in done.out.decode().splitlines()]
    calls = [n for n, line in enumerate(lines) if line.startswith("▸ estimate_complexity(")]
    plans = [n for n, line in enumerate(lines) if line.startswith("planner plans:")]
    assert len(calls) == len(plans) == 1
    assert calls[0] < plans[0]
    assert arena.run("show", "s").out.decode().count("estimate_complexity(") == 1
    assert "estimate_complexity" in arena.run("show", "s", "--html").out.decode()
    usage = json.loads(arena.run("usage", "--json").out)
    assert [row["calls"] for row in usage["rows"] if row["name"] == "planner"] == [1]


def test_history_shows_a_planner_earlier_work_of_other_sessions(arena: Program) -> None:
    arena.run("send", "-s", "first", "@dev an API with endpoints").check()
    arena.run("send", "-s", "s", "an API with 12 endpoints").check()
    results = [
        one["result"]
        for one in arena.records()
        if one["type"] == "tool_finished" and one["tool"] == "search_history"
    ]
    assert '"first"' in results[0]


def test_asked_without_consequences_it_only_reads(arena: Program) -> None:
    shown = arena.run("plan", "--json", "an API with 12 endpoints")
    assert shown.code == 0
    assert json.loads(shown.out)["usage"]["input_tokens"] > 0
    assert not (arena.folder / "sessions").exists()


RECORDED = """\
scenario: a plan
steps:
  - send: "a service with logins"
    expect:
      plan: {mode: single, agents: [dev]}
      replied: [dev]
"""


def test_its_calls_are_recorded_and_replayed(arena: Program) -> None:
    arena.scenario(RECORDED, "plan")
    arena.run("run", "plan", "--record").check()
    arena.run("run", "plan", "--replay", "--strict").check()
