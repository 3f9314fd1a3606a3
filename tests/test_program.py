"""The program from the outside: exact text, exit codes, and what lies in the folder afterwards."""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types
from product import UsageError, common
from program import ROOT, Program, hello
from support import WORKED_MESSAGE

WORKED = """\
session SESSION · team software_dev

TIME  user
  @架构师 @合规 请帮我拆解这个需求：做一个用户管理系统，需要符合 GDPR

── turn 1 · must reply: 架构师, 合规
TIME  📐 架构师 (architect) · turn 1 A · N s · N tokens
  需求拆解如下：1. 用户认证 2. 权限管理 3. 数据加密 @全栈开发 请按此方案实现
  → 全栈开发
TIME  🔒 合规 (compliance) · turn 1 A · N s · N tokens
  GDPR 要求：用户同意、数据可删除 @测试工程师 请准备测试用例
  → 测试工程师
  passed over: 测试工程师 (relevance 0.4 < 0.8)

── turn 1 · may reply: 全栈开发
TIME  💻 全栈开发 (developer) · turn 1 B · N s · N tokens
  收到，先做认证模块 @测试工程师 完成后请做冒烟测试
  → 测试工程师
  note requirement-做一个用户管理系统-需要符合-gdpr added by rules: \
做一个用户管理系统，需要符合 GDPR
  note requirement-用户同意-数据可删除 added by rules: 用户同意、数据可删除

── turn 2 · must reply: 测试工程师 (mentioned by 合规, 全栈开发)
TIME  🧪 测试工程师 (tester) · turn 2 A · N s · N tokens
  好的，准备三组用例

══ quiet · 4 replies in 2 turns · N tokens

"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A workspace of one agent, who says back what it was told."""
    made = Program(tmp_path)
    made.agent("dev", {"say": "heard: ${message}"})
    return made


def named(stdout: str) -> str:
    """The name of the session that a timeline begins with."""
    return stdout.split(" ", 2)[1]


# A new workspace


def test_the_first_minutes(tmp_path: Path) -> None:
    program = Program(tmp_path)
    written = program.run("init", "--language", "zh").check().stdout
    paths, hints = written.split("\n\n")
    assert (
        hints == '  arena send "@架构师 请拆解这个需求：做一个网店，需要符合 GDPR"\n  arena run\n'
    )
    assert all((tmp_path / path).is_file() for path in paths.splitlines())
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(kept) == len(paths.splitlines())

    first = program.run("send", WORKED_MESSAGE).check(stdout=WORKED)
    session = named(first.stdout)
    assert program.run("show").check(stdout=WORKED).stdout == first.stdout
    second = program.run("send", "-c", "hello").check()
    assert named(second.stdout) == session
    assert second.stdout.splitlines()[-2].startswith("══ quiet · 1 reply in 1 turn")
    both = program.run("show", session).check().stdout
    assert both == first.stdout + second.stdout.split("\n\n", 1)[1]

    (row,) = program.run("sessions").check().stdout.splitlines()
    assert re.fullmatch(
        r"\S+ · software_dev · quiet · [-\d]{10} \d\d:\d\d \(\d+ (?:s|min) ago\) · @架构师 .*",
        row,
    )
    (listed,) = json.loads(program.run("sessions", "--json").check().stdout)
    assert listed["session"] == session
    assert (listed["team"], listed["end"]) == ("software_dev", "quiet")
    transcript = tmp_path / "sessions" / session / "transcript.jsonl"
    program.run("path", session, cwd="agents").check(
        stdout="ROOT/sessions/SESSION/transcript.jsonl\n".replace("/", os.sep)
    )
    as_json = program.run("show", "--json").check().stdout
    assert as_json.encode() == transcript.read_bytes()
    assert program.run("doctor", session).check().stdout.endswith("2 chains, 5 replies\n")

    again = program.run("init")
    assert again.code == 2
    assert again.stdout == ""
    assert again.stderr.startswith("arena: . has these files already: agents/architect.yaml, ")
    assert {path: path.read_bytes() for path in kept} == kept


