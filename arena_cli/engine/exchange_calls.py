"""The calls of the two agents of an exchange: who may be asked and when, and their work.

The work on a first answer continues if no agent waits for it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from arena_cli.adapters.base import find_tool_way
from arena_cli.adapters.runtime import Heard
from arena_cli.context import hashing, tokens
from arena_cli.engine import exchange_texts, plan
from arena_cli.engine.exchange_state import STEP, Exchange, show_to
from arena_cli.engine.exchange_texts import Ask
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.served_tools import ServedAside, open_served
from arena_cli.engine.side_calls import ASIDE
from arena_cli.engine.subagents import SubLoop
from arena_cli.engine.toolbox import Toolbox
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import LATE, ShownMessage
from arena_cli.util.clock import format_timestamp
from arena_cli.workspace.mentions import resolve_mentions
from arena_cli.workspace.models import Member, normalize_id

DEEPEST = 2
"""An agent that is asked may ask another one, which may ask no agent in turn."""

_POLL_S = 0.02


def plan_step(
    room: Room, exchange: Exchange, member: Member, note: str, told: Sequence[ShownMessage] = ()
) -> Planned:
    """Plan the call of one of the two: the conversation, their messages, what is asked."""
    started = exchange.started
    chain = room.scene.fold.open
    assert chain is not None
    planned = plan.plan(member.id, "A", chain, room.scene)
    other = started.requester if member.id == started.target else started.target
    shown = {message.id for message in planned.input.messages}
    private = [
        show_to(event.message, member.id)
        for event in exchange.messages
        if event.message.id not in shown
    ]
    now = format_timestamp(room.clock.now())
    notes = [exchange_texts.make_note(note, now), *told] if note else []
    heard = [event.message.id for event in exchange.messages if event.message.author_id == other]
    changed = planned.input.model_copy(
        update={
            "turn_id": ASIDE,
            "messages": [*planned.input.messages, *private, *notes],
            "trigger": [*heard[-1:], *(message.id for message in notes)],
            "invocation": "must_reply",
            "mentioned_by": [other],
            "own_session": None,
            "deadline_s": plan.limit_s(member, room.scene.team),
        }
    )
    agent_input = changed.model_copy(update={"input_hash": hashing.input_digest(changed)})
    added = sum(tokens.estimate(message.content) for message in (*private, *notes))
    return replace(
        planned,
        reply=started.reply,
        input=agent_input,
        input_tokens=planned.input_tokens + added,
    )


async def make_loop(
    room: Room, member: Member, planned: Planned, heard: Heard, within: str
) -> SubLoop:
    """Return the loop of one of the two, with its tools."""
    toolbox = Toolbox(())
    way = find_tool_way(member.profile) if member.profile.acts else None
    if way == "mcp":
        toolbox = await open_served(member, room)
        return ServedAside(member, room, planned, heard, toolbox, within=within)
    if way == "loop":
        with suppress(AgentUnavailable):  # it can still answer
            toolbox = await room.tools.get(room).open(member)
    return SubLoop(member, room, planned, heard, toolbox, within=within)


class AnswerHeld(Exception):
    """The chain is to stop, and no agent waits for the answer: the agent is not called now."""


class AnswerWork:
    """The work on a first answer; `waiting` counts the agents that wait for it.

    If it `is_held`, the agent is not called now. It `is_timed_out` if the agent that asked has
    given up.
    """

    def __init__(self, task: asyncio.Task[None], *, is_timed_out: bool) -> None:
        self.task = task
        self.is_timed_out = is_timed_out
        self.is_held = False
        self.waiting = 0
        self._heard: Heard | None = None
        self._late = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> bool:
        """Wait until it is over; return False if the time is over before.

        When a recorded call is repeated, the time is over if it was when the call was recorded.
        """
        until = [self.task] if self.is_timed_out else [self.task, self._late]
        self.waiting += 1
        try:
            await asyncio.wait(until, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiting -= 1
        return self.task.done()

    def give_up(self) -> None:
        """Note that the agent that asked no longer waits."""
        self.is_timed_out = True
        if self._heard is not None:
            self._heard.notes[LATE] = True

    def hear(self, heard: Heard) -> None:
        """Take the notes of its call, which begins."""
        self._heard = heard
        if self.is_timed_out:
            self.give_up()

    async def keep_late(self, is_replying: Callable[[], bool]) -> None:
        """Hold a repeated answer back that was late when it was recorded.

        It comes when the agent that asked waits again, or when its reply has ended.
        """
        is_late = self._heard is not None and LATE in self._heard.notes
        if not is_late or self.is_timed_out or self._late.done():
            return
        self._late.set_result(None)
        while True:
            await asyncio.sleep(_POLL_S)
            if not is_replying() or (self.is_timed_out and self.waiting):
                return


class Works:
    """The works of a session, by the number of the exchange."""

    def __init__(self) -> None:
        self._works: dict[str, AnswerWork] = {}

    def find(self, name: str) -> AnswerWork | None:
        """Return the work on an exchange, None if there is none."""
        return self._works.get(name)

    def begin(
        self, name: str, run: Callable[[], Coroutine[Any, Any, None]], *, is_timed_out: bool
    ) -> AnswerWork:
        """Return the work on an exchange; `run` begins it if there is none."""
        if name not in self._works:
            self._works[name] = AnswerWork(asyncio.create_task(run()), is_timed_out=is_timed_out)
        return self._works[name]

    async def join(self, name: str) -> None:
        """Wait until the work on an exchange has ended. Raises DiskRefused."""
        work = self._works.get(name)
        if work is None:
            return
        await asyncio.wait([work.task])
        self._works.pop(name, None)
        if not work.task.cancelled():
            work.task.result()

    def hold(self) -> None:
        """Let no further agent be called for work that has begun."""
        for work in self._works.values():
            work.is_held = True

    async def settle(self) -> None:
        """Wait until all work has ended. Raises DiskRefused."""
        while self._works:
            await self.join(next(iter(self._works)))

    async def end(self, name: str) -> None:
        """End the work on an exchange, if there is any."""
        work = self._works.pop(name, None)
        if work is not None:
            work.task.cancel()
            await asyncio.wait([work.task])

    async def end_all(self) -> list[str]:
        """End all work; return the numbers of its exchanges."""
        works, self._works = self._works, {}
        for work in works.values():
            work.task.cancel()
        await asyncio.gather(*(work.task for work in works.values()), return_exceptions=True)
        return [*works]


# Who may be asked, and when.


class _QueuePlace:
    """A place in the queue of an agent; one that `is_urgent` may be let in while it works."""

    def __init__(self, *, is_urgent: bool) -> None:
        self.is_urgent = is_urgent
        self.is_served = False
        self.is_over = asyncio.Event()


class ExchangeQueue:
    """The queues of those that ask, by the agent that they ask.

    Agents are asked one at a time, in order of arrival, urgent questions first; `is_replying` tells
    if an agent works on a reply of its own.
    """

    def __init__(self, is_replying: Callable[[str], bool]) -> None:
        self._is_replying = is_replying
        self._waits: list[tuple[str, str]] = []
        self._queues: dict[str, list[_QueuePlace]] = {}

    @contextmanager
    def waiting(self, requester: str, target: str) -> Iterator[None]:
        """Within it, an agent waits for the answer of another one."""
        edge = (requester, target)
        self._waits.append(edge)
        try:
            yield
        finally:
            self._waits.remove(edge)

    def closes_ring(self, requester: str, target: str) -> bool:
        """Return True if the target waits, over others or not, for the one that asks."""
        reached, new = set[str](), {target}
        while new:
            reached |= new
            new = {to for who, to in self._waits if who in new} - reached
        return requester in reached

    @asynccontextmanager
    async def reserved(self, agent: str, *, is_urgent: bool) -> AsyncIterator[None]:
        """Wait until an agent can be asked."""
        queue = self._queues.setdefault(agent, [])
        ticket = _QueuePlace(is_urgent=is_urgent)
        queue.append(ticket)
        try:
            while not ticket.is_served:
                if _find_next(queue) is ticket and not self._is_replying(agent):
                    ticket.is_served = True
                    break
                await asyncio.sleep(_POLL_S)
            yield
        finally:
            queue.remove(ticket)
            ticket.is_over.set()

    async def let_in(self, agent: str) -> None:
        """Let those go first that have an urgent question to an agent at work."""
        queue = self._queues.get(agent, [])
        while (ticket := _find_next(queue)) is not None and ticket.is_urgent:
            ticket.is_served = True
            await ticket.is_over.wait()

    async def wait_until_free(self, agents: tuple[str, ...]) -> None:
        """Wait until no agent asks one of these agents; those that have not begun wait longer."""
        while True:
            queues = [self._queues.get(agent, []) for agent in agents]
            served = [ticket for queue in queues for ticket in queue if ticket.is_served]
            if not served:
                return
            await served[0].is_over.wait()


def _find_next(queue: list[_QueuePlace]) -> _QueuePlace | None:
    """Return the one whose turn it is; None if one is served, or no agent waits."""
    if any(ticket.is_served for ticket in queue):
        return None
    return next((ticket for ticket in queue if ticket.is_urgent), queue[0] if queue else None)


def find_target(room: Room, agent: str) -> str:
    """Return the id of the agent that is asked, or the name if no agent has it."""
    chain = room.scene.fold.open
    opener = chain.opening.message.author_id if chain else ""
    found = resolve_mentions([agent], room.roster, author="", opener=opener).ids
    return found[0] if len(found) == 1 else agent.strip().lstrip("@")[:80]


def find_problem(
    room: Room,
    queue: ExchangeQueue,
    requester: Member,
    target: str,
    asked: Ask,
    outer: Exchange | None,
    name: str,
) -> str:
    """Return why a question cannot be asked, "" if it can.

    `name` is that of its exchange, `outer` the one in which it is asked, if any.
    """
    team = room.scene.team
    if asked.problem:
        return asked.problem
    if not asked.message.strip():
        return "the question is empty"
    if target == requester.id:
        return "an agent cannot ask itself"
    if team.member(target) is not None:
        refusal = _find_refusal(room, queue, requester, target, name)
        is_partner = outer and target in (outer.started.requester, outer.started.target)
        if is_partner and not refusal:
            return f"you talk with {target} already: ask it in your answer"
        return refusal
    chain = room.scene.fold.open
    people = {human.id for human in team.humans}
    if chain is not None:
        people.add(chain.opening.message.author_id)
    others = ", ".join(member.id for member in team.members if member.id != requester.id)
    what = "is a person: mention it in your reply"
    if target not in people:
        what = "is not in your team"
    return f"{target} {what}; you may ask: {others or 'nobody'}"


def _find_refusal(
    room: Room, queue: ExchangeQueue, requester: Member, target: str, name: str
) -> str:
    """Return why a member may not be asked now, "" if it may."""
    profile = requester.profile
    allowed = profile.may_mention if profile.may_ask is None else profile.may_ask
    control = room.control.find(room)
    unavailable = control.unavailable() if control else {}
    if allowed is not None and target not in map(normalize_id, allowed):
        return f"you may not ask {target} (may_ask)"
    if name.count(STEP) >= DEEPEST:
        return "you are asked by an agent that is asked itself: answer without asking on"
    if queue.closes_ring(requester.id, target):
        return f"{target} waits for you already: it would be a ring"
    return f"{target} is {unavailable[target]}" if target in unavailable else ""
