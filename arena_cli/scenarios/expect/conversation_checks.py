"""Check a conversation: texts of agents and of the system, inputs of agents, and broken rules."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena_cli.scenarios.expect import check_kinds
from arena_cli.scenarios.expect.context import Call, CheckContext, Subject
from arena_cli.scenarios.expect.model import (
    EVERYBODY,
    CarriedFile,
    CarriedPart,
    CheckKeys,
    TextCheck,
    Which,
    key_of,
)
from arena_cli.scenarios.expect.text_checks import Check, Verdict, excerpt, form
from arena_cli.yamlio.nodes import Loc


class _TextSource(NamedTuple):
    """Texts in order of call: the name of one, and those of an agent (`"*"`: of all)."""

    name: str
    of: Callable[[str, CheckContext], list[tuple[Subject, Call]]]

    def find_none(self, agent: str, conversation: CheckContext) -> Verdict:
        """Return the verdict if there is no text."""
        if agent == EVERYBODY:
            return Verdict(False, f"a {self.name}", f"no {self.name} of any agent")
        by = f"{self.name} of {agent}"
        return Verdict(False, f"a {by}", f"no {by}: {conversation.outcome(agent)}")


def replies(expected: Mapping[str, list[TextCheck] | Which]) -> Iterable[Check]:
    """Return the checks on the texts of agents, by agent."""
    return _of_agents(_TextSource("reply", _replies_of), expected)


def check_shown(expected: Mapping[str, list[TextCheck] | Which]) -> Iterable[Check]:
    """Return the checks on the inputs of agents at their calls, by agent."""
    return _of_agents(_TextSource("call", _shown_to), expected)


def _of_agents(
    texts: _TextSource, expected: Mapping[str, list[TextCheck] | Which]
) -> Iterable[Check]:
    for agent, checks in expected.items():
        if isinstance(checks, list):
            yield from _of_texts(texts, (agent,), agent, "all", checks)
            continue
        for which in sorted(checks.model_fields_set):
            yield from _of_texts(texts, (agent, which), agent, which, getattr(checks, which))


def _of_texts(
    texts: _TextSource, loc: Loc, agent: str, which: str, text_checks: list[TextCheck]
) -> Iterable[Check]:
    if which == "any" or not text_checks:
        for level_checks, warns in _by_level(text_checks):
            yield Check(
                loc, functools.partial(_any_passes, texts, agent, level_checks), warns=warns
            )
        return
    for index, check in enumerate(text_checks):
        check_loc = (*loc, index, key_of(check.kind))
        judge = functools.partial(_each_passes, texts, agent, which, check)
        yield Check(check_loc, judge, warns=check.level == "warn")


def _by_level(text_checks: Sequence[TextCheck]) -> Iterable[tuple[Sequence[TextCheck], bool]]:
    """Yield the checks that must hold of one text; then all of them, if some only warn."""
    musts = [check for check in text_checks if check.level == "fail"]
    if musts or not text_checks:
        yield musts, False
    if len(musts) < len(text_checks):
        yield text_checks, True


def _each_passes(
    texts: _TextSource, agent: str, which: str, check: TextCheck, conversation: CheckContext
) -> Verdict:
    """Check that each selected text passes, and that there is one; show the first that fails."""
    agent_texts = texts.of(agent, conversation)
    if not agent_texts:
        return texts.find_none(agent, conversation)
    selected = {"first": agent_texts[:1], "last": agent_texts[-1:], "all": agent_texts}[which]
    verdicts = [_of_text(subject, call, check) for subject, call in selected]
    return next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])


def _of_text(subject: Subject, call: Call, check: TextCheck) -> Verdict:
    verdict = check_kinds.judge_one(subject, check.kind, check)
    return verdict._replace(actual=_by(_name_author(call), verdict.actual))


def _by(name: str, actual: str) -> str:
    """Return a text with its author; for a text of several lines the author goes into the note."""
    lines, has_note, note = actual.rpartition("\n(")
    return f"{lines}\n({name}: {note}" if has_note else f"{name}: {actual}"


def _any_passes(
    texts: _TextSource, agent: str, text_checks: Sequence[TextCheck], conversation: CheckContext
) -> Verdict:
    """Return a passing verdict if a text passes all checks, else the reason why each does not."""
    agent_texts = texts.of(agent, conversation)
    if not agent_texts:
        return texts.find_none(agent, conversation)
    with_names = ((subject, _name_author(call)) for subject, call in agent_texts)
    return _one_passes(with_names, text_checks, f"a {texts.name}", "")


def _one_passes(
    subjects: Iterable[tuple[Subject, str]],
    text_checks_given: Sequence[TextCheck],
    problem: str,
    nothing: str,
) -> Verdict:
    """Judge whether one of the texts, each with its author, passes all checks."""
    requirement = " and ".join(
        dict.fromkeys(check_kinds.describe_checks(check) for check in text_checks_given)
    )
    expected = f"{problem} that {requirement or 'is there'}"
    reasons = []
    for subject, name in subjects:
        verdicts = [
            check_kinds.judge_one(subject, check.kind, check) for check in text_checks_given
        ]
        failed = next((verdict for verdict in verdicts if not verdict.holds), None)
        if failed is None:
            actual = verdicts[-1].actual if verdicts else excerpt(subject.text)
            return Verdict(True, expected, f"{name}: {actual}")
        reasons.append(f"{name}: {failed.actual}")
    return Verdict(False, expected, "; ".join(reasons) or nothing)


def _replies_of(agent: str, conversation: CheckContext) -> list[tuple[Subject, Call]]:
    replies = conversation.replies(None if agent == EVERYBODY else agent)
    return [(Subject(reply.text, conversation, reply), reply) for reply in replies]


def _shown_to(agent: str, conversation: CheckContext) -> list[tuple[Subject, Call]]:
    """Return the inputs of all calls that ended, regardless of their result."""
    calls = [call for call in conversation.calls() if agent in (EVERYBODY, call.agent)]
    counted: Counter[str] = Counter()
    inputs = []
    for call in calls:
        counted[call.agent] += 1
        path = ("shown", call.agent, counted[call.agent])
        inputs.append((Subject(conversation.shown_at(call), conversation, part=path), call))
    return inputs


def _name_author(reply: Call) -> str:
    return f"{reply.agent} in turn {reply.turn}"


def system(expected: Sequence[TextCheck]) -> Iterable[Check]:
    """Yield the checks on system messages.

    One message must pass all checks; without checks there must be no message.
    """
    for level_checks, warns in _by_level(expected):
        yield Check((), functools.partial(_system_says, level_checks), warns=warns)


def _system_says(expected: Sequence[TextCheck], conversation: CheckContext) -> Verdict:
    if not expected:
        texts = "; ".join(map(excerpt, conversation.system))
        return Verdict(not texts, "no system message", texts or "no system message")
    subjects = [
        (Subject(text, conversation, part=("system", number)), "a system message")
        for number, text in enumerate(conversation.system, 1)
    ]
    return _one_passes(subjects, expected, "a system message", "no system message")


class Item(NamedTuple):
    """Something that a reply carried: its type or name; `read` returns it as text.

    `number` counts the items of its kind in that reply, from 1.
    """

    name: str
    call: Call
    number: int
    read: Callable[[], str]

    @property
    def agent(self) -> str:
        return self.call.agent


def structured(
    expected: Sequence[str | CarriedPart] | Mapping[str, Sequence[TextCheck]],
) -> list[Check]:
    """Return the checks on structured content, by its type."""
    return list(_checks(expected, "structured", _parts))


def attachments(
    expected: Sequence[str | CarriedFile] | Mapping[str, Sequence[TextCheck]],
) -> list[Check]:
    """Return the checks on attachments, by their name."""
    return list(_checks(expected, "attachment", _files))


def _checks(expected: Any, problem: str, items: Any) -> Iterator[Check]:
    if not expected:
        yield Check((), functools.partial(_none_carried, problem, items))
    if isinstance(expected, Mapping):
        for name, checks in expected.items():
            judge = functools.partial(_carried, problem, items, name, "", checks)
            warns = bool(checks) and all(check.level == "warn" for check in checks)
            yield Check((name,), judge, warns=warns)
        return
    for index, item in enumerate(expected):
        times = list(expected[: index + 1]).count(item)
        if isinstance(item, str):
            judge = functools.partial(_carried, problem, items, item, "", (), times=times)
        else:
            name = item.type if isinstance(item, CarriedPart) else item.name
            checks = [item] if item.kinds else []
            judge = functools.partial(
                _carried, problem, items, name, item.agent, checks, times=times
            )
        yield Check((index,), judge)


def _none_carried(problem: str, items: Any, conversation: CheckContext) -> Verdict:
    listed = ", ".join(f"{item.name} of {item.agent}" for item in items(conversation))
    return Verdict(not listed, f"no {problem}", listed or "nothing was carried")


def _carried(
    problem: str,
    items: Any,
    name: str,
    agent: str,
    checks: Sequence[CheckKeys],
    conversation: CheckContext,
    *,
    times: int = 1,
) -> Verdict:
    """Check that `times` items of that name pass all checks, by `agent` if one is named."""
    expected = f"{problem} {_describe_carried(name, agent, checks, times)}"
    carried = list(items(conversation))
    matching = [
        item for item in carried if form(item.name) == form(name) and agent in ("", item.agent)
    ]
    reasons = []
    passed = 0
    for item in matching:
        text = item.read()
        subject = Subject(text, conversation, item.call, (problem, item.number))
        verdicts = [check_kinds.all_of(subject, check) for check in checks]
        failed = next((verdict for verdict in verdicts if not verdict.holds), None)
        passed += failed is None
        if passed == times:
            return Verdict(True, expected, f"{item.agent}: {excerpt(text)}")
        reasons.append(f"{item.agent}: {failed.actual if failed else excerpt(text)}")
    listed = ", ".join(f"{item.name} of {item.agent}" for item in carried)
    return Verdict(False, expected, "; ".join(reasons) or listed or "nothing was carried")


def _describe_carried(name: str, agent: str, checks: Sequence[CheckKeys], times: int) -> str:
    by = f" of {agent}" if agent else ""
    that = " and ".join(check_kinds.describe_checks(check) for check in checks)
    often = f", {times} times" if times > 1 else ""
    return f"{name}{by}{f' that {that}' if that else ''}{often}"


def _parts(conversation: CheckContext) -> Iterator[Item]:
    for reply in conversation.replies():
        for number, content in enumerate(reply.message.structured if reply.message else (), 1):
            yield Item(content.type, reply, number, functools.partial(_text_of, content.data))


def _files(conversation: CheckContext) -> Iterator[Item]:
    for reply in conversation.replies():
        for number, attachment in enumerate(reply.message.attachments if reply.message else (), 1):
            yield Item(
                attachment.name, reply, number, functools.partial(conversation.read, attachment)
            )


def _text_of(data: Any) -> str:
    return "\n".join(_lines(data))


def _lines(data: Any, path: str = "") -> Iterable[str]:
    """Yield data as text: a plain text unchanged, else one `place: value` line for each value."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _lines(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _lines(value, f"{path}[{index}]")
    else:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        yield f"{path}: {text}" if path else text
