"""Plan an agent's next call: the same plan for a call, a dry run and `show --context`.

A plan is a function of the open chain, the team and the history; making one calls no agent.
`Scene` is the engine's view of a session to plan calls, `Room` to make them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.adapters.base import SessionConfig, find_tool_way
from arena_cli.adapters.runtime import Calls
from arena_cli.context import hashing, tokens, window
from arena_cli.context.history import NOTHING, History, Memory
from arena_cli.context.summary import Replaced
from arena_cli.engine import own_sessions, recall
from arena_cli.engine.recall import Recollection
from arena_cli.protocol import (
    AgentInput,
    Attachment,
    MemberState,
    Message,
    ShownMessage,
    Supervision,
)
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Phase
from arena_cli.transcript.log import Journal
from arena_cli.transcript.state import Fold
from arena_cli.util.clock import Clock
from arena_cli.util.tickets import Ticket
from arena_cli.workspace import mentions, relevance
from arena_cli.workspace.mentions import Roster
from arena_cli.workspace.models import AgentProfile, Language, Member, ModelFacts, Team

if TYPE_CHECKING:
    from arena_cli.adapters.python import UserFunction
    from arena_cli.engine.approvals import AskPerson
    from arena_cli.engine.budget import BudgetGuard
    from arena_cli.engine.control import Control
    from arena_cli.engine.exchanges import Exchanges
    from arena_cli.engine.tool_steps import Acting
    from arena_cli.engine.toolbox import ToolShop

NO_WINDOWS: Mapping[str, int] = MappingProxyType({})

Keep = Callable[[Sequence[Attachment], str], list[Attachment]]


class Scene(NamedTuple):
    """A session as plans are made of it; the fold adds messages to `history`.

    Without a `recollection`, only messages are remembered. `windows` are the context windows of the
    agents' models in tokens, where known.
    """

    session_id: str
    team: Team
    fold: Fold
    history: History
    recollection: Recollection | None = None
    windows: Mapping[str, int] = NO_WINDOWS
    language: Language = "en"

    def head(self, agent: str) -> window.Head:
        """Return the part of the input that is the same in each call of a member.

        The inputs of the open chain are filled into its role prompt.
        """
        member = self.team.agent(agent)
        if member is not None and member.profile.inputs:
            member = _import_inputs().fill_role(member, self.list_inputs())
            return window.Head.of(self.team, member, self.windows.get(agent))
        return window.make_head(self.team, agent, self.windows.get(agent))

    def list_inputs(self) -> Mapping[str, Any]:
        """Return the inputs that came with the message that opened the chain."""
        chain = self.fold.open
        inputs = chain.opening.message.metadata.get("inputs") if chain else None
        return inputs if isinstance(inputs, dict) else {}

    def limits(self, agent: str) -> window.Limits:
        """Return the limits on how much of the conversation an agent is shown."""
        factor = self.fold.counts.factor(agent)
        fits = self.fold.fits.get(agent)
        most = None if fits is None else round(fits / factor)
        rules = self.team.config.memory
        widens = self.team.config.auto_summary_interval is None
        return window.Limits(factor, rules.warn_at, most, rules.keep, widens)

    def room(self, agent: str) -> int:
        """Return the tokens that a member may be shown, as its model counts them; at least 1."""
        room = self.head(agent).room
        return max(min(room, self.fold.fits.get(agent, room)), 1)

    def room_for_messages(self, agent: str) -> int:
        """Return the room of a member for messages and memory, in estimated tokens."""
        return window.room_for_messages(self.head(agent), self.limits(agent))

    def reaches(self, agent: str, message: Message) -> bool:
        """Return True if a message is among the newest that an agent has room for."""
        head, limits = self.head(agent), self.limits(agent)
        return window.reaches(head, self.history, message.seq, self.summary(), limits)

    def summary(self) -> Memory:
        """Return the last summary as memory, without notes."""
        return recall.recall_summary(self.fold)

    def stored_summary(self) -> str:
        """Return the last summary as it is stored, with the ids of the messages."""
        return self.fold.summary.summary if self.fold.summary else ""

    def replaced(self) -> Sequence[Replaced]:
        """Return what notes of the session stated that no longer applies."""
        return self.recollection.replaced() if self.recollection else ()

    def drafts(self, upto: int) -> Sequence[str]:
        """Return the titles of the session's draft notes from messages up to that seq."""
        return self.recollection.drafts(upto) if self.recollection else ()

    def corrected(self) -> Sequence[str]:
        """Return the titles of draft notes that later messages correct."""
        return self.fold.summary.corrected if self.fold.summary else ()

    def memory(self, new: str) -> Memory:
        """Return the memory for a call that is about the text `new`."""
        if self.recollection is None:
            return NOTHING
        return self.recollection.memory(new, self.fold, self.history)


