"""Act on notes for people, and keep the trail of these acts.

A session's notes are changed under the session's lock, and each act is an event of its transcript.
The shared ones have a trail of the same shape, `sessions/knowledge/history.jsonl`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters.base import SessionConfig
from arena_cli.engine import after_turn
from arena_cli.errors import DiskRefused, Fault, SessionBusy, UsageError
from arena_cli.notes import lifecycle, markdown, paraphrases, review, staging, statements
from arena_cli.notes.index import Index
from arena_cli.notes.lifecycle import Step
from arena_cli.notes.model import CATEGORIES, Draft, Note
from arena_cli.notes.review import NoteFinding
from arena_cli.notes.staging import NoteChange
from arena_cli.notes.store import Folder, Make
from arena_cli.notes.vectors import AlikeNotes
from arena_cli.protocol import Message, parse_seq
from arena_cli.session import outgoing, shelves, store
from arena_cli.session.shelves import Shelf, VectorSource
from arena_cli.transcript import log, queries, reader
from arena_cli.transcript.events import (
    Event,
    MessageEvent,
    NoteAct,
    NoteEvent,
    ReplyFinished,
    read_type,
)
from arena_cli.transcript.log import Journal, Log
from arena_cli.transcript.state import Fold
from arena_cli.util import files
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_line
from arena_cli.workspace.models import Team

_ACTS: dict[Step, NoteAct] = {
    "submit": "submitted",
    "approve": "approved",
    "reject": "rejected",
    "archive": "archived",
    "restore": "restored",
}


def choose_author(team: Team | None, author: str | None) -> str:
    """Return the author of an act: the given name, else the team's first human, else the user."""
    if author is not None:
        if not author.strip() or not author.isprintable():
            raise UsageError("--by: not a valid name", "Give the name in one line.")
        return author.strip()
    humans = team.humans if team else ()
    return humans[0].id if humans else outgoing.USER.id


