"""List the lanes of a workspace: the replies that hold a place in each, and those that wait."""

from __future__ import annotations

import json
from threading import ThreadError
from typing import Any, NamedTuple, get_args

from arena_cli.session import store
from arena_cli.util import tickets
from arena_cli.workspace.models import LaneName
from arena_cli.workspace.workspace import Workspace

LANE_NAMES: tuple[LaneName, ...] = get_args(LaneName)


class LanePlace(NamedTuple):
    """A reply with a place in a lane: its session and agent, its process, when it drew the place.

    Fields are empty while the place is being drawn.
    """

    session: str
    agent: str
    pid: int
    since: str


class LaneState(NamedTuple):
    """A lane with a bound: the replies that run, and those that wait in the order of their turn."""

    name: LaneName
    bound: int
    holders: tuple[LanePlace, ...]
    waiting: tuple[LanePlace, ...]


def list_lanes(workspace: Workspace) -> list[LaneState]:
    """Return the lanes that `arena.yaml` bounds; raise DiskRefused where they cannot be read.

    Places of processes that ended are removed.
    """
    states: list[LaneState] = []
    for name in LANE_NAMES:
        bound = workspace.file.lanes.find_bound(name)
        if bound is not None:
            places = _read_places(workspace, name)
            states.append(LaneState(name, bound, places[:bound], places[bound:]))
    return states


def _read_places(workspace: Workspace, name: LaneName) -> tuple[LanePlace, ...]:
    path = store.lane_path(workspace.root, name)
    try:
        return tuple(_parse_place(owner) for owner in tickets.list_owners(path))
    except FileNotFoundError:  # no reply drew a place yet
        return ()
    except (OSError, ThreadError) as error:
        raise tickets.refused(path.parent, error) from error


def _parse_place(owner: bytes) -> LanePlace:
    try:
        fields: dict[str, Any] = json.loads(owner)
        return LanePlace(
            str(fields["session"]), str(fields["agent"]), int(fields["pid"]), str(fields["since"])
        )
    except (ValueError, KeyError, TypeError):
        return LanePlace("", "", 0, "")
