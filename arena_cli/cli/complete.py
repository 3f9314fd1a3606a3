"""What a shell offers at Tab: names of sessions, agents, teams and scenarios.

A workspace that is not there, or is broken, has no names: whoever types is told when the command
runs, not before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer


def complete_sessions(context: typer.Context, incomplete: str) -> list[str]:
    """Sessions, the last written first."""

    def names(root: Path) -> Iterable[str]:
        from arena_cli.session import store

        return (one.name for one in store.stored(root))

    return _offered(names, context, incomplete)


def complete_agents(context: typer.Context, incomplete: str) -> list[str]:
    """Agents by id, then by their other names."""

    def names(root: Path) -> Iterable[str]:
        from arena_cli.adapters import registry
        from arena_cli.team import workspace

        profiles = workspace.load(root, kinds=registry.KINDS).profiles
        others = (name for one in profiles.values() for name in (one.name, *one.aliases) if name)
        return dict.fromkeys((*profiles, *others))

    return _offered(names, context, incomplete)


def complete_teams(context: typer.Context, incomplete: str) -> list[str]:
    """Teams by the names of their files."""
    return _offered(lambda root: _stems(root / "agents" / "teams"), context, incomplete)


def complete_scenarios(context: typer.Context, incomplete: str) -> list[str]:
    """Scenarios by the names of their files in `scenarios/`."""
    return _offered(lambda root: _stems(root / "scenarios"), context, incomplete)


def _offered(
    names: Callable[[Path], Iterable[str]], context: typer.Context, incomplete: str
) -> list[str]:
    """The names in a workspace that begin with what is typed; none where anything goes wrong."""
    from arena_cli.team import workspace

    try:
        named = context.find_root().params.get("workspace")
        root = workspace.find(Path.cwd(), Path(named) if named else None, os.environ)
        found = list(names(root))
    except Exception:  # noqa: BLE001 - nothing may be printed between a prompt and its cursor
        return []
    # A name with a space would be two words to the shell.
    return [name for name in found if name.startswith(incomplete) and len(name.split()) == 1]


def _stems(folder: Path) -> list[str]:
    from arena_cli.team import files

    return [name.removesuffix(files.SUFFIX) for name in files.names(folder)]
