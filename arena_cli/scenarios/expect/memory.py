"""Expectations about what was remembered: notes, which of them were shown, which not heeded."""

from __future__ import annotations

import fnmatch
import functools
import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.scenarios.expect import check_kinds, model, text_checks
from arena_cli.scenarios.expect.conversation import Conversation, Subject
from arena_cli.scenarios.expect.model import DeviationRow, Noted, NoteRow, NotesShown, Range
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.transcript.events import Deviation, NoteEvent
from arena_cli.yamlio.nodes import Loc

NOTHING = "nothing was noted"


@dataclass
class _Item:
    """A note of which something is told: as it is since, and all who did something to it."""

    last: NoteEvent
    by: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        last = self.last
        facts = (last.kind, last.note, last.status, f"by {', '.join(self.by)}")
        return " · ".join([*facts, text_checks.excerpt(last.title)])


def _items(told: Conversation) -> list[_Item]:
    found: dict[str, _Item] = {}
    for event in told.noted:
        if event.act == "refused":
            continue
        item = found.setdefault(event.note, _Item(event))
        item.last = event
        if event.by not in item.by:
            item.by.append(event.by)
    return list(found.values())


def notes(expected: Sequence[str | NoteRow] | Noted) -> Iterator[Check]:
    """The checks on the notes that were taken or changed."""
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


def _none(told: Conversation) -> Verdict:
    there = _listed(_items(told))
    return Verdict(not there, "no note", there or NOTHING)


def _is_there(row: str | NoteRow, told: Conversation, *, times: int = 1) -> Verdict:
    """So many notes are this row."""
    reasons = [(item, _against(row, item, told)) for item in _items(told)]
    found = [item for item, why in reasons if not why]
    expected = _often(_wanted(row), times)
    if len(found) >= times:
        return Verdict(True, expected, str(found[times - 1]))
    actual = "\n".join(f"{item} ({why})" if why else str(item) for item, why in reasons)
    return Verdict(False, expected, actual or NOTHING)


def _often(row: str, times: int) -> str:
    return f"{row}, {times} times" if times > 1 else row


def _exactly(wanted: Sequence[str | NoteRow], told: Conversation) -> Verdict:
    """Every note is another row, and every row another note."""
    items = _items(told)
    fits = [[at for at, one in enumerate(items) if not _against(row, one, told)] for row in wanted]
    given: dict[int, int] = {}
    unmet = [at for at in range(len(wanted)) if not _give(at, fits, given, set())]
    left = [item for at, item in enumerate(items) if at not in given]
    expected = "\n".join(map(_wanted, wanted)) or "no note"
    actual = _listed(items) or NOTHING
    at: Loc = ()
    if unmet:
        actual += f"\n(none is {_wanted(wanted[unmet[0]])})"
        at = (unmet[0],)
    elif left:
        actual += f"\n(not expected: {left[0].last.note})"
    return Verdict(not unmet and not left, expected, actual, at)


def _give(row: int, fits: Sequence[Sequence[int]], given: dict[int, int], seen: set[int]) -> bool:
    """Give a row a note that fits it; a row that had it gets another, if there is one."""
    for item in fits[row]:
        if item not in seen:
            seen.add(item)
            if item not in given or _give(given[item], fits, given, seen):
                given[item] = row
                return True
    return False


def _so_many(kind: str, expected: float | Range, told: Conversation) -> Verdict:
    items = [item for item in _items(told) if item.last.kind == kind]
    actual = f"{len(items)} {kind}"
    told_of = f"{actual}: {'; '.join(map(str, items))}" if items else actual
    wanted = f"{model.wanted(expected)} {kind}"
    return Verdict(model.within(expected, len(items)), wanted, told_of)


def _against(row: str | NoteRow, item: _Item, told: Conversation) -> str:
    """What speaks against a note being this row; empty if it is."""
    if isinstance(row, str):
        return "" if item.last.kind == row else f"kind is {item.last.kind}"
    return next(_reasons(row, item, told), "")


def _reasons(row: NoteRow, item: _Item, told: Conversation) -> Iterator[str]:
    last, given = item.last, row.model_fields_set
    for name in ("kind", "status"):
        if name in given and getattr(row, name) != getattr(last, name):
            yield f"{name} is {getattr(last, name)}"
    if row.note and not _is_named(row.note, last.note):
        yield f"note is {last.note}"
    if text_checks.form(row.title, row.ignore_case) not in text_checks.form(
        last.title, row.ignore_case
    ):
        yield "its title does not have that"
    if row.by and row.by not in item.by:
        yield f"by {', '.join(item.by)}"
    if row.kinds:
        text = told.noted_texts.get(last, last.title)
        verdict = check_kinds.all_of(Subject(text, told, part=("note", last.note)), row)
        if not verdict.holds:
            yield verdict.actual


