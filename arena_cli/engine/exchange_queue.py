"""Whom an agent may ask directly, and when: the agents that wait, and the queue of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from arena_cli.engine.exchange_state import STEP, Exchange
from arena_cli.engine.exchange_texts import Ask
from arena_cli.engine.plan import Room
from arena_cli.workspace.mentions import resolve_mentions
from arena_cli.workspace.models import Member, normalize_id

DEEPEST = 2
"""An agent that is asked may ask another one, which may ask no agent in turn."""

_POLL_S = 0.02


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
