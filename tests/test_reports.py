"""The reports of `arena run`: refused before anything runs, written whole whatever comes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import ANY
from xml.etree import ElementTree

import pytest
from program import Program, until

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and devices of POSIX")

SCENARIO = """scenario: the {name}
steps:
  - send: "@{agent} hi"
    expect: {{replied: [{agent}]}}
"""
FAILS = "scenario: it fails\nsteps:\n  - send: '@dev hi'\n    expect: {end: failed}\n"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A workspace whose `dev` answers, and whose `slow` does not."""
    program = Program(tmp_path)
    program.agent("dev", {"say": "done"})
    program.agent("slow", {"say": "late", "delay_s": 600})
    program.team()
    program.scenario(SCENARIO.format(name="first", agent="dev"), "a")
    return program


def suites(path: Path) -> list[tuple[str, str]]:
    """(name, status) of each suite; `arena` is for what ended the run."""
    return [
        (
            suite.attrib["name"],
            next(
                (
                    one.attrib["value"]
                    for one in suite.iter("property")
                    if one.attrib["name"] == "status"
                ),
                "error",
            ),
        )
        for suite in ElementTree.parse(path).getroot()
    ]


def test_several_reports_at_once_in_folders_that_are_made(program: Program) -> None:
    program.scenario(FAILS, "b")
    summary = program.file("summary.md", "before\n")
    program.env["GITHUB_STEP_SUMMARY"] = str(summary)
    program.env["GITHUB_WORKSPACE"] = str(program.folder.parent)
    args = ["--junit", "out/deep/j.xml", "--html", "out/page.html", "--github", "--json"]
    done = program.run("run", *args)
    assert done.code == json.loads(done.stdout)["exit_code"] == 1
    assert suites(program.folder / "out/deep/j.xml") == [
        ("the first", "passed"),
        ("it fails", "failed"),
    ]
    page = (program.folder / "out/page.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert "the first" in page
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"::error file={program.folder.name}/scenarios/b.yaml,line=4,title=")
    written = summary.read_text(encoding="utf-8")
    assert written.startswith("before\n### arena: 1 passed, 1 failed")
    assert sorted(path.name for path in (program.folder / "out").rglob("*")) == [
        "deep",
        "j.xml",
        "page.html",
    ]


def test_a_report_replaces_the_one_that_was_there_as_a_whole(program: Program) -> None:
    report, reading = program.folder / "j.xml", program.folder / "read-meanwhile"
    program.run("run", "--junit", "j.xml").check()
    before = report.read_bytes()
    reading.hardlink_to(report)
    program.scenario(FAILS, "b")
    program.run("run", "--junit", "j.xml").check(code=1)
    assert b"it fails" in report.read_bytes()
    assert reading.read_bytes() == before


REFUSED = [
    (["--junit", "-"], "--junit writes a file, and `-` is stdout"),
    (["--junit", ""], "--junit: . is a folder"),
    (["--html", "scenarios"], "--html: scenarios is a folder"),
    (["--junit", "arena.yaml/j.xml"], "--junit: cannot write arena.yaml/j.xml: "),
    (["--junit", "x", "--html", "scenarios/../x"], "--junit and --html are one file: "),
    (
        ["--junit", "scenarios/a.yaml"],
        "--junit: scenarios/a.yaml already exists and is not a report",
    ),
    (["--junit", "x" * 400], "--junit: cannot write xxx"),
]


@pytest.mark.parametrize(("args", "told"), REFUSED)
def test_what_cannot_be_written_is_told_before_anything_runs(
    program: Program, args: list[str], told: str
) -> None:
    before = (program.folder / "scenarios/a.yaml").read_bytes()
    done = program.run("run", *args)
    assert done.code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"arena: {told}")
    assert len(done.stderr.splitlines()) == 2
    assert not (program.folder / "sessions").exists()
    assert (program.folder / "scenarios/a.yaml").read_bytes() == before


@posix
def test_a_place_that_may_not_be_written_is_told_before_anything_runs(program: Program) -> None:
    folder = program.folder / "closed"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("whoever runs this may write everywhere")
    done = program.run("run", "--junit", "closed/j.xml")
    assert done.code == 2
    assert "cannot write closed/j.xml: Permission denied" in done.stderr


def test_a_step_summary_that_cannot_be_written_is_told_too(program: Program) -> None:
    program.env["GITHUB_STEP_SUMMARY"] = str(program.folder / "scenarios")
    done = program.run("run", "--github")
    assert done.code == 2
    assert "GITHUB_STEP_SUMMARY: cannot write " in done.stderr
    assert not (program.folder / "sessions").exists()


