"""Call an agent for an answer that is no reply: for memory, a supervisor, a planner, a sorter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import tokens
from arena_cli.engine import call, plan, rules
from arena_cli.engine.plan import Room
from arena_cli.errors import AgentError
from arena_cli.notes.agent_extraction import read_values
from arena_cli.protocol import AgentInput, ShownMessage, Usage
from arena_cli.util.clock import format_timestamp
from arena_cli.util.text import cut_text
from arena_cli.workspace.models import Member

T = TypeVar("T")

ASIDE = "aside"
"""The `turn_id` of a call that is no reply."""

_KEPT = 2_000  # characters of an answer that could not be used


class AgentAnswer(NamedTuple):
    """The answer of an agent: its text, or the reason there is none (`error`), and its usage.

    `metadata` are its adapter's notes on the call, and its kind (`adapter`).
    """

    text: str
    error: str
    usage: Usage | None
    metadata: dict[str, Any]
    attempts: int = 1

    def describe(self, problem: str) -> dict[str, Any]:
        """Return the metadata; if its text has a `problem`, with the text."""
        if not problem or self.error:
            return self.metadata
        return {**self.metadata, "answer": cut_text(self.text, _KEPT)}


def make_input(
    member: Member, text: str, room: Room, *, author: Member | None = None
) -> AgentInput:
    """Return the input of a call with one message, of arena or of another agent."""
    question = ShownMessage(
        id="m0",
        author_id=author.id if author else "arena",
        author_name=author.name if author else "arena",
        author_type="agent" if author else "system",
        content=text,
        timestamp=format_timestamp(room.clock.now()),
        role="user",
    )
    return AgentInput(
        session_id=room.scene.session_id,
        turn_id=ASIDE,
        turn=1,
        call=room.scene.fold.calls.get(member.id, 0) + 1,
        trigger=[question.id],
        agent_id=member.id,
        role_prompt=member.role_prompt,
        invocation="must_reply",
        mentioned_by=[author.id] if author else [],
        messages=[question],
        max_output_tokens=member.profile.context.max_output_tokens,
        deadline_s=plan.limit_s(member, room.scene.team),
    )


def read_object(text: str, keys: Iterable[str]) -> dict[str, Any] | None:
    """Return the last JSON object in a text that has one of these keys; None if there is none.

    It may be in a fence, or between words.
    """
    values = [value for value in read_values(text) if isinstance(value, dict)]
    fitting = [value for value in values if not value.keys().isdisjoint(keys)]
    return fitting[-1] if fitting else None


def find_wait(
    error: AgentError, failed: int, member: Member, room: Room, seconds_left: float
) -> float | None:
    """Return the seconds to wait before a call is tried again; None if it is not."""
    if rules.choose_strategy(member, room.scene.team, error.kind) != "retry":
        return None
    wait = call.compute_wait(error, failed, member, room)
    return wait if wait is not None and wait < seconds_left else None


async def consult(
    member: Member, agent_input: AgentInput, input_tokens: int, room: Room
) -> AgentAnswer:
    """Call an agent for an answer that is no reply, with the time limit and retries of a reply.

    `input_tokens` is the estimate for its input. It raises only CancelledError and DiskRefused.
    """
    heard = Heard(room.runtime.redactor, lambda _: None)
    ends_at = room.clock.monotonic() + plan.limit_s(member, room.scene.team)
    failed = 0
    while True:
        seconds_left = ends_at - room.clock.monotonic()
        limit = plan.attempt_limit_s(seconds_left, room.scene.team)
        attempt_input = call.count_failed(agent_input, failed, limit)
        try:
            answer = await call.invoke(member, attempt_input, room, heard, limit)
        except AgentError as error:
            left = ends_at - room.clock.monotonic()
            wait = find_wait(error, failed, member, room, left)
            failed += 1
            if wait is None:
                return _fail(member, str(error), heard, failed, error.metadata)
            heard.forget()
            await room.clock.sleep(wait)
            continue
        return _succeed(member, answer, heard, input_tokens, failed + 1)


async def ask(member: Member, text: str, room: Room) -> AgentAnswer:
    """Ask an agent once, within its `timeout_s`, else the team's `turn_timeout_s`.

    It raises only CancelledError and DiskRefused. An agent that the team's budget does not allow
    to be asked has no answer.
    """
    budget = room.control.budget
    if budget is None:
        return await _ask(member, text, room)
    if excess := budget.admit_question(member, text):
        kind = {"adapter": str(member.profile.adapter["type"])}
        problem = f"{member.id} is not asked, the budget is used up: {excess}"
        return AgentAnswer("", problem, Usage(cost_usd=0.0), kind)
    usage: Usage | None = None
    try:
        answer = await _ask(member, text, room)
        usage = answer.usage
        return answer
    finally:
        budget.settle_question(member, usage)


async def _ask(member: Member, text: str, room: Room) -> AgentAnswer:
    limit = plan.limit_s(member, room.scene.team)
    heard = Heard(room.runtime.redactor, lambda _: None)
    try:
        async with asyncio.timeout(limit):
            answer = await room.runtime.invoke(member, make_input(member, text, room), heard)
        answer = call.apply_silence(answer, member, room, heard)
    except TimeoutError:
        return _fail(member, f"{member.id}: no answer within {limit:.10g} s", heard, 1, {})
    except AgentError as error:
        return _fail(member, str(error), heard, 1, {})
    return _succeed(member, answer, heard, tokens.estimate(text), 1)


def _fail(
    member: Member, problem: str, heard: Heard, attempts: int, notes: dict[str, Any]
) -> AgentAnswer:
    used = heard.list_usage()
    usage = Usage.total(used) if used else None
    kind = {"adapter": str(member.profile.adapter["type"])}
    metadata = {**kind, **heard.metadata(failed=True), **notes}
    return AgentAnswer("", problem, usage, metadata, attempts)


def _succeed(
    member: Member, answer: Answer, heard: Heard, input_tokens: int, attempts: int
) -> AgentAnswer:
    """Return the answer of an agent, which may have declined; its usage is estimated if unknown."""
    content = answer.output.content
    usage = answer.output.usage or Usage(
        input_tokens=input_tokens, output_tokens=tokens.estimate(content), estimated=True
    )
    usage = Usage.total([*heard.earlier_usage, usage]) if heard.earlier_usage else usage
    kind = {"adapter": str(member.profile.adapter["type"])}
    metadata = {**kind, **heard.metadata(failed=False)}
    problem = f"{member.id} declined" if answer.declined else ""
    return AgentAnswer("" if problem else content, problem, usage, metadata, attempts)


class StoppedByPerson(Exception):
    """A person ended the call of an agent; the text is who did."""


async def run_listed(agent: str, work: Coroutine[Any, Any, T], room: Room) -> T:
    """Await a call that a person may end as a reply of that agent. Raises StoppedByPerson."""
    control = room.control
    task = asyncio.ensure_future(work)
    is_listed = agent not in control.running
    if is_listed:
        control.running[agent] = task
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        by = control.cancelled.get(agent)
        if is_listed and by and not (current and current.cancelling()):
            raise StoppedByPerson(by) from None
        raise
    finally:
        if is_listed:
            del control.running[agent]
            control.cancelled.pop(agent, None)


class Advisor:
    """Calls an agent that decides what a chain does; people and the budget may stop the call."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._excess = ""

    def take_pause(self) -> rules.Pause | None:
        """Return the pause of the chain if the budget stopped the last call, once."""
        excess, self._excess = self._excess, ""
        return rules.Pause("budget", excess) if excess else None

    async def consult(
        self,
        member: Member,
        input_tokens: int,
        ask: Callable[[], Coroutine[Any, Any, AgentAnswer]],
        is_stopped: Callable[[], bool],
        *,
        is_counted: bool = False,
    ) -> AgentAnswer | None:
        """Call an agent by `ask`, within the budget; return None if it is not called for now.

        A person who cancels it ends it without an answer, or for now if the chain `is_stopped`.
        `is_counted`: the call counts in the budget by itself.
        """
        budget = self._room.control.budget
        if budget and (excess := budget.admit_call(member, input_tokens)):
            if excess.is_alone:
                problem = f"the call alone exceeds the budget: {excess}"
                return AgentAnswer("", problem, Usage(cost_usd=0.0), {}, 0)
            self._excess = f"{excess}, with the next call of {member.id}"
            return None
        answer = None
        try:
            answer = await run_listed(member.id, ask(), self._room)
        except StoppedByPerson as by:
            if not is_stopped():
                answer = AgentAnswer("", f"{by} cancelled its call", None, {})
        finally:
            if budget:
                usage = answer.usage if answer and not is_counted else None
                budget.settle_question(member, usage)
        return answer
