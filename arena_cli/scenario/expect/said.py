"""Expectations about texts: what agents and the system said, and what agents were shown."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from arena_cli.scenario.expect import checks, kinds
from arena_cli.scenario.expect.check_shapes import TextCheck, key_of
from arena_cli.scenario.expect.checks import Check, Verdict
from arena_cli.scenario.expect.conversation import Call, Conversation, Subject
from arena_cli.scenario.expect.shapes import EVERYBODY, Which
from arena_cli.yamlio.nodes import Loc


class _Texts(NamedTuple):
    """Texts of agents, in order of call: `what` one is, and those of an agent (`"*"`: of all).

    `none` is the verdict where there is none.
    """

    what: str
    of: Callable[[str, Conversation], list[tuple[Subject, Call]]]
    none: Callable[[str, Conversation], Verdict]


def replies(expected: Mapping[str, list[TextCheck] | Which]) -> Iterable[Check]:
    """The checks on what agents said, by agent."""
    return _of_agents(_Texts("a reply", _replies_of, _nothing_said), expected)


def shown(expected: Mapping[str, list[TextCheck] | Which]) -> Iterable[Check]:
    """The checks on what agents were shown at their calls, by agent."""
    return _of_agents(_Texts("a call", _shown_to, _not_called), expected)


def _of_agents(texts: _Texts, expected: Mapping[str, list[TextCheck] | Which]) -> Iterable[Check]:
    for agent, wanted in expected.items():
        if isinstance(wanted, list):
            yield from _of_texts(texts, (agent,), agent, "all", wanted)
            continue
        for which in sorted(wanted.model_fields_set):
            yield from _of_texts(texts, (agent, which), agent, which, getattr(wanted, which))


def _of_texts(
    texts: _Texts, loc: Loc, agent: str, which: str, wanted: list[TextCheck]
) -> Iterable[Check]:
    if which == "any" or not wanted:
        for some, warns in _by_level(wanted):
            yield Check(loc, functools.partial(_any_passes, texts, agent, some), warns=warns)
        return
    for index, check in enumerate(wanted):
        place = (*loc, index, key_of(check.kind))
        judge = functools.partial(_each_passes, texts, agent, which, check)
        yield Check(place, judge, warns=check.level == "warn")


def _by_level(wanted: Sequence[TextCheck]) -> Iterable[tuple[Sequence[TextCheck], bool]]:
    """What must hold of one text; then all of it, if some of that only warns."""
    musts = [check for check in wanted if check.level == "fail"]
    if musts or not wanted:
        yield musts, False
    if len(musts) < len(wanted):
        yield wanted, True


def _each_passes(
    texts: _Texts, agent: str, which: str, check: TextCheck, told: Conversation
) -> Verdict:
    """The texts that are meant pass the check, and there is one; shows the first that fails."""
    there = texts.of(agent, told)
    if not there:
        return texts.none(agent, told)
    meant = {"first": there[:1], "last": there[-1:], "all": there}[which]
    verdicts = [_of_text(subject, call, check) for subject, call in meant]
    return next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])


def _of_text(subject: Subject, call: Call, check: TextCheck) -> Verdict:
    verdict = kinds.one(subject, check.kind, check)
    return verdict._replace(actual=_by(_who(call), verdict.actual))


def _by(who: str, actual: str) -> str:
    """What was there, and who said it; where lines stand beside those expected, in the note."""
    lines, found, note = actual.rpartition("\n(")
    return f"{lines}\n({who}: {note}" if found else f"{who}: {actual}"


def _any_passes(
    texts: _Texts, agent: str, wanted: Sequence[TextCheck], told: Conversation
) -> Verdict:
    """One text passes all checks; shows the first one that does, or why each does not."""
    there = texts.of(agent, told)
    if not there:
        return texts.none(agent, told)
    named = ((subject, _who(call)) for subject, call in there)
    return _one_passes(named, wanted, texts.what, "")


def _one_passes(
    subjects: Iterable[tuple[Subject, str]], wanted: Sequence[TextCheck], what: str, nothing: str
) -> Verdict:
    """One of the texts, each with who says it, passes all checks."""
    asked = " and ".join(dict.fromkeys(kinds.wanted(check) for check in wanted))
    expected = f"{what} that {asked or 'is there'}"
    reasons = []
    for subject, who in subjects:
        verdicts = [kinds.one(subject, check.kind, check) for check in wanted]
        failed = next((verdict for verdict in verdicts if not verdict.holds), None)
        if failed is None:
            said = verdicts[-1].actual if verdicts else checks.excerpt(subject.text)
            return Verdict(True, expected, f"{who}: {said}")
        reasons.append(f"{who}: {failed.actual}")
    return Verdict(False, expected, "; ".join(reasons) or nothing)


def _replies_of(agent: str, told: Conversation) -> list[tuple[Subject, Call]]:
    replies = told.replies(None if agent == EVERYBODY else agent)
    return [(Subject(reply.text, told, reply), reply) for reply in replies]


def _shown_to(agent: str, told: Conversation) -> list[tuple[Subject, Call]]:
    """What was shown at each call that ended, whatever came of it."""
    calls = [call for call in told.calls() if agent in (EVERYBODY, call.agent)]
    counted: Counter[str] = Counter()
    found = []
    for call in calls:
        counted[call.agent] += 1
        part = ("shown", call.agent, counted[call.agent])
        found.append((Subject(told.shown_at(call), told, part=part), call))
    return found


def _not_called(agent: str, told: Conversation) -> Verdict:
    if agent == EVERYBODY:
        return Verdict(False, "a call", "no call of anybody")
    return Verdict(False, f"a call of {agent}", f"no call of {agent}: {told.outcome(agent)}")


def _nothing_said(agent: str, told: Conversation) -> Verdict:
    if agent == EVERYBODY:
        return Verdict(False, "a reply", "no reply of anybody")
    return Verdict(False, f"a reply of {agent}", f"no reply of {agent}: {told.outcome(agent)}")


def _who(reply: Call) -> str:
    return f"{reply.agent} in turn {reply.turn}"


def system(expected: Sequence[TextCheck]) -> Iterable[Check]:
    """The checks on system messages: one of them passes all; without checks there is none."""
    for some, warns in _by_level(expected):
        yield Check((), functools.partial(_system_says, some), warns=warns)


def _system_says(wanted: Sequence[TextCheck], told: Conversation) -> Verdict:
    if not wanted:
        said = "; ".join(map(checks.excerpt, told.system))
        return Verdict(not said, "no system message", said or "no system message")
    there = [
        (Subject(text, told, part=("system", number)), "a system message")
        for number, text in enumerate(told.system, 1)
    ]
    return _one_passes(there, wanted, "a system message", "no system message")
