"""`knowledge search`: the notes that bear on a question."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli.cli import common, notes
from arena_cli.cli.knowledge_options import AsJson, Connect, InSession
from arena_cli.ground.text import shown_line

if TYPE_CHECKING:
    from arena_cli.memory.finding import Hit

Question = Annotated[
    str, typer.Argument(metavar="QUERY", help="Words, or a question in any language.")
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="KIND", help="Only notes of this kind; repeat for more kinds."),
]
AllTags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only notes with this tag; repeat for more tags."),
]
Archived = Annotated[bool, typer.Option("--all", help="Archived notes too.")]


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
    """Find notes by words and, where arena.yaml names an embedding, by meaning.

    A server that makes embeddings is asked only with --connect.

    Without --session in every session and among the shared ones; with it in this one and those.
    """
    from arena_cli.adapters import contacts
    from arena_cli.cli import trust
    from arena_cli.memory.index import Index
    from arena_cli.session import approvals, remembering, shelves, store
    from arena_cli.team import environ

    kinds = [notes.kind(name) for name in kind or ()]
    root = common.root_of(context)
    loaded = common.workspace_of(context)
    sessions = [store.find(root, session)] if session is not None else store.stored(root)
    own = [remembering.own_notes(one.folder, root) for one in sessions]
    embedding = loaded.file.memory.embedding
    notes.finish(context, [shelves.of(root, one) for one in (*sessions, None)])
    if connect:
        trust.require(loaded, lambda env: contacts.of((), embedding, dotenv=env))
    index = Index(
        store.sessions_of(root) / remembering.INDEX,
        [*own, remembering.shared_notes(root)],
        embedding=embedding,
        environ={**environ.read_dotenv(root), **os.environ},
        follow_trail=approvals.of_folder,
        connects=connect,
    )
    try:
        problems = [str(fault) for fault in index.sync()]
        found = index.search(query, kinds=kinds, tags=tag or (), archived=archived)
    finally:
        index.close()
    lack = index.lack if embedding else "arena.yaml names no embedding"
    for problem in problems:
        common.warn(problem)
    if as_json:
        common.say_json({"hits": [_record(hit) for hit in found], "lack": lack})
        return
    if lack:
        common.warn(f"arena: found by words alone: {shown_line(lack)}")
    for hit in found:
        common.say(_line(hit))
    if not found:
        common.warn("arena: no note bears on it")


def _record(hit: Hit) -> dict[str, Any]:
    return {"score": hit.score, "why": hit.why, **hit.note.model_dump()}


def _line(hit: Hit) -> str:
    note = hit.note
    facts = (f"{hit.score:.2f}", note.file, note.kind, note.standing, note.title, hit.why)
    return " · ".join(shown_line(fact) for fact in facts)
