"""Scenarios recorded and replayed: what is kept, what is not touched, what is told of drift."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fasteners import InterProcessLock
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
    Answer,
    Attachment,
    Heard,
    Ignoring,
    Permission,
    PermissionRequest,
    Redactor,
    ShownMessage,
    StructuredContent,
    recorder,
)
from program import Done, Program, has_open, until

SCENARIO = """\
scenario: A plan, then its review
steps:
  - send: "@planner make a plan for the login page"
    expect: {turns: {min: 1}}
  - send: "@critic is it done?"
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`planner` is a program that counts its calls, and calls `critic`; `dev` is scripted."""
    made = Program(tmp_path)
    made.program("planner", "read", "say", "the plan @critic", role_prompt="Plan, in a few words.")
    made.program("critic", "read", "say", "fine by me", role_prompt="Find what is wrong.")
    made.agent("dev", {"say": "on it"}, response={"keywords": ["login", "page"], "threshold": 0.7})
    made.team(["maya"])
    made.scenario(SCENARIO, "plan")
    return made


def break_agents(program: Program) -> None:
    """From now on whoever calls one of the programs fails."""
    for name in ("planner", "critic"):
        change(program, f"agents/{name}.yaml", env={"HOME": "elsewhere"})
    (program.folder / "no-agents").mkdir()


def change(program: Program, path: str, **keys: Any) -> None:
    """Change keys of a YAML file; None takes one out."""
    file = program.folder / path
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    data.update(keys)
    file.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def recording(program: Program, name: str = "plan") -> Path:
    return program.folder / "scenarios" / "recordings" / f"{name}.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def result(done: Done) -> Any:
    return json.loads(done.stdout)


def causes(done: Done) -> list[tuple[str, str, str, str]]:
    """(kind, field, before, after) of each cause of drift."""
    told = result(done)["drift"]
    return [(one["kind"], one["field"], one["before"], one["after"]) for one in told]


def test_a_recording_has_what_was_asked_and_answered(program: Program) -> None:
    done = program.run("run", "--record", "--json")
    assert done.code == 0, done.stderr
    (told,) = result(done)["scenarios"]
    assert (told["mode"], told["written"]) == ("record", True)
    assert told["recording"] == "scenarios/recordings/plan.jsonl"
    found = lines(recording(program))
    assert found[0] == {"type": "recording", "version": 1, "scenario": "A plan, then its review"}
    agents = {one["agent"]: one for one in found if one["type"] == "agent"}
    assert agents["planner"]["role_prompt"] == "Plan, in a few words."
    calls = [one for one in found if one["type"] == "reply_started"]
    assert [(one["agent"], one["invocation"]) for one in calls] == [
        ("planner", "must_reply"),
        ("critic", "must_reply"),
        ("critic", "must_reply"),
    ]
    assert [one["input"]["messages"] for one in calls] == [["m1"], ["m1-m2"], ["m1-m4"]]
    assert calls[0]["output"] == {"content": "the plan @critic"}
    text = recording(program).read_text(encoding="utf-8")
    for varies in ("session_id", "deadline", '"ts"', "timestamp", "latency", '"seq"', "x-never"):
        assert varies not in text


def test_the_same_answers_give_the_same_bytes(program: Program) -> None:
    program.run("run", "--record")
    first = recording(program).read_bytes()
    assert result(program.run("run", "--record", "--json"))["scenarios"][0]["written"] is False
    recording(program).unlink()
    program.run("run", "--record", "--jobs", "3")
    assert recording(program).read_bytes() == first


def test_a_replay_touches_no_agent(program: Program) -> None:
    program.program("planner", "read", "env", "say", "the plan @critic", role_prompt="Plan.")
    program.program("critic", "say", "ok", "pids", "started", role_prompt="Find.")
    shutil.rmtree(program.folder / "scenarios")
    program.scenario(SCENARIO, "plan")
    assert program.run("run", "--record").code == 0
    (program.folder / "started").unlink()
    done = program.run("run", "--replay", "--json")
    assert done.code == 0
    assert not (program.folder / "started").exists()
    (told,) = result(done)["scenarios"]
    assert (told["mode"], told["status"], told["drift"]) == ("replay", "passed", [])


def test_a_replay_keeps_what_an_answer_refers_to(tmp_path: Path) -> None:
    """Its kind, its reaction, and the message that it answers, which has another id by then."""
    program = Program(tmp_path)
    answer = {"content": "Mine.", "kind": "task", "reply_to": "@ops"}
    program.file("dev.py", f"def answer(shown):\n    return {answer}\n")
    program.agent("dev", adapter={"type": "python", "target": "dev.py:answer"})
    program.program("ops", "read", "say", "I watch it.")
    program.scenario(
        "scenario: x\nsteps:\n"
        "  - send: '@dev @ops deploy it'\n"
        "  - react: {agent: ops, emoji: 👍}\n"
        "  - send: '@dev whose is it?'\n"
        "    reply_to: ops\n"
        "  - send: '@ops do you see it?'\n"
        "    expect: {shown: {ops: [{contains: 're: m'}, {contains: '@ops: \"I watch it'}]}}\n",
        "x",
    )
    recorded = program.run("run", "--record")
    assert recorded.code == 0, recorded.stdout
    text = recording(program, "x").read_text(encoding="utf-8")
    assert '"kind":"task","reply_to":"@ops"' in text
    done = program.run("run", "--replay", "--json")
    assert (done.code, result(done)["drift"]) == (0, []), done.stdout


@pytest.mark.parametrize(("answered", "kept"), [("m3", "ops"), ("m2", "m2"), ("@ops", "@ops")])
def test_an_answer_names_the_author_of_the_last_message_that_it_answers(
    answered: str, kept: str
) -> None:
    """The id of an older message stays: no name would find it."""
    shown = [
        ShownMessage(
            id=f"m{number}",
            author_id=author,
            author_name=author,
            content="x",
            timestamp="",
            author_type="agent",
            role="user",
        )
        for number, author in ((1, "dev"), (2, "ops"), (3, "ops"))
    ]
    shown_input = AgentInput.model_construct(messages=shown)
    answer = Answer(AgentOutput(content="y", reply_to=answered), declined=False)
    assert recorder.name_answered(answer, shown_input).output.reply_to == kept


def test_in_ci_what_has_a_recording_is_replayed(program: Program) -> None:
    program.scenario('scenario: Live\nsteps: [{send: "@dev hi"}]', "live")
    program.run("run", "--record", "plan")
    program.env["CI"] = "true"
    assert result(program.run("run", "--json"))["modes"] == {"live": 1, "replay": 1}
    assert result(program.run("run", "--live", "--json"))["modes"] == {"live": 2}
    program.env["CI"] = "false"
    assert result(program.run("run", "--json"))["modes"] == {"live": 2}


def test_the_mode_is_said_in_the_terminal(program: Program) -> None:
    assert "recorded" in program.run("run", "--record").stdout
    assert "replayed" in program.run("run", "--replay").stdout


def test_what_has_no_recording_cannot_be_replayed(program: Program) -> None:
    done = program.run("run", "--replay")
    assert done.code == 2
    assert "scenarios/plan.yaml:1: has no recording: scenarios/recordings/plan.jsonl" in done.stderr
    assert "arena run --record plan" in done.stderr
    assert program.written() == ""


def test_a_team_of_scripts_needs_no_recording(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "on it"}).team()
    program.scenario('scenario: S\nsteps: [{send: "@dev hi"}]')
    done = program.run("run", "--replay", "--json")
    assert (done.code, result(done)["modes"]) == (0, {"live": 1})


def test_two_modes_at_once_are_wrong_use(program: Program) -> None:
    done = program.run("run", "--replay", "--record")
    assert (done.code, done.stdout) == (2, "")
    assert "--replay and --record were given" in done.stderr


@pytest.fixture
def recorded(program: Program) -> Program:
    """The scenario is recorded, and the programs are gone."""
    assert program.run("run", "--record").code == 0
    return program


def test_a_role_prompt_is_told_once_with_its_text(recorded: Program) -> None:
    change(recorded, "agents/critic.yaml", role_prompt="Find what is right.")
    done = recorded.run("run", "--replay", "--json")
    assert done.code == 1
    assert causes(done) == [("input", "role_prompt", "Find what is wrong.", "Find what is right.")]
    (cause,) = result(done)["drift"]
    assert cause["agents"] == ["critic"]
    assert [(one["step"], one["turn"], one["calls"]) for one in cause["touches"]] == [(1, 2, 2)]
    text = recorded.run("run", "--replay").stdout
    assert text.count("drift: ") == 1
    assert "wrong" in text
    assert "right" in text
    assert "critic" in text
    assert "arena run --update plan" in text


def test_what_the_human_says_is_told_once_for_all_who_hear_it(recorded: Program) -> None:
    recorded.scenario(SCENARIO.replace("login page", "start page"), "plan")
    done = recorded.run("run", "--replay", "--json")
    assert done.code == 1
    [(kind, field, before, after)] = causes(done)
    assert (kind, field) == ("input", "messages[0]")
    assert "login page" in before
    assert "start page" in after


@pytest.mark.parametrize(
    ("path", "keys", "cause"),
    [
        (
            "agents/dev.yaml",
            {"response": {"keywords": ["login", "page"], "threshold": 0.6}},
            ("settings", "response.threshold", "0.7", "0.6"),
        ),
        (
            "agents/dev.yaml",
            {"response": {"keywords": ["login"], "threshold": 0.7}},
            ("settings", "response.keywords", '["login", "page"]', '["login"]'),
        ),
        (
            "agents/critic.yaml",
            {"timeout_s": 5},
            ("settings", "timeout_s", "", "5"),
        ),
        (
            "agents/teams/crew.yaml",
            {"config": {"max_responders": 2}},
            ("settings", "config.max_responders", "5", "2"),
        ),
        (
            "agents/teams/crew.yaml",
            {"members": ["critic", "planner"]},
            (
                "input",
                "members",
                "critic (critic)\ndev (dev)\nplanner (planner)",
                "critic (critic)\nplanner (planner)",
            ),
        ),
    ],
)
def test_what_was_changed_is_named(
    recorded: Program, path: str, keys: dict[str, Any], cause: tuple[str, str, str, str]
) -> None:
    change(recorded, path, **keys)
    done = recorded.run("run", "--replay", "--json")
    assert done.code == 1
    assert causes(done)[0] == cause


def test_a_model_that_was_swapped_is_told(program: Program) -> None:
    adapter = {"type": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "one"}
    program.agent("critic", adapter=adapter, on_failure="skip", role_prompt="Find.")
    program.scenario(
        'scenario: S\nsteps: [{send: "@critic hi", expect: {outcome: {critic: error}}}]', "plan"
    )
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0
    change(program, "agents/critic.yaml", adapter={**adapter, "model": "two"})
    done = program.run("run", "--replay", "--json")
    assert causes(done) == [("settings", "adapter.model", "one", "two")]


def test_a_mention_that_is_lost_leaves_a_record_over(recorded: Program) -> None:
    recorded.scenario(SCENARIO.replace("@critic is it done?", "nobody is asked"), "plan")
    change(recorded, "agents/teams/crew.yaml", config={"selection": "none"})
    told = result(recorded.run("run", "--replay", "--json"))
    drift = told["scenarios"][0]["drift"]
    assert ("left_over", "critic", 2) in [(d["kind"], d["agent"], d["step"]) for d in drift]
    assert told["drifted"] == 1


def test_a_call_without_a_record_is_an_error(recorded: Program) -> None:
    recorded.scenario(SCENARIO + '  - send: "@planner once more"\n', "plan")
    done = recorded.run("run", "--replay", "--json", "--drift", "ignore")
    assert done.code == 3
    (told,) = result(done)["scenarios"]
    (failure,) = told["steps"][2]["failures"]
    assert (failure["agent"], failure["status"]) == ("planner", "error")
    assert "its recording has no answer left in step 3" in failure["error"]
    assert recorded.run("run", "--replay").code == 1


def test_a_step_that_calls_nobody_is_recorded_as_missing(recorded: Program) -> None:
    change(recorded, "agents/teams/crew.yaml", config={"selection": "none"})
    recorded.run("run", "--record")
    recorded.scenario(SCENARIO + '  - send: "nobody is meant"\n', "plan")
    done = recorded.run("run", "--record=missing", "--json")
    assert (done.code, result(done)["modes"]) == (0, {"record": 1})
    done = recorded.run("run", "--replay", "--json")
    assert (done.code, causes(done)) == (0, [])
    assert result(recorded.run("run", "--record=missing", "--json"))["modes"] == {"replay": 1}


def test_only_what_is_missing_is_recorded(recorded: Program) -> None:
    change(recorded, "agents/critic.yaml")
    recorded.scenario(SCENARIO + '  - send: "@dev do it"\n', "plan")
    before = lines(recording(recorded))
    done = recorded.run("run", "--record=missing", "--json")
    assert done.code == 0
    (told,) = result(done)["scenarios"]
    assert (told["mode"], told["written"], told["drift"]) == ("record", True, told["drift"])
    after = lines(recording(recorded))
    assert after[: len(before) - 1] == before[:-1]
    assert recorded.run("run", "--replay").code == 0
    again = recorded.run("run", "--record=missing", "--json")
    assert result(again)["modes"] == {"replay": 1}


def test_what_is_missing_is_not_asked_for_once_something_drifted(recorded: Program) -> None:
    recorded.scenario(SCENARIO + '  - send: "@critic and now?"\n', "plan")
    change(recorded, "agents/critic.yaml", role_prompt="Another.")
    before = recording(recorded).read_bytes()
    done = recorded.run("run", "--record=missing", "--json")
    assert done.code == 1
    assert result(done)["scenarios"][0]["written"] is False
    assert recording(recorded).read_bytes() == before


def test_nothing_is_added_to_what_drifted(recorded: Program) -> None:
    recorded.scenario(SCENARIO + '  - system: "15 minutes without an answer"\n', "plan")
    change(recorded, "agents/critic.yaml", role_prompt="Another.")
    before = recording(recorded).read_bytes()
    done = recorded.run("run", "--record=missing", "--json")
    (told,) = result(done)["scenarios"]
    assert (done.code, told["written"]) == (1, False)
    assert (
        told["unkept"]
        == "the replay differs from the recording; accept the change with --update first"
    )
    assert recording(recorded).read_bytes() == before


def test_drift_that_was_looked_at_is_taken_over(recorded: Program) -> None:
    change(recorded, "agents/critic.yaml", role_prompt="Find what is right.")
    done = recorded.run("run", "--update", "--json")
    assert done.code == 0
    (told,) = result(done)["scenarios"]
    assert (told["mode"], told["written"]) == ("update", True)
    assert [one["field"] for one in told["drift"]] == ["role_prompt"]
    assert recorded.run("run", "--replay").code == 0
    assert result(recorded.run("run", "--update", "--json"))["scenarios"][0]["written"] is False


def test_a_miss_cannot_be_taken_over(recorded: Program) -> None:
    recorded.scenario(SCENARIO + '  - send: "@planner once more"\n', "plan")
    before = recording(recorded).read_bytes()
    done = recorded.run("run", "--update", "--json")
    assert done.code == 3
    (told,) = result(done)["scenarios"]
    assert told["unkept"] == "there are calls without a recorded answer"
    assert recording(recorded).read_bytes() == before


def test_what_is_recorded_of_steps_that_were_not_played_is_not_lost(recorded: Program) -> None:
    recorded.scenario(SCENARIO.replace("{min: 1}", "7").replace("login", "start"), "plan")
    before = recording(recorded).read_bytes()
    done = recorded.run("run", "--update", "--json")
    (told,) = result(done)["scenarios"]
    assert (told["written"], told["unkept"]) == (False, "recorded steps were not played")
    assert recording(recorded).read_bytes() == before


@pytest.mark.parametrize(("what", "code"), [("fail", 1), ("warn", 0), ("ignore", 0)])
def test_drift_is_what_is_said(recorded: Program, what: str, code: int) -> None:
    change(recorded, "agents/critic.yaml", role_prompt="Find what is right.")
    done = recorded.run("run", "--replay", "--drift", what, "--json")
    assert done.code == code
    assert result(done)["drifted"] == (what != "ignore")


def test_drift_never_satisfies_an_xfail(recorded: Program) -> None:
    text = SCENARIO.replace("turns: {min: 1}", "turns: 9")
    recorded.scenario(text + 'xfail: "it never was"\n', "plan")
    assert recorded.run("run", "--replay", "--json").code == 0
    change(recorded, "agents/planner.yaml", role_prompt="Another.")
    assert recorded.run("run", "--replay").code == 1


def test_a_step_that_fails_leaves_nothing_over_of_those_after_it(recorded: Program) -> None:
    recorded.scenario(SCENARIO.replace("{min: 1}", "7"), "plan")
    done = recorded.run("run", "--replay", "--json")
    assert (done.code, causes(done)) == (1, [])


def test_an_agent_that_fails_unexpectedly_is_not_kept(program: Program) -> None:
    program.program("critic", "exit", "3")
    done = program.run("run", "--record", "--json")
    assert done.code == 3
    (told,) = result(done)["scenarios"]
    assert (told["written"], told["unkept"]) == (False, "an agent or arena failed")
    assert not recording(program).exists()


@pytest.mark.parametrize(
    ("expect", "written"),
    [
        ("{turns: {min: 1}}", False),
        ("{outcome: {critic: success}}", False),
        ("{outcome: {critic: timeout}}", False),
        ("{outcome: {critic: error}, replies: {planner: [{contains: never}]}}", False),
        ("{end: failed, turns: 7}", False),
        ("{outcome: {critic: error}}", True),
        ("{end: failed}", True),
    ],
)
def test_a_failure_replaces_no_answer_unless_the_scenario_passes_with_it(
    program: Program, expect: str, written: bool
) -> None:
    def scenario(expect: str) -> None:
        program.scenario(
            f"scenario: S\nsteps:\n  - send: '@critic hi'\n    expect: {expect}\n", "plan"
        )

    scenario("{turns: 1}")
    assert program.run("run", "--record").code == 0
    before = recording(program).read_bytes()
    program.program("critic", "exit", "3")
    scenario(expect)
    done = program.run("run", "--record", "--json")
    (told,) = result(done)["scenarios"]
    assert (told["written"], recording(program).read_bytes() != before) == (written, written)
    assert told["unkept_agents"] == ([] if written else ["critic"])
    if not written:
        assert done.code
        assert told["unkept"]
        shown = program.run("run", "--record").stdout.splitlines()[0]
        assert "not recorded: " in shown
        assert "(critic): scenarios/recordings/plan.jsonl is unchanged" in shown


def test_a_failure_that_was_recorded_is_recorded_anew(program: Program) -> None:
    program.program("critic", "exit", "3")
    text = "scenario: S\nsteps:\n  - send: '@planner @critic hi'\n    expect: {}\n"
    program.scenario(text.replace("{}", "{outcome: {critic: error}}"), "plan")
    assert program.run("run", "--record").code == 0
    program.program("planner", "say", "another plan")
    program.scenario(text.replace("{}", "{outcome: {critic: error}, turns: 7}"), "plan")
    (told,) = result(program.run("run", "--record", "--json"))["scenarios"]
    assert (told["status"], told["written"]) == ("failed", True)


def test_a_snapshot_stays_with_its_recording(program: Program) -> None:
    program.scenario(
        "scenario: S\n"
        "steps:\n"
        "  - send: '@planner @critic hi'\n"
        "    expect: {replies: {planner: [{snapshot: true}]}}\n",
        "plan",
    )
    program.program("planner", "say", "the plan")
    assert program.run("run", "--record").code == 0
    program.program("planner", "say", "another plan")
    program.program("critic", "exit", "3")
    assert program.run("run", "--record").code == 3
    assert program.run("run", "--replay", "--drift", "ignore").code == 0


NESTED = """\
import os, subprocess, sys
def answer(input):
    if "case one" in input.messages[-1].content:
        done = subprocess.run(
            [sys.executable, "-m", "arena_cli", "run", "--record", "-k", "two", "cases"],
            env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True,
        )
        assert done.returncode == 0, done.stderr
    return "done"
