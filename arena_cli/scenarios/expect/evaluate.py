"""Judge expectations: a conversation in, results out. Pure.

A failed call of an agent is an error, unless the step's or the scenario's `expect` names it: by
that agent's `outcome`, by a row of the timeline, or by `end: failed`. A check that crashes is an
error too, and so is one whose judge gave no verdict.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from arena_cli.scenarios.expect import (
    check_kinds,
    conversation_checks,
    event_checks,
    judge_checks,
    model,
    note_checks,
    text_checks,
)
from arena_cli.scenarios.expect.context import Call, CheckContext, Subject
from arena_cli.scenarios.expect.judge_checks import NOT_YET, Consulted, JudgeError, JudgeQuestion
from arena_cli.scenarios.expect.model import (
    EVERYBODY,
    Exactly,
    Expect,
    PassedOverBy,
    Replied,
    ReplyRow,
    SpentAmounts,
)
from arena_cli.scenarios.expect.text_checks import Check, NoVerdict, Verdict
from arena_cli.scenarios.expect.values import Cost, Range, describe_limit, within
from arena_cli.scenarios.result import CheckResult, Failure, Status, StepStatus
from arena_cli.transcript.conversation import FAILED
from arena_cli.util.text import clean_text
from arena_cli.yamlio import nodes
from arena_cli.yamlio.nodes import Loc


def among(rows: Sequence[ReplyRow], conversation: CheckContext) -> Verdict:
    """Check that these rows occur in this order; other rows may lie between them."""
    calls = conversation.calls()
    start = 0
    for index, row in enumerate(rows):
        matched = next(
            (
                position
                for position in range(start, len(calls))
                if not _against(row, calls[position], conversation)
            ),
            None,
        )
        if matched is None:
            reason = _nearest(row, calls[start:], conversation)
            return _verdict(rows, calls, index, f"no call matches row {index + 1}{reason}")
        start = matched + 1
    return _verdict(rows, calls)


def exactly(rows: Sequence[ReplyRow], conversation: CheckContext) -> Verdict:
    """Check that these rows occur in this order, and no other."""
    calls = conversation.calls()
    for index, (row, call) in enumerate(zip(rows, calls, strict=False)):
        against = _against(row, call, conversation)
        if against:
            return _verdict(rows, calls, index, f"row {index + 1}: {against}")
    if len(calls) > len(rows):
        return _verdict(rows, calls, None, f"expected {len(rows)} calls, got {len(calls)}")
    if len(calls) < len(rows):
        return _verdict(rows, calls, len(calls), f"no call for row {len(calls) + 1}")
    return _verdict(rows, calls)


def _verdict(
    rows: Sequence[ReplyRow], calls: Sequence[Call], index: int | None = None, reason: str = ""
) -> Verdict:
    expected = "\n".join(_describe_row(row) for row in rows) or "no call"
    actual = "\n".join(_describe_call(call) for call in calls) or "no call"
    place = () if index is None else (index,)
    return Verdict(not reason, expected, f"{actual}\n({reason})" if reason else actual, place)


def _against(row: ReplyRow, call: Call, conversation: CheckContext) -> str:
    """Explain why a call is not this row; return an empty text if it is."""
    keys = row.model_fields_set
    done = call.done
    facts = {"turn": call.turn, "phase": done.phase, "agent": done.agent, "status": done.status}
    for key, actual in facts.items():
        if key in keys and getattr(row, key) != actual:
            return f"{key} is {actual}"
    if done.message is None and (row.kinds or "mentions" in keys):
        return f"gave no reply: {done.status}"
    mentions = done.message.mentions if done.message else []
    if "mentions" in keys and not _mentions(row.mentions, mentions):
        return f"mentions {', '.join(mentions) or 'none'}"
    if row.kinds:
        verdict = check_kinds.all_of(Subject(call.text, conversation, call), row)
        return "" if verdict.holds else verdict.actual
    return ""


def _mentions(expected: Sequence[str] | Exactly, actual: Sequence[str]) -> bool:
    """Return True if a message mentions these; an empty list means no mention at all."""
    if isinstance(expected, Exactly):
        return set(expected.exactly) == set(actual)
    return set(expected) <= set(actual) if expected else not actual


def _nearest(row: ReplyRow, calls: Sequence[Call], conversation: CheckContext) -> str:
    """Explain why the calls of the row's agent are not that row."""
    agent_calls = [call for call in calls if call.agent == row.agent]
    return "".join(
        f"; {call.agent} in turn {call.turn}: {_against(row, call, conversation)}"
        for call in agent_calls
    )


