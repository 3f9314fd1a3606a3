"""`arena diff`: two sessions, recordings or results, side by side."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common, complete, sides
from arena_cli.cli.sides import Found
from arena_cli.ground import exits
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line

if TYPE_CHECKING:
    from arena_cli.report.diffshapes import Difference
    from arena_cli.report.entries import Conversation
    from arena_cli.report.rundiff import RunDifference
    from arena_cli.report.spans import Line
    from arena_cli.report.words import Words
    from arena_cli.transcript.events import Event


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Sessions, then scenarios."""
    return [
        *complete.complete_sessions(context, incomplete),
        *complete.complete_scenarios(context, incomplete),
    ]


OneSide = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="A session, a scenario whose recording is meant (`NAME::CASE` for one case of it), or "
        "a file: a transcript, a recording, or what `arena run --json` printed.",
        autocompletion=_names,
        show_default=False,
    ),
]
OtherSide = Annotated[
    str,
    typer.Argument(
        metavar="B", help="What it is compared with.", autocompletion=_names, show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what differs as one JSON document.")]


def diff(context: typer.Context, a: OneSide, b: OtherSide, as_json: AsJson = False) -> None:
    """Compare two sessions, recordings, or results of `arena run`. Exits 1 where they differ."""
    with ExitStack() as opened:
        finder = sides.Finder(context, opened)
        ours, theirs = finder.find(a), finder.find(b)
        difference = _difference(ours, theirs)
    if as_json:
        common.say_json(difference.model_dump(mode="json"))
    else:
        _print(difference)
    if not difference.same:
        raise typer.Exit(exits.NOT_HELD)


def _difference(ours: Found, theirs: Found) -> Difference | RunDifference:
    from arena_cli.report import diff, rundiff

    kinds = (ours.kind, theirs.kind)
    if kinds == ("result", "result"):
        runs = [
            rundiff.read(sides.decoded(one.path.read_bytes()), one.shown) for one in (ours, theirs)
        ]
        return rundiff.between(ours.compared(), theirs.compared(), *runs)
    if "result" in kinds:
        one, other = (ours, theirs) if ours.kind == "result" else (theirs, ours)
        raise UsageError(
            f"{shown_line(one.shown)} is a result, {shown_line(other.shown)} a {other.kind}",
            "a result holds what was checked, not what was said: compare it with another result",
        )
    single = kinds != ("recording", "recording")
    both = [_conversations(one, single=single) for one in (ours, theirs)]
    return diff.between(ours.compared(), theirs.compared(), *both)


def _conversations(found: Found, *, single: bool) -> list[Conversation]:
    """Its conversations; `single`: the one that a session is compared with."""
    from arena_cli.report import conversations

    if found.kind == "session":
        return [conversations.of_session(_events(found))]
    from arena_cli.scenario.recording import files

    # What is wrong with one that was merged by hand is what is looked for.
    recording = files.read(found.path, found.shown, strict=False)
    try:
        there = conversations.of_recording(recording)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{shown_line(found.shown)}: a line is none of a recording: "
            f"{type(error).__name__}: {error}",
            "it was edited by hand: record it anew, `arena run --record NAME`",
        ) from error
    chosen = [one for one in there if _named(one)[: len(found.parts)] == found.parts]
    if not chosen:
        part = shown_line(sides.WITHIN.join(found.parts))
        raise UsageError(f"{shown_line(found.shown)} has no {part}", _which(found, there))
    if single and len(chosen) > 1:
        what = f"{shown_line(found.shown)} holds {len(chosen)} conversations, a session is one"
        raise UsageError(what, _which(found, chosen))
    return chosen


def _events(found: Found) -> Iterator[Event]:
    from arena_cli.transcript import read

    for one in read.lines(found.path):
        common.warn_of(Path(found.shown), [one.problem] if one.problem else [])
        yield from one.events


def _named(one: Conversation) -> tuple[str, ...]:
    """Its case, if there are cases, and its session; the main one has no name."""
    return (*([one.case] if one.case is not None else ()), one.session or "")


def _which(found: Found, there: Sequence[Conversation]) -> str:
    ways = []
    for one in there:
        alone = sum(other.case == one.case for other in there) == 1
        parts = _named(one)[:-1] if alone else _named(one)
        ways.append(f"`{shown_line(sides.WITHIN.join((found.given, *parts)))}`")
    return f"say which: {', '.join(ways)}"


def _print(difference: Difference | RunDifference) -> None:
    from arena_cli.cli.screen import Screen
    from arena_cli.cli.streams import Stdout
    from arena_cli.report import words

    out, say = Stdout(), words.here()
    screen = Screen(out, say)
    for line in _lines(difference, say):  # one by one: there may be many, and nobody reads on
        screen.show([line])
        if not out.is_read:
            break
    out.check()


def _lines(difference: Difference | RunDifference, say: Words) -> Iterator[Line]:
    from arena_cli.report import differences, results, rundifferences
    from arena_cli.report.diffshapes import Difference

    if isinstance(difference, Difference):
        return differences.drawn(difference, say)
    width = shutil.get_terminal_size((results.WIDTH, 0)).columns
    return rundifferences.drawn(difference, say, width=width)
