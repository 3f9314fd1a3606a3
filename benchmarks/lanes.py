"""Lanes over processes: many senders, few sessions, and never more replies at once than allowed.

    python benchmarks/lanes.py [--senders 50] [--sessions 10] [--bound 4] [--seconds 30]

Each sender runs `arena send` again and again, each run a process of its own, to the session whose
turn it is. The agent is a program that logs when it begins and ends. Some runs are killed, one is
stopped and continued. Printed are the largest number of programs at once, the replies, the messages
that are lost, how far a reply or a message was overtaken by later ones, and what is left behind.
The exit code is 1 if more run at once than the bound, if anything is lost or left, or if one was
overtaken by more than one place.

A program whose arena was killed counts until the kill: its place is free from then on, and the next
arena ends it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters import base
from arena_cli.session import status, store
from arena_cli.util import tickets
from arena_cli.workspace.workspace import load_workspace

LIMIT_S = 120.0
KILLED_EVERY_S = 2.0
STOPPED_S = 3.0

LOG = "log.txt"
PROGRAM = """\
import os, sys, time
def put(word):
    file = os.open("log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{word} {os.getppid()}\\n".encode())
    os.close(file)
put("begin")
time.sleep(float(sys.argv[1]))
put("end")
print("done")
"""


class Run(NamedTuple):
    """A process that sends a message; `arrived` is when it had to wait for its session, or None."""

    process: subprocess.Popen[str]
    session: str
    message: str
    arrived: list[float]


class Load:
    """Senders to the sessions of a workspace, until `stop`."""

    def __init__(self, folder: Path, senders: int, sessions: int) -> None:
        self.folder = folder
        self.sent: dict[str, Run] = {}
        self.killed: set[str] = set()
        self.stopped: set[str] = set()
        self.failed: list[str] = []
        self._numbers = itertools.count(1)
        self._sessions = sessions
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._running: dict[str, Run] = {}
        self._threads = [threading.Thread(target=self._send_all) for _ in range(senders)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the runs that began; none begins after it. Those that hang are killed."""
        self._stopping.set()
        end = time.monotonic() + LIMIT_S
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        for run in list(self._running.values()):
            run.process.kill()

    def wait_for_replies(self) -> None:
        """Wait until the first agent began: the senders take a while to start."""
        end = time.monotonic() + LIMIT_S
        while not (self.folder / LOG).exists():
            assert time.monotonic() < end, "no agent began"
            time.sleep(0.05)

    def pick(self, chance: random.Random, *, holds: bool) -> Run | None:
        """Return a run that has a place in the lane, or any that runs, if there is one."""
        holders = {place.pid for place in read_lane(self.folder).holders}
        with self._lock:
            runs = [
                run for run in self._running.values() if run.process.pid in holders or not holds
            ]
        return chance.choice(runs) if runs else None

    def kill(self, run: Run) -> None:
        """Kill a run."""
        with self._lock:
            if run.message not in self._running:
                return
            self.killed.add(run.message)
            put(self.folder, f"dead {run.process.pid}")
            run.process.kill()

    def _send_all(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                number = next(self._numbers)
                run = self._start(f"s{number % self._sessions}", f"message {number}")
                self.sent[run.message] = self._running[run.message] = run
            assert run.process.stderr is not None
            errors = []
            for line in run.process.stderr:
                if "is busy; waiting" in line:
                    run.arrived.append(time.time())
                else:
                    errors.append(line)
            # It is a zombie until `wait`: its number belongs to no other process.
            with self._lock:
                del self._running[run.message]
            if run.process.wait() and run.message not in self.killed:
                self.failed.append(f"{run.message}: {run.process.returncode} {''.join(errors)}")

    def _start(self, session: str, message: str) -> Run:
        command = [sys.executable, "-m", "arena_cli", "send", "-q", "-s", session, message]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "ARENA_TRUST": "1", "ARENA_LANG": "en"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Run(process, session, message, [])


def put(folder: Path, line: str) -> None:
    file = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def make_workspace(folder: Path, bound: int, reply_s: float) -> None:
    (folder / "agents").mkdir()
    (folder / "arena.yaml").write_text(f"lanes: {{main: {bound}}}\ndurability: flush\n")
    (folder / "work.py").write_text(PROGRAM)
    command = json.dumps([sys.executable, "-S", "-E", "work.py", str(reply_s)])
    profile = f"agent_id: dev\nadapter: {{type: cli, command: {command}}}\n"
    (folder / "agents" / "dev.yaml").write_text(profile)


def read_lane(folder: Path) -> status.LaneState:
    (state,) = status.list_lanes(load_workspace(folder, kinds=base.KINDS))
    return state


def count_at_once(folder: Path) -> int:
    """Return the largest number of programs that ran at once."""
    running: set[str] = set()
    most = 0
    for line in (folder / LOG).read_text().splitlines():
        word, arena = line.split()
        if word == "begin":
            running.add(arena)
        else:
            running.discard(arena)
        most = max(most, len(running))
    return most


def read_transcripts(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.parent.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((folder / "sessions").glob("s*/transcript.jsonl"))
    }


def parse_time(event: dict[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(event["ts"]).timestamp()


def count_overtakers(waits: list[tuple[float, float]], slack_s: float) -> list[int]:
    """Return for each (arrived, served), both in seconds, how many later ones were served first.

    Times that differ by less than `slack_s` are the same: waiting processes look every 0.05 s.
    """
    return [
        sum(
            other_arrived > arrived + slack_s and other_served < served - slack_s
            for other_arrived, other_served in waits
        )
        for arrived, served in waits
    ]


def list_waits_in_lane(
    events_of: dict[str, list[dict[str, Any]]], stopped: set[str]
) -> list[tuple[float, float]]:
    """Return when each reply had its number in the lane, and when it saw that it had its place.

    Those of processes that were stopped are left out: they look late.
    """
    waits = []
    for events in events_of.values():
        arrived: dict[int, float] = {}
        message = ""
        for event in events:
            if event["type"] == "message":
                message = event["message"]["content"]
            elif message in stopped:
                continue
            elif event["type"] == "status" and event["status"] == "waiting":
                arrived.setdefault(event["reply"], parse_time(event))
            elif event["type"] == "status" and event["status"] == "generating":
                waits.append((arrived[event["reply"]], parse_time(event)))
    return waits


def list_waits_for_sessions(
    events_of: dict[str, list[dict[str, Any]]], sent: dict[str, Run]
) -> dict[str, list[tuple[float, float]]]:
    """Return when each sender that had to wait came to its session, and when it had it."""
    waits = defaultdict(list)
    for name, events in events_of.items():
        for event in events:
            content = event["message"]["content"] if event["type"] == "message" else ""
            if content in sent and sent[content].arrived:
                waits[name].append((sent[content].arrived[0], parse_time(event)))
    return waits


def find_lost(events_of: dict[str, list[dict[str, Any]]], load: Load) -> list[str]:
    """Return the messages that are not there once, with one reply, though nobody killed them."""
    contents: list[str] = []
    replies = 0
    kept = 0
    for events in events_of.values():
        seqs = [event["seq"] for event in events]
        assert seqs == sorted(set(seqs)), "a transcript has lines twice, or in a wrong order"
        for event in events:
            if event["type"] == "message":
                contents.append(event["message"]["content"])
                kept += contents[-1] not in load.killed
            elif event["type"] == "reply_finished":
                replies += event["status"] == "success"
    lost = [text for text in load.sent if text not in load.killed and contents.count(text) != 1]
    return lost + ["a reply"] * max(kept - replies, 0)


def play(folder: Path, args: argparse.Namespace) -> Load:
    """Send for some time after the first agent began, with disturbances."""
    load = Load(folder, args.senders, args.sessions)
    try:
        load.wait_for_replies()
        disturb(load, random.Random(args.seed), args.seconds)
    finally:
        load.stop()
    return load


def disturb(load: Load, chance: random.Random, seconds: float) -> None:
    """Kill a run now and then, and stop and continue one, for a number of seconds."""
    began = next_kill = time.monotonic()
    stopped: Run | None = None
    stopped_at = 0.0
    kills = 0
    while (now := time.monotonic()) < began + seconds:
        time.sleep(0.05)
        if now > next_kill and (run := load.pick(chance, holds=bool(kills % 2))):
            kills += 1
            if run is not stopped:
                load.kill(run)
            next_kill = now + KILLED_EVERY_S
        if kills == 1 and not stopped_at and (run := load.pick(chance, holds=True)):
            run.process.send_signal(signal.SIGSTOP)
            stopped, stopped_at = run, now
            load.stopped.add(run.message)
        if stopped and now > stopped_at + STOPPED_S:
            stopped.process.send_signal(signal.SIGCONT)
            stopped = None
    if stopped:
        stopped.process.send_signal(signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--senders", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--bound", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--reply-seconds", type=float, default=1.0)
    parser.add_argument("--slack", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_workspace(folder, args.bound, args.reply_seconds)
        load = play(folder, args)
        events_of = read_transcripts(folder)
        most = count_at_once(folder)
        lost = find_lost(events_of, load) + load.failed
        in_lane = count_overtakers(list_waits_in_lane(events_of, load.stopped), args.slack)
        in_sessions = [
            count
            for waits in list_waits_for_sessions(events_of, load.sent).values()
            for count in count_overtakers(waits, args.slack)
        ]
        state = read_lane(folder)
        left: list[object] = [*state.holders, *state.waiting]
        left += [path.name for path in (folder / "sessions" / store.LANES).iterdir()]
        for lock in (folder / "sessions").glob("s*/transcript.lock"):
            left += [lock] * tickets.has_queue(lock)  # removes the tickets of those killed
            left += lock.parent.glob(f"{lock.name}.*")
    done = sum(e["type"] == "reply_finished" for events in events_of.values() for e in events)
    print(f"replies at once, at most    {most:6}   allowed {args.bound}")
    print(f"messages sent               {len(load.sent):6}   killed {len(load.killed)}")
    print(f"replies                     {done:6}")
    print(f"lost or failed              {len(lost):6}   {'; '.join(lost[:5])}")
    print(f"overtaken in the lane       {max(in_lane, default=0):6}   places, of {len(in_lane)}")
    places = max(in_sessions, default=0)
    print(f"overtaken before a session  {places:6}   places, of {len(in_sessions)}")
    print(f"left behind                 {len(left):6}   {left[:5] or ''}")
    worst = max([*in_lane, *in_sessions], default=0)
    sys.exit(most > args.bound or bool(lost) or bool(left) or worst > 1)


if __name__ == "__main__":
    main()
