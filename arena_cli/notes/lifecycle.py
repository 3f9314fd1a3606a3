"""Change notes: the steps of their status, and how a draft becomes a note.

Each step is taken under the lock of the note's folder, on the current content of its file.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

from arena_cli.errors import UsageError
from arena_cli.notes import markdown, model
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import RULES, Draft, Note, Status
from arena_cli.notes.staging import NoteChange
from arena_cli.notes.store import Folder, Make, NoSuchNote
from arena_cli.util import clock
from arena_cli.util.text import escape_line
from arena_cli.workspace import visible_text

Judge = Callable[[Note], Note]
"""Gives a note as it stands, of a note as its file has it."""

Step = Literal["submit", "approve", "reject", "archive", "restore"]

LEGAL: Mapping[Status, tuple[Step, ...]] = {
    "draft": ("submit", "approve", "archive"),
    "pending_user": ("approve", "reject", "archive"),
    "approved": ("archive",),
    "archived": ("restore",),
}
"""By status: the steps from there. A draft that is approved is submitted by that."""

_STEPS: Mapping[Step, tuple[Status, str]] = {
    "submit": ("pending_user", "submitted"),
    "approve": ("approved", "approved"),
    "reject": ("draft", "rejected"),
    "archive": ("archived", "archived"),
    "restore": ("draft", "restored"),
}
"""By step: the status after it, and its participle for messages."""


def check(note: Note, step: Step) -> None:
    """Raise UsageError if that step is not allowed from the status of the note."""
    if step in LEGAL[note.status]:
        return
    legal = LEGAL[note.status]
    done = f"Allowed now: {', '.join(legal)}."
    if note.status == "approved":
        done += (
            " Approved notes are not changed but superseded: "
            f"`arena knowledge add --supersedes {escape_line(note.id)} TITLE`."
        )
    status = f"{note.status} ({note.approval})" if note.approval else note.status
    raise UsageError(f"{escape_line(note.id)} is {status}: it cannot be {_STEPS[step][1]}", done)


def stepping(
    step: Step,
    *,
    by: str = "",
    now: datetime,
    judge: Judge = lambda note: note,
    superseded_by: str = "",
) -> Make:
    """Return a function that takes a step with a note; `judge` returns the note as it counts.

    `superseded_by` is the note that replaces one that is archived. The function raises UsageError
    if the step is not allowed.
    """
    time = clock.format_timestamp(now)

    def stepped(note: Note, text: str) -> str:
        check(judge(note), step)
        fields: dict[str, Any] = {"status": _STEPS[step][0], "updated": time}
        if superseded_by:
            fields |= {"superseded_by": superseded_by}
        if step == "approve":
            fields |= {"approved_by": by, "approved_at": time}
        elif step == "restore":
            fields |= {"approved_by": "", "approved_at": "", "superseded_by": ""}
        return markdown.changed(text, **fields)

    return stepped


NEAR = 92.0  # of 100, by rapidfuzz
_NEAR_WORD = 70.0  # `use` and `uses`, `colour` and `color`; not `login` and `logout`

# Where no spaces stand between words, each character is one; a sign such as `<` or `€` tells things
# apart, as do the `++` and `#` of a language's name. Other punctuation does not.
_WORD = (
    rf"[{visible_text.UNSPACED}]|(?<!\w)-(?=\d)|"
    rf"[^\W_{visible_text.UNSPACED}]+(?:\+\+|#(?!\w))?|[<>=≤≥≠±$€£¥%+]"
)
_IDLE = frozenset({"a", "an", "the", "的", "了", "吧", "呢", "啊", "呀"})


def match_titles(first: str, second: str) -> bool:
    """Return True if two titles are equal except for case, punctuation and small typos."""
    ours, theirs = words(first), words(second)
    if ours == theirs:
        return True
    if not ours or not theirs:
        return False
    return _near(ours, theirs)


@lru_cache(maxsize=16_384)
def words(title: str) -> tuple[str, ...]:
    """Return the significant words of a title, in order; its signs if it has no words."""
    folded = visible_text.fold_text(title)
    tokens = _word().findall(folded)
    return tuple(word for word in tokens if word not in _IDLE) or tuple(tokens or folded.split())


@cache
def _word() -> re.Pattern[str]:
    # Such a class takes some milliseconds to compile: not before it is needed.
    return re.compile(_WORD)


def _near(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    ours_only = list((Counter(ours) - Counter(theirs)).elements())
    theirs_only = list((Counter(theirs) - Counter(ours)).elements())
    if len(ours_only) != len(theirs_only) or any(
        map(str.isdigit, "".join(ours_only + theirs_only))
    ):
        return False
    if [word for word in ours if word not in ours_only] != [
        word for word in theirs if word not in theirs_only
    ]:
        return False  # what they share, in another order, says another thing
    from rapidfuzz import fuzz  # noqa: PLC0415 - few titles come this far

    if fuzz.ratio(" ".join(ours), " ".join(theirs)) < NEAR:
        return False
    return all(fuzz.ratio(a, b) >= _NEAR_WORD for a, b in zip(ours_only, theirs_only, strict=True))


Told = Container[tuple[str, str]]
"""(note, message): what is in the trail already."""

_NOTHING: frozenset[tuple[str, str]] = frozenset()


Act = Literal["added", "seen", "edited"]
"""What is done to a note: a file made, or it was seen again, or text added to it."""

Carry = Callable[[Folder, Act, Sequence[NoteChange]], None]
"""Writes what is done to a note of that folder, with its event."""


class TakenNote(NamedTuple):
    """A note and the act on it; None if it was already taken from that message."""

    note: Note
    act: Act | None


def take_note(  # noqa: PLR0913 - each of them decides where a note goes
    draft: Draft,
    notes: Iterable[Note],
    folder: Folder,
    *,
    session: str,
    now: datetime,
    shared: Folder | None = None,
    language: str = "en",
    noted: Told = _NOTHING,
    carry: Carry | None = None,
) -> TakenNote:
    """Add a draft as a note to `folder`, or count it as an occurrence of an existing note.

    `notes` are those of `folder` and of `shared`; `session` is where it was seen, "" for none. A
    repetition changes nothing if files or `noted` show that it was done. Of an approved note only
    the count changes, never the text. `carry` writes the changes. Raises as `Folder.add`, and
    UsageError if there is no title.
    """
    draft = titled(draft)
    alike = [note for note in notes if says_the_same(note, draft)]
    existing = next((note for note in alike if _came_from(note, draft, session)), None)
    if existing is not None:
        return TakenNote(existing, None)
    for note, home in _find_homes(alike, folder, shared):
        if draft.source is not None and (note.id, draft.source) in noted:
            return TakenNote(note, None)
        with contextlib.suppress(NoSuchNote):  # somebody took it away meanwhile
            return _seen(
                note, draft, home, session=session, now=now, language=language, carry=carry
            )
    if draft.by == RULES and model.section_names(draft.kind) and not draft.body:
        draft = draft._replace(body=draft.title)  # else the file held headings alone
    put = None if carry is None else lambda changes: carry(folder, "added", changes)
    note = folder.add(draft, session=session, now=now, language=language, carry=put)
    return TakenNote(note, "added")


def _find_homes(
    notes: Iterable[Note], folder: Folder, shared: Folder | None
) -> Iterator[tuple[Note, Folder]]:
    """Yield the current notes with the folder of each; those of `folder` first."""
    current = [note for note in notes if note.status != "archived"]
    for note in sorted(current, key=lambda note: (note.is_shared and not folder.shared, note.id)):
        home = shared if note.is_shared and not folder.shared else folder
        if home is not None:
            yield note, home


def titled(draft: Draft) -> Draft:
    """Return the draft with a title in one line: its own, else the first line of its text.

    Raises UsageError if there is neither.
    """
    first = next((line for line in draft.body.splitlines() if line.strip(" #")), "")
    title = model.line(draft.title) or model.line(first.strip(" #"))
    if not title:
        raise UsageError("a note needs a title", "describe the note in a few words")
    return draft._replace(title=model.short(title))


def says_the_same(note: Note, draft: Draft) -> bool:
    """Return True if a note has the kind of a draft and a matching title."""
    return note.kind == draft.kind and match_titles(note.title, draft.title)


def _came_from(note: Note, draft: Draft, session: str) -> bool:
    """Return True if the note comes from the same message of this session."""
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
) -> TakenNote:
    """Count the note as seen again, and append the new text of the draft."""
    index = clock.format_timestamp(now)
    grown = False

    def more(current: Note, text: str) -> str:
        nonlocal grown
        sessions = current.related_sessions
        if session and session not in sessions:
            sessions = [*sessions, session]
        fields = {"occurrences": current.occurrences + 1, "related_sessions": sessions}
        if aliases := [term for term in draft.aliases if term not in current.aliases]:
            fields["aliases"] = model.aliases([*current.aliases, *aliases])
        if current.status == "approved":
            return markdown.changed(text, **fields)
        grown = draft.by != RULES and _is_new(draft.body, text)
        if grown:
            text = _appended(text, draft, index, language)
        return markdown.changed(text, **fields, updated=index)

    def put(changes: Sequence[NoteChange]) -> None:
        assert carry is not None
        carry(home, "edited" if grown else "seen", changes)

    try:
        result = home.edit(note.id, more, put if carry is not None else None)
    except NoteFault:
        return TakenNote(note, None)  # it is being written, and whoever reads it next reports it
    return TakenNote(result, "edited" if grown else "seen")


def completing(draft: Draft, *, now: datetime, language: str) -> Make:
    """Return what adds a draft's text, tags and owner to a note that lacks them."""
    time = clock.format_timestamp(now)

    def completed(note: Note, text: str) -> str:
        fields: dict[str, Any] = {"updated": time}
        if not set(draft.tags) <= set(note.tags):
            fields["tags"] = list(dict.fromkeys([*note.tags, *draft.tags]))
        if draft.owner and not note.owner:
            fields["owner"] = draft.owner
        if _is_new(draft.body, text):
            text = _appended(text, draft, time, language)
        return markdown.changed(text, **fields)

    return completed


def _appended(text: str, draft: Draft, time: str, language: str) -> str:
    heading = model.added(time[:10], model.line(draft.by), language)
    return markdown.appended(text, heading, model.valid(draft.body))


def is_complete(note: Note, text: str, draft: Draft) -> bool:
    """Return True if a note, with that text of its file, has a draft's text, tags and an owner."""
    has_owner = bool(note.owner or not draft.owner)
    return has_owner and set(draft.tags) <= set(note.tags) and not _is_new(draft.body, text)


def _is_new(addition: str, text: str) -> bool:
    """Return True if a text is not contained in another one; white space is not compared."""
    return " ".join(addition.split()) not in " ".join(text.split())
