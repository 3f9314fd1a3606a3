"""Read archived sessions, and archive old ones: what commands do only if there are archives."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from arena_cli.cli import common
from arena_cli.reports.lines import user_words
from arena_cli.session import end_of_life
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.adapters.base import SessionConfig
    from arena_cli.session.store import Stored


def read_archived(context: typer.Context, root: Path, only: Path | None) -> Iterator[Stored]:
    """Yield the archived sessions, or `only` that of an archive, from temporary files.

    An archive of a session that exists is left out. The files are removed when the command ends.
    """
    folder = context.with_resource(tempfile.TemporaryDirectory(prefix="arena-"))
    for archived in end_of_life.list_archived(root):
        if only in (None, archived.path):
            yield end_of_life.read_archived(archived, Path(folder))


def archive_old_sessions(config: SessionConfig, days: int | None, kept: Collection[str]) -> None:
    """Archive the sessions that have not changed for `days`, and report it in one line."""
    retired = end_of_life.archive_old(config, days, kept)
    say = user_words()
    if retired.names:
        names = say(", ").join(map(escape_line, retired.names))
        text = say("archived, unchanged for {days} days: {names}", days=days, names=names)
        common.print_error(text)
    for problem in retired.problems:
        common.warn(f"warning: {problem}")
