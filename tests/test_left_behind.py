"""Nothing of an agent is left running, whatever ends the call or arena: the whole program.

What runs is found by its HOME, which is a folder of the test's own: wherever it went to, even into
a session of its own, whoever its parent is now.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agent_programs
import llmock_server
import psutil
import pytest
from program import ROOT, Program, growing_limits, until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="reads the environment of other processes, kills with SIGKILL"
)

LEAVES = ROOT / "tests" / "programs" / "leaves.py"
JSON_LINES = {"prompt": "json", "output": "jsonl", "where": {"type": "result"}}
KINDS: dict[str, dict[str, Any]] = {
    "one call": {"type": "cli", "command": [sys.executable, str(LEAVES)], **JSON_LINES},
    "kept alive": {
        "type": "cli",
        "command": [sys.executable, str(LEAVES)],
        "keep_alive": True,
        **JSON_LINES,
    },
    "python": {"type": "python", "target": f"{LEAVES}:answer"},
    "acp": {"type": "acp", "command": [sys.executable, str(LEAVES), "acp"]},
}
REAL = {"claude_code": "claude", "opencode": "opencode", "pi": "pi"}


@pytest.fixture(params=KINDS)
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    """`a` is an agent of this kind, which starts programs of its own."""
    made = Program(tmp_path)
    made.agent("a", adapter=KINDS[request.param], retries=0)
    made.agent("b", "here")
    made.team()
    return made


@pytest.fixture(params=REAL)
def real(tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    """`a` is a real program, whose model answers nothing before the test is over."""
    if shutil.which(REAL[request.param]) is None:
        pytest.skip(f"{REAL[request.param]} is not on PATH")
    api, made = llmock_server.fresh(), Program(tmp_path)
    url = api.base_url("anthropic")
    models = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "k", "models": [{"id": "m"}]}
    made.file(".pi/agent/models.json", json.dumps({"providers": {"mock": models}}))
    options = {"baseURL": api.base_url("openai"), "apiKey": "k"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}
    made.file(".config/opencode/opencode.json", json.dumps({"provider": {"mock": provider}}))
    adapter: dict[str, Any] = {"type": request.param, "model": "mock/m"}
    if request.param == "claude_code":
        adapter["env"] = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "not-a-real-key"}
    made.agent("a", adapter=adapter, retries=0)
    made.agent("b", "here")
    made.team()
    return made


def left(program: Program) -> list[int]:
    """The processes that have the program's HOME."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            if environ.get("HOME") == str(program.folder) and process.status() != "zombie":
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def at_work(program: Program, *args: str) -> subprocess.Popen[bytes]:
    """arena, while `a` hangs; `a` and what it started run.

    arena itself is a fork, which has no HOME that can be seen.
    """
    running = program.start(*args)
    _when(running, (program.folder / "ready").exists)
    _when(running, lambda: len(left(program)) >= 2)  # a process that is starting has no HOME yet
    return running


def _when(running: subprocess.Popen[bytes], holds: Callable[[], object]) -> None:
    """Wait until something holds while arena runs; arena is ended where it never does."""
    try:
        until(holds)
    except AssertionError:
        running.kill()
        running.communicate()
        raise


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("answer", "success"),
        ("answer escape", "success"),
        ("fail", "error"),
        ("fail escape", "error"),
    ],
)
def test_after_an_answer_and_an_error(program: Program, asked: str, status: str) -> None:
    program.team(attempt_timeout_s=60.0)
    program.run("send", "--session", "s", f"@a {asked}")
    assert (program.folder / "ready").exists()
    assert program.finished() == [("a", status)]
    until(lambda: not left(program))


def test_after_a_timeout(program: Program) -> None:
    for limit_s in growing_limits():
        session = f"s{limit_s:g}"
        program.team(attempt_timeout_s=limit_s)
        program.run("send", "--session", session, "@a hang escape")
        assert program.finished(session) == [("a", "timeout")]
        until(lambda: not left(program))
        if (program.folder / "ready").exists():
            break


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_a_signal(program: Program, number: signal.Signals) -> None:
    running = at_work(program, "send", "--session", "s", "@a hang escape")
    running.send_signal(number)
    assert program.finish(running).code == 130
    until(lambda: not left(program))


