"""Build blocks of a page of report lines, and the lanes of agents."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from arena_cli.protocol import Usage
from arena_cli.reports.lines import INDENT, Line, Span, avatar
from arena_cli.reports.timeline import AGENT_STYLES
from arena_cli.transcript.conversation import Turn
from arena_cli.transcript.events import SessionEvent
from arena_cli.util.text import cut_text, escape_line, escape_text

LONGEST = 1800  # characters that a text may have before its end is folded away
MOST_LINES = 30  # and lines
KEPT = 1000  # what then stands there unfolded
KEPT_LINES = 14


class Block(NamedTuple):
    """Pieces of text, line ends among them; `code` is to be shown as it is written."""

    code: bool
    pieces: list[Span]


class FoldedText(NamedTuple):
    """A text; `more` is what is folded away, so many characters of it."""

    first: list[Block]
    more: list[Block]
    characters: int = 0


class _TextRow(NamedTuple):
    code: bool
    spans: list[Span]

    @property
    def length(self) -> int:
        return sum(len(span.text) for span in self.spans)


def of_lines(lines: Iterable[Line]) -> FoldedText:
    """The lines that a terminal would show, without the indent that all of them have."""
    rows: list[_TextRow] = []
    for line in lines:
        spans = [span for span in _outdented(line) if span.text]
        # An empty line belongs to what stands above it.
        code = line.whole if spans or not rows else rows[-1].code
        rows.append(_TextRow(code, spans))
    length = sum(row.length for row in rows)
    if length <= LONGEST and len(rows) <= MOST_LINES:
        return FoldedText(_blocks(rows), [])
    first, folded = _parted(rows)
    return FoldedText(_blocks(first), _blocks(folded), sum(row.length for row in folded))


def of_text(text: str) -> FoldedText:
    """A text of several lines, made harmless."""
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


class Who(NamedTuple):
    """An agent as a page shows it; `colour` is a number below `AGENT_STYLES`."""

    id: str
    name: str
    face: str = ""
    role: str = ""
    colour: int = 0


class Lane(NamedTuple):
    """A column of a timeline: an agent, how often it replied, and what that used."""

    who: Who
    replies: int = 0
    usage: Usage | None = None


class Cast:
    """Everybody in a session, as its `session` events tell. `avatars` by agent id."""

    def __init__(self, sessions: Iterable[SessionEvent], avatars: Mapping[str, str]) -> None:
        self._avatars = avatars
        self._everybody: dict[str, Who] = {}
        self.config: dict[str, object] = {}
        for session in sessions:
            self.config = session.config
            for index, member in enumerate(session.members):
                self._everybody[member.id] = self._who(
                    member.id, member.name, member.role, index % AGENT_STYLES
                )

    @property
    def members(self) -> list[Who]:
        """In team order."""
        return list(self._everybody.values())

    def who(self, agent: str) -> Who:
        """A member, or somebody who is none any more."""
        cast_member = self._everybody.get(agent)
        return cast_member or self._who(agent, agent, "", zlib.crc32(agent.encode()) % AGENT_STYLES)

    def is_member(self, agent: str) -> bool:
        """Return True if an id is that of an agent, and not of a human."""
        return agent in self._everybody

    def _who(self, agent: str, name: str, role: str, colour: int) -> Who:
        face = avatar(self._avatars.get(agent, ""))
        return Who(escape_line(agent), escape_line(name), face, escape_line(role), colour)

    def lanes(self, turns: Iterable[Turn]) -> dict[str, Lane]:
        """Return the lanes of agents that were called or judged, in team order."""
        seen: dict[str, None] = {}
        replies: Counter[str] = Counter()
        usage: dict[str, list[Usage]] = {}
        for turn in turns:
            seen.update(dict.fromkeys(turn.concerned))
            for done in turn.ends():
                replies[done.agent] += done.status == "success"
                if done.usage:
                    usage.setdefault(done.agent, []).append(done.usage)
        ordered = [agent for agent in self._everybody if agent in seen]
        ordered += [agent for agent in seen if agent not in self._everybody]
        return {
            agent: Lane(
                self.who(agent),
                replies[agent],
                Usage.total(usage[agent]) if agent in usage else None,
            )
            for agent in ordered
        }
