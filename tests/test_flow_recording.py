"""Flows of scenarios are recorded and replayed: no step is carried out in a replay."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from product import dump_yaml
from program import Done, Program

WORK = """
from pathlib import Path


def log(name: str) -> str:
    with open("log.txt", "a") as file:
        file.write(name + "\\n")
    return name


def flaky(name: str) -> str:
    if not Path(name).exists():
        Path(name).write_text("x")
        raise ValueError("not yet")
    return "now"


def fail() -> None:
    raise ValueError("never")
"""

STEPS: list[dict[str, Any]] = [
    {"id": "one", "python": "work.py:log", "inputs": {"name": "one"}},
    {
        "id": "many",
        "each": [1, 2, 3],
        "parallel": 3,
        "steps": [
            {"id": "item", "shell": [sys.executable, "-c", "print(${item} * 2)"]},
            {"id": "rare", "when": "item > 2", "python": "work.py:log", "inputs": {"name": "rare"}},
        ],
    },
    {
        "id": "store",
        "sql": {
            "database": "a.db",
            "run": [
                "create table if not exists t (n text)",
                {"statement": "insert into t values (:n)", "values": {"n": "${steps.one.output}"}},
                "select count(*) as count from t",
            ],
        },
    },
    {"id": "flaky", "python": "work.py:flaky", "inputs": {"name": "f.txt"}, "retry_delay_s": 0},
    {"id": "broken", "shell": ["no-such-program"], "on_failure": "skip"},
    {
        "id": "tried",
        "python": "work.py:fail",
        "on_failure": "skip",
        "retries": 1,
        "retry_delay_s": 0,
    },
    {"id": "ask", "agent": "writer", "message": "one is ${steps.one.output}"},
    {
        "id": "tell",
        "send": "@writer: ${steps.store.output.rows[0].count} and ${steps.broken.status}",
    },
]

EXPECTED = {
    "one": {"status": "success"},
    "many[2].item": {"output": {"path": "stdout", "equals": "6\n"}},
    "many[0].rare": {"status": "skipped"},
    "store": {"output": {"path": "rows[0].count", "equals": 1}},
    "flaky": {"output": {"equals": "now"}},
    "broken": {"status": "skipped", "error_code": "unavailable"},
    "tried": {"error_code": "python"},
    "ask": {"output": {"equals": "Noted: one is one"}},
    "tell": {"output": {"path": "text", "equals": "Noted: @writer: 1 and skipped"}},
}


def write(program: Program, steps: list[dict[str, Any]] = STEPS, **keys: Any) -> None:
    program.file("flow.yaml", dump_yaml({"flow": "Test", "steps": steps, **keys}))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return write_workspace(tmp_path)


def write_workspace(folder: Path) -> Program:
    """Return a workspace with a flow of all kinds of steps, and a scenario that runs it."""
    made = Program(folder)
    made.agent("writer", {"say": "Noted: ${message}"})
    made.file("work.py", WORK)
    write(made)
    scenario = {
        "scenario": "A flow",
        "agents": ["writer"],
        "steps": [{"flow": "flow.yaml", "expect": {"flow": EXPECTED}}],
    }
    made.file("scenarios/a.yaml", dump_yaml(scenario))
    return made


def record(program: Program) -> None:
    done = program.run("run", "a", "--record")
    assert done.code == 0, done.stdout
    assert sorted(read_log(program)) == ["one", "rare"]
    for name in ("log.txt", "f.txt", "a.db"):
        (program.folder / name).unlink()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a recording of the steps."""
    program = write_workspace(tmp_path_factory.mktemp("recorded"))
    record(program)
    return (program.folder / "scenarios/recordings/a.jsonl").read_bytes()


@pytest.fixture
def recorded(program: Program, recording: bytes) -> None:
    """Leave the workspace as if its steps had been recorded there."""
    program.file("scenarios/recordings/a.jsonl", recording)


def replay(program: Program) -> Done:
    done = program.run("run", "a", "--replay")
    assert not list(program.folder.glob("*.db"))
    assert read_log(program) == []
    return done


def read_log(program: Program) -> list[str]:
    path = program.folder / "log.txt"
    return path.read_text().split() if path.exists() else []