def test_sessions_are_listed_with_their_first_message_in_local_time(tmp_path: Path) -> None:
    program = Program(tmp_path, env={"TZ": "Asia/Shanghai"})
    program.agent("dev", "ok")
    for name in ("甲", "乙", "丙"):
        program.run("send", "-q", "-s", name, f"@dev 第一条消息 {name}\n" + "很长" * 90).check()
    listed = json.loads(program.run("sessions", "--json").check().stdout)
    assert [row["first"].split("\n")[0] for row in listed] == [
        f"@dev 第一条消息 {row['session']}" for row in listed
    ]
    (newest,) = program.run("sessions", "--limit", "1").check().stdout.splitlines()
    assert newest.startswith("丙 · every agent · quiet · ")
    assert " ago) · @dev 第一条消息 丙 很长" in newest
    assert len(newest) < 140
    program.real = True
    (newest,) = program.run("sessions", "-n", "1").check().stdout.splitlines()
    local = datetime.fromisoformat(listed[0]["changed"]) + timedelta(hours=8)
    assert f"{local:%Y-%m-%d %H:%M} (" in newest
    program.env["ARENA_LANG"] = "zh"
    assert re.search(r"\(\d+ (?:秒|分钟)前\)", program.run("sessions", "-n", "1").stdout)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("list", "`arena sessions`"), ("logs", "`arena show`"), ("new", "`arena init`")],
)
def test_names_of_other_programs_point_to_the_command(
    tmp_path: Path, name: str, meant: str
) -> None:
    done = Program(tmp_path).run(name)
    assert (done.code, done.stdout) == (2, "")
    assert f"no such command '{name}'\n  use {meant}" in done.stderr


def test_help_is_a_command_too(tmp_path: Path) -> None:
    program = Program(tmp_path)
    assert program.run("help").check().stdout == program.run("--help").check().stdout
    for command in (("send",), ("agents", "add")):
        shown = program.run("help", *command).check().stdout
        assert shown == program.run(*command, "--help").check().stdout


def test_init_makes_the_folder_it_is_given(tmp_path: Path) -> None:
    program = Program(tmp_path)
    done = program.run("init", "新 团队").check()
    assert "新 团队/agents/architect.yaml\n" in done.stdout
    assert '  cd "新 团队"\n' in done.stdout
    program.run("path", cwd="新 团队").check(stdout=f"ROOT{os.sep}新 团队\n")


def test_lists_and_checks(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}, name="全栈开发", avatar="🧑‍💻", skills=["Python"])
    program.agent("guest", {"say": "ok"}, member=False)
    program.program("robot", "say", "hi")
    program.team(humans=["maya"], max_responders=2)

    program.run("agents").check(
        stdout="🧑‍💻 全栈开发 · @dev · scripted · Python\n"
        "guest · @guest · scripted · not a member\n"
        "robot · @robot · cli\n"
    )
    agents = json.loads(program.run("agents", "--json").check().stdout)
    assert [one["agent_id"] for one in agents] == ["dev", "guest", "robot"]
    program.run("teams").check(stdout="crew (default) · dev, guest, robot\n")
    (team,) = json.loads(program.run("teams", "--json").check().stdout)
    assert team["members"] == ["dev", "guest", "robot"]
    assert team["humans"] == [{"id": "maya", "name": "Maya"}]
    assert team["config"]["max_responders"] == 2
    well = "ok     dev\nok     guest\nok     robot\n"
    program.run("agents", "check").check(stdout=well)

    program.agent("robot", adapter={"type": "cli", "command": ["no-such-program-anywhere"]})
    ill = program.run("agents", "check").check(code=1).stdout.splitlines()
    assert ill[:2] == ["ok     dev", "ok     guest"]
    assert ill[2].startswith("NOT OK robot · ")
    assert "no-such-program-anywhere" in ill[2]
    doctor = program.run("doctor").check(code=1).stdout.splitlines()
    assert doctor[1:3] == [f"workspace {tmp_path}", "sessions 0"]
    assert doctor[3:] == ill
    assert not (tmp_path / "sessions").exists()


