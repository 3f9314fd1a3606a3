"""The events around the replies of a chain: where turns and the chain itself begin and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arena_cli.engine import rules
from arena_cli.ground.protocol import Message, Usage
from arena_cli.team.model import Language, Team
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    End,
    MessageEvent,
    PassedOver,
    TurnFinished,
    TurnStarted,
)
from arena_cli.transcript.fold import LIMIT_NOTICE, ChainState, Fold
from arena_cli.transcript.log import Stamp


def turn_started(step: rules.StartTurn, chain: ChainState, fold: Fold, stamp: Stamp) -> TurnStarted:
    """The event that opens the next turn of the open chain."""
    return TurnStarted(
        seq=stamp.seq,
        ts=stamp.ts,
        chain=chain.number,
        turn=fold.turn + 1,
        depth=step.depth,
        trigger=list(step.trigger),
        must=list(step.must),
        deferred=list(step.deferred),
        mentioned_by=step.mentioned_by,
    )


def candidates(
    chain: ChainState, asked: list[str], passed_over: Mapping[str, PassedOver], stamp: Stamp
) -> Candidates:
    """The event between the phases of a turn: who may reply."""
    return Candidates(
        seq=stamp.seq,
        ts=stamp.ts,
        turn=chain.turns[-1].started.turn,
        asked=asked,
        passed_over=dict(passed_over),
    )


def turn_finished(step: rules.FinishTurn, chain: ChainState, stamp: Stamp) -> TurnFinished:
    """The event that ends the last turn of the open chain."""
    return TurnFinished(
        seq=stamp.seq,
        ts=stamp.ts,
        turn=chain.turns[-1].started.turn,
        called=list(step.called),
        replied=list(step.replied),
        next=list(step.due),
    )


def limit_told(due: Sequence[str], team: Team, language: Language, stamp: Stamp) -> MessageEvent:
    """The system message of a chain that its depth limit stops: who was still due."""
    members = {member.id: member.name for member in team.members}
    names = [members.get(agent, agent) for agent in due]
    return MessageEvent(
        seq=stamp.seq,
        ts=stamp.ts,
        message=Message(
            id=stamp.message_id,
            author_id="system",
            author_name="system",
            author_type="system",
            content=_limit_reached(names, team.config.chain_depth_limit, language),
            timestamp=stamp.ts,
            kind="system",
            metadata={"notice": LIMIT_NOTICE},
        ),
    )


def _limit_reached(due: Sequence[str], limit: int, language: Language) -> str:
    if language == "zh":
        return f"对话链已达到深度上限（{limit}），不再开启新的轮次。仍待回复：{'、'.join(due)}。"
    return (
        f"The chain reached its depth limit ({limit}): no further turn opens. "
        f"Still due: {', '.join(due)}."
    )


def chain_finished(
    chain: ChainState, end: End, awaits: tuple[str, ...], fold: Fold, stamp: Stamp
) -> ChainFinished:
    """The event that ends a chain: how, and what it used."""
    results = chain.results()
    return ChainFinished(
        seq=stamp.seq,
        ts=stamp.ts,
        chain=chain.number,
        end=end,
        awaits=list(awaits),
        turns=len(chain.turns),
        replies=sum(done.status == "success" for done in results),
        usage=Usage.total(
            [*(done.usage for done in results if done.usage is not None), *chain.remembering]
        ),
        session_usage=fold.spent(),
    )
