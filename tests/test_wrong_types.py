"""A wrong type in any field of any file is explained in arena's words, never in pydantic's."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from product import (
    EVENT_TYPES,
    AgentOutput,
    AgentProfile,
    Note,
    RunRecord,
    ScenarioFile,
    TeamConfig,
    TeamFile,
    WorkspaceFile,
    base,
    explain_first,
    markdown,
    schema_errors,
)
from program import Done, Program
from pydantic import BaseModel, ValidationError

PYDANTIC = re.compile(
    r"Value error|Assertion failed|Input should|Field required|Extra inputs|should be a valid|"
    r"unable to parse|validation error|pydantic|\bshould (?:be|have|match)\b"
)
VALUES: tuple[Any, ...] = ("x", 7, 1.5, True, [7], {"x": 7}, [{"x": 7}])


def paths(model: type[BaseModel], depth: int = 4) -> Iterator[tuple[str | int, ...]]:
    """The place of each field of a shape, and of the shapes within it."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield (key,)
        for steps, inner in models_within((), field.annotation) if depth else ():
            yield from ((key, *steps, *path) for path in paths(inner, depth - 1))


def models_within(
    steps: tuple[str | int, ...], annotation: Any
) -> Iterator[tuple[tuple[str | int, ...], type[BaseModel]]]:
    for leaf in schema_errors.iter_leaf_types(annotation):
        if schema_errors.is_model(leaf):
            yield steps, leaf
        elif get_origin(leaf) is dict:
            yield from models_within((*steps, "dev"), get_args(leaf)[1])
        else:
            for item in schema_errors.list_item_types(leaf):
                yield from models_within((*steps, 0), item)


def holding(path: tuple[str | int, ...], value: Any) -> Any:
    """Plain data with a value at a place."""
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value


def wrong(model: type[BaseModel], depth: int = 4) -> list[tuple[str, Any]]:
    """A document for each field and each value, with the place of the field."""
    places = dict.fromkeys(paths(model, depth))
    return [(str(path), holding(path, value)) for path in places for value in VALUES]


def once_each(model: type[BaseModel]) -> Iterator[tuple[str | int, ...]]:
    """The place of each field of a shape and of those within it, each shape where it is first."""
    known: dict[type[BaseModel], tuple[str | int, ...]] = {model: ()}
    waiting = [model]
    while waiting:
        shape = waiting.pop(0)
        for name, field in shape.model_fields.items():
            path = (*known[shape], field.alias or name)
            yield path
            for steps, inner in models_within((), field.annotation):
                if inner not in known:
                    known[inner] = (*path, *steps)
                    waiting.append(inner)


def check(done: Done, *, says: str, least: int) -> None:
    """Each error names a file and a line, and none is pydantic's."""
    text = done.stdout + done.stderr
    lines = text.splitlines()
    assert [line for line in lines if PYDANTIC.search(line)] == []
    assert len(re.findall(says, text)) >= least


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("dev", "hi").team()
    return program


