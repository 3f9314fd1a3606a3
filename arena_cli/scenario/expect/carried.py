"""Expectations about what replies carried beside their text: structured content, attachments."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena_cli.scenario.expect import checks, kinds, patterns
from arena_cli.scenario.expect.check_shapes import CheckKeys, TextCheck
from arena_cli.scenario.expect.checks import Check, Verdict
from arena_cli.scenario.expect.conversation import Call, Conversation, Subject
from arena_cli.scenario.expect.shapes import CarriedFile, CarriedPart


class Item(NamedTuple):
    """Something that a reply carried: its type or name; `read` gives it as text.

    `number` counts what that reply carried of its kind, from 1.
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
    """The checks on structured content, by its type."""
    return list(_checks(expected, "structured", _parts))


def attachments(
    expected: Sequence[str | CarriedFile] | Mapping[str, Sequence[TextCheck]],
) -> list[Check]:
    """The checks on attachments, by their name."""
    return list(_checks(expected, "attachment", _files))


def _checks(expected: Any, what: str, items: Any) -> Iterator[Check]:
    if not expected:
        yield Check((), functools.partial(_none_carried, what, items))
    if isinstance(expected, Mapping):
        for name, wanted in expected.items():
            judge = functools.partial(_carried, what, items, name, "", wanted)
            warns = bool(wanted) and all(check.level == "warn" for check in wanted)
            yield Check((name,), judge, warns=warns)
        return
    for index, item in enumerate(expected):
        times = list(expected[: index + 1]).count(item)
        if isinstance(item, str):
            judge = functools.partial(_carried, what, items, item, "", (), times=times)
        else:
            name = item.type if isinstance(item, CarriedPart) else item.name
            wanted = [item] if item.kinds else []
            judge = functools.partial(_carried, what, items, name, item.agent, wanted, times=times)
        yield Check((index,), judge)


def _none_carried(what: str, items: Any, told: Conversation) -> Verdict:
    there = ", ".join(f"{item.name} of {item.agent}" for item in items(told))
    return Verdict(not there, f"no {what}", there or "nothing was carried")


def _carried(
    what: str,
    items: Any,
    name: str,
    agent: str,
    wanted: Sequence[CheckKeys],
    told: Conversation,
    *,
    times: int = 1,
) -> Verdict:
    """So many items of that name, by that agent if one is named, pass all checks."""
    by = f" of {agent}" if agent else ""
    that = " and ".join(kinds.wanted(one) for one in wanted)
    often = f", {times} times" if times > 1 else ""
    expected = f"{what} {name}{by}{f' that {that}' if that else ''}{often}"
    there = list(items(told))
    meant = [
        item
        for item in there
        if patterns.form(item.name) == patterns.form(name) and agent in ("", item.agent)
    ]
    reasons = []
    passed = 0
    for item in meant:
        text = item.read()
        subject = Subject(text, told, item.call, (what, item.number))
        verdicts = [kinds.all_of(subject, one) for one in wanted]
        failed = next((verdict for verdict in verdicts if not verdict.holds), None)
        passed += failed is None
        if passed == times:
            return Verdict(True, expected, f"{item.agent}: {checks.excerpt(text)}")
        reasons.append(f"{item.agent}: {failed.actual if failed else checks.excerpt(text)}")
    others = ", ".join(f"{item.name} of {item.agent}" for item in there)
    return Verdict(False, expected, "; ".join(reasons) or others or "nothing was carried")


def _parts(told: Conversation) -> Iterator[Item]:
    for reply in told.replies():
        for number, part in enumerate(reply.message.structured if reply.message else (), 1):
            yield Item(part.type, reply, number, functools.partial(_text_of, part.data))


def _files(told: Conversation) -> Iterator[Item]:
    for reply in told.replies():
        for number, part in enumerate(reply.message.attachments if reply.message else (), 1):
            yield Item(part.name, reply, number, functools.partial(told.read, part))


def _text_of(data: Any) -> str:
    return "\n".join(_lines(data))


def _lines(data: Any, place: str = "") -> Iterable[str]:
    """Data as text: a text as it is; of anything else one `place: value` for each value."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _lines(value, f"{place}.{key}" if place else str(key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _lines(value, f"{place}[{index}]")
    else:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        yield f"{place}: {text}" if place else text
