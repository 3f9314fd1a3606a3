"""A line in a terminal while scenarios are played: how many are done, failed, and are at work.

Only a terminal with a live display imports this module, which imports rich.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType

from arena_cli.ground.text import shown_line
from arena_cli.report import cells
from arena_cli.report.words import Words

_ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class Progress:
    """Draws the line at each `tick`, and takes it away while others write, and at `close`.

    `clock` counts seconds. May be used by several threads.
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
        """A scenario begins; `key` is its own."""
        with self._lock:
            self._working[key] = title

    def ends(self, key: int, *, wrong: bool) -> None:
        """It is over."""
        with self._lock:
            self._working.pop(key, None)
            self._done += 1
            self._wrong += wrong

    def tick(self) -> None:
        """Draw it anew."""
        with self._lock:
            self._wanted = True
            self._draw()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Others write to the terminal: the line is gone meanwhile."""
        with self._lock:
            self._erase()
            yield
            if self._wanted:
                self._draw()

    def close(self) -> None:
        """Take it away for good."""
        with self._lock:
            self._erase()
            self._wanted = False

    def text(self, width: int) -> str:
        """The line, in so many columns."""
        say = self._say
        facts = [say("{done} of {count}", done=self._done, count=self._count)]
        if self._wrong:
            facts.append(f"{self._wrong} {say.enum('failed')}")
        facts.append(say("{seconds} s", seconds=int(self._clock() - self._began)))
        if self._working:
            facts.append(say(", ").join(map(shown_line, self._working.values())))
        return cells.fit(" · ".join(facts), width)

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
