"""The events of control: who decided what, where a chain waits for a person, and what was changed.

They are read when a transcript holds one: a session without control never imports this module.
`ControlState` is what they add up to in the open chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from arena_cli.protocol import Derived, MessageRef, Position, Usage, Volatile, omitted, parse_seq
from arena_cli.transcript.events import AgentCall, Order, PauseReason, ReplyFinished, SideEvent
from arena_cli.transcript.revisions import Revisions

if TYPE_CHECKING:
    from arena_cli.transcript.conversation import Chain
    from arena_cli.transcript.plan_events import PlanMade
    from arena_cli.transcript.state import Fold
    from arena_cli.transcript.task_events import TaskBoard, WorkStarted

ApprovalDecision = Literal["approved", "rejected", "expired"]
AgentState = Literal["running", "paused", "terminated"]


class ControlEvent(SideEvent):
    """An event that changes the control of the open chain, or of the session."""

    is_control: ClassVar[bool] = True


class ChainPaused(ControlEvent):
    """The open chain waits: `detail` says for what, `by` is the person that paused it."""

    type: Literal["chain_paused"] = "chain_paused"
    chain: Annotated[int, Position]
    reason: PauseReason
    detail: Annotated[str, Derived] = ""
    by: str = ""

    @property
    def session_end(self) -> str:
        """The session is paused."""
        return "paused"

    def change_chain(self, chain: Chain) -> None:
        """Note the pause."""
        control_of(chain).pause = self


class ApprovalRequested(ControlEvent):
    """An agent asks for a person's approval, or for a choice of one of `options`.

    `request` counts over the session. `digest` is the SHA-256 of the action and its `arguments`,
    which are left out if they are only the `detail`. `diff` is a unified diff, `expires` the time
    after which it counts as rejected. `in_message`: the agent asks in its message, and has ended
    its reply.
    """

    outlives_rewinds: ClassVar[bool] = True

    type: Literal["approval_requested"] = "approval_requested"
    request: Annotated[int, Position]
    reply: Annotated[int, Position]
    agent: str
    action: str
    detail: str
    arguments: dict[str, Any] = omitted({})
    digest: str
    in_message: bool = omitted(False)
    diff: str = omitted("")
    options: list[str] = omitted([])
    expires: Annotated[str, Volatile]

    def change_chain(self, chain: Chain) -> None:
        """Add the request to those of the chain."""
        control_of(chain).requests[self.request] = Request(self)

    def change_fold(self, fold: Fold) -> None:
        """Count the request."""
        session_control_of(fold).requests = self.request


class ApprovalDecided(ControlEvent):
    """A request was decided, once. `by` is a person, or `policy`, or `time` if it expired.

    `message` is the id of the system message by which the agent learns of it. With `always`, the
    same act needs no approval in the rest of the session.
    """

    type: Literal["approval_decided"] = "approval_decided"
    request: Annotated[int, Position]
    decision: ApprovalDecision
    agent: str
    digest: str
    option: str = omitted("")
    by: str
    because: str = ""
    always: bool = omitted(False)
    message: Annotated[str | None, MessageRef] = omitted(None)

    def change_chain(self, chain: Chain) -> None:
        """Close the request; its agent is due again if a message tells it."""
        request = control_of(chain).requests.get(self.request)
        if request is not None and request.decided is None:
            request.decided = self

    def change_fold(self, fold: Fold) -> None:
        """Keep an approval that holds for the rest of the session."""
        if self.always and self.decision == "approved":
            session_control_of(fold).always.add((self.agent, self.digest))


class ApprovalUsed(ControlEvent):
    """An approved act is done: the grant of that request is used up."""

    type: Literal["approval_used"] = "approval_used"
    request: Annotated[int, Position]
    reply: Annotated[int, Position]

    def change_chain(self, chain: Chain) -> None:
        """Use the grant up."""
        request = control_of(chain).requests.get(self.request)
        if request is not None:
            request.is_used = True


class AgentStateChanged(ControlEvent):
    """A person paused an agent in this session, let it continue, or terminated it for good."""

    outlives_rewinds: ClassVar[bool] = True

    type: Literal["agent_state"] = "agent_state"
    agent: str
    state: AgentState
    by: str

    def change_fold(self, fold: Fold) -> None:
        """Keep the state of the agent."""
        session_control_of(fold).agents[self.agent] = self.state


class Steered(ControlEvent):
    """A person's message joins the running chain: the next turn replies to it, too."""

    type: Literal["steered"] = "steered"
    chain: Annotated[int, Position]
    message: Annotated[str, MessageRef]
    now: bool = False

    def change_chain(self, chain: Chain) -> None:
        """Keep the message for the next turn."""
        control_of(chain).steering.append(self.message)


