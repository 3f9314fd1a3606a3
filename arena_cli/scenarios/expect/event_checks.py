"""Check what events tell: decisions, exchanges, plans, calls of tools, tasks, steps of flows."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.scenarios.expect import check_kinds, json_checks, text_checks
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.json_checks import JsonCheck
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.scenarios.expect.values import Range, describe_limit, within
from arena_cli.transcript import queries
from arena_cli.util.text import cut_text

if TYPE_CHECKING:
    from arena_cli.scenarios.expect.model import (
        FlowStepRow,
        PlanExpectation,
        ReactionRow,
        Row,
        RuleRow,
        SupervisedRow,
        TaskRow,
        ToolRow,
    )
    from arena_cli.transcript.task_events import Task

Facts = dict[str, Any]
"""What a row may expect of an event, by the name of its field."""

_SHOWN = 300
_STATES = ("announced", "timed_out")


class _EventKind(NamedTuple):
    """A kind of events: the name of one, how they are listed, and facts that are not shown."""

    name: str
    list_facts: Callable[[CheckContext], list[Facts]]
    usual: Mapping[str, Any] = {}

    def describe(self, rows: Sequence[Facts]) -> str:
        """Describe the events, a line each."""
        shown = (
            {name: value for name, value in row.items() if self.usual.get(name) != value}
            for row in rows
        )
        return "\n".join(map(_describe, shown)) or f"no {self.name}"


def _describe(facts: Facts) -> str:
    return " · ".join(_describe_fact(*fact) for fact in facts.items() if fact[1] != "")


def _describe_fact(name: str, value: Any) -> str:
    if name in _STATES:
        fact = name.replace("_", " ")
        return fact if value else f"not {fact}"
    if isinstance(value, list):
        return f"{name} {', '.join(value) or 'none'}"
    if isinstance(value, Range):
        return f"{name} {describe_limit(value)}"
    return f"{name} {str(value).lower() if isinstance(value, bool) else value}"


def _read_row(row: Row) -> Facts:
    given = row.model_fields_set
    return {name: getattr(row, name) for name in type(row).model_fields if name in given}


def _is_met(row: Row, facts: Facts) -> bool:
    return all(within(expected, facts[name]) for name, expected in _read_row(row).items())


def _are_as_many(kind: _EventKind, count: int, conversation: CheckContext) -> Verdict:
    actual = kind.list_facts(conversation)
    expected = f"{count} {kind.name}{'s' if count != 1 else ''}" if count else f"no {kind.name}"
    return Verdict(len(actual) == count, expected, kind.describe(actual))


def _is_at(kind: _EventKind, row: Row, index: int, conversation: CheckContext) -> Verdict:
    actual = kind.list_facts(conversation)
    holds = index < len(actual) and _is_met(row, actual[index])
    return Verdict(holds, _describe(_read_row(row)), kind.describe(actual))


def check_in_order(kind: _EventKind, expected: Sequence[Row]) -> Iterator[Check]:
    """Yield the checks on events of a kind: their number, and a row each, in order."""
    yield Check((), functools.partial(_are_as_many, kind, len(expected)))
    for index, row in enumerate(expected):
        yield Check((index,), functools.partial(_is_at, kind, row, index))


def list_approvals(conversation: CheckContext) -> list[Facts]:
    """Return what agents asked of people, in order; the decision is `open` if there is none."""
    chains = [chain.control for chain in conversation.conversation.chains if chain.control]
    rows = []
    for request in (request for control in chains for request in control.requests.values()):
        question, decided = request.asked, request.decided
        rows.append(
            {
                "agent": question.agent,
                "action": question.action,
                "decision": decided.decision if decided else "open",
                "option": decided.option if decided else "",
                "by": decided.by if decided else "",
            }
        )
    return rows


APPROVALS = _EventKind("request", list_approvals)


def _list_exchanges(conversation: CheckContext) -> list[Facts]:
    """Return the exchanges, in order; the end is `open` if one has not ended."""
    return [
        {
            "requester": started.requester,
            "target": started.target,
            "mode": started.mode,
            "priority": started.priority,
            "timed_out": started.exchange in conversation.timed_out_exchanges,
            "turns": ended.turns if ended else 0,
            "end": ended.end if ended else "open",
            "announced": bool(ended and ended.announced),
        }
        for started, ended in conversation.exchanges
    ]


EXCHANGES = _EventKind("exchange", _list_exchanges, {"priority": "normal", "timed_out": False})


def check_reactions(expected: Sequence[ReactionRow]) -> Iterator[Check]:
    """Yield the checks on the reactions: their number, and a row each, in any order."""
    yield Check((), functools.partial(_are_as_many, _REACTIONS, len(expected)))
    for index, row in enumerate(expected):
        yield Check((index,), functools.partial(_is_made, row, expected[:index]))


def list_reactions(conversation: CheckContext) -> list[Facts]:
    """Return the reactions in order: who reacted, how, and the author of that message."""
    return [
        {
            "by": message.author_id,
            "reaction": emoji,
            "to": message.quoted.partition(":")[0].removeprefix("@"),
        }
        for message in conversation.messages()
        for emoji in message.reactions
    ]


_REACTIONS = _EventKind("reaction", list_reactions)


def _is_made(
    row: ReactionRow, earlier: Sequence[ReactionRow], conversation: CheckContext
) -> Verdict:
    """Check that more reactions meet the row than there are equal rows before it."""
    actual = list_reactions(conversation)
    matches = sum(_is_met(row, facts) for facts in actual)
    holds = matches > sum(other == row for other in earlier)
    return Verdict(holds, _describe(_read_row(row)), _REACTIONS.describe(actual))


def check_supervised(expected: Sequence[SupervisedRow]) -> Iterator[Check]:
    """Yield the checks on the supervisor's decisions, a row each, in order; none: none was made."""
    if not expected:
        yield Check((), functools.partial(_are_as_many, _DECISIONS, 0))
    for index in range(len(expected)):
        yield Check((index,), functools.partial(_is_decided, expected[: index + 1]))


