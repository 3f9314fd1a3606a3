"""A chain that is cut short: what is kept, what is ended, what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fasteners import InterProcessLock
from product import common
from program import LIMIT_S, ROOT, Program, gone, until

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="a signal that one process sends another"
)

HINT = "arena: interrupted\n  Every completed reply is kept; `arena resume s` continues.\n"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`a` and `c` answer at once and call `slow`, which starts a child and sleeps."""
    made = Program(tmp_path)
    made.agent("a", {"say": "first @slow"})
    made.agent("c", {"say": "me too"})
    made.program("slow", "deaf", "read", "say", "half", "spawn", "pids", "sleep")
    made.team()
    return made


def asleep(program: Program, *args: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A chain in which `slow` sleeps, and the pids of it and its child."""
    (program.folder / "pids").unlink(missing_ok=True)
    running = program.start(*(args or ("send", "--session", "s", "@a @c go")))
    until((program.folder / "pids").exists)
    return running, [int(pid) for pid in (program.folder / "pids").read_text().split()]


# While arena waits for a program to end, there is time for another signal.
LONG_GRACE = "from arena_cli.adapters.process import spawn\nspawn.TERM_GRACE_S = 600.0\n"


def wake(program: Program) -> None:
    """The files as they are now count: `slow` is another agent when the chain goes on."""
    program.agent("slow", {"say": "awake"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_finished_and_resume_goes_on(
    program: Program, number: signal.Signals
) -> None:
    running, pids = asleep(program)
    running.send_signal(number)
    done = program.finish(running).check(code=130, stderr=HINT)
    assert done.stdout.splitlines()[-1].endswith("· cancelled")
    assert gone(*pids)
    assert program.finished() == [("a", "success"), ("c", "success"), ("slow", "cancelled")]
    assert program.records()[-1]["metadata"]["partial"] == "half"

    doctor = program.run("doctor", "s").check()
    assert "chain 1 was cut short: `arena resume s`" in doctor.stdout
    assert " · open · " in program.run("sessions").check().stdout

    wake(program)
    last = program.records()[-1]["seq"]
    program.run("resume", "s").check(
        stdout="session s · team crew\n\n"
        f"resumed chain 1 after event {last}\n\n"
        "TIME  slow · turn 2 A · N s · N tokens · 2 attempts\n"
        "  awake\n"
        "\n"
        "══ quiet · 3 replies in 2 turns · N tokens\n"
        "\n"
    )
    assert program.finished()[3:] == [("slow", "success")]
    program.run("resume", "s").check(
        stdout="", stderr="session s: no chain was cut short, there is nothing to resume\n"
    )


def test_c40_after_a_kill_nothing_is_said_and_resume_ends_what_still_runs(
    program: Program,
) -> None:
    running, pids = asleep(program)
    running.kill()
    assert program.finish(running).code == -signal.SIGKILL
    assert program.finished() == [("a", "success"), ("c", "success")]
    assert program.records()[-1]["type"] == "reply_started"

    wake(program)
    program.run("resume").check()
    assert gone(*pids)
    assert program.finished()[2:] == [("slow", "success")]
    assert list((program.folder / "sessions" / ".processes").iterdir()) == []


def test_a_second_signal_ends_it_without_a_traceback(program: Program) -> None:
    program.program("slow", "outlive", "asked", "read", "spawn", "pids", "sleep")
    program.file("site/sitecustomize.py", LONG_GRACE)
    program.env["PYTHONPATH"] = os.pathsep.join((str(program.folder / "site"), str(ROOT)))
    running, pids = asleep(program)
    running.send_signal(signal.SIGINT)
    until((program.folder / "asked").exists)  # arena waits for `slow` to end
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    program.finish(running).check(code=130, stderr=HINT)
    assert program.finished()[:2] == [("a", "success"), ("c", "success")]
    program.run("doctor", "s").check()
    wake(program)
    program.run("resume").check()
    assert gone(*pids)


def test_a_third_signal_ends_an_adapter_that_never_returns(tmp_path: Path) -> None:
    """An adapter from elsewhere may block the loop."""
    program = Program(tmp_path)
    program.file(
        "plugin/arena_deaf.py",
        """\
import signal, time
from typing import Any
from arena_cli.adapters.base import Health, Settings

class DeafAdapter:
    settings_type = Settings
    def __init__(self, setup: Any) -> None:
        self.begun = setup.workspace / "begun"
        self.handled = setup.workspace / "handled"
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def health(self) -> Health:
        return Health(ok=True, detail="")
    async def invoke(self, input: Any, emit: Any) -> Any:
        handle = signal.getsignal(signal.SIGINT)
        def count(number: int, frame: Any) -> None:
            handle(number, frame)
            with self.handled.open("a") as file:
                file.write("x")
        signal.signal(signal.SIGINT, count)
        self.begun.touch()
        time.sleep(600)
""",
    )
    info = "plugin/arena_deaf-0.1.dist-info"
    program.file(f"{info}/METADATA", "Metadata-Version: 2.1\nName: arena-deaf\nVersion: 0.1\n")
    program.file(f"{info}/entry_points.txt", "[arena.adapters]\ndeaf = arena_deaf:DeafAdapter\n")
    separator = ";" if sys.platform == "win32" else ":"
    path = program.environment()["PYTHONPATH"]
    program.env["PYTHONPATH"] = separator.join([path, str(program.folder / "plugin")])
    program.agent("deaf", adapter={"type": "deaf"})
    running = program.start("send", "-s", "s", "@deaf go")
    until((program.folder / "begun").exists)
    handled = program.folder / "handled"
    for count in (1, 2):
        running.send_signal(signal.SIGINT)
        until(lambda count=count: handled.exists() and len(handled.read_text()) == count)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    program.finish(running).check(code=130, stderr=HINT)
    program.run("doctor", "s").check()


def test_c40_a_new_message_closes_the_chain_and_calls_no_cancelled_agent(program: Program) -> None:
    running, _ = asleep(program)
    running.send_signal(signal.SIGINT)
    program.finish(running)
    before = len(program.records())
    done = program.run("send", "-c", "@c again").check(
        stderr="session s: the chain that was cut short is closed as interrupted (`arena "
        "resume` would have continued it)\n"
    )
    assert "══ interrupted · 2 replies in 2 turns" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("══ quiet · 1 reply in 1 turn")
    assert [one["end"] for one in program.records() if one["type"] == "chain_finished"] == [
        "interrupted",
        "quiet",
    ]
    called = [one["agent"] for one in program.records()[before:] if one["type"] == "reply_started"]
    assert called == ["c"]


def test_every_kind_of_agent_is_ended_at_once(program: Program) -> None:
    program.file(
        "bot.py",
        "import os, pathlib, time\n"
        "def answer(input):\n"
        "    pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n",
    )
    program.agent("bot", adapter={"type": "python", "target": "bot.py:answer"})
    program.agent("late", {"say": "late", "delay_s": 600})
    program.team()
    running, pids = asleep(program, "send", "--session", "s", "@slow @bot @late go")
    pid = program.folder / "pid"
    until(lambda: pid.exists() and pid.read_text())
    running.send_signal(signal.SIGTERM)
    program.finish(running).check(code=130, stderr=HINT)
    assert gone(*pids, int(pid.read_text()))
    assert sorted(program.finished()) == [
        ("bot", "cancelled"),
        ("late", "cancelled"),
        ("slow", "cancelled"),
    ]


def test_a_resumed_chain_can_be_cut_short_again(program: Program) -> None:
    for args in ((), ("resume", "s")):
        running, pids = asleep(program, *args)
        running.send_signal(signal.SIGTERM)
        program.finish(running).check(code=130, stderr=HINT)
        assert gone(*pids)
    wake(program)
    program.run("resume", "s").check()
    started = [one for one in program.records() if one["type"] == "reply_started"]
    slow = [(one["reply"], one["attempt"]) for one in started if one["agent"] == "slow"]
    assert slow == [(3, 1), (3, 2), (3, 3)]


def test_a_signal_before_the_chain_begins_writes_nothing(program: Program) -> None:
    reading = program.start("send", "--session", "s", stdin=subprocess.PIPE)
    folder = program.folder / "sessions" / "busy"
    folder.mkdir(parents=True)
    with InterProcessLock(folder / "transcript.lock"):
        waiting = program.start("send", "--session", "busy", "hello")
        assert waiting.stderr
        assert b"busy; waiting up to 600 s" in waiting.stderr.readline()
        for running in (waiting, reading):
            running.send_signal(signal.SIGINT)
            assert running.wait(LIMIT_S) == 130
            assert running.stderr
            ended = running.stderr.read()
            # The one that reads may still be starting: then it ends without a word.
            assert ended == b"arena: interrupted\n" or (running is reading and not ended)
            running.communicate()
    assert [path.name for path in folder.iterdir()] == ["transcript.lock"]
    assert [path.name for path in (program.folder / "sessions").iterdir()] == ["busy"]


def test_a_terminal_that_is_closed_ends_the_chain_and_what_it_started(program: Program) -> None:
    import pty

    shown, terminal = pty.openpty()
    running = program.start(
        *("send", "--session", "s", "@a @c go"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=lambda: _control(terminal),
    )
    os.close(terminal)
    until((program.folder / "pids").exists)
    pids = [int(pid) for pid in (program.folder / "pids").read_text().split()]
    os.close(shown)
    with contextlib.suppress(ProcessLookupError):
        running.send_signal(signal.SIGHUP)  # as a shell does, beside the system
    assert program.finish(running).code == 130
    assert gone(*pids)
    assert program.finished() == [("a", "success"), ("c", "success"), ("slow", "cancelled")]


def _control(terminal: int) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def test_nohup_outlives_its_terminal(program: Program) -> None:
    """It goes on to its end; another signal still interrupts it."""
    program.program("slow", "read", "pids", "pids", "wait", "go", "say", "awake")

    def after_hangup() -> subprocess.Popen[bytes]:
        (program.folder / "pids").unlink(missing_ok=True)
        running = program.start(
            *("send", "--session", "s", "@slow go"),
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        until((program.folder / "pids").exists)
        running.send_signal(signal.SIGHUP)
        return running

    running = after_hangup()
    running.send_signal(signal.SIGTERM)
    program.finish(running).check(code=130, stderr=HINT)
    running = after_hangup()
    (program.folder / "go").touch()
    assert program.finish(running).code == 0
    assert program.finished() == [("slow", "cancelled"), ("slow", "success")]


def test_a_signal_that_does_not_wake_the_event_loop_interrupts_it() -> None:
    """As one that arrives in another thread, or just before the loop begins to wait."""
    woke_by_itself: list[bool] = []

    def send() -> None:
        time.sleep(0.2)  # until then the loop surely waits; it is interrupted in any case
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    async def work() -> None:
        thread = threading.Thread(target=send)
        thread.start()
        asyncio.get_running_loop().call_later(30, woke_by_itself.append, True)
        try:
            await asyncio.sleep(600)
        finally:
            thread.join()

    with pytest.raises(common.Interrupted):
        common.run(work(), hint="")
    assert not woke_by_itself


AT_IMPORT = """\
import os, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == os.environ["SENT_AT"]:
            sys.meta_path.remove(Finder)
            os.kill(os.getpid(), int(os.environ["SENT"]))
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("arena_cli.cli.main", ""),
        ("typer", ""),
        ("arena_cli.cli.send", "arena: interrupted\n"),
        ("arena_cli.workspace.workspace", ""),
    ],
)
def test_a_signal_while_arena_starts_ends_it_without_a_traceback(
    program: Program, module: str, says: str, number: signal.Signals
) -> None:
    program.file("site/sitecustomize.py", AT_IMPORT)
    path = os.pathsep.join((str(program.folder / "site"), str(ROOT)))
    program.env.update(PYTHONPATH=path, SENT_AT=module, SENT=str(int(number)))
    program.run("send", "--session", "s", "@c hello").check(code=130, stdout="", stderr=says)
    assert not program.raw()


def test_a_signal_that_python_would_drop_ends_arena(program: Program) -> None:
    """A destructor cannot raise: what is raised there is only printed by Python."""
    text = AT_IMPORT.replace("os.kill(", "type('T', (), {'__del__': lambda _: os.kill(").replace(
        '["SENT"]))\n', '["SENT"]))})()\n'
    )
    program.file("site/sitecustomize.py", text)
    path = os.pathsep.join((str(program.folder / "site"), str(ROOT)))
    sent = str(int(signal.SIGTERM))
    program.env.update(PYTHONPATH=path, SENT_AT="arena_cli.cli.send", SENT=sent)
    done = program.run("send", "--session", "s", "@c hello")
    done.check(code=130, stdout="", stderr="arena: interrupted\n")
