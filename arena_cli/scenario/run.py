"""Plays one scenario in a session of its own, and judges what came of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence

from arena_cli.ground.errors import ArenaError, UsageError
from arena_cli.ground.yamlfile import Part
from arena_cli.scenario import conversation, judge
from arena_cli.scenario.file import Scenario
from arena_cli.scenario.result import CheckResult, ScenarioResult, ScenarioStatus, StepResult
from arena_cli.session import store
from arena_cli.session.session import Place, Session
from arena_cli.transcript.events import Event, SessionEvent


async def run_all(
    scenarios: Sequence[Scenario], place: Place, on_result: Callable[[ScenarioResult], None]
) -> None:
    """Play scenarios one after the other; each result is told at once.

    Cancelled, it tells what came of the scenario that was cut short, and raises.
    """
    for scenario in scenarios:
        playing = Playing(scenario, place)
        try:
            await playing.run()
        except asyncio.CancelledError:
            on_result(playing.result())
            raise
        on_result(playing.result())


class Playing:
    """One scenario while it is played. `result` tells how far it came."""

    def __init__(self, scenario: Scenario, place: Place) -> None:
        self._scenario = scenario
        self._place = place
        self._name: str | None = None
        self._events: list[Event] = []
        self._steps: list[StepResult] = []
        self._checks: list[CheckResult] = []
        self._error: str | None = None
        self._finished = False
        self._began = place.clock.monotonic()
        self._seconds = 0.0

    async def run(self) -> None:
        """Play it to its end, or to the step that stops it; the session goes if all held.

        Raises UsageError where no session can be made.
        """
        try:
            with Session(
                self._place, None, self._scenario.team, on_event=self._events.append
            ) as session:
                self._name = session.name
                await self._play(session)
        except UsageError:
            raise
        except ArenaError as error:
            self._error = str(error)
        finally:
            self._seconds = self._place.clock.monotonic() - self._began
        self._finished = True
        if self._name and self._status() == "passed":
            shutil.rmtree(store.sessions_of(self._place.workspace) / self._name, ignore_errors=True)

    def result(self) -> ScenarioResult:
        """What came of it so far."""
        status = self._status()
        steps = self._steps
        if status == "passed":  # nobody looks at its timeline, and a long run has many
            steps = [step.model_copy(update={"events": []}) for step in steps]
        opening = next((e for e in self._events if isinstance(e, SessionEvent)), None)
        return ScenarioResult(
            scenario=self._scenario.file.scenario,
            file=self._scenario.shown,
            status=status,
            seconds=round(self._seconds, 3),
            steps=steps,
            checks=self._checks,
            session=None if status == "passed" or opening is None else self._name,
            error=self._error,
            opening=opening,
        )

    async def _play(self, session: Session) -> None:
        steps = self._scenario.file.steps
        for index, message in enumerate(self._scenario.messages):
            first = len(self._events)
            await session.send(message)
            step = self._judged(index, self._events[first:])
            self._steps.append(step)
            if step.status != "passed" and steps[index].on_fail == "stop":
                self._steps += (self._not_run(left) for left in range(index + 1, len(steps)))
                return
        told = conversation.of(self._events)
        whole = Part(self._scenario.document, ("expect",))
        self._checks = judge.checked(self._scenario.file.expect, told, whole)

    def _judged(self, index: int, events: list[Event]) -> StepResult:
        file = self._scenario.file
        step = file.steps[index]
        told = conversation.of(events)
        part = Part(self._scenario.document, ("steps", index, "expect"))
        checks = judge.checked(step.expect, told, part)
        failures = judge.unnamed(told, step.expect, file.expect)
        return StepResult(
            number=index + 1,
            name=step.step,
            line=self._line_of(index),
            status=judge.status_of(checks, failures),
            end=told.end,
            checks=checks,
            failures=failures,
            events=events,
        )

    def _not_run(self, index: int) -> StepResult:
        name = self._scenario.file.steps[index].step
        return StepResult(number=index + 1, name=name, line=self._line_of(index), status="not_run")

    def _line_of(self, index: int) -> int:
        return self._scenario.document.line(("steps", index))

    def _status(self) -> ScenarioStatus:
        """What an expectation says of a chain in which an agent failed is no failed expectation."""
        if not self._finished:
            return "interrupted"
        failures = [failure for step in self._steps for failure in step.failures]
        found = {step.status for step in self._steps}
        found.add(judge.status_of(self._checks, failures))
        if "failed" in found:
            return "failed"
        return "error" if self._error or "error" in found else "passed"
