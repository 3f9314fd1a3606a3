"""The turn loop. Read this first: it asks `rules.next_step` what comes next, and does it.

The chain is in the transcript's fold, nowhere else: to go on after a crash is to run this again.
"""

from __future__ import annotations

import asyncio
from functools import partial

from arena_cli.engine import keeping, milestones, planning, reply, rules
from arena_cli.engine.scene import Room
from arena_cli.transcript.events import ChainFinished, Phase
from arena_cli.transcript.fold import ChainState


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
                    write(partial(milestones.turn_started, step, chain, fold))
                case rules.CallPhase(phase, agents):
                    await self._call(phase, agents, chain)
                case rules.ChooseCandidates():
                    chosen = rules.choose(chain.turns[-1], chain, team, self._room.roster)
                    write(partial(milestones.candidates, chain, *chosen))
                case rules.FinishTurn() as step:
                    await keeping.after_turn(self._room)
                    write(partial(milestones.turn_finished, step, chain))
                case rules.TellLimit(due):
                    write(partial(milestones.limit_told, due, team, self._room.language))
                case rules.FinishChain(end, awaits):
                    await keeping.before_end(self._room)
                    return write(partial(milestones.chain_finished, chain, end, awaits, fold))
        raise ValueError("no chain is open")

    async def _call(self, phase: Phase, agents: tuple[str, ...], chain: ChainState) -> None:
        """Call the agents of a phase at once; each reply is written as it arrives."""
        await self._recall(phase, agents, chain)
        planned = []
        for agent in agents:
            planned.append(planning.plan(agent, phase, chain, self._room.scene))
            # Each before the next is planned, which counts the replies that were announced.
            reply.announce(planned[-1], self._room)
        if len(planned) == 1:
            await reply.run(planned[0], self._room)
            return
        running = [asyncio.create_task(reply.run(one, self._room)) for one in planned]
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
            about = {planning.about(agent, phase, chain) for agent in agents}
            await asyncio.to_thread(recollection.find, about)
