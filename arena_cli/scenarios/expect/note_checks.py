"""Check notes: which exist, which agents were shown, and which replies ignored."""

from __future__ import annotations

import fnmatch
import functools
import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.scenarios.expect import check_kinds, text_checks
from arena_cli.scenarios.expect.context import CheckContext, Subject
from arena_cli.scenarios.expect.event_checks import match_rows
from arena_cli.scenarios.expect.model import (
    DeviationRow,
    Noted,
    NoteRow,
    NotesShown,
)
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.scenarios.expect.values import Range, describe_limit, within
from arena_cli.transcript.events import Deviation, NoteEvent
from arena_cli.yamlio.nodes import Loc

NOTHING = "nothing was noted"


@dataclass
class _NoteItem:
    """A note with its last state, and all agents and people that changed it."""

    last: NoteEvent
    by: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        last = self.last
        facts = (last.kind, last.note, last.status, f"by {', '.join(self.by)}")
        return " · ".join([*facts, text_checks.excerpt(last.title)])


def _items(conversation: CheckContext) -> list[_NoteItem]:
    items: dict[str, _NoteItem] = {}
    for event in conversation.noted:
        if event.act == "refused":
            continue
        item = items.setdefault(event.note, _NoteItem(event))
        item.last = event
        if event.by not in item.by:
            item.by.append(event.by)
    return list(items.values())


def notes(expected: Sequence[str | NoteRow] | Noted) -> Iterator[Check]:
    """Yield the checks on the notes that were added or changed."""
    if not isinstance(expected, Noted):
        if not expected:
            yield Check((), _none)
        for index, row in enumerate(expected):
            times = list(expected[: index + 1]).count(row)
            yield Check((index,), functools.partial(_is_there, row, times=times))
        return
    for name in Noted.model_fields:
        if name in expected.model_fields_set:
            value = getattr(expected, name)
            judge: Any = _exactly if name == "exactly" else functools.partial(_so_many, name)
            yield Check((name,), functools.partial(judge, value))


def _none(conversation: CheckContext) -> Verdict:
    listed = _list_items(_items(conversation))
    return Verdict(not listed, "no note", listed or NOTHING)


def _is_there(row: str | NoteRow, conversation: CheckContext, *, times: int = 1) -> Verdict:
    """Check that at least `times` notes match this row."""
    reasons = [(item, _against(row, item, conversation)) for item in _items(conversation)]
    matches = [item for item, reason in reasons if not reason]
    expected = _often(_describe_row(row), times)
    if len(matches) >= times:
        return Verdict(True, expected, str(matches[times - 1]))
    actual = "\n".join(f"{item} ({reason})" if reason else str(item) for item, reason in reasons)
    return Verdict(False, expected, actual or NOTHING)


def _often(row: str, times: int) -> str:
    return f"{row}, {times} times" if times > 1 else row


def _exactly(rows: Sequence[str | NoteRow], conversation: CheckContext) -> Verdict:
    """Check that rows and notes match one to one."""
    items = _items(conversation)
    unmet, unmatched = match_rows(
        rows, items, lambda row, item: not _against(row, item, conversation)
    )
    expected = "\n".join(map(_describe_row, rows)) or "no note"
    actual = _list_items(items) or NOTHING
    index: Loc = ()
    if unmet:
        actual += f"\n(none is {_describe_row(rows[unmet[0]])})"
        index = (unmet[0],)
    elif unmatched:
        actual += f"\n(not expected: {items[unmatched[0]].last.note})"
    return Verdict(not unmet and not unmatched, expected, actual, index)


def _so_many(kind: str, expected: float | Range, conversation: CheckContext) -> Verdict:
    items = [item for item in _items(conversation) if item.last.kind == kind]
    actual = f"{_notes(len(items))} of the kind {kind}"
    told_of = f"{actual}: {'; '.join(map(str, items))}" if items else actual
    text = f"{_notes(expected)} of the kind {kind}"
    return Verdict(within(expected, len(items)), text, told_of)


def _notes(count: float | Range) -> str:
    return "1 note" if count == 1 else f"{describe_limit(count)} notes"


def _against(row: str | NoteRow, item: _NoteItem, conversation: CheckContext) -> str:
    """Explain why a note is not this row; return an empty text if it is."""
    if isinstance(row, str):
        return "" if item.last.kind == row else f"kind is {item.last.kind}"
    return next(_reasons(row, item, conversation), "")


def _reasons(row: NoteRow, item: _NoteItem, conversation: CheckContext) -> Iterator[str]:
    last, keys = item.last, row.model_fields_set
    for name in ("kind", "status"):
        if name in keys and getattr(row, name) != getattr(last, name):
            yield f"{name} is {getattr(last, name)}"
    if row.note and not _is_named(row.note, last.note):
        yield f"note is {last.note}"
    if text_checks.form(row.title, row.ignore_case) not in text_checks.form(
        last.title, row.ignore_case
    ):
        yield "its title does not contain it"
    if row.by and row.by not in item.by:
        yield f"by {', '.join(item.by)}"
    if row.kinds:
        text = conversation.noted_texts.get(last, last.title)
        verdict = check_kinds.all_of(Subject(text, conversation, part=("note", last.note)), row)
        if not verdict.holds:
            yield verdict.actual