@pytest.mark.parametrize("kind", ["agent", *base.KINDS.list_kinds()])
def test_agents(program: Program, kind: str) -> None:
    if kind == "agent":
        documents = wrong(AgentProfile)
    else:
        settings = base.KINDS.settings_type(kind)
        documents = [(at, {"adapter": {"type": kind, **rest}}) for at, rest in wrong(settings)]
    for number, (_, document) in enumerate(documents):
        name = f"a{number}"
        program.file(f"agents/{name}.yaml", json.dumps({"agent_id": name, **document}))
    done = program.run("agents")
    assert done.code == 2
    check(done, says=r"agents/a\d+\.yaml:1: ", least=len(documents) // 2)


def test_teams(program: Program) -> None:
    documents = wrong(TeamFile) + [(at, {"config": rest}) for at, rest in wrong(TeamConfig)]
    for number, (_, document) in enumerate(documents):
        name = f"t{number}"
        full = {"team": name, "members": ["dev"], **document}
        program.file(f"agents/teams/{name}.yaml", json.dumps(full))
    done = program.run("teams")
    assert done.code == 2
    check(done, says=r"agents/teams/t\d+\.yaml:1: ", least=len(documents) // 2)


@pytest.mark.parametrize(("at", "document"), wrong(WorkspaceFile, 2))
def test_workspaces(program: Program, at: str, document: Any) -> None:
    program.file("arena.yaml", json.dumps(document))
    done = program.run("teams")
    check(done, says=r"arena\.yaml:1: ", least=0 if done.code == 0 else 1)


def test_scenarios(program: Program) -> None:
    places = [*once_each(ScenarioFile), *paths(ScenarioFile, 1)]
    documents = [holding(path, value) for path in places for value in VALUES][::2]
    for number, document in enumerate(documents):
        full = {"scenario": "s", "steps": [{"send": "hi"}], **document}
        program.file(f"scenarios/s{number}.yaml", json.dumps(full))
    done = program.run("run", "--list")
    assert done.code == 2
    check(done, says=r"scenarios/s\d+\.yaml:1: ", least=len(documents) // 2)


def test_recordings(program: Program) -> None:
    program.scenario("scenario: s\nsteps:\n  - send: hi\n")
    assert program.run("run", "--record").code == 0
    path = program.folder / "scenarios" / "recordings" / "one.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    tried = 0
    for index, record in enumerate(records[:-1]):
        for key in record.keys() - {"type"}:
            for value in ("x", [7]):
                changed = [*records]
                changed[index] = {**record, key: value}
                path.write_text(
                    "".join(f"{json.dumps(one)}\n" for one in changed), encoding="utf-8"
                )
                done = program.run("run", "--update")
                at = r"scenarios/recordings/one\.jsonl:\d+: "
                check(done, says=at, least=1 if done.code == 2 else 0)
                tried += done.code == 2
    assert tried > 20


def test_transcripts(program: Program) -> None:
    assert program.run("send", "--session", "s", "hi").code == 0
    path = program.transcript("s")
    lines = path.read_text(encoding="utf-8")
    count = 0
    for type_name, shape in EVENT_TYPES.items():
        for _, document in wrong(shape, 1):
            count += 1
            event = {"seq": 100 + count, "ts": "", "type": type_name}
            lines += json.dumps({**event, **document}) + "\n"
    path.write_text(lines, encoding="utf-8")
    program.file("scenarios/past.jsonl", lines)
    done = program.run("doctor", "s")
    assert done.code == 1
    check(done, says=r"transcript\.jsonl:\d+: ", least=count // 2)
    program.scenario("scenario: s\ngiven: {transcript: past.jsonl}\nsteps:\n  - send: hi\n")
    done = program.run("run", "--list")
    assert done.code == 2
    check(done, says=r"past\.jsonl:\d+ cannot be read", least=1)


def test_notes(program: Program) -> None:
    assert program.run("send", "--session", "s", "hi").code == 0
    documents = [document for _, document in wrong(Note) if document.keys() <= {*markdown._FIELDS}]
    for number, document in enumerate(documents):
        program.file(
            f"sessions/s/knowledge/n{number}.md", f"---\n{json.dumps(document)}\n---\ntext\n"
        )
    done = program.run("knowledge", "list")
    check(done, says=r"knowledge/n\d+\.md:2: ", least=len(documents) // 2)


@pytest.mark.parametrize(("at", "document"), wrong(RunRecord, 3)[::3])
def test_results_of_runs(program: Program, at: str, document: Any) -> None:
    whole = {"version": 1, "exit_code": 0, "seconds": 0.0, "scenarios": []}
    program.file("a.json", json.dumps({**whole, **document}))
    program.file("b.json", json.dumps(whole))
    done = program.run("diff", "a.json", "b.json")
    check(done, says=r"a\.json: ", least=1 if done.code == 2 else 0)


def test_json_answers_of_programs(tmp_path: Path) -> None:
    program = Program(tmp_path)
    documents = wrong(AgentOutput, 2)
    for number, (_, document) in enumerate(documents):
        answer = json.dumps({"content": "hi", **document})
        command = [sys.executable, "-Sc", f"print({answer!r})"]
        adapter = {"type": "cli", "command": command, "output": "json"}
        program.agent(f"a{number}", adapter=adapter)
    done = program.run("send", "--session", "s", "--json", *["@all hi"])
    assert done.code in (0, 3)
    check(done, says="its result is not an answer", least=20)


@pytest.mark.parametrize("shape", [AgentOutput, RunRecord, *EVENT_TYPES.values()])
def test_every_error_of_a_shape_is_explained(shape: type[BaseModel]) -> None:
    explained = []
    for _, document in wrong(shape, 2):
        try:
            shape.model_validate(document)
        except ValidationError as error:
            explained.append(explain_first(error))
    assert explained
    assert [text for text in explained if PYDANTIC.search(text)] == []
