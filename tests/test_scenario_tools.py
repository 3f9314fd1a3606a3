"""Scripted tools of scenarios, and what scenarios expect of agents that act."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    CheckContext,
    Expect,
    FileFaults,
    WorkdirCopies,
    acting_events,
    evaluate,
    expect_model,
    read_conversation,
)
from stage import Stage, broken, printed

TOOLS = ["calc.*", "list_members", "python:calc.py:add"]
NEVER = {"calc": {"command": ["no-such-program"]}}


def stage_with(folder: Path, *calls: Any, say: str = "It is ${result}", **profile: Any) -> Stage:
    """A workspace with `fixer`, which makes these calls and says the last result."""
    profile = {"tools": TOOLS, "mcp": NEVER, **profile}
    (folder / "calc.py").write_text("def add(a: int = 0) -> int:\n    return a\n")
    return Stage(folder).agent("fixer", {"calls": list(calls), "say": say}, **profile).team()


def scenario(expect: Any, **keys: Any) -> str:
    steps = [{"send": "@fixer go", "on_fail": "continue", "expect": expect}]
    return json.dumps({"scenario": "x", "steps": steps, **keys}, ensure_ascii=False)


def use(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


@pytest.mark.parametrize(
    ("returns", "calls", "expected"),
    [
        ("6", 1, "It is 6"),
        ({"x": [1]}, 1, 'It is {"x": [1]}'),
        (["a", {"b": 1}], 2, 'It is {"b": 1}'),
        (["a", "b"], 4, "It is b"),
        ([["a", "b"]], 1, 'It is ["a", "b"]'),
        (None, 1, "It is null"),
        ("结果", 1, "It is 结果"),
    ],
)
def test_a_scripted_tool_gives_its_answers_in_order(
    tmp_path: Path, returns: Any, calls: int, expected: str
) -> None:
    calls_made = [use("calc.mul", a=number) for number in range(calls)]
    stage = stage_with(tmp_path, *calls_made, tools=["calc.*"])
    expect = {"replies": {"fixer": [{"equals": expected}]}, "tool": {"name": "calc.mul"}}
    told = stage.play(scenario(expect, tools={"calc.mul": {"returns": returns}}))
    assert told.status == "passed", printed(told)


def test_scripted_tools_replace_servers_functions_and_own_tools(tmp_path: Path) -> None:
    calls = [use("calc.mul", a=2), [use("add", a=1), use("list_members")]]
    tools = {
        "calc.mul": {"returns": "6", "schema": {"properties": {"a": {"type": "integer"}}}},
        "add": {"error": "no numbers"},
        "list_members": {"returns": [["nobody"]]},
    }
    expect = {
        "tool": [
            {"agent": "fixer", "name": "calc.mul", "arguments": {"a": 2}, "status": "ok"},
            {"name": "add", "status": "error"},
            {"name": "list_members", "times": 1},
        ],
        "ended": {"fixer": "goal"},
        "replies": {"fixer": [{"contains": '["nobody"]'}]},
    }
    told = stage_with(tmp_path, *calls).play(scenario(expect, tools=tools))
    assert told.status == "passed", printed(told)


def test_arguments_are_checked_by_the_schema_of_a_scripted_tool(tmp_path: Path) -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tools = {"calc.mul": {"returns": "6", "schema": schema}}
    expect = {
        "tool": {"name": "calc.mul", "status": "error"},
        "replies": {"fixer": [{"regex": "integer"}]},
    }
    stage = stage_with(tmp_path, use("calc.mul", a="two"), tools=["calc.*"])
    told = stage.play(scenario(expect, tools=tools))
    assert told.status == "passed", printed(told)


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ({"calc.mul": {}}, "tools.calc.mul: a scripted tool needs one of `returns` and `error`"),
        (
            {"calc.mul": {"returns": 1, "error": "x"}},
            "tools.calc.mul: a scripted tool needs one of `returns` and `error`",
        ),
        (
            {"calc.mul": {"returns": []}},
            "tools.calc.mul: `returns` is an empty list; for an empty result write `[[]]`",
        ),
        (
            {"cal.mul": {"returns": 1}},
            "tools.cal.mul: no agent of this scenario has a tool `cal.mul`",
        ),
        ({"read_file": {"returns": 1}}, "no agent of this scenario has a tool `read_file`"),
        (
            {"calc.mul": {"returns": 1, "schema": {"type": "objekt"}}},
            "tools.calc.mul.schema: not a",
        ),
        ({"calc.mul": {"returns": 1, "delays": 2}}, "tools.calc.mul.delays: unknown key"),
        ({"calc.mul": {"returns": 1, "delay_s": -1}}, "tools.calc.mul.delay_s"),
    ],
)
def test_wrong_scripted_tools_are_errors_before_anything_runs(
    tmp_path: Path, tools: Any, problem: str
) -> None:
    assert problem in faults(stage_with(tmp_path), {"end": "quiet"}, tools=tools)[0]


def faults(stage: Stage, expect: Any, **keys: Any) -> list[str]:
    with pytest.raises(FileFaults) as raised:
        stage.load(scenario(expect, **keys))
    return [f"{one.field}: {one.what} ({one.mend})" for one in raised.value.faults]


MUL = {"calc.mul": {"returns": "6"}, "add": {"error": "no numbers"}}
CALLS = [use("calc.mul", path="src/a.py", n=2), use("add"), use("calc.mul", path="b.py", n=2.0)]


@pytest.mark.parametrize(
    ("expected", "holds"),
    [
        ({"name": "calc.mul"}, True),
        ({"name": "calc.mul", "times": 2}, True),
        ({"name": "calc.mul", "times": {"max": 1}}, False),
        ({"name": "list_members", "times": 0}, True),
        ({"name": "list_members"}, False),
        ({"name": "*.mul", "times": 2}, True),
        ({"name": "add", "status": "ok"}, False),
        ({"agent": "fixer", "times": 3}, True),
        ({"arguments": {"n": 2}, "times": 2}, True),
        ({"arguments": {"path": {"starts_with": "src/"}}, "times": 1}, True),
        ({"arguments": {"path": {"regex": r"\.py$"}, "n": 2}, "times": 2}, True),
        ({"arguments": {"path": "a.py"}}, False),
        ({"arguments": {"other": None}}, False),
        ([{"name": "calc.mul"}, {"name": "add"}, {"name": "calc.mul"}], True),
        ([{"name": "add"}, {"name": "calc.mul"}], True),
        ([{"name": "add"}, {"name": "add"}], False),
        ([{"name": "calc.mul", "times": 2}, {"name": "add"}], False),
        ([{"name": "calc.mul", "times": {"min": 1}}, {"name": "add"}], True),
        ([{"name": "list_members", "times": 0}, {"name": "add"}], True),
        ([], False),
    ],
)
def test_calls_of_tools_are_expected_by_name_arguments_number_and_order(
    tmp_path: Path, expected: Any, holds: bool
) -> None:
    told = stage_with(tmp_path, *CALLS).play(scenario({"tool": expected}, tools=MUL))
    assert told.status == ("passed" if holds else "failed"), printed(told)
    for check in broken(told):
        assert "fixer · add · {} · error · " in check.actual
        assert '{"path": "src/a.py", "n": 2} · ok' in check.actual


def test_a_reply_is_checked_by_the_tools_that_it_called(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, *CALLS)
    checks = [
        {"tool": {"name": "add", "status": "error"}},
        {"tool": {"name": "calc.mul", "arguments": {"path": {"contains": "a.py"}}, "times": 1}},
        {"not": {"tool": {"name": "list_members"}}},
    ]
    told = stage.play(scenario({"replies": {"fixer": checks}}, tools=MUL))
    assert told.status == "passed", printed(told)
    told = stage.play(scenario({"replies": {"fixer": [{"tool": {"name": "list_*"}}]}}, tools=MUL))
    assert told.status == "failed"


OUTPUT = {"name": "report", "schema": {"type": "object", "required": ["findings"]}}


@pytest.mark.parametrize(
    ("expect", "field"),
    [
        ({"ended": {"fixer": "goal"}}, ""),
        ({"ended": {"fixer": "max_turns"}}, "ended.fixer"),
        ({"output": {"fixer": {"path": "findings[0].line", "equals": 3}}}, ""),
        ({"output": {"fixer": {"path": "findings[0].line", "equals": 4}}}, "output.fixer"),
        ({"output": {"fixer": [{"path": "findings"}, {"path": "more"}]}}, "output.fixer[1]"),
        ({"output": {"fixer": {"schema": {"required": ["more"]}}}}, "output.fixer"),
    ],
)
def test_ends_and_outputs_of_agents_are_expected(tmp_path: Path, expect: Any, field: str) -> None:
    done = use("complete_task", report={"findings": [{"line": 3}]})
    told = stage_with(tmp_path, done, output=OUTPUT, tools=[]).play(scenario(expect))
    assert [check.field for check in broken(told)] == ([field] if field else []), printed(told)


def test_an_agent_that_handed_in_nothing_has_no_output(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, use("list_members"), tools=["list_members"])
    told = stage.play(scenario({"output": {"fixer": {"equals": None}}}))
    (check,) = broken(told)
    assert check.actual.startswith("fixer handed in nothing: goal after 2 turns")
    assert "list_members" in check.actual


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ({"tool": {"agent": "fixr"}}, "id `fixr` (did you mean `fixer`?)"),
        ({"tool": {"name": "ad"}}, "has a tool `ad` (did you mean `add`?)"),
        ({"tool": {"agent": "fixer", "name": "adds"}}, "`fixer` has no tool `adds` (did you mean"),
        ({"ended": {"fixr": "goal"}}, "id `fixr` (did you mean `fixer`?)"),
        ({"ended": {"fixer": "goals"}}, "must be one of goal, timeout"),
        ({"output": {"fixr": {"path": "a"}}}, "id `fixr` (did you mean `fixer`?)"),
        ({"output": {"fixer": {"schema": "none.json"}}}, "there is no file `none.json`"),
        ({"flow": {"sum": {"output": {"schema": "none.json"}}}}, "there is no file `none.json`"),
        (
            {"tool": {"arguments": {"a": {"regex": "["}}}},
            "arguments.a.regex: not a regular",
        ),
        ({"tool": {}}, "needs one of"),
    ],
)
def test_wrong_expectations_name_the_nearest(tmp_path: Path, expect: Any, problem: str) -> None:
    assert problem in faults(stage_with(tmp_path), expect, tools=MUL)[0]


def test_ends_are_those_of_the_transcript() -> None:
    assert get_args(expect_model.EndedAs) == get_args(acting_events.EndMode)


def test_agents_of_a_scenario_work_in_copies_of_their_folders(tmp_path: Path) -> None:
    (tmp_path / "app" / "node_modules").mkdir(parents=True)
    (tmp_path / "app" / "a.py").write_text("1")
    (tmp_path / "app" / "node_modules" / "b.js").write_text("1")
    copies = WorkdirCopies(tmp_path / "sessions" / "s", tmp_path / "sessions")
    copy = copies.place(tmp_path / "app")
    (copy / "a.py").write_text("2")
    assert copies.place(tmp_path / "app" / ".") == copy
    assert [path.name for path in copy.iterdir()] == ["a.py"]
    assert (tmp_path / "app" / "a.py").read_text() == "1"
    whole = copies.place(tmp_path)
    assert sorted(path.name for path in whole.iterdir()) == ["app"]
    assert copies.place(tmp_path / "gone") == tmp_path / "gone"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_copy_of_a_folder_keeps_links_and_not_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "secret").write_text("1")
    (tmp_path / "app" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "app" / "loop").symlink_to(tmp_path)
    copy = WorkdirCopies(tmp_path / "sessions" / "s", tmp_path / "sessions").place(tmp_path / "app")
    assert sorted(path.name for path in copy.iterdir() if path.is_symlink()) == ["loop", "out"]


def context(tools: Sequence[str]) -> CheckContext:
    """A conversation in which `fixer` calls these tools."""
    common = {"ts": "", "reply": 1, "agent": "fixer"}
    events = [
        acting_events.ToolRequested(seq=number, call=str(number), step=1, tool=tool, **common)
        for number, tool in enumerate(tools, 1)
    ]
    return CheckContext(Path(), read_conversation(events))


@given(
    st.lists(st.sampled_from("abc"), max_size=8),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5),
)
def test_rows_hold_if_they_are_calls_in_this_order(called: list[str], rows: list[str]) -> None:
    remaining = iter(called)
    is_in_order = all(row in remaining for row in rows)
    expect = Expect.model_validate({"tool": [{"name": row} for row in rows]})
    results = evaluate.checked(expect, context(called), lambda _: ("x", 1), ())
    assert all(result.status == "passed" for result in results) == is_in_order


@given(st.lists(st.sampled_from("ab")), st.integers(0, 4), st.integers(0, 4))
def test_the_number_of_calls_is_what_is_counted(called: list[str], low: int, more: int) -> None:
    times = {"min": low, "max": low + more}
    expect = Expect.model_validate({"tool": {"name": "a", "times": times}})
    (result,) = evaluate.checked(expect, context(called), lambda _: ("x", 1), ())
    assert (result.status == "passed") == (low <= called.count("a") <= low + more)
