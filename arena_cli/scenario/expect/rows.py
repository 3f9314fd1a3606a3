"""Expectations about the timeline: its rows are the calls that ended, in order of call."""

from __future__ import annotations

from collections.abc import Sequence

from arena_cli.scenario.expect import checks, kinds
from arena_cli.scenario.expect.checks import Verdict
from arena_cli.scenario.expect.conversation import Call, Conversation, Subject
from arena_cli.scenario.expect.shapes import Exactly, Row


def among(wanted: Sequence[Row], told: Conversation) -> Verdict:
    """These rows are there in this order; others may lie between."""
    calls = told.calls()
    place = 0
    for index, row in enumerate(wanted):
        found = next(
            (at for at in range(place, len(calls)) if not _against(row, calls[at], told)), None
        )
        if found is None:
            why = _nearest(row, calls[place:], told)
            return _verdict(wanted, calls, index, f"no row {index + 1}{why}")
        place = found + 1
    return _verdict(wanted, calls)


def exactly(wanted: Sequence[Row], told: Conversation) -> Verdict:
    """These rows are there in this order, and no other."""
    calls = told.calls()
    for index, (row, call) in enumerate(zip(wanted, calls, strict=False)):
        against = _against(row, call, told)
        if against:
            return _verdict(wanted, calls, index, f"row {index + 1}: {against}")
    if len(calls) > len(wanted):
        return _verdict(wanted, calls, None, f"so many calls: {len(calls)}, not {len(wanted)}")
    if len(calls) < len(wanted):
        return _verdict(wanted, calls, len(calls), f"no row {len(calls) + 1}")
    return _verdict(wanted, calls)


def _verdict(
    wanted: Sequence[Row], calls: Sequence[Call], at: int | None = None, why: str = ""
) -> Verdict:
    expected = "\n".join(_shown(row) for row in wanted) or "no call"
    actual = "\n".join(_told(call) for call in calls) or "no call"
    return Verdict(not why, expected, f"{actual}\n({why})" if why else actual, _at(at))


def _at(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)


def _against(row: Row, call: Call, told: Conversation) -> str:
    """What speaks against a call being this row; empty if it is."""
    given = row.model_fields_set
    done = call.done
    facts = {"turn": call.turn, "phase": done.phase, "agent": done.agent, "status": done.status}
    for key, actual in facts.items():
        if key in given and getattr(row, key) != actual:
            return f"{key} is {actual}"
    if done.message is None and (row.kinds or "mentions" in given):
        return f"said nothing: {done.status}"
    mentions = done.message.mentions if done.message else []
    if "mentions" in given and not _mentions(row.mentions, mentions):
        return f"mentions {', '.join(mentions) or 'nobody'}"
    if row.kinds:
        verdict = kinds.all_of(Subject(call.text, told, call), row)
        return "" if verdict.holds else verdict.actual
    return ""


def _mentions(wanted: Sequence[str] | Exactly, actual: Sequence[str]) -> bool:
    """Return whether a message mentions these; an empty list is nobody, as in every list."""
    if isinstance(wanted, Exactly):
        return set(wanted.exactly) == set(actual)
    return set(wanted) <= set(actual) if wanted else not actual


def _nearest(row: Row, calls: Sequence[Call], told: Conversation) -> str:
    """Why the calls of the row's agent are not that row."""
    own = [call for call in calls if call.agent == row.agent]
    return "".join(
        f"; {call.agent} in turn {call.turn}: {_against(row, call, told)}" for call in own
    )


def _shown(row: Row) -> str:
    """A row as it is expected, in words."""
    given = row.model_fields_set
    facts = []
    if {"turn", "phase"} & given:
        turn = f"turn {row.turn}" if "turn" in given else "a turn"
        facts.append(f"{turn} {row.phase}" if "phase" in given else turn)
    facts.append(row.agent or "somebody")
    if "status" in given:
        facts.append(row.status)
    if isinstance(row.mentions, Exactly):
        facts.append(f"→ exactly {', '.join(row.mentions.exactly) or 'nobody'}")
    elif "mentions" in given:
        facts.append(f"→ {', '.join(row.mentions) or 'nobody'}")
    if row.kinds:
        facts.append(kinds.wanted(row))
    return " · ".join(facts)


def _told(call: Call) -> str:
    facts = [f"turn {call.turn} {call.done.phase}", call.agent, call.done.status]
    if call.message and call.message.mentions:
        facts.append(f"→ {', '.join(call.message.mentions)}")
    if call.text:
        facts.append(checks.excerpt(call.text))
    return " · ".join(facts)