def _is_decided(rows: Sequence[SupervisedRow], conversation: CheckContext) -> Verdict:
    """Check that the last row is met by a decision after those of the rows before it."""
    actual = _list_decisions(conversation)
    remaining = iter(actual)
    holds = all(any(_is_met(row, facts) for facts in remaining) for row in rows)
    return Verdict(holds, _describe(_read_row(rows[-1])), _DECISIONS.describe(actual))


def _list_decisions(conversation: CheckContext) -> list[Facts]:
    return [
        {
            "turn": turn,
            "should_reply": decision.should_reply,
            "order": decision.order,
            "fallback": "free" if decision.fallback else "none",
            "done": decision.done,
            "replan": decision.replan,
        }
        for turn, decision in conversation.supervised
    ]


_DECISIONS = _EventKind("decision", _list_decisions)


def broke(rows: Sequence[RuleRow], conversation: CheckContext) -> Verdict:
    """Check that just these rules were broken, in any order."""
    broken = conversation.broken_rules
    unmet, unmatched = match_rows(rows, broken, lambda row, event: _is_met(row, vars(event)))
    expected = "; ".join(_describe_rule(_read_row(row)) for row in rows)
    actual = "; ".join(
        f"{_describe_rule(vars(event))} · {text_checks.excerpt(event.error)}" for event in broken
    )
    none = "no rule broken"
    return Verdict(not unmet and not unmatched, expected or none, actual or none)


def _describe_rule(facts: Facts) -> str:
    words = [facts.get("agent"), facts.get("rule")]
    if "corrected" in facts:
        words.append("corrected" if facts["corrected"] else "not corrected")
    return " · ".join(filter(None, words))


