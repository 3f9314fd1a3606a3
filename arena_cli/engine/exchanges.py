"""Carry out exchanges: direct conversations of two agents, next to the turns.

A session in which no agent asks another one never imports this module (`ToolsHolder`). The state
of an exchange is in the events of its turn: after a crash it continues from there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from arena_cli.adapters.base import find_tool_way
from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import hashing, tokens
from arena_cli.engine import call, exchange_texts, plan
from arena_cli.engine.answers import resolve_calls
from arena_cli.engine.exchange_state import (
    SAY,
    STEP,
    Exchange,
    Told,
    find_by_key,
    has_declined,
    list_open,
    list_turn_events,
    read_exchange,
    show_to,
)
from arena_cli.engine.exchange_texts import Ask
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.served_asides import open_aside
from arena_cli.engine.side_calls import ASIDE
from arena_cli.engine.subagents import SubLoop, make_output
from arena_cli.engine.toolbox import Toolbox
from arena_cli.errors import AgentError, AgentUnavailable, DiskRefused
from arena_cli.protocol import AgentOutput, Message, ShownMessage
from arena_cli.transcript.acting_events import AgentEnded
from arena_cli.transcript.conversation import Turn
from arena_cli.transcript.events import Event, MessageEvent
from arena_cli.transcript.exchange_events import (
    ExchangeEnd,
    ExchangeFinished,
    ExchangeMode,
    ExchangeStarted,
)
from arena_cli.util.clock import format_timestamp
from arena_cli.workspace.exchange import ExchangeRules
from arena_cli.workspace.mentions import resolve_mentions
from arena_cli.workspace.models import Member, normalize_id

DEEPEST = 2
"""An agent that is asked may ask another one, which may ask no agent in turn."""

_POLL_S = 0.02


class _Stopped(Exception):
    """A person ended the call of an agent."""


class Exchanges:
    """The exchanges of a session's open turn.

    `_waits` are the pairs of agents of which one waits for the other; `_queues` those that wait for
    an agent, by its id, in order of arrival.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._waits: list[tuple[str, str]] = []
        self._queues: dict[str, deque[object]] = {}

    async def ask(self, requester: Member, asked: Ask, number: str, planned: Planned) -> Told:
        """Ask an agent directly, in the reply `planned`; return its answer if it is waited for.

        `number` is that of the call or block. Raises DiskRefused and CancelledError.
        """
        name = f"{planned.reply}.{number}"
        exchange = self._find(name)
        if exchange is None:
            if asked.key and (earlier := self._find_by_key(requester.id, asked.key)):
                return earlier
            exchange = self._begin(requester, asked, name, planned.reply)
        if exchange.finished is None and not exchange.messages:
            exchange = self._put(requester, asked, exchange)
        if exchange.finished is not None or exchange.answers or exchange.is_done:
            return self._tell(exchange)
        if exchange.started.mode == "wait":
            await self._wait(exchange, asked.wait_s, planned)
            exchange = self._get(name)
        return self._tell(exchange)

    async def take_blocks(
        self, member: Member, text: str, planned: Planned, prefix: str = ""
    ) -> tuple[str, list[str]]:
        """Ask what the blocks of a text ask; return the rest of it, and the results.

        `prefix` is the number of the work within which it was written.
        """
        rest, blocks = exchange_texts.read_blocks(text)
        told: list[str] = []
        for asked, problem in blocks:
            if asked is None:
                told.append(exchange_texts.describe_wrong(problem, self._room.language))
                continue
            number = self._number_block(asked, planned, prefix)
            outcome = await self.ask(member, asked, number, planned)
            if not outcome.is_open:
                told.append(
                    exchange_texts.describe_outcome(
                        asked.agent, outcome.exchange, outcome.text, self._room.language
                    )
                )
        return rest, told

    async def finish_open(self) -> None:
        """Carry on the exchanges of the turn until each has ended, or the chain is stopped."""
        while not self._is_stopping() and (waiting := list_open([*self._list_events()])):
            for exchange in waiting:
                if self._is_stopping():
                    return
                await self._carry_on(exchange)

    # Beginning.

    def _begin(self, requester: Member, asked: Ask, name: str, reply: int) -> Exchange:
        """Write that an exchange begins."""
        target = self._find_target(asked)
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
        )
        return Exchange(started)

    def _put(self, requester: Member, asked: Ask, exchange: Exchange) -> Exchange:
        """Write the question, or that it is refused."""
        name, target = exchange.started.exchange, exchange.started.target
        if problem := self._find_problem(requester, target, asked, name):
            self._finish(exchange, "refused", problem)
        else:
            self._say(exchange, requester, 0, asked.message.strip())
        return self._get(name)

    def _find_target(self, asked: Ask) -> str:
        """Return the id of the agent that is asked, or the name if no agent has it."""
        room = self._room
        chain = room.scene.fold.open
        opener = chain.opening.message.author_id if chain else ""
        found = resolve_mentions([asked.agent], room.roster, author="", opener=opener).ids
        return found[0] if len(found) == 1 else asked.agent.strip().lstrip("@")[:80]

    def _find_problem(self, requester: Member, target: str, asked: Ask, name: str) -> str:
        """Return why no agent can be asked, "" if the target can be."""
        team = self._room.scene.team
        if not asked.message.strip():
            return "the question is empty"
        if target == requester.id:
            return "an agent cannot ask itself"
        if team.member(target) is not None:
            return self._find_refusal(requester, target, name)
        chain = self._room.scene.fold.open
        people = {human.id for human in team.humans}
        if chain is not None:
            people.add(chain.opening.message.author_id)
        others = ", ".join(member.id for member in team.members if member.id != requester.id)
        what = "is a person: mention it in your reply"
        if target not in people:
            what = "is not in your team"
        return f"{target} {what}; you may ask: {others or 'nobody'}"

    def _find_refusal(self, requester: Member, target: str, name: str) -> str:
        """Return why a member may not be asked now, "" if it may."""
        profile = requester.profile
        allowed = profile.may_mention if profile.may_ask is None else profile.may_ask
        control = self._room.control.find(self._room)
        unavailable = control.unavailable() if control else {}
        if allowed is not None and target not in map(normalize_id, allowed):
            return f"you may not ask {target} (may_ask)"
        if name.count(STEP) >= DEEPEST:
            return "you are asked by an agent that is asked itself: answer without asking on"
        if self._closes_ring(requester.id, target):
            return f"{target} waits for you already: it would be a ring"
        return f"{target} is {unavailable[target]}" if target in unavailable else ""

    def _closes_ring(self, requester: str, target: str) -> bool:
        """Return True if the target waits, over others or not, for the one that asks."""
        reached, new = set[str](), {target}
        while new:
            reached |= new
            new = {to for who, to in self._waits if who in new} - reached
        return requester in reached

    def _number_block(self, asked: Ask, planned: Planned, prefix: str) -> str:
        """Return the number of a block: that of the same one of an attempt that was cut short."""
        while True:
            planned.blocks += 1
            number = f"{prefix}b{planned.blocks}"
            exchange = self._find(f"{planned.reply}.{number}")
            if exchange is None:
                return number
            same = [event.message.content for event in exchange.messages[:1]]
            has_target = exchange.started.target == self._find_target(asked)
            if has_target and same in ([], [self._room.runtime.redactor.text(asked.message)]):
                return number

    def _find_by_key(self, requester: str, key: str) -> Told | None:
        """Return the result of an earlier question of the agent with this key, in this session."""
        path = getattr(self._room.journal.log, "path", None)
        if path is None or not path.exists():
            return None
        exchange = find_by_key(path, requester, key, self._room.scene.fold.revisions)
        return self._tell(exchange) if exchange else None

    # The course of an exchange.

    async def _wait(self, exchange: Exchange, wait_s: float, planned: Planned) -> None:
        """Wait for the first answer, outside of the time limit of the reply."""
        started = exchange.started
        edge = (started.requester, started.target)
        clock = asyncio.get_running_loop().time
        began = clock()
        self._waits.append(edge)
        try:
            async with asyncio.timeout(wait_s):
                await self._step(exchange, 1)
        except TimeoutError:
            self._finish(self._get(started.exchange), "timeout", f"no answer in {wait_s:g} s")
        except asyncio.CancelledError:
            by = self._room.control.cancelled.get(planned.agent)
            if by:
                with suppress(DiskRefused):
                    self._finish(self._get(started.exchange), "error", f"cancelled by {by}")
            raise
        finally:
            self._waits.remove(edge)
            planned.waited_s += clock() - began

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
            await self._step(exchange, len(exchange.messages))
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
            self._room.language,
        )
        end = await self._call(exchange, speaker, f"{exchange.call}{STEP}{step}", note)
        if end is None or end.mode != "goal":
            if end is None or not has_declined(end):
                reason = make_output(end).text if end else f"{speaker.id} was stopped by a person"
                self._finish(self._get(exchange.started.exchange), "error", reason)
            return
        text, _ = exchange_texts.cut_done(make_output(end).text)
        text, _ = exchange_texts.read_blocks(text)
        if text.strip():
            self._say(exchange, speaker, step, text.strip())

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
        note = exchange_texts.describe_announcement(texts, room.language)
        end = await self._call(exchange, member, f"{exchange.call}{SAY}", note)
        if end is None or end.mode != "goal":
            return False
        text, _ = exchange_texts.cut_done(make_output(end).text)
        text, _ = exchange_texts.read_blocks(text)
        output = await self._review(AgentOutput(content=text.strip()), exchange, member)
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
        planned = self._plan(exchange, member, "")
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
        """Call one of the two when it is free; None if a person stopped it.

        An agent that asks somebody else by a block is called again with the answer.
        """
        room = self._room
        with suppress(_Stopped):
            async with self._reserved(member.id):
                told: list[ShownMessage] = []
                for count in range(1, call.MOST_ASKED + 1):
                    place = within if count == 1 else f"{within}.r{count}"
                    end = exchange.ends.get(place)
                    if end is None or end.mode == "aborted":
                        planned = self._plan(exchange, member, note, told)
                        running = self._run(member, place, planned)
                        end = await self._guarded(member.id, running)
                    text = make_output(end).text if end.mode == "goal" else ""
                    if exchange_texts.MARK not in text or count == call.MOST_ASKED:
                        return self._close(end, within)
                    planned = self._plan(exchange, member, note, told)
                    rest, new = await self.take_blocks(member, text, planned, f"{place}.")
                    if not new:
                        return self._close(end, within)
                    told += exchange_texts.make_answers(new, rest, self._now(), room.language)
        return None

    def _close(self, end: AgentEnded, within: str) -> AgentEnded:
        return end.model_copy(update={"within": within})

    async def _run(self, member: Member, within: str, planned: Planned) -> AgentEnded:
        """Call an agent with its tools, within the bounds of the lane and of the budget."""
        room = self._room
        heard = Heard(room.runtime.redactor, lambda _: None)
        agent_input = planned.input
        with ExitStack() as held:
            # Those that are asked within an exchange must not wait for its place.
            if room.draw_nested_place is not None and within.count(STEP) < DEEPEST:
                place = held.enter_context(room.draw_nested_place(member.id))
                await call.wait_for_place(place, planned, room)
            loop = await self._make_loop(member, planned, heard, within)
            return await loop.run_to_end(agent_input)

    async def _make_loop(
        self, member: Member, planned: Planned, heard: Heard, within: str
    ) -> SubLoop:
        room = self._room
        toolbox = Toolbox(())
        way = find_tool_way(member.profile) if member.profile.acts else None
        if way == "mcp":
            return await open_aside(member, room, planned, heard, within=within)
        if way == "loop":
            with suppress(AgentUnavailable):  # it can still answer
                toolbox = await room.tools.get(room).open(member)
        return SubLoop(member, room, planned, heard, toolbox, within=within)

    async def _guarded(self, agent: str, work: Coroutine[Any, Any, AgentEnded]) -> AgentEnded:
        """Await a call that a person may end as a reply of that agent. Raises _Stopped."""
        control = self._room.control
        task = asyncio.ensure_future(work)
        is_listed = agent not in control.running
        if is_listed:
            control.running[agent] = task
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if (
                is_listed
                and control.cancelled.get(agent)
                and not (current and current.cancelling())
            ):
                raise _Stopped from None
            raise
        finally:
            if is_listed:
                del control.running[agent]
                control.cancelled.pop(agent, None)

    @asynccontextmanager
    async def _reserved(self, agent: str) -> AsyncIterator[None]:
        """Wait until an agent is free: first come, first served."""
        queue = self._queues.setdefault(agent, deque())
        ticket = object()
        queue.append(ticket)
        try:
            while True:
                if queue[0] is ticket and not self._is_replying(agent):
                    break
                await asyncio.sleep(_POLL_S)
            yield
        finally:
            queue.remove(ticket)

    def _is_replying(self, agent: str) -> bool:
        reply = self._turn.replies.get(agent)
        return reply is not None and reply.is_running

    def _plan(
        self, exchange: Exchange, member: Member, note: str, told: Sequence[ShownMessage] = ()
    ) -> Planned:
        """Plan the call of one of the two: the conversation, their messages, what is asked."""
        room, started = self._room, exchange.started
        chain = room.scene.fold.open
        assert chain is not None
        planned = plan.plan(member.id, "A", chain, room.scene)
        other = started.requester if member.id == started.target else started.target
        shown = {message.id for message in planned.input.messages}
        private = [
            show_to(event.message, member.id)
            for event in exchange.messages
            if event.message.id not in shown
        ]
        notes = [exchange_texts.make_note(note, self._now()), *told] if note else []
        heard = [
            event.message.id for event in exchange.messages if event.message.author_id == other
        ]
        changed = planned.input.model_copy(
            update={
                "turn_id": ASIDE,
                "messages": [*planned.input.messages, *private, *notes],
                "trigger": [*heard[-1:], *(message.id for message in notes)],
                "invocation": "must_reply",
                "mentioned_by": [other],
                "own_session": None,
                "deadline_s": plan.limit_s(member, room.scene.team),
            }
        )
        agent_input = changed.model_copy(update={"input_hash": hashing.input_digest(changed)})
        added = sum(tokens.estimate(message.content) for message in (*private, *notes))
        return replace(
            planned,
            reply=started.reply,
            input=agent_input,
            input_tokens=planned.input_tokens + added,
        )

    def _now(self) -> str:
        return format_timestamp(self._room.clock.now())

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
        started = exchange.started
        self._room.journal.write(
            ExchangeFinished,
            exchange=started.exchange,
            reply=started.reply,
            requester=started.requester,
            target=started.target,
            end=end,
            turns=len(exchange.answers),
            announced=announced,
            reason=reason,
        )

    def _tell(self, exchange: Exchange) -> Told:
        """Return the present result for the agent that asked."""
        started, finished = exchange.started, exchange.finished
        name, language = started.exchange, self._room.language
        if exchange.answers:
            return Told(name, exchange.answers[0].message.content)
        if finished is not None and finished.end in ("refused", "error", "timeout"):
            text = exchange_texts.describe_failure(
                finished.end, started.target, finished.reason, language
            )
            return Told(name, text, is_refused=True)
        if exchange.is_done or finished is not None:
            return Told(name, exchange_texts.describe_nothing(started.target, language))
        return Told(
            name, exchange_texts.describe_accepted(name, started.target, language), is_open=True
        )

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
