"""The turn rules (docs/concepts/turn-rules.md) as functions of the open chain and the team. No I/O.

`next_step` combines them: it returns the next step of the loop, whether the chain has just opened
or was interrupted by a crash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from arena_cli.protocol import Message
from arena_cli.transcript.conversation import FAILED, Chain, Turn
from arena_cli.transcript.events import End, Order, PassedOver, PauseReason, Phase, Reasons
from arena_cli.workspace import relevance
from arena_cli.workspace.mentions import Roster
from arena_cli.workspace.models import FailureRules, FailureStrategy, Member, Team, TeamConfig

NO_PLACE = "no place left"


class CallPhase(NamedTuple):
    """Call these agents of a phase, all at once; the others of the phase have ended, or wait."""

    phase: Phase
    agents: tuple[str, ...]


@dataclass(frozen=True)
class ChooseCandidates:
    """End phase A, and choose the agents that are asked in phase B."""


class FinishTurn(NamedTuple):
    """Finish a turn: both phases have ended."""

    called: tuple[str, ...]
    replied: tuple[str, ...]
    due: tuple[str, ...]


class TellLimit(NamedTuple):
    """Report the agents that were still due when the depth limit stopped the chain."""

    due: tuple[str, ...]


@dataclass(frozen=True)
class StartTurn:
    """Open a turn in which these agents must reply; those beyond `max_responders` are deferred.

    `passed_over` are agents that were due and may not be called now, with the reasons. `order` is
    that of the calls.
    """

    depth: int
    must: tuple[str, ...]
    deferred: tuple[str, ...]
    trigger: tuple[str, ...]
    mentioned_by: dict[str, list[str]] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)
    order: Order = "parallel"


class Prepare(NamedTuple):
    """Do something before the next step is known, such as asking the supervisor."""

    act: Callable[[], Awaitable[None]]


class Pause(NamedTuple):
    """Let the open chain wait for a person; `by` is the person that paused it, if one did."""

    reason: PauseReason
    detail: str
    by: str = ""


class FinishChain(NamedTuple):
    """Finish the chain: no agent is left to speak."""

    end: End
    awaits: tuple[str, ...]


Step = (
    CallPhase
    | ChooseCandidates
    | FinishTurn
    | TellLimit
    | StartTurn
    | Prepare
    | Pause
    | FinishChain
)


def next_step(chain: Chain, team: Team) -> Step:
    """Return the next step of an open chain: the first rule that holds."""
    if not chain.turns:
        must, mentioned_by = first_must(chain.opening.message, team)
        return _start(0, must, (chain.opening.message.id,), mentioned_by, team)
    turn = chain.turns[-1]
    if turn.finished is None:
        return _within(turn, chain, team)
    due = tuple(turn.finished.next)
    if due and not aborted(turn, team):
        if turn.started.depth < team.config.chain_depth_limit:
            trigger = list_new_replies(chain)
            return _start(turn.started.depth + 1, due, trigger, mentioners(turn, due), team)
        if not chain.limit_told:
            return TellLimit(due)
    end, awaits = decide_end(chain, team)
    return FinishChain(end, awaits)


def _within(turn: Turn, chain: Chain, team: Team) -> Step:
    if pending := _list_pending(turn.must, turn):
        return CallPhase("A", pending[:1] if turn.is_sequence else pending)
    if turn.candidates is None and not aborted(turn, team):
        return ChooseCandidates()
    if pending := _list_pending(turn.asked, turn):
        return CallPhase("B", pending)
    replied = tuple(done.agent for done in turn.successes())
    due = due_after(turn, team)
    if chain.thread:
        due = tuple(agent for agent in due if agent in chain.opening.message.shown_to)
    return FinishTurn(tuple(turn.called), replied, due)


def _list_pending(agents: Iterable[str], turn: Turn) -> tuple[str, ...]:
    """Return the agents whose reply has not ended, in order of call."""
    return tuple(agent for agent in agents if turn.result(agent) is None)


def _start(
    depth: int,
    due: tuple[str, ...],
    trigger: tuple[str, ...],
    mentioned_by: dict[str, list[str]],
    team: Team,
) -> StartTurn:
    places = team.config.max_responders
    return StartTurn(depth, due[:places], due[places:], trigger, mentioned_by)


def first_must(message: Message, team: Team) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Return the agents that must reply to the opening message, and who mentioned each of them."""
    ids = {member.id for member in team.members}
    if message.thread:
        ids &= set(message.shown_to)
    mentioned = tuple(name for name in message.mentions if name in ids)
    if mentioned:
        return mentioned, {name: [message.author_id] for name in mentioned}
    if message.thread:
        return tuple(message.shown_to[:1]), {}
    if message.mentions:
        return (), {}
    return list_default_responders(team), {}


def list_default_responders(team: Team) -> tuple[str, ...]:
    """Return the agents that reply to a message without a mention; a team of one is its own."""
    if team.config.default_responders:
        return tuple(team.config.default_responders)
    return (team.members[0].id,) if len(team.members) == 1 else ()


def choose_candidates(
    turn: Turn, chain: Chain, team: Team, roster: Roster, unavailable: Mapping[str, str]
) -> tuple[list[str], Reasons]:
    """Return the agents asked in phase B, in order of call, and those passed over with reasons.

    `unavailable` are agents that may not be called now, with the reasons.
    """
    config = team.config
    is_named = config.selection == "relevance_if_unnamed" and turn.started.mentioned_by
    if config.selection == "none" or is_named or chain.thread:
        return [], {}
    occupied = chain.called | set(turn.started.deferred)
    open_to_it = [
        member
        for member in team.members
        if member.profile.response.auto_respond and member.id not in occupied
    ]
    if not open_to_it:
        return [], {}
    haystack = relevance.Haystack(new_texts(turn, chain), roster)
    scored = [(relevance.score_relevance(haystack, member), member) for member in open_to_it]
    scored.sort(key=lambda pair: -pair[0])
    return _fill_places(scored, config.max_responders - len(turn.must), config, unavailable)


