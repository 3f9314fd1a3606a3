"""What `arena run` prints: each result as it comes, how far it is, and how the run ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from arena_cli.cli import common, streams
from arena_cli.cli.screen import Screen
from arena_cli.cli.streams import Stdout
from arena_cli.ground.errors import DiskRefused
from arena_cli.ground.text import shown_json

if TYPE_CHECKING:
    from arena_cli.cli.reports import Reports
    from arena_cli.ground.clock import Clock
    from arena_cli.ground.errors import Fault
    from arena_cli.report.progress import Progress
    from arena_cli.report.spans import Line
    from arena_cli.report.terminal import Ticker
    from arena_cli.scenario.load.file import Broken
    from arena_cli.scenario.load.scenario import Scenario
    from arena_cli.scenario.result import RunResult, ScenarioResult, ScenarioStatus


class Teller:
    """Prints each result of `count` scenarios as it comes, and how the run ended; so do `reports`.

    Where stderr is a terminal, a line there tells how far it is, until `close`.
    """

    def __init__(
        self,
        count: int,
        clock: Clock,
        reports: Reports,
        *,
        as_json: bool,
        explain: bool,
        warnings: Sequence[Fault] = (),
    ) -> None:
        from arena_cli.report import words

        self.out = Stdout()
        self._count = count
        self._clock = clock
        self._reports = reports
        self._began = clock.monotonic()
        self._results: list[ScenarioResult] = []
        self._warnings = warnings
        self._refused = False
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
        if result.status != "passed" and result.team:  # else there is nothing that depends on them
            width = shutil.get_terminal_size((width, 0)).columns
            faces = {member.id: member.profile.avatar for member in result.team.members}
            avatars = streams.encodable(faces, sys.stdout)
        self._show(results.drawn(result, self._say, width=width, avatars=avatars))
        if self._explain:
            from arena_cli.report import explain

            self._show(explain.drawn(result, self._say))

    def unplayed(self, broken: Broken) -> None:
        """Tell of a file whose scenarios cannot be played."""
        from arena_cli.scenario import result

        if self._progress:
            self._progress.begins(id(broken), broken.title)
            self._progress.ends(id(broken), wrong=True)
        self.result(result.unplayed(broken.title, broken.shown, broken.tags or (), broken.faults))

    def refuse(self, broken: Iterable[Broken]) -> None:
        """Nothing is played: only documents and reports tell of it, stderr has the rest."""
        self._refused = True
        screen, self._screen = self._screen, None
        for one in broken:
            self.unplayed(one)
        whole = self._whole()
        self.close()
        if screen is None:
            streams.speak_utf8()
            self.out.write(f"{self._document(whole)}\n")
        self._reports.write(whole)

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

    def broke(self, error: str) -> None:
        """Write the reports of a run that an error ended: the results until then, and the error."""
        self.close()
        try:
            self._reports.write(self._whole(), error)
        except DiskRefused as refused:
            common.warn(f"arena: {refused}")

    def _whole(self, *, interrupted: bool = False) -> RunResult:
        from arena_cli.scenario import result

        return result.of_run(
            self._results,
            selected=self._count,
            seconds=self._clock.monotonic() - self._began,
            interrupted=interrupted,
            refused=self._refused,
            warnings=self._warnings,
        )

    def _document(self, whole: RunResult) -> str:
        """The result as JSON, in which a runner of CI finds no command (`##[...]`)."""
        text = whole.model_dump_json(indent=2)
        if self._explain:
            text = self._explained(text, whole)
        return shown_json(text)

    def _explained(self, text: str, whole: RunResult) -> str:
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
