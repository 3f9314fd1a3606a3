"""`arena run`: scenarios are played, and judged by what they expect."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common, interrupt
from arena_cli.cli.common import Output
from arena_cli.cli.interrupt import Interrupted

if TYPE_CHECKING:
    from arena_cli.scenario.file import Scenario
    from arena_cli.scenario.result import RunResult, ScenarioResult
    from arena_cli.session.session import Place


def run(
    context: typer.Context,
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCENARIO]...",
            help="Files, folders, or names of files in `scenarios/`; without any, all of them.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document.")
    ] = False,
) -> None:
    """Play scenarios and check what they expect. Exits 1 where an expectation failed."""
    selected, place = _loaded(context, scenarios or [])
    results: list[ScenarioResult] = []
    output = Output()

    def tell(result: ScenarioResult) -> None:
        results.append(result)
        if not as_json:
            from arena_cli.report import results as report

            output.write("".join(f"{line}\n" for line in report.lines(result)))

    began = place.clock.monotonic()

    def conclude() -> int:
        from arena_cli.scenario import result

        seconds = place.clock.monotonic() - began
        whole = result.of_run(results, selected=len(selected), seconds=seconds)
        _print(output, whole, as_json=as_json)
        return whole.exit_code

    from arena_cli.scenario import run as player

    try:
        interrupt.run(player.run_all(selected, place, tell), hint="")
    except Interrupted:
        conclude()
        raise
    exit_code = conclude()
    output.check()
    if exit_code:
        raise typer.Exit(exit_code)


def _loaded(context: typer.Context, wanted: list[str]) -> tuple[list[Scenario], Place]:
    """The scenarios, and where they are played. Raises UsageError, FileFaults with every fault."""
    from arena_cli.scenario import file

    paths = file.select(common.root_of(context), wanted, Path.cwd())
    loaded, selected = common.scenarios_of(context, paths)
    place = common.place_of(loaded, wait_s=0)
    return selected, replace(place, durability=loaded.file.durability or "flush")


def _print(output: Output, whole: RunResult, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # a real stream here
        output.write(whole.model_dump_json(indent=2) + "\n")
        return
    from arena_cli.report import results as report

    output.write(report.summary(whole) + "\n")
