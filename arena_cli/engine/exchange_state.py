"""The state of an exchange as the events of its turn tell it, and the messages about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from arena_cli.context.history import shown_to_others
from arena_cli.engine import exchange_texts
from arena_cli.engine.exchange_texts import quote
from arena_cli.engine.plan import Room
from arena_cli.engine.subagents import make_output
from arena_cli.protocol import WAIT_FOR_AGENT, Message, ShownMessage
from arena_cli.transcript import queries
from arena_cli.transcript.acting_events import AgentEnded
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Event, MessageEvent
from arena_cli.transcript.exchange_events import ExchangeFinished, ExchangeStarted, ExchangeTimedOut
from arena_cli.util.language import Language, Texts

STEP = ".s"
"""The mark of a message in the number of a call: `b1.s1` is the first answer to block `b1`."""

SAY = ".say"
"""The mark of the announcement."""


class Told(NamedTuple):
    """The result of a question; it `is_refused` if no agent was asked.

    `is_open`: there is no answer yet.
    """

    exchange: str
    text: str
    is_refused: bool = False
    is_open: bool = False


@dataclass
class Exchange:
    """An exchange as its events tell it so far."""

    started: ExchangeStarted
    messages: list[MessageEvent] = field(default_factory=list)
    announcement: MessageEvent | None = None
    timed_out: ExchangeTimedOut | None = None
    finished: ExchangeFinished | None = None
    ends: dict[str, AgentEnded] = field(default_factory=dict)

    @property
    def call(self) -> str:
        """The number of the call or block by which it began."""
        return self.started.exchange.partition(".")[2]

    @property
    def answers(self) -> list[MessageEvent]:
        """Its messages after the question."""
        return self.messages[1:]

    @property
    def is_done(self) -> bool:
        """True if one of the two has said that there is nothing more to say."""
        ends = [end for within, end in self.ends.items() if within != f"{self.call}{SAY}"]
        return any(_is_last_word(end) for end in ends)

    @property
    def is_settled(self) -> bool:
        """True if the agent that asked has its result: an answer, or that there is none."""
        return self.finished is not None or bool(self.answers) or self.is_done

    def find_speaker(self, step: int) -> str:
        """Return the agent whose message that is: the target's are odd."""
        return self.started.target if step % 2 else self.started.requester


def _is_last_word(end: AgentEnded) -> bool:
    if end.mode != "goal":
        return has_declined(end)
    return exchange_texts.cut_done(make_output(end).text)[1]


def has_declined(end: AgentEnded) -> bool:
    """Return True if the agent had nothing to say."""
    return end.metadata.get("error") == f"{end.agent} declined"


def read_exchange(name: str, events: Iterable[Event]) -> Exchange | None:
    """Return an exchange as these events tell it; None if it has not begun."""
    exchange: Exchange | None = None
    for event in events:
        match event:
            case ExchangeStarted(exchange=number) if number == name:
                exchange = Exchange(event)
            case ExchangeTimedOut(exchange=number) if number == name and exchange:
                exchange.timed_out = event
            case ExchangeFinished(exchange=number) if number == name and exchange:
                exchange.finished = event
            case MessageEvent(exchange=number) if number == name and exchange:
                if event.is_announcement:
                    exchange.announcement = event
                else:
                    exchange.messages.append(event)
            case AgentEnded() if exchange and event.reply == exchange.started.reply:
                if _is_of(event.within, exchange.call):
                    exchange.ends[event.within] = event
            case _:
                pass
    return exchange


def _is_of(within: str, call_number: str) -> bool:
    """Return True if a call of an agent belongs to an exchange, and not to one within it."""
    rest = within.removeprefix(call_number)
    if rest == within or not rest.startswith((STEP, SAY)):
        return False
    return rest.count(".") == 1 or (rest.count(".") == 2 and rest.rpartition(".")[2][0] == "r")


def list_turn_events(chain: Chain | None) -> Iterator[Event]:
    """Yield the events of the last turn of a chain."""
    if chain is None or not chain.turns:
        return
    begun = chain.turns[-1].started.seq
    yield from (event for event in chain.events if event.seq > begun)


def list_open(events: Sequence[Event]) -> list[Exchange]:
    """Return the exchanges in these events of a turn that have not ended, in order."""
    names = {
        event.exchange: event.order_in_reply
        for event in events
        if isinstance(event, ExchangeStarted)
    }
    ordered = sorted(names, key=lambda name: (int(name.partition(".")[0]), names[name]))
    found = [exchange for name in ordered if (exchange := read_exchange(name, events))]
    return [exchange for exchange in found if exchange.finished is None]


