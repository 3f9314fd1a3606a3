"""Wrap texts by columns, and draw the expected text next to the actual one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

from rich.cells import cell_len, split_graphemes

from arena_cli.reports.lines import Line, Span, Words, line
from arena_cli.util.text import escape_line

EXPECTED, ACTUAL = "added", "removed"
NARROWEST = 24
MOST_ROWS = 6

_MARK, _NO_MARK = "> ", "  "
_BETWEEN = " | "
_HANGING = 2  # columns that a closing mark may take beyond the end of a row


def draw_columns(
    expected: str, actual: str, say: Words, *, width: int, indent: str, index: int | None = None
) -> Iterator[Line]:
    """Yield the lines for both texts, in `width` columns.

    If there are several lines, the one at `index` is marked. If the last line of `actual` is in
    parentheses, it is a remark on the whole text and goes below both.
    """
    expected_lines, actual_lines = expected.splitlines(), actual.splitlines()
    if max(len(expected_lines), len(actual_lines)) < 2:
        yield from _one_above_the_other(expected, actual, say, indent)
        return
    note = ""
    if actual_lines[-1:] and actual_lines[-1].startswith("(") and actual_lines[-1].endswith(")"):
        note = actual_lines.pop()
    numbered = [
        [f"{number}. {escape_line(text)}" for number, text in enumerate(texts, 1)]
        for texts in (expected_lines, actual_lines)
    ]
    column = (width - len(indent) - len(_MARK) - len(_BETWEEN)) // 2
    cells = [[_rows(text, column - _HANGING) for text in texts] for texts in numbered]
    if column < NARROWEST or any(len(rows) > MOST_ROWS for texts in cells for rows in texts):
        yield from _stacked(numbered, say, indent, index)
    else:
        yield from _beside(cells, column, say, indent, index)
    if note:
        yield line(indent, _NO_MARK, Span(escape_line(note), ACTUAL), hang=len(indent) + 3)


def _one_above_the_other(expected: str, actual: str, say: Words, indent: str) -> Iterator[Line]:
    sides = (("expected: ", expected, EXPECTED), ("actual:   ", actual, ACTUAL))
    for label, text, style in sides:
        if text:
            spans = (Span(say(label), "dim"), Span(escape_line(text), style))
            yield line(indent, *spans, hang=len(indent) + len(label))


def _stacked(
    numbered: Sequence[Sequence[str]], say: Words, indent: str, index: int | None
) -> Iterator[Line]:
    labels = ((say("expected: "), EXPECTED), (say("actual:   "), ACTUAL))
    for (label, style), texts in zip(labels, numbered, strict=True):
        yield line(indent, Span(label.rstrip(), "dim"))
        for number, text in enumerate(texts):
            marked = number == index
            mark = _MARK if marked else _NO_MARK
            yield line(indent, mark, Span(text, style if marked else ""), hang=len(indent) + 5)


def _beside(
    cells: Sequence[Sequence[Sequence[str]]],
    column: int,
    say: Words,
    indent: str,
    index: int | None,
) -> Iterator[Line]:
    labels = [say("expected: ").rstrip(" :："), say("actual:   ").rstrip(" :：")]
    yield _row(indent, _NO_MARK, labels, column, ("dim", "dim"))
    for number, (left_cell, right) in enumerate(zip_longest(*cells, fillvalue=())):
        marked = number == index
        styles = (EXPECTED, ACTUAL) if marked else ("", "")
        for position, texts in enumerate(zip_longest(left_cell, right, fillvalue="")):
            mark = _MARK if marked and not position else _NO_MARK
            yield _row(indent, mark, texts, column, styles)


def _row(
    indent: str, mark: str, texts: Sequence[str], column: int, styles: tuple[str, str]
) -> Line:
    left_text, right = texts
    blanks = " " * (column - width_of(left_text))
    right_part = [_BETWEEN, Span(right, styles[1])] if right else [_BETWEEN.rstrip()]
    pieces = [indent, mark, Span(left_text, styles[0]), blanks, *right_part]
    return line(*pieces)._replace(whole=True)


def _rows(text: str, width: int) -> list[str]:
    """Return the text in rows of at most `width` columns."""
    hang, rows = wrap_rows(text, width)
    first, *further = (text[start:end] for start, end in rows)
    return [first, *(" " * hang + row_text for row_text in further)]


# A longer line is data, not prose: it runs on, and the terminal breaks it as it likes.
LONGEST_PROSE = 4000
NARROWEST_CELLS = 12

# By the rules of Chinese and Japanese typesetting. A colon opens commands of CI runners at the
# beginning of a line.
_NEVER_FIRST = frozenset("、。，．：；？！）」』】〉》〕］…—ー々％!?),.;:%]}’”·")
_NEVER_LAST = frozenset("（「『【〈《〔［([{‘“")
_SKIN = re.compile("[\U0001f3fb-\U0001f3ff]")
_HALF_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
_JOINED = re.compile("[\u200d\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
_LIST_MARK = re.compile(r"\s*(?:(?:[-*+•>]|\d{1,3}[.)、]|\[[ x]\])\s+)?")


def width_of(text: str) -> int:
    """Return the number of columns that a text takes."""
    if text.isascii():
        return len(text)
    if not _JOINED.search(text):
        return cell_len(text)
    return sum(cells for _, _, cells in _seen(text))


def _seen(text: str) -> list[tuple[int, int, int]]:
    """Return the (start, end, columns) of each character as it is displayed.

    Terminals differ in how they draw joined emoji: the widest form is counted, so that no line is
    longer than computed.
    """
    spans = split_graphemes(text)[0]
    if not _JOINED.search(text):
        return spans
    seen: list[tuple[int, int, int]] = []
    for start, end, cells in spans:
        cluster = text[start:end]
        last = text[seen[-1][0] : seen[-1][1]] if seen else ""
        if _HALF_FLAG.match(cluster) and len(last) == 1 and _HALF_FLAG.match(last):
            seen[-1] = (seen[-1][0], end, 2)
        else:
            apart = sum(map(_apart, cluster)) if len(cluster) > 1 else 0
            seen.append((start, end, max(cells, apart)))
    return seen


def _apart(char: str) -> int:
    return 2 if _SKIN.match(char) else cell_len(char)


def wrap_rows(text: str, width: int, hang: int | None = None) -> tuple[int, list[tuple[int, int]]]:
    """Return the indent of a line's further rows, and (start, end) of each row.

    If `hang` is None, the indent is that of the line's own text, after a list's mark. Rows are at
    most `width` columns wide if the text can be broken there; a line that is too long for prose, or
    a terminal that is too narrow, is kept unchanged.
    """
    if width < NARROWEST_CELLS or len(text) > LONGEST_PROSE or width_of(text) <= width:
        return 0, [(0, len(text))]
    if hang is None:
        match = _LIST_MARK.match(text)
        hang = width_of(match[0]) if match else 0
    hang = min(hang, width // 4)
    starts = _starts(text, width, width - hang)
    ends = [*starts[1:], len(text)]
    found_rows = []
    for start, end in zip(starts, ends, strict=True):
        row = text[start:end]
        found_rows.append((start, end if end == len(text) else start + len(row.rstrip())))
    return hang, found_rows


def _starts(text: str, first: int, further: int) -> list[int]:
    """Return where rows begin; the first has `first` columns, each other `further`."""
    spans = _seen(text)
    starts, limit = [0], first
    used = since_break = since_held = 0
    breakable: int | None = None
    held: int | None = None  # the last character that may stand before colons
    for previous, (start, end, cells) in pairwise([(0, 0, 0), *spans]):
        cluster = text[start:end]
        if start > starts[-1] and _may_break(
            text[previous[0] : previous[1]], cluster, previous[2], cells
        ):
            breakable, since_break = start, 0
        if not (cluster.isspace() or cluster[:1] == ":"):
            held, since_held = start, 0
        while used + cells > limit and not cluster.isspace():
            break_at, moved = held, since_held  # which is `start` itself, but for a colon
            if breakable is not None and since_break <= further:
                break_at, moved = breakable, since_break
            if break_at is None or break_at <= starts[-1] or moved > further:
                break
            starts.append(break_at)
            used, limit, breakable, since_break = moved, further, None, moved
        used += cells
        since_break += cells
        since_held += cells
    return starts


def _may_break(previous: str, following: str, before_cells: int, after_cells: int) -> bool:
    if previous.isspace():
        return not following.isspace() and following[:1] not in _NEVER_FIRST
    if following.isspace() or previous[-1:] in _NEVER_LAST or following[:1] in _NEVER_FIRST:
        return False
    return max(before_cells, after_cells) >= 2 and bool(previous)


def fit(text: str, width: int) -> str:
    """Return the beginning of a text that fits in `width` columns, with `…` if it was cut."""
    if width_of(text) <= width:
        return text
    length = used = 0
    for _, end, cells in _seen(text[: 4 * max(width, 0) + 64]):
        if used + cells > width - 1:
            break
        length, used = end, used + cells
    return text[:length] + "…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Return a text with blanks up to `width` columns."""
    return text + " " * (width - width_of(text))


def fit_end(text: str, width: int) -> str:
    """Return the end of a text that fits in `width` columns, with `…` before it if it was cut."""
    if width_of(text) <= width:
        return text
    tail = text[-(4 * max(width, 0) + 64) :]
    length, used = len(tail), 0
    for start, _, cells in reversed(_seen(tail)):
        if used + cells > width - 1:
            break
        length, used = start, used + cells
    return "…" + tail[length:] if width > 0 else ""


def turns_around(text: str) -> bool:
    """Return True if a text has letters that are written from right to left."""
    return not text.isascii() and any(
        unicodedata.bidirectional(char) in {"R", "AL"} for char in text
    )
