"""A real terminal: lines in colour that wrap, and beneath them who is at work, drawn by rich.

Nothing of an agent's text reaches rich's markup: it is handed over as pieces with a style, and was
escaped before. Only a real terminal imports this module.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, cast

import rich.live
from rich.console import Console, ConsoleOptions
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.style import Style

from arena_cli.report import cells
from arena_cli.report.live import AtWork
from arena_cli.report.spans import Line, Span
from arena_cli.transcript.events import Event

REFRESH_S = 0.5

# Each can be read on black and on white (a contrast of 3 and more), and none is an error's red.
AGENT_COLOURS = (33, 166, 64, 133, 31, 136, 98, 29, 168, 66)
STYLES = {
    "": "",
    "dim": "dim",
    "rule": "dim",
    "strong": "bold",
    "human": "bold",
    "failed": "bold color(160)",
    "warned": "color(136)",
    "added": "color(28)",
    "removed": "color(160)",
    "hunk": "color(31)",
    **{f"agent{place}": f"bold color({number})" for place, number in enumerate(AGENT_COLOURS)},
}

_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"


class Terminal:
    """Prints lines; with `at_work`, a line per working agent stays beneath them until `close`.

    `write` takes text for `stream`, which is a terminal. Without `colour` nothing but text and line
    ends is written, and there is no live display. Whoever wants seconds to count calls `tick`.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        stream: TextIO,
        *,
        colour: bool = True,
        at_work: AtWork | None = None,
    ) -> None:
        self._console = Console(
            file=cast("TextIO", _File(write, stream)),
            force_terminal=True,
            highlight=False,
            no_color=not colour,
        )
        self._styles = {
            name: Style.parse(style) if colour else None for name, style in STYLES.items()
        }
        self._encoding = stream.encoding
        self._any_script = stream.encoding.casefold().startswith("utf")
        self._work = at_work if colour else None
        self._live: rich.live.Live | None = None
        self._beneath = _Segments([])
        self._drawn: tuple[int, list[int]] = (0, [])
        self._lock = threading.RLock()

    def show(self, lines: Iterable[Line], event: Event | None = None) -> None:
        """Print lines that are on disk, and take in what the event says of who is at work."""
        with self._lock:
            if self._work and event:
                self._work.event(event)
            width = self._console.width
            segments = [segment for line in lines for segment in self._line(line, width)]
            if self._live:
                self._update()
            if segments:
                self._console.print(_Segments(segments), crop=False)
            elif self._live:
                self._live.refresh()

    def text(self, agent: str, tail: str) -> None:
        """The end of what an agent has written so far; drawn by the next tick."""
        with self._lock:
            if self._work:
                self._work.text(agent, tail)

    def tick(self) -> None:
        """Draw anew who is at work."""
        with self._lock:
            if not self._work or not self._work.anyone:
                self.close()
                return
            if not self._live:
                self._live = rich.live.Live(
                    self._beneath,
                    console=self._console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                    vertical_overflow="crop",
                )
                self._live.start()
            self._update()
            self._live.refresh()

    def close(self) -> None:
        """Take the live display away; the cursor stands where the next line goes."""
        with self._lock:
            if self._live:
                live, self._live = self._live, None
                self._over_what_was_broken()
                live.stop()
                self._drawn = (0, [])

    def _update(self) -> None:
        """What the live display shows when it, or anything else, is drawn next."""
        assert self._work
        self._over_what_was_broken()
        width = self._console.width
        # One column and two rows stay free, so that the terminal never scrolls by itself.
        lines = self._work.lines(width - 1, self._console.height - 2)
        segments = [[*self._pieces(self._within(line, width - 1))] for line in lines]
        self._drawn = (width, [Segment.get_line_length(row) for row in segments])
        self._beneath.segments = [*_joined(segments)]

    def _over_what_was_broken(self) -> None:
        """A terminal that became narrower broke the lines that are to be drawn over."""
        width, drawn = self._drawn
        now = self._console.width
        more = sum(max(columns - 1, 0) // now for columns in drawn) if now < width else 0
        if more:
            up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(*up * more))

    def _within(self, line: Line, width: int) -> Iterable[Span]:
        """A line that was made to fit; escapes of what cannot be written may make it longer."""
        spans = self._writable(line.spans)
        text = "".join(span.text for span in spans)
        return spans if cells.width_of(text) <= width else [Span(cells.fit(text, width))]

    def _line(self, line: Line, width: int) -> Iterator[Segment]:
        spans = self._writable(line.spans)
        if line.whole or not spans:
            yield from self._pieces(spans)
        else:
            yield from self._wrapped(spans, width, line.hang)
        yield Segment.line()

    def _writable(self, spans: tuple[Span, ...]) -> tuple[Span, ...]:
        """With escapes for what the terminal's encoding has not, before it is measured."""
        if self._any_script:
            return spans
        encoding = self._encoding
        return tuple(
            span._replace(text=span.text.encode(encoding, "backslashreplace").decode(encoding))
            for span in spans
        )

    def _wrapped(self, spans: tuple[Span, ...], width: int, hang: int | None) -> Iterator[Segment]:
        text = "".join(span.text for span in spans)
        if "\t" in text:
            spans = tuple(span._replace(text=span.text.expandtabs(4)) for span in spans)
            text = "".join(span.text for span in spans)
        hang, rows = cells.rows(text, width, hang)
        for number, (start, end) in enumerate(rows):
            if number:
                yield Segment.line()
                yield Segment(" " * hang)
            yield from self._pieces(_between(spans, start, end) if len(rows) > 1 else spans)

    def _pieces(self, spans: Iterable[Span]) -> Iterator[Segment]:
        for text, style in spans:
            if (
                self._any_script
                and style.startswith(("agent", "human"))
                and cells.turns_around(text)
            ):
                yield Segment(f"{_ISOLATE}{text}{_END_ISOLATE}", self._styles[style])
            elif text:
                yield Segment(text, self._styles[style])


class Ticker:
    """Calls `tick` twice a second in a thread of its own until `stop`."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(REFRESH_S):
            self._tick()


class _Segments:
    """Segments as they are, for rich to print."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        yield from self.segments


class _File(io.TextIOBase):
    """What rich writes to: `write`, with the descriptor and encoding of a stream."""

    def __init__(self, write: Callable[[str], None], stream: TextIO) -> None:
        self._write = write
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # rich asks for it
        return self._stream.encoding

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        self._write(text)
        return len(text)


def _joined(rows: list[list[Segment]]) -> Iterator[Segment]:
    for number, row in enumerate(rows):
        if number:
            yield Segment.line()
        yield from row


def _between(spans: tuple[Span, ...], start: int, end: int) -> Iterator[Span]:
    """The pieces of a line from one place in its text to another."""
    at = 0
    for text, style in spans:
        piece = text[max(start - at, 0) : max(end - at, 0)]
        if piece:
            yield Span(piece, style)
        at += len(text)
