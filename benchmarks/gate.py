"""Speed gate: fail where arena became much slower than the ratios in gate.json.

    python benchmarks/gate.py [--update]

Each ratio is CPU against a baseline taken in the same run, the least of the rounds of each, so
that the machine and what else it does matter little:

- `engine`: a reply of the engine, its transcript on disk, to a bare loop that serialises and
  appends the same events (engine.py).
- `send`: `arena send` of one message to `python -c 'import typer'`.
- `scenarios`: `arena run` of 200 scenarios to a bare Python that reads the same files with PyYAML
  and writes the same transcripts.

Exits 1 where a ratio is above 1.4 times the stored one. `--update` stores the ratios of this run:
only a commit that says why may raise them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import engine
import startup
import suite

STORED = Path(__file__).with_name("gate.json")
MOST = 1.4
ROUNDS = 3
REPLIES = 400
SCENARIOS = 200
MEMORY = Path("/dev/shm")  # where there is one: a disk that others use makes the figures swing
LOOP = """\
import pathlib, sys, yaml
root, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
content = source.read_bytes()
for path in sorted((root / "scenarios").glob("*.yaml")):
    yaml.safe_load(path.read_text(encoding="utf-8"))
    folder = root / "bare" / path.stem
    folder.mkdir(parents=True)
    (folder / "transcript.jsonl").write_bytes(content)
"""


def engine_ratio() -> float:
    """Return the CPU of a reply, over that of the bare loop."""
    gc.set_threshold(50_000, 20, 20)  # as arena's command line does
    rounds = [engine.engine_us(100, REPLIES, 1, kept=True) for _ in range(ROUNDS)]
    bare = min(engine.bare_us(lines, REPLIES) for _, lines in rounds)
    return min(spent for spent, _ in rounds) / bare


def send_ratio() -> float:
    """Return the CPU of `arena send`, over that of importing typer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        startup.cpu_s([*startup.ARENA, "init", "--language", "zh"], folder)
        send = [*startup.ARENA, "send", "hello"]
        typer = [sys.executable, "-c", "import typer"]
        startup.cpu_s(send, folder)  # compiles what is not compiled yet
        pairs = [
            (startup.cpu_s(send, folder), startup.cpu_s(typer, folder)) for _ in range(3 * ROUNDS)
        ]
    return min(sent for sent, _ in pairs) / min(imported for _, imported in pairs)


def scenarios_ratio() -> float:
    """Return the CPU of a run of 200 scenarios, over that of the bare loop."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        workspace = suite.written(folder / "files", SCENARIOS, cases=False)
        run = [*suite.ARENA, "run", "--live"]
        suite.measured(suite.Command([*run, "--keep", "all", "s00000"], workspace))
        sample = shutil.move(next(workspace.glob("sessions/*/transcript.jsonl")), folder / "sample")
        loop = [sys.executable, "-c", LOOP, f"{workspace}", f"{sample}"]
        bare = suite.Command(loop, workspace, leaves="bare")
        played = suite.Command(run, workspace)
        pairs = [(suite.measured(played).cpu, suite.measured(bare).cpu) for _ in range(ROUNDS)]
    return min(cpu for cpu, _ in pairs) / min(cpu for _, cpu in pairs)


def main() -> None:
    """Print each ratio beside the stored one; exit 1 where one is too high."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--update", action="store_true", help="Store the ratios of this run.")
    update = options.parse_args().update
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ratios = {
        "engine": engine_ratio(),
        "send": send_ratio(),
        "scenarios": scenarios_ratio(),
    }
    if update:
        rounded = {name: round(ratio, 2) for name, ratio in ratios.items()}
        STORED.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    slower = [name for name, ratio in ratios.items() if ratio > MOST * stored[name]]
    for name, ratio in ratios.items():
        note = f"more than {MOST:g} times" if name in slower else ""
        print(f"{name:10} {ratio:6.2f}   stored {stored[name]:6.2f}   {note}".rstrip())
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
