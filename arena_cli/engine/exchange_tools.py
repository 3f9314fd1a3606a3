"""The tool by which an agent asks another one directly; `engine.exchanges` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena_cli.engine.exchange_texts import LONGEST_WAIT_S, Ask
from arena_cli.engine.plan import Room
from arena_cli.protocol import ASK_AGENT, PermissionRequest, ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member

_SPEC = ToolSpec(
    name=ASK_AGENT,
    description="Ask another agent of your team directly; nobody else is shown it. With `wait_s`, "
    "you wait that many seconds at most and get its first answer; without, the exchange takes "
    "place after your reply. The same `key` again gives the earlier result, and asks nobody.",
    input_schema={
        "type": "object",
        "properties": {
            "agent": {"type": "string", "description": "the id of the agent"},
            "message": {"type": "string", "minLength": 1},
            "wait_s": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S},
            "max_turns": {
                "type": "integer",
                "minimum": 0,
                "description": "the most messages after the first answer",
            },
            "key": {"type": "string"},
        },
        "required": ["agent", "message"],
        "additionalProperties": False,
    },
)


class AskSource:
    """The tool `ask_agent` of a session's agents."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:  # noqa: ARG002
        """Return the tool for that agent."""
        return [AskAgent(self._room, member)]

    async def stop(self) -> None:
        """End nothing: an exchange belongs to its turn."""


class AskAgent:
    """The tool `ask_agent` of one agent.

    It is idempotent because it continues: a question from before a restart is in the events.
    """

    idempotent = True
    internal = True
    spec = _SPEC

    def __init__(self, room: Room, member: Member) -> None:
        self._room = room
        self._member = member

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:  # noqa: ARG002
        """Return None: what the other agent does is approved, not that it is asked."""
        return None

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Ask the agent; return its answer, or why there is none."""
        if scope.planned is None:
            raise ToolFailed("an agent can be asked only within a reply")
        asked = Ask(
            agent=arguments["agent"],
            message=arguments["message"],
            wait_s=arguments.get("wait_s", 0),
            max_turns=arguments.get("max_turns"),
            key=arguments.get("key", ""),
        )
        exchanges = self._room.tools.get_exchanges(self._room)
        told = await exchanges.ask(self._member, asked, scope.call, scope.planned)
        if told.is_refused:
            raise ToolFailed(told.text)
        return ToolOutput(told.text)
