"""CPU of the live display while agents wait: `arena send` in a terminal, beside the same in a pipe.

    python benchmarks/live.py

Scripted agents wait so many seconds; the program runs under a pseudo-terminal that is read to its
end. What waiting costs is the CPU (user and system) of that run minus that of one in which nobody
waits, medians of several runs taken in turn, as a share of the seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path

ARENA = [sys.executable, "-m", "arena_cli"]
COLUMNS, LINES = 100, 30


def workspace(folder: Path, agents: int, seconds: float) -> None:
    (folder / "agents").mkdir(parents=True)
    for number in range(agents):
        reply = f'{{say: "done", delay_s: {seconds}}}'
        text = f"agent_id: a{number}\nname: 成员{number}\n"
        text += f"adapter: {{type: scripted, replies: [{reply}]}}\n"
        (folder / "agents" / f"a{number}.yaml").write_text(text, encoding="utf-8")


def cpu_s(folder: Path, *, terminal: bool) -> tuple[float, int]:
    """CPU of one run, in seconds, and how many bytes a terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [*ARENA, "send", "@all go"],
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs if terminal else subprocess.DEVNULL,
    )
    os.close(theirs)
    taken = 0

    def read() -> None:
        nonlocal taken
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 65_536):
                taken += len(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"arena send: exit {process.returncode}")
    return usage.ru_utime + usage.ru_stime, taken


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agents", type=int, default=5)
    options.add_argument("--seconds", type=float, default=20)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    figures: dict[tuple[float, bool], list[float]] = {}
    sent = 0
    with tempfile.TemporaryDirectory() as folder:
        for seconds in (0.0, args.seconds):
            workspace(Path(folder) / str(seconds), args.agents, seconds)
        for _ in range(args.rounds):
            for seconds in (0.0, args.seconds):
                for terminal in (False, True):
                    cpu, taken = cpu_s(Path(folder) / str(seconds), terminal=terminal)
                    figures.setdefault((seconds, terminal), []).append(cpu)
                    sent = max(sent, taken)
    median = {key: statistics.median(found) for key, found in figures.items()}
    print(f"{args.agents} agents, {COLUMNS} columns, medians of {args.rounds}; seconds of CPU")
    for seconds in (0.0, args.seconds):
        pipe, terminal = median[seconds, False], median[seconds, True]
        print(f"agents wait {seconds:4g} s: pipe {pipe:.3f}, terminal {terminal:.3f}")
    drawing = median[args.seconds, True] - median[0.0, True]
    waiting = median[args.seconds, False] - median[0.0, False]
    print(f"waiting in a pipe:      {waiting / args.seconds:6.2%} of the time")
    print(f"waiting in a terminal:  {drawing / args.seconds:6.2%} of the time, {sent} bytes")


if __name__ == "__main__":
    main()