class ControlHolder:
    """The control of a session's chains, which is imported when it is first needed.

    `current` is None as long as the session is not controlled; `budget` is None without one.
    `running` are the tasks of the running replies by agent; `cancelled` the persons that ended some
    of them.
    """

    def __init__(self) -> None:
        self.current: Control | None = None
        self.budget: BudgetGuard | None = None
        self.running: dict[str, asyncio.Task[Any] | None] = {}
        self.cancelled: dict[str, str] = {}

    def get(self, room: Room) -> Control:
        """Return the control of a session, which is made if there is none yet."""
        if self.current is None:
            made: Control = import_module("arena_cli.engine.control").Control(room)
            self.current = made
        return self.current

    def find(self, room: Room) -> Control | None:
        """Return the control of a session, if it or its open chain is controlled.

        The loop does so before each step; `current` is the same within a step.
        """
        if self.current is None:
            fold = room.scene.fold
            chain, turn = fold.open, fold.open.turns[-1] if fold.open and fold.open.turns else None
            if (
                fold.control
                or (chain and chain.control)
                or (turn and turn.is_replan_required)
                or room.scene.team.is_controlled
            ):
                self.get(room)
        return self.current

    async def stop(self) -> None:
        """End the processes that it started."""
        if self.current is not None:
            await self.current.stop()


class ToolsHolder:
    """The tools of a session's agents, which are imported when one of them is called."""

    def __init__(self) -> None:
        self._shop: ToolShop | None = None
        self._exchanges: Exchanges | None = None

    @property
    def exchanges(self) -> Exchanges | None:
        """What agents have asked each other in this process; None if nothing yet."""
        return self._exchanges

    def get_exchanges(self, room: Room) -> Exchanges:
        """Return what agents of a session ask each other."""
        if self._exchanges is None:
            made: Exchanges = import_module("arena_cli.engine.exchanges").Exchanges(room)
            self._exchanges = made
        return self._exchanges

    def get(self, room: Room) -> ToolShop:
        """Return the tools of a session."""
        if self._shop is None:
            made: ToolShop = import_module("arena_cli.engine.toolbox").ToolShop(room)
            self._shop = made
        return self._shop

    async def stop(self) -> None:
        """End all that tools started."""
        if self._shop is not None:
            await self._shop.stop()


class Room(NamedTuple):
    """A session in which agents are called; `journal` updates the scene's fold.

    `keep` stores the attachments of a message id. `on_text` receives an agent's id and the end of
    its text so far. `summarizer`, `extractor` and `memory_judge` are agents that work for the
    team's memory. `inbox` is the folder with the requests of people, and `control` carries them
    out. `ask_person` asks for approval at a terminal, if there is one. `draw_place` returns an
    agent's place in the lane that bounds the replies of all processes, if there is a bound,
    `draw_subagent_place` that of an agent that is called as a tool, `draw_nested_place` that of one
    that is asked directly, `draw_planner_place` that of a planner; they raise DiskRefused.
    `models` are the entries of `arena.yaml` for models; `sessions` is the folder of all sessions,
    whose spending counts for the budget of a day, if it does. `make_function` returns a function of
    the user's rules by its name; paths start from `workspace`. `config` are the settings of its
    session; `tools` are those of its agents.
    """

    scene: Scene
    roster: Roster
    journal: Journal
    runtime: Calls
    clock: Clock
    keep: Keep
    language: Language
    control: ControlHolder
    workspace: Path
    make_function: Callable[[str], UserFunction]
    config: SessionConfig
    tools: ToolsHolder
    on_text: Callable[[str, str], None] | None = None
    summarizer: Member | None = None
    extractor: Member | None = None
    memory_judge: Member | None = None
    inbox: Path | None = None
    draw_place: Callable[[str], Ticket] | None = None
    draw_subagent_place: Callable[[str], Ticket] | None = None
    draw_nested_place: Callable[[str], Ticket] | None = None
    draw_planner_place: Callable[[str], Ticket] | None = None
    ask_person: AskPerson | None = None
    models: Mapping[str, ModelFacts] = MappingProxyType({})
    sessions: Path | None = None

    @property
    def seen_folder(self) -> Path | None:
        """The folder with the records of files that agents read or wrote, if agents are called."""
        return self.sessions and self.sessions / self.scene.session_id / "seen"

    @property
    def memory_agents(self) -> list[Member]:
        """The agents that work for the team's memory."""
        agents = (self.summarizer, self.extractor, self.memory_judge)
        return [agent for agent in agents if agent is not None]

    def has_requests(self) -> bool:
        """Return True if a person may have left a request."""
        return self.inbox is not None and os.path.lexists(self.inbox)


