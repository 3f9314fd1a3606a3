"""Who is at work: a line per agent with what it said that it does, the seconds, its text so far.

Only a terminal with a live display imports this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from arena_cli.ground.text import shown_line
from arena_cli.report import cells
from arena_cli.report.spans import BETWEEN, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.transcript.events import Event, ReplyFinished, ReplyStarted, StatusReported

_LEAST = 6


@dataclass
class _Working:
    agent: str
    since: float
    status: str = ""
    tail: str = ""


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
        """Whether anybody is at work."""
        return bool(self._replies)

    def event(self, event: Event) -> None:
        """Take in what an event says of them."""
        match event:
            case ReplyStarted():
                known = self._replies.get(event.reply)
                since = known.since if known else self._clock()
                self._replies[event.reply] = _Working(event.agent, since)
            case StatusReported() if event.reply in self._replies:
                self._replies[event.reply].status = self._status(event)
            case ReplyFinished():
                self._replies.pop(event.reply, None)
            case _:
                pass

    def text(self, agent: str, tail: str) -> None:
        """The end of what an agent has written so far."""
        for working in self._replies.values():
            if working.agent == agent:
                working.tail = tail

    def lines(self, width: int, most: int) -> list[Line]:
        """A line for each, none wider than `width` columns, at most `most` of them."""
        working = list(self._replies.values())
        if len(working) > most:
            working = working[: max(most - 1, 0)]
        lines = [self._line(one, width) for one in working]
        left = len(self._replies) - len(working)
        if left and most > 0:
            lines.append(line(Span(cells.fit(self._say("and {count} more", count=left), width))))
        return lines

    def _line(self, working: _Working, width: int) -> Line:
        seconds = int(self._clock() - working.since)
        clock = f"{seconds // 60}:{seconds % 60:02}" if seconds >= 60 else ""
        took = clock or self._say("{seconds} s", seconds=seconds)
        *face, name = self._name(working.agent)
        left = width - sum(cells.width_of(span.text) for span in face) - len(took) - 4
        name = name._replace(text=cells.fit(name.text, max(_LEAST, width // 3)))
        left -= cells.width_of(name.text)
        spans = [*face, name, BETWEEN, Span(took, "dim")]
        tail = " ".join(shown_line(working.tail.replace("\n", " ")).split())
        for text, fit, share in (
            (working.status, cells.fit, left // 2 if tail else left),
            (tail, cells.fit_end, left),
        ):
            room = min(share, left) - 3
            if text and room >= _LEAST:
                spans += [BETWEEN, Span(fit(text, room), "dim" if text is tail else "")]
                left -= 3 + cells.width_of(spans[-1].text)
        return line(spans)

    def _status(self, event: StatusReported) -> str:
        done = f" {event.progress:.0%}" if event.progress is not None else ""
        detail = f"{self._say(': ')}{shown_line(event.detail)}" if event.detail else ""
        return f"{self._say.enum(event.status)}{done}{detail}"
