"""Change a text file: its encoding and its line ends stay, and the change is a unified diff."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from arena_cli.tools.base import ToolFailed

MOST_DIFF_CHARS = 65_536
"""A longer diff is cut."""

_CONTEXT = 3
_MOST_CHANGED = 400
_NO_END = "\n\\ No newline at end of file"
_BINARY_LOOK = 8192

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class TextFile(NamedTuple):
    """The text of a file, and how it is kept: `mark` is its byte order mark."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """Return another text as this file would keep it."""
        return self.mark + text.encode(self.encoding)


def decode(data: bytes) -> TextFile | None:
    """Return the text of a file; None for a binary file, and for one in an unknown encoding."""
    marks = (pair for pair in _MARKS if data.startswith(pair[0]))
    mark, encoding = next(marks, (b"", "utf-8"))
    if not mark and b"\0" in data[:_BINARY_LOOK]:
        return None
    try:
        return TextFile(data[len(mark) :].decode(encoding), encoding, mark)
    except UnicodeDecodeError:
        return None


def replace(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int]:
    """Return the text with `old` replaced by `new`, and how often it was.

    Where the lines of the text end with CRLF, `old` may have plain ends, and `new` gets CRLF.
    Raises ToolFailed unless `old` is there once, or `everywhere`.
    """
    if not old:
        raise ToolFailed("`old` is empty; use write_file for a whole file")
    if "\r\n" in text and (old not in text or "\n" not in text.replace("\r\n", "")):
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    if old == new:
        raise ToolFailed("`old` and `new` are equal; nothing would change")
    count = _count(text, old)
    if count == 0:
        raise ToolFailed("`old` is not in the file; read it, and copy the text exactly")
    if count > 1 and not everywhere:
        raise ToolFailed(
            f"`old` is in the file {count} times; add more of the text around it, "
            "or set `all` to replace each"
        )
    return text.replace(old, new), text.count(old)


def _count(text: str, old: str) -> int:
    """Return how often a text contains another one; at least 2 if two of them overlap."""
    first = text.find(old)
    if first < 0:
        return 0
    return 1 if text.find(old, first + 1) < 0 else max(text.count(old), 2)


def make_diff(name: str, before: bytes | None, after: bytes | None) -> str:
    """Return the unified diff of a file's contents, None for no file; `git apply` can read it."""
    end = "\t" if " " in name else ""
    names = [
        "--- /dev/null" if before is None else f"--- a/{name}{end}",
        "+++ /dev/null" if after is None else f"+++ b/{name}{end}",
    ]
    old, new = (_text_of(data) for data in (before, after))
    if old is None or new is None:
        return f"Binary file {name} {_describe(before, after)}\n"
    lines = [*names, *_hunks(_lines(old), _lines(new))]
    if len(lines) == len(names):  # an empty file
        return f"Empty file {name} {_describe(before, after)}\n"
    return _cut(lines)


def _describe(before: bytes | None, after: bytes | None) -> str:
    if before is None:
        return "created"
    return "deleted" if after is None else "changed"


def _text_of(data: bytes | None) -> str | None:
    if data is None:
        return ""
    file = decode(data)
    if file is None:
        return None
    return ("\ufeff" if file.mark == codecs.BOM_UTF8 else "") + file.text


def _cut(lines: Sequence[str]) -> str:
    size = 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > MOST_DIFF_CHARS:
            return "\n".join([*lines[:number], f"({len(lines) - number} more lines)", ""])
    return "\n".join([*lines, ""])


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, last + _NO_END] if last else lines


class _Change(NamedTuple):
    """Lines of the old text, from `old_start` on, that lines of the new one take the place of."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    hunk: list[_Change] = []
    for change in _compare(old, new):
        if hunk and change.old_start - hunk[-1].old_end > 2 * _CONTEXT:
            yield from _hunk(hunk, old, new)
            hunk = []
        hunk.append(change)
    if hunk:
        yield from _hunk(hunk, old, new)


def _hunk(changes: Sequence[_Change], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield changes that are near each other, with the lines around them."""
    first, last = changes[0], changes[-1]
    at = max(first.old_start - _CONTEXT, 0)
    end = min(last.old_end + _CONTEXT, len(old))
    new_at = first.new_start - (first.old_start - at)
    new_end = last.new_end + (end - last.old_end)
    yield f"@@ -{_range(at, end)} +{_range(new_at, new_end)} @@"
    for change in changes:
        yield from (f" {line}" for line in old[at : change.old_start])
        yield from (f"-{line}" for line in old[change.old_start : change.old_end])
        yield from (f"+{line}" for line in new[change.new_start : change.new_end])
        at = change.old_end
    yield from (f" {line}" for line in old[at:end])


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start},{length}"


def _compare(old: Sequence[str], new: Sequence[str]) -> list[_Change]:
    """Return the changes between two texts; one change if they differ in too many lines."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    whole = _Change(head, len(old) - tail, head, len(new) - tail)
    common = _find_common(
        old[whole.old_start : whole.old_end], new[whole.new_start : whole.new_end]
    )
    changes = []
    at, new_at = head, head
    for old_line, new_line in [(x + head, y + head) for x, y in common]:
        if (old_line, new_line) != (at, new_at):
            changes.append(_Change(at, old_line, new_at, new_line))
        at, new_at = old_line + 1, new_line + 1
    if (at, new_at) != (whole.old_end, whole.new_end):
        changes.append(_Change(at, whole.old_end, new_at, whole.new_end))
    return changes


def _find_common(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the lines that stay, as pairs of their places; none if too many lines differ.

    This is the algorithm of E. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986):
    `reached[k]` is the farthest line of `old` on the diagonal `k` with so many lines changed.
    """
    reached = {1: 0}
    trace: list[dict[int, int]] = []
    for changed in range(min(len(old) + len(new), _MOST_CHANGED) + 1):
        trace.append(dict(reached))
        for k in range(-changed, changed + 1, 2):
            is_down = k == -changed or (k != changed and reached[k - 1] < reached[k + 1])
            x = reached[k + 1] if is_down else reached[k - 1] + 1
            while x < len(old) and x - k < len(new) and x >= k and old[x] == new[x - k]:
                x += 1
            reached[k] = x
            if x >= len(old) and x - k >= len(new):
                return _trace_back(trace, len(old), len(new))
    return []


def _trace_back(trace: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for changed in range(len(trace) - 1, -1, -1):
        reached, k = trace[changed], x - y
        is_down = k == -changed or (k != changed and reached[k - 1] < reached[k + 1])
        previous_k = k + 1 if is_down else k - 1
        previous_x = reached[previous_k]
        previous_y = previous_x - previous_k
        while x > max(previous_x, 0) and y > max(previous_y, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = previous_x, previous_y
    return pairs[::-1]
