"""The lines of the events of control, for timelines and pages; see `reports.event_lines`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from arena_cli.reports.lines import (
    INDENT,
    Line,
    Span,
    Who,
    Words,
    as_spans,
    draw_diff,
    line,
    local_time,
)
from arena_cli.transcript.control_events import (
    AgentStateChanged,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalUsed,
    BreakerChanged,
    BudgetRaised,
    ChainPaused,
    Checkpoint,
    Decision,
    Degraded,
    Edited,
    Forked,
    IntentSorted,
    MarkedRead,
    Rewound,
    RuleBroken,
    Steered,
    Supervised,
)
from arena_cli.transcript.events import Event
from arena_cli.util.text import escape_line
from arena_cli.workspace.control import RULES_BY_NAME


def _render_pause(event: ChainPaused, say: Words, _: Who) -> Line:
    reasons = {
        "asked": "paused",
        "approval": "paused, an approval is needed",
        "choice": "paused, a choice is needed",
        "budget": "paused, the budget is used up",
    }
    reason = Span(say(reasons[event.reason]), "warned")
    detail = Span(f"{say(': ')}{describe_pause(event.detail, say)}")
    return line(Span("══ ", "rule"), reason, detail, hang=3)


_EXCESS = re.compile(
    r"(?:(?P<agent>\S+), )?(?P<scope>turn|chain|session|day): (?P<used>\S+) of (?P<bound>\S+)"
    r"(?P<unit> tokens)?(?:, with the next call of (?P<next>\S+))?"
)
_WAITS = re.compile(r"request (?P<request>\d+) of (?P<agent>\S+): (?P<action>.*)")
_BY = re.compile(r"by (?P<who>.+)")


def describe_pause(detail: str, say: Words) -> str:
    """Return for what a chain waits (`chain_paused.detail`) in the user's language."""
    if match := _EXCESS.fullmatch(detail):
        return _describe_excess(match, say)
    if match := _BY.fullmatch(detail):
        return say("by {who}", who=escape_line(match["who"]))
    waiting = [_WAITS.fullmatch(part) for part in detail.split(", ")]
    if not all(waiting):
        return escape_line(detail)
    return say(", ").join(
        say("request {request} of {agent}: {action}", **_escape_groups(match))
        for match in waiting
        if match
    )


def _describe_excess(match: re.Match[str], say: Words) -> str:
    values = _escape_groups(match)
    text = "{agent}, {scope}: {used} of {bound}" if match["agent"] else "{scope}: {used} of {bound}"
    amount = say(text, **{**values, "scope": say.enum(match["scope"])})
    amount += f" {say('tokens')}" if match["unit"] else ""
    if match["next"]:
        return say("{excess}, with the next call of {next}", excess=amount, next=values["next"])
    return amount


def _escape_groups(match: re.Match[str]) -> dict[str, str]:
    return {name: escape_line(value) for name, value in match.groupdict().items() if value}


def _render_request(event: ApprovalRequested, say: Words, who: Who) -> Line:
    text = "request {request}: {who} asks for {action}: {detail}"
    if event.options:
        text = "request {request}: {who} asks to choose one of {options}: {detail}"
    spans = say.spans(
        text,
        request=event.request,
        who=who(event.agent),
        action=escape_line(event.action),
        detail=escape_line(event.detail),
        options=say(", ").join(map(escape_line, event.options)),
    )
    return line(INDENT, Span("? ", "warned"), spans, hang=4)


def _render_decision(event: ApprovalDecided, say: Words, who: Who) -> Line:
    values: dict[str, int | str | list[Span]] = {"request": event.request, "who": who(event.by)}
    is_approved = event.decision == "approved"
    values["decision"] = [Span(say.enum(event.decision), "added" if is_approved else "failed")]
    text = "request {request} {decision} by {who}"
    if event.option:
        text = "request {request}: {who} chose {option}"
        values["option"] = escape_line(event.option)
    spans = list(say.spans(text, **values))
    if event.because:
        spans.append(Span(f"{say(': ')}{escape_line(event.because)}"))
    mark = Span("✓ ", "added") if is_approved else Span("✗ ", "failed")
    return line(INDENT, mark, spans, hang=4)


def _render_use(event: ApprovalUsed, say: Words, _: Who) -> Line:
    return line(INDENT, say.spans("request {request} is done", "dim", request=event.request))


def _render_agent(event: AgentStateChanged, say: Words, who: Who) -> Line:
    text = "{who} is {state} from now on, by {by}"
    state, by = say.enum(event.state), escape_line(event.by)
    return line(INDENT, say.spans(text, who=who(event.agent), state=state, by=by))


