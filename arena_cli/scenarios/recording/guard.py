"""Refuse live calls where none are allowed: in CI, without a recording."""

from __future__ import annotations

from arena_cli.adapters.runtime import Answer, CallNext, CallRequest
from arena_cli.errors import AgentUnavailable
from arena_cli.transcript.events import FREE_KINDS


class LiveCallGuard:
    """Refuses every call of an agent that is not scripted, and keeps the refused agents."""

    def __init__(self, hint: str) -> None:
        self.refused: dict[str, None] = {}
        self._hint = hint

    @property
    def refusal(self) -> str | None:
        """The reason the scenario is an error; None if no live agent had to be called."""
        if not self.refused:
            return None
        agents = ", ".join(f"`{agent}`" for agent in self.refused)
        return f"it has no recording and calls {agents} live, while `CI` is set\n  {self._hint}"

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Pass on the call of a scripted agent. Raises AgentUnavailable for any other."""
        member = request.member
        if member.profile.adapter.get("type") in FREE_KINDS:
            return await call_next(request)
        self.refused[member.id] = None
        problem = "it is not called: `CI` is set, and this scenario has no recording"
        raise AgentUnavailable(member.id, problem, mend=self._hint, again=False)