def test_the_program_tells_what_it_can_do(tmp_path: Path) -> None:
    program = Program(tmp_path)
    bare = program.run()
    assert (bare.stdout + bare.stderr).startswith("Usage: ")
    helped = program.run("--help").check()
    for command in ("init", "send", "resume", "run", "show", "sessions", "agents", "teams"):
        assert f"\n  {command} " in helped.stdout
    assert program.run("--version").check().stdout.startswith("arena 0.")
    assert program.run("-h", "send").code == 0
    unknown = program.run("frobnicate")
    assert unknown.code == 2
    assert unknown.stderr.startswith("arena: no such command 'frobnicate'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["agent", "team", "scenario"])
def test_schemas_are_schemas(tmp_path: Path, kind: str) -> None:
    found = json.loads(Program(tmp_path).run("schema", kind).check().stdout)
    Draft202012Validator.check_schema(found)
    assert found["properties"]


# Where the workspace is


def test_the_workspace_is_found_named_or_missed(program: Program, tmp_path: Path) -> None:
    deep = tmp_path / "docs" / "deep"
    deep.mkdir(parents=True)
    program.run("path", cwd="docs/deep").check(stdout="ROOT\n")
    program.run("--workspace", "..", "path", cwd="docs").check(stdout="ROOT\n")
    program.env["ARENA_WORKSPACE"] = str(tmp_path)
    program.run("path", cwd=str(tmp_path.parent)).check(stdout="ROOT\n")
    program.run("--workspace", "docs", "path").check(
        code=2,
        stdout="",
        stderr=f"arena: --workspace: {Path('ROOT', 'docs')} is not a workspace\n  run "
        "`arena init docs` to create one there\n",
    )
    program.env["ARENA_WORKSPACE"] = str(tmp_path / "nowhere")
    done = program.run("send", "hi")
    assert done.code == 2
    assert done.stderr.startswith("arena: ARENA_WORKSPACE: ")
    del program.env["ARENA_WORKSPACE"]
    (tmp_path / "agents" / "dev.yaml").rename(tmp_path / "docs" / "dev.yaml")
    done = program.run("send", "hi")
    assert done.code == 2
    assert done.stderr.startswith("arena: no workspace (a folder with arena.yaml or agents/")
    program.file("arena.yaml", "language: zh\n")
    program.run("send", "hi").check(
        code=2,
        stdout="",
        stderr=f"arena: no agents in {Path('ROOT', 'agents')}\n  run `arena init` there\n",
    )
    program.run("agents").check(
        stdout="",
        stderr="no agents yet; `arena agents add` adds one, `arena init` creates four that "
        "work offline\n",
    )
    assert not (tmp_path / "sessions").exists()


def test_every_fault_of_every_file_is_told_at_once(program: Program, tmp_path: Path) -> None:
    program.file("arena.yaml", "team: crew\nlangauge: zh\n")
    program.file("agents/dev.yaml", "agent_id: dev\nname: @dev\n")
    program.file("agents/ops.yaml", "agent_id: ops\nadapter: {type: scriptd}\n")
    program.file("agents/teams/crew.yaml", "team: crew\nmembers: [dev, nobody]\n")
    done = program.run("send", "hi")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.count("arena: ") == 1
    assert "Traceback" not in done.stderr
    for place in (
        "arena.yaml:2: langauge: ",
        "agents/dev.yaml:2: ",
        "agents/ops.yaml:2: adapter.type: ",
        "agents/teams/crew.yaml:2: members",
    ):
        assert place in done.stderr
    assert program.run("agents").stderr == done.stderr
    assert not (tmp_path / "sessions").exists()


# What is sent


def test_sessions_by_name(program: Program, tmp_path: Path) -> None:
    program.run("send", "--session", "Café 需求", "hello").check(stdout=hello("Café 需求"))
    program.run("send", "--session", "CAFE\u0301 需求", "again").check(
        stdout=hello("Café 需求", "again", turn=2)
    )
    program.run("send", "-s", "other", "hello").check(stdout=hello("other"))
    program.run("send", "-c", "more").check(stdout=hello("other", "more", turn=2))
    os.utime(program.transcript("other"), (1, 1))
    program.run("send", "-c", "last").check(stdout=hello("Café 需求", "last", turn=3))
    assert {path.name for path in (tmp_path / "sessions").iterdir()} == {"Café 需求", "other"}
    assert len(program.finished("Café 需求")) == 3
    wrong = program.run("show", "othr").check(
        code=2, stdout="", stderr="arena: there is no session 'othr'\n  Did you mean 'other'?\n"
    )
    for command in ("resume", "doctor", "path"):
        assert program.run(command, "othr").check(code=2, stderr=wrong.stderr).stdout == ""


@pytest.mark.parametrize(
    ("data", "args"),
    [
        ("你好 ✓\n".encode(), ()),
        ("你好 ✓\r\n".encode(), ("-",)),
        (codecs.BOM_UTF8 + "你好 ✓".encode(), ()),
        (codecs.BOM_UTF16_LE + "你好 ✓\n".encode("utf-16-le"), ("-",)),
        (codecs.BOM_UTF16_BE + "你好 ✓".encode("utf-16-be"), ("--file", "message.txt")),
    ],
    ids=["utf-8", "dash", "bom", "utf-16-le", "utf-16-be file"],
)
def test_a_message_from_a_pipe_or_a_file(
    program: Program, data: bytes, args: tuple[str, ...]
) -> None:
    program.file("message.txt", data)
    given = None if "--file" in args else data
    program.run("send", "-s", "s", *args, given=given).check(stdout=hello("s", "你好 ✓"))


def test_a_pipe_in_the_encoding_of_the_locale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("locale.getencoding", lambda: "gbk")
    assert common.decoded("请看一下".encode("gbk"), "stdin") == "请看一下"
    assert common.decoded("请看一下".encode(), "stdin") == "请看一下"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("data", "locale", "problem"),
    [
        (
            b"ok\nso \xe9t\xe9",
            "utf-8",
            "ask.md:2: the message is not UTF-8; it looks like Windows-1252",
        ),
        (
            b"ok \xff",
            "gbk",
            "ask.md:1: the message is not UTF-8 or GBK; it looks like Windows-1252",
        ),
        (
            "请看\n这个".encode("gbk"),
            "utf-8",
            "ask.md:1: the message is not UTF-8; it looks like GBK",
        ),
        (b"\xff\xfeh\x00\xfd\xff\x01", "utf-8", "ask.md:1: the message is not UTF-16"),
        (codecs.BOM_UTF8 + b"\xff\x81\xff", "gbk", "ask.md:1: the message is not UTF-8"),
        ("hello".encode("utf-16-le"), "utf-8", "the message is not UTF-8; it looks like UTF-16"),
    ],
)
def test_a_message_that_cannot_be_decoded_is_refused(
    data: bytes, locale: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locale.getencoding", lambda: locale)
    with pytest.raises(UsageError) as caught:
        common.decoded(data, "ask.md")
    assert problem in caught.value.what
    assert "UTF-8" in caught.value.mend


@pytest.mark.parametrize("source", ["stdin", "--file", "argument"])
def test_gbk_in_a_utf8_locale_is_refused_and_nothing_is_written(
    program: Program, source: str
) -> None:
    data = "请看一下支付接口".encode("gbk")
    program.file("ask.md", data)
    command = ("send", "-s", "s", "--quiet")
    if source == "argument":
        program.real = True
        name, file = "MESSAGE", "FILE"
        done = program.run(*command, os.fsdecode(data))
    elif source == "--file":
        name, file = "ask.md", "ask.md"
        done = program.run(*command, "--file", "ask.md")
    else:
        name, file = "stdin", "FILE"
        done = program.run(*command, given=data)
    done.check(
        code=2,
        stdout="",
        stderr=f"arena: {name}:1: the message is not UTF-8; it looks like GBK\n"
        f"  Write it as UTF-8, or convert it: `iconv -f GBK -t UTF-8 {file} | arena send -`.\n",
    )
    assert not program.raw()


def test_a_pipe_whose_characters_a_shell_replaced_is_refused(program: Program) -> None:
    refused = program.run("send", "-s", "s", "-q", given=b"@dev ????????,???\r\n")
    assert (refused.code, refused.stdout) == (2, "")
    assert "$OutputEncoding = [Text.Encoding]::UTF8" in refused.stderr
    assert not program.raw()
    for text in ("what???", "??\r\n", "@dev ???\n"):
        program.run("send", "-s", "s", "-q", given=text.encode()).check()
    program.run("send", "-s", "s", "-q", "???").check()


def test_to_from_and_attachments(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "dev here"}, name="全栈开发")
    program.agent("ops", {"say": "ops here"})
    program.team(humans=["maya"], selection="none")
    program.file("notes.txt", "注意")
    program.file("sub/notes.txt", b"\xff\xfe\x00bytes")
    done = program.run(
        *("send", "-s", "s", "--to", "ops", "--to", "@全栈开发", "--from", "maya"),
        *("--attach", "notes.txt", "--attach", "sub/notes.txt", "see @dev"),
    ).check()
    assert "TIME  Maya\n  see @dev\n  [file: notes.txt, 6 bytes at sessions/s/" in done.normal(
        done.stdout
    )
    assert "── turn 1 · must reply: ops, 全栈开发\n" in done.stdout
    message = next(one for one in program.records() if one["type"] == "message")["message"]
    assert (message["author_id"], message["mentions"]) == ("maya", ["ops", "dev"])
    first, second = (tmp_path / part["path"] for part in message["attachments"])
    assert first.read_bytes() == "注意".encode()
    assert second.read_bytes() == b"\xff\xfe\x00bytes"
    program.run("doctor", "s").check()

    first.unlink()
    second.write_bytes(b"changed")
    ill = program.run("doctor", "s")
    assert ill.code == 1
    place = f"{program.transcript()}:2: attachment notes.txt: "
    missing, changed = ill.stderr.splitlines()
    assert missing.startswith(f"{place}{first}: ")
    assert changed == f"{place}{second} differs from the attached file"


