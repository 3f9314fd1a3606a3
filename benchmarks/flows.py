"""Run a flow of 200 steps, 50 side by side, and compare its time with its longest path.

    python benchmarks/flows.py [--seconds 2]

Half of the steps are functions, half are programs; each sleeps, and needs one of the layer before.
The starts of processes are measured by the bare programs, as many at once. It fails if the flow
takes more than 1.3 times the longest path plus these starts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LAYERS = 4
WIDE = 50
MOST = 1.3

FUNCTION = """import time


def rest(seconds: float) -> float:
    time.sleep(seconds)
    return seconds
"""


def make_flow(seconds: float) -> dict[str, Any]:
    steps = []
    for layer in range(LAYERS):
        for place in range(WIDE):
            step: dict[str, Any] = {"id": f"s{layer}_{place}"}
            if layer:
                step["needs"] = [f"s{layer - 1}_{place}"]
            if place % 2:
                step |= {"python": "rest.py:rest", "inputs": {"seconds": seconds}}
            else:
                step["shell"] = ["sleep", str(seconds)]
            steps.append(step)
    return {"flow": "Wide", "parallel": WIDE, "steps": steps}


def run_flow(folder: Path, seconds: float) -> float:
    """Return the time of the whole command, in seconds."""
    (folder / "flow.yaml").write_text(json.dumps(make_flow(seconds)), encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ARENA_TRUST": "1"}
    command = [sys.executable, "-m", "arena_cli", "flow", "run", "flow.yaml", "--quiet", "--json"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False)
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr.decode()
    steps = json.loads(done.stdout)["steps"]
    assert len(steps) == LAYERS * WIDE
    assert all(step["status"] == "success" for step in steps.values())
    return took


async def start_bare(folder: Path) -> None:
    """Start and end the processes of the flow without it, 50 at a time."""
    places = asyncio.Semaphore(WIDE)
    worker = str(ROOT / "arena_cli" / "tools" / "function_worker.py")
    commands = [["sleep", "0"]] * (LAYERS * WIDE // 2)
    commands += [[sys.executable, worker, "rest.py:rest"]] * (WIDE // 2)

    async def start(command: list[str]) -> None:
        async with places:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            request = {"arguments": {"seconds": 0}, "typed": True}
            await process.communicate(json.dumps(request).encode() + b"\n")

    await asyncio.gather(*map(start, commands))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="the time of each step")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "arena.yaml").write_text("{}\n", encoding="utf-8")
        (folder / "rest.py").write_text(FUNCTION, encoding="utf-8")
        began = time.monotonic()
        asyncio.run(start_bare(folder))
        starts = time.monotonic() - began
        took = run_flow(folder, seconds)
    path = LAYERS * seconds
    ratio = took / (path + starts)
    print(
        f"longest path {path:.1f} s, process starts {starts:.1f} s, flow {took:.1f} s: {ratio:.2f}"
    )
    if ratio > MOST:
        sys.exit(f"more than {MOST} times the longest path plus process starts")


if __name__ == "__main__":
    main()
