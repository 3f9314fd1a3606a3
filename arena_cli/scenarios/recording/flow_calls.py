"""Record and replay what the steps of flows gave, and find the steps that differ in a replay.

A step gets the first unused record of its name that did the same; else the next unused one, which
is drift; if none is left, it is a miss. A replay carries out no step: no program, no request, no
agent. Whether a step runs (`when`, rules, blocks) is decided again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from arena_cli.scenarios.recording.model import CaseRecord, RecordedStep
from arena_cli.scenarios.result import FLOW_STEP, Drift
from arena_cli.transcript.events import Event

WORK, ANSWER = "work", "answer"
REFLECTED = "reflected"

_ENDS = ("step_finished", REFLECTED)
_LONGEST_CUT_S = 5.0


class NoRecord(Exception):
    """A step of a replay has no recorded result."""


@dataclass
class TapedStep:
    """A step of a flow that was carried out: what it did, and the record that answered it."""

    step: int | None
    name: str
    work: Mapping[str, Any]
    record: RecordedStep | None = None
    is_missing: bool = False
    answer: Any = None


class TapedSteps:
    """The steps of the flows of one scenario as it is played."""

    def __init__(self, recorded: CaseRecord | None) -> None:
        self.calls: list[TapedStep] = []
        self._unused = list(recorded.flow_steps) if recorded else []
        self._last: dict[str, TapedStep] = {}
        self._ended: dict[tuple[str | None, int], TapedStep] = {}

    @property
    def unused(self) -> list[RecordedStep]:
        """The records of steps that did not run."""
        return self._unused

    def begin(self) -> None:
        """Begin another flow."""
        self._last.clear()

    def hear(self, session: str | None, event: Event) -> None:
        """Note which attempt an event ends, so that its record has what the step did."""
        if event.type in _ENDS:
            call = self._last.pop(getattr(event, "step", REFLECTED), None)
            if call is not None:
                self._ended[session, event.seq] = call

    async def answer(
        self,
        name: str,
        step: int | None,
        work: Mapping[str, Any],
        carry_out: Callable[[], Awaitable[Any]],
        *,
        may_call: Callable[[], bool],
    ) -> RecordedStep | Any:
        """Return the record of a step, else what it gives if it is carried out now.

        Raises NoRecord, and what the work raises.
        """
        call = TapedStep(step, name, work)
        call.record = self._take(call)
        self.calls.append(call)
        self._last[name] = call
        if call.record is not None:
            if call.record.line.get("status") == "cancelled":
                await asyncio.sleep(_LONGEST_CUT_S)  # another step failed meanwhile
            return call.record
        if not may_call():
            call.is_missing = True
            raise NoRecord
        call.answer = await carry_out()
        return call.answer

    def _take(self, call: TapedStep) -> RecordedStep | None:
        records = [record for record in self._unused if record[:2] == (call.step, call.name)]
        same = [record for record in records if record.work == call.work]
        found = next(iter([*same, *records]), None)
        if found is not None:
            self._unused.remove(found)
        return found

    def find_work(self, session: str | None, event: Event) -> dict[str, Any]:
        """Return what a recording keeps of a step, in addition to the event of its end."""
        call = self._ended.get((session, event.seq))
        if call is None:
            return {}
        fields: dict[str, Any] = {WORK: call.work}
        if event.type == REFLECTED:
            record = call.record
            fields[ANSWER] = call.answer if record is None else record.line.get(ANSWER)
        return fields


def read_step(step: int | None, line: Mapping[str, Any]) -> RecordedStep:
    """Return the record in the line of the end of a step."""
    return RecordedStep(step, str(line.get("step", REFLECTED)), line[WORK], line)


def order_lines(events: list[Event]) -> list[Event]:
    """Return the events of a step of a scenario with those of each step of its flow together.

    Steps run side by side: their order differs from run to run. Later attempts are left out: a
    replay has the last one only.
    """
    events = [
        event
        for event in events
        if event.type != "step_started" or getattr(event, "attempt", 1) == 1
    ]
    places = [index for index, event in enumerate(events) if find_step(event) is not None]
    by_step = sorted((events[index] for index in places), key=lambda event: find_step(event) or "")
    ordered = list(events)
    for index, event in zip(places, by_step, strict=True):
        ordered[index] = event
    return ordered


def find_step(event: Event) -> str | None:
    """Return the step of a flow that an event is about; None if it is about none."""
    step = getattr(event, "step", None)
    return step if isinstance(step, str) and step else None


def list_drift(
    steps: TapedSteps, was_played: Callable[[int | None], bool]
) -> Iterator[tuple[Drift, bool]]:
    """Yield the steps that differ, each with whether it is a cause.

    What a step does may follow from outputs; so only the first one that differs is a cause.
    """
    is_cause = True
    for call in steps.calls:
        field = f"{FLOW_STEP}{call.name}"
        if call.is_missing:
            yield Drift(kind="miss", field=field, step=call.step, calls=1), is_cause
            is_cause = False
        elif call.record is not None and call.record.work != call.work:
            before, after = (_show(work) for work in (call.record.work, call.work))
            drift = Drift(
                kind="input", field=field, before=before, after=after, step=call.step, calls=1
            )
            yield drift, is_cause
            is_cause = False
    for record in steps.unused:
        if was_played(record.step) and record.line.get("status") != "cancelled":
            field = f"{FLOW_STEP}{record.name}"
            yield Drift(kind="left_over", field=field, step=record.step, calls=1), is_cause


def _show(work: Mapping[str, Any]) -> str:
    return json.dumps(work, ensure_ascii=False, indent=2)