def read_recording(program: Program) -> list[dict[str, Any]]:
    text = (program.folder / "scenarios/recordings/a.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("recorded")
def test_a_replay_carries_out_no_step(program: Program) -> None:
    works = {line["step"]: line["work"] for line in read_recording(program) if "work" in line}
    assert works["one"] == {"python": "work.py:log", "inputs": {"name": "one"}}
    assert "many[0].rare" not in works
    program.agent("writer", {"fail": "error", "say": "it must not be called"})
    (program.folder / "work.py").unlink()
    program.agent("writer", {"say": "Noted: ${message}"})
    for _ in range(3):
        done = replay(program)
        assert done.code == 0, done.stdout
    before = (program.folder / "scenarios/recordings/a.jsonl").read_bytes()
    program.run("run", "a", "--update").check(stdout=None)
    assert (program.folder / "scenarios/recordings/a.jsonl").read_bytes() == before
    program.env["CI"] = "true"
    done = program.run("run", "a")
    assert done.code == 0, done.stdout
    assert read_log(program) == []


def test_a_recording_holds_no_secret_of_a_step(program: Program) -> None:
    program.env["SHOP_TOKEN"] = "hunter2-4711"
    shell = [sys.executable, "-c", "pass", "${env:SHOP_TOKEN}"]
    write(program, [*STEPS, {"id": "secret", "shell": shell}])
    record(program)
    (work,) = [line["work"] for line in read_recording(program) if line.get("step") == "secret"
               and "work" in line]  # fmt: skip
    assert work["shell"][:3] == shell[:3]
    assert "hunter2" not in json.dumps(work)
    assert replay(program).code == 0


@pytest.mark.usefixtures("recorded")
def test_a_recording_that_was_edited_by_hand_is_accepted_and_updated(program: Program) -> None:
    path = program.folder / "scenarios/recordings/a.jsonl"
    path.write_text(path.read_text().replace('"output":"now"', '"output":"later"'))
    text = (program.folder / "scenarios/a.yaml").read_text()
    assert replay(program).code == 2
    program.file("scenarios/a.yaml", text.replace("equals: now", "equals: later"))
    program.run("run", "a", "--update").check(stdout=None)
    assert replay(program).code == 0
    write(program, change(STEPS, "ask", message="other"))
    assert replay(program).code == 1
    program.run("run", "a", "--update").check(stdout=None)
    assert replay(program).code == 0


@pytest.mark.usefixtures("recorded")
def test_a_new_step_is_added_to_a_recording(program: Program) -> None:
    write(program, [*STEPS, {"id": "new", "python": "work.py:log", "inputs": {"name": "new"}}])
    done = program.run("run", "a", "--record=missing")
    assert done.code == 0, done.stdout
    assert read_log(program) == ["new"]
    (program.folder / "log.txt").unlink()
    assert replay(program).code == 0


@pytest.mark.usefixtures("recorded")
def test_a_replay_needs_no_trust_in_what_its_steps_start(program: Program) -> None:
    program.env["ARENA_TRUST"] = ""
    done = program.run("run", "a", "--replay")
    assert done.code == 0, done.stderr
    done = program.run("run", "a", "--record")
    assert done.code == 2
    assert "run work.py:log" in done.stderr
    assert read_log(program) == []


def test_a_flow_by_itself_is_recorded_and_replayed(program: Program) -> None:
    args = ("flow", "run", "flow.yaml", "--json")
    done = program.run(*args, "--record", "night.jsonl")
    assert done.code == 0, done.stderr
    recorded = json.loads(done.stdout)["steps"]
    for name in ("log.txt", "f.txt", "a.db"):
        (program.folder / name).unlink()
    program.env["ARENA_TRUST"] = ""
    done = program.run(*args, "--replay", "night.jsonl", "--quiet")
    assert (done.code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["steps"] == recorded
    write(program, change(STEPS, "ask", message="other"))
    done = program.run(*args, "--replay", "night.jsonl", "--quiet")
    assert (done.code, done.stderr) == (1, "arena: the step ask of the flow has changed\n")
    write(program, [*STEPS, {"id": "new", "shell": ["touch", "new.txt"]}])
    done = program.run(*args, "--replay", "night.jsonl", "--quiet")
    assert done.code == 3
    assert "the flow runs its step new, but no recorded result is left for it" in done.stderr
    assert not (program.folder / "new.txt").exists()
    assert read_log(program) == []
    assert not (program.folder / "a.db").exists()


def test_a_recording_holds_no_secret_that_a_step_is_given(program: Program) -> None:
    program.file("arena.yaml", dump_yaml({"redact": ["key-[0-9]+"]}))
    write(program, [{"id": "one", "python": "work.py:log", "inputs": {"name": "key-4711"}}])
    args = ("flow", "run", "flow.yaml", "--quiet")
    program.run(*args, "--record", "night.jsonl").check()
    assert read_log(program) == ["key-4711"]
    assert "4711" not in (program.folder / "night.jsonl").read_text()
    program.run(*args, "--replay", "night.jsonl").check(stderr="")


def test_a_recording_of_a_flow_that_is_none(program: Program) -> None:
    args = ("flow", "run", "flow.yaml", "--quiet")
    done = program.run(*args, "--replay", "none.jsonl")
    assert done.code == 2
    assert "record it: `arena flow run flow.yaml --record none.jsonl`" in done.stderr
    program.file("cut.jsonl", '{"type":"recording","version":1,"scenario":"x"}\n')
    done = program.run(*args, "--replay", "cut.jsonl")
    assert done.code == 2
    assert "was cut" in done.stderr
    assert program.run(*args, "--replay", "a", "--record", "b").code == 2
    assert program.run(*args, "--record", "none/x/y.jsonl").code == 2
    assert read_log(program) == []


def change(steps: list[dict[str, Any]], step: str, **keys: Any) -> list[dict[str, Any]]:
    return [{**each, **keys} if each["id"] == step else each for each in steps]


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("steps", "name", "text"),
    [
        (
            change(STEPS, "store", sql={"database": "a.db", "run": ["select 1 as count"]}),
            "store",
            "the step store of the flow has changed",
        ),
        (
            change(STEPS, "ask", message="other"),
            "ask",
            "the step ask of the flow has changed",
        ),
        (
            [*STEPS, {"id": "new", "python": "work.py:log", "inputs": {"name": "new"}}],
            "new",
            "the flow runs its step new, but no recorded result is left for it",
        ),
        (
            [step for step in STEPS if step["id"] != "flaky"],
            "flaky",
            "the flow no longer runs its step flaky",
        ),
        (
            change(STEPS, "one", inputs={"name": "two"}),
            "one",
            "the step one of the flow has changed",
        ),
    ],
)
def test_a_changed_step_is_drift_by_its_name(
    program: Program, steps: list[dict[str, Any]], name: str, text: str
) -> None:
    write(program, steps)
    done = replay(program)
    assert done.code == 1
    assert text in done.stdout
    result = program.run("run", "a", "--replay", "--json").stdout
    causes = [
        drift["field"]
        for scenario in json.loads(result)["scenarios"]
        for drift in scenario["drift"]
        if not drift["follows"]
    ]
    assert causes == [f"flow step {name}"]


@pytest.mark.usefixtures("recorded")
def test_another_prompt_of_an_agent_that_a_step_calls_is_drift(program: Program) -> None:
    program.agent("writer", {"say": "Noted: ${message}"}, role_prompt="You are another one.")
    done = replay(program)
    assert done.code == 1
    assert "role_prompt" in done.stdout or "the step ask of the flow has changed" in done.stdout


def test_a_failure_is_recorded_and_a_reflection_replayed(program: Program) -> None:
    answer = json.dumps({"assessment": "Once more.", "should_retry": True, "confidence": 0.9})
    program.agent("judge", {"say": answer})
    steps = [{"id": "a", "python": "work.py:flaky", "inputs": {"name": "g.txt"}, "retries": 0}]
    write(program, steps, reflect={"agent": "judge"})
    scenario = {
        "scenario": "A flow",
        "agents": ["writer"],
        "steps": [{"flow": "flow.yaml", "expect": {"flow": {"a": {"output": {"equals": "now"}}}}}],
    }
    program.file("scenarios/a.yaml", dump_yaml(scenario))
    done = program.run("run", "a", "--record")
    assert done.code == 0, done.stdout
    (program.folder / "g.txt").unlink()
    program.agent("judge", {"say": "no assessment"})
    done = replay(program)
    assert not (program.folder / "g.txt").exists()
    assert "the step reflected of the flow has changed" in done.stdout
    program.agent("judge", {"say": answer})
    done = replay(program)
    assert done.code == 0, done.stdout


def test_a_flow_that_failed_fails_in_its_replay(program: Program) -> None:
    write(program, [{"id": "a", "shell": ["no-such-program"]}])
    scenario = {
        "scenario": "A flow",
        "agents": ["writer"],
        "steps": [{"flow": "flow.yaml", "expect": {"flow": {"a": {"status": "failed"}}}}],
    }
    program.file("scenarios/a.yaml", dump_yaml(scenario))
    program.run("run", "a", "--record").check(stdout=None)
    assert replay(program).code == 0
