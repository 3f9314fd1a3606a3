"""List, show, add and change notes of a session and the shared ones: `arena knowledge`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import typer

from arena_cli.cli import command_line, common, knowledge_search, notes, options
from arena_cli.cli.notes import (
    AKind,
    Aliases,
    AsJson,
    AStatus,
    By,
    FromFile,
    Importance,
    InSession,
    MayBeNote,
    OfLast,
    OneNote,
    Owner,
    Reason,
    Share,
    Shared,
    SomeNotes,
    Source,
    Supersedes,
    Tags,
    Text,
    Title,
    WhyRejected,
)
from arena_cli.errors import UsageError
from arena_cli.notes import markdown
from arena_cli.notes.model import Draft
from arena_cli.session import shelves
from arena_cli.session.notes import check, copy_note
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arena_cli.notes.lifecycle import Step
    from arena_cli.notes.model import Note
    from arena_cli.session.shelves import NoteReference


knowledge_app = command_line.App(
    help="Manage the notes of the team: write, approve, search and trace them.",
    no_args_is_help=True,
)


@knowledge_app.command("add")
def add(
    context: typer.Context,
    title: Title,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    kind: AKind = None,
    text: Text = None,
    file: FromFile = None,
    tag: Tags = None,
    alias: Aliases = None,
    importance: Importance = 0.5,
    owner: Owner = "",
    supersedes: Supersedes = None,
    source: Source = None,
    by: By = None,
    as_json: AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Write a note; if a note says the same already, count it as seen again."""
    if session is None and not last and not shared:
        raise UsageError(
            "no place is given for the note",
            "Add --session NAME, -c for the last session, or --shared.",
        )
    (shelf,) = notes.shelves(context, session, last=last, shared=shared)
    old = notes.find(context, supersedes, [shelf]) if supersedes is not None else None
    if old and old.shelf.trail != shelf.trail:
        raise UsageError(
            f"{old.id} does not belong to {shelf.name}",
            "A note can supersede only a note of the same place.",
        )
    if kind is None:
        kind = old.shelf.folder.read(old.id).kind if old else "reference"
    draft = Draft(
        notes.check_kind(kind),
        title,
        common.read_message(text, file) if text is not None or file is not None else "",
        source=source,
        importance=importance,
        tags=tuple(tag or ()),
        owner=owner,
        supersedes=old.id if old else "",
        aliases=notes.check_aliases(alias or ()),
    )
    with notes.open_keeper(context, shelf, by, wait) as keeper:
        note = keeper.add(draft)
    _tell([note], as_json=as_json)


@knowledge_app.command("list")
def list_notes(
    context: typer.Context,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    kind: AKind = None,
    status: AStatus = None,
    tag: Tags = None,
    as_json: AsJson = False,
) -> None:
    """List notes, by default those of the last session and the shared ones."""
    kind = notes.check_kind(kind) if kind is not None else None
    status = notes.check_status(status) if status is not None else None
    among = notes.shelves(context, session, last=last, shared=shared)
    with contextlib.closing(notes.open_index(among)) as index:
        for problem in index.sync():
            common.warn(str(problem))
        listed = [note for shelf in among for note in index.notes_in(shelf.folder)]
    chosen = [
        note
        for note in listed
        if kind in (None, note.kind)
        and status in (None, note.status)
        and set(tag or ()) <= set(note.tags)
    ]
    if not chosen and not as_json:
        common.warn("no such notes" if listed else 'no notes yet: `arena knowledge add "..." -c`')
    _tell(chosen, as_json=as_json, as_list=True)


@knowledge_app.command("show")
def show(
    context: typer.Context,
    note: OneNote,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    as_json: AsJson = False,
) -> None:
    """Print a note: its text and its metadata."""
    among = notes.shelves(context, session, last=last, shared=shared)
    reference = notes.find(context, note, among)
    shown_note = shelves.find_note(reference.shelf, reference.id)
    if as_json:
        common.print_json(shown_note.model_dump())
        return
    common.print_lines(notes.whole(shown_note))
    if markdown.is_cut(shown_note, reference.shelf.folder.whole(reference.id)):
        common.warn(
            f"{escape_line(shown_note.file)}: arena reads only the part that is "
            "shown, the rest stays in the file"
        )


