"""Define the middlewares that calls of agents pass before an adapter: recording, replay, limits.

A session has a list of middlewares, applied from the first to the last; the last one's `call_next`
is the adapter itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from arena_cli.adapters.runtime import Answer, Calls, Heard
from arena_cli.protocol import AgentInput
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.models import Member


class CallRequest(NamedTuple):
    """A call of an agent: its input, and the receiver of its reports while it runs."""

    member: Member
    input: AgentInput
    heard: Heard
    redactor: Redactor


CallNext = Callable[[CallRequest], Awaitable[Answer]]


class Middleware(Protocol):
    """A step that every call of an agent passes through."""

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Answer a call, or pass it on. Raises AgentError (redacted) and DiskRefused."""
        ...


class CallPipeline:
    """The calls of a session's agents, passed through its middlewares."""

    def __init__(self, runtime: Calls, middlewares: Sequence[Middleware]) -> None:
        self.redactor = runtime.redactor
        self._runtime = runtime
        self._middlewares = middlewares

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """Call an agent once. Raises AgentError (redacted), and DiskRefused if `heard` does."""
        return await self._call(0, CallRequest(member, input, heard, self.redactor))

    async def _call(self, index: int, request: CallRequest) -> Answer:
        if index == len(self._middlewares):
            return await self._runtime.invoke(request.member, request.input, request.heard)
        return await self._middlewares[index].invoke(request, partial(self._call, index + 1))

    async def stop(self) -> None:
        """End all that is still running for these agents."""
        await self._runtime.stop()
