"""`arena run`: scenarios are played, and judged by what they expect."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from arena_cli.cli import common, complete, interrupt
from arena_cli.cli.interrupt import Interrupted
from arena_cli.cli.screen import Screen
from arena_cli.cli.streams import Stdout
from arena_cli.ground.errors import FileFaults, UsageError

if TYPE_CHECKING:
    from arena_cli.scenario.load.scenario import Scenario
    from arena_cli.scenario.recording.shelf import Shelf, Wanted
    from arena_cli.session.session import Place
    from arena_cli.team.workspace import Workspace


Scenarios = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SCENARIO]...",
        help="Files, folders, or names of files in `scenarios/`; without any, all of them.",
        autocompletion=complete.complete_scenarios,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", "-t", help="Only those with this tag; repeat for more."),
]
WithWords = Annotated[
    str | None,
    typer.Option(
        "-k",
        metavar="WORDS",
        help="Only those whose title, file or case has these words (`a and not b or c`).",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, metavar="N", help="How many to play at a time.")
]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", "-x", help="Stop after the first that does not pass.")
]
Kept = Annotated[
    Literal["failed", "all", "none"],
    typer.Option("--keep", help="Which sessions are kept to look at."),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Say of each step whom each `@` named, and why who was asked or passed over.",
    ),
]
AsList = Annotated[
    bool, typer.Option("--list", help="List what would be played, and play nothing.")
]
ResultAsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document.")
]
Replay = Annotated[
    bool,
    typer.Option(
        "--replay",
        help="Answer from the recordings, and call no agent; the default of each scenario that has "
        "one where `CI` is set.",
    ),
]
Live = Annotated[bool, typer.Option("--live", help="Call the agents, recordings or not.")]
Record = Annotated[
    Literal["all", "missing"] | None,
    typer.Option(
        "--record",
        metavar="[=missing]",
        help="Call the agents and record what they are asked and answer; `--record=missing` only "
        "what no recording has, the rest is replayed.",
    ),
]
Update = Annotated[
    bool,
    typer.Option(
        "--update",
        help="Replay, and write what differs from the recordings, and snapshots, into them.",
    ),
]
WhatOfDrift = Annotated[
    Literal["fail", "warn", "ignore"],
    typer.Option("--drift", help="What it means when a replay differs from its recording."),
]
JUnit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the result as JUnit XML.")
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the result as one page of HTML."),
]
GitHub = Annotated[
    bool,
    typer.Option(
        "--github",
        help="Annotate the lines of what went wrong, and add a summary to the step, in GitHub "
        "Actions.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Play nothing and exit with 2 where a file has a fault, or arena warns of one.",
    ),
]


AllowOutside = Annotated[
    bool,
    typer.Option(
        "--allow-outside",
        help="Read files outside the workspace that scenarios, profiles or links name.",
    ),
]


class Command(TyperCommand):
    """`arena run`, whose `--record` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, as every command does."""
        return super().parse_args(ctx, ["--record=all" if a == "--record" else a for a in args])


def run(
    context: typer.Context,
    scenarios: Scenarios = None,
    tag: Tags = None,
    words: WithWords = None,
    jobs: Jobs = 1,
    fail_fast: FailFast = False,
    keep: Kept = "failed",
    explain: Explain = False,
    as_list: AsList = False,
    replay: Replay = False,
    live: Live = False,
    record: Record = None,
    update: Update = False,
    drift: WhatOfDrift = "fail",
    allow_outside: AllowOutside = False,
    as_json: ResultAsJson = False,
    junit: JUnit = None,
    html: Html = None,
    github: GitHub = False,
    strict: Strict = False,
) -> None:
    """Play scenarios and check what they expect. Exits 1 where an expectation failed."""
    from arena_cli.cli import selection

    context.obj.allow_outside |= allow_outside
    wanted = _wanted(replay=replay, live=live, record=record, update=update)
    chosen = selection.select(context, scenarios or [], tag or [], words)
    if as_list:
        common.warn_of_faults(chosen.warnings)
        _list(chosen.scenarios, as_json=as_json)
        if chosen.broken:
            raise FileFaults(chosen.faults)
        chosen.refuse_faults(strict=strict)
        return

    sync = chosen.workspace.file.durability == "fsync"
    chosen, shelf = selection.with_recordings(
        chosen, wanted, in_ci=_in_ci(), drift=drift, sync=sync
    )
    selected = chosen.scenarios
    place = _place(chosen.workspace, selected, shelf)

    from arena_cli.cli.reports import Reports
    from arena_cli.cli.telling import Teller

    reports = Reports(place.workspace, os.environ, junit=junit, html=html, github=github)
    teller = Teller(
        len(selected) + len(chosen.broken),
        place.clock,
        reports,
        as_json=as_json,
        explain=explain,
        warnings=chosen.warnings,
    )
    try:
        chosen.refuse_faults(strict=strict)
    except FileFaults:
        teller.refuse(chosen.broken)
        raise
    common.warn_of_faults(chosen.warnings)
    for one in chosen.broken:
        teller.unplayed(one)
    if chosen.broken and fail_fast:
        selected = []

    from arena_cli.scenario.play.run import Runner
    from arena_cli.session.session import redactor_of

    runner = Runner(
        selected,
        place,
        teller.result,
        on_progress=teller.progress,
        jobs=jobs,
        fail_fast=fail_fast,
        keep=keep,
        detail=explain or reports.detail,
        shelf=shelf,
    )
    try:
        interrupt.run(runner.run(), hint="")
    except Interrupted:
        teller.conclude(interrupted=True)
        raise
    except Exception as error:
        teller.broke(redactor_of(place).text_or_nothing(str(error)))
        raise
    finally:
        teller.close()
    exit_code = teller.conclude()
    teller.out.check()
    if exit_code:
        raise typer.Exit(exit_code)


def _wanted(*, replay: bool, live: bool, record: str | None, update: bool) -> Wanted | None:
    """What is asked for, None where nothing is. Raises UsageError."""
    given: dict[str, Wanted] = {}
    if replay:
        given["--replay"] = "replay"
    if live:
        given["--live"] = "live"
    if record is not None:
        given["--record"] = "missing" if record == "missing" else "record"
    if update:
        given["--update"] = "update"
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} were given", "give one of them")
    return next(iter(given.values()), None)


def _in_ci() -> bool:
    """Whether this is a CI job, by the variable that they all set."""
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no")


def _place(loaded: Workspace, selected: list[Scenario], shelf: Shelf) -> Place:
    """Return where they are played, once the user trusts what they call. Raises UsageError.

    A replay calls nothing. In a CI job, which plays what it was told to check, its own functions
    in checks need no further consent.
    """
    from arena_cli.cli import trust

    played = [scenario for scenario in selected if scenario.skip is None]
    live = [scenario for scenario in played if shelf.calls_agents(scenario)]
    unguarded = [scenario for scenario in live if shelf.guard_of(scenario) is None]
    trust.require_scenarios(loaded, unguarded, unguarded if _in_ci() else played)
    place = common.place_of(loaded, wait_s=0, connects=bool(live))
    return replace(place, durability=loaded.file.durability or "flush")


def _list(selected: list[Scenario], *, as_json: bool) -> None:
    if as_json:
        common.say_json(
            [
                {
                    "scenario": one.file.scenario,
                    "case": one.case.id if one.case else None,
                    "file": one.shown,
                    "tags": one.file.tags,
                    "steps": len(one.file.steps),
                    "skip": one.skip,
                    "xfail": one.xfail,
                }
                for one in selected
            ]
        )
        return
    from arena_cli.report import overview, words

    out, say = Stdout(), words.here()
    Screen(out, say).show([overview.listed(one, say) for one in selected])
    out.check()
