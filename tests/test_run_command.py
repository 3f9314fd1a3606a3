"""Agents run commands in their folder: real processes, bounded, and ended with all they started."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import PROGRAMS, pids_in, runs
from hypothesis import given
from hypothesis import strategies as st
from product import BoundedOutput, CommandTool, ToolFailed, ToolOutput, ToolScope, WorkFolder

ON_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
SCOPE = ToolScope("1", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path


def make(folder: Path, *, has_shell: bool = False, **environ: str) -> CommandTool:
    work = WorkFolder("app", folder / "app")
    records = folder / "sessions" / "processes"
    return CommandTool(work, {**os.environ, **environ}, records, "dev", has_shell=has_shell)


def call(tool: CommandTool, command: Any, **arguments: Any) -> ToolOutput:
    whole = {"command": command, **arguments}

    async def run() -> ToolOutput:
        tool.find_act(whole)
        return await tool.call(whole, SCOPE)

    return asyncio.run(run())


def script(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_command_runs_in_the_folder_with_a_bare_environment(folder: Path) -> None:
    code = (
        "import os, sys; print(os.getcwd()); print(os.environ.get('KEY'), sys.stdin.read() == '')"
    )
    output = call(make(folder, KEY="secret"), script(code))
    assert output == ToolOutput(f"exit code 0\n{folder.resolve() / 'app'}\nNone True")


def test_a_failed_command_is_an_error_with_its_output(folder: Path) -> None:
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    output = call(make(folder), script(code))
    assert output.is_error
    assert output.text.splitlines()[0] == "exit code 3"
    assert set(output.text.splitlines()[1:]) == {"out", "err"}


def test_no_shell_reads_the_arguments(folder: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    output = call(make(folder), [*script(code), "$HOME; touch x", "a b", "*"])
    assert output.text == "exit code 0\n['$HOME; touch x', 'a b', '*']"
    assert list((folder / "app").iterdir()) == []


def test_the_act_is_the_whole_command_line(folder: Path) -> None:
    tool = make(folder, has_shell=True)
    act = tool.find_act({"command": [sys.executable, "a b", ";"], "timeout_s": 3})
    assert (act.action, act.detail) == ("execute_command", f"{sys.executable} 'a b' ';'")
    assert act.arguments == {"workdir": "app", "command": [sys.executable, "a b", ";"]}
    shell = tool.find_act({"command": "ls; rm x", "shell": True})
    assert (shell.detail, shell.arguments["shell"]) == ("ls; rm x", True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"command": ["no-such-program"]}, "there is no program no-such-program on PATH"),
        ({"command": ["./none"]}, "there is no program ./none at "),
        ({"command": [""]}, "`command` is empty"),
        ({"command": [sys.executable, "a\0b"]}, "`command` has a NUL character in it"),
        ({"command": "ls"}, "`command` is a list; with `shell: true` it is a text"),
        ({"command": ["ls"], "shell": True}, "`command` is a list; with `shell: true`"),
    ],
)
def test_a_command_that_cannot_be_run_is_explained(
    folder: Path, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ToolFailed) as failure:
        make(folder, has_shell=True).find_act(arguments)
    assert str(failure.value).startswith(problem)


def test_only_a_profile_that_says_so_has_a_shell(folder: Path) -> None:
    properties = make(folder).spec.input_schema["properties"]
    assert "shell" not in properties
    assert properties["command"]["type"] == "array"
    assert "shell" in make(folder, has_shell=True).spec.input_schema["properties"]


@ON_POSIX
def test_a_shell_runs_a_text(folder: Path) -> None:
    output = call(make(folder, has_shell=True), "echo one | tr o 0; exit 2", shell=True)
    assert output == ToolOutput("exit code 2\n0ne", is_error=True)


def test_a_command_that_never_ends_is_ended_with_all_it_started(folder: Path) -> None:
    path = folder / "pids"
    tool = make(folder)
    speak = [sys.executable, str(PROGRAMS / "speak.py")]

    async def run() -> None:
        command = [*speak, "say", "begun", "spawn", str(path), "sleep"]
        task = asyncio.create_task(tool.call({"command": command, "timeout_s": 3}, SCOPE))
        pids = await pids_in(path)
        with pytest.raises(ToolFailed) as failure:
            await task
        assert failure.value.status == "timeout"
        assert str(failure.value).startswith("ended after 3 s, its time limit")
        assert not any(runs(pid) for pid in pids)

    asyncio.run(run())


def test_a_cancelled_command_is_ended_with_all_it_started(folder: Path) -> None:
    path = folder / "pids"
    tool = make(folder)
    speak = [sys.executable, str(PROGRAMS / "speak.py")]

    async def run() -> None:
        command = [*speak, "deaf", "spawn", str(path), "sleep"]
        task = asyncio.create_task(tool.call({"command": command}, SCOPE))
        pids = await pids_in(path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(runs(pid) for pid in pids)

    asyncio.run(run())
    assert list((folder / "sessions" / "processes").iterdir()) == []


@ON_POSIX
@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1"])
def test_what_a_command_leaves_in_the_background_is_ended(folder: Path, redirect: str) -> None:
    code = f"sleep 60 {redirect} & echo $! > ../pid; echo done"
    output = call(make(folder), ["/bin/sh", "-c", code])
    assert output.text.endswith("done")
    assert ("left running" in output.text) == (not redirect)
    assert not runs(int((folder / "pid").read_text()))


def test_a_long_output_is_its_beginning_and_its_end(folder: Path) -> None:
    code = "print('first'); print('word ' * 1_000_000); print('last')"
    output = call(make(folder), script(code))
    assert len(output.text) < 15_000
    lines = output.text.splitlines()
    assert lines[:2] == ["exit code 0", "first"]
    assert lines[-1] == "last"
    assert any(line.endswith("bytes in all, the middle is left out …)") for line in lines)


def test_an_endless_output_is_ended(folder: Path) -> None:
    code = "import sys\nwhile True: sys.stdout.write('y' * 100_000)"
    output = call(make(folder), script(code))
    assert output.is_error
    assert output.text.startswith("ended: it wrote more than 50 MB\n")
    assert len(output.text) < 15_000


@given(st.lists(st.binary(max_size=9000), max_size=8))
def test_an_output_is_kept_within_bounds(pieces: list[bytes]) -> None:
    output = BoundedOutput()
    for piece in pieces:
        output.add(piece)
    assert output.size == sum(map(len, pieces))
    assert len(output.text) < 15_000


def test_a_short_output_is_whole() -> None:
    output = BoundedOutput()
    for piece in (
        ("a\u00e9" * 4000).encode(),
        b"\xe2",
        b"\x82",
        "\u00ac\x1b[31mred\x1b[0m".encode()[1:],
    ):
        output.add(piece)
    assert output.text.startswith("a\u00e9a")
    assert output.text.endswith("red")


def test_half_a_word_is_never_shown() -> None:
    output = BoundedOutput()
    output.add(b"first " + b"secret-key" * 5000)
    output.add(b" last")
    assert "secret" not in output.text.removeprefix("first")
    assert output.text.endswith("last")
