"""The folder that a program agent runs in: its own, unless it is given another."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from product import base, run
from product import yamlio_loader as loader
from program import SPEAK, Program

WHERE = [sys.executable, "-c", "import os; print(os.getcwd())"]
PROGRAM_KINDS = {
    "claude_code": [],
    "codex": [],
    "gemini": [],
    "cursor": [],
    "opencode": [],
    "pi": [],
    "acp": ["--preset", "claude"],
    "cli": ["--", "any"],
}
OTHER_KINDS = {
    "openai": ["--model", "m", "--set", "api_key=none"],
    "python": ["--set", "target=a.py:b"],
    "scripted": ["--set", "replies=[ok]"],
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "ok"})
    return made


def written(program: Program, agent_id: str) -> dict[str, Any]:
    """The adapter in the profile that was written."""
    text = (program.folder / f"agents/{agent_id}.yaml").read_text(encoding="utf-8")
    adapter: dict[str, Any] = loader.parse(text, "").data["adapter"]
    return adapter


def test_every_kind_is_known_here() -> None:
    kinds = {kind for kind in base.list_kinds() if "cwd" in fields(kind)}
    assert kinds == PROGRAM_KINDS.keys()


def fields(kind: str) -> set[str]:
    shape = base.settings_type(kind)
    return set(shape.model_fields) if shape else set()


@pytest.mark.parametrize("kind", PROGRAM_KINDS)
def test_a_program_is_given_a_folder_of_its_own(program: Program, kind: str) -> None:
    program.run("agents", "add", "新人", "--adapter", kind, *PROGRAM_KINDS[kind])
    assert written(program, "新人")["cwd"] == "work/新人"
    assert not (program.folder / "work").exists()


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_others_are_not(program: Program, kind: str) -> None:
    program.run("agents", "add", "bot", "--adapter", kind, *OTHER_KINDS[kind])
    assert "cwd" not in written(program, "bot")


def test_another_folder_can_be_named(program: Program) -> None:
    add = ("agents", "add", "bot", "--adapter", "cli", "--cwd", "agents", "--", *WHERE)
    program.run(*add).check(stdout=None)
    assert written(program, "bot")["cwd"] == "agents"
    assert f"  {program.folder / 'agents'}\n" in program.run("send", "@bot hi").check().stdout
    program.file("arena.yaml", json.dumps({"defaults": {"cli": {"cwd": "agents"}}}))
    program.run("agents", "add", "two", "--adapter", "cli", "--", *WHERE).check(stdout=None)
    assert "cwd" not in written(program, "two")


def test_it_is_made_when_it_is_needed_also_after_it_was_removed(program: Program) -> None:
    program.run("agents", "add", "bot", "--adapter", "cli", "--", *WHERE).check(stdout=None)
    own = program.folder / "work" / "bot"
    program.run("agents", "check").check(stdout=None)
    assert not own.exists()
    for _ in range(2):
        assert f"  {own}\n" in program.run("send", "@bot hi").check().stdout
        assert (program.folder / "work" / ".gitignore").read_text(encoding="utf-8") == "*\n"
        own.rmdir()
    (program.folder / "work" / ".gitignore").write_text("mine", encoding="utf-8")
    program.run("send", "@bot hi").check()
    assert (program.folder / "work" / ".gitignore").read_text(encoding="utf-8") == "mine"


def test_files_of_the_workspace_among_its_arguments_are_named_from_there(program: Program) -> None:
    program.file("bots/clerk.py", "print('I am here')")
    words = [sys.executable, "bots/clerk.py", "--out", "bots", "-x", "no/such", "plain"]
    program.run("agents", "add", "bot", "--adapter", "cli", "--", *words).check(stdout=None)
    expected = ["../../bots/clerk.py", "--out", "../../bots", "-x", "no/such", "plain"]
    assert written(program, "bot")["command"][1:] == expected
    assert "  I am here\n" in program.run("send", "@bot hi").check().stdout


@pytest.mark.parametrize("cwd", ["missing", "work", "../missing", "work/../missing"])
def test_no_other_folder_is_made(program: Program, cwd: str) -> None:
    program.program("bot", "say", "hello", adapter={"cwd": cwd})
    done = program.run("agents", "check")
    assert "NOT OK bot · there is no folder " in done.stdout
    assert program.run("send", "@bot hi").code == 3
    assert not (program.folder / cwd).exists()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="there are no links")
def test_no_link_leads_out_of_the_workspace(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "work", outside):
        folder.mkdir(parents=True)
    (root / "work" / "bot").symlink_to(outside, target_is_directory=True)
    (root / "work" / "gone").symlink_to(tmp_path / "gone")
    assert not run.may_run_in(root, "work/bot")
    assert not run.may_run_in(root, "work/gone")
    assert run.may_run_in(root, "work/other")


def test_agents_check_warns_where_a_program_could_read_keys_or_sessions(program: Program) -> None:
    program.agent("inside", adapter={"type": "cli", "command": SPEAK})
    program.agent("above", adapter={"type": "cli", "command": SPEAK, "cwd": ".."})
    program.agent("apart", adapter={"type": "cli", "command": SPEAK, "cwd": "work/apart"})
    program.agent("within", adapter={"type": "cli", "command": SPEAK, "cwd": "agents"})
    assert program.run("agents", "check").check(stdout=None).stderr == ""
    program.run("send", "-q", "@dev hi").check()
    program.file(".env", "A_KEY=x\n")
    told = program.run("agents", "check").stderr
    assert told.count("warning: ") == 2
    for agent in ("inside", "above"):
        assert (
            f"warning: {agent}: its program can read .env and sessions of the workspace from its"
            f" `cwd`\n  give it a folder of its own: `cwd: work/{agent}`\n"
        ) in told
