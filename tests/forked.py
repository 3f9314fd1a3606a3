"""arena in processes that end before a change of the disk, as if they were killed there."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

import forks
import pytest
from program import Done, Program

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@dataclass
class Forked(Program):
    """A program that can be cut; `count` is how often the last run to be cut changed the disk."""

    count: int = 0

    def cut(self, cut: int, *args: str, half: bool = False) -> Done:
        """Run it until it is about to change the disk for that time, counted from 1."""
        running = forks.Fork(
            args,
            request={"cut": cut, "half": half},
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        done = self.finish(running)
        (self.count,) = running.reported
        return done
