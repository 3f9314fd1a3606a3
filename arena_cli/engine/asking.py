"""An agent that works for the team's memory is asked alone: no reply, nothing that others see."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from arena_cli.adapters.runtime import Heard
from arena_cli.context import tokens
from arena_cli.engine import planning
from arena_cli.engine.scene import Room
from arena_cli.ground.clock import timestamp
from arena_cli.ground.errors import AgentError
from arena_cli.ground.protocol import AgentInput, ShownMessage, Usage
from arena_cli.team.model import Member

ASIDE = "aside"
"""The `turn_id` of such a call, by which it can be told from a reply's."""


class Asked(NamedTuple):
    """What an agent answered: its text, or why there is none (`error`), what it used.

    `metadata` are its adapter's notes on the call, and its kind (`adapter`).
    """

    text: str
    error: str
    usage: Usage | None
    metadata: dict[str, Any]


async def ask(member: Member, text: str, room: Room) -> Asked:
    """Ask an agent once, within its `timeout_s`, else the team's `turn_timeout_s`.

    Only what cancels it leaves it, and DiskRefused.
    """
    question = ShownMessage(
        id="m0",
        author_id="arena",
        author_name="arena",
        author_type="system",
        content=text,
        timestamp=timestamp(room.clock.now()),
        role="user",
    )
    limit = planning.limit_s(member, room.scene.team)
    shown = AgentInput(
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
            answer = await room.runtime.invoke(member, shown, heard)
    except TimeoutError:
        why = f"{member.id}: no answer within {limit:.10g} s"
        return Asked("", why, heard.usage, {**kind, **heard.metadata(failed=True)})
    except AgentError as error:
        return Asked("", str(error), heard.usage, {**kind, **heard.metadata(failed=True)})
    said = answer.output.content
    usage = answer.output.usage or Usage(
        input_tokens=tokens.estimate(text), output_tokens=tokens.estimate(said), estimated=True
    )
    notes = {**kind, **heard.metadata(failed=False)}
    if answer.declined:
        return Asked("", f"{member.id} declined", usage, notes)
    return Asked(said, "", usage, notes)
