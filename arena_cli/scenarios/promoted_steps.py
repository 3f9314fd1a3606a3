"""Write the steps that play a chain again, with its result as their expectations.

A chain that waited is several steps: its message, then a decision or `resume` for each time that it
continued. What people did while it ran is in the keys `steer` and `pause` of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena_cli.engine.approvals import NOTICE, POLICY, TIME
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.event_checks import list_approvals, list_reactions
from arena_cli.session.outgoing import USER
from arena_cli.transcript.control_events import (
    AgentStateChanged,
    ApprovalDecided,
    ApprovalRequested,
    BudgetRaised,
    ChainPaused,
    Steered,
    Supervised,
)
from arena_cli.transcript.conversation import Chain, read_conversation
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    Resumed,
    TurnFinished,
    TurnStarted,
)
from arena_cli.util.text import escape_line, escape_template


class NoStepError(Exception):
    """No step plays what a person did; the text is the reason."""


@dataclass
class ChainStep:
    """The part of a chain that one step plays.

    `key` is its decision or `resume`; the first part has none, it is the message that was sent.
    `person` acted in it. `events` are those of the part, `upto` those of the chain up to its end;
    `pause` is the reason why the chain waited then.
    """

    person: str
    key: dict[str, Any] = field(default_factory=dict)
    stepping_in: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    upto: list[Event] = field(default_factory=list)
    pause: str = ""


def split_chain(chain: Chain) -> list[ChainStep]:
    """Return the steps that play a chain. Raises NoStepError if there are none."""
    splitter = _Splitter(chain)
    for event in chain.events:
        splitter.apply(event)
    return splitter.steps


class _Splitter:
    """Follows the events of a chain, and begins a step where a person decided or resumed."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._events: list[Event] = []
        self._requests: dict[int, ApprovalRequested] = {}
        self._in_turn = False
        self._replies: list[str] = []
        self._running: set[str] = set()
        self._waits_for_reply = False
        self.steps = [ChainStep(chain.opening.message.author_id)]

    @property
    def _step(self) -> ChainStep:
        return self.steps[-1]

    def apply(self, event: Event) -> None:
        """Add an event to its step."""
        self._events.append(event)
        match event:
            case MessageEvent() if self._is_decision(event):
                decided = self._find_decision(event)
                self._decide(decided.by, self._describe(decided))
            case MessageEvent() if self._is_steering(event):
                self._take_steering(event)
            case Resumed() if self._step.pause:
                self._begin("", {"resume": True})
            case _:
                self._check(event)
        self._step.events.append(event)
        self._step.upto = [*self._events]

    def _begin(self, person: str, key: dict[str, Any]) -> None:
        self.steps.append(ChainStep(person, key))
        self._replies = []

    def _decide(self, person: str, key: dict[str, Any]) -> None:
        """Begin the step of a decision, or make it that of what was said while the chain waited."""
        step = self._step
        if "resume" not in step.key or _has_run(step):
            step.pause = step.pause or self._find_reason()
            self._begin(person, key)
            return
        if step.person != person:
            who = f"{escape_line(step.person)} steered it, and {escape_line(person)} decided"
            raise NoStepError(f"{who}, while it waited")
        step.key = key

    def _check(self, event: Event) -> None:
        """Follow an event that begins no step. Raises NoStepError."""
        if why := _find_refusal(event):
            raise NoStepError(why)
        match event:
            case TurnStarted():
                self._in_turn = True
            case TurnFinished():
                self._in_turn = False
            case ReplyStarted():
                self._running.add(event.agent)
            case ReplyFinished():
                self._finish_reply(event)
            case ApprovalRequested():
                self._requests[event.request] = event
            case ApprovalDecided(by=by) if by == POLICY:
                self._requests.pop(event.request, None)
            case ChainPaused():
                self._step.pause = event.reason
                if event.reason == "asked":
                    self._step_in(event.by, pause=True)
            case _:
                pass

    def _finish_reply(self, done: ReplyFinished) -> None:
        """Count the reply; what a person said meanwhile takes effect once no other one runs."""
        self._running.discard(done.agent)
        if done.status == "cancelled":
            return
        self._replies.append(done.agent)
        if self._waits_for_reply and not self._running:
            self._waits_for_reply = False
            self._step.stepping_in["after"] = self._describe_last_reply()

    def _describe_last_reply(self) -> dict[str, Any]:
        agent = self._replies[-1]
        count = self._replies.count(agent)
        return {"agent": agent, "reply": count} if count > 1 else {"agent": agent}

    def _is_decision(self, event: MessageEvent) -> bool:
        """Return True for the message about a person's decision."""
        metadata = event.message.metadata
        return metadata.get("notice") == NOTICE and metadata.get("by") not in (POLICY, TIME)

    def _find_decision(self, told: MessageEvent) -> ApprovalDecided:
        """Return the decision that a message is about."""
        number = told.message.metadata.get("request")
        decisions = (event for event in self._chain.events if isinstance(event, ApprovalDecided))
        decided = next((event for event in decisions if event.message == told.message.id), None)
        if decided is None or number not in self._requests:
            raise NoStepError(f"events of request {number} are missing")
        if decided.always:
            raise NoStepError(f"request {number} was approved for the rest of the session")
        if not self._step.pause and self._in_turn:
            raise NoStepError(f"request {number} was decided while the chain ran")
        return decided

    def _find_reason(self) -> str:
        """Return the reason why the chain would pause if no person answered at a terminal."""
        if not _has_run(self._step) and len(self.steps) > 1:
            return self.steps[-2].pause
        is_choice = all(asked.options for asked in self._requests.values())
        return "choice" if is_choice else "approval"

    def _describe(self, decided: ApprovalDecided) -> dict[str, Any]:
        """Return the key of the step that decides."""
        asked = self._requests.pop(decided.request)
        because = {"because": escape_template(decided.because)} if decided.because else {}
        if decided.option:
            chosen = {"agent": decided.agent, "option": escape_template(decided.option)}
            return {"choose": {**chosen, **because}}
        key = "approve" if decided.decision == "approved" else "reject"
        action = {"agent": decided.agent, "action": escape_template(asked.action)}
        return {key: {**action, **because}}

    def _is_steering(self, event: MessageEvent) -> bool:
        control = self._chain.control
        return control is not None and event.message.id in control.steering

    def _take_steering(self, event: MessageEvent) -> None:
        """Note that a person steered: in the step that runs, or that comes next if it waits."""
        steered = next(
            one
            for one in self._chain.events
            if isinstance(one, Steered) and one.message == event.message.id
        )
        if steered.now:
            raise NoStepError("a person steered it with --now")
        if self._step.pause:
            self._begin(event.message.author_id, {"resume": True})
        self._step_in(event.message.author_id, steer=escape_template(event.message.content))

    def _step_in(self, person: str, **keys: Any) -> None:
        """Add what a person did to the step, after the last reply in it."""
        step = self._step
        if not step.person:
            step.person = person
        if step.person != person:
            raise NoStepError(
                f"{escape_line(person)} stepped in, not {escape_line(step.person)} alone"
            )
        stepping_in = step.stepping_in
        after = {"after": self._describe_last_reply()} if self._replies else {}
        is_same = after == {key: stepping_in[key] for key in ("after",) if key in stepping_in}
        if self._running:
            is_same = self._waits_for_reply
        if keys.keys() & stepping_in.keys() or (stepping_in and not is_same):
            raise NoStepError("a person stepped in more than once between two pauses")
        stepping_in |= keys
        if self._running:
            self._waits_for_reply = True
        else:
            stepping_in |= after


