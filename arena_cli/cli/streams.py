"""Print to streams that may be closed, full or unread, and to live terminals."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from arena_cli.errors import DiskRefused
from arena_cli.reports.lines import user_words
from arena_cli.reports.timeline import Timeline
from arena_cli.transcript import events
from arena_cli.util.text import escape_json

if TYPE_CHECKING:
    from arena_cli.reports.lines import Line, Span, Words
    from arena_cli.reports.terminal import Terminal, Ticker
    from arena_cli.transcript.events import Event
    from arena_cli.transcript.state import Fold


# Windows has no TERM; elsewhere a terminal that does not say what it is can do nothing for sure.
_TERM = "windows" if sys.platform == "win32" else ""


def prepare() -> None:
    """Make all three streams usable: a closed one reads nothing and discards output.

    Characters that cannot be encoded are written as escapes.
    """
    # In this order, so that each gets its own descriptor and no transcript is opened as stdout.
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Flushed by this, it may refuse what it was given before; whoever prints next is told.
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="backslashreplace")


def speak_utf8() -> None:
    r"""Set stdout to UTF-8 with `\n` for JSON, regardless of the locale and the platform."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def is_terminal(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", _TERM) not in {"dumb", "unknown", ""}


def is_coloured(stream: TextIO) -> bool:
    """Return True if text for the stream has colours: on a terminal, or if FORCE_COLOR is set.

    NO_COLOR turns them off.
    """
    is_forced = os.environ.get("FORCE_COLOR", "0").casefold() not in {"", "0", "false"}
    return not os.environ.get("NO_COLOR") and (is_forced or is_terminal(stream))


def wrap(text: str, stream: TextIO) -> str:
    """Return lines broken between words for a terminal, unchanged for any other stream.

    A line with a caret below it is a quotation, whose columns count: it is not broken.
    """
    if not text or not is_terminal(stream):
        return text
    terminal = _terminal_module()
    width = _width_of(stream)
    lines = text.split("\n")
    rows = [
        line if below.strip() == "^" else terminal.wrap_text(line, width)
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
    ]
    return "\n".join(rows)


def _width_of(stream: TextIO) -> int:
    """Return the columns of a terminal; stdout and stderr may differ, as one may be a pipe."""
    with contextlib.suppress(ValueError, OSError):
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    return shutil.get_terminal_size().columns


def _terminal_module() -> Any:
    """Import what only terminals need."""
    from arena_cli.reports import terminal

    return terminal


def encodable(texts: Mapping[str, str], stream: TextIO) -> dict[str, str]:
    """Return those of the texts that a stream can write unchanged."""
    result = {}
    for name, text in texts.items():
        with contextlib.suppress(UnicodeEncodeError):
            text.encode(stream.encoding)
            result[name] = text
    return result


class Stdout:
    """The standard output, which may be closed early by its reader without stopping the chain.

    `failed` is the error of a stdout that could not be written. With `pages`, a terminal shows text
    that is higher than its screen in the user's pager, until `close`.
    """

    def __init__(self, *, pages: bool = False) -> None:
        self._open = True
        self.failed: OSError | None = None
        self._pager = _Pager.find() if pages and is_terminal(sys.stdout) else None

    def write(self, text: str) -> None:
        r"""Print lines, `\n` included, and flush them."""
        if not self._open:
            return
        try:
            if self._pager:
                self._pager.write(text)
                return
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._open = False
            self.failed = None if _nobody_reads(error) else error
            if not self._pager:
                drop(sys.stdout)

    def close(self) -> None:
        """Print the text that is still held, and wait until the user leaves the pager."""
        pager, self._pager = self._pager, None
        if pager:
            self.write(pager.close())

    @property
    def is_read(self) -> bool:
        """True as long as printed text still reaches a reader."""
        return self._open

    def check(self) -> None:
        """Raise DiskRefused if stdout could not be written (a full disk behind `>`)."""
        if self.failed:
            raise DiskRefused(f"stdout: could not write: {self.failed.strerror or self.failed}")


class _Pager:
    """The user's pager, which starts when the text no longer fits on the screen."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._held = ""
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls) -> _Pager | None:
        """Return the pager that ARENA_PAGER or PAGER names, by default less; None for `cat`."""
        text = os.environ.get("ARENA_PAGER", os.environ.get("PAGER", "less"))
        command = shlex.split(text)
        path = shutil.which(command[0]) if command and command != ["cat"] else None
        return cls([path, *command[1:]]) if path else None

    def write(self, text: str) -> None:
        """Write text. Raises OSError if the user left the pager."""
        if self._process is None:
            self._held += text
            if self._held.count("\n") < shutil.get_terminal_size().lines:
                return
            environment = {"LESS": "FRX", "LV": "-c", **os.environ}
            if sys.stdout.encoding.lower() == "utf-8":  # less shows bytes in a locale without UTF-8
                environment.setdefault("LESSCHARSET", "utf-8")
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environment)
            text, self._held = self._held, ""
        assert self._process.stdin
        self._process.stdin.write(text.encode(sys.stdout.encoding, "backslashreplace"))
        self._process.stdin.flush()

    def close(self) -> str:
        """Wait until the user leaves the pager; return the text if it never started."""
        if self._process is None:
            return self._held
        # Ctrl-C is the pager's: it ends a search, not the pager.
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):
                self._process.communicate()
        finally:
            signal.signal(signal.SIGINT, previous)
        return ""


def _nobody_reads(error: OSError) -> bool:
    """Return True if the other end of a pipe was closed; Windows has its own error for that."""
    windows = sys.platform == "win32" and error.errno == errno.EINVAL
    return windows or isinstance(error, BrokenPipeError)


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def drop(stream: TextIO) -> None:
    """Redirect a stream to the null device silently, together with its buffered text."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)


