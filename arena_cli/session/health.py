"""Whether agents could be called now, asked as a session would call them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from arena_cli.adapters.base import Health
from arena_cli.session import session, store
from arena_cli.session.session import Place
from arena_cli.team.model import AgentProfile, Member


async def of(place: Place, profiles: Collection[AgentProfile]) -> dict[str, Health]:
    """The health of each agent, by id, in their order; all are asked at once."""
    redactor = session.redactor_of(place, profiles)
    runtime = session.runtime_of(place, redactor, scratch=store.sessions_of(place.workspace))
    everyone = [Member(profile, profile.name) for profile in profiles]
    found = await asyncio.gather(*(runtime.health(member) for member in everyone))
    return {member.id: health for member, health in zip(everyone, found, strict=True)}
