"""What people do to notes, and the trail of it.

A session's notes are acted on under the session's lock, and each act is an event of its transcript.
The shared ones have a trail of the same shape, `sessions/knowledge/history.jsonl`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path

from arena_cli.ground import ownfiles
from arena_cli.ground.errors import DiskRefused, UsageError
from arena_cli.ground.redact import Redactor
from arena_cli.ground.text import shown_line
from arena_cli.memory import lifecycle, reading, taking
from arena_cli.memory.lifecycle import Step
from arena_cli.memory.note import CATEGORIES, Draft, Note
from arena_cli.session import lock, outgoing, shelves
from arena_cli.session.session import Place
from arena_cli.session.shelves import Shelf
from arena_cli.team.model import Team
from arena_cli.transcript import log, passage, read
from arena_cli.transcript.events import NoteAct, NoteEvent
from arena_cli.transcript.log import Log

_ACTS: dict[Step, NoteAct] = {
    "submit": "submitted",
    "approve": "approved",
    "reject": "rejected",
    "archive": "archived",
}


def who(team: Team | None, named: str | None) -> str:
    """Who does it: by that name, else the first human of the team, else the user."""
    if named is not None:
        if not named.strip() or not named.isprintable():
            raise UsageError("--by: this is no name", "Say who does it, in one line.")
        return named.strip()
    humans = team.humans if team else ()
    return humans[0].id if humans else outgoing.USER.id


class Keeper:
    """The notes of one shelf, held for acting on them as `by`, until `close`.

    `on_wait` is told the name of what another process holds; `on_problem` what could not be done
    beside. Raises UsageError, SessionBusy or DiskRefused.
    """

    def __init__(
        self,
        place: Place,
        shelf: Shelf,
        by: str,
        *,
        redactor: Redactor,
        on_wait: Callable[[str], None] = lambda _: None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.shelf = shelf
        self.told: list[NoteEvent] = []
        self._place = place
        self._by = by
        self._redactor = redactor
        self._on_problem = on_problem
        shelf.folder.check()
        home = shelf.stored.folder if shelf.stored else _made(shelf.folder.path, place.workspace)
        with contextlib.ExitStack() as held:
            name = shelf.name if shelf.stored else home.relative_to(place.workspace).as_posix()
            own = lock.acquire(home, name, wait_s=place.wait_s, on_wait=lambda: on_wait(name))
            held.callback(own.release)
            seq = read.last_seq(shelf.trail)
            repair = log.repair(shelf.trail, seq + 1)
            seq = read.last_seq(shelf.trail)
            self._log = Log(shelf.trail, clock=place.clock, durability=place.durability, seq=seq)
            held.callback(self._log.close)
            if repair:
                self._log.append(log.recovered(repair, self._log.stamp()))
            self._held = held.pop_all()

    def add(self, draft: Draft, *, is_new: bool = True) -> Note:
        """A new note, or one that says the same, seen again. Raises UsageError too.

        So it does where there is one of that message already, unless it need not be new.
        """
        draft = taking.titled(self._redacted(draft))
        folder, stored = self.shelf.folder, self.shelf.stored
        session = stored.name if stored else ""
        now = self._place.clock.now()
        language = self._place.language
        if draft.source is not None:
            self._check_source(draft.source)
        if draft.supersedes:
            lifecycle.check(folder.read(draft.supersedes), "archive")
            note = folder.add(draft, session=session, now=now, language=language)
            return self._tell(note, "added", message=draft.source)
        known = shelves.notes(self.shelf)[0]
        shared = shelves.of(self._place.workspace, None) if stored else None
        if shared is not None:
            known += shelves.notes(shared)[0]
        _check_unapproved(draft, known)
        told = {(event.note, event.message or "") for event in shelves.history(self.shelf)}
        taken = taking.take(
            draft,
            known,
            folder,
            session=session,
            now=now,
            shared=shared.folder if shared else None,
            language=language,
            told=told,
        )
        if taken.act is None and is_new:
            raise UsageError(
                f"{shown_line(taken.note.id)} says the same, and comes from that message already",
                f"Add to it by hand: {shown_line(taken.note.file)}.",
            )
        if taken.act is None and (taken.note.id, draft.source) in told:
            return taken.note
        # A file that is there without its event was made before a crash.
        return self._tell(taken.note, taken.act or "added", message=draft.source)

    def step(self, id: str, step: Step, reason: str = "") -> Note:
        """Take a step with a note. Raises UsageError where it is not legal; nothing is done then.

        A draft that is approved is submitted first; a note that is superseded by the approved one
        is archived.
        """
        folder = self.shelf.folder
        if step == "approve" and folder.read(id).status == "draft":
            self.step(id, "submit")
        note = lifecycle.take(folder, id, step, by=self._by, now=self._place.clock.now())
        self._tell(note, _ACTS[step], reason=reason)
        if step == "approve" and note.supersedes not in ("", note.id):
            self._supersede(note.supersedes, note)
        return note

    def share(self, note: Note, text: str) -> Note:
        """Put a copy of an approved note of a session, of that text, among these shared ones.

        Its session comes first in what the copy says of sessions: the note's source is of that one.
        A note that says the same is counted instead.
        """
        now = self._place.clock.now()
        draft = copy_of(note, text)
        same = [one for one in shelves.notes(self.shelf)[0] if taking.same(one, draft)]
        current = next((one for one in same if one.status != "archived"), None)
        if current is not None:
            return self._share_again(current, note)
        folder = self.shelf.folder
        made = folder.add(draft, session=note.session, now=now, language=self._place.language)
        self._tell(made, "added", reason=note.file)
        folder.change(made.id, occurrences=note.occurrences, related_sessions=_sessions(note))
        return self.step(made.id, "approve")

    def merge(self, old: str, into: str, reason: str = "") -> Note:
        """Archive a note that says what another one says, and count it with that one.

        Raises UsageError where it cannot be archived; nothing is done then.
        """
        folder = self.shelf.folder
        now = self._place.clock.now()
        kept = folder.read(into)
        gone = lifecycle.supersede(folder, old, into, now=now)
        self._tell(gone, "superseded", reason=reason)
        counted = self._count(kept.id, gone.occurrences, gone.related_sessions)
        return self._tell(counted, "seen", reason=gone.id)

    def close(self) -> None:
        """Let go of them."""
        self._held.close()

    def _share_again(self, shared: Note, note: Note) -> Note:
        """Count what was shared before, once for each session."""
        if not set(_sessions(note)) <= set(shared.related_sessions):
            shared = self._count(shared.id, note.occurrences, _sessions(note))
            self._tell(shared, "seen", reason=note.file)
        if shared.status in ("draft", "pending_user"):
            return self.step(shared.id, "approve")
        return shared

    def _count(self, id: str, times: int, sessions: Iterable[str]) -> Note:
        """Count a note as seen so many times more, in these sessions."""

        def counted(note: Note, text: str) -> str:
            seen_in = list(dict.fromkeys([*note.related_sessions, *sessions]))
            count = note.occurrences + times
            return reading.changed(text, occurrences=count, related_sessions=seen_in)

        return self.shelf.folder.edit(id, counted)

    def _supersede(self, old: str, new: Note) -> None:
        try:
            note = lifecycle.supersede(self.shelf.folder, old, new.id, now=self._place.clock.now())
        except UsageError as error:
            self._on_problem(f"{shown_line(old)} is not superseded: {error.what}")
            return
        self._tell(note, "superseded", reason=new.id)

    def _redacted(self, draft: Draft) -> Draft:
        text = self._redactor.text
        tags = tuple(map(text, draft.tags))
        return draft._replace(
            title=text(draft.title),
            body=text(draft.body),
            owner=text(draft.owner),
            tags=tags,
            by=self._by,
        )

    def _check_source(self, source: str) -> None:
        stored = self.shelf.stored
        if stored is None:
            raise UsageError(
                "--source: shared notes come from no message of one session",
                "Add it to the session, and share it: `arena knowledge approve --share NOTE`.",
            )
        if passage.message(stored.transcript, source) is None:
            raise UsageError(
                f"--source: there is no message {shown_line(source)} in session {stored.name}",
                f"`arena show {stored.name} --json` has the ids of messages.",
            )

    def _tell(
        self, note: Note, act: NoteAct, *, message: str | None = None, reason: str = ""
    ) -> Note:
        stamp = self._log.stamp()
        event = NoteEvent(
            seq=stamp.seq,
            ts=stamp.ts,
            note=note.id,
            act=act,
            by=self._by,
            kind=note.kind,
            title=note.title,
            status=note.status,
            message=message,
            reason=self._redactor.text(reason),
        )
        try:
            self._log.append(event)
        except DiskRefused as error:
            what = f"{error.what}; {shown_line(note.file)} is {act} all the same"
            raise DiskRefused(what, "Free space or rights there.") from error
        self.told.append(event)
        return note


def _sessions(note: Note) -> list[str]:
    """Where a session's note was seen, the session itself first: its source is of that one."""
    return list(dict.fromkeys([note.session, *note.related_sessions]))


