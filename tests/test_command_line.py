"""The command line itself: its help, what is wrong with it, and how output is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from product import main
from program import Done, Program

ARTICLES = {"A", "An", "The", "Its", "Whether", "What", "This", "These"}


def commands() -> Iterator[tuple[str, Any]]:
    root = typer.main.get_command(main.app)
    waiting = [("", root)]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        for inner in getattr(command, "commands", {}):
            waiting.append((f"{name} {inner}".strip(), command.commands[inner]))


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_made_of_sentences(name: str) -> None:
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(param, "help", "") for param in command.params)]
    assert all(texts), name
    for text in texts:
        first = text.split("\n\n")[0]
        assert first.endswith("."), first
        assert first[0].isupper(), first
        assert first.split()[0] not in ARTICLES, first


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_40_columns_and_breaks_no_word(tmp_path: Path, name: str) -> None:
    program = Program(tmp_path, env={"COLUMNS": "40"})
    narrow = program.run(*name.split(), "--help").check().stdout
    wide = Program(tmp_path).run(*name.split(), "--help").check().stdout
    too_wide = [line for line in narrow.splitlines() if len(line) > 40 and " " in line.strip()]
    assert [line for line in too_wide if not line.startswith("  arena ")] == []  # examples
    assert sorted(narrow.split()) == sorted(wide.split())


def test_help_has_groups(tmp_path: Path) -> None:
    program = Program(tmp_path)
    top = program.run("--help").check().stdout
    headings = ["Set up:", "Converse:", "Test:", "Remember:", "Files:", "Options:"]
    assert [line for line in top.splitlines() if line in headings] == headings
    assert "two scenarios; overwrites nothing." in " ".join(top.split())
    assert "..." not in top.partition("Set up:")[2]
    listed = {line.split()[0] for line in re.findall(r"^  [a-z].*", top, re.MULTILINE)}
    assert listed == {name for names in main._MODULES.values() for name in names}
    run = program.run("run", "--help").check().stdout
    assert [line for line in run.splitlines() if re.fullmatch(r"[A-Z]\w+:", line)] == [
        "Arguments:",
        "Selection:",
        "Recordings:",
        "Output:",
        "Options:",
    ]
    assert not re.search(r"<(str|path|list)", run)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("frobnicate", "no such command 'frobnicate'\n  `arena --help` explains the command line"),
        ("sendd hello", "no such command 'sendd'\n  did you mean `send`?"),
        ("knowledge ad", "no such command 'ad'\n  did you mean `add`?"),
        ("run --jsn", "no such option: --jsn\n  did you mean `--json`?"),
        ("run --zzz", "no such option: --zzz\n  `arena run --help` explains the command line"),
        (
            "run --jobs 两个",
            "invalid value for '--jobs' / '-j': must be a whole number, not the text `两个`"
            "\n  `arena run --help` explains the command line",
        ),
        (
            "sessions -n 0",
            "invalid value for '--limit' / '-n': must be at least 1, not 0"
            "\n  `arena sessions --help` explains the command line",
        ),
        (
            "init --language fr",
            "invalid value for '--language': 'fr' is not one of 'en', 'zh'"
            "\n  `arena init --help` explains the command line",
        ),
        (
            "schema",
            "missing argument 'kind'. Choose from: agent, team, scenario, workspace, result"
            "\n  `arena schema --help` explains the command line",
        ),
        ("run --quiet", "no such option: --quiet\n  `arena run --help` explains the command line"),
        ("run --htlm x", "no such option: --htlm\n  did you mean `--html`?"),
        ("agents list", "no such command 'list'\n  use `arena agents`"),
        ("completion", "no such command 'completion'\n  use `arena --install-completion`"),
        ("show --turn", "option '--turn' requires an argument"),
    ],
)
def test_a_wrong_command_line_is_told_like_any_other_error(
    tmp_path: Path, args: str, told: str
) -> None:
    Program(tmp_path).run(*args.split()).check(code=2, stdout="", stderr=f"arena: {told}\n")


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ("sessions -n 0", "--limit / -n 的值有误：不能小于 1，不能是 0"),
        ("schema", "缺少参数 kind，可选值：agent, team, scenario, workspace, result"),
        ("new", "没有命令 new\n  新建工作区请用 `arena init`，新会话请用 `arena send MESSAGE`"),
        ("agents list", "没有命令 list\n  请用 `arena agents`"),
    ],
)
def test_a_wrong_command_line_is_explained_in_chinese(
    tmp_path: Path, args: str, shown: str
) -> None:
    program = Program(tmp_path)
    program.env["ARENA_LANG"] = "zh"
    assert f"arena: {shown}\n" in program.run(*args.split()).stderr


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Two agents; a session of two chains, in each of which both reply."""
    program = Program(tmp_path)
    program.agent("dev", {"say": "甲 @ops"}, name="全栈").agent("ops", {"say": "乙"})
    for message in ("@dev eins", "@dev zwei"):
        program.run("send", "-s", "s", message).check()
    return program


def texts(done: Done) -> list[str]:
    return re.findall(r"^  (@dev \w+|甲 @ops|乙)$", done.check().stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--last", "1"], ["乙"]),
        (["-n", "3"], ["@dev zwei", "甲 @ops", "乙"]),
        (["--last", "4"], ["乙", "@dev zwei", "甲 @ops", "乙"]),
        (["--last", "99"], ["@dev eins", "甲 @ops", "乙", "@dev zwei", "甲 @ops", "乙"]),
        (["--last", "1", "--agent", "全栈"], ["甲 @ops"]),
        (["--last", "2", "--agent", "ops"], ["乙", "乙"]),
    ],
)
def test_the_last_messages(program: Program, args: list[str], shown: list[str]) -> None:
    done = program.run("show", "s", *args)
    replies = [text for text in texts(done) if "--agent" not in args or not text.startswith("@")]
    assert replies == shown
    assert done.stdout.startswith("session s · ")


def test_last_excludes_other_parts(program: Program) -> None:
    for other in (["--turn", "1"], ["--after-seq", "1"], ["--context", "--agent", "dev"]):
        done = program.run("show", "s", "--last", "1", *other)
        assert (done.code, "--last were given" in done.stderr) == (2, True)


def test_colours_without_a_terminal(program: Program) -> None:
    plain = program.run("show", "s").check().stdout
    assert "\x1b" not in plain
    program.env["FORCE_COLOR"] = "1"
    program.env["COLUMNS"] = "30"
    coloured = program.run("show", "s").check().stdout
    assert re.search("\x1b\\[[0-9;]*38;5;", coloured)
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain
    for env in ({"NO_COLOR": "1"}, {"FORCE_COLOR": "0"}, {"FORCE_COLOR": ""}):
        quiet = Program(program.folder, env={**program.env, **env})
        assert quiet.run("show", "s").check().stdout == plain
    assert "\x1b" not in program.run("show", "s", "--json").stdout
