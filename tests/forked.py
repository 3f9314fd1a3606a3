"""arena as a user runs it, in forks of one warmed process: a tenth of the time of a new one."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from program import ROOT, Done, Program

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@functools.cache
def _cutter() -> subprocess.Popen[str]:
    """Start the warmed process, which ends when this one does."""
    program = str(ROOT / "tests" / "programs" / "cutter.py")
    return subprocess.Popen(
        [sys.executable, program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@dataclass
class Forked(Program):
    """A program whose runs are forks; `count` is how often the last one changed the disk."""

    count: int = 0

    def run(self, *args: str, given: bytes | None = None, **options: Any) -> Done:
        """Run it to its end."""
        if given is not None or options or not hasattr(os, "fork"):
            return super().run(*args, given=given, **options)
        return self.cut(0, *args, counts=False)

    def cut(self, cut: int, *args: str, half: bool = False, counts: bool = True) -> Done:
        """Run it until it is about to change the disk for that time, counted from 1."""
        cutter = _cutter()
        assert cutter.stdin is not None
        assert cutter.stdout is not None
        request = {
            "cwd": str(self.folder),
            "env": self.environment(),
            "args": args,
            "cut": cut,
            "half": half,
            "counts": counts,
        }
        cutter.stdin.write(json.dumps(request) + "\n")
        cutter.stdin.flush()
        told = json.loads(cutter.stdout.readline())
        self.count = told["count"]
        out, problems = told["out"].encode(), told["problems"].encode()
        return Done(out, problems, told["code"], self.folder)