@dataclass
class Planned:
    """A reply to be called: the agent, its role in the turn, its input.

    `attempt` is the number of its next attempt, `failed` the number of attempts that failed before,
    `shrunk` the number of those whose prompt was too long, `corrected` of those that broke a rule;
    `digests` are the hashes of the input's messages, `notes` the ids of the notes in it. `waited_s`
    is the time in which a person was asked for approval. `most` and `is_concise` are limits as in
    `plan`; `refused` is the reason why it is not called, if the team's budget never allows it,
    `unfilled` if its inputs are missing. `correction` tells the agent what was wrong with its
    reply. `told` are the results of its questions to other agents, after which it was called again
    `asked` times; `blocks` counts the questions. `acting` is the state of the calls of tools in a
    reply that has begun.
    """

    agent: str
    member: Member | None
    reply: int
    turn: int
    phase: Phase
    input: AgentInput
    input_hash: str
    input_tokens: int
    digests: Sequence[str]
    notes: Sequence[str]
    opener: str
    reply_to: str | None
    attempt: int = 1
    failed: int = 0
    shrunk: int = 0
    waited_s: float = 0.0
    most: int | None = None
    is_concise: bool = False
    refused: str = ""
    unfilled: str = ""
    corrected: int = 0
    correction: ShownMessage | None = None
    told: list[ShownMessage] = field(default_factory=list)
    asked: int = 0
    blocks: int = 0
    acting: Acting | None = None

    @property
    def sent(self) -> AgentInput:
        """The input of its next attempt: with corrections and results, after all other messages."""
        new = [*self.told, *([self.correction] if self.correction else [])]
        if not new:
            return self.input
        added = {
            "messages": [*self.input.messages, *new],
            "trigger": [*self.input.trigger, *(message.id for message in new)],
        }
        changed = self.input.model_copy(update={**added, "own_session": None})
        return changed.model_copy(update={"input_hash": hashing.input_digest(changed)})

    def correct(self, message: ShownMessage) -> None:
        """Tell the agent what was wrong with its reply."""
        self.input_tokens += tokens.estimate(message.content) - self._correction_tokens
        self.correction = message
        self.corrected += 1

    def tell(self, messages: Sequence[ShownMessage]) -> None:
        """Add the results of the agent's questions; it is called once more."""
        self.told += messages
        self.input_tokens += sum(tokens.estimate(message.content) for message in messages)
        self.asked += 1
        self.failed += 1
        self.attempt += 1

    def take_input(self, other: Planned) -> None:
        """Call the agent with the input of another plan; a correction stays."""
        self.input, self.input_hash = other.input, other.input_hash
        self.input_tokens, self.digests = other.input_tokens, other.digests
        self.input_tokens += self._correction_tokens
        self.input_tokens += sum(tokens.estimate(message.content) for message in self.told)
        self.notes = other.notes
        self.most, self.is_concise = other.most, other.is_concise

    @property
    def _correction_tokens(self) -> int:
        return tokens.estimate(self.correction.content) if self.correction else 0


