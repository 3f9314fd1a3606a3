"""The messages to agents about their exchanges: results, and questions that came at work."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arena_cli.engine import exchange_texts
from arena_cli.engine.exchange_state import Exchange, Told, read_exchange
from arena_cli.engine.plan import Room
from arena_cli.protocol import WAIT_FOR_AGENT
from arena_cli.transcript.events import Event
from arena_cli.transcript.exchange_events import ExchangeStarted
from arena_cli.workspace.models import Language


def tell(exchange: Exchange, room: Room, *, is_of_turn: bool) -> Told:
    """Return the present result for the agent that asked; `is_of_turn`: in the open turn."""
    started, finished = exchange.started, exchange.finished
    name, target, language = started.exchange, started.target, room.language
    if exchange.answers:
        return Told(name, exchange.answers[0].message.content)
    if finished is not None and finished.end in ("refused", "error", "timeout"):
        text = exchange_texts.describe_failure(finished.end, target, finished.reason, language)
        return Told(name, text, is_refused=True)
    if exchange.is_settled:
        return Told(name, exchange_texts.describe_nothing(target, language))
    if not is_of_turn:
        return Told(name, exchange_texts.describe_left(target, language), is_refused=True)
    if exchange.timed_out is not None:
        return tell_late(exchange, exchange.timed_out.wait_s, room)
    return Told(name, exchange_texts.describe_accepted(name, target, language), is_open=True)


def tell_late(exchange: Exchange, wait_s: float, room: Room) -> Told:
    """Return the message for an agent that has waited for so long."""
    started = exchange.started
    member = room.scene.team.member(started.requester)
    text = exchange_texts.describe_late(
        started.exchange,
        started.target,
        wait_s,
        room.language,
        may_fetch=member is not None and WAIT_FOR_AGENT in member.profile.tools,
    )
    return Told(started.exchange, text)


def describe(agent: str, told: Told, room: Room) -> str:
    """Return the result of a question in a text."""
    return exchange_texts.describe_outcome(agent, told.exchange, told.text, room.language)


def describe_so_far(exchange: Exchange, told: Told, room: Room) -> str:
    """Return all messages of an exchange; without an answer, its present result."""
    if not exchange.answers:
        return describe(exchange.started.target, told, room)
    messages = [event.message for event in exchange.messages]
    texts = [(message.author_id, message.content) for message in messages]
    return exchange_texts.describe_talk(told.exchange, texts, room.language)


def describe_interruptions(
    agent: str, events: Sequence[Event], shown: Collection[str], language: Language
) -> str:
    """Return what an agent was asked during its work; "" if nothing that is not `shown`."""
    names = [
        event.exchange
        for event in events
        if isinstance(event, ExchangeStarted) and (event.target, event.priority) == (agent, "high")
    ]
    texts = []
    for exchange in (read_exchange(name, events) for name in names):
        if exchange and exchange.answers and exchange.messages[0].message.id not in shown:
            question, answer = (event.message.content for event in exchange.messages[:2])
            texts.append(
                exchange_texts.describe_interruption(
                    exchange.started.requester, question, answer, language
                )
            )
    return "\n\n".join(texts)
