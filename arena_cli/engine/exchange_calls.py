"""The calls of the two agents of an exchange: what they are shown, and with which tools."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from arena_cli.adapters.base import find_tool_way
from arena_cli.adapters.runtime import Heard
from arena_cli.context import hashing, tokens
from arena_cli.engine import exchange_texts, plan
from arena_cli.engine.exchange_state import Exchange, show_to
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.served_asides import open_aside
from arena_cli.engine.side_calls import ASIDE
from arena_cli.engine.subagents import SubLoop
from arena_cli.engine.toolbox import Toolbox
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import ShownMessage
from arena_cli.util.clock import format_timestamp
from arena_cli.workspace.models import Member


def plan_step(
    room: Room, exchange: Exchange, member: Member, note: str, told: Sequence[ShownMessage] = ()
) -> Planned:
    """Plan the call of one of the two: the conversation, their messages, what is asked."""
    started = exchange.started
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
    now = format_timestamp(room.clock.now())
    notes = [exchange_texts.make_note(note, now), *told] if note else []
    heard = [event.message.id for event in exchange.messages if event.message.author_id == other]
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


async def make_loop(
    room: Room, member: Member, planned: Planned, heard: Heard, within: str
) -> SubLoop:
    """Return the loop of one of the two, with its tools."""
    toolbox = Toolbox(())
    way = find_tool_way(member.profile) if member.profile.acts else None
    if way == "mcp":
        return await open_aside(member, room, planned, heard, within=within)
    if way == "loop":
        with suppress(AgentUnavailable):  # it can still answer
            toolbox = await room.tools.get(room).open(member)
    return SubLoop(member, room, planned, heard, toolbox, within=within)