def plan(
    agent: str,
    phase: Phase,
    chain: Chain,
    scene: Scene,
    *,
    most: int | None = None,
    is_concise: bool = False,
) -> Planned:
    """Plan the next call of an agent in the last turn of the open chain.

    `most`, in estimated tokens, is a limit of its input that is lower than its window. If it
    `is_concise`, the agent is asked for half of its usual length.
    """
    turn = chain.turns[-1]
    earlier = turn.replies.get(agent)
    team = scene.team
    member = team.member(agent)
    trigger = chain.trigger_for(agent, phase)
    head = scene.head(agent) if member else window.Head.of(team, _gone(agent))
    built = window.build(
        head.halve_output() if is_concise else head,
        scene.history,
        window.CallContext(
            session_id=scene.session_id,
            turn_id=f"t{turn.started.turn}",
            turn=len(chain.turns),
            call=scene.fold.calls.get(agent, 0) + 1,
            trigger=trigger,
            invocation="must_reply" if phase == "A" else "may_reply",
            mentioned_by=turn.started.mentioned_by.get(agent, []) if phase == "A" else [],
            deadline_s=attempt_limit_s(limit_s(member, team), team),
            brief=_brief(agent, phase, chain, scene),
        ),
        scene.memory(_said(trigger, chain)),
        _lower_limits(scene.limits(agent), most, is_concise=is_concise),
    )
    return Planned(
        agent=agent,
        member=member,
        reply=earlier.number if earlier else scene.fold.reply + 1,
        turn=turn.started.turn,
        phase=phase,
        input=_continue_session(built, member, scene),
        input_hash=built.input_hash,
        input_tokens=built.input_tokens,
        digests=built.digests,
        notes=[shown_note.note.id for shown_note in built.chosen.notes],
        opener=chain.opening.message.author_id,
        reply_to=_reply_to(agent, trigger, chain),
        attempt=earlier.attempt + 1 if earlier else 1,
        failed=earlier.failed_attempts if earlier else 0,
        most=most,
        is_concise=is_concise,
        unfilled=_explain_unfilled(member, scene),
    )


def _continue_session(built: window.Built, member: Member | None, scene: Scene) -> AgentInput:
    """Return the input with the session that the agent may continue, if there is one."""
    if member is None:
        return built.input
    recorded = scene.fold.agent_sessions.get(member.id)
    own_session = own_sessions.find_usable(recorded, built.input, built.digests, member)
    if own_session is None:
        return built.input
    return built.input.model_copy(update={"own_session": own_session})


def _import_inputs() -> Any:
    return import_module("arena_cli.workspace.inputs")


def _explain_unfilled(member: Member | None, scene: Scene) -> str:
    """Return why a member cannot be called with the inputs of the chain, "" if it can."""
    if member is None or not member.profile.inputs:
        return ""
    problem: str = _import_inputs().explain_unfilled(member, scene.list_inputs())
    return problem


def _lower_limits(limits: window.Limits, most: int | None, *, is_concise: bool) -> window.Limits:
    """Return the limits of a call whose input may have at most `most` tokens."""
    if most is not None:
        limits = limits._replace(most=most if limits.most is None else min(most, limits.most))
    return limits._replace(concise_from=0.0) if is_concise else limits


def plan_supervision(
    chain: Chain, scene: Scene, trigger: Sequence[str], supervision: Supervision
) -> window.Built:
    """Plan the call of the supervisor that decides about the next turn of the open chain.

    `trigger` are the ids of the new messages.
    """
    supervisor = scene.team.supervisor
    assert supervisor is not None
    return window.build(
        scene.head(supervisor.id),
        scene.history,
        window.CallContext(
            session_id=scene.session_id,
            turn_id=f"t{scene.fold.turn + 1}",
            turn=len(chain.turns) + 1,
            call=scene.fold.calls.get(supervisor.id, 0) + 1,
            trigger=trigger,
            invocation="supervise",
            deadline_s=attempt_limit_s(limit_s(supervisor, scene.team), scene.team),
            supervision=supervision,
        ),
        scene.memory(_said(trigger, chain)),
        scene.limits(supervisor.id),
    )


