"""The tools by which agents ask each other directly; `engine.exchanges` carries them out.

They are idempotent because they continue: a question from before a restart is in the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arena_cli.engine import exchange_state
from arena_cli.engine.exchange_state import Exchange, Told
from arena_cli.engine.exchange_texts import LONGEST_WAIT_S, Ask
from arena_cli.engine.plan import Room
from arena_cli.engine.toolbox import EngineTool, make_schema
from arena_cli.protocol import ASK_AGENT, MERGE_RESULTS, WAIT_FOR_AGENT, ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member

if TYPE_CHECKING:
    from arena_cli.engine.exchanges import Exchanges

_SECONDS = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S}

_ASK = ToolSpec(
    name=ASK_AGENT,
    description="Ask another agent of your team directly; nobody else is shown it. With `wait_s`, "
    "you wait that many seconds at most and get its first answer; without, the exchange takes "
    "place after your reply. The same `key` again gives the earlier result, and asks nobody.",
    input_schema=make_schema(
        ["agent", "message"],
        agent={"type": "string", "description": "the id of the agent"},
        message={"type": "string", "minLength": 1},
        wait_s=_SECONDS,
        max_turns={
            "type": "integer",
            "minimum": 0,
            "description": "the most messages after the first answer",
        },
        key={"type": "string"},
        priority={
            "enum": ["normal", "high"],
            "description": "high: an agent at work may answer between its calls of tools",
        },
    ),
)
_WAIT = ToolSpec(
    name=WAIT_FOR_AGENT,
    description="Get the answer in an exchange that you began by ask_agent. If it is not there "
    "yet, you wait `timeout_s` seconds at most; the exchange goes on after that.",
    input_schema=make_schema(
        ["exchange"],
        exchange={"type": "string", "description": "its number, as ask_agent told it"},
        timeout_s=_SECONDS,
    ),
)
_MERGE = ToolSpec(
    name=MERGE_RESULTS,
    description="Get all messages so far of several exchanges that you began, in one text. It "
    "does not wait: it says which have no answer yet.",
    input_schema=make_schema(
        ["exchanges"],
        exchanges={"type": "array", "minItems": 1, "items": {"type": "string"}},
    ),
)
_LONGEST_LIST = 10


class AskSource:
    """The tools for exchanges of a session's agents."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tool of that name for an agent."""
        desk = _ExchangeAnswers(self._room, member)
        runs = ((_ASK, desk.ask), (_WAIT, desk.wait), (_MERGE, desk.merge))
        return [EngineTool(spec, run) for spec, run in runs if spec.name == entry]


class _ExchangeAnswers:
    """Answers the calls of one agent."""

    def __init__(self, room: Room, member: Member) -> None:
        self._room = room
        self._member = member

    @property
    def _exchanges(self) -> Exchanges:
        return self._room.tools.get_exchanges(self._room)

    def _find(self, number: str) -> Exchange:
        """Return an exchange that the agent began. Raises ToolFailed."""
        exchange = self._exchanges.find_own(self._member.id, number.strip())
        if exchange is None:
            raise ToolFailed(f"you began no exchange {number.strip()[:40]}")
        return exchange

    async def ask(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Ask the agent; return its answer, or why there is none."""
        if scope.planned is None:
            raise ToolFailed("an agent can be asked only within a reply")
        asked = Ask(**arguments)
        told = await self._exchanges.ask(self._member, asked, scope.call, scope.planned)
        return _make_output(told)

    async def wait(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Return the answer in an exchange, or why there is none."""
        if scope.planned is None:
            raise ToolFailed("an agent can be waited for only within a reply")
        exchange = self._find(arguments["exchange"])
        seconds = arguments.get("timeout_s", 0)
        return _make_output(await self._exchanges.fetch(exchange, seconds, scope.planned))

    async def merge(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        """Return what was said in the exchanges, in the order in which they are asked for."""
        numbers = list(dict.fromkeys(arguments["exchanges"]))
        if len(numbers) > _LONGEST_LIST:
            raise ToolFailed(f"at most {_LONGEST_LIST} exchanges at once")
        exchanges = [self._find(number) for number in numbers]
        texts = [
            exchange_state.describe_so_far(exchange, self._exchanges.tell(exchange), self._room)
            for exchange in exchanges
        ]
        return ToolOutput("\n\n".join(texts))


def _make_output(told: Told) -> ToolOutput:
    if told.is_refused:
        raise ToolFailed(told.text)
    return ToolOutput(told.text)
