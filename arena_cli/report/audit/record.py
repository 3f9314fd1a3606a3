"""A session's record, ready to be written in one of the formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from arena_cli.report.audit import entries
from arena_cli.report.audit.entries import Entry
from arena_cli.report.audit.totals import Totals
from arena_cli.transcript.events import Event, SessionEvent


@dataclass
class Record:
    """What is written of a session: its name, who talks in it now, and its events, read once.

    `audit`: every call, not only what was said. `totals` and `unreadable`, the number of lines of
    the transcript that could not be read, are known once all entries have passed.
    """

    session: str
    opening: SessionEvent | None
    events: Iterable[Event]
    audit: bool = False
    totals: Totals = field(default_factory=Totals)
    unreadable: int = 0

    def entries(self) -> Iterator[Entry]:
        """Its entries, in order."""
        if not self.audit:
            yield from entries.conversation(self.events)
            return
        yield from self.totals.passing(entries.audit(self.events))

    def facts(self) -> dict[str, Any]:
        """Whose record it is."""
        opening = self.opening
        told: dict[str, Any] = {
            "session": self.session,
            "team": opening.team if opening else None,
            "members": [one.model_dump(mode="json") for one in opening.members] if opening else [],
            "audit": self.audit,
        }
        if opening and opening.scenario is not None:
            told["scenario"] = opening.scenario
        return told
