"""Processes are ended with all that they started, and recorded while they run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from adapter_setups import PROGRAMS, Heard, an_input, cancelled, pids_in, runs, speaker, until
from product import KeptProgram, Process, Program, cleanup, spawn
from program import growing_limits

ROOT = Path(__file__).parent.parent
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="a signal that only Linux has")
ON_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="sessions and signals of POSIX")


def a_program(folder: Path, *steps: str) -> Program:
    return Program(
        argv=[sys.executable, str(PROGRAMS / "speak.py"), *steps],
        cwd=folder,
        environ=dict(os.environ),
        records=folder / "processes",
    )


@pytest.mark.parametrize(
    "steps",
    [
        ["spawn", "{pids}", "sleep"],
        ["deaf", "spawn", "{pids}", "sleep"],
        pytest.param(["escape", "{pids}", "sleep"], marks=ON_POSIX),
        pytest.param(["deaf", "escape", "{pids}", "sleep"], marks=ON_POSIX),
    ],
)
def test_a_cancelled_call_leaves_no_process(tmp_path: Path, steps: list[str]) -> None:
    path = tmp_path / "pids"
    before = children()

    async def call() -> None:
        adapter = speaker(tmp_path, *[step.format(pids=path) for step in steps])
        task = asyncio.create_task(adapter.invoke(an_input("x" * 1_000_000), Heard()))
        pids = await pids_in(path)
        assert len(pids) == 2
        assert all(runs(pid) for pid in pids)
        await cancelled(task)
        assert not any(runs(pid) for pid in pids)
        assert not children() - before  # nor any that has ended and is still there

    asyncio.run(call())
    assert list((tmp_path / "processes").iterdir()) == []


def test_a_second_cancel_does_not_leave_the_process(tmp_path: Path) -> None:
    path = tmp_path / "pids"

    async def call() -> None:
        adapter = speaker(tmp_path, "deaf", "spawn", str(path), "sleep")
        task = asyncio.create_task(adapter.invoke(an_input(), Heard()))
        pids = await pids_in(path)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.02)
        await asyncio.wait({task})
        assert task.cancelled()
        assert not any(runs(pid) for pid in pids)

    asyncio.run(call())


def test_cancelled_before_it_has_started(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))

    async def call() -> None:
        for turns in range(6):
            adapter = speaker(tmp_path, "sleep")
            task = asyncio.create_task(adapter.invoke(an_input(), Heard()))
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancelled(task)

    asyncio.run(call())
    assert not [one for one in psutil.Process().children(True) if one not in before]


def test_the_end_of_the_event_loop_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    pids: list[int] = []

    async def call() -> None:
        adapter = speaker(tmp_path, "deaf", "spawn", str(path), "sleep")
        task = asyncio.create_task(adapter.invoke(an_input(), Heard()))
        pids.extend(await pids_in(path))
        assert not task.done()

    asyncio.run(call())
    assert len(pids) == 2
    assert not any(runs(pid) for pid in pids)


def test_it_is_recorded_while_it_runs(tmp_path: Path) -> None:
    async def call() -> None:
        running = await spawn.start_process(a_program(tmp_path, "sleep"))
        [record] = (tmp_path / "processes").iterdir()
        facts = json.loads(record.read_text(encoding="utf-8"))
        child = psutil.Process(facts["pid"])
        assert child.ppid() == facts["owner"] == os.getpid()
        assert cleanup.end_recorded(tmp_path / "processes") == 0
        assert child.is_running()
        await running.end()
        assert not child.is_running()
        assert list((tmp_path / "processes").iterdir()) == []

    asyncio.run(call())


def test_much_that_nobody_takes_is_not_piled_up(tmp_path: Path) -> None:
    async def call() -> None:
        running = await spawn.start_process(a_program(tmp_path, "fill", "60000000"))
        await asyncio.sleep(0.4)
        assert running.returncode is None
        taken = 0
        while (event := await running.event()) and event.source != "exit":
            taken += len(event.data)
        while event := running.waiting_event():
            taken += len(event.data)
        await running.end()
        assert taken == 60_000_000

    asyncio.run(call())


DAEMON = """
import os, signal, sys, time

