"""Change a text file: its encoding and its line ends stay, and the change is a unified diff."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from arena_cli.tools.base import ToolFailed

MOST_DIFF_CHARS = 65_536
"""A longer diff is cut."""

_CONTEXT = 3
_MOST_COMPARED = 4_000  # lines; the time of a comparison may grow with their square
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
        old, new = (snippet.replace("\r\n", "\n").replace("\n", "\r\n") for snippet in (old, new))
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


def make_diff(name: str, old_data: bytes | None, new_data: bytes | None) -> str:
    """Return the unified diff of a file's contents, None for no file; `git apply` can read it."""
    end = "\t" if " " in name else ""
    names = [
        "--- /dev/null" if old_data is None else f"--- a/{name}{end}",
        "+++ /dev/null" if new_data is None else f"+++ b/{name}{end}",
    ]
    old, new = (_text_of(data) for data in (old_data, new_data))
    if old is None or new is None:
        return f"Binary file {name} {_describe(old_data, new_data)}\n"
    lines = [*names, *_hunks(_lines(old), _lines(new))]
    if len(lines) == len(names):  # an empty file
        return f"Empty file {name} {_describe(old_data, new_data)}\n"
    return _cut(lines)


def _describe(old_data: bytes | None, new_data: bytes | None) -> str:
    if old_data is None:
        return "created"
    return "deleted" if new_data is None else "changed"


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


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the hunks of a unified diff; one hunk for all if too many lines differ."""
    head, tail = _count_equal(old, new)
    start, end, new_end = max(head - _CONTEXT, 0), len(old) - tail, len(new) - tail
    end, new_end = min(end + _CONTEXT, len(old)), min(new_end + _CONTEXT, len(new))
    old, new = old[start:end], new[start:new_end]
    if len(old) + len(new) > _MOST_COMPARED:
        context = head - start
        below = min(_CONTEXT, tail)
        changes = [
            ("equal", 0, context, 0, context),
            ("replace", context, len(old) - below, context, len(new) - below),
            ("equal", len(old) - below, len(old), len(new) - below, len(new)),
        ]
        yield from _hunk(changes, old, new, start)
        return
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes():
        yield from _hunk(group, old, new, start)


def _count_equal(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the number of equal lines at the beginning, and at the end."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _hunk(
    changes: Sequence[tuple[str, int, int, int, int]],
    old: Sequence[str],
    new: Sequence[str],
    start: int,
) -> Iterator[str]:
    """Yield a hunk of lines that begin at line `start` of their files, from 0."""
    first, last = changes[0], changes[-1]
    ranges = _range(start + first[1], start + last[2]), _range(start + first[3], start + last[4])
    yield f"@@ -{ranges[0]} +{ranges[1]} @@"
    for kind, old_start, old_end, new_start, new_end in changes:
        if kind == "equal":
            yield from (f" {line}" for line in old[old_start:old_end])
            continue
        yield from (f"-{line}" for line in old[old_start:old_end])
        yield from (f"+{line}" for line in new[new_start:new_end])


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start},{length}"
