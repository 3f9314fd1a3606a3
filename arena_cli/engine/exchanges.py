"""Carry out exchanges: direct conversations of two agents, next to the turns.

A session in which no agent asks another one never imports this module (`ToolsHolder`). The state
of an exchange is in the events of its turn: after a crash it continues from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from arena_cli.adapters.base import find_tool_way
from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.engine import call, exchange_state, exchange_texts
from arena_cli.engine.answers import resolve_calls
from arena_cli.engine.exchange_calls import (
    DEEPEST,
    AnswerHeld,
    AnswerWork,
    ExchangeQueue,
    Works,
    find_problem,
    find_target,
    make_loop,
    plan_step,
)
from arena_cli.engine.exchange_state import (
    SAY,
    STEP,
    Exchange,
    Told,
    find_newest,
    has_declined,
    list_open,
    list_turn_events,
    read_exchange,
)
from arena_cli.engine.exchange_texts import Ask
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.side_calls import StoppedByPerson, run_listed
from arena_cli.engine.subagents import make_output
from arena_cli.errors import AgentError, DiskRefused
from arena_cli.protocol import AgentOutput, Message, ShownMessage
from arena_cli.transcript.acting_events import AgentEnded
from arena_cli.transcript.conversation import Turn
from arena_cli.transcript.events import Event, MessageEvent
from arena_cli.transcript.exchange_events import (
    ExchangeEnd,
    ExchangeEvent,
    ExchangeFinished,
    ExchangeMode,
    ExchangeStarted,
    ExchangeTimedOut,
)
from arena_cli.util.clock import format_timestamp
from arena_cli.util.language import Texts, translate_message
from arena_cli.workspace.control import ExchangeRules
from arena_cli.workspace.models import Member


class Exchanges:
    """The exchanges of a session's open turn.

    `_works` are the first answers that agents work on. `_late` are, by reply, the exchanges whose
    agent has given up waiting, and has not been shown the result.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._queue = ExchangeQueue(self._is_replying)
        self._works = Works()
        self._late: dict[int, list[str]] = {}

    async def ask(self, requester: Member, asked: Ask, number: str, planned: Planned) -> Told:
        """Ask an agent directly, in the reply `planned`; return its answer if it is waited for.

        `number` is that of the call or block. Raises DiskRefused and CancelledError.
        """
        name = f"{planned.reply}.{number}"
        exchange = self._find(name)
        if exchange is None:
            by_key = (requester.id, asked.key)
            if asked.key and (
                earlier := find_newest(self._room, lambda e: (e.requester, e.key) == by_key)
            ):
                return self.tell(earlier)
            exchange = self._begin(requester, asked, name, planned.reply)
        if exchange.finished is None and not exchange.messages:
            exchange = self._put(requester, asked, exchange)
        if exchange.finished is not None or exchange.answers or exchange.is_done:
            return self.tell(exchange)
        if exchange.timed_out is not None or self._interrupts(exchange):
            self._begin_work(exchange)
            if exchange.timed_out is not None:
                self._note_late(exchange)
        elif exchange.started.mode == "wait":
            in_time = await self.wait(exchange, asked.wait_s, planned)
            return self.tell(self._get(name)) if in_time else self._give_up(exchange, asked.wait_s)
        return self.tell(exchange)

    async def take_blocks(
        self, member: Member, text: str, planned: Planned, prefix: str = ""
    ) -> tuple[str, list[str]]:
        """Ask what the blocks of a text ask; return the rest of it, and the results.

        `prefix` is the number of the work within which it was written.
        """
        rest, blocks = exchange_texts.read_blocks(text)
        told: list[str] = []
        for asked in blocks:
            number = self._number_block(asked, planned, prefix)
            outcome = await self.ask(member, asked, number, planned)
            if not outcome.is_open:
                told.append(exchange_state.describe(asked.agent, outcome, self._room))
        return rest, [*told, *self._take_late(planned.reply)] if told else []

    def find_own(self, requester: str, name: str) -> Exchange | None:
        """Return an exchange of the session that this agent began, None if there is none."""
        exchange = self._find(name) or find_newest(
            self._room, lambda started: (started.exchange, started.requester) == (name, requester)
        )
        return exchange if exchange and exchange.started.requester == requester else None

    async def fetch(self, exchange: Exchange, wait_s: float, planned: Planned) -> Told:
        """Return the answer in an exchange, for which its agent waits if it is not there yet."""
        name, target = exchange.started.exchange, exchange.started.target
        if exchange.is_settled or not self._has(exchange):
            return self.tell(exchange)
        if self._queue.closes_ring(exchange.started.requester, target):
            problem = f"{target} waits for you already: it would be a ring"
            return Told(name, translate_message(problem, self._room.language), is_refused=True)
        if await self.wait(exchange, wait_s, planned):
            return self.tell(self._get(name))
        return exchange_state.tell_late(exchange, wait_s, self._room)

    # The work that goes on while nobody waits.

    async def wait_until_free(self, agents: tuple[str, ...]) -> None:
        """Wait until none of these agents answers a question, so that it can reply."""
        await self._queue.wait_until_free(agents)

    async def let_in(self, agent: str) -> None:
        """Let an agent that works answer the urgent questions that wait."""
        await self._queue.let_in(agent)

    def describe_interruptions(self, agent: str, shown: Collection[str]) -> str:
        """Return what an agent was asked during its work; "" if nothing that is not `shown`."""
        return exchange_state.describe_interruptions(
            agent, [*self._list_events()], shown, self._room.language
        )

    async def pause(self) -> None:
        """Wait until the agents have answered that are being asked. Raises DiskRefused."""
        self._works.hold()
        await self._works.settle()

    async def end(self, problem: str = "") -> None:
        """End the work that continues; a `problem` ends its exchanges, too."""
        ended = await self._works.end_all()
        for exchange in map(self._get, ended if problem else ()):
            if exchange.finished is None:
                self._finish(exchange, "error", problem)

    def _begin_work(self, exchange: Exchange) -> AnswerWork:
        """Return the work on the first answer, which begins if it has not."""
        is_timed_out = exchange.timed_out is not None
        return self._works.begin(
            exchange.started.exchange, partial(self._step, exchange, 1), is_timed_out=is_timed_out
        )

    def _interrupts(self, exchange: Exchange) -> bool:
        """Return True if the question need not wait until the reply of the target has ended."""
        started = exchange.started
        member = self._room.scene.team.member(started.target)
        return (
            (started.priority, started.mode) == ("high", "notify")
            and member is not None
            and member.profile.acts
            and find_tool_way(member.profile) == "loop"
            and self._is_replying(started.target)
        )

    def _give_up(self, exchange: Exchange, wait_s: float) -> Told:
        """Write that the agent that asked no longer waits, and return the message for it."""
        started = exchange.started
        self._write(ExchangeTimedOut, exchange, wait_s=wait_s)
        if work := self._works.find(started.exchange):
            work.give_up()
        self._note_late(exchange)
        return exchange_state.tell_late(exchange, wait_s, self._room)

    def _note_late(self, exchange: Exchange) -> None:
        """Note that an agent is to be shown an answer for which it no longer waits."""
        names = self._late.setdefault(exchange.started.reply, [])
        if exchange.started.exchange not in names:
            names.append(exchange.started.exchange)

    def _take_late(self, reply: int) -> Iterator[str]:
        """Yield, once, what has come since an agent gave up waiting for it in this reply."""
        for name in [*self._late.get(reply, ())]:
            exchange = self._get(name)
            if exchange.is_settled:
                self._late[reply].remove(name)
                yield exchange_state.describe(
                    exchange.started.target, self.tell(exchange), self._room
                )

    # The turn's end.

    async def finish_open(self) -> None:
        """Carry on the exchanges of the turn until each has ended, or the chain is stopped."""
        await self._works.settle()
        while not self._is_stopping() and (waiting := list_open([*self._list_events()])):
            for exchange in waiting:
                if self._is_stopping():
                    return
                await self._carry_on(self._get(exchange.started.exchange))

    # Beginning.

    def _begin(self, requester: Member, asked: Ask, name: str, reply: int) -> Exchange:
        """Write that an exchange begins."""
        target = find_target(self._room, asked.agent)
        rules = self._rules
        most = rules.max_turns if asked.max_turns is None else asked.max_turns
        mode: ExchangeMode = "wait" if asked.wait_s > 0 else "notify"
        started = self._room.journal.write(
            ExchangeStarted,
            exchange=name,
            reply=reply,
            requester=requester.id,
            target=target,
            mode=mode,
            max_turns=min(most, rules.max_turns),
            key=asked.key,
            priority=asked.priority,
        )
        return Exchange(started)

    def _put(self, requester: Member, asked: Ask, exchange: Exchange) -> Exchange:
        """Write the question, or that it is refused."""
        name, target = exchange.started.exchange, exchange.started.target
        outer = self._find(name.rpartition(STEP)[0])
        if problem := find_problem(self._room, self._queue, requester, target, asked, outer, name):
            self._finish(exchange, "refused", problem)
        else:
            self._say(exchange, requester, 0, asked.message.strip())
        return self._get(name)

    def _number_block(self, asked: Ask, planned: Planned, prefix: str) -> str:
        """Return the number of a block: that of the same one of an attempt that was cut short."""
        while True:
            planned.blocks += 1
            number = f"{prefix}b{planned.blocks}"
            exchange = self._find(f"{planned.reply}.{number}")
            if exchange is None:
                return number
            same = [event.message.content for event in exchange.messages[:1]]
            has_target = exchange.started.target == find_target(self._room, asked.agent)
            if has_target and same in ([], [self._room.runtime.redactor.text(asked.message)]):
                return number

    # The course of an exchange.

    async def wait(self, exchange: Exchange, wait_s: float, planned: Planned) -> bool:
        """Wait for the first answer, outside of the time limit of the reply.

        Return False if the time is over before; the work on it continues.
        """
        started = exchange.started
        clock = asyncio.get_running_loop().time
        began = clock()
        work = self._begin_work(exchange)
        try:
            with self._queue.waiting(started.requester, started.target):
                is_over = await work.wait(wait_s)
        except asyncio.CancelledError:
            if by := self._room.control.cancelled.get(planned.agent):
                await self._cancel(started.exchange, f"cancelled by {by}")
            raise
        finally:
            planned.waited_s += clock() - began
        if is_over:
            await self._works.join(started.exchange)
        return is_over

    async def _cancel(self, name: str, problem: str) -> None:
        """End the work on an exchange, and the exchange itself."""
        await self._works.end(name)
        exchange = self._get(name)
        if exchange.finished is None:
            with suppress(DiskRefused):
                self._finish(exchange, "error", problem)

    async def _carry_on(self, exchange: Exchange) -> None:
        """Let the two answer each other until one is done, then tell the group."""
        name = exchange.started.exchange
        if not exchange.messages:
            self._finish(exchange, "error", "it was interrupted before the question")
            return
        while exchange.finished is None and not exchange.is_done:
            if self._is_stopping():
                return
            if len(exchange.answers) > exchange.started.max_turns:
                break
            if exchange.answers:
                await self._step(exchange, len(exchange.messages))
            else:
                self._begin_work(exchange)
                await self._works.join(name)
            exchange = self._get(name)
        if exchange.finished is not None:
            return
        announced = await self._announce(exchange)
        exchange = self._get(name)
        if exchange.finished is None:
            end: ExchangeEnd = "done" if exchange.is_done else "limit"
            self._finish(exchange, end, announced=announced)

    async def _step(self, exchange: Exchange, step: int) -> None:
        """Ask for the next message, and write it; a failure ends the exchange."""
        speaker = self._room.scene.team.member(exchange.find_speaker(step))
        if speaker is None:
            self._finish(exchange, "error", f"{exchange.find_speaker(step)} left the team")
            return
        note = exchange_texts.describe_step(
            exchange.started.requester,
            exchange.started.target,
            step,
            exchange.started.max_turns + 1,
            Texts(self._room.language),
        )
        try:
            end = await self._call(exchange, speaker, f"{exchange.call}{STEP}{step}", note)
        except AnswerHeld:
            return
        if end is None or end.mode != "goal":
            if end is None or not has_declined(end):
                reason = make_output(end).text if end else f"{speaker.id} was stopped by a person"
                self._finish(self._get(exchange.started.exchange), "error", reason)
            return
        text, is_done = _read_end(end)
        if text:
            self._say(exchange, speaker, step, text)
        elif not is_done:
            problem = f"{speaker.id} only asked others, and answered nothing"
            self._finish(self._get(exchange.started.exchange), "error", problem)

    async def _announce(self, exchange: Exchange) -> bool:
        """Let the agent that was asked tell the group; return True if it did."""
        if exchange.announcement is not None:
            return True
        room, name = self._room, exchange.started.exchange
        member = room.scene.team.member(exchange.started.target)
        is_inner = STEP in name
        if not self._rules.announce or not exchange.answers or is_inner or member is None:
            return False
        texts = [event.message.content for event in exchange.messages]
        note = exchange_texts.describe_announcement(texts, Texts(room.language))
        end = await self._call(exchange, member, f"{exchange.call}{SAY}", note)
        if end is None or end.mode != "goal":
            return False
        output = await self._review(AgentOutput(content=_read_end(end)[0]), exchange, member)
        if output is None or not output.content.strip():
            return False
        chain = room.scene.fold.open
        assert chain is not None
        calls = resolve_calls(
            output, member, room.scene.team, room.roster, opener=chain.opening.message.author_id
        )
        mentions = [name for name in calls.mentions if name not in calls.refused]
        self._write_message(exchange, member, 0, output.content.strip(), mentions=mentions)
        return True

    async def _review(
        self, output: AgentOutput, exchange: Exchange, member: Member
    ) -> AgentOutput | None:
        """Return an announcement as the team's rules let it pass; None if they do not."""
        control = self._room.control.current
        planned = plan_step(self._room, exchange, member, "")
        review = control.begin_review(planned) if control else None
        if review is None or not output.content:
            return output
        heard = Heard(self._room.runtime.redactor, lambda _: None)
        passed: AgentOutput | None = None
        with suppress(AgentError):
            passed = (await review.check(Answer(output, declined=False), heard)).output
        review.settle(has_reply=passed is not None)
        return passed

    # The calls.

    async def _call(
        self, exchange: Exchange, member: Member, within: str, note: str
    ) -> AgentEnded | None:
        """Call one of the two when it is free; None if a person stopped it."""
        started = exchange.started
        with suppress(StoppedByPerson):
            async with self._queue.reserved(member.id, is_urgent=started.priority == "high"):
                work = self._works.find(started.exchange)
                is_awaited = work is None or work.waiting or not self._is_stopping()
                if work is not None and (work.is_held or not is_awaited):
                    raise AnswerHeld
                return await self._call_until_done(exchange, member, within, note, work)
        return None

    async def _call_until_done(
        self,
        exchange: Exchange,
        member: Member,
        within: str,
        note: str,
        work: AnswerWork | None,
    ) -> AgentEnded:
        """Call an agent; one that asks somebody else by a block is called again with the answer."""
        told: list[ShownMessage] = []
        count = 1
        while True:
            place = within if count == 1 else f"{within}.r{count}"
            planned = plan_step(self._room, exchange, member, note, told)
            end = exchange.ends.get(place)
            if end is None or end.mode == "aborted":
                running = self._run(member, place, planned, work)
                end = await run_listed(member.id, running, self._room)
                if work is not None:
                    await work.keep_late(partial(self._is_replying, exchange.started.requester))
            text = make_output(end).text if end.mode == "goal" else ""
            if exchange_texts.MARK not in text or count == call.MOST_ASKED:
                return end
            rest, new = await self.take_blocks(member, text, planned, f"{place}.")
            if not new:
                return end
            now = format_timestamp(self._room.clock.now())
            told += exchange_texts.make_answers(new, rest, now, self._room.language)
            count += 1

    async def _run(
        self, member: Member, within: str, planned: Planned, work: AnswerWork | None
    ) -> AgentEnded:
        """Call an agent with its tools, within the bounds of the lane and of the budget."""
        room = self._room
        heard = Heard(room.runtime.redactor, lambda _: None)
        if work is not None:
            work.hear(heard)
        with ExitStack() as held:
            # Those that are asked within an exchange must not wait for its place.
            if room.draw_nested_place is not None and within.count(STEP) < DEEPEST:
                place = held.enter_context(room.draw_nested_place(member.id))
                await call.wait_for_place(place, planned, room)
            loop = await make_loop(room, member, planned, heard, within)
            return await loop.run_to_end(planned.input)

    def _is_replying(self, agent: str) -> bool:
        reply = self._turn.replies.get(agent)
        return reply is not None and reply.is_running

    # Events.

    def _say(self, exchange: Exchange, author: Member, step: int, text: str) -> None:
        self._write_message(
            exchange,
            author,
            step,
            text,
            shown_to=[exchange.started.requester, exchange.started.target],
        )

    def _write_message(
        self, exchange: Exchange, author: Member, step: int, text: str, **fields: Any
    ) -> None:
        journal = self._room.journal
        stamp = journal.stamp()
        message = Message(
            id=stamp.message_id,
            turn_id=f"t{self._turn.started.turn}",
            author_id=author.id,
            author_name=author.name,
            author_type="agent",
            content=self._room.runtime.redactor.text(text),
            timestamp=stamp.ts,
            **fields,
        )
        started = exchange.started
        journal.write(
            MessageEvent,
            stamp=stamp,
            message=message,
            exchange=started.exchange,
            reply=started.reply,
            step=step,
        )

    def _finish(
        self, exchange: Exchange, end: ExchangeEnd, reason: str = "", *, announced: bool = False
    ) -> None:
        turns = len(exchange.answers)
        self._write(
            ExchangeFinished, exchange, end=end, turns=turns, announced=announced, reason=reason
        )

    def _write(self, shape: type[ExchangeEvent], exchange: Exchange, **fields: Any) -> None:
        started = exchange.started
        self._room.journal.write(
            shape,
            exchange=started.exchange,
            reply=started.reply,
            requester=started.requester,
            target=started.target,
            **fields,
        )

    def tell(self, exchange: Exchange) -> Told:
        """Return the present result for the agent that asked."""
        return exchange_state.tell(exchange, self._room, is_of_turn=self._has(exchange))

    def _has(self, exchange: Exchange) -> bool:
        """Return True if an exchange is one of the open turn."""
        return self._find(exchange.started.exchange) is not None

    @property
    def _rules(self) -> ExchangeRules:
        rules: ExchangeRules | None = self._room.scene.team.config.exchange
        return rules or ExchangeRules()

    @property
    def _turn(self) -> Turn:
        chain = self._room.scene.fold.open
        assert chain is not None
        return chain.turns[-1]

    def _is_stopping(self) -> bool:
        control = self._room.control.current
        return control is not None and control.is_stopping

    def _get(self, name: str) -> Exchange:
        exchange = self._find(name)
        assert exchange is not None
        return exchange

    def _find(self, name: str) -> Exchange | None:
        return read_exchange(name, self._list_events())

    def _list_events(self) -> Iterator[Event]:
        """Yield the events of the open turn."""
        return list_turn_events(self._room.scene.fold.open)


def _read_end(end: AgentEnded) -> tuple[str, bool]:
    """Return what an agent says by the end of a call, and True if that is its last word."""
    text, is_done = exchange_texts.cut_done(make_output(end).text)
    return exchange_texts.read_blocks(text)[0].strip(), is_done