def leave(*_):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        with open(sys.argv[1] + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)

if sys.argv[2] == "now":
    leave()
    sys.exit()
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True:
    time.sleep(600)
"""


def python(folder: Path, code: str, *args: str) -> Program:
    return Program(
        [sys.executable, "-c", code, *args], folder, dict(os.environ), folder / "records"
    )


async def drained(running: Process) -> None:
    """Take all that a program writes, and its end."""
    left = {"stdout", "stderr", "exit"}
    while left:
        event = await running.event()
        if event is not None and not event.data:
            left.discard(event.source)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@ON_POSIX
@pytest.mark.parametrize("everywhere", [False, True], ids=["own orphans", "all processes"])
@pytest.mark.parametrize("when", ["now", "while it is ended"])
def test_a_daemon_is_ended_with_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, everywhere: bool
) -> None:
    if everywhere:
        monkeypatch.setattr(cleanup, "adopt", lambda: False)

    async def call(path: Path) -> None:
        running = await spawn.start_process(python(tmp_path, DAEMON, str(path), when))
        if when == "now":
            await drained(running)
            [daemon] = await pids_in(path)
            assert runs(daemon)
        else:
            await running.event()
        await running.end()
        if path.exists():
            [daemon] = await pids_in(path)
            assert not runs(daemon)

    for grace_s in growing_limits():
        monkeypatch.setattr(spawn, "TERM_GRACE_S", grace_s)
        path = tmp_path / f"pids-{grace_s:g}"
        asyncio.run(call(path))
        assert list((tmp_path / "records").iterdir()) == []
        if path.exists():
            break


@ON_POSIX
def test_what_another_program_left_is_not_touched(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]

    async def call() -> None:
        one, two = [
            await spawn.start_process(python(tmp_path, DAEMON, str(path), "now")) for path in paths
        ]
        await asyncio.gather(drained(one), drained(two))
        daemons = [pid for path in paths for pid in await pids_in(path)]
        await one.end()
        assert [runs(pid) for pid in daemons] == [False, True]
        await two.end()
        assert not runs(daemons[1])

    asyncio.run(call())


@LINUX_ONLY
def test_what_ended_as_an_orphan_is_reaped_while_its_program_runs(tmp_path: Path) -> None:
    code = "import os, sys; os.system('sleep 0.4 & sleep 0.5 &'); sys.stdin.read()"
    before = children()

    async def call() -> None:
        running = await spawn.start_process(python(tmp_path, code))
        [record] = (tmp_path / "records").iterdir()
        root = psutil.Process(json.loads(record.read_text(encoding="utf-8"))["pid"])

        def only_it_is_left() -> bool:
            running.write(b"", last=False)
            return children() - before == {root}

        await until(lambda: len(children() - before) > 1)
        await until(only_it_is_left)
        await running.end()

    asyncio.run(call())
    assert not children() - before


@ON_POSIX
def test_the_exit_code_of_what_others_started_is_theirs(tmp_path: Path) -> None:
    others = [
        subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], start_new_session=session)
        for session in (False, True)
    ]

    async def call() -> None:
        await until(lambda: not any(runs(other.pid) for other in others))
        for _ in range(2):
            running = await spawn.start_process(a_program(tmp_path, "say", "x"))
            await drained(running)
            await running.end()

    asyncio.run(call())
    assert [other.wait() for other in others] == [3, 3]


@LINUX_ONLY
def test_many_at_once_leave_no_process_and_no_open_file(tmp_path: Path) -> None:
    before = children()
    bot = str(PROGRAMS / "line_bot.py")

    async def one(name: str) -> None:
        running = await spawn.start_process(a_program(tmp_path, "escape", str(tmp_path / name)))
        running.write(b"", last=True)
        while (event := await running.event()) and event.source != "exit":
            pass
        await running.end()
        assert running.returncode == 0

    async def several() -> list[KeptProgram]:
        kept = [KeptProgram(f"a{number}", asked="line_bot") for number in range(5)]
        program = Program([sys.executable, bot], tmp_path, dict(os.environ), tmp_path / "processes")
        calls = [each.exchange(program, "echo hello", is_end=lambda _: True) for each in kept]
        await asyncio.gather(*calls, *(one(f"p{number}") for number in range(20)))
        return kept

    async def call() -> None:
        await one("first")
        opened = open_files()
        kept = await several()
        assert len([each for each in children() - before if each.is_running()]) == 5
        await asyncio.gather(*(each.stop() for each in kept))
        assert open_files() == opened

    asyncio.run(call())
    assert not children() - before
    assert list((tmp_path / "processes").iterdir()) == []


@ON_POSIX
def test_a_program_has_the_marks_of_all_arenas_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cleanup.MARK_VARIABLE, "of-the-outer-arena")

    async def call() -> None:
        running = await spawn.start_process(a_program(tmp_path, "sleep"))
        [record] = (tmp_path / "processes").iterdir()
        facts = json.loads(record.read_text(encoding="utf-8"))
        for mark in ("of-the-outer-arena", facts["mark"]):
            assert cleanup.find_marked_processes(mark) == [facts["pid"]]
        await running.end()

    asyncio.run(call())


OWNER = f"""
import asyncio, os, sys
from pathlib import Path
from {spawn.start_process.__module__} import {spawn.start_process.__name__} as start, Program

