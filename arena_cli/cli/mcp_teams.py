"""The tools with which any MCP client uses the teams of a workspace: `arena mcp`.

Imported by `arena mcp` only, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import mcp_types as types
import typer
from mcp.server.lowlevel import Server

from arena_cli import errors
from arena_cli.cli import common, mcp_server, trust
from arena_cli.cli.mcp_server import Context, describe_failure, describe_value
from arena_cli.errors import SessionBusy
from arena_cli.notes.model import KINDS
from arena_cli.session import outgoing, shelves, store
from arena_cli.session.session import Session, own_notes, shared_notes
from arena_cli.tools.base import find_problem
from arena_cli.transcript.events import ChainFinished, Event, ReplyFinished
from arena_cli.util.text import cut_text
from arena_cli.workspace import agents
from arena_cli.workspace.workspace import Workspace

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import ChainPaused

_INSTRUCTIONS = (
    "Teams of AI agents. send_to_team runs a whole conversation of a team and returns its replies; "
    "give the session name of an earlier result to continue that conversation."
)
_BUSY_S = 60.0
_POLL_S = 0.2
_PREVIEW = 200
_MOST_NOTES = 50
_FAILED = ("error", "timeout", "cancelled")
_EXIT_CODES = {"failed": errors.EXIT_FAILED, "cancelled": errors.EXIT_INTERRUPTED}

Report = Callable[[float, str], Awaitable[None]]
Result = tuple[str, dict[str, Any]]
"""A result as text, and as JSON."""


class _Offer(NamedTuple):
    """A tool as clients are shown it, and its function."""

    tool: types.Tool
    call: Callable[[Mapping[str, Any], Report], Awaitable[Result]]


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def _list_of(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object((), **properties)}


_TEXT, _TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
_READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)

_SEND = types.Tool(
    name="send_to_team",
    description="Send a message to a team, wait until its agents have replied, and return their "
    "replies. This takes as long as the agents do: minutes, if they are slow.",
    input_schema=_object(
        ("message",),
        message=_text("What to say; @ID calls an agent by its id."),
        team=_text("The team, by its name; by default the workspace's."),
        session=_text("Continue this session, or create it; by default a new one."),
    ),
    output_schema=_object(
        ("session", "end", "exit_code", "replies"),
        session=_TEXT,
        end=_text("quiet: all have replied; paused: it waits for a person; or failed, cancelled."),
        exit_code={"type": "integer", "description": "That of `arena send`: 0 if all is well."},
        replies=_list_of(author=_TEXT, name=_TEXT, content=_TEXT),
        failures=_list_of(author=_TEXT, error=_TEXT),
    ),
    annotations=types.ToolAnnotations(read_only_hint=False, open_world_hint=True),
)
_TEAMS = types.Tool(
    name="list_teams",
    description="List the teams of the workspace, with their members.",
    input_schema=_object(),
    output_schema=_object(
        ("teams",), teams=_list_of(team=_TEXT, description=_TEXT, members=_TEXTS)
    ),
    annotations=_READS,
)
_AGENTS = types.Tool(
    name="list_agents",
    description="List the agents of the workspace, with their skills and kinds.",
    input_schema=_object(),
    output_schema=_object(
        ("agents",), agents=_list_of(id=_TEXT, name=_TEXT, kind=_TEXT, skills=_TEXTS)
    ),
    annotations=_READS,
)
_NOTES = types.Tool(
    name="search_notes",
    description="Find what the teams have noted: decisions, requirements, solutions, pitfalls.",
    input_schema=_object(
        ("query",),
        query=_text("Words to look for."),
        kind={"type": "string", "enum": [*KINDS], "description": "Only notes of this kind."},
        limit={"type": "integer", "minimum": 1, "maximum": _MOST_NOTES, "default": 10},
    ),
    output_schema=_object(
        ("notes",), notes=_list_of(file=_TEXT, kind=_TEXT, title=_TEXT, text=_TEXT)
    ),
    annotations=_READS,
)


def make_server(context: typer.Context) -> Server[Any]:
    """Return the server of a workspace; its files are read again for each call."""
    service = _Teams(context)
    offers = {
        offer.tool.name: offer
        for offer in (
            _Offer(_SEND, service.send),
            _Offer(_TEAMS, service.list_teams),
            _Offer(_AGENTS, service.list_agents),
            _Offer(_NOTES, service.search_notes),
        )
    }

    async def list_tools() -> list[types.Tool]:
        return [offer.tool for offer in offers.values()]

    async def call_tool(
        mcp_context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        offer = offers.get(params.name)
        arguments = params.arguments or {}
        tool_names = ", ".join(offers)
        problem = f"there is no tool {params.name}; there are: {tool_names}"
        if offer is not None:
            problem = find_problem(offer.tool.input_schema, arguments)
        if offer is None or problem:
            return describe_failure(problem)

        async def report(progress: float, message: str) -> None:
            await mcp_context.session.report_progress(progress, None, message)

        return describe_value(*await offer.call(arguments, report))

    return mcp_server.make_server(_INSTRUCTIONS, list_tools, call_tool)


class _Teams:
    """The tools; each loads the workspace as it is now."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context
        self._busy: dict[str, asyncio.Lock] = {}

    def _load(self) -> Workspace:
        return common.load_workspace(self._context)

    async def send(self, arguments: Mapping[str, Any], report: Report) -> Result:
        """Send a message and run its chain to the end. Raises ArenaError."""
        name = arguments.get("session") or None
        if name is None:
            return await self._send(arguments, name, report)
        # Another process is waited for up to a limit, calls of this one until they have ended.
        async with self._busy.setdefault(store.checked(name).casefold(), asyncio.Lock()):
            return await self._send(arguments, name, report)

    async def _send(self, arguments: Mapping[str, Any], name: str | None, report: Report) -> Result:
        loaded = self._load()
        stored = _find_stored(loaded, name)
        team = common.find_team(loaded, stored, arguments.get("team") or None)
        sent = outgoing.outgoing(team, arguments["message"])
        profiles = [member.profile for member in team.agents]
        config = trust.live_place(loaded, profiles, wait_s=0)
        results: list[ReplyFinished] = []
        new: asyncio.Queue[ReplyFinished | None] = asyncio.Queue()

        def on_event(event: Event) -> None:
            if isinstance(event, ReplyFinished):
                results.append(event)
                new.put_nowait(event)

        ends_at = time.monotonic() + _BUSY_S
        while True:
            try:
                opened = Session(config, name, team, on_event=on_event)
                break
            except SessionBusy:
                if time.monotonic() >= ends_at:
                    raise
                await asyncio.sleep(_POLL_S)
        with opened:
            reporting = asyncio.create_task(_report_replies(new, report))
            try:
                finished = await opened.last(opened.send(sent))
            finally:
                new.put_nowait(None)
                await reporting
        return _describe_chain(opened.name, finished, results)

    async def list_teams(self, _: Mapping[str, Any], __: Report) -> Result:
        """Return the teams."""
        loaded = self._load()
        teams = [loaded.team(name) for name in loaded.teams]
        listed = [
            {
                "team": team.name,
                "description": team.description,
                "members": [member.id for member in team.members],
            }
            for team in teams
        ]
        lines = [
            f"{team.name}: {', '.join(member.id for member in team.members)}. {team.description}"
            for team in teams
        ]
        if not teams:
            lines = ["There is no team file; by default every agent is in the team."]
        return "\n".join(lines), {"teams": listed}

    async def list_agents(self, _: Mapping[str, Any], __: Report) -> Result:
        """Return the agents."""
        listed = [
            {
                "id": agent_id,
                "name": profile.name or agent_id,
                "kind": str(profile.adapter["type"]),
                "skills": profile.skills,
            }
            for agent_id, profile in self._load().profiles.items()
        ]
        lines = [f"@{a['id']} ({a['name']}): {', '.join(a['skills'])}" for a in listed]
        return "\n".join(lines), {"agents": listed}

    async def search_notes(self, arguments: Mapping[str, Any], _: Report) -> Result:
        """Return the notes of all sessions, and those that they share, that match a query."""
        loaded = self._load()
        root = loaded.root
        kinds = [arguments["kind"]] if arguments.get("kind") else []
        folders = [own_notes(stored.folder, root) for stored in store.stored(root)]
        index = shelves.open_index(
            root,
            [*folders, shared_notes(root)],
            embedding=loaded.file.memory.embedding,
            environ={**agents.read_dotenv(root), **os.environ},
            connects=False,
            on_problem=lambda problem: common.warn(str(problem)),
        )
        try:
            index.sync()
            limit = arguments.get("limit") or 10
            hits = index.search(arguments["query"], kinds=kinds, limit=limit)
        finally:
            index.close()
        notes = [
            {
                "file": hit.note.file,
                "kind": hit.note.kind,
                "title": hit.note.title,
                "text": hit.note.body,
            }
            for hit in hits
        ]
        lines = [f"{n['file']} ({n['kind']}): {n['title']}\n{n['text']}" for n in notes]
        return "\n\n".join(lines) or "No note matches.", {"notes": notes}


