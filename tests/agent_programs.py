"""Agent programs for tests of their kinds: one that plays captured output, and the real ones.

played = agent_programs.Played(tmp_path, "codex")      stands on PATH as `codex`
played.plan(sample("codex", "json"), sample("codex", "err401", code=1))
adapter = played.adapter(CodexAdapter, model="m")
played.calls()                                         what it was given, call by call

started = agent_programs.Started()
started.pids()                                         the processes below pytest begun since
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from adapter_setups import PROGRAMS, a_setup, runs
from product import ProgramAdapter

SLOW = {"gemini", "opencode"}
"""Real programs that need three to five seconds to start, with both cores of a small machine."""

SAMPLES = Path(__file__).parent / "samples"


def sample(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A captured run, as an entry of a plan; `more` are its `code` and `sleep`."""
    texts = {
        stream: path.read_text(encoding="utf-8")
        for stream in ("stdout", "stderr")
        if (path := SAMPLES / kind / f"{name}.{stream}").exists()
    }
    assert texts, f"there is no sample {kind}/{name}"
    return {**texts, **more}


class Played:
    """A program that plays captured output."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        script = PROGRAMS / "play_agent.py"
        if sys.platform == "win32":
            path = self.bin / f"{name}.cmd"
            path.write_text(f'@"{sys.executable}" "{script}" %*\n', encoding="utf-8")
        else:
            path = self.bin / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', "utf-8")
            path.chmod(0o755)

    def plan(self, *entries: dict[str, Any]) -> None:
        (self.folder / "plan.json").write_text(json.dumps(entries), encoding="utf-8")

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def adapter(self, adapter: type[ProgramAdapter], **keys: Any) -> ProgramAdapter:
        environ = {**os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        env = {"PLAY_FOLDER": str(self.folder), **keys.pop("env", {})}
        return an_adapter(adapter, self.folder, environ, env=env, **keys)


def an_adapter(
    adapter: type[ProgramAdapter], folder: Path, environ: dict[str, str], **keys: Any
) -> ProgramAdapter:
    kind, servers = adapter.__name__.removesuffix("Adapter").lower(), keys.pop("servers", ())
    settings = adapter.settings_type.model_validate({"type": kind, **keys})
    return adapter(a_setup(folder, settings, environ=environ, servers=servers))


def real(name: str, home: Path) -> dict[str, str]:
    """The environment for a real program with a home of its own; skips where it is not on PATH."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not on PATH")
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "USERPROFILE": str(home)}


def skip_if_slow(name: str) -> None:
    """Leave a further case of a slow program to HYPOTHESIS_PROFILE=nightly."""
    if name in SLOW and os.environ.get("HYPOTHESIS_PROFILE") != "nightly":
        pytest.skip("slow with this program; HYPOTHESIS_PROFILE=nightly runs it")


class Started:
    """The processes below this one that were not there when it was made; no zombies."""

    def __init__(self) -> None:
        self._before = set(_below())

    def pids(self) -> list[int]:
        return [pid for pid in _below() if pid not in self._before and runs(pid)]


def _below() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True)]
