"""Wall time of `arena show` on a session of 100 replies and on one of 100,000.

    python benchmarks/show.py

Both sessions are copies of one real chain (see long_session.py), first without the cache that a
send leaves behind, then with it. `--follow` is timed until the last line of what it begins with is
there. Medians of runs taken in turn; the ratio is that of the long session to the short one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from long_session import ARENA, measured, sessions

COMMANDS = {
    "show --turn last": ["--turn", "last"],
    "show --follow": ["--follow", "--json"],
    "show --follow --after-seq": ["--follow", "--json", "--after-seq"],
    "show --context --agent": ["--context", "--agent", "architect"],
    "send --dry-run": [],
}


def seconds(workspace: Path, session: str, name: str) -> float:
    """Until the command is done, or, where it goes on, until all that is there was printed."""
    arguments = ["show", session, *COMMANDS[name]]
    transcript = workspace / "sessions" / session / "transcript.jsonl"
    last = _last_line(transcript)
    if name == "send --dry-run":
        arguments = ["send", "--dry-run", "--session", session, "hello"]
    if arguments[-1] == "--after-seq":
        arguments.append(str(json.loads(last)["seq"] - 5))
    began = time.perf_counter()
    command = [*ARENA, *arguments]
    process = subprocess.Popen(
        command, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    with process:
        if "--follow" in arguments:
            while process.stdout.readline() != last:
                pass
            took = time.perf_counter() - began
            process.kill()
            return took
        process.stdout.read()
        if process.wait():
            raise SystemExit(f"arena {' '.join(arguments)}: exit {process.returncode}")
    return time.perf_counter() - began


def _last_line(transcript: Path) -> bytes:
    with transcript.open("rb") as file:
        file.seek(max(0, transcript.stat().st_size - 65_536))
        return file.read().splitlines(keepends=True)[-1]


def table(workspace: Path, replies: list[int], rounds: int) -> None:
    """Print the medians of every command, for both sessions, and the ratio."""
    for name in COMMANDS:
        taken: dict[int, list[float]] = {count: [] for count in replies}
        for _ in range(rounds):
            for count, figures in taken.items():
                figures.append(seconds(workspace, f"s{count}", name))
        short, long = (statistics.median(figures) for figures in taken.values())
        print(f"  {name:28} {short:6.3f} s  {long:6.3f} s  ratio {long / short:.2f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--replies", type=int, nargs=2, default=[100, 100_000])
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        list(sessions(workspace, chosen.replies))
        print(f"without a cache, {chosen.replies[0]} and {chosen.replies[1]} replies:")
        table(workspace, chosen.replies, 1)
        for replies in chosen.replies:
            measured(workspace, "send", "--session", f"s{replies}", "hello")
        print("with the cache that a send leaves:")
        table(workspace, chosen.replies, chosen.rounds)


if __name__ == "__main__":
    main()
