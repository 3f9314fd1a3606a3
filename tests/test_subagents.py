"""A colleague as a tool: its own loop within a call, its limits, its cost, its failures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from product import AgentOutput, ToolCall, Usage
from program import Program
from support import Puppets, Talk, member, puppet, team
from tools import TWICE, FakeTool, asks, offer, scripted, statuses

TASK = {"task": "look at it"}


def talk_of(folder: Path, answers: dict[str, Any], **profiles: Any) -> tuple[Talk, Puppets]:
    """`dev` calls the others; all are members."""
    puppets = Puppets(answers)
    profiles.setdefault("dev", {"tools": ["agent:ops"]})
    members = [puppet(agent, **profiles.get(agent, {})) for agent in answers]
    return Talk(folder, team(*members, selection="none"), adapter_type=puppets), puppets


def shown(puppets: Puppets, agent: str = "dev") -> list[str]:
    """The results that an agent was shown at its last turn."""
    return [result.text for step in puppets.inputs[agent][-1].steps for result in step.results]


def test_a_colleague_answers_with_its_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, FakeTool(TWICE, lambda _: "found it"))
    answers = {
        "dev": scripted(asks(("agent:ops", TASK)), "Done."),
        "ops": scripted(asks((TWICE, {"n": 1})), "It is fine."),
    }
    talk, puppets = talk_of(tmp_path, answers, ops={"tools": [TWICE]}, dev={"tools": ["agent:ops"]})
    talk.send("@dev go")
    assert statuses(talk.events) == [("1", "agent:ops", "ok"), ("1.1", TWICE, "ok")]
    assert shown(puppets) == ["It is fine."]
    asked = puppets.inputs["ops"][0]
    assert [spec.name for spec in asked.tools] == [TWICE]
    assert [message.content for message in asked.messages] == ["look at it"]
    assert (asked.turn_id, asked.messages[0].author_id) == ("aside", "dev")
    inner, outer = talk.of("agent_ended")
    assert (inner.agent, inner.within, inner.mode, inner.turns) == ("ops", "1", "goal", 2)
    assert (outer.agent, outer.within, outer.turns) == ("dev", "", 2)
    assert talk.outcomes() == [("dev", "success")]


def test_its_inputs_are_the_schema_and_fill_its_texts(tmp_path: Path) -> None:
    ops = {
        "inputs": {
            "file": {"description": "the file to read"},
            "lines": {"type": "number[]", "default": [1, 2]},
        },
        "role_prompt": "You read ${file}.",
        "query": "Read lines ${lines} of ${file}; it costs $${x}.",
        "output": {"name": "found", "schema": {"type": "boolean"}},
    }
    answers = {
        "dev": scripted(
            asks(("agent:ops", {}), ("agent:ops", {"file": 3}), ("agent:ops", {"file": "a.py"})),
            "Done.",
        ),
        "ops": scripted(asks(("complete_task", {"found": True}))),
    }
    talk, puppets = talk_of(tmp_path, answers, ops=ops)
    talk.send("@dev go")
    schema = puppets.inputs["dev"][0].tools[0].input_schema
    assert schema["required"] == ["file"]
    assert schema["properties"]["lines"]["items"] == {"type": "number"}
    assert shown(puppets) == [
        "arguments: 'file' is a required property",
        "arguments.file: 3 is not of type 'string'",
        "true",
    ]
    (asked,) = puppets.inputs["ops"]
    assert asked.messages[0].content == "Read lines 1, 2 of a.py; it costs ${x}."
    assert talk.of("agent_ended")[0].output is True


def test_agents_are_nested_three_deep_at_most(tmp_path: Path) -> None:
    answers = {
        "dev": scripted(asks(("agent:ops", TASK)), "Done."),
        "ops": scripted(asks(("agent:dev", TASK)), "Done too."),
    }
    tools = {"dev": {"tools": ["agent:ops"]}, "ops": {"tools": ["agent:dev"]}}
    talk, _ = talk_of(tmp_path, answers, **tools)
    talk.send("@dev go")
    assert statuses(talk.events) == [
        ("1", "agent:ops", "ok"),
        ("1.1", "agent:dev", "ok"),
        ("1.1.1", "agent:ops", "ok"),
        ("1.1.1.1", "agent:dev", "error"),
    ]
    refused = next(event for event in talk.of("tool_finished") if event.call == "1.1.1.1")
    assert "3 deep at most" in refused.result


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda _: AgentOutput(should_respond=False), "ops declined"),
        (scripted(asks(("nope", {}))), "ops: not done within 2 turns"),
        (lambda _: 1 / 0, "ops: its adapter failed: ZeroDivisionError"),
    ],
)
def test_a_colleague_that_fails_is_a_failed_call(tmp_path: Path, answer: Any, problem: str) -> None:
    answers = {"dev": scripted(asks(("agent:ops", TASK)), "It failed."), "ops": answer}
    ops = {"run": {"max_turns": 2}, "tools": ["list_members"], "retries": 0}
    talk, puppets = talk_of(tmp_path, answers, ops=ops)
    assert talk.send("@dev go").end == "quiet"
    assert statuses(talk.events)[0] == ("1", "agent:ops", "error")
    assert shown(puppets)[0].startswith(problem)
    assert talk.last("reply_finished").message.content == "It failed."
    assert talk.of("agent_ended")[0].mode != "goal"


def test_calls_of_a_colleague_run_side_by_side(tmp_path: Path) -> None:
    both = asyncio.Event()
    asked = 0

    async def answer(given: Any) -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            both.set()
        await both.wait()
        return f"answer to {given.messages[0].content}"

    calls = asks(("agent:ops", {"task": "a"}), ("agent:ops", {"task": "b"}))
    answers = {"dev": scripted(calls, "Done."), "ops": answer}
    talk, puppets = talk_of(tmp_path, answers)
    talk.send("@dev go")
    assert shown(puppets) == ["answer to a", "answer to b"]


def test_its_cost_counts_once_to_the_chain_and_to_itself(tmp_path: Path) -> None:
    def costs(text: str, tokens: int, *calls: ToolCall) -> AgentOutput:
        usage = Usage(input_tokens=tokens, output_tokens=1, cost_usd=0.5)
        return AgentOutput(content=text, tool_calls=list(calls), usage=usage)

    call = ToolCall(tool="agent:ops", arguments=TASK)
    look = ToolCall(tool="list_members")
    answers = {
        "dev": scripted(costs("", 1, call), costs("Done.", 2)),
        "ops": scripted(costs("", 10, look), costs("Fine.", 20)),
    }
    talk, _ = talk_of(tmp_path, answers, ops={"tools": ["list_members"]})
    finished = talk.send("@dev go")
    assert finished.usage.input_tokens == 33
    assert finished.usage.cost_usd == 2.0
    assert talk.last("reply_finished").usage.input_tokens == 3
    assert talk.of("tool_finished")[-1].usage.input_tokens == 30
    assert talk.of("agent_ended")[0].usage.input_tokens == 30


def test_a_budget_holds_for_each_turn_of_a_colleague(tmp_path: Path) -> None:
    def costs(text: str, *calls: ToolCall) -> AgentOutput:
        usage = Usage(input_tokens=2_000, output_tokens=10)
        return AgentOutput(content=text, tool_calls=list(calls), usage=usage)

    call = ToolCall(tool="agent:ops", arguments=TASK)
    look = ToolCall(tool="list_members")
    answers = {
        "dev": scripted(costs("", call), costs("Done.")),
        "ops": scripted(costs("", look)),
    }
    puppets = Puppets(answers)
    sizes = {"context": {"max_output_tokens": 100}}
    dev = puppet("dev", tools=["agent:ops"], **sizes)
    ops = puppet("ops", tools=["list_members"], **sizes)
    members = team(dev, ops, selection="none", budget={"tokens": {"chain": 12_000}})
    talk = Talk(tmp_path, members, adapter_type=puppets)
    talk.send("@dev go")
    used = sum(2_010 for agent in answers for _ in puppets.inputs[agent])
    assert used <= 12_000 + 2_010  # bounds hold but for the error of one estimate
    result = talk.of("tool_finished")[-1]
    assert "the budget is used up" in result.result
    assert result.usage.input_tokens == 2_000 * len(puppets.inputs["ops"])


def test_an_interrupted_colleague_continues_and_its_turns_cost_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = FakeTool(TWICE, lambda arguments: f"found {arguments.get('n')}", idempotent=False)
    offer(monkeypatch, tool)
    answers = {
        "dev": scripted(asks(("agent:ops", TASK)), "Done."),
        "ops": scripted(
            asks((TWICE, {"n": 1}), text="I look at it."),
            asks((TWICE, {"n": 2}), text="And again."),
            "Fine.",
        ),
    }
    profiles = {"ops": {"tools": [TWICE]}}
    whole, _ = talk_of(tmp_path / "whole", answers, **profiles)
    total = whole.send("@dev go").usage.output_tokens
    tool.made.clear()
    talk, puppets = talk_of(tmp_path / "cut", answers, **profiles)

    def interrupt(event: Any) -> None:
        if event.type == "tool_finished" and event.call == "1.2":
            running = asyncio.current_task()
            assert running is not None
            running.cancel()

    talk.on_event = interrupt
    with pytest.raises(asyncio.CancelledError):
        talk.send("@dev go")
    talk.on_event = lambda _: None
    finished = talk.resume()
    assert finished is not None
    assert shown(puppets) == ["Fine."]
    assert tool.made == [{"n": 1}, {"n": 2}]
    assert [event.mode for event in talk.of("agent_ended")] == ["aborted", "goal", "goal"]
    assert finished.usage.output_tokens == total > 5


def test_its_cost_is_its_own_in_the_usage(tmp_path: Path) -> None:
    program = Program(tmp_path)
    call = {"tool": "agent:b", "arguments": TASK}
    usage = {"input_tokens": 70, "output_tokens": 3}
    program.agent("a", {"calls": [call], "say": "Done."}, tools=["agent:b"])
    program.agent("b", {"say": "b", "usage": usage}).team(selection="none")
    program.run("send", "@a go", "-q")
    rows = json.loads(program.run("usage", "--by", "agent", "--json").check(stdout=None).stdout)
    (own,) = [row for row in rows["rows"] if row["name"] == "b"]
    assert (own["calls"], own["input_tokens"], own["memory"]) == (1, 70, False)


def test_a_colleague_outside_of_the_team_has_a_budget_of_its_own(tmp_path: Path) -> None:
    program = Program(tmp_path)
    call = {"tool": "agent:ops", "arguments": TASK}
    usage = {"input_tokens": 900, "output_tokens": 100}
    sizes = {"max_output_tokens": 100}
    program.agent("dev", {"calls": [call, call], "say": "${result}"}, tools=["agent:ops"])
    program.agent("other", {"say": "x"}).team(
        selection="none", budget={"agents": {"ops": {"tokens": {"chain": 1_200}}}}
    )
    program.agent("ops", {"say": "Fine.", "usage": usage}, member=False, context=sizes)
    assert program.run("send", "@dev go", "-s", "s", "-q").code == 0
    ended = [one for one in program.records() if one["type"] == "tool_finished"]
    assert [one["status"] for one in ended] == ["ok", "error"]
    assert ended[1]["result"].startswith("ops is not called: the budget is used up: ops, chain:")
    program.agent("dev", {"say": "x"})
    done = program.run("agents")
    assert "budget.agents.ops: `ops` is not a member of this team" in done.stderr


def test_a_script_of_texts_is_used_up_by_calls_as_a_tool(tmp_path: Path) -> None:
    call = {"tool": "agent:ops", "arguments": TASK}
    dev = member("dev", [{"calls": [call, call], "say": "${result}"}], tools=["agent:ops"])
    talk = Talk(tmp_path, team(dev, member("ops", ["One.", "Two."]), selection="none"))
    talk.send("@dev go")
    assert talk.last("reply_finished").message.content == "Two."


def test_a_lane_bounds_colleagues_but_not_those_within_one(tmp_path: Path) -> None:
    program = Program(tmp_path)
    call = {"tool": "agent:b", "arguments": TASK}
    inner = {"tool": "agent:c", "arguments": TASK}
    program.agent("a", {"calls": [[call, call]], "say": "Done."}, tools=["agent:b"])
    program.agent("b", {"calls": [inner], "say": "b"}, tools=["agent:c"])
    program.agent("c", {"say": "c"}).team(selection="none")
    program.file("arena.yaml", "team: crew\nlanes: {subagent: 1}\n")
    assert program.run("send", "@a go", "-s", "s", "-q").code == 0
    records = program.records()
    ended = [one["call"] for one in records if one["type"] == "tool_finished"]
    assert sorted(ended) == ["1", "1.1", "2", "2.1"]
    waits = [one["detail"] for one in records if one["type"] == "status"]
    assert "place 1 in lane subagent" in waits


@pytest.mark.parametrize("name", ["nope", "op"])
def test_an_unknown_colleague_is_an_error_of_its_profile(tmp_path: Path, name: str) -> None:
    program = Program(tmp_path)
    program.agent("a", {"say": "x"}, tools=["list_members", f"agent:{name}"])
    program.agent("ops", {"say": "y"}).team()
    done = program.run("agents")
    assert done.code == 2
    assert f"agents/a.yaml:1: tools[1]: there is no agent `{name}`" in done.stderr


def test_approvals_within_a_colleague_are_asked_in_the_name_of_its_caller(tmp_path: Path) -> None:
    program = Program(tmp_path)
    request = {"action": "deploy", "detail": "make deploy"}
    call = {"tool": "agent:ops", "arguments": TASK}
    program.agent("dev", {"calls": [call], "say": "${result}"}, tools=["agent:ops"])
    program.agent("ops", {"request": request, "say": "Deployed.", "asked": "I wait."})
    program.team(selection="none")
    assert program.run("send", "@dev go", "-s", "s", "-q").code == 4
    asked = [one for one in program.records() if one["type"] == "approval_requested"]
    assert [(one["agent"], one["action"], one["detail"]) for one in asked] == [
        ("dev", "deploy", "make deploy")
    ]
    assert program.run("approve", "s", "1").code == 0
    assert program.run("resume", "s", "-q").code == 0
    replies = [one for one in program.records() if one["type"] == "reply_finished"]
    said = [one["message"]["content"] for one in replies]
    assert (said[0], said[-1]) == ("I wait.", "Deployed.")
