"""`arena run` as a whole program: what it prints, what it leaves, how it exits."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from program import LIMIT_S, ROOT, Done, Program, until
from screen import Screen, chunks

SECONDS = re.compile(r"\b\d+\.\d+ s\b")
SESSION = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="a signal that one process sends another"
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A team of `dev`, who answers, `slow`, who takes its time, and `down`, who fails."""
    made = Program(tmp_path)
    made.agent("dev", {"say": "ok ✓"})
    made.agent("slow", {"say": "late", "delay_s": 600})
    made.agent("down", {"fail": "error"})
    made.team(selection="none")
    return made


@pytest.fixture
def shipped(tmp_path: Path) -> Program:
    """A copy of the workspace that the repository is."""
    for part in ("agents", "scenarios"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "arena.yaml", tmp_path)
    return Program(tmp_path)


def asks(program: Program, name: str, agent: str = "dev", turns: int = 1, **keys: Any) -> None:
    """A scenario that asks one agent; of more than one turn it fails."""
    steps = [{"send": f"@{agent} hi", "expect": {"turns": turns}}]
    program.scenario(json.dumps({"scenario": f"the {name}", **keys, "steps": steps}), name)


def plain(text: str) -> str:
    """What a run prints, without what differs from run to run."""
    for shape, name in ((SECONDS, "N s"), (SESSION, "SESSION"), (CLOCK, "TIME")):
        text = shape.sub(name, text)
    return text


def heads(done: Done) -> list[str]:
    """The line of each scenario, up to its title, and the summary."""
    lines = plain(done.stdout).splitlines()
    told = [line.split(" · ")[0] for line in lines[:-1] if " · scenarios/" in line]
    return [*told, lines[-1]]


def kept(program: Program) -> list[str]:
    return program.sessions()


def test_a_changed_routing_rule_fails_the_shipped_scenario(shipped: Program) -> None:
    tester = shipped.folder / "agents" / "tester.yaml"
    text = tester.read_text(encoding="utf-8")
    assert "threshold: 0.8" in text
    tester.write_text(text.replace("threshold: 0.8", "threshold: 0.3"), encoding="utf-8")
    path = shipped.folder / "scenarios" / "gdpr-breakdown.yaml"
    scenario = path.read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(scenario, 1) if "asked: [developer]" in text)
    done = shipped.run("run", "gdpr-breakdown").check(code=1)
    assert f"scenarios/gdpr-breakdown.yaml:{line}: asked\n" in done.stdout
    assert "expected: developer\n" in done.stdout
    assert "actual:   developer, tester\n" in done.stdout
    (asked,) = (text for text in done.stdout.splitlines() if "may reply" in text)
    assert "全栈开发" in asked
    assert "测试工程师" in asked
    assert done.stdout.splitlines()[-1].startswith("1 failed in ")
    (session,) = kept(shipped)
    assert f"the session is kept: arena show {session}\n" in done.stdout
    assert "全栈开发" in shipped.run("show", session).stdout


def test_explain_tells_the_worked_example_term_by_term(shipped: Program) -> None:
    done = shipped.run("run", "gdpr-breakdown", "--explain").check()
    assert done.stdout.startswith("passed  GDPR")
    for part in (
        "      @合规 → compliance (name)\n",
        "      developer: asked · 3 hits: 1 - 0.6^3 = 0.784 >= 0.6\n",
        "        认证 (keyword) in m6\n",
        "      tester: passed over · 1 hit: 1 - 0.6^1 = 0.4 < 0.8\n",
        "    turn 2 · must reply: tester (named by compliance, developer)\n",
    ):
        assert part in done.stdout
    assert kept(shipped) == []

    whole = json.loads(shipped.run("run", "gdpr-breakdown", "--explain", "--json").check().stdout)
    told = whole["scenarios"][0]["steps"][0]["reasons"]
    (judged,) = (one["others"] for one in told if "others" in one and one["turn"] == 1)
    assert [(one["agent"], one["decision"], one["relevance"]) for one in judged] == [
        ("developer", "asked", 0.784),
        ("tester", "passed over", 0.4),
    ]


def test_json_is_one_document_and_an_agent_error_exits_3(program: Program) -> None:
    program.scenario("scenario: ✓ 中文\nsteps: [{send: '@down hi', expect: {turns: 1}}]")
    done = program.run("run", "--json").check(code=3)
    whole = json.loads(done.stdout)
    assert (whole["error"], whole["exit_code"]) == (1, 3)
    (one,) = whole["scenarios"]
    assert one["scenario"] == "✓ 中文"
    assert one["steps"][0]["failures"][0]["agent"] == "down"
    assert one["steps"][0]["checks"][0]["line"] == 2
    assert "reasons" not in one["steps"][0]
    assert one["sessions"] == kept(program)


