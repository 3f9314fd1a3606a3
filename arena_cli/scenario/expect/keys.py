"""Expectations: each key becomes checks, pure functions of a conversation that give a verdict."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from arena_cli.scenario.expect import carried, counts, patterns, remembered, rows, said
from arena_cli.scenario.expect.checks import Check, Verdict
from arena_cli.scenario.expect.conversation import Conversation
from arena_cli.scenario.expect.shapes import (
    EVERYBODY,
    Cost,
    Exactly,
    Expect,
    PassedOverBy,
    Range,
    Replied,
)
from arena_cli.yamlio.nodes import Loc

Checks = Iterable[Check]


def checks_of(expect: Expect) -> Checks:
    """Every check of an `expect`."""
    for key in Expect.model_fields:
        if key in expect.model_fields_set:
            for check in _KEYS[key](getattr(expect, key)):
                yield check._replace(loc=(key, *check.loc))


def named_agents(expect: Expect) -> Iterator[tuple[Loc, str]]:
    """Every agent id that an `expect` names, with its place below it."""
    replied = expect.replied
    if isinstance(replied, Replied):
        yield from _at(("replied", "include"), replied.include)
        yield from _at(("replied", "exclude"), replied.exclude)
    else:
        yield from _at(("replied",), replied)
    for index, agents in enumerate(expect.must):
        yield from _at(("must", index), agents)
    yield from _at(("asked",), expect.asked)
    yield from _at(("silent",), expect.silent)
    for key in ("outcome", "passed_over", "replies", "shown", "shown_notes"):
        for agent in getattr(expect, key):
            if agent != EVERYBODY:
                yield (key, agent), agent
    for key in ("timeline", "timeline_exact", "structured", "attachments", "deviations"):
        parts = getattr(expect, key)
        for index, part in enumerate(parts if isinstance(parts, list) else ()):
            if getattr(part, "agent", ""):
                yield (key, index, "agent"), part.agent


def named_somebody(expect: Expect) -> Iterator[tuple[Loc, str]]:
    """Every id of an agent or a human that the rows of an `expect` name as mentioned."""
    for key in ("timeline", "timeline_exact"):
        for index, row in enumerate(getattr(expect, key)):
            loc: Loc = (key, index, "mentions")
            if isinstance(row.mentions, Exactly):
                yield from _at((*loc, "exactly"), row.mentions.exactly)
            else:
                yield from _at(loc, row.mentions)


def _at(loc: Loc, agents: Sequence[str]) -> Iterator[tuple[Loc, str]]:
    for index, agent in enumerate(agents):
        yield (*loc, index), agent


def _replied(expected: list[str] | Replied) -> Checks:
    if isinstance(expected, list):
        yield Check((), lambda told: _same(expected, _who_replied(told)))
        return
    if expected.include:
        yield Check(("include",), lambda told: _includes(expected, _who_replied(told)))
    if expected.exclude:
        yield Check(("exclude",), lambda told: _excludes(expected.exclude, _who_replied(told)))


def _who_replied(told: Conversation) -> list[str]:
    return [call.agent for call in told.replies()]


def _includes(expected: Replied, actual: list[str]) -> Verdict:
    if expected.any_order:
        holds = not Counter(expected.include) - Counter(actual)
        return Verdict(holds, f"{_names(expected.include)}, in any order", _names(actual))
    rest = iter(actual)
    holds = all(agent in rest for agent in expected.include)
    return Verdict(holds, f"{_names(expected.include)}, in this order", _names(actual))


def _excludes(unwanted: list[str], actual: list[str]) -> Verdict:
    holds = not set(unwanted) & set(actual)
    return Verdict(holds, f"no reply of {_names(unwanted, ' or ')}", _names(actual))


def _must(expected: list[list[str]]) -> Checks:
    def check(told: Conversation) -> Verdict:
        actual = [turn.must for turn in told.turns]
        return Verdict(expected == actual, _turns_of(expected), _turns_of(actual))

    yield Check((), check)


def _asked(expected: list[str]) -> Checks:
    yield Check((), lambda told: _same(expected, [a for turn in told.turns for a in turn.asked]))


def _silent(expected: list[str]) -> Checks:
    for index, agent in enumerate(expected):
        yield Check((index,), functools.partial(_said_nothing, agent))


def _said_nothing(agent: str, told: Conversation) -> Verdict:
    """An agent that failed was not silent: it may have had something to say."""
    ended = [call.done.status for call in told.calls() if call.agent == agent]
    holds = all(status == "declined" for status in ended)
    return Verdict(holds, f"{agent} silent", ", ".join(ended) or told.outcome(agent))


def _outcome(expected: dict[str, str]) -> Checks:
    for agent, status in expected.items():
        yield Check((agent,), functools.partial(_came_of, agent, status))


def _came_of(agent: str, expected: str, told: Conversation) -> Verdict:
    actual = told.outcome(agent)
    return Verdict(actual == expected, expected, actual)


def _passed_over(expected: dict[str, PassedOverBy]) -> Checks:
    for agent, by in expected.items():
        yield Check((agent,), functools.partial(_was_passed_over, agent, by.relevance))


def _was_passed_over(agent: str, wanted: float | Range | None, told: Conversation) -> Verdict:
    expected = "passed over"
    if wanted is not None:
        expected += f" with relevance {counts.wanted(wanted)}"
    passings = told.passings(agent)
    if not passings:
        return Verdict(False, expected, told.outcome(agent))
    holds = wanted is None or any(counts.within(wanted, one.relevance) for one in passings)
    return Verdict(holds, expected, ", ".join(f"relevance {one.relevance:g}" for one in passings))


def _counted(
    count: Callable[[Conversation], float | None], unit: str, expected: float | Range
) -> Checks:
    yield Check((), lambda told: _count(expected, count(told), unit))


def _count(expected: float | Range, actual: float | None, unit: str) -> Verdict:
    wanted = f"{counts.wanted(expected)}{unit}"
    if actual is None:
        return Verdict(True, wanted, "not judged: no agent was called live")
    return Verdict(counts.within(expected, actual), wanted, f"{actual:g}{unit}")


def _cost(expected: float | Cost) -> Checks:
    def check(told: Conversation) -> Verdict:
        wanted, actual = f"{counts.wanted(expected)} USD", told.cost_usd()
        if actual is None:
            passes = isinstance(expected, Cost) and expected.unknown == "pass"
            return Verdict(passes, wanted, "not known: an agent did not say what it cost")
        return Verdict(counts.within(expected, actual), wanted, f"{actual:g} USD")

    yield Check((), check)


def _end(expected: list[str]) -> Checks:
    yield Check((), lambda told: _ended(expected, told.end))


def _ended(expected: list[str], end: str) -> Verdict:
    return Verdict(end in expected, " or ".join(expected), end or "no chain has ended")


def _awaits(expected: list[str]) -> Checks:
    yield Check((), lambda told: _same_set(expected, told.awaits))


def _unresolved(expected: list[str]) -> Checks:
    def forms(names: Iterable[str]) -> list[str]:
        return [f"@{patterns.form(name)}" for name in names]

    yield Check((), lambda told: _same_set(forms(expected), forms(told.unresolved)))


def _same(expected: list[str], actual: list[str]) -> Verdict:
    return Verdict(expected == actual, _names(expected), _names(actual))


def _same_set(expected: Iterable[str], actual: Iterable[str]) -> Verdict:
    """Of the same names, in whatever order."""
    wanted, there = list(expected), list(actual)
    return Verdict(set(wanted) == set(there), _names(wanted), _names(there))


def _names(names: Sequence[str], joined: str = ", ") -> str:
    return joined.join(names) or "nobody"


def _turns_of(turns: list[list[str]]) -> str:
    return " | ".join(_names(agents) for agents in turns) or "no turn"


_KEYS: dict[str, Callable[[Any], Checks]] = {
    "replied": _replied,
    "must": _must,
    "asked": _asked,
    "silent": _silent,
    "outcome": _outcome,
    "passed_over": _passed_over,
    "turns": functools.partial(_counted, lambda told: len(told.turns), ""),
    "replies_count": functools.partial(_counted, lambda told: len(told.replies()), ""),
    "tokens": functools.partial(_counted, Conversation.tokens, " tokens"),
    "cost_usd": _cost,
    "latency_s": functools.partial(_counted, Conversation.live_s, " s"),
    "end": _end,
    "awaits": _awaits,
    "unresolved": _unresolved,
    "system": said.system,
    "timeline": lambda expected: [Check((), functools.partial(rows.among, expected))],
    "timeline_exact": lambda expected: [Check((), functools.partial(rows.exactly, expected))],
    "replies": said.replies,
    "structured": carried.structured,
    "attachments": carried.attachments,
    "shown": said.shown,
    "notes": remembered.notes,
    "shown_notes": remembered.shown_notes,
    "deviations": remembered.deviations,
    "compactions": functools.partial(_counted, lambda told: len(told.compactions), ""),
}
