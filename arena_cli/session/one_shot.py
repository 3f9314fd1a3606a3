"""Ask agents outside of any conversation: judges, trials and health checks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from arena_cli.adapters.base import Health, SessionConfig
from arena_cli.adapters.process import cleanup
from arena_cli.adapters.runtime import Calls, Middleware
from arena_cli.context import render, window
from arena_cli.engine import loop, plan
from arena_cli.engine.call import announce, run
from arena_cli.engine.plan import Planned, Room, Scene
from arena_cli.engine.rules import StartTurn
from arena_cli.errors import AgentError, DiskRefused
from arena_cli.protocol import AgentInput, ToolSpec
from arena_cli.session import outgoing, session, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.transcript import log
from arena_cli.transcript.events import Event, ReplyFinished
from arena_cli.transcript.log import Journal, NullLog
from arena_cli.transcript.state import Fold
from arena_cli.util.language import Texts
from arena_cli.util.text import clean_text
from arena_cli.workspace.models import AgentProfile, Member, Team, TeamConfig

MOST_AT_ONCE = 8  # each may be a program of its own


class OneShotReply(NamedTuple):
    """The input that an agent was shown, and the end of its reply."""

    input: AgentInput
    finished: ReplyFinished


class Aside:
    """Asks agents, each alone in a team, each question in a temporary session of its own.

    Leave it (`async with`) once all are answered. A process that an agent keeps running is reused
    for its next question; two concurrent questions have separate ones. `config` are the rules of
    the team, `middlewares` as in `Session`. `used` are the entries (from 0) of scripted agents that
    were used up, by agent.
    """

    def __init__(
        self,
        session_config: SessionConfig,
        config: TeamConfig | None = None,
        *,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.used: dict[str, set[int]] = {}
        self._config = session_config
        # A team's rules are about what it says; a verdict is no reply of it.
        self._rules = (config or TeamConfig()).model_copy(update={"rules": []})
        self._middlewares = middlewares
        self._teams: dict[str, Team] = {}
        self._called: dict[str, int] = {}
        self._idle: dict[str, list[Calls]] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0

    async def ask(self, member: Member, text: str) -> OneShotReply:
        """Send an agent this text, and return the result.

        At most `MOST_AT_ONCE` agents are called at once; further calls wait in order, outside their
        deadline. If cancelled, its work is ended first. Raises DiskRefused.
        """
        async with self._places:
            idle = self._idle.setdefault(member.id, [])
            calls = idle.pop() if idle else self._made(member)
            try:
                return await self._asked(member, text, calls)
            finally:
                idle.append(calls)

    async def __aenter__(self) -> Aside:
        cleanup.end_recorded(store.process_records_folder(self._config.workspace))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await asyncio.gather(
                *(adapter.stop() for idle in self._idle.values() for adapter in idle)
            )
        finally:
            if self._temporary:
                self._temporary.cleanup()

    def _made(self, member: Member) -> Calls:
        runtime = session.make_runtime(
            self._config,
            session.make_redactor(self._config, [member.profile]),
            scratch=self._folder() / "scratch",
            used=lambda agent: frozenset(self.used.get(agent, ())),
        )
        return Calls(runtime, self._middlewares)

    def _folder(self) -> Path:
        """Return a temporary folder, made at its first use. Raises DiskRefused."""
        if self._temporary is None:
            try:
                self._temporary = tempfile.TemporaryDirectory(
                    prefix="arena-aside-", ignore_cleanup_errors=True
                )
            except OSError as error:
                problem = f"no folder for temporary files: {error.strerror or error}"
                raise DiskRefused(
                    problem, "free disk space or fix the permissions there, or set TMPDIR"
                ) from error
        self._count += 1
        root = Path(self._temporary.name).resolve()
        return root / f"{root.name}-{self._count}"

    async def _asked(self, member: Member, text: str, calls: Calls) -> OneShotReply:
        team = self._teams.setdefault(member.id, Team(None, (member,), config=self._rules))
        folder = self._folder()
        history = window.make_history(team)
        fold = Fold(history.append)
        fold.calls, fold.scripted_used = self._called, self.used
        heard: list[Event] = []
        room = session.make_room(
            self._config,
            Scene(folder.name, team, fold, history),
            Journal(NullLog(self._config.clock), fold, heard.append),
            calls,
            partial(log.store, session=folder, workspace=folder),
        )
        planned = _planned(room, member.id, text)
        announce(planned, room)
        try:
            await run(planned, room)
        finally:
            await room.tools.stop()
            await room.control.stop()
        (finished,) = (event for event in heard if isinstance(event, ReplyFinished))
        return OneShotReply(planned.input, finished)


def _planned(room: Room, agent: str, text: str) -> Planned:
    """Plan the call for a message that only this agent is shown, regardless of its mentions."""
    sent = outgoing.redacted(Outgoing(clean_text(text)[0]), room.runtime.redactor)
    opening = outgoing.open_chain(sent, room.journal, roster=room.roster, keep=room.keep)
    chain = room.scene.fold.open
    assert chain is not None
    turn = StartTurn(depth=0, must=(agent,), deferred=(), trigger=(opening.message.id,))
    loop.start_turn(turn, room.journal)
    return plan.plan(agent, "A", chain, room.scene)


QUESTION = "This is a test of the connection. Answer with one short word, such as: ok"


class Trial(NamedTuple):
    """The text that an agent was sent, and the end of its reply."""

    system: str
    prompt: str
    finished: ReplyFinished

    @property
    def works(self) -> bool:
        """True if the agent could be called; one that declines could."""
        return self.finished.status in ("success", "declined")


async def call_once(config: SessionConfig, member: Member, limit_s: float) -> Trial:
    """Call an agent, alone in a team, once, within `limit_s` seconds.

    Cancelled, its work is ended first. Raises DiskRefused.
    """
    if member.profile.inputs:
        inputs = import_module("arena_cli.workspace.inputs")
        member = inputs.fill_role(member, inputs.make_samples(member.profile.inputs))
    changed = {"on_failure": "skip", "timeout_s": limit_s, "inputs": {}}
    once = member.profile.model_copy(update=changed)
    async with Aside(config) as aside:
        answer = await aside.ask(replace(member, profile=once), Texts(config.language)(QUESTION))
    return Trial(*render.render(answer.input, config.language), answer.finished)


async def check_health(
    config: SessionConfig, profiles: Collection[AgentProfile]
) -> dict[str, Health]:
    """Return the health of each agent, by id, in their order; all are checked concurrently."""
    redactor = session.make_redactor(config, profiles)
    runtime = session.make_runtime(
        config, redactor, scratch=store.sessions_folder(config.workspace)
    )
    everyone = [Member(profile, profile.name) for profile in profiles]
    results = await asyncio.gather(*(runtime.health(member) for member in everyone))
    return {member.id: health for member, health in zip(everyone, results, strict=True)}


class OfferedTool(NamedTuple):
    """A tool of an MCP server; `is_named` if the agent's `tools` name it, so it may call it."""

    spec: ToolSpec
    is_named: bool


