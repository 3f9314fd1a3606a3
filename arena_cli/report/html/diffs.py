"""Two texts as one: lines that went and came, and within a line the words that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from arena_cli.ground.text import shown
from arena_cli.report import alignment, textdiff

Kind = Literal["same", "removed", "added", "left_out"]

CONTEXT = 2  # lines that stay around what differs
LONGEST_SAME = 240  # characters that are alike, within a line that differs, before they are cut


class Part(NamedTuple):
    """A piece of a line; `differs`: the other line has not got it."""

    text: str
    differs: bool = False


class Row(NamedTuple):
    """A line of one of the texts, or of both; `left_out`: so many lines that
    are the same."""

    kind: Kind
    parts: list[Part]
    left_out: int = 0


def of(before: str, after: str) -> list[Row]:
    """The rows of a diff; both texts are made harmless."""
    old, new = (shown(text).split("\n") if text else [] for text in (before, after))
    rows: list[Row] = []
    found = alignment.blocks(old, new)
    for place, block in enumerate(found):
        lines = old[block.a1 : block.a2]
        if block.same:
            rows += _same(lines, begins=place == 0, ends=place == len(found) - 1)
        else:
            rows += _changed(lines, new[block.b1 : block.b2])
    return rows


def _same(lines: Sequence[str], *, begins: bool, ends: bool) -> Iterator[Row]:
    """The lines next to a change; how many others there are."""
    above = 0 if begins else CONTEXT
    below = 0 if ends else CONTEXT
    left_out = len(lines) - above - below
    if left_out < 2:  # to say so takes a line too
        yield from (Row("same", [Part(one)]) for one in lines)
        return
    yield from (Row("same", [Part(one)]) for one in lines[:above])
    yield Row("left_out", [], left_out)
    yield from (Row("same", [Part(one)]) for one in lines[len(lines) - below :])


def _changed(went: Sequence[str], came: Sequence[str]) -> Iterator[Row]:
    """First all that went; lines in the same place are marked where they differ."""
    added: list[Row] = []
    for old, new in zip_longest(went, came):
        both = _within(old, new) if old is not None and new is not None else None
        if old is not None:
            yield Row("removed", both[0] if both else [Part(old)])
        if new is not None:
            added.append(Row("added", both[1] if both else [Part(new)]))
    yield from added


def _within(old: str, new: str) -> tuple[list[Part], list[Part]] | None:
    changes = textdiff.changes_of(old, new)
    if changes is None:
        return None
    sides: tuple[list[Part], list[Part]] = ([], [])
    for place, change in enumerate(changes):
        same = _shortened(change.same, begins=place == 0, ends=place == len(changes) - 1)
        for side, differs in zip(sides, (change.old, change.new), strict=True):
            side += [one for one in (Part(same), Part(differs, True)) if one.text]
    return sides


def _shortened(text: str, *, begins: bool, ends: bool) -> str:
    """The parts of a long stretch that are next to a change."""
    if len(text) <= LONGEST_SAME:
        return text
    half = LONGEST_SAME // 2
    return f"{'' if begins else text[:half]} […] {'' if ends else text[-half:]}"
