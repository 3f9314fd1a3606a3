"""A secret of the workspace stands in no file, on no stream and in no error."""

from __future__ import annotations

import sys
from pathlib import Path

from program import Program


def test_a_secret_is_written_nowhere(tmp_path: Path) -> None:
    secret, password = 'tell"no-one-9f3', "hunter2-4711"
    program = Program(tmp_path)
    program.file(".env", f"API_KEY='{secret}'\n")
    env = {"API_KEY": "${env:API_KEY}"}
    program.program("teller", "env", adapter={"env": env})
    program.file("fail.py", "import os, sys\nsys.exit('no access with ' + os.environ['API_KEY'])\n")
    failing = {"type": "cli", "command": [sys.executable, "fail.py"], "env": env}
    program.agent("failing", adapter=failing)
    program.team(selection="none")
    program.file("arena.yaml", "team: crew\nredact: ['hunter\\d-\\d+']\n")
    program.file("notes.txt", f"the key is {secret}, the word {password}\n")
    done = program.run(
        *("send", "-s", "s", "--attach", "notes.txt"),
        f"@teller @failing {secret} {password} sk-abcdefghijklmnopqrst123456",
    )
    assert done.code == 0
    assert program.finished() in (
        [("teller", "success"), ("failing", "error")],
        [("failing", "error"), ("teller", "success")],
    )
    text = done.stdout + done.stderr + program.written() + program.run("show", "--json").stdout
    for word in ("no-one-9f3", "hunter", "sk-abcdefghij"):
        assert word not in text
    assert "@teller @failing [redacted] [redacted] [redacted]" in done.stdout
    assert "no access with [redacted]" in done.stdout
    assert "the key is [redacted], the word [redacted]" in text
    assert '"API_KEY": "[redacted]"' in done.stdout


def test_a_variable_that_is_not_set_is_an_error_of_that_agent(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.program("robot", "say", "hi", adapter={"env": {"API_KEY": "${env:API_KEY}"}})
    done = program.run("send", "hello").check(code=3)
    said = "adapter.env.API_KEY: API_KEY is not set"
    assert f"robot: {said}" in done.stdout
    assert f"NOT OK robot · {said}" in program.run("agents", "check").check(code=1).stdout


def test_a_key_that_stands_in_a_profile_is_a_secret(tmp_path: Path) -> None:
    program = Program(tmp_path)
    adapter = {"type": "openai", "model": "m", "base_url": "http://127.0.0.1:9"}
    program.agent("model", adapter={**adapter, "api_key": "open-sesame-4711"})
    program.program("echo", "say", "the key is open-sesame-4711")
    done = program.run("send", "-s", "s", "@all hello")
    assert "the key is [redacted]" in done.stdout
    assert "4711" not in program.raw().decode()


def test_what_a_program_inherits_under_a_secrets_name_is_a_secret(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file(".env", "TOOL_TOKEN=open-sesame-4711\nTOOL_MODE=production\n")
    env = {"TOOL_TOKEN": "inherit", "TOOL_MODE": "inherit"}
    program.file("say.py", "import os\nprint(os.environ['TOOL_TOKEN'], os.environ['TOOL_MODE'])\n")
    program.agent(
        "robot", adapter={"type": "cli", "command": [sys.executable, "say.py"], "env": env}
    )
    done = program.run("send", "hello").check(code=0)
    assert "[redacted] production" in done.stdout
    assert "sesame" not in program.written()


def test_a_check_of_the_agents_shows_no_secret(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file(".env", "TOOL_TOKEN=no-such-program-4711\n")
    program.agent("robot", adapter={"type": "cli", "command": ["${env:TOOL_TOKEN}"]})
    program.agent("other", adapter={"type": "cli", "command": ["x"], "cwd": "${env:TOOL_TOKEN}"})
    for args in (("agents", "check"), ("doctor",), ("agents",), ("agents", "--json")):
        done = program.run(*args)
        assert "4711" not in done.stdout + done.stderr
    program.run("agents", "check").check(code=1)
