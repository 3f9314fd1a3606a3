"""The agents that profiles name: those they may call as tools, and errors where there is none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from arena_cli import errors
from arena_cli.errors import Fault
from arena_cli.workspace import models
from arena_cli.workspace.agents import LoadedProfile, ProfileSource
from arena_cli.workspace.models import AgentProfile


def add_subagents(
    profiles: Iterable[AgentProfile], loaded: Mapping[str, LoadedProfile]
) -> list[AgentProfile]:
    """Return these profiles, and those of the agents that they may call as tools."""
    by_id = {profile.agent_id: profile for profile in profiles}
    waiting = list(by_id.values())
    while waiting:
        for _, agent in waiting.pop().list_subagents():
            if agent in loaded and agent not in by_id:
                by_id[agent] = loaded[agent].profile
                waiting.append(by_id[agent])
    return list(by_id.values())


def find_reference_faults(
    loaded: Mapping[str, LoadedProfile], broken: Collection[str] = ()
) -> list[Fault]:
    """Return the errors of profiles that name an agent that neither is loaded nor `broken`."""
    faults = []
    for agent in loaded.values():
        named = {"may_mention": agent.profile.may_mention, "may_ask": agent.profile.may_ask}
        for key, index, name in (
            (key, index, name)
            for key, names in named.items()
            for index, name in enumerate(names or ())
        ):
            if models.normalize_id(name) not in loaded and models.normalize_id(name) not in broken:
                faults.append(_make_unknown_agent_fault(agent.source, (key, index), name, loaded))
        for index, name in agent.profile.list_subagents():
            if name not in loaded and name not in broken:
                faults.append(
                    _make_unknown_agent_fault(agent.source, ("tools", index), name, loaded)
                )
    return faults


def _make_unknown_agent_fault(
    source: ProfileSource, loc: tuple[str | int, ...], name: str, agent_ids: Iterable[str]
) -> Fault:
    return source.fault(loc, f"there is no agent `{name}`", errors.suggest_nearest(name, agent_ids))
