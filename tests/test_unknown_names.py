"""Names that no member has, sessions that nearly exist, and the way to answer as a human."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from product import session_store as store
from program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("developer", {"say": "@teseter 请看, @maya 请批准"}, name="开发工程师")
    program.agent("tester", {"say": "ok"})
    program.agent("ops", {"say": "ok"}, name="运维")
    program.file(
        "agents/teams/crew.yaml",
        "team: crew\nmembers: [developer, tester]\nhumans: [{id: maya}, {id: li, name: 李 雷}]\n"
        "config: {selection: none}\n",
    )
    program.file("arena.yaml", "team: crew\n")
    return program


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("@develper hi", "no member is called @develper (did you mean @developer?)"),
        ("@开发工程 hi", "no member is called @开发工程 (did you mean @开发工程师?)"),
        ("@develper @bob", "no member is called @develper, @bob (did you mean @developer?)"),
        ("@bob hi", "no member is called @bob"),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(program: Program, text: str, line: str) -> None:
    for options in ((), ("--dry-run",)):
        done = program.run("send", *options, text)
        assert f"  {line}\n" in done.stdout
        assert (done.code, done.stderr) == (0, "")


def test_a_name_in_a_reply_gets_the_nearest_one_on_every_report(program: Program) -> None:
    done = program.run("send", "-s", "a", "@developer hi")
    near = "no member is called @teseter (did you mean @tester?)"
    assert near in done.stdout
    program.run("show", "a", "--html", "a.html").check(stdout=None)
    assert near in (program.folder / "a.html").read_text(encoding="utf-8")
    program.env["ARENA_LANG"] = "zh"
    chinese = program.run("show", "a").stdout
    assert "没有名为 @teseter 的成员（你是想写 @tester 吗？）" in chinese


def test_a_near_name_is_a_warning_where_no_timeline_shows_it(program: Program) -> None:
    for option in ("--quiet", "--json"):
        done = program.run("send", option, "@develper hi")
        assert done.code == 0
        assert program.run("send", option, "@nobody hi").stderr == ""
        warning = "no member of this team is called @develper: did you mean @developer?"
        assert done.stderr == f"warning: {warning}\n"


def test_strict_sends_nothing_to_an_unknown_name(program: Program) -> None:
    done = program.run("send", "--strict", "-s", "a", "@developer @develper @bob hi")
    assert (done.code, done.stdout) == (2, "")
    assert "@develper: did you mean @developer?" in done.stderr
    assert "no member of this team is called @develper, @bob" in done.stderr
    assert not (program.folder / "sessions" / "a").exists()
    assert program.run("send", "--strict", "@developer hi").code == 0


@pytest.mark.parametrize("name", ["ops", "运维", "[运维]"])
def test_an_agent_outside_of_the_team_is_named_as_such(program: Program, name: str) -> None:
    done = program.run("send", f"@{name} hi")
    assert done.code == 0
    assert done.stderr == (
        f"warning: no member of this team is called @{name.strip('[]')}: agent ops is not in team "
        "crew; add it to `members` in agents/teams/crew.yaml\n"
    )


def test_an_agent_that_is_no_member_of_any_team_is_named_as_such(program: Program) -> None:
    program.file("arena.yaml", "language: en\n")
    program.agent("judge", {"say": "ok"}, member=False)
    done = program.run("send", "@judge hi")
    assert "agent judge is no member: its profile says `member: false`" in done.stderr


def test_a_question_to_a_human_says_how_to_answer(program: Program) -> None:
    done = program.run("send", "@developer hi")
    assert '\n  to answer: arena send -c --from maya "..."\n' in done.stdout
    assert "to answer" not in program.run("show").stdout
    program.agent("developer", {"say": "@user @李 雷 ?"})
    done = program.run("send", "@developer hi")
    assert '\n  to answer: arena send -c "..."\n' in done.stdout
    assert '\n  to answer: arena send -c --from li "..."\n' in done.stdout
    answer = program.run("send", "-c", "--from", "li", "好")
    assert answer.code == 0
    assert "李 雷\n  好" in answer.stdout


@pytest.mark.parametrize(
    ("names", "name", "near"),
    [
        (["plan"], "plann", "plan"),
        (["周一计划"], "周一计画", "周一计划"),
        (["day-1"], "day-2", None),
        (["plan"], "review", None),
        (["20260101-120000-abcd"], "20260101-120000-abce", None),
    ],
)
def test_a_session_near_an_existing_one_is_a_warning(
    program: Program, names: list[str], name: str, near: str | None
) -> None:
    for existing in names:
        assert program.run("send", "-s", existing, "@tester hi").code == 0
    done = program.run("send", "-s", name, "@tester hi")
    assert done.code == 0
    warning = f"warning: session {name} is new; did you mean {near}?\n" if near else ""
    assert done.stderr == warning
    assert json.loads(program.run("sessions", "--json").stdout)
    assert program.run("send", "-s", name, "@tester hi").stderr == ""
    assert store.find(program.folder, name).name == name
