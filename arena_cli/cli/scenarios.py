"""`arena run`: scenarios are played, and judged by what they expect."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from arena_cli.cli import common, complete, interrupt, streams
from arena_cli.cli.interrupt import Interrupted
from arena_cli.cli.screen import Screen
from arena_cli.cli.streams import Stdout
from arena_cli.ground import nearest
from arena_cli.ground.errors import DiskRefused, UsageError

if TYPE_CHECKING:
    from arena_cli.cli.reports import Reports
    from arena_cli.ground.clock import Clock
    from arena_cli.report.progress import Progress
    from arena_cli.report.spans import Line
    from arena_cli.report.terminal import Ticker
    from arena_cli.scenario.load.scenario import Scenario
    from arena_cli.scenario.recording.shelf import Wanted
    from arena_cli.scenario.result import RunResult, ScenarioResult, ScenarioStatus
    from arena_cli.session.session import Place


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
    as_json: ResultAsJson = False,
    junit: JUnit = None,
    html: Html = None,
    github: GitHub = False,
) -> None:
    """Play scenarios and check what they expect. Exits 1 where an expectation failed."""
    wanted = _wanted(replay=replay, live=live, record=record, update=update)
    selected, place = _selected(context, scenarios or [], tag or [], words)
    if as_list:
        _list(selected, as_json=as_json)
        return

    from arena_cli.scenario.recording.shelf import Shelf

    shelf = Shelf(selected, wanted, in_ci=_in_ci(), drift=drift)

    from arena_cli.cli.reports import Reports

    reports = Reports(place.workspace, os.environ, junit=junit, html=html, github=github)
    teller = _Teller(len(selected), place.clock, reports, as_json=as_json, explain=explain)

    from arena_cli.scenario.play.run import Runner

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
        teller.broke(error)
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


def _selected(
    context: typer.Context, wanted: list[str], tags: list[str], words: str | None
) -> tuple[list[Scenario], Place]:
    """The scenarios, and where they are played. Raises UsageError, FileFaults with every fault."""
    from arena_cli.scenario.load import select

    meant = select.by_words(words) if words is not None else None
    files = select.select(common.root_of(context), wanted, common.here())
    loaded, found = common.scenarios_of(context, files)
    if not found:
        raise select.only_parts(files, loaded.root)
    known = {tag for scenario in found for tag in scenario.file.tags}
    for tag in tags:
        if tag not in known:
            raise UsageError(f"no scenario has the tag `{tag}`", nearest.hint(tag, sorted(known)))
    selected = [
        scenario
        for scenario in found
        if (not tags or not {*tags}.isdisjoint(scenario.file.tags))
        and (meant is None or meant(f"{scenario.title} {scenario.path.name}"))
    ]
    if not selected:
        asked = f"-k {words!r}" if words is not None else "these files"
        raise UsageError(
            f"no scenario is selected: none of {len(found)} fits {asked}",
            "`arena run --list` shows those there are",
        )
    place = common.place_of(loaded, wait_s=0)
    return selected, replace(place, durability=loaded.file.durability or "flush")


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


class _Teller:
    """Prints each result of `count` scenarios as it comes, and how the run ended; so do `reports`.

    Where stderr is a terminal, a line there tells how far it is, until `close`.
    """

    def __init__(
        self, count: int, clock: Clock, reports: Reports, *, as_json: bool, explain: bool
    ) -> None:
        from arena_cli.report import words

        self.out = Stdout()
        self._count = count
        self._clock = clock
        self._reports = reports
        self._began = clock.monotonic()
        self._results: list[ScenarioResult] = []
        self._explain = explain
        self._say = words.here()
        self._screen = None if as_json else Screen(self.out, self._say)
        self._progress: Progress | None = None
        self._ticker: Ticker | None = None
        if not os.environ.get("NO_COLOR") and streams.is_terminal(sys.stderr):
            from arena_cli.report.progress import Progress
            from arena_cli.report.terminal import Ticker

            self._progress = Progress(self._say, sys.stderr, count)
            self._ticker = Ticker(self._progress.tick)

    def progress(self, scenario: Scenario, status: ScenarioStatus | None) -> None:
        """A scenario begins, or is over; its result may come later."""
        if self._progress and status is None:
            self._progress.begins(id(scenario), scenario.title)
        elif self._progress:
            from arena_cli.scenario.result import WRONG

            self._progress.ends(id(scenario), wrong=status in WRONG)

    def result(self, result: ScenarioResult) -> None:
        """What came of a scenario, in the order of selection."""
        self._results.append(result)
        if self._screen is None:
            return
        from arena_cli.report import results

        width, avatars = results.WIDTH, {}
        if result.status != "passed":  # else there is nothing that depends on them
            width = shutil.get_terminal_size((width, 0)).columns
            faces = {member.id: member.profile.avatar for member in result.team.members}
            avatars = streams.encodable(faces, sys.stdout)
        self._show(results.drawn(result, self._say, width=width, avatars=avatars))
        if self._explain:
            from arena_cli.report import explain

            self._show(explain.drawn(result, self._say))

    def conclude(self, *, interrupted: bool = False) -> int:
        """Print how the run ended, and write the reports; its exit code."""
        self.close()
        whole = self._whole(interrupted=interrupted)
        if self._screen is None:
            streams.speak_utf8()
            self.out.write(f"{self._document(whole)}\n")
        else:
            from arena_cli.report import overview

            self._show(overview.closing(whole, self._say))
        self._reports.write(whole)
        return whole.exit_code

    def broke(self, error: Exception) -> None:
        """An error ends the run: the reports tell what came of it until then, and of the error."""
        self.close()
        try:
            self._reports.write(self._whole(), str(error))
        except DiskRefused as refused:
            common.warn(f"arena: {refused}")

    def _whole(self, *, interrupted: bool = False) -> RunResult:
        from arena_cli.scenario import result

        return result.of_run(
            self._results,
            selected=self._count,
            seconds=self._clock.monotonic() - self._began,
            interrupted=interrupted,
        )

    def _document(self, whole: RunResult) -> str:
        """The result as JSON."""
        text = whole.model_dump_json(indent=2)
        if not self._explain:
            return text
        from arena_cli.report import reasons

        document = json.loads(text)
        for one, result in zip(document["scenarios"], whole.scenarios, strict=True):
            for step, told in zip(one["steps"], reasons.document(result), strict=True):
                step["reasons"] = told
        return json.dumps(document, ensure_ascii=False, indent=2)

    def close(self) -> None:
        """Take the line away."""
        if self._ticker:
            self._ticker.stop()
            self._ticker = None
        if self._progress:
            self._progress.close()

    def _show(self, lines: Iterable[Line]) -> None:
        assert self._screen
        with self._progress.aside() if self._progress else contextlib.nullcontext():
            self._screen.show(lines)
