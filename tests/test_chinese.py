"""What a Chinese user sees: commands and errors in the language of the workspace."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import ShownMessage, language
from product import context_render as render
from program import Program

DBA = "agent_id: dba\nname: 数据库管理员\n"


@pytest.fixture
def chinese(tmp_path: Path) -> Program:
    """Return a Chinese workspace with two agents, for a user with an English locale."""
    program = Program(tmp_path, env={"ARENA_LANG": "", "LANG": "en_GB.UTF-8"})
    program.file("arena.yaml", "language: zh\n")
    program.agent("dev", {"say": "好的"}, name="开发", skills=["认证"])
    program.agent("ops", {"say": "收到"}, name="运维")
    return program


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["send"], 2, "arena: 消息是空的\n  请写一条消息，或附上文件。\n"),
        (["send", ""], 2, "arena: 消息是空的\n  请写一条消息，或附上文件。\n"),
        (["show", "没有"], 2, "arena: 没有会话 '没有'\n  `arena sessions` 列出所有会话。\n"),
        (["show"], 2, "arena: 没有可以继续的会话\n  先发一条消息：`arena send MESSAGE`。\n"),
        (
            ["send", "--strict", "@开法 你好"],
            2,
            "arena: 团队里没有叫 @开法 的成员\n  没有发送。请改正，或去掉 --strict。\n",
        ),
        (
            ["send", "--to", "x", "hi"],
            2,
            "arena: 团队里没有叫 'x' 的成员\n  可用的有：dev, ops\n",
        ),
        (
            ["agents", "test", "xx"],
            2,
            "arena: 没有名为 `xx` 的智能体\n  可用的有：dev, 开发, ops, 运维\n",
        ),
        (["agents", "find", "数学"], 1, "没有匹配的智能体；`arena agents` 列出全部及其技能\n"),
        (["run", "没有"], 2, "arena: 没有场景 `没有`\n"),
        (["sessions"], 0, '还没有会话；发一条消息开始：arena send "你好"\n'),
        (["export"], 2, "arena: 没有可以继续的会话\n  先发一条消息：`arena send MESSAGE`。\n"),
        (
            ["sen"],
            2,
            "arena: 没有命令 sen\n  你是想写 `send` 吗？\n",
        ),
        (
            ["send", "你好", "大家"],
            2,
            'arena: 多余的参数：大家\n  有空格的消息要加引号：arena send "大家好 早上好"\n',
        ),
    ],
)
def test_errors_follow_the_language_of_the_workspace(
    arguments: list[str], code: int, message: str, chinese: Program
) -> None:
    done = chinese.run(*arguments)
    assert (done.stderr, done.code) == (message, code)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{DBA}adapter: {{type: scripted, replies: [好]}}\nrespone: {{}}\n",
            "arena: agents/dba.yaml:4: respone: 没有这个键\n"
            "  respone: {}\n  ^\n  你是想写 `response` 吗？\n",
        ),
        (
            f"{DBA}adapter: {{type: scriptd}}\n",
            "arena: agents/dba.yaml:3: adapter.type: 没有 `scriptd` 这种适配器\n"
            "  adapter: {type: scriptd}\n                  ^\n  你是想写 `scripted` 吗？\n",
        ),
        (
            "agent_id：dba\nadapter: {type: scripted, replies: [好]}\n",
            "arena: agents/dba.yaml:1: `agent_id` 后面是全角冒号（：），YAML 要用半角冒号加空格\n"
            "  agent_id：dba\n          ^\n  应写成：agent_id: dba\n",
        ),
        (
            f"{DBA}adapter: {{type: scripted, replies: [{{say: 好}}]}}\nskills: unknown key\n",
            "arena: agents/dba.yaml:4: skills: 应该是列表，不是文本 `unknown key`\n"
            "  skills: unknown key\n          ^\n  应写成：skills: [unknown key]\n",
        ),
    ],
)
def test_an_error_of_a_file_is_chinese_and_quotes_the_line_as_it_is(
    text: str, message: str, chinese: Program
) -> None:
    chinese.file("agents/dba.yaml", text)
    chinese.run("agents", "check").check(code=2, stderr=message)


def test_a_workspace_that_cannot_be_read_still_has_its_language(chinese: Program) -> None:
    chinese.file("arena.yaml", "language: zh\nteem: x\n")
    done = chinese.run("doctor")
    assert done.stderr == (
        "arena: arena.yaml:2: teem: 没有这个键\n  teem: x\n  ^\n  你是想写 `team` 吗？\n"
    )


def test_the_commands_of_a_chinese_workspace(chinese: Program) -> None:
    chinese.agent("bad", adapter={"type": "cli", "command": ["no-such-program"]}, name="机器人")
    done = chinese.run("agents", "check")
    assert done.code == 1
    assert done.stdout == (
        "有问题 bad · PATH 里没有程序 no-such-program；请安装它，或在 `command` 里写它的路径\n"
        "正常   dev\n正常   ops\n"
    )
    chinese.run("send", "-s", "s", "@开发 决定：登录用 OIDC", "--quiet").check()
    assert chinese.run("agents", "find", "认证").stdout == (
        "开发 · @dev · scripted · 认证 · 命中：技能 认证\n"
    )
    assert "s · 所有成员 · quiet（无人待回复） · " in chinese.run("sessions").stdout
    listed = chinese.run("knowledge", "list").stdout
    assert listed == "decision-登录用-oidc · draft（草稿） · 登录用 OIDC\n"
    shown = chinese.run("knowledge", "show", "decision").stdout
    assert "重要性 " in shown
    assert "\n来源：m2\n" in shown
    exported = chinese.run("export").stdout
    assert exported.startswith("# 会话 s 的对话\n\n- team: 所有成员\n")
    assert "\n## user 对 dev · " in exported
    assert "\n## 合计\n" in chinese.run("export", "--audit").stdout
    assert chinese.run("doctor").stdout.splitlines()[2] == "会话 1 个"


def test_a_failed_call_is_chinese_on_the_screen_and_english_in_the_transcript(
    chinese: Program,
) -> None:
    chinese.agent("slow", {"fail": "timeout"}, name="慢")
    done = chinese.run("send", "-s", "s", "@slow 在吗")
    assert "  slow: 没有及时回答（按脚本）\n" in done.stdout
    transcript = chinese.run("show", "s", "--json").stdout
    finished = [json.loads(line) for line in transcript.splitlines()]
    errors = [event["error"] for event in finished if event.get("status") == "timeout"]
    assert errors == ["slow: no answer in time, as scripted"]


def test_what_people_decide_and_rules_refuse_is_chinese(chinese: Program) -> None:
    push = {"action": "execute_command", "detail": "git push"}
    chinese.agent("pusher", {"say": "已推送", "request": push, "asked": "等待批准"}, name="推送")
    rules = [{"max_chars": 2}, {"id": "own", "forbid": {"contains": "等"}, "error": "it failed"}]
    config = {"rules": rules, "corrections": 0}
    team = {"team": "t", "members": ["pusher"], "config": config}
    chinese.file("agents/teams/t.yaml", json.dumps(team))
    paused = chinese.run("send", "--team", "t", "-s", "s", "推送")
    assert paused.code == 4
    refused = '预期：最多 2 个字符；实际：4 个字符："等待批准"'
    assert f"  ! 推送 违反规则 max_chars：{refused}\n" in paused.stdout
    assert f"被规则 max_chars 拒绝：{refused}" in paused.stdout
    assert "  ! 推送 违反规则 own：it failed\n" in paused.stdout
    chinese.run("reject", "s", "1", "--because", "先测试: 再说").check()
    again = chinese.run("approve", "s", "1")
    assert re.fullmatch(
        r"arena: 请求 1 已有决定：user 于 \S+ 拒绝：先测试: 再说\n  用 `arena resume s` .*\n",
        again.stderr,
    )
    chinese.run("resume", "s")
    paused_agent = chinese.run("pause", "s", "--agent", "pusher")
    assert paused_agent.stdout == "pusher 从现在起暂停\n"


@pytest.mark.parametrize(
    ("setting", "environ", "expected"),
    [
        ("zh", {"LANG": "en_GB"}, "zh"),
        ("en", {"LANG": "zh_CN"}, "en"),
        ("", {"LANG": "zh_CN"}, "zh"),
        ("", {"LANG": "C"}, "en"),
        ("zh", {"ARENA_LANG": "en", "LANG": "zh_CN"}, "en"),
        ("en", {"ARENA_LANG": "zh", "LANG": "en_GB"}, "zh"),
    ],
)
def test_the_workspace_comes_before_the_locale(
    setting: str,
    environ: dict[str, str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f'# language: x\nteam: a\nlanguage: "{setting}" # b\n' if setting else "team: a\n"
    (tmp_path / "arena.yaml").write_text(text, encoding="utf-8")
    for name in ("ARENA_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    language.use_workspace(tmp_path)
    try:
        assert language.current_language() == expected
    finally:
        language.use_workspace(None)


SHOWN = """\
scenario: 部署
steps:
  - send: "@dev 部署"
    expect: {shown: {dev: [{contains: %s}]}}