def _describe_row(row: ReplyRow) -> str:
    """Describe an expected row in words."""
    keys = row.model_fields_set
    facts = []
    if {"turn", "phase"} & keys:
        turn = f"turn {row.turn}" if "turn" in keys else "a turn"
        facts.append(f"{turn} {row.phase}" if "phase" in keys else turn)
    facts.append(row.agent or "somebody")
    if "status" in keys:
        facts.append(row.status)
    if isinstance(row.mentions, Exactly):
        facts.append(f"→ exactly {', '.join(row.mentions.exactly) or 'none'}")
    elif "mentions" in keys:
        facts.append(f"→ {', '.join(row.mentions) or 'none'}")
    if row.kinds:
        facts.append(check_kinds.describe_checks(row))
    return " · ".join(facts)


def _describe_call(call: Call) -> str:
    facts = [f"turn {call.turn} {call.done.phase}", call.agent, call.done.status]
    if call.message and call.message.mentions:
        facts.append(f"→ {', '.join(call.message.mentions)}")
    if call.text:
        facts.append(text_checks.excerpt(call.text))
    return " · ".join(facts)


Checks = Iterable[Check]


def _each(judge: Callable[[str, Any, CheckContext], Verdict]) -> Callable[[Any], Checks]:
    """Return a check for each agent of a key, which gets its value."""
    return lambda expected: [
        Check((agent,), functools.partial(judge, agent, value)) for agent, value in expected.items()
    ]


def checks_of(expect: Expect) -> Checks:
    """Yield every check of an `expect`."""
    given = expect.model_fields_set
    for key in Expect.model_fields:
        if key in given:
            for check in _KEYS[key](getattr(expect, key)):
                yield check._replace(loc=(key, *check.loc))


def named_agents(expect: Expect) -> Iterator[tuple[Loc, str]]:
    """Yield every agent id that an `expect` names, with its place below it."""
    yield from _among(("replied",), expect.replied)
    if expect.plan is not None:
        yield from _among(("plan", "agents"), expect.plan.agents)
    for index, agents in enumerate(expect.must):
        yield from _at(("must", index), agents)
    yield from _at(("asked",), expect.asked)
    yield from _at(("silent",), expect.silent)
    for key in ("outcome", "passed_over", "refused", "replies", "shown", "shown_notes", "unread"):
        for agent in getattr(expect, key):
            if agent != EVERYBODY:
                yield (key, agent), agent
    for task, row in expect.tasks.items():
        if not isinstance(row, str) and row.agent:
            yield ("tasks", task, "agent"), row.agent
    for index, decision in enumerate(expect.supervised):
        yield from _at(("supervised", index, "should_reply"), decision.should_reply)
    rows = ("timeline", "timeline_exact", "structured", "attachments", "deviations")
    for key in (*rows, "approvals", "rules"):
        entries = getattr(expect, key)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if getattr(entry, "agent", ""):
                yield (key, index, "agent"), entry.agent


def named_somebody(expect: Expect) -> Iterator[tuple[Loc, str]]:
    """Yield every id of an agent or a human that the rows of an `expect` list as mentioned."""
    for key in ("timeline", "timeline_exact"):
        for index, row in enumerate(getattr(expect, key)):
            loc: Loc = (key, index, "mentions")
            if isinstance(row.mentions, Exactly):
                yield from _at((*loc, "exactly"), row.mentions.exactly)
            else:
                yield from _at(loc, row.mentions)


def _among(loc: Loc, replied: list[str] | Replied) -> Iterator[tuple[Loc, str]]:
    if isinstance(replied, Replied):
        yield from _at((*loc, "include"), replied.include)
        yield from _at((*loc, "exclude"), replied.exclude)
    else:
        yield from _at(loc, replied)


def _at(loc: Loc, agents: Sequence[str]) -> Iterator[tuple[Loc, str]]:
    for index, agent in enumerate(agents):
        yield (*loc, index), agent


def _replied(expected: list[str] | Replied) -> Checks:
    if isinstance(expected, list):
        yield Check((), lambda told: _compare_lists(expected, _who_replied(told)))
        return
    if expected.include:
        yield Check(("include",), lambda told: _includes(expected, _who_replied(told)))
    if expected.exclude:
        yield Check(("exclude",), lambda told: _excludes(expected.exclude, _who_replied(told)))