def test_a_workspace_that_is_a_file(program: Program) -> None:
    program.run("-w", "agents/dev.yaml", "agents").check(
        code=2,
        stdout="",
        stderr=f"arena: --workspace: {Path('ROOT', 'agents', 'dev.yaml')} is not a folder\n"
        "  name a folder, one with arena.yaml or agents/*.yaml\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there a folder in use cannot be removed")
@pytest.mark.parametrize("command", ["agents", "run", "send hi", "init x"])
def test_a_current_folder_that_was_removed(program: Program, command: str) -> None:
    gone = program.folder / "gone"
    arena = f"'{sys.executable}' -m arena_cli {command}"
    done = subprocess.run(
        ["sh", "-c", f"mkdir gone && cd gone && rmdir '{gone}' && {arena}"],
        cwd=program.folder,
        env=program.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == f"arena: the current folder was removed: {gone}\n  `cd` to an existing "
        "folder, even if this one was created again, and run the command again\n"
    )


@pytest.mark.parametrize(
    ("args", "what", "mend"),
    [
        (["--from", "bob", "hi"], "this team has no human called 'bob'", "Its humans: maya."),
        (["--to", "dve", "hi"], "no member of this team is called 'dve'", "did you mean `dev`?"),
        (["--team", "crwe", "hi"], "there is no team `crwe`", "did you mean `crew`?"),
        (["-c", "hi"], "there is no session to continue", "Start one: `arena send MESSAGE`."),
        (["-c", "-s", "x", "hi"], "--session and --continue were given", "Give one of them."),
        (["--json", "-q", "hi"], "--json and --quiet were given", "Give one of them."),
        (["hi", "-f", "arena.yaml"], "a MESSAGE and --file were given", "Give one of them."),
        ([" \t\n"], "the message is empty", "Write a message, or attach a file."),
        ([], "the message is empty", "Write a message, or attach a file."),
        (["--file", "nope"], "nope: cannot read this file: No such file or directory", ""),
        (["-a", "nope", "hi"], "nope: cannot read this attachment: No such file or directory", ""),
    ],
)
def test_wrong_use_of_send_is_told_before_anything_is_written(
    program: Program, tmp_path: Path, args: list[str], what: str, mend: str
) -> None:
    program.team(humans=["maya"])
    stderr = f"arena: {what}\n" + (f"  {mend}\n" if mend else "")
    program.run("send", *args).check(code=2, stdout="", stderr=stderr)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.parametrize(
    ("args", "what", "mend"),
    [
        (
            ["hello", "there"],
            "got unexpected extra argument(s) (there)",
            'Quote a message of several words: arena send "hello there"',
        ),
        (
            ["- [ ] a list"],
            "no such option: -",
            'Put `--` before a message that begins with `-`: arena send -- "- hello"',
        ),
        (["--jsn", "hello"], "no such option: --jsn", "did you mean `--json`?"),
        (["hello", "--session"], "option '--session' requires an argument", ""),
    ],
)
def test_a_message_that_shells_and_options_took_apart(
    program: Program, tmp_path: Path, args: list[str], what: str, mend: str
) -> None:
    done = program.run("send", *args)
    assert done.code == 2
    assert done.stderr == f"arena: {what}\n" + (f"  {mend}\n" if mend else "")
    assert not (tmp_path / "sessions").exists()


