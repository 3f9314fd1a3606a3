"""Control of the open chain: what people ask of it, and the steps that differ from the free rules.

An uncontrolled session never imports this module (`ControlHolder`). `next_step` adds to the
turn rules: a chain that waits for a person pauses, decided requests and steering messages get a
turn, agents that are paused or terminated are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arena_cli.engine import breaker, past, reply_rules, rules
from arena_cli.engine.approvals import POLICY, ApprovalDesk
from arena_cli.engine.budget import BudgetGuard
from arena_cli.engine.inbox import Act, ControlRequest, Inbox, Outcome
from arena_cli.engine.intent import IntentSorter
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.reply_rules import Review, Rulebook
from arena_cli.engine.supervisor import Supervisor
from arena_cli.errors import UsageError
from arena_cli.notes.model import Draft
from arena_cli.protocol import Message, PermissionRequest
from arena_cli.transcript.control_events import (
    AgentStateChanged,
    ChainPaused,
    ControlState,
    Decision,
    Request,
    SessionControl,
    Steered,
    find_control,
)
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import MessageEvent, PauseReason
from arena_cli.util.text import clean_text
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Team

if TYPE_CHECKING:
    from arena_cli.engine.planner import Planner
    from arena_cli.engine.tasks import TaskDesk

NO_CONTROL = SessionControl()


def _pause_for(pending: Sequence[Request]) -> rules.Pause:
    """Return the pause of a chain that waits for decisions."""
    reason: PauseReason = "choice" if all(one.asked.options for one in pending) else "approval"
    waiting = [
        f"request {one.asked.request} of {one.asked.agent}: {one.asked.action}" for one in pending
    ]
    return rules.Pause(reason, ", ".join(waiting))


def _is_by_policy(message: Message) -> bool:
    """Return True for the message about a request that the settings decided, no person."""
    return message.author_type == "system" and message.metadata.get("by") == POLICY


def _list_stopped(
    step: rules.Step, joining: Sequence[Message], chain: Chain, team: Team
) -> list[Message]:
    """Return the messages that call no agent since the chain is at its depth limit.

    They are about decisions by the settings; the limit cannot forbid what a person decides.
    """
    if isinstance(step, rules.StartTurn):
        return []
    is_at_limit = chain.turns[-1].started.depth >= team.config.chain_depth_limit
    return [message for message in joining if is_at_limit and _is_by_policy(message)]


def _stop_at_limit(
    step: rules.Step, stopped: Sequence[Message], chain: Chain, team: Team, *, is_all: bool
) -> rules.Step | None:
    """Return the step of a chain at its depth limit; None if it has one more turn.

    Agents that the limit stops are named first. `is_all`: no other message joins the chain.
    """
    asking = (str(message.metadata["agent"]) for message in stopped)
    due = step.due if isinstance(step, rules.TellLimit) else ()
    agents = tuple(dict.fromkeys((*asking, *due)))
    if agents and not chain.limit_told:
        return rules.TellLimit(agents)
    return rules.FinishChain(*rules.decide_end(chain, team, is_limited=True)) if is_all else None


def _is_aborted(chain: Chain, team: Team) -> bool:
    """Return True if nothing may open in the chain any more, not even for a decision."""
    return bool(chain.turns) and rules.aborted(chain.turns[-1], team)


class Control:
    """The control of one session; `room` is the session's."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.approvals = ApprovalDesk(room)
        self._supervisor = Supervisor(room)
        self._intents = IntentSorter(room)
        team = room.scene.team
        self._planner: Planner | None = None
        has_rules = team.config.rules or any(member.profile.rules for member in team.members)
        self.rulebook = Rulebook(room) if has_rules else None
        self._tasks: TaskDesk | None = None
        self._pause_by: str | None = None
        self._cancel_by: str | None = None
        limits = room.scene.team.config.budget
        self._budget = room.control.budget = BudgetGuard(room, limits) if limits else None

    @property
    def tasks(self) -> TaskDesk:
        """The desk that gives tasks to agents, which is imported when it is first needed."""
        if self._tasks is None:
            made: TaskDesk = import_module("arena_cli.engine.tasks").TaskDesk(self._room)
            self._tasks = made
        return self._tasks

    # Called by the loop.

    def check(self) -> None:
        """Check that the rules of the team can be applied. Raises UsageError."""
        if self._budget is not None:
            self._budget.check_prices()

    @property
    def is_stopping(self) -> bool:
        """True if a person asked the chain to pause or to end."""
        return self._pause_by is not None or self._cancel_by is not None

    def next_step(self, chain: Chain) -> rules.Step:
        """Return the next step of the open chain: that of the turn rules, as control changes it."""
        team = self._room.scene.team
        state = find_control(chain)
        step = rules.next_step(chain, team)
        if team.config.has_breaker:
            called = step.agents if isinstance(step, rules.CallPhase) else ()
            breaker.settle(self._room, called)
        opens_or_ends = isinstance(step, (rules.StartTurn, rules.TellLimit, rules.FinishChain))
        if (stop := self._take_stop(step)) is not None:
            return stop
        if not opens_or_ends or _is_aborted(chain, team):
            return self._without_unavailable(step)
        if state.pending and (chain.turns or not isinstance(step, rules.StartTurn)):
            return _pause_for(state.pending)
        if joining := self._joining(chain, state):
            stopped = _list_stopped(step, joining, chain, team)
            is_all = len(stopped) == len(joining)
            if (at_limit := _stop_at_limit(step, stopped, chain, team, is_all=is_all)) is not None:
                return at_limit
            step = self._join(step, joining, stopped, chain)
            joining = [message for message in joining if message not in stopped]
        return self._without_unavailable(self._route(step, chain, state, joining))

    def _route(
        self, step: rules.Step, chain: Chain, state: ControlState, joining: Sequence[Message]
    ) -> rules.Step:
        """Return the step as the intent, a plan, tasks, or the supervisor change it.

        In the thread of a task, none does.
        """
        if chain.thread:
            return step
        is_at_work = self._has_tasks and self.tasks.works(chain)
        if not is_at_work and not state.plans:
            by_intent = self._intents.next_step(step, chain, state)
            if by_intent is not None:
                return by_intent
        planner = self.find_planner(state)
        if planner is not None and (planned := planner.next_step(chain, state)) is not None:
            return planned
        if is_at_work:
            step = self.tasks.next_step(step, chain, joining, self.unavailable())
            return planner.deliver(step, state) if planner else step
        told = [str(one.metadata["agent"]) for one in joining if one.author_type == "system"]
        return self._supervisor.next_step(step, chain, state, told, self.unavailable())

    def find_planner(self, state: ControlState | None = None) -> Planner | None:
        """Return what plans chains; None if the team has no planner and the chain no plan."""
        if self._planner is None and (self._room.scene.team.planner or (state and state.plans)):
            module = import_module("arena_cli.engine.planner")
            self._planner = module.Planner(self._room, self)
        return self._planner

    @property
    def _has_tasks(self) -> bool:
        control = self._room.scene.fold.control
        return control is not None and control.tasks is not None

    def _take_stop(self, step: rules.Step) -> rules.Step | None:
        """Return the end or the pause that a person asked for, or the budget's pause, once."""
        excess = self._budget.take_excess() if self._budget else ""
        if self._cancel_by is not None:
            self._cancel_by = None
            return rules.FinishChain("cancelled", ())
        if self._pause_by is not None:
            by, self._pause_by = self._pause_by, None
            return rules.Pause("asked", f"by {by}", by)
        if excess and isinstance(step, rules.CallPhase):
            return rules.Pause("budget", excess)
        return None

    def find_pause(self, chain: Chain) -> ChainPaused | None:
        """Return the pause of the chain if it waits for a decision that is still open.

        Requests whose time is over are closed first. Raises DiskRefused.
        """
        self.approvals.expire()
        state = find_control(chain)
        return state.pause if state.pending else None

    def unavailable(self) -> dict[str, str]:
        """Return the agents that may not be called now, and the reasons."""
        unavailable = (self._room.scene.fold.control or NO_CONTROL).unavailable
        if self._room.scene.team.config.has_breaker:
            return {**breaker.find_open(self._room), **unavailable}
        return unavailable

    def list_left_out(self, chain: Chain) -> dict[str, str]:
        """Return the agents that may not be asked in this turn of the chain, and the reasons."""
        left_out = self._intents.list_left_out(chain, find_control(chain))
        return {**left_out, **self.unavailable()}

    def begin_review(self, planned: Planned) -> Review | None:
        """Return the review of a reply by the rules of its agent; None if there are none."""
        book, agent = self.rulebook, planned.agent
        if book is None or not (book.of("reply", agent) or book.of("mention", agent)):
            return None
        return Review(book, planned, self._room)

    async def check_action(self, agent: str, reply: int, act: PermissionRequest) -> str:
        """Return why rules refuse an action of an agent, "" if they do not.

        It is written down, unless it belongs to no reply: `reply` is 0.
        """
        if self.rulebook is None:
            return ""
        decision = {
            "agent": agent,
            "tool": act.action,
            "text": act.detail,
            "arguments": act.arguments,
        }
        return await self.rulebook.check_act("tool", decision, reply, is_written=reply == 0)

    async def check_notes(self, drafts: Sequence[Draft], agent: str, reply: int) -> list[str]:
        """Return why rules refuse each note of a reply, "" if they do not; write it down, once."""
        book, chain = self.rulebook, self._room.scene.fold.open
        if book is None or chain is None or not book.of("note", agent):
            return [""] * len(drafts)
        is_written = reply == 0 or _count_written("note", reply, chain) > 0
        reasons = []
        for draft in drafts:
            decision = reply_rules.describe_note(draft, agent)
            reasons.append(await book.check_act("note", decision, reply, is_written=is_written))
        return reasons

    async def find_task_fault(self, decision: dict[str, Any]) -> str:
        """Return why rules refuse a change of tasks, "" if they do not; nothing is written."""
        if self.rulebook is None:
            return ""
        rules_on_it = self.rulebook.of("task", decision["agent"])
        findings = await reply_rules.look(rules_on_it, {"kind": "task", **decision})
        return findings.reason

    async def check_tasks(
        self, decisions: Sequence[dict[str, Any]], agent: str, reply: int
    ) -> list[str]:
        """Return why rules refuse each change of tasks by a reply, "" if they do not.

        They are written down, but for those that were before a crash.
        """
        book, chain = self.rulebook, self._room.scene.fold.open
        if book is None or chain is None or not book.of("task", agent):
            return [""] * len(decisions)
        written = _count_written("task", reply, chain)
        return [
            await book.check_act("task", decision, reply, is_written=number < written)
            for number, decision in enumerate(decisions)
        ]

    async def stop(self) -> None:
        """End the processes of functions of rules."""
        if self.rulebook is not None:
            await self.rulebook.stop()

    def _without_unavailable(self, step: rules.Step) -> rules.Step:
        unavailable = self.unavailable()
        if not unavailable or not isinstance(step, rules.StartTurn):
            return step
        agents = (*step.must, *step.deferred)
        left_out = {agent: unavailable[agent] for agent in agents if agent in unavailable}
        if not left_out:
            return step
        due = tuple(agent for agent in agents if agent not in left_out)
        places = self._room.scene.team.config.max_responders
        passed_over = {**step.passed_over, **left_out}
        return replace(step, must=due[:places], deferred=due[places:], passed_over=passed_over)

    def _joining(self, chain: Chain, state: ControlState) -> list[Message]:
        """Return the messages that joined the chain and that no turn has replied to yet."""
        triggers = {name for turn in chain.turns for name in turn.started.trigger}
        unavailable = self.unavailable()
        decided = [
            request.decided.message
            for request in state.untold(triggers)
            if request.decided and request.asked.agent not in unavailable
        ]
        names = [*decided, *(name for name in state.steering if name not in triggers)]
        return [chain.messages[name] for name in names if name in chain.messages]

    def _join(
        self,
        step: rules.Step,
        joining: Sequence[Message],
        stopped: Sequence[Message],
        chain: Chain,
    ) -> rules.StartTurn:
        """Return the turn that replies to these messages, too, but for the `stopped` ones.

        The agents of decided requests come first. A person's decision adds no depth, so that the
        limit of the chain cannot forbid an approved act; one by the settings does.
        """
        must: dict[str, None] = {}
        mentioned_by: dict[str, list[str]] = {}
        is_steered = False
        answered = [message for message in joining if message not in stopped]
        is_deeper = any(map(_is_by_policy, answered))
        for message in answered:
            if message.author_type == "system":
                must[str(message.metadata["agent"])] = None
                continue
            is_steered = True
            agents, by_agent = self._called_by(message, chain)
            must.update(dict.fromkeys(agents))
            mentioned_by |= by_agent
        trigger: tuple[str, ...] = ()
        depth = chain.turns[-1].started.depth if chain.turns else 0
        if isinstance(step, rules.StartTurn):
            must.update(dict.fromkeys((*step.must, *step.deferred)))
            mentioned_by = {**step.mentioned_by, **mentioned_by}
            trigger, depth = step.trigger, step.depth
        elif is_steered or is_deeper:
            if is_steered:
                trigger = rules.list_new_replies(chain)
            depth += 1
        places = self._room.scene.team.config.max_responders
        due = tuple(must)
        return rules.StartTurn(
            depth,
            due[:places],
            due[places:],
            tuple(dict.fromkeys((*trigger, *(message.id for message in joining)))),
            mentioned_by,
        )

    def _called_by(
        self, message: Message, chain: Chain
    ) -> tuple[Sequence[str], dict[str, list[str]]]:
        """Return the agents that a steering message calls: those of the last turn if it names none.

        A message that names only people calls no agent by itself.
        """
        agents, mentioned_by = rules.first_must(message, self._room.scene.team)
        if agents or message.mentions or not chain.turns:
            return agents, mentioned_by
        return tuple(done.agent for done in chain.turns[-1].successes()), {}

    # Requests of people.

    def take_requests(self) -> None:
        """Carry out the requests that wait, and answer them. Raises DiskRefused."""
        assert self._room.inbox is not None
        inbox = Inbox(self._room.inbox.parent)
        for path, request in inbox.take():
            if request is None:
                outcome = Outcome(text=f"{path.name} is not a request", is_error=True)
            else:
                try:
                    outcome = Outcome(text=self.carry_out(request))
                except UsageError as error:
                    outcome = Outcome.of_error(error)
            inbox.answer(path, outcome)

    def carry_out(self, request: ControlRequest) -> str:
        """Carry out a request; return what was done. Raises UsageError or DiskRefused."""
        acts: dict[Act, Callable[[ControlRequest], str]] = {
            "pause": self._pause,
            "cancel": self._cancel,
            "steer": self._steer,
            "agent_state": self._change_agent,
            "decide": self.approvals.decide,
            "raise_budget": self._raise_budget,
            "task": self._change_task,
        }
        act = acts.get(request.act)
        return past.carry_out(request, self._room) if act is None else act(request)

    def _open(self, act: str) -> Chain:
        chain = self._room.scene.fold.open
        if chain is None:
            raise UsageError(
                f"session {self._room.scene.session_id} has no open chain to {act}",
                "`arena send --session NAME` starts one.",
            )
        return chain

    def _pause(self, request: ControlRequest) -> str:
        chain = self._open("pause")
        if pause := find_control(chain).pause:
            raise UsageError(
                f"the chain is paused already: {pause.detail}",
                "`arena resume` continues it.",
            )
        self._pause_by = request.by
        self.approvals.withdraw_questions()
        return "the chain pauses when the running replies have ended"

    def _cancel(self, request: ControlRequest) -> str:
        if request.agent:
            past.check_member(request.agent, self._room)
        chain = self._open("cancel")
        if request.agent:
            if not self._stop_reply(request.agent, request.by):
                raise UsageError(
                    f"{request.agent} has no running reply", "`arena status` lists them."
                )
            return f"the reply of {request.agent} is cancelled"
        for agent in list(self._room.control.running):
            self._stop_reply(agent, request.by)
        self._cancel_by = request.by
        self.approvals.withdraw_questions()
        return f"chain {chain.number} is cancelled"

    def _stop_reply(self, agent: str, by: str) -> bool:
        """End the running reply of an agent; return False if there is none."""
        holder = self._room.control
        task = holder.running.get(agent)
        if task is None:
            return False
        # A second cancellation would end the chain as Ctrl-C does.
        if agent not in holder.cancelled:
            holder.cancelled[agent] = by
            task.cancel()
        return True

    def _steer(self, request: ControlRequest) -> str:
        room = self._room
        chain = self._open("steer")
        if not request.text.strip():
            raise UsageError("the message is empty", "Write a message.")
        text = room.runtime.redactor.text(clean_text(request.text)[0])
        stamp = room.journal.stamp()
        opener = chain.opening.message.author_id
        mentioned = mentions.parse_mentions(text, room.roster, author=request.by, opener=opener)
        human = next((human for human in room.scene.team.humans if human.id == request.by), None)
        message = Message(
            id=stamp.message_id,
            author_id=request.by,
            author_name=(human.name if human else "") or request.by,
            author_type="human",
            content=text,
            mentions=list(mentioned.ids),
            timestamp=stamp.ts,
        )
        if chain.thread:
            names = _list_in_thread(mentioned, chain, room.scene.team)
            message = chain.put_in_thread(message.model_copy(update={"mentions": names}))
        unresolved = list(mentioned.unresolved)
        room.journal.write(MessageEvent, stamp=stamp, message=message, unresolved=unresolved)
        room.journal.write(Steered, chain=chain.number, message=message.id, now=request.now)
        if request.now:
            for agent in list(self._room.control.running):
                self._stop_reply(agent, request.by)
        return f"{message.id} joins chain {chain.number} at its next turn"

    def _change_agent(self, request: ControlRequest) -> str:
        past.check_member(request.agent, self._room)
        fold = self._room.scene.fold
        current = (fold.control or NO_CONTROL).agents.get(request.agent, "running")
        if current == "terminated" and request.state != "terminated":
            raise UsageError(
                f"{request.agent} is terminated in session {self._room.scene.session_id}, for good",
                "Start another session, or `arena fork` this one from before.",
            )
        if current == request.state:
            return f"{request.agent} is {current} already"
        self._room.journal.write(
            AgentStateChanged, agent=request.agent, state=request.state, by=request.by
        )
        if request.state == "terminated":
            self._stop_reply(request.agent, request.by)
        return f"{request.agent} is {request.state} from now on"

    def _raise_budget(self, request: ControlRequest) -> str:
        chain = self._open("raise the budget of")
        if self._budget is None:
            raise UsageError("this team has no budget", "`budget` of its config sets one.")
        self._budget.raise_by(request)
        return f"the budget of chain {chain.number} is raised"

    def _change_task(self, request: ControlRequest) -> str:
        text: str = import_module("arena_cli.engine.task_changes").carry_out(request, self._room)
        return text


def _list_in_thread(mentioned: mentions.Mentions, chain: Chain, team: Team) -> list[str]:
    """Return the names in a message that joins the thread of a task; `@all` are those in it.

    Raises UsageError if it names an agent outside.
    """
    agents = chain.opening.message.shown_to
    outside = [name for name in mentioned.ids if team.member(name) and name not in agents]
    for name in outside:
        if name not in mentioned.by_all_only:
            problem = f"{name} is not in the thread of task {chain.thread}"
            raise UsageError(problem, f"Its agents: {', '.join(agents)}.")
    return [name for name in mentioned.ids if name not in outside]


def _count_written(kind: str, reply: int, chain: Chain) -> int:
    """Return the number of decisions about what a reply of the open turn does."""
    return sum(
        isinstance(event, Decision) and (event.kind, event.reply) == (kind, reply)
        for event in chain.turns[-1].side_events
    )
