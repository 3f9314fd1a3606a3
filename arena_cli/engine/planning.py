"""What is asked of an agent at its next call: the same for a call, a dry run and `show --context`.

A plan is a function of the open chain, the team and the history; nobody is called by making one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arena_cli.context import window
from arena_cli.engine import own_sessions, rules
from arena_cli.engine.scene import Scene
from arena_cli.ground.protocol import AgentInput
from arena_cli.team.model import AgentProfile, Member, Team
from arena_cli.transcript.events import Phase
from arena_cli.transcript.fold import ChainState


@dataclass
class Planned:
    """One reply that is to be called: by whom, as what, with which input.

    `attempt` is the number of its next attempt, `failed` how many attempts failed before,
    `shrunk` how many of them because it was shown too much; `digests`
    are the hashes of the input's messages, `notes` the ids of the notes in it.
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


def plan(
    agent: str, phase: Phase, chain: ChainState, scene: Scene, *, most: int | None = None
) -> Planned:
    """The next call of an agent in the last turn of the open chain.

    `most`, in estimated tokens, is a limit of its input that is nearer than its window.
    """
    turn = chain.turns[-1]
    earlier = turn.replies.get(agent)
    team = scene.team
    member = team.member(agent)
    trigger = rules.trigger_for(agent, chain, phase=phase)
    limits = scene.limits(agent)
    if most is not None:
        limits = limits._replace(most=most)
    memory = scene.memory(_said(trigger, chain))
    built = window.build(
        scene.head(agent) if member else window.Head.of(team, _gone(agent)),
        scene.history,
        window.Call(
            session_id=scene.session_id,
            turn_id=f"t{turn.started.turn}",
            turn=len(chain.turns),
            call=scene.fold.calls.get(agent, 0) + 1,
            trigger=trigger,
            invocation="must_reply" if phase == "A" else "may_reply",
            mentioned_by=turn.started.mentioned_by.get(agent, []) if phase == "A" else [],
            deadline_s=attempt_limit_s(limit_s(member, team), team),
        ),
        memory,
        limits,
    )
    kept = scene.fold.agent_sessions.get(agent)
    own_session = member and own_sessions.usable(kept, built.input, built.digests, member)
    return Planned(
        agent=agent,
        member=member,
        reply=earlier.number if earlier else scene.fold.reply + 1,
        turn=turn.started.turn,
        phase=phase,
        input=(
            built.input.model_copy(update={"own_session": own_session})
            if own_session
            else built.input
        ),
        input_hash=built.input_hash,
        input_tokens=built.input_tokens,
        digests=built.digests,
        notes=[found.note.id for found in built.chosen.notes],
        opener=chain.opening.message.author_id,
        reply_to=_reply_to(agent, trigger, chain),
        attempt=earlier.attempt + 1 if earlier else 1,
        failed=earlier.failed_attempts if earlier else 0,
    )


def about(agent: str, phase: Phase, chain: ChainState) -> str:
    """What an agent's next call is about: the text of what is new to it."""
    return _said(rules.trigger_for(agent, chain, phase=phase), chain)


def _said(trigger: Sequence[str], chain: ChainState) -> str:
    return "\n".join(chain.messages[name].content for name in trigger)


def limit_s(member: Member | None, team: Team) -> float:
    """Seconds that a reply of a member may take with all its attempts; the nearer setting wins."""
    return (member.profile.timeout_s if member else None) or team.config.turn_timeout_s


def attempt_limit_s(left: float, team: Team) -> float:
    """Seconds that an attempt may take, of the `left` that its reply has."""
    limit = team.config.attempt_timeout_s
    return left if limit is None else min(left, limit)


def _gone(agent: str) -> Member:
    """Who was in the team when the chain opened, and is no longer."""
    return Member(profile=AgentProfile(agent_id=agent, adapter={"type": ""}), name=agent)


def _reply_to(agent: str, trigger: list[str], chain: ChainState) -> str | None:
    """The last new message that calls this agent, else the last new one."""
    calling = [name for name in trigger if agent in chain.calling[name]]
    return next(reversed(calling or trigger), None)
