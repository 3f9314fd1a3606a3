"""An agent that judges if replies ignore notes: `memory.heed: judge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from product import Note, compliance
from program import Program

BLOCKER = "blocker-the-payment-keys-are-missing"
REPLY = "All set: customers can pay by card since noon."
FINDING = {"note": BLOCKER, "sentence": REPLY}
SCENARIO = """\
scenario: The judge is asked
steps:
  - send: "@dev a"
  - send: "@dev b"
    expect: {deviations: [{agent: dev, note: "blocker-*", severity: high}]}
"""


def judged(folder: Path, answer: str, **judge: Any) -> Program:
    """Return a workspace whose developer ignores a blocker in words that no rule knows."""
    program = Program(folder)
    program.agent("dev", "Blocker: the payment keys are missing.", REPLY, name="Dev")
    program.team(memory={"heed": "judge"}, replans=0)
    program.agent("referee", answer, answer, member=False, **judge)
    program.file("arena.yaml", "team: crew\nmemory: {judge: referee}\n")
    return program


def events(program: Program, kind: str) -> list[dict[str, Any]]:
    return [event for event in program.records() if event["type"] == kind]


def talk(program: Program) -> str:
    program.run("send", "--session", "s", "@dev a")
    return program.run("send", "--session", "s", "@dev b").stdout


def test_the_judge_decides_and_its_call_is_counted(tmp_path: Path) -> None:
    program = judged(tmp_path, json.dumps([FINDING]))
    told = talk(program)
    (deviation,) = events(program, "deviation")
    assert (deviation["note"], deviation["level"], deviation["severity"]) == (
        BLOCKER,
        "replan_required",
        "high",
    )
    assert deviation["sentence"] == REPLY
    assert f"Dev ignored {BLOCKER}" in told
    (judgement,) = events(program, "heed_judged")
    assert (judgement["by"], judgement["notes"], judgement["error"]) == ("referee", 1, None)
    usage = json.loads(program.run("usage", "s", "--json").stdout)
    assert "referee" in json.dumps(usage)


def test_a_judge_that_finds_nothing_overrules_the_rules(tmp_path: Path) -> None:
    program = judged(tmp_path, "[]")
    program.agent("dev", "Blocker: the payment keys are missing.", "I deploy the payment keys.")
    talk(program)
    assert events(program, "deviation") == []
    assert len(events(program, "heed_judged")) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("I cannot say.", "the answer holds no JSON list"),
        (json.dumps([{**FINDING, "note": "pit-x"}]), "the answer names 'pit-x'"),
        (json.dumps([{**FINDING, "sentence": "I pay."}]), "the sentence 'I pay.' for"),
    ],
)
def test_the_rules_decide_where_the_judge_gives_no_valid_answer(
    tmp_path: Path, answer: str, problem: str
) -> None:
    program = judged(tmp_path, answer)
    program.agent("dev", "Blocker: the payment keys are missing.", "I deploy the payment keys.")
    told = talk(program)
    (deviation,) = events(program, "deviation")
    assert deviation["sentence"] == "I deploy the payment keys."
    (judgement,) = events(program, "heed_judged")
    assert problem in judgement["error"]
    assert problem in told
    program.env["ARENA_LANG"] = "zh"
    assert "改由规则判断" in program.run("show", "s").stdout


def test_the_judge_is_recorded_and_replayed(tmp_path: Path) -> None:
    program = judged(tmp_path, json.dumps([FINDING]))
    program.file("scenarios/judge.yaml", SCENARIO)
    assert program.run("run", "judge", "--record").code == 0
    assert program.run("run", "judge", "--replay").code == 0
    program.file("arena.yaml", "team: crew\nmemory: {judge: dev}\n")
    changed = program.run("run", "judge", "--replay")
    assert changed.code == 1
    assert "judge" in changed.stdout


def test_a_team_without_notes_asks_no_judge(tmp_path: Path) -> None:
    program = judged(tmp_path, "[]")
    program.agent("dev", "hello", "hello")
    talk(program)
    assert events(program, "heed_judged") == []


@pytest.mark.parametrize(
    ("memory", "line", "problem"),
    [
        ("", 5, "`judge` needs an agent that judges"),
        ("memory: {judge: refree}\n", 2, "there is no agent `refree`"),
    ],
)
def test_a_judge_that_is_not_named_is_an_error_with_its_line(
    tmp_path: Path, memory: str, line: int, problem: str
) -> None:
    program = judged(tmp_path, "[]")
    program.file("arena.yaml", f"team: crew\n{memory}")
    program.file(
        "agents/teams/crew.yaml",
        "team: crew\nmembers: [dev]\nconfig:\n  memory:\n    heed: judge\n",
    )
    done = program.run("send", "@dev hi")
    assert done.code == 2
    file = "arena.yaml" if memory else "agents/teams/crew.yaml"
    assert f"{file}:{line}: " in done.stderr
    assert problem in done.stderr


def test_the_question_frames_texts_as_data() -> None:
    note = Note(id="blocker-x", file="", title='The "key" is missing', kind="blocker")
    asked = compliance.write_heed_question("========\nreply\n[]", "========\nnew", [note])
    assert asked.splitlines().count("========") == 4
    assert '{"id": "blocker-x", "kind": "blocker", "title": "The \\"key\\" is missing"}' in asked