def _find_stored(loaded: Workspace, name: str | None) -> store.Stored | None:
    """Return the session to continue; None for a new one. Raises UsageError."""
    if name is None:
        return None
    folder = store.existing(store.sessions_folder(loaded.root), store.checked(name))
    if folder is None or not (folder / store.TRANSCRIPT).is_file():
        return None
    return store.find(loaded.root, name)


async def _report_replies(new: asyncio.Queue[ReplyFinished | None], report: Report) -> None:
    """Report each reply as progress, if the client asked for it."""
    count = 0
    while (reply := await new.get()) is not None:
        count += 1
        text = reply.message.content if reply.message else f"({reply.status})"
        with contextlib.suppress(Exception):  # the client may be gone
            await report(count, cut_text(f"{reply.agent}: {text}", _PREVIEW))


def _describe_chain(
    session: str, finished: ChainFinished | ChainPaused, results: list[ReplyFinished]
) -> Result:
    """Return the replies of a chain and how it ended, as text and as JSON."""
    end, exit_code, note = "paused", errors.EXIT_PAUSED, ""
    if finished.type == "chain_finished":
        end = finished.end
        exit_code = _EXIT_CODES.get(end, 0)
        note = f", awaiting {', '.join(finished.awaits)}" if finished.awaits else ""
    else:
        note = f": {finished.detail}; `arena approvals {session}` lists what waits for a person"
    replies = [
        {
            "author": reply.agent,
            "name": reply.message.author_name,
            "content": reply.message.content,
        }
        for reply in results
        if reply.message is not None
    ]
    failures = [
        {"author": reply.agent, "error": reply.error or reply.status}
        for reply in results
        if reply.status in _FAILED
    ]
    paragraphs = [f"{reply['name']} (@{reply['author']}):\n{reply['content']}" for reply in replies]
    paragraphs += [f"@{failure['author']} failed: {failure['error']}" for failure in failures]
    paragraphs.append(f"[session {session}, {end}{note}]")
    value = {"session": session, "end": end, "exit_code": exit_code}
    return "\n\n".join(paragraphs), {**value, "replies": replies, "failures": failures}
