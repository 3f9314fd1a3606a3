"""CPU and memory of `arena send` on a session of 100 replies and on one of 100,000.

    python benchmarks/long_session.py

Both sessions are written line by line from one real chain, then opened once, which makes the
cache; the figures are those of the sends after it, taken in turn. `without cache` is the first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ARENA = [sys.executable, "-m", "arena_cli"]


def written(workspace: Path, name: str, chain: list[dict[str, Any]], replies: int) -> None:
    """A session made of so many copies of a chain of one reply."""
    folder = workspace / "sessions" / name
    folder.mkdir(parents=True)
    with (folder / "transcript.jsonl").open("w", encoding="utf-8") as file:
        file.write(json.dumps(chain[0], ensure_ascii=False, separators=(",", ":")) + "\n")
        for line in _copies(chain[1:], replies):
            file.write(line + "\n")


def _copies(chain: list[dict[str, Any]], count: int) -> Iterator[str]:
    for number in range(count):
        shift = number * len(chain)
        for one in chain:
            copy = json.loads(json.dumps(one))
            copy["seq"] += shift
            for key in ("chain", "turn", "reply"):
                if isinstance(copy.get(key), int):
                    copy[key] += number
            if "trigger" in copy:
                copy["trigger"] = [f"m{int(name[1:]) + shift}" for name in copy["trigger"]]
            if copy.get("message"):
                copy["message"]["id"] = f"m{copy['seq']}"
            yield json.dumps(copy, ensure_ascii=False, separators=(",", ":"))


def measured(workspace: Path, *arguments: str) -> tuple[float, float]:
    """(CPU seconds, peak memory in MB) of one whole process."""
    process = subprocess.Popen([*ARENA, *arguments], cwd=workspace, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"arena {' '.join(arguments)}: exit {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def sessions(workspace: Path, lengths: Sequence[int]) -> Iterator[int]:
    """Make a workspace and a session of each length, in replies, in it; gives each once made."""
    measured(workspace, "init", "--language", "zh")
    measured(workspace, "send", "--session", "one", "hello")
    source = workspace / "sessions" / "one" / "transcript.jsonl"
    chain = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    for replies in lengths:
        written(workspace, f"s{replies}", chain, replies)
        yield replies


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--replies", type=int, nargs=2, default=[100, 100_000])
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        figures: dict[int, list[tuple[float, float]]] = {}
        for replies in sessions(workspace, chosen.replies):
            cpu, memory = measured(workspace, "send", "--session", f"s{replies}", "hello")
            print(f"{replies:>8} replies, without cache: {cpu:6.3f} s CPU, {memory:6.1f} MB")
            figures[replies] = []
        for _ in range(chosen.rounds):
            for replies, rounds in figures.items():
                rounds.append(measured(workspace, "send", "--session", f"s{replies}", "hello"))
        medians = []
        for replies, rounds in figures.items():
            cpu, memory = (statistics.median(column) for column in zip(*rounds, strict=True))
            medians.append((cpu, memory))
            print(f"{replies:>8} replies:                {cpu:6.3f} s CPU, {memory:6.1f} MB")
        (cpu, memory), (long_cpu, long_memory) = medians
        print(f"ratio: CPU {long_cpu / cpu:.2f}, memory {long_memory / memory:.2f}")


if __name__ == "__main__":
    main()
