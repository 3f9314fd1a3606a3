"""Where events come into being: written to the log, folded, then told to whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from arena_cli.transcript.events import Event
from arena_cli.transcript.fold import Fold
from arena_cli.transcript.log import Log, Stamp

E = TypeVar("E", bound=Event)


class Journal:
    """A log and its fold, moving together. `on_event` hears each event once it is on disk."""

    def __init__(self, log: Log, fold: Fold, on_event: Callable[[Event], None]) -> None:
        self.log = log
        self.fold = fold
        self._on_event = on_event

    def write(self, make: Callable[[Stamp], E]) -> E:
        """Append the event that `make` builds around its stamp. Raises DiskRefused."""
        event = make(self.log.stamp())  # as `_append`: most events come this way
        self.log.append(event)
        self.fold.apply(event)
        self._on_event(event)
        return event

    def write_all(
        self, makes: Sequence[Callable[[Stamp], E]], then: Callable[[], object] = lambda: None
    ) -> list[E]:
        """Append events in order, do what follows on them, and tell of them. Raises DiskRefused."""
        events = [self._append(make) for make in makes]
        then()
        for event in events:
            self._on_event(event)
        return events

    def _append(self, make: Callable[[Stamp], E]) -> E:
        event = make(self.log.stamp())
        self.log.append(event)
        self.fold.apply(event)
        return event
