"""Build blocks of text for a page: code, tables and lines; the end of a long text is folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from arena_cli.reports.lines import INDENT, Line, Span
from arena_cli.util.text import cut_text, escape_text

LONGEST = 1800  # characters that a text may have before its end is folded away
MOST_LINES = 30  # and lines
KEPT = 1000  # what then stands there unfolded
KEPT_LINES = 14


class Block(NamedTuple):
    """Pieces of text, line ends among them; `code` is to be shown as it is written.

    `label` is the language of a code fence. A table has its cells in `rows` and no pieces; the
    first row is its head if `has_head`.
    """

    code: bool
    pieces: list[Span]
    label: str = ""
    rows: Sequence[Sequence[str]] = ()
    has_head: bool = False


class CollapsibleText(NamedTuple):
    """A text; `more` is the folded part and `characters` its length."""

    first: list[Block]
    more: list[Block]
    characters: int = 0


class _TextRow(NamedTuple):
    """A line; `cells` of a row of a table, `label` of the first line in a code fence."""

    code: bool
    spans: list[Span]
    label: str = ""
    cells: tuple[str, ...] = ()
    is_head: bool = False

    @property
    def length(self) -> int:
        return sum(len(span.text) for span in self.spans)

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def of_lines(text_lines: Iterable[Line]) -> CollapsibleText:
    """Return the lines as a terminal would show them, without the indent that they share."""
    return _folded(_rows(text_lines))


def of_markdown(text_lines: Iterable[Line]) -> CollapsibleText:
    """Return the same with code fences and tables drawn."""
    return _folded(_draw_tables(_draw_fences(_rows(text_lines))))


def _rows(text_lines: Iterable[Line]) -> list[_TextRow]:
    rows: list[_TextRow] = []
    for line in text_lines:
        spans = [span for span in _outdented(line) if span.text]
        # An empty line belongs to what stands above it.
        code = line.whole if spans or not rows else rows[-1].code
        rows.append(_TextRow(code, spans))
    return rows


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)")


def _draw_fences(rows: Sequence[_TextRow]) -> list[_TextRow]:
    """Drop the marks around code; its first line has the language as label."""
    drawn: list[_TextRow] = []
    mark, label = "", ""
    for index, row in enumerate(rows):
        match = _FENCE.match(row.text)
        if match and not row.code and _is_code_next(rows[index + 1 :]):
            mark, label = match[1], match[2]
        elif mark and row.code and match and match[1].startswith(mark) and not match[2]:
            mark = ""
        else:
            mark = mark if row.code or not row.text else ""
            drawn.append(row._replace(code=True, label=label) if mark else row)
            label = ""
    return drawn


def _is_code_next(rows: Sequence[_TextRow]) -> bool:
    return next((row.code for row in rows if row.text), False)


_DELIMITERS = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*")
_CELL_END = re.compile(r"(?<!\\)\|")


def _draw_tables(rows: Sequence[_TextRow]) -> list[_TextRow]:
    """Split the rows of a table (GitHub Flavored Markdown) into cells; drop its delimiters."""
    drawn: list[_TextRow] = []
    width, is_delimited = 0, True
    for index, row in enumerate(rows):
        cells = () if row.code else _split_cells(row.text)
        following = rows[index + 1] if index + 1 < len(rows) else None
        if width and drawn[-1].is_head and not is_delimited:
            is_delimited = True  # this is the row of delimiters
        elif width and cells:
            drawn.append(row._replace(cells=(*cells, *[""] * width)[:width]))
        else:
            is_head = following is not None and _begins_table(cells, following)
            width = len(cells) if is_head else 0
            is_delimited = not is_head
            drawn.append(row._replace(cells=cells, is_head=True) if is_head else row)
    return drawn


def _begins_table(cells: Sequence[str], following: _TextRow) -> bool:
    if not cells or following.code or not _DELIMITERS.fullmatch(following.text):
        return False
    return len(_split_cells(following.text)) == len(cells)


def _split_cells(text: str) -> tuple[str, ...]:
    """Return the cells of a row of a table; none if it has no `|`."""
    if "|" not in text:
        return ()
    text = text.strip().removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return tuple(cell.strip().replace("\\|", "|") for cell in _CELL_END.split(text))


def _folded(rows: list[_TextRow]) -> CollapsibleText:
    length = sum(row.length for row in rows)
    if length <= LONGEST and len(rows) <= MOST_LINES:
        return CollapsibleText(_blocks(rows), [])
    first, folded = _parted(rows)
    return CollapsibleText(_blocks(first), _blocks(folded), sum(row.length for row in folded))


def of_text(text: str) -> CollapsibleText:
    """Return a text of several lines, escaped."""
    return of_lines(Line((Span(INDENT + row),)) for row in escape_text(text).split("\n"))


def _outdented(line: Line) -> Iterable[Span]:
    for index, span in enumerate(line.spans):
        yield span._replace(text=span.text.removeprefix(INDENT)) if index == 0 else span


def _parted(rows: list[_TextRow]) -> tuple[list[_TextRow], list[_TextRow]]:
    """Fold a long text: between two lines, or within one that is too long."""
    room = KEPT
    for index, row in enumerate(rows):
        if index == KEPT_LINES:
            return rows[:index], rows[index:]
        if row.length > room and row.cells:
            return rows[:index], rows[index:]
        if row.length > room:
            first, folded = _cut(row, room)
            return [*rows[:index], first], [folded, *rows[index + 1 :]]
        room -= row.length
    return rows, []


def _cut(row: _TextRow, room: int) -> tuple[_TextRow, _TextRow]:
    first: list[Span] = []
    spans: list[Span] = []
    for span in row.spans:
        excerpt = "" if spans else cut_text(span.text, room)
        room -= len(excerpt)
        if excerpt:
            first.append(span._replace(text=excerpt))
        if len(excerpt) < len(span.text):
            spans.append(span._replace(text=span.text[len(excerpt) :]))
    return _TextRow(row.code, first), _TextRow(row.code, spans)


def _blocks(rows: Iterable[_TextRow]) -> list[Block]:
    """Merge lines of one kind into one block, and pieces of one style into one piece."""
    blocks: list[Block] = []
    for row in rows:
        if row.cells:
            if not blocks or not blocks[-1].rows or row.is_head:
                blocks.append(Block(False, [], rows=[], has_head=row.is_head))
            blocks[-1] = blocks[-1]._replace(rows=[*blocks[-1].rows, row.cells])
            continue
        last = blocks[-1] if blocks else None
        if last is None or last.code != row.code or last.rows or row.label:
            blocks.append(Block(row.code, [], row.label))
            _append(blocks[-1].pieces, row.spans)
        else:
            _append(last.pieces, [Span("\n"), *row.spans])
    return blocks


def _append(pieces: list[Span], spans: Iterable[Span]) -> None:
    """Append pieces of text; those of one style become one piece."""
    for span in spans:
        if pieces and (pieces[-1].style == span.style or span.text == "\n"):
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text + span.text)
        else:
            pieces.append(span)
