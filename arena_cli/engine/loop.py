"""The turn loop. Read this first: it asks `rules.next_step` what comes next, and does it.

The chain is in the transcript's fold, nowhere else: to go on after a crash is to run this again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from arena_cli.engine import after_turn, call, plan, rules
from arena_cli.engine.state import Room
from arena_cli.protocol import Message, Usage
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    End,
    MessageEvent,
    PassedOver,
    Phase,
    TurnFinished,
    TurnStarted,
)
from arena_cli.transcript.log import Stamp
from arena_cli.transcript.state import LIMIT_NOTICE, ChainState, Fold
from arena_cli.workspace.models import Language, Team


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
    chain: ChainState, agents: list[str], passed_over: Mapping[str, PassedOver], stamp: Stamp
) -> Candidates:
    """The event between the phases of a turn: who may reply."""
    return Candidates(
        seq=stamp.seq,
        ts=stamp.ts,
        turn=chain.turns[-1].started.turn,
        asked=agents,
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


class Engine:
    """Runs the open chain of one session to its end, one chain after the other."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def run(self) -> ChainFinished:
        """Do step after step until the chain is finished.

        Cancelled, the running replies are written as `cancelled` and the chain stays open.
        Raises DiskRefused.
        """
        fold, team = self._room.scene.fold, self._room.scene.team
        write = self._room.journal.write
        while chain := fold.open:
            match rules.next_step(chain, team):
                case rules.StartTurn() as step:
                    write(partial(turn_started, step, chain, fold))
                case rules.CallPhase(phase, agents):
                    await self._call(phase, agents, chain)
                case rules.ChooseCandidates():
                    chosen = rules.choose_candidates(
                        chain.turns[-1], chain, team, self._room.roster
                    )
                    write(partial(candidates, chain, *chosen))
                case rules.FinishTurn() as step:
                    await after_turn.after_turn(self._room)
                    write(partial(turn_finished, step, chain))
                case rules.TellLimit(due):
                    write(partial(limit_told, due, team, self._room.language))
                case rules.FinishChain(end, awaits):
                    await after_turn.before_end(self._room)
                    return write(partial(chain_finished, chain, end, awaits, fold))
        raise ValueError("no chain is open")

    async def _call(self, phase: Phase, agents: tuple[str, ...], chain: ChainState) -> None:
        """Call the agents of a phase at once; each reply is written as it arrives."""
        await self._recall(phase, agents, chain)
        planned = []
        for agent in agents:
            planned.append(plan.plan(agent, phase, chain, self._room.scene))
            # Each before the next is planned, which counts the replies that were announced.
            call.announce(planned[-1], self._room)
        if len(planned) == 1:
            await call.run(planned[0], self._room)
            return
        running = [asyncio.create_task(call.run(reply, self._room)) for reply in planned]
        try:
            # Not `gather`: cancelled at once, it would end those that have not begun, unwritten.
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except BaseException:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise

    async def _recall(self, phase: Phase, agents: tuple[str, ...], chain: ChainState) -> None:
        """Find what bears on the calls of a phase, at the notes' files as they are now."""
        recollection = self._room.scene.recollection
        if recollection is None:
            return
        recollection.follow()
        if recollection.waits:
            about = {plan.about(agent, phase, chain) for agent in agents}
            await asyncio.to_thread(recollection.find, about)