def test_a_gbk_pipe_changes_neither_the_verdict_nor_the_exit_code(program: Program) -> None:
    program.env = {"PYTHONIOENCODING": "gbk", "PYTHONUTF8": "0"}
    program.agent("dev", {"say": "✓ 好 👩‍🔬"})
    expect = "{turns: 9, timeline: [{agent: down}, {agent: slow, contains: 👩‍🔬}]}"
    program.scenario(f"scenario: 中文\nsteps: [{{send: '@dev hi', expect: {expect}}}]")
    done = program.run("run").check(code=1)
    assert "FAILED  中文" in done.stdout
    assert "\\U0001f469" in done.stdout


def test_the_locale_chooses_the_words_and_not_the_status(program: Program) -> None:
    asks(program, "a", turns=7)
    program.env = {"ARENA_LANG": "zh"}
    done = program.run("run").check(code=1)
    assert "FAILED  the a" in done.stdout
    assert "      期望：7\n      实际：1\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 failed（失败），用时 ")


@pytest.mark.parametrize(
    ("scenario", "args", "said"),
    [
        ("scenario: x\nstep: []", [], "scenarios/one.yaml:2: step: unknown key"),
        (None, [], "no scenario is selected"),
        ("scenario: x\nsteps: [{send: hi}]", ["two"], "there is no scenario `two`"),
        ("scenario: x\nagents: []\nsteps: [{send: hi}]", [], "a team needs a member"),
        (
            "scenario: x\ntags: [ui]\nsteps: [{send: hi}]",
            ["--tag", "iu"],
            "no scenario has the tag `iu`",
        ),
        ("scenario: x\nsteps: [{send: hi}]", ["-k", "not x"], "no scenario is selected"),
        ("scenario: x\nsteps: [{send: hi}]", ["-k", "x or not"], "-k: cannot read 'x or not'"),
        ("scenario: x\nsteps: [{send: hi}]", ["--list", "-k", "zzz"], "no scenario is selected"),
    ],
)
def test_wrong_use_exits_2_with_one_message_and_nothing_written(
    program: Program, scenario: str | None, args: list[str], said: str
) -> None:
    if scenario is not None:
        program.scenario(scenario)
    done = program.run("run", *args)
    assert done.code == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("arena: ") == 1
    assert not (program.folder / "sessions").exists()


@pytest.mark.parametrize("more", [[], ["--tag", "x"], ["-k", "x"], ["--list"]])
def test_a_folder_of_parts_that_others_include_says_so(program: Program, more: list[str]) -> None:
    for name in "abcd":
        program.scenario("expect: {turns: 1}", f"common/{name}")
    parts = ", ".join(f"scenarios/common/{name}.yaml" for name in "abcd")
    program.scenario(f"scenario: x\ninclude: [{parts}]\nsteps: [{{send: hi}}]")
    shown = parts.replace(", scenarios/common/d.yaml", " and 1 more")
    program.run("run", "scenarios/common", *more).check(
        code=2,
        stdout="",
        stderr=f"arena: no scenario is selected: only what others include, {shown}\n"
        "  name one that includes it; `arena run --list` shows all that can be played\n",
    )
    program.run("run", "zzz").check(
        code=2, stdout="", stderr="arena: there is no scenario `zzz`\n  known: one\n"
    )


@pytest.mark.parametrize("args", [["--jobs", "0"], ["--keep", "some"], ["--jobs", "x"]])
def test_a_wrong_option_exits_2(program: Program, args: list[str]) -> None:
    asks(program, "a")
    assert program.run("run", *args).code == 2


def test_faults_of_the_workspace_and_of_scenarios_are_told_together(program: Program) -> None:
    program.agent("dev", {"say": "ok"}, nmae="x")
    program.scenario("scenario: x\nstep: []")
    done = program.run("run")
    assert done.code == 2
    assert "agents/dev.yaml:1: nmae" in done.stderr
    assert "scenarios/one.yaml:2: step" in done.stderr


def test_a_workspace_without_agents_exits_2_and_writes_nothing(tmp_path: Path) -> None:
    bare = Program(tmp_path)
    bare.file("arena.yaml", "language: en\n")
    bare.scenario("scenario: x\nsteps: [{send: hi}]")
    done = bare.run("run")
    assert done.code == 2
    assert done.stderr.count("arena: ") == 1
    assert not (tmp_path / "sessions").exists()


def mixed(program: Program) -> None:
    """Scenarios of every kind, in the order of their names."""
    asks(program, "a")
    asks(program, "b", agent="down")
    asks(program, "c", turns=2, cases=[{"id": "one"}, {"id": "two", "skip": "later"}])
    asks(program, "d", turns=2, xfail="#412")
    asks(program, "e")
    asks(program, "f", turns=2)
    asks(program, "g")


