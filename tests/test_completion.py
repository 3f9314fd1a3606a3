"""Completion as a shell asks for it: by environment variables."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from product import command_line, main
from program import Program

# Names of folders on any system, each of which some shell does not take as a plain word.
HOSTILE = [
    *("$(id)", "`id`", "$HOME", "a;b", "a&b", "a b", "a\u00a0b", "'a'", "(a)", "{a,b}", "[a]"),
    *("~", "~root", "=ls", "a=~", "-rf", "--help", "!x", "#x", "%self", "@x", "^a^b", "a,b"),
    *("\u2018a\u2019", "\u2013rf", "\u202egnp", "a\u200bb", "a\u2066b", "\u00ada", "；a", "🚀"),
    "a\u3164",
]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "ok"}, name="全栈开发", aliases=["full stack", "developer"])
    made.agent("测试", {"say": "ok"}, name="Tester")
    made.team()
    made.scenario("scenario: one\nsteps: [{send: hi}]", "first")
    made.run("send", "-q", "-s", "会话", "@dev hi").check()
    made.run("send", "-q", "-s", "talk", "@dev hi").check()
    return made


def asked(program: Program, **env: str) -> str:
    """What the program prints to a shell that asks with these variables."""
    done = replace(program, env={**program.env, **env}).run()
    assert done.stderr == ""
    return done.stdout


def bash(program: Program, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    given = {"COMP_WORDS": " ".join(("arena", *words)), "COMP_CWORD": str(len(words))}
    return asked(program, _ARENA_COMPLETE="complete_bash", **given).split()


@pytest.mark.parametrize("words", [("show",), ("resume",), ("path",), ("doctor",), ("send", "-s")])
def test_sessions(program: Program, words: tuple[str, ...]) -> None:
    assert sorted(bash(program, *words, "")) == ["talk", "会话"]


def test_what_is_typed_narrows_them(program: Program) -> None:
    assert bash(program, "show", "会") == ["会话"]
    assert bash(program, "show", "x") == []
    assert bash(program, "send", "--to", "") == ["dev", "测试", "全栈开发", "developer", "Tester"]
    assert bash(program, "send", "--to", "全") == ["全栈开发"]
    assert bash(program, "show", "--agent", "de") == ["dev", "developer"]
    assert bash(program, "send", "--team", "") == ["crew"]
    assert bash(program, "init", "--template", "") == [
        "software",
        "incident",
        "discussion",
        "investigate",
        "build",
    ]
    assert bash(program, "sh") == ["show"]
    assert bash(program, "--version", "sess") == ["sessions"]


def test_of_the_workspace_that_is_named(program: Program) -> None:
    there = str(program.folder)
    shutil.copytree(program.folder / "agents", program.folder / "else" / "agents")
    assert bash(program, "-w", "else", "show", "") == []
    assert bash(program, "-w", "else", "send", "--to", "d") == ["dev", "developer"]
    assert sorted(bash(program, "--workspace", there, "show", "")) == ["talk", "会话"]
    assert bash(program, "-w", "nowhere", "show", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_no_shell_is_offered_what_it_would_run_or_read_otherwise(
    program: Program, shell: str
) -> None:
    """Shells put it on the line unquoted, and zsh evaluates it before."""
    plain = ["2.3+x@y%z", "नमस्ते", "_a-b"]
    for name in [*plain, *HOSTILE]:
        program.file(f"sessions/{name}/transcript.jsonl", "")
    words = "arena show "
    given = {"COMP_WORDS": words, "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": words}
    given["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    offered = asked(program, _ARENA_COMPLETE=f"complete_{shell}", **given)
    found = set(re.split(r"[\s\"()]+|:::", offered.replace("_arguments '*: :((", "")))
    assert found - {"", "'", " "} == {"talk", "会话", *plain}


def test_nor_the_names_of_agents_that_turn_the_text_around(program: Program) -> None:
    program.agent("ops", {"say": "ok"}, name="\u202egnp", aliases=["$(id)", "a\u200bb", "op;s"])
    assert bash(program, "send", "--to", "o") == ["ops"]
    offered = bash(program, "send", "--to", "")
    assert offered == ["dev", "ops", "测试", "全栈开发", "developer", "Tester"]


def test_zsh(program: Program) -> None:
    line = "arena send --to 全"
    offered = asked(program, _ARENA_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
    assert offered == "_arguments '*: :((\"全栈开发\"))'\n"


def test_a_broken_workspace_offers_nothing_and_says_nothing(program: Program) -> None:
    program.file("agents/dev.yaml", "agent_id: [")
    assert bash(program, "send", "--to", "") == []
    shutil.rmtree(program.folder / "sessions")
    program.file("sessions", "a file")
    assert bash(program, "show", "") == []


def test_scenarios(program: Program) -> None:
    import typer

    command = typer.main.get_command(main.app)
    with typer.Context(command, info_name="arena") as context:  # type: ignore[attr-defined] # of click
        context.params["workspace"] = program.folder
        assert command_line.complete_scenarios(context, "") == ["first"]
        assert command_line.complete_scenarios(context, "x") == []


def test_the_scripts_of_every_shell(program: Program) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        script = asked(program, _ARENA_COMPLETE=f"source_{shell}")
        assert f"complete_{shell}" in script
        assert "_ARENA_COMPLETE" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.skipif(sys.platform == "win32", reason="bash of another system")
def test_bash_itself(program: Program) -> None:
    """The script that it prints, taken by a bash that completes with it."""
    script = asked(program, _ARENA_COMPLETE="source_bash")
    arena = program.file("bin/arena", f'#!/bin/sh\nexec "{sys.executable}" -m arena_cli "$@"\n')
    arena.chmod(0o755)
    program.file("sessions/会$(touch ran)/transcript.jsonl", "")
    tab = "COMP_WORDS=(arena show 会) COMP_CWORD=2; _arena_completion arena; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{tab}"],
        cwd=program.folder,
        env={
            **program.environment(),
            "PATH": f"{arena.parent}:{program.environment()['PATH']}",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("会话\n", "")