"""


def test_agents_read_arenas_own_texts_in_the_language_of_the_workspace(chinese: Program) -> None:
    chinese.run("send", "-s", "s", "@开发 @运维 决定：登录用 OIDC", "--quiet").check()
    shown = chinese.run("show", "s", "--context", "--agent", "dev").stdout
    assert '\n你是 "开发" (@dev)，团队的一员。\n' in shown
    assert '\n# 团队\n- "运维" (@ops)\n' in shown
    assert '\n用户 "user" (@user)\n> @开发 @运维 决定：登录用 OIDC\n' in shown
    assert "\n你必须回复。请写出你的回复。\n" in shown
    chinese.file("arena.yaml", "redact: []\n")
    english = chinese.run("show", "s", "--context", "--agent", "dev").stdout
    assert '\nYou are "开发" (@dev), one of a team.\n' in english
    assert re.findall(r"[\u4e00-\u9fff]+", english.partition("# How to read")[2]) == [
        "开发",
        "运维",
        "决定",
        "登录用",
    ]


@given(frame=st.sampled_from(["agent", "human", "system"]), own=st.booleans(), data=st.data())
def test_a_message_has_one_line_of_arenas_in_each_language(
    frame: str, own: bool, data: st.DataObject
) -> None:
    text = data.draw(st.text(min_size=1))
    message = ShownMessage(
        id="m1",
        session_id="s",
        author_id="dev",
        author_name="开发",
        author_type=frame,
        content=text,
        timestamp="2026-01-01T00:00:00Z",
        role="assistant" if own else "user",
    )
    english, chinese = (render.frame(message, code).partition("\n") for code in ("en", "zh"))
    assert english[1:] == chinese[1:]
    assert english[0].partition(" ")[2] == chinese[0].partition(" ")[2]
    author = {"agent": "成员", "human": "用户", "system": "系统"}[frame]
    assert chinese[0].partition(" ")[0] == ("你" if own else author)


def test_a_recording_keeps_the_language_it_was_recorded_with(chinese: Program) -> None:
    """A recording that names none is English, as all were before."""
    chinese.file("scenarios/d.yaml", SHOWN % "你必须回复")
    chinese.run("run", "d", "--record").check(stdout=None)
    (recording,) = (chinese.folder / "scenarios").rglob("*.jsonl")
    text = recording.read_text(encoding="utf-8")
    assert '"frame":"zh"' in text
    chinese.run("run", "d", "--replay").check()
    chinese.file("arena.yaml", "language: en\n")
    chinese.run("run", "d", "--replay").check()
    chinese.file("scenarios/d.yaml", SHOWN % "Write your reply")
    chinese.run("run", "d", "--record").check()
    assert '"frame"' not in recording.read_text(encoding="utf-8")
    chinese.file("arena.yaml", "language: zh\n")
    chinese.run("run", "d", "--replay").check()


def test_a_failing_scenario_says_in_chinese_what_was_expected(chinese: Program) -> None:
    chinese.file(
        "scenarios/d.yaml",
        "scenario: 部署\nsteps:\n"
        '  - send: "@dev 部署"\n'
        "    expect: {replies: {dev: [{contains: contains 好}, {max_chars: 1}]}}\n",
    )
    done = chinese.run("run", "d", "--html", "page.html")
    assert done.code == 1
    page = (chinese.folder / "page.html").read_text(encoding="utf-8")
    for text in (
        '包含 "contains 好"',
        'dev，第 1 轮：没有 "contains 好"："好的"',
        "最多 1 个字符",
        'dev，第 1 轮：2 个字符："好的"',
    ):
        assert text in done.stdout
        assert text.replace('"', "&#34;") in page or text in page


def test_every_report_explains_a_failure_in_chinese(tmp_path: Path) -> None:
    program = Program(tmp_path).agent("dev", "状态页：正在调查").agent("ops", {"fail": "timeout"})
    program.env["ARENA_LANG"] = "zh"
    program.file(
        "scenarios/s.yaml",
        'scenario: 失败\nsteps:\n  - send: "@dev @ops 在吗"\n'
        "    expect:\n"
        "      turns: {min: 2}\n"
        "      silent: [dev]\n"
        "      replies: {dev: [{contains: 不存在}, {not_contains: 正在}]}\n",
    )
    args = ("run", "--junit", "j.xml", "--html", "p.html", "--github")
    done = program.run(*args)
    assert done.code == 3
    reports = [done.stdout, done.stderr] + [
        html.unescape((tmp_path / name).read_text(encoding="utf-8")) for name in ("j.xml", "p.html")
    ]
    for report in reports:
        for text in ("至少 2", "dev 保持沉默", '包含 "不存在"', "没有及时回答（按脚本）"):
            assert text in report, text
        for text in ("at least 2", "dev silent", "contains", "no answer in time"):
            assert text not in re.sub(
                r"replies\.\S+|<script.*?</script>", "", report, flags=re.DOTALL
            ), text
