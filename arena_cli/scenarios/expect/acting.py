"""Check agents that act: the tools they called, how they ended, what they handed in."""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena_cli.scenarios.expect import json_checks, text_checks
from arena_cli.scenarios.expect.context import CheckContext, Subject, UsedTool
from arena_cli.scenarios.expect.json_checks import JsonCheck
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.scenarios.expect.values import Range, describe_limit, within

if TYPE_CHECKING:
    from arena_cli.scenarios.expect.model import CheckKeys, ExpectedCalls, ToolRow

AllOf = Callable[..., Verdict]
"""`check_kinds.all_of`, which also judges calls of tools."""

_MOST_CALLS = 30


def judge_reply(subject: Subject, use: ExpectedCalls, all_of: AllOf) -> Verdict:
    """Check that the reply that has the text called a tool so."""
    reply = subject.call.done.reply if subject.call else None
    calls = [call for call in subject.context.used_tools if call.asked.reply == reply]
    matches = find_matches(use, calls, subject.context, all_of)
    return Verdict(count_fits(use, len(matches)), describe_use(use), describe_calls(calls))


def find_matches(
    use: ExpectedCalls, calls: Sequence[UsedTool], context: CheckContext, all_of: AllOf
) -> list[int]:
    """Return the indexes of the calls that are as expected."""
    return [index for index, call in enumerate(calls) if _is_so(use, call, context, all_of)]


def _is_so(use: ExpectedCalls, call: UsedTool, context: CheckContext, all_of: AllOf) -> bool:
    keys, request = use.model_fields_set, call.asked
    if getattr(use, "agent", "") not in ("", request.agent):
        return False
    if "name" in keys and not fnmatch.fnmatchcase(request.tool, _as_pattern(use.name)):
        return False
    if "status" in keys and use.status != call.status:
        return False
    return all(
        name in request.arguments and _fits(expected, request.arguments[name], context, all_of)
        for name, expected in use.arguments.items()
    )


def _as_pattern(name: str) -> str:
    """Return the pattern of a name in which only `*` has a meaning."""
    return name.replace("[", "[[]").replace("?", "[?]")


def _fits(expected: Any, actual: Any, context: CheckContext, all_of: AllOf) -> bool:
    checks = _as_checks(expected)
    if checks is None:
        return json_checks.equal_values(actual, expected, False)
    text = actual if isinstance(actual, str) else json.dumps(actual, ensure_ascii=False)
    return all_of(Subject(text, context), checks).holds


def _as_checks(expected: Any) -> CheckKeys | None:
    """Return the checks on an argument; None for a value to compare with."""
    return expected if hasattr(expected, "kinds") else None


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
    checks = _as_checks(expected)
    if checks is None:
        return json_checks.show_value(expected)
    raw = checks.model_dump(mode="json", by_alias=True, include=checks.model_fields_set)
    return json_checks.show_value(raw)


def describe_calls(calls: Iterable[UsedTool]) -> str:
    """Describe the calls that were made, a line each."""
    lines = [describe_call(call) for call in calls]
    if len(lines) > _MOST_CALLS:
        omitted = len(lines) - _MOST_CALLS
        lines[_MOST_CALLS:] = [f"and {omitted} more calls"]
    return "\n".join(lines) or "no call of a tool"


def describe_call(call: UsedTool) -> str:
    """Describe a call in one line: who called what with which arguments, and how it ended."""
    request, ended = call.asked, call.ended
    arguments = request.problem or json_checks.show_value(request.arguments)
    facts = [request.agent, request.tool, arguments, call.status]
    if ended is not None and ended.status != "ok":
        facts.append(text_checks.excerpt(ended.result))
    return " · ".join(facts)


def check_tools(all_of: AllOf, expected: Sequence[ToolRow]) -> Iterator[Check]:
    """Yield the checks on the calls of tools, a row each, in this order; none: none was called."""
    if not expected:
        yield Check((), _are_none)
    for index in range(len(expected)):
        yield Check((index,), functools.partial(_is_called, all_of, expected[: index + 1]))


def _are_none(conversation: CheckContext) -> Verdict:
    calls = conversation.used_tools
    return Verdict(not calls, "no call of a tool", describe_calls(calls))


def _is_called(all_of: AllOf, rows: Sequence[ToolRow], conversation: CheckContext) -> Verdict:
    """Check that the last row is met by calls after those of the rows before it."""
    calls = conversation.used_tools
    start, count = 0, 0
    for row in rows:
        matches = find_matches(row, calls[start:], conversation, all_of)
        count = len(matches)
        needed = min(_count_needed(get_times(row)), count)
        start += matches[needed - 1] + 1 if needed else 0
    expected = "\nthen ".join(map(describe_use, rows))
    return Verdict(count_fits(rows[-1], count), expected, describe_calls(calls))


def _count_needed(times: float | Range) -> int:
    """Return the number of calls that a row needs; the next row begins after them."""
    if isinstance(times, Range):
        return int(times.min or 0)
    return int(times)


def has_ended(agent: str, mode: str, conversation: CheckContext) -> Verdict:
    """Check how the last reply of an agent has ended."""
    end = conversation.acting_ends.get(agent)
    return Verdict(end is not None and end.mode == mode, mode, _describe_end(agent, conversation))


def _describe_end(agent: str, conversation: CheckContext) -> str:
    end = conversation.acting_ends.get(agent)
    if end is None:
        return f"{agent} has ended no reply with tools"
    calls = [call for call in conversation.used_tools if call.asked.agent == agent]
    turns = f"{end.turns} turn{'s' if end.turns != 1 else ''}"
    return f"{end.mode} after {turns}\n{describe_calls(calls)}"


def check_outputs(expected: Mapping[str, JsonCheck | list[JsonCheck]]) -> Iterator[Check]:
    """Yield the checks on the last output that each agent handed in."""
    for agent, checks in expected.items():
        for index, check in json_checks.number(checks):
            yield Check((agent, *index), functools.partial(_fits_output, agent, check))


def _fits_output(agent: str, check: JsonCheck, conversation: CheckContext) -> Verdict:
    end = conversation.acting_ends.get(agent)
    why_none = f"{agent} handed in nothing: {_describe_end(agent, conversation)}"
    output = end.output if end else None
    return json_checks.judge_output(output, check, conversation.folders, why_none)
