"""Tell agents, when a chain starts, which files that they read or wrote have changed since."""

from __future__ import annotations

from pathlib import Path

from arena_cli.engine.notices import write_notice
from arena_cli.engine.plan import Room
from arena_cli.tools.seen import ChangedFile, SeenFiles
from arena_cli.util.language import Texts


def report_changes(room: Room, folder: Path) -> None:
    """Write a message for each file that has changed; `folder` has the records of the session.

    Only the agents that read or wrote the file are shown it. Raises DiskRefused.
    """
    seen = SeenFiles(folder, room.runtime.redactor.text_or_nothing)
    for change in seen.take_changes():
        write_notice(room, _describe(change, room), kind="file", shown_to=list(change.agents))


def _describe(change: ChangedFile, room: Room) -> str:
    say = Texts(room.language)
    text = say("The file {name} has changed since you last read or wrote it.", name=change.name)
    fence = "```"
    while fence in change.diff:
        fence += "`"
    return f"{text}\n\n{fence}diff\n{change.diff}{fence}" if change.diff else text
