"""What tests of scenarios share: a workspace of scripted agents, and scenarios played in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from product import (
    CheckResult,
    Runner,
    Scenario,
    ScenarioResult,
    Selected,
    SessionConfig,
    base,
    workspace,
)
from product import reports_results as results
from product import scenarios_loader as loader

TEAM = "crew"


@dataclass
class Stage:
    """A workspace in `folder`, whose team `crew` has all of its agents."""

    folder: Path

    def agent(self, agent_id: str, *replies: Any, **profile: Any) -> Stage:
        """Add a scripted agent that gives these replies; `profile` are further keys."""
        profile.setdefault("adapter", {"type": "scripted", "replies": list(replies)})
        self._write(f"agents/{agent_id}.yaml", {"agent_id": agent_id, **profile})
        return self

    def team(self, humans: Sequence[str] = (), **config: Any) -> Stage:
        """Write the team file; everyone there is is a member."""
        members = sorted(path.stem for path in (self.folder / "agents").glob("*.yaml"))
        people = [{"id": name, "name": name.title()} for name in humans]
        team = {"team": TEAM, "members": members, "humans": people, "config": config}
        self._write(f"agents/teams/{TEAM}.yaml", team)
        self._write("arena.yaml", {"team": TEAM})
        return self

    def _write(self, path: str, data: Any) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")

    def scenario(self, text: str, name: str = "one") -> Path:
        """Write a scenario file."""
        path = self.folder / "scenarios" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, *texts: str) -> list[Scenario]:
        """Write scenarios and load them; raises FileFaults."""
        paths = [self.scenario(text, f"s{number}") for number, text in enumerate(texts)]
        return self.load_files(*paths)

    def load_files(self, *paths: Path) -> list[Scenario]:
        """Load these files; raises FileFaults."""
        return self.load_selected(Selected(tuple(path.resolve() for path in paths)))

    def load_selected(self, selected: Selected) -> list[Scenario]:
        """Load what is selected; raises FileFaults."""
        return loader.load(
            selected, workspace.load_workspace(self.folder.resolve(), kinds=base.KINDS)
        )

    def place(self) -> SessionConfig:
        return SessionConfig(workspace=self.folder, durability="flush", wait_s=0)

    def play(self, text: str) -> ScenarioResult:
        """Write a scenario, play it, and give what came of it."""
        told: list[ScenarioResult] = []
        asyncio.run(Runner(self.load(text), self.place(), told.append).run())
        return told[0]

    def play_all(self, *texts: str, **options: Any) -> list[ScenarioResult]:
        """Write scenarios, play them, and give what came of them."""
        told: list[ScenarioResult] = []
        asyncio.run(Runner(self.load(*texts), self.place(), told.append, **options).run())
        return told

    def sessions(self) -> list[str]:
        """The names of the sessions that are kept."""
        folder = self.folder / "sessions"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def broken(result: ScenarioResult) -> list[CheckResult]:
    """The checks that did not pass, those of steps first."""
    checks = [check for step in result.steps for check in step.checks] + list(result.checks)
    return [check for check in checks if check.status != "passed"]


def printed(result: ScenarioResult) -> str:
    """The result as text."""
    return "\n".join(line.text for line in results.draw_result(result))