async def main():
    argv = [sys.executable, *sys.argv[2:]]
    folder = Path(sys.argv[1])
    await start(Program(argv, folder, dict(os.environ), folder / "processes"))
    await asyncio.sleep(600)

asyncio.run(main())
"""


def killed_owner(folder: Path, *steps: str) -> list[int]:
    """The pids that a program wrote whose arena was killed."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), str(PROGRAMS / "speak.py"), *steps],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        pids = asyncio.run(pids_in(folder / "pids"))
        asyncio.run(until(lambda: any((folder / "processes").glob("*.json"))))
    finally:
        owner.kill()
        owner.wait()
    return pids


@LINUX_ONLY
def test_a_killed_arena_takes_its_programs_along(tmp_path: Path) -> None:
    [pid] = killed_owner(tmp_path, "pids", str(tmp_path / "pids"), "sleep")
    asyncio.run(until(lambda: not runs(pid)))
    assert cleanup.end_recorded(tmp_path / "processes") == 0
    assert list((tmp_path / "processes").iterdir()) == []


@ON_POSIX
def test_what_a_killed_arena_left_is_ended_by_the_next(tmp_path: Path) -> None:
    main, grandchild = killed_owner(tmp_path, "spawn", str(tmp_path / "pids"), "sleep")
    if sys.platform == "linux":
        asyncio.run(until(lambda: not runs(main)))
    assert runs(grandchild)
    assert cleanup.end_recorded(tmp_path / "processes") == 1
    assert not runs(main)
    assert not runs(grandchild)
    assert list((tmp_path / "processes").iterdir()) == []


@pytest.mark.parametrize("change", [{"began": -60.0}, {"machine_began": -60.0}])
def test_a_pid_that_was_given_to_another_is_not_touched(
    tmp_path: Path, change: dict[str, float]
) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        path = cleanup.write_record(tmp_path, other.pid, "of-another")
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        facts["owner_began"] -= 60
        for name, by in change.items():
            facts[name] += by
        path.write_text(json.dumps(facts), encoding="utf-8")
        assert cleanup.end_recorded(tmp_path) == 0
        assert runs(other.pid)
        assert list(tmp_path.iterdir()) == []
    finally:
        other.kill()
        other.wait()


def test_a_record_that_was_cut_short_is_removed(tmp_path: Path) -> None:
    (tmp_path / "1-2.json").write_text('{"pid": 1, "ow', encoding="utf-8")
    assert cleanup.end_recorded(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    assert cleanup.end_recorded(tmp_path / "missing") == 0


def test_asking_for_records_where_there_are_none_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from arena_cli.adapters.process import cleanup as strays;"
        f"strays.end_recorded(Path({str(tmp_path)!r}));"
        "assert not {'psutil', 'ctypes', 'asyncio'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
