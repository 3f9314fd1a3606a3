"""Call an agent's adapters in order: the first, then its fallbacks if it cannot be reached.

The note `fallback` of the call names the one that was called last, and the reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena_cli.adapters.base import Health
from arena_cli.errors import AgentOverloaded, AgentUnavailable
from arena_cli.protocol import AgentInput, CallNote
from arena_cli.workspace.agents import FALLBACK

if TYPE_CHECKING:
    from arena_cli.adapters.runtime import Answer, Heard

_SCRIPTED = "scripted"  # the note on the entry of a script that answered

Call = Callable[[int, AgentInput], Awaitable["Answer"]]


async def call_in_order(
    adapters: Sequence[Mapping[str, Any]], call: Call, agent_input: AgentInput, heard: Heard
) -> Answer:
    """Return the answer of the first adapter that is neither unavailable nor overloaded.

    `call` calls the adapter of a number, 0 for the first. Raises the error of the last one.
    """
    failures: list[str] = []
    for number, settings in enumerate(adapters):
        if number:
            heard.forget()
            agent_input = agent_input.afresh()  # another adapter does not know the agent's session
            model = {"model": settings["model"]} if "model" in settings else {}
            note = {"number": number, "type": settings["type"], **model, "because": [*failures]}
            heard(CallNote({FALLBACK: note}))
        try:
            answer = await call(number, agent_input)
        except (AgentUnavailable, AgentOverloaded) as error:
            if number + 1 == len(adapters):
                raise
            failures.append(str(error))
            continue
        if number:  # its session and its script are not those of the first adapter
            heard.session_id = None
            heard.notes.pop(_SCRIPTED, None)
            answer.output.metadata.pop(_SCRIPTED, None)
        return answer
    raise AssertionError("an agent has an adapter")


async def check_in_order(count: int, check: Callable[[int], Awaitable[Health]]) -> Health:
    """Return the health of the first of `count` adapters, or of the first fallback with a problem.

    `check` checks the adapter of a number.
    """
    first = await check(0)
    for number in range(1, count if first.ok else 1):
        health = await check(number)
        if not health.ok:
            return health._replace(detail=f"adapter.{FALLBACK}[{number - 1}]: {health.detail}")
    return first
