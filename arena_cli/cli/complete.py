"""Complete names in a shell: sessions, agents, kinds of agents, teams and scenarios.

A missing or broken workspace offers no names: the command reports it when it runs.

A name may come from a cloned repository. Shells insert offered words unquoted, or evaluate them, so
only plain words are offered.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from arena_cli.adapters import base
from arena_cli.session import store
from arena_cli.util.text import escape_line
from arena_cli.workspace import workspace

# Harmless anywhere in a word, and only behind its beginning: there `-` makes an option, `@` and `%`
# variables of PowerShell and fish. A `,` parts PowerShell's lists, a `:` zsh's descriptions.
_ANYWHERE = frozenset("._+")
_BEHIND = _ANYWHERE | frozenset("-@%")


def complete_sessions(context: typer.Context, incomplete: str) -> list[str]:
    """Return sessions, the most recently written first."""

    def names(root: Path) -> Iterable[str]:

        return (session.name for session in store.stored(root))

    return _offered(names, context, incomplete)


def complete_agents(context: typer.Context, incomplete: str) -> list[str]:
    """Return agents by id, then by their other names."""

    def names(root: Path) -> Iterable[str]:

        profiles = workspace.load_workspace(root, kinds=base.KINDS, anywhere=True).profiles
        aliases = (
            name
            for profile in profiles.values()
            for name in (profile.name, *profile.aliases)
            if name
        )
        return dict.fromkeys((*profiles, *aliases))

    return _offered(names, context, incomplete)


def complete_teams(context: typer.Context, incomplete: str) -> list[str]:
    """Return teams by the names of their files."""
    return _offered(lambda root: _stems(root / "agents" / "teams"), context, incomplete)


def complete_scenarios(context: typer.Context, incomplete: str) -> list[str]:
    """Return scenarios by the names of their files in `scenarios/`."""
    folder = "scenarios"
    return _offered(
        lambda root: [*_stems(root / folder), *_stems(root / folder, ".yml")], context, incomplete
    )


def complete_kinds(incomplete: str) -> list[str]:
    """Return kinds of adapters, with or without a workspace."""
    return [kind for kind in base.list_kinds() if kind.startswith(incomplete) and _is_plain(kind)]


def _offered(
    names: Callable[[Path], Iterable[str]], context: typer.Context, incomplete: str
) -> list[str]:
    """Return the names of a workspace that begin with the typed text; none on any error."""
    try:
        folder = context.find_root().params.get("workspace")
        root = workspace.find_workspace(Path.cwd(), Path(folder) if folder else None, os.environ)
        candidates = list(names(root))
    except Exception:  # noqa: BLE001 - nothing may be printed between a prompt and its cursor
        return []
    return [name for name in candidates if name.startswith(incomplete) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    """Return True if every shell takes the text as one visible, literal word."""
    return (
        name == escape_line(name) != ""
        and all(char in _BEHIND or _is_letter(char) for char in name)
        and (name[0] in _ANYWHERE or _is_letter(name[0]))
    )


def _is_letter(char: str) -> bool:
    """Return True for a letter, digit or combining mark of any script."""
    return unicodedata.category(char)[0] in "LNM"


def _stems(folder: Path, suffix: str = ".yaml") -> list[str]:

    return [name.removesuffix(suffix) for name in workspace.list_files(folder, suffix)]
