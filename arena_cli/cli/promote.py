"""Make a scenario and its recording of a session: `arena promote`."""

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
from arena_cli.cli import common, options, streams
from arena_cli.reports import lines, results
from arena_cli.reports.lines import Span, line
from arena_cli.scenarios.promote import Promotion, path_for
from arena_cli.session import store
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.lines import Line, Words
    from arena_cli.scenarios.promote import Parting, Promoted


ItsSession = Annotated[str, options.session_argument(help="Promote this session.")]
Until = Annotated[
    int | None,
    typer.Option(
        "--until",
        metavar="SEQ",
        min=1,
        help="Promote only up to the end of the chain that contains event SEQ.",
    ),
]
ToFile = Annotated[
    Path | None,
    typer.Option(
        "--to", metavar="FILE", help="Write the scenario here; by default `scenarios/SESSION.yaml`."
    ),
]
_PLAIN = re.compile(r"[\w./:\\-]+")

Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def promote(
    context: typer.Context,
    session: ItsSession,
    until: Until = None,
    to: ToFile = None,
    force: Force = False,
) -> None:
    """Make a scenario and its recording from a session. Exits 1 if it plays differently now."""
    from dataclasses import replace

    loaded = common.load_workspace(context)
    stored = store.find(loaded.root, session)
    path = path_for(stored, to, loaded.root, common.current_folder())
    promotion = Promotion(stored, until, path, loaded, force=force)
    for note in promotion.notes:
        common.warn(note)
    config = common.make_config(loaded, wait_s=0)
    sync = config.durability == "fsync"
    making = promotion.make(replace(config, durability="flush"), sync=sync)
    promoted = common.run(making, hint="")
    say = lines.user_words()
    is_same = (
        promoted.result.status == "passed"
        and promoted.parting is None
        and not promoted.result.unkept
    )
    if not is_same:
        streams.show(_differences(promoted, say))
    name = promoted.name if _PLAIN.fullmatch(promoted.name) else shlex.quote(promoted.name)
    command = f"arena run {name} --replay"
    text = say(
        "wrote {scenario} and {recording}; play them: {command}",
        scenario=promoted.scenario,
        recording=promoted.recording,
        command=command,
    )
    common.print_line(text, is_data=True)
    if not is_same:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _differences(promoted: Promoted, say: Words) -> Iterator[Line]:
    """Yield the differences from the session: in full, then the first in one line."""
    width = shutil.get_terminal_size((results.WIDTH, 0)).columns
    faces = {member.id: member.profile.avatar for member in promoted.result.team.members}
    avatars = streams.encodable(faces, sys.stdout)
    yield from results.draw_result(promoted.result, say, width=width, avatars=avatars)
    unkept = say(promoted.result.unkept) if promoted.result.unkept else ""
    if first := _first(promoted.parting, say) if promoted.parting else unkept:
        yield line(Span(say("differs from the session: {what}", what=first), "failed"))
    for name, before_value, after_value in promoted.rules:
        text = say("the team has a different {field}", field=f"config.{name}")
        yield line(Span(f"{text}{say(': ')}{before_value} → {after_value}"))


def _first(parting: Parting, say: Words) -> str:
    """Describe in one line where a session first differs."""
    nobody = say("none")
    earlier, later = (escape_line(value) or nobody for value in (parting.before, parting.after))
    agent = escape_line(parting.agent or "")
    change = {
        "must": say("must reply: {who}", who=earlier),
        "asked": say("may reply: {who}", who=earlier),
        "mentions": say("{who} mentions {whom}", who=agent, whom=earlier),
        "turns": say("{count} turns", count=earlier),
        "end": say.enum(earlier),
    }[parting.matter]
    if parting.matter == "end":
        later = say.enum(later)
    location = (say("step {number}", number=parting.step), say("turn {turn}", turn=parting.turn))
    return f"{say(', ').join(location)}{say(': ')}{change} → {later}"