def describe_chain(
    chain: Chain,
    team: Team,
    trigger: Sequence[str],
    *,
    due: Sequence[str] = (),
    problems: Sequence[str] = (),
    unavailable: Mapping[str, str] = MappingProxyType({}),
) -> Supervision:
    """Return the state of the open chain for the supervisor."""
    texts = [chain.messages[name].content for name in trigger]
    haystack = relevance.Haystack(texts, mentions.build_roster(team))
    states = []
    for member in team.members:
        if team.supervisor is not None and member.id == team.supervisor.id:
            continue
        score = relevance.score_relevance(haystack, member)
        state = _describe_member(member.id, chain, unavailable)
        states.append(state.model_copy(update={"relevance": score}))
    return Supervision(members=states, due=list(due), problems=list(problems))


def _describe_member(agent: str, chain: Chain, unavailable: Mapping[str, str]) -> MemberState:
    if agent in unavailable:
        return MemberState(id=agent, state="unavailable", reason=unavailable[agent])
    if chain.turns and agent in chain.turns[-1].started.deferred:
        return MemberState(id=agent, state="deferred")
    ends = [done for turn in chain.turns if (done := turn.result(agent))]
    match ends[-1].status if ends else None:
        case None:
            return MemberState(id=agent, state="not_called")
        case "success":
            return MemberState(id=agent, state="called")
        case "declined" | "cancelled" as status:
            return MemberState(id=agent, state=status)
        case status:
            return MemberState(id=agent, state="failed", reason=ends[-1].error_code or status)


def about(agent: str, phase: Phase, chain: Chain) -> str:
    """Return the text of the messages that are new to an agent at its next call."""
    return _said(chain.trigger_for(agent, phase), chain)


def _said(trigger: Sequence[str], chain: Chain) -> str:
    return "\n".join(chain.messages[name].content for name in trigger)


def limit_s(member: Member | None, team: Team) -> float:
    """Return the time limit of a reply in seconds, for all attempts; the member's setting wins."""
    if member is not None and member.profile.acts and find_tool_way(member.profile) == "loop":
        return _limit_acting_s(member.profile)
    return (member.profile.timeout_s if member else None) or team.config.turn_timeout_s


def _limit_acting_s(profile: AgentProfile) -> float:
    """Return the time limit of a reply with tools, its last turn included."""
    limits = profile.run or import_module("arena_cli.workspace.acting").RunLimits()
    seconds: float = profile.timeout_s or limits.max_minutes * 60
    return seconds + float(limits.grace_s)


def attempt_limit_s(seconds_left: float, team: Team) -> float:
    """Return the time limit of an attempt in seconds; its reply has `seconds_left`."""
    limit = team.config.attempt_timeout_s
    return seconds_left if limit is None else min(seconds_left, limit)


def _brief(agent: str, phase: Phase, chain: Chain, scene: Scene) -> str:
    """Return the brief of an agent for its reply: from the supervisor, and about its tasks."""
    parts = []
    if chain.control is not None and phase == "A":
        decision = chain.control.supervised.get(chain.turns[-1].started.turn)
        parts.append(decision.briefs.get(agent, "") if decision else "")
    parts.append(describe_tasks(agent, scene))
    return "\n\n".join(part for part in parts if part)


def describe_tasks(agent: str, scene: Scene) -> str:
    """Return what an agent is shown of its tasks; "" if it has none."""
    if scene.fold.control is None or scene.fold.control.tasks is None:
        return ""
    texts = import_module("arena_cli.engine.task_texts")
    described: str = texts.write_brief(agent, scene.fold.control.tasks, scene.language)
    return described


def _gone(agent: str) -> Member:
    """Return a member that was in the team when the chain opened and has since left it."""
    return Member(profile=AgentProfile(agent_id=agent, adapter={"type": ""}), name=agent)


def _reply_to(agent: str, trigger: list[str], chain: Chain) -> str | None:
    """Return the last new message that calls this agent or gives it a task, else the last one."""
    calling = [
        name
        for name in trigger
        if agent in chain.calling[name] or _gives_task(chain.messages[name], agent)
    ]
    return next(reversed(calling or trigger), None)


def _gives_task(message: Message, agent: str) -> bool:
    """Return True if a message of arena says that this agent starts a task."""
    metadata = message.metadata
    return (metadata.get("notice"), metadata.get("agent")) == ("task", agent)
