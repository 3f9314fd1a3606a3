"""CPU of whole `arena` processes, beside an empty Python.

    python benchmarks/startup.py

Medians of several runs taken in turn, in seconds of CPU (user and system), and the ratio against
`python -c pass` in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ARENA = [sys.executable, "-m", "arena_cli"]


def cpu_s(command: Sequence[str], folder: Path) -> float:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=11)
    rounds = options.parse_args().rounds
    commands: dict[str, list[str]] = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "arena --version": [*ARENA, "--version"],
        "arena send": [*ARENA, "send", "hello"],
        "arena run (2 scenarios)": [*ARENA, "run"],
    }
    figures: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        cpu_s([*ARENA, "init", "--language", "zh"], Path(folder))
        for command in commands.values():
            cpu_s(command, Path(folder))
        for _ in range(rounds):
            for name, command in commands.items():
                figures[name].append(cpu_s(command, Path(folder)))
    empty = statistics.median(figures["python -c pass"])
    for name, figure in figures.items():
        median = statistics.median(figure)
        print(f"{name:24} {median:6.3f} s  {median / empty:6.1f} x")


if __name__ == "__main__":
    main()
