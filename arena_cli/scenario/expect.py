"""Expectations: each key becomes checks, pure functions of a conversation that give a verdict."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from arena_cli.ground.yamlnodes import Loc
from arena_cli.scenario import checks
from arena_cli.scenario.checks import Verdict
from arena_cli.scenario.conversation import Conversation, Reply
from arena_cli.scenario.shapes import EVERYBODY, Count, Expect, Range, Replied, TextCheck, Which

Check = Callable[[Conversation], Verdict]
Placed = Iterator[tuple[Loc, Check]]


def checks_of(expect: Expect) -> Placed:
    """Every check of an `expect`, with its place below it."""
    for key in Expect.model_fields:
        if key in expect.model_fields_set:
            for loc, check in _KEYS[key](getattr(expect, key)):
                yield (key, *loc), check


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
    for agent in expect.outcome:
        yield ("outcome", agent), agent
    for agent in expect.replies:
        if agent != EVERYBODY:
            yield ("replies", agent), agent


def _at(loc: Loc, agents: Sequence[str]) -> Iterator[tuple[Loc, str]]:
    for index, agent in enumerate(agents):
        yield (*loc, index), agent


def _replied(expected: list[str] | Replied) -> Placed:
    if isinstance(expected, list):
        yield (), lambda told: _same(expected, _who_replied(told))
        return
    if expected.include:
        yield ("include",), lambda told: _includes(expected, _who_replied(told))
    if expected.exclude:
        yield ("exclude",), lambda told: _excludes(expected.exclude, _who_replied(told))


def _who_replied(told: Conversation) -> list[str]:
    return [reply.agent for reply in told.replies()]


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


def _must(expected: list[list[str]]) -> Placed:
    def check(told: Conversation) -> Verdict:
        actual = [turn.must for turn in told.turns]
        return Verdict(expected == actual, _turns_of(expected), _turns_of(actual))

    yield (), check


def _asked(expected: list[str]) -> Placed:
    yield (), lambda told: _same(expected, [a for turn in told.turns for a in turn.asked])


def _outcome(expected: dict[str, str]) -> Placed:
    for agent, status in expected.items():
        yield (agent,), functools.partial(_came_of, agent, status)


def _came_of(agent: str, expected: str, told: Conversation) -> Verdict:
    actual = told.outcome(agent)
    return Verdict(actual == expected, expected, actual)


def _turns(expected: Count) -> Placed:
    yield (), lambda told: _counted(expected, len(told.turns))


def _counted(expected: Count, actual: int) -> Verdict:
    if not isinstance(expected, Range):
        return Verdict(actual == expected, str(expected), str(actual))
    least, most = expected.min, expected.max
    holds = (least is None or actual >= least) and (most is None or actual <= most)
    if least is not None and most is not None:
        return Verdict(holds, f"{least} to {most}", str(actual))
    return Verdict(holds, f"at most {most}" if least is None else f"at least {least}", str(actual))


def _end(expected: list[str]) -> Placed:
    yield (), lambda told: Verdict(told.end in expected, " or ".join(expected), told.end)


def _awaits(expected: list[str]) -> Placed:
    yield (), lambda told: _same_set(expected, told.awaits)


def _unresolved(expected: list[str]) -> Placed:
    yield (), lambda told: _same_set(map(_form, expected), map(_form, told.unresolved))


def _form(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _replies(expected: dict[str, list[TextCheck] | Which]) -> Placed:
    for agent, wanted in expected.items():
        if isinstance(wanted, list):
            yield from _of_replies((agent,), agent, "all", wanted)
            continue
        for which in sorted(wanted.model_fields_set):
            yield from _of_replies((agent, which), agent, which, getattr(wanted, which))


def _of_replies(loc: Loc, agent: str, which: str, wanted: list[TextCheck]) -> Placed:
    if which == "any" or not wanted:
        yield loc, functools.partial(_any_passes, agent, wanted)
        return
    for index, check in enumerate(wanted):
        yield (*loc, index, check.kind), functools.partial(_each_passes, agent, which, check)


def _each_passes(agent: str, which: str, check: TextCheck, told: Conversation) -> Verdict:
    """The replies that are meant pass the check, and there is one; shows the first that fails."""
    replies = _replies_of(agent, told)
    if not replies:
        return _nothing_said(agent, told)
    meant = {"first": replies[:1], "last": replies[-1:], "all": replies}[which]
    verdicts = [_of_reply(reply, check) for reply in meant]
    return next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])


def _any_passes(agent: str, wanted: list[TextCheck], told: Conversation) -> Verdict:
    """One reply passes all checks; shows the first one that does, or why each does not."""
    replies = _replies_of(agent, told)
    if not replies:
        return _nothing_said(agent, told)
    expected: dict[str, None] = {}
    reasons = []
    for reply in replies:
        verdicts = [_of_reply(reply, check) for check in wanted]
        expected.update(dict.fromkeys(verdict.expected for verdict in verdicts))
        failed = [verdict for verdict in verdicts if not verdict.holds]
        if not failed:
            said = verdicts[-1].actual if verdicts else _said(reply, checks.excerpt(reply.text))
            return Verdict(True, f"a reply that {_all_of(expected)}", said)
        reasons.append(failed[0].actual)
    return Verdict(False, f"a reply that {_all_of(expected)}", "; ".join(reasons))


def _of_reply(reply: Reply, check: TextCheck) -> Verdict:
    verdict: Verdict = _TEXT_CHECKS[check.kind](
        reply.text, getattr(check, check.kind), ignore_case=check.ignore_case
    )
    return Verdict(verdict.holds, verdict.expected, _said(reply, verdict.actual))


def _replies_of(agent: str, told: Conversation) -> list[Reply]:
    return told.replies(None if agent == EVERYBODY else agent)


def _nothing_said(agent: str, told: Conversation) -> Verdict:
    if agent == EVERYBODY:
        return Verdict(False, "a reply", "no reply of anybody")
    return Verdict(False, f"a reply of {agent}", f"no reply of {agent}: {told.outcome(agent)}")


def _said(reply: Reply, what: str) -> str:
    return f"{reply.agent} in turn {reply.turn}: {what}"


def _all_of(expected: Iterable[str]) -> str:
    return " and ".join(expected) or "is there"


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


_KEYS: dict[str, Callable[[Any], Placed]] = {
    "replied": _replied,
    "must": _must,
    "asked": _asked,
    "outcome": _outcome,
    "turns": _turns,
    "end": _end,
    "awaits": _awaits,
    "unresolved": _unresolved,
    "replies": _replies,
}
_TEXT_CHECKS: dict[str, Callable[..., Verdict]] = {
    "contains": checks.contains,
    "not_contains": checks.not_contains,
    "regex": checks.regex,
}
