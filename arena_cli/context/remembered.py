"""What is remembered at one call, and how it reads: the summary, what is pinned, the notes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from arena_cli.ground import text
from arena_cli.ground.protocol import ShownMessage
from arena_cli.memory import ranking
from arena_cli.memory.note import Note

_HEADING = re.compile("#{1,6} ")

MOST_TITLES = 40
"""Titles of pinned messages that an agent is shown instead of them; the newest."""

LONGEST_NOTE = 800
"""Characters of a note that an agent is shown; a note is to be read at a glance."""


class Pinned(NamedTuple):
    """A message that is always shown, and the note that names it as its source."""

    message: ShownMessage
    note: Note


class Found(NamedTuple):
    """A note that bears on a call, and why it was found."""

    note: Note
    why: str = ""


class Memory(NamedTuple):
    """What is remembered when an agent is called.

    `summary` stands for the `summarised` messages up to the seq `upto`. `pinned` go from the oldest
    to the newest, `notes` from the best to the least, of which `most_notes` are shown at most.
    """

    summary: str = ""
    upto: int = 0
    summarised: int = 0
    pinned: Sequence[Pinned] = ()
    notes: Sequence[Found] = ()
    most_notes: int = ranking.MOST_SHOWN


NOTHING = Memory()


def stable(summary: str, summarised: int, titles: Sequence[Note]) -> str:
    """What stands before the messages; it changes only when messages are summarised or pinned."""
    parts = []
    if summary:
        parts.append(f"Of the {summarised} messages before those shown here:\n{summary}")
    if titles:
        listed = [f"- {_headline(note)}" for note in titles[-MOST_TITLES:]]
        more = len(titles) - len(listed)
        listed += [f"- and {more} older"] if more else []
        told = "\n".join(listed)
        parts.append(f"Also said before, there is no room for more than its title:\n{told}")
    return "\n\n".join(parts)


def noted(note: Note) -> str:
    """A note as an agent is shown it."""
    told = list(_told(note.body.splitlines()))
    if [line.strip() for line in told if not _HEADING.match(line)] == [note.title.strip()]:
        told = []
    whole = "\n".join(told).strip()
    body = text.cut(whole, LONGEST_NOTE)
    more = " ..." if len(body) < len(whole) else ""
    return f"- [{note.id}] {_headline(note)}" + (f"\n{_indented(body)}{more}" if body else "")


def _told(lines: Sequence[str]) -> Iterator[str]:
    """The lines without blank ones, and without headings below which nothing stands."""
    heading = ""
    for line in lines:
        if _HEADING.match(line):
            heading = line
        elif line.strip():
            if heading:
                yield heading
                heading = ""
            yield line


def _headline(note: Note) -> str:
    title = " ".join(note.title.split())
    owner = f", for {note.owner}" if note.owner else ""
    return f"{note.kind.replace('_', ' ')}, {note.status.replace('_', ' ')}{owner}: {title}"


def _indented(body: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in body.splitlines())
