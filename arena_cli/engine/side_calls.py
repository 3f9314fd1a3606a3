"""Call an agent for an answer that is no reply: for the team's memory, or for a supervisor."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from arena_cli.adapters.runtime import Heard
from arena_cli.context import tokens
from arena_cli.engine import call, plan, rules
from arena_cli.engine.plan import Room
from arena_cli.errors import (
    AgentError,
)
from arena_cli.protocol import (
    AgentInput,
    ShownMessage,
    Usage,
)
from arena_cli.util.clock import format_timestamp
from arena_cli.workspace.models import Member

ASIDE = "aside"
"""The `turn_id` of a call that is no reply.""" ""


class AgentAnswer(NamedTuple):
    """The answer of an agent: its text, or the reason there is none (`error`), and its usage.

    `metadata` are its adapter's notes on the call, and its kind (`adapter`).
    """

    text: str
    error: str
    usage: Usage | None
    metadata: dict[str, Any]
    attempts: int = 1


async def consult(
    member: Member, agent_input: AgentInput, input_tokens: int, room: Room
) -> AgentAnswer:
    """Call an agent for an answer that is no reply, with the time limit and retries of a reply.

    `input_tokens` is the estimate for its input. It raises only CancelledError and DiskRefused.
    """
    heard = Heard(room.runtime.redactor, lambda _: None)
    kind = {"adapter": str(member.profile.adapter["type"])}
    ends_at = room.clock.monotonic() + plan.limit_s(member, room.scene.team)
    failed = 0
    while True:
        seconds_left = ends_at - room.clock.monotonic()
        limit = plan.attempt_limit_s(seconds_left, room.scene.team)
        attempt_input = call.count_failed(agent_input, failed, limit)
        try:
            answer = await call.invoke(member, attempt_input, room, heard, limit)
        except AgentError as error:
            wait = None
            if rules.choose_strategy(member, room.scene.team, error.kind) == "retry":
                wait = call.compute_wait(error, failed, member, room)
            failed += 1
            if wait is None or wait >= ends_at - room.clock.monotonic():
                used = [*heard.earlier_usage, *([heard.usage] if heard.usage else [])]
                usage = Usage.total(used) if used else None
                notes = {**kind, **heard.metadata(failed=True), **error.metadata}
                return AgentAnswer("", str(error), usage, notes, failed)
            heard.forget()
            await room.clock.sleep(wait)
            continue
        content = answer.output.content
        usage = answer.output.usage or Usage(
            input_tokens=input_tokens, output_tokens=tokens.estimate(content), estimated=True
        )
        usage = Usage.total([*heard.earlier_usage, usage]) if heard.earlier_usage else usage
        problem = f"{member.id} declined" if answer.declined else ""
        notes = {**kind, **heard.metadata(failed=False)}
        return AgentAnswer("" if problem else content, problem, usage, notes, failed + 1)


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
    question = ShownMessage(
        id="m0",
        author_id="arena",
        author_name="arena",
        author_type="system",
        content=text,
        timestamp=format_timestamp(room.clock.now()),
        role="user",
    )
    limit = plan.limit_s(member, room.scene.team)
    agent_input = AgentInput(
        session_id=room.scene.session_id,
        turn_id=ASIDE,
        turn=1,
        call=room.scene.fold.calls.get(member.id, 0) + 1,
        trigger=[question.id],
        agent_id=member.id,
        role_prompt=member.role_prompt,
        invocation="must_reply",
        messages=[question],
        max_output_tokens=member.profile.context.max_output_tokens,
        deadline_s=limit,
    )
    kind = {"adapter": str(member.profile.adapter["type"])}
    heard = Heard(room.runtime.redactor, lambda _: None)
    try:
        async with asyncio.timeout(limit):
            answer = await room.runtime.invoke(member, agent_input, heard)
        answer = call.apply_silence(answer, member, room, heard)
    except TimeoutError:
        problem = f"{member.id}: no answer within {limit:.10g} s"
        return AgentAnswer("", problem, heard.usage, {**kind, **heard.metadata(failed=True)})
    except AgentError as error:
        return AgentAnswer("", str(error), heard.usage, {**kind, **heard.metadata(failed=True)})
    content = answer.output.content
    usage = answer.output.usage or Usage(
        input_tokens=tokens.estimate(text), output_tokens=tokens.estimate(content), estimated=True
    )
    notes = {**kind, **heard.metadata(failed=False)}
    if answer.declined:
        return AgentAnswer("", f"{member.id} declined", usage, notes)
    return AgentAnswer(content, "", usage, notes)
