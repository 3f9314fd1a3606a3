"""The agents whose calls failed in the end, as they are played or were recorded."""

from __future__ import annotations

from collections.abc import Iterable

from arena_cli.scenario.recording.recorded import CaseRecord
from arena_cli.scenario.recording.tape import FAILURE, Call


def of_calls(calls: Iterable[Call], *, but_replies: bool = False) -> set[str]:
    """Return the agents that failed; of several attempts the last one counts.

    With `but_replies` only those that failed at work for the team's memory.
    """
    last: dict[object, Call] = {}
    for call in calls:
        if call.reply is not None:
            last[call.session, call.reply] = call
        elif not call.is_judge:  # a judge that failed is a check that gave no verdict
            last[call.session, call.key, call.input_hash] = call
    return {
        call.key.agent
        for call in last.values()
        if FAILURE in call.came and (call.reply is None or not but_replies)
    }


def of_case(case: CaseRecord) -> set[str]:
    """Return the agents that failed when a case was recorded."""
    # An attempt that another one followed has its number.
    return {line["agent"] for line in case.lines if FAILURE in line and "attempt" not in line}