@knowledge_app.command("submit", help="Submit drafts for approval.")
def take_step(
    context: typer.Context,
    note: SomeNotes,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    by: By = None,
    reason: Reason = "",
    as_json: AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """The command of a step that needs nothing else: its name is that of the step."""
    references = _find_references(context, note, session, last=last, shared=shared)
    step = cast("Step", context.info_name)
    _tell(_step(context, references, step, by, reason, wait), as_json=as_json)


@knowledge_app.command("approve")
def approve(
    context: typer.Context,
    note: SomeNotes,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    share: Share = False,
    by: By = None,
    reason: Reason = "",
    as_json: AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Approve notes, also drafts; an approved note can be superseded, but not changed."""
    references = _find_references(context, note, session, last=last, shared=shared)
    if share:
        _check_shareable(references)
    done = _step(context, references, "approve", by, reason, wait, skip=share)
    if share:
        workspace = references[0].shelf.folder.workspace
        texts = [item.shelf.folder.whole(item.id) for item in references]
        with notes.open_keeper(context, shelves.open_shelf(workspace, None), by, wait) as keeper:
            done += [keeper.share(*item) for item in zip(done, texts, strict=True)]
    _tell(done, as_json=as_json)


@knowledge_app.command("reject")
def reject(
    context: typer.Context,
    note: SomeNotes,
    reason: WhyRejected = "",
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    by: By = None,
    as_json: AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Send notes back to be drafts, with a reason."""
    if not reason.strip():
        raise UsageError("a rejection needs a reason", "Add --reason TEXT.")
    references = _find_references(context, note, session, last=last, shared=shared)
    _tell(_step(context, references, "reject", by, reason, wait), as_json=as_json)


knowledge_app.command("archive", help="Archive notes: agents are no longer shown them.")(take_step)
knowledge_app.command("restore", help="Make archived notes drafts again.")(take_step)


@knowledge_app.command("history")
def history(
    context: typer.Context,
    note: MayBeNote = None,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    as_json: AsJson = False,
) -> None:
    """Print the history of notes: what was done, when, by whom and why."""
    among = notes.shelves(context, session, last=last, shared=shared)
    if note is not None:
        reference = notes.find_told(context, note, among)
        trail = shelves.history_with_changes(reference.shelf)
        events = [event for event in trail if event.note == reference.id]
    else:
        events = [event for shelf in among for event in shelves.history_with_changes(shelf)]
    if as_json:
        common.print_json([event.model_dump() for event in events])
        return
    for event in events:
        common.print_line(notes.describe_note(event))


knowledge_app.command("inspect")(knowledge_search.inspect)
knowledge_app.command("search")(knowledge_search.search)


def _find_references(
    context: typer.Context, names: Sequence[str], session: str | None, *, last: bool, shared: bool
) -> list[NoteReference]:
    """Return the notes of these names, each once."""
    among = notes.shelves(context, session, last=last, shared=shared)
    references = [notes.find(context, name, among) for name in names]
    return list(
        {(reference.shelf.trail, reference.id): reference for reference in references}.values()
    )


def _check_shareable(references: Sequence[NoteReference]) -> None:
    for reference in references:
        if reference.shelf.stored is None:
            raise UsageError(f"{reference.id} is shared already", "Approve it without --share.")
        copy_note(reference.shelf.folder.read(reference.id), "")


def _step(
    context: typer.Context,
    references: Sequence[NoteReference],
    step: Step,
    by: str | None,
    reason: str,
    wait: float,
    *,
    skip: bool = False,
) -> list[Note]:
    """Take a step with all of these notes, or with none if it is not allowed for one of them.

    `skip`: notes that are already approved are left unchanged.
    """
    done = ("approved",) if skip else ()
    for reference in references:
        check(reference.shelf, reference.id, step, done=done)
    results: dict[tuple[Path, str], Note] = {}
    for trail in dict.fromkeys(reference.shelf.trail for reference in references):
        here = [reference for reference in references if reference.shelf.trail == trail]
        with notes.open_keeper(context, here[0].shelf, by, wait) as keeper:
            for reference in here:
                current = shelves.find_note(reference.shelf, reference.id)
                is_done = current.status in done
                results[trail, reference.id] = (
                    current if is_done else keeper.step(reference.id, step, reason)
                )
    return [results[reference.shelf.trail, reference.id] for reference in references]


def _tell(changed: Sequence[Note], *, as_json: bool, as_list: bool = False) -> None:
    if as_json:
        documents: list[dict[str, Any]] = [note.model_dump(exclude={"body"}) for note in changed]
        common.print_json(documents if as_list or len(documents) != 1 else documents[0])
        return
    if changed:
        common.print_line("\n".join(map(notes.line, changed)))