def test_after_a_kill_the_next_arena_ends_what_still_runs(program: Program) -> None:
    running = at_work(program, "send", "--session", "s", "@a hang escape")
    running.kill()
    program.finish(running)
    assert program.run("send", "--session", "s", "@b are you there").code == 0
    until(lambda: not left(program))


LOOKING = [
    *(("sessions",), ("sessions", "--json"), ("show", "s"), ("export", "s"), ("usage",)),
    *(("doctor",), ("doctor", "s"), ("context", "s", "--agent", "b"), ("agents", "check")),
    *(("knowledge", "list"), ("path",), ("teams",)),
]


@pytest.fixture
def killed(tmp_path: Path) -> Program:
    """A workspace whose arena was killed while `a` worked: `a` is gone, its children are not."""
    made = Program(tmp_path)
    made.agent("a", adapter=KINDS["kept alive"], retries=0)
    made.agent("b", "here")
    made.team()
    made.run("send", "--session", "t", "@b hello").check()
    running = at_work(made, "send", "--session", "s", "@a hang escape")
    running.kill()
    made.finish(running)
    return made


def test_after_a_kill_commands_that_only_look_name_what_still_runs(killed: Program) -> None:
    until(lambda: len(left(killed)) == 2)
    pids = left(killed)
    for args in LOOKING:
        done = killed.run(*args)
        for pid in pids:
            assert f"process {pid} (python" in done.stderr, args
        assert "of agent a\n" in done.stderr
        assert "The next `arena send`, `resume` or `run` here ends them" in done.stderr
        assert f"`kill -9 {' '.join(map(str, sorted(pids)))}`" in done.stderr
        assert done.code == (1 if args[0] == "doctor" else 0), args
    assert left(killed) == pids
    killed.agent("a", "awake")
    killed.run("resume", "s").check()
    until(lambda: not left(killed))
    assert "still running" not in killed.run("sessions").stderr
    assert killed.run("doctor").code == 0


@pytest.mark.parametrize(
    "args", [("resume", "s"), ("run", "hello"), ("agents", "test", "b"), ("promote", "t")]
)
def test_after_a_kill_commands_that_call_agents_end_what_still_runs(
    killed: Program, args: tuple[str, ...]
) -> None:
    killed.file(
        "scenarios/hello.yaml", "scenario: hello\nagents: [b]\nsteps: [{send: '@b hello'}]\n"
    )
    killed.agent("a", "awake")
    killed.run(*args)
    until(lambda: not left(killed))


def test_an_arena_that_was_killed_and_not_reaped_is_gone(killed: Program) -> None:
    """Its parent may never ask for its end, as in a container."""
    killed.fresh = True  # a fork is reaped
    (killed.folder / "ready").unlink()
    running = at_work(killed, "send", "--session", "u", "@a hang escape")
    running.kill()
    until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_ZOMBIE)
    killed.run("send", "--session", "v", "@b are you there")
    until(lambda: not left(killed))
    running.communicate()


def calling(real: Program) -> subprocess.Popen[bytes]:
    """arena, while a real program waits for its model."""
    llmock_server.fresh().delay(600, times=None)
    running = real.start("send", "--session", "s", "@a hello")
    _when(running, lambda: left(real))
    return running


@pytest.mark.real_program
def test_of_a_real_program_after_an_answer(real: Program, request: pytest.FixtureRequest) -> None:
    agent_programs.skip_if_slow(request.node.callspec.params["real"])
    llmock_server.fresh().reply("the answer", times=None)
    real.run("send", "--session", "s", "@a hello")
    assert real.finished() == [("a", "success")]
    until(lambda: not left(real))


@pytest.mark.real_program
def test_of_a_real_program_after_a_signal(real: Program) -> None:
    running = calling(real)
    running.send_signal(signal.SIGINT)
    assert real.finish(running).code == 130
    until(lambda: not left(real))


@pytest.mark.real_program
def test_of_a_real_program_after_a_kill(real: Program) -> None:
    running = calling(real)
    running.kill()
    real.finish(running)
    assert real.run("send", "--session", "s", "@b are you there").code == 0
    until(lambda: not left(real))
