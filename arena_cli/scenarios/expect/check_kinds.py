"""List the kinds of checks on a text by the field that holds them, and combine them.

The calls of tools that belong to a text are one kind; they combine checks on their arguments.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from arena_cli.scenarios.expect import (
    json_checks,
    judge_checks,
    python_checks,
    snapshots,
    text_checks,
)
from arena_cli.scenarios.expect.context import CheckContext, Subject, UsedTool
from arena_cli.scenarios.expect.model import CheckKeys, ExpectedCalls
from arena_cli.scenarios.expect.text_checks import Verdict
from arena_cli.scenarios.expect.values import Range, describe_limit, within

_MOST_CALLS = 30


class Kind(NamedTuple):
    """A kind of check: `judge` gives a verdict on a text, `asks` describes the check in words.

    Both receive the value at the check's key, and `ignore_case`.
    """

    judge: Callable[..., Verdict]
    asks: Callable[..., str]


def all_of(subject: Subject, check_keys: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    """Check that every given check holds; the verdict shows the first that does not."""
    verdicts = [
        judge_one(subject, kind, check_keys, ignore_case=ignore_case) for kind in check_keys.kinds
    ]
    expected = " and ".join(verdict.expected for verdict in verdicts)
    decisive = next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])
    return Verdict(decisive.holds, expected, decisive.actual)


def judge_one(
    subject: Subject, kind: str, check_keys: CheckKeys, *, ignore_case: bool = False
) -> Verdict:
    """Judge one of the given checks, by its field; `ignore_case` is that of outer checks."""
    either = check_keys.ignore_case or ignore_case
    return _kind(kind).judge(subject, check_keys.given(kind), ignore_case=either)


def describe_checks(
    check_keys: CheckKeys, joined: str = " and ", *, ignore_case: bool = False
) -> str:
    """Describe the given checks in words."""
    either = check_keys.ignore_case or ignore_case
    phrases = (
        _kind(kind).asks(check_keys.given(kind), ignore_case=either) for kind in check_keys.kinds
    )
    return joined.join(phrases)


def _kind(kind: str) -> Kind:
    return KINDS.get(kind, _PLUGGED)


def _none_of(subject: Subject, unwanted: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    expected = _no_one_of(unwanted, ignore_case=ignore_case)
    for kind in unwanted.kinds:
        verdict = judge_one(subject, kind, unwanted, ignore_case=ignore_case)
        if verdict.holds:
            return Verdict(False, expected, f"{verdict.expected}: {verdict.actual}")
    return Verdict(True, expected, text_checks.excerpt(subject.text))


def _no_one_of(unwanted: CheckKeys, *, ignore_case: bool = False) -> str:
    return f"not: {describe_checks(unwanted, ' nor ', ignore_case=ignore_case)}"


def _any_of(
    subject: Subject, choices: Sequence[CheckKeys], *, ignore_case: bool = False
) -> Verdict:
    verdicts = [all_of(subject, choice, ignore_case=ignore_case) for choice in choices]
    expected = " or ".join(verdict.expected for verdict in verdicts)
    held = next((verdict for verdict in verdicts if verdict.holds), None)
    if held:
        return Verdict(True, expected, held.actual)
    return Verdict(False, expected, "; ".join(dict.fromkeys(v.actual for v in verdicts)))


def _one_of(choices: Sequence[CheckKeys], *, ignore_case: bool = False) -> str:
    return " or ".join(describe_checks(choice, ignore_case=ignore_case) for choice in choices)


def _on_text(check: Callable[..., Verdict]) -> Kind:
    """Return a kind of check that looks at nothing but the text."""

    def judge(subject: Subject, options: Any, *, ignore_case: bool = False) -> Verdict:
        return check(subject.text, options, ignore_case=ignore_case)

    def asks(options: Any, *, ignore_case: bool = False) -> str:
        return check("", options, ignore_case=ignore_case).expected

    return Kind(judge, asks)


def _judge_calls(subject: Subject, use: ExpectedCalls, **_: bool) -> Verdict:
    """Check that the reply that has the text called a tool so."""
    reply = subject.call.done.reply if subject.call else None
    calls = [call for call in subject.context.used_tools if call.asked.reply == reply]
    matches = find_matches(use, calls, subject.context)
    return Verdict(count_fits(use, len(matches)), describe_use(use), describe_calls(calls))


def find_matches(use: ExpectedCalls, calls: Sequence[UsedTool], context: CheckContext) -> list[int]:
    """Return the indexes of the calls that are as expected."""
    return [index for index, call in enumerate(calls) if _is_so(use, call, context)]


def _is_so(use: ExpectedCalls, call: UsedTool, context: CheckContext) -> bool:
    keys, request = use.model_fields_set, call.asked
    if getattr(use, "agent", "") not in ("", request.agent):
        return False
    if "name" in keys and not fnmatch.fnmatchcase(request.tool, _as_pattern(use.name)):
        return False
    if "status" in keys and use.status != call.status:
        return False
    return all(
        name in request.arguments and _fits(expected, request.arguments[name], context)
        for name, expected in use.arguments.items()
    )


def _as_pattern(name: str) -> str:
    """Return the pattern of a name in which only `*` has a meaning."""
    return name.replace("[", "[[]").replace("?", "[?]")


def _fits(expected: Any, actual: Any, context: CheckContext) -> bool:
    if not isinstance(expected, CheckKeys):
        return json_checks.equal_values(actual, expected, False)
    text = actual if isinstance(actual, str) else json.dumps(actual, ensure_ascii=False)
    return all_of(Subject(text, context), expected).holds


def count_fits(use: ExpectedCalls, count: int) -> bool:
    """Return True if that number of calls is expected."""
    return within(get_times(use), count)


def get_times(use: ExpectedCalls) -> float | Range:
    """Return how many calls are expected: at least one, unless `times` says otherwise."""
    return use.times if "times" in use.model_fields_set else Range(min=1)


def describe_use(use: ExpectedCalls, **_: bool) -> str:
    """Describe an expected call in words."""
    keys = use.model_fields_set
    facts = [getattr(use, "agent", ""), f"calls {use.name}" if "name" in keys else "calls a tool"]
    if use.arguments:
        texts = (f"{name}: {_describe_argument(item)}" for name, item in use.arguments.items())
        facts.append(f"with {{{', '.join(texts)}}}")
    facts.append(use.status if "status" in keys else "")
    if "times" in keys:
        facts.append("1 time" if use.times == 1 else f"{describe_limit(use.times)} times")
    return " · ".join(filter(None, facts))


def _describe_argument(expected: Any) -> str:
    if isinstance(expected, CheckKeys):
        given = expected.model_fields_set
        expected = expected.model_dump(mode="json", by_alias=True, include=given)
    return json_checks.show_value(expected)


def describe_calls(calls: Iterable[UsedTool]) -> str:
    """Describe the calls that were made, a line each."""
    lines = [_describe_call(call) for call in calls]
    if len(lines) > _MOST_CALLS:
        omitted = len(lines) - _MOST_CALLS
        lines[_MOST_CALLS:] = [f"and {omitted} more calls"]
    return "\n".join(lines) or "no call of a tool"


def _describe_call(call: UsedTool) -> str:
    """Describe a call in one line: who called what with which arguments, and how it ended."""
    request, ended = call.asked, call.ended
    arguments = request.problem or json_checks.show_value(request.arguments)
    facts = [request.agent, request.tool, arguments, call.status]
    if ended is not None and ended.status != "ok":
        facts.append(text_checks.excerpt(ended.result))
    return " · ".join(facts)


KINDS: dict[str, Kind] = {
    "contains": _on_text(text_checks.contains),
    "not_contains": _on_text(text_checks.not_contains),
    "equals": _on_text(text_checks.equals),
    "regex": _on_text(text_checks.regex),
    "starts_with": _on_text(text_checks.starts_with),
    "max_words": _on_text(text_checks.max_words),
    "max_chars": _on_text(text_checks.max_chars),
    "language": _on_text(text_checks.in_language),
    "none_of": Kind(_none_of, _no_one_of),
    "any_of": Kind(_any_of, _one_of),
    "as_json": Kind(json_checks.judge, json_checks.asks),
    "similar": Kind(text_checks.judge, text_checks.asks),
    "python": Kind(python_checks.judge, python_checks.asks),
    "snapshot": Kind(snapshots.judge, snapshots.asks),
    "judge": Kind(judge_checks.judge, judge_checks.asks),
    "tool": Kind(_judge_calls, describe_use),
}

_PLUGGED = Kind(python_checks.judge_plugin, python_checks.describe_plugin)