def _who_replied(conversation: CheckContext) -> list[str]:
    return [call.agent for call in conversation.replies()]


def _includes(expected: Replied, actual: list[str]) -> Verdict:
    if expected.any_order:
        holds = not Counter(expected.include) - Counter(actual)
        return Verdict(holds, f"{_names(expected.include)}, in any order", _names(actual))
    remaining = iter(actual)
    holds = all(agent in remaining for agent in expected.include)
    return Verdict(holds, f"{_names(expected.include)}, in this order", _names(actual))


def _excludes(unwanted: list[str], actual: list[str]) -> Verdict:
    holds = not set(unwanted) & set(actual)
    return Verdict(holds, f"no reply of {_names(unwanted, ' or ')}", _names(actual))


def _whole(judge: Callable[[Any, CheckContext], Verdict]) -> Callable[[Any], Checks]:
    """Return a key's only check, which gets its whole value."""
    return lambda expected: [Check((), functools.partial(judge, expected))]


def _must(expected: list[list[str]], conversation: CheckContext) -> Verdict:
    actual = [turn.must for turn in conversation.turns]
    return Verdict(expected == actual, _turns_of(expected), _turns_of(actual))


def _asked(expected: list[str], conversation: CheckContext) -> Verdict:
    return _compare_lists(expected, [agent for turn in conversation.turns for agent in turn.asked])


def _silent(expected: list[str]) -> Checks:
    for index, agent in enumerate(expected):
        yield Check((index,), functools.partial(_said_nothing, agent))


def _said_nothing(agent: str, conversation: CheckContext) -> Verdict:
    """Check that the agent stayed silent; a failed call is not silence."""
    ended = [call.done.status for call in conversation.calls() if call.agent == agent]
    holds = all(status == "declined" for status in ended)
    return Verdict(holds, f"{agent} silent", ", ".join(ended) or conversation.outcome(agent))


def _outcome(agent: str, expected: str, conversation: CheckContext) -> Verdict:
    actual = conversation.outcome(agent)
    return Verdict(actual == expected, expected, actual)


def _passed_over(agent: str, by: PassedOverBy, conversation: CheckContext) -> Verdict:
    expected, relevance = "passed over", by.relevance
    if relevance is not None:
        expected += f" with relevance {describe_limit(relevance)}"
    turns = conversation.turns
    passings = [turn.passed_over[agent].relevance for turn in turns if agent in turn.passed_over]
    if not passings:
        return Verdict(False, expected, conversation.outcome(agent))
    holds = relevance is None or any(within(relevance, passing) for passing in passings)
    return Verdict(holds, expected, ", ".join(f"relevance {passing:g}" for passing in passings))


def _counted(
    count: Callable[[CheckContext], float | None], unit: str = ""
) -> Callable[[Any], Checks]:
    def judge(expected: float | Range, conversation: CheckContext) -> Verdict:
        text, actual = f"{describe_limit(expected)}{unit}", count(conversation)
        if actual is None:
            return Verdict(True, text, "not judged: no agent was called live")
        return Verdict(within(expected, actual), text, f"{actual:g}{unit}")

    return _whole(judge)


def _priced(count: Callable[[CheckContext], float | None]) -> Callable[[Any], Checks]:
    def judge(expected: float | Cost, conversation: CheckContext) -> Verdict:
        text, actual = f"{describe_limit(expected)} USD", count(conversation)
        if actual is None:
            passes = isinstance(expected, Cost) and expected.unknown == "pass"
            return Verdict(passes, text, "unknown: an agent did not report its cost")
        return Verdict(within(expected, actual), text, f"{actual:g} USD")

    return _whole(judge)


_SPENT = {
    "tokens": _counted(CheckContext.spent_tokens, " tokens"),
    "usd": _priced(CheckContext.spent_usd),
}


def _spent(expected: SpentAmounts) -> Checks:
    for name, list_checks in _SPENT.items():
        if name in expected.model_fields_set:
            for check in list_checks(getattr(expected, name)):
                yield check._replace(loc=(name,))


def _paused(expected: list[str], conversation: CheckContext) -> Verdict:
    pause = conversation.last_pause
    actual = f"{pause.reason}: {pause.detail}" if pause else "the last chain does not wait"
    return Verdict(conversation.pause in expected, " or ".join(expected), actual)


def _ended(expected: list[str], conversation: CheckContext) -> Verdict:
    end = conversation.end
    return Verdict(end in expected, " or ".join(expected), end or "no chain has ended")


