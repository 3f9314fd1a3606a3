"""Inputs, templates and the schema of the output; one agent called by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import InputSpec, check_inputs, fill_inputs, make_input_schema
from program import Program

INPUTS = {
    "file": {"description": "the file to fix"},
    "times": {"type": "integer", "default": 3},
    "rate": {"type": "number", "required": False},
    "fast": {"type": "boolean", "default": False},
    "names": {"type": "string[]", "required": False},
}
OUTPUT = {"name": "report", "schema": {"type": "object", "required": ["ok"]}}
TOOLS = ["list_members"]
CALL = {"tool": "complete_task", "arguments": {"report": {"ok": True}}}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent(
        "fixer",
        {"say": "${message}"},
        inputs=INPUTS,
        role_prompt="You fix ${file} ${times} times; $${file} is a name.",
        query="Fix ${file}: ${names}, ${fast}, ${rate}.",
    )
    made.agent("maker", {"calls": [{"tool": "list_members"}, CALL]}, output=OUTPUT, tools=TOOLS)
    made.agent("echo", {"say": "You said ${message}"})
    return made


def write(program: Program, **profile: Any) -> str:
    """Load a workspace with one agent `a`; return the errors."""
    program.agent("a", {"say": "x"}, **profile)
    done = program.run("agents")
    assert done.code in (0, 2)
    return done.stderr


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ({"inputs": INPUTS, "query": "${fil}"}, "query: there is no input `fil`"),
        ({"inputs": INPUTS, "role_prompt": "${x}"}, "role_prompt: there is no input `x`"),
        ({"inputs": {"a b": {}}}, "inputs.a b: `a b` cannot be the name of an input"),
        ({"inputs": {"n": {"type": "text"}}}, "inputs.n.type"),
        ({"inputs": {"n": {"type": "integer", "default": "3"}}}, "inputs.n.default: is not of"),
        ({"output": {"schema": {"type": "objet"}}}, "output.schema.type: is no JSON Schema"),
        ({"output": {"schema": {"file": "no.json"}}}, "output.schema.file: there is no file `no"),
        ({"output": {"schema": {"file": "../x"}}}, "output.schema.file: `../x` is not in the"),
        (
            {"output": {"schema": {"properties": {"a": {"$ref": "http://127.0.0.1:9/"}}}}},
            "output.schema: is no JSON Schema: its $ref http://127.0.0.1:9/ cannot be resolved",
        ),
        ({"output": {"schema": 3}}, "output.schema: is no JSON Schema"),
    ],
)
def test_a_profile_is_checked_when_it_is_read(
    tmp_path: Path, profile: dict[str, Any], problem: str
) -> None:
    errors = write(Program(tmp_path), **profile)
    assert errors.startswith(f"arena: agents/a.yaml:1: {problem}")


def test_a_name_is_looked_for_in_the_file_of_a_role(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file("role.md", "You\nfix ${fiel}.\n")
    errors = write(program, inputs=INPUTS, role_prompt={"file": "role.md"})
    assert errors.startswith("arena: role.md:2: there is no input `fiel`")
    assert "did you mean" in errors
    assert "`file`" in errors


def test_a_schema_in_a_file_is_checked_there(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file("out.json", '{\n  "properties": {\n    "a": {"type": "txt"}\n  }\n}\n')
    output = {"name": "report", "schema": {"file": "out.json"}}
    assert write(program, output=output).startswith("arena: out.json:3: properties.a.type: is no ")
    program.file("out.json", '{\n  "properties": {\n    "a": {\n')
    assert write(program, output=output).startswith("arena: out.json:")
    program.file("out.json", '{"type": "integer"}')
    assert write(program, output=output) == ""
    program.agent("a", {"calls": [{"tool": "complete_task", "arguments": {"report": "x"}}]})
    call = {"tool": "complete_task", "arguments": {"report": 7}}
    program.agent("a", {"calls": [call]}, output=output)
    program.run("agents", "run", "a", "-m", "go", "-q").check(stdout="7\n")


def test_without_inputs_a_text_is_no_template(tmp_path: Path) -> None:
    program = Program(tmp_path)
    assert write(program, role_prompt="Use ${HOME}.", query="cd ${HOME}") == ""
    program.agent("a", {"say": "${message}"}, query="cd ${HOME}")
    program.run("agents", "run", "a").check(stdout="cd ${HOME}\n")


def test_an_agent_is_called_with_its_inputs(program: Program) -> None:
    program.file("names.json", '["a", "b"]')
    run = ("agents", "run", "fixer", "-s", "s", "-i", "file=x=1.py", "-i", "names=@names.json")
    program.run(*run, "--input", "fast=yes").check(stdout="Fix x=1.py: a, b, true, .\n")
    message = next(one for one in program.records() if one["type"] == "message")["message"]
    expected = {"file": "x=1.py", "names": ["a", "b"], "fast": True, "times": 3}
    assert message["metadata"]["inputs"] == expected
    done = program.run("show", "s", "--context", "--agent", "fixer")
    assert "You fix x=1.py 3 times; ${file} is a name." in done.stdout
    program.file("tale.txt", "once\nupon\n")
    program.run(*run[:4], "s2", "-i", "file=@tale.txt").check(stdout="Fix once\nupon: , false, .\n")
    program.run(*run[:4], "s3", "-i", "file=@@x").check(stdout="Fix @x: , false, .\n")


def test_one_error_names_all_that_is_wrong(program: Program) -> None:
    given = ("-i", "times=two", "-i", "fiel=a", "-i", "bare", "-i", "rate=@no.txt")
    program.run("agents", "run", "fixer", *given).check(
        code=2,
        stderr="arena: fixer needs inputs: file (string)\n"
        "--input times: must be a whole number, not two\n"
        "--input bare: write NAME=VALUE\n"
        "--input rate: cannot read no.txt: No such file or directory\n"
        "there is no input `fiel` (did you mean `file`?)\n"
        "  give each as --input NAME=VALUE\n",
    )
    assert program.sessions() == []


def test_in_a_team_an_agent_without_its_inputs_fails_with_a_hint(program: Program) -> None:
    program.team()
    assert program.run("send", "@fixer go", "-s", "s", "-q").code == 3
    (reply,) = [one for one in program.records() if one["type"] == "reply_finished"]
    hint = "call it with `arena agents run fixer`, or as a tool"
    assert reply["error"] == f"fixer needs inputs: file (string); {hint}"
    assert (reply["error_code"], reply["retryable"]) == ("unavailable", False)


def test_the_output_is_printed_with_its_steps_on_stderr(program: Program) -> None:
    program.run("agents", "run", "maker", "--message", "go").check(
        stdout='{\n  "ok": true\n}\n',
        stderr='1 list_members\n1 ok\n2 complete_task {"report": {"ok": true}}\n2 ok\n',
    )
    done = program.run("agents", "run", "maker", "-m", "go", "--json", "-q", "-s", "s").check()
    result = json.loads(done.stdout)
    assert result.pop("usage")["estimated"] is True
    assert result == {
        "agent": "maker",
        "mode": "goal",
        "output": {"ok": True},
        "turns": 2,
        "session": "s",
        "error": None,
    }


def test_a_message_comes_from_stdin(program: Program) -> None:
    program.run("agents", "run", "echo", given=b"hello\n").check(stdout="You said hello\n")
    program.run("agents", "run", "echo", "-m", "-", given=b"there").check(stdout="You said there\n")
    done = program.run("agents", "run", "echo", given=b"")
    assert (done.code, done.stdout) == (2, "")
    assert "the message is empty" in done.stderr


def test_an_agent_that_misses_its_goal_exits_with_3(program: Program) -> None:
    program.agent("lost", {"say": "I do not know."}, output=OUTPUT)
    done = program.run("agents", "run", "lost", "-m", "go", "--json", "-s", "s", "-q")
    assert (done.code, json.loads(done.stdout)["mode"]) == (3, "error_no_complete_task")
    assert "lost: error_no_complete_task: it stopped without calling" in done.stderr
    unfit = [{"tool": "complete_task", "arguments": {"result": "text"}}] * 4
    program.agent("unfit", {"calls": unfit, "say": "x"}, output=OUTPUT)
    done = program.run("agents", "run", "unfit", "-m", "go")
    assert done.code == 3
    assert "it handed in no result that fits its schema, in 4 attempts" in done.stderr
    program.agent("broken", {"fail": "refused"})
    assert program.run("agents", "run", "broken", "-m", "go").code == 3


def test_an_act_that_people_approve_pauses_the_call(program: Program) -> None:
    request = {"action": "deploy", "detail": "make deploy"}
    program.agent("ops", {"request": request, "say": "Deployed.", "asked": "I wait."})
    done = program.run("agents", "run", "ops", "-m", "go", "-s", "s", "--json")
    assert (done.code, json.loads(done.stdout)["mode"]) == (4, "paused")
    assert program.run("approve", "s", "1").code == 0
    done = program.run("resume", "s")
    assert done.code == 0
    assert "Deployed." in done.stdout
    assert {agent for agent, _ in program.finished()} == {"ops"}


def test_a_session_of_an_agent_continues_and_belongs_to_it(program: Program) -> None:
    program.team()
    for text in ("one", "two"):
        program.run("agents", "run", "echo", "-m", text, "-s", "s").check(
            stdout=f"You said {text}\n"
        )
    assert program.finished() == [("echo", "success")] * 2
    done = program.run("agents", "run", "maker", "-m", "go", "-s", "s")
    assert done.code == 2
    assert "session s is not one of maker by itself" in done.stderr


def test_an_unknown_agent_is_an_error_with_the_nearest(program: Program) -> None:
    done = program.run("agents", "run", "fixr", "-m", "go")
    assert done.code == 2
    assert "did you mean `fixer`" in done.stderr


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(),
    "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    "integer": st.integers(),
    "boolean": st.booleans(),
    "string[]": st.lists(st.text()),
    "number[]": st.lists(st.integers()),
}


@given(st.data())
def test_a_value_fits_its_input_as_it_fits_the_schema(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*VALUES]))
    other = data.draw(st.sampled_from([*VALUES]))
    value = data.draw(VALUES[other])
    specs = {"a": InputSpec.model_validate({"type": kind})}
    checked = check_inputs(specs, {"a": value})
    schema = make_input_schema(specs)["properties"]["a"]
    is_fit = fits_schema(schema, value)
    assert (dict(checked.values) == {"a": value}) == is_fit
    assert bool(checked.problems) != is_fit


def fits_schema(schema: dict[str, Any], value: Any) -> bool:
    """The types of JSON Schema, but for numbers such as 1.0, which are no whole numbers here."""
    match schema["type"]:
        case "array":
            return isinstance(value, list) and all(
                fits_schema(schema["items"], item) for item in value
            )
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, (int, float)) and not isinstance(value, bool)


@given(st.text(), st.text())
def test_a_value_is_never_filled_again(first: str, second: str) -> None:
    specs = {"a": InputSpec(), "b": InputSpec()}
    filled = fill_inputs("${a}|${b}|$${a}", specs, {"a": first, "b": second})
    assert filled == f"{first}|{second}|${{a}}"


def test_a_trial_of_an_agent_with_inputs_fills_them_with_samples(program: Program) -> None:
    done = program.run("agents", "test", "fixer")
    assert done.code == 0
    assert "You fix test 3 times" in done.stdout


def test_errors_of_inputs_are_in_chinese(program: Program) -> None:
    program.env["ARENA_LANG"] = "zh"
    program.run("agents", "run", "fixer", "-i", "times=two", "-i", "fiel=a", "-i", "bare").check(
        code=2,
        stderr="arena: fixer 缺少输入：file (string)\n"
        "--input times: 必须是整数，而不是 two\n"
        "--input bare: 请写成 NAME=VALUE\n"
        "没有名为 `fiel` 的输入（你是想写 `file` 吗？）\n"
        "  每个输入写成 --input NAME=VALUE\n",
    )
    program.agent("a", {"say": "x"}, inputs=INPUTS, query="${fil}")
    done = program.run("agents")
    assert "没有名为 `fil` 的输入" in done.stderr
    assert "  你是想写 `file` 吗？\n  要写 `${` 本身，用 `$${`\n" in done.stderr
