"""Search and inspect notes: `arena knowledge search` and `inspect`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli.cli import common, notes, options, trust
from arena_cli.cli.notes import AsJson, By, Connect, InSession, OfLast, Shared
from arena_cli.notes import review
from arena_cli.reports import lines
from arena_cli.session import notes as notes_module
from arena_cli.session import shelves, store
from arena_cli.session.session import own_notes, shared_notes
from arena_cli.session.shelves import VectorSource
from arena_cli.session.trust_store import find_contacts
from arena_cli.util.clock import SystemClock
from arena_cli.util.text import escape_line
from arena_cli.workspace import agents

if TYPE_CHECKING:
    from arena_cli.notes.index import Index
    from arena_cli.notes.review import NoteFinding
    from arena_cli.notes.search import Hit
    from arena_cli.reports.lines import Words
    from arena_cli.session.notes import Inspected
    from arena_cli.session.shelves import Shelf


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
    session: InSession = None,
    archived: Archived = False,
    connect: Connect = False,
    as_json: AsJson = False,
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
        root,
        [*folders, shared_notes(root)],
        embedding=embedding,
        environ={**agents.read_dotenv(root), **os.environ},
        connects=connect,
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
    if as_json:
        records = [{"score": hit.score, "why": hit.why, **hit.note.model_dump()} for hit in hits]
        document = {"hits": records, "lack": lack}
        common.print_json(document | ({"hints": hints} if hints else {}))
        return
    if lack:
        common.warn(f"arena: searched by words only: {escape_line(lack)}")
    common.print_lines(map(_line, hits))
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


def _line(hit: Hit) -> str:
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
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    apply: Apply = False,
    full: Full = False,
    connect: Connect = False,
    by: By = None,
    as_json: AsJson = False,
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
        documents += [{**_as_json(finding, shelf), "applied": True} for finding in done]
        inspected = _inspected(shelf, say.language, is_full=full and not apply, vectors=vectors)
        findings, count = inspected.findings, inspected.notes
        for problem in inspected.problems:
            common.warn(str(problem))
        if inspected.lack:
            common.warn(f"arena: compared by words only: {escape_line(inspected.lack)}")
        documents += [{**_as_json(finding, shelf), "applied": False} for finding in findings]
        if not as_json:
            _tell(findings, count, shelf, say, applied=apply)
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
    shelf: Shelf, language: str, *, is_full: bool = False, vectors: VectorSource | None = None
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


def _tell(
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


def _as_json(finding: NoteFinding, shelf: Shelf) -> dict[str, Any]:
    return {
        "session": shelf.stored.name if shelf.stored else None,
        "what": finding.what,
        "note": finding.note.id,
        "title": finding.note.title,
        "reason": finding.reason,
        "other": finding.other.id if finding.other else None,
        "by": finding.by,
        "message": finding.message or None,
        "conclusion": finding.conclusion or None,
        "commands": list(_commands(finding, shelf)),
    }