def find_newest(room: Room, fits: Callable[[ExchangeStarted], bool]) -> Exchange | None:
    """Return the newest exchange of the session that fits; None if there is none."""
    path = getattr(room.journal.log, "path", None)
    types = {"exchange_started", "exchange_timed_out", "exchange_finished", "message"}
    later: list[Event] = []
    for event in queries.list_newest(path, types, room.scene.fold.revisions):
        later.append(event)
        if isinstance(event, ExchangeStarted) and fits(event):
            return read_exchange(event.exchange, reversed(later))
    return None


def show_to(message: Message, agent: str) -> ShownMessage:
    """Return a message of an exchange as one of its agents is shown it."""
    shown = shown_to_others(message)
    return shown.model_copy(update={"role": "assistant"}) if message.author_id == agent else shown


# The messages about it, for its agents.


def tell(exchange: Exchange, room: Room, *, is_of_turn: bool) -> Told:
    """Return the present result for the agent that asked; `is_of_turn`: in the open turn."""
    started, finished, say = exchange.started, exchange.finished, Texts(room.language)
    name, target = started.exchange, started.target
    if exchange.answers:
        return Told(name, exchange.answers[0].message.content)
    if finished is not None and finished.end not in ("done", "limit"):
        reason = say.message(finished.reason)
        text = say("{target} could not answer: {reason}", target=target, reason=reason)
        if finished.end == "refused":
            text = say("nobody was asked: {reason}", reason=reason)
        return Told(name, text, is_refused=True)
    if exchange.is_settled:
        return Told(name, say("{target} has nothing to say.", target=target))
    if not is_of_turn:
        text = say("{target} has not answered: the turn was stopped.", target=target)
        return Told(name, text, is_refused=True)
    if exchange.timed_out is not None:
        return tell_late(exchange, exchange.timed_out.wait_s, room)
    text = say(
        "accepted: exchange {exchange} with {target} takes place after your reply",
        exchange=name,
        target=target,
    )
    return Told(name, text, is_open=True)


def tell_late(exchange: Exchange, wait_s: float, room: Room) -> Told:
    """Return the message for an agent that has waited for so long; the work continues."""
    started, say = exchange.started, Texts(room.language)
    member = room.scene.team.member(started.requester)
    if member is not None and WAIT_FOR_AGENT in member.profile.tools:
        later = say("wait_for_agent gets the answer")
    else:
        later = say("you will see the answer when you are called next")
    text = say(
        "{target} did not answer in {seconds} s; exchange {exchange} goes on: {later}.",
        target=started.target,
        seconds=f"{wait_s:g}",
        exchange=started.exchange,
        later=later,
    )
    return Told(started.exchange, text)


def describe(agent: str, told: Told, room: Room) -> str:
    """Return the result of a question in a text, for the agent that asked."""
    heading = Texts(room.language)(
        "Exchange {exchange}, about what you asked @{agent}:",
        exchange=told.exchange,
        agent=agent.lstrip("@"),
    )
    return f"{heading}\n{told.text}"


def describe_so_far(exchange: Exchange, told: Told, room: Room) -> str:
    """Return all messages of an exchange; without an answer, its present result."""
    if not exchange.answers:
        return describe(exchange.started.target, told, room)
    messages = [event.message for event in exchange.messages]
    lines = [f"@{message.author_id}:\n{quote(message.content)}" for message in messages]
    return "\n".join([Texts(room.language)("Exchange {name}:", name=told.exchange), *lines])


def describe_interruptions(
    agent: str, events: Sequence[Event], shown: Collection[str], language: Language
) -> str:
    """Return what an agent was asked during its work; "" if nothing that is not `shown`."""
    say = Texts(language)
    texts = []
    for event in events:
        if not isinstance(event, ExchangeStarted):
            continue
        exchange = read_exchange(event.exchange, events)
        if (event.target, event.priority) != (agent, "high") or not (exchange and exchange.answers):
            continue
        question, answer = (event.message for event in exchange.messages[:2])
        if question.id not in shown:
            asked = say("While you worked, @{agent} asked you:", agent=event.requester)
            answered = say("You answered:")
            quotes = quote(question.content), quote(answer.content)
            texts.append(f"{asked}\n{quotes[0]}\n{answered}\n{quotes[1]}")
    return "\n\n".join(texts)
