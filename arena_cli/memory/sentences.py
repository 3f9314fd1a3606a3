"""A text as sentences: of what is visible in it, with the words as they were written.

Fenced code, code spans, quoted lines and addresses hold no sentence (`team.visible`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from arena_cli.team.visible import visible

LONGEST_TEXT = 65_536
"""So many characters of a text are looked at: nobody writes more of them by hand."""

LONGEST = 400
"""So many characters of a sentence are looked at."""

_LINE = re.compile(r"[^\r\n]+")
_END = re.compile(
    r"(?=[。！？!?；;.\s])(?:"  # what each begins with: so a search takes a third of the time
    r"[。！？!?；;]+[”’」』）)\"'*_]*\s*|(?<![0-9\s.])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)\.[*_]*\s+|"
    r"(?<=\w[0-9])\.[*_]*\s+(?=(?-i:[A-Z@＠\u3400-\u9fff]))|"  # a number of a list has one digit
    r"\s+(?=[@＠]\S{1,40}\s*(?:请|麻烦|please\b)))",  # to somebody else now
    re.IGNORECASE,
)
_WRAPPED = re.compile(r"(?<=[^\s.!?:;。！？：；])[ \t]*\r?\n[ \t]*(?=[a-z])")
_LEAD = re.compile(
    r"[\s*_#•·]*(?:(?:[-+*•–—]|[0-9]{1,3}[.)、]|（[0-9一二三四五六七八九十]+）)\s+)?"
)
_BULLET = re.compile(r"[0-9一-十•](?![*_])|[-+*•–—]\s")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]|\s*\*\*[^*\r\n]+\*\*\s*\Z")
_OPEN_BOX = re.compile(r"\[ \]\s+")
_DONE_BOX = re.compile(r"\[[xX]\]\s+")
_QUESTION = re.compile(r"[?？][”’」』）)\"'*_\s]*\Z|[吗呢么][。.!！~…*_\s]*\Z")


class Sentence(NamedTuple):
    """One sentence: `text` as written, `shown` the same without what is not visible.

    Both have the same length. `item`: it begins an item of a list; `box` is what stands in the
    item's box, None without one. `heading`: it is a line of its own that heads what follows.
    `goes_on`: it stands in the line of the one before, or in a line that is indented below it.
    """

    text: str
    shown: str
    item: bool = False
    box: bool | None = None
    heading: bool = False
    goes_on: bool = False

    @property
    def asks(self) -> bool:
        """Whether it is a question."""
        return _QUESTION.search(self.shown) is not None


def split(text: str) -> Iterator[Sentence]:
    """The sentences in order; empty ones are left out.

    A line begins a new one, unless it goes on with a small letter.
    """
    text = text[:LONGEST_TEXT]
    shown = visible(text)
    for wrapped in reversed(list(_WRAPPED.finditer(shown))):
        start, end = wrapped.span()
        blanks = " " * (end - start)
        shown = shown[:start] + blanks + shown[end:]
        text = text[:start] + blanks + text[end:]
    for line in _LINE.finditer(shown):
        yield from _of_line(text, shown, line.start(), line.end())


def _of_line(text: str, shown: str, start: int, end: int) -> Iterator[Sentence]:
    lead = _LEAD.match(shown, start, end)
    first = lead.end() if lead else start
    heading = _HEADING.match(shown, start, end) is not None
    item = bool(lead and _BULLET.search(lead[0])) and not heading
    box: bool | None = None
    for pattern, done in ((_OPEN_BOX, False), (_DONE_BOX, True)):
        found = pattern.match(shown, first, end)
        if item and found:
            first, box = found.end(), done
    goes_on = shown[start:first][:1].isspace() and not item
    while first < end:
        stop = _END.search(shown, first, end)
        last = min(stop.end() if stop else end, first + LONGEST)
        if shown[first:last].strip():
            yield Sentence(text[first:last], shown[first:last], item, box, heading, goes_on)
        first, item, box, goes_on = (stop.end() if stop else end), False, None, True
