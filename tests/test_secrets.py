"""A secret of the workspace stands in no file, on no stream and in no error."""

from __future__ import annotations

import html
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from product import Redactor, UsageError, agents, cut_start
from product import session_outgoing as outgoing
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
    assert f"NOT OK robot · {said}" in program.run("doctor").check(code=1).stdout


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
    adapter = {"type": "cli", "command": ["${env:TOOL_TOKEN}"], "cwd": "agents"}
    program.agent("robot", adapter=adapter)
    program.agent("other", adapter={"type": "cli", "command": ["x"], "cwd": "${env:TOOL_TOKEN}"})
    connected = (("agents", "check", "--connect"), ("doctor", "--connect"))
    for args in (("agents", "check"), ("doctor",), *connected, ("agents",), ("agents", "--json")):
        done = program.run(*args)
        assert "4711" not in done.stdout + done.stderr
        assert done.code == (1 if args in connected else 0), args
    unfilled = program.run("agents", "check").check().stdout
    assert unfilled.count(" · not checked; use `--connect` to check it\n") == 2


@pytest.mark.parametrize(
    "name",
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASS", "passwd", "PWD", "PAT", "CREDENTIALS", "DSN"],
)
def test_a_variable_whose_name_ends_so_is_a_secret(name: str) -> None:
    settings = {"base_url": f"http://h/${{env:MY_{name}}}", "cwd": "${env:MY_HOME}"}
    variables = {f"MY_{name}": "open-sesame", "MY_HOME": "/home/somebody"}
    assert agents.collect_secrets(settings, variables) == {"open-sesame"}


@pytest.mark.parametrize("name", ["PWD", "OLDPWD"])
def test_the_current_folder_is_none(name: str) -> None:
    assert agents.collect_secrets({"cwd": f"${{env:{name}}}"}, {name: "/home/somebody"}) == set()


@pytest.mark.parametrize(
    ("settings", "secret"),
    [
        ({"args": ["--key=${env:A}"]}, "variable-a"),
        ({"command": ["${env:B}/prog", "-k", "${env:A}"]}, "variable-a"),
        ({"mcp": [{"args": ["${env:A}"]}]}, "variable-a"),
        ({"headers": {"X-Name": "${env:A}"}}, "variable-a"),
        ({"headers": {"Authorization": "Bearer open-sesame"}}, "open-sesame"),
        ({"headers": {"X-Api-Key": "open-sesame", "X-Mode": "production"}}, "open-sesame"),
        ({"base_url": "https://me:open-sesame@host/v1"}, "open-sesame"),
        ({"env": {"MY_PAT": "open-sesame", "MODE": "production"}}, "open-sesame"),
        ({"type": "python", "target": "a.py:f"}, "variable-c"),
        ({"api_key": "short"}, None),
    ],
)
def test_where_a_secret_may_stand(settings: dict[str, Any], secret: str | None) -> None:
    variables = {"A": "variable-a", "B": "variable-b", "C_TOKEN": "variable-c"}
    assert agents.collect_secrets(settings, variables) == ({secret} if secret else set())


@pytest.mark.parametrize("form", [json.dumps, html.escape, quote, quote_plus, shlex.quote])
def test_a_secret_is_found_as_others_write_it(form: Callable[[str], str]) -> None:
    secret = "a'b\"c&d<e/f+g h密"
    said = Redactor([secret]).text(f"it is {form(secret)}.")
    assert said.strip("'\"") in ("it is [redacted].", 'it is "[redacted]".', "it is '[redacted]'.")


@pytest.mark.parametrize("length", range(8, 40))
def test_the_beginning_of_a_secret_that_was_cut_is_redacted(length: int) -> None:
    secret = "k3y-abcdefghijklmnopqrstuvwxyz-0123456789"
    said = Redactor([secret]).text(f"wrong key {secret[:length]}")
    # Half of it, 24 characters of a long one, give it away; less may be a word.
    assert (said == "wrong key [redacted]") is (length >= len(secret) // 2)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("the production-token-", "the [redacted]"),
        ("key production-tok…", "key [redacted]…"),
        ("key production-tok***", "key [redacted]***"),
        ("the production-token-name is a word", "the production-token-name is a word"),
        ("in production", "in production"),
    ],
)
def test_words_that_a_secret_begins_with_stay(text: str, redacted: str) -> None:
    assert Redactor(["production-token-4711"]).text(text) == redacted


def test_a_tail_begins_with_a_whole_word() -> None:
    assert cut_start("my sec-ret-key is lost", 15) == "is lost"
    assert cut_start("my sec-ret-key", 11) == "sec-ret-key"
    assert cut_start("short", 10) == "short"


@pytest.mark.parametrize(
    "name",
    [
        *(".env", ".env.local", "prod.env", ".ENV", "a.pem", "server.KEY", "id_rsa", "id_ed25519"),
        *(".netrc", ".npmrc", "key.p12", "credentials", "notes.txt", "link.txt"),
    ],
)
def test_a_file_of_secrets_is_sent_only_with_force(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("-----BEGIN RSA PRIVATE KEY-----\n" if "notes" in name else "A=b\n")
    if name == "link.txt":
        path.unlink()
        (tmp_path / ".env").write_text("A=b\n")
        path.symlink_to(tmp_path / ".env")
    with pytest.raises(UsageError, match="--force") as raised:
        outgoing.refuse_secret_files([path], "--attach")
    assert name in str(raised.value)


@pytest.mark.parametrize("name", [".env.example", "id_rsa.pub", "keys.md", "environment.yaml", "x"])
def test_other_files_are_sent(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("KEY=your key here\n")
    outgoing.refuse_secret_files([tmp_path / name, tmp_path / "gone"], "--attach")


def test_send_refuses_such_a_file_before_anything_is_written(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hi")
    program.file(".env", "A=b\n")
    for option in ("--attach", "--file"):
        done = program.run("send", "-s", "s", option, ".env", *(["hi"] if "a" in option else []))
        assert done.code == 2
        assert f"{option} .env: this is a file of environment variables" in done.stderr
    assert not (tmp_path / "sessions").exists()
    program.run("send", "-s", "s", "--attach", ".env", "--force", "hi").check(code=0)


def test_an_export_has_no_text_that_became_a_secret_later(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "it is open-sesame-4711")
    program.run("send", "-s", "s", "hello @dev").check(code=0)
    adapter = {"type": "openai", "model": "m", "api_key": "open-sesame-4711"}
    program.agent("late", adapter=adapter, member=False)
    done = program.run("export", "s", "--audit", "--format", "json").check(code=0)
    assert "open-sesame" not in done.stdout
    assert "it is [redacted]" in done.stdout
