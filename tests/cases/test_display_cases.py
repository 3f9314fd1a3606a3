"""Cases from the field: what is shown draws, steers and breaks nothing (C45, the timeline)."""

from __future__ import annotations

import json
from pathlib import Path

from program import Program

SAID = """\
NUL \0, noncharacter \ufffe, escape \x1b[31mred\x1b]0;title\x07, turned \u202eback
::stop-commands::t
  ::error file=x::told
##[error]told
##vso[task.complete]done
x%0A::warning::y
[bold red]no markup[/] <img src=x onerror=alert(1)> & "quotes"
two\rone
"""
SHOWN = """\
  NUL \\x00, noncharacter \\ufffe, escape \\x1b[31mred\\x1b]0;title\\x07, turned \\u202eback
  \\::stop-commands::t
    \\::error file=x::told
  ##\\[error]told
  ##vso\\[task.complete]done
  x%0A::warning::y
  [bold red]no markup[/] <img src=x onerror=alert(1)> & "quotes"
  two\\rone
"""


def test_c45_agent_text_is_escaped_not_stripped(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", name="dev [b]x", adapter={"type": "python", "target": "bot.py:answer"})
    program.file("bot.py", f"def answer(input):\n    return {SAID!a}\n")
    done = program.run("send", "-s", "s", "::error::me\x1b[2J").check()
    assert SHOWN in done.stdout
    assert "\n  \\::error::me\\x1b[2J\n" in done.stdout
    assert "dev [b]x (dev) · turn 1 A" in done.stdout
    for line in done.stdout.splitlines():
        assert not line.strip().startswith(("::", "##[", "##vso["))
        assert line.isprintable()
    assert program.run("show", "s").check().stdout == done.stdout
    (reply,) = (one for one in program.records() if one["type"] == "reply_finished")
    assert reply["message"]["content"] == SAID


def test_c45_errors_are_escaped_too(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.program("dev", "err", "::stop-commands::t\\n\x1b[31mred", "exit", "1")
    done = program.run("send", "hello").check(code=3)
    assert "stop-commands" in done.stdout
    for line in done.stdout.splitlines():
        assert not line.strip().startswith("::")
        assert line.isprintable()


def test_c45_a_gbk_pipe_changes_neither_the_text_nor_the_code(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "✓ 好的 👩‍🔬 @ops"}, name="开发 ✓")
    program.agent("ops", {"fail": "error", "say": "✓"}, on_failure="abort")
    plain = program.run("send", "-s", "s", "@dev 请看 ✓")
    program.env["PYTHONIOENCODING"] = "gbk"
    gbk = program.run("send", "-s", "t", "@dev 请看 ✓")
    assert gbk.code == plain.code == 3
    assert gbk.stderr == plain.stderr == ""
    escaped = plain.normal(plain.stdout).replace("✓", "\\u2713")
    for char in ("👩", "\u200d", "🔬"):
        escaped = escaped.replace(char, char.encode("ascii", "backslashreplace").decode())
    assert gbk.normal(gbk.stdout) == escaped.replace("session s ", "session t ")
    assert program.run("show", "s").check().stdout.count("\\u2713") == escaped.count("\\u2713")
    assert program.run("agents").check().stdout.startswith("开发 \\u2713 · @dev")
    (listed, _) = json.loads(program.run("agents", "--json").check().out.decode("utf-8"))
    assert listed["name"] == "开发 ✓"


def test_c45_what_a_gbk_console_has_not_is_left_out_of_faces_and_escaped_in_data(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    tasks = {"type": "task_list", "data": [{"title": "✓ 写\x1b[31m", "done": True}, "::error::x"]}
    said = {"say": "好", "structured": [tasks]}
    program.agent("dev", said, name="开发", avatar="👩‍🔬")
    assert "  👩‍🔬 开发 (dev) · " in program.run("send", "-s", "s", "@dev 请看").check().stdout
    program.env["PYTHONIOENCODING"] = "gbk"
    gbk = program.run("send", "-s", "t", "@dev 请看").check().stdout
    assert "  开发 (dev) · " in gbk
    assert "    [x] \\u2713 写\\x1b[31m\n    [ ] \\::error::x\n" in gbk
