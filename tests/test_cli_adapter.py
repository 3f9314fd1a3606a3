"""The kind `cli`: what goes in, what comes back, what is said when it does not work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import PROGRAMS, Heard, a_setup, an_input, rendered, runs, speaker
from product import (
    AgentInput,
    AgentOutput,
    AgentProtocolError,
    AgentUnavailable,
    CliAdapter,
    CliSettings,
    run,
)
from pydantic import ValidationError

ON_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="modes and signals of POSIX")


def call(adapter: CliAdapter, input: AgentInput | None = None) -> AgentOutput:
    return asyncio.run(adapter.invoke(input or an_input(), Heard()))


def program(folder: Path, command: list[str], **keys: Any) -> CliAdapter:
    return CliAdapter(
        a_setup(folder, CliSettings.model_validate({"type": "cli", "command": command, **keys}))
    )


def test_text_on_stdin_and_text_back(tmp_path: Path) -> None:
    heard = Heard()
    adapter = speaker(tmp_path, "read", "tell")
    got = asyncio.run(adapter.invoke(an_input("请看"), heard))
    assert got.content == "You are a bot.\n\n请看"
    assert heard.text == got.content


def test_without_system_text_the_prompt_stands_alone(tmp_path: Path) -> None:
    assert call(speaker(tmp_path, "read", "tell"), an_input(role_prompt="")).content == "你好"


def test_json_gives_the_whole_input_in_one_line(tmp_path: Path) -> None:
    given = an_input("two\nlines")
    got = call(speaker(tmp_path, "read", "tell", prompt="json"), given).content
    assert "\n" not in got
    assert AgentInput.model_validate_json(got) == given


def test_an_argument_comes_last(tmp_path: Path) -> None:
    adapter = speaker(tmp_path, "args", "one", prompt="argument", args=["two"])
    got = call(adapter, an_input("a 'b' $HOME\0;", role_prompt=""))
    assert json.loads(got.content) == ["one", "two", "a 'b' $HOME\ufffd;"]


def test_a_prompt_file_stands_where_it_is_asked_for_and_is_removed(tmp_path: Path) -> None:
    adapter = speaker(tmp_path, "args", "--in={prompt_file}", "x", prompt="file")
    got = json.loads(call(adapter).content)
    assert got[1:] == ["x"]
    assert Path(got[0].removeprefix("--in=")).parent == tmp_path / "scratch"
    assert call(speaker(tmp_path, "file", prompt="file")).content == "You are a bot.\n\n你好"
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_batch_program_gets_no_text_as_argument(tmp_path: Path) -> None:
    batch = tmp_path / "bot.CMD"
    batch.write_text("#!/bin/sh\n", encoding="utf-8")
    batch.chmod(0o755)
    adapter = program(tmp_path, ["./bot.CMD"], prompt="argument")
    with pytest.raises(AgentUnavailable, match="batch file"):
        call(adapter)
    assert not asyncio.run(adapter.health()).ok


def test_a_batch_program_gets_no_path_that_holds_commands(tmp_path: Path) -> None:
    batch = tmp_path / "bot.bat"
    batch.write_text("#!/bin/sh\ncat $1\n", encoding="utf-8")
    batch.chmod(0o755)
    settings = CliSettings(type="cli", command=["./bot.bat"], prompt="file")
    scratch = tmp_path / "a&calc"
    with pytest.raises(AgentUnavailable, match="batch file"):
        call(CliAdapter(a_setup(tmp_path, settings, scratch=scratch)))
    assert list(scratch.iterdir()) == []


def test_the_environment_is_a_list_of_names_and_what_the_profile_adds(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "OPENAI_API_KEY": "k",
        "OTHER": "o",
        "LC_ALL": "C.UTF-8",
        "https_proxy": "p",
        "XDG_RUNTIME_DIR": "x",
    }
    settings = CliSettings(
        type="cli",
        command=[sys.executable, str(PROGRAMS / "speak.py"), "env"],
        env={"OTHER": "inherit", "MINE": "值", "UNSET": "inherit"},
    )
    got = json.loads(call(CliAdapter(a_setup(tmp_path, settings, environ=environ))).content)
    assert got["PATH"] == os.environ["PATH"]
    assert (got["OTHER"], got["MINE"], got["https_proxy"]) == ("o", "值", "p")
    assert (got["LC_ALL"], got["XDG_RUNTIME_DIR"]) == ("C.UTF-8", "x")
    assert not {"OPENAI_API_KEY", "UNSET", "PYTEST_CURRENT_TEST"} & got.keys()


def test_it_runs_in_the_workspace_or_in_cwd(tmp_path: Path) -> None:
    (tmp_path / "子").mkdir()
    assert Path(call(speaker(tmp_path, "cwd")).content) == tmp_path.resolve()
    assert Path(call(speaker(tmp_path, "cwd", cwd="子")).content) == tmp_path.resolve() / "子"
    with pytest.raises(AgentUnavailable, match="no folder"):
        call(speaker(tmp_path, "cwd", cwd="nowhere"))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    adapter = program(tmp_path, ["no-such-program", "--flag"])
    with pytest.raises(AgentUnavailable, match="no-such-program on PATH") as caught:
        call(adapter)
    assert caught.value.asked == "no-such-program --flag"
    assert caught.value.mend
    health = asyncio.run(adapter.health())
    assert not health.ok
    assert "no-such-program" in health.detail
    assert asyncio.run(speaker(tmp_path).health()).ok


@ON_POSIX
def test_a_path_starts_from_the_workspace_and_must_be_executable(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "bot"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho hi\n", encoding="utf-8")
    with pytest.raises(AgentUnavailable, match="cannot be executed"):
        call(program(tmp_path, ["bin/bot"]))
    script.chmod(0o755)
    assert call(program(tmp_path, ["bin/bot"])).content == "hi"
    script.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    with pytest.raises(AgentUnavailable, match="names /no/such/interpreter in its first line"):
        call(program(tmp_path, ["bin/bot"]))


def test_an_exit_code_is_a_failure_even_with_output(tmp_path: Path) -> None:
    adapter = speaker(tmp_path, "say", "half", "err", "one\\ntwo\\n", "exit", "3")
    with pytest.raises(AgentProtocolError, match="exit code 3") as caught:
        call(adapter)
    assert caught.value.agent_id == "bot"
    assert caught.value.came == "one | two"
    assert caught.value.asked.endswith("exit 3")
    assert caught.value.metadata == {"stderr": "one\ntwo", "partial": "half"}


@ON_POSIX
def test_the_signal_that_ended_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentProtocolError, match="ended by SIGSEGV"):
        call(speaker(tmp_path, "signal", "11"))


def test_exit_code_0_with_nothing_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(AgentProtocolError) as caught:
        call(speaker(tmp_path, "say", "\\n"))
    assert caught.value.what == "answered nothing on stdout"
    with pytest.raises(AgentProtocolError, match=r"wrote to stderr") as caught:
        call(speaker(tmp_path, "err", "hello"))
    assert caught.value.came == "hello"


def test_a_grandchild_that_holds_stdout_does_not_hold_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GRACE_S", 0.2)
    pids = tmp_path / "pids"
    got = call(speaker(tmp_path, "spawn", str(pids), "say", "hi"))
    assert got.content == "hi"
    assert "ended_after_result" not in got.metadata
    assert not any(runs(int(pid)) for pid in pids.read_text(encoding="utf-8").split())


def test_a_program_that_closes_stdout_and_goes_on_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GRACE_S", 0.2)
    pids = tmp_path / "pids"
    got = call(speaker(tmp_path, "pids", str(pids), "say", "hi", "close", "sleep"))
    assert got.content == "hi"
    assert got.metadata["ended_after_result"] is True
    assert not runs(int(pids.read_text(encoding="utf-8")))


def test_calls_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    adapter = speaker(tmp_path, "read", "tell")

    async def all_at_once() -> list[AgentOutput]:
        inputs = [an_input(f"{n}" * 1000, role_prompt="") for n in range(8)]
        return await asyncio.gather(*(adapter.invoke(one, Heard()) for one in inputs))

    assert [got.content for got in asyncio.run(all_at_once())] == [f"{n}" * 1000 for n in range(8)]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"keep_alive": True, "prompt": "json"}, "set output to json or jsonl"),
        ({"keep_alive": True, "output": "jsonl"}, "set prompt to json"),
        ({"keep_alive": True, "output": "json", "prompt": "file"}, "set prompt to json"),
        ({"answer": "a"}, "output"),
        ({"command": []}, "command"),
        ({"command": "echo hi"}, "list"),
        ({"propmt": "stdin"}, "propmt"),
        ({"max_output_mb": 0}, "max_output_mb"),
    ],
)
def test_wrong_settings(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        CliSettings.model_validate({"type": "cli", "command": ["x"], **keys})


def test_what_the_program_is_given_is_what_is_rendered(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "speak.py"), "read", "tell"]
    setup = a_setup(
        tmp_path,
        CliSettings(type="cli", command=command),
        render=lambda one: (rendered(one)[0].upper(), "p"),
    )
    adapter = CliAdapter(setup)
    assert call(adapter).content == "YOU ARE A BOT.\n\np"