def _unresolved(expected: list[str], conversation: CheckContext) -> Verdict:
    def forms(names: Iterable[str]) -> list[str]:
        return [f"@{text_checks.form(name)}" for name in names]

    return _same_set(forms(expected), forms(conversation.unresolved))


def _refused(agent: str, expected: float | Range, conversation: CheckContext) -> Verdict:
    calls = [call for call in conversation.calls() if agent in (EVERYBODY, call.agent)]
    actions = [str(action) for call in calls for action in call.done.refused_actions]
    actual = f"{len(actions)}: {'; '.join(actions)}" if actions else "0"
    return Verdict(within(expected, len(actions)), describe_limit(expected), actual)


def _compare_lists(expected: list[str], actual: list[str]) -> Verdict:
    return Verdict(expected == actual, _names(expected), _names(actual))


def _same_set(expected: Sequence[str], actual: Sequence[str]) -> Verdict:
    """Check that both have the same names, in any order."""
    return Verdict(set(expected) == set(actual), _names(expected), _names(actual))


def _names(names: Sequence[str], joined: str = ", ") -> str:
    return joined.join(names) or "none"


def _turns_of(turns: list[list[str]]) -> str:
    return " | ".join(_names(agents) for agents in turns) or "no turn"


_KEYS: dict[str, Callable[[Any], Checks]] = {
    "replied": _replied,
    "must": _whole(_must),
    "asked": _whole(_asked),
    "silent": _silent,
    "outcome": _each(_outcome),
    "passed_over": _each(_passed_over),
    "turns": _counted(lambda told: len(told.turns)),
    "replies_count": _counted(lambda told: len(told.replies())),
    "tokens": _counted(CheckContext.tokens, " tokens"),
    "cost_usd": _priced(CheckContext.cost_usd),
    "latency_s": _counted(CheckContext.live_s, " s"),
    "end": _whole(_ended),
    "paused": _whole(_paused),
    "spent": _spent,
    "awaits": _whole(lambda expected, told: _same_set(expected, told.awaits)),
    "unresolved": _whole(_unresolved),
    "refused": _each(_refused),
    "system": conversation_checks.system,
    "timeline": _whole(among),
    "timeline_exact": _whole(exactly),
    "replies": conversation_checks.replies,
    "structured": conversation_checks.structured,
    "attachments": conversation_checks.attachments,
    "shown": conversation_checks.check_shown,
    "notes": note_checks.notes,
    "shown_notes": _each(note_checks.judge_shown),
    "deviations": note_checks.deviations,
    "supervised": event_checks.check_supervised,
    "rules": _whole(event_checks.broke),
    "approvals": functools.partial(event_checks.check_in_order, event_checks.APPROVALS),
    "reactions": event_checks.check_reactions,
    "unread": _each(event_checks.has_unread),
    "tool": event_checks.check_tools,
    "exchanges": functools.partial(event_checks.check_in_order, event_checks.EXCHANGES),
    "plan": event_checks.check_plan,
    "ended": _each(event_checks.has_ended),
    "output": event_checks.check_outputs,
    "flow": event_checks.check_flow,
    "tasks": event_checks.check_tasks,
    "compactions": _counted(lambda told: len(told.compactions)),
}

Locate = Callable[[Loc], tuple[str, int]]
"""The file and the line of what stands at a place of a scenario."""


def questions(expected: Expect, conversation: CheckContext) -> list[JudgeQuestion]:
    """Return the questions of an `expect` to judges that the conversation has no answer to.

    The answers may lead to more questions: a row's text may be judged only after another row did
    not match.
    """
    places = [
        given_check.loc
        for given_check in model.iter_checks(expected)
        if given_check.kind == judge_checks.KIND
    ]
    consulted = Consulted(conversation.verdicts, instead=NOT_YET)
    asking = replace(conversation, verdicts=consulted)
    for check in checks_of(expected):
        if any(location[: len(check.loc)] == check.loc for location in places):
            with contextlib.suppress(Exception):  # it is told when it is checked with the answers
                check.judge(asking)
    return [question for question in consulted.looked if question not in conversation.verdicts]


def checked(
    expected: Expect, conversation: CheckContext, locate: Locate, loc: Loc
) -> list[CheckResult]:
    """Return the result of every check of the `expect` at `loc`, sorted by line."""
    results = [_checked(check, conversation, locate, loc) for check in checks_of(expected)]
    if any(result.status != "passed" for result in results):  # else nobody asks for their lines
        results.sort(key=lambda one: one.line)
    return results


