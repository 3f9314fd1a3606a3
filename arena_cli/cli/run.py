"""Play scenarios and print their results: `arena run`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arena_cli.cli import command_line, common, options, select, streams, trust
from arena_cli.cli.command_line import Command
from arena_cli.cli.common import Interrupted
from arena_cli.cli.report_files import Reports
from arena_cli.cli.streams import Screen, Stdout
from arena_cli.errors import DiskRefused, FileFaults, UsageError
from arena_cli.reports import explain as explain_module
from arena_cli.reports import results
from arena_cli.reports.explain import draw_explanation
from arena_cli.reports.lines import user_words
from arena_cli.reports.terminal import Progress, Ticker
from arena_cli.scenarios import result as result_module
from arena_cli.scenarios.result import WRONG
from arena_cli.scenarios.runner import Runner
from arena_cli.session.session import make_redactor
from arena_cli.util.text import escape_json

if TYPE_CHECKING:
    from arena_cli.adapters.base import SessionConfig
    from arena_cli.errors import Fault
    from arena_cli.reports.lines import Line
    from arena_cli.scenarios.loader import Broken
    from arena_cli.scenarios.model import Scenario
    from arena_cli.scenarios.recording.store import RecordingStore, Wanted
    from arena_cli.scenarios.result import RunResult, ScenarioResult, ScenarioStatus
    from arena_cli.util.clock import Clock
    from arena_cli.workspace.workspace import Workspace


Scenarios = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCENARIO",
        help="Play these files, folders, or names of files in `scenarios/`; by default all "
        "of them.",
        autocompletion=command_line.complete_scenarios,
    ),
]
Tags = Annotated[
    list[str] | None,
    options.selection_option("--tag", "-t", help="Run only scenarios with this tag; repeatable."),
]
WithWords = Annotated[
    str | None,
    options.selection_option(
        "-k",
        metavar="WORDS",
        help="Run only scenarios whose title, file or case matches these words (`a and "
        "not b or c`).",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Play N scenarios at a time.")
]
FailFast = Annotated[
    bool,
    typer.Option("--fail-fast", "-x", help="Stop after the first scenario that does not pass."),
]
Kept = Annotated[
    Literal["failed", "all", "none"],
    typer.Option("--keep", help="Keep these sessions for inspection."),
]
Explain = Annotated[
    bool,
    options.output_option(
        "--explain",
        help="Show for each step whom each `@` mentions, and why each agent was asked or "
        "passed over.",
    ),
]
AsList = Annotated[
    bool,
    options.selection_option(
        "--list", help="List the scenarios that would be played, and play none."
    ),
]
ResultAsJson = Annotated[
    bool, options.output_option("--json", help="Print the result as one JSON document.")
]
Detail = Annotated[
    bool, options.output_option("--detail", help="With --json, include every reply with its text.")
]
Replay = Annotated[
    bool,
    options.recordings_option(
        "--replay",
        help="Answer from the recordings and call no agent; the default where `CI` is "
        "set, for each scenario that has one.",
    ),
]
Live = Annotated[
    bool, options.recordings_option("--live", help="Call the agents even if there are recordings.")
]
Record = Annotated[
    Literal["all", "missing"] | None,
    options.recordings_option(
        "--record",
        metavar="[=missing]",
        help="Call the agents and record their input and answers; `--record=missing` "
        "records only what no recording has, and replays the rest.",
    ),
]
Update = Annotated[
    bool,
    options.recordings_option(
        "--update", help="Replay, and write differences into the recordings and snapshots."
    ),
]
WhatOfDrift = Annotated[
    Literal["fail", "warn", "ignore"],
    options.recordings_option(
        "--drift", help="Fail, warn or do nothing if a replay differs from its recording."
    ),
]
JUnit = Annotated[
    Path | None,
    options.output_option("--junit", metavar="FILE", help="Write the result as JUnit XML."),
]
Html = Annotated[
    Path | None,
    options.output_option("--html", metavar="FILE", help="Write the result as one page of HTML."),
]
GitHub = Annotated[
    bool,
    options.output_option(
        "--github",
        help="Annotate the failing lines in GitHub Actions, and add a summary to the step.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Play nothing and exit with 2 if a file has an error or a warning."
    ),
]


AllowOutside = Annotated[
    bool,
    typer.Option(
        "--allow-outside",
        help="Read files outside the workspace that scenarios, profiles or links refer to.",
    ),
]


class RunCommand(Command):
    """The command `arena run`, which accepts `--record` without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the special cases of this command."""
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
    detail: Detail = False,
    junit: JUnit = None,
    html: Html = None,
    github: GitHub = False,
    strict: Strict = False,
) -> None:
    """Play scenarios and check their expectations. Exits 1 if an expectation fails."""
    context.obj.allow_outside |= allow_outside
    if detail and not as_json:
        raise UsageError("--detail was given without --json", "add --json, or use --html FILE")
    mode = _choose_mode(replay=replay, live=live, record=record, update=update)
    chosen = select.select(context, scenarios or [], tag or [], words)
    if as_list:
        _list_chosen(chosen, as_json=as_json, strict=strict)
        return

    sync = chosen.workspace.file.durability == "fsync"
    chosen, shelf = select.with_recordings(chosen, mode, in_ci=_in_ci(), drift=drift, sync=sync)
    selected = chosen.scenarios
    config = _place(chosen.workspace, selected, shelf)
    reports = Reports(config.workspace, os.environ, junit=junit, html=html, github=github)
    teller = Teller(
        len(selected) + len(chosen.broken),
        config.clock,
        reports,
        as_json=as_json,
        explain=explain,
        detail=detail,
        warnings=chosen.warnings,
    )
    _report_faults(chosen, teller, strict=strict)
    runner = Runner(
        [] if chosen.broken and fail_fast else selected,
        config,
        teller.result,
        on_progress=teller.progress,
        jobs=jobs,
        fail_fast=fail_fast,
        keep=keep,
        detail=explain or detail or reports.detail,
        shelf=shelf,
    )
    _play(runner, teller, config)


def _list_chosen(chosen: select.ScenarioSelection, *, as_json: bool, strict: bool) -> None:
    common.warn_of_faults(chosen.warnings)
    _list(chosen.scenarios, as_json=as_json)
    if chosen.broken:
        raise FileFaults(chosen.faults)
    chosen.refuse_faults(strict=strict)


def _report_faults(chosen: select.ScenarioSelection, teller: Teller, *, strict: bool) -> None:
    """Report warnings and broken files. Raises FileFaults if nothing is to be played."""
    try:
        chosen.refuse_faults(strict=strict)
    except FileFaults:
        teller.refuse(chosen.broken)
        raise
    common.warn_of_faults(chosen.warnings)
    for file in chosen.broken:
        teller.unplayed(file)


def _play(runner: Runner, teller: Teller, config: SessionConfig) -> None:
    """Play the scenarios and print the end; exit with the code of the run."""
    try:
        common.run(runner.run(), hint="")
    except Interrupted:
        teller.conclude(interrupted=True)
        raise
    except Exception as error:
        teller.broke(make_redactor(config).text_or_nothing(str(error)))
        raise
    finally:
        teller.close()
    exit_code = teller.conclude()
    teller.out.check()
    if exit_code:
        raise typer.Exit(exit_code)


def _choose_mode(*, replay: bool, live: bool, record: str | None, update: bool) -> Wanted | None:
    """Return the mode that the options select, None without one. Raises UsageError."""
    modes: dict[str, Wanted] = {}
    if replay:
        modes["--replay"] = "replay"
    if live:
        modes["--live"] = "live"
    if record is not None:
        modes["--record"] = "missing" if record == "missing" else "record"
    if update:
        modes["--update"] = "update"
    if len(modes) > 1:
        raise UsageError(f"{' and '.join(modes)} were given", "give one of them")
    return next(iter(modes.values()), None)


def _in_ci() -> bool:
    """Return True in a CI job, by the variable that all of them set."""
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no")


def _place(loaded: Workspace, selected: list[Scenario], shelf: RecordingStore) -> SessionConfig:
    """Return the configuration to play in, if the user trusts all that is called.

    Raises UsageError otherwise. A replay calls nothing. In a CI job, which plays the scenarios that
    it is there to check, their own functions in checks need no further consent.
    """
    played = [scenario for scenario in selected if scenario.skip is None]
    live = [scenario for scenario in played if shelf.calls_agents(scenario)]
    unguarded = [scenario for scenario in live if shelf.guard_of(scenario) is None]
    trust.require_scenarios(loaded, unguarded, unguarded if _in_ci() else played)
    config = common.make_config(loaded, wait_s=0, connects=bool(live))
    common.archive_old_sessions(loaded, config)
    return replace(config, durability=loaded.file.durability or "flush")


def _list(selected: list[Scenario], *, as_json: bool) -> None:
    if as_json:
        common.print_json(
            [
                {
                    "scenario": scenario.file.scenario,
                    "case": scenario.case.id if scenario.case else None,
                    "file": scenario.shown,
                    "tags": scenario.file.tags,
                    "steps": len(scenario.file.steps),
                    "skip": scenario.skip,
                    "xfail": scenario.xfail,
                }
                for scenario in selected
            ]
        )
        return
    streams.show(results.draw_listing(scenario, user_words()) for scenario in selected)


class Teller:
    """A printer of results: each of `count` scenarios as it ends, then the end of the run.

    It also writes the `reports`. If stderr is a terminal, it shows the progress there until
    `close`.
    """

    def __init__(
        self,
        count: int,
        clock: Clock,
        reports: Reports,
        *,
        as_json: bool,
        explain: bool,
        detail: bool,
        warnings: Sequence[Fault] = (),
    ) -> None:

        self.out = Stdout()
        self._count = count
        self._clock = clock
        self._reports = reports
        self._began = clock.monotonic()
        self._results: list[ScenarioResult] = []
        self._warnings = warnings
        self._refused = False
        self._explain = explain
        self._detail = detail
        self._say = user_words()
        self._screen = None if as_json else Screen(self.out, self._say)
        self._progress: Progress | None = None
        self._ticker: Ticker | None = None
        if not os.environ.get("NO_COLOR") and streams.is_terminal(sys.stderr):
            self._progress = Progress(self._say, sys.stderr, count)
            self._ticker = Ticker(self._progress.tick)

    def progress(self, scenario: Scenario, status: ScenarioStatus | None) -> None:
        """Show that a scenario begins, or has ended; its result may follow later."""
        if self._progress and status is None:
            self._progress.begins(id(scenario), scenario.title)
        elif self._progress:
            self._progress.ends(id(scenario), wrong=status in WRONG)

    def result(self, result: ScenarioResult) -> None:
        """Print the result of a scenario, in the order of selection."""
        self._results.append(result_module.list_replies(result) if self._detail else result)
        if self._screen is None:
            return

        width, avatars = results.WIDTH, {}
        if result.status != "passed" and result.team:  # else there is nothing that depends on them
            width = shutil.get_terminal_size((width, 0)).columns
            faces = {member.id: member.profile.avatar for member in result.team.members}
            avatars = streams.encodable(faces, sys.stdout)
        self._show(results.draw_result(result, self._say, width=width, avatars=avatars))
        if self._explain:
            self._show(draw_explanation(result, self._say))

    def unplayed(self, broken: Broken) -> None:
        """Print the result of a file whose scenarios cannot be played."""
        if self._progress:
            self._progress.begins(id(broken), broken.title)
            self._progress.ends(id(broken), wrong=True)
        self.result(
            result_module.unplayed(broken.title, broken.shown, broken.tags or (), broken.faults)
        )

    def refuse(self, broken: Iterable[Broken]) -> None:
        """End a run in which nothing is played: write the JSON document and the reports only."""
        self._refused = True
        screen, self._screen = self._screen, None
        for file in broken:
            self.unplayed(file)
        self._end(self._whole(), prints=screen is None)

    def conclude(self, *, interrupted: bool = False) -> int:
        """Print how the run ended, and write the reports; return the exit code."""
        run_result = self._whole(interrupted=interrupted)
        self._end(run_result)
        return run_result.exit_code

    def _end(self, run_result: RunResult, *, prints: bool = True) -> None:
        self.close()
        if self._screen:
            self._show(results.closing(run_result, self._say))
        elif prints:
            streams.speak_utf8()
            self.out.write(f"{self._document(run_result)}\n")
        self._reports.write(run_result)

    def broke(self, error: str) -> None:
        """Write the reports of a run that an error ended: the results so far, and the error."""
        self.close()
        try:
            self._reports.write(self._whole(), error)
        except DiskRefused as refused:
            common.warn(f"arena: {refused}")

    def _whole(self, *, interrupted: bool = False) -> RunResult:
        return result_module.of_run(
            self._results,
            selected=self._count,
            seconds=self._clock.monotonic() - self._began,
            interrupted=interrupted,
            refused=self._refused,
            warnings=self._warnings,
        )

    def _document(self, run_result: RunResult) -> str:
        """Return the result as JSON, escaped so that CI runners find no `##[...]` command in it."""
        text = run_result.model_dump_json(indent=2)
        if not self._explain:
            return escape_json(text)
        document = json.loads(text)
        for scenario, result in zip(document["scenarios"], run_result.scenarios, strict=True):
            explained = explain_module.document(result)
            for step, reasons in zip(scenario["steps"], explained, strict=True):
                step["reasons"] = reasons
        return escape_json(json.dumps(document, ensure_ascii=False, indent=2))

    def close(self) -> None:
        """Remove the progress line."""
        if self._ticker:
            self._ticker.stop()
            self._ticker = None
        if self._progress:
            self._progress.close()

    def _show(self, lines: Iterable[Line]) -> None:
        assert self._screen
        with self._progress.aside() if self._progress else contextlib.nullcontext():
            self._screen.show(lines)
