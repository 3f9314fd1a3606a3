"""The tools by which agents ask each other directly; `engine.exchanges` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arena_cli.engine import exchange_results
from arena_cli.engine.exchange_state import Exchange
from arena_cli.engine.exchange_texts import LONGEST_WAIT_S, Ask
from arena_cli.engine.plan import Room
from arena_cli.protocol import ASK_AGENT, MERGE_RESULTS, WAIT_FOR_AGENT, PermissionRequest, ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member

if TYPE_CHECKING:
    from arena_cli.engine.exchanges import Exchanges

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
            "priority": {
                "enum": ["normal", "high"],
                "description": "high: an agent at work may answer between its calls of tools",
            },
        },
        "required": ["agent", "message"],
        "additionalProperties": False,
    },
)


_WAIT_SPEC = ToolSpec(
    name=WAIT_FOR_AGENT,
    description="Get the answer in an exchange that you began by ask_agent. If it is not there "
    "yet, you wait `timeout_s` seconds at most; the exchange goes on after that.",
    input_schema={
        "type": "object",
        "properties": {
            "exchange": {"type": "string", "description": "its number, as ask_agent told it"},
            "timeout_s": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S},
        },
        "required": ["exchange"],
        "additionalProperties": False,
    },
)
_MERGE_SPEC = ToolSpec(
    name=MERGE_RESULTS,
    description="Get all messages so far of several exchanges that you began, in one text. It "
    "does not wait: it says which have no answer yet.",
    input_schema={
        "type": "object",
        "properties": {
            "exchanges": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        },
        "required": ["exchanges"],
        "additionalProperties": False,
    },
)
_LONGEST_LIST = 10


class AskSource:
    """The tools for exchanges of a session's agents."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tool for that agent."""
        return [_TOOLS[str(entry)](self._room, member)]

    async def stop(self) -> None:
        """End nothing: an exchange belongs to its turn."""


class _ExchangeTool:
    """A tool for the exchanges of one agent.

    It is idempotent because it continues: a question from before a restart is in the events.
    """

    idempotent = True
    internal = True

    def __init__(self, room: Room, member: Member) -> None:
        self._room = room
        self._member = member

    @property
    def _exchanges(self) -> Exchanges:
        return self._room.tools.get_exchanges(self._room)

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:  # noqa: ARG002
        """Return None: what the other agent does is approved, not that it is asked."""
        return None

    def _find(self, number: str) -> Exchange:
        """Return an exchange that the agent began. Raises ToolFailed."""
        exchange = self._exchanges.find_own(self._member.id, number.strip())
        if exchange is None:
            raise ToolFailed(f"you began no exchange {number.strip()[:40]}")
        return exchange


class AskAgent(_ExchangeTool):
    """The tool `ask_agent` of one agent."""

    spec = _SPEC

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
            priority=arguments.get("priority", "normal"),
        )
        told = await self._exchanges.ask(self._member, asked, scope.call, scope.planned)
        if told.is_refused:
            raise ToolFailed(told.text)
        return ToolOutput(told.text)


class WaitForAgent(_ExchangeTool):
    """The tool `wait_for_agent` of one agent."""

    spec = _WAIT_SPEC

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Return the answer in an exchange, or why there is none."""
        if scope.planned is None:
            raise ToolFailed("an agent can be waited for only within a reply")
        exchange = self._find(arguments["exchange"])
        seconds = arguments.get("timeout_s", 0)
        told = await self._exchanges.fetch(exchange, seconds, scope.planned)
        if told.is_refused:
            raise ToolFailed(told.text)
        return ToolOutput(told.text)


class MergeResults(_ExchangeTool):
    """The tool `merge_results` of one agent."""

    spec = _MERGE_SPEC

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:  # noqa: ARG002
        """Return what was said in the exchanges, in the order in which they are asked for."""
        numbers = list(dict.fromkeys(arguments["exchanges"]))
        if len(numbers) > _LONGEST_LIST:
            raise ToolFailed(f"at most {_LONGEST_LIST} exchanges at once")
        exchanges = [self._find(number) for number in numbers]
        texts = [
            exchange_results.describe_so_far(exchange, self._exchanges.tell(exchange), self._room)
            for exchange in exchanges
        ]
        return ToolOutput("\n\n".join(texts))


_TOOLS: Mapping[str, type[AskAgent | WaitForAgent | MergeResults]] = {
    ASK_AGENT: AskAgent,
    WAIT_FOR_AGENT: WaitForAgent,
    MERGE_RESULTS: MergeResults,
}
