"""Where the key of an added agent goes, commands in one text, and scripts that cannot start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from program import Program

_ANSWER = "print('an answer')\n"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.file("arena.yaml", "{}\n")
    program.env["COLUMNS"] = "200"
    return program


def adapter(program: Program, agent_id: str) -> dict[str, object]:
    text = (program.folder / f"agents/{agent_id}.yaml").read_text(encoding="utf-8")
    profile = yaml.safe_load(text)["adapter"]
    assert isinstance(profile, dict)
    return profile


@pytest.mark.parametrize(
    ("kind", "address", "key"),
    [
        ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    ],
)
def test_the_address_of_a_provider_goes_with_its_key(
    program: Program, kind: str, address: str, key: str
) -> None:
    program.env |= {address: "http://127.0.0.1:9/v1", key: "sk-000000000000"}
    done = program.run("agents", "add", "a", "--adapter", kind, "--model", "m")
    assert done.code == 0, done.stderr
    assert adapter(program, "a")["base_url"] == "http://127.0.0.1:9/v1"
    assert f"{key} goes to http://127.0.0.1:9/v1" in done.stdout
    own = ("--set", "base_url=http://127.0.0.1:8/v1")
    program.run("agents", "add", "b", "--adapter", kind, "--model", "m", *own)
    assert adapter(program, "b")["base_url"] == "http://127.0.0.1:8/v1"
    program.env[address] = "http://me:secret-word@127.0.0.1:9/v1"
    done = program.run("agents", "add", "c", "--adapter", kind, "--model", "m")
    assert adapter(program, "c")["base_url"] == f"${{env:{address}}}"
    assert "secret-word" not in done.stdout + done.stderr


def test_a_preset_keeps_its_own_server(program: Program) -> None:
    program.env |= {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-000000000000"}
    program.run("agents", "add", "a", "--adapter", "openai", "--preset", "ollama", "--model", "m")
    assert "base_url" not in adapter(program, "a")


@pytest.mark.parametrize(
    ("kind", "address", "key"),
    [
        ("claude_code", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
        ("codex", "OPENAI_BASE_URL", "CODEX_API_KEY"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    ],
)
def test_a_program_gets_the_address_with_the_key(
    program: Program, kind: str, address: str, key: str
) -> None:
    program.env |= {address: "https://proxy.example/v1", key: "sk-000000000000"}
    done = program.run("agents", "add", "a", "--adapter", kind)
    assert adapter(program, "a")["env"] == {key: "inherit", address: "inherit"}
    name = {"claude_code": "claude"}.get(kind, kind)
    words = f"{key} goes to the program {name}, and from there to https://proxy.example/v1"
    assert words in done.stdout


def test_a_command_in_one_text_is_split(program: Program) -> None:
    program.file("bots/my bot.py", _ANSWER)
    words = f'{sys.executable} "bots/my bot.py"'
    done = program.run("agents", "add", "a", "--adapter", "cli", "--cwd", ".", words)
    assert done.code == 0, done.stderr
    assert adapter(program, "a")["command"] == [sys.executable, "bots/my bot.py"]
    assert "is split into words" in done.stderr
    assert "an answer" in program.run("send", "@a hello").stdout
    done = program.run("agents", "add", "b", "--adapter", "cli", "python3 'bot.py")
    assert done.code == 2
    assert "-- python3 bot.py" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither")
@pytest.mark.parametrize(
    ("kind", "cwd"),
    [("cli", "."), ("cli", "work/a"), ("acp", "."), ("claude_code", "."), ("codex", ".")],
)
@pytest.mark.parametrize(
    ("script", "mode", "problem", "hint"),
    [
        (
            "#!/usr/bin/env python3\r\nprint(1)\r\n",
            0o755,
            "line ends of Windows",
            "//' bots/bot.py)",
        ),
        ("# 一个机器人\nprint(1)\n", 0o755, "without a `#!` line", "#!/usr/bin/env python3"),
        ("#!/usr/bin/pyhton\nprint(1)\n", 0o755, "/usr/bin/pyhton", "install that program"),
        ("#!/usr/bin/env python3\nprint(1)\n", 0o644, "cannot be executed", "chmod +x bots/bot.py"),
    ],
)
def test_a_script_that_cannot_start_is_named_before_and_at_the_call(
    program: Program, kind: str, cwd: str, script: str, mode: int, problem: str, hint: str
) -> None:
    program.file("bots/bot.py", script).chmod(mode)
    name = "command" if kind in ("cli", "acp") else "program"
    value = "[bots/bot.py]" if name == "command" else "bots/bot.py"
    adapter = f"{{type: {kind}, {name}: {value}, cwd: {cwd}}}"
    program.file("agents/a.yaml", f"agent_id: a\nadapter: {adapter}\n")
    for done in (program.run("agents", "check"), program.run("send", "@a hello")):
        assert done.code in (1, 3)
        text = " ".join(done.stdout.split())
        assert problem in text
        assert hint in text
        argument = "../../bots/bot.py" if cwd == "work/a" else "bots/bot.py"
        other_way = f"command: [python3, {argument}]" if name == "command" else "`exec python3 ...`"
        assert other_way in text


@pytest.mark.parametrize("cwd", [".", "work/a"])
@pytest.mark.parametrize("runner", [sys.executable, "python3"])
def test_a_missing_script_of_an_interpreter_is_named_before_the_call(
    program: Program, runner: str, cwd: str
) -> None:
    up = "../../" if cwd == "work/a" else ""

    def check(*command: str) -> tuple[int, str]:
        adapter = {"type": "cli", "command": [runner, *command], "cwd": cwd}
        program.file("agents/a.yaml", json.dumps({"agent_id": "a", "adapter": adapter}))
        done = program.run("agents", "check")
        return done.code, done.stdout

    code, shown = check(f"{up}bots/机器人.py")
    assert code == 1
    assert f"there is no file {program.folder / 'bots' / '机器人.py'}" in shown
    program.file("bots/机器人.py", "print('hi')\n")
    assert check(f"{up}bots/机器人.py")[0] == 0
    assert check("-m", "nothing.py")[0] == 0
    assert check("-c", "print('x.py')")[0] == 0
