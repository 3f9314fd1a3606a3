"""Apply what later events change in the past of a transcript: rewinds and corrections.

Every line stays in the file. A `rewound` event skips the events between the one that it goes back
to and itself; an `edited` event gives a message another content. All code that folds or
reads what agents are shown uses `Revisions.is_skipped` and `Revisions.correct`, so that all agree.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from arena_cli.protocol import Message
from arena_cli.transcript.events import Event, MessageEvent
from arena_cli.util import files
from arena_cli.util.text import lazy_pattern

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import Edited, Rewound

M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=Event)


class SkippedSpan(NamedTuple):
    """A skipped part: the events with `after < seq < before`, `before` being the rewind's seq."""

    after: int
    before: int


class Correction(NamedTuple):
    """A message's content since the event `seq`, by a person."""

    seq: int
    message: str
    content: str
    by: str


class Revisions:
    """The skipped parts, in order, and the corrections that count; `add` adds an event."""

    def __init__(self) -> None:
        self.spans: list[SkippedSpan] = []
        self.corrections: list[Correction] = []

    def __bool__(self) -> bool:
        return bool(self.spans or self.corrections)

    def add(self, event: Event) -> None:
        """Add an event that is not skipped itself so far; only two types change anything."""
        if event.type == "rewound":
            to = cast("Rewound", event).to
            if span := self.find_span(to):  # not written by arena: go back to what is visible
                to = span.after
            if 0 < to < event.seq:
                self.spans = [span for span in self.spans if span.before <= to]
                self.spans.append(SkippedSpan(to, event.seq))
                self.corrections = [edit for edit in self.corrections if edit.seq <= to]
        elif event.type == "edited":
            edited = cast("Edited", event)
            self.corrections.append(
                Correction(event.seq, edited.message, edited.content, edited.by)
            )

    def find_span(self, seq: int) -> SkippedSpan | None:
        """Return the skipped part that has the event of that number; None if it is not skipped."""
        index = bisect.bisect_left(self.spans, seq, key=lambda span: span.before)
        span = self.spans[index] if index < len(self.spans) else None
        return span if span and span.after < seq < span.before else None

    def is_skipped(self, seq: int) -> bool:
        """Return True if the event of that number is skipped."""
        return bool(self.spans) and self.find_span(seq) is not None

    def correct_message(self, message: M) -> M:
        """Return the message as agents are shown it now."""
        for correction in reversed(self.corrections):
            if correction.message == message.id:
                changes = {"content": correction.content, "corrected_by": correction.by}
                return message.model_copy(update=changes)
        return message

    def correct(self, event: E) -> E:
        """Return the event with its message as agents are shown it now."""
        if not self.corrections or not isinstance(event, MessageEvent):
            return event
        message = self.correct_message(event.message)
        return event if message is event.message else event.model_copy(update={"message": message})

    def record(self) -> dict[str, Any]:
        """Return the revisions as JSON."""
        return {"spans": self.spans, "corrections": self.corrections}

    @classmethod
    def restore(cls, record: Mapping[str, Any]) -> Revisions:
        """Return the recorded revisions. Raises KeyError, TypeError or ValueError."""
        restored = cls()
        restored.spans = [SkippedSpan(int(after), int(before)) for after, before in record["spans"]]
        restored.corrections = [
            Correction(int(seq), str(message), str(content), str(by))
            for seq, message, content, by in record["corrections"]
        ]
        return restored


NO_REVISIONS = Revisions()
"""No revisions."""


def collect_revisions(events: Iterable[Event]) -> Revisions:
    """Return the revisions by these events, in order."""
    revisions = Revisions()
    for event in events:
        if event.type in _TYPES:
            revisions.add(event)
    return revisions


def list_visible(events: Iterable[Event]) -> list[Event]:
    """Return the events without those that are skipped, and with messages as they are shown now."""
    events = list(events)
    revisions = collect_revisions(events)
    if not revisions:
        return events
    return [revisions.correct(event) for event in events if not revisions.is_skipped(event.seq)]


_TYPES = frozenset({"rewound", "edited"})
_REVISES = lazy_pattern(rb'"type":\s*"(?:rewound|edited)"')
_BLOCK = 1 << 20


def find_lines(path: Path, start: int = 0, pattern: re.Pattern[bytes] = _REVISES) -> list[bytes]:
    """Return the whole lines from byte `start` on that match; by default revising events."""
    lines: list[bytes] = []
    rest = b""
    with files.open_binary(path) as file:
        file.seek(start)
        while block := file.read(_BLOCK):
            block = rest + block
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            position = 0
            while match := pattern.search(block, position, end):
                begin = block.rfind(b"\n", 0, match.start()) + 1
                position = block.index(b"\n", match.end()) + 1
                lines.append(block[begin:position])
    return lines
