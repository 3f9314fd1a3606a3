"""A session as the engine has it: to plan its calls (`Scene`), and to make them (`Room`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from arena_cli.adapters.runtime import Calls
from arena_cli.context import window
from arena_cli.ground.clock import Clock
from arena_cli.ground.protocol import Attachment
from arena_cli.team.mentions import Roster
from arena_cli.team.model import Team
from arena_cli.transcript.fold import Fold
from arena_cli.transcript.journal import Journal

Keep = Callable[[Sequence[Attachment], str], list[Attachment]]


class Scene(NamedTuple):
    """A session as plans are made of it; `history` is told of messages by the fold."""

    session_id: str
    team: Team
    fold: Fold
    history: window.History


class Room(NamedTuple):
    """A session in which agents are called; `journal` moves the scene's fold.

    `keep` stores attachments of a message id. `on_text` is told an agent's id and the end of its
    text so far.
    """

    scene: Scene
    roster: Roster
    journal: Journal
    runtime: Calls
    clock: Clock
    keep: Keep
    on_text: Callable[[str, str], None] | None = None
