"""`arena agents find`: agents by what they can do, best first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.file("prompts/ops.md", "You know PostgreSQL, and whom to ask about Java.")
    made.agent(
        "dev",
        name="全栈开发",
        avatar="🧑‍💻",
        skills=["JavaScript", "PostgreSQL"],
        response={"keywords": ["认证方案"]},
    )
    made.agent("java", skills=["代码审查"], aliases=["咖啡"])
    made.agent("ops", role_prompt={"file": "prompts/ops.md"}, skills=["监控"], member=False)
    made.agent("tester", name="测试工程师", skills=["pytest", "Java"], role_prompt="认证也要测。")
    return made


def order(program: Program, *keywords: str) -> list[str]:
    found = json.loads(program.run("agents", "find", *keywords, "--json").check().stdout)
    return [one["agent_id"] for one in found]


def test_lines_say_what_matched(program: Program) -> None:
    program.run("agents", "find", "postgresql", "认证").check(
        stdout="🧑‍💻 全栈开发 · @dev · scripted · JavaScript, PostgreSQL"
        " · found: skill PostgreSQL, keyword 认证方案\n"
        "ops · @ops · scripted · 监控 · not a member · found: postgresql in its role prompt\n"
        "测试工程师 · @tester · scripted · pytest, Java · found: 认证 in its role prompt\n"
    )


def test_a_whole_skill_goes_before_a_name_a_part_and_the_prompt(program: Program) -> None:
    assert order(program, "java") == ["tester", "java", "dev", "ops"]
    assert order(program, "ＪＡＶＡ") == ["tester", "java", "dev", "ops"]
    assert order(program, "咖啡") == ["java"]
    assert order(program, "工程") == ["tester"]


def test_more_keywords_go_before_surer_ones(program: Program) -> None:
    assert order(program, "java", "postgresql")[0] == "dev"
    assert order(program, "java", "java", "监控") == ["ops", "tester", "java", "dev"]


def test_as_json_is_the_profile_and_the_matches(program: Program) -> None:
    (found,) = json.loads(program.run("agents", "find", "代码", "--json").check().stdout)
    assert found["skills"] == ["代码审查"]
    assert found["matches"] == [{"keyword": "代码", "place": "skill", "text": "代码审查"}]


def test_nobody_is_found(program: Program) -> None:
    hint = "no agent matches; `arena agents` lists all of them with their skills\n"
    program.run("agents", "find", "cobol").check(code=1, stdout="", stderr=hint)
    program.run("agents", "find", " ", "").check(code=1, stdout="", stderr=hint)
    program.run("agents", "find", "cobol", "--json").check(code=1, stdout="[]\n", stderr=hint)
    assert program.run("agents", "find").code == 2
