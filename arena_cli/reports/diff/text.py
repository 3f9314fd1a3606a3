"""Compare two texts: `-` a removed line, `+` a new one, `~` a changed one.

A changed line is shown once, as `the {-old-}{+new+} words`. Words are compared where a script puts
spaces between them, characters elsewhere. Texts of agents are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from itertools import groupby, zip_longest
from typing import NamedTuple

from arena_cli.reports.lines import Line, Span, Words, line
from arena_cli.util.text import cut_text, escape_line
from arena_cli.workspace import visible_text
from arena_cli.workspace.visible_text import CharKind

# A table of an alignment takes one bit for each pair of what is aligned: 50 MB.
MOST_PAIRS = 400_000_000


class DiffBlock(NamedTuple):
    """A block `a[a1:a2]` in the position of `b[b1:b2]`; `same`: both are equal."""

    same: bool
    a1: int
    a2: int
    b1: int
    b2: int


def blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[DiffBlock]:
    """Return blocks that cover both in order, by their longest common subsequence.

    If the part between the equal beginning and end is too large to align, it becomes one block that
    differs.
    """
    start, a_end, b_end = _middle(a, b)
    result = [DiffBlock(True, 0, start, 0, start)]
    if (a_end - start) * (b_end - start) > MOST_PAIRS:
        result.append(DiffBlock(False, start, a_end, start, b_end))
    else:
        result += _common(a, b, start, a_end, b_end)
    result.append(DiffBlock(True, a_end, len(a), b_end, len(b)))
    return list(_joined(result))


def pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int | None, int | None]]:
    """Yield pairs of indices with as few changes as possible; None if only one side has the item.

    Pairs follow the Levenshtein distance: a changed item is paired with its replacement.
    """
    from rapidfuzz.distance import Levenshtein  # noqa: PLC0415 - where they differ only

    start, a_end, b_end = _middle(a, b)
    yield from ((index, index) for index in range(start))
    for op in Levenshtein.opcodes(*_numbered(a[start:a_end], b[start:b_end])):
        ours = range(start + op.src_start, start + op.src_end)
        theirs = range(start + op.dest_start, start + op.dest_end)
        if op.tag in ("equal", "replace"):
            yield from zip(ours, theirs, strict=True)
        else:
            yield from ((index, None) for index in ours)
            yield from ((None, index) for index in theirs)
    yield from zip(range(a_end, len(a)), range(b_end, len(b)), strict=True)


def _middle(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[int, int, int]:
    """Return the end of the equal beginning, and the start of the equal end in each."""
    shorter = min(len(a), len(b))
    start = next((index for index in range(shorter) if a[index] != b[index]), shorter)
    a_end, b_end = len(a), len(b)
    while min(a_end, b_end) > start and a[a_end - 1] == b[b_end - 1]:
        a_end, b_end = a_end - 1, b_end - 1
    return start, a_end, b_end


def _common(
    a: Sequence[Hashable], b: Sequence[Hashable], start: int, a_end: int, b_end: int
) -> Iterator[DiffBlock]:
    from rapidfuzz.distance import Indel  # noqa: PLC0415 - where texts differ only

    for op in Indel.opcodes(*_numbered(a[start:a_end], b[start:b_end])):
        ours = start + op.src_start, start + op.src_end
        yield DiffBlock(op.tag == "equal", *ours, start + op.dest_start, start + op.dest_end)


def _numbered(*sides: Sequence[Hashable]) -> Iterator[list[int]]:
    """Yield the sides with equal items as equal numbers, so that no two hashes collide."""
    numbers: dict[Hashable, int] = {}
    yield from ([numbers.setdefault(item, len(numbers)) for item in side] for side in sides)


def _joined(blocks: Sequence[DiffBlock]) -> Iterator[DiffBlock]:
    """Yield the blocks without empty ones; neighbours of one kind are merged."""
    filled = [block for block in blocks if block.a1 < block.a2 or block.b1 < block.b2]
    for same, group in groupby(filled, key=lambda block: block.same):
        first, *_, last = [*group] * 2
        yield DiffBlock(same, first.a1, last.a2, first.b1, last.b2)


GONE, NEW, CHANGED, STAYED = "- ", "+ ", "~ ", "  "
OLD_STYLE, NEW_STYLE = "removed", "added"

CONTEXT = 1
LONGEST_SAME = 60
_SAME_AT_EACH_END = 24

# Of two lines, how much of the longer one is in both, where one is told as the other, changed.
_ENOUGH_IN_COMMON = 0.4
# So many pairs of lines, and of their characters, are looked at for what they have in common: a
# tenth of a second.
_MOST_LOOKS = 10_000
_MOST_WORK = 500_000_000
_UNSEEN = re.compile("[\u200c\u200d\ufe00-\ufe0f]")


class TextChange(NamedTuple):
    """A common piece of both texts, and the text that follows it in each."""

    same: str
    old: str
    new: str


def draw_text_diff(old_text: str, new_text: str, say: Words, *, indent: str) -> Iterator[Line]:
    """Yield the lines that changed, and one unchanged line on each side of them."""
    if old_text == new_text:
        return
    old, new = _lines(old_text), _lines(new_text)
    parts = blocks(old, new)
    for number, block in enumerate(parts):
        rows = old[block.a1 : block.a2]
        if block.same:
            ends = (number == 0, number == len(parts) - 1)
            yield from _stayed(rows, *ends, say, indent)
            continue
        for old_row, right in _beside(rows, new[block.b1 : block.b2]):
            yield from _changed(old_row, right, indent)


def marked(text: str, mark: str, *, indent: str) -> Iterator[Line]:
    """Yield every line of a text that only one side has, with its mark."""
    style = OLD_STYLE if mark == GONE else NEW_STYLE
    for row in text.split("\n"):
        yield line(indent, Span(mark + escape_line(row), style), hang=len(indent) + len(mark))


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _stayed(
    rows: Sequence[str], first: bool, last: bool, say: Words, indent: str
) -> Iterator[Line]:
    """Yield the rows next to a change, and the number of rows between them."""
    above = [] if first else rows[:CONTEXT]
    remaining = rows[len(above) :]
    below = [] if last else remaining[max(len(remaining) - CONTEXT, 0) :]
    between = [escape_line(row) for row in remaining[: len(remaining) - len(below)]]
    if len(between) > 1:
        between = [say("({count} equal lines)", count=len(between))]
    for text in (*map(escape_line, above), *between, *map(escape_line, below)):
        yield _row(STAYED, [Span(text, "dim")], indent)


def _row(mark: str, spans: list[Span], indent: str) -> Line:
    return line(indent, mark, spans, hang=len(indent) + len(mark))


def _beside(old: Sequence[str], new: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Pair each line with the most similar line of the new text; None if it has no counterpart.

    If there are too many lines to compare them all, each is paired with the one at the same index.
    """
    if sum(map(len, old)) * sum(map(len, new)) > _MOST_WORK or len(old) * len(new) > _MOST_LOOKS:
        return list(zip_longest(old, new))
    alike = [[_alike(old_row, new_row) for new_row in new] for old_row in old]
    best = _sum_best(alike)
    rows: list[tuple[str | None, str | None]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        if alike[i][j] and best[i][j] == alike[i][j] + best[i + 1][j + 1]:
            rows.append((old[i], new[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            rows.append((old[i], None))
            i += 1
        else:
            rows.append((None, new[j]))
            j += 1
    return [
        *rows,
        *((old_row, None) for old_row in old[i:]),
        *((None, old_row) for old_row in new[j:]),
    ]


def _sum_best(alike: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the most that the lines from each pair on have in common, in their order."""
    width = len(alike[0]) if alike else 0
    best = [[0.0] * (width + 1) for _ in range(len(alike) + 1)]
    for i in reversed(range(len(alike))):
        for j in reversed(range(width)):
            best[i][j] = max(alike[i][j] + best[i + 1][j + 1], best[i + 1][j], best[i][j + 1])
    return best


def _alike(first: str, second: str) -> float:
    from rapidfuzz.distance import Indel  # noqa: PLC0415 - where texts differ only

    alike = Indel.normalized_similarity(first, second, score_cutoff=_ENOUGH_IN_COMMON)
    return alike or float(_looks(first) == _looks(second))


def _changed(old: str | None, new: str | None, indent: str) -> Iterator[Line]:
    changes = changes_of(old, new) if old is not None and new is not None else None
    if changes is not None:
        yield _row(CHANGED, list(_spans(changes)), indent)
        return
    gone, added = (old, new) if old is None or new is None else _apart(old, new)
    for text, mark in ((gone, GONE), (added, NEW)):
        if text is not None:
            yield from marked(text, mark, indent=indent)


def changes_of(old: str, new: str) -> list[TextChange] | None:
    """Return the changes of a line; None if it is a different line."""
    old_tokens, right = _tokens(old), _tokens(new)
    changes: list[TextChange] = []
    same = ""
    for block in blocks(old_tokens, right):
        text = "".join(old_tokens[block.a1 : block.a2])
        if block.same:
            same = text
        else:
            changes.append(TextChange(same, text, "".join(right[block.b1 : block.b2])))
            same = ""
    changes.append(TextChange(same, "", ""))
    changes = _readable(changes)
    in_both = sum(len(change.same) for change in changes)
    return changes if in_both >= _ENOUGH_IN_COMMON * max(len(old), len(new)) else None


def _readable(changes: Sequence[TextChange]) -> list[TextChange]:
    """Merge two changes if the text between them is shorter than either of them."""
    readable = [changes[0]]
    for change in changes[1:]:
        last = readable[-1]
        around = min(_size(last), _size(change))
        if len(change.same) <= around:
            readable[-1] = TextChange(
                last.same, last.old + change.same + change.old, last.new + change.same + change.new
            )
        else:
            readable.append(change)
    return readable


def _size(change: TextChange) -> int:
    return max(len(change.old), len(change.new))


@cache
def _token() -> re.Pattern[str]:
    return re.compile(rf"\d+(?:[.,]\d+)+|{visible_text.SPACED_WORD}+|.", re.DOTALL)


def _tokens(text: str) -> list[str]:
    """Return words, numbers and single characters, each with the marks that belong to it."""
    matches = _token().findall(text)
    if text.isascii():
        return matches
    tokens: list[str] = []
    for match_text in matches:
        belongs = visible_text.classify_char(match_text[0]) is CharKind.EXTEND
        goes_on = tokens and _goes_on(tokens[-1], match_text[0])
        if tokens and (belongs or goes_on):
            tokens[-1] += match_text
        else:
            tokens.append(match_text)
    return tokens


def _goes_on(previous: str, char: str) -> bool:
    """Return True if a character belongs to the one before: a joiner, or a mark."""
    if previous[-1] == "\u200d":
        return True
    if visible_text.classify_char(previous[-1]) is not CharKind.EXTEND:
        return False
    return (
        visible_text.classify_char(previous[0]) is CharKind.SPACED
        and visible_text.classify_char(char) is CharKind.SPACED
    )


def _spans(changes: Sequence[TextChange]) -> Iterator[Span]:
    last = len(changes) - 1
    for number, change in enumerate(changes):
        is_last = number == last and not (change.old or change.new)
        same = _shortened(change.same, begins=number == 0, ends=is_last)
        if same:
            yield Span(escape_line(same))
        # Not in brackets: `##[` would begin a command of some CI runners.
        old, new = _apart(change.old, change.new)
        if old:
            yield Span(f"{{-{escape_line(old)}-}}", OLD_STYLE)
        if new:
            yield Span(f"{{+{escape_line(new)}+}}", NEW_STYLE)


def _apart(old: str, new: str) -> tuple[str, str]:
    """Return both texts, as code points if the difference is not visible."""
    if _looks(old) == _looks(new):
        return ascii(old)[1:-1], ascii(new)[1:-1]
    return old, new


def _looks(text: str) -> str:
    return unicodedata.normalize("NFC", _UNSEEN.sub("", text))


def _shortened(text: str, *, begins: bool, ends: bool) -> str:
    """Return the ends of a long unchanged text that are next to a change."""
    if len(text) <= LONGEST_SAME:
        return text
    start = len(text) - _SAME_AT_EACH_END
    while start < len(text) and visible_text.classify_char(text[start]) is CharKind.EXTEND:
        start += 1
    prefix = "" if begins else cut_text(text, _SAME_AT_EACH_END) + " "
    suffix = "" if ends else " " + text[start:]
    return f"{prefix}…{suffix}"
