"""Recall the memory of a call: the summary, pinned messages, best notes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arena_cli.context.history import (
    NOTHING,
    History,
    Memory,
    Pinned,
    RecalledNote,
    shown_to_others,
)
from arena_cli.context.summary import Replaced, without_message_ids, without_replaced
from arena_cli.errors import Fault
from arena_cli.notes import lifecycle
from arena_cli.notes.model import Draft, Note
from arena_cli.notes.store import Folder
from arena_cli.protocol import ShownMessage, parse_seq
from arena_cli.transcript import queries
from arena_cli.transcript.state import Fold
from arena_cli.workspace.models import MemoryRules

if TYPE_CHECKING:
    from arena_cli.notes.index import Index


# Of what is found, some may stand in what the agent is shown already.
_MOST_BESIDE = 12

# A look at each of 10,000 files would take longer than all else about a call.
_LOOK_EVERY_S = 1.0
_MOST_LOOKS = 1_000


def recall_summary(fold: Fold) -> Memory:
    """Return the last summary as memory; empty memory without one."""
    last = fold.summary
    if last is None:
        return NOTHING
    text = without_message_ids(last.summary)
    return Memory(summary=text, upto=parse_seq(last.upto), summarised=last.messages)


class Recollection:
    """The memory of one session, by its transcript and the current files of its notes.

    `make_index` creates the index of the notes, once there are any. `waits` is True if a search may
    take long, for example if a server computes vectors. `on_problem` receives each note that cannot
    be read, once.
    """

    def __init__(
        self,
        session: str,
        transcript: Path,
        folders: Sequence[Folder],
        rules: MemoryRules,
        make_index: Callable[[], Index],
        *,
        waits: bool = False,
        on_problem: Callable[[Fault], None] = lambda _: None,
    ) -> None:
        self.folders = folders
        self._paths = [os.fspath(folder.path) for folder in folders]
        self.rules = rules
        self.waits = waits
        self._session = session
        self._transcript = transcript
        self._make_index = make_index
        self._on_problem = on_problem
        self._told: set[Fault] = set()
        self._index: Index | None = None
        self._is_followed = False
        self._looked = 0.0
        self._hits: dict[str, Sequence[RecalledNote]] = {}
        self._hits_of: tuple[int, ...] = ()
        self._replaced: tuple[Replaced, ...] | None = None
        self._only: Sequence[str] | None = None
        self._far: dict[str, ShownMessage | None] = {}

    def follow(self, *, is_edited: bool = True) -> None:
        """Read the current files of the notes; later calls use this state.

        Without `is_edited`, files that were edited in place since the last call may be missed.
        With it, they are only missed for a second, or some calls if there are thousands of notes,
        and never among the notes that are shown.
        """
        self._is_followed = True
        self._replaced = None
        if self._index is None and any(map(os.path.isdir, self._paths)):
            self._index = self._make_index()
        if self._index is not None:
            now = time.monotonic()
            is_due = is_edited and now - self._looked >= _LOOK_EVERY_S
            self._looked = now if is_due else self._looked
            for problem in self._index.sync(most_looks=_MOST_LOOKS if is_due else 0):
                self.tell(problem)
            version = self._index.version()
            if is_edited or self._hits_of != version:
                self._hits_of = version
                self._hits.clear()

    def only(self, note_ids: Sequence[str]) -> None:
        """Find only these notes, regardless of what a call is about: those that it was shown."""
        self._only = note_ids

    def find(self, about: Iterable[str]) -> None:
        """Find the notes relevant to these texts now, so that `memory` need not wait for it."""
        index = self.index()
        if index is not None:
            for new in about:
                self._found(index, new)

    def memory(self, new: str, fold: Fold, history: History) -> Memory:
        """Return the memory for a call that is about the text `new`."""
        summary = recall_summary(fold)
        index = self.index()
        if index is None:
            return summary
        corrected = frozenset(fold.summary.corrected if fold.summary else ())
        return summary._replace(
            summary=without_replaced(summary.summary, self.replaced()),
            pinned=self._pinned(index.pinning(self._session), fold, history, corrected),
            notes=[
                recalled
                for recalled in self._found(index, new)
                if not _is_corrected(recalled.note, corrected)
            ],
            most_notes=self.rules.shown,
        )

    def drafts(self, upto: int) -> list[str]:
        """Return the titles of the session's draft notes from messages up to that seq."""
        index = self.index()
        return [
            note.title
            for note in (index.own(self._session) if index else ())
            if note.status == "draft" and 0 < parse_seq(note.source or "") <= upto
        ]

    def replaced(self) -> tuple[Replaced, ...]:
        """Return what archived notes of the session stated, with what replaces it."""
        if self._replaced is None:
            index = self.index()
            archived = index.archived(self._session) if index else []
            titles: dict[str, str] = {}
            if index and any(note.superseded_by for note in archived):
                titles = {note.id: note.title for note in index.notes(self._session)}
            self._replaced = tuple(
                Replaced(note.title, titles.get(note.superseded_by, "")) for note in archived
            )
        return self._replaced

    def index(self) -> Index | None:
        """Return the index of the notes, as last read; None while there are no notes."""
        if not self._is_followed:
            self.follow()
        return self._index

    def find_near(
        self, question: str, texts: Sequence[str], least: float
    ) -> dict[int, float] | None:
        """Return the places of the texts that are so near to a question in meaning; None: unknown.

        The vectors are kept in the index of the notes, also while there are none.
        """
        if not self.waits:
            return None
        if (index := self.index()) is not None:
            return index.find_near(question, texts, least)
        with contextlib.closing(self._make_index()) as opened:
            return opened.find_near(question, texts, least)

    def wrote(self, note: Note) -> None:
        """Update the index by a note that was just written."""
        if self._index is None:
            self.follow()
        else:
            self._index.update(note)
        self._replaced = None

    def alike(self, draft: Draft) -> list[Note]:
        """Return the notes that may have the same content as a draft.

        Raises UsageError if the draft has neither a title nor a text.
        """
        index = self.index()
        if index is None:
            return []
        return index.alike(draft.kind, lifecycle.titled(draft).title)

    def tell(self, problem: Fault) -> None:
        """Report a problem of a note, once."""
        if problem not in self._told:
            self._told.add(problem)
            self._on_problem(problem)

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def _found(self, index: Index, new: str) -> Sequence[RecalledNote]:
        rules = self.rules
        if self._only is not None:
            notes = {note.id: note for note in index.notes(self._session)} if self._only else {}
            return [RecalledNote(notes[note_id]) for note_id in self._only if note_id in notes]
        if not rules.shown or not new:
            return ()
        if new not in self._hits:
            hits = index.search(
                new,
                session=self._session,
                approved_only=rules.approved_only,
                limit=rules.shown + _MOST_BESIDE,
            )
            if index.lack:
                problem = f"notes are found by words alone: {index.lack}"
                self.tell(Fault("arena.yaml", 0, "memory.embedding", problem))
            self._hits[new] = [RecalledNote(hit.note, hit.why) for hit in hits]
        return self._hits[new]

    def _pinned(
        self, notes: Sequence[Note], fold: Fold, history: History, corrected: frozenset[str]
    ) -> Sequence[Pinned]:
        """Return each pinned message from before the open turn once, oldest first."""
        turn_seq = (
            fold.open.turns[-1].started.seq if fold.open and fold.open.turns else fold.seq + 1
        )
        pinned: dict[str, Pinned] = {}
        for note in notes:
            source = note.source or ""
            if source in pinned or not 0 < parse_seq(source) < turn_seq or not note.is_living:
                continue
            if _is_corrected(note, corrected):
                continue
            message = history.message(source) or self._message(source, fold)
            if message is not None:
                pinned[source] = Pinned(message, note)
        return sorted(pinned.values(), key=lambda one: one.message.seq)

    def _message(self, message_id: str, fold: Fold) -> ShownMessage | None:
        """Return a forgotten message from the transcript; None if agents are shown none."""
        if fold.revisions and fold.revisions.is_skipped(parse_seq(message_id)):
            return None
        if message_id not in self._far:
            message = queries.message(self._transcript, message_id)
            self._far[message_id] = shown_to_others(message) if message else None
        message = self._far[message_id]
        return fold.revisions.correct_message(message) if message and fold.revisions else message


def _is_corrected(note: Note, corrected: frozenset[str]) -> bool:
    """Return True if a note is a draft with a title that a later message corrects."""
    return note.status == "draft" and note.title in corrected and not note.is_shared