class Keeper:
    """The notes of one shelf, locked for changes by `by` until `close`.

    `on_wait` is called with the name of a resource that another process holds, `on_problem` for
    each secondary problem. Raises UsageError, SessionBusy or DiskRefused.
    """

    def __init__(
        self,
        config: SessionConfig,
        shelf: Shelf,
        by: str,
        *,
        redactor: Redactor,
        on_wait: Callable[[str], None] = lambda _: None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.shelf = shelf
        self.told: list[NoteEvent] = []
        self._approved: dict[str, str] = {}
        self._place = config
        self._by = by
        self._redactor = redactor
        self._on_problem = on_problem
        shelf.folder.check()
        sync = config.durability == "fsync"
        shelf.folder.sync = sync
        home = (
            shelf.stored.folder
            if shelf.stored
            else _make_folder(shelf.folder.path, config.workspace, sync=sync)
        )
        with contextlib.ExitStack() as held:
            name = shelf.name if shelf.stored else home.relative_to(config.workspace).as_posix()
            held.enter_context(
                store.hold(home, name, wait_s=config.wait_s, on_wait=lambda: on_wait(name))
            )
            seq = reader.last_seq(shelf.trail)
            repair = log.repair(shelf.trail, seq + 1)
            seq = reader.last_seq(shelf.trail)
            self._log = Log(shelf.trail, clock=config.clock, durability=config.durability, seq=seq)
            held.callback(self._log.close)
            journal = Journal(self._log, Fold(), self._hear)
            self._append = partial(journal.write_all, NoteEvent)
            journal.write_repair(repair)
            after_turn.finish_acts(
                self._log, self._append, _folders(config.workspace, shelf, sync=sync)
            )
            self.told.clear()
            self._approved = dict(shelves.read_shelf_approvals(shelf))
            self._desk = after_turn.NoteWriter(self._log, self._append, sync=sync, is_strict=True)
            self._held = held.pop_all()

    def add(self, draft: Draft, *, is_new: bool = True) -> Note:
        """Add a note, or count an equal one as seen again. Raises UsageError.

        It is also raised if there already is a note of that message, unless `is_new` is False.
        """
        draft = lifecycle.titled(self._redacted(draft))
        folder, stored = self.shelf.folder, self.shelf.stored
        session = stored.name if stored else ""
        time = self._place.clock.now()
        language = self._place.language
        if draft.source is not None:
            self._check_source(draft.source)
        if draft.supersedes:
            lifecycle.check(shelves.find_note(self.shelf, draft.supersedes), "archive")
            added = self._carrying(lambda note: [_Act("added", note, message=draft.source)])
            return folder.add(draft, session=session, now=time, language=language, carry=added)
        shared = shelves.open_shelf(self._place.workspace, None) if stored else None
        notes = self._alike(draft, [self.shelf, *([shared] if shared else [])])
        if is_new:
            _check_unapproved(draft, notes)
        trail = self._read_origins() if draft.source is not None else set()

        def carry(home: Folder, act: NoteAct, changes: Sequence[NoteChange]) -> None:
            self._carry(home, changes, [_Act(act, changes[0].note, message=draft.source)])

        result = lifecycle.take_note(
            draft,
            notes,
            folder,
            session=session,
            now=time,
            shared=shared.folder if shared else None,
            language=language,
            noted=trail,
            carry=carry,
        )
        if result.act is None and is_new:
            raise UsageError(
                f"{escape_line(result.note.id)} has the same text and source message already",
                f"Add to it by hand: {escape_line(result.note.file)}.",
            )
        if result.act is None and (result.note.id, draft.source) not in trail:
            # A file that is there without its event is by somebody's hand.
            self._append([self._fields(_Act("added", result.note))], lambda: None)
        return result.note

    def conclude(self, finding: NoteFinding) -> Note:
        """Add the conclusion of a solved blocker, or complete the one that is there.

        A message may solve two blockers, and an act that was interrupted is done again. The text of
        an approved conclusion does not change.
        """
        folder, language = self.shelf.folder, self._place.language
        text = markdown.body_of(folder.whole(finding.note.id))
        draft = self._redacted(review.conclude(finding, text, language=language))
        note = self.add(draft, is_new=False)
        if note.status == "approved" or note.approval:
            return note
        if lifecycle.is_complete(note, folder.whole(note.id), draft):
            return note

        make = lifecycle.completing(draft, now=self._place.clock.now(), language=language)
        carry = self._carrying(lambda changed: [_Act("edited", changed, message=draft.source)])
        return folder.edit(note.id, make, carry)

    def step(self, id: str, step: Step, reason: str = "") -> Note:
        """Take a step with a note. Raises UsageError if it is not legal; then nothing is changed.

        Approving a draft also submits it, and archives the note that it supersedes. Either all of
        this is done, or nothing.
        """
        time = self._place.clock.now()
        current = self._judge(self.shelf.folder.read(id))
        make = lifecycle.stepping(step, by=self._by, now=time, judge=self._judge)
        edits: list[tuple[str, Make]] = [(id, make)]
        old = current.supersedes if step == "approve" else ""
        if old not in ("", id) and self._can_be_superseded(old):
            # It is put away before the other one takes its place.
            edits.insert(
                0,
                (old, lifecycle.stepping("archive", now=time, judge=self._judge, superseded_by=id)),
            )

        def list_acts(*notes: Note) -> list[_Act]:
            acts = self._steps(current, notes[-1], step, reason)
            return acts + [_Act("superseded", note, reason=id) for note in notes[:-1]]

        return self.shelf.folder.edit_all(edits, self._carrying(list_acts))[-1]

    def share(self, note: Note, text: str) -> Note:
        """Add a copy of an approved note of a session, with that text, to these shared ones.

        Its session comes first among the copy's sessions, since the note's source belongs to it. If
        an equal note exists, it is counted instead.
        """
        time = self._place.clock.now()
        copied = copy_note(note, text)
        draft = self._redacted(copied)._replace(by=copied.by)
        alike = self._alike(draft, [self.shelf])
        current = next((copy for copy in alike if copy.status != "archived"), None)
        if current is not None:
            return self._share_again(current, note)
        approve = lifecycle.stepping("approve", by=self._by, now=time)

        def approved(copy: Note, new: str) -> str:
            seen = {"occurrences": note.occurrences, "related_sessions": _sessions(note)}
            return markdown.changed(approve(copy, new), **seen)

        def list_acts(new: Note) -> list[_Act]:
            draft = new.model_copy(update={"status": "draft"})
            added = _Act("added", draft, reason=note.file)
            return [added, *self._steps(draft, new, "approve")]

        return self.shelf.folder.add(
            draft,
            session=note.session,
            now=time,
            language=self._place.language,
            carry=self._carrying(list_acts),
            make=approved,
        )

    def merge(self, old: str, into: str, reason: str = "") -> Note:
        """Archive a note that repeats another one, and count it with that one.

        Raises UsageError if it cannot be archived; then nothing is changed.
        """
        folder = self.shelf.folder
        gone = folder.read(old)
        edits = [
            (
                old,
                lifecycle.stepping(
                    "archive", now=self._place.clock.now(), judge=self._judge, superseded_by=into
                ),
            ),
            (into, _counting(gone.occurrences, gone.related_sessions)),
        ]

        def list_acts(away: Note, remaining: Note) -> list[_Act]:
            superseded = _Act("superseded", away, reason=reason)
            return [superseded, _Act("seen", remaining, reason=away.id)]

        return folder.edit_all(edits, self._carrying(list_acts))[-1]

    def close(self) -> None:
        """Release the notes."""
        self._held.close()

    def _share_again(self, shared: Note, note: Note) -> Note:
        """Count a note that was shared before, once for each session."""
        if not set(_sessions(note)) <= set(shared.related_sessions):
            carry = self._carrying(lambda seen: [_Act("seen", seen, reason=note.file)])
            count = _counting(note.occurrences, _sessions(note))
            shared = self._judge(self.shelf.folder.edit(shared.id, count, carry))
        if shared.status in ("draft", "pending_user"):
            return self.step(shared.id, "approve")
        return shared

    def _alike(self, draft: Draft, among: Sequence[Shelf]) -> list[Note]:
        """Return the notes on these shelves that say the same as a draft."""
        config = self._place
        folders = [shelf.folder for shelf in among]
        opened = shelves.open_index(folders, on_progress=config.on_progress)
        with contextlib.closing(opened) as index:
            notes = index.alike(draft.kind, draft.title)
        return [note for note in notes if lifecycle.says_the_same(note, draft)]

    def _read_origins(self) -> set[tuple[str, str]]:
        """Return the notes in the trail, each with the message that it was taken from."""
        return {(event.note, event.message or "") for event in shelves.history(self.shelf)}

    def _judge(self, note: Note) -> Note:
        """Return a note with the status that counts."""
        return staging.judge(note, self._approved)

    def _can_be_superseded(self, old: str) -> bool:
        try:
            lifecycle.check(self._judge(self.shelf.folder.read(old)), "archive")
        except (UsageError, markdown.NoteFault) as error:
            self._on_problem(f"{escape_line(old)} is not superseded: {error.what}")
            return False
        return True

    def _steps(self, previous: Note, changed: Note, step: Step, reason: str = "") -> list[_Act]:
        """Return the acts that the trail records for a step from one state of a note to another."""
        acts = []
        if previous.approval == staging.CHANGED:
            acts.append(_Act("changed", previous, by=""))
        if step == "approve" and previous.status == "draft":
            submitted = changed.model_copy(update={"status": "pending_user"})
            acts.append(_Act("submitted", submitted))
        acts.append(_Act(_ACTS[step], changed, reason=reason))
        return acts

    def _carrying(
        self, list_acts: Callable[..., Sequence[_Act]]
    ) -> Callable[[Sequence[NoteChange]], None]:
        """Return a function that carries changes out; `list_acts` returns the acts on the notes."""

        def carry(changes: Sequence[NoteChange]) -> None:
            acts = list_acts(*(change.note for change in changes))
            self._carry(self.shelf.folder, changes, acts)

        return carry

    def _carry(self, folder: Folder, changes: Sequence[NoteChange], acts: Sequence[_Act]) -> None:
        """Write the acts to the trail and the files, or neither of them."""
        folder.sync = self.shelf.folder.sync
        self._desk.carry_out(folder, changes, [self._fields(act) for act in acts])

    def _fields(self, act: _Act) -> dict[str, Any]:
        note = act.note
        fields = {
            "note": note.id,
            "act": act.act,
            "by": self._by if act.by is None else act.by,
            "kind": note.kind,
            "title": note.title,
            "status": note.status,
            "message": act.message,
            "reason": self._redactor.text(act.reason),
        }
        if act.act == "approved":
            fields["sha256"] = staging.sha256(note)
        return fields

    def _hear(self, event: Event) -> None:
        if isinstance(event, NoteEvent):
            staging.after(self._approved, event.note, event.act, event.sha256)
            self.told.append(event)

    def _redacted(self, draft: Draft) -> Draft:
        text = self._redactor.text
        tags, aliases = tuple(map(text, draft.tags)), tuple(map(text, draft.aliases))
        return draft._replace(
            title=text(draft.title),
            body=text(draft.body),
            owner=text(draft.owner),
            tags=tags,
            aliases=aliases,
            by=self._by,
        )

    def _check_source(self, source: str) -> None:
        stored = self.shelf.stored
        if stored is None:
            raise UsageError(
                "--source: shared notes come from no message of one session",
                "Add it to the session, and share it: `arena knowledge approve --share NOTE`.",
            )
        if queries.message(stored.transcript, source) is None:
            raise UsageError(
                f"--source: there is no message {escape_line(source)} in session {stored.name}",
                f"`arena show {stored.name} --json` has the ids of messages.",
            )


class _Act(NamedTuple):
    """An entry of the trail; if `by` is None, it is the keeper's author."""

    act: NoteAct
    note: Note
    message: str | None = None
    reason: str = ""
    by: str | None = None


def _counting(times: int, sessions: Iterable[str]) -> Make:
    """Return a function that adds `times` occurrences in these sessions to a note."""

    def counted(note: Note, text: str) -> str:
        seen_in = list(dict.fromkeys([*note.related_sessions, *sessions]))
        count = note.occurrences + times
        return markdown.changed(text, occurrences=count, related_sessions=seen_in)

    return counted


def finish(config: SessionConfig, shelf: Shelf) -> None:
    """Finish the changes of a process that has ended, if no other process holds the notes.

    If the folder refuses it, the notes are shown as they are.
    """
    if not after_turn.is_act_unfinished(shelf.trail):
        return
    with contextlib.suppress(SessionBusy, UsageError, DiskRefused):
        config = dataclasses.replace(config, wait_s=0)
        Keeper(config, shelf, "", redactor=Redactor(set(), ())).close()


def _folders(workspace: Path, shelf: Shelf, *, sync: bool) -> list[Folder]:
    """Return the folders whose notes the trail of a shelf may be about."""
    if shelf.stored is None:
        return [shelf.folder]
    shared = shelves.open_shelf(workspace, None).folder
    shared.sync = sync
    return [shelf.folder, shared]


def _sessions(note: Note) -> list[str]:
    """Return the sessions in which a session's note was seen, the session itself first."""
    return list(dict.fromkeys([note.session, *note.related_sessions]))


def copy_note(note: Note, text: str) -> Draft:
    """Return a draft for sharing a note; `text` is that of its file.

    Raises UsageError if notes of its kind are not shared.
    """
    if note.kind not in CATEGORIES:
        raise UsageError(
            f"{escape_line(note.id)} is a {note.kind}, which cannot be shared",
            f"Kinds that can be shared: {', '.join(CATEGORIES)}.",
        )
    return Draft(
        note.kind,
        note.title,
        markdown.body_of(text),
        source=note.source,
        importance=note.importance,
        tags=tuple(note.tags),
        aliases=tuple(note.aliases),
        owner=note.owner,
    )


def check(shelf: Shelf, id: str, step: Step, *, done: Container[str] = ()) -> None:
    """Check that the step is legal for the note. Raises UsageError if not.

    A note whose status is in `done` needs no step.
    """
    note = shelves.find_note(shelf, id)
    if note.status not in done:
        lifecycle.check(note, step)


def _check_unapproved(draft: Draft, notes: Sequence[Note]) -> None:
    """Check that a person's text would not change an approved note, or raise UsageError."""
    for note in notes:
        is_fixed = note.status == "approved" or note.approval
        if draft.body.strip() and is_fixed and lifecycle.says_the_same(note, draft):
            raise UsageError(
                f"{escape_line(note.id)} has the same text and is approved: its text "
                "does not change"
                if not note.approval
                else f"{escape_line(note.id)} has the same text, and {note.approval}",
                f"Replace it: `arena knowledge add --supersedes {note.id} TITLE`.",
            )


def _make_folder(folder: Path, workspace: Path, *, sync: bool) -> Path:
    try:
        folders = files.make_own_folder(folder, below=workspace)
        if sync:
            files.sync_folders(folders)
    except OSError as error:
        raise DiskRefused(
            f"{folder}: cannot make a folder here: {error.strerror or error}",
            files.suggest_fix(error, "Fix the permissions, or choose another --workspace."),
        ) from error
    return folder


class Inspected(NamedTuple):
    """The findings in a set of notes, and the files that could not be read.

    `lack` is why some notes were compared by words only, though an embedding is configured.
    """

    findings: list[NoteFinding]
    notes: int
    problems: list[Fault]
    lack: str = ""


def inspect(
    shelf: Shelf,
    time: datetime,
    *,
    language: str = "en",
    is_full: bool = False,
    on_progress: Callable[[int, int], None] = lambda _, __: None,
    vectors: VectorSource = shelves.NO_VECTORS,
) -> Inspected:
    """Search the notes and the messages of a session, or the shared notes, for findings.

    With `is_full`, the content of each file is compared with the index first.
    """
    opened = shelves.open_index([shelf.folder], vectors, on_progress=on_progress)
    with contextlib.closing(opened) as index:
        problems = index.sync(is_full=is_full)
        notes = index.notes_in(shelf.folder)
        living = [note for note in notes if note.is_living]
        alike, lack = _find_alike(index, living)
    seen = {
        event.note: parse_seq(event.message)
        for event in shelves.history(shelf, kind="blocker")
        if event.message and event.act in ("added", "seen", "edited")
    }
    findings = review.inspect(
        notes, _messages(shelf), time, seen=seen, alike=alike, language=language
    )
    return Inspected(findings, len(notes), problems, lack)


def _find_alike(index: Index, notes: Sequence[Note]) -> tuple[list[AlikeNotes], str]:
    """Return the pairs of notes that are near by vectors, and why some could not be compared.

    Titles are compared within a language, and subjects between two.
    """
    titles = [note.title for note in notes]
    subjects = [statements.find_subject(title) for title in titles]
    languages = [statements.is_unspaced(title) for title in titles]
    alike = index.alike_in_meaning(notes, titles, paraphrases.NEAR, groups=languages, within=True)
    lack = index.lack
    alike += index.alike_in_meaning(notes, subjects, paraphrases.LEAST_ALIKE, groups=languages)
    return alike, lack or index.lack


def apply_findings(findings: Sequence[NoteFinding], keeper: Keeper) -> list[NoteFinding]:
    """Apply the proposed changes, each an event with its reason; return the findings applied.

    Contradictions, and what was found by meaning, are left to people. Raises as the keeper does;
    changes made until then remain.
    """
    applied = [finding for finding in findings if finding.can_be_applied]
    for finding in applied:
        if finding.what == "solved":
            keeper.conclude(finding)
        if finding.other is not None:
            keeper.merge(finding.note.id, finding.other.id, finding.reason)
        else:
            keeper.step(finding.note.id, "archive", finding.reason)
    return applied


_OF_MESSAGES = frozenset({"message", "reply_finished"})


def _messages(shelf: Shelf) -> Iterator[Message]:
    """Yield the messages of people and agents in the session, in order of the transcript."""
    if shelf.stored is None:
        return
    revisions = reader.read_revisions(shelf.stored.transcript)
    with files.open_binary(shelf.stored.transcript) as file:
        for raw in file:
            kind = read_type(raw)
            events = reader.parse_events(raw) if kind is None or kind in _OF_MESSAGES else ()
            for event in events:
                message = (
                    event.message if isinstance(event, (MessageEvent, ReplyFinished)) else None
                )
                if message is None or revisions.is_skipped(event.seq):
                    continue
                if message.author_type != "system":
                    yield revisions.correct_message(message)
