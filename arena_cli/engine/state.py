"""Define the engine's view of a session: to plan calls (`Scene`) and to make them (`Room`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from arena_cli.adapters.runtime import Calls
from arena_cli.context import window
from arena_cli.context.history import NOTHING, History, Memory
from arena_cli.engine import recall
from arena_cli.engine.recall import Recollection
from arena_cli.protocol import Attachment, Message
from arena_cli.transcript.log import Journal
from arena_cli.transcript.state import Fold
from arena_cli.util.clock import Clock
from arena_cli.workspace.mentions import Roster
from arena_cli.workspace.models import Language, Member, Team

NO_WINDOWS: Mapping[str, int] = MappingProxyType({})

Keep = Callable[[Sequence[Attachment], str], list[Attachment]]


class Scene(NamedTuple):
    """A session as plans are made of it; the fold adds messages to `history`.

    Without a `recollection`, only messages are remembered. `windows` are the context windows of the
    agents' models in tokens, where known.
    """

    session_id: str
    team: Team
    fold: Fold
    history: History
    recollection: Recollection | None = None
    windows: Mapping[str, int] = NO_WINDOWS

    def head(self, agent: str) -> window.Head:
        """Return the part of the input that is the same in each call of a member."""
        return window.make_head(self.team, agent, self.windows.get(agent))

    def limits(self, agent: str) -> window.Limits:
        """Return the limits on how much of the conversation an agent is shown."""
        factor = self.fold.counts.factor(agent)
        fits = self.fold.fits.get(agent)
        most = None if fits is None else round(fits / factor)
        return window.Limits(factor, self.team.config.memory.warn_at, most)

    def room(self, agent: str) -> int:
        """Return the tokens that a member may be shown, as its model counts them; at least 1."""
        room = self.head(agent).room
        return max(min(room, self.fold.fits.get(agent, room)), 1)

    def reaches(self, agent: str, message: Message) -> bool:
        """Return True if a message is among the newest that an agent has room for."""
        head, limits = self.head(agent), self.limits(agent)
        return window.reaches(head, self.history, message.seq, self.summary(), limits)

    def summary(self) -> Memory:
        """Return the last summary as memory, without notes."""
        return recall.recall_summary(self.fold)

    def memory(self, new: str) -> Memory:
        """Return the memory for a call that is about the text `new`."""
        if self.recollection is None:
            return NOTHING
        return self.recollection.memory(new, self.fold, self.history)


class Room(NamedTuple):
    """A session in which agents are called; `journal` updates the scene's fold.

    `keep` stores the attachments of a message id. `on_text` receives an agent's id and the end of
    its text so far. `summarizer` and `extractor` are agents that work for the team's memory.
    """

    scene: Scene
    roster: Roster
    journal: Journal
    runtime: Calls
    clock: Clock
    keep: Keep
    language: Language
    on_text: Callable[[str, str], None] | None = None
    summarizer: Member | None = None
    extractor: Member | None = None
