"""Which part of a session `arena show` prints, and how it goes on with what is appended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from arena_cli.cli import common
from arena_cli.ground.errors import UsageError
from arena_cli.transcript import concerning, follow, passage, read
from arena_cli.transcript.fold import Fold
from arena_cli.transcript.passage import Passage

if TYPE_CHECKING:
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event

LAST = -1


def turn_of(text: str) -> int:
    """`7`, `t7`, or `last`, which is -1. Raises UsageError."""
    word = text.strip().casefold()
    if word == "last":
        return LAST
    try:
        number = int(word.removeprefix("t"))
    except ValueError:
        number = 0
    if number == 0:
        raise UsageError(
            f"--turn {text!r} is no turn", "Give its number, such as 7 or t7, or `last`."
        )
    return number


class ShownEvents:
    """The events of a session to be shown, in order.

    `heading` is told who talks where the first event is not the transcript's own.
    """

    def __init__(self, stored: Stored, heading: Callable[[Fold], None]) -> None:
        self._stored = stored
        self._path = stored.transcript
        self._heading = heading
        self._cut = False

    def everything(self) -> Iterator[Event]:
        """All that can be read; what cannot is told on stderr, with its line."""
        for line in read.lines(self._path):
            common.warn_of(self._path, [line.problem] if line.problem else [])
            yield from line.events

    def turn(self, wanted: int) -> Iterator[Event]:
        """One turn, by its number or from the end."""
        number = passage.turn_number(self._path, wanted)
        yield from self._passage(passage.turn(self._path, number))

    def after(self, seq: int) -> Iterator[Event]:
        """What comes after an event."""
        offset = passage.offset_after(self._path, seq)
        if offset:
            self._heading(passage.fold_before(self._path, offset))
        for line in read.lines(self._path, start=offset):
            self._skipped(bool(line.problem))
            yield from (event for event in line.events if event.seq > seq)

    def following(self, seq: int | None) -> Iterator[Event]:
        """What comes after an event, else the last chain; then all that is appended."""
        if seq is None:
            found = passage.last_chain(self._path)
            yield from self._passage(found)
            start = found.end
        else:
            start = passage.offset_after(self._path, seq)
            if start:
                self._heading(passage.fold_before(self._path, start))
        for line in follow.follow(self._path, start, wait=_wait, on_cut=self._tell_cut):
            self._skipped(bool(line.problem))
            for event in line.events:
                if self._cut or seq is None or event.seq > seq:
                    yield event
        common.warn(f"session {self._stored.name}: its transcript is gone")

    def _passage(self, found: Passage) -> Iterable[Event]:
        self._skipped(found.skipped)
        if found.events and found.events[0].seq > 1:
            fold = Fold()
            fold.session = passage.session_before(self._path, found.events[0].seq)
            self._heading(fold)
        return found.events

    def _skipped(self, count: int) -> None:
        if count:
            lines = "a line" if count == 1 else f"{count} lines"
            common.warn(
                f"session {self._stored.name}: {lines} could not be read; "
                f"`arena doctor {self._stored.name}` tells which"
            )

    def _tell_cut(self) -> None:
        self._cut = True
        common.warn(f"session {self._stored.name}: its transcript was cut; reading on")


def _wait() -> None:
    time.sleep(follow.POLL_S)


def told(events: Iterable[Event], agent: str | None) -> Iterator[Event]:
    """The events, or those that concern one agent; a line on stderr if none does."""
    if agent is None:
        yield from events
        return
    one = concerning.OfAgent(agent)
    for event in events:
        yield from one.take(event)
    if not one.found:
        common.warn(f"{agent} was not called there")
