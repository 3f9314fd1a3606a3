"""Checks that are plugged in by the entry point group `arena.expectations`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from checking import checked, faults, holds, stage_in, text_of
from product import scenarios_loader as loader
from program import Program
from stage import Stage

MODULE = """
from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator

class Tone(BaseModel):
    least: int = Field(ge=0)
    words: list[str] = []

    def check(self, reply, run):
        there = sum(word in reply.text for word in self.words)
        return there >= self.least or f"{there} of {self.words} in {len(run.replies)} replies"

class Ends(RootModel[str]):
    def check(self, reply, run):
        return reply.text.endswith(self.root)

class Broken(BaseModel):
    def check(self, reply, run):
        raise RuntimeError("boom")

class NoCheck(BaseModel): ...

class Picky(BaseModel):
    least: int

    @model_validator(mode="after")
    def crash(self): raise RuntimeError("boom")

    async def check(self, reply, run): return True

class Later(BaseModel):
    async def check(self, reply, run): return True

class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    words: int = 0

class Three(Part):
    part: Part = Part()

    def check(self, reply, run, more): return True
"""
POINTS = """[arena.expectations]
tone = arena_tone:Tone
ends = arena_tone:Ends
broken = arena_tone:Broken
no_check = arena_tone:NoCheck
gone = arena_tone:Gone
picky = arena_tone:Picky
later = arena_tone:Later
three = arena_tone:Three
leaves = arena_leaves:Leaves
contains = arena_tone:Broken
"""


def install(folder: Path) -> Path:
    """What pip would write for a package of these checks."""
    info = folder / "arena_tone-1.dist-info"
    info.mkdir(parents=True)
    (folder / "arena_tone.py").write_text(MODULE, encoding="utf-8")
    (folder / "arena_leaves.py").write_text("raise SystemExit(3)", encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: arena-tone\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    return folder


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.syspath_prepend(str(install(tmp_path / "plugin")))
    return stage_in(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_plugged_in_check_is_a_key_like_any_other(stage: Stage) -> None:
    tone = {"tone": {"least": 1, "words": ["请", "谢谢"]}}
    assert holds(stage, "谢谢", tone)
    (result,) = checked(stage, "好", tone)
    assert result.status == "failed"
    assert result.field == "replies.dev[0].tone"
    assert result.expected == 'tone: {"least": 1, "words": ["请", "谢谢"]}'
    assert result.actual == "dev in turn 1: 0 of ['请', '谢谢'] in 1 replies"
    assert holds(stage, "done.", {"ends": "."})
    assert not holds(stage, "done.", {"not": {"ends": "."}})
    assert holds(stage, "done.", {"any_of": [{"equals": "x"}, {"ends": ".", "max_words": 1}]})
    (warned,) = checked(stage, "done", {"ends": ".", "level": "warn"})
    assert (warned.status, warned.expected) == ("warned", 'ends: "."')


def test_it_can_stand_wherever_checks_can(stage: Stage) -> None:
    for expect, right in (
        ({"timeline": [{"agent": "dev", "ends": "."}]}, True),
        ({"timeline": [{"agent": "dev", "ends": "!"}]}, False),
        ({"replies": {"*": {"any": [{"ends": "."}]}}}, True),
        ({"replies": {"*": {"last": [{"ends": "!"}]}}}, False),
    ):
        told = stage.play(text_of(["done."], expect))
        assert told.status == ("passed" if right else "failed")


def test_a_check_of_arena_is_never_replaced_and_one_that_crashes_is_an_error(stage: Stage) -> None:
    assert holds(stage, "hi", {"contains": "hi"})
    for key, why in (
        ("broken", "arena_tone.py:18: RuntimeError: boom"),
        ("later", "it returned a coroutine; return True, or a text that explains the failure"),
        ("three", "TypeError: Three.check() missing 1 required positional argument: 'more'"),
    ):
        (result,) = checked(stage, "hi", {key: {}})
        assert (result.status, result.expected) == ("error", f"{key}: {{}}")
        assert result.actual.rpartition("/")[2] == why


def test_two_packages_with_one_key_are_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    other = install(stage.folder / "other")
    info = (other / "arena_tone-1.dist-info").rename(other / "other-1.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(other))
    assert faults(stage, {"tone": {"least": 1}}) == [
        "steps[0].expect.replies.dev[0].tone: "
        "arena-tone and other both have a check of this name; uninstall one"
    ]
    assert holds(stage, "hi", {"contains": "hi"})


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        ({"tone": {"least": -1}}, "[0].tone.least: must be at least 0, not -1"),
        ({"tone": {}}, "[0].tone: `least` is missing"),
        (
            {"tone": {"least": 1, "words": [1]}},
            "[0].tone.words[0]: must be a text, not the number 1",
        ),
        ({"ends": 3}, "[0].ends: must be a text, not the number 3"),
        ({"picky": {"least": 1}}, "[0].picky: its own code failed on it: RuntimeError: boom"),
        ({"leaves": 1}, "[0].leaves: cannot be imported: SystemExit: 3"),
        ({"tone": {"least": 1}, "ignore_case": True}, "`ignore_case` has no effect on tone"),
        ({"three": {"word": 1}}, "[0].three.word: unknown key: did you mean `words`?"),
        ({"three": {"part": {"word": 1}}}, "[0].three.part.word: unknown key"),
        ({"gone": 1}, "[0].gone: cannot be imported: AttributeError"),
        (
            {"no_check": {}},
            "[0].no_check: arena_tone:NoCheck is not a pydantic model with a method",
        ),
        ({"tome": {}}, "[0].tome: unknown key: did you mean `tone`?"),
        ({"containz": "x"}, "[0].containz: unknown key"),
        ({"ends": ".", "contains": "x"}, "contains and ends are two checks"),
        ({"tone": {"least": 1}, "level": "loud"}, "[0].level: must be one of fail, warn"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_place(
    stage: Stage, check: dict[str, Any], wrong: str
) -> None:
    (fault,) = faults(stage, check)
    assert wrong in fault
    assert not wrong.endswith("unknown key") or fault.endswith(wrong)


def test_editors_know_it(stage: Stage) -> None:
    definitions = loader.schema()["$defs"]
    assert {"tone", "ends"} < set(definitions["TextCheck"]["properties"])
    assert "default" not in definitions["TextCheck"]["properties"]["contains"]


def test_without_the_package_the_key_is_unknown(tmp_path: Path) -> None:
    assert faults(stage_in(tmp_path), {"tone": {"least": 1}}) == [
        "steps[0].expect.replies.dev[0].tone: unknown key"
    ]


def test_the_program_finds_it(program: Program) -> None:
    install(program.folder / "plugin")
    path = program.environment()["PYTHONPATH"]
    program.env["PYTHONPATH"] = os.pathsep.join([path, str(program.folder / "plugin")])
    program.agent("dev")
    program.file("scenarios/one.yaml", text_of(["hi"], {"replies": {"dev": [{"ends": "!"}]}}))
    done = program.run("run", "one")
    assert done.code == 1
    assert 'expected: ends: "!"' in done.stdout
