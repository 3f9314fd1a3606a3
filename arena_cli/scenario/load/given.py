"""The past that a scenario starts from, its neutral messages apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from arena_cli.ground.errors import Fault
from arena_cli.scenario.load import past
from arena_cli.scenario.load.include import Reader
from arena_cli.scenario.load.parts import tried
from arena_cli.scenario.load.scenario import there
from arena_cli.scenario.load.shapes import Given
from arena_cli.session import outgoing
from arena_cli.session.outgoing import PastPart
from arena_cli.team.model import Team
from arena_cli.yamlio.document import Part


class Pasts:
    """Makes the pasts of one file's cases; those that start from one event are read once."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self._path = path
        self._reader = reader
        self._read: dict[tuple[str, int | None], tuple[list[PastPart], list[Fault]]] = {}

    def of(
        self, given: Given, team: Team, parts: Sequence[Part], faults: list[Fault]
    ) -> list[PastPart]:
        """What is planted: what was said in a transcript, then the messages of the file itself."""
        found: list[PastPart] = []
        if given.transcript is not None:
            key = (given.transcript, given.until)
            if key not in self._read:
                self._read[key] = self._said(*key, parts)
            found += self._read[key][0]
            faults += self._read[key][1]
        for index, said in enumerate(given.messages):
            author, content = next(iter(said.items()))
            make = partial(outgoing.planted, team, author, content)
            one = tried(make, parts, ("given", "messages", index), faults)
            found += [one] if one is not None else []
        return found

    def _said(
        self, name: str, until: int | None, parts: Sequence[Part]
    ) -> tuple[list[PastPart], list[Fault]]:
        faults: list[Fault] = []
        loc = ("given", "transcript")
        read = tried(
            lambda: past.of(there(name, self._path, self._reader), until), parts, loc, faults
        )
        if read is None:
            return [], faults
        place = loc if until is None else ("given", "until")
        said = tried(lambda: past.planted(read, until, self._reader.root), parts, place, faults)
        return said or [], faults