def _checked(check: Check, conversation: CheckContext, locate: Locate, loc: Loc) -> CheckResult:
    status: Status
    consulted = Consulted(conversation.verdicts)
    judge = None
    try:
        verdict = check.judge(
            replace(conversation, verdicts=consulted) if conversation.verdicts else conversation
        )
    except NoVerdict as error:
        status = "error"
        judge = error.judge if isinstance(error, JudgeError) else None
        verdict = Verdict(False, error.expected, str(error))
    except Exception as error:  # noqa: BLE001  # whatever went wrong, it is no verdict
        status = "error"
        verdict = Verdict(False, "", f"the check itself failed: {type(error).__name__}: {error}")
    else:
        status = "passed" if verdict.holds else "warned" if check.warns else "failed"
        judge = consulted.judge
    return result(verdict, status, locate, loc, (*check.loc, *verdict.at), judge)


def result(
    verdict: Verdict,
    status: Status,
    locate: Locate,
    loc: Loc,
    below: Loc,
    judge: str | None = None,
) -> CheckResult:
    """Return the result for the key `below` of the `expect` at `loc`.

    `judge` is the judge that gave the verdict, if any.
    """
    return CheckResult(
        place=functools.partial(locate, (*loc, *below)),
        field=nodes.format_loc(below),
        status=status,
        expected=clean_text(verdict.expected)[0],
        actual=clean_text(verdict.actual)[0],
        judge=judge,
    )


class Rows:
    """The rows of an `expect` that name a failed call; each names one."""

    def __init__(self, expect: Expect) -> None:
        self._left = [
            row
            for row in (*expect.timeline, *expect.timeline_exact)
            if row.agent and "status" in row.model_fields_set and row.status in FAILED
            if not row.kinds and "mentions" not in row.model_fields_set
        ]

    def name(self, call: Call, turn: int) -> bool:
        """Return True if a remaining row names that call in that turn, and remove the row."""
        for row in self._left:
            actual = {"turn": turn, "phase": call.done.phase}
            keys = actual.keys() & row.model_fields_set
            is_there = all(getattr(row, key) == actual[key] for key in keys)
            if is_there and (row.agent, row.status) == (call.agent, call.done.status):
                self._left.remove(row)
                return True
        return False


def unnamed(
    conversation: CheckContext,
    step: Expect,
    scenario: Expect,
    rows: Rows,
    turns_before: int,
    *,
    since: int = 0,
) -> list[Failure]:
    """Return the calls that failed in a step, and that neither `expect` names.

    An expectation names a failure only if its value is that failure: one that fails as well excuses
    nothing. `rows` are the scenario's remaining rows, `before` the number of turns of the earlier
    steps. `scenario` has no `end` if the step's chain is not the last. Calls that ended before the
    event `since` are those of earlier steps.
    """
    failures = [call for call in conversation.failures() if call.done.seq >= since]
    if not failures or (conversation.end == "failed" and "failed" in (*step.end, *scenario.end)):
        return []
    step_rows = Rows(step)
    return [
        Failure(
            agent=call.agent,
            turn=call.turn,
            status=call.done.status,
            error=call.done.error or "",
        )
        for call in failures
        if not step_rows.name(call, call.turn)
        and not rows.name(call, turns_before + call.turn)
        and call.done.status
        not in (expectation.outcome.get(call.agent) for expectation in (step, scenario))
    ]


def find_unnamed_pause(conversation: CheckContext, step: Expect, scenario: Expect) -> str:
    """Describe the pause of a step's chain, if neither `expect` says how the chain is left.

    `scenario` has no `end` and no `paused` if the step's chain is not the last.
    """
    pause = conversation.last_pause
    keys = step.model_fields_set | {key for key in ("end", "paused") if getattr(scenario, key)}
    if pause is None or keys & {"end", "paused"}:
        return ""
    return (
        f"the chain waits ({pause.reason}: {pause.detail}); "
        f"if that is expected, write `paused: {pause.reason}`"
    )


def status_of(checks: Sequence[CheckResult], failures: Sequence[Failure]) -> StepStatus:
    """Return the status of a step; an error takes precedence over passed and failed checks."""
    statuses = {check.status for check in checks}
    if failures or "error" in statuses:
        return "error"
    return "failed" if "failed" in statuses else "passed"
