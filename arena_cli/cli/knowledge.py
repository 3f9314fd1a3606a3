"""Write, change, search and inspect notes of a session and the shared ones: `arena knowledge`."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from arena_cli.cli import command_line, common, notes, options, trust
from arena_cli.errors import UsageError
from arena_cli.notes import markdown, review
from arena_cli.notes.model import Draft
from arena_cli.reports import lines
from arena_cli.session import notes as notes_module
from arena_cli.session import shelves, store
from arena_cli.session.notes import check, copy_note
from arena_cli.session.session import own_notes, shared_notes
from arena_cli.session.shelves import VectorSource
from arena_cli.session.trust_store import find_contacts
from arena_cli.util.clock import SystemClock
from arena_cli.util.text import escape_line
from arena_cli.workspace import agents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arena_cli.notes.index import Index
    from arena_cli.notes.lifecycle import Step
    from arena_cli.notes.model import Note
    from arena_cli.notes.review import NoteFinding
    from arena_cli.notes.search import Hit
    from arena_cli.reports.lines import Words
    from arena_cli.session.notes import Inspected
    from arena_cli.session.shelves import NoteReference, Shelf


knowledge_app = command_line.App(
    help="Manage the notes of the team: write, approve, search and trace them.",
    no_args_is_help=True,
)


@knowledge_app.command("add")
def add(
    context: typer.Context,
    title: notes.Title,
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    kind: notes.AKind = None,
    text: notes.Text = None,
    file: notes.FromFile = None,
    tag: notes.Tags = None,
    alias: notes.Aliases = None,
    importance: notes.Importance = 0.5,
    owner: notes.Owner = "",
    supersedes: notes.Supersedes = None,
    source: notes.Source = None,
    by: notes.By = None,
    as_json: notes.AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Write a note; if a note says the same already, count it as seen again."""
    if session is None and not last and not shared:
        hint = "Add --session NAME, -c for the last session, or --shared."
        raise UsageError("no place is given for the note", hint)
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
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    kind: notes.AKind = None,
    status: notes.AStatus = None,
    tag: notes.Tags = None,
    as_json: notes.AsJson = False,
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
    note: notes.OneNote,
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    as_json: notes.AsJson = False,
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
    note: notes.SomeNotes,
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    by: notes.By = None,
    reason: notes.Reason = "",
    as_json: notes.AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Take the step that the command is named after, one that needs nothing else."""
    references = _find_references(context, note, session, last=last, shared=shared)
    step = cast("Step", context.info_name)
    _tell(_step(context, references, step, by, reason, wait), as_json=as_json)


@knowledge_app.command("approve")
def approve(
    context: typer.Context,
    note: notes.SomeNotes,
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    share: notes.Share = False,
    by: notes.By = None,
    reason: notes.Reason = "",
    as_json: notes.AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Approve notes, also drafts; an approved note can be superseded, but not changed."""
    references = _find_references(context, note, session, last=last, shared=shared)
    if share:
        for reference in references:
            if reference.shelf.stored is None:
                raise UsageError(f"{reference.id} is shared already", "Approve it without --share.")
            copy_note(reference.shelf.folder.read(reference.id), "")  # raises if it may not be
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
    note: notes.SomeNotes,
    reason: notes.WhyRejected = "",
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    by: notes.By = None,
    as_json: notes.AsJson = False,
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
    note: notes.MayBeNote = None,
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    as_json: notes.AsJson = False,
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


def _find_references(
    context: typer.Context, names: Sequence[str], session: str | None, *, last: bool, shared: bool
) -> list[NoteReference]:
    """Return the notes of these names, each once."""
    among = notes.shelves(context, session, last=last, shared=shared)
    references = [notes.find(context, name, among) for name in names]
    return list(
        {(reference.shelf.trail, reference.id): reference for reference in references}.values()
    )


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


Question = Annotated[
    str,
    typer.Argument(
        metavar="QUERY", help="Search for these words, or for a question in any language."
    ),
]
Kinds = Annotated[
    list[str] | None,
    options.selection_option(
        "--kind", metavar="KIND", help="Find only notes of this kind; repeatable."
    ),
]
AllTags = Annotated[
    list[str] | None,
    options.selection_option(
        "--tag", metavar="TAG", help="Find only notes with this tag; repeatable."
    ),
]
Archived = Annotated[bool, options.selection_option("--all", help="Include archived notes.")]


