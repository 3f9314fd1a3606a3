"""Flows that agents run by the tool `run_flow`: approved, ruled on, continued after a kill."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from product import dump_yaml
from program import Done, Program

WORK = """
def log(name: str) -> str:
    with open("log.txt", "a") as file:
        file.write(name + "\\n")
    return name
"""

FLOW = {
    "flow": "Three",
    "steps": [
        {"id": "one", "python": "work.py:log", "inputs": {"name": "one"}},
        {
            "id": "all",
            "needs": ["one"],
            "group": [
                {"id": "two", "python": "work.py:log", "inputs": {"name": "two"}},
                {
                    "id": "three",
                    "needs": ["two"],
                    "agent": "writer",
                    "message": "hi $${steps.two.output}",
                },
            ],
        },
    ],
}


def boss(program: Program, *calls: dict[str, Any], **keys: Any) -> None:
    """An agent that runs flows, with the arguments of each call."""
    asked = [{"tool": "run_flow", "arguments": arguments} for arguments in calls]
    program.agent("boss", {"calls": asked, "say": "${result}"}, tools=["run_flow"], **keys)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("writer", {"say": "Got ${message}"})
    made.file("work.py", WORK)
    return made


def send(program: Program, *args: str) -> Done:
    return program.run("send", "-s", "s", "@boss go", "--quiet", *args)


def results(program: Program) -> list[dict[str, Any]]:
    return [event for event in program.records() if event["type"] == "tool_finished"]


def read_log(program: Program) -> list[str]:
    path = program.folder / "log.txt"
    return path.read_text().split() if path.exists() else []


def test_a_flow_of_an_agent_is_approved_and_runs_in_a_session_of_its_own(
    program: Program,
) -> None:
    boss(program, {"flow": FLOW})
    assert send(program).code == 4
    assert read_log(program) == []
    shown = program.run("approvals", "s").stdout
    assert "boss asks for run_flow" in shown
    assert "Three (3 steps)" in shown
    assert '"all.two": "python: work.py:log' in shown
    program.run("approve", "s", "1").check(stdout=None)
    assert program.run("resume", "s", "--quiet").code == 0
    assert read_log(program) == ["one", "two"]
    ended = results(program)[-1]
    assert ended["status"] == "ok"
    name, _, text = ended["result"].partition("\n")
    assert name == "session s.flow-2-1"
    told = json.loads(text)
    assert told["status"] == "success"
    assert told["steps"]["all"]["output"] == {"two": "two", "three": "Got hi two"}
    begun = program.records("s.flow-2-1")[1]
    assert (begun["type"], begun["by"], begun["flow"]) == ("flow_started", "boss", "Three")
    assert "flow Three begins" in program.run("show", "s.flow-2-1").stdout


@pytest.mark.parametrize("change", [{"inputs": {"name": "evil"}}, {"retries": 9}])
def test_a_flow_file_is_approved_with_its_content(program: Program, change: dict[str, Any]) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "one", "python": "work.py:log", "inputs": {"name": "${inputs.name}"}}
    ]
    flow = {"flow": "File", "inputs": {"name": {}}, "steps": steps}
    program.file("flows/a.yaml", dump_yaml(flow))
    boss(program, {"file": "flows/a.yaml", "inputs": {"name": "first"}})
    assert send(program).code == 4
    program.run("approve", "s", "1").check(stdout=None)
    approved = dict(steps[0])
    steps[0] |= change
    program.file("flows/a.yaml", dump_yaml(flow))
    assert program.run("resume", "s", "--quiet").code == 4
    assert read_log(program) == []
    steps[0] = approved
    program.file("flows/a.yaml", dump_yaml(flow))
    boss(program, {"file": "flows/a.yaml", "inputs": {"name": "first"}},
         approvals={"allow": ["flows/*.yaml"]})  # fmt: skip
    program.run("send", "-s", "t", "@boss go", "--quiet").check(stdout=None)
    assert read_log(program) == ["first"]


def test_what_is_no_flow_is_told_and_approved_by_nobody(program: Program) -> None:
    steps = [{"id": "a", "shell": ["echo", "$${steps.b.output}"]}]
    program.file("flows/needs.yaml", dump_yaml({"flow": "N", "inputs": {"x": {}}, "steps": steps}))
    good = [{"id": "a", "shell": ["echo"]}]
    program.file("flows/input.yaml", dump_yaml({"flow": "N", "inputs": {"x": {}}, "steps": good}))
    boss(
        program,
        {"flow": {"flow": "Bad", "steps": steps}},
        {"flow": {"flow": "Bad", "steps": []}},
        {"flow": FLOW, "file": "flows/needs.yaml"},
        {"file": "../x.yaml"},
        {"file": "flows/none.yaml"},
        {"file": "flows/input.yaml"},
    )
    assert send(program).code == 0
    ends = results(program)
    assert [end["status"] for end in ends] == ["error"] * 6
    texts = [end["result"] for end in ends]
    assert "there is no step `b` here" in texts[0]
    assert "steps" in texts[1]
    assert "not in the workspace" in texts[3]
    assert "there is no flow file" in texts[4]
    assert "x" in texts[5]
    assert "approval_requested" not in {event["type"] for event in program.records()}
    assert [path.name for path in (program.folder / "sessions").glob("s*")] == ["s"]


def test_rules_of_the_agent_and_of_the_team_restrict_the_steps_of_its_flows(
    program: Program,
) -> None:
    rule = {"id": "safe", "step_kinds": ["python"]}
    boss(program, {"flow": FLOW}, approvals={"run_flow": "allow"}, rules=[rule])
    assert send(program).code == 0
    ended = results(program)[-1]
    assert ended["status"] == "error"
    assert "refused by rule safe: only steps of these kinds run: python" in ended["result"]
    decisions = [e for e in program.records("s.flow-1-1") if e["type"] == "decision"]
    assert {(e["by"], e["step"], e["allowed"]) for e in decisions} == {
        ("boss", "one", True),
        ("boss", "all.two", True),
        ("boss", "all.three", False),
    }
    done = program.run("resume", "s.flow-1-1")
    assert done.code == 3
    assert "refused by rule safe" in done.stderr


def test_a_rule_is_shown_no_secret_of_a_step(program: Program) -> None:
    program.env["TOKEN"] = "hunter2-4711"
    step = {"id": "a", "python": "work.py:log", "inputs": {"name": "$${env:TOKEN}"}}
    rule = {"id": "safe", "on": "step", "forbid": {"contains": "hunter2"}}
    flow = {"flow": "F", "steps": [step]}
    boss(program, {"flow": flow}, approvals={"run_flow": "allow"}, rules=[rule])
    send(program).check(stdout=None)
    assert read_log(program) == ["hunter2-4711"]
    (decision,) = [e for e in program.records("s.flow-1-1") if e["type"] == "decision"]
    assert (decision["rules"], decision["allowed"]) == (["safe"], True)


def test_a_flow_of_an_agent_starts_no_other_one(program: Program) -> None:
    boss(program, {"flow": FLOW}, approvals={"run_flow": "allow"})
    inner = {"flow": "Outer", "steps": [{"id": "a", "agent": "boss", "message": "go"}]}
    asked = [{"tool": "run_flow", "arguments": {"flow": inner}}]
    program.agent(
        "chief", {"calls": asked, "say": "${result}"},
        tools=["run_flow"], approvals={"run_flow": "allow"},
    )  # fmt: skip
    program.run("send", "-s", "s", "@chief go", "--quiet").check(stdout=None)
    assert "cannot run another one" in results(program)[-1]["result"]
    assert read_log(program) == []


def test_a_flow_needs_no_place_that_its_agent_holds(program: Program) -> None:
    program.file("arena.yaml", "lanes: {main: 1, nested: 1}\n")
    boss(program, {"flow": FLOW}, approvals={"run_flow": "allow"})
    assert send(program).code == 0
    assert "Got hi two" in results(program)[-1]["result"]


def test_a_flow_whose_agent_waits_for_approval_says_so_and_is_resumed(program: Program) -> None:
    program.agent(
        "deployer",
        {"calls": [{"tool": "request_approval", "arguments": {"action": "deploy", "detail": "7"}}],
         "say": "${result}"},
        tools=["request_approval"],
    )  # fmt: skip
    steps = [{"id": "a", "agent": "deployer", "message": "go"}]
    boss(program, {"flow": {"flow": "W", "steps": steps}}, approvals={"run_flow": "allow"})
    assert send(program).code == 0
    told = results(program)[-1]
    assert told["status"] == "error"
    assert "It waits for a person (session s.flow-1-1.a)" in told["result"]
    program.run("approve", "s.flow-1-1.a", "1").check(stdout=None)
    assert program.run("resume", "s.flow-1-1").code == 0


def test_trust_says_that_its_agent_may_start_anything(program: Program) -> None:
    program.env["ARENA_TRUST"] = ""
    boss(program, {"flow": FLOW}, approvals={"run_flow": "allow"})
    done = send(program)
    assert done.code == 2
    assert "start any program, request and agent (run_flow)" in done.stderr
    assert read_log(program) == []


def test_a_scenario_records_the_result_and_replays_it_without_the_flow(program: Program) -> None:
    boss(program, {"flow": FLOW}, approvals={"run_flow": "allow"})
    program.file(
        "scenarios/a.yaml",
        dump_yaml(
            {
                "scenario": "A flow",
                "agents": ["boss"],
                "steps": [
                    {
                        "send": "@boss go",
                        "expect": {"tool": [{"agent": "boss", "name": "run_flow", "status": "ok"}]},
                    }
                ],
            }
        ),
    )
    program.run("run", "a", "--record").check(stdout=None)
    assert read_log(program) == ["one", "two"]
    assert list((program.folder / "sessions").glob("[!.]*")) == []
    done = program.run("run", "a", "--replay")
    assert done.code == 0, done.stdout
    assert read_log(program) == ["one", "two"]


def test_killed_at_any_event_it_ends_as_if_it_had_not_been(program: Program) -> None:
    boss(program, {"flow": FLOW}, approvals={"run_flow": "allow"})
    send(program).check(stdout=None)
    sessions = program.folder / "sessions"
    names = ("s", "s.flow-1-1")
    whole = {
        name: (sessions / name / "transcript.jsonl").read_bytes().splitlines(keepends=True)
        for name in names
    }
    told = results(program)[-1]["result"]
    kept = program.folder / "kept"
    shutil.copytree(sessions, kept)
    kinds = [json.loads(line)["type"] for line in whole["s"]]
    requested, finished = kinds.index("tool_requested"), kinds.index("tool_finished")
    flow_kinds = [json.loads(line) for line in whole["s.flow-1-1"]]
    cuts = [(count, 0) for count in range(kinds.index("reply_started") + 1, requested + 2)]
    cuts += [(finished, count) for count in range(1, len(flow_kinds) + 1)]
    cuts += [(count, len(flow_kinds)) for count in range(finished + 1, len(kinds))]
    for parent, inner in cuts:
        shutil.rmtree(sessions)
        shutil.copytree(kept, sessions)
        (sessions / "s" / "transcript.jsonl").write_bytes(b"".join(whole["s"][:parent]))
        if inner:
            path = sessions / "s.flow-1-1" / "transcript.jsonl"
            path.write_bytes(b"".join(whole["s.flow-1-1"][:inner]))
        else:
            shutil.rmtree(sessions / "s.flow-1-1")
        if not any(event.get("session", "").endswith("three") for event in flow_kinds[:inner]):
            shutil.rmtree(sessions / "s.flow-1-1.all-three")
        (program.folder / "log.txt").unlink(missing_ok=True)
        done = program.run("resume", "s", "--quiet")
        assert done.code == 0, (parent, inner, done.stderr)
        assert results(program)[-1]["result"] == told, (parent, inner)
        ended = {e["step"] for e in flow_kinds[:inner] if e["type"] == "step_finished"}
        again = [name for name, key in (("one", "one"), ("two", "all.two")) if key not in ended]
        assert read_log(program) == ([] if parent > finished else again), (parent, inner)
        assert [path.name for path in sorted(sessions.glob("s.*"))] == [
            "s.flow-1-1",
            "s.flow-1-1.all-three",
        ], (parent, inner)


def test_an_approved_flow_that_was_killed_is_not_approved_again(program: Program) -> None:
    boss(program, {"flow": FLOW})
    assert send(program).code == 4
    program.run("approve", "s", "1").check(stdout=None)
    assert program.run("resume", "s", "--quiet").code == 0
    path = program.folder / "sessions" / "s" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["type"] for line in lines]
    last = len(kinds) - 1 - kinds[::-1].index("tool_finished")
    path.write_bytes(b"".join(lines[:last]))
    assert program.run("resume", "s", "--quiet").code == 0
    assert read_log(program) == ["one", "two"]
    assert [e["type"] for e in program.records()].count("approval_requested") == 1
    assert "Got hi two" in results(program)[-1]["result"]


def test_a_killed_flow_whose_file_is_changed_is_approved_again(program: Program) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "one", "python": "work.py:log", "inputs": {"name": "one"}},
        {"id": "two", "needs": ["one"], "python": "work.py:log", "inputs": {"name": "two"}},
    ]
    program.file("flows/a.yaml", dump_yaml({"flow": "File", "steps": steps}))
    boss(program, {"file": "flows/a.yaml"})
    assert send(program).code == 4
    program.run("approve", "s", "1").check(stdout=None)
    assert program.run("resume", "s", "--quiet").code == 0
    (flow,) = (program.folder / "sessions").glob("s.flow-*")
    for folder, kind in ((flow.parent / "s", "tool_finished"), (flow, "flow_finished")):
        path = folder / "transcript.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        kinds = [json.loads(line)["type"] for line in lines]
        path.write_bytes(b"".join(lines[: len(kinds) - 1 - kinds[::-1].index(kind)]))
    steps[1]["inputs"] = {"name": "other"}
    program.file("flows/a.yaml", dump_yaml({"flow": "File", "steps": steps}))
    assert program.run("resume", "s", "--quiet").code == 4
    assert read_log(program) == ["one", "two"]
    program.run("approve", "s", "2").check(stdout=None)
    assert program.run("resume", "s", "--quiet").code == 0
    assert read_log(program) == ["one", "two", "one", "other"]  # all steps were approved anew


def test_a_flow_file_that_changes_while_its_approval_is_decided_is_not_run(
    program: Program,
) -> None:
    step = {"id": "one", "python": "work.py:log", "inputs": {"name": "one"}}
    program.file("flows/a.yaml", dump_yaml({"flow": "File", "steps": [step]}))
    program.file(
        "edit.py",
        "from pathlib import Path\n\n\ndef edit(decision):\n"
        "    path = Path('flows/a.yaml')\n"
        "    path.write_text(path.read_text().replace('name: one', 'name: other'))\n"
        "    return True\n",
    )
    rule = {"id": "edit", "on": "tool", "python": "edit.py:edit"}
    allowed = {"allow": ["flows/*.yaml"]}
    call = {"tool": "run_flow", "arguments": {"file": "flows/a.yaml"}}
    step_calls = {"calls": [[call, call]], "say": "${result}"}
    program.agent("boss", step_calls, tools=["run_flow"], approvals=allowed, rules=[rule])
    send(program)
    ends = results(program)
    assert len(ends) == 2
    assert all("was changed since it was approved" in end["result"] for end in ends)
    assert read_log(program) == []