def _fill_places(
    scored: Iterable[tuple[float, Member]],
    places: int,
    config: TeamConfig,
    unavailable: Mapping[str, str],
) -> tuple[list[str], Reasons]:
    """Return the candidates that get the places, by relevance, and the others with reasons."""
    chosen: list[str] = []
    passed_over: Reasons = {}
    for score, member in scored:
        threshold = member.profile.response.threshold
        if member.id in unavailable:
            passed_over[member.id] = PassedOver(relevance=score, reason=unavailable[member.id])
        elif config.selection != "ask" and score < threshold:
            passed_over[member.id] = PassedOver(relevance=score, threshold=threshold)
        elif len(chosen) >= places:
            passed_over[member.id] = PassedOver(relevance=score, reason=NO_PLACE)
        else:
            chosen.append(member.id)
    return chosen, passed_over


def new_texts(turn: Turn, chain: Chain) -> list[str]:
    """Return the texts of the turn's new messages: its trigger and the replies of phase A."""
    return [message.content for message in chain.new_messages(turn)]


def due_after(turn: Turn, team: Team) -> tuple[str, ...]:
    """Return all agents due after a turn: the deferred ones, then those called by its replies."""
    due = dict.fromkeys(turn.started.deferred)
    for done in turn.successes():
        due.update(dict.fromkeys(done.next_mentions))
    for message in turn.announced:
        due.update(dict.fromkeys(_list_members(message.mentions, team)))
    if not team.config.re_invoke_already_replied:
        for agent in turn.called:
            done_by = turn.result(agent)
            if done_by is None or done_by.status != "declined":
                due.pop(agent, None)
    return tuple(due)


def _list_members(names: Iterable[str], team: Team) -> list[str]:
    ids = {member.id for member in team.members}
    return [name for name in names if name in ids]


def mentioners(turn: Turn, due: Iterable[str]) -> dict[str, list[str]]:
    """Return who mentioned each agent that is due; for a deferred one, in all its turns."""
    by_agent: dict[str, dict[str, None]] = {}
    for agent in due:
        earlier = turn.started.mentioned_by.get(agent, []) if agent in turn.started.deferred else []
        by_agent[agent] = dict.fromkeys(earlier)
    for done in turn.successes():
        for agent in done.next_mentions:
            if agent in by_agent:
                by_agent[agent][done.agent] = None
    for message in turn.announced:
        for agent in message.mentions:
            if agent in by_agent:
                by_agent[agent][message.author_id] = None
    return {agent: list(names) for agent, names in by_agent.items() if names}


def aborted(turn: Turn, team: Team) -> bool:
    """Return True if an agent whose failure ends the chain failed in this turn."""
    if not any(reply.ends and reply.ends[-1].status in FAILED for reply in turn.replies.values()):
        return False
    return any(
        done.status in FAILED
        and choose_strategy(team.member(done.agent), team, done.error_code or done.status)
        == "abort"
        for done in turn.results()
    )


def choose_strategy(member: Member | None, team: Team, error_code: str) -> FailureStrategy:
    """Return what follows a failure of that class: by the agent, else by the team."""
    for rules in (member.profile.on_failure if member else None, team.config.on_failure):
        strategy = rules.choose(error_code) if isinstance(rules, FailureRules) else rules
        if strategy is not None:
            return strategy
    return "skip"


def decide_end(
    chain: Chain, team: Team, *, is_limited: bool | None = None
) -> tuple[End, tuple[str, ...]]:
    """Return the end of the chain, by the first rule that holds, and the humans it waits for.

    `is_limited`: a limit stopped it; None: it did if agents are due.
    """
    statuses = {done.status for done in chain.results()}
    failed = bool(statuses & {"error", "timeout"})
    replied = "success" in statuses or any(turn.announced for turn in chain.turns)
    if any(aborted(turn, team) for turn in chain.turns) or (failed and not replied):
        return "failed", ()
    if is_limited is None:
        is_limited = _has_agents_due(chain) or bool(chain.limits_told)
    if is_limited:
        return "chain_limit", ()
    awaits = humans_named(chain, team)
    if awaits:
        return "awaiting_human", awaits
    return ("quiet" if replied else "no_reply"), ()


def _has_agents_due(chain: Chain) -> bool:
    """Return True if agents are due after the last turn."""
    finished = chain.turns[-1].finished if chain.turns else None
    return finished is not None and bool(finished.next)


def list_new_replies(chain: Chain) -> tuple[str, ...]:
    """Return the ids of the last turn's replies, which the next turn is about."""
    if not chain.turns:
        return (chain.opening.message.id,)
    turn = chain.turns[-1]
    replies = [done.message for done in turn.successes() if done.message]
    return tuple(message.id for message in (*replies, *turn.announced))


def mentions_no_agent(chain: Chain, trigger: Iterable[str]) -> bool:
    """Return True if none of these messages names or calls an agent or a person."""
    return not any(chain.messages[name].mentions or chain.calling[name] for name in trigger)


def humans_named(chain: Chain, team: Team) -> tuple[str, ...]:
    """Return the humans that replies of the chain mention, in order of mention."""
    humans = {chain.opening.message.author_id, *(human.id for human in team.humans)}
    mentioned: dict[str, None] = {}
    said = [done.message for done in chain.results() if done.status == "success"]
    for message in (*said, *(message for turn in chain.turns for message in turn.announced)):
        if message:
            mentioned.update(dict.fromkeys(name for name in message.mentions if name in humans))
    return tuple(mentioned)
