"""What was expected beside what came: one above the other where both are short, else in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from arena_cli.ground.text import shown_line
from arena_cli.report.spans import Line, Span, line
from arena_cli.report.words import Words

EXPECTED, ACTUAL = "added", "removed"
NARROWEST = 24
MOST_ROWS = 6

_MARK, _NO_MARK = "> ", "  "
_BETWEEN = " | "
_HANGING = 2  # columns that a closing mark may take beyond the end of a row


def drawn(
    expected: str, actual: str, say: Words, *, width: int, indent: str, at: int | None = None
) -> Iterator[Line]:
    """Lines for both texts, in `width` columns. With several lines, that of index `at` is marked.

    A last line of `actual` in parentheses tells of all of it, and stands below both.
    """
    wanted, there = expected.splitlines(), actual.splitlines()
    if max(len(wanted), len(there)) < 2:
        yield from _one_above_the_other(expected, actual, say, indent)
        return
    note = ""
    if there[-1:] and there[-1].startswith("(") and there[-1].endswith(")"):
        note = there.pop()
    numbered = [
        [f"{number}. {shown_line(one)}" for number, one in enumerate(texts, 1)]
        for texts in (wanted, there)
    ]
    column = (width - len(indent) - len(_MARK) - len(_BETWEEN)) // 2
    cells = [[_rows(one, column - _HANGING) for one in texts] for texts in numbered]
    if column < NARROWEST or any(len(rows) > MOST_ROWS for texts in cells for rows in texts):
        yield from _stacked(numbered, say, indent, at)
    else:
        yield from _beside(cells, column, say, indent, at)
    if note:
        yield line(indent, _NO_MARK, Span(shown_line(note), ACTUAL), hang=len(indent) + 3)


def _one_above_the_other(expected: str, actual: str, say: Words, indent: str) -> Iterator[Line]:
    for label, text, style in (
        (say("expected: "), expected, EXPECTED),
        (say("actual:   "), actual, ACTUAL),
    ):
        if text:
            told = Span(shown_line(text), style)
            yield line(indent, Span(label, "dim"), told, hang=len(indent) + len("expected: "))


def _stacked(
    numbered: Sequence[Sequence[str]], say: Words, indent: str, at: int | None
) -> Iterator[Line]:
    labels = ((say("expected: "), EXPECTED), (say("actual:   "), ACTUAL))
    for (label, style), texts in zip(labels, numbered, strict=True):
        yield line(indent, Span(label.rstrip(), "dim"))
        for number, text in enumerate(texts):
            marked = number == at
            mark = _MARK if marked else _NO_MARK
            yield line(indent, mark, Span(text, style if marked else ""), hang=len(indent) + 5)


def _beside(
    cells: Sequence[Sequence[Sequence[str]]], column: int, say: Words, indent: str, at: int | None
) -> Iterator[Line]:
    labels = [say("expected: ").rstrip(" :："), say("actual:   ").rstrip(" :：")]
    yield _row(indent, _NO_MARK, labels, column, ("dim", "dim"))
    for number, (left, right) in enumerate(zip_longest(*cells, fillvalue=())):
        marked = number == at
        styles = (EXPECTED, ACTUAL) if marked else ("", "")
        for place, texts in enumerate(zip_longest(left, right, fillvalue="")):
            mark = _MARK if marked and not place else _NO_MARK
            yield _row(indent, mark, texts, column, styles)


def _row(
    indent: str, mark: str, texts: Sequence[str], column: int, styles: tuple[str, str]
) -> Line:
    left, right = texts
    pad = " " * (column - _width(left))
    after = [_BETWEEN, Span(right, styles[1])] if right else [_BETWEEN.rstrip()]
    parts = [indent, mark, Span(left, styles[0]), pad, *after]
    return line(*parts)._replace(whole=True)


def _rows(text: str, width: int) -> list[str]:
    """The text in rows of so many columns."""
    from arena_cli.report import cells  # noqa: PLC0415 - it imports rich, for a failure only

    hang, rows = cells.rows(text, width)
    first, *others = (text[start:end] for start, end in rows)
    return [first, *(" " * hang + one for one in others)]


def _width(text: str) -> int:
    from arena_cli.report import cells  # noqa: PLC0415 - it imports rich, for a failure only

    return cells.width_of(text)
