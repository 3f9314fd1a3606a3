"""Play scenarios, several at a time in one process; the number does not affect the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from arena_cli.adapters.base import SessionConfig
from arena_cli.errors import DiskRefused
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.play import Keep, Playing
from arena_cli.scenarios.recording.store import RecordingStore
from arena_cli.scenarios.result import WRONG, ScenarioResult, ScenarioStatus


class Runner:
    """Plays scenarios, `jobs` at a time, and reports each result in the order of selection.

    With `fail_fast`, results after the first failure or error are not reported. `on_progress` is
    called for each scenario as it happens: when it begins (None), and when it ends, with its
    status. `detail` as in `Playing`. `shelf` has the recordings; without it agents are called, and
    nothing is kept.
    """

    def __init__(  # noqa: PLR0913  # each is an option of the command
        self,
        scenarios: Sequence[Scenario],
        config: SessionConfig,
        on_result: Callable[[ScenarioResult], None],
        *,
        on_progress: Callable[[Scenario, ScenarioStatus | None], None] = lambda *_: None,
        jobs: int = 1,
        fail_fast: bool = False,
        keep: Keep = "failed",
        detail: bool = False,
        shelf: RecordingStore | None = None,
    ) -> None:
        self._shelf = shelf
        self._scenarios = scenarios
        self._place = config
        self._on_result = on_result
        self._on_progress = on_progress
        self._jobs = jobs
        self._fail_fast = fail_fast
        self._keep = keep
        self._detail = detail
        self._begun: dict[int, Playing] = {}
        self._ended: set[int] = set()
        self._told = 0
        self._stopped = False

    async def run(self) -> None:
        """Play all scenarios.

        If cancelled, it reports the results of the interrupted scenarios, and raises. Raises
        UsageError if no session can be made.
        """
        try:
            await self._play()
        except asyncio.CancelledError:
            for index in sorted(self._begun):
                if index >= self._told and not self._stopped:
                    self._on_result(self._begun[index].result())
            raise
        finally:
            if self._shelf is not None:
                self._shelf.close(self._scenarios)

    async def _play(self) -> None:
        """Play them, one after the other or several at a time."""
        waiting = iter(range(len(self._scenarios)))
        count = min(self._jobs, len(self._scenarios))
        workers = [asyncio.create_task(self._work(waiting)) for _ in range(count)]
        try:
            for ended in asyncio.as_completed(workers):
                await ended
                if self._stopped:
                    break
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._stopped:
                for index, playing in self._begun.items():
                    if index >= self._told:
                        playing.discard()

    async def _work(self, waiting: Iterator[int]) -> None:
        for index in waiting:
            if self._stopped:
                return
            scenario = self._scenarios[index]
            self._on_progress(scenario, None)
            playing = Playing(
                scenario, self._place, self._keep, detail=self._detail, shelf=self._shelf
            )
            self._begun[index] = playing
            await playing.run()
            self._put_away(scenario, playing)
            self._on_progress(scenario, playing.status)
            self._ended.add(index)
            self._tell()

    def _put_away(self, scenario: Scenario, playing: Playing) -> None:
        """Keep the recording of a finished scenario."""
        if self._shelf is None or scenario.skip is not None:
            return
        try:
            playing.written = self._shelf.played(scenario, playing.recorded())
        except DiskRefused as error:
            playing.refuse(error.what)

    def _tell(self) -> None:
        while self._told in self._ended and not self._stopped:
            result = self._begun.pop(self._told).result()
            self._told += 1
            self._on_result(result)
            self._stopped = self._fail_fast and result.status in WRONG