"""


@pytest.mark.parametrize("is_new", [True, False])
def test_cases_of_one_file_that_are_recorded_at_once_lose_nothing(
    program: Program, is_new: bool
) -> None:
    """While one case is recorded, another arena records the other from begin to end."""
    root = str(Path(__file__).parent.parent)
    program.file("nested.py", NESTED.replace("ROOT", repr(root)))
    program.agent("planner", adapter={"type": "python", "target": "nested.py:answer"})
    program.scenario(
        "scenario: S\n"
        "cases: [{id: one}, {id: two}]\n"
        "vars: {x: 1}\n"
        "steps:\n"
        "  - send: '@planner case ${case.id}'\n".replace("${case.id}", "${vars.id}")
        + "    expect: {replies: {planner: [{snapshot: true}]}}\n",
        "cases",
    )
    text = (program.folder / "scenarios" / "cases.yaml").read_text(encoding="utf-8")
    text = text.replace("{id: one}", "{id: one, vars: {id: one}}").replace(
        "vars: {x: 1}\n", "vars: {id: two}\n"
    )
    program.scenario(text, "cases")
    if not is_new:
        program.agent("planner", "old")
        assert program.run("run", "--record", "cases").code == 0
        program.agent("planner", adapter={"type": "python", "target": "nested.py:answer"})
    program.run("run", "--record", "-k", "one", "cases").check()
    found = [one for one in lines(recording(program, "cases")) if one["type"] == "case"]
    assert [one["case"] for one in found] == ["one", "two"]
    done = program.run("run", "--replay", "cases", "--json")
    assert (done.code, result(done)["drift"]) == (0, [])
    told = recording(program, "cases").read_text(encoding="utf-8")
    assert told.count('"output":{"content":"done"}') == 2


def test_a_recording_is_written_by_one_arena_at_a_time(program: Program) -> None:
    program.agent("planner", "the plan")
    steps = "[{send: '@planner hi', expect: {replied: [planner]}}]"
    program.scenario(f"scenario: S\nsteps: {steps}\n", "plan")
    (program.folder / "sessions").mkdir(exist_ok=True)
    with InterProcessLock(program.folder / "sessions" / ".recordings.lock"):
        running = program.start("run", "--record")
        until(lambda: has_open(running.pid, ".recordings.lock"))
        assert running.poll() is None
        assert not recording(program).exists()
    program.finish(running).check()
    assert recording(program).exists()


def test_failures_and_late_answers_are_replayed_as_they_were(program: Program) -> None:
    program.program("planner", "err", "no luck", "exit", "3")
    program.program("critic", "say", "half", "sleep", timeout_s=0.5)
    program.scenario(
        "scenario: S\n"
        "steps:\n"
        "  - send: '@planner @critic hi'\n"
        "    expect: {outcome: {planner: error, critic: timeout}}\n",
        "plan",
    )
    assert program.run("run", "--record", "--keep", "all").code == 0
    assert program.run("run", "--replay", "--keep", "all").code == 0
    live, replayed = sorted(
        program.folder.glob("sessions/2*/transcript.jsonl"),
        key=lambda path: path.stat().st_mtime_ns,
    )
    told = [
        [
            (one["agent"], one["status"], one["error"].partition("; asked")[0])
            for one in map(json.loads, path.read_text(encoding="utf-8").splitlines())
            if one["type"] == "reply_finished"
        ]
        for path in (live, replayed)
    ]
    of_live, of_replay = ({agent: rest for agent, *rest in one} for one in told)
    assert of_live["critic"] == of_replay["critic"]
    assert of_live["planner"][0] == of_replay["planner"][0]
    assert "no luck" in of_replay["planner"][1]


def test_attempts_that_failed_are_replayed_without_waiting(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"fail": "overloaded", "when": {"call": 1}}, {"say": "now"})
    program.team(on_failure="retry", retries=2, attempt_timeout_s=30)
    program.scenario('scenario: S\nsteps: [{send: "@dev hi", expect: {replied: [dev]}}]', "plan")
    assert program.run("run", "--record").code == 0
    calls = [one for one in lines(recording(program)) if one["type"] == "reply_started"]
    assert [("failure" in one, one.get("attempt")) for one in calls] == [(True, 1), (False, None)]
    done = program.run("run", "--replay", "--json")
    assert (done.code, causes(done)) == (0, [])
    change(program, "agents/teams/crew.yaml", config={"on_failure": "skip"})
    assert program.run("run", "--replay").code == 1


@pytest.mark.parametrize(
    "error",
    [
        AgentUnavailable("dev", "it is gone", came="exit code 3", mend="start it", again=False),
        AgentOverloaded("dev", "too many", retry_after=7.0),
        AgentRefused("dev", "no"),
        AgentProtocolError("dev", "that is no answer", came="<html>"),
    ],
)
def test_a_failure_is_raised_again_as_it_was(error: AgentError) -> None:
    heard = Heard(Redactor(), lambda _: None)
    raised = recorder.failed(json.loads(json.dumps(recorder.failure(error, heard))), "dev", heard)
    assert isinstance(raised, AgentError)
    assert (type(raised), str(raised), raised.again) == (type(error), str(error), error.again)
    assert getattr(raised, "retry_after", None) == getattr(error, "retry_after", None)


def test_what_an_agent_asks_for_is_asked_again(program: Program) -> None:
    request = {"action": "deploy", "detail": "release 812"}
    program.agent("dev", {"request": request, "say": "Deployed.", "denied": "So be it."})
    program.scenario('scenario: S\nsteps: [{send: "@dev hi", expect: {paused: approval}}]', "plan")
    assert program.run("run", "--record").code == 0
    [call] = [one for one in lines(recording(program)) if one["type"] == "reply_started"]
    asked = {**request, "tool": "scripted", "arguments": {"detail": "release 812"}}
    assert call["output"]["permits"] == [{**asked, "verdict": "asked"}]
    done = program.run("run", "--replay", "--json")
    assert (done.code, causes(done)) == (0, [])


def test_an_answer_after_another_decision_is_no_answer() -> None:
    async def ask(verdict: str) -> list[PermissionRequest]:
        async def decide(request: PermissionRequest) -> Permission:
            asked.append(request)
            return Permission(verdict)

        asked: list[PermissionRequest] = []
        heard = Heard(Redactor(), lambda _: None, on_permit=decide)
        await recorder.ask_again(record, "dev", heard)
        return asked

    request = PermissionRequest(action="deploy", detail="release 812", arguments={"n": 812})
    heard = Heard(Redactor(), lambda _: None)
    heard.permits.append((request, Permission("allowed")))
    answer = Answer(AgentOutput(content="Deployed."), declined=False)
    record = json.loads(json.dumps(recorder.output(answer, heard)))
    assert asyncio.run(ask("allowed")) == [request]
    with pytest.raises(AgentUnavailable, match="`allowed`, but now deploy is denied"):
        asyncio.run(ask("denied"))


def test_an_answer_with_a_binary_file_and_a_part_without_data_is_recorded() -> None:
    parts = [StructuredContent(type="note")]
    files = [Attachment(name="a.bin", data=b"\xff\xfe\0")]
    answer = Answer(AgentOutput(content="x", structured=parts, attachments=files), declined=False)
    heard = Heard(Redactor(), lambda _: None)
    record = json.loads(json.dumps(recorder.output(answer, heard)))
    restored = recorder.answered(record, heard).output
    assert (restored.structured, restored.attachments) == (parts, files)
    assert recorder.message_text(record, Ignoring()).endswith("[note: null]")


def test_what_varies_in_a_prompt_is_declared(program: Program) -> None:
    program.scenario(SCENARIO + "ignore: [{regex: '\\d{4}-\\d\\d-\\d\\d'}]\n", "plan")
    change(program, "agents/critic.yaml", role_prompt="Today is 2026-11-28.")
    program.run("run", "--record")
    first = recording(program).read_bytes()
    assert b"2026-11-28" not in first
    change(program, "agents/critic.yaml", role_prompt="Today is 2027-01-01.")
    assert program.run("run", "--replay").code == 0
    program.run("run", "--record")
    assert recording(program).read_bytes() == first
    change(program, "agents/critic.yaml", role_prompt="It is 2027-01-01.")
    assert causes(program.run("run", "--replay", "--json"))[0][2:] == (
        "Today is [ignored].",
        "It is [ignored].",
    )


def test_a_pattern_that_finds_nothing_changes_nothing() -> None:
    assert Ignoring(["(?=a)", "b+"]).text("a bb a") == "a [ignored] a"


def test_no_secret_is_in_a_recording(program: Program) -> None:
    secret = "hunter2-hunter2-hunter2"
    program.env["BOT_KEY"] = secret
    program.file("arena.yaml", json.dumps({"team": "crew", "redact": ["pass[0-9]{4}"]}))
    program.program(
        "planner",
        "say",
        f"my key is {secret}, my word is pass1234",
        "err",
        secret,
        adapter={"env": {"BOT_KEY": "${env:BOT_KEY}", "API_KEY": "literal-literal-1"}},
        role_prompt="The word is pass9876.",
    )
    program.scenario(f'scenario: S\nsteps: [{{send: "@planner {secret} and pass5555"}}]', "plan")
    assert program.run("run", "--record").code == 0
    text = recording(program).read_text(encoding="utf-8")
    assert "[redacted]" in text
    for planted in (secret, "pass1234", "pass5555", "pass9876", "literal-literal-1"):
        assert planted not in text
    assert "${env:BOT_KEY}" in text
    assert program.run("run", "--replay").code == 0


def test_all_that_a_reply_carries_is_replayed(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent(
        "dev",
        {
            "output": {
                "content": "看这里",
                "next_mentions": ["critic"],
                "structured": [{"type": "task_list", "data": ["写测试"]}],
                "attachments": [{"type": "code", "name": "计划.md", "data": "第一步"}],
                "usage": {"input_tokens": 3, "output_tokens": 2, "cost_usd": 0.5},
            }
        },
    )
    program.agent("critic", {"decline": True}).team()
    program.scenario(
        "scenario: S\n"
        "steps:\n"
        "  - send: '@dev hi'\n"
        "    expect:\n"
        "      outcome: {critic: declined}\n"
        "      structured: {task_list: [{contains: 写测试}]}\n"
        "      attachments: {计划.md: [{equals: 第一步}]}\n"
        "      tokens: {min: 5}\n"
        "      replies: {dev: [{equals: 看这里}]}\n",
        "plan",
    )
    assert program.run("run", "--record", "--keep", "all").code == 0
    assert program.run("run", "--replay", "--keep", "all").code == 0
    program.file("agents/dev.yaml", (tmp_path / "agents/dev.yaml").read_bytes())
    told = result(program.run("run", "--replay", "--json"))
    assert told["scenarios"][0]["usage"]["input_tokens"] >= 3


def test_sessions_and_cases_have_records_of_their_own(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "${message}"}).team()
    program.scenario(
        "scenario: S\n"
        "cases: [{id: 一, vars: {x: one}}, {id: b, vars: {x: two}}]\n"
        "steps:\n"
        "  - send: '@dev ${vars.x}'\n"
        "  - send: '@dev other'\n"
        "    session: second\n"
        "  - send: '@dev again'\n"
        "    expect: {replies: {dev: [{contains: again}]}}\n",
        "plan",
    )
    assert program.run("run", "--record", "--jobs", "2").code == 0
    first = recording(program).read_bytes()
    assert result(program.run("run", "--replay", "--json"))["drifted"] == 0
    program.run("run", "--record", "-k", "b")
    assert recording(program).read_bytes() == first
    text = (tmp_path / "scenarios/plan.yaml").read_text(encoding="utf-8")
    program.scenario(text.replace(", {id: b, vars: {x: two}}", ""), "plan")
    done = program.run("run", "--replay", "--json")
    assert causes(done) == [("left_over", "case", "b", "")]
    assert program.run("run", "--update").code == 0
    assert program.run("run", "--replay").code == 0


def test_what_came_before_is_kept_only_as_far_as_it_was_shown(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}, context={"window_tokens": 4000}).team()
    program.scenario(
        "scenario: S\ngiven: {fill: {messages: 900}}\nsteps: [{send: '@dev hi'}]", "plan"
    )
    assert program.run("run", "--record").code == 0
    assert len(lines(recording(program))) < 300
    assert program.run("run", "--replay").code == 0
    text = (tmp_path / "scenarios/plan.yaml").read_text(encoding="utf-8")
    program.scenario(text.replace("900", "901"), "plan")
    assert program.run("run", "--replay").code == 1


def test_a_setting_that_agents_are_shown_is_told_once(recorded: Program) -> None:
    change(recorded, "agents/critic.yaml", context={"max_output_tokens": 1000})
    done = recorded.run("run", "--replay", "--json")
    assert causes(done) == [("settings", "context.max_output_tokens", "2000", "1000")]


def test_a_message_is_told_beside_the_prompt_of_the_only_one_who_hears_it(
    recorded: Program,
) -> None:
    change(recorded, "agents/critic.yaml", role_prompt="Find what is right.")
    recorded.scenario(SCENARIO.replace("is it done", "are you done"), "plan")
    done = recorded.run("run", "--replay", "--json")
    assert causes(done) == [
        ("input", "role_prompt", "Find what is wrong.", "Find what is right."),
        ("input", "message", "user: @critic is it done?", "user: @critic are you done?"),
    ]


def test_all_that_an_agent_is_shown_otherwise_is_told(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("ops", {"say": "yes"})
    program.agent("dev", {"say": "on it"}).team(selection="none")
    program.scenario('scenario: S\nsteps: [{send: "@dev hi"}]', "plan")
    assert program.run("run", "--record").code == 0
    change(program, "agents/dev.yaml", role_prompt="Build.")
    change(program, "agents/ops.yaml", name="Operations")
    done = program.run("run", "--replay", "--json")
    assert causes(done) == [
        ("input", "role_prompt", "", "Build."),
        ("input", "members", "dev (dev)\nops (ops)", "dev (dev)\nops (Operations)"),
    ]


def test_a_name_that_nobody_is_called_by_any_more_is_told(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("ops", {"say": "yes"})
    program.agent("dev", {"say": "on it"}, name="开发").team(selection="none")
    program.scenario('scenario: S\nsteps: [{send: "@开发 hi"}]', "plan")
    assert program.run("run", "--record").code == 0
    change(program, "agents/dev.yaml", name="全栈")
    done = program.run("run", "--replay", "--json")
    assert causes(done) == [
        ("settings", "members", "dev (开发)\nops (ops)", "dev (全栈)\nops (ops)")
    ]


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        (["check", "ask"], None),
        (["ask", "again"], ("input", "message", "", "user: @dev again")),
        (
            ["again"],
            ("input", "messages[0]", "user: @dev hi\n→ dev", "user: @dev again\n→ dev"),
        ),
    ],
)
def test_a_step_that_came_or_went_is_the_cause(
    tmp_path: Path, steps: list[str], cause: tuple[str, str, str, str] | None
) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "on it"}).team()
    known = {
        "check": "check: {turns: {min: 0}}",
        "ask": 'send: "@dev hi"',
        "again": 'send: "@dev again"',
    }

    def write(names: list[str]) -> None:
        played = "".join(f"  - {known[name]}\n" for name in names)
        program.scenario(f"scenario: S\nsteps:\n{played}", "plan")

    write(["ask"])
    assert program.run("run", "--record").code == 0
    write(steps)
    expected = [] if cause is None else [cause]
    assert causes(program.run("run", "--replay", "--json")) == expected


BAD = [
    (lambda text: f"<<<<<<< HEAD\n{text}=======\n>>>>>>> theirs\n", "has a merge conflict"),
    (lambda text: "", "is not JSON"),
    (lambda text: text[: len(text) // 2], "is not JSON"),
    (lambda text: "\n".join(text.split("\n")[:-3]) + "\n", "was cut: its last line is missing"),
    (lambda text: text.replace('"version":1', '"version":2'), "is a recording of version 2"),
    (lambda text: text.replace("fine by me", "no good"), "does not match its checksum"),
    (lambda text: '{"type":"session"}\n', "is not a recording"),
    (lambda text: "[1]\n", "is not a line of a recording"),
    (lambda text: text.replace("A plan, then", "Another"), "does not match its checksum"),
]


@pytest.mark.parametrize(("edit", "told"), BAD)
def test_a_recording_that_is_none_is_told_before_anything_runs(
    recorded: Program, edit: Any, told: str
) -> None:
    path = recording(recorded)
    path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    done = recorded.run("run", "--replay")
    assert (done.code, done.stdout) == (2, "")
    assert "scenarios/recordings/plan.jsonl:" in done.stderr
    assert told in done.stderr
    assert "arena run --record" in done.stderr
    assert recorded.run("run", "--record").code == 0
    assert recorded.run("run", "--replay").code == 0


CASES = SCENARIO.replace("steps:", "cases: [{id: one}, {id: two}]\nsteps:")


def test_the_record_of_a_case_that_is_gone_stays_until_that_is_taken_over(
    program: Program,
) -> None:
    program.scenario(CASES, "plan")
    assert program.run("run", "--record").code == 0
    program.scenario(CASES.replace("two", "three"), "plan")
    done = program.run("run", "--record=missing", "--json")
    assert (done.code, causes(done)) == (1, [("left_over", "case", "two", "")])

    def cases() -> list[str]:
        return [one["case"] for one in lines(recording(program)) if one["type"] == "case"]

    assert cases() == ["one", "three", "two"]
    assert program.run("run", "--update").code == 0
    assert cases() == ["one", "three"]
    assert causes(program.run("run", "--replay", "--json")) == []


@pytest.mark.parametrize("spoiled", ["<<<<<<< HEAD\n", "edited"])
def test_what_cannot_be_trusted_is_recorded_anew_as_a_whole(program: Program, spoiled: str) -> None:
    program.scenario(CASES, "plan")
    assert program.run("run", "--record").code == 0
    path = recording(program)
    text = path.read_text(encoding="utf-8")
    wrong = text.replace("fine by me", "no good") if spoiled == "edited" else spoiled + text
    path.write_text(wrong, encoding="utf-8", newline="\n")
    one = program.run("run", "--record", "-k", "one")
    assert (one.code, one.stdout) == (2, "")
    assert "`arena run --record plan`" in one.stderr
    assert path.read_text(encoding="utf-8") == wrong
    assert program.run("run", "--record", "plan").code == 0
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("option", ["--record", "--record=missing"])
@pytest.mark.parametrize("is_file", [True, False])
def test_what_cannot_be_written_is_known_before_agents_are_called(
    program: Program, option: str, is_file: bool
) -> None:
    if is_file:
        program.file("scenarios/recordings", "")
    else:
        recording(program).mkdir(parents=True)
    done = program.run("run", option)
    assert (done.code, done.stdout) == (2, "")
    assert "scenarios/recordings/plan.jsonl: " in done.stderr
    assert program.written() == ""


def test_nothing_is_left_of_the_look_whether_it_can_be_written(program: Program) -> None:
    program.program("planner", "exit", "3")
    assert program.run("run", "--record").code == 3
    assert not recording(program).parent.exists()


def test_a_recording_that_cannot_be_written_after_all_is_an_error(program: Program) -> None:
    spoil = "import pathlib; pathlib.Path('scenarios/recordings').write_text(''); print('hi')"
    program.agent("planner", adapter={"type": "cli", "command": [sys.executable, "-c", spoil]})
    done = program.run("run", "--record", "--json")
    assert done.code == 3
    (told,) = result(done)["scenarios"]
    assert told["status"] == "error"
    assert "could not write" in told["error"]


def test_a_recording_of_another_scenario_is_told(recorded: Program) -> None:
    text = SCENARIO.replace("A plan, then its review", "Another")
    recorded.scenario(text, "plan")
    assert recorded.run("run", "--replay").code == 0
    recorded.scenario(
        text.replace("@planner make", "@planner draw").replace("is it", "was"), "plan"
    )
    done = recorded.run("run", "--replay")
    assert done.code == 2
    assert "is the recording of `A plan, then its review`, not of `Another`" in done.stderr
    assert "arena run --record plan" in done.stderr


def test_an_edited_recording_can_be_taken_over(recorded: Program) -> None:
    path = recording(recorded)
    text = path.read_text(encoding="utf-8").replace("fine by me", "no good")
    path.write_text(text, encoding="utf-8", newline="\n")
    done = recorded.run("run", "--update", "--json")
    assert (done.code, result(done)["scenarios"][0]["written"]) == (0, True)
    done = recorded.run("run", "--replay", "--keep", "all")
    assert done.code == 0
    assert "no good" in recorded.written()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (',"must":["planner"]', "", "`must` is missing"),
        (
            '"depth":0',
            '"depth":"x"',
            "turn_started: depth: must be a whole number, not the text `x`",
        ),
        (',"deferred":[]', "", "`deferred` is missing"),
        ('"output":{"content":"fine by me"}', '"output":{}', "'content' is missing"),
        ('"output":{"content":"fine by me"}', '"failure":{}', "'kind' is missing"),
        (
            '"content":"fine by me"',
            '"content":"a","usage":{"input_tokens":"x"}',
            "input_tokens: must be a whole number, not the text `x`",
        ),
    ],
)
def test_what_is_wrong_with_an_edited_line_is_told(
    recorded: Program, old: str, new: str, told: str
) -> None:
    path = recording(recorded)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8", newline="\n")
    done = recorded.run("run", "--update")
    assert (done.code, done.stdout) == (2, "")
    assert f"is not a line of a recording: {told}" in done.stderr


def test_line_ends_of_windows_are_no_edit(recorded: Program) -> None:
    path = recording(recorded)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert recorded.run("run", "--replay").code == 0


def test_separators_in_an_answer_are_no_line_ends(program: Program) -> None:
    said = "one\u2028two\x85three\x0bfour"
    program.program("critic", "raw", said.encode().hex())
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0


def test_latency_is_not_judged_of_a_replay(program: Program) -> None:
    program.scenario(SCENARIO + "expect: {latency_s: {min: 0.0001}}\n", "plan")
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0


def test_the_result_is_the_same_at_any_number_of_jobs(recorded: Program) -> None:
    for number in range(6):
        recorded.scenario(SCENARIO.replace("A plan", f"Plan {number}"), f"p{number}")
    recorded.run("run", "--record")
    change(recorded, "agents/critic.yaml", role_prompt="Find what is right.")

    def told(jobs: str) -> Any:
        found = result(recorded.run("run", "--replay", "--json", "--jobs", jobs))
        for one in (found, *found["scenarios"]):
            del one["seconds"]
        for one in found["scenarios"]:
            one["sessions"] = len(one["sessions"])
            for step in one["steps"]:
                step["session_name"] = step["session_name"] is not None
        return found

    assert told("1") == told("4")


def test_strict_scripts_are_used_up_in_a_replay_too(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", adapter={"type": "scripted", "strict": True, "replies": ["a", "b"]}).team()
    program.scenario('scenario: S\nsteps: [{send: "@dev 1"}, {send: "@dev 2"}]', "plan")
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0


def test_an_interrupted_recording_leaves_what_was_there(recorded: Program) -> None:
    before = recording(recorded).read_bytes()
    recorded.program("critic", "sleep")
    running = recorded.start("run", "--record")
    import signal

    from program import until

    until(lambda: '"reply_finished"' in recorded.written())
    running.send_signal(signal.SIGINT)
    assert recorded.finish(running).code == 130
    assert recording(recorded).read_bytes() == before


def judged(program: Program, rubric: str = "it is short") -> None:
    program.agent("judge", {"say": '{"verdict": "pass", "reason": "it is"}'}, member=False)
    program.scenario(
        "scenario: S\nsteps:\n  - send: '@dev hi'\n    expect:\n      replies:\n        dev:\n"
        f"          - judge: {{rubric: {rubric}, agent: judge}}\n"
        "          - judge: {rubric: it is polite, agent: judge}\n",
        "judged",
    )


def test_a_verdict_is_not_taken_for_another_rubric(program: Program) -> None:
    judged(program)
    assert program.run("run", "judged", "--record").code == 0
    assert program.run("run", "judged", "--replay").code == 0
    judged(program, "it is long")
    done = program.run("run", "judged", "--replay", "--json")
    assert done.code == 1
    [(kind, field, before, after)] = causes(done)
    assert (kind, field) == ("input", "rubric")
    assert "it is short" in before
    assert "it is long" in after
    (told,) = result(done)["scenarios"]
    assert [one["status"] for one in told["steps"][0]["checks"]] == ["error", "passed"]
    assert program.run("run", "judged", "--update").code == 3
    assert program.run("run", "judged", "--record=missing").code == 0
    assert program.run("run", "judged", "--replay").code == 0


def test_snapshots_are_taken_with_a_recording(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "one"}).team()
    steps = "[{send: '@dev hi', expect: {replies: {dev: [{snapshot: true}]}}}, {send: '@dev on'}]"
    program.scenario(f"scenario: S\nsteps: {steps}\n", "plan")
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0
    assert program.run("run", "--live").code == 0
    program.agent("dev", {"say": "two"})
    assert program.run("run", "--live").code == 1
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--live").code == 0


def test_a_past_that_was_planted_is_no_drift(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}).agent("ops", {"say": "ok"}).team(selection="none")
    past = "{messages: [{user: hi}, {system: there}]}"
    program.scenario(f"scenario: S\ngiven: {past}\nsteps: [{{send: hello}}]")
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0


def test_a_fixture_is_no_scenario(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}).team()
    program.file("scenarios/fixtures/deep/config.yaml", "a: [1")
    program.scenario("scenario: S\nsteps: [{send: '@dev hi', attach: [fixtures/deep/config.yaml]}]")
    assert program.run("run").code == 0


def test_a_prompt_that_two_agents_share_is_one_cause(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}, role_prompt="Be kind.")
    program.agent("ops", {"say": "ok"}, extends="dev").team()
    program.scenario('scenario: S\nsteps: [{send: "@dev @ops hi"}]', "plan")
    assert program.run("run", "--record").code == 0
    change(program, "agents/dev.yaml", role_prompt="Be brief.")
    done = program.run("run", "--replay", "--json")
    assert causes(done) == [("input", "role_prompt", "Be kind.", "Be brief.")]
    assert result(done)["drift"][0]["agents"] == ["dev", "ops"]