def _describe_row(row: str | NoteRow) -> str:
    """Describe an expected row in words."""
    if isinstance(row, str):
        return row
    keys = row.model_fields_set
    facts = [getattr(row, name) for name in ("kind", "note", "status") if name in keys]
    if row.by:
        facts.append(f"by {row.by}")
    if row.title:
        facts.append(f"title contains {text_checks.quoted(row.title)}")
    if row.kinds:
        facts.append(check_kinds.describe_checks(row))
    return " · ".join(facts)


def _list_items(items: Iterable[_NoteItem]) -> str:
    return "\n".join(map(str, items))


def judge_shown(
    agent: str, notes: Sequence[str] | NotesShown, conversation: CheckContext
) -> Verdict:
    """Check which notes an agent was shown, over all its calls."""
    if not isinstance(notes, NotesShown):
        notes = NotesShown(include=list(notes)) if notes else NotesShown(exactly=[])
    shown_ids = conversation.notes_shown(agent)
    expected_ids = notes.include if notes.exactly is None else notes.exactly
    expected = f"{agent} is shown {_describe_shown(notes, expected_ids)}"
    if shown_ids is None:
        return Verdict(False, expected, f"no call of {agent}: {conversation.outcome(agent)}")
    missing = [pattern for pattern in expected_ids if not _are_named([pattern], shown_ids)]
    unwanted = _are_named(notes.exclude, shown_ids)
    if notes.exactly is not None:
        unwanted = {*shown_ids} - _are_named(expected_ids, shown_ids)
    actual = ", ".join(shown_ids) or "no note"
    return Verdict(not missing and not unwanted, expected, actual)


def _describe_shown(notes_shown: NotesShown, expected_ids: Sequence[str]) -> str:
    facts = []
    if expected_ids or notes_shown.exactly is not None:
        others = ", no other" if notes_shown.exactly else ""
        facts.append(f"{', '.join(expected_ids) or 'no note'}{others}")
    if notes_shown.exclude:
        facts.append(f"not {', not '.join(notes_shown.exclude)}")
    return ", ".join(facts)


def _are_named(patterns: Iterable[str], notes: Sequence[str]) -> set[str]:
    """Return the notes that a pattern names."""
    return {note for pattern in patterns for note in notes if _is_named(pattern, note)}


def _is_named(pattern_text: str, note: str) -> bool:
    """Return True if the pattern matches a note's id; `*` matches any text."""
    pieces = text_checks.form(pattern_text, ignore_case=True).split("*")
    pattern = "*".join(map(glob.escape, pieces))
    return fnmatch.fnmatchcase(text_checks.form(note, ignore_case=True), pattern)


def deviations(expected: float | Range | Sequence[DeviationRow]) -> Iterator[Check]:
    """Yield the checks on notes that were shown and not followed."""
    if isinstance(expected, (int, float, Range)):
        yield Check((), functools.partial(_deviated, expected))
        return
    if not expected:
        yield Check((), functools.partial(_deviated, 0))
    for index, row in enumerate(expected):
        times = list(expected[: index + 1]).count(row)
        yield Check((index,), functools.partial(_unheeded, row, times=times))


def _deviated(expected: float | Range, conversation: CheckContext) -> Verdict:
    found = list(map(_deviation, conversation.conversation.deviations))
    count = len(found)
    told_of = f"{count}: {'; '.join(found)}" if found else "0"
    return Verdict(within(expected, count), describe_limit(expected), told_of)


def _unheeded(row: DeviationRow, conversation: CheckContext, *, times: int = 1) -> Verdict:
    """Check that at least `times` deviations match this row."""
    keys = row.model_fields_set
    expected = " · ".join(
        str(getattr(row, name)) for name in DeviationRow.model_fields if name in keys
    )
    expected = _often(expected, times)
    remaining = times
    all_deviations = conversation.conversation.deviations
    for deviation in all_deviations:
        same = all(getattr(row, name) == getattr(deviation, name) for name in keys - {"note"})
        remaining -= same and (not row.note or _is_named(row.note, deviation.note))
        if not remaining:
            return Verdict(True, expected, _deviation(deviation))
    return Verdict(False, expected, "\n".join(map(_deviation, all_deviations)) or "none")


def _deviation(deviation: Deviation) -> str:
    return " · ".join(
        (
            deviation.agent,
            deviation.note,
            deviation.kind,
            deviation.level,
            deviation.severity,
            text_checks.excerpt(deviation.reason),
        )
    )
