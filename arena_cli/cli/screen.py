"""stdout as the commands show things on it: lines or events, in a terminal or as plain text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from arena_cli.cli import streams
from arena_cli.cli.streams import Stdout

if TYPE_CHECKING:
    from arena_cli.report.spans import Line, Span
    from arena_cli.report.terminal import Terminal, Ticker
    from arena_cli.report.words import Words
    from arena_cli.transcript.events import Event
    from arena_cli.transcript.fold import Fold


class Screen:
    """Shows lines: a terminal gets them in colour, everything else as plain text.

    With `named`, which gives an agent's face and name, a terminal in colour shows who is at work
    beneath them, until `close`.
    """

    def __init__(
        self, out: Stdout, say: Words, named: Callable[[str], list[Span]] | None = None
    ) -> None:
        self._out = out
        self._terminal: Terminal | None = None
        self._ticker: Ticker | None = None
        if streams.is_terminal(sys.stdout):
            self._open(say, named)

    def _open(self, say: Words, named: Callable[[str], list[Span]] | None) -> None:
        from arena_cli.report.live import AtWork
        from arena_cli.report.terminal import Terminal, Ticker

        colour = not os.environ.get("NO_COLOR")
        at_work = AtWork(say, named) if named and colour else None
        self._terminal = Terminal(self._out.write, sys.stdout, colour=colour, at_work=at_work)
        if at_work:
            self._ticker = Ticker(self._terminal.tick)

    @property
    def on_text(self) -> Callable[[str, str], None] | None:
        """Takes an agent's id and the end of its text so far; None where nobody would see it."""
        return self._terminal.text if self._terminal and self._ticker else None

    def show(self, lines: Iterable[Line], event: Event | None = None) -> None:
        """Print lines; `event` is what they tell of, if it is new."""
        if self._terminal:
            self._terminal.show(lines, event)
        else:
            self._out.write("".join([f"{line.text}\n" for line in lines]))

    def close(self) -> None:
        """End the live display."""
        if self._ticker:
            self._ticker.stop()
            self._ticker = None
        if self._terminal:
            self._terminal.close()


class Printer:
    """Prints events as they come: as JSON lines, as a timeline, or not at all.

    `avatars` by agent id. With `live`, a terminal shows who is at work, until `close`.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        quiet: bool = False,
        avatars: Mapping[str, str] | None = None,
        live: bool = False,
    ) -> None:
        from arena_cli.report import words
        from arena_cli.report.timeline import Timeline

        self.out = Stdout()
        say = words.here()
        self._timeline = Timeline(say, streams.encodable(avatars or {}, sys.stdout))
        self._as_json = as_json
        self._screen: Screen | None = None
        self._began = False
        if as_json:
            streams.speak_utf8()
        elif not quiet:
            self._screen = Screen(self.out, say, self._timeline.named if live else None)

    @property
    def on_text(self) -> Callable[[str, str], None] | None:
        """As that of its `Screen`."""
        return self._screen.on_text if self._screen else None

    def event(self, event: Event) -> None:
        """Print one event, which is on disk."""
        from arena_cli.ground.text import shown_json
        from arena_cli.transcript import events

        if self._as_json:
            self.out.write(shown_json(events.line_of(event).decode("utf-8")))
        elif self._screen:
            self._began = True
            self._screen.show(self._timeline.drawn(event), event)

    def goes_on(self, fold: Fold) -> None:
        """Say which session this is, unless its events just did."""
        if self._screen and fold.session and not self._began:
            turns = len(fold.open.turns) if fold.open else 0
            self._screen.show(self._timeline.goes_on(fold.session, turns))

    def close(self) -> None:
        """End the live display."""
        if self._screen:
            self._screen.close()