def search(
    context: typer.Context,
    query: Question,
    kind: Kinds = None,
    tag: AllTags = None,
    session: notes.InSession = None,
    archived: Archived = False,
    connect: notes.Connect = False,
    as_json: notes.AsJson = False,
) -> None:
    """Find notes by words and, if arena.yaml configures an embedding, by meaning.

    It contacts the embedding server only with --connect.

    Without --session it searches every session and the shared notes; with it, that session and
    the shared notes.
    """
    kinds = [notes.check_kind(name) for name in kind or ()]
    root = common.find_root(context)
    loaded = common.load_workspace(context)
    sessions = [store.find(root, session)] if session is not None else store.stored(root)
    folders = [own_notes(stored.folder, root) for stored in sessions]
    embedding = loaded.file.memory.embedding
    notes.finish(context, [shelves.open_shelf(root, stored) for stored in (*sessions, None)])
    if connect:
        trust.require(loaded, lambda env: find_contacts((), embedding, dotenv=env))
    index = shelves.open_index(
        [*folders, shared_notes(root)],
        VectorSource(embedding, {**agents.read_dotenv(root), **os.environ}, connect),
        on_problem=lambda problem: common.warn(str(problem)),
        on_progress=common.report_indexing,
    )
    try:
        problems = [str(fault) for fault in index.sync()]
        hits = index.search(query, kinds=kinds, tags=tag or (), archived=archived)
        lack = index.lack if embedding else "arena.yaml names no embedding"
        hints = [] if hits else list(_hints(index, query, archived=archived, lack=lack))
    finally:
        index.close()
    for problem in problems:
        common.warn(problem)
    _print_hits(hits, lack, hints, as_json=as_json)


def _print_hits(
    hits: Sequence[Hit], lack: str | None, hints: Sequence[str], *, as_json: bool
) -> None:
    if as_json:
        records = [{"score": hit.score, "why": hit.why, **hit.note.model_dump()} for hit in hits]
        document = {"hits": records, "lack": lack}
        common.print_json(document | ({"hints": hints} if hints else {}))
        return
    if lack:
        common.warn(f"arena: searched by words only: {escape_line(lack)}")
    common.print_lines(map(_describe_hit, hits))
    if not hits:
        common.warn("\n  ".join(["arena: no note matches", *map(escape_line, hints)]))


def _hints(index: Index, query: str, *, archived: bool, lack: str) -> Iterator[str]:
    """Yield what would help to find a note, if a search has found none."""
    if not index.notes():
        yield 'there are no notes yet: `arena knowledge add "..." -c` writes one'
        return
    for is_archived, name in ((archived, "other kinds or tags"), (True, "archived notes (--all)")):
        others = index.search(query, archived=is_archived, limit=1)
        if others:
            yield f"{name} match, such as {others[0].note.file}"
            return
    words = index.near_words(query)
    if words:
        yield f"words in the notes that are spelled alike: {', '.join(words)}"
    if lack:
        yield (
            "if the note is in another language, add your term to its `aliases:` (or use "
            "`arena knowledge add --alias`), or search by meaning with the extra `search`"
        )


def _describe_hit(hit: Hit) -> str:
    note = hit.note
    title = notes.short_title(note)
    facts = (f"{hit.score:.2f}", note.file, note.kind, note.standing, title, hit.why)
    return " · ".join(escape_line(fact) for fact in facts)


Apply = Annotated[
    bool,
    typer.Option(
        "--apply",
        help="Apply the proposals; contradictions and matches by meaning are left to you.",
    ),
]


Full = Annotated[
    bool,
    typer.Option("--full", help="Compare the content of each file, even if its time is unchanged."),
]


def inspect(
    context: typer.Context,
    session: notes.InSession = None,
    last: notes.OfLast = False,
    shared: notes.Shared = False,
    apply: Apply = False,
    full: Full = False,
    connect: notes.Connect = False,
    by: notes.By = None,
    as_json: notes.AsJson = False,
    wait: options.BusyWait = 600,
) -> None:
    """Find solved blockers, next actions older than 30 days, duplicates and contradictions.

    By default, it inspects the notes of the last session and the shared ones. If arena.yaml
    configures an embedding, it also compares titles by meaning. It contacts the embedding server
    only with --connect.
    """
    say = lines.user_words()
    documents: list[dict[str, Any]] = []
    vectors = _find_vectors(context, connects=connect)
    for shelf in notes.shelves(context, session, last=last, shared=shared):
        done = _apply(context, shelf, by, wait, is_full=full) if apply else []
        documents += [{**_describe_finding(finding, shelf), "applied": True} for finding in done]
        inspected = _inspected(shelf, say.language, is_full=full and not apply, vectors=vectors)
        findings, count = inspected.findings, inspected.notes
        for problem in inspected.problems:
            common.warn(str(problem))
        if inspected.lack:
            common.warn(f"arena: compared by words only: {escape_line(inspected.lack)}")
        documents += [
            {**_describe_finding(finding, shelf), "applied": False} for finding in findings
        ]
        if not as_json:
            _print_findings(findings, count, shelf, say, applied=apply)
    if as_json:
        common.print_json(documents)