def match_rows(
    rows: Sequence[Any], items: Sequence[Any], fits: Callable[[Any, Any], bool]
) -> tuple[list[int], list[int]]:
    """Match rows and items one to one; return the indexes of the rows and the items left."""
    fitting = [[index for index, item in enumerate(items) if fits(row, item)] for row in rows]
    assigned: dict[int, int] = {}

    def assign(row: int, seen: set[int]) -> bool:
        """Assign a row an item; a row that had this item gets another, if there is one."""
        for item in fitting[row]:
            if item not in seen:
                seen.add(item)
                if item not in assigned or assign(assigned[item], seen):
                    assigned[item] = row
                    return True
        return False

    unmet = [row for row in range(len(rows)) if not assign(row, set())]
    return unmet, [item for item in range(len(items)) if item not in assigned]


def has_unread(agent: str, count: int | Range, conversation: CheckContext) -> Verdict:
    """Check the number of messages that an agent was not shown."""
    messages = queries.list_unread(conversation.conversation.events, [agent])[agent]
    listed = "".join(f"\n{message.author_id}: {message.content}" for message in messages)
    return Verdict(
        within(count, len(messages)),
        f"{describe_limit(count)} unread",
        f"{len(messages)} unread{listed}",
    )


def check_plan(expected: PlanExpectation) -> Iterator[Check]:
    """Yield the checks on the last plan: mode, agents, confidence, and what became of it."""
    for name, value in _read_row(expected).items():
        yield Check((name,), functools.partial(_is_planned, name, value))


def _is_planned(name: str, expected: Any, conversation: CheckContext) -> Verdict:
    """Check a fact of the last plan that was carried out or refused."""
    if not conversation.plans:
        return Verdict(False, "a plan", "no plan")
    plan = conversation.plans[-1]
    if name == "agents":
        return _check_planned_agents(expected, plan.agents)
    if name == "fallback":
        texts = "the plan is carried out", "the fallback"
        reason = f" ({plan.fallback})" if plan.fallback else ""
        is_fallback = bool(plan.fallback)
        return Verdict(is_fallback == expected, texts[expected], f"{texts[is_fallback]}{reason}")
    if name == "mode":
        return Verdict(plan.mode == expected, expected, plan.mode)
    actual = plan.confidence if name == "confidence" else plan.replan
    return Verdict(within(expected, actual), describe_limit(expected), f"{actual:g}")


def _check_planned_agents(expected: Any, actual: Sequence[str]) -> Verdict:
    names = ", ".join(actual) or "none"
    if isinstance(expected, list):
        return Verdict(set(expected) == set(actual), ", ".join(expected) or "none", names)
    holds = {*expected.include} <= {*actual} and not {*expected.exclude} & {*actual}
    wanted = [*expected.include, *(f"not {agent}" for agent in expected.exclude)]
    return Verdict(holds, ", ".join(wanted), names)


def check_tools(expected: Sequence[ToolRow]) -> Iterator[Check]:
    """Yield the checks on the calls of tools, a row each, in this order; none: none was called."""
    if not expected:
        yield Check((), _are_none)
    for index in range(len(expected)):
        yield Check((index,), functools.partial(_is_called, expected[: index + 1]))


def _are_none(conversation: CheckContext) -> Verdict:
    calls = conversation.used_tools
    return Verdict(not calls, "no call of a tool", check_kinds.describe_calls(calls))


def _is_called(rows: Sequence[ToolRow], conversation: CheckContext) -> Verdict:
    """Check that the last row is met by calls after those of the rows before it."""
    calls = conversation.used_tools
    start, count = 0, 0
    for row in rows:
        matches = check_kinds.find_matches(row, calls[start:], conversation)
        count = len(matches)
        needed = min(_count_needed(check_kinds.get_times(row)), count)
        start += matches[needed - 1] + 1 if needed else 0
    expected = "\nthen ".join(map(check_kinds.describe_use, rows))
    return Verdict(
        check_kinds.count_fits(rows[-1], count), expected, check_kinds.describe_calls(calls)
    )


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
    return f"{end.mode} after {turns}\n{check_kinds.describe_calls(calls)}"


def check_outputs(expected: Mapping[str, JsonCheck | list[JsonCheck]]) -> Iterator[Check]:
    """Yield the checks on the last output that each agent handed in."""
    for agent, checks in expected.items():
        for index, check in json_checks.number(checks):
            yield Check((agent, *index), functools.partial(_fits_handed_in, agent, check))


