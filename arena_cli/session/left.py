"""What an arena that was killed left running in a workspace."""

from __future__ import annotations

from pathlib import Path

from arena_cli.adapters.processes import strays
from arena_cli.adapters.processes.strays import Stray
from arena_cli.session import store

RECORDS = ".processes"


def records_in(workspace: Path) -> Path:
    """Return the folder where it is recorded which processes run."""
    return store.sessions_of(workspace) / RECORDS


def behind(workspace: Path) -> list[Stray]:
    """Return the processes that the next arena which calls agents there will end."""
    return strays.left(records_in(workspace))
