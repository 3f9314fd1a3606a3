"""A real terminal: lines in colour that wrap, and below them the agents at work, drawn by rich.

No text of an agent reaches rich's markup: it is passed on as pieces with a style, and was escaped
before. Only a real terminal imports this module.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO, cast

import rich.live
from rich.console import Console, ConsoleOptions
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.style import Style

from arena_cli.reports.columns import fit, fit_end, turns_around, width_of, wrap_rows
from arena_cli.reports.lines import BETWEEN, Line, Span, Words
from arena_cli.reports.lines import line as lines_line
from arena_cli.transcript.events import Event, ReplyFinished, ReplyStarted, StatusReported
from arena_cli.util.text import escape_line

_LEAST = 6


@dataclass
class _Working:
    agent: str
    since: float
    status: str = ""
    tail: str = ""
    acting: Any = None  # the `LiveSteps` of a reply with tools


class AtWork:
    """The replies that were started and are not over. `clock` counts seconds."""

    def __init__(
        self,
        say: Words,
        name: Callable[[str], list[Span]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._name = name
        self._clock = clock
        self._replies: dict[int, _Working] = {}

    @property
    def anyone(self) -> bool:
        """True if an agent is at work."""
        return bool(self._replies)

    def event(self, event: Event) -> None:
        """Update the working agents by an event."""
        match event:
            case ReplyStarted():
                known = self._replies.get(event.reply)
                since = known.since if known else self._clock()
                self._replies[event.reply] = _Working(event.agent, since)
            case StatusReported() if event.reply in self._replies:
                self._replies[event.reply].status = self._status(event)
            case ReplyFinished():
                self._replies.pop(event.reply, None)
            case _ if event.is_acting:
                self._act(event)
            case _:
                pass

    def _act(self, event: Event) -> None:
        """Update a reply with tools: the calls that run, and the last thought."""
        working = self._replies.get(getattr(event, "reply", 0))
        if working is None:
            return
        if working.acting is None:
            working.acting = import_module("arena_cli.reports.acting_lines").LiveSteps()
        working.acting.apply(event)
        working.status = working.acting.describe(self._say)
        if event.type == "thought":
            working.tail = working.acting.thought

    def text(self, agent: str, tail: str) -> None:
        """Set the end of the text that an agent has written so far."""
        for working in self._replies.values():
            if working.agent == agent:
                working.tail = tail

    def lines(self, width: int, most: int) -> list[Line]:
        """Return a line for each agent, none wider than `width` columns, at most `most` lines."""
        working = list(self._replies.values())
        if len(working) > most:
            working = working[: max(most - 1, 0)]
        lines = [self._line(item, width) for item in working]
        left = len(self._replies) - len(working)
        if left and most > 0:
            lines.append(lines_line(fit(self._say("and {count} more", count=left), width)))
        return lines

    def _line(self, working: _Working, width: int) -> Line:
        seconds = int(self._clock() - working.since)
        clock = f"{seconds // 60}:{seconds % 60:02}" if seconds >= 60 else ""
        took = clock or self._say("{seconds} s", seconds=seconds)
        *face, name = self._name(working.agent)
        left = width - sum(width_of(span.text) for span in face) - len(took) - 4
        name = name._replace(text=fit(name.text, max(_LEAST, width // 3)))
        left -= width_of(name.text)
        spans = [*face, name, BETWEEN, Span(took, "dim")]
        tail = " ".join(escape_line(working.tail.replace("\n", " ")).split())
        for text, cut, share in (
            (working.status, fit, left // 2 if tail else left),
            (tail, fit_end, left),
        ):
            room = min(share, left) - 3
            if text and room >= _LEAST:
                spans += [BETWEEN, Span(cut(text, room), "dim" if text is tail else "")]
                left -= 3 + width_of(spans[-1].text)
        return lines_line(spans)

    def _status(self, event: StatusReported) -> str:
        done = f" {event.progress:.0%}" if event.progress is not None else ""
        detail = f"{self._say(': ')}{escape_line(event.detail)}" if event.detail else ""
        return f"{self._say.enum(event.status)}{done}{detail}"


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
    """Prints lines; with `at_work`, a line per working agent stays below them until `close`.

    `write` takes text for `stream`. Without `colour` only text and line ends are written, and there
    is no live display. Without `wraps`, as for a file, lines keep their length. Call `tick` to
    update the seconds.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        stream: TextIO,
        *,
        colour: bool = True,
        at_work: AtWork | None = None,
        wraps: bool = True,
    ) -> None:
        self._console = Console(
            file=cast("TextIO", _File(write, stream)),
            force_terminal=True,
            highlight=False,
            no_color=not colour,
            color_system="auto" if wraps else "256",
        )
        self._wraps = wraps
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
        """Print lines that are on disk, and update the working agents by the event."""
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
        """Set the end of the text that an agent has written so far; the next tick draws it."""
        with self._lock:
            if self._work:
                self._work.text(agent, tail)

    def tick(self) -> None:
        """Redraw the working agents."""
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
        """Remove the live display; the cursor is then where the next line goes."""
        with self._lock:
            if self._live:
                live, self._live = self._live, None
                self._over_what_was_broken()
                live.stop()
                self._drawn = (0, [])

    def _update(self) -> None:
        """Set the text that the live display shows when it, or anything else, is drawn next."""
        assert self._work
        self._over_what_was_broken()
        width = self._console.width
        # One column and two rows stay free, so that the terminal never scrolls by itself.
        lines = self._work.lines(width - 1, self._console.height - 2)
        segments = [[*self._pieces(self._within(line, width - 1))] for line in lines]
        self._drawn = (width, [Segment.get_line_length(row) for row in segments])
        self._beneath.segments = [*_joined(segments)]

    def _over_what_was_broken(self) -> None:
        """Move the cursor up over the lines that a narrower terminal broke."""
        width, drawn = self._drawn
        now = self._console.width
        more = sum(max(columns - 1, 0) // now for columns in drawn) if now < width else 0
        if more:
            up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(*up * more))

    def _within(self, line: Line, width: int) -> Iterable[Span]:
        """Return a line that fits the width; escapes of characters may have made it longer."""
        spans = self._writable(line.spans)
        text = "".join(span.text for span in spans)
        return spans if width_of(text) <= width else [Span(fit(text, width))]

    def _line(self, line: Line, width: int) -> Iterator[Segment]:
        spans = self._writable(line.spans)
        if line.whole or not spans or not self._wraps:
            yield from self._pieces(spans)
        else:
            yield from self._wrapped(spans, width, line.hang)
        yield Segment.line()

    def _writable(self, spans: tuple[Span, ...]) -> tuple[Span, ...]:
        """Escape characters that the terminal's encoding lacks, before the line is measured."""
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
        hang, rows = wrap_rows(text, width, hang)
        for number, (start, end) in enumerate(rows):
            if number:
                yield Segment.line()
                yield Segment(" " * hang)
            yield from self._pieces(_between(spans, start, end) if len(rows) > 1 else spans)

    def _pieces(self, spans: Iterable[Span]) -> Iterator[Segment]:
        for text, style in spans:
            if self._any_script and style.startswith(("agent", "human")) and turns_around(text):
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


