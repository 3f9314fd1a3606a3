"""Provide the common parts of the `knowledge` commands: options, finding and showing notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli import errors
from arena_cli.cli import common, options
from arena_cli.errors import UsageError
from arena_cli.notes import model
from arena_cli.notes.model import KINDS, STATUSES
from arena_cli.reports.lines import user_words
from arena_cli.session import notes, store
from arena_cli.session import shelves as shelves_module
from arena_cli.session.notes import Keeper
from arena_cli.session.session import make_redactor
from arena_cli.session.shelves import NoteReference, open_shelf
from arena_cli.util.text import escape_line, escape_text

if TYPE_CHECKING:
    from arena_cli.notes.index import Index
    from arena_cli.notes.model import Kind, Note, Status
    from arena_cli.reports.lines import Words
    from arena_cli.session.shelves import Shelf
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import NoteEvent


def shelves(
    context: typer.Context, session: str | None, *, last: bool, shared: bool
) -> list[Shelf]:
    """Return the shelves to search: the named one, else the last session's and the shared one.

    Acts on their notes that a crash interrupted are completed.
    """
    chosen = _shelves(context, session, last=last, shared=shared)
    finish(context, chosen)
    return chosen


def finish(context: typer.Context, among: Sequence[Shelf]) -> None:
    """Complete the acts on notes that a crash interrupted in these shelves."""
    for shelf in among:
        if shelf.is_unfinished:
            notes.finish(common.make_config(common.load_workspace(context), wait_s=0), shelf)


def _shelves(
    context: typer.Context, session: str | None, *, last: bool, shared: bool
) -> list[Shelf]:
    options = [session is not None, last, shared]
    if sum(options) > 1:
        raise UsageError(
            "--session, --continue and --shared exclude each other", "Give one of them."
        )
    root = common.find_root(context)
    if shared:
        return [open_shelf(root, None)]
    if session is not None:
        return [open_shelf(root, store.find(root, session))]
    if last:
        return [open_shelf(root, store.last(root))]
    sessions: list[Stored] = []
    with contextlib.suppress(UsageError):
        sessions.append(store.last(root))
    return [*(open_shelf(root, stored) for stored in sessions), open_shelf(root, None)]


def open_index(among: Sequence[Shelf]) -> Index:
    """Return the index of the notes of some shelves; report on stderr what it meets."""
    return shelves_module.open_index(
        [shelf.folder for shelf in among],
        on_progress=common.report_indexing,
        on_problem=lambda problem: common.warn(str(problem)),
    )


def find(context: typer.Context, name: str, among: Sequence[Shelf]) -> NoteReference:
    """Return the note of that name or path. Raises UsageError."""
    return shelves_module.find(name, among, common.find_root(context), common.current_folder())


def find_told(context: typer.Context, name: str, among: Sequence[Shelf]) -> NoteReference:
    """Return the note as `find` does, or one without a file that is named in the trail."""
    try:
        return find(context, name, among)
    except UsageError:
        for shelf in among:
            if any(event.note == name for event in shelves_module.history(shelf)):
                return NoteReference(shelf, name)
        raise


def check_kind(name: str) -> Kind:
    """Return the name if it is a kind of note. Raises UsageError."""
    if name not in KINDS:
        raise UsageError(
            f"--kind: unknown kind {escape_line(name)}", errors.suggest_nearest(name, KINDS)
        )
    return name


def check_status(name: str) -> Status:
    """Return the name if it is a status of notes. Raises UsageError."""
    if name not in STATUSES:
        mend = errors.suggest_nearest(name, STATUSES)
        raise UsageError(f"--status: unknown status {escape_line(name)}", mend)
    return name


@contextlib.contextmanager
def open_keeper(
    context: typer.Context, shelf: Shelf, by: str | None, wait: float
) -> Iterator[Keeper]:
    """Yield a keeper of a shelf, which holds its notes for changes."""
    loaded = common.load_workspace(context)
    config = common.make_config(loaded, wait_s=wait)
    keeper = Keeper(
        config,
        shelf,
        notes.choose_author(None if by is not None else common.find_team(loaded, shelf.stored), by),
        redactor=make_redactor(config),
        on_wait=lambda name: common.warn(f"{escape_line(name)} is busy; waiting up to {wait:g} s"),
        on_problem=common.warn,
    )
    with contextlib.closing(keeper):
        yield keeper


def line(note: Note) -> str:
    """Return a note as one line of a list."""
    say = user_words()
    seen = say("seen {count} times", count=note.occurrences) if note.occurrences > 1 else ""
    facts = (note.id, _standing(note, say), short_title(note), ", ".join(note.tags), seen)
    return " · ".join(escape_line(fact) for fact in facts if fact)


def _standing(note: Note, say: Words) -> str:
    """Return the status of a note, and what is wrong with its approval."""
    return say.enum(note.status) if note.standing == note.status else note.standing


def short_title(note: Note) -> str:
    """Return the title of a note, cut if it is too long for a list."""
    return model.short(note.title, model.LISTED_TITLE)


def check_aliases(terms: Sequence[str]) -> tuple[str, ...]:
    """Return the terms if a note may have them as aliases. Raises UsageError."""
    for term in terms:
        if not model.line(term):
            raise UsageError("--alias: is empty", "Give a word by which the note is searched.")
        if len(model.line(term)) > model.LONGEST_ALIAS:
            start, limit = escape_line(model.short(term, 40)), model.LONGEST_ALIAS
            raise UsageError(
                f"--alias: {start} is longer than {limit} characters",
                "Give single terms, each with its own --alias; a text belongs into --text.",
            )
    if len(terms) > model.MOST_ALIASES:
        problem = f"--alias: {len(terms)} are given, a note has at most {model.MOST_ALIASES}"
        raise UsageError(problem, "Give the most important ones.")
    return tuple(terms)


def whole(note: Note) -> Iterator[str]:
    """Yield the lines of a note with all its metadata."""
    say = user_words()
    yield escape_line(note.title)
    source = note.source or ""
    if source and note.is_shared:
        session = next(iter(note.related_sessions), "?")
        source = say("{message} of session {name}", message=source, name=session)
    facts = {
        "owner": note.owner,
        "tags": ", ".join(note.tags),
        "aliases": ", ".join(note.aliases),
        "source": source,
        "sessions": ", ".join(note.related_sessions),
        "seen": say("{count} times", count=note.occurrences) if note.occurrences > 1 else "",
        "created": note.created,
        "updated": note.updated,
        "approved": " ".join(filter(None, (note.approved_by, note.approved_at))),
        "approval": note.approval
        and say("`{command}` approves this text", command=f"arena knowledge approve {note.id}"),
        "supersedes": note.supersedes,
        "superseded by": note.superseded_by,
        "file": note.file,
    }
    importance = say("importance {value}", value=f"{note.importance:g}")
    columns = (note.id, say.enum(note.kind), _standing(note, say), importance)
    yield escape_line(" · ".join(columns))
    yield from (
        f"{say(name)}{say(': ')}{escape_line(fact)}" for name, fact in facts.items() if fact
    )
    if note.body.strip():
        yield f"\n{escape_text(note.body.strip())}"


def describe_note(event: NoteEvent) -> str:
    """Describe an act on a note in one line."""
    say = user_words()
    source = say("from {message}", message=event.message) if event.message else ""
    facts = (event.ts, event.note, say.enum(event.act), event.by, event.reason, source)
    return " · ".join(escape_line(fact) for fact in facts if fact)


Title = Annotated[str, typer.Argument(help="Write the note in a few words.")]
OneNote = Annotated[
    str,
    typer.Argument(
        metavar="NOTE", help="Choose the note by its id, the beginning of its id, or its file."
    ),
]
SomeNotes = Annotated[
    list[str],
    typer.Argument(
        metavar="NOTE",
        help="Choose notes by their ids, the beginnings of their ids, or their files.",
    ),
]
MayBeNote = Annotated[
    str | None, typer.Argument(metavar="NOTE", help="Print only the history of this note.")
]
InSession = Annotated[
    str | None,
    options.session_option(help="Use the notes of this session.", rich_help_panel="Notes"),
]
OfLast = Annotated[
    bool, options.notes_option("--continue", "-c", help="Use the notes of the last session.")
]
Shared = Annotated[
    bool, options.notes_option("--shared", help="Use the notes that every session shares.")
]
AKind = Annotated[
    str | None,
    options.content_option(
        "--kind", metavar="KIND", help="Use this kind: decision, pit, blocker, ..."
    ),
]
AStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="List only notes with this status: draft, pending_user, approved or archived.",
    ),
]
Tags = Annotated[
    list[str] | None, options.content_option("--tag", help="Use this tag; repeatable.")
]
Aliases = Annotated[
    list[str] | None,
    options.content_option(
        "--alias",
        metavar="TERM",
        help="Find the note by this term too, such as one of another language; repeatable.",
    ),
]
Text = Annotated[
    str | None, options.content_option("--text", help="Use this text; `-` reads standard input.")
]
FromFile = Annotated[
    Path | None, options.content_option("--file", "-f", help="Read the text from this file.")
]
Importance = Annotated[
    float,
    options.content_option(
        "--importance",
        min=0,
        max=1,
        help="Set the importance, from 0 to 1; from 0.8 the note pins its source message.",
    ),
]
Owner = Annotated[str, options.content_option("--owner", help="Name who is responsible.")]
Supersedes = Annotated[
    str | None,
    options.content_option(
        "--supersedes", metavar="NOTE", help="Archive this note once the new one is approved."
    ),
]
Source = Annotated[
    str | None,
    options.content_option(
        "--source", metavar="MESSAGE", help="Name the source message, such as m7."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="Act in this name; by default the team's first human."
    ),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Give the reason.")]
WhyRejected = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Give the reason; required.")
]
Share = Annotated[
    bool,
    typer.Option(
        "--share", help="Also copy the note into the shared notes (pits, decisions, ...)."
    ),
]
Connect = Annotated[
    bool,
    typer.Option(
        "--connect",
        help="Contact the embedding server of arena.yaml; requires a trusted workspace.",
    ),
]
AsJson = Annotated[bool, options.output_option("--json", help="Print JSON.")]
