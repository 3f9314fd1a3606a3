"""Lines of a report as blocks of a page: prose and code, and what of a long text is folded away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from arena_cli.ground.text import cut, shown
from arena_cli.report.spans import INDENT, Line, Span

LONGEST = 1800  # characters that a text may have before its end is folded away
MOST_LINES = 30  # and lines
KEPT = 1000  # what then stands there unfolded
KEPT_LINES = 14


class Block(NamedTuple):
    """Pieces of text, line ends among them; `code` is to be shown as it is written."""

    code: bool
    pieces: list[Span]


class Text(NamedTuple):
    """A text; `more` is what is folded away, so many characters of it."""

    first: list[Block]
    more: list[Block]
    characters: int = 0


class _Row(NamedTuple):
    code: bool
    spans: list[Span]

    @property
    def length(self) -> int:
        return sum(len(span.text) for span in self.spans)


def of_lines(lines: Iterable[Line]) -> Text:
    """The lines that a terminal would show, without the indent that all of them have."""
    rows: list[_Row] = []
    for one in lines:
        spans = [span for span in _outdented(one) if span.text]
        # An empty line belongs to what stands above it.
        code = one.whole if spans or not rows else rows[-1].code
        rows.append(_Row(code, spans))
    length = sum(row.length for row in rows)
    if length <= LONGEST and len(rows) <= MOST_LINES:
        return Text(_blocks(rows), [])
    first, more = _parted(rows)
    return Text(_blocks(first), _blocks(more), sum(row.length for row in more))


def of_text(text: str) -> Text:
    """A text of several lines, made harmless."""
    return of_lines(Line((Span(INDENT + row),)) for row in shown(text).split("\n"))


def _outdented(one: Line) -> Iterable[Span]:
    for place, span in enumerate(one.spans):
        yield span._replace(text=span.text.removeprefix(INDENT)) if place == 0 else span


def _parted(rows: list[_Row]) -> tuple[list[_Row], list[_Row]]:
    """Where a long text is folded: between two lines, or within one that is too long."""
    room = KEPT
    for place, row in enumerate(rows):
        if place == KEPT_LINES:
            return rows[:place], rows[place:]
        if row.length > room:
            first, more = _cut(row, room)
            return [*rows[:place], first], [more, *rows[place + 1 :]]
        room -= row.length
    return rows, []


def _cut(row: _Row, room: int) -> tuple[_Row, _Row]:
    first: list[Span] = []
    more: list[Span] = []
    for span in row.spans:
        kept = "" if more else cut(span.text, room)
        room -= len(kept)
        if kept:
            first.append(span._replace(text=kept))
        if len(kept) < len(span.text):
            more.append(span._replace(text=span.text[len(kept) :]))
    return _Row(row.code, first), _Row(row.code, more)


def _blocks(rows: Iterable[_Row]) -> list[Block]:
    """Lines of one kind in one block, pieces of one style in one piece."""
    blocks: list[Block] = []
    for row in rows:
        if not blocks or blocks[-1].code != row.code:
            blocks.append(Block(row.code, []))
            spans = row.spans
        else:
            spans = [Span("\n"), *row.spans]
        pieces = blocks[-1].pieces
        for span in spans:
            if pieces and (pieces[-1].style == span.style or span.text == "\n"):
                pieces[-1] = pieces[-1]._replace(text=pieces[-1].text + span.text)
            else:
                pieces.append(span)
    return blocks
