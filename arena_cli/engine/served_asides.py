"""Serve tools to a program that another agent asks (`engine.exchanges`)."""

from __future__ import annotations

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.engine import call
from arena_cli.engine.inbox import Inbox
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.served_tools import CallDesk, ServedLoop, open_served
from arena_cli.engine.subagents import SubLoop
from arena_cli.engine.tool_steps import Acting
from arena_cli.errors import AgentError
from arena_cli.protocol import SERVED, AgentInput
from arena_cli.workspace.models import Member


async def open_aside(
    member: Member, room: Room, planned: Planned, heard: Heard, *, within: str
) -> SubLoop:
    """Return the loop of a program that another agent asks, with its tools."""
    toolbox = await open_served(member, room)
    return ServedAside(member, room, planned, heard, toolbox, within=within)


class ServedAside(SubLoop, ServedLoop):
    """A call of a program that is no reply; its calls of tools are those of `planned`."""

    async def restore(self, acting: Acting) -> None:
        """Begin again: arena does not know what a program did before a restart."""
        self.settle(acting)

    async def _run(self, agent_input: AgentInput) -> Answer:
        """Call the program once, and carry out its calls meanwhile."""
        room, member, acting = self._room, self._member, self._acting
        limit = max(self._seconds_left(acting), 0)
        invoked = call.invoke(member, agent_input, room, self._heard, limit, self._planned)
        try:
            if room.sessions is None:  # nothing is called, as in a replay
                try:
                    answer = await invoked
                finally:
                    await self.repeat(acting)
            else:
                folder = room.sessions / room.scene.session_id
                answer = await CallDesk(self, acting, Inbox.of_calls(folder, member.id)).serve(
                    invoked
                )
        except AgentError:
            if acting.output is None:
                raise
            answer = None
        finally:
            self._heard.notes.pop(SERVED, None)
        return await self.finish(acting, answer)

    def _find_excess(self) -> str:
        """Return "": the call as a whole is within the budget, or is not made."""
        return ""
