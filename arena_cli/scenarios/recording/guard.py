"""Refuse live calls where none are allowed: in CI, without a recording."""

from __future__ import annotations

from arena_cli.adapters.runtime import Answer, Calls, Heard, Runtime
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import AgentInput
from arena_cli.transcript.events import FREE_KINDS
from arena_cli.workspace.models import Member


class Guard:
    """Refuses every call of an agent that is not scripted, and keeps who was to be called."""

    def __init__(self, hint: str) -> None:
        self.refused: dict[str, None] = {}
        self._hint = hint

    @property
    def refusal(self) -> str | None:
        """The reason the scenario is an error; None where no live agent was to be called."""
        if not self.refused:
            return None
        agents = ", ".join(f"`{agent}`" for agent in self.refused)
        return f"it has no recording and calls {agents} live, while `CI` is set\n  {self._hint}"

    def around(self, runtime: Runtime) -> Calls:
        """Return what agents are called through."""
        return _Guarded(self, runtime)

    def refuse(self, agent: str) -> AgentUnavailable:
        """Return the error of a call, and keep its agent."""
        self.refused[agent] = None
        problem = "it is not called: `CI` is set, and this scenario has no recording"
        return AgentUnavailable(agent, problem, mend=self._hint, again=False)


class _Guarded:
    def __init__(self, guard: Guard, runtime: Runtime) -> None:
        self.redactor = runtime.redactor
        self._guard = guard
        self._runtime = runtime

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """Call a scripted agent. Raises AgentUnavailable for any other."""
        if member.profile.adapter.get("type") not in FREE_KINDS:
            raise self._guard.refuse(member.id)
        return await self._runtime.invoke(member, input, heard)

    async def stop(self) -> None:
        """End whatever still runs for the agents."""
        await self._runtime.stop()