def _fits_handed_in(agent: str, check: JsonCheck, conversation: CheckContext) -> Verdict:
    end = conversation.acting_ends.get(agent)
    why_none = f"{agent} handed in nothing: {_describe_end(agent, conversation)}"
    output = end.output if end else None
    return json_checks.judge_output(output, check, conversation.folders, why_none)


def check_tasks(expected: Mapping[str, str | TaskRow]) -> Iterator[Check]:
    """Yield the checks on the tasks, by id."""
    for task, row in expected.items():
        if isinstance(row, str):
            yield Check((task,), functools.partial(_has, task, "status", row))
            continue
        for field, value in _read_row(row).items():
            yield Check((task, field), functools.partial(_has, task, field, value))


def _has(task: str, field: str, value: str | int, conversation: CheckContext) -> Verdict:
    tasks = conversation.tasks.tasks if conversation.tasks else {}
    facts: Facts = {"status": "none", "agent": "", "attempts": 0}
    if found := tasks.get(task):
        facts = {"status": found.status, "agent": found.assigned_to, "attempts": found.attempts}
    expected = f"{task} {value}" if field == "status" else f"{task} {field} {value}"
    return Verdict(facts[field] == value, expected, _describe_tasks(task, tasks))


def _describe_tasks(task: str, tasks: Mapping[str, Task]) -> str:
    """Return the task as it is, and the others."""
    if not tasks:
        return "no task"
    others = [f"{one.id} {one.status}" for one in tasks.values() if one.id != task]
    line = _describe_task(tasks[task]) if task in tasks else f"{task} none"
    return f"{line}\n(others: {', '.join(others)})" if others else line


def _describe_task(task: Task) -> str:
    facts = [f"{task.id} {task.status}"]
    if task.assigned_to:
        facts.append(f"agent {task.assigned_to}")
    if task.attempts != 1:
        facts.append(f"attempts {task.attempts}")
    text = task.error or task.result
    return " · ".join(facts) + (f": {cut_text(text, _SHOWN)}" if text else "")


def check_flow(expected: Mapping[str, FlowStepRow]) -> Iterator[Check]:
    """Yield the checks on the steps of the flow that ran last."""
    for step, row in expected.items():
        outputs = [*json_checks.number(row.output)]
        if "status" in row.model_fields_set or not (row.error_code or outputs):
            yield Check((step, "status"), functools.partial(_has_status, step, row.status))
        if row.error_code:
            yield Check((step, "error_code"), functools.partial(_has_class, step, row.error_code))
        for index, check in outputs:
            judge = functools.partial(_fits_output, step, check)
            yield Check((step, "output", *index), judge)


def _has_status(step: str, status: str, conversation: CheckContext) -> Verdict:
    end = conversation.flow_steps.get(step)
    actual = end.status if end else "none"
    return Verdict(actual == status, status, _describe_step(step, conversation))


def _has_class(step: str, code: str, conversation: CheckContext) -> Verdict:
    end = conversation.flow_steps.get(step)
    actual = (end.error_code if end else None) or "no error"
    return Verdict(actual == code, code, f"{actual} ({_describe_step(step, conversation)})")


def _fits_output(step: str, check: JsonCheck, conversation: CheckContext) -> Verdict:
    end = conversation.flow_steps.get(step)
    why_none = f"{step} has no output: {_describe_step(step, conversation)}"
    output = end.output if end else None
    return json_checks.judge_output(output, check, conversation.folders, why_none)


def _describe_step(step: str, conversation: CheckContext) -> str:
    end = conversation.flow_steps.get(step)
    if end is None:
        known = ", ".join(conversation.flow_steps) or "no step"
        return f"{step} did not run; ended: {known}"
    if end.error:
        return f"{end.status}: {end.error}"
    output = json.dumps(end.output, ensure_ascii=False)
    return f"{end.status}, {cut_text(output, _SHOWN)}"