class Supervised(ControlEvent):
    """The supervisor decided which agents reply in a turn, before the turn opened.

    `turn` is the number of that turn, `trigger` the new messages that it was shown. `order` is that
    of the calls, `briefs` are shown to one agent each, `done` ends the chain. `ignored` are the
    parts of its answer that could not be used. `fallback` is the reason why the free rules decided
    instead, or empty. `replan`: it was asked again, after a failure or an ignored note.
    """

    type: Literal["supervised"] = "supervised"
    turn: Annotated[int, Position]
    trigger: Annotated[list[str], MessageRef] = []
    agent: str
    should_reply: list[str] = []
    reason: Annotated[str, Derived] = ""
    order: Order = "parallel"
    briefs: Annotated[dict[str, str], Derived] = {}
    done: bool = False
    ignored: Annotated[list[str], Derived] = omitted([])
    fallback: Annotated[str, Derived] = ""
    replan: bool = omitted(False)
    attempts: Annotated[int, Volatile] = 1
    usage: Annotated[Usage | None, Derived] = None
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def agent_call(self) -> AgentCall | None:
        """The call of the supervisor."""
        return AgentCall(self.agent, self.usage, self.metadata, failed=bool(self.fallback))

    def change_chain(self, chain: Chain) -> None:
        """Keep the decision for the turn."""
        control_of(chain).supervised[self.turn] = self

    def change_fold(self, fold: Fold) -> None:
        """Count the calls of the supervisor."""
        fold.calls[self.agent] = fold.calls.get(self.agent, 0) + self.attempts


IntentKind = Literal["greeting", "simple_query", "complex_task", "workflow", "unknown"]


class IntentSorted(ControlEvent):
    """The message that opened the chain was sorted, `by` an agent or by `rules`.

    `confidence` is from 0 to 1. `answered_by` is the agent that answers it alone, or empty. `error`
    is the reason why the agent's answer could not be used.
    """

    type: Literal["intent"] = "intent"
    chain: Annotated[int, Position]
    intent: IntentKind
    confidence: float
    by: str
    answered_by: str = omitted("")
    usage: Annotated[Usage | None, Derived] = None
    error: Annotated[str, Derived] = omitted("")
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def agent_call(self) -> AgentCall | None:
        """The call of the agent that sorted it."""
        if self.usage is None:
            return None
        return AgentCall(self.by, self.usage, self.metadata, failed=bool(self.error))

    def change_chain(self, chain: Chain) -> None:
        """Keep the intent of the chain."""
        control_of(chain).intent = self

    def change_fold(self, fold: Fold) -> None:
        """Count the call of the agent."""
        if self.usage is not None:
            fold.calls[self.by] = fold.calls.get(self.by, 0) + 1


DecisionKind = Literal["reply", "route", "tool", "note", "plan", "task", "step"]


class Decision(ControlEvent):
    """A decision of an agent that rules or a supervisor looked at: `rules` are their ids.

    `reply` is the reply that it belongs to, `step` the step of a flow that was about to run, if
    any.
    """

    outlives_rewinds: ClassVar[bool] = True

    type: Literal["decision"] = "decision"
    decision: Annotated[int, Position]
    kind: DecisionKind
    by: str
    allowed: bool
    rules: list[str] = []
    reply: Annotated[int, Position] = omitted(0)
    step: str = omitted("")

    def change_fold(self, fold: Fold) -> None:
        """Count it."""
        session_control_of(fold).count_decision(self)


class RuleBroken(ControlEvent):
    """A reply, an action or a note of an agent broke a rule, or a `step` of a flow did.

    `corrected`: the reply took effect without it, as its agent or a function corrected it, or
    without the call that the rule refused.
    """

    type: Literal["rule_broken"] = "rule_broken"
    reply: Annotated[int, Position]
    agent: str
    rule: str
    error: Annotated[str, Derived]
    corrected: bool = False
    step: str = omitted("")


class BreakerChanged(ControlEvent):
    """The circuit breaker of an agent; it is `open` up to the time `until`."""

    type: Literal["breaker"] = "breaker"
    agent: str
    state: Literal["open", "half_open", "closed"]
    until: Annotated[str, Volatile] = ""
    reason: Annotated[str, Derived] = ""

    def change_fold(self, fold: Fold) -> None:
        """Keep the state of the breaker, which counts replies from here on."""
        control = session_control_of(fold)
        control.breakers[self.agent] = self
        control.outcomes.pop(self.agent, None)