def test_without_a_step_there_are_annotations_only(program: Program) -> None:
    program.scenario(FAILS, "b")
    done = program.run("run", "--github")
    assert done.code == 1
    assert done.stderr.startswith("::error file=scenarios/b.yaml,line=4,title=it fails::end%0A")
    assert "::error" not in done.stdout


@posix
def test_ctrl_c_leaves_whole_reports_of_what_came_until_then(program: Program) -> None:
    program.scenario(SCENARIO.format(name="second", agent="slow"), "b")
    program.scenario(SCENARIO.format(name="third", agent="dev"), "c")
    running = program.start("run", "--junit", "j.xml", "--html", "page.html", "--github")
    until(lambda: '"agent":"slow"' in program.written())
    running.send_signal(signal.SIGINT)
    done = program.finish(running)
    assert done.code == 130
    assert suites(program.folder / "j.xml") == [
        ("the first", "passed"),
        ("the second", "interrupted"),
    ]
    page = (program.folder / "page.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert (
        done.stderr == "::error file=scenarios/b.yaml,line=1,title=the second::it was cut short\n"
        "arena: interrupted\n"
    )


def test_an_error_that_ends_the_run_stands_in_the_reports(program: Program) -> None:
    program.file("sessions", "no folder")
    done = program.run("run", "--junit", "j.xml", "--github")
    assert done.code != 0
    assert suites(program.folder / "j.xml") == [("arena", "error")]
    first, *rest = done.stderr.splitlines()
    assert first.startswith("::error title=arena::")
    assert rest[0].startswith("arena: ")


def test_a_report_that_is_refused_in_the_end_leaves_the_old_one_and_the_others(
    program: Program,
) -> None:
    """An agent takes the folder away meanwhile."""
    taking = "import shutil\ndef answer(input):\n    shutil.rmtree('out')\n    return 'done'\n"
    program.file("bot.py", taking)
    program.agent("bot", adapter={"type": "python", "target": "bot.py:answer"})
    program.team()
    program.scenario(SCENARIO.format(name="last", agent="bot"), "z")
    done = program.run("run", "--junit", "out/j.xml", "--html", "page.html")
    assert done.code == 5
    assert "2 passed" in done.stdout
    assert "j.xml: could not write: No such file or directory" in done.stderr
    assert (program.folder / "page.html").exists()


@posix
def test_a_device_is_written_to_and_a_link_is_followed(program: Program) -> None:
    (program.folder / "link.xml").symlink_to("real.xml")
    program.run("run", "--junit", "link.xml", "--html", "/dev/null").check()
    assert Path("/dev/null").is_char_device()
    assert (program.folder / "link.xml").is_symlink()
    assert suites(program.folder / "real.xml") == [("the first", "passed")]
    program.file("empty.xml", "")
    args = ("run", "--junit", "empty.xml", "--html", "/dev/null")
    program.run(*args, stdout=subprocess.DEVNULL).check()
    assert suites(program.folder / "empty.xml") == [("the first", "passed")]


@posix
def test_a_report_never_takes_the_place_of_stdout_nor_waits_for_a_reader(program: Program) -> None:
    os.mkfifo(program.folder / "pipe")
    refused = [program.run("run", "--junit", "pipe"), program.run("run", "--html", "/dev/stdout")]
    with (program.folder / "out.txt").open("w") as out:
        refused += [
            program.run("run", "--junit", to, stdout=out) for to in ("out.txt", "/dev/fd/1")
        ]
    assert [(one.code, one.stderr.splitlines()[0]) for one in refused] == [
        (2, "arena: --junit: pipe is a pipe"),
        (2, "arena: --html writes a file, and `/dev/stdout` is stdout"),
        (2, "arena: --junit writes a file, and `out.txt` is stdout"),
        (2, "arena: --junit writes a file, and `/dev/fd/1` is stdout"),
    ]
    assert not (program.folder / "sessions").exists()


