"""`arena status`: lanes, budgets, breakers, decisions, waiting notes, for people and as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from product import columns
from program import Program, until

KEY = "sk-proj-" + "a1B2c3D4" * 6
SECRET = {"say": f"use {KEY}"}
USAGE = {"input_tokens": 40, "output_tokens": 2}


def status(program: Program, *args: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(program.run("status", *args, "--json").check().stdout)
    return document


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_session_has_its_budget_decisions_and_supervisor(program: Program) -> None:
    program.agent("dev", {"say": "ok", "usage": USAGE}, {"say": "ok", "usage": USAGE})
    answer = {"should_reply": ["dev"], "reason": "it knows"}
    first = {"when": {"turn": 1}, "say": json.dumps(answer)}
    program.agent("lead", first, {"say": '{"done": true}'}, member=False)
    bounds = {"session": 100_000, "day": 50_000}
    config = {"mode": "supervisor", "supervisor": "lead", "budget": {"tokens": bounds}}
    team = {"team": "crew", "members": ["dev"], "config": config}
    program.file("agents/teams/crew.yaml", json.dumps(team))
    program.file("arena.yaml", "team: crew\n")
    program.run("send", "-s", "s", "-q", "hi").check()
    (session,) = status(program)["sessions"]
    assert (session["mode"], session["supervisor"]) == ("supervisor", "lead")
    rows = {row["scope"]: row for row in session["budget"]}
    assert set(rows) == {"session", "day"}
    assert rows["session"]["used"] == rows["day"]["used"] >= 42
    assert session["decisions"] == [{"agent": "lead", "decisions": 2, "rejected": 0, "rate": 0.0}]
    assert session["all_decisions"] == {"decisions": 2, "rejected": 0, "rate": 0.0}
    text = program.run("status").check().stdout
    assert "  mode supervisor: lead decides which agents reply" in text
    row = rows["session"]
    assert f"  budget of the session: {row['used']:,} of 100,000 · {row['percent']} %\n" in text
    assert "  decisions: 2, 0 rejected (0 %)\n    lead: 2, 0 rejected (0 %)\n" in text


def test_the_day_is_that_of_all_sessions(program: Program) -> None:
    program.agent("dev", *[{"say": "ok", "usage": USAGE}] * 3)
    program.team(budget={"tokens": {"day": 10_000}})
    for name in ("a", "b"):
        program.run("send", "-s", name, "-q", "@dev hi").check()
    (row,) = status(program, "a")["sessions"][0]["budget"]
    assert (row["scope"], row["used"], row["bound"], row["percent"]) == ("day", 84, 10_000, 0)


def test_an_open_breaker_and_the_rejections_of_each_agent(program: Program) -> None:
    program.agent("dev", *[SECRET] * 4)
    program.agent("ops", {"say": "fine"})
    program.team(rules=["no_secrets"], failures=1, selection="none", corrections=1)
    program.run("send", "-s", "s", "-q", "@dev @ops go")
    (session,) = status(program)["sessions"]
    (breaker,) = session["breakers"]
    assert (breaker["agent"], breaker["state"]) == ("dev", "open")
    by_agent = {row["agent"]: row for row in session["decisions"]}
    assert (by_agent["dev"]["decisions"], by_agent["dev"]["rejected"]) == (2, 2)
    assert (by_agent["ops"]["decisions"], by_agent["ops"]["rejected"]) == (1, 0)
    assert session["all_decisions"] == {"decisions": 3, "rejected": 2, "rate": 0.6667}
    text = program.run("status").check().stdout
    assert "  dev is passed over until " in text
    assert "  decisions: 3, 2 rejected (67 %)\n" in text


def test_notes_that_wait_are_named_in_the_status_and_at_the_end_of_a_chain(
    program: Program,
) -> None:
    program.agent("dev", *[{"say": "ok"}] * 5).team()
    program.run("send", "-s", "s", "@dev hi").check()
    own, shared = "sessions/s/knowledge", "sessions/knowledge/pits"
    program.file(f"{own}/pit-cache.md", "---\ntitle: Cache\nkind: pit\nstatus: draft\n---\nx\n")
    program.run("send", "-s", "s", "@dev and again").check()
    waiting = "---\ntitle: Slow\nkind: pit\nstatus: pending_user\n---\nx\n"
    program.file(f"{own}/pit-slow.md", waiting)
    program.file(f"{shared}/slow-disk.md", waiting)
    problem = "session s: notes that wait for approval: pit-slow\n"
    program.run("send", "-s", "s", "@dev what else").check(stderr=problem)
    program.run("send", "-s", "s", "-q", "@dev be quiet").check()
    document = status(program)
    assert document["sessions"][0]["notes"] == ["pit-slow"]
    assert document["shared_notes"] == ["pits/slow-disk"]
    text = program.run("status").check().stdout
    assert "  notes that wait for approval: pit-slow\n" in text
    assert "\nshared notes that wait for approval: pits/slow-disk\n" in text


GATED = """\
import pathlib, sys, time
name = sys.argv[1]
sys.stdin.read()
pathlib.Path(f"{name}.started").write_text("")
while not pathlib.Path(f"{name}.go").exists():
    time.sleep(0.02)
