"""Sessions that somebody had, for tests of what starts from one."""

from __future__ import annotations

import asyncio
from typing import Any

from product import Event, Session, Workspace, base, reader, workspace
from product import outgoing_outgoing as outgoing
from stage import Stage


def loaded(stage: Stage) -> Workspace:
    """The workspace as its files are now."""
    return workspace.load_workspace(stage.folder.resolve(), kinds=base.KINDS)


def talk(stage: Stage, *messages: str, name: str = "s", **sent: Any) -> list[Event]:
    """A session that somebody has, message by message; the events of its transcript."""
    now = loaded(stage)
    team = now.team(now.file.team)
    for message in messages:
        with Session(stage.place(), name, team) as session:
            asyncio.run(session.last(session.send(outgoing(team, message, **sent))))
    return events(stage, name)


def events(stage: Stage, name: str = "s") -> list[Event]:
    """The events of a session's transcript."""
    path = stage.folder / "sessions" / name / "transcript.jsonl"
    return [event for line in reader.read_lines(path) for event in line.events]


def ends(found: list[Event]) -> list[int]:
    """The number of the last event of each chain."""
    return [event.seq for event in found if event.type == "chain_finished"]


def cut_short(stage: Stage, after: str, name: str = "s") -> None:
    """The session as it is if arena was killed after its last event of that type."""
    path = stage.folder / "sessions" / name / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if f'"type":"{after}"'.encode() in line)
    path.write_bytes(b"".join(lines[: last + 1]))
    reader.cache_path(path).unlink(missing_ok=True)