def _wanted(row: str | NoteRow) -> str:
    """A row as it is expected, in words."""
    if isinstance(row, str):
        return row
    given = row.model_fields_set
    facts = [getattr(row, name) for name in ("kind", "note", "status") if name in given]
    if row.by:
        facts.append(f"by {row.by}")
    if row.title:
        facts.append(f"title has {text_checks.quoted(row.title)}")
    if row.kinds:
        facts.append(check_kinds.wanted(row))
    return " · ".join(facts)


def _listed(items: Iterable[_Item]) -> str:
    return "\n".join(map(str, items))


def shown_notes(expected: Mapping[str, Sequence[str] | NotesShown]) -> Iterator[Check]:
    """The checks on which notes agents were shown, over all their calls."""
    for agent, wanted in expected.items():
        yield Check((agent,), functools.partial(_shown, agent, _as_shape(wanted)))


def _as_shape(wanted: Sequence[str] | NotesShown) -> NotesShown:
    if isinstance(wanted, NotesShown):
        return wanted
    return NotesShown(include=list(wanted)) if wanted else NotesShown(exactly=[])


def _shown(agent: str, wanted: NotesShown, told: Conversation) -> Verdict:
    there = told.notes_shown(agent)
    asked = list(wanted.exactly if wanted.exactly is not None else wanted.include)
    facts = [f"{', '.join(asked) or 'no note'}{', no other' if wanted.exactly else ''}"]
    facts = facts if asked or wanted.exactly is not None else []
    facts += [f"not {', not '.join(wanted.exclude)}"] if wanted.exclude else []
    expected = f"{agent} is shown {', '.join(facts)}"
    if there is None:
        return Verdict(False, expected, f"no call of {agent}: {told.outcome(agent)}")
    missing = [one for one in asked if not any(_is_named(one, note) for note in there)]
    unwanted = [note for note in there if any(_is_named(one, note) for one in wanted.exclude)]
    if wanted.exactly is not None:
        unwanted = [note for note in there if not any(_is_named(one, note) for one in asked)]
    actual = ", ".join(there) or "no note"
    return Verdict(not missing and not unwanted, expected, actual)


def _is_named(wanted: str, note: str) -> bool:
    """Whether that is a note's id; `*` stands for anything."""
    parts = text_checks.form(wanted, ignore_case=True).split("*")
    pattern = "*".join(map(glob.escape, parts))
    return fnmatch.fnmatchcase(text_checks.form(note, ignore_case=True), pattern)


def deviations(expected: float | Range | Sequence[DeviationRow]) -> Iterator[Check]:
    """The checks on notes that were shown and not heeded."""
    if isinstance(expected, (int, float, Range)):
        yield Check((), functools.partial(_deviated, expected))
        return
    if not expected:
        yield Check((), functools.partial(_deviated, 0))
    for index, row in enumerate(expected):
        times = list(expected[: index + 1]).count(row)
        yield Check((index,), functools.partial(_unheeded, row, times=times))


def _deviated(expected: float | Range, told: Conversation) -> Verdict:
    count = len(told.deviations)
    told_of = f"{count}: {'; '.join(map(_deviation, told.deviations))}" if count else "0"
    return Verdict(model.within(expected, count), model.wanted(expected), told_of)


def _unheeded(row: DeviationRow, told: Conversation, *, times: int = 1) -> Verdict:
    """So many deviations are this row."""
    given = row.model_fields_set
    expected = " · ".join(
        str(getattr(row, name)) for name in DeviationRow.model_fields if name in given
    )
    expected = _often(expected, times)
    left = times
    for one in told.deviations:
        same = all(getattr(row, name) == getattr(one, name) for name in given - {"note"})
        left -= same and (not row.note or _is_named(row.note, one.note))
        if not left:
            return Verdict(True, expected, _deviation(one))
    return Verdict(False, expected, "\n".join(map(_deviation, told.deviations)) or "none")


def _deviation(one: Deviation) -> str:
    return " · ".join((one.agent, one.note, one.kind, one.level, text_checks.excerpt(one.reason)))
