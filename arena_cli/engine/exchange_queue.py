"""Who waits for whom in exchanges: the agents that wait for an answer, and the queue of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

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
