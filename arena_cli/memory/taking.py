"""What is worth a note becomes one; what is noted already is counted as seen again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from arena_cli.ground import clock
from arena_cli.ground.errors import UsageError
from arena_cli.memory import likeness, plain, reading, sections
from arena_cli.memory.folder import Folder, NoSuchNote
from arena_cli.memory.note import Draft, Note
from arena_cli.memory.reading import NoteFault
from arena_cli.memory.staging import Change

RULES = "rules"
"""Who took a note that nobody wrote."""

Told = Container[tuple[str, str]]
"""(note, message): what is in the trail already."""

_NOTHING: frozenset[tuple[str, str]] = frozenset()


Act = Literal["added", "seen", "edited"]
"""What is done to a note: a file made, or it was seen again, or text added to it."""

Carry = Callable[[Folder, Act, Sequence[Change]], None]
"""Writes what is done to a note of that folder, with its event."""


class Taken(NamedTuple):
    """A note, and what was done to it; None: nothing, as it was taken from that message before."""

    note: Note
    act: Act | None


def take(  # noqa: PLR0913 - each of them decides where a note goes
    draft: Draft,
    known: Iterable[Note],
    folder: Folder,
    *,
    session: str,
    now: datetime,
    shared: Folder | None = None,
    language: str = "en",
    told: Told = _NOTHING,
    carry: Carry | None = None,
) -> Taken:
    """Put what is worth a note into `folder`, or count it with the one of `known` that says it.

    `known` are the notes of `folder` and of `shared`; `session` is where it was seen, "" for none.
    Doing it again does nothing, as far as files or `told` tell. An approved note is only counted,
    its text stays. `carry` writes it. Raises as `Folder.add`, UsageError where there is no title.
    """
    draft = titled(draft)
    alike = [note for note in known if same(note, draft)]
    before = next((note for note in alike if _came_from(note, draft, session)), None)
    if before is not None:
        return Taken(before, None)
    current = [note for note in alike if note.status != "archived"]
    for note in sorted(current, key=lambda note: (note.is_shared and not folder.shared, note.id)):
        home = shared if note.is_shared and not folder.shared else folder
        if home is None:
            continue
        if draft.source is not None and (note.id, draft.source) in told:
            return Taken(note, None)
        try:
            return _seen(
                note, draft, home, session=session, now=now, language=language, carry=carry
            )
        except NoSuchNote:
            continue  # somebody took it away meanwhile
        except NoteFault:
            return Taken(note, None)  # somebody is writing it; whoever reads it next tells so
    if draft.by == RULES and sections.of(draft.kind) and not draft.body:
        draft = draft._replace(body=draft.title)  # else the file held headings alone
    put = None if carry is None else lambda changes: carry(folder, "added", changes)
    note = folder.add(draft, session=session, now=now, language=language, carry=put)
    return Taken(note, "added")


def titled(draft: Draft) -> Draft:
    """The draft with a title in one line: its own, else the first line of its text.

    Raises UsageError where there is neither.
    """
    first = next((line for line in draft.body.splitlines() if line.strip(" #")), "")
    title = plain.line(draft.title) or plain.line(first.strip(" #"))
    if not title:
        raise UsageError("a note needs a title", "say in a few words what is to be remembered")
    return draft._replace(title=plain.short(title))


def same(note: Note, draft: Draft) -> bool:
    """Whether a note says what a draft says: of its kind, by its title."""
    return note.kind == draft.kind and likeness.same(note.title, draft.title)


def _came_from(note: Note, draft: Draft, session: str) -> bool:
    """Whether the note was made of the same message: of this session, as ids count in each."""
    if draft.source is None or note.source != draft.source:
        return False
    return not note.is_shared or note.related_sessions[:1] == [session]


def _seen(
    note: Note,
    draft: Draft,
    home: Folder,
    *,
    session: str,
    now: datetime,
    language: str,
    carry: Carry | None,
) -> Taken:
    """Count the note as seen again, with what the draft says beyond it."""
    at = clock.timestamp(now)
    grown = False

    def more(current: Note, text: str) -> str:
        nonlocal grown
        sessions = current.related_sessions
        if session and session not in sessions:
            sessions = [*sessions, session]
        fields = {"occurrences": current.occurrences + 1, "related_sessions": sessions}
        if current.status == "approved":
            return reading.changed(text, **fields)
        grown = draft.by != RULES and _is_new(draft.body, text)
        if grown:
            heading = sections.added(at[:10], plain.line(draft.by), language)
            text = reading.appended(text, heading, plain.valid(draft.body))
        return reading.changed(text, **fields, updated=at)

    def put(changes: Sequence[Change]) -> None:
        assert carry is not None
        carry(home, "edited" if grown else "seen", changes)

    result = home.edit(note.id, more, put if carry is not None else None)
    return Taken(result, "edited" if grown else "seen")


def _is_new(more: str, text: str) -> bool:
    """Whether a text says something that does not stand in another, line ends apart."""
    return " ".join(more.split()) not in " ".join(text.split())
