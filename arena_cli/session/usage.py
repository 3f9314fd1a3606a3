"""The events of a transcript that tell what was used, read as they stand, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from arena_cli.ground import regularfiles
from arena_cli.transcript import events, read
from arena_cli.transcript.events import Event
from arena_cli.transcript.read import Problem

TYPES = frozenset({"session", "reply_started", "reply_finished", "compacted", "extracted"})


def spending(transcript: Path, on_problem: Callable[[Problem], None]) -> Iterator[Event]:
    """The events of these types, in order; `on_problem` is told of lines that cannot be read.

    A last line without its end is being written, and left out. Raises OSError.
    """
    with regularfiles.open_binary(transcript) as file:
        for number, raw in enumerate(file, 1):
            kind = events.type_of(raw)
            if (kind is not None and kind not in TYPES) or not raw.endswith(b"\n"):
                continue
            found, what = read.parsed(raw)
            if what:
                on_problem(Problem(number, what))
            yield from (event for event in found if event.type in TYPES)
