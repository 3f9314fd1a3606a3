"""`arena run` as a whole program: what it prints, what it leaves, how it exits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stage import Stage

ROOT = Path(__file__).parent.parent
CODE = [sys.executable, "-m", "arena_cli"]


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARENA_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **more}


def arena(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CODE, *args],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        encoding=env.get("PYTHONIOENCODING", "utf-8"),
        timeout=60,
        check=False,
    )


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A copy of the workspace that the repository is."""
    for part in ("agents", "scenarios"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "arena.yaml", tmp_path)
    return tmp_path


def test_the_shipped_scenarios_pass_and_leave_no_session(shipped: Path) -> None:
    done = arena(shipped, "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    *lines, summary = done.stdout.splitlines()
    assert len(lines) == len(list((shipped / "scenarios").glob("*.yaml")))
    assert all(line.startswith("passed  ") for line in lines)
    assert summary.startswith(f"{len(lines)} passed in ")
    assert list((shipped / "sessions").iterdir()) == []


def test_a_changed_routing_rule_fails_the_shipped_scenario(shipped: Path) -> None:
    tester = shipped / "agents" / "tester.yaml"
    text = tester.read_text(encoding="utf-8")
    assert "threshold: 0.8" in text
    tester.write_text(text.replace("threshold: 0.8", "threshold: 0.3"), encoding="utf-8")
    scenario = (shipped / "scenarios" / "gdpr-breakdown.yaml").read_text(encoding="utf-8")
    line = scenario.splitlines().index("      asked: [developer]") + 1
    done = arena(shipped, "run", "gdpr-breakdown")
    assert done.returncode == 1
    assert f"scenarios/gdpr-breakdown.yaml:{line}: asked" in done.stdout
    assert "expected: developer\n" in done.stdout
    assert "actual:   developer, tester\n" in done.stdout
    (asked,) = (text for text in done.stdout.splitlines() if "may reply" in text)
    assert "全栈开发" in asked
    assert "测试工程师" in asked
    assert done.stdout.splitlines()[-1].startswith("1 failed in ")
    (kept,) = (shipped / "sessions").iterdir()
    assert "全栈开发" in arena(shipped, "show", kept.name).stdout


def test_json_is_one_document_and_an_agent_error_exits_3(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"fail": "error", "say": "✓"}).team()
    stage.scenario("scenario: ✓ 中文\nsteps: [{send: '@dev hi', expect: {turns: 1}}]")
    done = arena(tmp_path, "run", "--json")
    assert done.returncode == 3
    whole = json.loads(done.stdout)
    assert (whole["error"], whole["exit_code"]) == (1, 3)
    (one,) = whole["scenarios"]
    assert one["scenario"] == "✓ 中文"
    assert one["steps"][0]["failures"][0]["agent"] == "dev"
    assert one["steps"][0]["checks"][0]["line"] == 2
    assert one["session"] == next((tmp_path / "sessions").iterdir()).name


def test_a_gbk_pipe_changes_neither_the_verdict_nor_the_exit_code(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "✓ 好 👩‍🔬"}).team()
    stage.scenario("scenario: 中文\nsteps: [{send: '@dev hi', expect: {turns: 9}}]")
    done = arena(tmp_path, "run", PYTHONIOENCODING="gbk", PYTHONUTF8="0")
    assert done.returncode == 1, done.stderr
    assert "FAILED  中文" in done.stdout


@pytest.mark.parametrize(
    ("scenario", "args", "said"),
    [
        ("scenario: x\nstep: []", [], "scenarios/one.yaml:2: step: unknown key"),
        (None, [], "no scenario is selected"),
        ("scenario: x\nsteps: [{send: hi}]", ["two"], "there is no scenario `two`"),
        ("scenario: x\nagents: []\nsteps: [{send: hi}]", [], "a team needs a member"),
    ],
)
def test_wrong_use_exits_2_with_one_message_and_nothing_written(
    tmp_path: Path, scenario: str | None, args: list[str], said: str
) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "ok"}).team()
    if scenario is not None:
        stage.scenario(scenario)
    done = arena(tmp_path, "run", *args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("arena: ") == 1
    assert not (tmp_path / "sessions").exists()


def test_faults_of_the_workspace_and_of_scenarios_are_told_together(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "ok"}, nmae="x").team()
    stage.scenario("scenario: x\nstep: []")
    done = arena(tmp_path, "run")
    assert done.returncode == 2
    assert "agents/dev.yaml:1: nmae" in done.stderr
    assert "scenarios/one.yaml:2: step" in done.stderr


def test_a_workspace_without_agents_exits_2_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "arena.yaml").write_text("language: en\n", encoding="utf-8")
    Stage(tmp_path).scenario("scenario: x\nsteps: [{send: hi}]")
    done = arena(tmp_path, "run")
    assert done.returncode == 2
    assert done.stderr.count("arena: ") == 1
    assert not (tmp_path / "sessions").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a signal that one process sends another")
def test_ctrl_c_prints_the_result_so_far_and_exits_130(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "ok"})
    stage.agent("slow", {"say": "late", "delay_s": 30}).team()
    stage.scenario("scenario: first\nsteps: [{send: '@dev hi'}]", "a")
    stage.scenario("scenario: second\nsteps: [{send: '@slow hi'}]", "b")
    running = subprocess.Popen(
        [*CODE, "run"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with running:
        assert running.stdout is not None
        first = running.stdout.readline()
        while not any("slow" in text for text in begun(tmp_path)):
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        rest, problems = running.communicate(timeout=30)
    assert running.returncode == 130, problems
    assert first.startswith("passed  first")
    assert "INTERRUPTED  second" in rest
    assert "1 passed, 1 interrupted" in rest
    assert "Traceback" not in problems


def begun(folder: Path) -> list[str]:
    found = (folder / "sessions").glob("*/transcript.jsonl")
    lines = (line for path in found for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if '"reply_started"' in line]