class ServerCheck(NamedTuple):
    """The result of a check of an agent's MCP server; `wrote` is text that was no message."""

    server: str
    health: Health
    tools: list[OfferedTool]
    wrote: str


def list_unnamed_servers(profile: AgentProfile) -> list[str]:
    """Return the MCP servers of which an agent's `tools` name no tool."""
    tool_entries = import_module("arena_cli.workspace.tool_entries")
    named = tool_entries.list_named_servers(profile.tools, profile.mcp)
    return [name for name in profile.mcp if name not in named]


async def check_servers(
    config: SessionConfig, profiles: Collection[AgentProfile]
) -> dict[str, list[ServerCheck]]:
    """Start each MCP server of the agents once, concurrently; return what they offer, by agent."""
    redactor = session.make_redactor(config, profiles)
    pool = import_module("arena_cli.tools.mcp_server").make_pool(config, redactor)
    try:
        results = await asyncio.gather(*(_check_servers(pool, profile) for profile in profiles))
    finally:
        await pool.stop()
    return {profile.agent_id: checks for profile, checks in zip(profiles, results, strict=True)}


async def _check_servers(pool: Any, profile: AgentProfile) -> list[ServerCheck]:
    servers = pool.list_servers(profile, profile.mcp)
    return await asyncio.gather(
        *(_check_server(name, server, profile) for name, server in servers.items())
    )


async def _check_server(name: str, server: Any, profile: AgentProfile) -> ServerCheck:
    try:
        specs: list[ToolSpec] = await server.list_tools()
    except AgentError as error:
        problem = str(error).removeprefix(f"{error.agent_id}: ")  # agents share a server
        return ServerCheck(name, Health(False, problem), [], "")
    tools = []
    for spec in specs:
        full = f"{name}.{spec.name}"
        is_named = any(fnmatchcase(full, entry) for entry in map(str, profile.tools))
        tools.append(OfferedTool(spec.model_copy(update={"name": full}), is_named))
    return ServerCheck(name, Health(True), tools, server.noise)