def test_a_team_where_there_are_none(program: Program) -> None:
    program.run("send", "--team", "x", "hi").check(
        code=2,
        stdout="",
        stderr="arena: there is no team `x`\n"
        "  there is no file in agents/teams; without a team, every agent is in it\n",
    )


def test_debug_shows_where_an_error_came_from(program: Program) -> None:
    told = "arena: no member of this team is called 'x'\n"
    done = program.run("--debug", "send", "--to", "x", "hi")
    assert done.code == 2
    assert done.stderr.startswith("Traceback ")
    assert told in done.stderr
    word = program.run("send", "--to", "x", "--", "--debug")
    assert (word.code, word.stderr.partition("\n")[0] + "\n") == (2, told)


def test_json_and_quiet(program: Program) -> None:
    first = program.run("send", "-s", "s", "--json", "你好").check()
    assert first.stdout.encode() == program.transcript().read_bytes()
    second = program.run("send", "-s", "s", "--json", "again").check()
    assert (first.stdout + second.stdout).encode() == program.transcript().read_bytes()
    program.run("send", "-s", "s", "--quiet", "more").check(stdout="")
    assert len(program.finished()) == 3
    program.run("send", "-s", "s", "--quiet", "@nobody").check(stdout="")
    both = "arena: --json and --quiet were given\n  Give one of them.\n"
    program.run("resume", "s", "--quiet", "--json").check(code=2, stdout="", stderr=both)