class BudgetRaised(ControlEvent):
    """A person raised the bounds that stopped the chain, by this much."""

    outlives_rewinds: ClassVar[bool] = True

    type: Literal["budget"] = "budget"
    by: str
    tokens: int = 0
    usd: float = 0.0

    def change_chain(self, chain: Chain) -> None:
        """Add it to the bounds of the chain and its turns."""
        control_of(chain).raised.append(self)

    def change_fold(self, fold: Fold) -> None:
        """Add it to the bounds of the session and the day, in this session."""
        control = session_control_of(fold)
        control.raised_tokens += self.tokens
        control.raised_usd = round(control.raised_usd + self.usd, 10)


class Degraded(ControlEvent):
    """The team works with less from here on, since a budget is nearly used up."""

    type: Literal["degraded"] = "degraded"
    chain: Annotated[int, Position]
    step: str
    detail: Annotated[str, Derived] = ""

    def change_chain(self, chain: Chain) -> None:
        """Add the step to those of the chain."""
        control_of(chain).degraded.append(self.step)


class Checkpoint(ControlEvent):
    """A person gave the state after the event `at` a label, to go back to it or to fork there.

    `bytes` is the size of the transcript up to there.
    """

    volatile: ClassVar[bool] = True
    outlives_rewinds: ClassVar[bool] = True

    type: Literal["checkpoint"] = "checkpoint"
    label: str
    at: int
    bytes: int = 0
    by: str = ""

    def change_fold(self, fold: Fold) -> None:
        """Keep the place of the label."""
        session_control_of(fold).checkpoints.setdefault(self.label, self.at)


class MarkedRead(ControlEvent):
    """A person marked the messages up to one as read by these agents; no agent is shown that."""

    volatile: ClassVar[bool] = True

    type: Literal["marked_read"] = "marked_read"
    agents: list[str]
    upto: Annotated[str, MessageRef]
    by: str = ""


class Forked(ControlEvent):
    """This session shares its past, up to here, with the event `at` of another session."""

    volatile: ClassVar[bool] = True

    type: Literal["forked"] = "forked"
    session: str
    at: int

    def change_fold(self, fold: Fold) -> None:
        """Leave to the other session what is its own: the cost, and sessions that agents keep."""
        fold.usage = None
        fold.agent_sessions.clear()
        if fold.control is not None:
            fold.control.raised_tokens, fold.control.raised_usd = 0, 0.0


class Rewound(ControlEvent):
    """A person went back to the event `to`; the events after it, up to `from`, are skipped.

    They stay in the transcript; agents are not shown them (`transcript.revisions`).
    """

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)
    volatile: ClassVar[bool] = True

    type: Literal["rewound"] = "rewound"
    to: int
    by: str
    last: int = Field(default=0, alias="from")

    def change_fold(self, fold: Fold) -> None:
        """Note the skipped part; the agents' own sessions may have been shown it."""
        revisions_of(fold).add(self)
        fold.agent_sessions.clear()


class Edited(ControlEvent):
    """A person corrected a person's message; agents are shown `content` in its place."""

    type: Literal["edited"] = "edited"
    message: Annotated[str, MessageRef]
    content: str
    by: str

    def change_chain(self, chain: Chain) -> None:
        """Correct the message if it is one of the chain."""
        if self.message in chain.messages:
            correction = Revisions()
            correction.add(self)
            message = chain.messages[self.message]
            chain.messages[self.message] = correction.correct_message(message)

    def change_fold(self, fold: Fold) -> None:
        """Note the correction; an agent's own session that was shown the original ends."""
        revisions_of(fold).add(self)
        seq = parse_seq(self.message)
        for agent, own_session in list(fold.agent_sessions.items()):
            upto = own_session.get("upto_seq")
            if not isinstance(upto, int) or upto >= seq:
                del fold.agent_sessions[agent]


class Request:
    """A request of the open chain: its decision, and whether the act was done."""

    def __init__(self, asked: ApprovalRequested) -> None:
        self.asked = asked
        self.decided: ApprovalDecided | None = None
        self.is_used = False

    @property
    def is_granted(self) -> bool:
        """True if the act is approved and not done yet."""
        return self.decided is not None and self.decided.decision == "approved" and not self.is_used


@dataclass
class ControlState:
    """What was decided in the open chain, and what it waits for.

    `steering` are the ids of messages that joined the chain; `supervised` are the decisions of the
    supervisor by the number of the turn; `intent` is that of the message that opened it;
    `work` is what tasks it works on, if it does; `plans` are the planner's, the last one counts.
    """

    pause: ChainPaused | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    steering: list[str] = field(default_factory=list)
    supervised: dict[int, Supervised] = field(default_factory=dict)
    raised: list[BudgetRaised] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)
    intent: IntentSorted | None = None
    work: WorkStarted | None = None
    plans: list[PlanMade] = field(default_factory=list)
    is_delivered: bool = False

    @property
    def pending(self) -> list[Request]:
        """The requests that no person has decided."""
        return [request for request in self.requests.values() if request.decided is None]

    def untold(self, triggers: set[str]) -> list[Request]:
        """Return the decided requests whose agents are to be called; `triggers` are past ones."""
        return [
            request
            for request in self.requests.values()
            if request.decided and request.decided.message not in (None, *triggers)
        ]