def test_any_number_of_jobs_prints_the_same(program: Program) -> None:
    mixed(program)
    outputs = {plain(program.run("run", "--jobs", jobs).check(code=1).stdout) for jobs in "128"}
    assert len(outputs) == 1
    assert heads(program.run("run").check(code=1)) == [
        "passed  the a",
        "ERROR   the b",
        "FAILED  the c [one]",
        "skipped the c [two]",
        "xfailed the d",
        "passed  the e",
        "FAILED  the f",
        "passed  the g",
        "3 passed, 2 failed, 1 error, 1 skipped, 1 xfailed in N s",
    ]


def test_the_end_of_a_long_run_lists_what_went_wrong(program: Program) -> None:
    mixed(program)
    assert plain(program.run("run").check(code=1).stdout).splitlines()[-5:-1] == [
        "",
        "ERROR   scenarios/b.yaml:1: down: error · the b",
        "FAILED  scenarios/c.yaml:1: turns · the c [one]",
        "FAILED  scenarios/f.yaml:1: turns · the f",
    ]


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_fail_fast_prints_nothing_after_the_first_that_went_wrong(
    program: Program, jobs: str
) -> None:
    asks(program, "a")
    asks(program, "b", turns=2)
    for name in "cdef":
        asks(program, name, agent="slow")
    done = program.run("run", "--fail-fast", "--jobs", jobs).check(code=1)
    assert heads(done) == ["passed  the a", "FAILED  the b", "1 passed, 1 failed, 4 not run in N s"]
    (session,) = kept(program)
    assert session in done.stdout


@pytest.mark.parametrize(("keep", "count"), [("all", 5), ("failed", 2), ("none", 0)])
@pytest.mark.parametrize("jobs", ["1", "8"])
def test_keep_says_which_sessions_stay(program: Program, keep: str, count: int, jobs: str) -> None:
    asks(program, "a")
    asks(program, "b", agent="down")
    asks(program, "c", turns=2)
    asks(program, "d", turns=2, xfail="#412")
    asks(program, "e")
    asks(program, "f", skip="later")
    done = program.run("run", "--keep", keep, "--jobs", jobs).check(code=1)
    told = re.findall(r"the session is kept: arena show (\S+)", done.stdout)
    assert sorted(told) == kept(program)
    assert len(told) == count
    if told:
        assert "hi" in program.run("show", told[0]).check().stdout


def test_tags_and_words_choose(program: Program) -> None:
    asks(program, "a", tags=["ui", "quick"])
    asks(program, "b", tags=["ui"])
    asks(program, "c", tags=["api"], cases=[{"id": "eu"}, {"id": "us"}])
    asks(program, "d")
    for args, titles in (
        (["--tag", "ui"], ["a", "b"]),
        (["--tag", "quick", "--tag", "api"], ["a", "c [eu]", "c [us]"]),
        (["-k", "[eu] or b.yaml"], ["b", "c [eu]"]),
        (["-k", "not THE"], None),
        (["-k", "the and not the c"], ["a", "b", "d"]),
        (["--tag", "ui", "-k", "b.yaml"], ["b"]),
        (["c", "a"], ["c [eu]", "c [us]", "a"]),
    ):
        done = program.run("run", *args)
        assert done.code == (2 if titles is None else 0), args
        if titles is not None:
            assert heads(done)[:-1] == [f"passed  the {title}" for title in titles], args


def test_a_list_names_what_would_be_played_and_plays_nothing(program: Program) -> None:
    asks(program, "a", tags=["ui", "慢"])
    cases = [{"id": "eu"}, {"id": "us", "skip": "later"}, {"id": "uk", "xfail": "#412"}]
    asks(program, "b", cases=cases)
    program.run("run", "--list").check(
        stdout="""\
the a · scenarios/a.yaml · tags: ui, 慢
the b [eu] · scenarios/b.yaml
the b [us] · scenarios/b.yaml · skip: later
the b [uk] · scenarios/b.yaml · xfail: #412
"""
    )
    told = json.loads(program.run("run", "--list", "--json", "--tag", "ui").check().stdout)
    assert told == [
        {
            "scenario": "the a",
            "case": None,
            "file": "scenarios/a.yaml",
            "tags": ["ui", "慢"],
            "steps": 1,
            "skip": None,
            "xfail": None,
        }
    ]
    assert not (program.folder / "sessions").exists()


def begun(program: Program) -> int:
    """Return how many calls of `slow` have begun."""
    pattern = '"type":"reply_started"[^\n]*"agent":"slow"'
    return len(re.findall(pattern, program.written()))