def test_no_reply_says_why_for_each_member(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}, name="全栈开发", response={"keywords": ["db"]})
    program.agent("ops", {"say": "ok"}, response={"auto_respond": False})
    program.agent("shy", {"decline": True}, response={"keywords": ["hello", "world", "there"]})
    program.run("send", "hello world there, @bob").check(
        stdout="session SESSION · every agent\n"
        "\n"
        "TIME  user\n"
        "  hello world there, @bob\n"
        "  no member is called @bob\n"
        "\n"
        "── turn 1 · must reply: none\n"
        "  passed over: 全栈开发 (relevance 0 < 0.6)\n"
        "\n"
        "── turn 1 · may reply: shy\n"
        "TIME  shy · turn 1 B · N s · N tokens · declined\n"
        "\n"
        "══ no_reply · 0 replies in 1 turn · N tokens\n"
        "  全栈开发 (dev): relevance 0 < 0.6\n"
        "  ops: not asked (it answers only when it is named)\n"
        "  shy: declined\n"
        "  To call an agent, mention it in the message: @dev\n"
        "\n"
    )


def test_a_failed_chain_exits_3(program: Program) -> None:
    program.agent("dev", {"fail": "refused"})
    done = program.run("send", "-s", "s", "hello").check(code=3)
    assert "dev: refused to answer, as scripted" in done.stdout
    assert done.stdout.splitlines()[-2].startswith("══ failed · 0 replies in 1 turn")
    assert program.run("send", "-s", "s", "-q", "hello").check(code=3).stdout == ""


def test_a_team_of_every_kind_in_one_chain(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file(
        "bots.py",
        "def answer(input):\n"
        "    said = [one.content for one in input.messages if one.author_id == 'tool']\n"
        "    return f'{said[-1]} and then @boss'\n",
    )
    program.file(
        "tool.py",
        "import sys\n"
        "shown = sys.stdin.buffer.read().decode('utf-8')\n"
        "assert 'Be brief.' in shown and '你好' in shown\n"
        "sys.stdout.buffer.write('工具 ✓ @bot'.encode('utf-8'))\n",
    )
    tool = {"type": "cli", "command": [sys.executable, "tool.py"]}
    program.agent("tool", adapter=tool, role_prompt="Be brief.")
    program.agent("bot", adapter={"type": "python", "target": "bots.py:answer"})
    program.agent("boss", {"say": "done, @user"})
    program.team(selection="none")
    done = program.run("send", "-s", "s", "@tool 你好").check()
    assert program.finished() == [("tool", "success"), ("bot", "success"), ("boss", "success")]
    assert "\n  工具 ✓ @bot\n" in done.stdout
    assert "\n  工具 ✓ @bot and then @boss\n" in done.stdout
    assert "══ awaiting_human: user · 3 replies in 3 turns" in done.stdout
    assert list(tmp_path.rglob("processes/*.json")) == []


def test_the_repository_is_a_workspace_that_works(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.env["ARENA_WORKSPACE"] = str(ROOT)
    checked: dict[str, Any] = {"code": 0, "stderr": ""}
    program.run("agents", "check").check(**checked)