def _find_refusal(event: Event) -> str:
    """Return what a person did that no step does; empty if the event is nothing of the kind."""
    why = ""
    match event:
        case ReplyFinished(cancelled_by=by) if by:
            why = f"a person ended the reply of {escape_line(event.agent)}"
        case ApprovalDecided(by=by, message=None) if by not in (POLICY, TIME):
            why = f"request {event.request} was decided while its agent waited for it"
        case ApprovalDecided(by=by) if by == TIME:
            why = f"request {event.request} expired"
        case AgentStateChanged():
            why = f"a person changed the state of {escape_line(event.agent)}"
        case Supervised():
            why = "a supervisor was called, and no transcript contains such answers"
        case _ if event.type == "planned":
            why = "a planner was called, and no transcript contains such answers"
        case BudgetRaised():
            why = "a person raised its budget"
        case ChainFinished(end="cancelled"):
            why = "a person cancelled it"
        case _:
            pass
    return why


def _has_run(step: ChainStep) -> bool:
    """Return True if the chain ran in a step."""
    return any(isinstance(event, (Resumed, TurnStarted)) for event in step.events)


def write_step(step: ChainStep) -> dict[str, Any]:
    """Return the keys of a step that continues a chain, without its expectations."""
    return {**step.key, **name_person(step.person), **step.stepping_in}


def name_person(person: str) -> dict[str, str]:
    """Return the key of a step for a person; there is none for the user."""
    return {"from": person} if person not in ("", USER.id) else {}


def list_expected(events: Sequence[Event], end: str, root: Path) -> Iterator[tuple[str, Any]]:
    """Yield the result of a chain, as expectations; `events` are those up to its end."""
    talk = CheckContext(root, read_conversation(events))
    yield "replied", [call.agent for call in talk.replies()]
    yield "must", [[*turn.must] for turn in talk.turns]
    asked_agents = [agent for turn in talk.turns for agent in turn.asked]
    if asked_agents or any(turn.passed_over for turn in talk.turns):
        yield "asked", asked_agents
    yield from _expected_failures(talk)
    yield "turns", len(talk.turns)
    yield from _expected_acts(talk)
    yield "end", end
    if talk.awaits:
        yield "awaits", talk.awaits
    if talk.unresolved:
        yield "unresolved", talk.unresolved


def _expected_acts(talk: CheckContext) -> Iterator[tuple[str, Any]]:
    """Yield the reactions, requests for approval, calls of tools and ends of agents."""
    if reactions := list_reactions(talk):
        yield "reactions", reactions
    if requests := list_approvals(talk):
        yield (
            "approvals",
            [{key: escape_template(text) for key, text in row.items() if text} for row in requests],
        )
    calls = [call for call in talk.used_tools if call.status == "ok"]
    if calls:
        yield "tool", [{"agent": call.asked.agent, "name": call.asked.tool} for call in calls]
    if talk.acting_ends:
        yield "ended", {agent: end.mode for agent, end in talk.acting_ends.items()}


def _expected_failures(talk: CheckContext) -> Iterator[tuple[str, Any]]:
    """Yield the last status of agents that did not answer, and their failures before it."""
    outcome = {call.agent: talk.outcome(call.agent) for call in talk.calls()}
    outcome = {agent: status for agent, status in outcome.items() if status != "success"}
    if outcome:
        yield "outcome", outcome
    rows = [
        {"turn": call.turn, "agent": call.agent, "status": call.done.status}
        for call in talk.failures()
        if outcome.get(call.agent) != call.done.status
    ]
    if rows:
        yield "timeline", rows
