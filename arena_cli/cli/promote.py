"""`arena promote`: a session that somebody had becomes a scenario with its recording."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli import errors
from arena_cli.cli import common, complete, streams
from arena_cli.cli.streams import Screen, Stdout
from arena_cli.reports import lines, results
from arena_cli.reports.lines import Span, line
from arena_cli.scenarios.promote.promote import Promotion, path_for
from arena_cli.session import store
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.lines import Line, Words
    from arena_cli.scenarios.promote.promote import Parting, Promoted


ItsSession = Annotated[
    str, typer.Argument(help="The session.", autocompletion=complete.complete_sessions)
]
Until = Annotated[
    int | None,
    typer.Option(
        "--until",
        metavar="SEQ",
        min=1,
        help="Only up to the end of the chain in which event SEQ is.",
    ),
]
ToFile = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="FILE",
        help="Where the scenario is written; else `scenarios/SESSION.yaml`.",
    ),
]
_PLAIN = re.compile(r"[\w./:\\-]+")

Force = Annotated[bool, typer.Option("--force", help="Write over what is there.")]


def promote(
    context: typer.Context,
    session: ItsSession,
    until: Until = None,
    to: ToFile = None,
    force: Force = False,
) -> None:
    """Make a scenario and its recording out of a session. Exits 1 where it plays otherwise now."""
    from dataclasses import replace

    loaded = common.workspace_of(context)
    stored = store.find(loaded.root, session)
    path = path_for(stored, to, loaded.root, common.here())
    promotion = Promotion(stored, until, path, loaded, force=force)
    for note in promotion.notes:
        common.warn(note)
    place = common.place_of(loaded, wait_s=0)
    sync = place.durability == "fsync"
    making = promotion.make(replace(place, durability="flush"), sync=sync)
    made = common.run(making, hint="")
    out, say = Stdout(), lines.here()
    is_same = made.result.status == "passed" and made.parting is None and not made.result.unkept
    if not is_same:
        Screen(out, say).show(_differences(made, say))
    name = made.name if _PLAIN.fullmatch(made.name) else shlex.quote(made.name)
    command = f"arena run {name} --replay"
    told = say(
        "{scenario} and {recording} are written; play them: {command}",
        scenario=made.scenario,
        recording=made.recording,
        command=command,
    )
    out.write(f"{told}\n")
    out.check()
    if not is_same:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _differences(made: Promoted, say: Words) -> Iterator[Line]:
    """What is not as the session was: in full, then the first thing in one line."""

    width = shutil.get_terminal_size((results.WIDTH, 0)).columns
    faces = {member.id: member.profile.avatar for member in made.result.team.members}
    avatars = streams.encodable(faces, sys.stdout)
    yield from results.drawn(made.result, say, width=width, avatars=avatars)
    if made.parting:
        told = say("not as the session was: {what}", what=_first(made.parting, say))
        yield line(Span(told, "failed"))
    elif made.result.unkept:
        told = say("not as the session was: {what}", what=say(made.result.unkept))
        yield line(Span(told, "failed"))
    for name, was, now in made.rules:
        told = say("the team has another {field}", field=f"config.{name}")
        yield line(Span(f"{told}{say(': ')}{was} → {now}"))


def _first(parting: Parting, say: Words) -> str:
    """Where a session parts from what it was, in one line."""

    nobody = say("nobody")
    before, after = (escape_line(one) or nobody for one in (parting.before, parting.after))
    who = escape_line(parting.agent or "")
    what = {
        "must": say("must reply: {who}", who=before),
        "asked": say("may reply: {who}", who=before),
        "mentions": say("{who} mentions {whom}", who=who, whom=before),
        "turns": say("{count} turns", count=before),
        "end": say.enum(before),
    }[parting.matter]
    if parting.matter == "end":
        after = say.enum(after)
    where = (say("step {number}", number=parting.step), say("turn {turn}", turn=parting.turn))
    return f"{say(', ').join(where)}{say(': ')}{what} → {after}"
