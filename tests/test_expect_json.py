"""`json`: which JSON a reply holds, by a schema, and at a path."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from checking import checked, faults, holds, stage_in
from hypothesis import given
from hypothesis import strategies as st
from product import json_checks
from stage import Stage

PLAN = {"items": [{"file": "a.py", "lines": 3}, {"file": "b.py"}], "a.b": None, "done": True}
FENCED = f"两件事：\n```json\n{json.dumps(PLAN)}\n```\n请看。"
HOLDS_A_FENCE = {"doc": "```json\n{}\n```", "more": "`{`"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return stage_in(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (json.dumps(PLAN), PLAN),
        (" \n[1, 2]\n", [1, 2]),
        ("12", 12),
        (FENCED, PLAN),
        (f"```\n{json.dumps(PLAN, indent=2)}\n```", PLAN),
        (f"~~~json\n{json.dumps(PLAN)}\n~~~", PLAN),
        (f"~~~~ json\n{json.dumps(PLAN)}\n~~~~~", PLAN),
        (f'```json title="plan.json"\n{json.dumps(PLAN)}\n```', PLAN),
        (f"```json {json.dumps(PLAN)}```", PLAN),
        (f"```json\n{json.dumps(PLAN)}", PLAN),  # cut at the end of its fence
        (f"see:\n```json\n{json.dumps(HOLDS_A_FENCE)}\n```", HOLDS_A_FENCE),
        ('a backtick before: `{"a": {"b": 1}}`, in prose', {"a": {"b": 1}}),
        ('```bash\nls\n```\n```json\n{"a": 1}\n```', {"a": 1}),
        ("```\n[1]\n```\n```json\n[2]\n```", [1]),
        ("in code `[0]`\n```json\n[2]\n```", [2]),
        ("\ufeff[1]", [1]),  # as Windows writes it
    ],
)
def test_the_whole_value_is_read(text: str, value: Any) -> None:
    assert json_checks.find_json(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("好的", "Expecting value in line 1"),
        ("", "Expecting value"),
        ('{"a": 1} as asked', "Extra data in line 1, column 10"),
        ("it returns `true`", "Expecting value"),
        ('a stray ` and {"a": 1}', "Expecting value"),
        ('one:\n```json\n{"a": 1,}\n```', "in line 3, column 9"),
        ('one:\n```json\n{"a": 1}\nx\n```', "Extra data in line 4"),
        ("NaN", "NaN"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_json_says_where(text: str, why: str) -> None:
    with pytest.raises(json_checks.NotJson, match=why):
        json_checks.find_json(text)


@given(st.recursive(st.text() | st.integers(-9, 9) | st.none(), st.lists, max_leaves=8))
def test_any_value_is_read_out_of_a_fence(value: Any) -> None:
    whole = {"value": value}
    assert (
        json_checks.find_json(f"x ` y\n```json\n{json.dumps(whole, indent=1)}\n```\n`z`") == whole
    )


@pytest.mark.parametrize(
    ("check", "right"),
    [
        ({}, True),
        ({"fenced": "allow"}, True),
        ({"fenced": "forbid"}, False),
        ({"path": "items[1].file", "equals": "b.py"}, True),
        ({"path": "items[1].file", "equals": "a.py"}, False),
        ({"path": "items[0]"}, True),
        ({"path": "items[2]"}, False),
        ({"path": "items.file"}, False),
        ({"path": "done[0]"}, False),
        ({"path": "nothing"}, False),
        ({"path": '["a.b"]', "equals": None}, True),
        ({"path": "['a.b']"}, True),
        ({"path": "done", "equals": True}, True),
        ({"path": "done", "equals": 1}, False),
        ({"path": "items[0].lines", "equals": 3.0}, True),
        ({"path": "items[0]", "equals": {"lines": 3, "file": "a.py"}}, True),
        ({"path": "items[0]", "equals": {"file": "a.py"}}, False),
        ({"equals": PLAN}, True),
        ({"schema": {"type": "object", "required": ["items"]}}, True),
        ({"schema": {"type": "array"}}, False),
        ({"schema": {"required": ["items"]}, "path": "items[0].file", "equals": "x"}, False),
    ],
)
def test_a_reply_is_held_against_what_is_asked(
    stage: Stage, check: dict[str, Any], right: bool
) -> None:
    assert holds(stage, FENCED, {"json": check}) is right
    assert holds(stage, FENCED, {"not": {"json": check}}) is not right


def test_texts_in_it_are_compared_as_all_texts_are(stage: Stage) -> None:
    check = {"json": {"path": "who", "equals": ["Zoë"]}}
    assert holds(stage, '{"who": ["Zoë"]}', check)
    assert not holds(stage, '{"who": ["ZOË"]}', check)
    assert holds(stage, '{"who": ["ZOË"]}', {**check, "ignore_case": True})


@pytest.mark.parametrize(
    ("check", "expected", "actual"),
    [
        (
            {"path": "items[2].file"},
            "is JSON, items[2].file exists",
            "no items[2]: items has 2 items",
        ),
        (
            {"path": "items[0].name", "equals": "x"},
            'is JSON, items[0].name is "x"',
            "no items[0].name: items[0] has file, lines",
        ),
        (
            {"path": "done.x"},
            "is JSON, done.x exists",
            "no done.x: done is not an object: true",
        ),
        (
            {"path": "items[1].file", "equals": "a.py"},
            'is JSON, items[1].file is "a.py"',
            'items[1].file is "b.py"',
        ),
        (
            {"schema": {"properties": {"items": {"items": {"required": ["lines"]}}}}},
            "is JSON, of its schema",
            "items[1]: 'lines' is a required property",
        ),
        (
            {
                "schema": {
                    "properties": {
                        "done": {"const": 1},
                        "items": {"items": {"properties": {"file": {"type": "number"}}}},
                    }
                }
            },
            "is JSON, of its schema",
            "done: 1 was expected",
        ),
    ],
)
def test_the_first_place_that_fails_is_told(
    stage: Stage, check: dict[str, Any], expected: str, actual: str
) -> None:
    (result,) = checked(stage, FENCED, {"json": check})
    assert (result.status, result.expected) == ("failed", expected)
    assert result.actual == f"dev in turn 1: {actual}"


def test_structured_data_and_attachments_are_json_too(stage: Stage) -> None:
    reply = {
        "say": "done",
        "structured": [{"type": "task_list", "data": PLAN}, {"type": "diff", "data": "-a"}],
        "attachments": [{"type": "json", "name": "plan.json", "data": PLAN}],
    }
    wanted = {"json": {"path": "items[0].lines", "equals": 3}}
    for expect, right in (
        ({"structured": {"task_list": [wanted]}}, True),
        ({"structured": [{"type": "diff", **wanted}]}, False),
        ({"attachments": {"plan.json": [wanted]}}, True),
        ({"attachments": [{"name": "plan.json", "json": {"path": "items[5]"}}]}, False),
        ({"timeline": [{"agent": "dev", "json": {}}]}, False),
    ):
        told = stage.play(
            json.dumps(
                {
                    "scenario": "x",
                    "profiles": {"dev": {"adapter": {"type": "scripted", "replies": [reply]}}},
                    "steps": [{"send": "@dev go", "expect": expect}],
                }
            )
        )
        assert told.status == ("passed" if right else "failed"), expect


def test_a_schema_may_lie_in_a_file(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"items": {"maxItems": 1}}}
    for path in ("schemas/plan.json", "scenarios/near.json"):
        file = stage.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\ufeff" + json.dumps(schema), encoding="utf-8")
    for name in ("schemas/plan.json", "near.json"):
        (result,) = checked(stage, FENCED, {"json": {"schema": name}})
        assert (result.status, result.expected) == ("failed", f"is JSON, of {name}")
        assert "items" in result.actual
        assert holds(stage, '{"items": []}', {"json": {"schema": name}})


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "objet"}, "not a JSON Schema: type: 'objet'"),
        ({"pattern": "("}, "not a JSON Schema: pattern"),
        ({"$schema": "http://example.com/mine"}, "unknown JSON Schema dialect"),
        ({"$ref": "#/$defs/nothing"}, "cannot be resolved"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "other.json cannot be resolved"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, "nothing is fetched"),
        ("nothing.json", "there is no file `nothing.json`"),
        ("cut.json", "cut.json:2: not JSON"),
        ("list.json", "list.json: a JSON Schema is a mapping"),
        ("deep.json", "deep.json: it is nested too deep"),
        ("a\0b", "there is no file `a\0b`"),
        ("a" * 999, "there is no file `aaa"),
        ("latin.json", "latin.json: is not UTF-8"),
        ("wrong.json", "wrong.json: not a JSON Schema"),
    ],
)
def test_a_schema_that_is_none_is_told_before_anything_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, schema: Any, what: str
) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for name, content in (
        ("cut.json", b'{"type":\n'),
        ("list.json", b"[]"),
        ("latin.json", b'{"title": "\xe9"}'),
        ("wrong.json", b'{"required": "a"}'),
        ("deep.json", b'{"not":' * 400 + b"{}" + b"}" * 400),
    ):
        (stage.folder / name).write_bytes(content)
    (fault,) = faults(stage, {"json": {"schema": schema}})
    assert fault.startswith("steps[0].expect.replies.dev[0].json.schema: ")
    assert what in fault
    (fault,) = faults(stage, {"any_of": [{"contains": "a"}, {"json": {"schema": schema}}]})
    assert what in fault


@pytest.mark.parametrize(
    ("text", "schema", "why"),
    [
        ("{}", {"$ref": "#"}, "the schema leads back to itself, or both are nested too deep"),
        (f"1{'0' * 400}", {"multipleOf": 0.1}, "a number in it is too large: int too large"),
    ],
)
def test_what_a_schema_does_not_tell_is_an_error(
    stage: Stage, text: str, schema: Any, why: str
) -> None:
    for check in ({"json": {"schema": schema}}, {"not": {"json": {"schema": schema}}}):
        (result,) = checked(stage, text, check)
        assert (result.status, result.expected) == ("error", "is JSON, of its schema")
        assert result.actual.startswith(why)


def test_a_lone_surrogate_in_it_can_be_shown(stage: Stage) -> None:
    (result,) = checked(stage, r'{"a": "\ud800"}', {"json": {"path": "a", "equals": "x"}})
    assert result.actual == 'dev in turn 1: a is "\ufffd"'
    assert result.model_dump_json()


def test_references_within_a_schema_are_followed(stage: Stage) -> None:
    schema = {
        "$defs": {"file": {"$id": "urn:file", "$defs": {"t": {"type": "string"}}}},
        "properties": {"a": {"$ref": "urn:file#/$defs/t"}, "b": {"$ref": "#"}},
    }
    assert holds(stage, '{"a": "x", "b": {"a": "y"}}', {"json": {"schema": schema}})
    assert not holds(stage, '{"a": "x", "b": {"a": 1}}', {"json": {"schema": schema}})


@pytest.mark.parametrize("path", ["$.items", "items[", "items[a]", "a..b", "a.", "[0]b", ".a"])
def test_a_path_that_is_none_is_told_before_anything_runs(stage: Stage, path: str) -> None:
    (fault,) = faults(stage, {"json": {"path": path}})
    assert fault.startswith("steps[0].expect.replies.dev[0].json.path: ")


def test_what_is_written_wrong_is_told(stage: Stage) -> None:
    assert faults(stage, {"json": {"fenced": "maybe"}}, {"json": {"equal": 1}}) == [
        "steps[0].expect.replies.dev[0].json.fenced: must be one of allow, forbid, not `maybe`",
        "steps[0].expect.replies.dev[1].json.equal: unknown key",
    ]