print("done")
"""


def start(program: Program, agent: str) -> subprocess.Popen[bytes]:
    return program.start("send", "--session", f"of-{agent}", f"@{agent} go")


def test_a_lane_has_its_holder_and_those_that_wait_and_a_stopped_session_runs(
    program: Program,
) -> None:
    program.file("gated.py", GATED)
    for name in ("first", "second"):
        command = [sys.executable, "gated.py", name]
        program.agent(name, adapter={"type": "cli", "command": command})
    program.file("arena.yaml", "lanes: {main: 1}\n")
    first = start(program, "first")
    until((program.folder / "first.started").exists)
    second = start(program, "second")
    until(lambda: status(program)["lanes"][0]["waiting"])
    if hasattr(signal, "SIGSTOP"):
        os.kill(first.pid, signal.SIGSTOP)
    try:
        document = status(program)
        text = program.run("status").check().stdout
    finally:
        if hasattr(signal, "SIGCONT"):
            os.kill(first.pid, signal.SIGCONT)
    (lane,) = document["lanes"]
    assert (lane["name"], lane["bound"]) == ("main", 1)
    assert [place["session"] for place in lane["holders"]] == ["of-first"]
    assert [place["agent"] for place in lane["waiting"]] == ["second"]
    states = {session["session"]: session["state"] for session in document["sessions"]}
    assert states == {"of-first": "running", "of-second": "running"}
    (waits,) = (one for one in document["sessions"] if one["session"] == "of-second")
    agents = {agent["agent"]: agent["state"] for agent in waits["agents"]}
    assert agents == {"first": "idle", "second": "waiting"}
    lines = text.splitlines()
    assert "lane main · 1 of 1 places taken" in lines
    assert f"  first in session of-first since {clock_of(lane['holders'][0])}" in lines
    assert f"  waits: second in session of-second since {clock_of(lane['waiting'][0])}" in lines
    for name in ("first", "second"):
        program.file(f"{name}.go", "")
    assert [program.finish(running).code for running in (first, second)] == [0, 0]
    assert status(program)["lanes"][0]["holders"] == []


def clock_of(place: dict[str, Any]) -> str:
    return str(place["since"])[11:19]


def test_in_chinese_the_columns_are_aligned_and_fit_in_80(program: Program) -> None:
    program.env["ARENA_LANG"] = "zh"
    long_action = "部署到全部地区的生产环境，" * 12
    asks = {"action": "deploy", "detail": long_action}
    program.agent("发布", {"say": "好", "request": asks}, {"say": "又好"})
    program.agent("dev", {"say": "完成"})
    program.team(selection="none")
    assert program.run("send", "-s", "会话", "-q", "@发布 @dev 请发布").code == 4
    text = program.run("status").stdout
    assert "已暂停" in text
    assert "等待" in text
    rows = [line for line in text.splitlines() if " 自 " in line]
    assert len(rows) == 2
    begins = {columns.width_of(line[: line.index("自 ")]) for line in rows}
    assert len(begins) == 1
    assert all(columns.width_of(line) <= 80 for line in rows)
