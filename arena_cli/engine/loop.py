"""The turn loop. Read this first: it asks `rules.next_step` what comes next, and does it.

The chain is in the transcript's fold, nowhere else: to go on after a crash is to run this again.
"""

from __future__ import annotations

import asyncio

from arena_cli.context import window
from arena_cli.engine import reply, rules, wording
from arena_cli.engine.reply import Planned, Room
from arena_cli.ground.protocol import Message, Usage
from arena_cli.team.model import AgentProfile, Language, Member
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    End,
    MessageEvent,
    Phase,
    TurnFinished,
    TurnStarted,
)
from arena_cli.transcript.fold import LIMIT_NOTICE, ChainState, TurnState
from arena_cli.transcript.log import Stamp


class Engine:
    """Runs the open chain of one session to its end, one chain after the other.

    `history` holds the messages so far, and is told of new ones by the journal's fold.
    """

    def __init__(
        self, room: Room, *, session_id: str, history: window.History, language: Language
    ) -> None:
        self._room = room
        self._session_id = session_id
        self._history = history
        self._language = language
        self._fold = room.journal.fold

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
        self._room.journal.write(
            lambda stamp: TurnStarted(
                seq=stamp.seq,
                ts=stamp.ts,
                chain=chain.number,
                turn=self._fold.turn + 1,
                depth=step.depth,
                trigger=list(step.trigger),
                must=list(step.must),
                deferred=list(step.deferred),
                mentioned_by=step.mentioned_by,
            )
        )

    async def _call(self, phase: Phase, agents: tuple[str, ...], chain: ChainState) -> None:
        """Call the agents of a phase at once; each reply is written as it arrives."""
        planned = []
        for agent in agents:
            planned.append(self._plan(agent, phase, chain))
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

    def _plan(self, agent: str, phase: Phase, chain: ChainState) -> Planned:
        turn = chain.turns[-1]
        earlier = turn.replies.get(agent)
        team = self._room.team
        member = team.member(agent)
        trigger = rules.trigger_for(agent, chain, phase=phase)
        built = window.build(
            window.head_of(team, agent) if member else window.Head.of(team, _gone(agent)),
            self._history,
            window.Call(
                session_id=self._session_id,
                turn_id=f"t{turn.started.turn}",
                turn=len(chain.turns),
                call=self._fold.calls.get(agent, 0) + 1,
                trigger=trigger,
                invocation="must_reply" if phase == "A" else "may_reply",
                mentioned_by=turn.started.mentioned_by.get(agent, []) if phase == "A" else [],
                deadline_s=self._deadline_s(member),
            ),
        )
        return Planned(
            agent=agent,
            member=member,
            reply=earlier.number if earlier else self._fold.reply + 1,
            turn=turn.started.turn,
            phase=phase,
            input=built.input,
            input_hash=built.input_hash,
            input_tokens=built.input_tokens,
            opener=chain.opening.message.author_id,
            reply_to=_reply_to(agent, trigger, chain),
            attempt=earlier.attempt + 1 if earlier else 1,
            failed=earlier.failed_attempts if earlier else 0,
        )

    def _deadline_s(self, member: Member | None) -> float:
        limit = reply.limit_s(member, self._room.team)
        attempt_limit = self._room.team.config.attempt_timeout_s
        return limit if attempt_limit is None else min(limit, attempt_limit)

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


def finish_chain(room: Room, chain: ChainState, end: End, awaits: tuple[str, ...]) -> ChainFinished:
    """Write how a chain ended and what it used."""
    results = chain.results()
    usage = Usage.total(done.usage for done in results if done.usage is not None)

    def finished(stamp: Stamp) -> ChainFinished:
        return ChainFinished(
            seq=stamp.seq,
            ts=stamp.ts,
            chain=chain.number,
            end=end,
            awaits=list(awaits),
            turns=len(chain.turns),
            replies=sum(done.status == "success" for done in results),
            usage=usage,
            session_usage=room.journal.fold.spent(),
        )

    return room.journal.write(finished)


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


def _gone(agent: str) -> Member:
    """Who was in the team when the chain opened, and is no longer."""
    return Member(profile=AgentProfile(agent_id=agent, adapter={"type": ""}), name=agent)


def _reply_to(agent: str, trigger: list[str], chain: ChainState) -> str | None:
    """The last new message that calls this agent, else the last new one."""
    calling = [name for name in trigger if agent in chain.calling[name]]
    return next(reversed(calling or trigger), None)
