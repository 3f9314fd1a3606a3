"""`knowledge inspect`: what is wrong with the notes, and `--apply`, which puts it right."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli.cli import common, notes
from arena_cli.cli.knowledge_options import AsJson, By, InSession, OfLast, Shared, Wait
from arena_cli.ground.text import shown_line

if TYPE_CHECKING:
    from arena_cli.memory.inspecting import Finding
    from arena_cli.report.words import Words
    from arena_cli.session.inspecting import Inspected
    from arena_cli.session.shelves import Shelf

Apply = Annotated[
    bool,
    typer.Option("--apply", help="Do what is proposed; contradictions are left to you."),
]


def inspect(
    context: typer.Context,
    session: InSession = None,
    last: OfLast = False,
    shared: Shared = False,
    apply: Apply = False,
    by: By = None,
    as_json: AsJson = False,
    wait: Wait = 600,
) -> None:
    """Find blockers that were solved, next actions older than 30 days, duplicates, contradictions.

    Without an option those of the last session and the shared ones are looked through.
    """
    from arena_cli.report import words

    say = words.here()
    told: list[dict[str, Any]] = []
    for shelf in notes.shelves(context, session, last=last, shared=shared):
        done = _apply(context, shelf, by, wait) if apply else []
        told += [{**_as_json(one, shelf), "applied": True} for one in done]
        inspected = _inspected(shelf, say.language)
        found, count = inspected.findings, inspected.notes
        for problem in inspected.problems:
            common.warn(str(problem))
        told += [{**_as_json(one, shelf), "applied": False} for one in found]
        if not as_json:
            _tell(found, count, shelf, say, applied=apply)
    if as_json:
        common.say_json(told)


def _inspected(shelf: Shelf, language: str) -> Inspected:
    from arena_cli.ground.clock import SystemClock
    from arena_cli.session import inspecting

    return inspecting.inspect(shelf, SystemClock().now(), language=language)


def _apply(context: typer.Context, shelf: Shelf, by: str | None, wait: float) -> list[Finding]:
    """Do what is proposed, once nobody else writes there; each act is told on stderr."""
    from arena_cli.session import inspecting

    language = common.workspace_of(context).file.language
    if not any(one.can_be_applied for one in _inspected(shelf, language).findings):
        return []
    with notes.kept(context, shelf, by, wait) as keeper:
        found = _inspected(shelf, language).findings  # as it is now that it is held
        try:
            return inspecting.apply(found, keeper)
        finally:
            for event in keeper.told:
                common.warn(notes.told(event))


def _tell(found: list[Finding], count: int, shelf: Shelf, say: Words, *, applied: bool) -> None:
    stored = shelf.stored
    name = say("session {name}", name=shown_line(stored.name)) if stored else say("shared notes")
    if not found:
        said = "{place}: nothing left to do" if applied else "{place}: nothing found in {count}"
        how_many = say("1 note") if count == 1 else say("{count} notes", count=count)
        common.say(say(said, place=name, count=how_many))
        return
    common.say(f"{name}:")
    for one in found:
        facts = (say.enum(one.what), one.note.id, one.note.title, _why(one))
        common.say("  " + " · ".join(map(shown_line, facts)))
        for command in _commands(one, shelf):
            common.say(f"    {command}")
    if any(one.can_be_applied for one in found):
        common.say(say("to do it: {command}", command=_command("inspect", shelf, "--apply")))


def _why(one: Finding) -> str:
    if one.what == "contradiction" and one.other is not None:
        return f"{one.other.id} ({one.other.title}): {one.reason}"
    return one.reason


def _commands(one: Finding, shelf: Shelf) -> Iterator[str]:
    """What does it by hand; of two that contradict each other, what shows the other."""
    if one.what == "contradiction" and one.other is not None:
        yield _command("show", shelf, one.other.id)
        return
    if one.what == "approval":
        yield _command("approve", shelf, one.note.id)
        return
    if one.what == "solved":
        source = ("--kind", "conclusion", "--source", one.message)
        yield _command("add", shelf, *source, "--", one.conclusion)
    yield _command("archive", shelf, one.note.id, "--reason", one.reason)


def _command(name: str, shelf: Shelf, *arguments: str) -> str:
    place = ("--session", shelf.stored.name) if shelf.stored else ("--shared",)
    return shown_line(shlex.join(("arena", "knowledge", name, *place, *arguments)))


def _as_json(one: Finding, shelf: Shelf) -> dict[str, Any]:
    return {
        "session": shelf.stored.name if shelf.stored else None,
        "what": one.what,
        "note": one.note.id,
        "title": one.note.title,
        "reason": one.reason,
        "other": one.other.id if one.other else None,
        "message": one.message or None,
        "conclusion": one.conclusion or None,
        "commands": list(_commands(one, shelf)),
    }