WENT_WELL, CORRECTED, REFUSED, FAILED = "+", "c", "r", "f"
"""The outcomes of replies: at once, after a correction, refused by a rule, failed otherwise."""

MOST_OUTCOMES = 10


@dataclass
class SessionControl:
    """The part of control that outlives a chain. `requests` is the number of the last request.

    `agents` are the states that people gave to agents; `always` are acts that need no approval in
    this session, as agent and digest. `decisions` counts decisions by agent: all, and those that
    were rejected. `raised_...` is what people added to the budget. `outcomes` are the last
    replies of each agent since its breaker changed, a letter each; `refused` are the replies of
    which rules refused an attempt and that have not ended. `checkpoints` are the events
    by label, `tasks` those that were added, if any were.
    """

    requests: int = 0
    agents: dict[str, AgentState] = field(default_factory=dict)
    always: set[tuple[str, str]] = field(default_factory=set)
    breakers: dict[str, BreakerChanged] = field(default_factory=dict)
    decisions: dict[str, list[int]] = field(default_factory=dict)
    raised_tokens: int = 0
    raised_usd: float = 0.0
    outcomes: dict[str, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    checkpoints: dict[str, int] = field(default_factory=dict)
    tasks: TaskBoard | None = None

    def count_decision(self, decision: Decision) -> None:
        """Count a decision of an agent."""
        counts = self.decisions.setdefault(decision.by, [0, 0])
        counts[0] += 1
        counts[1] += not decision.allowed
        if decision.kind == "reply" and not decision.allowed:
            self.refused.add(decision.reply)

    def count_reply(self, done: ReplyFinished) -> None:
        """Count a reply of an agent for its circuit breaker."""
        was_refused = done.reply in self.refused
        self.refused.discard(done.reply)
        if done.status in ("error", "timeout"):
            outcome = REFUSED if was_refused else FAILED
        else:
            outcome = CORRECTED if was_refused else WENT_WELL
        self.outcomes[done.agent] = (self.outcomes.get(done.agent, "") + outcome)[-MOST_OUTCOMES:]

    @property
    def unavailable(self) -> dict[str, str]:
        """The agents that a person paused or terminated, with that as the reason."""
        return {agent: state for agent, state in self.agents.items() if state != "running"}

    def record(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            **vars(self),
            "always": sorted(self.always),
            "breakers": {agent: event.model_dump() for agent, event in self.breakers.items()},
            "refused": sorted(self.refused),
            "tasks": self.tasks.record() if self.tasks else None,
        }

    @classmethod
    def restore(cls, record: Mapping[str, Any]) -> SessionControl:
        """Return the recorded state. Raises KeyError, TypeError or ValueError."""
        breakers = record["breakers"].items()
        return cls(
            requests=int(record["requests"]),
            agents=dict(record["agents"]),
            always={(str(agent), str(digest)) for agent, digest in record["always"]},
            breakers={agent: BreakerChanged.model_validate(event) for agent, event in breakers},
            decisions={
                agent: [int(n) for n in counts] for agent, counts in record["decisions"].items()
            },
            raised_tokens=int(record["raised_tokens"]),
            raised_usd=float(record["raised_usd"]),
            outcomes={str(agent): str(letters) for agent, letters in record["outcomes"].items()},
            refused={int(reply) for reply in record["refused"]},
            checkpoints={str(label): int(at) for label, at in record["checkpoints"].items()},
            tasks=_import_tasks().TaskBoard.restore(record["tasks"]) if record["tasks"] else None,
        )


def _import_tasks() -> Any:
    return import_module("arena_cli.transcript.task_events")


def control_of(chain: Chain) -> ControlState:
    """Return the control state of a chain; it is made when it is first needed."""
    if chain.control is None:
        chain.control = ControlState()
    return chain.control


def find_control(chain: Chain | None) -> ControlState:
    """Return the control state of a chain, which may be empty."""
    return (chain.control if chain else None) or ControlState()


def session_control_of(fold: Fold) -> SessionControl:
    """Return the control state of a session; it is made when it is first needed."""
    if fold.control is None:
        fold.control = SessionControl()
    return fold.control


def revisions_of(fold: Fold) -> Revisions:
    """Return the revisions of a session; they are made when they are first needed."""
    if fold.revisions is None:
        fold.revisions = Revisions()
    return fold.revisions