@posix
def test_ctrl_c_prints_what_came_keeps_the_sessions_and_exits_130(program: Program) -> None:
    asks(program, "a")
    for name in "bcdef":
        asks(program, name, agent="slow")
    asks(program, "g")
    running = program.start("run", "--jobs", "4")
    until(lambda: begun(program) >= 4)
    running.send_signal(signal.SIGINT)
    done = program.finish(running)
    assert done.code == 130
    assert done.stderr == "arena: interrupted\n"
    *told, summary = heads(done)
    assert told[0] == "passed  the a"
    assert set(told[1:]) <= {f"INTERRUPTED the {name}" for name in "bcdef"}
    assert len(told) >= 4
    assert re.match(r"1 passed, \d interrupted, \d not run in N s", summary)
    sessions = re.findall(r"arena show (\S+)", done.stdout)
    assert sorted(sessions) == kept(program)
    assert len(sessions) == len(told) - 1
    assert "slow" in program.run("show", sessions[0]).check().stdout


@posix
def test_ctrl_c_with_json_is_a_whole_document(program: Program) -> None:
    asks(program, "a", agent="slow")
    running = program.start("run", "--json")
    until(lambda: begun(program))
    running.send_signal(signal.SIGINT)
    done = program.finish(running)
    assert done.code == 130
    whole = json.loads(done.stdout)
    assert (whole["exit_code"], whole["interrupted"]) == (130, 1)


class Watched:
    """A run whose stderr is a terminal, and whose stdout is, where it is not kept."""

    def __init__(self, program: Program, *args: str, keeps_stdout: bool, **env: str) -> None:
        import pty

        self.ours, theirs = pty.openpty()
        program.env = {"TERM": "xterm-256color", **env}
        stdout = subprocess.PIPE if keeps_stdout else theirs
        self.running = program.start(*args, stdin=theirs, stdout=stdout, stderr=theirs)
        os.close(theirs)
        self.raw = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for chunk in chunks(self.ours):
            self.raw += chunk

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")

    def end(self) -> tuple[str, bytes]:
        """What stands on the screen when it is over, and what went to stdout."""
        try:
            out, _ = self.running.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.communicate()
            raise
        self._reader.join(LIMIT_S)
        os.close(self.ours)
        screen = Screen(80)
        screen.write(self.text.replace("\r\n", "\n"))
        return screen.text, out or b""


@posix
@pytest.mark.parametrize("as_json", [True, False])
def test_a_progress_line_is_seen_and_then_gone(program: Program, *, as_json: bool) -> None:
    asks(program, "a", turns=2)
    asks(program, "b", agent="slow")
    args = ["run", "--json"] if as_json else ["run"]
    watched = Watched(program, *args, keeps_stdout=True)
    until(lambda: "1 of 2 · 1 failed · " in watched.text and "s · the b" in watched.text)
    watched.running.send_signal(signal.SIGINT)
    screen, out = watched.end()
    assert watched.running.returncode == 130
    assert screen == "arena: interrupted"
    told = out.decode("utf-8")
    assert "1 of 2" not in told
    assert "\x1b" not in told
    assert json.loads(told) if as_json else "INTERRUPTED the b" in told


@posix
def test_a_terminal_gets_colour_and_a_progress_line_that_leaves_no_trace(program: Program) -> None:
    asks(program, "a", turns=2)
    asks(program, "b", agent="slow")
    watched = Watched(program, "run", keeps_stdout=False)
    until(lambda: "s · the b" in watched.text)
    watched.running.send_signal(signal.SIGINT)
    screen, _ = watched.end()
    rows = plain(screen).splitlines()
    assert rows[0] == "FAILED  the a · scenarios/a.yaml · N s"
    assert rows[-2:] == ["1 failed, 1 interrupted in N s", "arena: interrupted"]
    assert "of 2" not in screen
    assert "\x1b[1m" in watched.text or "\x1b[1;" in watched.text


@posix
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_and_no_progress_where_they_are_not_wanted(
    program: Program, env: dict[str, str]
) -> None:
    asks(program, "a", turns=2)
    asks(program, "b", agent="slow")
    watched = Watched(program, "run", keeps_stdout=False, **env)
    until(lambda: begun(program))
    watched.running.send_signal(signal.SIGINT)
    screen, _ = watched.end()
    assert "FAILED  the a" in screen
    assert "\x1b" not in watched.text
    assert "of 2" not in watched.text


def test_a_session_that_a_scenario_left_is_not_the_last_one(program: Program) -> None:
    program.run("send", "-s", "mine", "@dev hello").check()
    asks(program, "x", turns=9)
    assert program.run("run").code == 1
    assert len(kept(program)) == 2
    assert "session mine" in program.run("send", "-c", "@dev again").check().stdout
    assert "session mine" in program.run("show").check().stdout
