"""Expectations about what was said: by agents, and by the system."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from arena_cli.ground.yamlfiles.yamlnodes import Loc
from arena_cli.scenario.expect import checks, kinds
from arena_cli.scenario.expect.check_shapes import TextCheck, key_of
from arena_cli.scenario.expect.checks import Check, Verdict
from arena_cli.scenario.expect.conversation import Call, Conversation, Subject
from arena_cli.scenario.expect.shapes import EVERYBODY, Which


def replies(expected: Mapping[str, list[TextCheck] | Which]) -> Iterable[Check]:
    """The checks on what agents said, by agent."""
    for agent, wanted in expected.items():
        if isinstance(wanted, list):
            yield from _of_replies((agent,), agent, "all", wanted)
            continue
        for which in sorted(wanted.model_fields_set):
            yield from _of_replies((agent, which), agent, which, getattr(wanted, which))


def _of_replies(loc: Loc, agent: str, which: str, wanted: list[TextCheck]) -> Iterable[Check]:
    if which == "any" or not wanted:
        for some, warns in _by_level(wanted):
            yield Check(loc, functools.partial(_any_passes, agent, some), warns=warns)
        return
    for index, check in enumerate(wanted):
        place = (*loc, index, key_of(check.kind))
        judge = functools.partial(_each_passes, agent, which, check)
        yield Check(place, judge, warns=check.level == "warn")


def _by_level(wanted: Sequence[TextCheck]) -> Iterable[tuple[Sequence[TextCheck], bool]]:
    """What must hold of one text; then all of it, if some of that only warns."""
    musts = [check for check in wanted if check.level == "fail"]
    if musts or not wanted:
        yield musts, False
    if len(musts) < len(wanted):
        yield wanted, True


def _each_passes(agent: str, which: str, check: TextCheck, told: Conversation) -> Verdict:
    """The replies that are meant pass the check, and there is one; shows the first that fails."""
    replies = _replies_of(agent, told)
    if not replies:
        return _nothing_said(agent, told)
    meant = {"first": replies[:1], "last": replies[-1:], "all": replies}[which]
    verdicts = [_of_reply(reply, check, told) for reply in meant]
    return next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])


def _of_reply(reply: Call, check: TextCheck, told: Conversation) -> Verdict:
    verdict = kinds.one(Subject(reply.text, told, reply), check.kind, check)
    return verdict._replace(actual=_by(_who(reply), verdict.actual))


def _by(who: str, actual: str) -> str:
    """What was there, and who said it; where lines stand beside those expected, in the note."""
    lines, found, note = actual.rpartition("\n(")
    return f"{lines}\n({who}: {note}" if found else f"{who}: {actual}"


def _any_passes(agent: str, wanted: Sequence[TextCheck], told: Conversation) -> Verdict:
    """One reply passes all checks; shows the first one that does, or why each does not."""
    replies = _replies_of(agent, told)
    if not replies:
        return _nothing_said(agent, told)
    said = ((Subject(reply.text, told, reply), _who(reply)) for reply in replies)
    return _one_passes(said, wanted, "a reply", "")


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


def _replies_of(agent: str, told: Conversation) -> list[Call]:
    return told.replies(None if agent == EVERYBODY else agent)


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