def _find_vectors(context: typer.Context, *, connects: bool) -> VectorSource:
    """Return the source of vectors that arena.yaml names; a server must be trusted."""
    root, loaded = common.find_root(context), common.load_workspace(context)
    embedding = loaded.file.memory.embedding
    if connects:
        trust.require(loaded, lambda env: find_contacts((), embedding, dotenv=env))
    environ = {**agents.read_dotenv(root), **os.environ} if embedding else {}
    return VectorSource(embedding, environ, connects)


def _inspected(
    shelf: Shelf,
    language: str,
    *,
    is_full: bool = False,
    vectors: VectorSource = shelves.NO_VECTORS,
) -> Inspected:
    return notes_module.inspect(
        shelf,
        SystemClock().now(),
        language=language,
        is_full=is_full,
        on_progress=common.report_indexing,
        vectors=vectors,
    )


def _apply(
    context: typer.Context, shelf: Shelf, by: str | None, wait: float, *, is_full: bool
) -> list[NoteFinding]:
    """Apply the proposals while holding the shelf for writing; report each act on stderr."""
    language = common.load_workspace(context).file.language
    inspected = _inspected(shelf, language, is_full=is_full)
    if not any(finding.can_be_applied for finding in inspected.findings):
        return []
    with notes.open_keeper(context, shelf, by, wait) as keeper:
        findings = _inspected(shelf, language).findings  # as it is now that it is held
        try:
            return notes_module.apply_findings(findings, keeper)
        finally:
            for event in keeper.told:
                common.warn(notes.describe_note(event))


def _print_findings(
    findings: list[NoteFinding], count: int, shelf: Shelf, say: Words, *, applied: bool
) -> None:
    stored = shelf.stored
    name = say("session {name}", name=escape_line(stored.name)) if stored else say("shared notes")
    if not findings:
        template = "{place}: no problem found in {count}"
        if applied:
            template = "{place}: nothing left to do"
        how_many = lines.count_of(say, count, "1 note", "{count} notes")
        common.print_line(say(template, place=name, count=how_many))
        return
    common.print_line(f"{name}:")
    for finding in findings:
        title, reason = notes.short_title(finding.note), finding.reason
        if finding.what == "contradiction" and finding.other is not None:
            reason = f"{finding.other.id} ({notes.short_title(finding.other)}): {reason}"
        facts = (say.enum(finding.what), finding.note.id, title, reason)
        common.print_line("  " + " · ".join(map(escape_line, facts)))
        for command in _commands(finding, shelf):
            common.print_line(f"    {command}")
    if any(finding.can_be_applied for finding in findings):
        common.print_line(say("to do it: {command}", command=_command("inspect", shelf, "--apply")))


def _commands(finding: NoteFinding, shelf: Shelf) -> Iterator[str]:
    """Yield the commands that resolve a finding by hand; a contradiction can only be shown."""
    if finding.what == "contradiction" and finding.other is not None:
        yield _command("show", shelf, finding.other.id)
        return
    if finding.what == "approval":
        yield _command("approve", shelf, finding.note.id)
        return
    if finding.what == "solved":
        yield _command("add", shelf, *_conclusion_options(finding), "--", finding.conclusion)
    yield _command("archive", shelf, finding.note.id, "--reason", finding.reason)


def _conclusion_options(finding: NoteFinding) -> Iterator[str]:
    """Yield the options that write the conclusion of a solved blocker."""
    draft = review.conclude(finding, "", language=lines.user_words().language)
    yield from ("--kind", draft.kind, "--source", finding.message, "--text", draft.body)
    if draft.owner:
        yield from ("--owner", draft.owner)
    for tag in draft.tags:
        yield from ("--tag", tag)


def _command(name: str, shelf: Shelf, *arguments: str) -> str:
    scope = ("--session", shelf.stored.name) if shelf.stored else ("--shared",)
    return escape_line(shlex.join(("arena", "knowledge", name, *scope, *arguments)))


def _describe_finding(finding: NoteFinding, shelf: Shelf) -> dict[str, Any]:
    return {
        "session": shelf.stored.name if shelf.stored else None,
        "what": finding.what,
        "note": finding.note.id,
        "title": finding.note.title,
        "reason": finding.reason,
        "other": finding.other.id if finding.other else None,
        "by": finding.by,
        "cosine": None if finding.cosine is None else round(finding.cosine, 3),
        "message": finding.message or None,
        "conclusion": finding.conclusion or None,
        "commands": list(_commands(finding, shelf)),
    }


knowledge_app.command("inspect")(inspect)
knowledge_app.command("search")(search)