def _render_steering(event: Steered, say: Words, _: Who) -> Line:
    text = "{message} joins chain {chain} at its next turn"
    message = escape_line(event.message)
    return line(INDENT, say.spans(text, "dim", message=message, chain=event.chain))


def _render_supervisor(event: Supervised, say: Words, who: Who) -> Line:
    agents: list[Span] = []
    for agent in event.should_reply:
        agents += [Span(say(", "))] if agents else []
        agents += as_spans(who(agent))
    values: dict[str, int | str | list[Span]] = {"who": who(event.agent), "agents": agents}
    if event.fallback:
        text = "{who} decided nothing, the free rules decide: {why}"
        values["why"] = say.message(escape_line(event.fallback))
    elif event.done or not event.should_reply:
        text = "{who} ends the chain"
    elif event.order == "sequence":
        text = "{who} calls one after the other: {agents}"
    else:
        text = "{who} calls {agents}"
    spans = list(say.spans(text, "dim", **values))
    if event.reason and not event.fallback:
        spans.append(Span(f"{say(': ')}{escape_line(event.reason)}", "dim"))
    if event.ignored:
        parts = say("; ").join(say.message(escape_line(part)) for part in event.ignored)
        spans.append(Span(f" ({say('ignored: {parts}', parts=parts)})", "dim"))
    return line(INDENT, spans, hang=4)


def _render_intent(event: IntentSorted, say: Words, who: Who) -> Line:
    values = {
        "intent": say.enum(event.intent),
        "confidence": f"{event.confidence:g}",
        "by": who(event.by) if event.by != "rules" else say("rules"),
        "agent": who(event.answered_by),
    }
    text = "intent: {intent} ({confidence}, by {by})"
    if event.answered_by:
        text = "intent: {intent} ({confidence}, by {by}), {agent} answers alone"
    spans = list(say.spans(text, "dim", **values))
    if event.error:
        spans.append(Span(f"{say(': ')}{say.message(escape_line(event.error))}", "warned"))
    return line(INDENT, spans, hang=4)


_SHOWN_OTHERWISE = ("route", "reply", "tool", "note", "step", "plan")
"""The kinds of decisions whose refusal has lines of its own: each rule, the fallback, the step."""


def _render_checked(event: Decision, say: Words, who: Who) -> Line | None:
    if event.allowed or event.kind in _SHOWN_OTHERWISE:
        return None
    values = {"who": who(event.by), "rules": say(", ").join(map(escape_line, event.rules))}
    text = "decision {number} of {who} is refused: {rules}"
    return line(INDENT, say.spans(text, "failed", number=event.decision, **values))


def _render_broken(event: RuleBroken, say: Words, who: Who) -> Line | None:
    if event.step:
        return None  # the end of the step names the rule
    text = "{who} broke the rule {rule}: {error}"
    if event.corrected:
        text = "{who} broke the rule {rule}, corrected: {error}"
    error = escape_line(event.error)
    # The text of any other rule is that of a check, or its author's, which stays.
    error = say.message(error) if event.rule in RULES_BY_NAME else say.check(error)
    spans = say.spans(text, who=who(event.agent), rule=escape_line(event.rule), error=error)
    return line(INDENT, Span("! ", "warned" if event.corrected else "failed"), spans, hang=4)


def _render_breaker(event: BreakerChanged, say: Words, who: Who) -> Line:
    until, reason = local_time(event.until), say.message(escape_line(event.reason))
    spans = say.spans(_OF_BREAKERS[event.state], who=who(event.agent), until=until, reason=reason)
    return line(INDENT, spans, hang=4)


_OF_BREAKERS = {
    "open": "{who} is passed over until {until}: {reason}",
    "half_open": "{who} is called again, once, after its pause",
    "closed": "{who} is called as usual again",
}


def describe_breaker(event: BreakerChanged, say: Words, agent: str) -> str:
    """Return the state of the circuit breaker of an agent as a text."""
    until, reason = local_time(event.until), say.message(escape_line(event.reason))
    return say(_OF_BREAKERS[event.state], who=agent, until=until, reason=reason)


def _render_raise(event: BudgetRaised, say: Words, who: Who) -> Line:
    amounts = [f"+{event.tokens} {say('tokens')}"] if event.tokens else []
    amounts += [f"+${event.usd:g}"] if event.usd else []
    text = "{who} raised the budget: {amount}"
    return line(INDENT, say.spans(text, who=who(event.by), amount=say(", ").join(amounts)))


