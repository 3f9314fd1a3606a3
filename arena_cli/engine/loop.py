"""The turn loop. Read this first: it takes each step that `rules.next_step` returns.

The state of the chain is only in the transcript's fold: to continue after a crash, run it again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from arena_cli.engine import after_turn, call, plan, rules
from arena_cli.engine.notices import write_notice
from arena_cli.engine.plan import Room
from arena_cli.errors import DiskRefused
from arena_cli.protocol import TASK_BLOCK, TASK_UPDATE, Usage
from arena_cli.transcript.conversation import LIMIT_NOTICE, Chain, Turn
from arena_cli.transcript.events import (
    Candidates,
    ChainFinished,
    End,
    Phase,
    TurnFinished,
    TurnStarted,
    import_control_events,
)
from arena_cli.transcript.log import Journal
from arena_cli.util.language import Texts
from arena_cli.workspace.models import Member

if TYPE_CHECKING:
    from arena_cli.engine.inbox import ControlRequest, Outcome
    from arena_cli.transcript.control_events import ChainPaused

WATCH_S = 0.2
"""The time between two looks for requests of people while agents are called, in seconds."""

_INSTANT = (rules.StartTurn, rules.ChooseCandidates)
"""Steps that take no time: nobody asks for anything meanwhile, and nothing becomes controlled."""


def start_turn(step: rules.StartTurn, journal: Journal) -> TurnStarted:
    """Open the next turn of the open chain."""
    return journal.write(
        TurnStarted,
        chain=_open_chain(journal).number,
        turn=journal.fold.turn + 1,
        depth=step.depth,
        trigger=list(step.trigger),
        must=list(step.must),
        deferred=list(step.deferred),
        mentioned_by=step.mentioned_by,
        passed_over=step.passed_over,
        order=step.order,
    )


def pause_chain(step: rules.Pause, journal: Journal) -> ChainPaused:
    """Write that the open chain waits (`chain_paused`)."""
    shape: type[ChainPaused] = import_control_events().ChainPaused
    chain = _open_chain(journal).number
    return journal.write(shape, chain=chain, reason=step.reason, detail=step.detail, by=step.by)


def finish_chain(end: End, awaits: Sequence[str], journal: Journal) -> ChainFinished:
    """End the open chain, with its usage."""
    chain = _open_chain(journal)
    results = chain.results()
    usages = [done.usage for done in results if done.usage is not None]
    return journal.write(
        ChainFinished,
        chain=chain.number,
        end=end,
        awaits=list(awaits),
        turns=len(chain.turns),
        replies=sum(done.status == "success" for done in results),
        usage=Usage.total([*usages, *chain.remembering]),
        session_usage=journal.fold.spent(),
    )


def _open_chain(journal: Journal) -> Chain:
    assert journal.fold.open is not None
    return journal.fold.open


def _report_limit(due: Sequence[str], room: Room) -> None:
    """Write the system message about a depth limit: it names the agents that were still due."""
    team, say = room.scene.team, Texts(room.language)
    members = {member.id: member.name for member in team.members}
    text = say(
        "The chain reached its depth limit ({limit}): no further turn opens. Still due: {names}.",
        limit=team.config.chain_depth_limit,
        names=say(", ").join(members.get(agent, agent) for agent in due),
    )
    write_notice(room, text, {"notice": LIMIT_NOTICE}, chain=room.scene.fold.open)


class Engine:
    """The engine of one session, which runs its open chains, one after the other."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._posted: list[tuple[int, ControlRequest]] = []
        self._is_calling = False

    async def run(self) -> ChainFinished | ChainPaused:
        """Take step after step until the chain is finished, or paused (`chain_paused`).

        If cancelled, the running replies are written as `cancelled` and the chain stays open.
        Raises DiskRefused.
        """
        with self._watching():
            try:
                return await self._run()
            finally:
                await self._end_exchanges()

    async def _run(self) -> ChainFinished | ChainPaused:
        journal = self._room.journal
        step: rules.Step | None = None
        while chain := journal.fold.open:
            step = self._next_step(chain, step)
            match step:
                case rules.StartTurn() as step:
                    start_turn(step, journal)
                case rules.CallPhase(phase, agents):
                    await self._call(phase, agents, chain)
                case rules.ChooseCandidates():
                    self._choose_candidates(chain)
                case rules.FinishTurn() as step:
                    await self._finish_turn(step, chain)
                case rules.TellLimit(due):
                    _report_limit(due, self._room)
                case rules.Prepare(act):
                    await self._watched(act())
                case rules.Pause() as step:
                    if not await self._ask_person(step, chain):
                        return await self._pause(step)
                case rules.FinishChain(end, awaits):
                    if end != "cancelled":
                        await after_turn.before_end(self._room)
                    await self._end_exchanges("the chain was cancelled")
                    return finish_chain(end, awaits, journal)
        raise ValueError("no chain is open")

    async def _pause(self, step: rules.Pause) -> ChainPaused:
        """Pause the chain, when the agents have answered that are being asked."""
        if (exchanges := self._room.tools.exchanges) is not None:
            await self._watched(exchanges.pause())
        return pause_chain(step, self._room.journal)

    async def _end_exchanges(self, problem: str = "") -> None:
        """End what agents still work on for others, and with a `problem` its exchanges."""
        if (exchanges := self._room.tools.exchanges) is not None:
            await exchanges.end(problem)

    async def _finish_turn(self, step: rules.FinishTurn, chain: Chain) -> None:
        """Finish a turn, or only its exchanges: these may change who is due."""
        if self._has_open_exchanges(chain):
            await self._watched(self._room.tools.get_exchanges(self._room).finish_open())
            return
        await after_turn.after_turn(self._room)
        self._take_approval_requests(chain)
        await self._settle_tasks(chain)
        self._room.journal.write(
            TurnFinished,
            turn=chain.turns[-1].started.turn,
            called=list(step.called),
            replied=list(step.replied),
            next=list(step.due),
        )

    def start_chain(self) -> None:
        """Tell agents about changed files, after the message that opens a chain.

        Raises DiskRefused.
        """
        folder = self._room.seen_folder
        if folder is not None and os.path.lexists(folder):
            import_module("arena_cli.engine.changed_files").report_changes(self._room, folder)

    def check(self) -> None:
        """Check that the team's rules can be applied. Raises UsageError."""
        control = self._room.control.find(self._room)
        if control is not None:
            control.check()

    def carry_out(self, request: ControlRequest) -> str:
        """Carry out a person's request while no chain runs; return what was done.

        Raises UsageError or DiskRefused.
        """
        text = self._room.control.get(self._room).carry_out(request)
        self._settle()
        return text

    def post(self, request: ControlRequest) -> None:
        """Carry out a person's request at the next safe point of the open chain.

        `run` raises UsageError if it cannot be carried out then.
        """
        chain = _open_chain(self._room.journal).number
        self._posted.append((chain, request))

    def take_requests(self) -> None:
        """Carry out the requests that wait, while no chain runs. Raises DiskRefused."""
        self._room.control.get(self._room).take_requests()
        self._settle()

    def find_pause(self, chain: Chain) -> ChainPaused | None:
        """Return the pause of the open chain if it waits for a decision that is still open.

        Requests whose time is over are closed first. Raises DiskRefused.
        """
        control = self._room.control.find(self._room)
        return control.find_pause(chain) if control else None

    async def ask_again(self, chain: Chain, pause: ChainPaused) -> bool:
        """Ask at the terminal what a paused chain waits for; return False if it still waits."""
        return await self._ask_person(rules.Pause(pause.reason, pause.detail), chain)

    async def serve_tool(self, member: Member, request: ControlRequest) -> Outcome:
        """Carry out a request for the tools of an agent, while no chain runs."""
        served = import_module("arena_cli.engine.served_tools")
        outcome: Outcome = await served.carry_out_alone(member, self._room, request)
        return outcome

    def _settle(self) -> None:
        """Pause or end the chain that no process runs, if a person asked for it."""
        room = self._room
        control = room.control.get(room)
        chain = room.journal.fold.open
        if chain is not None and control.is_stopping:
            match control.next_step(chain):
                case rules.Pause() as step:
                    pause_chain(step, room.journal)
                case rules.FinishChain(end, awaits):
                    finish_chain(end, awaits, room.journal)
                case _:
                    pass

    def _next_step(self, chain: Chain, last: rules.Step | None) -> rules.Step:
        room = self._room
        if not isinstance(last, _INSTANT):
            if room.has_requests():
                room.control.get(room).take_requests()
            room.control.find(room)
        while self._posted:
            number, request = self._posted.pop(0)
            if number == chain.number:
                room.control.get(room).carry_out(request)
        control = room.control.current
        if control is None:
            return rules.next_step(chain, room.scene.team)
        return control.next_step(chain)

    def _take_approval_requests(self, chain: Chain) -> None:
        """Write the requests for approval in the messages of the turn, and what decides them."""
        turn = chain.turns[-1]
        parts = [
            part
            for done in turn.successes()
            for part in (done.message.structured if done.message else ())
        ]
        if any(part.type == "approval_request" for part in parts):
            self._room.control.get(self._room).approvals.take_structured(turn)

    async def _settle_tasks(self, chain: Chain) -> None:
        """Write what the replies of the turn do to tasks, if there are any or they add some."""
        control, turn = self._room.scene.fold.control, chain.turns[-1]
        if (control is not None and control.tasks is not None) or _names_tasks(turn):
            ends = import_module("arena_cli.engine.task_ends")
            await ends.settle(turn, chain, self._room)

    async def _ask_person(self, step: rules.Pause, chain: Chain) -> bool:
        """Ask at the terminal what the chain waits for; return False if it is not decided now."""
        if self._room.ask_person is None or step.reason not in ("approval", "choice"):
            return False
        control = self._room.control.get(self._room)
        await self._watched(control.approvals.ask_pending(chain))
        return control.approvals.is_all_decided or control.is_stopping

    def _has_open_exchanges(self, chain: Chain) -> bool:
        """Return True if agents have asked each other in this turn, and are not done."""
        types = [event.type for event in chain.turns[-1].side_events]
        return types.count("exchange_started") > types.count("exchange_finished")

    def _choose_candidates(self, chain: Chain) -> None:
        room, turn = self._room, chain.turns[-1]
        number = turn.started.turn
        if chain.control is not None and chain.control.work is not None:
            room.journal.write(Candidates, turn=number, asked=[])
            return
        control = room.control.current
        asked, passed_over = rules.choose_candidates(
            turn,
            chain,
            room.scene.team,
            room.roster,
            control.list_left_out(chain) if control else {},
        )
        if (budget := room.control.budget) is not None:
            asked, passed_over = budget.limit_candidates(asked, passed_over, chain)
        room.journal.write(Candidates, turn=number, asked=asked, passed_over=passed_over)

    async def _call(self, phase: Phase, agents: tuple[str, ...], chain: Chain) -> None:
        """Call the agents of a phase concurrently; write each reply as it arrives."""
        await self._recall(phase, agents, chain)
        if (exchanges := self._room.tools.exchanges) is not None:
            await self._watched(exchanges.wait_until_free(agents))
        planned = []
        budget = self._room.control.budget
        control = self._room.control.current
        unavailable = control.unavailable() if control else {}
        for agent in agents:
            reply = plan.plan(agent, phase, chain, self._room.scene)
            if agent in unavailable:  # since the turn opened
                call.withhold(reply, self._room, unavailable[agent])
                continue
            if budget is not None and not budget.admit(reply):
                continue
            planned.append(reply)
            # Each before the next is planned, which counts the replies that were announced.
            call.announce(reply, self._room)
            if control:
                control.approvals.start_reply(reply, chain.turns[-1])
        if not planned:
            return
        if budget is not None:
            budget.take_excess()  # the others may fit when these have ended
        await self._watched(self._run_all(planned))

    async def _watched(self, calls: Awaitable[None]) -> None:
        """Await calls of agents; meanwhile the requests of people are carried out."""
        self._is_calling = True
        try:
            await calls
        finally:
            self._is_calling = False

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Look for requests of people while agents are called."""
        if self._room.inbox is None:
            yield
            return
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            if self._is_calling and self._room.has_requests():
                with suppress(DiskRefused):  # the next event that is written says so
                    self._room.control.get(self._room).take_requests()
            timer = loop.call_later(WATCH_S, look)

        timer = loop.call_later(WATCH_S, look)
        try:
            yield
        finally:
            timer.cancel()

    async def _run_all(self, planned: Sequence[plan.Planned]) -> None:
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

    async def _recall(self, phase: Phase, agents: tuple[str, ...], chain: Chain) -> None:
        """Find the notes that are relevant to the calls of a phase, from their current files."""
        recollection = self._room.scene.recollection
        if recollection is None:
            return
        recollection.follow()
        if recollection.waits:
            about = {plan.about(agent, phase, chain) for agent in agents}
            await asyncio.to_thread(recollection.find, about)


def _names_tasks(turn: Turn) -> bool:
    """Return True if replies of a turn have a block of tasks, or called the tool that adds some."""
    return any(getattr(event, "tool", "") == TASK_UPDATE for event in turn.side_events) or any(
        TASK_BLOCK in done.message.content for done in turn.successes() if done.message
    )
