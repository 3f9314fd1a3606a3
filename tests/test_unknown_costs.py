"""Sums of costs of which some are not known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from program import Program


@pytest.mark.parametrize(
    ("costs", "shown"),
    [
        ((0.25, None), " · $0.2500 + unknown"),
        ((0.25, 0.5), " · $0.7500"),
        ((None, None), ""),
        ((0.0, None), ""),
    ],
)
def test_the_sum_of_a_chain_names_its_unknown_part(
    tmp_path: Path, costs: tuple[float | None, ...], shown: str
) -> None:
    program = Program(tmp_path)
    program.env["COLUMNS"] = "160"
    for name, cost in zip("ab", costs, strict=True):
        usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": cost}
        text = json.dumps({"content": "fine", "usage": usage})
        command = [sys.executable, "-c", f"print({text!r})"]
        program.agent(name, adapter={"type": "cli", "command": command, "output": "json"})
    done = program.run("send", "@a @b hello")
    assert done.code == 0, done.stdout
    end = next(line for line in done.stdout.splitlines() if line.startswith("══"))
    assert end.partition("20 → 10 tokens")[2] == shown