def _render_degrading(event: Degraded, say: Words, _: Who) -> Line:
    model = event.step.removeprefix("model: ")
    text = "the budget runs low: {step}"
    step = say.enum(escape_line(event.step))
    if model != event.step:
        step = say("model {model}", model=escape_line(model))
    spans = list(say.spans(text, "warned", step=step))
    detail = describe_pause(event.detail, say)
    return line(INDENT, [*spans, Span(f" ({detail})", "dim")], hang=4)


def _render_checkpoint(event: Checkpoint, say: Words, who: Who) -> Line:
    text = "checkpoint {label} at event {seq}, by {who}"
    label = [Span(escape_line(event.label), "strong")]
    return line(INDENT, say.spans(text, label=label, seq=event.at, who=who(event.by)))


def _render_mark(event: MarkedRead, say: Words, who: Who) -> Line:
    text = "{agents}: read up to {message}, by {who}"
    agents = say(", ").join(map(escape_line, event.agents))
    message = escape_line(event.upto)
    return line(INDENT, say.spans(text, "dim", agents=agents, message=message, who=who(event.by)))


def _render_fork(event: Forked, say: Words, _: Who) -> Line:
    text = "forked from session {session} at event {seq}"
    return line(INDENT, say.spans(text, session=escape_line(event.session), seq=event.at))


def _render_rewind(event: Rewound, say: Words, who: Who) -> Line:
    text = "{who} went back to event {seq}: agents do not see events {first} to {last}"
    values = {"seq": event.to, "first": event.to + 1, "last": event.last or event.seq - 1}
    return line(Span("↶ ", "warned"), say.spans(text, who=who(event.by), **values), hang=2)


def _render_edit(event: Edited, say: Words, who: Who) -> Line:
    text = "{who} corrected {message}: {content}"
    message, content = escape_line(event.message), escape_line(event.content)
    spans = say.spans(text, who=who(event.by), message=message, content=content)
    return line(INDENT, spans, hang=4)


def _list_briefs(event: Supervised, say: Words, who: Who) -> Iterator[Line]:
    for agent, brief in event.briefs.items():
        text = "brief for {who}: {brief}"
        spans = say.spans(text, "dim", who=who(agent), brief=escape_line(brief))
        yield line(INDENT * 2, spans, hang=6)


def _list_arguments(event: ApprovalRequested, _: Words, __: Who) -> Iterator[Line]:
    for name, value in event.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        label = Span(f"| {escape_line(name)}: ", "dim")
        yield line(INDENT * 2, label, escape_line(text), hang=6)
    if event.diff:
        yield from draw_diff(event.diff)


DETAILS: Mapping[type[Event], Callable[[Any, Words, Who], Iterator[Line]]] = {
    ApprovalRequested: _list_arguments,
    Supervised: _list_briefs,
}
"""The lines that are indented below that of an event."""

_TONES: Mapping[str, Sequence[str]] = {
    "paused": ("chain_paused", "degraded"),
    "asked": ("approval_requested",),
    "done": ("approval_used", "delivered", "task", "work_started"),
    "stepped_in": (
        *("agent_state", "steered", "edited", "rewound", "forked", "checkpoint"),
        *("marked_read", "budget"),
    ),
    "supervised": ("supervised", "intent", "planned"),
    "refused": ("decision", "rule_broken", "breaker"),
}
"""The kinds of rows on a page, each with the types of its events."""


def find_tone(event: Event) -> str:
    """Return the kind of row that an event is on a page; empty for one that is no control."""
    if isinstance(event, ApprovalDecided):
        return event.decision
    return next((tone for tone, types in _TONES.items() if event.type in types), "")


RENDERERS: Mapping[type[Event], Callable[[Any, Words, Who], Line | None]] = {
    ChainPaused: _render_pause,
    ApprovalRequested: _render_request,
    ApprovalDecided: _render_decision,
    ApprovalUsed: _render_use,
    AgentStateChanged: _render_agent,
    Steered: _render_steering,
    Supervised: _render_supervisor,
    IntentSorted: _render_intent,
    Decision: _render_checked,
    RuleBroken: _render_broken,
    BreakerChanged: _render_breaker,
    BudgetRaised: _render_raise,
    Degraded: _render_degrading,
    Checkpoint: _render_checkpoint,
    MarkedRead: _render_mark,
    Forked: _render_fork,
    Rewound: _render_rewind,
    Edited: _render_edit,
}
