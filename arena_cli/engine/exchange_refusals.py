"""Whom an agent may ask directly, and why it may not."""

from __future__ import annotations

from arena_cli.engine.exchange_queue import ExchangeQueue
from arena_cli.engine.exchange_state import STEP, Exchange
from arena_cli.engine.exchange_texts import Ask
from arena_cli.engine.plan import Room
from arena_cli.workspace.mentions import resolve_mentions
from arena_cli.workspace.models import Member, normalize_id

DEEPEST = 2
"""An agent that is asked may ask another one, which may ask no agent in turn."""


def find_target(room: Room, agent: str) -> str:
    """Return the id of the agent that is asked, or the name if no agent has it."""
    chain = room.scene.fold.open
    opener = chain.opening.message.author_id if chain else ""
    found = resolve_mentions([agent], room.roster, author="", opener=opener).ids
    return found[0] if len(found) == 1 else agent.strip().lstrip("@")[:80]


def find_problem(
    room: Room,
    queue: ExchangeQueue,
    requester: Member,
    target: str,
    asked: Ask,
    outer: Exchange | None,
    name: str,
) -> str:
    """Return why a question cannot be asked, "" if it can.

    `name` is that of its exchange, `outer` the one in which it is asked, if any.
    """
    team = room.scene.team
    if asked.problem:
        return asked.problem
    if not asked.message.strip():
        return "the question is empty"
    if target == requester.id:
        return "an agent cannot ask itself"
    if team.member(target) is not None:
        refusal = _find_refusal(room, queue, requester, target, name)
        is_partner = outer and target in (outer.started.requester, outer.started.target)
        if is_partner and not refusal:
            return f"you talk with {target} already: ask it in your answer"
        return refusal
    chain = room.scene.fold.open
    people = {human.id for human in team.humans}
    if chain is not None:
        people.add(chain.opening.message.author_id)
    others = ", ".join(member.id for member in team.members if member.id != requester.id)
    what = "is a person: mention it in your reply"
    if target not in people:
        what = "is not in your team"
    return f"{target} {what}; you may ask: {others or 'nobody'}"


def _find_refusal(
    room: Room, queue: ExchangeQueue, requester: Member, target: str, name: str
) -> str:
    """Return why a member may not be asked now, "" if it may."""
    profile = requester.profile
    allowed = profile.may_mention if profile.may_ask is None else profile.may_ask
    control = room.control.find(room)
    unavailable = control.unavailable() if control else {}
    if allowed is not None and target not in map(normalize_id, allowed):
        return f"you may not ask {target} (may_ask)"
    if name.count(STEP) >= DEEPEST:
        return "you are asked by an agent that is asked itself: answer without asking on"
    if queue.closes_ring(requester.id, target):
        return f"{target} waits for you already: it would be a ring"
    return f"{target} is {unavailable[target]}" if target in unavailable else ""