class Screen:
    """A display of lines: coloured on a terminal, otherwise plain text.

    With `name_agent`, which returns an agent's avatar and name, a coloured terminal shows the
    agents at work below the lines, until `close`.
    """

    def __init__(
        self, out: Stdout, say: Words, name_agent: Callable[[str], list[Span]] | None = None
    ) -> None:
        self._out = out
        self._terminal: Terminal | None = None
        self._ticker: Ticker | None = None
        is_live, colour = is_terminal(sys.stdout), is_coloured(sys.stdout)
        if not (is_live or colour):
            return
        module = _terminal_module()
        at_work = module.AtWork(say, name_agent) if name_agent and colour and is_live else None
        self._terminal = module.Terminal(
            out.write, sys.stdout, colour=colour, at_work=at_work, wraps=is_live
        )
        if at_work:
            self._ticker = module.Ticker(self._terminal.tick)

    @property
    def on_text(self) -> Callable[[str, str], None] | None:
        """A receiver of an agent's id and the end of its text; None without a live display."""
        return self._terminal.text if self._terminal and self._ticker else None

    def show(self, lines: Iterable[Line], event: Event | None = None) -> None:
        """Print lines; `event` is the new event that they describe, if any."""
        if self._terminal:
            self._terminal.show(lines, event)
        else:
            self._out.write("".join([f"{line.text}\n" for line in lines]))

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Remove the live display for as long as the context lasts."""
        is_live = self._ticker is not None
        self.close()
        try:
            yield
        finally:
            if is_live and self._terminal:
                self._ticker = _terminal_module().Ticker(self._terminal.tick)

    def close(self) -> None:
        """End the live display."""
        if self._ticker:
            self._ticker.stop()
            self._ticker = None
        if self._terminal:
            self._terminal.close()


def show(drawn: Iterable[Line], *, pages: bool = False) -> None:
    """Print lines on stdout, with `pages` in the user's pager. Raises DiskRefused."""
    out = Stdout(pages=pages)
    screen = Screen(out, user_words())
    try:
        for line in drawn:  # one by one: there may be many, and nobody reads on
            screen.show([line])
            if not out.is_read:
                break
    finally:
        out.close()
    out.check()


def print_pieces(pieces: Iterable[str]) -> None:
    """Print a text in UTF-8 on stdout, piece by piece. Raises DiskRefused."""
    speak_utf8()
    out = Stdout()
    for piece in pieces:
        out.write(piece)
        if not out.is_read:
            break
    out.check()


class Printer:
    """A printer of events as they are written: as JSON lines, as a timeline, or not at all.

    `avatars` are by agent id. With `live`, a terminal shows the agents at work, and with `pages` a
    pager, until `close`. `is_skipped` returns True for the seq of an event that a rewind skips.
    With `has_steps`, a timeline shows all steps of replies with tools.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        quiet: bool = False,
        avatars: Mapping[str, str] | None = None,
        live: bool = False,
        pages: bool = False,
        is_skipped: Callable[[int], bool] | None = None,
        has_steps: bool = False,
    ) -> None:

        self.out = Stdout(pages=pages)
        say = user_words()
        shown = encodable(avatars or {}, sys.stdout)
        self._timeline = Timeline(
            say, shown, is_live=live, is_skipped=is_skipped, has_steps=has_steps
        )
        self._as_json = as_json
        self._screen: Screen | None = None
        self._began = False
        self._held: list[Event] | None = None
        if as_json:
            speak_utf8()
        elif not quiet:
            self._screen = Screen(self.out, say, self._timeline.named if live else None)

    @property
    def on_text(self) -> Callable[[str, str], None] | None:
        """The `on_text` of its `Screen`."""
        return self._screen.on_text if self._screen else None

    def event(self, event: Event) -> None:
        """Print one event, which is already on disk."""
        if self._as_json:
            self.out.write(escape_json(events.encode_line(event).decode("utf-8")))
        elif self._held is not None:
            self._held.append(event)
        elif self._screen:
            self._began = True
            self._screen.show(self._timeline.drawn(event), event)

    def delta(self, agent: str, text: str) -> None:
        """Print a piece of the text that an agent writes; it is not in the transcript."""
        record = {"type": "delta", "agent": agent, "text": text}
        self.out.write(
            escape_json(json.dumps(record, ensure_ascii=False, separators=(",", ":"))) + "\n"
        )

    @property
    def is_shown(self) -> bool:
        """True if it prints a timeline."""
        return self._screen is not None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep events back, and the live display away, for as long as the context lasts."""
        if self._screen is None:
            yield
            return
        self._held = []
        try:
            with self._screen.pause():
                yield
        finally:
            events, self._held = self._held, None
            for event in events:
                self.event(event)

    def goes_on(self, fold: Fold) -> None:
        """Print which session this is, unless its events were just printed."""
        if self._screen and fold.session and not self._began:
            turns = len(fold.open.turns) if fold.open else 0
            self._screen.show(self._timeline.goes_on(fold.session, turns))

    def finish(self) -> None:
        """Print what a timeline holds back of replies that have not ended."""
        if self._screen:
            self._screen.show(self._timeline.draw_open())

    def close(self) -> None:
        """End the live display, or the pager."""
        if self._screen:
            self._screen.close()
        self.out.close()
