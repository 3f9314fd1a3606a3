"""What the commands of `knowledge` share: which notes are meant, how they are shown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from arena_cli.cli import common
from arena_cli.ground import nearest
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown, shown_line

if TYPE_CHECKING:
    from arena_cli.memory.note import Kind, Note, Status
    from arena_cli.session.findnote import Named
    from arena_cli.session.knowledge import Keeper
    from arena_cli.session.shelves import Shelf
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import NoteEvent


def shelves(
    context: typer.Context, session: str | None, *, last: bool, shared: bool
) -> list[Shelf]:
    """Where notes are looked for: one place if it is said, else the last session's and shared.

    What a crash left half done there is finished.
    """
    found = _shelves(context, session, last=last, shared=shared)
    finish(context, found)
    return found


def finish(context: typer.Context, among: Sequence[Shelf]) -> None:
    """Finish what a crash left half done in these places."""
    for shelf in among:
        if shelf.is_unfinished:
            from arena_cli.session import knowledge

            knowledge.finish(common.place_of(common.workspace_of(context), wait_s=0), shelf)


def _shelves(
    context: typer.Context, session: str | None, *, last: bool, shared: bool
) -> list[Shelf]:
    from arena_cli.session import shelves, store

    given = [session is not None, last, shared]
    if sum(given) > 1:
        raise UsageError("--session, --continue and --shared are three places", "Give one of them.")
    root = common.root_of(context)
    if shared:
        return [shelves.of(root, None)]
    if session is not None:
        return [shelves.of(root, store.find(root, session))]
    if last:
        return [shelves.of(root, store.last(root))]
    found: list[Stored] = []
    with contextlib.suppress(UsageError):
        found.append(store.last(root))
    return [*(shelves.of(root, stored) for stored in found), shelves.of(root, None)]


def find(context: typer.Context, name: str, among: Sequence[Shelf]) -> Named:
    """The note of that name, or the one at that path. Raises UsageError."""
    from arena_cli.session import findnote

    return findnote.find(name, among, common.root_of(context), common.here())


def find_told(context: typer.Context, name: str, among: Sequence[Shelf]) -> Named:
    """The same, and notes whose files are gone but of which the trail tells."""
    from arena_cli.session import findnote
    from arena_cli.session import shelves as places

    try:
        return find(context, name, among)
    except UsageError:
        for shelf in among:
            if any(event.note == name for event in places.history(shelf)):
                return findnote.Named(shelf, name)
        raise


def kind(name: str) -> Kind:
    """The kind of that name. Raises UsageError."""
    from arena_cli.memory.note import KINDS

    if name not in KINDS:
        raise UsageError(f"--kind: there is no kind {shown_line(name)}", nearest.hint(name, KINDS))
    return name


def status(name: str) -> Status:
    """The status of that name. Raises UsageError."""
    from arena_cli.memory.note import STATUSES

    if name not in STATUSES:
        mend = nearest.hint(name, STATUSES)
        raise UsageError(f"--status: there is no status {shown_line(name)}", mend)
    return name


@contextlib.contextmanager
def kept(context: typer.Context, shelf: Shelf, by: str | None, wait: float) -> Iterator[Keeper]:
    """The notes of a shelf, held for acting on them."""
    from arena_cli.session import knowledge, session

    loaded = common.workspace_of(context)
    place = common.place_of(loaded, wait_s=wait)
    keeper = knowledge.Keeper(
        place,
        shelf,
        knowledge.who(None if by is not None else common.team_of(loaded, shelf.stored), by),
        redactor=session.redactor_of(place),
        on_wait=lambda name: common.warn(f"{shown_line(name)} is busy; waiting up to {wait:g} s"),
        on_problem=common.warn,
    )
    with contextlib.closing(keeper):
        yield keeper


def line(note: Note) -> str:
    """A note in a list."""
    seen = f"seen {note.occurrences} times" if note.occurrences > 1 else ""
    facts = (note.id, note.standing, note.title, ", ".join(note.tags), seen)
    return " · ".join(shown_line(fact) for fact in facts if fact)


def whole(note: Note) -> Iterator[str]:
    """A note with all that is known of it."""
    yield shown_line(note.title)
    source = note.source or ""
    if source and note.is_shared:
        source = f"{source} of session {next(iter(note.related_sessions), '?')}"
    facts = {
        "owner": note.owner,
        "tags": ", ".join(note.tags),
        "source": source,
        "sessions": ", ".join(note.related_sessions),
        "seen": f"{note.occurrences} times" if note.occurrences > 1 else "",
        "created": note.created,
        "updated": note.updated,
        "approved": " ".join(filter(None, (note.approved_by, note.approved_at))),
        "approval": note.approval and f"`arena knowledge approve {note.id}` takes this text",
        "supersedes": note.supersedes,
        "superseded by": note.superseded_by,
        "file": note.file,
    }
    yield shown_line(f"{note.id} · {note.kind} · {note.standing} · importance {note.importance:g}")
    yield from (f"{name}: {shown_line(fact)}" for name, fact in facts.items() if fact)
    if note.body.strip():
        yield f"\n{shown(note.body.strip())}"


def told(event: NoteEvent) -> str:
    """What was done to a note, in a line."""
    source = f"from {event.message}" if event.message else ""
    facts = (event.ts, event.note, event.act, event.by, event.reason, source)
    return " · ".join(shown_line(fact) for fact in facts if fact)