def copy_of(note: Note, text: str) -> Draft:
    """A note as what is worth another, shared; `text` is that of its file.

    Raises UsageError where notes of its kind are not shared.
    """
    if note.kind not in CATEGORIES:
        raise UsageError(
            f"{shown_line(note.id)} is a {note.kind}, and those are not shared",
            f"Shared are: {', '.join(CATEGORIES)}.",
        )
    return Draft(
        note.kind,
        note.title,
        reading.body_of(text),
        source=note.source,
        importance=note.importance,
        tags=tuple(note.tags),
        owner=note.owner,
    )


def check(shelf: Shelf, id: str, step: Step, *, done: Container[str] = ()) -> None:
    """Raises UsageError where that step is not legal for the note.

    One whose status is one of `done` needs it no more.
    """
    note = shelf.folder.read(id)
    if note.status not in done:
        lifecycle.check(note, step)


def _check_unapproved(draft: Draft, known: Sequence[Note]) -> None:
    """Raises UsageError where a person's text would go to a note whose text stays as it is."""
    for note in known:
        if draft.body.strip() and note.status == "approved" and taking.same(note, draft):
            raise UsageError(
                f"{shown_line(note.id)} says the same and is approved: its text stays as it is",
                f"Put another in its place: `arena knowledge add --supersedes {note.id} TITLE`.",
            )


def _made(folder: Path, workspace: Path) -> Path:
    try:
        ownfiles.make_folder(folder, below=workspace)
    except OSError as error:
        raise DiskRefused(
            f"{folder}: cannot make a folder here: {error.strerror or error}",
            ownfiles.hint(error, "Mend the rights, or choose another --workspace."),
        ) from error
    return folder