def test_all_reports_count_alike(program: Program) -> None:
    """Of one result: each status, each kind of count, a file of several cases."""
    steps = "steps: [{send: '@dev hi', expect: {end: %s}}]\n"
    for name, text in {
        "b": "scenario: b\ncases: [{id: x}, {id: y, skip: later}]\n" + steps % "failed",
        "c": "scenario: c\nxfail: '#1'\n" + steps % "failed",
        "d": "scenario: d\nxfail: '#2'\n" + steps % "quiet",
        "e": "scenario: e\nsteps: [{send: '@bad hi', expect: {turns: 1}}]\n",
        "f": "scenario: f\n"
        "steps: [{send: '@dev hi', expect: {replies: {dev: [{judge: x, level: warn}, "
        "{contains: no, level: warn}]}}}]\n",
        "g": "scenario: g\n" + steps % "quiet",
        "h": "scenario: h\n" + steps % "quiet",
    }.items():
        program.scenario(text, name)
    program.agent("bad", {"fail": "error"})
    program.agent("judge", {"say": "prose"}, member=False)
    program.team()
    program.file("agents/teams/crew.yaml", "team: crew\nmembers: [dev, slow, bad]\n")
    program.file("arena.yaml", "team: crew\ndefaults: {judge: judge}\n")
    program.run("run", "g", "--record").check(stdout=None)
    program.agent("dev", {"say": "done"}, role_prompt="another")
    summary = program.folder / "summary.md"
    program.env |= {"GITHUB_STEP_SUMMARY": str(summary), "CI": "true"}
    args = ("--junit", "j.xml", "--html", "p.html", "--github")
    told = json.loads(program.run("run", "--json", *args).check(code=1, stderr=ANY).stdout)
    statuses = Counter(one["status"] for one in told["scenarios"])
    assert dict(statuses) == {"passed": 2, "failed": 3, "skipped": 1, "xfailed": 1, "error": 2}
    assert statuses == {name: told[name] for name in statuses}
    assert (told["drifted"], told["judge_errors"], told["modes"]) == (
        1,
        1,
        {"live": 7, "replay": 1},
    )
    text = re.sub(r"in [\d.]+ s", "", program.run("run").stdout.splitlines()[-1])
    assert text == (
        "2 passed, 2 failed, 1 failed only by drift, 2 errors, 1 skipped, 1 xfailed, 1 warning, "
        "1 judge error "
        " · 7 live, 1 replayed"
    )
    head = summary.read_text(encoding="utf-8").splitlines()[0]
    assert re.sub(r"in [\d.]+ s", "", head) == f"### arena: {text}"
    assert Counter(status for _, status in suites(program.folder / "j.xml")) == statuses
    figures = (
        (program.folder / "p.html").read_text(encoding="utf-8").partition('class="figures">')[2]
    )
    plain = " ".join(re.sub("<[^>]*>", " ", figures.partition("</p>")[0]).split())
    assert plain.startswith(
        "2 passed 2 failed 1 failed only by drift 2 error 1 skipped 1 xfailed 1 warning "
        "1 judge error"
    )
    assert "7 live 1 replayed" in plain


def test_nothing_is_left_where_the_run_is_refused(program: Program) -> None:
    done = program.run("run", "nobody", "--junit", "out/j.xml")
    assert done.code == 2
    assert not (program.folder / "out").exists()


LOGS = ("j.xml", "summary.md")
HOSTILE = """::stop-commands::t
  ::set-output name=x::1
##[command]x ##vso[task.x]y
<img src=x onerror=y>\0"""


def test_c45_no_report_takes_an_agent_at_its_word(program: Program) -> None:
    """What it says is in all of them, in what was expected, and in what drifted."""
    program.file("bot.py", f"def answer(input):\n    return {HOSTILE!a}\n")
    adapter = {"type": "python", "target": "bot.py:answer"}
    program.agent("bot", adapter=adapter, role_prompt="a")
    program.team()
    title = HOSTILE.replace("\0", "")
    steps = [{"send": "@bot hi", "expect": {"replies": {"bot": [{"contains": title}]}}}]
    program.scenario(json.dumps({"scenario": title, "steps": steps}), "a")
    program.run("run", "--record").check(stdout=None)
    program.agent("bot", adapter=adapter, role_prompt=f"a\n{title}")
    steps[0]["expect"] = {"replies": {"bot": [{"equals": title}]}}
    program.scenario(json.dumps({"scenario": title, "steps": steps}), "a")
    program.env["GITHUB_STEP_SUMMARY"] = str(program.folder / "summary.md")
    done = program.run("run", "--replay", "--github", "--junit", "j.xml", "--html", "p.html")
    assert done.code == 1
    logs = [done.stdout, *(program.folder.joinpath(name).read_text("utf-8") for name in LOGS)]
    for text in logs:
        assert "stop-commands" in text
        assert not any(line.strip().startswith("::") for line in text.splitlines())
        assert not re.search(r"##\w*\[", text)
        assert "\0" not in text
    commands = done.stderr.splitlines()
    printed = program.run("run", "--replay", "--json").stdout
    assert "##" not in printed
    assert json.loads(printed)["scenarios"][0]["scenario"] == title
    assert len(commands) == 2
    assert all(re.match(r"::error file=scenarios/a\.yaml,line=\d+,title=", one) for one in commands)
    assert not re.search(r"##\w*\[", done.stderr)
    for name in ("summary.md", "p.html"):
        assert "<img" not in program.folder.joinpath(name).read_text("utf-8")
