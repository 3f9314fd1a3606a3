"""The events of exchanges: direct conversations of two agents, next to the turns.

They are read when a transcript holds one: a session without exchanges never imports this module.
The messages of an exchange are `message` events with its number.
"""

from __future__ import annotations

from typing import Annotated, Literal

from arena_cli.protocol import Position, omitted
from arena_cli.transcript.events import SideEvent, order_in_exchange

ExchangeMode = Literal["wait", "notify"]
ExchangePriority = Literal["normal", "high"]
ExchangeEnd = Literal["done", "limit", "timeout", "error", "refused"]


class ExchangeEvent(SideEvent):
    """An event of an exchange, which belongs to the `reply` of the agent that asked."""

    exchange: Annotated[str, Position]
    reply: Annotated[int, Position]
    requester: str
    target: str


class ExchangeStarted(ExchangeEvent):
    """An agent asks another one directly; in the mode `wait` its reply waits for the answer.

    After the first answer follow at most `max_turns` further messages. An agent with tools that
    works is asked after its running calls if the `priority` is high.
    """

    type: Literal["exchange_started"] = "exchange_started"
    mode: ExchangeMode
    max_turns: int
    key: str = omitted("")
    priority: ExchangePriority = omitted("normal")

    @property
    def order_in_reply(self) -> str:
        """The start comes before the question."""
        return f"{order_in_exchange(self.exchange)} 1 "


class ExchangeTimedOut(ExchangeEvent):
    """The agent that asked waited for `wait_s` seconds; the exchange continues without it."""

    type: Literal["exchange_timed_out"] = "exchange_timed_out"
    wait_s: float

    @property
    def order_in_reply(self) -> str:
        """It comes right after the start: a replay learns of it only with the answer."""
        return f"{order_in_exchange(self.exchange)} 2 "


class ExchangeFinished(ExchangeEvent):
    """An exchange has ended, after `turns` answers; `reason` says why it was refused or failed.

    It was `announced` if the agent that was asked told the group about it.
    """

    type: Literal["exchange_finished"] = "exchange_finished"
    end: ExchangeEnd
    turns: int = 0
    announced: bool = False
    reason: str = omitted("")

    @property
    def order_in_reply(self) -> str:
        """The end comes after the announcement."""
        return f"{order_in_exchange(self.exchange)}.~"
