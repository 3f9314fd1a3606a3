"""Conversations to be compared, from where they are kept: sessions and recordings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arena_cli.report.entries import Builder, Conversation
from arena_cli.scenario.recording.recorded import CaseRecord, Recording
from arena_cli.transcript import canonical
from arena_cli.transcript.events import Event


def of_session(events: Iterable[Event]) -> Conversation:
    """A session from its events, from its beginning."""
    builder, ids = Builder(), dict[str, str]()
    for event in canonical.ordered(events):
        builder.take(canonical.record(event, ids))
    return builder.whole()


def of_recording(recording: Recording) -> list[Conversation]:
    """Its conversations, those of each case in the order in which they began."""
    return [found for case in recording.cases.values() for found in _of_case(case)]


def _of_case(case: CaseRecord) -> Iterator[Conversation]:
    builders: dict[str | None, Builder] = {}
    current: str | None = None
    step: int | None = 0
    for line in case.lines:
        if line["type"] == "step":
            step, current = line["step"], line["session"]
            continue
        builder = builders.get(current)
        if builder is None:
            builder = builders[current] = Builder(case.id, current)
        if line["type"] == "judge":
            builder.judge(line, step)
        else:
            builder.take(line)
    for builder in builders.values():
        for agent, line in case.agents.items():
            builder.settings(
                f"agents[{agent}]",
                {name: value for name, value in line.items() if name not in ("type", "agent")},
            )
        yield builder.whole()
