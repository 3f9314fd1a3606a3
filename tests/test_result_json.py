"""The document of `arena run --json`: replies with `--detail`, session names, and its schema."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types
from program import Program

TWO_STEPS = """\
scenario: 两步
steps:
  - send: "@dev 你好"
    expect: {replied: [dev], outcome: {slow: timeout}}
  - send: "@dev again"
    session: second
    expect: {outcome: {slow: timeout}, replies: {dev: [{contains: nothing}]}}
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("dev", {"say": "完成 @slow"})
    program.agent("slow", {"fail": "timeout"})
    program.team()
    program.scenario(TWO_STEPS, "steps")
    return program


def printed(program: Program, *args: str, code: int = 1) -> Any:
    done = program.run("run", "steps", "--json", *args).check(code=code, stderr=ANY)
    return json.loads(done.stdout)


def closed(schema: Any) -> Any:
    """The schema, in which a key that it does not list is an error."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        schema["additionalProperties"] = False
    return schema


def test_detail_has_every_reply_with_its_text(program: Program) -> None:
    steps = printed(program, "--detail")["scenarios"][0]["steps"]
    replies = [
        (reply["agent"], reply["turn"], reply["phase"], reply["status"], reply["text"])
        for reply in steps[0]["replies"]
    ]
    assert replies == [
        ("dev", 1, "A", "success", "完成 @slow"),
        ("slow", 2, "A", "timeout", ""),
    ]
    assert steps[0]["replies"][0]["calls"] == ["slow"]
    assert steps[0]["replies"][1]["error"] == "slow: no answer in time, as scripted"
    assert [reply["text"] for reply in steps[1]["replies"]] == ["完成 @slow", ""]


def test_without_detail_there_are_no_texts(program: Program) -> None:
    steps = printed(program)["scenarios"][0]["steps"]
    assert [step["replies"] for step in steps] == [None, None]


def test_detail_has_the_replies_of_scenarios_that_passed(program: Program) -> None:
    program.scenario(TWO_STEPS.replace("nothing", "完成"), "steps")
    steps = printed(program, "--detail", code=0)["scenarios"][0]["steps"]
    assert [len(step["replies"]) for step in steps] == [2, 2]


def test_each_step_names_the_session_that_was_kept(program: Program) -> None:
    scenario = printed(program)["scenarios"][0]
    names = [step["session_name"] for step in scenario["steps"]]
    assert names == scenario["sessions"]
    assert len(set(names)) == 2
    program.run("export", *names).check(stdout=None)
    dropped = printed(program, "--keep", "none")["scenarios"][0]
    assert [step["session_name"] for step in dropped["steps"]] == [None, None]


def test_detail_needs_json(program: Program) -> None:
    program.run("run", "steps", "--detail").check(
        code=2,
        stdout="",
        stderr="arena: --detail was given without --json\n  add --json, or use --html FILE\n",
    )
    assert program.sessions() == []


@pytest.mark.parametrize("options", [(), ("--detail",), ("--explain", "--detail")])
def test_the_document_has_what_its_schema_says(program: Program, options: tuple[str, ...]) -> None:
    schema = json.loads(program.run("schema", "result").check().stdout)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == "arena result"
    document = printed(program, *options)
    validator = Draft202012Validator(closed(schema))
    assert [error.message for error in validator.iter_errors(document)] == []
    document["scenarios"][0]["steps"][0]["status"] = "fine"
    assert not validator.is_valid(document)


def test_the_schema_holds_for_broken_files_and_drift(program: Program) -> None:
    schema = json.loads(program.run("schema", "result").check().stdout)
    validator = Draft202012Validator(closed(schema))
    program.scenario("scenario: g\nsteps: [{send: '@dev hi'}]\n", "g")
    program.run("run", "g", "--record").check(code=ANY, stdout=None, stderr=ANY)
    program.agent("dev", {"say": "other"}, role_prompt="another")
    program.scenario("scenario: h\nsteps: [{sned: hi}]\n", "h")
    done = program.run("run", "--json", "--replay", "--detail")
    document = json.loads(done.stdout)
    assert [error.message for error in validator.iter_errors(deepcopy(document))] == []
    by_file = {one["file"]: one for one in document["scenarios"]}
    assert by_file["scenarios/h.yaml"]["faults"]