def wrap_text(text: str, width: int) -> str:
    """Return a line broken between words, its further rows indented by two more columns."""
    hang, rows = wrap_rows(text, width, len(text) - len(text.lstrip()) + 2)
    return "\n".join((" " * hang if start else "") + text[start:end] for start, end in rows)


class _Segments:
    """Segments as they are, for rich to print."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        yield from self.segments


class _File(io.TextIOBase):
    """The file that rich writes to: `write`, with the descriptor and encoding of a stream."""

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
    """Yield the pieces of a line between two positions in its text."""
    index = 0
    for text, style in spans:
        piece = text[max(start - index, 0) : max(end - index, 0)]
        if piece:
            yield Span(piece, style)
        index += len(text)


_ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class Progress:
    """Draws the line at each `tick`; removes it while other code writes, and at `close`.

    `clock` counts seconds. It may be used by several threads.
    """

    def __init__(
        self,
        say: Words,
        stream: TextIO,
        count: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._console = Console(file=stream, force_terminal=True, highlight=False)
        self._count = count
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._wrong = 0
        self._working: dict[int, str] = {}
        self._on_screen = self._wanted = False
        self._lock = threading.RLock()

    def begins(self, key: int, title: str) -> None:
        """Mark a scenario as begun; `key` is its own."""
        with self._lock:
            self._working[key] = title

    def ends(self, key: int, *, wrong: bool) -> None:
        """Mark a scenario as finished."""
        with self._lock:
            self._working.pop(key, None)
            self._done += 1
            self._wrong += wrong

    def tick(self) -> None:
        """Redraw the line."""
        with self._lock:
            self._wanted = True
            self._draw()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the line while other code writes to the terminal."""
        with self._lock:
            self._erase()
            yield
            if self._wanted:
                self._draw()

    def close(self) -> None:
        """Remove the line for good."""
        with self._lock:
            self._erase()
            self._wanted = False

    def text(self, width: int) -> str:
        """Return the line in at most `width` columns."""
        say = self._say
        facts = [say("{done} of {count}", done=self._done, count=self._count)]
        if self._wrong:
            facts.append(f"{self._wrong} {say.enum('failed')}")
        facts.append(say("{seconds} s", seconds=int(self._clock() - self._began)))
        if self._working:
            facts.append(say(", ").join(map(escape_line, self._working.values())))
        return fit(" · ".join(facts), width)

    def _draw(self) -> None:
        self._erase()
        # One column stays free, so that the terminal never breaks the line.
        text = self.text(self._console.width - 1)
        with contextlib.suppress(OSError):
            self._console.out(text, end="", highlight=False)
            self._console.file.flush()
            self._on_screen = True

    def _erase(self) -> None:
        if self._on_screen:
            with contextlib.suppress(OSError):
                self._console.control(_ERASE)
                self._console.file.flush()
            self._on_screen = False
