"""Where a session's memory lies: its notes, the workspace's shared ones, and their index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from arena_cli.adapters.api import models
from arena_cli.context import window
from arena_cli.engine.recalling import Recollection
from arena_cli.ground import ownfiles
from arena_cli.ground.errors import Fault
from arena_cli.memory.folder import Folder
from arena_cli.session import approvals, store
from arena_cli.team.model import Member, Team

if TYPE_CHECKING:
    from arena_cli.memory.index import Index
    from arena_cli.session.session import Place

KNOWLEDGE = "knowledge"
INDEX = ".knowledge.sqlite"


def own_notes(session: Path, workspace: Path) -> Folder:
    """The notes of a session, by its folder."""
    return Folder(session / KNOWLEDGE, workspace, shared=False)


def shared_notes(workspace: Path) -> Folder:
    """The notes of the workspace."""
    return Folder(store.sessions_of(workspace) / KNOWLEDGE, workspace, shared=True)


def of(place: Place, session: Path, team: Team) -> Recollection:
    """What a team remembers in a session, by its folder."""
    folders = [own_notes(session, place.workspace)]
    if place.shared_notes:
        folders.append(shared_notes(place.workspace))
    for folder in folders:
        folder.sync = place.durability == "fsync"

    def make_index() -> Index:
        from arena_cli.memory.index import Index  # noqa: PLC0415 - most sessions have no notes

        index = store.sessions_of(place.workspace) / INDEX if place.shared_notes else None
        if index is not None and ownfiles.is_link(index):
            what = "is a link, and arena writes through none: notes are indexed in memory"
            shown = index.relative_to(place.workspace).as_posix()
            place.on_problem(Fault(shown, 0, "", what, ownfiles.HINT))
            index = None
        return Index(
            index,
            folders,
            embedding=place.memory.embedding,
            environ=place.environ,
            follow_trail=approvals.of_folder,
            connects=place.connects,
        )

    return Recollection(
        session.name,
        session / store.TRANSCRIPT,
        folders,
        team.config.memory,
        make_index,
        waits=place.memory.embedding is not None,
        on_problem=place.on_problem,
    )


def windows(place: Place, members: Iterable[Member]) -> dict[str, int]:
    """The tokens that the models of these agents take, by agent, as far as they are known."""
    found = {one.id: models.window_of(one.profile.adapter, place.models) for one in members}
    return {agent: tokens for agent, tokens in found.items() if tokens is not None}


def smallest_room(place: Place, members: Iterable[Member]) -> int:
    """The smallest window of these agents less what is kept for its answer, in tokens."""
    known = windows(place, members := list(members))
    sizes = [window.sizes(one.profile.context, known.get(one.id)) for one in members]
    return min(takes - reserved for takes, reserved in sizes)
