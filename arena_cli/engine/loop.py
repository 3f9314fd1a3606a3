"""The turn loop. Read this first: it asks `rules.next_step` what comes next, and does it.

The chain is in the transcript's fold, nowhere else: to go on after a crash is to run this again.
"""

from __future__ import annotations

import asyncio

from arena_cli.context import window
from arena_cli.engine import planning, reply, rules, wording
from arena_cli.engine.planning import Scene
from arena_cli.engine.reply import Room
from arena_cli.ground.protocol import Message, Usage
from arena_cli.team.model import Language, Member
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    End,
    MessageEvent,
    Phase,
    TurnFinished,
    TurnStarted,
)
from arena_cli.transcript.fold import LIMIT_NOTICE, ChainState, Fold, TurnState
from arena_cli.transcript.log import Stamp


class Engine:
    """Runs the open chain of one session to its end, one chain after the other.

    `history` holds the messages so far, and is told of new ones by the journal's fold.
    """

    def __init__(
        self, room: Room, *, session_id: str, history: window.History, language: Language
    ) -> None:
        self._room = room
        self._language = language
        self._fold = room.journal.fold
        self._scene = Scene(session_id, room.team, self._fold, history)

    async def run(self) -> ChainFinished:
        """Do step after step until the chain is finished.

        Cancelled, the running replies are written as `cancelled` and the chain stays open.
        Raises DiskRefused.
        """
        while chain := self._fold.open:
            match rules.next_step(chain, self._room.team):
                case rules.StartTurn() as step:
                    self._start_turn(step, chain)
                case rules.CallPhase(phase, agents):
                    await self._call(phase, agents, chain)
                case rules.ChooseCandidates():
                    self._choose(chain)
                case rules.FinishTurn() as step:
                    self._finish_turn(step, chain)
                case rules.TellLimit(due):
                    self._tell_limit(due)
                case rules.FinishChain(end, awaits):
                    return finish_chain(self._room, chain, end, awaits)
        raise ValueError("no chain is open")

    def _start_turn(self, step: rules.StartTurn, chain: ChainState) -> None:
        self._room.journal.write(lambda stamp: turn_started(step, chain, self._fold, stamp))

    async def _call(self, phase: Phase, agents: tuple[str, ...], chain: ChainState) -> None:
        """Call the agents of a phase at once; each reply is written as it arrives."""
        planned = []
        for agent in agents:
            planned.append(planning.plan(agent, phase, chain, self._scene))
            reply.announce(planned[-1], self._room)
        if len(planned) == 1:
            await reply.run(planned[0], self._room)
            return
        running = [asyncio.create_task(reply.run(one, self._room)) for one in planned]
        try:
            await asyncio.gather(*running)
        except BaseException:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise

    def _choose(self, chain: ChainState) -> None:
        turn = chain.turns[-1]
        asked, passed_over = rules.choose(turn, chain, self._room.team, self._room.roster)
        self._room.journal.write(
            lambda stamp: Candidates(
                seq=stamp.seq,
                ts=stamp.ts,
                turn=turn.started.turn,
                asked=asked,
                passed_over=passed_over,
            )
        )

    def _finish_turn(self, step: rules.FinishTurn, chain: ChainState) -> None:
        turn: TurnState = chain.turns[-1]
        self._room.journal.write(
            lambda stamp: TurnFinished(
                seq=stamp.seq,
                ts=stamp.ts,
                turn=turn.started.turn,
                called=list(step.called),
                replied=list(step.replied),
                next=list(step.due),
            )
        )

    def _tell_limit(self, due: tuple[str, ...]) -> None:
        members: list[Member | None] = [self._room.team.member(agent) for agent in due]
        names = [
            member.name if member else agent for member, agent in zip(members, due, strict=True)
        ]
        text = wording.limit_reached(
            names, self._room.team.config.chain_depth_limit, self._language
        )
        self._room.journal.write(lambda stamp: _system_message(stamp, text))


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


def finish_chain(room: Room, chain: ChainState, end: End, awaits: tuple[str, ...]) -> ChainFinished:
    """Write how a chain ended and what it used."""
    return room.journal.write(
        lambda stamp: chain_finished(chain, end, awaits, room.journal.fold, stamp)
    )


def chain_finished(
    chain: ChainState, end: End, awaits: tuple[str, ...], fold: Fold, stamp: Stamp
) -> ChainFinished:
    """The event that ends a chain."""
    results = chain.results()
    return ChainFinished(
        seq=stamp.seq,
        ts=stamp.ts,
        chain=chain.number,
        end=end,
        awaits=list(awaits),
        turns=len(chain.turns),
        replies=sum(done.status == "success" for done in results),
        usage=Usage.total(done.usage for done in results if done.usage is not None),
        session_usage=fold.spent(),
    )


def _system_message(stamp: Stamp, text: str) -> MessageEvent:
    return MessageEvent(
        seq=stamp.seq,
        ts=stamp.ts,
        message=Message(
            id=stamp.message_id,
            author_id="system",
            author_name="system",
            author_type="system",
            content=text,
            timestamp=stamp.ts,
            kind="system",
            metadata={"notice": LIMIT_NOTICE},
        ),
    )
